"""`gpuenv run`: a command in an environment, with the loader variables that a verification of it proved."""

from __future__ import annotations

import os
import sys
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Sequence

from ..errors import InputError
from ..loader_env import active_environment, environment_folder, variables
from ..render.run import run_json, shadow_lines
from .output import print_json

NOT_EXECUTABLE, NOT_FOUND = 126, 127  # as env(1) and shells have it


def run_flags(parser: ArgumentParser) -> None:
    """Flags of `gpuenv run`. What comes after -- was cut off before: it is the command's."""
    parser.usage = "gpuenv run [--target DIR] [--json] -- COMMAND ..."
    parser.add_argument("--target", metavar="DIR", help="the environment (default: the active one, else ./.venv)")
    parser.add_argument("stray", nargs="*", help=SUPPRESS)


def cut(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """(gpuenv's own arguments, the command after --)."""
    at = list(argv).index("--") if "--" in argv else len(argv)
    return list(argv[:at]), list(argv[at + 1 :])


def run(arguments: Namespace) -> int:
    """Becomes the command: its signals and its exit status are its own. Returns only if it cannot be started."""
    command = arguments.command
    if arguments.stray or not command:
        raise InputError("no command after --", hint="as in gpuenv run --target env -- python train.py")
    target = arguments.target or active_environment(os.environ)
    if target is None:
        raise InputError("no environment is active", hint="name one: --target DIR")
    prefix = environment_folder(target)
    changed, shadows = variables(os.environ, prefix)
    if arguments.json:
        print_json(run_json(prefix, command, changed, shadows))
        return 0
    for line in shadow_lines(shadows, prefix):
        print(line, file=sys.stderr)
    sys.stderr.flush()
    env = {name: value for name, value in os.environ.items() if name not in changed}
    env |= {name: value for name, value in changed.items() if value is not None}
    _restore_signals()
    try:
        os.execvpe(command[0], command, env)  # noqa: S606  it is what the user asks for
    except FileNotFoundError:
        print(f"gpuenv: {command[0]}: not found", file=sys.stderr)
        return NOT_FOUND
    except OSError as error:
        print(f"gpuenv: {command[0]}: {error.strerror}", file=sys.stderr)
        return NOT_EXECUTABLE


def _restore_signals() -> None:
    """Python ignores SIGPIPE, and a command would inherit that."""
    import signal

    for name in ("SIGPIPE", "SIGXFSZ"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
