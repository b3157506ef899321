"""The command line.

A command parses flags, calls `gpuenv.api`, and prints through `gpuenv.render`. It implements
`Command`: each is a module, or a class where a module has several. Its `run(arguments)` returns the
exit status:

    0 done; 1 a check failed or a lock does not fit; 2 bad usage or input; 3 no solution; 4 the
    network, an index, an installer or the operating system failed; 130 interrupted

`flags` has the flags that commands share, `requests` reads the host and the request that they
describe, `output` prints. `hook` is `gpuenv verify --hook`, `bundle` is `gpuenv verify --bundle`.
"""

from __future__ import annotations

import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import cast

from .. import api
from ..errors import GpuEnvError, InputError
from ..index.cache import cache_folder
from ..render import plans
from ..render.values import quantity_text, size
from ..version import __version__
from . import doctor, matrix, pip, run, verify
from .environments import Download, Install, Rollback, Sync
from .flags import add_common_flags
from .locks import Export, Outdated, ShowTree, Why
from .output import configure, print_errors, print_json, print_lines, print_report
from .parser import Command, Parser, added_commands, apply_settings, find_settings
from .projects import Init, LockProfiles
from .solving import Detect, Env, Explain, Solve

PROGRAM = "gpuenv: GPU environments that are known to work"
SYSTEM_FAILURE = 4
INTERRUPTED = 130
INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h: a defect of gpuenv
OF_OTHERS = "Projects and clusters"  # the group of the commands of other packages


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status. A traceback is shown only with --debug."""
    argv = sys.argv[1:] if argv is None else argv
    try:
        return _run(argv)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of stdout has closed it
        # Python writes the rest of the output at exit, which would fail again.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        return 0
    except Exception as error:
        if "--debug" in argv:
            raise
        return _fail(*_outside_failure(error))


def _run(argv: Sequence[str]) -> int:
    """Run one command, and report the errors that the stages raise."""
    try:
        arguments = parse_arguments(argv)
    except SystemExit:  # --help and --version have printed
        sys.stdout.flush()
        raise
    except InputError as error:  # in a variable or in the config file
        return _report(error, json=False)
    configure(arguments)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except GpuEnvError as error:
        if arguments.debug:
            raise
        return _report(error, json=arguments.json)
    return status


def _outside_failure(error: Exception) -> tuple[str, int]:
    """Return (message, exit status) for an exception that is not a GpuEnvError."""
    if isinstance(error, OSError):
        place = error.filename or "the output or a file"
        return f"{place} cannot be used: {error.strerror or error}", SYSTEM_FAILURE
    if isinstance(error, MemoryError):
        return "there is not enough memory", SYSTEM_FAILURE
    if isinstance(error, RecursionError):
        return "a file or an answer of an index is nested too deeply", InputError.exit_status
    name = type(error).__name__
    return f"internal error: {name}: {error} (--debug shows where)", INTERNAL_ERROR


def _fail(message: str, status: int) -> int:
    """Print a message on stderr, if possible. Return the exit status."""
    with suppress(OSError):
        print_errors([f"gpuenv: {message}"])
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
        print(f"gpuenv {__version__}")
        sys.exit(0)
    if not name:
        print_errors(program_lines())
        sys.exit(InputError.exit_status)
    if name not in COMMANDS and name not in added_commands():
        message = f"there is no command {name}{suggestion(name, all_commands())}"
        if name.startswith("-"):
            message = f"{name}: a flag stands after its command"
        print(f"gpuenv: {message} (see gpuenv --help)", file=sys.stderr)
        sys.exit(InputError.exit_status)
    parser = command_parser(name)
    settings = find_settings(name, parser, _all_flags)
    arguments, unknown = parser.parse_known_args(words)
    apply_settings(arguments, parser, settings)
    if unknown and not arguments.reports_unknown:
        flags = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        if not flags:
            parser.error(f"{unknown[0]}: is one argument too many")
        parser.error(f"there is no flag {flags[0]}{suggestion(flags[0], parser.flags())}")
    arguments.unknown, arguments.command_line = unknown, command_line
    return arguments


def load_command(name: str) -> Command:
    """Return a command, of gpuenv or of another package."""
    return COMMANDS[name] if name in COMMANDS else cast(Command, added_commands()[name].load())


def command_groups() -> dict[str, tuple[str, ...]]:
    """Return the commands by what they are about, with those of other packages."""
    groups = {group: tuple(commands) for group, commands in GROUPS.items()}
    groups[OF_OTHERS] += tuple(sorted(name for name in added_commands() if "." not in name))
    return groups


def all_commands() -> list[str]:
    """Return the names of the commands, in the order of the help."""
    return [name for names in command_groups().values() for name in names]


def command_parser(name: str) -> Parser:
    """Return the parser of a command."""
    command = load_command(name)
    parser = Parser(
        prog=f"gpuenv {name}", description=command.DESCRIPTION, examples=command.EXAMPLES
    )
    parser.set_defaults(run=command.run, reports_unknown=False)
    command.add_arguments(parser)
    return parser


def _all_flags() -> set[str]:
    flags: set[str] = set()
    for name in all_commands():
        flags.update(command_parser(name).settable_flags())
    return flags


def suggestion(word: str, known: Sequence[str]) -> str:
    """Return "; did you mean NAME?" with the names that are close to a word; "" if none is."""
    close = get_close_matches(word, known, n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(close)}?" if close else ""


def _report(error: GpuEnvError, *, json: bool) -> int:
    if json:
        print_json(plans.error_json(error))
        sys.stdout.flush()
    with suppress(OSError):
        print_errors(plans.error_lines(error))
    return error.exit_status


# ---- commands about this program -----------------------------------------------------------------


class Help(Command):
    """`gpuenv help`: the help of the program, or of a command."""

    HELP = "Print the help of a command"
    DESCRIPTION = "Print the commands, or the arguments and examples of one command."
    EXAMPLES = (("gpuenv help solve", "Print the help of a command"),)

    def add_arguments(self, parser: Parser) -> None:
        """Add the arguments of `gpuenv help`."""
        parser.add_argument("command", metavar="COMMAND", nargs="?", help="The command")
        add_common_flags(parser)

    def run(self, arguments: Namespace) -> int:
        """Print the help."""
        name, known = arguments.command, all_commands()
        if name is not None and name not in known:
            hint = "gpuenv help lists the commands"
            raise InputError(f"there is no command {name}{suggestion(name, known)}", hint=hint)
        if arguments.json:
            names = known if name is None else [name]
            print_json({command: load_command(command).HELP for command in names})
        elif name is None:
            print_lines(program_lines())
        else:
            print_lines(command_parser(name).format_help().rstrip().split("\n"))
        return 0


def program_lines() -> list[str]:
    """Return the help of the program: its commands, each in a line."""
    lines = [PROGRAM, "", "Usage: gpuenv COMMAND [OPTIONS]"]
    for group, names in command_groups().items():
        lines += ["", f"{group}:"]
        lines += [f"  {command:<12}{load_command(command).HELP}" for command in names]
    lines += ["", "Options:", "  -h, --help     Print this help"]
    lines += ["  -V, --version  Print the version"]
    lines += ["", "Type `gpuenv help COMMAND` for the options and examples of a command."]
    return lines


class Completion(Command):
    """`gpuenv completion`: scripts that complete commands, flags and their values in a shell."""

    HELP = "Print a script that completes commands and flags in a shell"
    DESCRIPTION = "Print a completion script. The shell reads it when it starts."
    EXAMPLES = (
        ("gpuenv completion bash > ~/.local/share/bash-completion/completions/gpuenv", "For bash"),
        ("gpuenv completion zsh > ~/.zfunc/_gpuenv", "For zsh, with ~/.zfunc in fpath"),
        ("gpuenv completion fish > ~/.config/fish/completions/gpuenv.fish", "For fish"),
    )

    def add_arguments(self, parser: Parser) -> None:
        """Add the arguments of `gpuenv completion`."""
        parser.add_argument(
            "shell", metavar="SHELL", choices=("bash", "zsh", "fish"), help="The shell"
        )
        add_common_flags(parser)

    def run(self, arguments: Namespace) -> int:
        """Print the script; with --json the flags of each command, with the values of each."""
        import shtab  # no other command needs it

        program = Parser(prog="gpuenv", description=PROGRAM)
        commands = program.add_commands()
        frameworks = api.compatibility_data().frameworks()
        document: dict[str, dict[str, tuple[str, ...]]] = {}
        for name in all_commands():
            command = load_command(name)
            parser = commands.add_parser(name, help=command.HELP)
            command.add_arguments(parser)
            known = document[name] = {}
            for action in parser.shown_actions():
                if action.dest == "framework":
                    action.choices = frameworks
                values = tuple(map(str, action.choices or ()))
                if not values and action.nargs != 0:
                    vars(action)["complete"] = shtab.FILE
                known.update(dict.fromkeys(action.option_strings, values))
                if not action.option_strings:  # the values of a positional argument are words
                    known.update(dict.fromkeys(values, ()))
        if arguments.json:
            print_json(document)
        else:
            print(shtab.complete(program, arguments.shell))
        return 0


class Cache(Command):
    """`gpuenv cache`: where the cache is, how large it is, and an end to it."""

    HELP = "Show or empty the cache"
    DESCRIPTION = (
        "The cache has pages and metadata of indexes, and the environments of scripts. "
        "GPUENV_CACHE_DIR names another folder."
    )
    EXAMPLES = (
        ("gpuenv cache size", "Show how large the cache is"),
        ("gpuenv cache clean", "Remove everything in it"),
    )

    def add_arguments(self, parser: Parser) -> None:
        """Add the arguments of `gpuenv cache`."""
        parser.add_argument(
            "action", metavar="dir|size|clean", choices=("dir", "size", "clean"), help="What to do"
        )
        add_common_flags(parser)

    def run(self, arguments: Namespace) -> int:
        """Print the folder or its size, or remove its content."""
        folder = cache_folder()  # it need not exist
        files = count = 0
        for place, _, names in os.walk(folder):
            for name in names:
                with suppress(OSError):  # another process removed it
                    count += os.lstat(os.path.join(place, name)).st_size
                    files += 1
        if arguments.action == "clean" and os.path.isdir(folder):
            for name in os.listdir(folder):
                # Another file in the folder, which gpuenv has not written, stays.
                if name in ("builds", "scripts") or (name[:1] == "v" and name[1:].isdecimal()):
                    try:
                        shutil.rmtree(os.path.join(folder, name))
                    except OSError as error:
                        message = f"{error.filename}: cannot be removed: {error.strerror}"
                        raise InputError(message) from None
        if arguments.json:
            print_json({"folder": folder, "files": files, "bytes": count})
        elif arguments.action == "dir":
            print_lines([folder])
        elif arguments.action == "size":
            print_lines([f"{folder}: {quantity_text(files, 'file')}, {size(count)}"])
        else:
            print_report([f"removed {quantity_text(files, 'file')}, {size(count)}, from {folder}"])
        return 0


# The own commands, by what they are about.
GROUPS: dict[str, dict[str, Command]] = {
    "Environments": {
        "solve": Solve(),
        "install": Install(),
        "sync": Sync(),
        "download": Download(),
        "rollback": Rollback(),
        "verify": verify,
        "run": run,
        "pip": pip,
    },
    "Projects and clusters": {"init": Init(), "lock": LockProfiles()},
    "Other tools": {"env": Env(), "export": Export()},
    "Locks": {"tree": ShowTree(), "why": Why(), "outdated": Outdated()},
    "Answers": {"doctor": doctor, "explain": Explain(), "detect": Detect(), "matrix": matrix},
    "This program": {"help": Help(), "completion": Completion(), "cache": Cache()},
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
