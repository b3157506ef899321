"""The compatibility data: names of GPUs and of extensions, features of CPUs, damaged files."""

import re
import sys

import pytest

from gpuenv.compat import data as matrix
from gpuenv.compat import extensions, user_rows, variants
from gpuenv.compat.catalog import Catalog
from gpuenv.errors import DataError
from gpuenv.model import Gpu, Host, Python
from gpuenv.render import plans
from tables import ROOT, data_file, each

TABLES = data_file("tables/compat_facts.json")

DATA = matrix.load()


def host(*capabilities, **fields):
    gpus = tuple(
        Gpu(name=f"GPU {number}", compute_capability=capability)
        for number, capability in enumerate(capabilities)
    )
    return Host(python=Python(version=(3, 12)), gpus=gpus, **fields)


# ---- one release on a host -----------------------------------------------------------------------


# ---- variant wheels ------------------------------------------------------------------------------


CPUS = data_file("cpu_features.json")
# Names of Linux (cpufeatures.h) that the CPU families of archspec do not have.
ONLY_LINUX = {"cppc", "ibrs_enhanced"}


@each("namespace", ["x86_64", "aarch64"])
def test_the_features_of_variants_are_names_of_cpu_features(namespace):
    first, *names = variants.FEATURES[namespace]
    cpu = host().replace(machine=namespace, cpu=(*CPUS[namespace], *ONLY_LINUX))
    assert first == {"x86_64": "level", "aarch64": "version"}[namespace]
    without = [
        name
        for name in names
        if variants.suitable_values(namespace, name, ["on", "off"], cpu) != ("on",)
    ]
    assert without == [] and {*names} <= variants.CPU_FEATURES


@each("level", ["v2", "v3", "v4"])
def test_a_cpu_of_a_level_has_its_features(level):
    """The lists of archspec leave out SSE3, which the psABI has in v2."""
    features = {*CPUS["levels"][level], "sse3"}
    names = sorted(CPUS["levels"])
    reached = tuple(reversed(["v1", *names[: names.index(level) + 1]]))
    cpu = host().replace(machine="x86_64", cpu=tuple(sorted(features)))
    found = variants.suitable_values("x86_64", "level", ["v1", "v2", "v3", "v4", "v5"], cpu)
    assert found == reached
    for name in features - {"mmx", "sse", "sse2"}:
        less = cpu.replace(cpu=tuple(features - {name}))
        assert len(variants.suitable_values("x86_64", "level", reached, less)) < len(reached)


# ---- files of the data ---------------------------------------------------------------------------

# schema, date of the data, whether it is used, the message
SKEWS = [
    (matrix.SCHEMA, DATA.version.partition(".")[0], False, ""),
    (matrix.SCHEMA, "2099-01-02", True, ""),
    (matrix.SCHEMA, "2020-01-02", False, ""),
    (matrix.SCHEMA + 1, "2099-01-02", False, "needs a newer gpuenv"),
    (matrix.SCHEMA - 1, "2099-01-02", False, "is for an older gpuenv"),
]


def test_an_installed_gpuenv_has_its_data_in_the_package(tmp_path, monkeypatch):
    monkeypatch.setattr(matrix, "__file__", str(tmp_path / "lib" / "gpuenv" / "compat" / "data.py"))
    assert matrix.data_folder() == str(tmp_path / "matrix_data")  # a checkout
    installed = tmp_path / "lib" / "gpuenv" / "matrix_data"
    installed.mkdir(parents=True)
    assert matrix.data_folder() == str(installed)


@each("skew", SKEWS)
def test_newer_data_of_the_same_schema_is_used(skew, tmp_path, monkeypatch):
    schema, day, used, said = skew
    folder = tmp_path / "gpuenv_matrix"
    folder.mkdir()
    version = day.replace("-", ".")
    (folder / "__init__.py").write_text(f'__version__ = "{version}"\nSCHEMA = {schema}\n')
    tables = (ROOT / "matrix_data" / "tables.json").read_text()
    (folder / "tables.json").write_text(re.sub(r"\d{4}-\d\d-\d\d", day, tables, count=1))
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        chosen, lines = matrix.data_folder(), plans.package_lines(matrix.unread_package())
    finally:
        sys.modules.pop("gpuenv_matrix", None)
    assert chosen == (str(folder) if used else str(ROOT / "matrix_data"))
    assert len(lines) == (1 if said else 0)
    assert said in "".join(lines)


@each("content message", TABLES["damage_in_the_rows_of_the_user"])
def test_damage_in_the_rows_of_the_user(content, message, tmp_path):
    path = tmp_path / "rows.json"
    path.write_text(content)
    with pytest.raises(DataError, match=re.escape(f"{path} {message}")) as raised:
        user_rows.read_user_rows(str(path))
    assert "gpuenv matrix update" in raised.value.hint


# ---- names ---------------------------------------------------------------------------------------


def test_a_companion_has_the_code_that_was_read_from_its_own_file():
    """A build of the default index is that file, even if another index has the build, too."""
    entry = Catalog(DATA, lambda name: ()).entry("torchaudio", "linux-x86_64")
    found = 0
    for release in entry.releases:
        default = [one for one in release.variants if one.indexes[0] == "default"]
        for variant in default:
            own = DATA.library("torchaudio", variant.version, "linux-x86_64")
            if own is not None and len(variant.indexes) > 1:
                found += 1
                assert variant.code == own.code
        assert len({one.version for one in default}) == len(default)
    assert found


# ---- what variants and extensions name -----------------------------------------------------------


def fields_of(links):
    if links is None:
        return None
    release = "".join(extensions.shown_release(text) for _, text in links.frameworks)
    return [release, next(iter(links.cuda), None), links.cxx11_abi]


@each("version names_cuda expected", TABLES["what_the_name_of_an_extension_says"])
def test_what_the_name_of_an_extension_says(version, names_cuda, expected):
    found = extensions.of_version(version, names_cuda=names_cuda)
    assert fields_of(found) == expected


@each("build expected", TABLES["what_the_build_of_an_extension_says"])
def test_what_the_build_of_an_extension_says(build, expected):
    found = extensions.of_build_string(build)
    assert fields_of(found) == expected
