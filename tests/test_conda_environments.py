"""Installations into conda environments that exist: nothing is removed that nobody asked to remove."""

import json
import os
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import conda_channel
from gpuenv.cli import main
from gpuenv.install import conda_history, conda_prefix
from gpuenv.requirements import conda_versions
from gpuenv.resolve.conda import solvers

DATA: dict[str, Any] = tomllib.loads(
    (Path(__file__).parent / "data" / "conda_environments.toml").read_text()
)
CASES: list[dict[str, Any]] = DATA["case"]
HOST = ("--gpu", "H100", "--driver", "570.86.10", "--glibc", "2.35", "--platform", "linux-x86_64")
Rows = dict[str, dict[str, Any]]


@pytest.fixture(scope="module", autouse=True)
def _own_caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with conda_channel.own_caches(tmp_path_factory):
        yield


def row_of(package: str) -> dict[str, Any]:
    name, version = package.split()
    row = {"name": name, "version": version, "build": "h0_0", "build_number": 0}
    row |= {"depends": DATA["packages"][package], "subdir": "linux-64"}
    row["constrains"] = DATA["constrains"].get(package, [])
    if name in DATA["noarch-python"]["names"]:
        row |= {"subdir": "noarch", "noarch": "python"}
    return row


@pytest.fixture(scope="module")
def rows(made_once: Callable[..., Path]) -> Rows:
    """{"NAME VERSION": the record of repodata, with its URL} of the channel."""
    packages = [row_of(package) for package in DATA["packages"]]
    folder = made_once("environments", lambda path: conda_channel.make(path, packages))
    found = {}
    for subdir in ("linux-64", "noarch"):
        document = json.loads((folder / subdir / "repodata.json").read_text())
        for file, record in document["packages.conda"].items():
            where = {"fn": file, "url": f"{folder.as_uri()}/{subdir}/{file}"}
            record |= {**where, "channel": folder.as_uri(), "subdir": subdir}
            found[f"{record['name']} {record['version']}"] = record
    return found


def make_prefix(target: Path, case: dict[str, Any], rows: Rows) -> None:
    """Make an environment as another tool leaves it."""
    with solvers.RattlerSolver((), ("linux-64", "noarch")) as solver:
        solver.install(str(target), [rows[name] for name in case["installed"]], "linux-64")
    meta = target / "conda-meta"
    lines = ["==> 2026-01-01 00:00:00 <==", "# cmd: conda create"]
    lines += [f"+{conda_history._distribution(rows[name])}" for name in case["installed"]]
    lines.append(f"# update specs: {case.get('history', [])}")
    (meta / "history").write_text("\n".join(lines) + "\n")
    if "pinned" in case:
        (meta / "pinned").write_text("\n".join(case["pinned"]) + "\n")
    for wheel in case.get("wheels", ()):
        name, version = wheel.split()
        info = f"{name.replace('-', '_')}-{version}.dist-info"
        folder = target / "lib" / "python3.12" / "site-packages" / info
        folder.mkdir(parents=True)
        (folder / "INSTALLER").write_text("pip\n")
    if case.get("damaged"):
        (meta / "broken-1.0-0.json").write_text("{")


def make_lock(path: Path, packages: list[str], rows: Rows) -> None:
    lines = [f"{rows[name]['url']}#sha256:{rows[name]['sha256']}" for name in packages]
    path.write_text("\n".join(["@EXPLICIT", *lines]) + "\n")


def packages_in(target: Path) -> set[str]:
    records = conda_prefix.read_packages(str(target)).values()
    return {f"{record['name']} {record['version']}" for record in records}


def contents(target: Path) -> dict[str, tuple[int, int]]:
    """Return {file: (inode, time of change)} of a prefix."""
    found = {}
    for path in target.rglob("*"):
        status = path.lstat()
        found[str(path.relative_to(target))] = (status.st_ino, status.st_mtime_ns)
    return found


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_an_installation_into_an_environment(
    case: dict[str, Any], rows: Rows, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, lock = tmp_path / "prefix", tmp_path / "explicit.txt"
    make_prefix(target, case, rows)
    make_lock(lock, case["lock"], rows)
    before, files = packages_in(target), contents(target)
    assert before == set(case["installed"])
    more = ["--exact"] if case.get("exact") else []
    command = ["sync", str(lock), "--target", str(target), *HOST, "--no-verify", *more]
    assert main(command) == case.get("status", 0)
    captured = capsys.readouterr()
    assert not [text for text in case.get("says", ()) if text not in captured.out + captured.err]
    came = {text[1:] for text in case.get("after", ()) if text[0] == "+"}
    gone = {text[1:] for text in case.get("after", ()) if text[0] == "-"}
    assert packages_in(target) == (before - gone) | came
    assert not [name for name in case.get("files", ()) if not (target / name).exists()]
    if case.get("status", 0):
        assert contents(target) == files
    else:
        stay = before - gone
        names = [package.split()[0] for package in stay if "requests" not in package]
        stand_ins = [f"share/stand-ins/{name}" for name in names if name != "python"]
        assert not [name for name in stand_ins if contents(target).get(name) != files[name]]
