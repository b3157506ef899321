"""The command line.

Each command is a module: it parses flags, calls `gpuenv.api`, and prints through `gpuenv.render`.

A command's module has HELP, `add_arguments(parser)` and `run(arguments)`, which returns the exit
status:

    0 done; 1 a check failed or a lock does not fit; 2 bad usage or input; 3 no solution; 4 the
    network, an index or an installer failed; 130 interrupted

parser, host_args, request_args and environment_args have the flags that commands share; output
prints; hook is `gpuenv verify --hook`, report is `gpuenv verify --bundle`.
"""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module
from typing import Protocol, cast

from ..errors import GpuEnvError
from ..version import __version__
from .output import clear_progress, configure, print_errors, print_json
from .parser import Parser

COMMANDS = (
    "init",
    "lock",
    "detect",
    "solve",
    "install",
    "sync",
    "verify",
    "doctor",
    "pip",
    "run",
    "explain",
    "matrix",
    "fleet",
)
INTERRUPTED = 130
INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h: a defect of gpuenv


class Command(Protocol):
    """What the module of a command has."""

    HELP: str

    def add_arguments(self, parser: Parser) -> None: ...

    def run(self, arguments: Namespace) -> int: ...


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. A traceback is shown only with --debug."""
    arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
    configure(arguments)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except GpuEnvError as error:
        if arguments.debug:
            raise
        return _report(error, json=arguments.json)
    except KeyboardInterrupt:
        clear_progress()
        print("gpuenv: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has left. Writing more, at exit too, would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if arguments.debug:
            raise
        message = f"internal error: {type(error).__name__}: {error} (--debug shows where)"
        clear_progress()
        print(f"gpuenv: {message}", file=sys.stderr)
        return INTERNAL_ERROR
    return status


def parse_arguments(argv: Sequence[str]) -> Namespace:
    """Parse the arguments. `run` of the result is the function of the command.

    `unknown` has the arguments that the command does not know, for commands that report these
    themselves. `command_line` has what comes after the first `--` of `gpuenv fleet`; argparse
    would remove a second `--` from it.
    """
    known, command_line = list(argv), list[str]()
    if known[:1] == ["fleet"] and "--" in known:
        at = known.index("--")
        known, command_line = known[:at], known[at + 1 :]
    parser = _parser(known[0] if known else "")
    arguments, unknown = parser.parse_known_args(known)
    if unknown and not arguments.reports_unknown:
        parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    arguments.unknown, arguments.command_line = unknown, command_line
    return arguments


def _parser(name: str) -> Parser:
    """Return the parser with the command of this name; with all commands if there is none."""
    parser = Parser(prog="gpuenv", description="GPU environments that are known to work.")
    parser.add_argument("--version", action="version", version=f"gpuenv {__version__}")
    parser.set_defaults(reports_unknown=False)
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for command_name in [name] if name in COMMANDS else COMMANDS:
        command = cast(Command, import_module(f".{command_name}", __name__))
        subparser = commands.add_parser(
            command_name, help=command.HELP, description=command.HELP
        )
        subparser.set_defaults(run=command.run)
        command.add_arguments(subparser)
    return parser


def _report(error: GpuEnvError, *, json: bool) -> int:
    from ..render import plans

    if json:
        print_json(plans.error_json(error))
    print_errors(plans.error_lines(error))
    return error.exit_status
