"""Projects: the profiles in [tool.gpuenv] of a pyproject.toml, and their locks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import GpuEnvError, HostMismatchError, InputError, NoSolutionError, Reason
from ..model import Host, Lock, Plan, Value
from . import environments
from .data import compatibility_data, data_version
from .hosts import describe, with_python_of

if TYPE_CHECKING:  # the stages are imported when they are first used
    from ..project.init import Beginning
    from ..project.profiles import Profile, Project, State


class LockedProfile(Value):
    """A profile with its new lock.

    `old` is the lock whose pins were kept, None if there is none to keep.
    """

    profile: Profile
    path: str
    old: Lock | None
    new: Lock
    warnings: tuple[Reason, ...] = ()


class FittingLock(Value):
    """The lock that fits a host best.

    `profiles` are all whose locks fit, the best first; `state` is that of the best.
    """

    project: Project
    profiles: tuple[Profile, ...]
    state: State
    path: str
    lock: Lock


def read_project(folder: str = "") -> Project:
    """Read the profiles of a folder's pyproject.toml.

    InputError says what is wrong with it, and where.
    """
    from ..project import read

    return read.read_project(folder, compatibility_data(), profile_host, _dependencies)


def _dependencies(path: str, extras: Sequence[str], groups: Sequence[str]) -> Sequence[str]:
    from ..requirements import pyproject

    return pyproject.read_project(path, extras, groups).requirements


def has_profiles(folder: str = "") -> bool:
    """Return whether the pyproject.toml of a folder has a [tool.gpuenv]."""
    from ..project.read import FILE, has_table
    from ..serialize import read_toml

    path = os.path.join(folder, FILE)
    return os.path.isfile(path) and has_table(read_toml(path))


def profile_host(profile: Profile) -> Host:
    """Return the host that a profile describes. It holds no fact of this machine."""
    from ..project.profiles import base_host

    return describe(
        base_host(profile),
        gpus=profile.gpus or ("none",),
        driver=profile.driver,
        platform=profile.platform or None,
        glibc=profile.glibc,
    )


def begin_project(folder: str, host: Host, frameworks: Sequence[str] = ()) -> Beginning:
    """Write a first [tool.gpuenv] into the pyproject.toml of a folder.

    Args:
        folder: the folder, "" for the working folder.
        host: its GPUs become a profile.
        frameworks: the frameworks; () finds them in the files of the project.

    Raises:
        InputError: there is such a table already, no framework was found, or the file cannot be
        written.
    """
    from ..project import init

    begun = init.begin(
        folder, host, compatibility_data(), frameworks=tuple(frameworks), name=_profile_name(host)
    )
    init.write(begun)
    return begun


def _profile_name(host: Host) -> str:
    """Return a name for the profile of a host, by its GPUs: "h100", "h100-v100", "gpu"."""
    from ..compat.data import gpu_key

    keys = dict.fromkeys(gpu_key(gpu.name) for gpu in host.gpus)
    return "-".join(key for key in keys if key) or "gpu"


# ---- lock ----------------------------------------------------------------------------------------


def lock_profile(
    profile: Profile,
    folder: str = "",
    *,
    preferences: Sequence[tuple[str, str]] = (),
    offline: bool = False,
    refresh: bool = False,
) -> tuple[Lock, Plan]:
    """Solve for a profile; nothing is written.

    Args:
        profile: the profile.
        folder: the folder of the project.
        preferences: (name, version) pairs of an earlier lock, kept where they still fit.
        offline: ask no index.
        refresh: bypass the snapshot and the cache.

    Raises:
        NoSolutionError: there is no solution.
    """
    from ..project import profiles

    options = profiles.index_options(profile, folder, offline=offline, refresh=refresh)
    request = profiles.request(profile, preferences)
    plan = environments.solve(request, profile_host(profile), options)
    lock = environments.lock(plan).replace(inputs=profiles.inputs(profile))
    return lock, plan


def lock_profiles(
    folder: str,
    names: Sequence[str],
    *,
    upgrade: Sequence[str] | None = None,
    offline: bool = False,
    refresh: bool = False,
    warn: Callable[[str], None],
) -> list[LockedProfile]:
    """Solve for several profiles; nothing is written. An error names the profile that it is about.

    Args:
        folder: the folder of the project, "" for the working folder.
        names: the names of the profiles; () is all of them.
        upgrade: the packages whose pins are not kept; () keeps none, None keeps all.
        offline: ask no index.
        refresh: bypass the snapshot and the cache.
        warn: is called with a line for each lock whose pins cannot be kept.

    Raises:
        InputError: an unknown profile or package, or a folder that cannot be written.
        NoSolutionError: there is no solution for a profile.
    """
    from ..project.profiles import preferences

    project = read_project(folder)
    profiles = project.select(names)
    where = folder or "."
    if not os.access(where, os.W_OK | os.X_OK):
        raise InputError(f"the folder {where} cannot be written")
    paths = {profile.name: project.lock_path(profile) for profile in profiles}
    old = {name: _earlier_lock(path, warn) for name, path in paths.items()}
    _check_upgrade(upgrade, project, old)
    locked = []
    for profile in profiles:
        earlier = old[profile.name]
        keep = preferences(earlier, upgrade)
        try:
            new, plan = lock_profile(
                profile, folder, preferences=keep, offline=offline, refresh=refresh
            )
        except GpuEnvError as error:
            error.message = _with_profile(error, profile)
            raise
        locked.append(
            LockedProfile(
                profile=profile,
                path=paths[profile.name],
                old=earlier,
                new=new,
                warnings=plan.warnings,
            )
        )
    return locked


def _with_profile(error: GpuEnvError, profile: Profile) -> str:
    message = f"profile {profile.name}: {error.message.removesuffix(' on this host')}"
    if isinstance(error, NoSolutionError):
        message += " as described"
    return message


def _earlier_lock(path: str, warn: Callable[[str], None]) -> Lock | None:
    """Read the lock whose pins are kept; None if there is no such lock of gpuenv."""
    if not os.path.lexists(path):
        return None
    try:
        return environments.read_lock(path)
    except InputError as error:
        warn(f"{error.message}: its pins are not kept")
        return None


def _check_upgrade(
    upgrade: Sequence[str] | None, project: Project, locks: Mapping[str, Lock | None]
) -> None:
    """Raise InputError for a name in `upgrade` that is in none of the locks."""
    pinned: set[str] = set()
    for lock in locks.values():
        if lock is not None:
            pinned.update(pin.wheel.name for pin in lock.pins)
    for name in upgrade or ():
        if name not in pinned:
            is_profile = any(profile.name == name for profile in project.profiles)
            hint = f"profiles come before it: gpuenv lock {name} --upgrade" if is_profile else ""
            raise InputError(f"--upgrade {name}: no lock has a package of that name", hint=hint)


def write_profile_lock(path: str, lock: Lock) -> str:
    """Write a lock if the file differs. Return "written" or "unchanged"."""
    if os.path.isfile(path):
        with open(path, "rb") as file:
            if file.read() == environments.lock_text(lock).encode():
                return "unchanged"
    environments.write_lock(lock, path)
    return "written"


# ---- check and choose ----------------------------------------------------------------------------


def profile_states(folder: str, names: Sequence[str]) -> list[State]:
    """Return whether the locks of profiles are what pyproject.toml asks for; () is all profiles.

    Nothing is solved.
    """
    project = read_project(folder)
    return [_state(project, profile) for profile in project.select(names)]


def _state(project: Project, profile: Profile) -> State:
    from ..project.profiles import state

    return state(project, profile, environments.read_lock, data_version())


def fitting_lock(folder: str, host: Host) -> FittingLock:
    """Choose the profile whose lock fits a host best.

    The interpreter is the lock's, whatever runs gpuenv.

    Raises:
        HostMismatchError: the lock of no profile fits; the error has the facts against each of
        them.
    """
    from ..lock.host_fit import fit
    from ..project.profiles import choose

    project = read_project(folder)
    states = {profile.name: _state(project, profile) for profile in project.profiles}
    locks: dict[str, Lock] = {}
    candidates, unusable = [], []
    for profile in project.profiles:
        state = states[profile.name]
        if state.status in ("missing", "tampered", "unreadable"):
            unusable.append((profile, (_unusable(state),)))
            continue
        lock = environments.read_lock(state.path)
        locks[profile.name] = lock
        candidates.append((profile, lock, fit(lock, with_python_of(host, lock))))
    fitting, others = choose(candidates, host)
    if not fitting:
        raise HostMismatchError(
            f"the lock of no profile in {project.path} fits this host; nothing was installed",
            _reasons_by_lock(project, [*others, *unusable]),
        )
    best = fitting[0]
    return FittingLock(
        project=project,
        profiles=fitting,
        state=states[best.name],
        path=project.lock_path(best),
        lock=locks[best.name],
    )


def _unusable(state: State) -> Reason:
    return Reason(
        code=f"lock-{state.status}",
        subject=state.path,
        need="to be locked",
        have=f"it is {state.status}",
    )


def _reasons_by_lock(
    project: Project, rows: Sequence[tuple[Profile, tuple[Reason, ...]]]
) -> tuple[Reason, ...]:
    """Return all reasons, each with the lock file as its subject."""
    found: list[Reason] = []
    for profile, reasons in rows:
        path = project.lock_path(profile)
        found += [reason.replace(subject=path) for reason in reasons]
    return tuple(found)
