"""`gpuenv run`: start a command or a script in an environment, with the variables that it needs."""

from __future__ import annotations

import os
import signal
from argparse import REMAINDER, Namespace

from msgspec import to_builtins

from .. import api, loader_env
from ..errors import InputError, NotVerifiedError
from ..index.cache import cache_folder
from ..model import Check, IndexOptions, Request
from ..prefix import environment_folder, is_venv
from ..render.changes import shadow_lines
from ..requirements.pyproject import Script, read_script
from ..requirements.target import TargetEnvironment
from ..serialize import canonical_json, text_digest, to_plain
from .flags import EXISTING_TARGET, HOST, OFFLINE, TIMEOUT
from .output import print_errors, print_json
from .parser import Argument, Command, Group, Parser
from .requests import read_host
from .state import UP_TO_DATE, current_environment

NOT_EXECUTABLE, NOT_FOUND = 126, 127  # the exit statuses of env(1) and of shells


class Run(Command):
    """`gpuenv run`: replace this process by a command in an environment."""

    HELP = "Run a command or a script in an environment"
    DESCRIPTION = (
        "Start a command with the programs and the libraries of an environment, so that no "
        "other library shadows them. The command replaces gpuenv: its exit status and signals "
        "are its own. A Python script with inline metadata (PEP 723) gets an environment of its "
        "own, which is solved, verified and kept in the cache."
    )
    EXAMPLES = (
        ("gpuenv run python train.py", "Run a program in the active environment"),
        ("gpuenv run --target .venv python train.py --lr 0.1", "Run it in another one"),
        ("gpuenv run script.py", "Run a script that names its dependencies"),
    )
    ARGUMENTS = (
        EXISTING_TARGET,
        UP_TO_DATE,
        Group(
            "",
            OFFLINE,
            Argument(
                "--refresh",
                "For a script with inline metadata: solve again, and make the environment again",
            ),
        ),
        HOST,
        # The flags end at the first word that is not a flag, or at --.
        Argument(
            "COMMAND ...",
            "The command and its arguments",
            dest="command",
            metavar="COMMAND ...",
            nargs=REMAINDER,
        ),
    )

    def add_arguments(self, parser: Parser) -> None:
        """Add the arguments, with a usage that shows where the command begins."""
        super().add_arguments(parser)
        parser.usage = "gpuenv run [OPTIONS] [--] COMMAND ..."

    def run(self, arguments: Namespace) -> int:
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
            script = read_script(command[0])
        if script is not None:
            target = _script_environment(arguments, script, command[0])
            command = ["python", *command]
        elif target is None:
            target = current_environment(arguments)
        prefix = environment_folder(target)
        changed, shadows = loader_env.variables(os.environ, prefix)
        values = {name: value for name, value in changed.items() if value is not None}
        unset = [name for name in changed if name not in values]
        if arguments.json:
            document = {"target": prefix, "command": command, "set": values, "unset": unset}
            print_json({**document, "shadows": to_builtins(shadows)})
            return 0
        print_errors(*shadow_lines(shadows, prefix))
        env = {**os.environ, **values}
        for name in unset:
            env.pop(name, None)
        # Restore the handlers of signals that Python ignores. The command would inherit them.
        # Windows has none of them.
        for name in ("SIGPIPE", "SIGXFSZ"):
            number = getattr(signal, name, None)
            if number is not None:
                signal.signal(number, signal.SIG_DFL)
        try:
            os.execvpe(command[0], command, env)  # noqa: S606  the user asks for this command
        except FileNotFoundError:
            print_errors(f"gpuenv: {command[0]}: not found")
            return NOT_FOUND
        except OSError as error:
            print_errors(f"gpuenv: {command[0]}: {error.strerror}")
            return NOT_EXECUTABLE


def _script_environment(arguments: Namespace, script: Script, path: str) -> str:
    """Return the environment of a script. It is solved, verified and made if it is not there.

    Scripts with the same requirements share it. Another host or other data have another one.

    Raises:
        InputError: the script needs another Python.
        NotVerifiedError: a check failed; there is no environment.
    """
    host = read_host(arguments, need_gpu=True)
    # These facts of a host change from run to run, and change no solve.
    passing = dict.fromkeys(("index", "uuid", "pci_bus_id", "memory_total", "memory_free"))
    gpus = tuple(gpu.replace(**passing) for gpu in host.gpus)
    facts = host.replace(problems=(), sources=(), gpus=gpus)
    key = {"script": to_plain(script), "host": to_plain(facts), "data": api.data_version()}
    folder = os.path.join(cache_folder(), "scripts", text_digest(canonical_json(key))[:20])
    if not arguments.refresh and is_venv(folder):  # only a verified one is kept
        return folder
    needed = script.requires_python
    if needed and not TargetEnvironment(host).accepts_python(needed):
        have = ".".join(map(str, host.python.version))
        message = f"{path}: needs Python {needed}, and the host has Python {have}"
        raise InputError(message, hint="name another one: --python X.Y or X.Y.Z")
    if not script.dependencies:
        raise InputError(f"{path}: has no dependencies", hint="run it with python")
    request = Request(requirements=tuple(script.dependencies))
    options = IndexOptions(offline=arguments.offline, refresh=arguments.refresh)
    plan = api.solve(request, host, options)
    lock = api.lock(plan)
    failed: list[Check] = []

    def prove(interpreter: str) -> bool:
        device = bool(plan.host.gpus)
        checks = api.verify(lock, interpreter, plan.host, device=device, timeout=TIMEOUT)
        failed.extend(check for check in checks if check.status == "fail")
        return not failed

    os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
    try:
        api.sync(
            lock,
            folder,
            host=plan.host,
            python=arguments.python,
            prove=prove,
            builds=options,
            # stdout is the script's
            progress=None if arguments.quiet else print_errors,
        )
    except NotVerifiedError:
        message = f"the environment of the script is not verified: {failed[0].evidence}"
        raise NotVerifiedError(message, hint="nothing was run") from None
    return folder
