"""The rows of companions in tables.json: what a release needs of the packages beside it.

scans/companions.jsonl has a line for each wheel that scan_companions.py read, scans/names.jsonl for
each that scan_names.py read. companions.toml has what no reachable wheel shows, and which
companions compare CUDA versions at import; its rows come first. A scanned release stands for the
later patches of its line, up to the next one that was scanned. A range that METADATA demands, too,
is left out, because each release has its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from common import read_json
from data.toml_files import Companions, ComparesCuda
from gpuenv.atomic_write import write_whole
from gpuenv.compat.data import within
from gpuenv.model import Host, Python
from gpuenv.requirements.target import TargetEnvironment
from gpuenv.requirements.versions import contains, parse_requirement, version_key

SCANNED_ON = "linux-x86_64"
FRAMEWORKS = ("torch", "tensorflow")
# Where METADATA is read: an interpreter that all current wheels have.
PYTHON = Python(version=(3, 12), full_version="3.12.10")
TARGET = TargetEnvironment(Host(os="linux", machine="x86_64", python=PYTHON))
Line = Mapping[str, Any]
Row = tuple[str, dict[str, Any], Sequence[str]]  # versions, Links, platforms of its CUDA and cuDNN


def scan_lines(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the lines of a file in scans/; none where only the TOML files are."""
    path = folder / "scans" / name
    return (
        [json.loads(line) for line in path.read_text("ascii").splitlines()] if path.exists() else []
    )


def write_lines(folder: Path, name: str, lines: Iterable[Line]) -> None:
    """Write the lines of a file in scans/, sorted by name and version."""
    ordered = sorted(lines, key=lambda line: (line["name"], version_key(line["version"])))
    text = "".join(json.dumps(line) + "\n" for line in ordered)
    write_whole(str(folder / "scans" / name), text.encode())


def companion_rows(document: Companions, folder: Path) -> dict[str, list[Row]]:
    """Return the rows of each distribution, those of companions.toml first."""
    rows: dict[str, list[Row]] = {}
    for row in document.row:
        names = ("cuda", "cuda_versions", "cudnn", "numpy", "source")
        fields = {name: getattr(row, name) for name in names if getattr(row, name)}
        if row.frameworks:
            fields["frameworks"] = list(row.frameworks.items())
        for name in row.distributions:
            rows.setdefault(name, []).append((row.versions, fields, row.platforms))
    lines = scan_lines(folder, "companions.jsonl")
    linker = Linker(lines, document.compares_cuda, folder)
    named = scan_lines(folder, "names.jsonl")
    named_needs = {line["file"]: line["needs"] for line in named}

    def facts(released: Iterable[Line]) -> Iterator[dict[str, Any]]:
        linked: dict[str, dict[str, Any]] = {}  # by line: of a release whose names alone were read
        for line in released:
            minor = line_of(line["version"])
            if "needs" not in line:
                linked[minor] = linker.links(line)
            fields = linked.get(minor, {})
            needs = {n: need["range"] for n, need in named_needs.get(line["file"], {}).items()}
            needs |= dict(fields.get("frameworks", ()))
            yield fields | ({"frameworks": list(needs.items())} if needs else {})

    files = {line["file"] for line in lines}
    every = [*lines, *(line for line in named if line["file"] not in files)]
    every.sort(key=lambda line: (line["name"], version_key(line["version"])))
    for name, group in groupby(every, key=lambda line: str(line["name"])):
        released = list(group)
        rows.setdefault(name, []).extend(merged(released, list(facts(released))))
    return dict(sorted(rows.items()))


class Linker:
    """Tells what METADATA does not say of what a wheel needs.

    Attributes:
        newest: the newest minor release of each framework that any wheel can load.
        known: the releases of each framework that the data has, and whose symbols are read.
    """

    def __init__(self, lines: list[Any], compares: Iterable[ComparesCuda], folder: Path) -> None:
        self.compares = compares
        self.newest = {}
        for name in FRAMEWORKS:
            ends = [line[name][1] for line in lines if line.get(name)]
            self.newest[name] = max(ends, key=version_key, default="")
        self.known: dict[str, list[str]] = {}
        tables = (("torch", "frameworks", "builds"), ("tensorflow", "libraries", "releases"))
        for name, kind, table in tables:
            rows = read_json(folder / kind / f"{name}.json", {table: []})[table]
            self.known[name] = [row["version"] for row in rows if within(row["version"], ">=2")]

    def links(self, line: Line) -> dict[str, Any]:
        """Return the fields of Links, but for the source."""
        fields: dict[str, Any] = {}
        ranges: dict[str, str] = {}
        for name in FRAMEWORKS:
            if line.get(name):  # [] is none of those that were read
                first, last = line[name]
                is_open = line.get("stable", False) and last == self.newest[name]
                ranges[name] = f">={first}" + ("" if is_open else f",<{after(last)}")
        # A text of the wheel, such as a table in METADATA, is narrower than the symbols.
        for name, specifier in (ranges | line.get("says", {})).items():
            needed = "" if self.is_demanded(line, name, specifier) else specifier
            fields.setdefault("frameworks", []).append([name, needed])
        brings_cuda = any(text.startswith("nvidia-cublas") for text in line["requires"])
        if line.get("cuda") and not brings_cuda:
            fields["cuda"] = line["cuda"]
        for row in self.compares:
            is_meant = line["name"] in row.distributions and "built" in line
            if is_meant and contains(row.versions, line["version"]):
                fields["cuda_versions"] = [line["built"]]
        if line.get("cudnn"):
            fields["cudnn"] = line["cudnn"]
        fields["numpy"] = [1] if line.get("numpy") == 1 else []
        return fields

    def is_demanded(self, line: Line, name: str, specifier: str) -> bool:
        """Return whether METADATA admits only releases that a range has, now and in the future."""
        admitted = [*self.known[name], "99.0"]
        for need in map(parse_requirement, line["requires"]):
            if need.name == name and (need.marker is None or TARGET.marker(need.marker, ())):
                admitted = [version for version in admitted if contains(need.specifier, version)]
        return all(contains(specifier, version) for version in admitted)


