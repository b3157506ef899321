"""Projects: the profiles in [tool.gpuenv] of a pyproject.toml, and their locks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ..errors import GpuEnvError, HostMismatchError, InputError, NoSolutionError, Reason
from ..model import Host, IndexOptions, Lock, Plan, Request, Value
from ..prefix import is_conda, is_venv
from . import environments
from .data import compatibility_data, data_version, matrix_catalog
from .hosts import describe, with_python_of
from .wheels import lock_reasons

if TYPE_CHECKING:  # the stages are imported when they are first used
    from ..project.init import Beginning
    from ..project.profiles import Profile, Project, State
    from ..project.shared_versions import SharedVersion


class LockedProfile(Value):
    """A profile with its new lock.

    `old` is the lock whose pins were kept, None if there is none to keep.
    """

    profile: Profile
    path: str
    old: Lock | None
    new: Lock
    warnings: tuple[Reason, ...] = ()


class LockedProject(Value):
    """The new locks of profiles.

    `shared` are the frameworks of which profiles have, or would have, different versions.
    """

    profiles: tuple[LockedProfile, ...]
    shared: tuple[SharedVersion, ...]


class FittingLock(Value):
    """The lock that fits a host best.

    `profiles` are all whose locks fit, the best first; `state` is that of the best.
    """

    project: Project
    profiles: tuple[Profile, ...]
    state: State
    path: str
    lock: Lock

    def index_options(self) -> IndexOptions:
        """Return the indexes that the best profile allows."""
        from ..project.profiles import index_options

        folder = os.path.dirname(self.path)
        return index_options(self.profiles[0], folder, offline=False, refresh=False)


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


@contextmanager
def changed_requirements(
    folder: str, *, add: Sequence[str] = (), remove: Sequence[str] = ()
) -> Iterator[None]:
    """Change the requirements in the pyproject.toml of a folder while something is done with it.

    The rest of the file stays as it is. If what is done fails, the file is as before.

    Args:
        folder: the folder, "" for the working folder.
        add: PEP 508 texts; one replaces a requirement of the same name.
        remove: names.

    Raises:
        InputError: a requirement cannot be added or removed.
    """
    from ..atomic_write import write_whole
    from ..project.edit import edited
    from ..project.read import FILE
    from ..serialize import read_input, read_toml

    data = compatibility_data()
    path = os.path.join(folder, FILE)
    read_toml(path)  # raises an InputError that says what is wrong, and where
    before = read_input(path)
    after = edited(
        before.decode(),
        path,
        add=add,
        remove=remove,
        is_framework=lambda name: data.framework(name) is not None,
    )
    write_whole(path, after.encode())
    try:
        yield
    except BrokenPipeError:  # everything is done, and nobody reads what is printed
        raise
    except BaseException:
        write_whole(path, before)
        raise


def add_profiles(
    folder: str,
    hosts: Sequence[Host],
    *,
    frameworks: Sequence[str],
    requirements: Sequence[str] = (),
    separate_versions: bool = False,
) -> tuple[str, tuple[str, ...]]:
    """Add a profile for each host to the pyproject.toml of a folder. Existing ones do not change.

    Args:
        folder: the folder, "" for the working folder.
        hosts: the described hosts. All their facts become the profile.
        frameworks: the frameworks of a first table. A table that is there must have the same.
        requirements: the requirements, likewise.
        separate_versions: whether each profile has its own versions of the frameworks.

    Returns:
        The path of the file, and the names of the new profiles.

    Raises:
        InputError: the table asks for something else, or the file cannot be written.
    """
    from ..project import init

    begun = init.begin_profiles(
        folder,
        hosts,
        compatibility_data(),
        frameworks=frameworks,
        requirements=requirements,
        separate_versions=separate_versions,
    )
    if begun.addition:
        init.write(begun)
    return begun.path, begun.profiles


def begin_project(
    folder: str,
    hosts: Sequence[Host],
    frameworks: Sequence[str] = (),
    *,
    name: str = "",
    ci: bool = True,
    write: bool = True,
) -> Beginning:
    """Write a first [tool.gpuenv] into the pyproject.toml of a folder, or add profiles to it.

    Args:
        folder: the folder, "" for the working folder.
        hosts: the GPUs of each become a profile.
        frameworks: the frameworks of a first table; () finds them in the files of the project.
        name: the name of the new profile; "" names each by its GPUs.
        ci: whether a first table has a profile without a GPU, for CI.
        write: False only returns what would be written.

    Raises:
        InputError: no framework was found, a profile cannot be added, or the file cannot be
            written.
    """
    from ..project import init

    begun = init.begin(
        folder, hosts, compatibility_data(), frameworks=tuple(frameworks), name=name, ci=ci
    )
    if begun.addition and write:
        init.write(begun)
    return begun


# ---- lock ----------------------------------------------------------------------------------------


def lock_profile(
    profile: Profile,
    folder: str = "",
    *,
    preferences: Sequence[tuple[str, str]] = (),
    offline: bool = False,
    refresh: bool = False,
) -> tuple[Lock, Plan]:
    """Solve for a profile alone; nothing is written.

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
    plan = _solve_profile(profile, profiles.request(profile, preferences), options, {})
    return _lock_of(profile, plan), plan


def _solve_profile(
    profile: Profile, request: Request, options: IndexOptions, versions: Mapping[str, str]
) -> Plan:
    """Solve for a profile with given versions of frameworks, which the plan's request leaves out.

    They are a choice among the solutions of the profile, like the pins of an earlier lock.
    """
    from ..resolve.plan import digest
    from ..resolve.requested import with_versions

    changed = with_versions(request, versions, compatibility_data())
    plan = environments.solve(changed, profile_host(profile), options, changes=not versions)
    plan = plan.replace(request=request)
    return plan.replace(digest=digest(plan))


