"""Rules R9 and R10 as commands that a user types: tests/data/command_rules.toml."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gpuenv.cli import main
from gpuenv.compat.extensions import BuiltFor, of_build_string, of_version
from gpuenv.lock import pylock
from index_server import make_wheel

TABLE = tomllib.loads((Path(__file__).parent / "data" / "command_rules.toml").read_text())
CASES: list[dict[str, Any]] = TABLE["case"]
FIXED = "--python 3.12 --glibc 2.39 --offline -o pylock.toml"


def arguments(case: dict[str, Any], folder: Path) -> list[str]:
    """The arguments of `gpuenv solve`; the wheels of the case are written into the folder."""
    found = [*shlex.split(case["args"]), *shlex.split(FIXED)]
    for name, version, *requires in case.get("wheels", ()):
        filename, data = make_wheel(name, version, requires, tag="cp312-cp312-linux_x86_64")
        (folder / filename).write_bytes(data)
    if "wheels" in case:
        found += ["--find-links", str(folder)]
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["name"]))
def test_commands(
    case: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    args = arguments(case, tmp_path)
    assert main(["solve", *args]) == case["status"]
    text = " ".join(capsys.readouterr().err.split())
    assert [say for say in case.get("says", ()) if say not in text] == []
    lock_path = tmp_path / "pylock.toml"
    assert lock_path.exists() == (case["status"] == 0)
    if case["status"] == 0:
        lock = pylock.read(str(lock_path))
        pins = {pin.wheel.name: pin.wheel.version for pin in lock.pins}
        assert lock.needs.platform == case["platform"]
        assert pins == pins | case.get("pins", {})
    if case["status"] == 2:
        assert text.startswith("gpuenv: ")
        return
    assert main(["solve", *args, "--json"]) == case["status"]
    document = json.loads(capsys.readouterr().out)
    if case["status"] == 3:
        assert document["reasons"][0]["code"] == case.get("first", document["reasons"][0]["code"])
        offered = [change["change"] for change in document["smallest_changes"]]
        assert [change for change in case.get("changes", ()) if change not in offered] == []


@pytest.mark.parametrize(
    ("version", "built_for"),
    [
        ("2.8.3", None),
        ("2.8.0+cu128", None),
        ("2.5.0a0+872d972e41.nv24.08", None),
        ("2.8.3+cu12torch2.8cxx11abiTRUE", ("2.8", 12, True)),
        ("2.6.3+cu122torch2.4cxx11abifalse", ("2.4", 12, False)),
        ("1.2.0+rocm61torch2.10", ("2.10", None, None)),
        ("2.1.2+pt28cu128", ("2.8", 12, None)),
        ("2.1.2+pt210cu130", ("2.10", 13, None)),
        ("2.1.2+pt113cpu", ("1.13", None, None)),
        ("0.21.0+torch280cu128", ("2.8", 12, None)),
        ("0.21.1+torch2100cu130", ("2.10", 13, None)),
        ("0.3.2+cu128.torch2.7.0", ("2.7", 12, None)),
        ("0.7.8+pt2.5.1cu121", ("2.5", 12, None)),
    ],
)
def test_versions_of_extensions(
    version: str, built_for: tuple[str, int | None, bool | None] | None
) -> None:
    found = of_version(version)
    if built_for is None:
        assert found is None
    else:
        release, cuda_major, abi = built_for
        assert found == BuiltFor(release=release, cuda_major=cuda_major, cxx11_abi=abi)


@pytest.mark.parametrize(
    ("version", "cuda_major"), [("0.0.32+cu128", 12), ("0.9.2+cpu", None), ("0.0.32", None)]
)
def test_a_cuda_version_alone(version: str, cuda_major: int | None) -> None:
    found = of_version(version, names_cuda=True)
    assert found == (BuiltFor(cuda_major=cuda_major) if cuda_major else None)


@pytest.mark.parametrize(
    ("build", "release", "cuda_major"),
    [
        ("py312_torch_2.4.0_cu121", "2.4", 12),
        ("py310_cu121_pyt241", "2.4", 12),
        ("py310_cu12.1.0_pyt2.3.1", "2.3", 12),
        ("cuda126_py312h0123abc_0", None, None),
        ("py3.12_cuda12.4_cudnn9.1.0_0", None, None),
    ],
)
def test_build_strings(build: str, release: str | None, cuda_major: int | None) -> None:
    found = of_build_string(build)
    assert found == (BuiltFor(release=release, cuda_major=cuda_major) if release else None)
