"""The text of `gpuenv fleet`, made from its JSON documents (report)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from gpuenv.commands import quantity_text

from .documents import Document

_SHOWN_NODES = 60  # characters of a list of nodes
_HASH_CHARACTERS = 40  # a longer value is a hash
_OUTLIERS = ("convolution", "library", "driver", "time")  # the most serious first
_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)


def detect_lines(document: Document) -> list[str]:
    """Return the classes of a fleet, and the nodes without an answer."""
    count = len(document["classes"])
    answered = f"{document['answered']} of {quantity_text(document['nodes'], 'node')}"
    headline = f"{answered} answered{_time_text(document)}; classes of hosts: {count}"
    return [headline, *_class_lines(document), *_silent_lines(document)]


def solve_lines(document: Document) -> list[str]:
    """Return the fewest locks, what each further lock gives, and what a newer driver would give."""
    count, classes = document["locks"], document["classes"]
    headline = f"no lock serves any of {quantity_text(document['nodes'], 'node')}"
    if count:
        solved = sum(group["nodes"] for group in document["plans"][0]["groups"])
        least = "" if document["proved"] else "at most "
        verb = "serves" if count == 1 else "serve"
        nodes = quantity_text(solved, "node")
        headline = f"{least}{quantity_text(count, 'lock')} {verb} {nodes}"
        headline += f"; classes of hosts: {len(classes)}"
    lines = [headline, *_class_lines(document)]
    if document["plans"]:
        lines.append("locks:")
    for plan in document["plans"]:
        for number, group in enumerate(plan["groups"]):
            lines += _group_lines(group, "" if number else str(plan["locks"]))
    for unsolved in document["unsolved"]:
        nodes = nodes_text(classes[unsolved["class"]]["nodes"])
        reasons = [
            f"{reason['subject']} needs {reason['need']}; found {reason['have']}"
            for reason in unsolved["reasons"][:2]
        ]
        lines.append(f"no lock for {nodes}: {'; '.join(reasons)}")
    lines += [*what_if_lines(document), *_silent_lines(document)]
    profiles = document.get("profiles")
    if profiles is None:
        return lines
    if not profiles["names"]:
        return [*lines, f"{profiles['path']}: has these profiles already"]
    names = ", ".join(profiles["names"])
    written = f"wrote {profiles['path']}: profiles {names}; gpuenv lock makes their locks"
    return [*lines, written]


def _group_lines(group: Document, count: str) -> list[str]:
    """Return the versions of a lock, what it needs, and which nodes could have newer ones."""
    versions = ", ".join(f"{name} {version}" for name, version in group["versions"].items())
    needs = [f"Python {group['host']['python']}", group["host"]["platform"]]
    if group["needs"].get("driver"):
        needs.append(f"driver >= {group['needs']['driver']}")
    if group["host"]["gpus"]:
        needs.append(" and ".join(group["host"]["gpus"]))
    nodes = quantity_text(group["nodes"], "node")
    return [
        f"{count:>3}  {versions} on {nodes}: {', '.join(needs)}",
        *(
            f"       {older['nodes']} of them could have {older['name']} {older['newest']}"
            for older in group["older"]
        ),
    ]


def what_if_lines(document: Document) -> list[str]:
    """Return what newer drivers on some nodes would change."""
    lines = []
    for what_if in document["what_if"]:
        classes = [document["classes"][number] for number in what_if["classes"]]
        nodes = [node for host_class in classes for node in host_class["nodes"]]
        changes = []
        if what_if["locks"] < document["locks"]:
            locks = quantity_text(what_if["locks"], "lock")
            changes.append(f"{locks} instead of {document['locks']}")
        if what_if["solved"]:
            changes.append(f"a lock for {quantity_text(what_if['solved'], 'more node')}")
        for gain in what_if["gains"]:
            new = f"{gain['name']} {gain['new']}"
            changes.append(f"{new} instead of {gain['old']} on {gain['nodes']}")
        where = f"{quantity_text(len(nodes), 'node')} ({nodes_text(nodes)})"
        lines.append(f"with driver {what_if['driver']} on {where}: {', '.join(changes)}")
    return lines


def verify_lines(document: Document) -> list[str]:
    """Return the outliers first, then the failures, the silent nodes and the changes."""
    nodes = quantity_text(document["nodes"], "node")
    verdict = "verified" if document["ok"] else "NOT verified"
    counts = f"{document['passed']} of {nodes} passed{_time_text(document)}"
    outliers = sorted(document["outliers"], key=lambda outlier: _OUTLIERS.index(outlier["what"]))
    return [
        f"{verdict}: {counts}; {quantity_text(len(outliers), 'outlier')}",
        *_node_lines("outlier", outliers, outlier_text),
        *_node_lines("failed", document["failures"], _failure_text),
        *_silent_lines(document),
        *_node_lines("changed", document["changes"], _change_text),
    ]


def _time_text(document: Document) -> str:
    """Return how long the nodes were asked; nothing if their documents were read."""
    return f" in {document['seconds']:.1f} s" if document["seconds"] else ""


def _node_lines(label: str, rows: Iterable[Document], text: Callable[[Document], str]) -> list[str]:
    """Return one line for each text, with all nodes that have it."""
    return [
        f"{label}: {nodes_text(nodes)}: {said}" for said, nodes in nodes_by_text(rows, text).items()
    ]


def nodes_by_text(
    rows: Iterable[Document], text: Callable[[Document], str]
) -> dict[str, list[str]]:
    """Return the nodes that have the same text."""
    nodes: dict[str, list[str]] = {}
    for row in rows:
        nodes.setdefault(text(row), []).append(str(row["node"]))
    return nodes


def reason_text(silence: Document) -> str:
    """Return why a node gave no answer, or what is not known of it."""
    return str(silence["reason"])


def _silent_lines(document: Document) -> list[str]:
    return [
        *_node_lines("no answer", document["silent"], reason_text),
        *_node_lines("not assessed", document["unknown"], reason_text),
    ]


def outlier_text(outlier: Document) -> str:
    """Return what differs, and what the class has."""
    subject, value, expected = outlier["subject"], outlier["value"], outlier["expected"]
    if outlier["what"] == "time":
        return f"{subject} took {value}, in its class {expected}"
    text = f"{outlier['what']} {subject}".strip() + f" is {_short(value)}"
    if not expected:
        return f"{text}, and its class has no most frequent value"
    agree = quantity_text(outlier["agree"], "node")
    return f"{text}, and {_short(expected)} on {agree} of its class"


def _short(value: str) -> str:
    """Return a value; of a hash its first characters."""
    digest = value.removeprefix("sha256=")
    return digest[:12] if len(digest) > _HASH_CHARACTERS else value


def _failure_text(failure: Document) -> str:
    return f"{failure['name']} {failure['subject']}".strip() + f": {failure['evidence']}"


def _change_text(change: Document) -> str:
    was, now = (_short(str(change[key])) or "nothing" for key in ("was", "now"))
    return f"{change['what']} {change['subject']}".strip() + f": {was} -> {now}"


def _class_lines(document: Document) -> list[str]:
    """Return a line for each class: how many nodes, which facts, which nodes."""
    counts = [str(len(host_class["nodes"])) for host_class in document["classes"]]
    width = max(map(len, counts), default=0)
    return [
        f"  {count:>{width}}  {host_text(host_class)}: {nodes_text(host_class['nodes'])}"
        for count, host_class in zip(counts, document["classes"], strict=True)
    ]


def host_text(host: Document) -> str:
    """Return the facts of a class in a few words."""
    parts = [" and ".join(host["gpus"]) or "no GPU"]
    if host["driver"]:
        cuda = f" (CUDA {host['driver_cuda']})" if host["driver_cuda"] else ""
        parts.append(f"driver {host['driver']}{cuda}")
    parts.append(host["platform"])
    if host["glibc"]:
        parts.append(f"glibc {host['glibc']}")
    return ", ".join([*parts, f"Python {host['python']}"])


def nodes_text(nodes: Sequence[str]) -> str:
    """Return a short list of nodes: "gpu[01-16],login1"; a long one is cut."""
    text = fold(nodes)
    if len(text) > _SHOWN_NODES:
        cut = text[:_SHOWN_NODES].rpartition(",")[0] or text[:_SHOWN_NODES]
        return f"{cut},... ({quantity_text(len(nodes), 'node')})"
    return text


def fold(names: Iterable[str]) -> str:
    """Return the names of nodes with their numbers as ranges: "gpu[01-03],login1"."""
    groups: dict[tuple[str, str, int], list[int]] = {}
    others: list[str] = []
    for name in sorted(set(names)):
        match = _NUMBERED.fullmatch(name)
        if match is None:
            others.append(name)
        else:
            groups.setdefault((match[1], match[3], len(match[2])), []).append(int(match[2]))
    texts = []
    for (before, after, width), numbers in groups.items():
        ranges: list[list[int]] = []
        for number in sorted(numbers):
            if ranges and ranges[-1][-1] == number - 1:
                ranges[-1][1:] = [number]
            else:
                ranges.append([number])
        folded = ",".join("-".join(f"{end:0{width}}" for end in ends) for ends in ranges)
        if len(numbers) > 1:
            folded = f"[{folded}]"
        texts.append(f"{before}{folded}{after}")
    return ",".join([*texts, *others])
