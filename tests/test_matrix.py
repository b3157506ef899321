"""The compatibility data: laws of every row, names, and damage."""

import shutil

import pytest

from gpuenv.compat import data as matrix
from gpuenv.compat.architectures import parse_target
from gpuenv.compat.extensions import release_of
from gpuenv.errors import DataError
from gpuenv.model import parse_pair, parse_release
from gpuenv.requirements.target import PLATFORMS
from processes import run_program
from script_modules import load_script, tool
from small_wheels import replace_in
from tables import ROOT, data_file, each, read_data

FOLDER = ROOT / "matrix_data"
DATA = matrix.load()
contradictions = load_script("data.check").contradictions
TABLES = read_data(FOLDER / "tables.json")
TOOLKITS = TABLES["toolkits"]
COMPILERS = {parse_pair(cuda): targets for cuda, targets in TABLES["compilers"].items()}


def toml(name):
    return read_data(FOLDER / name)


def rows():
    """Every row of every file, with where it stands."""
    found = []
    for name in ("drivers.toml", "families.toml", "toolkits.toml", "gpus.toml", "libraries.toml"):
        for table, content in toml(name).items():
            if isinstance(content[0], dict):
                found += [(f"{name} {table}", row) for row in content]
    for path in sorted([*FOLDER.glob("frameworks/*.json"), *FOLDER.glob("libraries/*.json")]):
        for table, content in read_data(path).items():
            if isinstance(content, list):
                found += [(f"{path.name} {table}", row) for row in content]
    for path in sorted(FOLDER.glob("frameworks/*.toml")):
        builds = toml(f"frameworks/{path.name}").get("build", [])
        found += [(f"{path.name} build", row) for row in builds]
    return found


@pytest.fixture
def copy(tmp_path):
    """A copy of the data without the snapshot."""
    target = tmp_path / "matrix_data"
    shutil.copytree(FOLDER, target, ignore=shutil.ignore_patterns("snapshot", "snapshot*"))
    return target


# ---- what holds for the data


def test_the_data_is_fresh_and_does_not_contradict_itself():
    done = run_program(tool("data", "check"))
    assert (done.returncode, done.stdout) == (0, "0 contradictions\n"), done.stdout + done.stderr


def test_tables_of_changed_data_are_stale(copy):
    replace_in(copy / "gpus.toml", '"RTX 4090 D"', '"RTX 4090 E"')
    assert contradictions(matrix.load(str(copy))) == ["tables.json is stale: run compile"]
    done = run_program(tool("data", "compile", str(copy)))
    assert (done.returncode, done.stdout) == (0, f"{copy / 'tables.json'} is written\n")
    assert contradictions(matrix.load(str(copy))) == []
    changed = matrix.load(str(copy))
    assert changed.compute_capability("RTX 4090 E") == (8, 9)
    assert changed.version != DATA.version


def test_every_row_has_a_source():
    found = rows()
    assert len(found) > 600
    assert [where for where, row in found if not row.get("source")] == []


def test_what_was_scanned_names_its_file_and_hash():
    scanned = [row for _, row in rows() if row.get("evidence") == "scanned"]
    assert scanned
    for row in scanned:
        assert row["file"].endswith(".whl")
        assert len(bytes.fromhex(row["sha256"])) == 32
        assert row["targets" if "targets" in row else "sass"] is not None


def test_no_file_says_the_same_thing_twice():
    seen = set()
    for where, row in rows():
        if "platform" in row:
            key = (where, row.get("local", row["version"]), row["platform"])
            assert key not in seen
            seen.add(key)


def test_drivers_only_go_forward():
    assert all(branch % 5 == 0 for branch in DATA.branches)
    for os in ("linux", "windows"):
        floors = [DATA.driver_floor((major, 0), os) for major in sorted(DATA.floors)]
        known = [parse_release(floor[0]) for floor in floors if floor]
        assert known == sorted(known)
        assert len(known) >= 2


def test_the_first_branch_of_a_device_supports_a_toolkit_that_compiles_for_it():
    for capability, (branch, source) in DATA.first_branches.items():
        assert source
        if branch not in DATA.branches:
            continue  # older than the branches of the data
        compilers = [
            cuda
            for cuda, targets in COMPILERS.items()
            if capability in {parse_target(target)[0] for target in targets}
        ]
        assert DATA.branches[branch] >= min(compilers)


