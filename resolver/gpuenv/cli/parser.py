"""argparse, as our command lines look: help of a fixed width, bad usage in one line, English everywhere."""

from __future__ import annotations

import argparse
import sys
from argparse import ArgumentParser, HelpFormatter
from typing import Any, NoReturn

from ..errors import InputError


class _Formatter(HelpFormatter):
    """Of a fixed width: asking the terminal for its own imports shutil on every start."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=110, max_help_position=34)


class Parser(ArgumentParser):
    """Bad usage is one line, as every other error is."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=_Formatter, **options)

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(InputError.exit_status)


def _as_it_is(text: str) -> str:
    """A text of argparse in English, as ours are: looking for a translation reads the locale on every start."""
    return text


argparse._ = _as_it_is  # type: ignore[attr-defined]
