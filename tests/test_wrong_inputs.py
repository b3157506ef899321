"""Wrong inputs: each gives one line that says what is wrong, where, and what to type.

Nothing is written.
"""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

from test_cli import contents, run

HOST = "--gpu H100 --driver 580.65.06 --offline"
CASES = tomllib.loads((Path(__file__).parent / "data" / "wrong_inputs.toml").read_text())["case"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["command"])
def test_a_wrong_input_is_one_line(case: dict[str, Any], tmp_path: Path) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    done = run(shlex.split(f"{case['command']} {HOST if case.get('host') else ''}"), folder)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    [line] = done.stderr.splitlines()
    assert line.startswith("gpuenv") and "internal error" not in line
    assert [text for text in case["says"] if text not in line] == [], line
    assert contents(folder) == {}


def test_no_command_lists_the_commands(tmp_path: Path) -> None:
    done = run([], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "Usage: gpuenv COMMAND [OPTIONS]" in done.stderr and "\n  solve  " in done.stderr