def named_rows(folder: Path) -> tuple[list[list[Any]], list[list[Any]]]:
    """Return the rows of bad releases and of bad pairs that names.jsonl has: `pythons` and `uses`.

    A function may never run: pairs whose functions use what is gone are to be avoided.
    """
    bad, pairs = [], []
    named = scan_lines(folder, "names.jsonl")
    named.sort(key=lambda line: (line["name"], version_key(line["version"])))
    for name, group in groupby(named, key=lambda line: str(line["name"])):
        lines = list(group)
        for versions, last, gone in runs(lines, [line.get("pythons") for line in lines]):
            text = (
                f"{gone['in']} imports {gone['name']}, which Python has before {gone['from']} only"
            )
            row = [[name], versions, "broken", f"{text}; take an older Python", source_of(last)]
            bad.append([*row, [], None, [], f">={gone['from']}"])
        for other in sorted({one for line in lines for one in line.get("uses", ())}):
            found = [line.get("uses", {}).get(other) for line in lines]
            for versions, last, gone in runs(lines, found):
                text = f"{gone['in']} uses {gone['name']}, which {other} {gone['from']} lacks"
                title = f"{name} {versions} beside {other} {gone['from']}"
                sides = [[name], versions], [[other], f">={gone['from']}"]
                pairs.append([title, *sides, 0, "avoid", text, source_of(last)])
    return bad, pairs


def source_of(line: Line) -> str:
    """Return the wheel of a line as a source."""
    return f"{line['file']} (sha256 {line['sha256']})"


def runs(
    lines: Sequence[Line], found: Sequence[Mapping[str, str] | None]
) -> Iterator[tuple[str, Line, Mapping[str, str]]]:
    """Yield the versions and the last line of neighbors with one limit, and what was found.

    What is older than all lines has the limit of the first one.
    """
    for start, end in neighbors([gone and gone["from"] for gone in found]):
        gone = found[end - 1]
        if gone:
            versions = versions_of(lines, start, end)
            yield versions if start else versions.partition(",")[2], lines[end - 1], gone


def neighbors(values: Sequence[object]) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each run of equal values."""
    places = [0, *(place for place in range(1, len(values)) if values[place] != values[place - 1])]
    return pairwise([*places, len(values)])


def versions_of(lines: Sequence[Line], start: int, end: int) -> str:
    """Return the versions of neighboring lines, of which some may be of one minor release."""
    minors = [line_of(line["version"]) for line in lines]
    is_later = start and minors[start] == minors[start - 1]
    lower = lines[start]["version"] if is_later else minors[start]
    is_earlier = end < len(lines) and minors[end] == minors[end - 1]
    upper = f"<={lines[end - 1]['version']}" if is_earlier else f"<{after(minors[end - 1])}"
    return f">={lower},{upper}"


def merged(lines: list[Any], facts: list[dict[str, Any]]) -> Iterator[Row]:
    """Yield one row for neighboring releases with equal needs. Its source is the newest of them.

    Between two releases of a line whose needs differ nothing is known. If the headers of NumPy are
    all that matters, what is older than a wheel with those of NumPy 1 has them, too, and what is
    newer than one with those of NumPy 2 needs nothing.
    """
    is_array_package = all(fields in ({}, {"numpy": []}, {"numpy": [1]}) for fields in facts)
    for start, end in neighbors(facts):
        first, last = lines[start], lines[end - 1]
        versions = versions_of(lines, start, end)
        if is_array_package and not start and first.get("numpy") == 1:
            versions = versions.partition(",")[2]
        elif is_array_package and end == len(lines) and last.get("numpy") == 2:
            versions = versions.partition(",")[0]
        fields = {**facts[start], "source": source_of(last)}
        yield versions, fields, [SCANNED_ON]


def line_of(version: str) -> str:
    """Return the line of a release: "2.11" of 2.11.1; of 0.0.31.post1 it is "0.0.31"."""
    numbers = (*version_key(version).release, 0, 0)[:3]
    return ".".join(map(str, numbers[: 2 if any(numbers[:2]) else 3]))


def after(line: str) -> str:
    """Return the line that follows one: "2.12" for "2.11"."""
    head, _, number = line.rpartition(".")
    return f"{head}.{int(number) + 1}"
