"""The files of a release, and what builds and publishes them."""

import io
import json
import tarfile
import zipfile

import yaml
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from jsonschema import Draft202012Validator
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from gpuenv.version import __version__
from script_modules import load_script
from small_wheels import make_wheel
from tables import ROOT, data_file, each, read_data


def test_the_same_content_gives_the_same_wheel(tmp_path):
    """Whatever the order, the times and the modes are; RECORD has every file."""
    build = load_script("release.build")
    given, turned = tmp_path / "given", tmp_path / "turned"
    given.mkdir()
    turned.mkdir()
    requires = ["beta>=2", "gamma; extra=='x'"]
    name = make_wheel(given, "alpha", "1.0", requires=requires).filename
    with zipfile.ZipFile(given / name) as old, zipfile.ZipFile(turned / name, "w") as new:
        for member in reversed(old.namelist()):
            entry = zipfile.ZipInfo(member, (2031, 1, 1, 0, 0, 0))
            entry.external_attr = 0o100600 << 16
            new.writestr(entry, old.read(member))
    for folder in (given, turned):
        (folder / "written").mkdir()
        build.write_wheel(folder / name, folder / "written", 1_700_000_000)
    written = given / "written" / name
    assert written.read_bytes() == (turned / "written" / name).read_bytes()
    with zipfile.ZipFile(written) as wheel:
        info = "alpha-1.0.dist-info"
        record = wheel.read(f"{info}/RECORD").decode().split()
        assert {row.split(",")[0] for row in record} == {*wheel.namelist()}
        text = wheel.read(f"{info}/sboms/gpuenv.cdx.json").decode()
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    bill = json.loads(text)
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/alpha@1.0"
    assert [part["purl"] for part in bill["components"]] == ["pkg:pypi/beta"]


def test_the_same_content_gives_the_same_sdist(tmp_path):
    release = load_script("release.build")
    written = []
    for name, turned in (("one", False), ("two", True)):
        path = tmp_path / f"{name}.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            for file in sorted(("a/PKG-INFO", "a/b.py"), reverse=turned):
                member = tarfile.TarInfo(file)
                member.size, member.mtime = len(file), 1.5 + turned
                member.uname, member.mode = name, 0o600 | turned << 5
                archive.addfile(member, io.BytesIO(file.encode()))
        release.write_sdist(path, tmp_path / f"{name}.new", 1_700_000_000)
        written.append((tmp_path / f"{name}.new").read_bytes())
    assert written[0] == written[1]


def test_the_generated_files_are_current(tmp_path):
    pages = load_script("docs.pages")
    texts = pages.texts()
    assert pages.update(ROOT, texts, is_check=True) == []
    assert pages.update(tmp_path, texts, is_check=False) == sorted(texts)
    gone, changed = tmp_path / "docs" / "causes" / "gone.md", tmp_path / "AGENTS.md"
    gone.write_text("# A cause that is gone\n")
    changed.write_text("# Changed by hand\n")
    stale = ["AGENTS.md", "docs/causes/gone.md"]
    assert pages.update(tmp_path, texts, is_check=True) == stale and gone.exists()
    assert pages.update(tmp_path, texts, is_check=False) == stale and not gone.exists()
    assert pages.update(tmp_path, texts, is_check=True) == []


@each(
    "name right wrong",
    data_file("tables/release.json")["schemas"],
)
def test_the_schemas_of_tables(name, right, wrong):
    text = (ROOT / "docs" / "schemas" / f"{name}.json").read_text()
    validator = Draft202012Validator(json.loads(text))
    assert list(validator.iter_errors(right)) == [] and list(validator.iter_errors(wrong))


def test_the_recipe_requires_what_the_package_requires():
    """The names of conda-forge differ for `build`; ahocorasick-rs is left out."""
    project = read_data(ROOT / "pyproject.toml")["project"]
    recipe = yaml.safe_load((ROOT / "scripts" / "recipes" / "recipe.yaml").read_text())
    assert recipe["context"]["version"] == __version__
    parts = [text.split() for text in recipe["requirements"]["run"][1:]]
    in_recipe = {name.replace("python-build", "build"): limits for name, limits in parts}
    needed = [Requirement(text) for text in project["dependencies"]]
    assert {name: SpecifierSet(limits) for name, limits in in_recipe.items()} == {
        need.name.lower(): need.specifier for need in needed if need.name != "ahocorasick-rs"
    }
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == __version__ and citation["license"] == project["license"]
