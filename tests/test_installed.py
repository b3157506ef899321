"""Installed files are compared with their RECORDs and with the host, in real environments."""

import importlib.metadata
import os
import sys
import time

from packaging.utils import canonicalize_name

import gpuenv
from gpuenv.api.data import compatibility_data
from gpuenv.distributions import Distribution, read_distributions
from gpuenv.model import Host, Python
from gpuenv.verify import installed
from gpuenv.verify.rule_checks import rule_checks
from gpuenv.verify.runner import Children
from gpuenv.verify.survey import Survey, read_survey
from small_wheels import write_files, write_record
from tables import data_file, each

TABLES = data_file("tables/installed.json")

HERE = (sys.version_info[0], sys.version_info[1])


def site_of(env):
    return env / "lib" / f"python{HERE[0]}.{HERE[1]}" / "site-packages"


def add(env, name, files, version="1.0", installer="pip", *, requires=()):
    """A distribution with these files, {path: text}."""
    site, texts = site_of(env), {"INSTALLER": installer}
    write_files(site, files)
    write_record(site, name, version, files, requires=requires, texts=texts)
    with (site / f"{name}-{version}.dist-info" / "RECORD").open("a") as record:
        record.write(f"{name}/__pycache__/gone.cpython-311.pyc,,\n{name}/__pycache__,,\n")


def surveyed(env, *, fast=False):
    """The survey, and the checks "owners", "files" and perhaps "files changed"."""
    with Children(str(env / "bin/python"), {}, time.monotonic() + 60) as children:
        survey = read_survey(children.run("interpreter", {"imports": []}).answer)
        comparison = installed.compare_files(children.run, survey, () if fast else None)
        return survey, installed.file_checks(survey, comparison, compatibility_data())


def files_of(env):
    """The check "files"; the one of changed data files if only that is not passed."""
    checks = surveyed(env)[1]
    return checks[-1] if checks[1].status == "pass" else checks[1]


def owners_of(env):
    return surveyed(env)[1][0]


def change(env, path, text):
    (site_of(env) / path).unlink()
    if text is not None:
        (site_of(env) / path).write_text(text)


FILES = {
    "odd/__init__.py": "x = 1\n",
    "odd/core.so": "library",
    "odd/data.pem": "certificates",
    "odd/tests/test_x.py": "assert x\n",
    "../../../bin/odd": "#!python\n",
    "../../../etc/odd.conf": "[odd]\n",
    "nvidia_odd.h": "",
}


@each("path text status evidence", TABLES["a_file_that_is_not_as_recorded"])
def test_a_file_that_is_not_as_recorded(env, path, text, status, evidence):
    add(env, "odd", FILES)
    assert files_of(env).status == "pass"
    change(env, path, text)
    found = files_of(env)
    assert (found.status, evidence in found.evidence) == (status, True), found.evidence


def test_the_content_of_every_file_counts(env):
    """With --fast only the sizes."""
    add(env, "odd", FILES)
    change(env, "odd/__init__.py", "x = 2\n")
    _, (_, found) = surveyed(env)
    assert found.status == "fail" and "its sha256 is not the recorded one" in found.evidence
    assert surveyed(env, fast=True)[1][1].status == "pass"


def test_a_library_without_an_owner(env):
    """What an uninstallation of a CUDA library has left."""
    add(env, "odd", FILES)
    library = site_of(env) / "nvidia" / "odd" / "lib" / "libodd.so.9"
    library.parent.mkdir(parents=True)
    library.write_text("library")
    found = files_of(env)
    assert found.status == "fail" and f"{library} belongs to no distribution" in found.evidence


# What a distribution requires beside "base" 1.5 and "extended" 1.0, and what is wrong with it.
REQUIREMENTS = TABLES["requirements"]


@each("requirement", [*REQUIREMENTS])
def test_what_a_distribution_requires(env, requirement):
    add(env, "base", {}, version="1.5")
    add(env, "extended", {}, requires=["base", "missing > 2 ; extra == 'more'"])
    add(env, "odd", {}, requires=[requirement])
    survey = surveyed(env)[0]
    data = compatibility_data()
    found = installed.dependency_check(survey, data, ())
    wrong = REQUIREMENTS[requirement]
    assert (found.status, found.evidence) == ("fail", wrong) if wrong else found.status == "pass"
    in_conda = installed.dependency_check(survey.replace(conda={"python": "3.12"}), data, ())
    assert in_conda.status == ("unknown" if wrong else "pass")


def test_all_of_nvidias_files_count(env):
    add(env, "nvidia_odd", {"nvidia/odd/include/odd.h": "// text"})
    change(env, "nvidia/odd/include/odd.h", "// TEXT")
    found = files_of(env)
    assert (found.status, "odd.h of nvidia-odd: its sha256 is not" in found.evidence) == (
        "fail",
        True,
    )


def test_conda_keeps_records_of_its_own(env):
    add(env, "odd", FILES, installer="conda")
    change(env, "odd/core.so", None)
    assert files_of(env).status == "pass"


@each(
    "kept evidence",
    [
        (None, "has no RECORD"),
        (slice(0), "has no RECORD"),
        (slice(-1), "has a RECORD that ends in the middle of a line"),
        (slice(100), "has a RECORD that ends in the middle of a line"),
    ],
)
@each("name", ["nvidia_odd", "odd"])
def test_a_distribution_without_a_whole_record(name, kept, evidence, env):
    """It is half installed."""
    add(env, name, {f"{name}/odd.py": ""})
    record = f"{name}-1.0.dist-info/RECORD"
    change(env, record, None if kept is None else (site_of(env) / record).read_text()[kept])
    found = files_of(env)
    assert found.status == "fail"
    assert f"{name.replace('_', '-')} {evidence}: reinstall it" in found.evidence


