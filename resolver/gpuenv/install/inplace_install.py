"""An installation into an environment that holds things already: what is to stay, and what changes. Pure.

What is installed stays at its version where it can. What does not take part in the new solution still limits it by what
it asks for, so that nothing that worked is broken, as it would be by pip, which complains afterwards.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ..compat.data import CompatibilityData
from ..errors import InputError, Reason
from ..model import Pin, Requirement, Value
from ..requirements.target import TargetEnvironment, normalize_name, parse_requirement, version_key


class Installed(Value):
    """A distribution of the environment; `direct` is one from a folder, a file or a URL: no index has it."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    direct: bool = False


class Step(Value):
    """What an installation does to one distribution: `old` None is a new one, `new` None one that is taken out."""

    name: str
    old: str | None
    new: str | None


def installed(rows: Iterable[Mapping[str, object]]) -> dict[str, Installed]:
    """By name, from what the probe `needs` answers."""
    found = {}
    for row in rows:
        name, requires = str(row["name"]), row["requires"]
        texts = tuple(map(str, requires)) if isinstance(requires, (list, tuple)) else ()
        found[name] = Installed(name=name, version=str(row["version"]), requires=texts, direct=bool(row["direct"]))
    return found


def parsed(texts: Iterable[str]) -> Iterator[Requirement]:
    """Those texts that are requirements: the metadata of an old distribution may hold anything."""
    for text in texts:
        try:
            yield parse_requirement(text)
        except InputError:
            continue


def expanded(
    requirements: Sequence[str], have: Mapping[str, Installed], environment: TargetEnvironment, *, upgrade: bool
) -> list[str]:
    """The requirements; one that is fulfilled by what no index has (an editable project) by what that asks for."""
    found: list[str] = []
    for text in requirements:
        one = parse_requirement(text)
        own = have.get(one.name)
        fits = own is not None and one.url is None and environment.contains(one.specifier, own.version, True)
        if own is None or not own.direct or not fits or upgrade:
            found.append(text)
            continue
        found += [
            str(inner.replace(marker=None))
            for inner in parsed(own.requires)
            if inner.name != own.name and (inner.marker is None or environment.marker(inner.marker, one.extras))
        ]
    return found


def pins(
    requirements: Iterable[str], have: Mapping[str, Installed], environment: TargetEnvironment, *, upgrade: bool
) -> list[tuple[str, str]]:
    """(name, version) of all that is installed and need not change for what is asked for.

    With `upgrade` none of what is asked for stays; without it what does not fulfil what is asked for.
    """
    asked = [parse_requirement(text) for text in requirements]
    moving = {
        one.name
        for one in asked
        if one.name in have
        and (upgrade or one.url or not environment.contains(one.specifier, have[one.name].version, True))
    }
    return [(one.name, one.version) for one in have.values() if one.name not in moving]


def limits(
    have: Mapping[str, Installed], environment: TargetEnvironment, without: Collection[str]
) -> list[tuple[str, str]]:
    """(constraint, who asks for it) of all that is installed, but for the names `without` (they change).

    What is broken already is no limit.
    """
    found = []
    for one in have.values():
        if one.name in without:
            continue
        for inner in parsed(one.requires):
            if not inner.specifier or (inner.marker is not None and not environment.marker(inner.marker, ())):
                continue
            there = have.get(inner.name)
            if there is None or environment.contains(inner.specifier, there.version, True):
                found.append((f"{inner.name}{inner.specifier}", f"{one.name} {one.version}"))
    return found


def changed(new: Sequence[Pin], have: Mapping[str, Installed]) -> list[Pin]:
    """The pins that are not installed, or at another version."""
    return [pin for pin in new if pin.wheel.name not in have or not _same(pin, have[pin.wheel.name])]


def _same(pin: Pin, there: Installed) -> bool:
    if pin.wheel.version == there.version:
        return not (pin.wheel.index == "url" and not there.direct)
    try:
        return version_key(pin.wheel.version) == version_key(there.version)
    except InputError:
        return False


def in_the_way(
    new: Sequence[Pin], have: Mapping[str, Installed], environment: TargetEnvironment, matrix: CompatibilityData
) -> tuple[list[str], list[Reason]]:
    """(what is installed, is not in the plan and owns a folder of a new distribution; what speaks against it).

    Two distributions in one folder overwrite each other's files (R5). One that nothing asks for any more is to be taken
    out; another installed one that asks for it is a reason.
    """
    names = {pin.wheel.name for pin in new}
    folders = {slot: pin.wheel for pin in changed(new, have) for slot in matrix.slots(pin.wheel.name)}
    gone, reasons = [], []
    for one in have.values():
        shared = [slot for slot in matrix.slots(one.name) if slot in folders]
        if one.name in names or not shared:
            continue
        gone.append(one.name)
        wheel = folders[shared[0]]
        for other in have.values():
            if other.name not in names and one.name in _asked_by(other, environment):
                need = f"no {one.name}, whose folder {shared[0]} it writes into"
                subject, have_ = f"{wheel.name} {wheel.version}", f"{other.name} {other.version}, which needs it"
                reasons.append(Reason(code="file-owner", subject=subject, need=need, have=have_, source="installed"))
    return gone, reasons


def _asked_by(one: Installed, environment: TargetEnvironment) -> set[str]:
    return {
        normalize_name(inner.name)
        for inner in parsed(one.requires)
        if inner.marker is None or environment.marker(inner.marker, ())
    }


def steps(new: Sequence[Pin], gone: Sequence[str], have: Mapping[str, Installed]) -> list[Step]:
    """All that is done, by name."""
    found = [Step(name=name, old=have[name].version, new=None) for name in gone]
    for pin in changed(new, have):
        name = pin.wheel.name
        old = have[name].version if name in have else None
        found.append(Step(name=name, old=old, new=pin.wheel.version))
    return sorted(found, key=lambda one: one.name)
