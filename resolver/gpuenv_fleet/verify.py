"""Which nodes of a fleet failed, which differ from their class, and what changed since a run.

A node is compared with its class (`classes`) in its driver release, the hashes of its libraries,
the bits of its convolutions and the time of its checks. A value differs if more nodes have another
one. If no value is the most frequent one, all groups of nodes are named.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from gpuenv import InputError

from .classes import Classes
from .documents import Answer, Collection, Document
from .report import classes_json, now, silence_json

MISSING = "(missing)"
# A time is an outlier if it is slow by the modified z-score of Iglewicz and Hoaglin (1993), and by
# half of the median, and by a second. Fewer nodes than this tell nothing about the spread.
MOST_DEVIATIONS = 3.5
_MAD_OF_NORMAL = 0.6745  # the median absolute deviation of a normal distribution
_LEAST_SHARE = 0.5
_LEAST_SECONDS = 1.0
LEAST_NODES = 5

Fact = tuple[str, str]  # what (driver, library, convolution), and its subject


def verify_fleet(
    collection: Collection, classes: Classes, earlier: Sequence[Answer] = ()
) -> dict[str, Any]:
    """Compare the verifications of the nodes.

    Args:
        collection: documents of `gpuenv verify --json`.
        classes: the classes of their hosts.
        earlier: the documents of the last run.

    Returns:
        The document of `fleet verify --json`. An outlier is a node that differs from its class, by
        number. `agree` nodes of the class have the expected value; "" if no value is the most
        frequent one. A change `was` or is `now` "" if there is nothing.

    Raises:
        InputError: a document is not one of `gpuenv verify --json`.
    """
    by_node = {answer.node: answer for answer in collection.answers}
    failures = [failure for answer in collection.answers for failure in _failures(answer)]
    outliers = []
    for number, host_class in enumerate(classes.classes):
        members = [by_node[node] for node in host_class.nodes]
        differing = (*_differing(members), *_slow(members))
        outliers += [{**outlier, "class": number} for outlier in differing]
    # A slow check alone does not speak against a node.
    differs = any(outlier["what"] != "time" for outlier in outliers)
    return {
        "kind": "fleet-verify",
        "time": now(),
        "ok": not (failures or differs or collection.silent),
        "nodes": classes.answered + len(collection.silent),
        "answered": classes.answered,
        "passed": len(by_node.keys() - {failure["node"] for failure in failures}),
        "seconds": collection.seconds,
        "failures": failures,
        "outliers": outliers,
        "changes": list(_changes(earlier, collection.answers)) if earlier else [],
        "classes": classes_json(classes),
        "silent": silence_json(collection.silent),
        "unknown": silence_json(classes.unknown),
        "results": [
            {
                "node": answer.node,
                "ok": answer.document.get("ok") is True,
                "checks": list(_checks(answer)),
            }
            for answer in collection.answers
        ],
    }


def _checks(answer: Answer) -> Sequence[Mapping[str, Any]]:
    """Return the checks in a document. InputError if it has none."""
    checks = answer.document.get("checks")
    if not isinstance(checks, list) or not all(isinstance(check, dict) for check in checks):
        hint = "gpuenv fleet verify needs documents of gpuenv verify --json"
        raise InputError(f"{answer.node}: the document has no checks", hint=hint)
    return checks


def _failures(answer: Answer) -> Iterator[Document]:
    """Yield why a node is not verified: its failed checks, and otherwise the unknown ones."""
    checks = _checks(answer)
    wanted = "fail" if any(check.get("status") == "fail" for check in checks) else "unknown"
    if answer.document.get("ok") is True:
        return
    not_passed = [check for check in checks if check.get("status") == wanted]
    for check in not_passed or [{"name": "verification", "evidence": "no check was made"}]:
        yield {
            "node": answer.node,
            "name": str(check.get("name", "")),
            "subject": str(check.get("subject", "")),
            "status": wanted,
            "evidence": str(check.get("evidence", "")),
        }


def _facts(answer: Answer) -> Iterator[tuple[Fact, str, str]]:
    """Yield (fact, device or "", value) of a node: what equal nodes have in common."""
    host = answer.document.get("host", {})
    yield ("driver", ""), "", str(host.get("driver") or MISSING)
    for path, digest in _libraries(answer).items():
        yield ("library", str(path)), "", str(digest)
    gpus = host.get("gpus", ())
    for result in answer.document.get("bits", ()):
        device, capability = str(result.get("device", "")), "?"
        number = device.removeprefix("GPU ").partition(" ")[0]  # of "GPU 1 NAME"
        if number.isdecimal() and int(number) < len(gpus):
            capability = ".".join(map(str, gpus[int(number)].get("compute_capability") or ()))
        subject = f"{result.get('what', '')} ({capability})"
        yield ("convolution", subject), device, str(result.get("sha256", ""))


def _libraries(answer: Answer) -> Mapping[str, Any]:
    table = answer.document.get("libraries", {})
    return table if isinstance(table, dict) else {}


def _on_device(device: str, subject: str) -> str:
    return f"{device}: {subject}" if device else subject


def _differing(members: Sequence[Answer]) -> Iterator[dict[str, Any]]:
    """Yield the nodes of a class of which a fact is not that of most nodes."""
    values: dict[Fact, dict[str, list[tuple[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for answer in members:
        for fact, device, value in _facts(answer):
            values[fact][value].append((answer.node, device))
    for (what, subject), holders in values.items():
        if what == "library":
            having = {node for places in holders.values() for node, _ in places}
            for answer in members:
                # A node that reported no libraries does not lack one.
                if answer.node not in having and _libraries(answer):
                    holders[MISSING].append((answer.node, ""))
        if len(holders) == 1:
            continue
        counts = Counter({value: len(dict(places)) for value, places in holders.items()})
        (expected, agree), (_, second) = counts.most_common(2)
        if agree == second:
            expected, agree = "", 0
        for value, places in holders.items():
            for node, device in places if value != expected else ():
                yield {
                    "node": node,
                    "what": what,
                    "subject": _on_device(device, subject),
                    "value": value,
                    "expected": expected,
                    "agree": agree,
                }


def _slow(members: Sequence[Answer]) -> Iterator[dict[str, Any]]:
    """Yield the nodes of which a check took much longer than in their class."""
    times: dict[str, dict[str, float]] = defaultdict(dict)
    for answer in members:
        for check in _checks(answer):
            seconds = check.get("seconds")
            if isinstance(seconds, (int, float)) and seconds > 0:
                times[_name(check)][answer.node] = float(seconds)
    for subject, by_node in times.items():
        if len(by_node) < LEAST_NODES:
            continue
        for node, seconds in slow_ones(by_node).items():
            yield {
                "node": node,
                "what": "time",
                "subject": subject,
                "value": f"{seconds:.2f} s",
                "expected": f"{median(by_node.values()):.2f} s",
                "agree": len(by_node),
            }


def _name(check: Mapping[str, Any]) -> str:
    return f"{check.get('name', '')} {check.get('subject', '')}".strip()


def slow_ones(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return those of the times that are slow by robust statistics."""
    middle = median(seconds.values())
    spread = median(abs(duration - middle) for duration in seconds.values())
    least = middle + max(
        MOST_DEVIATIONS * spread / _MAD_OF_NORMAL, _LEAST_SHARE * middle, _LEAST_SECONDS
    )
    return {name: duration for name, duration in seconds.items() if duration > least}


def _changes(earlier: Sequence[Answer], answers: Sequence[Answer]) -> Iterator[Document]:
    """Yield what differs from the last run: nodes, failures and facts."""
    before = {answer.node: _states(answer) for answer in earlier}
    after = {answer.node: _states(answer) for answer in answers}
    for node in sorted({*before, *after}):
        was, now = before.get(node), after.get(node)
        if was is None or now is None:
            was = {("node", ""): "answered" if was else ""}
            now = {("node", ""): "answers" if now else ""}
        for what, subject in sorted({*was, *now}):
            old, new = was.get((what, subject), ""), now.get((what, subject), "")
            if old != new:
                yield {"node": node, "what": what, "subject": subject, "was": old, "now": new}


def _states(answer: Answer) -> dict[Fact, str]:
    """Return the facts of a node, and the status of each check."""
    states = {
        (what, _on_device(device, subject)): value
        for (what, subject), device, value in _facts(answer)
    }
    for check in _checks(answer):
        states["check", _name(check)] = str(check.get("status", ""))
    return states
