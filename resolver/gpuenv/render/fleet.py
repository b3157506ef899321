"""The text of `gpuenv fleet`, made from its JSON documents (gpuenv.fleet.report)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .values import quantity_text

_SHOWN_NODES = 60  # characters of a list of nodes
_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)

Document = Mapping[str, Any]


def detect_lines(document: Document) -> list[str]:
    """Return the classes of a fleet, and the nodes without an answer."""
    count = len(document["classes"])
    answered = f"{document['answered']} of {quantity_text(document['nodes'], 'node')}"
    lines = [f"{answered} answered in {document['seconds']:.1f} s; classes of hosts: {count}"]
    lines += class_lines(document["classes"])
    lines += silent_lines(document)
    return lines


def class_lines(classes: Sequence[Document]) -> list[str]:
    """Return a line for each class: how many nodes, which facts, which nodes."""
    width = max((len(str(len(one["nodes"]))) for one in classes), default=0)
    lines = []
    for one in classes:
        count = f"{len(one['nodes']):>{width}}"
        lines.append(f"  {count}  {host_text(one)}: {nodes_text(one['nodes'])}")
    return lines


def host_text(host: Document) -> str:
    """Return the facts of a class in a few words."""
    parts = [" and ".join(host["gpus"]) or "no GPU"]
    if host["driver"]:
        driver = f"driver {host['driver']}"
        if host["driver_cuda"]:
            driver += f" (CUDA {host['driver_cuda']})"
        parts.append(driver)
    parts.append(host["platform"])
    if host["glibc"]:
        parts.append(f"glibc {host['glibc']}")
    parts.append(f"Python {host['python']}")
    return escape(", ".join(parts))


def silent_lines(document: Document) -> list[str]:
    """Return the nodes without an answer, and those of which a fact is not known."""
    lines = []
    for key, what in (("silent", "no answer"), ("unknown", "not assessed")):
        for reason, nodes in by_reason(document.get(key, ())).items():
            lines.append(f"{what}: {nodes_text(nodes)}: {escape(reason)}")
    return lines


def by_reason(silent: Iterable[Document]) -> dict[str, list[str]]:
    """Return the nodes of each reason."""
    nodes: dict[str, list[str]] = {}
    for one in silent:
        nodes.setdefault(str(one["reason"]), []).append(str(one["node"]))
    return nodes


def nodes_text(nodes: Sequence[str], most: int = _SHOWN_NODES) -> str:
    """Return a short list of nodes: "gpu[01-16],login1"; a long one is cut."""
    text = escape(fold(nodes))
    if len(text) > most:
        cut = text[:most].rpartition(",")[0] or text[:most]
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
    texts = [_fold_group(*key, sorted(numbers)) for key, numbers in groups.items()]
    return ",".join([*texts, *others])


def _fold_group(before: str, after: str, width: int, numbers: list[int]) -> str:
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    texts = []
    for first, last in ranges:
        text = f"{first:0{width}}"
        if last > first:
            text += f"-{last:0{width}}"
        texts.append(text)
    if len(numbers) == 1:
        return f"{before}{texts[0]}{after}"
    return f"{before}[{','.join(texts)}]{after}"


def escape(text: str) -> str:
    """Return a text from outside without control characters."""
    return "".join(character if character.isprintable() else "?" for character in text)
