"""What commands print: lines for people, or one JSON document."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Any


def print_lines(lines: Sequence[str]) -> None:
    """With rich on a terminal, unless NO_COLOR is set; plain elsewhere."""
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        from rich.console import Console

        Console(soft_wrap=True).print("\n".join(lines), markup=False)
        return
    print("\n".join(lines), flush=True)


def print_json(document: Any) -> None:
    """One document on stdout."""
    import json

    print(json.dumps(document, indent=2))


def _say(line: str) -> None:
    print_lines([line])


def note(arguments: Namespace) -> Callable[[str], None]:
    """Where progress goes: under --json not to stdout."""
    return (lambda line: print(line, file=sys.stderr)) if arguments.json else _say
