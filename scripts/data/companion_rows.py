"""The rows of companions in tables.json: what a release needs of the packages beside it.

scans/companions.jsonl has a line for each wheel that scan_companions.py read. companions.toml has
what no reachable wheel shows, and which companions compare CUDA versions at import; its rows come
first. A scanned release stands for the later patches of its line, up to the next one that was
scanned. A range that METADATA demands, too, is left out, because each release has its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

SCANNED_ON = "linux-x86_64"
FRAMEWORKS = ("torch", "tensorflow")
# Where METADATA is read: an interpreter that all current wheels have.
TARGET = {
    "python_version": "3.12", "python_full_version": "3.12.10", "sys_platform": "linux",
    "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix", "extra": "",
}  # fmt: skip
Row = tuple[str, dict[str, Any], list[str]]  # versions, Links, platforms of its CUDA and cuDNN


def scanned_wheels(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of scans/companions.jsonl; none where only the TOML files are."""
    path = folder / "scans" / "companions.jsonl"
    lines = path.read_text("ascii").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def companion_rows(document: dict[str, Any], folder: Path) -> dict[str, list[Row]]:
    """Return the rows of each distribution, those of companions.toml first."""
    rows: dict[str, list[Row]] = {}
    for row in document.get("row", []):
        names = ("cuda", "cuda_minor", "cudnn", "numpy", "source")
        fields = {name: row[name] for name in names if name in row}
        if "frameworks" in row:
            fields["frameworks"] = list(row["frameworks"].items())
        for name in row["distributions"]:
            rows.setdefault(name, []).append((row["versions"], fields, row.get("platforms", [])))
    wheels = scanned_wheels(folder)
    newest = {name: max(_ends(wheels, name), key=Version, default="") for name in FRAMEWORKS}
    known = _known_releases(folder)
    for name, lines in groupby(wheels, key=lambda wheel: str(wheel["name"])):
        released = sorted(lines, key=lambda wheel: Version(wheel["version"]))
        facts = [_links(wheel, newest, known, document["compares_cuda"]) for wheel in released]
        rows.setdefault(name, []).extend(_merged(released, facts))
    return dict(sorted(rows.items()))


def _ends(wheels: Iterable[dict[str, Any]], framework: str) -> Iterator[str]:
    """Yield the newest release of a framework that each companion can load: "2.15"."""
    return (wheel[framework][1] for wheel in wheels if wheel.get(framework))


def _known_releases(folder: Path) -> dict[str, list[str]]:
    """Return the releases of each framework that the data has, and whose symbols are read."""
    torch = _rows(folder / "frameworks" / "torch.json", "builds")
    tensorflow = _rows(folder / "libraries" / "tensorflow.json", "releases")
    return {
        "torch": [row["version"] for row in torch if Version(row["version"]) >= Version("2.0")],
        "tensorflow": [row["version"] for row in tensorflow],
    }


def _rows(path: Path, table: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(path.read_text("ascii"))[table] if path.exists() else []
    return rows


def _links(
    wheel: dict[str, Any],
    newest: dict[str, str],
    known: dict[str, list[str]],
    compares: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return the fields of Links that METADATA does not say, but for the source."""
    fields: dict[str, Any] = {}
    ranges: dict[str, str] = {}
    for framework in FRAMEWORKS:
        if wheel.get(framework):  # [] is none of those that were read
            first, last = wheel[framework]
            is_open = wheel.get("stable", False) and last == newest[framework]
            ranges[framework] = f">={first}" + ("" if is_open else f",<{_next(last)}")
    # A text of the wheel, such as a table in METADATA, is narrower than the symbols.
    for framework, specifier in (ranges | wheel.get("says", {})).items():
        is_demanded = _is_demanded(wheel, framework, specifier, known[framework])
        needed = [framework, "" if is_demanded else specifier]
        fields.setdefault("frameworks", []).append(needed)
    brings_cuda = any(text.startswith("nvidia-cublas") for text in wheel["requires"])
    if wheel.get("cuda") and not brings_cuda:
        fields["cuda"] = wheel["cuda"]
    for row in compares:
        is_meant = wheel["name"] in row["distributions"] and "built" in wheel
        if is_meant and SpecifierSet(row["versions"]).contains(Version(wheel["version"])):
            fields["cuda_minor"] = wheel["built"]
    if wheel.get("cudnn"):
        fields["cudnn"] = wheel["cudnn"]
    if wheel.get("numpy") == 1:
        fields["numpy"] = [1]
    return fields


def _next(minor: str) -> str:
    major, _, number = minor.partition(".")
    return f"{major}.{int(number) + 1}"


def _is_demanded(wheel: dict[str, Any], name: str, specifier: str, known: list[str]) -> bool:
    """Return whether METADATA admits only releases that the range has, now and in the future."""
    demanded = SpecifierSet()
    for text in wheel["requires"]:
        requirement = Requirement(text)
        marker = requirement.marker
        if requirement.name == name and (marker is None or marker.evaluate(TARGET)):
            demanded &= requirement.specifier
    releases = SpecifierSet(specifier)
    return all(version in releases for version in demanded.filter([*known, "99.0"]))


def _merged(wheels: list[dict[str, Any]], facts: list[dict[str, Any]]) -> Iterator[Row]:
    """Yield one row for neighboring releases with equal needs. Its source is the newest of them.

    Between two releases of a line whose needs differ nothing is known. If the headers of NumPy are
    all that matters, what is older than a wheel with those of NumPy 1 has them, too, and what is
    newer than one with those of NumPy 2 needs nothing.
    """
    is_array_package = all(fields in ({}, {"numpy": [1]}) for fields in facts)
    places = [0, *(place for place in range(1, len(facts)) if facts[place] != facts[place - 1])]
    lines = [line_of(wheel["version"]) for wheel in wheels]
    for start, end in pairwise([*places, len(facts)]):
        first, last = wheels[start], wheels[end - 1]
        is_later = start and lines[start] == lines[start - 1]
        lower = first["version"] if is_later else lines[start]
        head, _, number = lines[end - 1].rpartition(".")
        upper = f"<{head}.{int(number) + 1}"
        if end < len(wheels) and lines[end] == lines[end - 1]:
            upper = f"<={last['version']}"
        versions = f">={lower},{upper}"
        if is_array_package and not start and first.get("numpy") == 1:
            versions = upper
        elif is_array_package and end == len(wheels) and last.get("numpy") == 2:
            versions = f">={lower}"
        fields = {**facts[start], "source": f"{last['file']} (sha256 {last['sha256']})"}
        yield versions, fields, [SCANNED_ON]


def line_of(version: str) -> str:
    """Return the line of a release: "2.11" of 2.11.1; of 0.0.31.post1 it is "0.0.31"."""
    numbers = (*Version(version).release, 0, 0)[:3]
    return ".".join(map(str, numbers[: 2 if any(numbers[:2]) else 3]))
