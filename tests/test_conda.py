"""conda environments from a local channel of real records: solves, locks, installation."""

import json
import os
import re
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import conda_channel
import gpuenv
from conda_prefixes import HOST
from gpuenv import api
from gpuenv.api.conda import sync
from gpuenv.compat import conda_parts
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
from gpuenv.model import CondaOptions, Gpu, Request, parse_pair
from gpuenv.requirements import conda_versions
from gpuenv.resolve.conda import planning, solvers, virtual_packages
from hosts import host, host_of
from processes import program, run_program
from tables import cases, data_file, each, read_data
from test_installed import surveyed

TABLES = data_file("conda.toml")
CASES, CARRIED, BUILDS = TABLES["case"], TABLES["carrier"], TABLES["build"]
GOOD = [case for case in CASES if "codes" not in case]
BAD = [case for case in CASES if "codes" in case]
ROWS = data_file("tables/conda.json")
DATA = api.compatibility_data()
CARRIERS = DATA.conda
CODE = read_data(Path(DATA.folder) / "conda" / "carriers.json")["code"]
H100 = host("H100", "570.86.10", glibc="2.35")


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


def planned(case, solver):
    request = Request(
        frameworks=tuple(case.get("framework", ())),
        requirements=tuple(case.get("requirements", ())),
        conda=CondaOptions(keep_python=case.get("keep_python", False)),
    )
    return planning.plan(request, host_of(case, glibc="2.35"), DATA, solver)


def refusal(case, solver):
    """The explanation of a refusal, which has the codes of the case."""
    with pytest.raises(NoSolutionError) as caught:
        planned(case, solver)
    explanation = caught.value.explanation
    assert set(case["codes"]) <= {reason.code for reason in explanation.reasons}
    return explanation


def solved(case, solver):
    """The plan of a case, which has the builds of the case and passes over what it names."""
    plan = planned(case, solver)
    choices = [
        f"{one.framework} {one.version} {one.variant} {one.cudnn or '-'}" for one in plan.choices
    ]
    assert choices == case.get("want", [])
    passed = {
        f"{one.name} {one.version}: {reason.code}" for one in plan.skipped for reason in one.reasons
    }
    assert set(case.get("skipped", ())) <= passed
    return plan


@pytest.fixture(scope="module")
def lock(solver, channel):
    case = {"gpu": ["H100"], "driver": "570.86.10", "framework": ["torch"]}
    return conda_formats.lock(planned(case, solver), (channel,))


# ---- solves --------------------------------------------------------------------------------------


@cases(GOOD)
def test_each_host_gets_its_variant(case, solver):
    plan = solved(case, solver)
    pinned = plan.versions
    assert case.get("packages", {}).items() <= pinned.items()
    if "python" in case:
        assert (
            pinned["python"].startswith(case["python"] + ".")
            and plan.needs.python == plan.host.python.version
        )
    if "floor" in case:
        assert plan.needs.driver == case["floor"]
    mine = set(plan.host.capabilities)
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
    changes = [one.change for one in refusal(case, solver).changes]
    assert changes == ([case["change"]] if "change" in case else [])


def test_what_is_no_spec_is_bad_input(solver):
    with pytest.raises(InputError, match="not a conda package"):
        planned({"gpu": ["none"], "requirements": ["numpy >>2"]}, solver)


def test_a_spec_can_name_its_channel(solver, tmp_path):
    """The first channel that has a package wins, unless the spec names another one."""
    numpy = next(row for row in conda_channel.records() if row["name"] == "numpy")
    own = conda_channel.make(tmp_path / "own", [{**numpy, "version": "9"}])

    specs = {"numpy": False, "own::numpy": True, "numpy[channel=own]": True}
    with solvers.RattlerSolver([*solver.channels, own], ["linux-64", "noarch"]) as both:
        for spec, is_own in specs.items():
            plan = planned({"gpu": ["none"], "requirements": [spec]}, both)
            assert (plan.versions["numpy"] == "9") == is_own, spec
        case = {"gpu": ["none"], "requirements": ["own::pytorch"], "codes": ["no-release"]}
        reason = refusal(case, both).reasons[0]
    assert reason.have == "no package of that name"
    assert reason.need == f"{own}::pytorch"