@each(
    "file text evidence",
    [
        ("WHEEL", "Tag: cp27-cp27mu-linux_x86_64\n", "a wheel for another Python"),
        (
            "direct_url.json",
            '{"url": "file:///gone", "dir_info": {"editable": true}}',
            "not there",
        ),
    ],
)
def test_what_is_not_installed_for_this_place(file, text, evidence, env):
    add(env, "odd", FILES)
    (site_of(env) / "odd-1.0.dist-info" / file).write_text(text)
    found = files_of(env)
    assert (found.status, evidence in found.evidence) == ("fail", True)


def test_what_setup_py_installed_has_no_record(env):
    info = site_of(env) / "old-1.0.egg-info"
    info.mkdir()
    (info / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: old\nVersion: 1.0\n")
    assert files_of(env).status == "pass"


def test_what_pip_leaves_when_it_is_interrupted(env):
    add(env, "odd", FILES, version="2.0")
    add(env, "old", {})
    info = site_of(env) / "old-1.0.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    info.rename(site_of(env) / "~dd-1.0.dist-info")
    survey, checks = surveyed(env)
    assert survey.versions == {"odd": "2.0"}
    assert {one.status for one in checks} == {"pass"}


def test_a_distribution_that_is_there_twice(env):
    add(env, "odd", FILES)
    add(env, "odd", {}, version="0.9")
    found = owners_of(env)
    assert (found.status, found.evidence) == ("fail", "odd is installed twice, as 0.9 and 1.0")


@each("path status evidence", TABLES["two_owners"])
def test_two_owners(env, path, status, evidence):
    add(env, "one", {path: "the first"})
    add(env, "two", {path: "the second"})
    _, (found, files) = surveyed(env)
    assert files.status == "pass"
    evidence = evidence.replace("SITE", str(site_of(env)))
    assert (found.status, evidence in found.evidence) == (status, True), found.evidence


@each("release status", [("4.10", "pass"), ("5.0", "fail")])
def test_a_family_that_people_live_with(env, release, status):
    """Files of several OpenCVs may be mixed if they are of one release."""
    paths = ("cv2/__init__.py", "cv2/cv2.abi3.so")
    add(env, "opencv_python", dict.fromkeys(paths, "the first"), version="4.10")
    add(env, "opencv_python_headless", dict.fromkeys(paths, "the second"), version=release)
    change(env, paths[0], "the first")
    found = surveyed(env)[1][0]
    mixed = "the files of opencv-python 4.10 and opencv-python-headless 5.0 are mixed"
    assert (found.status, mixed in found.evidence) == (status, status == "fail"), found.evidence


def test_the_same_bytes_twice(env):
    for name in ("one", "two"):
        add(env, name, {"tests/__init__.py": ""})
    assert (owners_of(env).status, owners_of(env).evidence) == ("pass", "no file has two owners")


METADATA = TABLES["metadata"]


def test_distributions_are_read_as_importlib_reads_them(tmp_path, monkeypatch):
    write_files(tmp_path, METADATA)
    egg = tmp_path / "whole-1.0-py3.egg"
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "none"), str(tmp_path), str(egg)])
    expected = []
    for dist in importlib.metadata.distributions():
        name, folder = canonicalize_name(dist.metadata["Name"]), str(dist.locate_file(""))
        requires, record = tuple(dist.requires or ()), dist.read_text("RECORD") or ""
        expected.append((name, dist.version, requires, folder, record))
    expected.remove(("plain-name", "1.0", (), str(tmp_path), ""))  # what pip left behind
    answer = []
    for read in read_distributions(map(os.path.abspath, sys.path)):
        row = (read.name, read.version, read.requires, read.folder, read.read_text("RECORD"))
        answer.append(row)
    assert sorted(answer, key=repr) == sorted(expected, key=repr)
    assert len([row for row in answer if row[3].startswith(str(tmp_path))]) == 8


# ---- against the host ----------------------------------------------------------------------------

H100 = gpuenv.describe(gpus=("H100",), driver="580.65.06", platform="linux-x86_64")
NONE = Host(python=Python(version=HERE))


def suits(host, *pins):
    rows = tuple(Distribution(name=name, version=version) for name, version in pins)
    survey = Survey(interpreter={}, distributions=rows)
    frameworks = ("torch", "tensorflow", "jax", "onnxruntime")
    found = rule_checks(None, survey, host, compatibility_data(), frameworks)
    return {f"{one.name} {one.subject}".strip(): one for one in found}


@each("pins subject", TABLES["a_build_for_the_cpu"])
def test_a_build_for_the_cpu(pins, subject):
    rows = [(name, version) for name, version in pins]
    found = suits(H100, *rows)
    assert found[f"build {subject}"].status == "fail"
    assert "gpuenv solve --framework" in found[f"build {subject}"].evidence
    assert not any(name.startswith("build") for name in suits(NONE, *rows))


def test_a_build_for_the_cpu_beside_one_for_cuda_may_be_meant():
    found = suits(H100, ("onnxruntime", "1.31.1"), ("torch", "2.10.0"))
    assert found["build onnxruntime 1.31.1 (cpu)"].status == "unknown"


def test_nothing_speaks_against_it():
    found = suits(NONE, ("torch", "2.10.0"), ("numpy", "2.4.0"))
    assert {name: one.status for name, one in found.items()} == {"rules": "pass"}
    assert "no known GPU" in found["rules"].evidence
