"""The shipped index snapshot: its invariants and its reader."""

import re
import shutil
import sys
from fnmatch import fnmatchcase
from functools import cache
from urllib.parse import urlsplit

import pytest
from packaging.requirements import Requirement as Parsed
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from gpuenv.errors import DataError
from gpuenv.index.default_index import builtin_index
from gpuenv.index.snapshot import Snapshot
from gpuenv.model import Host, Python
from gpuenv.requirements.target import (
    FIRST_FREE_THREADED,
    NEWEST_GLIBC,
    PLATFORMS,
    PYTHONS,
    TargetEnvironment,
    contains,
    interpreter_tag,
)
from processes import run_program
from tables import ROOT, data_file, each, read_data

FOLDER = ROOT / "matrix_data" / "snapshot"
STORE = "https://files.example"
FILES = sorted(FOLDER.glob("*/*.json"))
IDS = [f"{path.parent.name}/{path.stem}" for path in FILES]
FRAMEWORKS = [
    read_data(path) for path in sorted((ROOT / "matrix_data" / "frameworks").glob("*.toml"))
]

# Requirements that no wheel fulfils on some targets, and why: globs of (package, release,
# requirement, target).
GAPS = data_file("tables/snapshot.json")["gaps"]


@cache
def package(path):
    return read_data(path)


def rows(data):
    """The wheels of a package file."""
    return [row for group in data["files"].values() for row in group]


def roots(platform):
    """{(distribution, extras): oldest release} of what can name a framework on a platform."""
    found = {}
    for framework in FRAMEWORKS:
        if "since" not in framework:
            continue  # it is not in the snapshot
        only_way = {"requires": [framework["distribution"]], "carriers": []}
        for way in framework.get("way", [only_way]):
            if platform in way.get("platforms", PLATFORMS) and "local" not in way:
                for one in map(Parsed, way["requires"]):
                    found[canonicalize_name(one.name), tuple(sorted(one.extras))] = framework[
                        "since"
                    ]
                found |= {(name, ()): framework["since"] for name in way["carriers"]}
        found |= {(name, ()): since for name, since in framework.get("also_since", {}).items()}
    return found


def hosts(micro=0):
    """Every supported target."""
    for version in PYTHONS:
        for free_threaded in (False, True)[: 1 + (version >= FIRST_FREE_THREADED)]:
            for platform in PLATFORMS:
                full = f"{version[0]}.{version[1]}.{micro}"
                python = Python(version=version, free_threaded=free_threaded, full_version=full)
                windows = platform == "win-amd64"
                machine = "x86_64" if windows else platform.removeprefix("linux-")
                yield Host(os="windows" if windows else "linux", machine=machine, python=python)


@pytest.fixture(scope="module")
def snapshot():
    return Snapshot(str(FOLDER), STORE)


def listed_versions(snapshot, name):
    """The versions of a package, newest first."""
    return list(dict.fromkeys(wheel.version for wheel in snapshot.files(name)))


# ---- what stands in the files --------------------------------------------------------------------


@each("path", FILES, ids=IDS)
def test_a_package_file_is_whole(path):
    data = package(path)
    assert data["name"] == path.stem == canonicalize_name(data["name"])
    assert [str(Version(version)) for version in data["versions"]] == data["versions"]
    assert sorted(set(data["versions"]), key=Version) == data["versions"]
    assert not any(Version(version).is_prerelease for version in data["versions"])
    wheels = rows(data)
    names = [row[1] for row in wheels]
    assert len(set(names)) == len(names)
    assert {row[0] for row in wheels} == set(range(len(data["versions"])))
    assert {row[8] for row in wheels} == set(range(len(data["metadata"])))
    assert {row[5] for row in wheels} - {None} == set(range(len(data["requires_python"])))
    for tags, group in data["files"].items():
        assert group
        assert {"-".join(row[1].removesuffix(".whl").split("-")[-3:]) for row in group} == {tags}
        assert group == sorted(group, key=lambda row: (row[0], row[1]))


@each("path", FILES, ids=IDS)
def test_every_wheel_is_named_located_and_hashed(path):
    default = path.parent.name == "default"
    data = package(path)
    for number, filename, location, sha256, size, _, yanked, upload_time, _ in rows(data):
        name, version, _, _ = parse_wheel_filename(filename)
        assert (name, str(version)) == (data["name"], data["versions"][number])
        assert re.fullmatch(r"[0-9a-f]{64}", sha256)
        assert re.fullmatch(r"packages/[0-9a-f/]+" if default else r"cu\d+|cpu", location)
        assert (type(size) is int and size > 0) if default else size is None
        assert yanked is None or isinstance(yanked, str)
        assert upload_time is None or isinstance(upload_time, str)
        if not default:
            assert data["versions"][number].endswith("+" + location)
            assert data["sources"][data["versions"][number]]


def test_no_file_names_a_registry():
    for path in [*FILES, FOLDER / "index.json"]:
        text = path.read_text(encoding="ascii")
        for url in builtin_index():
            assert urlsplit(url).netloc not in text
        urls = set(re.findall(r"https?://[^\"]*", text))
        assert urls <= {"https://download.pytorch.org/whl/{variant}"}


# ---- what the snapshot is for --------------------------------------------------------------------


def test_every_framework_is_there(snapshot):
    """All distributions of frameworks, none older than their files say, and several libraries."""
    for platform in PLATFORMS:
        for (name, _), since in roots(platform).items():
            versions = listed_versions(snapshot, name)
            assert versions
            assert all(contains(f">={since}", version, False) for version in versions)
    scans = read_data(ROOT / "matrix_data" / "scans.toml")["scan"]
    libraries = {name for scan in scans if scan.get("path") for name in scan["distributions"]}
    assert libraries
    assert all(len(listed_versions(snapshot, name)) > 1 for name in libraries)


