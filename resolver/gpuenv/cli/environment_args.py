"""The flags of commands that install or verify an environment, and how they end."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence

from .. import api, loader_env
from ..errors import DeclinedError, InputError, NotVerifiedError
from ..install import downloads
from ..install.wheels import WAIT
from ..model import Check, EnvironmentChanges, Host, IndexOptions, Lock
from ..render import changes as render_changes
from ..render import checks as render_checks
from ..render import plans
from .host_args import is_described
from .output import print_errors, print_json, print_lines, print_report, progress_printer
from .parser import seconds, waiting_seconds

TIMEOUT = 300.0  # seconds for all checks
END_SIGNALS = ("SIGTERM", "SIGHUP")  # Windows does not have all of them


def add_install_flags(parser: ArgumentParser) -> None:
    """Add the flags of `gpuenv sync`, which `gpuenv install` has, too."""
    add_target_flags(parser, "The environment: a new or an existing one")
    parser.add_argument(
        "--exact",
        action="store_true",
        default=None,
        help="Remove what the lock does not name (default: only from an environment of wheels that"
        " gpuenv made)",
    )
    parser.add_argument(
        "--inexact",
        dest="exact",
        action="store_false",
        help="Keep packages that the lock does not name",
    )
    parser.add_argument(
        "-y", "--yes", action="store_true", help="Change an existing environment without a question"
    )
    parser.add_argument(
        "--python-downloads",
        action="store_true",
        help="Let uv download a Python for a new environment if there is none here",
    )
    add_installer_flags(parser)


def add_target_flags(parser: ArgumentParser, target_help: str) -> None:
    """Add the flags of the environment that a command changes."""
    parser.add_argument("--target", metavar="DIR", required=True, help=target_help)
    add_wait_flag(parser)


def add_place_flags(parser: ArgumentParser) -> None:
    """Add the flags that name folders and indexes that a lock may use without https."""
    parser.add_argument(
        "--find-links",
        metavar="DIR",
        action="append",
        default=[],
        help="Use the files of a folder, such as one that gpuenv download filled (repeat)",
    )
    parser.add_argument(
        "--index-url", metavar="URL", help="Accept files of the lock from this http:// index, too"
    )
    parser.add_argument(
        "--extra-index-url",
        metavar="URL",
        action="append",
        default=[],
        help="Accept files of the lock from this http:// index, too (repeat)",
    )


def build_sources(arguments: Namespace) -> IndexOptions:
    """Return where the build requirements of source distributions come from."""
    return IndexOptions(
        index_url=arguments.index_url,
        extra_index_urls=tuple(arguments.extra_index_url),
        find_links=tuple(arguments.find_links),
        no_index=getattr(arguments, "no_index", False),  # gpuenv download has no such flag
    )


def with_local_files(lock: Lock, folders: Sequence[str], *, no_index: bool = False) -> Lock:
    """Return a lock that takes its wheels from folders, where these have them.

    Raises:
        InputError: with `no_index`, a file is in none of the folders.
    """
    if not folders and not no_index:
        return lock
    if lock.wheels is not None:
        beside = downloads.with_local_files(lock.wheels, folders, no_index=no_index)
        return lock.replace(wheels=beside)
    if lock.conda:
        raise InputError("--find-links and --no-index are for locks of wheels")
    return downloads.with_local_files(lock, folders, no_index=no_index)


def require_named_places(arguments: Namespace, lock: Lock) -> None:
    """Raise InputError if a lock has a URL without https that no flag allows."""
    indexes = [*arguments.extra_index_url, *filter(None, [arguments.index_url])]
    if not lock.conda:
        downloads.refuse_unnamed_places(lock, indexes, arguments.find_links)


def add_wait_flag(parser: ArgumentParser) -> None:
    """Add --wait."""
    parser.add_argument(
        "--wait",
        metavar="S",
        type=waiting_seconds,
        default=WAIT,
        help="Wait up to S seconds for another run on the same folder; 0 means no wait"
        " (default: 600)",
    )


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
    target = loader_env.active_environment(os.environ)
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
    """Print the changes of an environment, and ask before those that the user must confirm.

    DeclinedError if the user answers no. Without a terminal or with --yes, nobody is asked.
    """
    progress_printer(arguments)("\n".join(render_changes.changes_lines(changes)))
    if not changes.confirm or arguments.yes or not sys.stdin.isatty():
        return
    print("Proceed? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise DeclinedError("nothing was installed", hint="--yes answers the question")


def prove_installation(
    arguments: Namespace, lock: Lock, host: Host
) -> Callable[[str], bool] | None:
    """Return the function that verifies an environment and prints the checks, for `api.sync`.

    None with --no-verify.

    Args:
        arguments: the parsed flags of `add_install_flags` and of `add_host_flags`.
        lock: the lock that is installed.
        host: the host.
    """
    if arguments.no_verify:
        return None

    def prove(python: str) -> bool:
        checks = api.verify(
            lock,
            python,
            host,
            device=not is_described(arguments),
            timeout=arguments.timeout,
            shown_as=arguments.target,
        )
        return print_checks(arguments, checks, doctor_step(arguments.target)) == 0

    return prove


def print_end(arguments: Namespace, lock: Lock) -> None:
    """Print what to type after an installation; with --json and --no-verify its summary."""
    target = shlex.quote(arguments.target)
    if not arguments.json:
        step = f"gpuenv run --target {target} COMMAND"
        if arguments.no_verify:
            step = f"gpuenv verify --target {target}"
        print_report([f"next: {step}"])
    elif arguments.no_verify:
        packages = len(lock.pins)
        if lock.wheels is not None:
            packages += len(lock.wheels.pins)
        print_json({"target": arguments.target, "packages": packages, "verified": False})


def report_not_verified(error: NotVerifiedError) -> int:
    """Print what became of an environment whose checks were printed. Return the exit status."""
    print_errors(plans.error_lines(error))
    return error.exit_status


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
    """Let SIGTERM and SIGHUP end a command and its children as an interrupt does."""

    def exit_with(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    for name in END_SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, exit_with)
