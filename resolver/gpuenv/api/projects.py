"""Projects: the profiles in [tool.gpuenv] of a pyproject.toml, and their locks."""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from .. import activity
from ..atomic_write import write_all, write_whole
from ..compat.data import compatibility_data
from ..errors import (
    GpuEnvError,
    HostMismatchError,
    InputError,
    NoSolutionError,
    Reason,
    did_you_mean,
)
from ..index.source_trees import absolute
from ..index.urls import file_url_to_path
from ..lock import pylock
from ..model import Host, IndexOptions, Lock, Plan, Value
from ..prefix import is_conda, is_venv, sites
from ..project import init, profiles, read
from ..project.init import Beginning
from ..project.profiles import Profile, Project, State
from ..project.shared_versions import SharedVersion, share_versions, versions_of
from ..requirements.target import normalize_name, parse_requirement
from ..resolve.plan import digest
from ..resolve.requested import with_versions
from ..serialize import read_input, read_toml
from . import environments, wheels
from .data import data_version, matrix_catalog
from .hosts import with_python_of
from .installing import lock_reasons, recorded_lock


class LockedProfile(Value):
    """A profile with its new lock.

    `old` is the lock whose pins were kept, None if there is none to keep.
    """

    profile: Profile
    path: str
    old: Lock | None
    new: Lock
    plan: Plan


class ProjectState(Value):
    """The profiles of a project, whether their locks are up to date, and the locks by path."""

    project: Project
    states: tuple[State, ...]
    locks: Mapping[str, Lock]


class FittingLock(Value):
    """The lock that fits a host best.

    `profiles` are all whose locks fit, the best first; `state` is that of the best.
    """

    profiles: tuple[Profile, ...]
    state: State
    lock: Lock


def read_project(folder: str = "") -> Project:
    """Read the profiles of a folder's pyproject.toml.

    InputError says what is wrong with it, and where.
    """
    return read.read_project(folder, compatibility_data(), wheels.built_requirements)


def has_profiles(folder: str = "") -> bool:
    """Return whether the pyproject.toml of a folder has a [tool.gpuenv]."""
    path = os.path.join(folder, read.FILE)
    return os.path.isfile(path) and read.has_table(read_toml(path))


def uninstalled_project(prefix: str) -> str:
    """Return the name of the project in the working folder, if an environment does not have it.

    "" if the environment has it, or if it is no package, as for uv.
    """
    document = read_toml(read.FILE)
    is_package = document.get("tool", {}).get("uv", {}).get("package", "build-system" in document)
    name = normalize_name(document.get("project", {}).get("name", ""))
    is_installed = any(importlib.metadata.distributions(name=name, path=sites(prefix)))
    return name if is_package and not is_installed else ""


def profile_of(lock: Lock, path: str) -> Profile | None:
    """Return the profile of the pyproject.toml beside a lock that the lock was made for, or None.

    Args:
        lock: the lock.
        path: its file.
    """
    folder, name = os.path.dirname(path), dict(lock.inputs).get("profile")
    profiles_here = read_project(folder).profiles if name and has_profiles(folder) else ()
    return next((profile for profile in profiles_here if profile.name == name), None)


def profile_places(profile: Profile, folder: str) -> IndexOptions:
    """Return the places that a profile names: indexes and folders.

    The folders include those of its requirements, such as ../library.
    """
    options = profiles.index_options(profile, folder)
    direct = [parse_requirement(text).url for text in profile.requests if " @ " in text]
    urls = [absolute(url, folder) for url in filter(None, direct)]
    paths = [file_url_to_path(url) for url in urls if url.startswith("file:")]
    folders = [path if os.path.isdir(path) else os.path.dirname(path) for path in paths]
    return options.replace(find_links=(*options.find_links, *folders))


@contextmanager
def changed_requirements(
    folder: str,
    *,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    group: str = "",
    extra: str = "",
    target: str | None = None,
) -> Iterator[None]:
    """Change the requirements in the pyproject.toml of a folder while something is done with it.

    The rest of the file stays as it is. If what is done fails, the file and the locks of all
    profiles are as before. They stay changed if the environment has the new lock already, because
    a signal came after that.

    Args:
        folder: the folder, "" for the working folder.
        add: PEP 508 texts; one replaces a requirement of the same name.
        remove: names.
        group: the dependency group that has them.
        extra: the extra of the project that has them.
        target: the folder of the environment that gets the lock, None for none.

    Raises:
        InputError: a requirement cannot be added or removed.
    """
    from ..project import edit  # tomlkit, which only this needs

    path = os.path.join(folder, read.FILE)
    place = os.path.realpath(path)  # a link stays one
    read.read_document(folder)  # raises an InputError that says what is wrong, and where
    before = {place: read_input(place), **_lock_files(folder)}
    chosen = (edit.GROUPS, group) if group else (edit.EXTRAS, extra) if extra else None
    text = edit.without_requirements(before[place].decode(), path, remove, chosen)
    text = edit.with_requirements(text, path, add, chosen, compatibility_data())
    recorded = _recorded(target)
    try:
        write_whole(place, text.encode())
        yield
    except BaseException:
        if _recorded(target) != recorded:
            raise
        now = {place: read_input(place), **_lock_files(folder)}
        write_all({path: content for path, content in before.items() if now.get(path) != content})
        for path in now.keys() - before.keys():
            os.unlink(path)
        activity.current.announce(f"{read.FILE} and the locks are as before")
        raise


