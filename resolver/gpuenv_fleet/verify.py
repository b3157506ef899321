"""Which nodes of a fleet failed, which differ from their class, and what changed since a run.

A node is compared with its class (`classes`) in its driver release, the hashes of its libraries,
the bits of its convolutions and the time of its checks. A value differs if more nodes have another
one. If no value is the most frequent one, all groups of nodes are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from gpuenv import InputError

from .classes import Classes
from .documents import Answer

MISSING = "(missing)"
# A time is an outlier if it is slow by the modified z-score of Iglewicz and Hoaglin (1993), and by
# half of the median, and by a second. Fewer nodes than this tell nothing about the spread.
MOST_DEVIATIONS = 3.5
_MAD_OF_NORMAL = 0.6745  # the median absolute deviation of a normal distribution
_LEAST_SHARE = 0.5
_LEAST_SECONDS = 1.0
LEAST_NODES = 5

Fact = tuple[str, str]  # what (driver, library, convolution), and its subject


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A check of a node that did not pass."""

    node: str
    name: str
    subject: str
    status: str
    evidence: str


@dataclass(frozen=True, kw_only=True)
class Outlier:
    """A node that differs from its class. `agree` nodes of the class have the expected value.

    `what` is driver, library, convolution or time. `expected` "" means that no value is the most
    frequent one.
    """

    node: str
    item: int
    what: str
    subject: str
    value: str
    expected: str
    agree: int


@dataclass(frozen=True, kw_only=True)
class Change:
    """What differs from the last run. `was` or `now` "" is nothing."""

    node: str
    what: str
    subject: str
    was: str
    now: str


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The result for a fleet."""

    passed: tuple[str, ...]
    failures: tuple[Failure, ...]
    outliers: tuple[Outlier, ...]
    changes: tuple[Change, ...] = ()

    @property
    def differing(self) -> tuple[Outlier, ...]:
        """The outliers that speak against a node; a slow check alone does not."""
        return tuple(outlier for outlier in self.outliers if outlier.what != "time")


def verify_fleet(
    answers: Sequence[Answer], classes: Classes, earlier: Sequence[Answer] = ()
) -> Verification:
    """Compare the verifications of the nodes.

    Args:
        answers: documents of `gpuenv verify --json`.
        classes: the classes of their hosts.
        earlier: the documents of the last run.

    Raises:
        InputError: a document is not one of `gpuenv verify --json`.
    """
    by_node = {answer.node: answer for answer in answers}
    failures: list[Failure] = []
    passed = []
    for answer in answers:
        failed = list(failures_of(answer))
        failures += failed
        if not failed:
            passed.append(answer.node)
    outliers: list[Outlier] = []
    for item, host_class in enumerate(classes.classes):
        members = [by_node[node] for node in host_class.nodes]
        outliers += _differing(item, members)
        outliers += _slow(item, members)
    return Verification(
        passed=tuple(passed),
        failures=tuple(failures),
        outliers=tuple(outliers),
        changes=tuple(_changes(earlier, answers)) if earlier else (),
    )


def checks_of(answer: Answer) -> Sequence[Mapping[str, Any]]:
    """Return the checks in a document. InputError if it has none."""
    checks = answer.document.get("checks")
    if not isinstance(checks, list) or not all(isinstance(check, dict) for check in checks):
        hint = "gpuenv fleet verify needs documents of gpuenv verify --json"
        raise InputError(f"{answer.node}: the document has no checks", hint=hint)
    return checks


def failures_of(answer: Answer) -> Iterator[Failure]:
    """Yield why a node is not verified: its failed checks, and otherwise the unknown ones."""
    checks = checks_of(answer)
    wanted = "fail" if any(check.get("status") == "fail" for check in checks) else "unknown"
    if answer.document.get("ok") is True:
        return
    not_passed = [check for check in checks if check.get("status") == wanted]
    for check in not_passed or [{"name": "verification", "evidence": "no check was made"}]:
        yield Failure(
            node=answer.node,
            name=str(check.get("name", "")),
            subject=str(check.get("subject", "")),
            status=wanted,
            evidence=str(check.get("evidence", "")),
        )


# ---- facts that must be equal --------------------------------------------------------------------


def facts_of(answer: Answer) -> Iterator[tuple[Fact, str, str]]:
    """Yield (fact, device or "", value) of a node: what equal nodes have in common."""
    host = answer.document.get("host", {})
    yield ("driver", ""), "", str(host.get("driver") or MISSING)
    for path, digest in _table(answer, "libraries").items():
        yield ("library", str(path)), "", str(digest)
    gpus = host.get("gpus", ())
    for result in answer.document.get("bits", ()):
        device = str(result.get("device", ""))
        subject = f"{result.get('what', '')} ({_capability(device, gpus)})"
        yield ("convolution", subject), device, str(result.get("sha256", ""))


def _table(answer: Answer, key: str) -> Mapping[str, Any]:
    table = answer.document.get(key, {})
    return table if isinstance(table, dict) else {}


def _capability(device: str, gpus: Sequence[Mapping[str, Any]]) -> str:
    """Return the compute capability of "GPU 1 NAME" as text."""
    number = device.removeprefix("GPU ").partition(" ")[0]
    if number.isdecimal() and int(number) < len(gpus):
        capability = gpus[int(number)].get("compute_capability") or ()
        return ".".join(map(str, capability))
    return "?"


def _differing(item: int, members: Sequence[Answer]) -> Iterator[Outlier]:
    """Yield the nodes of a class of which a fact is not that of most nodes."""
    values: dict[Fact, dict[str, list[tuple[str, str]]]] = {}
    for answer in members:
        for fact, device, value in facts_of(answer):
            values.setdefault(fact, {}).setdefault(value, []).append((answer.node, device))
    for fact, holders in values.items():
        if fact[0] == "library":
            having = {node for places in holders.values() for node, _ in places}
            lacking = [(answer.node, "") for answer in members if _has_libraries(answer, having)]
            if lacking:
                holders[MISSING] = lacking
        if len(holders) > 1:
            yield from _minorities(item, fact, holders)


def _has_libraries(answer: Answer, having: set[str]) -> bool:
    """Return whether a node that reported libraries lacks one that others have."""
    return answer.node not in having and bool(_table(answer, "libraries"))


def _minorities(
    item: int, fact: Fact, holders: Mapping[str, Sequence[tuple[str, str]]]
) -> Iterator[Outlier]:
    counts = Counter({value: len({n for n, _ in places}) for value, places in holders.items()})
    (expected, agree), (_, second) = counts.most_common(2)
    if agree == second:
        expected, agree = "", 0
    for value, places in holders.items():
        if value == expected:
            continue
        for node, device in places:
            subject = f"{device}: {fact[1]}" if device else fact[1]
            yield Outlier(
                node=node,
                item=item,
                what=fact[0],
                subject=subject,
                value=value,
                expected=expected,
                agree=agree,
            )


# ---- times ---------------------------------------------------------------------------------------


def _slow(item: int, members: Sequence[Answer]) -> Iterator[Outlier]:
    """Yield the nodes of which a check took much longer than in their class."""
    times: dict[tuple[str, str], dict[str, float]] = {}
    for answer in members:
        for check in checks_of(answer):
            seconds = check.get("seconds")
            if isinstance(seconds, (int, float)) and seconds > 0:
                key = (str(check.get("name", "")), str(check.get("subject", "")))
                times.setdefault(key, {})[answer.node] = float(seconds)
    for (name, subject), by_node in times.items():
        if len(by_node) < LEAST_NODES:
            continue
        middle = median(by_node.values())
        for node, seconds in slow_ones(by_node).items():
            yield Outlier(
                node=node,
                item=item,
                what="time",
                subject=f"{name} {subject}".strip(),
                value=f"{seconds:.2f} s",
                expected=f"{middle:.2f} s",
                agree=len(by_node),
            )


def slow_ones(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return those of the times that are slow by robust statistics."""
    middle = median(seconds.values())
    spread = median(abs(duration - middle) for duration in seconds.values())
    least = middle + max(
        MOST_DEVIATIONS * spread / _MAD_OF_NORMAL, _LEAST_SHARE * middle, _LEAST_SECONDS
    )
    return {name: duration for name, duration in seconds.items() if duration > least}


