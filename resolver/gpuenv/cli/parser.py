"""The argument parser: help that fits the terminal, bad usage in one line, settings of the user.

A flag of the command line comes first, then the variable GPUENV_<FLAG>, then the table of the
command in the config file, then the top of that file.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from argparse import (
    PARSER,
    REMAINDER,
    SUPPRESS,
    Action,
    ArgumentParser,
    ArgumentTypeError,
    HelpFormatter,
    Namespace,
    _ArgumentGroup,
    _SubParsersAction,
)
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from platformdirs import user_config_dir

from ..atomic_write import require_place
from ..errors import InputError
from ..serialize import read_toml

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

MOST_COLUMNS = 100
FEWEST_COLUMNS = 40
# Messages of argparse, as patterns, and their replacements.
_ARGPARSE_MESSAGES = (
    (r"^the following arguments are required: (\S+)$", r"\1 is missing"),
    (r"^the following arguments are required: (.+)$", r"\1 are missing"),
    (r"^one of the arguments (\S+) (\S+) is required$", r"\1 or \2 is missing"),
    (r"^argument (.+?): invalid choice: (.+?) \(choose from (.+)\)$", r"\1: \2 is not one of \3"),
    (r"^[^-]\S*: (.+ is not one of )", r"\1"),  # a positional argument needs no name
    (r"^argument (.+?): expected one argument$", r"\1 needs a value"),
    (r"^argument (.+?): not allowed with argument (.+)$", r"\1 contradicts \2: give one of them"),
    (r"^argument ", ""),
)
Examples = Sequence[tuple[str, str]]  # (a command, what it does)
Flags = ArgumentParser | _ArgumentGroup  # what flags are added to
Values = dict[str, object]  # by the name of the argument


class Argument:
    """An argument of commands.

    Args:
        form: the argument as a usage line shows it. "NAME" is required, "[NAME]" is not; "--flag"
            has no value, "--flag NAME" has one; after "..." it may be repeated.
        text: the help of the argument.
        options: those of `add_argument` that the form does not say.
    """

    def __init__(self, form: str, text: str, **options: Any) -> None:
        words = form.split()
        self.names = [word for word in words if word.startswith("-")]
        value = " ".join(words[len(self.names) :])
        is_optional, is_repeated = value.startswith("["), "..." in value
        if is_optional:
            value = value[1:-1]
        value = value.removesuffix(" ...")
        self.options: dict[str, Any] = {"help": text}
        if value:
            self.options["metavar"] = value
        if is_optional:
            self.options["nargs"] = "*" if is_repeated else "?"
        if not self.names:
            self.options["dest"] = value.lower()
        elif is_repeated and not is_optional:
            self.options |= {"action": "append", "default": []}
        elif not value and "choices" not in options:
            self.options["action"] = "store_true"
        self.options |= options

    def add_to(self, parser: Flags) -> None:
        """Add the argument to a parser, or to a group of one."""
        parser.add_argument(*self.names, **self.options)


class Group:
    """Arguments with a title of their own; only one of them may be given if the title is "".

    `required` says that one of these must be given.
    """

    def __init__(self, title: str, *members: Argument | Group, required: bool = False) -> None:
        self.title, self.members, self.required = title, members, required

    def add_to(self, parser: Flags) -> None:
        """Add the group to a parser."""
        group: _ArgumentGroup = (
            parser.add_argument_group(self.title)
            if self.title
            else parser.add_mutually_exclusive_group(required=self.required)
        )
        for member in self.members:
            member.add_to(group)


# The flags that every command has.
COMMON = Group(
    "Output",
    Argument("-v --verbose", "Print every detail", action="count", default=0),
    Argument("-q --quiet", "Print only failures and results", action="count", default=0),
    Argument(
        "--color",
        "Use colors (default: auto, on a terminal)",
        choices=("auto", "always", "never"),
        default="auto",
    ),
    Argument("--json", "Print one JSON document on stdout and nothing else"),
    Argument("--debug", "Show the traceback of an error"),
)


class Command:
    """Base of the commands."""

    HELP: str  # one line, for the list of commands
    DESCRIPTION: str  # sentences, for the help of the command
    EXAMPLES: Examples = ()
    ARGUMENTS: Sequence[Argument | Group]

    def add_arguments(self, parser: Parser) -> None:
        """Add the arguments of the command."""
        for argument in (*self.ARGUMENTS, COMMON):
            argument.add_to(parser)

    def run(self, arguments: Namespace) -> int:
        """Run the command, or the one below it that was named; return its exit status."""
        status: int = arguments.action(arguments)
        return status


class _Formatter(HelpFormatter):
    """Help with a usage of one line: the flags are below."""

    def __init__(self, prog: str) -> None:
        columns = max(FEWEST_COLUMNS, min(MOST_COLUMNS, shutil.get_terminal_size().columns))
        super().__init__(prog, width=columns, max_help_position=30)

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[Action],
        groups: Iterable[Any],
        prefix: str | None = None,
    ) -> None:
        """Add the usage; without a given one it has [OPTIONS] and the positional arguments."""
        if usage is None:
            usage = "%(prog)s [OPTIONS]"
            forms = {"?": "[{}]", "*": "[{} ...]", "+": "{} ..."}
            for action in actions:
                if not action.option_strings:
                    form = forms.get(str(action.nargs), "{}")
                    usage += " " + form.format(action.metavar or action.dest)
        super().add_usage(usage, actions, groups, prefix or "Usage: ")

    def _split_lines(self, text: str, width: int) -> list[str]:
        """Wrap the help of an argument. Words with hyphens, such as flags, stay whole."""
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Wrap a description."""
        lines = self._split_lines(text, width - len(indent))
        return "\n".join(indent + line for line in lines)


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
        text = super().format_help()
        if self._examples:
            text += "\nExamples:\n"
        return text + "".join(f"  # {why}\n  {command}\n" for command, why in self._examples)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End the program. A reader of the help that closed its pipe is noticed before."""
        sys.stdout.flush()
        super().exit(status, message)

    def read(self, words: Sequence[str]) -> tuple[Namespace, list[str]]:
        """Return the values of an input, and the words that no argument takes.

        Requirements may stand between flags. What follows a command, such as the program of `run`,
        may not; and after "--" there are no flags.
        """
        kinds = {action.nargs for action in self._actions if not action.option_strings}
        if "--" in words or kinds & {PARSER, REMAINDER}:
            return self.parse_known_args(words)
        return self.parse_known_intermixed_args(words)

    def error(self, message: str) -> NoReturn:
        for pattern, replacement in _ARGPARSE_MESSAGES:
            message = re.sub(pattern, replacement, message)
        for action in self._actions:
            if isinstance(action, _SubParsersAction) and message == "COMMAND is missing":
                message = f"a command is missing: {', '.join(action.choices)}"
        print(f"{self.prog}: {message} (see {self.prog} --help)", file=sys.stderr)
        sys.exit(InputError.exit_status)

    def add_commands(
        self, commands: Mapping[str, Command] | None = None
    ) -> _SubParsersAction[Parser]:
        """Let this command have commands, which set `subcommand` and `action`. Return their action.

        Args:
            commands: the commands by their names.
        """
        action = self.add_subparsers(
            dest="subcommand",
            metavar="COMMAND",
            required=True,
            help="What to do",
            prog=self.prog,
            parser_class=Parser,
        )
        for name, command in (commands or {}).items():
            parser = action.add_parser(
                name,
                help=command.HELP,
                description=command.DESCRIPTION,
                examples=command.EXAMPLES,
            )
            parser.set_defaults(action=command.run)
            command.add_arguments(parser)
        return action

    def below(self, name: str) -> Parser:
        """Return the parser of a command of this command. InputError if it has no such command."""
        for action in self._actions:
            if isinstance(action, _SubParsersAction) and name in action.choices:
                below: Parser = action.choices[name]
                return below
            if not action.option_strings and name in (action.choices or ()):
                return self  # such as `cache clean`
        raise InputError(f"{self.prog} has no command {name}", hint=f"{self.prog} --help")

    def settable_flags(self) -> dict[str, Action]:
        """Return the long flags that variables and config files may set, with their actions."""
        return {
            flag: action
            for action in self.shown_actions()
            for flag in action.option_strings
            if flag.startswith("--") and flag not in ("--help", "--debug")
        }

    def shown_actions(self) -> list[Action]:
        """Return the arguments that the help shows."""
        return [action for action in self._actions if action.help != SUPPRESS]


def added_commands() -> dict[str, EntryPoint]:
    """Return the commands of other packages by name; "matrix.html" is `gpuenv matrix html`."""
    from importlib.metadata import entry_points  # slow, and the own commands do not need it

    return {entry.name: entry for entry in entry_points(group="gpuenv.commands")}


# ---- settings of the user ------------------------------------------------------------------------


def find_settings(name: str, parser: Parser, all_flags: Callable[[], set[str]]) -> Values:
    """Return the values of flags that variables and the config file give.

    Flags that have one are no longer required on the command line.

    Args:
        name: the command.
        parser: its parser.
        all_flags: returns the flags of all commands, to find misspelled settings.

    Raises:
        InputError: a value is of the wrong kind, or the config file cannot be read.
    """
    flags = parser.settable_flags()
    values: Values = {}
    path = os.environ.get("GPUENV_CONFIG_FILE")
    if path is None:
        folder = user_config_dir("gpuenv", appauthor=False, roaming=True)
        path = os.path.join(folder, "config.toml")
    document = read_toml(path) if os.path.isfile(path) else {}
    own = document.get(name)
    for table in (document, own if isinstance(own, dict) else {}):
        for key, value in table.items():
            flag = f"--{key.replace('_', '-')}"
            if isinstance(value, dict):
                continue
            if flag in flags:
                values[flags[flag].dest] = _value(flags[flag], value, f"{path}: {key}")
            elif table is own or flag not in all_flags():
                hint = "a setting is a flag without its dashes"
                raise InputError(f"{path}: {key} is no flag of gpuenv", hint=hint)
    for flag, action in flags.items():
        variable = "GPUENV_" + flag.removeprefix("--").replace("-", "_").upper()
        if variable in os.environ:
            text = os.environ[variable]
            values[action.dest] = _value(action, text, f"{variable}={text}")
    for action in flags.values():
        if action.dest in values:
            action.required = False
    return values


def _value(action: Action, value: object, place: str) -> object:
    """Return the value of a flag; InputError if it is of the wrong kind."""
    if action.nargs == 0:  # a flag without an argument
        if isinstance(value, str):
            value = value.lower() not in ("", "0", "false", "no")
        if not isinstance(value, bool):
            raise InputError(f"{place}: must be true or false")
        if action.const is None:
            return int(value)  # a count, such as --verbose
        return action.const if value else action.default
    if isinstance(action.default, list):
        texts = value.split() if isinstance(value, str) else value
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise InputError(f"{place}: must be texts")
        return texts
    if not isinstance(value, (str, int, float)) or isinstance(value, bool):
        raise InputError(f"{place}: must be a text")
    text = str(value)
    if action.choices is not None and text not in action.choices:
        raise InputError(f"{place}: must be one of {', '.join(map(str, action.choices))}")
    if not callable(action.type):
        return text
    try:
        return action.type(text)
    except ArgumentTypeError:
        raise InputError(f"{place}: is not a value of {action.option_strings[-1]}") from None


# ---- flags ---------------------------------------------------------------------------------------


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


def output_file(text: str) -> str:
    """Return the path of an output file. InputError if no file can be written there."""
    if text != "-":
        require_place(text)
    return text


def positive_count(text: str) -> int:
    """Parse a whole number above 0."""
    if not text.isdecimal() or not int(text):
        raise ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return int(text)
