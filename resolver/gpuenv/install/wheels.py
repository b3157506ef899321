"""Installation of wheels into a virtual environment, by uv if it is installed, else by pip.

The new environment is built beside the old one and takes its place at once (`transaction`). What
did not change is linked from the old one. An environment that gpuenv made holds exactly the lock
afterwards. From any other environment nothing is removed, unless the caller asks for it.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from ..compat.data import compatibility_data
from ..compat.extensions import may_describe_itself_as
from ..errors import InputError, InstallError, NotVerifiedError
from ..interpreters import find_base_interpreter
from ..model import (
    EnvironmentChanges,
    IndexOptions,
    Lock,
    PackageChange,
    Pin,
    Value,
    major_minor,
    quantity_text,
    show_pair,
)
from ..prefix import (
    INSTALLATION_TOOLS,
    editable_url,
    find_interpreter,
    interpreter_of,
    is_native,
    is_venv,
    venv_version,
)
from ..requirements.source_urls import is_editable
from .downloads import download, ignore, with_local_files
from .environment_files import (
    Build,
    BuiltPackage,
    Package,
    is_unchanged,
    link_environment,
    read_build,
    read_packages,
    record_digest,
    rewrite_paths,
    shared_files,
    write_build,
    write_recorded_lock,
)
from .extensions import built_with, label, require_compilers
from .installers import Installer, find_installer
from .transaction import change, check_place, place_of

Progress = Callable[[str], None]
Approve = Callable[[EnvironmentChanges], None]
Prove = Callable[[str], bool]
WAIT = 600.0  # seconds to wait for another run on the same target


def sync(
    lock: Lock,
    target: str,
    *,
    installer: str = "auto",
    python: str | None = None,
    exact: bool | None = None,
    remove: Collection[str] | None = None,
    unneeded: Collection[str] = (),
    record: str = "",
    wait: float = WAIT,
    approve: Approve | None = None,
    prove: Prove | None = None,
    progress: Progress | None = None,
    builds: IndexOptions | None = None,
) -> str:
    """Install a lock into the environment at `target`, and return its interpreter.

    The environment holds the lock afterwards, or it is as it was.

    Args:
        lock: The files to install.
        target: The folder of the environment; it is made if it is missing or empty.
        installer: uv, pip or auto.
        python: The version or the interpreter for a new environment.
        exact: Whether to remove what the lock does not name; None removes it from an environment
            that gpuenv made.
        remove: None for a whole lock. Otherwise the lock has only what is added or changed, these
            distributions are removed, and all others stay.
        unneeded: Distributions that are removed although `exact` is false.
        record: The text of the lock, which the environment keeps; "" for a part of a lock.
        wait: Seconds to wait for another run on the same target.
        approve: Called with the changes of an existing environment; raises an error to decline.
        prove: Called with the interpreter of the new environment before it takes its place;
            returns whether it works.
        progress: Called with a line before each step.
        builds: Where the build requirements of source distributions come from.

    Raises:
        InputError: The target, the installer or the interpreter cannot be used.
        InstallError: The installer failed.
        ImmovableError: The target is a folder that the system cannot rename.
        NotVerifiedError: `prove` returned false, or packages install different libraries at one
            path.
        TargetBusyError: Another run changed the target all the time.
    """
    report = progress or ignore
    target = place_of(target)
    with change(target, wait=wait, report=report) as transaction:
        tool, base = check(lock, target, installer=installer, python=python)
        before = read_build(target)
        work = _plan(lock, target, before, exact=exact, remove=remove, unneeded=unneeded)
        if base is None and approve is not None:
            approve(work.changes)
        require_compilers(lock, work.install)
        if base is not None or work.install or work.dropped:
            stage = transaction.stage
            if base is None:
                link_environment(target, stage, work.kept, work.dropped, exact=work.exact)
            else:
                report(f"making {target} with {base}")
                tool.make(base, stage, os.path.basename(target))
            if work.install:
                report(f"installing {quantity_text(len(work.install), 'package')} with {tool.name}")
                changed, options = lock.replace(pins=work.install), builds or IndexOptions()
                for part in _in_order(changed):
                    tool.install(part, interpreter_of(stage), transaction.work, options)
            packages = read_packages(stage)
            _check_owners(target, packages, work.install, report)
            old_path = before.path if before is not None else target
            old = re.compile(re.escape(os.fsencode(old_path)) + rb"(?![\w.-])")
            new = os.fsencode(target).replace(b"\\", rb"\\")
            rewrite_paths(stage, (transaction.final_path(), (old, new)))
            recorded = {}
            if remove is not None and before is not None:
                names = {package.name for package in work.kept}
                recorded = {name: row for name, row in before.packages.items() if name in names}
            build = Build(
                token=transaction.token,
                path=target,
                made=work.made,
                verified=prove is not None,
                lock=record,
                packages=recorded | _built_packages(lock, stage, packages, tool.name),
            )
            write_build(stage, build)
            if prove is not None and not prove(interpreter_of(stage)):
                raise NotVerifiedError(
                    f"{target} is as it was: the new environment was not verified",
                    hint="--no-verify installs it",
                )
            transaction.commit()
            return interpreter_of(target)
        if record:
            write_recorded_lock(target, record)
    report(f"{target} has the {quantity_text(len(lock.pins), 'package')} of the lock already")
    if prove is not None and not prove(interpreter_of(target)):
        raise NotVerifiedError(f"{target} was not verified; nothing was changed")
    return interpreter_of(target)


def changes(lock: Lock, target: str, *, exact: bool | None = None) -> EnvironmentChanges:
    """Return what `sync` would change. Nothing is written."""
    target = place_of(target)
    return _plan(lock, target, read_build(target), exact=exact).changes


def add(
    lock: Lock,
    python: str,
    *,
    remove: Sequence[str] = (),
    installer: str = "auto",
    progress: Progress | None = None,
    builds: IndexOptions | None = None,
) -> None:
    """Remove the distributions named `remove`, then install the files of a lock.

    Nothing else in the environment of the interpreter changes. Raises as `sync` does.
    """
    report, options = progress or ignore, builds or IndexOptions()
    tool = find_installer(installer)
    with tempfile.TemporaryDirectory(prefix="gpuenv-") as folder:
        if remove and lock.pins:
            # Nothing is removed before all files are here.
            files = os.path.join(folder, "files")
            download(lock, files, wait=WAIT, report=report, builds=options)
            lock = with_local_files(lock, [files], no_index=True)
        if remove:
            report(f"removing {', '.join(remove)}")
            tool.remove(python, remove)
        if lock.pins:
            report(f"installing {quantity_text(len(lock.pins), 'package')} with {tool.name}")
            for part in _in_order(lock):
                tool.install(part, python, folder, options)


def check(
    lock: Lock, target: str, *, installer: str = "auto", python: str | None = None
) -> tuple[Installer, str | None]:
    """Check what can be checked before anything is written.

    Returns:
        The installer, and the interpreter that makes the environment; None if it exists.

    Raises:
        InputError: As `sync`.
    """
    tool, target = find_installer(installer), place_of(target)
    check_place(target)
    if not _has_files(target):
        return tool, find_base_interpreter(lock, python)
    if not is_venv(target) or find_interpreter(target) is None:
        raise InputError(f"--target {target}: has files in it and is no virtual environment")
    version = major_minor(venv_version(target))
    if version is None:
        config = os.path.join(target, "pyvenv.cfg")
        raise InputError(f"{config}: does not say which Python it is for")
    if lock.needs.python is not None and version != lock.needs.python:
        have, need = show_pair(version), show_pair(lock.needs.python)
        message = f"--target {target}: is for Python {have}, and the lock is for Python {need}"
        hint = f"make it again: rm -r {shlex.quote(target)}, or name another one: --target DIR"
        raise InputError(message, hint=hint)
    return tool, None


def can_be_replaced(prefix: str) -> bool:
    """Return whether a folder is a virtual environment that another can take the place of.

    A folder of a lower image layer shows only when it is renamed that it cannot be.
    """
    above = os.path.dirname(place_of(prefix))
    return is_venv(prefix) and not os.path.ismount(prefix) and os.access(above, os.W_OK | os.X_OK)


# ---- folders that can become an environment ------------------------------------------------------


def _has_files(target: str) -> bool:
    """Return whether there is a folder that is not empty."""
    return os.path.isdir(target) and bool(os.listdir(target))


# ---- what changes -------------------------------------------------------------------------------


class _Work(Value):
    """What a sync does: which files it installs, and which packages it keeps or leaves out.

    `made` is whether gpuenv made the environment, `exact` whether it gets only what a package owns.
    """

    install: tuple[Pin, ...]
    kept: tuple[Package, ...]
    dropped: tuple[Package, ...]
    exact: bool
    made: bool
    changes: EnvironmentChanges


def _plan(
    lock: Lock,
    target: str,
    build: Build | None,
    *,
    exact: bool | None,
    remove: Collection[str] | None = None,
    unneeded: Collection[str] = (),
) -> _Work:
    """Compare a lock with what is installed, and with the record of the environment."""
    made = build.made if build is not None else not _has_files(target)
    is_asked = exact is not None
    if exact is None:
        exact = made and remove is None
    packages = read_packages(target)
    pins = {pin.wheel.name: pin for pin in lock.pins}
    kept_names = _kept_names(target, packages, lock, build, exact=exact)
    if not is_asked:
        infos = {package.name: os.path.join(target, package.info) for package in packages}
        kept_names |= {name for name in infos.keys() - pins if editable_url(infos[name])}
    kept_names -= {*(remove or ()), *unneeded}
    for family in compatibility_data().tolerated:  # its members are installed in their order
        members = pins.keys() & family.distributions
        if members - kept_names:
            kept_names -= members
    return _Work(
        install=tuple(pin for name, pin in pins.items() if name not in kept_names),
        kept=tuple(package for package in packages if package.name in kept_names),
        dropped=tuple(package for package in packages if package.name not in kept_names),
        exact=exact,
        made=made,
        changes=_changes(target, pins, packages, build, kept_names),
    )


def _changes(
    target: str,
    pins: Mapping[str, Pin],
    packages: Sequence[Package],
    build: Build | None,
    kept_names: Collection[str],
) -> EnvironmentChanges:
    """Return what becomes of the packages in a target if those of some names are kept."""
    recorded = {} if build is None else build.packages
    installed = {package.name: package.version for package in packages}
    rows: dict[str, list[PackageChange]] = {"add": [], "change": [], "again": []}
    for name, pin in pins.items():
        before, after = installed.get(name, ""), pin.wheel.version
        kind = "again"
        if name not in installed:
            kind = "add"
        elif not (is_editable(pin.wheel) or may_describe_itself_as(after, before)):
            kind = "change"
        elif name in kept_names:
            continue
        rows[kind].append(PackageChange(name=name, before=before, after=after))
    gone = sorted(installed.keys() - pins.keys() - set(kept_names))
    return EnvironmentChanges(
        target=target,
        **{kind: tuple(changes) for kind, changes in rows.items()},
        remove=tuple(PackageChange(name=name, before=installed[name]) for name in gone),
        verified=build is not None and build.verified,
        confirm=tuple(name for name in gone if name not in recorded),
    )


def _kept_names(
    target: str,
    packages: Sequence[Package],
    lock: Lock,
    build: Build | None,
    *,
    exact: bool,
) -> set[str]:
    """Return the packages that need not be installed, and those that are not the lock's business.

    They are those that nothing has changed since `sync` built them from the same files.
    """
    pins = {pin.wheel.name: pin for pin in lock.pins}
    names = [package.name for package in packages]
    others = set(names) - pins.keys()
    if exact:
        others &= INSTALLATION_TOOLS
    as_locked = []
    # The scripts of an environment that was moved start the interpreter at the old place.
    if build is not None and build.path == target:
        shared = shared_files(packages)
        for package in packages:
            pin, known = pins.get(package.name), build.packages.get(package.name)
            if pin is None or names.count(package.name) > 1:
                continue
            if pin.wheel.sha256 is None and not is_editable(pin.wheel):
                continue  # the files of a folder may have changed
            is_same = known == _built_package(lock, pin, target, package.info)
            if is_same and is_unchanged(target, package, shared):
                as_locked.append(package)
    # A package that shares a file with one that is left out is installed again.
    stay = {package.name for package in as_locked} | others
    lost = {path for package in packages if package.name not in stay for path in package.files}
    return {package.name for package in as_locked if lost.isdisjoint(package.files)} | others


def _built_packages(
    lock: Lock, stage: str, packages: Iterable[Package], tool: str
) -> dict[str, BuiltPackage]:
    """Return what the record says of each package. InstallError if one is not there."""
    infos = {package.name: package.info for package in packages}
    built = {}
    for pin in lock.pins:
        name = pin.wheel.name
        built[name] = _built_package(lock, pin, stage, infos.get(name, ""))
        if not built[name].record:
            raise InstallError(f"{tool} has not installed {name} {pin.wheel.version}")
    return built


def _built_package(lock: Lock, pin: Pin, prefix: str, info: str) -> BuiltPackage:
    """Return what the record says of an installed package. `info` is its folder of metadata."""
    digest = record_digest(prefix, info)
    return BuiltPackage(pin.wheel.version, pin.wheel.sha256, digest, label(lock, pin, prefix))


# ---- one owner of each path ----------------------------------------------------------------------


def _in_order(lock: Lock) -> Iterator[Lock]:
    """Yield the parts of a lock that are installed one after the other.

    Packages that are compiled for another one come after it. The members of a tolerated family are
    in different parts, in their order: uv writes the files of one part at the same time.
    """
    pins = {pin.wheel.name: pin for pin in lock.pins}
    later = []
    for family in compatibility_data().tolerated:
        later += [name for name in family.distributions if name in pins][1:]
    first = [pin for name, pin in pins.items() if name not in later]
    compiled = [pin for pin in first if built_with(pin)]
    others = [pin for pin in first if pin not in compiled]
    for part in (others, compiled, *([pins[name]] for name in later)):
        if part:
            yield lock.replace(pins=tuple(part))


def _check_owners(
    target: str,
    packages: Iterable[Package],
    new: Iterable[Pin],
    report: Progress,
) -> None:
    """Check R5 by the RECORDs: no new package overwrites what is different in another one.

    NotVerifiedError for a library. Of other files a line is reported for each group of packages.
    """
    files: dict[tuple[str, ...], list[str]] = {}
    new_names = {pin.wheel.name for pin in new}
    tolerated = [{*family.distributions} for family in compatibility_data().tolerated]
    for path, rows in sorted(shared_files(packages).items()):
        names = tuple(sorted(rows))
        is_same = len({row.digest for row in rows.values()}) == 1
        is_tolerated = any(family.issuperset(names) for family in tolerated)
        if is_same or is_tolerated or new_names.isdisjoint(names):
            continue
        if is_native(path):
            raise NotVerifiedError(
                f"{target} is as it was: {' and '.join(names)} install different files at {path}",
                hint="one of them would overwrite the other: keep only one",
            )
        files.setdefault(names, []).append(path)
    for names, paths in files.items():
        text = f"warning: {' and '.join(names)} install different files at {paths[0]}"
        report(f"{text} ({len(paths)} in all): one overwrites the other")
