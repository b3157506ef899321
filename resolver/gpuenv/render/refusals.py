"""Explain on one screen why there is no solution, and which changes help.

Reasons that share a fact are drawn together on one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..compat.evaluate import HOST_CODES
from ..errors import Change, Explanation, Reason, is_doubt
from ..model import Host, Plan, Rejection, show_pair
from ..serialize import to_plain
from .text import Line, columns
from .values import (
    choice_text,
    found_text,
    is_stated,
    need_and_found,
    quantity_text,
    reasons_json,
    sentence,
    subjects_text,
    update_offer,
    warning_texts,
)

# Why the builds of a release do not suit a GPU and a driver, or are not chosen.
_OF_BUILDS = frozenset({
    "build-unknown", "code-unknown", "cpu-build", "cuda-libraries-unknown", "driver-cuda",
    "driver-floor", "driver-floor-unknown", "known-avoid", "known-broken", "needs-gpu",
    "no-code-for-device", "no-such-extra", "other-build", "ptx-needs-newer-driver",
})  # fmt: skip
SCREEN = 25  # lines of a whole explanation
LEAST = 6  # lines that reasons have, however many changes there are
INDENT = "  "
_NOTHING_HELPS = (
    "no small change of the request, the driver, the Python or the GPU helps; change several of "
    "the requirements that the reasons name, or use another host"
)

Item = list[str]  # the lines of one sentence


def explanation_lines(explanation: Explanation, used: int = 1) -> list[str]:
    """Return the reasons and then the changes that help.

    Args:
        used: lines that the caller prints before. With them, the result fits SCREEN lines of
            `columns()` characters.
    """
    changes = change_lines(explanation.changes, explanation.reasons)
    most = max(LEAST, SCREEN - used - len(changes))
    lines = [*_decisive_lines(explanation.reasons, most), *changes]
    return lines + update_offer(explanation.reasons)


def _decisive_lines(reasons: Sequence[Reason], most: int) -> list[str]:
    """Return the reasons. Those about the host replace those about builds: no build helps."""
    of_host = [reason for reason in reasons if reason.code in HOST_CODES]
    of_builds = [reason for reason in reasons if reason.code in _OF_BUILDS]
    if not of_host or not of_builds:
        return reason_lines(reasons, most)
    count = quantity_text(len(of_builds), "more reason")
    others = [reason for reason in reasons if reason.code not in {*HOST_CODES, *_OF_BUILDS}]
    return [
        *reason_lines(of_host, most),
        f"{INDENT}no release avoids this (--json lists {count})",
        *reason_lines(others, most),
    ]


def impossible_lines(explanation: Explanation, host: Host) -> list[str]:
    """Return the answer of `gpuenv explain` if there is no solution."""
    answer = "Resolution is impossible"
    first, *rest = wrapped(f"{answer}: {explanation.subject} on {host_text(host)}", "")
    head = [Line(first, "bad", marked=len(answer)), *rest]
    return [*head, *explanation_lines(explanation, len(head))]


def host_text(host: Host) -> str:
    """Return "linux-x86_64, Python 3.12, H100, driver 580.65.06"."""
    gpus = " and ".join(dict.fromkeys(gpu.name for gpu in host.gpus))
    parts = [host.platform, f"Python {show_pair(host.python.version)}", gpus or "no GPU"]
    if host.driver:
        parts.append(f"driver {host.driver}")
    return ", ".join(parts)


def change_lines(changes: Sequence[Change], reasons: Iterable[Reason]) -> list[str]:
    """Return the changes that help, each as one item, or that none was found."""
    if not changes:
        return wrapped(_unknown_packages(reasons) or _NOTHING_HELPS, "")
    lines = ["what helps (each change is sufficient):"]
    for change in changes:
        lines += wrapped(f"{change.change}: gives {change.gives}", INDENT)
    return lines


def _unknown_packages(reasons: Iterable[Reason]) -> str:
    """Return what to do about requested packages that no index has, or "" if there are none."""
    unknown = [reason for reason in reasons if reason.code == "not-in-index"]
    names = sorted({reason.subject for reason in unknown if not reason.dependent})
    if not names:
        return ""
    return f"correct the name {', '.join(names)}, or give its index: --extra-index-url URL"


# ---- reasons ------------------------------------------------------------------------------------


class _Group:
    """Reasons of one kind about builds of one package: subjects by (need, have)."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.subjects: dict[tuple[str, str], list[str]] = {}

    def add(self, reason: Reason) -> None:
        subjects = self.subjects.setdefault(need_and_found(reason), [])
        if reason.subject not in subjects:
            subjects.append(reason.subject)

    def all_subjects(self) -> list[str]:
        subjects: dict[str, None] = {}
        for names in self.subjects.values():
            subjects.update(dict.fromkeys(names))
        return list(subjects)

    def exact(self) -> list[Item]:
        """Return an item for each fact."""
        if self.code == "two-owners":
            return [self._owners()]
        if self.code == "other-build" and len(self.subjects) > 1:
            return self._other_builds()
        items = []
        for (need, have), subjects in self.subjects.items():
            items.append(wrapped(sentence(self.code, subjects, need, have), INDENT))
        return items

    def _owners(self) -> Item:
        folders = self.all_subjects()
        (need, have), _ = next(iter(self.subjects.items()))
        text = sentence(self.code, folders[:1], need, have)
        if folders[1:]:
            text += f" (the same for {' and '.join(folders[1:])})"
        return wrapped(text, INDENT)

    def _subjects_by_need(self) -> dict[str, list[str]]:
        subjects: dict[str, dict[str, None]] = {}
        for (need, _), names in self.subjects.items():
            subjects.setdefault(need, {}).update(dict.fromkeys(names))
        return {need: list(names) for need, names in subjects.items()}

    def _other_builds(self) -> list[Item]:
        """Return an item for each chosen build, without a list of what the other builds are."""
        items = []
        for need, names in self._subjects_by_need().items():
            items.append(wrapped(sentence(self.code, names, need, ""), INDENT))
        return items

    def by_need(self) -> list[Item]:
        """Return an item for each need, with what the first of the builds has."""
        have_by_need: dict[str, list[str]] = {}
        for need, have in self.subjects:
            have_by_need.setdefault(need, []).append(have)
        items = []
        for need, names in self._subjects_by_need().items():
            text = sentence(self.code, names, need, have_by_need[need][0])
            if len(have_by_need[need]) > 1:
                text += " or similar"
            items.append(wrapped(text, INDENT))
        return items

    def first_and_last(self) -> list[Item]:
        """Return one item with the first and the last fact."""
        facts = list(self.subjects.items())
        ((need, have), first), ((last_need, last_have), last) = facts[0], facts[-1]
        subjects = self.all_subjects()
        if is_stated(self.code, need):
            return [wrapped(f"{sentence(self.code, subjects, need, have)} or similar", INDENT)]
        text = f"{first[0]} needs {need}, {last[-1]} needs {last_need}"
        if subjects[2:]:
            text += f", and {len(subjects) - 2} between them are similar"
        text += f"; {found_text(self.code, have, plural=True)}"
        if last_have != have:
            text += f", and {last_have}"
        return [wrapped(text, INDENT)]