def _recorded(target: str | None) -> Lock | None:
    """Return the lock that an environment has; None if it has none that can be read."""
    with suppress(GpuEnvError):
        return None if target is None else recorded_lock(target)
    return None


def _lock_files(folder: str) -> dict[str, bytes]:
    """Return the content of each file in a folder that has the name of a profile's lock."""
    patterns = ("pylock.*.toml", "*.conda-lock.yml")
    paths = [path for pattern in patterns for path in Path(folder).glob(pattern) if path.is_file()]
    return {str(path): read_input(str(path)) for path in paths}


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
    python: str = "",
    ci: bool = True,
) -> Beginning:
    """Write a first [tool.gpuenv] into the pyproject.toml of a folder, or add profiles to it.

    Args:
        folder: the folder, "" for the working folder.
        hosts: the GPUs of each become a profile.
        frameworks: the frameworks of a first table; () finds them in the files of the project.
        name: the name of the new profile; "" names each by its GPUs.
        python: the Python X.Y of a first table; "" takes the one that the files name.
        ci: whether a first table has a profile without a GPU, for CI.

    Raises:
        InputError: no framework was found, a profile cannot be added, or the file cannot be
            written.
    """
    begun = init.begin(
        folder,
        hosts,
        compatibility_data(),
        frameworks=tuple(frameworks),
        name=name,
        python=python,
        ci=ci,
        name_of=lambda url: wheels.name_of_project(url, hosts[0], IndexOptions()),
    )
    if begun.addition:
        init.write(begun)
    return begun


# ---- lock ----------------------------------------------------------------------------------------


def lock_profiles(
    folder: str,
    names: Sequence[str],
    *,
    upgrade: Sequence[str] | None,
    options: IndexOptions | None,
    warn: Callable[[str], None],
) -> tuple[list[LockedProfile], tuple[SharedVersion, ...]]:
    """Solve for several profiles; nothing is written. An error names the profile that it is about.

    All profiles of the project get one version of each framework, unless a profile says otherwise
    or there is no such version. The locks of profiles that are not named stay as they are.

    Args:
        folder: the folder of the project, "" for the working folder.
        names: the names of the profiles; () is all of them.
        upgrade: the packages whose pins are not kept; () keeps none, None keeps all.
        options: where packages may come from beside the indexes of the profiles.
        warn: is called with a line for each lock whose pins cannot be kept.

    Returns:
        (the profiles with their new locks, the frameworks of which profiles have, or would have,
        different versions).

    Raises:
        InputError: an unknown profile or package, or a folder that cannot be written.
        NoSolutionError: there is no solution for a profile.
    """
    project = read_project(folder)
    selected = project.select(names)
    if not os.access(folder or ".", os.W_OK | os.X_OK):
        raise InputError(f"the folder {folder or '.'} cannot be written")
    old: dict[str, Lock | None] = {}
    for profile in project.profiles:
        path = project.lock_path(profile)
        try:
            old[profile.name] = environments.read_lock(path) if os.path.lexists(path) else None
        except InputError as error:
            old[profile.name] = None
            if profile in selected:  # the lock of another profile only says which versions it has
                warn(f"{error.message}: its pins are not kept")
    _require_pins(upgrade or (), project, [old[profile.name] for profile in selected])

    for profile in selected:
        earlier = old[profile.name]
        if not profile.requests and (earlier is None or not earlier.pins):
            message = f"{project.path}: tool.gpuenv.profiles.{profile.name} asks for nothing"
            raise InputError(message, hint="gpuenv add NAME")

    def solve(profile: Profile, versions: Mapping[str, str]) -> Plan:
        places = profiles.index_options(profile, folder, options)
        request, earlier = profiles.request(profile), old[profile.name]
        if earlier is not None:
            request = profiles.with_earlier(request, earlier, upgrade)
        try:
            changed = with_versions(request, versions, compatibility_data())
            host = profiles.host_of(profile, compatibility_data())
            plan = environments.solve(changed, host, places, changes=not versions)
        except GpuEnvError as error:
            if isinstance(error, NoSolutionError):
                error.message = f"no environment for {error.explanation.subject} as described"
            error.message = f"profile {profile.name}: {error.message}"
            raise
        # The versions choose among the solutions of the profile, as the pins of an earlier lock do.
        plan = plan.replace(request=request)
        return plan.replace(digest=digest(plan))

    def known_versions(framework: str, platform: str) -> list[str]:
        releases = matrix_catalog().entry(framework, platform).releases
        return [release.version for release in releases]

    plans, shared = share_versions(
        project.profiles,
        {profile.name for profile in selected},
        {name: versions_of(lock) for name, lock in old.items() if lock is not None},
        solve,
        known_versions,
    )
    locked = []
    for profile in selected:
        plan = plans[profile.name]
        new = environments.lock(plan)
        new = new.replace(inputs=(*new.inputs, *profiles.inputs(profile)))
        path, earlier = project.lock_path(profile), old[profile.name]
        locked.append(LockedProfile(profile=profile, path=path, old=earlier, new=new, plan=plan))
    return locked, shared


