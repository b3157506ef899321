"""What commands print: lines for people, or one JSON document."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from typing import TextIO

from ..activity import current
from ..render.text import Line, Meaning, columns, set_columns, visible, wrap

COLORS: dict[Meaning, str] = {
    "headline": "bold",
    "good": "green",
    "bad": "bold red",
    "doubt": "yellow",
}


class _Settings:
    """How the command that runs prints."""

    color = "auto"
    quiet = False
    clear: Callable[[], None] | None = None  # removes the line of progress


def configure(arguments: Namespace) -> None:
    """Use --color and --quiet for all that a command prints, and show its progress."""
    _Settings.color, _Settings.quiet = arguments.color, arguments.quiet > 0
    current.announce = _print_on_stderr
    if sys.stdout.isatty():
        set_columns(min(columns(), os.get_terminal_size(sys.stdout.fileno()).columns or 80))
    in_ci = os.environ.get("CI", "") not in ("", "0", "false")
    if not _Settings.quiet and (sys.stderr.isatty() or in_ci):
        from . import progress

        progress.start()
        _Settings.clear = progress.clear


def clear_progress() -> None:
    """Remove the line of progress before something else is printed."""
    if _Settings.clear is not None:
        _Settings.clear()


def print_lines(lines: Sequence[str]) -> None:
    """Print lines on stdout. A terminal gets colors, and lines that fit it."""
    _print(lines, sys.stdout)


def print_report(lines: Sequence[str]) -> None:
    """Print what a command did; nothing with --quiet."""
    if not _Settings.quiet:
        print_lines(lines)


def print_errors(lines: Sequence[str]) -> None:
    """Print lines on stderr: of an error, or beside the output of another program."""
    if lines:
        _print(lines, sys.stderr)


def _print(lines: Sequence[str], stream: TextIO) -> None:
    clear_progress()
    lines = [visible(line) for text in lines for line in _single_lines(text)]
    if stream.isatty():
        width = os.get_terminal_size(stream.fileno()).columns
        if width > 0:
            lines = [piece for line in lines for piece in wrap(line, width)]
    if _has_color(stream) and any(map(_color, lines)):
        _print_colored(lines, stream)
    else:
        print("\n".join(lines), file=stream, flush=True)


def _single_lines(text: str) -> list[str]:
    """Return the lines of a text. A text of one line keeps its type, which may be `Line`."""
    return text.split("\n") if "\n" in text else [text]


def _has_color(stream: TextIO) -> bool:
    if _Settings.color != "auto":
        return _Settings.color == "always"
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (
        stream.isatty() and os.environ.get("TERM") != "dumb"
    )


def _color(line: str) -> str:
    return COLORS.get(line.meaning, "") if isinstance(line, Line) else ""


def _print_colored(lines: Iterable[str], stream: TextIO) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, force_terminal=True, no_color=False, highlight=False)
    for line in lines:
        text = Text(line)
        if isinstance(line, Line):
            text.stylize(_color(line), 0, line.marked)
        console.print(text, soft_wrap=True)
    stream.flush()


def print_json(document: object) -> None:
    """Print one document on stdout."""
    clear_progress()
    print(json.dumps(document, indent=2))


def progress_printer(arguments: Namespace) -> Callable[[str], None]:
    """Return the function that prints each step: on stdout, but with --json on stderr."""
    return _print_on_stderr if arguments.json else _print_step


def _print_step(text: str) -> None:
    print_report(text.split("\n"))


def _print_on_stderr(line: str) -> None:
    if not _Settings.quiet:
        print_errors([line])


def write_page(arguments: Namespace, text: str) -> int:
    """Write an HTML page to the file of --output, and print where it is. Return 0.

    Raises:
        InputError: the file cannot be written.
    """
    from ..atomic_write import write_whole
    from ..errors import InputError

    content = text.encode()
    try:
        write_whole(arguments.output, content)
    except OSError as error:
        message = f"{arguments.output}: cannot be written: {error.strerror}"
        raise InputError(message, hint="name another file: -o FILE") from None
    if arguments.json:
        print_json({"path": arguments.output, "bytes": len(content)})
    else:
        print_report([f"wrote {arguments.output}"])
    return 0
