"""`gpuenv lock`: lock the profiles of pyproject.toml, or check locks."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from .. import api
from ..errors import InputError
from ..project.profiles import compare
from ..render import locks as render
from ..render.values import reasons_json
from .host_args import add_host_flags, read_host_flags, used_flags
from .init import add_project_flag
from .output import print_errors, print_json, print_lines, print_report
from .parser import Parser, add_common_flags

HELP = "Lock the profiles of pyproject.toml, or check their locks"
DESCRIPTION = "Write one lock for each host profile in [tool.gpuenv]. Pins that still fit are kept."
EXAMPLES = (
    ("gpuenv lock", "Lock all profiles"),
    ("gpuenv lock --upgrade torch", "Take the newest release of one package"),
    ("gpuenv lock --add pandas --remove scipy", "Change the requirements, and lock them"),
    ("gpuenv lock --check", "Check that the locks are up to date"),
)


def add_arguments(parser: Parser) -> None:
    """Add the flags of `gpuenv lock`."""
    parser.add_argument(
        "profile",
        metavar="PROFILE",
        nargs="*",
        help="The profiles (default: all); with --check also lock files",
    )
    add_project_flag(parser)
    parser.add_argument(
        "--upgrade",
        metavar="NAME",
        nargs="*",
        help="Take the newest release of these packages, or of all packages",
    )
    parser.add_argument(
        "--check", action="store_true", help="Check that the locks are up to date; solve nothing"
    )
    parser.add_argument(
        "--add",
        metavar="REQUIREMENT",
        action="append",
        default=[],
        help="Add a requirement to pyproject.toml. Repeat for several",
    )
    parser.add_argument(
        "--remove",
        metavar="NAME",
        action="append",
        default=[],
        help="Remove a requirement from pyproject.toml. Repeat for several",
    )
    parser.add_argument("--offline", action="store_true", help="Use no network")
    parser.add_argument(
        "--refresh", action="store_true", help="Ask the indexes, not the snapshot or the cache"
    )
    add_host_flags(parser)
    add_common_flags(parser)


def run(arguments: Namespace) -> int:
    """Lock profiles, or check locks.

    See `_check` for the exit status of --check; otherwise it is 0.
    """
    files = [text for text in arguments.profile if _is_file_name(text)]
    names = [text for text in arguments.profile if text not in files]
    _refuse_wrong_flags(arguments, files)
    if arguments.check:
        return _check(arguments, names, files)
    if not arguments.add and not arguments.remove:
        return _lock(arguments, names)
    with api.changed_requirements(arguments.project, add=arguments.add, remove=arguments.remove):
        return _lock(arguments, names)


def _refuse_wrong_flags(arguments: Namespace, files: Sequence[str]) -> None:
    """Raise InputError for flags and files that do not go together."""
    flags = used_flags(arguments)
    if flags and not (arguments.check and files):
        message = f"{flags[0]}: a profile describes its own host, so host flags do not change it"
        raise InputError(message, hint="they are for --check with a lock file")
    if files and not arguments.check:
        message = f"{files[0]}: gpuenv lock takes profiles"
        raise InputError(message, hint="a file can only be checked: --check")
    changes = {"--add": arguments.add, "--remove": arguments.remove}
    if arguments.upgrade is not None:
        changes["--upgrade"] = True
    for flag, value in changes.items():
        if arguments.check and value:
            raise InputError(f"--check changes nothing: leave {flag} out")


def _is_file_name(text: str) -> bool:
    return "." in text or os.sep in text or "/" in text


def _lock(arguments: Namespace, names: Sequence[str]) -> int:
    """Lock all profiles before the first file is written."""
    project = api.lock_profiles(
        arguments.project,
        names,
        upgrade=arguments.upgrade,
        offline=arguments.offline,
        refresh=arguments.refresh,
        warn=lambda line: print_errors([f"gpuenv: {line}"]),
    )
    statuses = api.write_profile_locks({locked.path: locked.new for locked in project.profiles})
    documents, changed = [], False
    for locked in project.profiles:
        path, new = locked.path, locked.new
        status = statuses[path]
        changes = compare(locked.old, new)
        changed = changed or status == "written"
        if arguments.json:
            document = render.lock_json(path, locked.profile.name, status, new, changes)
            documents.append(document)
        elif status == "unchanged":
            print_report([f"{path}: unchanged, {len(new.pins)} packages"])
        else:
            print_report(render.lock_lines(path, locked.old, new, changes, locked.warnings))
    if arguments.json:
        shared = render.shared_versions_json(project.shared)
        print_json({"profiles": documents, "frameworks": shared})
    elif changed and project.shared:
        print_report(render.shared_versions_lines(project.shared, only_some=bool(names)))
    return 0


def _check(arguments: Namespace, names: Sequence[str], files: Sequence[str]) -> int:
    """Check the locks of profiles and lock files.

    Returns:
        The exit status: 0 all are up to date and work, 1 one is not, 2 one cannot be read.
    """
    states = []
    if names or not files:
        states = api.profile_states(arguments.project, names)
    if states and not arguments.json:
        print_lines(render.states_lines(states))
    documents = _check_files(arguments, files) if files else []
    good = all(state.status == "fresh" for state in states)
    good = good and all(document["ok"] for document in documents)
    if arguments.json:
        print_json({"ok": good, "profiles": render.states_json(states), "files": documents})
    if any(state.status == "unreadable" for state in states):
        return InputError.exit_status
    return 0 if good else 1


def _check_files(arguments: Namespace, files: Sequence[str]) -> list[dict[str, Any]]:
    """Check lock files of any tool on the host of the flags; without --json, print the results."""
    host = read_host_flags(arguments, need_gpu=True)
    documents = []
    for path in files:
        report = api.check_lock(path, host)
        if not arguments.json:
            lines = render.lock_check_lines(
                path, report.created_by, report.packages, report.reasons, host
            )
            print_lines(lines)
        documents.append(
            {
                "path": path,
                "created_by": report.created_by,
                "packages": report.packages,
                "ok": report.works,
                "reasons": reasons_json(report.reasons),
            }
        )
    return documents
