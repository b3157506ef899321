"""The argument parser: help of a fixed width, bad usage in one line, the flags of all commands."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, HelpFormatter
from typing import Any, NoReturn

from ..errors import InputError


class _Formatter(HelpFormatter):
    """A fixed width: asking the terminal for its own would import shutil at every start."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=110, max_help_position=34)


class Parser(ArgumentParser):
    """A parser that reports bad usage in one line, like every other error."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Formatter, **options)

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(InputError.exit_status)


def add_common_flags(parser: ArgumentParser) -> None:
    """Add the flags that every command has."""
    group = parser.add_argument_group("output")
    group.add_argument(
        "-v", "--verbose", action="count", default=0, help="print every detail"
    )
    group.add_argument(
        "-q", "--quiet", action="count", default=0, help="print only failures and results"
    )
    group.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="use colors (default: auto, on a terminal)",
    )
    group.add_argument(
        "--json", action="store_true", help="print one JSON document on stdout and nothing else"
    )
    group.add_argument("--debug", action="store_true", help="show the traceback of an error")


def seconds(text: str) -> float:
    """Parse the time of a flag: a positive number of seconds."""
    value = float(text)
    if not 0 < value < 1e6:
        raise ValueError
    return value