# ---- changes -------------------------------------------------------------------------------------


def _changes(earlier: Iterable[Answer], answers: Iterable[Answer]) -> Iterator[Change]:
    """Yield what differs from the last run: nodes, failures and facts."""
    before = {answer.node: answer for answer in earlier}
    after = {answer.node: answer for answer in answers}
    for node in sorted({*before, *after}):
        if node not in after:
            yield Change(node=node, what="node", subject="", was="answered", now="")
        elif node not in before:
            yield Change(node=node, what="node", subject="", was="", now="answers")
        else:
            yield from _changes_of_node(node, before[node], after[node])


def _changes_of_node(node: str, before: Answer, after: Answer) -> Iterator[Change]:
    was, now = _states(before), _states(after)
    for key in sorted({*was, *now}):
        if was.get(key, "") != now.get(key, ""):
            what, subject = key
            yield Change(
                node=node, what=what, subject=subject, was=was.get(key, ""), now=now.get(key, "")
            )


def _states(answer: Answer) -> dict[Fact, str]:
    """Return the facts of a node, and the status of each check."""
    states: dict[Fact, str] = {}
    for fact, device, value in facts_of(answer):
        subject = f"{device}: {fact[1]}" if device else fact[1]
        states[fact[0], subject] = value
    for check in checks_of(answer):
        name = f"{check.get('name', '')} {check.get('subject', '')}".strip()
        states["check", name] = str(check.get("status", ""))
    return states
