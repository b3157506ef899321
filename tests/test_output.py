"""Output on a terminal: lines that fit, colors with a meaning, progress. Output in a pipe."""

import fcntl
import os
import pty
import re
import struct
import sys
import termios
import time
from typing import NamedTuple

import pytest

import forked
from gpuenv.__main__ import main
from processes import words_of
from tables import each, read_data
from test_cli import SOLVE, command_environment, import_what_commands_use, run_process

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no pty")
V100 = "--gpu V100 --driver 550.54.14 --python 3.12 --glibc 2.39"
SEVERAL = f"solve torch tensorflow {V100}"
CODE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Screen(NamedTuple):
    """What a command wrote to a terminal, and when the first character of progress came."""

    status: int
    text: str
    first: float

    def lines(self):
        """Return the lines that stay, without colors."""
        return [CODE.sub("", line.rpartition("\r")[2]) for line in self.text.split("\r\n")]

    def colors(self):
        """Return the texts in color."""
        return set(re.findall(r"\x1b\[[0-9;]+m([^\x1b]+)\x1b\[0m", self.text))


def new_process():
    """Replace this fork by a new interpreter."""
    os.execv(sys.executable, [sys.executable, "-m", *sys.argv])  # noqa: S606


def on_terminal(args, folder, columns=80, *, entry_point=main, **environment):
    """Run a command whose stdin, stdout and stderr are a terminal."""
    import_what_commands_use()
    terminal, side = pty.openpty()
    fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = command_environment(folder, {"TERM": "xterm", **environment})
    command = ["gpuenv", *words_of(args)]
    begin = time.monotonic()
    child = forked.start(entry_point, command, folder, env, [side] * 3)
    os.close(side)
    data, first = b"", 0.0
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the command has ended
            break
        if not piece:
            break
        first = first or time.monotonic() - begin
        data += piece
    status = forked.wait(child, command)
    os.close(terminal)
    return Screen(status, data.decode(), first)


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("output") / "work"
    folder.mkdir()
    return folder


@each("columns", [80, 120])
@each(
    "args",
    [
        SEVERAL,
        f"{SEVERAL} -v",
        f"explain torch tensorflow {V100}",
        "solve torch --gpu V100 --driver 595.45.04",
        "solve torch --gpu H1000",
        "--help",
        "solve --help",
    ],
)
def test_every_line_fits_the_terminal(work, args, columns):
    screen = on_terminal(args, work, columns)
    assert screen.lines() and "Traceback" not in screen.text
    too_long = [line for line in screen.lines() if len(line) > columns]
    assert too_long == []


@each(
    "args colored",
    [
        (SOLVE, {"wrote pylock.toml"}),
        ("solve torch --gpu H1000", {"gpuenv: --gpu 'H1000' is not a known GPU"}),
        ("doctor", set()),
        ("matrix show torch 2.15.0", set()),
        ("verify --target none", {"gpuenv: none: does not exist"}),
    ],
)
def test_color_has_a_meaning(work, args, colored):
    assert on_terminal(args, work).colors() == colored
    assert on_terminal(args, work, NO_COLOR="1").colors() == set()
    assert on_terminal(f"{args} --color never", work).colors() == set()


def test_a_pipe_gets_no_codes_unless_asked(work):
    for args, status in ((SOLVE, 0), (SEVERAL, 0), ("solve torch --gpu H1000", 2)):
        done = run_process(args, work, status=status)
        assert "\x1b" not in done.output and "\r" not in done.output
    assert "\x1b[1mwrote" in run_process(f"{SOLVE} --color always", work).stdout
    assert "\x1b[1mwrote" in run_process(SOLVE, work, FORCE_COLOR="1").stdout


def test_quiet_and_verbose(work):
    quiet = run_process(f"{SEVERAL} -q", work)
    assert (quiet.stdout, quiet.stderr) == ("", "")
    plain, verbose = run_process(SEVERAL, work).stdout, run_process(f"{SEVERAL} -v", work).stdout
    assert "(-v says why)" in plain and "(-v says why)" not in verbose
    assert "nvidia-cudnn-cu13" in verbose and "nvidia-cudnn-cu13" not in plain
    assert plain.splitlines()[-1] == "next: gpuenv sync pylock.toml --target .venv"
    assert "H1000" in run_process("solve torch --gpu H1000 -q", work, status=2).stderr


def test_init_asks_nothing_on_a_terminal(folder):
    (folder / "train.py").write_text("import torch\n")
    screen = on_terminal(["init"], folder, CUDA_VISIBLE_DEVICES="")
    assert screen.status == 0, screen.text
    project = read_data(folder / "pyproject.toml")
    assert project["tool"]["gpuenv"]["profiles"] == {"cpu": {"gpu": "none"}}
    assert project["project"]["dependencies"] == ["torch"]
    for text in (
        "no GPU was found",
        "gpuenv init --gpu H100",
        "torch",
        "writes pylock.",
        "next: gpuenv lock",
    ):
        assert text in screen.text


# ---- progress ------------------------------------------------------------------------------------


@pytest.fixture
def slow(server):
    """A solve with an index that needs a second for each page."""
    server.delay = 1.2
    server.add("alpha", "1.0", ["beta"])
    server.add("beta", "1.0")
    return f"solve alpha --gpu none --index-url {server.url}"


def test_progress_is_seen_within_a_second(work, slow):
    screen = on_terminal(slow, work, entry_point=new_process)
    assert screen.status == 0, screen.text
    assert re.search(
        r"\r\x1b\[Ksolving \(\d+ s\): \d+ requests? to indexes, last "
        r"for ",
        screen.text,
    )
    assert screen.first < 2.0  # the bound is a second on a machine that has nothing else to do
    assert not any("solving" in line for line in screen.lines())


def test_ci_gets_plain_lines_and_a_pipe_none(work, slow):
    in_ci = run_process(f"{slow} --refresh", work, CI="true")
    assert re.match(r"solving \(\d+ s\).*\n", in_ci.stderr) and "\x1b" not in in_ci.stderr
    assert run_process(f"{slow} --refresh", work).stderr == ""
    assert run_process(f"{slow} --refresh -q", work, CI="1").stderr == ""
