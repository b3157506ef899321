"""What is in a conda prefix: conda's packages, the wheels beside them, and what has two owners."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any

from ..atomic_write import write_whole
from ..compat import conda_parts, evaluate
from ..compat.conda_records import Carriers
from ..compat.data import CompatibilityData
from ..distributions import Distribution, read_distributions
from ..errors import InputError, Reason
from ..model import Check, Lock, Pin, Plan, Requirement, Wheel, first_texts, show_pair
from ..prefix import conda_packages, sites
from ..requirements.target import parse_requirement, version_key
from ..resolve.conda import wheels_beside

# The names of the wheels that gpuenv installed. It has no .json, which conda would read.
_MARK = os.path.join("conda-meta", "gpuenv-wheels")


def distributions_in(target: str) -> list[Distribution]:
    """Return the Python distributions in a prefix, those of conda packages included.

    Those with an .egg-info are left out: it does not tell whether conda installed them.
    """
    rows = read_distributions(sites(target))
    return sorted((row for row in rows if row.info.endswith(".dist-info")), key=attrgetter("info"))


def wheels_in(target: str, but: Collection[str] = ()) -> list[Distribution]:
    """Return the distributions in a prefix that no conda package holds, without those in `but`."""
    return [row for row in distributions_in(target) if not row.of_conda and row.name not in but]


def requirements_of(distribution: Distribution) -> Iterator[Requirement]:
    """Yield the requirements of an installed distribution, also those of its extras."""
    for text in distribution.requires:
        with suppress(InputError):
            yield parse_requirement(text)


# ---- the wheels that gpuenv installed -----------------------------------------------------------


def left_over(
    target: str,
    pins: Sequence[Pin],
    wheel_lock: Lock | None,
    carriers: Carriers,
    *,
    exact: bool,
) -> tuple[str, ...]:
    """Return the wheels of earlier locks of gpuenv that an installation removes.

    Args:
        target: The prefix.
        pins: The new conda packages.
        wheel_lock: The lock of the new wheels.
        carriers: Has the distributions that the conda packages provide.
        exact: Whether wheels that the lock does not name are removed. The others stay unless
            conda packages replace them, or the same wheels are installed for another Python.
    """
    python, names = _remembered(target)
    locked = set() if wheel_lock is None else set(wheel_lock.versions)
    removed = names.intersection(carriers.providers(wheels_beside.records_of(pins)))
    if wheel_lock is not None and python != show_pair(wheel_lock.needs.python):
        removed |= names & locked
    if exact:
        removed |= names - locked
    return tuple(sorted(removed))


def _remembered(target: str) -> tuple[str, set[str]]:
    """Return the Python and the names of the wheels that gpuenv installed: ("", {}) without any."""
    try:
        with open(os.path.join(target, _MARK), encoding="utf-8") as file:
            python, *names = file.read().split()
    except (OSError, ValueError):
        return "", set()
    return python, set(names)


def remember(target: str, wheel_lock: Lock | None, removed: Collection[str] = ()) -> None:
    """Write down in the prefix which wheels gpuenv installed, but for those that it removed."""
    path = os.path.join(target, _MARK)
    python, names = _remembered(target)
    kept = names.difference(removed)
    if wheel_lock is not None:
        python = show_pair(wheel_lock.needs.python)
        kept |= wheel_lock.versions.keys()
    if kept:
        write_whole(path, "".join(f"{line}\n" for line in (python, *sorted(kept))).encode())
    elif os.path.exists(path):
        os.remove(path)


# ---- checks -------------------------------------------------------------------------------------


def conda_check(target: str, lock: Lock) -> Check:
    """Check that a prefix has the builds that a lock names ("versions conda").

    Other packages may be there, too. The answer is unknown where conda-meta has no sha256 of a
    build that is right in all else.
    """
    installed = conda_packages(target)
    locked = {pin.wheel.name: installed.pop(pin.wheel.name, None) for pin in lock.pins}
    differences = (difference_of(pin.wheel, locked[pin.wheel.name]) for pin in lock.pins)
    wrong = list(filter(None, differences))
    without_hash = [name for name, record in locked.items() if record and not record.get("sha256")]
    status, evidence = "pass", f"{len(lock.pins)} conda packages as locked"
    if installed:
        evidence += f"; not of the lock: {first_texts(sorted(installed))}"
    if wrong:
        status, evidence = "fail", first_texts(wrong)
    elif without_hash:
        names = first_texts(without_hash)
        status = "unknown"
        evidence = f"the builds are those of the lock; conda-meta has no sha256 of {names}"
    return Check(name="versions", subject="conda", status=status, evidence=evidence)


def difference_of(wheel: Wheel, record: dict[str, Any] | None) -> str | None:
    """Return how an installed package differs from the locked one; None if it does not."""
    build = wheel.metadata["build"]
    locked = f"{wheel.version} {build}"
    if record is None:
        return f"{wheel.name} {wheel.version} is not installed"
    if (record.get("version"), record.get("build")) != (wheel.version, build):
        return f"{wheel.name} is {record.get('version')} {record.get('build')}, not {locked}"
    digest = record.get("sha256")
    if digest is not None and wheel.sha256 not in (None, digest):
        return f"{wheel.name} {locked} is of another file: sha256 {digest[:12]}"
    return None


def wheels_check(target: str, lock: Lock) -> Check:
    """Check that a prefix has each wheel that a lock names, once ("versions wheels")."""
    installed: dict[str, list[str]] = {}
    for distribution in distributions_in(target):
        installed.setdefault(distribution.name, []).append(distribution.version)
    wrong = []
    for pin in lock.pins:
        wheel, versions = pin.wheel, installed.get(pin.wheel.name, [])
        if [version_key(version) for version in versions] != [version_key(wheel.version)]:
            have = " and ".join(sorted(versions)) or "not there"
            wrong.append(f"{wheel.name} is {have}, not {wheel.version}")
    status, evidence = "pass", f"{len(lock.pins)} wheels as locked"
    if wrong:
        status, evidence = "fail", first_texts(wrong)
    return Check(name="versions", subject="wheels", status=status, evidence=evidence)


# ---- two owners ---------------------------------------------------------------------------------


def beside_wheels(
    target: str,
    plan: Plan,
    matrix: CompatibilityData,
    removed: Collection[str],
) -> tuple[Reason, ...]:
    """Return what speaks against the conda packages of a plan beside the wheels in a prefix.

    Args:
        target: The prefix.
        plan: The plan.
        matrix: The compatibility data.
        removed: Wheels that the installation removes or that the plan has, too.

    Returns:
        Reasons with the codes two-cudnn, two-libraries and two-frameworks (what both bring), and
        those of `evaluate.reasons_beside`.
    """
    wheels = [(wheel.name, wheel.version) for wheel in wheels_in(target, removed)]
    host, records = plan.host, wheels_beside.records_of(plan.pins)
    owners = wheels_beside.supply(records, matrix).owners(wheels)
    staying = evaluate.packages_of_pins(wheels, host.platform, matrix)
    companions = [package for package in staying if package.links and not package.on_path]
    packages = conda_parts.packages_of_records(records, host.platform, matrix)
    return (*owners, *evaluate.reasons_beside(companions, packages, host, matrix))


def beside_conda(target: str, pins: Sequence[Pin], matrix: CompatibilityData) -> tuple[Reason, ...]:
    """Return what wheels would bring a second time, because conda packages in the prefix have it.

    Codes: two-cudnn, two-libraries, two-frameworks.
    """
    records = sorted(conda_packages(target).values(), key=lambda record: str(record["name"]))
    wheels = ((pin.wheel.name, pin.wheel.version) for pin in pins)
    return wheels_beside.supply(records, matrix).owners(wheels)
