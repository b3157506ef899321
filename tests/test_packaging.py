"""What the package has: its packages and data, one version, a man page; and the files for CI."""

import json
import runpy

import pytest

from gpuenv.cli import all_commands, command_parser
from gpuenv.compat import data
from gpuenv.errors import DataError
from gpuenv.version import __version__
from tables import ROOT, read_data

PROJECT = read_data(ROOT / "pyproject.toml")
PACKAGES = set(PROJECT["tool"]["setuptools"]["packages"])


def test_every_package_is_in_the_wheel():
    folder = ROOT / "resolver"
    found = {path.parent for path in folder.rglob("*.py") if path.parent != folder}
    # variant_provider is a distribution of its own.
    parts = [path.relative_to(folder).parts for path in found]
    names = {".".join(names) for names in parts if names[0] != "variant_provider"}
    assert names == {name for name in PACKAGES if not name.startswith("gpuenv.matrix_data")}


def test_the_data_but_the_scans_is_in_the_wheel():
    folder = ROOT / "matrix_data"
    found = {path.parent.relative_to(folder) for path in folder.rglob("*.json")}
    found |= {path.parent.relative_to(folder) for path in folder.rglob("*.toml")}
    names = {
        ".".join(["gpuenv.matrix_data", *path.parts])
        for path in found
        if not {"scans", "package"}.intersection(path.parts)
    }
    assert names == {name for name in PACKAGES if name.startswith("gpuenv.matrix_data")}


# ---- gpuenv-matrix: the data as a distribution of its own ----------------------------------------


def test_the_package_of_the_data_has_what_gpuenv_has():
    project = read_data(ROOT / "matrix_data" / "package" / "pyproject.toml")
    tool = project["tool"]["setuptools"]
    own = {
        name.replace("gpuenv.matrix_data", "gpuenv_matrix")
        for name in PACKAGES
        if "matrix_data" in name
    }
    assert set(tool["packages"]) == own
    assert (
        ROOT / "matrix_data" / "package" / tool["package-dir"]["gpuenv_matrix"]
    ).resolve() == ROOT / "matrix_data"
    day = read_data(ROOT / "matrix_data" / "matrix.toml")["date"]
    package = runpy.run_path(str(ROOT / "matrix_data" / "__init__.py"))
    assert package["__version__"] == day.strftime("%Y.%m.%d")
    assert package["SCHEMA"] == data.SCHEMA


def test_a_schema_that_is_not_read_is_an_error(tmp_path):
    tables = read_data(ROOT / "matrix_data" / "tables.json")
    (tmp_path / "tables.json").write_text(json.dumps({**tables, "schema": data.SCHEMA + 1}))
    with pytest.raises(DataError, match=f"its schema is {data.SCHEMA + 1}"):
        data.load(str(tmp_path))


def test_the_man_page_has_every_command_and_flag():
    page = (ROOT / "docs" / "gpuenv.1").read_text().replace("\\-", "-")
    for name in all_commands():
        assert f".SS gpuenv {name}\n" in page
        section = page.partition(f".SS gpuenv {name}\n")[2].partition("\n.SS ")[0]
        missing = [flag for flag in command_parser(name).settable_flags() if flag not in section]
        assert missing == []
    assert f'"gpuenv {__version__}"' in page
    assert not any(line.startswith((".gpuenv", "'")) for line in page.splitlines())
