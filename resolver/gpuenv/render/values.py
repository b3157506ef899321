"""Phrases for values that several modules share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import Reason
from ..model import Choice, Rejection, Solved, quantity_text, show_pair

REASON_FIELDS = ("code", "subject", "need", "have", "source")
NEWER = "newer-"  # the codes that say why a chosen release is not the newest one
UNKNOWN_RELEASE = ("build-unknown", "library-unknown")

# How sentences say what was found instead of what is needed, each with the codes of its reasons.
_FOUND = {
    "this host has {have}": (
        "cpu-feature", "cpu-lock", "cpu-unknown", "device", "device-unknown",
        "driver-branch-unknown", "driver-cuda", "driver-cuda-unknown", "driver-floor",
        "driver-floor-unknown", "glibc", "gpu-dropped-by-driver", "gpu-needs-newer-driver",
        "lock-python", "no-gpu", "ptx-needs-newer-driver", "python", "requires-python",
        "virtual-package",
    ),
    "this host has none": ("cuda-build", "needs-gpu"),
    "this host is {have}": ("lock-environment", "platform"),
    "on this host: {have}": ("driver-unknown",),
    "the glibc of this host is {have}": ("glibc-unknown",),
    "{it} {have}": ("code-unknown", "no-code-for-device"),
    "this conflicts with {have}": ("conflict",),
    "available: {have}": ("no-release", "no-version", "no-wheel-for-target"),
    "{have}": (
        "conda-closure", "cudnn-unknown", "index-unknown", "lock-missing", "lock-tampered",
        "lock-unreadable", "no-candidate", "no-offline-file", "no-wheel", "yanked",
    ),
}  # fmt: skip
# Sentences of another form. A colon introduces a property of the subject.
_OTHER_FORMS = {
    "has more than one owner: {have}": ("two-owners",),
    "lacks {need}; available: {have}": ("extra-unknown",),
    ": {have}; this host needs {need}": ("cpu-build",),
    ": {have}; for CUDA: {need}": ("cpu-dependency",),
    ": {have}, which needs {need}": ("compiled",),
    ": {have}, not {need}": ("other-build",),
    ": {have}": (
        *UNKNOWN_RELEASE,
        "companion-unknown",
        "file-unknown",
        "image-unknown",
        "index-failed",
        "left-out",
        "known-unsupported",
        "not-in-index",
        "replaced",
        "same-build",
        "shared-paths",
        "system-cudnn",
        "unpinned",
        "user-row",
    ),
    ": it {have}": ("not-kept",),
    ": known bad: {have}": ("known-avoid", "known-broken"),
    "beside {have}: known bad: {need}": ("bad-pair", "avoid-pair"),
}
_FORMS = {code: f"{{needs}} {{need}}; {form}" for form, codes in _FOUND.items() for code in codes}
_FORMS |= {code: form for form, codes in _OTHER_FORMS.items() for code in codes}
_SUBJECTS = {"lock": "the lock", "driver": "this host"}


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


def download_bytes(plan: Solved) -> int:
    """Return the sum of all file sizes that are known."""
    return sum(pin.wheel.size or 0 for pin in plan.pins)


def download_text(plan: Solved) -> str:
    """Return "2.1 GB", or "2.1 GB and 3 of unknown size"."""
    unknown = sum(pin.wheel.size is None for pin in plan.pins)
    text = size(download_bytes(plan))
    return f"{text} and {unknown} of unknown size" if unknown else text


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
    return "architectures from documentation"


def index_lines(date: str) -> list[str]:
    """Return the line that says from when the releases of a plan are; none without a snapshot."""
    return [f"index data of {date} (--refresh asks the indexes)"] if date else []


# ---- reasons ------------------------------------------------------------------------------------


def update_offer(reasons: Iterable[Reason]) -> list[str]:
    """Return the line that offers to scan releases which the compatibility data lacks, if any."""
    subjects = [reason.subject for reason in reasons if reason.code in UNKNOWN_RELEASE]
    names = list(dict.fromkeys(subject.partition(" ")[0] for subject in subjects))
    if not names:
        return []
    count = quantity_text(len(set(subjects)), "release")
    return [f"the data lacks {count}: `gpuenv matrix update {' '.join(names)}` scans what is new"]


def is_stated(code: str) -> bool:
    """Return whether a reason states a property of its subject, so that a colon introduces it."""
    return _FORMS.get(code, "").startswith(":")


def is_need(code: str) -> bool:
    """Return whether a reason says what its subject needs."""
    return _FORMS.get(code, "{needs}").startswith("{needs}")


def need_and_found(reason: Reason) -> tuple[str, str]:
    """Return the need and what was found, one of them with the release that has the need."""
    need, have = reason.need, reason.have
    if not reason.dependent:
        return need, have
    if is_stated(reason.code):  # the need is not shown
        return need, f"{have}, for {reason.dependent}"
    return f"{need}, for {reason.dependent}", have


def predicate(code: str, need: str, have: str, *, plural: bool) -> tuple[str, str]:
    """Return what a sentence says about its subject, and what was found instead of the need.

    Args:
        plural: the sentence is about several builds.
    """
    form = _FORMS.get(code, "{needs} {need}; found {have}")
    if have == "none do":
        form = "{needs} {need}; {have}"
    needs, it = ("need", "they have") if plural else ("needs", "it has")
    verdict, _, observed = form.partition("; ")
    texts = {"needs": needs, "it": it, "need": need, "have": have}
    return verdict.format(**texts), observed.format(**texts).strip()


def sentence(
    code: str, subjects: Sequence[str], need: str, have: str, *, brief: bool = False
) -> str:
    """Return one sentence about builds that share a fact; with `brief` without what was found."""
    verdict, observed = predicate(code, need, have, plural=len(subjects) > 1)
    text = f"{subjects_text(subjects)}{'' if is_stated(code) else ' '}{verdict}"
    return f"{text}; {observed}" if observed and not brief else text


def reason_text(reason: Reason, *, brief: bool = False) -> str:
    """Return a reason as a sentence, with its subject; with `brief` without what was found."""
    need, have = need_and_found(reason)
    return sentence(reason.code, [reason.subject], need, have, brief=brief)


def warning_texts(warnings: Iterable[Reason]) -> list[str]:
    """Return warnings as sentences; those of one kind about many packages are one sentence."""
    texts, newer, not_judged = [], [], []
    for reason in warnings:
        if reason.code == "companion-unknown":
            not_judged.append(reason.subject)
        elif reason.code.startswith(NEWER):
            newer.append(f"{reason.subject} ({reason.need} {reason.have})")
        else:
            texts.append(reason_text(reason))
    if not_judged:
        names = ", ".join(not_judged)
        texts.append(f"not judged: {names} (no rows for their files; `gpuenv verify` imports them)")
    if newer:
        texts.append(f"not the newest release: {'; '.join(newer)}")
    return texts


def subjects_text(subjects: Sequence[str]) -> str:
    """Name one or several builds of a package.

    "torch 2.15.0", "torch 2.15.0 and 2.14.1", "torch 2.15.0 and 9 others down to 2.1.0". What
    has no version is named in full: "releases of vllm and 2 others".
    """
    first, *others = subjects
    first = _SUBJECTS.get(first, first)
    if not others:
        return first
    last = others[-1].removeprefix(f"{first.partition(' ')[0]} ")
    down = f" down to {last}" if last[:1].isdigit() else ""
    if len(others) == 1:
        return f"{first} and {last if down else others[-1]}"
    return f"{first} and {len(others)} others{down}"


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
