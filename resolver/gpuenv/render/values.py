"""Phrases for values that several modules share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import Reason
from ..model import Choice, Lock, Plan, Rejection, show_pair

REASON_FIELDS = ("code", "subject", "need", "have", "source")

# How a sentence says what was found instead of what is needed, by the code of the reason.
_OF_HOST = "this host has"
_FOUND = {
    "cpu-lock": _OF_HOST,
    "device": _OF_HOST,
    "device-unknown": _OF_HOST,
    "driver-branch-unknown": _OF_HOST,
    "driver-cuda": _OF_HOST,
    "driver-floor": _OF_HOST,
    "driver-floor-unknown": _OF_HOST,
    "glibc": _OF_HOST,
    "gpu-dropped-by-driver": _OF_HOST,
    "gpu-needs-newer-driver": _OF_HOST,
    "lock-python": _OF_HOST,
    "no-gpu": _OF_HOST,
    "cpu-feature": _OF_HOST,
    "cpu-unknown": _OF_HOST,
    "driver-cuda-unknown": _OF_HOST,
    "ptx-needs-newer-driver": _OF_HOST,
    "python": _OF_HOST,
    "requires-python": _OF_HOST,
    "virtual-package": _OF_HOST,
    "driver-unknown": "on this host:",
    "glibc-unknown": "the glibc of this host is",
    "lock-environment": "this host is",
    "platform": "this host is",
    "conflict": "this conflicts with",
    "extra-unknown": "available:",
    "no-release": "available:",
    "no-version": "available:",
    "no-wheel-for-target": "available:",
    # The found text of these is a clause of its own.
    "conda-closure": "",
    "cudnn-unknown": "",
    "index-unknown": "",
    "lock-missing": "",
    "lock-tampered": "",
    "lock-unreadable": "",
    "no-candidate": "",
    "no-offline-file": "",
    "no-wheel": "",
    "yanked": "",
}
_SUBJECTS = {"lock": "the lock", "driver": "this host"}
_NO_GPU = frozenset({"cuda-build", "needs-gpu"})
_DEVICE_CODE = frozenset({"code-unknown", "no-code-for-device"})
# What comes before the found text of reasons whose need is plain.
_STATEMENTS = {"two-owners": "has more than one owner"}
# What comes before the need of a CPU build.
_CPU_BUILD = {"cpu-build": "this host needs", "cpu-dependency": "for a CUDA build add"}
_STATED = frozenset({*_CPU_BUILD, "not-in-index", "other-build", "same-build", "user-row"})
_NEWER = "newer-"  # the codes that say why a chosen release is not the newest one
_UNKNOWN_RELEASE = frozenset({"build-unknown", "library-unknown"})
_KNOWN_BAD = frozenset({"known-avoid", "known-broken"})
# A pair of releases that must not meet has the same codes as one bad release, and this need.
_BAD_PAIR = "only one "


def size(count: int | None) -> str:
    """Return 2100000000 as "2.1 GB", and None as "unknown"."""
    if count is None:
        return "unknown"
    value = float(count)
    for unit, digits in (("B", 0), ("kB", 0), ("MB", 1), ("GB", 1)):
        if value < 1000:
            return f"{value:.{digits}f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def download_bytes(plan: Plan | Lock) -> int:
    """Return the sum of all file sizes that are known."""
    return sum(pin.wheel.size or 0 for pin in plan.pins)


def download_text(plan: Plan | Lock) -> str:
    """Return "2.1 GB", or "2.1 GB and 3 of unknown size"."""
    unknown = sum(pin.wheel.size is None for pin in plan.pins)
    text = size(download_bytes(plan))
    return f"{text} and {unknown} of unknown size" if unknown else text


def quantity_text(count: int, noun: str) -> str:
    """Return "1 package" or "2 packages"."""
    return f"1 {noun}" if count == 1 else f"{count} {noun}s"


def choice_text(choice: Choice) -> str:
    """Return "torch 2.15.0 (cu132, CUDA 13.2, cuDNN 9.26.0.51)"."""
    parts = [choice.variant]
    if choice.cuda is not None:
        parts.append(f"CUDA {show_pair(choice.cuda)}")
        if choice.cudnn is not None:
            parts.append(f"cuDNN {choice.cudnn}")
        if choice.evidence != "scanned":
            parts.append(evidence_text(choice))
    return f"{choice.framework} {choice.version} ({', '.join(parts)})"


def evidence_text(choice: Choice) -> str:
    """Return what is known of the architectures of a build that nobody scanned."""
    if choice.cuda is not None and not (choice.sass or choice.ptx):
        return "architectures unknown"
    return "architectures as documented"


# ---- reasons ------------------------------------------------------------------------------------


def update_offer(reasons: Iterable[Reason]) -> list[str]:
    """Return the line that offers to scan releases which the compatibility data lacks, if any."""
    subjects = [reason.subject for reason in reasons if reason.code in _UNKNOWN_RELEASE]
    names = list(dict.fromkeys(subject.partition(" ")[0] for subject in subjects))
    if not names:
        return []
    count = quantity_text(len(set(subjects)), "release")
    return [f"the data lacks {count}: `gpuenv matrix update {' '.join(names)}` scans what is new"]


def is_stated(code: str, need: str) -> bool:
    """Return whether a reason states a property of its subject, so that a colon introduces it."""
    if code in _KNOWN_BAD:
        return not need.startswith(_BAD_PAIR)
    return code in _STATED or code in _UNKNOWN_RELEASE


def found_text(code: str, have: str, *, plural: bool = False) -> str:
    """Return what was found: "this host has driver 550.54.14", "it has sm_75 sm_80".

    Args:
        plural: the sentence is about several builds.
    """
    if code in _NO_GPU:
        return f"{_OF_HOST} none"
    if have == "none do":
        return have
    if code in _DEVICE_CODE:
        return f"they have {have}" if plural else f"it has {have}"
    return f"{_FOUND.get(code, 'found')} {have}".strip()


def need_and_found(reason: Reason) -> tuple[str, str]:
    """Return the need and what was found, one of them with the release that has the need."""
    need, have = reason.need, reason.have
    if not reason.dependent:
        return need, have
    if reason.code in _STATED:  # their need is not shown
        return need, f"{have}, for {reason.dependent}"
    return f"{need}, for {reason.dependent}", have


def predicate(code: str, need: str, have: str, *, plural: bool = False, brief: bool = False) -> str:
    """Return what a sentence says about its subject; with `brief` only why it will not do."""
    if code in _STATEMENTS:
        return f"{_STATEMENTS[code]}: {have}"
    if code in _CPU_BUILD:
        return have if brief else f"{have}; {_CPU_BUILD[code]} {need}"
    if code == "other-build":
        have = f"{have}, not {need}".removeprefix(", ")
    if code in _STATED or code in _UNKNOWN_RELEASE:
        return have
    if code.startswith(_NEWER):
        return f"is not the newest release: {need} {have}"
    if is_stated(code, need):
        return f"known bad: {have}"
    verb = "need" if plural else "needs"
    text = f"{verb} {need}"
    return text if brief else f"{text}; {found_text(code, have, plural=plural)}"


def reason_text(reason: Reason, *, brief: bool = False) -> str:
    """Return a reason as a sentence, with its subject; with `brief` without what was found."""
    need, have = need_and_found(reason)
    return sentence(reason.code, [reason.subject], need, have, brief=brief)


def warning_texts(warnings: Iterable[Reason]) -> list[str]:
    """Return warnings as sentences. Those about newer releases are one sentence, or two."""
    texts, newer, prereleases = [], [], []
    for reason in warnings:
        if reason.code == "newer-prerelease":
            prereleases.append(f"{reason.subject} ({reason.need})")
        elif reason.code.startswith(_NEWER):
            newer.append(f"{reason.subject} ({reason.need} {reason.have})")
        else:
            texts.append(reason_text(reason))
    if newer:
        texts.append(f"not the newest release: {'; '.join(newer)}")
    if prereleases:
        texts.append(f"not the newest pre-release: {', '.join(prereleases)}")
    return texts


def sentence(
    code: str, subjects: Sequence[str], need: str, have: str, *, brief: bool = False
) -> str:
    """Return one sentence about builds that share a fact (see `predicate`)."""
    text = predicate(code, need, have, plural=len(subjects) > 1, brief=brief)
    if is_stated(code, need):
        return f"{subjects_text(subjects)}: {text}"
    return f"{subjects_text(subjects)} {text}"


def subjects_text(subjects: Sequence[str]) -> str:
    """Name one or several builds of a package.

    "torch 2.15.0", "torch 2.15.0 and 2.14.1", "torch 2.15.0 and 9 others down to 2.1.0".
    """
    first, *others = subjects
    first = _SUBJECTS.get(first, first)
    if not others:
        return first
    package = first.partition(" ")[0]
    last = others[-1].removeprefix(f"{package} ")
    if len(others) == 1:
        return f"{first} and {last}"
    return f"{first} and {len(others)} others down to {last}"


def reasons_json(reasons: Iterable[Reason]) -> list[dict[str, str]]:
    """Return [{"code", "subject", "need", "have", "source"}]."""
    rows = []
    for reason in reasons:
        row = {field: getattr(reason, field) for field in REASON_FIELDS}
        if reason.dependent:
            row["need"] = f"{reason.need}, for {reason.dependent}"
        rows.append(row)
    return rows


def rejections_json(rejections: Iterable[Rejection]) -> list[dict[str, Any]]:
    """Return [{"name", "version", "reasons"}]."""
    return [
        {"name": release.name, "version": release.version, "reasons": reasons_json(release.reasons)}
        for release in rejections
    ]
