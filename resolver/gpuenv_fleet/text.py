"""The text of `gpuenv fleet`, made from its JSON documents (report)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuenv.commands import quantity_text

_SHOWN_NODES = 60  # characters of a list of nodes
_HASH_CHARACTERS = 40  # a longer value is a hash
_OUTLIERS = ("convolution", "library", "driver", "time")  # the most serious first
_NUMBERED = re.compile(r"(.*?)(\d+)(\D*)", re.DOTALL)

Document = Mapping[str, Any]


def detect_lines(document: Document) -> list[str]:
    """Return the classes of a fleet, and the nodes without an answer."""
    count = len(document["classes"])
    answered = f"{document['answered']} of {quantity_text(document['nodes'], 'node')}"
    lines = [f"{answered} answered{_time_text(document)}; classes of hosts: {count}"]
    lines += class_lines(document["classes"])
    lines += silent_lines(document)
    return lines


def solve_lines(document: Document) -> list[str]:
    """Return the fewest locks, what each further lock gives, and what a newer driver would give."""
    lines = [_fewest_line(document), *class_lines(document["classes"])]
    if document["plans"]:
        lines.append("locks:")
    for plan in document["plans"]:
        lines += _plan_lines(plan)
    for unsolved in document["unsolved"]:
        nodes = document["classes"][unsolved["class"]]["nodes"]
        reasons = "; ".join(_reason_text(reason) for reason in unsolved["reasons"][:2])
        lines.append(f"no lock for {nodes_text(nodes)}: {reasons}")
    return [*lines, *what_if_lines(document), *silent_lines(document)]


def what_if_lines(document: Document) -> list[str]:
    """Return what newer drivers would change."""
    return [_what_if_line(what_if, document) for what_if in document["what_if"]]


def profiles_line(profiles: Document) -> str:
    """Return which profiles were written, and what to do next."""
    if not profiles["names"]:
        return f"{profiles['path']}: has these profiles already"
    names = ", ".join(profiles["names"])
    return f"wrote {profiles['path']}: profiles {names}; gpuenv lock makes their locks"


def _fewest_line(document: Document) -> str:
    count, classes = document["locks"], len(document["classes"])
    if not count:
        return f"no lock serves any of {quantity_text(document['nodes'], 'node')}"
    solved = sum(group["nodes"] for group in document["plans"][0]["groups"])
    least = "" if document["proved"] else "at most "
    verb = "serves" if count == 1 else "serve"
    nodes = quantity_text(solved, "node")
    return f"{least}{quantity_text(count, 'lock')} {verb} {nodes}; classes of hosts: {classes}"


def _plan_lines(plan: Document) -> list[str]:
    """Return what a number of locks means: the versions, and for how many nodes."""
    lines = []
    for number, group in enumerate(plan["groups"]):
        head = f"{plan['locks']:>3}" if number == 0 else "   "
        nodes = quantity_text(group["nodes"], "node")
        lines.append(f"{head}  {_versions_text(group['versions'])} on {nodes}{_needs_text(group)}")
        for framework in group["older"]:
            release = f"{framework['name']} {framework['newest']}"
            lines.append(f"       {framework['nodes']} of them could have {release}")
    return lines


def _needs_text(group: Document) -> str:
    """Return what a lock needs of a node: ": Python 3.12, driver >= 580.65.06, V100 and H100"."""
    needs = [f"Python {group['host']['python']}", group["host"]["platform"]]
    if group["needs"].get("driver"):
        needs.append(f"driver >= {group['needs']['driver']}")
    if group["host"]["gpus"]:
        needs.append(" and ".join(group["host"]["gpus"]))
    return escape(f": {', '.join(needs)}")


def _versions_text(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())


def _reason_text(reason: Document) -> str:
    return escape(f"{reason['subject']} needs {reason['need']}; found {reason['have']}")


def _what_if_line(what_if: Document, document: Document) -> str:
    """Return what a newer driver on some nodes would change."""
    nodes = [node for number in what_if["classes"] for node in document["classes"][number]["nodes"]]
    head = f"with driver {what_if['driver']} on {quantity_text(len(nodes), 'node')}"
    head += f" ({nodes_text(nodes)})"
    changes = []
    saved = document["locks"] - what_if["locks"]
    if saved > 0:
        changes.append(f"{quantity_text(what_if['locks'], 'lock')} instead of {document['locks']}")
    if what_if["solved"]:
        changes.append(f"a lock for {quantity_text(what_if['solved'], 'more node')}")
    changes += [
        f"{gain['name']} {gain['new']} instead of {gain['old']} on {gain['nodes']}"
        for gain in what_if["gains"]
    ]
    return f"{head}: {', '.join(changes)}"


def verify_lines(document: Document) -> list[str]:
    """Return the outliers first, then the failures, the silent nodes and the changes."""
    nodes = quantity_text(document["nodes"], "node")
    verdict = "verified" if document["ok"] else "NOT verified"
    counts = f"{document['passed']} of {nodes} passed{_time_text(document)}"
    lines = [f"{verdict}: {counts}; {quantity_text(len(document['outliers']), 'outlier')}"]
    lines += outlier_lines(document["outliers"])
    lines += failure_lines(document["failures"])
    lines += silent_lines(document)
    lines += change_lines(document["changes"])
    return lines


def _time_text(document: Document) -> str:
    """Return how long the nodes were asked; nothing if their documents were read."""
    return f" in {document['seconds']:.1f} s" if document["seconds"] else ""


def outlier_lines(outliers: Sequence[Document]) -> list[str]:
    """Return one line for each difference, with all nodes that have it."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for outlier in outliers:
        difference = (str(outlier["what"]), outlier_text(outlier))
        nodes.setdefault(difference, []).append(str(outlier["node"]))
    ranked = sorted(nodes.items(), key=lambda item: _OUTLIERS.index(item[0][0]))
    return [f"outlier: {nodes_text(names)}: {text}" for (_, text), names in ranked]


