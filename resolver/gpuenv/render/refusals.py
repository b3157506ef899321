"""Explain on one screen why there is no solution, and which changes help.

Reasons that share a fact are drawn together on one line.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from operator import itemgetter
from typing import Any

from ..compat.evaluate import HOST_CODES
from ..errors import Change, Explanation, LockReport, Reason, is_doubt
from ..model import Host, Plan, quantity_text, show_pair
from .text import Line, columns
from .values import (
    choice_text,
    is_need,
    need_and_found,
    predicate,
    reason_text,
    reasons_json,
    rejections_json,
    sentence,
    subjects_text,
    update_offer,
    warning_texts,
)

# Why the builds of a release do not suit a GPU and a driver, or are not chosen.
_OF_BUILDS = frozenset({
    "build-unknown", "code-unknown", "cpu-build", "cuda-libraries-unknown", "driver-cuda",
    "driver-floor", "driver-floor-unknown", "known-avoid", "known-broken", "known-unsupported",
    "needs-gpu", "no-code-for-device", "no-such-extra", "other-build", "ptx-needs-newer-driver",
})  # fmt: skip
SCREEN = 25  # lines of a whole explanation of what is possible, or of a lock
HALF_A_SCREEN = 12  # lines of a refusal without -v: what helps must stand beside the command
EVERY_LINE = 10_000
LEAST = 6  # lines that reasons have, however many changes there are
INDENT = "  "
_NOTHING_HELPS = (
    "no small change of the request, the driver or the Python helps; change several of the "
    "requirements that the reasons name, or use another host"
)
_NOT_PROVED = (
    "nothing else helps, but an index that cannot be reached may have a build: solve where it can "
    "be reached, or name its files with --find-links"
)


def explanation_lines(explanation: Explanation, used: int = 1, *, verbose: bool) -> list[str]:
    """Return the reasons, the deciding one first, and then the changes that help.

    Args:
        used: lines that the caller prints before. With them, the result fits HALF_A_SCREEN lines of
            `columns()` characters.
        verbose: whether to print every reason.
    """
    reasons = explanation.reasons
    changes = change_lines(explanation.changes, reasons)
    most = EVERY_LINE if verbose else max(LEAST, HALF_A_SCREEN - used - len(changes))
    of_host = [reason for reason in reasons if reason.code in HOST_CODES]
    of_builds = [reason for reason in reasons if reason.code in _OF_BUILDS]
    lines = reason_lines(of_host if of_builds and of_host else reasons, most, "-v")
    if of_host and of_builds:  # those about the host replace those about builds: no build helps
        count = quantity_text(len(of_builds), "more reason")
        lines.append(f"{INDENT}no release avoids this (--json lists {count})")
        others = [reason for reason in reasons if reason.code not in {*HOST_CODES, *_OF_BUILDS}]
        lines += reason_lines(others, most, "-v")
    return [*lines, *changes, *update_offer(reasons)]


def impossible_lines(explanation: Explanation, host: Host, *, verbose: bool) -> list[str]:
    """Return the answer of `gpuenv explain` if there is no solution."""
    answer = "Resolution is impossible"
    first, *rest = wrapped(f"{answer}: {explanation.subject} on {host_text(host)}", "")
    head = [Line(first, "bad", marked=len(answer)), *rest]
    return [*head, *explanation_lines(explanation, len(head), verbose=verbose)]


def host_text(host: Host) -> str:
    """Return "linux-x86_64, Python 3.12, H100, driver 580.65.06"."""
    gpus = " and ".join(dict.fromkeys(gpu.name for gpu in host.gpus))
    parts = [host.platform, f"Python {show_pair(host.python.version)}", gpus or "no GPU"]
    if host.driver:
        parts.append(f"driver {host.driver}")
    return ", ".join(parts)


def lock_lines(report: LockReport, *, with_changes: bool = False) -> list[str]:
    """Return what speaks against a lock on a host, failures before doubts, on one screen.

    Args:
        with_changes: whether to end with the changes of the host that help.
    """
    failures = [reason for reason in report.reasons if not is_doubt(reason)]
    verdict = "violates no rule"
    if any(reason.code.endswith("-unknown") for reason in report.reasons):
        verdict = "may not work"
    changes = []
    if failures:
        verdict = "would not work"
        changes = change_lines(report.changes, report.reasons) if with_changes else []
    subject = f"{report.path} ({report.created_by}, {quantity_text(report.packages, 'package')})"
    lines = wrapped(f"{subject} {verdict} on {host_text(report.host)}", "")
    if report.places:
        for place, rows in groupby(zip(report.places, report.reasons, strict=True), itemgetter(0)):
            reasons = [reason for _, reason in rows]
            notes = _note_lines(reasons)[:LEAST]
            known = [reason for reason in reasons if not is_doubt(reason)]
            lines += [f"{place}:", *reason_lines(known, LEAST), *notes]
        return [*lines, *changes]
    notes = [*_note_lines(report.reasons), *changes]
    most = max(LEAST, SCREEN - len(lines) - len(notes))
    return [*lines, *reason_lines(failures, most), *notes]


def _note_lines(reasons: Iterable[Reason]) -> list[str]:
    """Return the doubts among some reasons."""
    lines = []
    for reason in dict.fromkeys(filter(is_doubt, reasons)):
        kind = "not known" if reason.code.endswith("-unknown") else "note"
        lines += wrapped(f"{kind}: {reason_text(reason)}", INDENT)
    return lines


def change_lines(changes: Sequence[Change], reasons: Sequence[Reason]) -> list[str]:
    """Return the changes that help, each as one item, or that none was found."""
    if not changes:
        if any(reason.code == "no-offline-file" for reason in reasons):
            return []  # the reason says where the build is
        # Requested packages that no index has.
        unknown = [reason for reason in reasons if reason.code == "not-in-index"]
        names = {reason.subject for reason in unknown if not reason.dependent}
        advice: list[str] = []
        if of_python := ", ".join(sorted(names & sys.stdlib_module_names)):
            advice += wrapped(f"leave out {of_python}: Python itself has these modules", "")
        if others := ", ".join(sorted(names - sys.stdlib_module_names)):
            advice += wrapped(
                f"correct the name {others}, or give its index: --extra-index-url URL", ""
            )
        is_proved = all(reason.code != "index-failed" for reason in reasons)
        return advice or wrapped(_NOTHING_HELPS if is_proved else _NOT_PROVED, "")
    lines = ["what helps (each change is sufficient):"]
    for change in changes:
        lines += wrapped(f"{change.change}: gives {change.gives}", INDENT)
    return lines


# ---- reasons ------------------------------------------------------------------------------------


def reason_lines(reasons: Iterable[Reason], most: int, flag: str = "--json") -> list[str]:
    """Return at most `most` lines. Facts of one kind are drawn together as far as they must.

    `flag` is what lists all.
    """
    # Reasons that differ only in the release that has the need are one: "NAME 1.0 and 0.9".
    joined: dict[Reason, dict[str, list[str]]] = {}
    for reason in reasons:
        dependents = joined.setdefault(reason.replace(dependent=""), {})
        if reason.dependent:
            name = reason.dependent.partition(" ")[0]
            dependents.setdefault(name, []).append(reason.dependent)
    # {(code, package): {(need, found): builds}}
    groups: dict[tuple[str, str], dict[tuple[str, str], list[str]]] = {}
    for reason, dependents in joined.items():
        name = reason.subject.partition(" ")[0]
        if reason.code == "two-owners":
            name = ""  # the subject is a folder: folders with the same two owners belong together
        facts = groups.setdefault((reason.code, name), {})
        dependent = ", ".join(map(subjects_text, dependents.values()))
        subjects = facts.setdefault(need_and_found(reason.replace(dependent=dependent)), [])
        if reason.subject not in subjects:
            subjects.append(reason.subject)
    # The sentences of each group, each as lines. The largest groups become coarser until all fit.
    forms = [_forms(code, facts) for (code, _), facts in groups.items()]
    shown = [next(form) for form in forms]
    while sum(len(lines) for sentences in shown for lines in sentences) > most:
        divisible = [place for place, sentences in enumerate(shown) if len(sentences) > 1]
        for place in sorted(divisible, key=lambda place: -len(shown[place])):
            coarser = next(forms[place], None)
            if coarser is not None:
                shown[place] = coarser
                break
        else:
            break
    sentences = [lines for group in shown for lines in group]
    result: list[str] = []
    for place, lines in enumerate(sentences):
        room = most if place == len(sentences) - 1 else most - 1
        if len(result) + len(lines) > room:
            result = result or lines[:room]  # a solver's own text may be long
            return [*result, f"{INDENT}and {len(sentences) - place} more ({flag} lists all)"]
        result += lines
    return result


def _forms(code: str, facts: Mapping[tuple[str, str], Sequence[str]]) -> Iterator[list[list[str]]]:
    """Yield the sentences of a group, each as lines: for each fact, for each need, one for all.

    Args:
        code: the code of the reasons.
        facts: the builds of one package by the fact (need, found) that they share.
    """

    def lines(texts: Iterable[str]) -> list[list[str]]:
        return [wrapped(text, INDENT) for text in texts]

    subjects = list(dict.fromkeys(name for names in facts.values() for name in names))
    by_need: dict[str, list[str]] = {}
    haves: dict[str, list[str]] = {}
    for (need, have), names in facts.items():
        by_need[need] = list(dict.fromkeys((*by_need.get(need, ()), *names)))
        haves.setdefault(need, []).append(have)
    (need, have), first = next(iter(facts.items()))
    if code == "two-owners":
        text = sentence(code, subjects[:1], need, have)
        others = " and ".join(subjects[1:])
        yield lines([f"{text} (the same for {others})" if others else text])
        return
    if code == "other-build" and len(facts) > 1:
        # An item for each chosen build, without a list of what the other builds are.
        yield lines(f"{subjects_text(names)}: not {need}" for need, names in by_need.items())
    else:
        yield lines(sentence(code, names, *fact) for fact, names in facts.items())
    yield lines(
        sentence(code, names, need, haves[need][0]) + " or similar" * (len(haves[need]) > 1)
        for need, names in by_need.items()
    )
    if not is_need(code):
        yield lines([f"{sentence(code, subjects, need, have)} or similar"])
        return
    (last_need, last_have), last = list(facts.items())[-1]
    text = f"{first[0]} needs {need}, {last[-1]} needs {last_need}"
    if subjects[2:]:
        text += f", and {len(subjects) - 2} between them are similar"
    text += f"; {predicate(code, need, have, plural=True)[1]}"
    yield lines([f"{text}, and {last_have}" if last_have != have else text])


def wrapped(text: str, indent: str) -> list[str]:
    """Return lines of at most `columns()` characters; later lines are indented more.

    A longer word stays whole.
    """
    return textwrap.wrap(
        " ".join(text.split()),
        columns(),
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


# ---- JSON ---------------------------------------------------------------------------------------


def explanation_json(explanation: Explanation) -> dict[str, Any]:
    """Return the document of `explain --json`, and of a failure under --json."""
    return {
        "possible": False,
        "reasons": reasons_json(explanation.reasons),
        "smallest_changes": explanation.changes,
    }


def lock_json(report: LockReport) -> dict[str, Any]:
    """Return the document of `explain LOCK --json`."""
    return {
        "possible": report.works,
        "reasons": [
            {**row, "place": place} if place else row
            for row, place in zip_longest(reasons_json(report.reasons), report.places)
        ],
        "smallest_changes": report.changes,
        "lock": report.path,
        "created_by": report.created_by,
        "packages": report.packages,
    }


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
    reasons = [reason for release in plan.skipped for reason in release.reasons]
    if reasons:
        lines.append("passed over:")
        lines += reason_lines(reasons, max(LEAST, SCREEN - len(lines)))
    return lines


def possible_json(plan: Plan) -> dict[str, Any]:
    """Return the document of `explain --json` if there is a solution.

    The reasons are those against the releases that were passed over.
    """
    reasons = [reason for release in plan.skipped for reason in release.reasons]
    return {
        "possible": True,
        "reasons": reasons_json(dict.fromkeys(reasons)),
        "smallest_changes": [],
        "frameworks": plan.choices,
        "needs": plan.needs,
        "packages": len(plan.pins),
        "warnings": reasons_json(plan.warnings),
        "skipped": rejections_json(plan.skipped),
    }
