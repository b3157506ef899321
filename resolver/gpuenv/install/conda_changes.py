"""What a conda lock changes in an existing prefix, and what speaks against these changes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..compat.conda_parts import some
from ..compat.conda_records import Carriers
from ..errors import HostMismatchError, InputError, Reason
from ..model import EnvironmentChanges, Lock, PackageChange, Pin, Requirement, Wheel
from ..requirements import conda_versions
from ..requirements.conda_settings import read_pins
from ..requirements.versions import contains, normalize_name
from .conda_history import requested_specs
from .conda_prefix import (
    distributions_of_conda,
    read_packages,
    requirements_of,
    wheels_in,
)

# A prefix with one of these runs the user's conda: without it no environment can be repaired.
_MANAGERS = ("conda", "mamba", "micromamba")
_PYTHON = {"python", "python_abi"}
_Record = Mapping[str, Any]


def plan_changes(
    lock: Lock,
    target: str,
    *,
    exact: bool,
    requested: Sequence[str],
    carriers: Carriers,
    leaving: Collection[str] = (),
) -> EnvironmentChanges:
    """Return what the installation of a lock changes in a prefix. Nothing is written.

    Args:
        lock: The lock of the conda packages.
        target: The prefix.
        exact: Whether packages that the lock does not name are removed.
        requested: The specs of the lock: of these packages, earlier specs do not hold.
        carriers: Has the distributions whose packages have another name.
        leaving: The wheels that gpuenv removes.

    Raises:
        InputError: The prefix cannot be read, or it holds conda and would lose packages.
        HostMismatchError: The lock does not fit what is in the prefix.
    """
    installed = read_packages(target, strict=True)
    locked = {pin.wheel.name: pin.wheel for pin in lock.pins}
    removed = sorted(installed.keys() - locked.keys()) if exact else []
    _require_no_manager(target, installed, removed)
    changes = _changes(target, installed, locked, removed)
    changed = _Changed(installed, locked, changes)
    beside = {} if lock.wheels is None else {pin.wheel.name: pin.wheel for pin in lock.wheels.pins}
    reasons = [
        *_pin_reasons(target, changed),
        *_dependency_reasons(changed),
        *_overwritten_wheels(target, changed, carriers, leaving),
        *_wheel_reasons(target, changed, carriers, {*leaving, *beside}),
    ]
    if not exact:
        reasons += _request_reasons(target, changed, requested)
        reasons += _python_reasons(target, changed, leaving)
        reasons += _overwritten_packages(target, beside)
    if reasons:
        message = "the lock does not fit the packages of the environment; nothing was installed"
        hint = "use another environment, or gpuenv install, which solves with what is there"
        raise HostMismatchError(message, tuple(reasons), hint=hint)
    return _with_wheels(changes, beside, leaving)


def _require_no_manager(
    target: str, installed: Mapping[str, _Record], removed: Sequence[str]
) -> None:
    managers = [name for name in _MANAGERS if name in installed]
    if managers and removed:
        message = f"--exact would remove {some(removed)} from {target}, which holds {managers[0]}"
        raise InputError(message, hint="install into another environment")


def _changes(
    target: str,
    installed: Mapping[str, _Record],
    locked: Mapping[str, Wheel],
    removed: Sequence[str],
) -> EnvironmentChanges:
    added, changed = [], []
    for name, wheel in locked.items():
        record, after = installed.get(name), f"{wheel.version} {wheel.metadata['build']}"
        if record is None:
            added.append(PackageChange(name=name, after=after))
        elif (record.get("sha256"), _build_of(record)) != (wheel.sha256, after):
            changed.append(PackageChange(name=name, before=_build_of(record), after=after))
    return EnvironmentChanges(
        target=target,
        add=tuple(added),
        change=tuple(changed),
        remove=tuple(
            PackageChange(name=name, before=_build_of(installed[name])) for name in removed
        ),
    )


def _with_wheels(
    changes: EnvironmentChanges, beside: Mapping[str, Wheel], leaving: Collection[str]
) -> EnvironmentChanges:
    """Return the changes with those of the wheels beside the conda packages."""
    installed = {wheel.name: wheel.version for wheel in wheels_in(changes.target)}
    removed = [
        PackageChange(name=name, before=installed[name], wheel=True)
        for name in leaving
        if name in installed
    ]
    added, changed = [], []
    for name, wheel in beside.items():
        before = installed.get(name, "")
        change = PackageChange(name=name, before=before, after=wheel.version, wheel=True)
        if not before:
            added.append(change)
        elif before != wheel.version:
            changed.append(change)
    changes = changes.replace(
        add=(*changes.add, *added),
        change=(*changes.change, *changed),
        remove=(*changes.remove, *removed),
    )
    confirm = tuple(change.name for change in (*changes.change, *changes.remove))
    return changes.replace(confirm=confirm)


def _build_of(record: _Record) -> str:
    return f"{record.get('version')} {record.get('build')}"


class _Changed:
    """The packages that a lock adds or changes, beside those that stay."""

    def __init__(
        self,
        installed: Mapping[str, _Record],
        locked: Mapping[str, Wheel],
        changes: EnvironmentChanges,
    ) -> None:
        names = [change.name for change in (*changes.add, *changes.change)]
        gone = {change.name for change in changes.remove}
        self.before = installed
        self.after = {name: locked[name] for name in names}
        self.staying = [
            record for name, record in installed.items() if name not in locked and name not in gone
        ]

    def met_before(self, spec: str) -> bool:
        """Return whether the prefix has the package that a spec asks for."""
        name = conda_versions.name_of(spec)
        record = self.before.get(name)
        if record is None:
            return False
        version, build = str(record.get("version")), str(record.get("build"))
        return conda_versions.matches(spec, name, version, build)

    def violated_by(self, spec: str) -> Wheel | None:
        """Return the new build of the package of a spec if it is not what the spec asks for."""
        wheel = self.after.get(conda_versions.name_of(spec))
        if wheel is None:
            return None
        build = str(wheel.metadata["build"])
        if conda_versions.matches(spec, wheel.name, wheel.version, build):
            return None
        return wheel


def _have(wheel: Wheel) -> str:
    return f"{wheel.name} {wheel.version} {wheel.metadata['build']} in the lock"


def _pin_reasons(target: str, changed: _Changed) -> Iterator[Reason]:
    """Yield the pins of the prefix and of conda's settings that the lock violates. Code: pinned."""
    for subject, spec in read_pins(target, os.environ):
        wheel = changed.violated_by(spec)
        if wheel is not None:
            yield Reason(code="pinned", subject=subject, need=spec, have=_have(wheel))