def outlier_text(outlier: Document) -> str:
    """Return what differs, and what the class has."""
    if outlier["what"] == "time":
        text = f"{outlier['subject']} took {outlier['value']}, in its class {outlier['expected']}"
        return escape(text)
    subject = f"{outlier['what']} {outlier['subject']}".strip()
    text = f"{subject} is {_short(outlier['value'])}"
    if outlier["expected"]:
        agree = quantity_text(outlier["agree"], "node")
        return escape(f"{text}, and {_short(outlier['expected'])} on {agree} of its class")
    return escape(f"{text}, and its class has no most frequent value")


def _short(value: str) -> str:
    """Return a value; of a hash its first characters."""
    digest = value.removeprefix("sha256=")
    return digest[:12] if len(digest) > _HASH_CHARACTERS else value


def failure_lines(failures: Sequence[Document]) -> list[str]:
    """Return one line for each failed check, with all nodes on which it failed for one reason."""
    nodes: dict[str, list[str]] = {}
    for failure in failures:
        name = f"{failure['name']} {failure['subject']}".strip()
        nodes.setdefault(f"{name}: {failure['evidence']}", []).append(str(failure["node"]))
    return [f"failed: {nodes_text(names)}: {escape(text)}" for text, names in nodes.items()]


def change_lines(changes: Sequence[Document]) -> list[str]:
    """Return what changed since the last run, with all nodes of one change."""
    nodes: dict[str, list[str]] = {}
    for change in changes:
        subject = f"{change['what']} {change['subject']}".strip()
        was, now = (_short(str(change[key])) or "nothing" for key in ("was", "now"))
        nodes.setdefault(f"{subject}: {was} -> {now}", []).append(str(change["node"]))
    return [f"changed: {nodes_text(names)}: {escape(text)}" for text, names in nodes.items()]


def class_lines(classes: Sequence[Document]) -> list[str]:
    """Return a line for each class: how many nodes, which facts, which nodes."""
    width = max((len(str(len(host_class["nodes"]))) for host_class in classes), default=0)
    lines = []
    for host_class in classes:
        count = f"{len(host_class['nodes']):>{width}}"
        lines.append(f"  {count}  {host_text(host_class)}: {nodes_text(host_class['nodes'])}")
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
    for key, label in (("silent", "no answer"), ("unknown", "not assessed")):
        for reason, nodes in by_reason(document.get(key, ())).items():
            lines.append(f"{label}: {nodes_text(nodes)}: {escape(reason)}")
    return lines


def by_reason(silent: Iterable[Document]) -> dict[str, list[str]]:
    """Return the nodes of each reason."""
    nodes: dict[str, list[str]] = {}
    for silence in silent:
        nodes.setdefault(str(silence["reason"]), []).append(str(silence["node"]))
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
