"""`gpuenv verify`: the checks of an environment, for people, as JSON, as one line for a hook, or as a report."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from typing import Any

from .. import api
from ..errors import InputError
from ..loader_env import active_environment
from ..model import Check, Host
from .output import print_json, print_lines

TIMEOUT, HOOK_TIMEOUT = 300.0, 60.0  # s
Step = Callable[[str], None]


def verify_flags(parser: ArgumentParser) -> None:
    """Flags of `gpuenv verify`."""
    what = "of wheels, or of a conda environment (default: pylock.toml, if it is there)"
    parser.add_argument("lock", metavar="LOCK", nargs="?", help=what)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--target", metavar="DIR", help="the environment (default: the active one, else ./.venv)")
    where.add_argument("--python", metavar="EXE", help="the environment's interpreter")
    parser.add_argument("--framework", metavar="NAME", action="append", default=[], help="check only these")
    parser.add_argument("--no-device", action="store_true", help="only what needs no GPU")
    parser.add_argument("--verbose", action="store_true", help="cuDNN's log of what failed with all its calls")
    parser.add_argument("--timeout", metavar="S", type=seconds, help="of all checks (default: 300, with --hook 60)")
    parser.add_argument("--bundle", metavar="FILE", help="write a report for a bug tracker, names and tokens taken out")
    parser.add_argument("--hook", action="store_true", help="one line, and the end within the timeout whatever hangs")
    parser.add_argument("--strict", action="store_true", help="with --hook: what could not be proved is a failure")


def seconds(text: str) -> float:
    """A time of a flag."""
    value = float(text)
    if not 0 < value < 1e6:
        raise ValueError
    return value


def verify(arguments: Namespace) -> int:
    """0 if nothing failed, 1 if something did."""
    if arguments.strict and not arguments.hook:
        raise InputError("--strict is for --hook")
    if arguments.hook and arguments.json:
        raise InputError("--hook is one line of text: leave --json out")
    if arguments.bundle:
        _check_writable(arguments.bundle)
    if arguments.hook:
        from .hook import hook

        return hook(arguments, arguments.timeout or HOOK_TIMEOUT)
    end_by_exit()
    return show(arguments, checked(arguments, arguments.timeout or TIMEOUT)[0])


def checked(arguments: Namespace, timeout: float, step: Step | None = None) -> tuple[Sequence[Check], Host]:
    """The checks that the flags ask for, and the host; the report is written if it is wanted.

    `step` is told what is done next.
    """
    import time

    begin, step = time.monotonic(), step or _silent
    path = arguments.lock or ("pylock.toml" if os.path.isfile("pylock.toml") else None)
    conda = _conda(path)
    second = None
    if conda is not None:
        lock, second = conda.read_locks(path)
    else:
        lock = None if path is None else api.read_lock(path)
    target = arguments.python or arguments.target or active_environment(os.environ)
    if target is None:
        raise InputError("no environment is active", hint="name one: --target DIR or --python EXE")
    step("looking at the GPUs and the driver")
    host = api.detect()
    if lock is not None and conda is None:  # which sees to it itself: another tool's lock says nothing of Python
        host = host.replace(python=lock.host.python)
    step("the checks")
    how: dict[str, Any] = {
        "device": not arguments.no_device,
        "timeout": max(0.1, timeout - (time.monotonic() - begin)),
        "only": tuple(arguments.framework),
        "verbose": arguments.verbose,
    }
    if conda is not None:
        checks = conda.verify(lock, second, target, host, **how)
    else:
        checks = api.verify(lock, target, host, **how)
    if arguments.bundle:
        step("writing the report")
        from .report import write_bundle

        write_bundle(arguments.bundle, checks, host, target, lock)
    return checks, host


def _conda(path: str | None) -> Any:
    """The module for conda locks, if the file is one; importing it costs what a pylock.toml does without."""
    if path is None or path.endswith(".toml"):
        return None
    from . import conda

    return conda if conda.is_lock(path) else None


def show(arguments: Namespace, checks: Sequence[Check]) -> int:
    """Prints checks and says by the exit status how they ended."""
    from ..render import plans

    if arguments.json:
        print_json(plans.checks_json(checks))
    else:
        print_lines(plans.check_lines(checks))
    return 0 if plans.ok(checks) else 1


def end_by_exit() -> None:
    """SIGTERM and SIGHUP end a verification as an interrupt does: its children are ended, too."""
    import signal

    def leave(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, leave)


def _silent(line: str) -> None:
    """Steps that nobody asked for."""
    del line


def _check_writable(path: str) -> None:
    folder = os.path.dirname(path) or "."
    if os.path.isdir(path):
        raise InputError(f"--bundle {path}: is a folder")
    if not os.path.isdir(folder):
        raise InputError(f"--bundle {path}: the folder {folder} does not exist")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"--bundle {path}: the folder {folder} cannot be written")
