"""An installation into an existing environment: what stays and what changes. Pure functions.

An installed distribution stays at its version where it can. One that takes no part in the new
solution still limits it by its requirements, so that nothing that worked is broken. (pip breaks
it, and complains afterwards.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ..compat.data import CompatibilityData
from ..errors import InputError, Reason
from ..model import Pin, Requirement, Value
from ..requirements.target import TargetEnvironment, parse_requirement, version_key
from ..requirements.versions import normalize_name


class Installed(Value):
    """A distribution of the environment.

    `direct` is true for one from a folder, a file or a URL: no index has it.
    """

    name: str
    version: str
    requires: tuple[str, ...] = ()
    direct: bool = False


class Step(Value):
    """What an installation does to one distribution.

    `old` is None for a new one, `new` for one that is removed.
    """

    name: str
    old: str | None
    new: str | None


InstalledByName = Mapping[str, Installed]


def read_installed(rows: Iterable[Mapping[str, object]]) -> dict[str, Installed]:
    """Return {name: distribution} from the answer of the probe `needs`."""
    installed = {}
    for row in rows:
        name, requires = str(row["name"]), row["requires"]
        texts: tuple[str, ...] = ()
        if isinstance(requires, (list, tuple)):
            texts = tuple(map(str, requires))
        installed[name] = Installed(
            name=name, version=str(row["version"]), requires=texts, direct=bool(row["direct"])
        )
    return installed


def _valid_requirements(distribution: Installed) -> Iterator[Requirement]:
    """Yield what a distribution requires; texts that are no requirement are left out.

    The metadata of an old distribution may hold anything.
    """
    for text in distribution.requires:
        try:
            yield parse_requirement(text)
        except InputError:
            continue


def expand_direct(
    requirements: Sequence[str],
    installed: InstalledByName,
    environment: TargetEnvironment,
    *,
    upgrade: bool,
) -> list[str]:
    """Replace requirements of direct distributions by what these require.

    A direct distribution, such as an editable project, is on no index: a solve could not find it.
    """
    expanded: list[str] = []
    for text in requirements:
        requirement = parse_requirement(text)
        distribution = installed.get(requirement.name)
        if (
            upgrade
            or distribution is None
            or not distribution.direct
            or not _fulfils(requirement, distribution, environment)
        ):
            expanded.append(text)
            continue
        for inner in _valid_requirements(distribution):
            applies = inner.marker is None or environment.marker(inner.marker, requirement.extras)
            if applies and inner.name != distribution.name:
                expanded.append(str(inner.replace(marker=None)))
    return expanded


def _fulfils(
    requirement: Requirement, distribution: Installed, environment: TargetEnvironment
) -> bool:
    version = distribution.version
    return requirement.url is None and environment.contains(requirement.specifier, version, True)


def kept_pins(
    requirements: Iterable[str],
    installed: InstalledByName,
    environment: TargetEnvironment,
    *,
    upgrade: bool,
) -> list[tuple[str, str]]:
    """Return (name, version) of each distribution that need not change for the requirements.

    With `upgrade` every required distribution may change, without it only those that do not
    fulfil their requirement.
    """
    changing = set()
    for text in requirements:
        requirement = parse_requirement(text)
        distribution = installed.get(requirement.name)
        if distribution is None:
            continue
        if upgrade or not _fulfils(requirement, distribution, environment):
            changing.add(requirement.name)
    return [(name, row.version) for name, row in installed.items() if row.name not in changing]


def constraints_of_installed(
    installed: InstalledByName, environment: TargetEnvironment, without: Collection[str]
) -> list[tuple[str, str]]:
    """Return (constraint, "name version" of the distribution that requires it).

    Distributions named in `without` change, so theirs are left out. A requirement that is broken
    already is no constraint.
    """
    constraints = []
    for distribution in installed.values():
        if distribution.name in without:
            continue
        for inner in _valid_requirements(distribution):
            applies = inner.marker is None or environment.marker(inner.marker, ())
            if not inner.specifier or not applies:
                continue
            present = installed.get(inner.name)
            if present is None or environment.contains(inner.specifier, present.version, True):
                source = f"{distribution.name} {distribution.version}"
                constraints.append((f"{inner.name}{inner.specifier}", source))
    return constraints


def changed_pins(pins: Sequence[Pin], installed: InstalledByName) -> list[Pin]:
    """Return the pins that are not installed, or at another version."""
    changed = []
    for pin in pins:
        distribution = installed.get(pin.wheel.name)
        if distribution is None or not _is_same(pin, distribution):
            changed.append(pin)
    return changed


def _is_same(pin: Pin, distribution: Installed) -> bool:
    if pin.wheel.version == distribution.version:
        return pin.wheel.index != "url" or distribution.direct
    try:
        return version_key(pin.wheel.version) == version_key(distribution.version)
    except InputError:
        return False


def folder_conflicts(
    pins: Sequence[Pin],
    installed: InstalledByName,
    environment: TargetEnvironment,
    matrix: CompatibilityData,
) -> tuple[list[str], list[Reason]]:
    """Find installed distributions that own a folder of a new distribution and are not in the plan.

    Two distributions in one folder overwrite each other's files (R5).

    Returns:
        The names to remove, and a reason (file-owner) for each installed distribution that
        requires one of them.
    """
    planned = {pin.wheel.name for pin in pins}
    new_owners = {}
    for pin in changed_pins(pins, installed):
        for slot in matrix.slots(pin.wheel.name):
            new_owners[slot] = pin.wheel
    removed, reasons = [], []
    for distribution in installed.values():
        name = distribution.name
        shared = [slot for slot in matrix.slots(name) if slot in new_owners]
        if name in planned or not shared:
            continue
        removed.append(name)
        wheel = new_owners[shared[0]]
        subject = f"{wheel.name} {wheel.version}"
        need = f"no {name}, whose folder {shared[0]} it writes into"
        for dependent in _dependents(name, installed, environment):
            if dependent.name not in planned:
                have = f"{dependent.name} {dependent.version}, which needs it"
                reason = Reason(
                    code="file-owner", subject=subject, need=need, have=have, source="installed"
                )
                reasons.append(reason)
    return removed, reasons


def _dependents(
    name: str, installed: InstalledByName, environment: TargetEnvironment
) -> Iterator[Installed]:
    """Yield the installed distributions that require `name` here."""
    for distribution in installed.values():
        for inner in _valid_requirements(distribution):
            applies = inner.marker is None or environment.marker(inner.marker, ())
            if applies and normalize_name(inner.name) == name:
                yield distribution
                break


def steps(pins: Sequence[Pin], removed: Sequence[str], installed: InstalledByName) -> list[Step]:
    """Return everything that the installation does, by name."""
    planned = [Step(name=name, old=installed[name].version, new=None) for name in removed]
    for pin in changed_pins(pins, installed):
        name = pin.wheel.name
        distribution = installed.get(name)
        old = None if distribution is None else distribution.version
        planned.append(Step(name=name, old=old, new=pin.wheel.version))
    return sorted(planned, key=lambda step: step.name)
