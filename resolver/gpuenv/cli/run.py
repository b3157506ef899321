"""`gpuenv run`: start a command in an environment, with the loader variables that it needs."""

from __future__ import annotations

import os
import signal
import sys
from argparse import REMAINDER, Namespace

from .. import api
from ..errors import InputError
from ..render.run import run_json, shadow_lines
from .environment_args import active_environment
from .output import print_json
from .parser import Parser, add_common_flags

HELP = "Run a command in an environment"
DESCRIPTION = (
    "Start a command with the programs and the libraries of an environment, so that no "
    "other library shadows them. The command replaces gpuenv: its exit status and signals "
    "are its own."
)
EXAMPLES = (
    ("gpuenv run python train.py", "Run a program in the active environment"),
    ("gpuenv run --target .venv python train.py --lr 0.1", "Run it in another one"),
)
NOT_EXECUTABLE, NOT_FOUND = 126, 127  # the exit statuses of env(1) and of shells


def add_arguments(parser: Parser) -> None:
    """Add the flags of `gpuenv run`. They end at the first word that is not a flag, or at --."""
    parser.usage = "gpuenv run [OPTIONS] [--] COMMAND ..."
    parser.add_argument(
        "--target",
        metavar="DIR",
        help="The environment (default: the active one, otherwise ./.venv)",
    )
    add_common_flags(parser)
    parser.add_argument(
        "command", metavar="COMMAND ...", nargs=REMAINDER, help="The command and its arguments"
    )


def run(arguments: Namespace) -> int:
    """Replace this process by the command.

    Return an exit status only if the command cannot be started.
    """
    command = arguments.command
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        hint = "as in gpuenv run --target env python train.py"
        raise InputError("no command to run", hint=hint)
    target = arguments.target or active_environment("name one: --target DIR")
    prefix, changed, shadows = api.command_environment(target)
    if arguments.json:
        print_json(run_json(prefix, command, changed, shadows))
        return 0
    for line in shadow_lines(shadows, prefix):
        print(line, file=sys.stderr)
    sys.stderr.flush()
    env = _changed_environment(changed)
    _restore_signals()
    try:
        os.execvpe(command[0], command, env)  # noqa: S606  the user asks for this command
    except FileNotFoundError:
        print(f"gpuenv: {command[0]}: not found", file=sys.stderr)
        return NOT_FOUND
    except OSError as error:
        print(f"gpuenv: {command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_EXECUTABLE


def _changed_environment(changed: dict[str, str | None]) -> dict[str, str]:
    """Return the variables of this process with these changes; None unsets a variable."""
    env = dict(os.environ)
    for name, value in changed.items():
        if value is not None:
            env[name] = value
        else:
            env.pop(name, None)
    return env


def _restore_signals() -> None:
    """Python ignores these signals, and the command would inherit that.

    Windows has none of them.
    """
    for name in ("SIGPIPE", "SIGXFSZ"):
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, signal.SIG_DFL)