def reason_lines(reasons: Iterable[Reason], most: int) -> list[str]:
    """Return at most `most` lines. Facts of one kind are drawn together as far as they must."""
    groups = _grouped(reasons)
    return _cut_to(_fitted(groups, most), most)


def _grouped(reasons: Iterable[Reason]) -> list[_Group]:
    groups: dict[tuple[str, str], _Group] = {}
    for reason in _with_joined_dependents(reasons):
        name = reason.subject.partition(" ")[0]
        if reason.code == "two-owners":
            name = ""  # the subject is a folder: folders with the same two owners belong together
        group = groups.setdefault((reason.code, name), _Group(reason.code))
        group.add(reason)
    return list(groups.values())


def _with_joined_dependents(reasons: Iterable[Reason]) -> list[Reason]:
    """Join reasons that differ only in the release that has the need: "NAME 1.0 and 0.9"."""
    joined: dict[Reason, dict[str, list[str]]] = {}
    for reason in reasons:
        dependents = joined.setdefault(reason.replace(dependent=""), {})
        if reason.dependent:
            name = reason.dependent.partition(" ")[0]
            dependents.setdefault(name, []).append(reason.dependent)
    return [
        reason.replace(dependent=", ".join(map(subjects_text, dependents.values())))
        for reason, dependents in joined.items()
    ]


