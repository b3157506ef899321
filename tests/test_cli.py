"""The command line as users meet it: real processes, exit statuses, one line for a mistake.

A mistake writes nothing.
"""

import functools
import importlib
import json
import os
import pkgutil
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import checked_documents
import forked
import gpuenv
from gpuenv.__main__ import main as entry_point
from gpuenv.cli import all_commands, load_command
from processes import run_program
from tables import cases, data_file

CASES: list[dict[str, Any]] = data_file("cli.json")
SOLVE = [
    "solve",
    "--framework",
    "torch",
    "--gpu",
    "H100",
    "--driver",
    "580.65.06",
    "--python",
    "3.12",
]


def words_of(command: str | Sequence[str]) -> Sequence[str]:
    """The words of a command that is written as a user types it."""
    return shlex.split(command) if isinstance(command, str) else command


def run_process(
    args: str | Sequence[str], folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m gpuenv` as a new process, for tests that are about the process."""
    command = [sys.executable, "-m", "gpuenv", *words_of(args)]
    done = run_program(command, cwd=folder, env=command_environment(folder, environment))
    checked_documents.check(words_of(args), done.stdout)
    return done


def run(
    args: str | Sequence[str], folder: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a fork of this process, which has imported gpuenv already."""
    import_what_commands_use()
    command = ["gpuenv", *words_of(args)]
    done = forked.run(entry_point, command, folder, command_environment(folder, environment))
    checked_documents.check(words_of(args), done.stdout)
    return done


@functools.cache
def import_what_commands_use() -> None:
    """Import all of gpuenv, and what it imports when it is needed."""
    names = [module.name for module in pkgutil.walk_packages(gpuenv.__path__, "gpuenv.")]
    own = [name for name in names if not name.startswith("gpuenv.probes.")]
    for name in (*own, "requests", "tomllib", "tomli_w"):
        importlib.import_module(name)


def command_environment(folder: Path, changes: dict[str, str]) -> dict[str, str]:
    dropped = ("VIRTUAL_ENV", "CONDA_PREFIX", "COLUMNS")
    base = {key: value for key, value in os.environ.items() if key not in dropped}
    root = Path(__file__).parent.parent / "resolver"
    own = str(Path(sys.executable).parent)  # of a test environment that is active
    path = [entry for entry in base.get("PATH", "").split(os.pathsep) if entry != own]
    return {
        **base,
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": str(root),
        "GPUENV_CACHE_DIR": str(folder.parent / "cache"),
        **changes,
    }


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture(scope="module")
def lock_text(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("lock") / "work"
    folder.mkdir()
    assert run([*SOLVE, "--glibc", "2.28"], folder).returncode == 0
    return (folder / "pylock.toml").read_text()


@cases(CASES)
def test_mistakes(case: dict[str, Any], folder: Path, lock_text: str) -> None:
    for name, text in case.get("files", {}).items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    if "edit" in case:
        old, new = case["edit"]
        assert old in lock_text
        (folder / "pylock.toml").write_text(lock_text.replace(old, new))
    before = contents(folder)
    done = run(case["args"], folder)
    assert done.returncode == case["status"], done.stderr
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert 1 <= len(lines) <= case.get("lines", 1), done.stderr
    for text in case["says"]:
        assert text in done.stderr
    assert "Traceback" not in done.stderr
    assert contents(folder) == before


def test_solve_writes_the_same_bytes_twice_and_needs_no_network(folder: Path) -> None:
    dead = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
    first = run([*SOLVE, "-o", "pylock.one.toml"], folder, **dead)
    second = run([*SOLVE, "-o", "pylock.two.toml", "--offline"], folder)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert (folder / "pylock.one.toml").read_bytes() == (folder / "pylock.two.toml").read_bytes()
    assert "torch 2.15.0" in first.stdout


def test_solve_json_is_the_contract(folder: Path) -> None:
    done = run([*SOLVE[:-4], "--driver", "550.54.14", "--python", "3.12", "--json"], folder)
    document = json.loads(done.stdout)
    assert document["lock"] == "pylock.toml"
    assert document["frameworks"]["torch"]["version"] == "2.13.0"
    assert document["frameworks"]["torch"]["cuda"] == "12.6"
    assert document["frameworks"]["torch"]["cudnn"] == "9.10.2.21"
    assert document["packages"] > 20 and document["download_bytes"] > 10**9
    reason = document["skipped"][0]["reasons"][0]
    assert set(reason) == {"code", "subject", "need", "have", "source"}
    assert (reason["code"], reason["have"]) == ("driver-floor", "driver 550.54.14")


def test_a_refusal_under_json_is_one_document(folder: Path) -> None:
    done = run(
        "solve --framework torch --gpu V100 --driver 595.45.04 --json",
        folder,
    )
    assert done.returncode == 3
    document = json.loads(done.stdout)
    assert document["possible"] is False
    assert document["reasons"] and document["smallest_changes"]


def test_a_read_only_folder_is_refused(folder: Path) -> None:
    if os.geteuid() == 0:
        # root may write anywhere: a file in the folder's place refuses root too
        (folder / "sub").write_text("")
        done = run([*SOLVE, "-o", "sub/pylock.toml"], folder)
    else:
        folder.chmod(0o555)
        done = run(SOLVE, folder)
        folder.chmod(0o755)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert not (folder / "pylock.toml").exists()


def test_requirements_format_pins_hashes(folder: Path) -> None:
    done = run([*SOLVE, "--format", "requirements"], folder)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    names = [line for line in lines if line and not line.startswith((" ", "#"))]
    hashes = [line for line in lines if line.startswith("    --hash=sha256:")]
    assert len(names) == len(hashes) > 20
    assert any(line.startswith("torch==2.15.0 ") for line in names)
    assert contents(folder) == {}


def test_detect_without_a_gpu_and_back_through_a_file(folder: Path) -> None:
    flags = ["--gpu", "H100", "--driver", "580.65.06", "--python", "3.12"]
    done = run(["detect", *flags, "-o", "host.json"], folder)
    assert done.returncode == 0, done.stderr
    solved = run("solve --framework torch --host host.json", folder)
    assert "torch 2.15.0" in solved.stdout


@pytest.mark.parametrize("name", all_commands())
def test_each_command_has_what_the_program_needs(name: str) -> None:
    """The list of commands, the help, the man page and completion read what `Command` names."""
    command = load_command(name)
    assert command.HELP and "\n" not in command.HELP and not command.HELP.endswith(".")
    assert command.DESCRIPTION.endswith(".") and command.EXAMPLES
    for text, purpose in command.EXAMPLES:
        assert "gpuenv " in text and purpose and not purpose.endswith(".")
    assert command.run.__doc__ and command.add_arguments.__doc__