def test_the_abi_of_torch_builds():
    """Each Linux build since 2.6 has a known ABI, and only 2.6 has two on one platform."""
    for platform in ("linux-x86_64", "linux-aarch64", "win-amd64"):
        values = {}
        for build in DATA.builds("torch", platform):
            abi = DATA.cxx11_abi(build)
            release = release_of(build.version)
            since_2_6 = parse_pair(release) >= (2, 6)
            assert (abi is None) == (platform == "win-amd64") or not since_2_6
            if abi is not None:
                values.setdefault(release, set()).add(abi)
        split = [release for release, found in values.items() if len(found) > 1]
        assert split == (["2.6"] if platform == "linux-x86_64" else [])


def test_a_toolkit_came_with_a_driver_that_supports_it():
    known = [
        (version, row["driver_linux"]) for version, row in TOOLKITS.items() if "driver_linux" in row
    ]
    assert len(known) > 30
    for version, driver in known:
        assert DATA.driver_cuda(driver) == parse_pair(version.rpartition(".")[0])
    assert [parse_pair(version.rpartition(".")[0]) in COMPILERS for version in TOOLKITS].count(
        False
    ) == 0


def test_the_floor_of_a_family_is_no_newer_than_what_its_first_toolkit_brought():
    for major in (12, 13):
        floor = DATA.driver_floor((major, 0), "linux")
        assert parse_release(TOOLKITS[f"{major}.0.0"]["driver_linux"]) >= parse_release(floor[0])


def test_every_gpu_can_be_compiled_for_and_has_one_name():
    compiled = {parse_target(target)[0] for targets in COMPILERS.values() for target in targets}
    names = DATA.gpu_names()
    assert len({matrix.gpu_key(name) for name in names}) == len(names) > 200
    assert [name for name in names if DATA.compute_capability(name) not in compiled] == []
    assert matrix.gpu_key("H200 1 TB") == "h200" and matrix.gpu_key("A100 80 GB") == "a100"
    assert list(DATA.capabilities()) == sorted(
        {DATA.compute_capability(name) or (0, 0) for name in names}
    )


def test_dropped_gpus_are_older_than_those_that_are_not():
    compiled = {parse_target(target)[0] for targets in COMPILERS.values() for target in targets}
    dropped = [
        capability for capability in compiled if DATA.last_branches.get(capability) is not None
    ]
    assert dropped
    assert max(dropped) < min(
        capability for capability in compiled if DATA.last_branches.get(capability) is None
    )
    lasts = [DATA.last_branches.get(capability) or (0, "") for capability in sorted(dropped)]
    assert lasts == sorted(lasts, key=lambda last: last[0])


def test_only_code_of_wheels_that_the_default_index_lacks_is_unknown():
    unknown = [row for _, row in rows() if "platform" in row and row["sass"] is None]
    assert unknown
    for row in unknown:  # a `url` or another index: the wheel is not on the default index
        assert row.get("url") or row.get("index", "default") != "default", row


def test_every_release_of_a_companion_goes_with_a_release_that_is_known():
    torch = DATA.framework("torch")
    versions = {build.version for build in DATA.builds("torch", "linux-x86_64")}
    for companion in torch.companions:
        builds = [build for platform in PLATFORMS for build in DATA.builds(companion, platform)]
        assert builds
        for build in builds:
            assert {name for name, _ in build.companions} == {"torch"}
            assert {version for _, version in build.companions} <= versions
            assert build.code.evidence == "documented"


# ---- names and lookups


def test_gpu_names():
    names = data_file("gpu_names.toml")
    known = {name: DATA.compute_capability(name) for name in names}
    assert {name: ".".join(map(str, pair or ())) for name, pair in known.items()} == names


# ---- adding and damaging


TORCH = "frameworks/torch.json"
CUDNN = "libraries/nvidia-cudnn-cu12.json"


@each(
    "file old new message",
    data_file("tables/matrix.json")["damaged"],
)
def test_damage_is_told_by_file_and_row(copy, file, old, new, message):
    replace_in(copy / file, old, new)
    with pytest.raises(DataError, match=message):
        contradictions(matrix.load(str(copy)))


def test_planted_contradictions_are_found(copy):
    planted = data_file("tables/matrix.json")["planted"]
    for file, old, new, _ in planted:
        replace_in(copy / file, old, new)
    found = "\n".join(contradictions(matrix.load(str(copy))))
    assert [message for *_, message in planted if message not in found] == [], found


@each("file", ["tables.json", TORCH, CUDNN])
def test_a_missing_file_is_named(copy, file):
    data = None if file == "tables.json" else matrix.load(str(copy))
    (copy / file).unlink()
    with pytest.raises(DataError, match=f"{file} is missing"):
        contradictions(data or matrix.load(str(copy)))
