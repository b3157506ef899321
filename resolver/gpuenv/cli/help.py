"""`gpuenv help`: the help of the program, or of a command."""

from __future__ import annotations

from argparse import Namespace

from ..errors import InputError
from .output import print_json, print_lines
from .parser import Parser, add_common_flags

HELP = "Print the help of a command"
DESCRIPTION = "Print the commands, or the arguments and examples of one command."
EXAMPLES = (("gpuenv help solve", "Print the help of a command"),)


def add_arguments(parser: Parser) -> None:
    """Add the arguments of `gpuenv help`."""
    parser.add_argument("command", metavar="COMMAND", nargs="?", help="The command")
    add_common_flags(parser)


def run(arguments: Namespace) -> int:
    """Print the help."""
    from . import all_commands, command_parser, load_command, suggestion

    name, known = arguments.command, all_commands()
    if name is not None and name not in known:
        hint = "gpuenv help lists the commands"
        raise InputError(f"there is no command {name}{suggestion(name, known)}", hint=hint)
    if arguments.json:
        names = known if name is None else [name]
        print_json({command: load_command(command).HELP for command in names})
        return 0
    if name is not None:
        print_lines(command_parser(name).format_help().rstrip().split("\n"))
        return 0
    print_lines(program_lines())
    return 0


def program_lines() -> list[str]:
    """Return the help of the program: its commands, each in a line."""
    from . import PROGRAM, command_groups, load_command

    lines = [PROGRAM, "", "Usage: gpuenv COMMAND [OPTIONS]"]
    for group, names in command_groups().items():
        lines += ["", f"{group}:"]
        lines += [f"  {command:<12}{load_command(command).HELP}" for command in names]
    lines += ["", "Options:", "  -h, --help     Print this help"]
    lines += ["  -V, --version  Print the version"]
    lines += ["", "Type `gpuenv help COMMAND` for the options and examples of a command."]
    return lines
