"""The same solve again is answered without solving, and never where something changed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from test_cli import SOLVE
from test_cli import run_process as run

ROOT = Path(__file__).parent.parent
BASE = [*SOLVE, "--platform", "linux-x86_64", "--glibc", "2.28"]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def solve(folder: Path, *flags: str, package: Path = ROOT / "resolver", **settings: str) -> tuple[str, bool]:
    """What a run says, and whether it solved."""
    kept = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", "CONDA_PREFIX")}
    environment = {**kept, "PYTHONPATH": str(package), "GPUENV_CACHE_DIR": str(folder.parent / "cache"), **settings}
    command = [sys.executable, "-X", "importtime", "-m", "gpuenv", *(flags or BASE)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, "gpuenv.solver" in done.stderr


def test_the_same_again_is_repeated_and_restores_the_lock(work: Path) -> None:
    lock = work / "pylock.toml"
    first, solved = solve(work)
    assert solved and "torch 2.15.0" in first
    text = lock.read_bytes()
    before = lock.stat().st_mtime_ns
    assert solve(work) == (first, False)
    assert lock.stat().st_mtime_ns == before  # it was right already
    lock.write_bytes(text.replace(b"2.15.0", b"2.14.0"))
    assert solve(work) == (first, False)
    assert lock.read_bytes() == text
    lock.unlink()
    assert solve(work) == (first, False)
    assert lock.read_bytes() == text


@pytest.mark.parametrize(
    "change",
    [
        ["--driver", "595.45.04"],
        ["--python", "3.13"],
        ["--gpu", "A100"],
        ["--default-index-only"],
        ["-o", "pylock.other.toml"],
    ],
    ids=" ".join,
)
def test_another_request_is_solved(work: Path, change: list[str]) -> None:
    solve(work)
    assert solve(work, *BASE, *change)[1]


def test_other_settings_of_pip_or_uv_are_another_request(work: Path, tmp_path: Path) -> None:
    solve(work)
    assert solve(work, PIP_TIMEOUT="7")[1]
    config = tmp_path / "pip.conf"
    config.write_text("[global]\n")
    assert solve(work, PIP_CONFIG_FILE=str(config))[1]
    assert not solve(work, PIP_CONFIG_FILE=str(config))[1]
    config.write_text("[global]\ntimeout = 9\n")
    assert solve(work, PIP_CONFIG_FILE=str(config))[1]
    assert solve(work, GPUENV_NO_MEMO="1")[1]


def test_other_data_is_another_request(work: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    shutil.copytree(ROOT / "resolver" / "gpuenv", site / "gpuenv", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "matrix_data", site / "gpuenv" / "matrix_data", ignore=shutil.ignore_patterns("scans"))
    assert solve(work, package=site)[1]
    assert not solve(work, package=site)[1]
    os.utime(site / "gpuenv" / "matrix_data" / "tables.json", ns=(1, 1))
    assert solve(work, package=site)[1]


def test_a_damaged_answer_is_none(work: Path) -> None:
    first, _ = solve(work)
    (kept,) = (work.parent / "cache" / "solves").iterdir()
    whole = kept.read_bytes()
    for damaged in (b"", whole[:-5], whole + b"x", b"x" * 400, b"1 2 3\n" + whole, b"9" + whole[1:]):
        kept.write_bytes(damaged)
        assert solve(work) == (first, True)
        assert kept.read_bytes() == whole


def test_passwords_are_not_written(work: Path) -> None:
    solve(work, **{"UV_INDEX_PRIVATE_PASSWORD": "correct-horse"})
    for path in (work.parent / "cache").rglob("*"):
        assert path.is_dir() or b"correct-horse" not in path.read_bytes()


def test_what_may_not_be_repeated_is_not_kept(work: Path) -> None:
    (work / "requirements.txt").write_text("filelock\n")
    solve(work, *BASE, "-r", "requirements.txt", "--offline")
    assert not (work.parent / "cache" / "solves").exists()


def test_mistakes_end_as_before(work: Path) -> None:
    done = run([*SOLVE, "--driver", "nonsense"], work)
    assert (done.returncode, done.stdout) == (2, "")
