"""The command line.

A command is a class (`parser.Command`): a table of its arguments, and `run(arguments)`, which calls
`gpuenv.api`, prints through `gpuenv.render`, and returns the exit status:

    0 done; 1 a check failed or a lock does not fit; 2 bad usage or input; 3 no solution; 4 the
    network, an index, an installer or the operating system failed; 130 interrupted

`flags` has the arguments that commands share, `requests` reads the host and the request that they
describe, `state` finds the environment and the lock, `output` prints.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from importlib import import_module
from typing import cast

from ..errors import GpuEnvError, InputError, did_you_mean
from ..render import plans
from ..version import __version__
from .output import configure, discard, print_errors, print_json, set_json
from .parser import Command, Parser, added_commands, find_settings

PROGRAM = "gpuenv: GPU environments that are known to work"
SYSTEM_FAILURE = 4
INTERRUPTED = 130
INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h: a defect of gpuenv
# What other tools call what gpuenv does.
OF_OTHER_TOOLS = {
    "uninstall": "remove NAME",
    "update": "lock --upgrade",
    "upgrade": "lock --upgrade",
    "freeze": "list",
    "compile": "solve",
    "resolve": "solve",
    "create": "install",
    "check": "verify",
    "info": "detect",
    "shell": "run",
    "activate": "run",
    "exec": "run",
    "python": "run python",
    "show": "tree",
    "search": "matrix list",
    "venv": "init",
    "new": "init",
}
# Flags of other tools, and those of gpuenv that do the same.
FLAGS_OF_OTHER_TOOLS = {
    "-e": "-r FILE, with -e FOLDER in it",
    "--editable": "-r FILE, with -e FOLDER in it",
    "-f": "--find-links",
    "-i": "--index-url",
    "--default-index": "--index-url",
    "--index": "--extra-index-url",
    "-n": "--target",
    "-p": "--python",
    "--prefix": "--target",
    "-P": "--upgrade",
    "--upgrade-package": "--upgrade",
    "--all-extras": "--extra",
    "--all-groups": "--group",
    "--dev": "--group",
    "--active": "--target",
    "--check": "--dry-run",
    "--directory": "--project",
    "--no-progress": "--quiet",
}
OF_OTHERS = "Projects and clusters"  # the group of the commands of other packages


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. A traceback is shown only with --debug."""
    if argv is None and sys.getfilesystemencoding() != "utf-8":
        # Paths and files of other programs are UTF-8, whatever the locale is.
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606
    try:
        return _run(sys.argv[1:] if argv is None else argv)
    except BrokenPipeError:  # the reader of stdout has closed it
        discard(sys.stdout)
        return 0


