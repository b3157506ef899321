"""What a conda lock changes in an existing prefix, and what speaks against these changes."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ..compat.conda_records import Carriers, Record
from ..distributions import Distribution
from ..errors import HostMismatchError, InputError, Reason
from ..model import EnvironmentChanges, Lock, PackageChange, Wheel, first_texts
from ..prefix import conda_packages
from ..requirements import conda_versions
from ..requirements.conda_settings import read_pins
from ..resolve.conda import planning
from ..resolve.conda.candidates import admits
from ..resolve.conda.wheels_beside import records_of
from . import conda_history
from .conda_prefix import distributions_in, left_over, requirements_of

# A prefix with one of these runs the user's conda: without it no environment can be repaired.
_MANAGERS = {"conda", "mamba", "micromamba"}
_Builds = Mapping[str, tuple[str, str]]  # {name: (version and build, sha256)}


def plan_changes(
    lock: Lock,
    target: str,
    carriers: Carriers,
    *,
    exact: bool,
) -> EnvironmentChanges:
    """Return what the installation of a lock changes in a prefix. Nothing is written.

    Args:
        lock: The lock of the conda packages.
        target: The prefix.
        carriers: Has the distributions whose packages have another name.
        exact: Whether packages that the lock does not name are removed.

    Raises:
        InputError: The prefix cannot be read, or it holds conda and would lose packages.
        HostMismatchError: The lock does not fit what is in the prefix.
    """
    installed = conda_packages(target, strict=True)
    locked = {record["name"]: record for record in records_of(lock.pins)}
    removed = sorted(installed.keys() - locked.keys()) if exact else []
    managers = sorted(installed.keys() & _MANAGERS)
    if managers and removed:
        message = (
            f"--exact would remove {first_texts(removed)} from {target}, which holds {managers[0]}"
        )
        raise InputError(message, hint="install into another environment")
    changes = _compared(
        EnvironmentChanges(target=target), _builds_of(installed), _builds_of(locked), removed
    )
    new = {change.name: locked[change.name] for change in (*changes.add, *changes.change)}
    distributions = distributions_in(target)
    leaving = left_over(target, lock.pins, lock.wheels, carriers, exact=exact)
    wheels = [row for row in distributions if not row.of_conda]
    staying = [row for row in wheels if row.name not in leaving]
    beside = {} if lock.wheels is None else {pin.wheel.name: pin.wheel for pin in lock.wheels.pins}
    reasons = [
        *_violations("pinned", read_pins(target, os.environ), new),
        *_violations("conflict", _met_needs(installed, {*locked, *removed}), new),
        *_overwritten_wheels(staying, carriers.providers(new.values())),
        *_wheel_reasons(staying, beside, installed, new, carriers),
    ]
    if not exact:
        requested = planning.requested_specs(lock.frameworks, lock.requirements, carriers)
        earlier = conda_history.requested_specs(target, installed, requested)
        history = "the history of the environment"
        reasons += _violations("requested", [(history, spec) for spec in earlier.values()], new)
        reasons += _python_reasons(staying, installed, new)
        reasons += _overwritten_packages(distributions, beside)
    if reasons:
        message = "the lock does not fit the packages of the environment; nothing was installed"
        hint = "use another environment, or gpuenv install, which solves with what is there"
        raise HostMismatchError(message, tuple(reasons), hint=hint)
    before = {row.name: (row.version, "") for row in wheels}
    after = {name: (wheel.version, "") for name, wheel in beside.items()}
    changes = _compared(changes, before, after, leaving, wheel=True)
    confirm = tuple(change.name for change in (*changes.change, *changes.remove))
    return changes.replace(confirm=confirm)


def _build_of(record: Record) -> str:
    return f"{record.get('version')} {record.get('build')}"


def _have(record: Record) -> str:
    return f"{record['name']} {_build_of(record)} in the lock"


def _builds_of(packages: Mapping[str, Record]) -> _Builds:
    return {
        name: (_build_of(record), str(record.get("sha256"))) for name, record in packages.items()
    }


def _compared(
    changes: EnvironmentChanges,
    before: _Builds,
    after: _Builds,
    removed: Collection[str],
    *,
    wheel: bool = False,
) -> EnvironmentChanges:
    """Return changes with those of further packages, before and after."""

    def change(name: str, old: str = "", new: str = "") -> PackageChange:
        return PackageChange(name=name, before=old, after=new, wheel=wheel)

    added = [change(name, "", after[name][0]) for name in after if name not in before]
    changed = [
        change(name, before[name][0], after[name][0])
        for name in after
        if name in before and before[name] != after[name]
    ]
    gone = [change(name, before[name][0]) for name in removed if name in before]
    return changes.replace(
        add=(*changes.add, *added),
        change=(*changes.change, *changed),
        remove=(*changes.remove, *gone),
    )


def _is_met(spec: str, packages: Mapping[str, Record]) -> bool | None:
    """Return whether the package that a spec asks for is of a build that it asks for.

    None if there is no such package.
    """
    record = packages.get(conda_versions.name_of(spec))
    if record is None:
        return None
    version, build = str(record.get("version")), str(record.get("build"))
    return conda_versions.matches(spec, record["name"], version, build)


def _violations(
    code: str, specs: Iterable[tuple[str, str]], new: Mapping[str, Record]
) -> Iterator[Reason]:
    """Yield what new packages violate of (subject, spec)."""
    for subject, spec in specs:
        if _is_met(spec, new) is False:
            have = _have(new[conda_versions.name_of(spec)])
            yield Reason(code, subject, spec, have)


def _met_needs(
    installed: Mapping[str, Record], leaving: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Yield (package, spec) of what is met now: what packages that stay need and constrain."""
    for name, record in installed.items():
        if name in leaving:
            continue
        subject = f"{record['name']} {record.get('version')}"
        for spec in record.get("depends") or ():
            if _is_met(spec, installed):
                yield subject, spec
        for spec in record.get("constrains") or ():
            if _is_met(spec, installed) is not False:
                yield subject, spec


