"""Why not, on one screen: reasons that share a fact on one line, then the changes that help."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..errors import Change, Explanation, Reason
from ..model import Host, Plan, show_pair
from ..serialize import to_plain
from .values import choice_text, is_doubt, reasons_json

WIDTH = 100
SCREEN = 25  # lines of a whole explanation
LEAST = 6  # lines that reasons have, however many changes there are

Fact = tuple[str, str]  # need, have


def explanation_lines(explanation: Explanation, used: int = 1) -> list[str]:
    """The reasons, those that say the same of several builds on one line, then the changes that help.

    With `used` lines that a caller puts before them they fit SCREEN lines of WIDTH characters.
    """
    changes = change_lines(explanation.changes)
    return [*reason_lines(explanation.reasons, max(LEAST, SCREEN - used - len(changes))), *changes]


def impossible_lines(explanation: Explanation, host: Host) -> list[str]:
    """The answer of `gpuenv explain` to what cannot be had: what was asked where, then why, then what would help."""
    head = wrapped(f"not possible: {explanation.subject} on {host_text(host)}", "")
    return [*head, *explanation_lines(explanation, len(head))]


def host_text(host: Host) -> str:
    """ "linux-x86_64, Python 3.12, H100, driver 580.65.06"."""
    gpus = " and ".join(dict.fromkeys(gpu.name for gpu in host.gpus)) or "no GPU"
    driver = [f"driver {host.driver}"] if host.driver else []
    return ", ".join([host.platform, f"Python {show_pair(host.python.version)}", gpus, *driver])


def change_lines(changes: Sequence[Change]) -> list[str]:
    """What would help, a change an item."""
    if not changes:
        return ["no small change of the request, the driver, the Python or the GPU was found to help"]
    return ["what would help (each is enough):"] + [
        line for one in changes for line in wrapped(f"{one.change}: gives {one.gives}", "  ")
    ]


def reason_lines(reasons: Iterable[Reason], most: int) -> list[str]:
    """At most `most` lines. Facts of one kind about builds of one package are drawn together as far as they must."""
    groups: dict[tuple[str, str], dict[Fact, list[str]]] = {}
    for reason in reasons:
        # A folder with two owners is what is shared: by what they are, not by the folder.
        name = "" if reason.code == "two-owners" else reason.subject.partition(" ")[0]
        facts = groups.setdefault((reason.code, name), {})
        facts.setdefault((reason.need, reason.have), []).append(reason.subject)
    items = [_items(code, facts) for (code, _), facts in groups.items()]
    coarser = [[_by_need(facts), [_together(facts)]] for facts in groups.values()]
    while sum(map(len, (line for item in items for line in item))) > most:
        large = [place for place in range(len(items)) if len(items[place]) > 1 and coarser[place]]
        if not large:
            break
        largest = max(large, key=lambda place: len(items[place]))
        items[largest] = coarser[largest].pop(0)
    lines = [item for group in items for item in group]
    kept: list[str] = []
    for place, item in enumerate(lines):
        if len(kept) + len(item) > most - (place < len(lines) - 1):
            return [*kept, f"  and {len(lines) - place} more such facts (--json names all)"]
        kept += item
    return kept


def _items(code: str, facts: dict[Fact, list[str]]) -> list[list[str]]:
    """The lines of each fact of a group."""
    if code == "two-owners":
        folders = list(dict.fromkeys(subject for subjects in facts.values() for subject in subjects))
        have = next(iter(facts))[1]
        also = f" (so for {' and '.join(folders[1:])})" if folders[1:] else ""
        return [wrapped(f"{folders[0]} is of both {have}{also}", "  ")]
    if code.startswith("known-"):
        return [
            wrapped(f"{_who(list(dict.fromkeys(subjects)))}: known to be bad, it {have}", "  ")
            for (_, have), subjects in facts.items()
        ]
    return [wrapped(_said(subjects, need, have), "  ") for (need, have), subjects in facts.items()]


def _by_need(facts: dict[Fact, list[str]]) -> list[list[str]]:
    """A line for each need, with what the first of the builds has."""
    needs: dict[str, list[tuple[str, str]]] = {}
    for (need, have), subjects in facts.items():
        needs.setdefault(need, []).extend((subject, have) for subject in subjects)
    lines = []
    for need, rows in needs.items():
        names = list(dict.fromkeys(subject for subject, _ in rows))
        alike = "" if len({have for _, have in rows}) == 1 else " or the like"
        lines.append(wrapped(_said(names, need, rows[0][1]) + alike, "  "))
    return lines


def _said(subjects: Sequence[str], need: str, have: str) -> str:
    names = list(dict.fromkeys(subjects))
    return f"{_who(names)} {'needs' if len(names) == 1 else 'need'} {need}; have {have}"


def _who(names: Sequence[str]) -> str:
    """ "torch 2.15.0"; "torch 2.15.0 and 2.14.1"; "torch 2.15.0 and 9 others down to 2.1.0"."""
    first, *rest = names
    if not rest:
        return first
    same = first.partition(" ")[0] + " "
    last = rest[-1].removeprefix(same)
    return f"{first} and {last}" if len(rest) == 1 else f"{first} and {len(rest)} others down to {last}"


def _together(facts: dict[Fact, list[str]]) -> list[str]:
    """The first and the last of many facts about builds of one package."""
    rows = [(subjects, need, have) for (need, have), subjects in facts.items()]
    (first, need, have), (last, other, its) = rows[0], rows[-1]
    names = list(dict.fromkeys(name for subjects, _, _ in rows for name in subjects))
    text = f"{first[0]} needs {need}, {last[-1]} {other}" + (f", {len(names) - 2} between alike" if names[2:] else "")
    return wrapped(f"{text}; have {have}" + ("" if have == its else f", and {its}"), "  ")


def wrapped(text: str, indent: str) -> list[str]:
    """Lines of at most WIDTH characters (a longer word stays whole), further ones indented more."""
    lines, line = [], indent
    for word in text.split():
        if line.strip() and len(line) + 1 + len(word) > WIDTH:
            lines.append(line)
            line = indent + "    "
        line += word if not line.strip() else f" {word}"
    return [*lines, line]


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """The document of `explain --json`, and of a refusal under --json."""
    return {
        "possible": False,
        "reasons": reasons_json(explanation.reasons),
        "smallest_changes": [{"change": change.change, "gives": change.gives} for change in explanation.changes],
    }


def lock_json(path: str, who: str, count: int, reasons: Sequence[Reason], changes: Sequence[Change]) -> dict[str, Any]:
    """The document of `explain LOCK --json`."""
    return {
        "possible": all(map(is_doubt, reasons)),
        "reasons": reasons_json(reasons),
        "smallest_changes": [{"change": change.change, "gives": change.gives} for change in changes],
        "lock": path,
        "created_by": who,
        "packages": count,
    }


# ---- what is possible ---------------------------------------------------------------------------------------------


def possible_lines(plan: Plan) -> list[str]:
    """What would be chosen, and why newer builds were passed over."""
    chosen = [choice_text(choice) for choice in plan.choices] or [f"{len(plan.pins)} packages"]
    lines = [line for one in chosen for line in wrapped(f"possible: {one}", "")]
    needs = plan.needs
    if needs.driver is not None:
        lines.append(f"needs driver >= {needs.driver}")
    lines += [
        line
        for reason in plan.warnings
        for line in wrapped(f"warning: {_said([reason.subject], reason.need, reason.have)}", "")
    ]
    reasons = [reason for one in plan.skipped for reason in one.reasons]
    if reasons:
        lines.append("passed over:")
        lines += reason_lines(reasons, max(LEAST, SCREEN - len(lines)))
    return lines


def possible_json(plan: Plan) -> dict[str, Any]:
    """As `explanation_json`, and what would be chosen; the reasons are those against what was passed over."""
    reasons = dict.fromkeys(reason for one in plan.skipped for reason in one.reasons)
    return {
        "possible": True,
        "reasons": reasons_json(reasons),
        "smallest_changes": [],
        "frameworks": [to_plain(choice) for choice in plan.choices],
        "needs": to_plain(plan.needs),
        "packages": len(plan.pins),
        "warnings": reasons_json(plan.warnings),
        "skipped": [
            {"name": one.name, "version": one.version, "reasons": reasons_json(one.reasons)} for one in plan.skipped
        ],
    }
