"""Checks of what is installed, from the probe of that name: interpreter, versions, files, owners."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..model import Check, Lock, Mark, show_pair
from .runner import Outcome

SHOWN = 6  # names in the evidence of one check


def listed(items: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = f", and {len(items) - SHOWN} more" if len(items) > SHOWN else ""
    return ", ".join(items[:SHOWN]) + more


def survey_checks(lock: Lock | None, survey: dict[str, Any]) -> list[Check]:
    """Interpreter and versions."""
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
    libc = _glibc(survey)
    return [*checks, libc] if libc is not None else checks


def _glibc(survey: dict[str, Any]) -> Check | None:
    """Whether the system's glibc is as new as the wheels want it: an environment may be mounted on an older host.

    None where wheels want none (Windows, or nothing that was compiled).
    """
    rows = [row for row in survey["distributions"] if row["glibc"]]
    wants = [(tuple(row["glibc"]), f"{row['name']} {row['version']}") for row in rows]
    have = survey["interpreter"]["glibc"]
    if not wants:
        return None
    if have is None:
        evidence = f"this system has no glibc, and {len(wants)} distributions are built for one: {max(wants)[1]}"
        return Check(name="glibc", subject="", status="unknown", evidence=evidence)
    newer = [f"{name} is built for glibc {show_pair(want)}" for want, name in sorted(wants) if want > tuple(have)]
    if newer:
        evidence = f"{listed(newer)}; this system has {show_pair(tuple(have))}"
        marks = tuple(("glibc", name, show_pair(want)) for want, name in wants if want > tuple(have))
        return Check(name="glibc", subject="", status="fail", evidence=evidence, marks=marks)
    evidence = f"{show_pair(tuple(have))}; the newest that is asked for is {show_pair(max(wants)[0])} ({max(wants)[1]})"
    return Check(name="glibc", subject="", status="pass", evidence=evidence)


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


def file_checks(survey: dict[str, Any], outcome: Outcome) -> list[Check]:
    """The checks "owners" and "files"; `outcome` is that of the probe in mode "files"."""
    return [_owners(survey, outcome), _files(survey, outcome)]


def _owners(survey: dict[str, Any], outcome: Outcome) -> Check:
    """R5: paths that two distributions claim, and distributions that are there twice.

    `outcome` is the files' probe's, which knows whose bytes lie there now. The same bytes twice (an empty __init__.py)
    hurt nobody; a folder of tests that two packages brought hurts nobody either, and is only told.
    """
    answer = outcome.answer
    changed = None if answer is None else {(name, path) for name, path, _ in (*answer["changed"], *answer["other"])}
    wrong: list[str] = []
    notes: list[str] = []
    marks: list[Mark] = []
    for path, claims in survey["shared"]:
        names = [name for name, _ in claims]
        library = ".so" in os.path.basename(path)
        if len({digest for _, digest in claims}) == 1 and not library:
            continue
        text = f"{' and '.join(names)} both own {path}{_whose(path, claims, changed)}"
        if library or any(name.startswith("nvidia-") for name in names):
            wrong.append(text)
            marks.append(("two-owners", path, " ".join(names)))
        else:
            notes.append(text)
    for name, versions in survey["twice"]:
        wrong.append(f"{name} is there twice, as {' and '.join(versions)}")
        marks.append(("twice", name, " ".join(versions)))
    both = _two_cudnn(survey)
    wrong += both
    marks += [("two-owners", "libcudnn.so", "")] if both else []
    if wrong:
        # The libraries first: they are what breaks.
        wrong.sort(key=lambda text: ".so" not in text)
        evidence = "; ".join(wrong[:3]) + _rest(wrong, 3)
        return Check(name="owners", subject="", status="fail", evidence=evidence, marks=tuple(marks))
    evidence = "; ".join(["no library and no file of NVIDIA's has two owners", *notes[:3]]) if notes else ""
    return Check(name="owners", subject="", status="pass", evidence=evidence or "no file has two owners")


def _two_cudnn(survey: dict[str, Any]) -> list[str]:
    """conda's cuDNN and a wheel's in one prefix: which of them a process gets depends on what it imports first."""
    conda = survey.get("conda", {})
    named = {row["name"]: row["version"] for row in survey["distributions"] if row["installer"] != "conda"}
    ours: dict[str, str] = {}
    theirs: dict[str, str] = {}
    for path, name in survey["libraries"]:
        if os.path.basename(path).startswith("libcudnn.so"):
            folder = os.path.dirname(path)
            if name in named:
                theirs.setdefault(name, f"{name} {named[name]} of a wheel in {folder}")
            elif name in conda:
                ours.setdefault(name, f"{name} {conda[name]} of conda in {folder}")
    return [f"two libcudnn.so: {' and '.join([*ours.values(), *theirs.values()])}"] if ours and theirs else []


def _whose(path: str, claims: list[list[str]], changed: set[tuple[str, str]] | None) -> str:
    """Which of the owners the file is of, as its hash says."""
    if changed is None or not os.path.exists(path) or len({digest for _, digest in claims}) == 1:
        return ""
    mine = [name for name, digest in claims if digest.startswith("sha256=") and (name, path) not in changed]
    return f": its bytes are those of {mine[0]}" if len(mine) == 1 else ": its bytes are those of neither"


def _rest(items: list[str], shown: int) -> str:
    return f"; and {len(items) - shown} more" if len(items) > shown else ""


def _files(survey: dict[str, Any], outcome: Outcome) -> Check:
    """The distributions' files against their RECORDs: NVIDIA's by sha256, the others by size.

    Of a path with two owners one finds the other's bytes; what that means, the check of the owners says.
    """
    answer = outcome.answer
    if answer is None:
        return Check(name="files", subject="", status="unknown", evidence=outcome.failure, seconds=outcome.seconds)
    wrong = [f"{path} of {name} is missing" for name, path in answer["missing"]]
    shared = {path for path, _ in survey["shared"]}
    wrong += [
        f"{path} of {name}: {why}"
        for name, path, why in answer["changed"]
        if name.startswith("nvidia-") or path not in shared
    ]
    wrong += [f"{path} belongs to no distribution" for path in answer["extra"]]
    unknown = [f"{name} has no RECORD" for name in answer["no_record"]]
    if answer["left"]:
        unknown.append(f"{answer['left']} files not read in time")
    other = [f"{path} of {name} ({why})" for name, path, why in answer["other"]]
    notes = [f"{len(other)} data files are not as recorded: {listed(other)}"] if other else []
    amount = f"{answer['hashed']} files by sha256 ({answer['hashed_bytes'] / 1e9:.1f} GB), {answer['sized']} by size"
    status = "fail" if wrong else "unknown" if unknown else "pass"
    told = [*wrong, *unknown]
    evidence = "; ".join(told[:SHOWN]) + _rest(told, SHOWN) if wrong else "; ".join([amount, *unknown[:SHOWN], *notes])
    return Check(
        name="files",
        subject="",
        status=status,
        evidence=evidence,
        seconds=round(outcome.seconds, 3),
        marks=tuple(("no-record", name, "") for name in answer["no_record"]),
    )
