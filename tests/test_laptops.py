"""Commands for described hosts and logs on a Mac and on Windows, as far as Linux shows it."""

import subprocess
import sys
from pathlib import Path

import pytest

from processes import run_program, words_of
from tables import data_file, each, on_linux
from test_cli import command_environment, run_process

SCRIPT = Path(__file__).parent / "laptop.py"
H100 = "--gpu H100 --driver 580.65.06 --python 3.12"
# On Windows, open() without an encoding uses the encoding of the system.
STRICT_ENCODINGS = ["-X", "warn_default_encoding", "-W", "error::EncodingWarning"]
pytestmark = on_linux


def run(platform, args, folder, status=0):
    (folder / "temporary files").mkdir(exist_ok=True)
    environment = {
        "PYTHONUTF8": "0",
        "LC_ALL": "C",
        "PYTHONIOENCODING": "ascii",
        "TMPDIR": str(folder / "temporary files"),
    }
    return run_program(
        [sys.executable, *STRICT_ENCODINGS, str(SCRIPT), platform, *words_of(args)],
        cwd=folder,
        env=command_environment(folder, environment),
        stdin=subprocess.DEVNULL,
        status=status,
    )


def keep_the_default_index(folder):
    """Ask pip for the default index: pip reads its own platform from this one's library."""
    run_process(f"solve torch {H100} --offline --dry-run", folder)


@pytest.fixture(scope="module", params=["darwin", "win32"])
def laptop(request, tmp_path_factory):
    """Return a platform, and a folder with the files that it has solved and locked."""
    platform = str(request.param)
    folder = tmp_path_factory.mktemp(platform) / "work"
    folder.mkdir()
    (folder / "train.log").write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    (folder / "pyproject.toml").write_text(
        '[project]\nname = "x"\nversion = "1"\ndependencies = ["torch"]\n'
    )
    solve = f"solve torch {H100} --platform linux-x86_64 --glibc 2.35 --offline"
    keep_the_default_index(folder)
    assert "torch 2.15.0" in run(platform, solve, folder).stdout
    return platform, folder


@each(
    "args status says",
    data_file("tables/laptops.json")["commands"],
)
def test_a_command_runs_on_a_laptop(laptop, args, status, says):
    done = run(laptop[0], args, laptop[1], status=status)
    assert done.stderr == ""
    assert says in done.stdout


def test_a_project_is_locked_on_a_laptop(laptop):
    platform, folder = laptop
    init = f"init {H100} --platform linux-x86_64"
    for args in (init, "lock --offline", "lock --check"):
        run(platform, args, folder)
    assert (folder / "pylock.h100.toml").is_file()


def test_a_gpu_on_a_mac_is_one_of_a_server(folder):
    keep_the_default_index(folder)
    document = run("darwin", f"solve torch {H100} --offline --json", folder).document
    assert document["host"].get("os", "linux") == "linux" and document["warnings"] == []
    assert document["frameworks"]["torch"]["version"] == "2.15.0"