def _lock_of(profile: Profile, plan: Plan) -> Lock:
    from ..project.profiles import inputs

    lock = environments.lock(plan)
    return lock.replace(inputs=(*lock.inputs, *inputs(profile)))


def lock_profiles(
    folder: str,
    names: Sequence[str],
    *,
    upgrade: Sequence[str] | None = None,
    offline: bool = False,
    refresh: bool = False,
    warn: Callable[[str], None],
) -> LockedProject:
    """Solve for several profiles; nothing is written. An error names the profile that it is about.

    All profiles of the project get one version of each framework, unless a profile says otherwise
    or there is no such version. The locks of profiles that are not named stay as they are.

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
    from ..project.profiles import index_options, preferences, request
    from ..project.shared_versions import share_versions

    project = read_project(folder)
    profiles = project.select(names)
    where = folder or "."
    if not os.access(where, os.W_OK | os.X_OK):
        raise InputError(f"the folder {where} cannot be written")
    selected = {profile.name for profile in profiles}
    old: dict[str, Lock | None] = {}
    for profile in project.profiles:
        # The lock of another profile only says which versions it has.
        tell = warn if profile.name in selected else _ignore
        old[profile.name] = _earlier_lock(project.lock_path(profile), tell)
    _check_upgrade(upgrade, project, {name: old[name] for name in selected})

    def solve(profile: Profile, versions: Mapping[str, str]) -> Plan:
        options = index_options(profile, folder, offline=offline, refresh=refresh)
        keep = preferences(old[profile.name], upgrade)
        try:
            return _solve_profile(profile, request(profile, keep), options, versions)
        except GpuEnvError as error:
            error.message = _with_profile(error, profile)
            raise

    plans, shared = share_versions(
        project.profiles, selected, _versions_of_locks(old), solve, _known_versions
    )
    locked = []
    for profile in profiles:
        plan = plans[profile.name]
        locked.append(
            LockedProfile(
                profile=profile,
                path=project.lock_path(profile),
                old=old[profile.name],
                new=_lock_of(profile, plan),
                warnings=plan.warnings,
            )
        )
    return LockedProject(profiles=tuple(locked), shared=shared)


def _ignore(line: str) -> None:
    del line


def _versions_of_locks(locks: Mapping[str, Lock | None]) -> dict[str, dict[str, str]]:
    """Return the versions of the frameworks in each lock that there is."""
    from ..project.shared_versions import versions_of

    return {name: versions_of(lock) for name, lock in locks.items() if lock is not None}


def _known_versions(framework: str, platform: str) -> list[str]:
    releases = matrix_catalog().entry(framework, platform).releases
    return [release.version for release in releases]


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


def write_profile_locks(locks: Mapping[str, Lock]) -> dict[str, str]:
    """Write the locks whose files differ: all of them, or none.

    Args:
        locks: The lock of each path.

    Returns:
        "written" or "unchanged" for each path.

    Raises:
        InputError: a file cannot be written.
    """
    from ..lock import pylock

    texts: dict[str, str] = {}
    for path, lock in locks.items():
        texts |= environments.lock_texts(lock, path, "conda-lock" if lock.conda else "")
    changed = {path: text for path, text in texts.items() if not _has_text(path, text)}
    pylock.write_texts(changed)
    return {path: "written" if path in changed else "unchanged" for path in locks}


def _has_text(path: str, text: str) -> bool:
    if not os.path.isfile(path):
        return False
    with open(path, "rb") as file:
        return file.read() == text.encode()


# ---- check and choose ----------------------------------------------------------------------------


def profile_states(folder: str, names: Sequence[str]) -> list[State]:
    """Return whether the lock of each named profile is what pyproject.toml asks for.

    Without names, return this for all profiles. Nothing is solved.
    """
    project = read_project(folder)
    return [_state(project, profile) for profile in project.select(names)]


def _state(project: Project, profile: Profile) -> State:
    from ..project.profiles import state

    return state(project, profile, environments.read_lock, data_version())


def fitting_lock(folder: str, host: Host, target: str = "") -> FittingLock:
    """Choose the profile whose lock fits a host best.

    A lock is checked with its own interpreter, not with the one that runs gpuenv. If `target` is a
    conda environment, only conda profiles count. If it is a virtual environment, only profiles of
    wheels count.

    Raises:
        HostMismatchError: the lock of no profile fits; the error has the facts against each lock.
    """
    from ..project.profiles import choose

    project = read_project(folder)
    states = {profile.name: _state(project, profile) for profile in project.profiles}
    locks: dict[str, Lock] = {}
    candidates, unusable = [], []
    for profile in _profiles_for(project.profiles, target):
        state = states[profile.name]
        if state.status in ("missing", "tampered", "unreadable"):
            unusable.append((profile, (_unusable(state),)))
            continue
        lock = environments.read_lock(state.path)
        locks[profile.name] = lock
        candidates.append((profile, lock, _reasons_against(lock, host)))
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


def _profiles_for(profiles: Sequence[Profile], target: str) -> Sequence[Profile]:
    """Return the profiles for the kind of an environment; all profiles if there is none."""
    if is_conda(target):
        return [profile for profile in profiles if profile.conda]
    if is_venv(target):
        return [profile for profile in profiles if not profile.conda]
    return profiles


def _reasons_against(lock: Lock, host: Host) -> tuple[Reason, ...]:
    if lock.conda:
        from .conda import reasons_against_lock

        return reasons_against_lock(lock, host)
    return lock_reasons(lock, with_python_of(host, lock))


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
    all_reasons: list[Reason] = []
    for profile, reasons in rows:
        path = project.lock_path(profile)
        all_reasons += [reason.replace(subject=path) for reason in reasons]
    return tuple(all_reasons)
