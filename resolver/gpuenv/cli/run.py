"""`gpuenv run`: start a command or a script in an environment, with the variables that it needs."""

from __future__ import annotations

import os
import signal
from argparse import REMAINDER, Namespace
from typing import TYPE_CHECKING

from .. import api
from ..api import scripts
from ..errors import InputError
from ..model import IndexOptions
from ..render.run import run_json, shadow_lines
from .environment_args import TIMEOUT, active_environment
from .host_args import add_host_flags, read_host_flags
from .output import print_errors, print_json
from .parser import Parser, add_common_flags

if TYPE_CHECKING:
    from ..requirements.script import Script

HELP = "Run a command or a script in an environment"
DESCRIPTION = (
    "Start a command with the programs and the libraries of an environment, so that no "
    "other library shadows them. The command replaces gpuenv: its exit status and signals "
    "are its own. A Python script with inline metadata (PEP 723) gets an environment of its own, "
    "which is solved, verified and kept in the cache."
)
EXAMPLES = (
    ("gpuenv run python train.py", "Run a program in the active environment"),
    ("gpuenv run --target .venv python train.py --lr 0.1", "Run it in another one"),
    ("gpuenv run script.py", "Run a script that names its dependencies"),
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
    group = parser.add_argument_group("For a script with inline metadata")
    group.add_argument("--offline", action="store_true", help="Use no network")
    group.add_argument(
        "--refresh", action="store_true", help="Solve again, and make the environment again"
    )
    add_host_flags(parser)
    add_common_flags(parser)
    parser.add_argument(
        "command", metavar="COMMAND ...", nargs=REMAINDER, help="The command and its arguments"
    )


def run(arguments: Namespace) -> int:
    """Replace this process by the command.

    Return an exit status only if the command cannot be started.
    """
    command: list[str] = arguments.command
    if command[:1] == ["--"]:
        command = command[1:]
    if not command:
        hint = "as in gpuenv run --target env python train.py"
        raise InputError("no command to run", hint=hint)
    target = arguments.target
    script = None
    if target is None and command[0].endswith((".py", ".pyw")):
        script = scripts.read_script(command[0])
    if script is not None:
        target = _script_environment(arguments, script, command[0])
        command = ["python", *command]
    elif target is None:
        target = active_environment("name one: --target DIR")
    return _start(arguments, target, command)


def _script_environment(arguments: Namespace, script: Script, path: str) -> str:
    """Return the environment of a script. It is made if it is not there."""
    host = read_host_flags(arguments, need_gpu=True)
    folder = scripts.script_folder(script, host)
    if arguments.refresh or not scripts.is_ready(folder):
        options = IndexOptions(offline=arguments.offline, refresh=arguments.refresh)
        plan = scripts.solve_script(script, host, options, path)
        scripts.make_script_environment(
            folder,
            plan,
            python=arguments.python,
            timeout=TIMEOUT,
            progress=None if arguments.quiet else _print_progress,
        )
    return folder


def _print_progress(line: str) -> None:
    """Print a step on stderr: stdout is the script's."""
    print_errors([line])


def _start(arguments: Namespace, target: str, command: list[str]) -> int:
    prefix, changed, shadows = api.command_environment(target)
    if arguments.json:
        print_json(run_json(prefix, command, changed, shadows))
        return 0
    print_errors(shadow_lines(shadows, prefix))
    env = _changed_environment(changed)
    _restore_signals()
    try:
        os.execvpe(command[0], command, env)  # noqa: S606  the user asks for this command
    except FileNotFoundError:
        print_errors([f"gpuenv: {command[0]}: not found"])
        return NOT_FOUND
    except OSError as error:
        print_errors([f"gpuenv: {command[0]}: {error.strerror}"])
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
    """Restore the handlers of signals that Python ignores. The command would inherit them.

    Windows has none of them.
    """
    for name in ("SIGPIPE", "SIGXFSZ"):
        number = getattr(signal, name, None)
        if number is not None:
            signal.signal(number, signal.SIG_DFL)