def test_the_closure_is_whole(snapshot):
    """Every requirement of a wheel, with its extras, has a wheel that fits on each target.

    From every root that a framework's file names, through every candidate that a solve could take.
    """
    unexplained, explained = set(), set()
    for host in hosts(micro=10):
        target = (
            f"{interpreter_tag(host.python.version, host.python.free_threaded)}-{host.platform}"
        )
        environment = TargetEnvironment(host)
        asked = roots(host.platform)
        reached = [
            (wheel, extras) for name, extras in asked for wheel in snapshot.files(name, environment)
        ]
        seen = set()
        serving = {}
        while reached:
            wheel, extras = reached.pop()
            needs = snapshot.metadata(wheel).dependencies
            if (wheel.name, wheel.index, needs, extras) in seen or not environment.accepts_python(
                wheel.requires_python
            ):
                continue
            seen.add((wheel.name, wheel.index, needs, extras))
            for need in needs:
                if need.marker is not None and not environment.marker(need.marker, extras):
                    continue
                if need not in serving:
                    serving[need] = [
                        candidate
                        for candidate in snapshot.files(need.name, environment)
                        if contains(need.specifier, candidate.version, False)
                        and environment.accepts_python(candidate.requires_python)
                    ]
                    reached += [(candidate, need.extras) for candidate in serving[need]]
                if not serving[need]:
                    gap = wheel.name, wheel.version, need.name, target
                    known = [one for one in GAPS if all(map(fnmatchcase, gap, one.split()))]
                    explained.update(known)
                    unexplained |= set() if known else {gap}
    assert unexplained == set()
    assert explained == set(GAPS)


def test_a_solve_from_the_snapshot_needs_no_network_library():
    """Walking torch's whole closure from the snapshot imports no network library."""
    program = f"""
import sys
before = set(sys.modules)  # an editable install starts with more
from gpuenv.requirements.versions import contains
from gpuenv.requirements.target import TargetEnvironment
from gpuenv.index.snapshot import Snapshot
from gpuenv.model import Host, Python
snapshot = Snapshot({str(FOLDER)!r}, {STORE!r})
host = Host(python=Python(version=(3, 12)), glibc=(2, 39))
environment = TargetEnvironment(host)
todo, seen = [("torch", ())], set()
while todo:
    name, extras = todo.pop()
    if (name, extras) in seen:
        continue
    seen.add((name, extras))
    for wheel in snapshot.files(name, environment):
        assert environment.accepts_python(wheel.requires_python) in (True, False)
        for need in snapshot.metadata(wheel).dependencies:
            if need.marker is None or environment.marker(need.marker, extras):
                todo.append((need.name, need.extras))
                for other in {{wheel.version for wheel in snapshot.files(need.name)}}:
                    contains(need.specifier, other, False)
assert len(seen) > 40, len(seen)
heavy = {{"urllib.request", "requests", "urllib3", "ssl"}}
print(sorted((set(sys.modules) - before) & heavy))
"""
    path = str(ROOT / "resolver")
    found = f"import sys; sys.path.insert(0, {path!r})\n"
    reply = run_program([sys.executable, "-I", "-c", found + program])
    assert reply.stdout == "[]\n"


# ---- the reader ----------------------------------------------------------------------------------


def test_builds_of_the_pytorch_index_pin_their_variant(snapshot):
    """A companion of a CUDA variant requires torch of that variant; torch, its CUDA libraries."""
    environment = TargetEnvironment(Host(python=Python(version=(3, 12))))
    checked = 0
    for name in ("torch", "torchvision", "torchaudio"):
        for wheel in snapshot.files(name, environment):
            local = wheel.version.partition("+")[2]
            if not local:
                continue
            needs = [
                n
                for n in snapshot.metadata(wheel).dependencies
                if n.marker is None or environment.marker(n.marker, ())
            ]
            if name == "torch":
                cudnn = [need.name for need in needs if need.name.startswith("nvidia-cudnn")]
                assert cudnn == ([] if local == "cpu" else [f"nvidia-cudnn-{local[:4]}"])
            else:
                pins = [need.specifier for need in needs if need.name == "torch"]
                # torchaudio 2.11.0 fits several releases of torch and pins none.
                assert pins or (name, wheel.version.partition("+")[0]) == ("torchaudio", "2.11.0")
                assert all(pin.endswith("+" + local) for pin in pins)
            checked += 1
    assert checked > 40


DAMAGES = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_text(""),
    "cut": lambda path: path.write_text(path.read_text()[:-200]),
    "no JSON": lambda path: path.write_text(path.read_text().replace('"', "'")),
    "not text": lambda path: path.write_bytes(b"\xff\xfe" + path.read_bytes()),
}


@each("damage", DAMAGES)
@each("name", ["index.json", "default/filelock.json"])
def test_damage_is_one_line(name, damage, tmp_path):
    folder = tmp_path / "snapshot"
    shutil.copytree(FOLDER, folder)
    damage(folder / name)
    with pytest.raises(DataError) as caught:
        snapshot = Snapshot(str(folder), STORE)
        snapshot.files("filelock")
    assert str(folder / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_newest_glibc_is_not_older_than_any_wheel():
    """A target of unknown glibc must not lose wheels of the snapshot."""
    minors = [int(minor) for path in FILES for row in rows(package(path))
              for minor in re.findall(r"manylinux_2_(\d+)_", row[1])]  # fmt: skip
    assert max(minors) <= NEWEST_GLIBC[1]