class Careless:
    """A solver that overlooks `constrains: __cuda`, as libmamba and classic may do."""

    name = "careless"

    def __init__(self, inner):
        self.inner, self.channels, self.into = inner, inner.channels, inner.into

    def records(self, names):
        return [one for one in self.inner.records(names) if one["name"] != "cuda-version"]

    def solve(self, specs, constraints, virtual, limits):
        return self.inner.solve(
            specs, constraints, [*virtual[:1], ("__cuda", "99.0", "0"), *virtual[3:]]
        )

    def close(self):
        pass


def test_the_driver_gate_does_not_trust_the_solver(solver):
    case = {"gpu": ["H100"], "driver": "570.86.10", "requirements": ["cuda-version=13.0"]}
    loose, cuda = Careless(solver), ("__cuda", "__cuda_arch")
    told = [one for one in virtual_packages.of_host(H100) if one[0] not in cuda]
    assert solver.solve(["cuda-version 13.0.*"], [], [("__cuda", "99.0", "0"), *told])
    reasons = refusal({**case, "codes": ["driver-floor"]}, loose).reasons
    reason = next(one for one in reasons if one.code == "driver-floor")
    assert (reason.subject, reason.have) == ("cuda-version 13.0", "driver 570.86.10")
    assert "580.65.06" in reason.need


# ---- locks ---------------------------------------------------------------------------------------


@each("form", sorted(conda_formats.FORMATS))
def test_an_edited_lock_is_found(form, lock, tmp_path):
    path, digest = tmp_path / conda_formats.FORMATS[form], str(lock.pins[0].wheel.sha256)
    path.write_text(conda_formats.dumps(lock, form).replace(digest, "a" * 64))
    with pytest.raises(TamperedError):
        conda_formats.read(str(path))


# ---- installation --------------------------------------------------------------------------------


@each("ours", [True, False], ids=["a lock of gpuenv", "an explicit file of conda's"])
@cases(ROWS["refused"])
def test_a_host_that_a_lock_does_not_fit_is_told_before_anything_is_written(
    case, ours, lock, tmp_path
):
    path, target = tmp_path / "explicit.txt", tmp_path / "prefix"
    text = conda_formats.dumps(lock, "conda-explicit")
    path.write_text(text if ours else re.sub(r"^#.*\n", "", text, flags=re.MULTILINE))
    host = host_of(case, glibc="2.35")
    if not ours and case["name"] == "an old glibc":  # an explicit file of conda's has no word on it
        assert not conda.reasons(conda_formats.read(str(path)), host, DATA)
        return
    with pytest.raises(HostMismatchError) as caught:
        api.sync(api.read_lock(str(path)), str(target), host=host)
    found = {reason.code for reason in caught.value.reasons}
    assert found & {*case["codes"]} or (not ours and found == {"cuda-build"})
    assert not target.exists()


@each("served", ["file", "http"])
def test_a_file_of_another_hash_is_not_installed(served, channel, lock, tmp_path):
    url, folder = channel, channel.removeprefix("file://")
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        handler.func.log_message = lambda *_: None
        threading.Thread(target=server.serve_forever, daemon=True).start()
        if served == "http":
            url = f"http://127.0.0.1:{server.server_port}"
        wheels = [pin.wheel.replace(url=pin.wheel.url.replace(channel, url)) for pin in lock.pins]
        wheels[3] = wheels[3].replace(sha256="0" * 64)
        pins = [pin.replace(wheel=one) for pin, one in zip(lock.pins, wheels, strict=True)]
        target = tmp_path / "prefix"
        with pytest.raises(InstallError, match="hash mismatch"):
            sync(lock.replace(pins=tuple(pins)), str(target), None)
        server.shutdown()
    assert not target.exists()


