"""`gpuenv init`, `gpuenv lock` and the choice of a lock by `gpuenv sync`: profiles in a repository."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

from .. import api
from ..errors import GpuEnvError, HostMismatchError, InputError, NoSolutionError, Reason
from ..model import Host, Lock
from ..project.profiles import Profile, Project, State, choose, compare, preferences, state
from ..render import locks as texts
from ..render import plans
from .host_args import host_flags, host_of
from .output import print_json, print_lines

Solved = tuple[Profile, str, Lock | None, Lock, Sequence[Reason]]  # the profile, its path, its old and new lock


def init_flags(parser: ArgumentParser) -> None:
    """Flags of `gpuenv init`."""
    _folder_flag(parser)
    parser.add_argument("--framework", metavar="NAME[SPEC]", action="append", default=[], help="instead of those found")
    host_flags(parser)


def lock_flags(parser: ArgumentParser) -> None:
    """Flags of `gpuenv lock`."""
    parser.add_argument("profile", metavar="PROFILE", nargs="*", help="default: all; with --check also lock files")
    _folder_flag(parser)
    parser.add_argument(
        "--upgrade", metavar="NAME", nargs="*", help="take the newest release of these packages, or of all"
    )
    parser.add_argument("--check", action="store_true", help="solve nothing: do the locks say what pyproject.toml asks")
    parser.add_argument("--offline", action="store_true", help="ask no index")
    parser.add_argument("--refresh", action="store_true", help="ask the index, not the snapshot or the cache")
    host_flags(parser)


def _folder_flag(parser: ArgumentParser) -> None:
    parser.add_argument("--project", metavar="DIR", default="", help="the folder of pyproject.toml (default: this one)")


# ---- init ---------------------------------------------------------------------------------------------------------


def init(arguments: Namespace) -> int:
    """Writes a first [tool.gpuenv]."""
    from ..project import init as beginning

    host = host_of(arguments, solving=False)
    matrix = api.compatibility_data()
    begun = beginning.begin(
        arguments.project, host, matrix, frameworks=tuple(arguments.framework), name=_profile_name(host)
    )
    beginning.write(begun)
    if arguments.json:
        profiles, frameworks = list(begun.profiles), list(begun.frameworks)
        print_json({"path": begun.path, "frameworks": frameworks, "profiles": profiles, "python": begun.python})
    else:
        print_lines(texts.beginning_lines(begun, host))
    return 0


def _profile_name(host: Host) -> str:
    from ..compat.data import gpu_key

    names = dict.fromkeys(gpu_key(gpu.name) for gpu in host.gpus)
    return "-".join(name for name in names if name) or "gpu"


# ---- lock ---------------------------------------------------------------------------------------------------------


def lock(arguments: Namespace) -> int:
    """Locks profiles, or says how their locks stand."""
    files = [one for one in arguments.profile if "." in one or os.sep in one or "/" in one]
    names = [one for one in arguments.profile if one not in files]
    flags = [flag for flag in ("host", "gpu", "driver", "python", "platform", "glibc") if getattr(arguments, flag)]
    if flags and not (arguments.check and files):
        hint = "they are for --check with a lock file"
        raise InputError(f"--{flags[0]}: a profile describes its own host, and host flags change none", hint=hint)
    if arguments.check:
        return _check(arguments, names, files)
    if files:
        raise InputError(f"{files[0]}: gpuenv lock takes profiles", hint="a file can only be checked: --check")
    project = api.read_project(arguments.project)
    solved = _solved(arguments, project, project.select(names))
    report = []
    for profile, path, old, new, warnings in solved:
        status = _write(path, new)
        changes = compare(old, new)
        if arguments.json:
            report.append(texts.lock_json(path, profile.name, status, new, changes))
        elif status == "unchanged":
            print_lines([f"{path}: unchanged, {len(new.pins)} packages"])
        else:
            print_lines(texts.lock_lines(path, old, new, changes, warnings))
    if arguments.json:
        print_json({"profiles": report})
    return 0


def _solved(arguments: Namespace, project: Project, profiles: Sequence[Profile]) -> list[Solved]:
    """New locks for all profiles; nothing is written. An error names the profile that it is about."""
    found = [(profile, project.lock_path(profile)) for profile in profiles]
    folder = arguments.project or "."
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"the folder {folder} cannot be written")
    old = {path: _earlier(path) for _, path in found}
    _check_upgrade(arguments.upgrade, project, [lock for lock in old.values() if lock is not None])
    solved: list[Solved] = []
    for profile, path in found:
        keep = preferences(old[path], arguments.upgrade)
        try:
            new, plan = api.lock_profile(
                profile, arguments.project, preferences=keep, offline=arguments.offline, refresh=arguments.refresh
            )
        except GpuEnvError as error:
            where = " as described" if isinstance(error, NoSolutionError) else ""
            error.message = f"profile {profile.name}: {error.message.removesuffix(' on this host')}{where}"
            raise
        solved.append((profile, path, old[path], new, plan.warnings))
    return solved


def _earlier(path: str) -> Lock | None:
    """The lock whose pins are kept. One that is no lock of gpuenv, or was edited, has none to keep."""
    if not os.path.lexists(path):
        return None
    try:
        return api.read_lock(path)
    except InputError as error:
        import sys

        print(f"gpuenv: {error.message}: its pins are not kept", file=sys.stderr)
        return None


def _check_upgrade(upgrade: Sequence[str] | None, project: Project, locks: Sequence[Lock]) -> None:
    pinned = {pin.wheel.name for lock in locks for pin in lock.pins}
    for name in upgrade or ():
        if name not in pinned:
            profiles = [profile.name for profile in project.profiles]
            hint = f"profiles come before it: gpuenv lock {name} --upgrade" if name in profiles else ""
            raise InputError(f"--upgrade {name}: no lock has a package of that name", hint=hint)


def _write(path: str, lock: Lock) -> str:
    """Writes a lock if it differs; "written" or "unchanged"."""
    from ..lock import pylock

    data = pylock.dumps(lock).encode()
    if os.path.isfile(path):
        with open(path, "rb") as file:
            if file.read() == data:
                return "unchanged"
    pylock.write(path, data.decode())
    return "written"


# ---- check --------------------------------------------------------------------------------------------------------


def _check(arguments: Namespace, names: Sequence[str], files: Sequence[str]) -> int:
    """0 if all is as it should be, 1 if something is not, 2 if a file cannot be read."""
    if arguments.upgrade is not None:
        raise InputError("--check changes nothing: leave --upgrade out")
    states: list[State] = []
    if names or not files:
        project, data = api.read_project(arguments.project), api.data_version()
        states = [state(project, one, api.read_lock, data) for one in project.select(names)]
    if states and not arguments.json:
        print_lines(texts.states_lines(states))
    documents = _survivals(files, host_of(arguments, solving=True), quiet=arguments.json) if files else []
    good = all(one.status == "fresh" for one in states) and all(one["ok"] for one in documents)
    if arguments.json:
        print_json({"ok": good, "profiles": texts.states_json(states), "files": documents})
    if any(one.status == "unreadable" for one in states):
        return InputError.exit_status
    return 0 if good else 1


def _survivals(files: Sequence[str], host: Host, *, quiet: bool) -> list[dict[str, Any]]:
    """What speaks against locks of any tool on the host; those of gpuenv must also be unedited and fit."""
    from .explain import against_lock

    documents = []
    for path in files:
        who, count, found = against_lock(path, host)
        if not quiet:
            print_lines(texts.survival_lines(path, who, count, found, host))
        documents.append(
            {
                "path": path,
                "created_by": who,
                "packages": count,
                "ok": all(plans.is_doubt(reason) for reason in found),
                "reasons": plans.reasons_json(found),
            }
        )
    return documents


# ---- sync ---------------------------------------------------------------------------------------------------------


def has_profiles(folder: str) -> bool:
    """Whether `gpuenv sync` is to choose among profiles: there is a [tool.gpuenv] in the folder."""
    from ..project.read import FILE, has_table
    from ..serialize import read_toml

    path = os.path.join(folder, FILE)
    return os.path.isfile(path) and has_table(read_toml(path))


def fitting_lock(folder: str, host: Host) -> tuple[str, Lock, list[str]]:
    """(path, lock, what is to be said) of the profile whose lock fits the host best.

    The interpreter is the lock's, whatever starts gpuenv. HostMismatchError with the facts against each profile if none
    fits.
    """
    from ..lock.host_fit import fit

    project, data = api.read_project(folder), api.data_version()
    rows, against, locks = [], [], {}
    for profile in project.profiles:
        found = state(project, profile, api.read_lock, data)
        if found.status in ("missing", "tampered", "unreadable"):
            code, have = f"lock-{found.status}", f"it is {found.status}"
            reason = Reason(code=code, subject=found.path, need="to be locked", have=have)
            against.append((profile, (reason,)))
            continue
        lock = locks[profile.name] = api.read_lock(found.path)
        rows.append((profile, lock, fit(lock, host.replace(python=lock.host.python))))
    good, others = choose(rows, host)
    if not good:
        raise HostMismatchError(
            f"the lock of no profile in {project.path} fits this host; nothing was installed",
            tuple(
                reason.replace(subject=project.lock_path(profile))
                for profile, reasons in (*others, *against)
                for reason in reasons
            ),
        )
    best = good[0]
    said = texts.chosen_lines(project, good, state(project, best, api.read_lock, data))
    return project.lock_path(best), locks[best.name], said
