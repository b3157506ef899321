"""What is read at a glance is what argparse reads."""

import contextlib
import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuenv import cli
from gpuenv.cli.glance import Flags

COMMANDS = [name for name, (_, _, run) in cli._COMMANDS.items() if run is not None and name != "run"]
WORDS = ["torch", "torch>=2.9", "H100", "3.12", "", "a b", "-", "--", "-r", "-5", "pylock", "requirements", "nothing",
         "auto", "uv", "12", "0", "x", "--frame", "--python=3.12", "--gpu=", "-oout", "--json=1"]  # fmt: skip


def told(command: str) -> Flags:
    flags: Any = Flags()
    _, add, run = cli._COMMANDS[command]
    assert run is not None
    cli._fill(flags, add, run)
    return flags  # type: ignore[no-any-return]


def slowly(words: list[str]) -> dict[str, Any] | None:
    """What argparse makes of it; None for a mistake or for help."""
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            found = vars(cli._parsed(words))
        except SystemExit:
            return None
    return {name: value for name, value in found.items() if name not in ("argv", "command", "left")}


@given(st.data())
def test_what_is_read_at_a_glance_is_what_argparse_reads(data: st.DataObject) -> None:
    command = data.draw(st.sampled_from(COMMANDS))
    flags = told(command)
    names = sorted(flags._options)
    words = data.draw(st.lists(st.sampled_from(names) | st.sampled_from(WORDS), max_size=7))
    found = flags.parsed(words)
    if found is not None:
        assert vars(found) == slowly([command, *words])


READ = [
    "solve --framework torch --gpu H100 --driver 580.65.06 --python 3.12 --offline",
    "solve --framework torch --framework jax scipy numpy<2 -r a.txt -c b.txt -o x.toml --json",
    "solve --project --extra dev", "solve --project dir --format requirements", "solve --python=3.12 torch --pre",
    "install --framework torch --target env --timeout 5", "explain pylock.toml --gpu B200", "detect --json",
]  # fmt: skip


@pytest.mark.parametrize("line", READ)
def test_what_is_common_is_read_at_a_glance(line: str) -> None:
    command, *words = line.split()
    found = told(command).parsed(words)
    assert found is not None and vars(found) == slowly([command, *words])


LEFT = ["solve --help", "solve --fram torch", "solve a --json b", "solve -rfile", "solve --gpu", "solve --gpu --json",
        "solve --format x", "install --framework torch", "solve -- a", "sync a b --target c", "verify"]  # fmt: skip


@pytest.mark.parametrize("line", LEFT)
def test_all_else_is_left_to_argparse(line: str) -> None:
    command, *words = line.split()
    assert told(command).parsed(words) is None
