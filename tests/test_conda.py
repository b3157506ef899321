"""conda environments from a local channel of real records: solves, locks, installation."""

import hashlib
import json
import os
import re
import sys
import threading
import time
import venv
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import conda_channel
import gpuenv
import test_cli
from gpuenv import api
from gpuenv.api import conda_installing
from gpuenv.api.conda import solve_with
from gpuenv.compat import conda_parts, conda_records
from gpuenv.compat.architectures import parse_target
from gpuenv.errors import (
    HostMismatchError,
    InputError,
    InstallError,
    NoSolutionError,
    TamperedError,
    is_doubt,
)
from gpuenv.install import conda
from gpuenv.lock import conda_formats
from gpuenv.model import Gpu, Request, parse_pair
from gpuenv.requirements import conda_versions
from gpuenv.resolve.conda import solvers, virtual_packages
from gpuenv.verify.installed import compare_files, file_checks
from gpuenv.verify.runner import Children
from gpuenv.verify.survey import read_survey
from processes import run_program
from tables import cases, data_file, each

TABLES = data_file("conda.toml")
CASES, CARRIED, BUILDS = TABLES["case"], TABLES["carrier"], TABLES["build"]
GOOD = [case for case in CASES if "codes" not in case]
BAD = [case for case in CASES if "codes" in case]
DATA = api.compatibility_data()
CARRIERS = conda_records.Carriers(DATA.folder)
CODE = json.loads((Path(DATA.folder) / "conda" / "carriers.json").read_text())["code"]
HOST = "--gpu H100 --driver 570.86.10 --glibc 2.35 --platform linux-x86_64"


pytestmark = pytest.mark.usefixtures("own_conda_caches")


@pytest.fixture(scope="module")
def solver(channel):
    one = solvers.RattlerSolver([channel], ["linux-64", "noarch"])
    yield one
    one.close()


def of_carriers():
    """The records of the other frameworks, beside the channel's own."""
    text = conda_channel.RECORDS.with_name("conda_carriers.json").read_text()
    return json.loads(text)["records"]


@pytest.fixture(scope="module")
def every_framework(made_once):
    rows = [*conda_channel.records(), *of_carriers()]
    folder = made_once("carriers", lambda folder: conda_channel.make(folder, rows))
    one = solvers.RattlerSolver([folder.as_uri()], ["linux-64", "noarch"])
    yield one
    one.close()


def host_of(case):
    return gpuenv.describe(
        gpus=case["gpu"],
        driver=case.get("driver"),
        python="3.12",
        platform="linux-x86_64",
        glibc=case.get("glibc", "2.35"),
    )


def planned(case, solver):
    request = Request(
        frameworks=tuple(case.get("framework", ())),
        requirements=tuple(case.get("requirements", ())),
    )
    python = case.get("asked_python")
    version = (3, int(python.partition(".")[2])) if python else None
    return solve_with(solver, request, host_of(case), python=version)


@pytest.fixture(scope="module")
def lock(solver, channel):
    case = {"gpu": ["H100"], "driver": "570.86.10", "framework": ["torch"]}
    return conda_formats.lock(planned(case, solver), (channel,))


# ---- solves --------------------------------------------------------------------------------------


@cases(GOOD)
def test_each_host_gets_its_variant(case, solver):
    plan = planned(case, solver)
    have = [
        f"{one.framework} {one.version} {one.variant} {one.cudnn or '-'}" for one in plan.choices
    ]
    assert have == case.get("want", [])
    pinned = {pin.wheel.name: pin.wheel.version for pin in plan.pins}
    assert case.get("packages", {}).items() <= pinned.items()
    if "python" in case:
        assert (
            pinned["python"].startswith(case["python"] + ".")
            and plan.needs.python == plan.host.python.version
        )
    if "floor" in case:
        assert plan.needs.driver == case["floor"]
    passed = {
        f"{one.name} {one.version}: {reason.code}" for one in plan.skipped for reason in one.reasons
    }
    assert set(case.get("skipped", ())) <= passed
    mine = {gpu.compute_capability for gpu in plan.host.gpus}
    assert mine <= set(plan.needs.compute_capabilities)
    # The rules over the finished plan, by the wheels' facts: not what the solve itself asked.
    for choice in plan.choices:
        if choice.cuda is not None:
            cudnn = (f"nvidia-cudnn-cu{choice.cuda[0]}", pinned["cudnn"])
            assert not gpuenv.reasons_against([cudnn], plan.host)
            assert f"{choice.cuda[0]}." in pinned["cuda-version"]
    assert not [one for one in plan.warnings if not is_doubt(one)]
    assert [pin.wheel.name for pin in plan.pins] == sorted(pinned)


