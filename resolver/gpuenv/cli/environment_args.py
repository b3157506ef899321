"""The flags of commands that install or verify an environment, and how they end."""

from __future__ import annotations

import shlex
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence

from .. import api
from ..errors import DeclinedError, InputError
from ..model import Check, EnvironmentChanges, Host, Lock
from ..render import checks as render_checks
from ..render import plans
from .host_args import is_described
from .output import print_json, print_lines, progress_printer
from .parser import seconds

TIMEOUT = 300.0  # seconds for all checks
END_SIGNALS = ("SIGTERM", "SIGHUP")  # Windows does not have all of them


def add_install_flags(parser: ArgumentParser) -> None:
    """Add the flags of `gpuenv sync`, which `gpuenv install` has, too."""
    parser.add_argument(
        "--target", metavar="DIR", required=True, help="The environment: a new or an existing one"
    )
    parser.add_argument(
        "--exact",
        action="store_true",
        help="Remove packages that the lock does not name from an existing conda environment",
    )
    parser.add_argument(
        "-y",
        "--yes",
        action="store_true",
        help="Change an existing conda environment without a question",
    )
    parser.add_argument(
        "--python-downloads",
        action="store_true",
        help="Let uv download a Python for a new environment if there is none here",
    )
    add_installer_flags(parser)


def add_installer_flags(parser: ArgumentParser) -> None:
    """Add the flags that say how to install and to verify."""
    parser.add_argument(
        "--installer",
        choices=("auto", "uv", "pip"),
        default="auto",
        help="Install with uv or pip (default: uv if it is there)",
    )
    parser.add_argument(
        "--no-verify", action="store_true", help="Do not verify the environment afterwards"
    )
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=seconds,
        default=TIMEOUT,
        help="End the verification after S seconds (default: 300)",
    )


def active_environment(hint: str) -> str:
    """Return the folder of the active environment. InputError with the hint if there is none."""
    target = api.active_environment()
    if target is None:
        raise InputError("no environment is active", hint=hint)
    return target


def new_python(arguments: Namespace, lock: Lock) -> str | None:
    """Return what --python names, or the interpreter that --python-downloads brings."""
    python: str | None = arguments.python
    if arguments.python_downloads:
        return api.downloaded_python(lock, arguments.target, python)
    return python


def approve_changes(arguments: Namespace, changes: EnvironmentChanges) -> None:
    """Print the changes of an environment, and ask before packages are changed or removed.

    DeclinedError if the user answers no. Without a terminal or with --yes, nobody is asked.
    """
    progress_printer(arguments)("\n".join(plans.changes_lines(changes)))
    asks = bool(changes.change or changes.remove)
    if not asks or arguments.yes or not sys.stdin.isatty():
        return
    print("Proceed? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise DeclinedError("nothing was installed", hint="--yes answers the question")


def verify_installation(arguments: Namespace, lock: Lock, host: Host, python: str) -> int:
    """Verify what was installed and print the checks; print a summary instead with --no-verify.

    Args:
        arguments: the parsed flags of `add_install_flags` and of `add_host_flags`.
        lock: the lock that was installed.
        host: the host.
        python: the interpreter of the environment, "" for a conda environment without one.

    Returns:
        The exit status.
    """
    if arguments.no_verify:
        if arguments.json:
            packages = len(lock.pins)
            if lock.wheels is not None:
                packages += len(lock.wheels.pins)
            print_json({"target": arguments.target, "packages": packages, "verified": False})
        return 0
    exit_on_signals()
    checks = api.verify(
        lock,
        python or arguments.target,
        host,
        device=not is_described(arguments),
        timeout=arguments.timeout,
    )
    return print_checks(arguments, checks, doctor_step(arguments.target))


def doctor_step(target: str) -> str:
    """Return what to type if the environment at the target is not verified."""
    return f"gpuenv doctor --target {shlex.quote(target)}"


def print_checks(arguments: Namespace, checks: Sequence[Check], next_step: str = "") -> int:
    """Print checks and return the exit status.

    One line for each part of the environment; -v prints every check, -q those that did not pass.

    Args:
        arguments: the parsed flags.
        checks: the checks.
        next_step: what to type next if something is not verified.
    """
    is_ok = render_checks.ok(checks)
    if arguments.json:
        print_json(render_checks.checks_json(checks))
    elif arguments.verbose:
        print_lines(render_checks.check_lines(checks, next_step=next_step))
    elif not (arguments.quiet and is_ok):
        print_lines(render_checks.summary_lines(checks, next_step=next_step))
    return 0 if is_ok else 1


def exit_on_signals() -> None:
    """Let SIGTERM and SIGHUP end a verification and its children as an interrupt does."""

    def exit_with(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    for name in END_SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, exit_with)