def test_a_folder_that_is_no_conda_environment_is_left_alone(lock, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="no conda environment"):
        sync(lock, str(tmp_path), None)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_verification_knows_the_libraries_of_conda(env):
    (env / "conda-meta").mkdir()
    record = {"name": "libcudnn", "version": "9.10.2.21", "build": "hf7e9902_0"}
    record |= {"subdir": "linux-64", "files": ["lib/libcudnn.so.9", "include/cudnn.h"]}
    (env / "conda-meta" / "libcudnn-9.10.2.21-hf7e9902_0.json").write_text(json.dumps(record))
    (env / "conda-meta" / "history").write_text("")
    (env / "lib" / "libcudnn.so.9").write_text("conda's")
    survey, (owners, *_) = surveyed(env)
    assert [*survey.conda] == ["libcudnn"] and owners.status == "pass"
    assert survey.libraries[str(env / "lib" / "libcudnn.so.9")] == "libcudnn"


# ---- the command line ----------------------------------------------------------------------------


def test_without_py_rattler_it_is_said_what_to_install(tmp_path, monkeypatch):
    bare = program(tmp_path / "python", f"exec '{sys.executable}' -S \"$@\"")
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
    command = [sys.executable, "-c", code, *f"solve torch {HOST} --python 3.12 --json".split()]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))}
    done = run_program(command, cwd=tmp_path, env=env)
    assert done.stdout.splitlines()[-1] == "[]"


# ---- facts ---------------------------------------------------------------------------------------


def test_virtual_packages_are_those_of_conda():
    host = host_of({"gpu": ["V100", "H100"], "driver": "570.86.10"}, glibc="2.35")
    known = {name: version for name, version, _ in virtual_packages.of_host(host)}
    expected = {"__cuda": "12.8", "__cuda_arch": "7.0", "__glibc": "2.35"}
    assert known | expected == known and {"__linux", "__unix", "__archspec"} <= set(known)
    none = {name for name, _, _ in virtual_packages.of_host(host_of({"gpu": ["none"]}))}
    assert not {"__cuda", "__cuda_arch"} & none


@each("variables expected", ROWS["overrides"])
def test_overrides_stand_for_the_host(variables, expected):
    given = {f"CONDA_OVERRIDE_{name}": value for name, value in variables.items()}
    other = virtual_packages.overridden(H100, given)
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


@each("field spec virtual expected", ROWS["virtual_packages"])
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
        refusal(case, every_framework)
        return
    plan = solved(case, every_framework)
    assert not {"code-unknown", "device-unknown"} & {one.code for one in plan.warnings}
    (choice,) = plan.choices
    pinned, framework = plan.versions, choice.framework
    carriers = {pinned[CARRIERS.packages[framework]], pinned[CARRIERS.carriers[framework]]}
    assert carriers == {choice.version}


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
        gpus = (Gpu(name=gpu, compute_capability=capability),)
        one = host("H100", "580.65.06").replace(gpus=gpus)
        assert [reason.code for reason in conda_parts.row_reasons(row, one, DATA)] == codes, gpu


def test_what_a_record_does_not_say_limits_a_closure(tmp_path):
    """MKL 2024.1 and NumPy 2 beside an old PyTorch; a known bad cuDNN that a range would take."""
    rows = [conda_channel.row_of(*package) for package in ROWS["closures"]["packages"].items()]
    own = conda_channel.make(tmp_path / "own", rows)
    case = {"gpu": ["H100"], "driver": "580.65.06"}
    with solvers.RattlerSolver([own], ["linux-64", "noarch"]) as solver:
        for spec, expected in ROWS["closures"]["solves"].items():
            plan = planned({**case, "requirements": spec.split()}, solver)
            assert [f"{pin.wheel.name} {pin.wheel.version}" for pin in plan.pins] == expected
    newest = [row for row in rows if row["version"] in ("2.2.2", "2.1.2", "2024.2.2")]
    reasons = conda_parts.lock_reasons(newest, host_of(case), DATA)
    needs = {reason.need for reason in reasons if reason.code == "conflict"}
    assert needs == {"mkl <2024.1", "numpy >=1,<2"}
