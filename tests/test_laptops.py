"""Commands for described hosts and logs on a Mac and on Windows, as far as Linux shows it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from processes import run_program
from test_cli import command_environment, run_process

SCRIPT = Path(__file__).parent / "laptop.py"
H100 = ["--gpu", "H100", "--driver", "580.65.06", "--python", "3.12"]
V100 = ["--gpu", "V100", "--driver", "550.54.14", "--platform", "linux-x86_64"]
# On Windows, open() without an encoding uses the encoding of the system.
STRICT_ENCODINGS = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
WINDOWS = ["--platform", "win-amd64", "--python", "3.12", "--offline", "--dry-run"]
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the laptops are simulated")


def run(platform: str, args: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "temporary files").mkdir(exist_ok=True)
    environment = {
        "PYTHONUTF8": "0",
        "LC_ALL": "C",
        "PYTHONIOENCODING": "ascii",
        "TMPDIR": str(folder / "temporary files"),
    }
    return run_program(
        [sys.executable, *STRICT_ENCODINGS, str(SCRIPT), platform, *args],
        cwd=folder,
        env=command_environment(folder, environment),
        stdin=subprocess.DEVNULL,
    )


def keep_the_default_index(folder: Path) -> None:
    """Ask pip for the default index: pip reads its own platform from this one's library."""
    assert run_process(["solve", "torch", *H100, "--offline", "--dry-run"], folder).returncode == 0


@pytest.fixture(scope="module", params=["darwin", "win32"])
def laptop(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, Path]:
    """Return a platform, and a folder with the files that it has solved and locked."""
    platform = str(request.param)
    folder = tmp_path_factory.mktemp(platform) / "work"
    folder.mkdir()
    (folder / "train.log").write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch"]\n'
    )
    solve = ["solve", "torch", *H100, "--platform", "linux-x86_64", "--glibc", "2.35", "--offline"]
    keep_the_default_index(folder)
    done = run(platform, solve, folder)
    assert done.returncode == 0, done.stderr
    assert "torch 2.15.0" in done.stdout
    return platform, folder


@pytest.mark.parametrize(
    ("args", "status", "says"),
    [
        (["solve", "torch", "--gpu", "RTX 4090", "--driver", "580", *WINDOWS], 0, "for win-amd64"),
        (["explain", "torch", *V100, "--offline"], 0, "possible: torch 2.13.0"),
        (["explain", "pylock.toml", *V100], 3, "would not work"),
        (["doctor", "train.log"], 1, "memory"),
        (["doctor"], 0, "No fault of the host was found"),
        (["tree", "--depth", "1"], 0, "torch 2.15.0"),
        (["detect"], 0, "no-gpu"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_runs_on_a_laptop(
    laptop: tuple[str, Path], args: list[str], status: int, says: str
) -> None:
    done = run(laptop[0], args, laptop[1])
    assert (done.returncode, done.stderr) == (status, ""), done.stderr
    assert says in done.stdout


def test_a_project_is_locked_on_a_laptop(laptop: tuple[str, Path]) -> None:
    platform, folder = laptop
    init = ["init", *H100, "--platform", "linux-x86_64"]
    for args in (init, ["lock", "--offline"], ["lock", "--check"]):
        done = run(platform, args, folder)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "pylock.h100.toml").is_file()


def test_a_gpu_on_a_mac_is_one_of_a_server(folder: Path) -> None:
    keep_the_default_index(folder)
    done = run("darwin", ["solve", "torch", *H100, "--offline", "--json"], folder)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["host"].get("os", "linux") == "linux" and document["warnings"] == []
    assert document["frameworks"]["torch"]["version"] == "2.15.0"
