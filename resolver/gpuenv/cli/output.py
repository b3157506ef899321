"""What commands print: lines for people, or one JSON document."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence


def print_lines(lines: Sequence[str]) -> None:
    """Print lines: with rich on a terminal unless NO_COLOR is set, as plain text elsewhere."""
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        from rich.console import Console

        Console(soft_wrap=True).print("\n".join(lines), markup=False)
        return
    print("\n".join(lines), flush=True)


def print_json(document: object) -> None:
    """Print one document on stdout."""
    print(json.dumps(document, indent=2))


def progress_printer(arguments: Namespace) -> Callable[[str], None]:
    """Return the function that prints progress: on stdout, but with --json on stderr."""
    return _print_on_stderr if arguments.json else _print_line


def _print_line(line: str) -> None:
    print_lines([line])


def _print_on_stderr(line: str) -> None:
    print(line, file=sys.stderr)