@cases(BAD)
def test_a_refusal_says_why(case, solver):
    with pytest.raises(NoSolutionError) as caught:
        planned(case, solver)
    explanation = caught.value.explanation
    assert set(case["codes"]) <= {reason.code for reason in explanation.reasons}
    assert [one.change for one in explanation.changes] == (
        [case["change"]] if "change" in case else []
    )


def test_what_is_no_spec_is_bad_input(solver):
    with pytest.raises(InputError, match="not a conda package"):
        planned({"gpu": ["none"], "requirements": ["numpy >>2"]}, solver)


def test_a_spec_can_name_its_channel(solver, tmp_path):
    """The first channel that has a package wins, unless the spec names another one."""
    numpy = next(row for row in conda_channel.records() if row["name"] == "numpy")
    own = conda_channel.make(tmp_path / "own", [{**numpy, "version": "9"}])

    def plan(spec):
        return planned({"gpu": ["none"], "requirements": [spec]}, both)

    with solvers.RattlerSolver([*solver.channels, own], ["linux-64", "noarch"]) as both:
        for spec, is_own in {
            "numpy": False,
            "own::numpy": True,
            "numpy[channel=own]": True,
        }.items():
            versions = {pin.wheel.name: pin.wheel.version for pin in plan(spec).pins}
            assert (versions["numpy"] == "9") == is_own, spec
        with pytest.raises(NoSolutionError) as refusal:
            plan("own::pytorch")
    reason = refusal.value.explanation.reasons[0]
    assert (reason.code, reason.have) == ("no-release", "no package of that name")
    assert reason.need == f"{own}::pytorch"


class Careless:
    """A solver that overlooks `constrains: __cuda`, as libmamba and classic may do."""

    name = "careless"

    def __init__(self, inner):
        self.inner, self.channels, self.limits = inner, inner.channels, ()

    def records(self, names):
        return [one for one in self.inner.records(names) if one["name"] != "cuda-version"]

    def solve(self, specs, constraints, virtual):
        return self.inner.solve(
            specs, constraints, [*virtual[:1], ("__cuda", "99.0", "0"), *virtual[3:]]
        )

    def close(self):
        pass


def test_the_driver_gate_does_not_trust_the_solver(solver):
    case = {"gpu": ["H100"], "driver": "570.86.10", "requirements": ["cuda-version=13.0"]}
    host = host_of(case)
    loose = Careless(solver)
    told = [
        one for one in virtual_packages.of_host(host) if one[0] not in ("__cuda", "__cuda_arch")
    ]
    assert loose.inner.solve(["cuda-version 13.0.*"], [], [("__cuda", "99.0", "0"), *told])
    with pytest.raises(NoSolutionError) as caught:
        planned(case, loose)
    (reason, *_) = [one for one in caught.value.explanation.reasons if one.code == "driver-floor"]
    assert (
        reason.subject == "cuda-version 13.0"
        and "580.65.06" in reason.need
        and reason.have == "driver 570.86.10"
    )


# ---- locks ---------------------------------------------------------------------------------------


@each("form", sorted(conda_formats.FORMATS))
def test_an_edited_lock_is_found(form, lock, tmp_path):
    path, digest = tmp_path / conda_formats.FORMATS[form], str(lock.pins[0].wheel.sha256)
    path.write_text(conda_formats.dumps(lock, form).replace(digest, "a" * 64))
    with pytest.raises(TamperedError):
        conda_formats.read(str(path))


