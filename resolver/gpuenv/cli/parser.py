"""The argument parser: help that fits the terminal, bad usage in one line, the common flags."""

from __future__ import annotations

import os
import re
import sys
from argparse import (
    SUPPRESS,
    Action,
    ArgumentParser,
    ArgumentTypeError,
    HelpFormatter,
    _SubParsersAction,
)
from collections.abc import Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn

from ..errors import InputError

MOST_COLUMNS = 100
FEWEST_COLUMNS = 60
COLUMNS_WITHOUT_TERMINAL = 80
# Messages of argparse, as patterns that re compiles at the first error, and their replacements.
_ARGPARSE_MESSAGES = (
    (r"^the following arguments are required: (\S+)$", r"\1 is missing"),
    (r"^the following arguments are required: (.+)$", r"\1 are missing"),
    (r"^one of the arguments (\S+) (\S+) is required$", r"\1 or \2 is missing"),
    (r"^argument (.+?): invalid choice: (.+?) \(choose from (.+)\)$", r"\1: \2 is not one of \3"),
    (r"^[^-]\S*: (.+ is not one of )", r"\1"),  # a positional argument needs no name
    (r"^argument (.+?): expected one argument$", r"\1 needs a value"),
    (r"^argument ", ""),
)
Examples = Sequence[tuple[str, str]]  # (a command, what it does)


class _Formatter(HelpFormatter):
    """Help with a usage of one line: the flags are below."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=help_columns(), max_help_position=30)

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[Action],
        groups: Iterable[Any],
        prefix: str | None = None,
    ) -> None:
        """Add the usage; without a given one it has [OPTIONS] and the positional arguments."""
        if usage is None:
            names = [_usage_of(action) for action in actions if not action.option_strings]
            usage = " ".join(["%(prog)s", "[OPTIONS]", *names])
        super().add_usage(usage, actions, groups, prefix or "Usage: ")

    def _split_lines(self, text: str, width: int) -> list[str]:
        """Wrap the help of an argument. Words with hyphens, such as flags, stay whole."""
        return _wrapped(text, width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wrap a description."""
        return "\n".join(indent + line for line in _wrapped(text, width - len(indent)))


def _wrapped(text: str, width: int) -> list[str]:
    import textwrap  # only help texts need it

    return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


def _usage_of(action: Action) -> str:
    """Return how the usage names a positional argument."""
    name = str(action.metavar or action.dest)
    if action.nargs == "?":
        return f"[{name}]"
    if action.nargs == "*":
        return f"[{name} ...]"
    if action.nargs == "+":
        return f"{name} ..."
    return name


def help_columns() -> int:
    """Return the width of help texts. (HelpFormatter would import shutil at every start.)"""
    text = os.environ.get("COLUMNS", "")
    columns = int(text) if text.isdecimal() else 0
    if not columns:
        try:
            columns = os.get_terminal_size(sys.stdout.fileno()).columns
        except (OSError, ValueError, AttributeError):
            columns = COLUMNS_WITHOUT_TERMINAL
    return max(FEWEST_COLUMNS, min(MOST_COLUMNS, columns))


class Parser(ArgumentParser):
    """A parser that reports bad usage in one line, like every other error.

    Args:
        examples: commands for the end of the help.
        options: those of ArgumentParser.
    """

    def __init__(self, *, examples: Examples = (), **options: Any) -> None:
        super().__init__(formatter_class=_Formatter, add_help=False, **options)
        self.color = False  # CPython 3.14 colors help texts
        self._examples = examples
        self._positionals.title = "Arguments"
        self._optionals.title = "Options"
        self.add_argument("-h", "--help", action="help", help="Print this help")

    def format_help(self) -> str:
        """Return the help, with the examples at its end."""
        return super().format_help() + _examples_text(self._examples)

    def error(self, message: str) -> NoReturn:
        text = _plain_message(message)
        for action in self._actions:
            if isinstance(action, _SubParsersAction) and text == "COMMAND is missing":
                text = f"a command is missing: {', '.join(action.choices)}"
        print(f"{self.prog}: {text} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(InputError.exit_status)

    def add_commands(self) -> _SubParsersAction[Parser]:
        """Let this command have commands, and return their action. It sets `subcommand`."""
        return self.add_subparsers(
            dest="subcommand",
            metavar="COMMAND",
            required=True,
            help="What to do",
            prog=self.prog,
            parser_class=Parser,
        )

    def settable_flags(self, without: Sequence[str] = ()) -> dict[str, Action]:
        """Return the long flags that variables and config files may set, with their actions."""
        actions = {}
        for action in self._actions:
            for flag in action.option_strings:
                if flag.startswith("--") and flag not in without and action.help != SUPPRESS:
                    actions[flag] = action
        return actions

    def shown_actions(self) -> list[Action]:
        """Return the arguments that the help shows."""
        return [action for action in self._actions if action.help != SUPPRESS]

    def flags(self) -> list[str]:
        """Return the flags that the help shows."""
        return [flag for action in self.shown_actions() for flag in action.option_strings]


def _plain_message(message: str) -> str:
    """Reword a message of argparse in the style of the other messages."""
    for pattern, replacement in _ARGPARSE_MESSAGES:
        message = re.sub(pattern, replacement, message)
    return message


def _examples_text(examples: Examples) -> str:
    if not examples:
        return ""
    lines = ["", "Examples:"]
    for command, purpose in examples:
        lines += [f"  # {purpose}", f"  {command}"]
    return "\n".join([*lines, ""])


def added_commands() -> dict[str, EntryPoint]:
    """Return the commands of other packages by name; "matrix.html" is `gpuenv matrix html`."""
    return {entry.name: entry for entry in entry_points(group="gpuenv.commands")}


def add_common_flags(parser: ArgumentParser) -> None:
    """Add the flags that every command has."""
    group = parser.add_argument_group("Output")
    group.add_argument("-v", "--verbose", action="count", default=0, help="Print every detail")
    group.add_argument(
        "-q", "--quiet", action="count", default=0, help="Print only failures and results"
    )
    group.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="Use colors (default: auto, on a terminal)",
    )
    group.add_argument(
        "--json", action="store_true", help="Print one JSON document on stdout and nothing else"
    )
    group.add_argument("--debug", action="store_true", help="Show the traceback of an error")


def seconds(text: str) -> float:
    """Parse the time of a flag: a positive number of seconds."""
    value = waiting_seconds(text)
    if not value:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def waiting_seconds(text: str) -> float:
    """Parse the waiting time of a flag: a number of seconds. 0 means that it does not wait."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1e6:
        raise ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def positive_count(text: str) -> int:
    """Parse a whole number above 0."""
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
