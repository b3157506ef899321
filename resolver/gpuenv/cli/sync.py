"""`gpuenv sync`: install a lock into an environment, and verify it."""

from __future__ import annotations

from argparse import Namespace
from functools import partial

from .. import api
from ..errors import HostMismatchError, NotVerifiedError
from ..model import Host, Lock
from ..render import changes as render_changes
from ..render import locks as render
from .environment_args import (
    add_install_flags,
    add_place_flags,
    approve_changes,
    build_sources,
    exit_on_signals,
    new_python,
    print_end,
    prove_installation,
    report_not_verified,
    require_named_places,
    with_local_files,
)
from .host_args import add_host_flags, is_described, read_conda_host, read_host_flags
from .output import print_json, print_lines, progress_printer
from .parser import Parser, add_common_flags

HELP = "Install a lock into an environment, and verify it"
DESCRIPTION = (
    "Install exactly the files of a lock, by their hashes, into a new or an existing "
    "environment. A lock that does not fit the host is refused before anything is "
    "written."
)
EXAMPLES = (
    ("gpuenv sync pylock.toml --target .venv", "Install a lock"),
    ("gpuenv sync --target .venv", "Install the lock of the profile that fits this host"),
)


def add_arguments(parser: Parser) -> None:
    """Add the flags of `gpuenv sync`."""
    parser.add_argument(
        "lock",
        metavar="LOCK",
        nargs="?",
        help="The lock file (default: that of the profile of pyproject.toml that fits this host,"
        " otherwise pylock.toml)",
    )
    add_host_flags(parser)
    add_install_flags(parser)
    add_place_flags(parser)
    parser.add_argument(
        "--no-index", action="store_true", help="Use only the files of --find-links, no network"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="Print what would change; change nothing"
    )
    add_common_flags(parser)


def run(arguments: Namespace) -> int:
    """Install a lock and verify the environment. Return 1 if a check fails."""
    lock, host = _lock_and_host(arguments)
    files = with_local_files(lock, arguments.find_links, no_index=arguments.no_index)
    require_named_places(arguments, files)
    if arguments.dry_run:
        changes = api.changes(lock, arguments.target, host=host, exact=arguments.exact)
        if arguments.json:
            print_json(render_changes.changes_json(changes))
        else:
            print_lines(render_changes.changes_lines(changes))
        return 0
    exit_on_signals()
    try:
        api.sync(
            lock,
            arguments.target,
            host=host,
            files=files,
            python=new_python(arguments, lock),
            installer=arguments.installer,
            exact=arguments.exact,
            wait=arguments.wait,
            approve=partial(approve_changes, arguments),
            prove=prove_installation(arguments, lock, host),
            progress=progress_printer(arguments),
            builds=build_sources(arguments),
        )
    except NotVerifiedError as error:
        return report_not_verified(error)
    except HostMismatchError as error:
        if arguments.python is not None and host.python.version != lock.needs.python:
            error.hint = "leave --python out, or make another lock: gpuenv solve --python"
        elif not (lock.conda or is_described(arguments) or host.gpus):
            error.hint = (
                "to install for another host (an image, a login node) name it:"
                " --gpu and --driver, or --host"
            )
        raise
    print_end(arguments, lock)
    return 0


def _lock_and_host(arguments: Namespace) -> tuple[Lock, Host]:
    """Return the named lock, or that of the profile that fits the host; and the host."""
    if arguments.lock is None and api.has_profiles():
        host = read_host_flags(arguments, need_gpu=False, keep_python=False)
        fitting = api.fitting_lock("", host, arguments.target)
        lines = render.chosen_lines(fitting.project, fitting.profiles, fitting.state)
        progress_printer(arguments)("\n".join(lines))
        lock = fitting.lock
        options = fitting.index_options()
        arguments.find_links += options.find_links
        arguments.extra_index_url += filter(None, [options.index_url, *options.extra_index_urls])
    else:
        lock = api.read_lock(arguments.lock or "pylock.toml")
        if lock.conda:
            host = read_conda_host(arguments, need_gpu=False)
        else:
            host = read_host_flags(arguments, need_gpu=False, keep_python=False)
    return lock, _with_python(arguments, host, lock)


def _with_python(arguments: Namespace, host: Host, lock: Lock) -> Host:
    """Return the host with the Python of --python, otherwise with that of the lock."""
    if arguments.python is not None and lock.needs.python is not None:
        return api.describe(host, python=arguments.python)
    return api.with_python_of(host, lock)