def _request_reasons(target: str, changed: _Changed, requested: Sequence[str]) -> Iterator[Reason]:
    """Yield the earlier requests that the lock violates and does not replace. Code: requested."""
    replaced = {conda_versions.name_of(spec) for spec in requested}
    for name, spec in requested_specs(target, changed.before).items():
        wheel = changed.violated_by(spec)
        if name not in replaced and wheel is not None:
            subject = "the history of the environment"
            yield Reason(code="requested", subject=subject, need=spec, have=_have(wheel))


def _dependency_reasons(changed: _Changed) -> Iterator[Reason]:
    """Yield what packages that stay need and have now, and would lose. Code: conflict."""
    for record in changed.staying:
        subject = f"{record['name']} {record.get('version')}"
        met = [spec for spec in record.get("depends") or () if changed.met_before(spec)]
        for spec in (*met, *_met_constraints(record, changed)):
            wheel = changed.violated_by(spec)
            if wheel is not None:
                yield Reason(code="conflict", subject=subject, need=spec, have=_have(wheel))


def _met_constraints(record: _Record, changed: _Changed) -> Iterator[str]:
    """Yield the constraints of a package that hold now."""
    for spec in record.get("constrains") or ():
        if conda_versions.name_of(spec) not in changed.before or changed.met_before(spec):
            yield spec