def _require_pins(names: Sequence[str], project: Project, locks: Sequence[Lock | None]) -> None:
    """Raise InputError if none of the locks has a package that --upgrade names."""
    pinned = {pin.wheel.name for lock in locks if lock is not None for pin in lock.pins}
    for name in names:
        if name not in pinned:
            is_profile = any(profile.name == name for profile in project.profiles)
            hint = did_you_mean(name, pinned)
            if is_profile:
                hint = f"profiles come before it: gpuenv lock {name} --upgrade"
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
    texts: dict[str, str] = {}
    for path, lock in locks.items():
        texts |= environments.lock_texts(lock, path, "conda-lock" if lock.conda else "")
    changed = {
        path: text
        for path, text in texts.items()
        if not os.path.isfile(path) or read_input(path) != text.encode()
    }
    pylock.write_texts(changed)
    return {path: "written" if path in changed else "unchanged" for path in locks}


# ---- check and choose ----------------------------------------------------------------------------


def project_state(folder: str = "", names: Sequence[str] = ()) -> ProjectState:
    """Read a project, and whether the lock of each named profile is what pyproject.toml asks for.

    Without names, this is for all profiles. Nothing is solved.
    """
    project, locks = read_project(folder), dict[str, Lock]()

    def read_lock(path: str) -> Lock:
        locks[path] = environments.read_lock(path)
        return locks[path]

    states = tuple(
        profiles.state(project, profile, read_lock, data_version())
        for profile in project.select(names)
    )
    return ProjectState(project=project, states=states, locks=locks)


def fitting_lock(of_project: ProjectState, host: Host, target: str = "") -> FittingLock:
    """Choose the profile whose lock fits a host best.

    A lock is checked with its own interpreter, not with the one that runs gpuenv. If `target` is a
    conda environment, only conda profiles count. If it is a virtual environment, only profiles of
    wheels count.

    Raises:
        HostMismatchError: the lock of no profile fits; the error has the facts against each lock.
    """
    project = of_project.project
    states = {state.profile: state for state in of_project.states}
    candidates: list[tuple[Profile, Lock, tuple[Reason, ...]]] = []
    unusable: list[tuple[Profile, tuple[Reason, ...]]] = []
    backends: tuple[str, ...] = ("pip", "conda")
    if is_conda(target) or is_venv(target):
        backends = ("conda",) if is_conda(target) else ("pip",)
    for profile in project.profiles:
        state = states[profile.name]
        if profile.backend not in backends:
            continue
        if state.status in ("missing", "tampered", "unreadable"):
            code, have = f"lock-{state.status}", f"it is {state.status}"
            reason = Reason(code, state.path, "to be locked", have)
            unusable.append((profile, (reason,)))
        else:
            lock = of_project.locks[state.path]
            reasons = lock_reasons(lock, with_python_of(host, lock))
            candidates.append((profile, lock, reasons))
    fitting, others = profiles.choose(candidates, host)
    if not fitting:
        raise HostMismatchError(
            f"the lock of no profile in {project.path} fits this host; nothing was installed",
            tuple(
                reason.replace(subject=project.lock_path(profile))
                for profile, reasons in (*others, *unusable)
                for reason in reasons
            ),
            hint="" if others else "run gpuenv lock",
        )
    best = fitting[0]
    return FittingLock(
        profiles=fitting,
        state=states[best.name],
        lock=of_project.locks[states[best.name].path],
    )
