"""Real cuDNN wheels from the package index: what no stand-in can show. They load on a machine with no GPU.

Two releases are downloaded once (650 MB together; uv keeps them). Without a package index the tests are skipped.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuenv
from gpuenv import matrix
from gpuenv.backends import wheels
from gpuenv.errors import InstallError
from gpuenv.index.cache import Cache
from gpuenv.index.defaults import default_index
from gpuenv.index.snapshot import Snapshot
from gpuenv.model import Check, Host, Lock, Needs, Pin, Python

PLAIN, GAP = "9.12.0.46", "9.20.0.48"
HERE = (sys.version_info[0], sys.version_info[1])
pytestmark = pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="Linux x86_64 wheels")


def lock_of(version: str) -> Lock:
    found = default_index(Cache())
    snapshot = Snapshot(os.path.join(matrix.load().folder, "snapshot"), found.file_store, default_index=found.url)
    wheel = next(
        one
        for one in snapshot.wheels("nvidia-cudnn-cu13")
        if one.version == version and one.filename.endswith("x86_64.whl")
    )
    return Lock(
        pins=(Pin(wheel=wheel),),
        needs=Needs(python=HERE, platform="linux-x86_64"),
        choices=(),
        host=Host(python=Python(version=HERE)),
        frameworks=(),
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """An environment for each release."""
    folder = tmp_path_factory.mktemp("cudnn")
    try:
        for version in (PLAIN, GAP):
            wheels.sync(lock_of(version), str(folder / version), installer="uv")
    except InstallError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no package index: {error}")
    return {version: folder / version for version in (PLAIN, GAP)}


@pytest.fixture
def plain(made: dict[str, Path], tmp_path: Path) -> Iterator[Path]:
    """The first environment; faults are planted beside its files, which are put back afterwards."""
    folder = libraries(made[PLAIN])
    before = set(os.listdir(folder))
    yield made[PLAIN]
    for name in before - set(os.listdir(folder)):
        shutil.move(tmp_path / name, folder / name)
    for name in (tmp_path / "swapped").glob("*") if (tmp_path / "swapped").exists() else ():
        os.replace(name, folder / name.name)


def libraries(env: Path) -> Path:
    return next(env.glob("lib/python*/site-packages/nvidia/cudnn/lib"))


def checks_of(env: Path, version: str, monkeypatch: pytest.MonkeyPatch, **variables: str) -> dict[str, Check]:
    for name, value in {"LD_LIBRARY_PATH": "", "LD_PRELOAD": "", **variables}.items():
        monkeypatch.setenv(name, value)
    host = Host(python=Python(version=HERE))
    found = gpuenv.verify(lock_of(version), str(env), host, device=False, timeout=240)
    return {f"{check.name} {check.subject}".strip(): check for check in found}


def failed(checks: dict[str, Check]) -> set[str]:
    return {name for name, check in checks.items() if check.status == "fail"}


def test_a_clean_environment_passes(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = checks_of(plain, PLAIN, monkeypatch)
    assert failed(checks) == set()
    assert checks["cudnn version"].evidence.startswith("9.12.0, ")
    assert str(libraries(plain)) in checks["cudnn origin"].evidence
    assert checks["files"].status == "pass" and "by sha256" in checks["files"].evidence


def test_a_library_that_is_removed_is_named(plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.move(libraries(plain) / "libcudnn_ops.so.9", tmp_path / "libcudnn_ops.so.9")
    checks = checks_of(plain, PLAIN, monkeypatch)
    assert {"files", "cudnn libraries"} <= failed(checks)
    assert "libcudnn_ops.so.9 of nvidia-cudnn-cu13 is missing" in checks["files"].evidence
    assert "libcudnn_ops is named by" in checks["cudnn libraries"].evidence


def test_a_library_of_another_release_is_named(
    plain: Path, made: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "swapped").mkdir()
    victim = libraries(plain) / "libcudnn_cnn.so.9"
    os.rename(victim, tmp_path / "swapped" / victim.name)
    shutil.copy(libraries(made[GAP]) / victim.name, victim)
    checks = checks_of(plain, PLAIN, monkeypatch)
    assert {"files", "cudnn version"} <= failed(checks)
    assert "libcudnn_cnn.so.9" in checks["files"].evidence
    assert "VersionCheck" in checks["cudnn version"].evidence  # it gives 1002, or the child ends in it


def test_another_cudnn_in_the_loader_path_is_named(
    plain: Path, made: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = str(libraries(made[GAP]))
    checks = checks_of(plain, PLAIN, monkeypatch, LD_LIBRARY_PATH=entry)
    assert {"loader variables", "cudnn origin"} <= failed(checks)
    assert entry in checks["loader variables"].evidence
    assert f"the entry {entry} of LD_LIBRARY_PATH" in checks["cudnn origin"].evidence


def test_a_library_that_a_release_names_and_does_not_ship(
    made: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = checks_of(made[GAP], GAP, monkeypatch)
    assert "cudnn libraries" in failed(checks)
    assert "libcudnn_engines_tensor_ir is named by" in checks["cudnn libraries"].evidence
    assert checks["files"].status == "pass"  # as published: the wheel itself lacks it