def _python_reasons(
    wheels: Sequence[Distribution],
    installed: Mapping[str, Record],
    new: Mapping[str, Record],
) -> Iterator[Reason]:
    """Yield the wheels that another Python would not find. Code: wheel-python."""
    if "python" not in installed or "python" not in new:
        return
    minor = ".".join(str(installed["python"].get("version")).split(".")[:2])
    if conda_versions.contains(f"{minor}.*", new["python"]["version"]):
        return
    for wheel in wheels:
        subject = f"{wheel.name} {wheel.version} (wheel)"
        need, have = f"Python {minor}", _have(new["python"])
        yield Reason("wheel-python", subject, need, have)


def _wheel_reasons(
    wheels: Sequence[Distribution],
    beside: Collection[str],
    installed: Mapping[str, Record],
    new: Mapping[str, Record],
    carriers: Carriers,
) -> Iterator[Reason]:
    """Yield what wheels that stay need and have now, and would lose. Code: conflict.

    A wheel of a name in `beside` is replaced.
    """
    before, after = carriers.providers(installed.values()), carriers.providers(new.values())
    for wheel in wheels:
        if wheel.name in beside:
            continue
        subject = f"{wheel.name} {wheel.version} (wheel)"
        for requirement in requirements_of(wheel):
            old, record = before.get(requirement.name), after.get(requirement.name)
            if old is None or record is None or requirement.marker:
                continue
            versions = (str(old.get("version")), str(record.get("version")))
            if [admits(requirement.specifier, version) for version in versions] == [True, False]:
                need = f"{requirement.name}{requirement.specifier}"
                yield Reason("conflict", subject, need, _have(record))


def _overwritten_wheels(
    wheels: Sequence[Distribution], providers: Mapping[str, Record]
) -> Iterator[Reason]:
    """Yield the wheels whose files conda packages would overwrite. Code: two-distributions."""
    for wheel in wheels:
        if wheel.name in providers:
            subject = f"{wheel.name} {wheel.version} (wheel)"
            need = f"to be uninstalled first (pip uninstall {wheel.name})"
            have = _have(providers[wheel.name])
            yield Reason("two-distributions", subject, need, have)


def _overwritten_packages(
    distributions: Sequence[Distribution], beside: Mapping[str, Wheel]
) -> Iterator[Reason]:
    """Yield the conda packages whose files wheels would overwrite. Code: two-distributions.

    A lock has no wheel of what its own conda packages provide, so these are packages that stay.
    """
    for distribution in distributions:
        wheel = beside.get(distribution.name)
        if distribution.of_conda and wheel is not None:
            subject = f"{distribution.name} {distribution.version} of conda"
            need = f"to be removed first (conda remove {distribution.name})"
            have = f"the wheel {wheel.name} {wheel.version} in the lock"
            yield Reason("two-distributions", subject, need, have)