def _run(argv: Sequence[str]) -> int:
    """Run a command, and print what went wrong. BrokenPipeError if nobody reads the output."""
    # until they are parsed
    arguments = Namespace(json="--json" in argv, verbose=0, debug="--debug" in argv)
    set_json(arguments.json)
    try:
        arguments = parse_arguments(argv)
        configure(arguments)
        status: int = arguments.run(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        lines, status = ["gpuenv: interrupted"], INTERRUPTED
    except Exception as error:
        if arguments.debug:
            raise
        name, status = type(error).__name__, INTERNAL_ERROR
        lines = [f"gpuenv: internal error: {name}: {error} (--debug shows where)"]
        if isinstance(error, GpuEnvError):
            lines = plans.error_lines(error, verbose=bool(arguments.verbose))
            status = error.exit_status
            print_json(plans.error_json(error))
        elif isinstance(error, OSError):
            place = error.filename or "the output or a file"
            lines = [f"gpuenv: {place} cannot be used: {error.strerror or error}"]
            status = SYSTEM_FAILURE
        elif isinstance(error, MemoryError):
            lines, status = ["gpuenv: there is not enough memory"], SYSTEM_FAILURE
        elif isinstance(error, RecursionError):
            lines = ["gpuenv: a file or an answer of an index is nested too deeply"]
            status = InputError.exit_status
    with suppress(OSError):
        print_errors(*lines)
    return status


def parse_arguments(argv: Sequence[str]) -> Namespace:
    """Parse the arguments. `run` of the result is the function of the command.

    `unknown` has the arguments that the command does not know, for commands that report these
    themselves. `command_line` has what comes after the first `--` of `gpuenv fleet`; argparse
    would remove a second `--` from it.
    """
    name, *words = argv or [""]
    command_line: list[str] = []
    if name == "fleet" and "--" in words:
        at = words.index("--")
        words, command_line = words[:at], words[at + 1 :]
    if name in ("-h", "--help"):
        name, words = "help", []
    if name in ("-V", "--version"):
        print(f"gpuenv {__version__}", flush=True)
        sys.exit(0)
    if not name:
        name = "status"
    _require_command(name, words)
    parser = command_parser(name)
    settings = find_settings(name, parser, _all_flags)
    arguments, unknown = parser.read(words)
    for key, value in settings.items():
        if getattr(arguments, key) == parser.get_default(key):
            setattr(arguments, key, value)
    if unknown and not arguments.reports_unknown:
        _refuse_unknown(parser, unknown)
    arguments.unknown, arguments.command_line = unknown, command_line
    arguments.settings = settings
    return arguments


def _require_command(name: str, words: Sequence[str]) -> None:
    """End the process with one line if there is no such command, or none of `gpuenv pip`."""
    message = ""
    if name not in COMMANDS and name not in added_commands():
        message = f"there is no command {name}{command_suggestion(name)}"
        if name.startswith("-"):
            message = f"{name}: a flag stands after its command"
        message += f" (see {program_name()} --help)"
    other = words[0] if name == "pip" and words else "install"
    same = other if other in COMMANDS else OF_OTHER_TOOLS.get(other)
    if other != "install" and same:
        message = f"{other} is no command of gpuenv pip, which installs only; use gpuenv {same}"
    if message:
        print(f"gpuenv: {message}", file=sys.stderr)
        sys.exit(InputError.exit_status)


def _refuse_unknown(parser: Parser, unknown: Sequence[str]) -> None:
    """End the process with one line about words that no argument takes: what may be meant."""
    flags = [word.partition("=")[0] for word in unknown if word.startswith("-")]
    if not flags:
        parser.error(f"{unknown[0]}: is one argument too many")
    shown = [flag for action in parser.shown_actions() for flag in action.option_strings]
    known = {flag.lstrip("-"): flag for flag in shown}
    close = get_close_matches(flags[0].lstrip("-"), known, n=2, cutoff=0.7)
    same = FLAGS_OF_OTHER_TOOLS.get(flags[0], "")
    meant = f"; use {same}" if same.partition(" ")[0] in shown else ""
    if close and not meant:
        meant = f"; did you mean {' or '.join(known[name] for name in close)}?"
    parser.error(f"there is no flag {flags[0]}{meant}")


def load_command(name: str) -> Command:
    """Return a command, of gpuenv or of another package."""
    if name not in COMMANDS:
        return cast(Command, added_commands()[name].load())
    module, command = COMMANDS[name].split(":")
    return cast(Command, getattr(import_module(f"{__name__}.{module}"), command)())


def command_groups() -> dict[str, tuple[str, ...]]:
    """Return the commands by what they are about, with those of other packages."""
    groups = {group: tuple(commands) for group, commands in GROUPS.items()}
    groups[OF_OTHERS] += tuple(sorted(name for name in added_commands() if "." not in name))
    return groups


def all_commands() -> list[str]:
    """Return the names of the commands, in the order of the help."""
    return [name for names in command_groups().values() for name in names]


def command_parser(name: str, *below: str) -> Parser:
    """Return the parser of a command, or of a command below it: `matrix`, `show`."""
    command = load_command(name)
    parser = Parser(
        prog=f"{program_name()} {name}", description=command.DESCRIPTION, examples=command.EXAMPLES
    )
    parser.set_defaults(run=command.run, reports_unknown=False)
    command.add_arguments(parser)
    for word in below:
        parser = parser.below(word)
    return parser


def program_name() -> str:
    """Return how the user calls gpuenv: the conda plugin sets "conda gpuenv"."""
    return os.environ.get("GPUENV_PROGRAM", "gpuenv")


def _all_flags() -> set[str]:
    return {flag for name in all_commands() for flag in command_parser(name).settable_flags()}


def suggestion(word: str, known: Sequence[str]) -> str:
    """Return "; did you mean NAME?" with the names that are close to a word; "" if none is."""
    meant = did_you_mean(word, known, 2)
    return f"; {meant}" if meant else ""


def command_suggestion(word: str) -> str:
    """Return "; use gpuenv COMMAND" or "; did you mean NAME?" for an unknown command."""
    same = OF_OTHER_TOOLS.get(word)
    return f"; use gpuenv {same}" if same else suggestion(word, all_commands())


def program_lines() -> list[str]:
    """Return the help of the program: its commands, each in a line."""
    lines = [PROGRAM, "", f"Usage: {program_name()} COMMAND [OPTIONS]"]
    for group, names in command_groups().items():
        lines += ["", f"{group}:"]
        lines += [f"  {command:<12}{load_command(command).HELP}" for command in names]
    lines += ["", "Options:", "  -h, --help     Print this help"]
    lines += ["  -V, --version  Print the version"]
    lines += ["", "Type `gpuenv help COMMAND` for the options and examples of a command."]
    return lines


# The own commands, by what they are about: each with its module and its class. Only what the
# command needs is imported.
GROUPS = {
    "Environments": {
        "solve": "solving:Solve",
        "install": "environments:Install",
        "sync": "environments:Sync",
        "download": "environments:Download",
        "rollback": "environments:Rollback",
        "verify": "verify:Verify",
        "run": "run:Run",
        "pip": "pip:Pip",
    },
    "Projects and clusters": {
        "status": "state:Status",
        "init": "projects:Init",
        "add": "projects:Add",
        "remove": "projects:Remove",
        "lock": "projects:LockProfiles",
    },
    "Other tools": {"env": "solving:Env", "export": "locks:Export"},
    "Locks": {
        "list": "locks:List",
        "tree": "locks:ShowTree",
        "why": "locks:Why",
        "outdated": "locks:Outdated",
    },
    "Answers": {
        "doctor": "doctor:Doctor",
        "explain": "solving:Explain",
        "detect": "solving:Detect",
        "matrix": "matrix:Matrix",
    },
    "This program": {
        "mcp": "mcp:Mcp",
        "help": "program:Help",
        "completion": "program:Completion",
        "cache": "program:Cache",
    },
}
COMMANDS = {name: place for group in GROUPS.values() for name, place in group.items()}
