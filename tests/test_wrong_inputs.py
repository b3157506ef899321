"""Wrong inputs: each gives one line that says what is wrong, where, and what to type.

Nothing is written.
"""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from test_cli import contents, run

HOST = "--gpu H100 --driver 580.65.06 --offline"
# Command: what its line has.
WRONG = {
    "slove": ["no command slove", "solve"],
    "isntall torch": ["no command isntall", "install"],
    "--gpu H100 solve": ["--gpu: a flag stands after its command"],
    "help slove": ["no command slove", "did you mean solve?"],
    "solve": ["nothing to solve", "--framework NAME or a REQUIREMENT"],
    "solve --framework": ["--framework needs a value"],
    "solve --framwork torch": ["no flag --framwork", "did you mean --framework?"],
    f"solve --framework pytroch {HOST}": ["did you mean torch?"],
    f"solve --framework tf {HOST}": ["did you mean tensorflow?"],
    f"solve PyTorch>=2 {HOST}": ["is not the framework torch; write torch", "-r FILE"],
    f"explain tf {HOST}": ["write tensorflow"],
    f"solve torch==abc! {HOST}": ["torch==abc!"],
    f"solve torch=2.9 {HOST}": ["'torch=2.9' is not a requirement", "write torch==2.9"],
    f"solve 'num py' {HOST}": ["num py"],
    "solve torch --gpu H1000": ["'H1000' is not a known GPU", "did you mean H100"],
    "solve torch --gpu 'RTX 6000'": [
        "Quadro RTX 6000 (sm_75) or RTX 6000 Ada (sm_89) or RTX PRO 6000"
    ],
    "solve torch --gpu none,H100": ["--gpu none cannot be combined"],
    "solve torch --gpu H100 --driver 13.0": ["looks like a CUDA version", "580.65.06"],
    "solve torch --gpu H100 --driver 58x": ["'58x' is not a driver release"],
    "solve torch --gpu H100 --python three": ["'three'", "3.12"],
    "solve torch --gpu H100 --platform beos": ["'beos' is not known", "linux-x86_64"],
    "solve torch --gpu H100 --glibc x": ["'x' is not a glibc version", "2.28"],
    "solve torch --gpu GH200 --platform linux-x86_64": ["linux-aarch64 only"],
    "solve torch --host nowhere.json": ["nowhere.json"],
    f"solve torch -o no/where/pylock.toml {HOST}": ["no/where does not exist", "another -o"],
    f"solve torch -o lock.toml {HOST}": ["pylock.toml or pylock.NAME.toml"],
    f"solve torch --format toml {HOST}": ["--format: 'toml' is not one of", "pylock"],
    f"solve torch --cuda twelve {HOST}": ["--cuda twelve", "--cuda 12.8"],
    f"solve pandas+cu128 {HOST}": ["pandas is no framework", "NAME==VERSION+TAG"],
    f"solve torch --exclude-newer yesterday {HOST}": ["'yesterday' is neither a date"],
    f"solve torch --find-links wheels {HOST}": ["wheels does not exist"],
    f"solve torch --no-index {HOST}": ["--find-links DIR"],
    f"solve -r missing.txt {HOST}": ["missing.txt"],
    f"solve --project nowhere {HOST}": ["nowhere"],
    f"install torch -o - --target env {HOST}": ["gpuenv solve"],
    "sync": ["--target is missing"],
    "sync --wait never --target env": ["--wait: 'never' is not a number of seconds"],
    "sync pylock.toml --target env": ["pylock.toml", "cannot be read"],
    "verify --target nowhere": ["nowhere: does not exist"],
    "verify --strict --target .": ["--strict is for --hook"],
    "verify --timeout 0 --target .": ["--timeout: '0' is not a number of seconds above 0"],
    "env --for uv --gpu H100": ["no driver is known", "--driver 580.65.06"],
    "run": ["no command to run", "gpuenv run --target env"],
    "run --target nowhere true": ["nowhere: is no folder"],
    "doctor nowhere.log": ["nowhere.log"],
    "doctor --here": ["name the log"],
    "lock": ["pyproject.toml"],
    "lock h100 --gpu H100": ["--gpu: a profile describes its own host"],
    "init": ["no framework", "gpuenv init --framework torch"],
    "matrix show trch": ["trch", "torch"],
    "matrix shwo": ["'shwo' is not one of", "show"],
    "matrix": ["a command is missing: list, show,", "gpuenv matrix --help"],
    "fleet detect": ["gpuenv fleet detect: --from or --launcher is missing"],
    "tree": ["pylock.toml"],
    "tree --depth 0": ["--depth: '0' is not a whole number above 0"],
    "why": ["NAME is missing"],
    "cache purge": ["'purge' is not one of", "clean"],
    "completion ksh": ["'ksh' is not one of", "bash"],
}


@pytest.mark.parametrize("command", WRONG)
def test_a_wrong_input_is_one_line(command: str, tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    done = run(shlex.split(command), folder)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("gpuenv") and "internal error" not in line
    assert [text for text in WRONG[command] if text not in line] == [], line
    assert contents(folder) == {}


def test_there_are_forty() -> None:
    assert len(WRONG) >= 40


def test_no_command_lists_the_commands(tmp_path: Path) -> None:
    done = run([], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: gpuenv COMMAND [OPTIONS]" in done.stderr and "\n  solve  " in done.stderr
