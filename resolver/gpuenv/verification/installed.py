"""Checks of what is installed, from the probe of that name: interpreter, versions, files, owners."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..model import Check, Lock, show_pair
from .children import Outcome

SHOWN = 6  # names in the evidence of one check


def listed(items: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f", and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return ", ".join(items[:SHOWN]) + more


def survey_checks(lock: Lock | None, survey: dict[str, Any]) -> list[Check]:
    """Interpreter, versions and owners."""
    checks = []
    found = survey["interpreter"]
    version = ".".join(map(str, found["version"]))
    need = lock.needs.python if lock is not None else None
    right = need is None or tuple(found["version"][:2]) == need
    wanted = "" if right else f"; the lock is for Python {show_pair(need)}"
    evidence = f"{found['implementation']} {version} at {found['executable']}{wanted}"
    checks.append(Check(name="interpreter", subject="", status="pass" if right else "fail", evidence=evidence))
    if lock is not None:
        checks.append(_versions(lock, {row["name"]: row["version"] for row in survey["distributions"]}))
    checks.append(_owners(survey["shared"]))
    return checks


def _versions(lock: Lock, have: dict[str, str]) -> Check:
    wrong = []
    for pin in lock.pins:
        name, version = pin.wheel.name, pin.wheel.version
        if name not in have:
            wrong.append(f"{name} {version} is not installed")
        elif not _same_version(have[name], version):
            wrong.append(f"{name} is {have[name]}, the lock says {version}")
    others = sorted(set(have) - {pin.wheel.name for pin in lock.pins} - {"pip", "setuptools", "wheel"})
    beside = f"; beside the lock: {listed(others)}" if others else ""
    if wrong:
        return Check(name="versions", subject="", status="fail", evidence="; ".join(wrong[:SHOWN]) + beside)
    return Check(name="versions", subject="", status="pass", evidence=f"{len(lock.pins)} as locked{beside}")


def _same_version(one: str, other: str) -> bool:
    """PEP 440: 1.0 is 1.0.0, and a file name's 1.0rc1 is METADATA's 1.0.RC1."""
    if one == other:
        return True
    from packaging.version import InvalidVersion, Version

    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return False


def _owners(shared: list[Any]) -> Check:
    """R5: a path that two distributions claim. The same bytes twice (an empty __init__.py) hurt nobody."""
    wrong = []
    for path, claims in shared:
        if len({digest for _, digest in claims}) > 1 or ".so" in os.path.basename(path):
            wrong.append(f"{' and '.join(name for name, _ in claims)} both own {path}")
    if wrong:
        return Check(name="owners", subject="", status="fail", evidence="; ".join(wrong[:3]) + _rest(wrong, 3))
    return Check(name="owners", subject="", status="pass", evidence="no file has two owners")


def _rest(items: list[str], shown: int) -> str:
    return f"; and {len(items) - shown} more" if len(items) > shown else ""


def file_check(outcome: Outcome) -> Check:
    """NVIDIA's files against their RECORDs."""
    answer = outcome.answer
    if answer is None:
        return Check(name="files", subject="", status="unknown", evidence=outcome.failure, seconds=outcome.seconds)
    wrong = [f"{path} of {name} is missing" for name, path in answer["missing"]]
    wrong += [f"{path} of {name}: {why}" for name, path, why in answer["changed"]]
    wrong += [f"{path} belongs to no distribution" for path in answer["extra"]]
    wrong += [f"{name} has no RECORD" for name in answer["no_record"]]
    amount = f"{answer['hashed']} files by sha256 ({answer['hashed_bytes'] / 1e9:.1f} GB), {answer['sized']} by size"
    status, evidence = ("fail", "; ".join(wrong[:SHOWN]) + _rest(wrong, SHOWN)) if wrong else ("pass", amount)
    if answer["left"] and not wrong:
        status, evidence = "unknown", f"{amount}; {answer['left']} not read in time"
    return Check(name="files", subject="", status=status, evidence=evidence, seconds=round(outcome.seconds, 3))