def _fitted(groups: Sequence[_Group], most: int) -> list[Item]:
    """Make the largest groups coarser until all items have at most `most` lines."""
    items = [group.exact() for group in groups]
    coarser = [[group.by_need(), group.first_and_last()] for group in groups]
    while _line_count(items) > most:
        largest = None
        for place, group_items in enumerate(items):
            can_shrink = len(group_items) > 1 and coarser[place]
            if can_shrink and (largest is None or len(group_items) > len(items[largest])):
                largest = place
        if largest is None:
            break
        items[largest] = coarser[largest].pop(0)
    flat = []
    for group_items in items:
        flat += group_items
    return flat


def _line_count(items: Iterable[Sequence[Item]]) -> int:
    count = 0
    for group_items in items:
        count += sum(map(len, group_items))
    return count


def _cut_to(items: Sequence[Item], most: int) -> list[str]:
    """Return the lines of the first items; the last line says how many items are left out."""
    lines: list[str] = []
    for place, item in enumerate(items):
        room = most
        if place < len(items) - 1:
            room -= 1
        if len(lines) + len(item) > room:
            return [*lines, f"{INDENT}and {len(items) - place} more (--json lists all)"]
        lines += item
    return lines


def wrapped(text: str, indent: str) -> list[str]:
    """Return lines of at most `columns()` characters; later lines are indented more.

    A longer word stays whole.
    """
    width = columns()
    lines, line = [], indent
    for word in text.split():
        if not line.strip():
            line += word
        elif len(line) + 1 + len(word) > width:
            lines.append(line)
            line = f"{indent}    {word}"
        else:
            line += f" {word}"
    return [*lines, line]


# ---- JSON ---------------------------------------------------------------------------------------


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """Return the document of `explain --json`, and of a failure under --json."""
    return {
        "possible": False,
        "reasons": reasons_json(explanation.reasons),
        "smallest_changes": _changes_json(explanation.changes),
    }


def lock_json(
    path: str, created_by: str, count: int, reasons: Sequence[Reason], changes: Sequence[Change]
) -> dict[str, Any]:
    """Return the document of `explain LOCK --json`.

    Args:
        created_by: the tool that made the lock.
        count: how many packages it has.
    """
    return {
        "possible": all(map(is_doubt, reasons)),
        "reasons": reasons_json(reasons),
        "smallest_changes": _changes_json(changes),
        "lock": path,
        "created_by": created_by,
        "packages": count,
    }


def _changes_json(changes: Iterable[Change]) -> list[Mapping[str, str]]:
    return [{"change": change.change, "gives": change.gives} for change in changes]


# ---- what is possible ---------------------------------------------------------------------------


def possible_lines(plan: Plan) -> list[str]:
    """Return what would be chosen, and why newer builds were passed over."""
    lines = []
    for choice in plan.choices:
        lines += wrapped(f"possible: {choice_text(choice)}", "")
    if not plan.choices:
        lines.append(f"possible: {quantity_text(len(plan.pins), 'package')}")
    if plan.needs.driver is not None:
        lines.append(f"needs driver >= {plan.needs.driver}")
    for text in warning_texts(plan.warnings):
        lines += wrapped(f"warning: {text}", "")
    reasons = _reasons_of(plan.skipped)
    if reasons:
        lines.append("passed over:")
        lines += reason_lines(reasons, max(LEAST, SCREEN - len(lines)))
    return lines


def possible_json(plan: Plan) -> dict[str, Any]:
    """Return the document of `explain --json` if there is a solution.

    The reasons are those against the releases that were passed over.
    """
    skipped = []
    for release in plan.skipped:
        reasons = reasons_json(release.reasons)
        skipped.append({"name": release.name, "version": release.version, "reasons": reasons})
    return {
        "possible": True,
        "reasons": reasons_json(dict.fromkeys(_reasons_of(plan.skipped))),
        "smallest_changes": [],
        "frameworks": to_plain(plan.choices),
        "needs": to_plain(plan.needs),
        "packages": len(plan.pins),
        "warnings": reasons_json(plan.warnings),
        "skipped": skipped,
    }


def _reasons_of(skipped: Iterable[Rejection]) -> list[Reason]:
    reasons: list[Reason] = []
    for release in skipped:
        reasons += release.reasons
    return reasons
