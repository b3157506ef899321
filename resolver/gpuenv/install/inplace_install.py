"""An installation into an existing environment: what stays and what changes. Pure functions.

An installed distribution stays at its version where it can. One that takes no part in the new
solution still limits it by its requirements, so that nothing that worked is broken. (pip breaks
it, and complains afterwards.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

from ..compat.data import CompatibilityData
from ..compat.extensions import may_describe_itself_as
from ..compat.rows import Family
from ..distributions import Distribution
from ..errors import InputError, Reason
from ..index.protocol import DIRECT_URL
from ..model import PackageChange, Pin, Requirement, Wheel
from ..requirements.overrides import Overrides
from ..requirements.target import TargetEnvironment, parse_requirement
from ..requirements.versions import contains

InstalledByName = Mapping[str, Distribution]


def _needs(
    distribution: Distribution, environment: TargetEnvironment, extras: Sequence[str] = ()
) -> list[Requirement]:
    """Return what a distribution requires here; texts that are no requirement are left out.

    The metadata of an old distribution may hold anything.
    """
    needs = []
    for text in distribution.requires:
        with suppress(InputError):
            requirement = parse_requirement(text)
            if requirement.marker is None or environment.marker(requirement.marker, extras):
                needs.append(requirement)
    return needs


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
            or not distribution.is_direct
            or not _fulfils(requirement, distribution)
        ):
            expanded.append(text)
            continue
        needs = _needs(distribution, environment, requirement.extras)
        others = [inner for inner in needs if inner.name != distribution.name]
        expanded += [str(inner.replace(marker=None)) for inner in others]
    return expanded


def _fulfils(requirement: Requirement, distribution: Distribution) -> bool:
    return requirement.url is None and contains(requirement.specifier, distribution.version)


def kept_pins(
    requirements: Iterable[str], installed: InstalledByName, *, upgrade: bool
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
        if upgrade or not _fulfils(requirement, distribution):
            changing.add(requirement.name)
    return [(name, row.version) for name, row in installed.items() if row.name not in changing]


def constraints_of_installed(
    installed: InstalledByName,
    environment: TargetEnvironment,
    without: Collection[str],
    overrides: Overrides,
) -> list[tuple[str, str]]:
    """Return (constraint, "name version" of the distribution that requires it).

    Distributions named in `without` change, so theirs are left out. A requirement that is broken
    already, or that an override replaces, is no constraint.
    """
    constraints = []
    for distribution in installed.values():
        if distribution.name in without:
            continue
        for inner in _needs(distribution, environment):
            present = installed.get(inner.name)
            if not inner.specifier or inner.name in overrides.names:
                continue
            if present is None or contains(inner.specifier, present.version):
                source = f"{distribution.name} {distribution.version}"
                constraints.append((f"{inner.name}{inner.specifier}", source))
    return constraints


def changed_pins(pins: Sequence[Pin], installed: InstalledByName) -> list[Pin]:
    """Return the pins that are not installed, or at another version."""
    changed = []
    for pin in pins:
        wheel, distribution = pin.wheel, installed.get(pin.wheel.name)
        if distribution is None or not may_describe_itself_as(wheel.version, distribution.version):
            changed.append(pin)
        elif wheel.index == DIRECT_URL and wheel.version == distribution.version:
            # Of a file that the user named, another content may have the same version.
            changed += [] if distribution.is_direct else [pin]
    return changed


def owner_conflicts(
    planned: Collection[str],
    changed: Sequence[Pin],
    installed: InstalledByName,
    environment: TargetEnvironment,
    matrix: CompatibilityData,
) -> tuple[list[str], list[Reason]]:
    """Find installed distributions whose files a new one overwrites, and which are not in the plan.

    Those of a tolerated family may stay (R5).

    Args:
        planned: The names of the plan.
        changed: Its pins that are installed.
        installed: What is installed.
        environment: The environment of the requirements.
        matrix: Has the families.

    Returns:
        The names to remove, and a reason (file-owner) for each installed distribution that
        requires one of them.
    """
    new_owners: dict[Family, Wheel] = {}
    for pin in changed:
        family = matrix.family(pin.wheel.name)
        if family is not None and not family.tolerated:
            new_owners[family] = pin.wheel
    removed, reasons = [], []
    for distribution in installed.values():
        name, family = distribution.name, matrix.family(distribution.name)
        if name in planned or family is None or family not in new_owners:
            continue
        removed.append(name)
        wheel = new_owners[family]
        subject = f"{wheel.name} {wheel.version}"
        need = f"no {name}, whose files in {family.path} it overwrites"
        for dependent in installed.values():
            needs = [inner for inner in _needs(dependent, environment) if inner.name == name]
            if name in family.replaceable:
                needs = [inner for inner in needs if not contains(inner.specifier, wheel.version)]
            if needs and dependent.name not in planned:
                have = f"{dependent.name} {dependent.version}, which needs {needs[0]}"
                reason = Reason("file-owner", subject, need, have, source="installed")
                reasons.append(reason)
    return removed, reasons


def kept_owners(
    pins: Sequence[Pin],
    installed: InstalledByName,
    requirements: Iterable[str],
    matrix: CompatibilityData,
) -> list[str]:
    """Return the installed distributions that take the place of new ones in a plan (R5).

    Nobody asked for the new ones: other distributions require them.
    """
    planned = {pin.wheel.name for pin in pins}
    named = {parse_requirement(text).name for text in requirements}
    kept: list[str] = []
    for name in planned - installed.keys() - named:
        family = matrix.family(name)
        if family is not None and name in family.replaceable:
            members = [other for other in family.distributions if other in installed]
            kept += [other for other in members if other not in planned | named][:1]
    return sorted(kept)


def steps(
    changed: Sequence[Pin], removed: Sequence[str], installed: InstalledByName
) -> list[PackageChange]:
    """Return everything that the installation does, by name."""
    planned = [PackageChange(name=name, before=installed[name].version) for name in removed]
    for wheel in (pin.wheel for pin in changed):
        before = installed[wheel.name].version if wheel.name in installed else ""
        planned.append(PackageChange(name=wheel.name, before=before, after=wheel.version))
    return sorted(planned, key=lambda step: step.name)
