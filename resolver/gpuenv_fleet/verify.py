"""Which nodes of a fleet failed, which differ from their class, and what changed since a run.

A node is compared with its class (`classes`) in its driver release, the hashes of its libraries,
the bits of its convolutions and the time of its checks. A value differs if more nodes have another
one. If no value is the most frequent one, all groups of nodes are named.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from gpuenv import InputError

from .classes import Classes
from .documents import Document

MISSING = "(missing)"
# A time is an outlier if it is slow by the modified z-score of Iglewicz and Hoaglin (1993), and by
# half of the median, and by a second. Fewer nodes than this tell nothing about the spread.
MOST_DEVIATIONS = 3.5
_MAD_OF_NORMAL = 0.6745  # the median absolute deviation of a normal distribution
_LEAST_SHARE = 0.5
_LEAST_SECONDS = 1.0
LEAST_NODES = 5

Outlier = dict[str, Any]


def verify_fleet(classes: Classes, earlier: Mapping[str, Document]) -> dict[str, Any]:
    """Compare the verifications of the nodes.

    Args:
        classes: the documents of `gpuenv verify --json`, and the classes of their hosts.
        earlier: the documents of the last run, by node.

    Returns:
        What the document of `fleet verify --json` has of them. An outlier is a node that differs
        from its class, by number. `agree` nodes of the class have the expected value; "" if no
        value is the most frequent one. A change `was` or is `now` "" if there is nothing.

    Raises:
        InputError: a document is not one of `gpuenv verify --json`.
    """
    documents = dict(classes.collection.answers)
    failures, results = [], []
    for node, document in documents.items():
        checks, ok = _checks(node, document), document.get("ok") is True
        results.append({"node": node, "ok": ok, "checks": checks})
        if ok:
            continue
        # The failed checks, and otherwise the unknown ones.
        wanted = "fail" if any(check.get("status") == "fail" for check in checks) else "unknown"
        not_passed = [check for check in checks if check.get("status") == wanted]
        for check in not_passed or [{"name": "verification", "evidence": "no check was made"}]:
            texts = {key: str(check.get(key, "")) for key in ("name", "subject", "evidence")}
            failures.append({"node": node, **texts, "status": wanted})
    outliers = []
    for number, host_class in enumerate(classes.classes):
        members = {node: documents[node] for node in host_class.nodes}
        differing = (*_differing(members), *_slow(members))
        outliers += [{**outlier, "class": number} for outlier in differing]
    # A slow check alone does not speak against a node.
    differs = any(outlier["what"] != "time" for outlier in outliers)
    return {
        "ok": not (failures or differs or classes.collection.silent),
        "passed": len(documents.keys() - {failure["node"] for failure in failures}),
        "failures": failures,
        "outliers": outliers,
        "changes": list(_changes(earlier, documents)) if earlier else [],
        "results": results,
    }


def _checks(node: str, document: Document) -> Sequence[Mapping[str, Any]]:
    """Return the checks in a document. InputError if it has none."""
    checks = document.get("checks")
    if not isinstance(checks, list) or not all(isinstance(check, dict) for check in checks):
        hint = "gpuenv fleet verify needs documents of gpuenv verify --json"
        raise InputError(f"{node}: the document has no checks", hint=hint)
    return checks


def _facts(document: Document) -> Iterator[tuple[str, str, str, str]]:
    """Yield (what, device or "", subject, value): what equal nodes have in common."""
    host = document.get("host", {})
    yield "driver", "", "", str(host.get("driver") or MISSING)
    for path, digest in _libraries(document).items():
        yield "library", "", str(path), str(digest)
    gpus = host.get("gpus", ())
    for result in document.get("bits", ()):
        device, capability = str(result.get("device", "")), "?"
        number = device.removeprefix("GPU ").partition(" ")[0]  # of "GPU 1 NAME"
        if number.isdecimal() and int(number) < len(gpus):
            capability = ".".join(map(str, gpus[int(number)].get("compute_capability") or ()))
        subject = f"{result.get('what', '')} ({capability})"
        yield "convolution", device, subject, str(result.get("sha256", ""))


def _libraries(document: Document) -> Mapping[str, Any]:
    table = document.get("libraries", {})
    return table if isinstance(table, dict) else {}


def _differing(members: Mapping[str, Document]) -> Iterator[Outlier]:
    """Yield the nodes of a class of which a fact is not that of most nodes."""
    # {(what, subject): {value: [(node, device)]}}; the devices of a node are compared, too.
    facts: dict[tuple[str, str], dict[str, list[tuple[str, str]]]] = defaultdict(dict)
    for node, document in members.items():
        for what, device, subject, value in _facts(document):
            facts[what, subject].setdefault(value, []).append((node, device))
    for (what, subject), holders in facts.items():
        if what == "library":
            having = {node for places in holders.values() for node, _ in places}
            for node, document in members.items():
                # A node that reported no libraries does not lack one.
                if node not in having and _libraries(document):
                    holders.setdefault(MISSING, []).append((node, ""))
        if len(holders) == 1:
            continue
        counts = {value: len(dict(places)) for value, places in holders.items()}
        expected = max(counts, key=lambda value: counts[value])
        agree = counts[expected]
        if list(counts.values()).count(agree) > 1:
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


def _on_device(device: str, subject: str) -> str:
    return f"{device}: {subject}" if device else subject


def _slow(members: Mapping[str, Document]) -> Iterator[Outlier]:
    """Yield the nodes of which a check took much longer than in their class."""
    times: dict[str, dict[str, float]] = defaultdict(dict)
    for node, document in members.items():
        for check in _checks(node, document):
            seconds = check.get("seconds")
            if isinstance(seconds, (int, float)) and seconds > 0:
                times[_name(check)][node] = float(seconds)
    for subject, by_node in times.items():
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
    if len(seconds) < LEAST_NODES:
        return {}
    middle = median(seconds.values())
    spread = median(abs(duration - middle) for duration in seconds.values())
    least = middle + max(
        MOST_DEVIATIONS * spread / _MAD_OF_NORMAL, _LEAST_SHARE * middle, _LEAST_SECONDS
    )
    return {name: duration for name, duration in seconds.items() if duration > least}


def _changes(
    earlier: Mapping[str, Document], documents: Mapping[str, Document]
) -> Iterator[dict[str, str]]:
    """Yield what differs from the last run: nodes, failures and facts."""

    def states(node: str, document: Document) -> dict[tuple[str, str], str]:
        """Return the facts of a node, and the status of each check."""
        facts = {(fact[0], _on_device(*fact[1:3])): fact[3] for fact in _facts(document)}
        checks = _checks(node, document)
        return facts | {("check", _name(check)): str(check.get("status", "")) for check in checks}

    for node in sorted(earlier.keys() | documents.keys()):
        if node in earlier and node in documents:
            was, now = states(node, earlier[node]), states(node, documents[node])
        else:
            was = {("node", ""): "answered" if node in earlier else ""}
            now = {("node", ""): "answers" if node in documents else ""}
        for what, subject in sorted(was.keys() | now.keys()):
            old, new = was.get((what, subject), ""), now.get((what, subject), "")
            if old != new:
                yield {"node": node, "what": what, "subject": subject, "was": old, "now": new}