# ---- installation --------------------------------------------------------------------------------


def tree(folder):
    """What is in a prefix, but for the records, which have the time of the installation in them."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        elif path.is_file() and not name.startswith("conda-meta"):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


@each("form", sorted(conda_formats.FORMATS))
def test_solve_lock_install_verify_twice(form, channel, tmp_path, call):
    texts, trees = [], []
    for turn in ("one", "two"):
        path, target = tmp_path / f"{turn}-{conda_formats.FORMATS[form]}", tmp_path / turn
        command = [
            "solve",
            "--framework",
            "torch",
            "--backend",
            "conda",
            "--channel",
            channel,
            "--format",
            form,
        ]
        call(*command, *HOST.split(), "-o", str(path))
        call(f"sync {path} --target {target} {HOST} --no-verify")
        cache = os.environ["GPUENV_CACHE_DIR"]
        again = f"sync {path} --target {target} {HOST} --json"
        done = test_cli.run(again, tmp_path, GPUENV_CACHE_DIR=cache)
        document = done.document
        assert done.returncode == 0 and document["ok"], done.output
        assert [one["status"] for one in document["checks"] if one["subject"] == "conda"] == [
            "pass"
        ]
        verify = f"verify --target {target} --no-device --json"
        assert test_cli.run(verify, tmp_path, GPUENV_CACHE_DIR=cache).document["ok"]
        texts.append(path.read_bytes())
        trees.append(tree(target))
    assert texts[0] == texts[1] and trees[0] == trees[1]
    assert "share/stand-ins/pytorch" in trees[0]


REFUSED = data_file("tables/conda.json")["refused"]


@each("ours", [True, False], ids=["a lock of gpuenv", "an explicit file of conda's"])
@each("name", [*REFUSED])
def test_a_host_that_a_lock_does_not_fit_is_told_before_anything_is_written(
    name, ours, lock, tmp_path
):
    gpus, driver, glibc, codes = REFUSED[name]
    if not ours and name == "an old glibc":
        codes = set()  # an explicit file of conda's has no word on it
    path = tmp_path / "explicit.txt"
    text = conda_formats.dumps(lock, "conda-explicit")
    path.write_text(
        text
        if ours
        else "".join(f"{one}\n" for one in text.splitlines() if not one.startswith("#"))
    )
    host = host_of({"gpu": gpus, "driver": driver, "glibc": glibc})
    target = tmp_path / "prefix"
    if not codes:
        assert not conda.reasons(
            conda_formats.read(str(path)), host, DATA, conda_records.Carriers(DATA.folder)
        )
        return
    with pytest.raises(HostMismatchError) as caught:
        api.sync(api.read_lock(str(path)), str(target), host=host)
    found = {reason.code for reason in caught.value.reasons}
    assert found & {*codes} or (not ours and found == {"cuda-build"})
    assert not target.exists()


@each("served", ["file", "http"])
def test_a_file_of_another_hash_is_not_installed(served, channel, lock, tmp_path):
    wrong = lock.pins[3].wheel.replace(sha256="0" * 64)
    url, folder = channel, channel.removeprefix("file://")
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        handler.func.log_message = lambda *_: None
        threading.Thread(target=server.serve_forever, daemon=True).start()
        if served == "http":
            url = f"http://127.0.0.1:{server.server_port}"
        pins = [
            pin.replace(wheel=wrong) if pin.wheel.name == wrong.name else pin for pin in lock.pins
        ]
        pins = [
            pin.replace(wheel=pin.wheel.replace(url=pin.wheel.url.replace(channel, url)))
            for pin in pins
        ]
        target = tmp_path / "prefix"
        with pytest.raises(InstallError, match="hash mismatch"):
            conda_installing.sync(lock.replace(pins=tuple(pins)), str(target), None)
        server.shutdown()
    assert not target.exists()


def test_a_folder_that_is_no_conda_environment_is_left_alone(lock, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="no conda environment"):
        conda_installing.sync(lock, str(tmp_path), None)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def survey_of(target):
    with Children(str(target / "bin" / "python"), {}, time.monotonic() + 60) as children:
        survey = read_survey(children.run("interpreter", {"imports": []}).answer)
        return survey, file_checks(survey, compare_files(children.run, survey, fast=False))


def test_a_verification_knows_the_libraries_of_conda(tmp_path):
    target = tmp_path / "prefix"
    venv.create(target, symlinks=True)
    (target / "conda-meta").mkdir()
    record = {
        "name": "libcudnn",
        "version": "9.10.2.21",
        "build": "hf7e9902_0",
        "subdir": "linux-64",
        "files": ["lib/libcudnn.so.9", "include/cudnn.h"],
    }
    (target / "conda-meta" / "libcudnn-9.10.2.21-hf7e9902_0.json").write_text(json.dumps(record))
    (target / "conda-meta" / "history").write_text("")
    (target / "lib" / "libcudnn.so.9").write_text("conda's")
    survey, (owners, _) = survey_of(target)
    assert [*survey.conda] == ["libcudnn"] and owners.status == "pass"
    assert survey.libraries[str(target / "lib" / "libcudnn.so.9")] == "libcudnn"


# ---- the command line ----------------------------------------------------------------------------


def test_without_py_rattler_it_is_said_what_to_install(tmp_path, monkeypatch):
    bare = tmp_path / "python"
    bare.write_text(f"#!/bin/sh\nexec '{sys.executable}' -S \"$@\"\n")
    bare.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(bare))
    one = solvers.RattlerSolver(["x"], ["noarch"])
    with pytest.raises(InputError) as caught:
        one.records(["pytorch"])
    one.close()
    assert "rattler" in caught.value.message and "gpuenv[conda]" in caught.value.hint


def test_conda_is_not_imported_for_pip(tmp_path):
    code = (
        "import sys; from gpuenv.cli import main; main(sys.argv[1:]); "
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'conda', 'rattler'}))"
    )
    command = [
        sys.executable,
        "-c",
        code,
        "solve",
        "--framework",
        "torch",
        *HOST.split(),
        "--python",
        "3.12",
        "--json",
    ]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    done = run_program(command, cwd=tmp_path, env=env)
    assert done.stdout.splitlines()[-1] == "[]"


# ---- facts ---------------------------------------------------------------------------------------


def test_virtual_packages_are_those_of_conda():
    host = host_of({"gpu": ["V100", "H100"], "driver": "570.86.10"})
    known = {name: version for name, version, _ in virtual_packages.of_host(host)}
    assert (
        known["__cuda"] == "12.8" and known["__cuda_arch"] == "7.0" and known["__glibc"] == "2.35"
    )
    assert {"__linux", "__unix", "__archspec"} <= set(known)
    none = {name for name, _, _ in virtual_packages.of_host(host_of({"gpu": ["none"]}))}
    assert not {"__cuda", "__cuda_arch"} & none


@each(
    "variables expected",
    [
        ({"CUDA": "11.8", "CUDA_ARCH": "7.5"}, "__cuda=11.8 __cuda_arch=7.5"),
        ({"CUDA": "12"}, "__cuda=12.0 __cuda_arch=9.0"),
        ({"CUDA": " "}, "-__cuda -__cuda_arch"),
        ({"CUDA_ARCH": ""}, "__cuda=12.8 -__cuda_arch"),
        ({"GLIBC": "2.17", "LINUX": "5.10"}, "__glibc=2.17 __linux=5.10"),
        ({"GLIBC": "", "LINUX": ""}, "-__glibc __linux=0"),
        ({"ARCHSPEC": "zen4"}, "__archspec=1=zen4"),
        ({"ARCHSPEC": ""}, "-__archspec"),
    ],
)
def test_overrides_stand_for_the_host(variables, expected):
    host = host_of({"gpu": ["H100"], "driver": "570.86.10"})
    given = {f"CONDA_OVERRIDE_{name}": value for name, value in variables.items()}
    other = virtual_packages.overridden(host, given)
    rows = {"=".join(row).removesuffix("=0") for row in virtual_packages.of_host(other)}
    names = {row.partition("=")[0] for row in rows}
    for text in expected.split():
        assert (text[1:] not in names) if text[0] == "-" else (text in rows), rows
    assert {source for _, source in other.sources} >= given.keys()
    assert bool(virtual_packages.gpu_variables(other)) == any("CUDA" in name for name in given)


def test_every_range_of_the_records_is_read_as_rattler_reads_it():
    from rattler import BuildString as Build
    from rattler import MatchSpec, PackageRecord

    data = conda_channel.records()
    by_name = {}
    for row in data:
        by_name.setdefault(row["name"], []).append(row)
    made = {
        row["file"]: PackageRecord(
            row["name"], row["version"], Build(row["build"]), row["build_number"], row["subdir"]
        )
        for row in data
    }
    asked = {one for row in data for one in (*row["depends"], *row.get("constrains", ()))}
    compared = 0
    for dependency in sorted(asked):
        for row in by_name.get(conda_versions.split(dependency)[0], ()):
            mine = conda_versions.matches(dependency, row["name"], row["version"], row["build"])
            assert MatchSpec(dependency).matches(made[row["file"]]) is mine, (
                dependency,
                row["file"],
            )
            compared += 1
    assert compared > 400


@each("field spec virtual expected", data_file("tables/conda.json")["virtual_packages"])
def test_virtual_packages_are_compared_with_those_of_the_host(field, spec, virtual, expected):
    # What comes before it does not hide it: a package, and a virtual package that is not there.
    before = {"depends": ["python"], "constrains": ["__osx >=11"]}[field]
    record = {"name": "pytorch", "version": "2.10.0", field: [*before[:1], spec]}
    packages = [(name, *rest) for name, rest in virtual.items()]
    reasons = conda_parts.virtual_reasons(record, packages)
    found = [(one.code, one.subject, one.need, one.have) for one in reasons]
    assert found == ([("virtual-package", "pytorch 2.10.0", *expected)] if expected else [])


# ---- architectures by recipe ---------------------------------------------------------------------

TARGET = re.compile(r"[1-9][0-9]{1,2}[af]?")
RECIPE = re.compile(
    r"(conda-forge/[a-z-]+-feedstock recipe|pytorch/builder conda)/.* @[0-9a-f]{7,40}\b"
)


@each("row", CODE, ids=[f"{one['carrier']} {one['versions']} cuda {one['cuda']}" for one in CODE])
def test_a_row_has_a_recipe_and_targets(row):
    assert RECIPE.search(row["source"])
    assert row["sass"] and sorted({*row["sass"]}, key=parse_target) == row["sass"]
    for target in (*row["sass"], *row["ptx"]):
        assert TARGET.fullmatch(target) and parse_target(target)
    assert row["carrier"] in CARRIERS.carriers.values()
    assert set(row["subdirs"]) <= {"linux-64", "linux-aarch64", "win-64"}
    for ranged in (row["versions"], row["cuda"]):
        assert re.fullmatch(r">=[0-9.]+,<[0-9.]+", ranged)
        assert conda_versions.contains(ranged, ranged[2:].partition(",")[0])
    assert "made_by" not in row or conda_versions.contains(row["cuda"], row["made_by"])


@cases(CARRIED)
def test_each_host_gets_the_build_with_its_code(case, every_framework):
    if "codes" in case:
        with pytest.raises(NoSolutionError) as caught:
            planned(case, every_framework)
        assert set(case["codes"]) <= {reason.code for reason in caught.value.explanation.reasons}
        return
    plan = planned(case, every_framework)
    assert [
        f"{one.framework} {one.version} {one.variant} {one.cudnn or '-'}" for one in plan.choices
    ] == case["want"]
    passed = {
        f"{one.name} {one.version}: {reason.code}" for one in plan.skipped for reason in one.reasons
    }
    assert set(case.get("skipped", ())) <= passed
    assert not {"code-unknown", "device-unknown"} & {one.code for one in plan.warnings}
    (choice,) = plan.choices
    pinned = {pin.wheel.name: pin.wheel.version for pin in plan.pins}
    assert (
        pinned[CARRIERS.packages[choice.framework]]
        == pinned[CARRIERS.carriers[choice.framework]]
        == choice.version
    )


@each("case", BUILDS, ids=[case["file"] for case in BUILDS])
def test_what_speaks_against_a_build(case):
    (record,) = [one for one in of_carriers() if one["file"] == case["file"]]
    CARRIERS.framework_of(record["name"])
    assert ("_made_" in case["file"]) is record.get("made", False)
    row = CARRIERS.row({**record, "channel": "https://conda.anaconda.org/conda-forge"})
    if "code" in case:
        want = [tuple(case["code"][key].split()) for key in ("sass", "ptx")]
        assert [row.code.sass, row.code.ptx] == want
        assert row.code.made_by == (
            parse_pair(case["code"]["made_by"]) if "made_by" in case["code"] else None
        )
    else:
        assert row.code.sass is None
    for gpu, codes in case["against"].items():
        capability = DATA.compute_capability(gpu)  # of GPUs of any platform
        host = host_of({"gpu": ["H100"], "driver": "580.65.06"})
        host = host.replace(gpus=(Gpu(name=gpu, compute_capability=capability),))
        assert [reason.code for reason in conda_parts.row_reasons(row, host, DATA)] == codes, gpu


def test_what_a_record_does_not_say_limits_a_closure(tmp_path):
    """MKL 2024.1 and NumPy 2 beside an old PyTorch; a known bad cuDNN that a range would take."""
    build = "py3.10_cuda11.8_cudnn8.7.0_0"
    torch = {"name": "pytorch", "version": "2.2.2", "build": build, "depends": ["mkl >=2018"]}
    rows = [{**torch, "subdir": "linux-64", "build_number": 0}]
    releases = {
        "mkl": ("2023.2.0", "2024.2.2"),
        "numpy": ("1.26.4", "2.1.2"),
        "cuda-version": ("13.0",),
        "cudnn": ("9.14.0.64", "9.20.0.48"),
    }
    for name, versions in releases.items():
        depends = ["cuda-version >=13,<14.0a0"] if name == "cudnn" else []
        row = {**rows[0], "name": name, "build": "h0_0", "depends": depends}
        rows += [{**row, "version": version} for version in versions]
    own = conda_channel.make(tmp_path / "own", rows)
    case = {"gpu": ["H100"], "driver": "580.65.06"}
    with solvers.RattlerSolver([own], ["linux-64", "noarch"]) as solver:
        for specs, expected in (
            (["pytorch", "numpy"], {"pytorch": "2.2.2", "mkl": "2023.2.0", "numpy": "1.26.4"}),
            (["pytorch"], {"pytorch": "2.2.2", "mkl": "2023.2.0"}),
            (["numpy", "mkl"], {"mkl": "2024.2.2", "numpy": "2.1.2"}),
            (["cudnn"], {"cudnn": "9.14.0.64", "cuda-version": "13.0"}),
            (["cudnn=9.20"], {"cudnn": "9.20.0.48", "cuda-version": "13.0"}),
        ):
            plan = planned({**case, "requirements": specs}, solver)
            assert {pin.wheel.name: pin.wheel.version for pin in plan.pins} == expected
    newest = [row for row in rows if row["version"] in ("2.2.2", "2.1.2", "2024.2.2")]
    reasons = conda_parts.lock_reasons(newest, host_of(case), DATA, CARRIERS)
    needs = {reason.need for reason in reasons if reason.code == "conflict"}
    assert needs == {"mkl <2024.1", "numpy >=1,<2"}
