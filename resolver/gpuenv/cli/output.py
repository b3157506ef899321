"""What commands print: lines for people, one JSON document, and progress on stderr.

Progress is one line that changes on a terminal, plain lines in CI, otherwise nothing.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import TextIO

from ..activity import current
from ..atomic_write import write_whole
from ..errors import InputError
from ..render.changes import activity_text
from ..render.text import Line, Meaning, columns, set_columns, visible, wrap
from ..serialize import to_plain

COLORS: dict[Meaning, str] = {
    "headline": "bold",
    "good": "green",
    "bad": "bold red",
    "doubt": "yellow",
}
FIRST = 0.3  # seconds after which a step is shown
LOOK_PERIOD = 0.1  # seconds between two looks at the activity
TERMINAL_PERIOD = 0.2
CI_PERIOD = 10.0
_CLEAR = "\r\x1b[K"


class _Settings:
    """How the command that runs prints."""

    color = "auto"
    quiet = False
    json = False
    progress: _Progress | None = None


def configure(arguments: Namespace) -> None:
    """Use --color, --quiet and --json for all that a command prints, and show its progress."""
    _Settings.color, _Settings.quiet = arguments.color, arguments.quiet > 0
    set_json(arguments.json)
    current.announce = _announce
    if sys.stdout.isatty():
        set_columns(min(columns(), os.get_terminal_size(sys.stdout.fileno()).columns or 80))
    in_ci = os.environ.get("CI", "") not in ("", "0", "false")
    is_shown = not _Settings.quiet and (sys.stderr.isatty() or in_ci)
    if is_shown and _Settings.progress is None:
        _Settings.progress = _Progress()
        _Settings.progress.start()


def set_json(is_on: bool) -> None:
    """Choose what stdout gets: one JSON document, or lines."""
    _Settings.json = is_on


@contextmanager
def as_steps() -> Iterator[None]:
    """Print everything as lines on stderr: this command is a step of another one."""
    before = _Settings.json
    set_json(False)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        set_json(before)


# ---- lines ---------------------------------------------------------------------------------------


def print_result(document: object, lines: Sequence[str], *, ok: bool = True) -> int:
    """Print what a command answers: the document with --json, otherwise the lines.

    Returns:
        The exit status: 0 if the answer is good, otherwise 1.
    """
    print_json(document)
    print_lines(lines)
    return 0 if ok else 1


def print_lines(lines: Sequence[str]) -> None:
    """Print lines on stdout; nothing with --json. A terminal gets colors, and lines that fit it."""
    if not _Settings.json:
        _print(lines, sys.stdout)


def print_report(lines: Sequence[str]) -> None:
    """Print what a command did; nothing with --quiet or --json."""
    if not _Settings.quiet:
        print_lines(lines)


def print_step(text: str) -> None:
    """Print a step on stdout, but with --json on stderr; nothing with --quiet."""
    if not _Settings.quiet:
        _print([text], sys.stderr if _Settings.json else sys.stdout)


def print_errors(*lines: str) -> None:
    """Print lines on stderr: of an error, or beside the output of another program."""
    if lines:
        _print(lines, sys.stderr)


def _print(blocks: Sequence[str], stream: TextIO) -> None:
    _clear_progress()
    lines: list[str] = []
    for block in blocks:
        # A text of one line keeps its type, which may be `Line`.
        lines += map(visible, block.split("\n") if "\n" in block else [block])
    terminal = stream.isatty()
    width = os.get_terminal_size(stream.fileno()).columns if terminal else 0
    if width > 0:
        lines = [piece for line in lines for piece in wrap(line, width)]
    has_color = _Settings.color == "always"
    if _Settings.color == "auto" and not os.environ.get("NO_COLOR"):
        on_terminal = terminal and os.environ.get("TERM") != "dumb"
        has_color = on_terminal or bool(os.environ.get("FORCE_COLOR"))
    colored = [isinstance(line, Line) and line.meaning in COLORS for line in lines]
    if not has_color or not any(colored):
        _write("\n".join(lines) + "\n", stream)
        return
    from rich.console import Console
    from rich.text import Text

    colored_text = StringIO()
    console = Console(file=colored_text, force_terminal=True, no_color=False, highlight=False)
    for line in lines:
        text = Text(line)
        if isinstance(line, Line):
            text.stylize(COLORS.get(line.meaning, ""), 0, line.marked)
        console.print(text, soft_wrap=True)
    _write(colored_text.getvalue(), stream)


def print_json(document: object) -> None:
    """Print one document on stdout with --json. The values in it are as `to_plain` returns them."""
    if _Settings.json:
        _clear_progress()
        _write(json.dumps(document, indent=2, default=to_plain) + "\n", sys.stdout)


def _write(text: str, stream: TextIO) -> None:
    """Write a text. The command goes on if its reader has closed the stream."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        discard(stream)


def discard(stream: TextIO) -> None:
    """Write nothing more to a stream. What is in its buffer would fail again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, stream.fileno())
    os.close(null)


def _announce(line: str) -> None:
    if not _Settings.quiet:
        print_errors(line)


def write_page(path: str, text: str) -> int:
    """Write an HTML page to a file, and print where it is. Return 0.

    Raises:
        InputError: the file cannot be written.
    """
    content = text.encode()
    try:
        write_whole(path, content)
    except OSError as error:
        message = f"{path}: cannot be written: {error.strerror}"
        raise InputError(message, hint="name another file: -o FILE") from None
    print_json({"path": path, "bytes": len(content)})
    print_report([f"wrote {path}"])
    return 0


# ---- progress ------------------------------------------------------------------------------------


class _Progress(threading.Thread):
    """Shows what runs, again and again, until the process ends."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._terminal = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._writing = threading.Lock()
        self._shown = ""  # the line that is on the terminal

    def run(self) -> None:
        """Show the activity of each step that takes some time."""
        period = TERMINAL_PERIOD if self._terminal else CI_PERIOD
        begin: float | None = None
        shown_at = 0.0
        while True:
            time.sleep(LOOK_PERIOD)
            now = time.monotonic()
            if not current.step:
                begin = None
                self.clear()
                continue
            if begin is None:
                begin, shown_at = now, now + FIRST - LOOK_PERIOD - period
            if now - shown_at >= period:
                shown_at = now
                self._show(activity_text(current, int(now - begin)))

    def _show(self, text: str) -> None:
        with self._writing:
            if not current.step or text == self._shown:
                return
            line = f"{text}\n"
            if self._terminal:
                width = os.get_terminal_size(sys.stderr.fileno()).columns
                line = f"{_CLEAR}{text[: max(1, width - 1)]}"
                self._shown = text
            sys.stderr.write(line)
            sys.stderr.flush()

    def clear(self) -> None:
        """Remove the line, so that other output begins in the first column."""
        with self._writing:
            if self._shown:
                sys.stderr.write(_CLEAR)
                sys.stderr.flush()
                self._shown = ""


def _clear_progress() -> None:
    if _Settings.progress is not None:
        _Settings.progress.clear()