def _python_reasons(target: str, changed: _Changed, leaving: Collection[str]) -> Iterator[Reason]:
    """Yield the wheels that another Python would not find. Code: wheel-python."""
    before, python = changed.before.get("python"), changed.after.get("python")
    if before is None or python is None:
        return
    minor = ".".join(str(before.get("version")).split(".")[:2])
    if conda_versions.contains(f"{minor}.*", python.version):
        return
    for wheel in wheels_in(target, leaving):
        subject = f"{wheel.name} {wheel.version} (wheel)"
        need = f"Python {minor}"
        yield Reason(code="wheel-python", subject=subject, need=need, have=_have(python))


def _wheel_reasons(
    target: str, changed: _Changed, carriers: Carriers, leaving: Collection[str]
) -> Iterator[Reason]:
    """Yield what wheels that stay need and have now, and would lose. Code: conflict."""
    before = {
        carriers.distributions.get(name) or normalize_name(name): str(record.get("version"))
        for name, record in changed.before.items()
    }
    after = _providers(changed.after.values(), carriers)
    for distribution in wheels_in(target, leaving):
        subject = f"{distribution.name} {distribution.version} (wheel)"
        for requirement in requirements_of(distribution):
            wheel = after.get(requirement.name)
            if wheel is None or not _admits(requirement, before.get(requirement.name)):
                continue
            if not _admits(requirement, wheel.version):
                need = f"{requirement.name}{requirement.specifier}"
                yield Reason(code="conflict", subject=subject, need=need, have=_have(wheel))


def _admits(requirement: Requirement, version: str | None) -> bool:
    try:
        return version is not None and contains(requirement.specifier, version)
    except InputError:
        return False  # a version that is not of PEP 440


def _overwritten_wheels(
    target: str, changed: _Changed, carriers: Carriers, leaving: Collection[str]
) -> Iterator[Reason]:
    """Yield the wheels whose files conda packages would overwrite. Code: two-distributions."""
    packages = _providers(changed.after.values(), carriers)
    for wheel in wheels_in(target, leaving):
        package = packages.get(wheel.name)
        if package is not None:
            subject = f"{wheel.name} {wheel.version} (wheel)"
            need = f"to be uninstalled first (pip uninstall {wheel.name})"
            yield Reason(code="two-distributions", subject=subject, need=need, have=_have(package))


def distributions_of(pins: Sequence[Pin], carriers: Carriers) -> Collection[str]:
    """Return the Python distributions that conda packages may provide."""
    return _providers((pin.wheel for pin in pins), carriers).keys()


def _providers(packages: Iterable[Wheel], carriers: Carriers) -> dict[str, Wheel]:
    """Return {Python distribution: the conda package that may provide it}."""
    return {
        carriers.distributions.get(package.name) or normalize_name(package.name): package
        for package in packages
        if _may_be_distribution(package)
    }


def _overwritten_packages(target: str, beside: Mapping[str, Wheel]) -> Iterator[Reason]:
    """Yield the conda packages whose files wheels would overwrite. Code: two-distributions.

    A lock has no wheel of what its own conda packages provide, so these are packages that stay.
    """
    for distribution in distributions_of_conda(target):
        wheel = beside.get(distribution.name)
        if wheel is not None:
            subject = f"{distribution.name} {distribution.version} of conda"
            need = f"to be removed first (conda remove {distribution.name})"
            have = f"the wheel {wheel.name} {wheel.version} in the lock"
            yield Reason(code="two-distributions", subject=subject, need=need, have=have)


def _may_be_distribution(package: Wheel) -> bool:
    """Return whether a package depends on Python; an @EXPLICIT file does not say it."""
    if "depends" not in package.metadata:
        return True
    return any(conda_versions.name_of(spec) in _PYTHON for spec in package.metadata["depends"])
