"""What the index snapshot holds: its roots, and which releases of every package (a part of build_snapshot.py).

The roots come from matrix_data: a new framework needs its TOML file and no edit here. Of a framework's distributions
and of the libraries that rules R2 and R3 choose among every release is held. Of any other package those are held that
a solve may end with: whatever releases the frameworks of one environment ask for, the newest that all of them admit.
"""

from __future__ import annotations

import glob
import os
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from registry import environments

NEWEST = 12  # of packages that anything may ask for, the newest few; less of CUDA libraries, which have many files
NEWEST_CUDA = 2
CUDA = ("nvidia-", "cuda-")
MOST = 100_000  # sets of releases; nearly all are intervals of a page, so there are far fewer


class Scope(NamedTuple):
    """Where the walk starts."""

    roots: dict[str, str]  # distribution -> specifier: the frameworks' own, whose METADATA is read file by file
    libraries: dict[str, str]  # the same for the libraries that are held whole
    requirements: list[Requirement]  # what the ways of installing a framework ask for, with their extras


def scope(folder: str) -> Scope:
    """The roots that the frameworks/*.toml and scans.toml of matrix_data name."""
    roots: dict[str, str] = {}
    requirements: list[Requirement] = []
    for path in sorted(glob.glob(os.path.join(folder, "frameworks", "*.toml"))):
        with open(path, "rb") as file:
            data = tomllib.load(file)
        for way in data.get("way", [{"requires": [data["distribution"]], "carriers": []}]):
            asked = list(map(Requirement, way["requires"]))
            requirements += asked
            for name in (*(one.name for one in asked), *way["carriers"]):
                roots[canonicalize_name(name)] = f">={data['since']}"
        roots.update({canonicalize_name(name): f">={since}" for name, since in data.get("also_since", {}).items()})
    with open(os.path.join(folder, "scans.toml"), "rb") as file:
        scans = tomllib.load(file)["scan"]
    libraries: dict[str, str] = {}
    for scan in scans:
        if scan.get("path") and not scan.get("lines"):
            for name in scan["distributions"]:
                libraries.setdefault(name, f">={scan['since']}")
    return Scope(roots, libraries, requirements)


@cache
def serves(tags: str, requires_python: str | None) -> int:
    """The supported targets that a wheel serves: bit n for environments()[n]."""
    return sum(
        1 << number
        for number, environment in enumerate(environments())
        if environment.rank(f"a-1-{tags}.whl") is not None and environment.accepts_python(requires_python)
    )


class Releases:
    """The releases of a package; sets of them are ints with bit n for the n-th oldest."""

    def __init__(self, wheels: list[dict[str, Any]]) -> None:
        """`wheels` are ascending, with the fields of registry.read_anchor."""
        self.versions = list(dict.fromkeys(wheel["version"] for wheel in wheels))
        places = {version: place for place, version in enumerate(self.versions)}
        self.offered = 0  # not yanked
        fitting: dict[int, int] = defaultdict(int)
        for wheel in wheels:
            place = places[wheel["version"]]
            self.offered |= (wheel["yanked"] is None) << place
            tags = "-".join(wheel["filename"][:-4].split("-")[-3:])
            fitting[place] |= serves(tags, wheel["requires_python"])
        by_target = (
            sum((targets >> number & 1) << place for place, targets in fitting.items())
            for number in range(len(environments()))
        )
        self.by_target = sorted(set(by_target) - {0})  # many targets have the same releases

    def matching(self, specifier: str) -> int:
        """The releases that a specifier admits, yanked or not."""
        contains = environments()[0].contains
        return sum(1 << place for place, one in enumerate(self.versions) if contains(specifier, one, False))

    def admitted(self, specifier: str) -> int:
        """The releases that a solve may take for a specifier: yanked ones only where it pins."""
        found = self.matching(specifier)
        return found if pins(specifier) else found & self.offered

    def newest(self, releases: int) -> int:
        """The newest of a set for each target."""
        kept = 0
        for target in self.by_target:
            if found := releases & target:
                kept |= 1 << found.bit_length() - 1
        return kept

    def lines(self, releases: int) -> int:
        """The newest of each major.minor of a set, for each target."""
        groups: dict[tuple[int, ...], int] = defaultdict(int)
        for place, version in enumerate(self.versions):
            groups[Version(version).release[:2]] |= releases & 1 << place
        return union(map(self.newest, groups.values()))

    def named(self, releases: int) -> set[str]:
        """The versions of a set."""
        return {version for place, version in enumerate(self.versions) if releases >> place & 1}


def pins(specifier: str) -> bool:
    """Whether a specifier names a release or a series rather than bounds."""
    return "==" in specifier or "~=" in specifier


def exact(specifier: str) -> bool:
    """Whether a specifier names one release."""
    return any(clause.startswith("==") and not clause.endswith(".*") for clause in specifier.split(","))


def union(sets: Iterable[int]) -> int:
    """The union of sets of releases."""
    found = 0
    for one in sets:
        found |= one
    return found


def intersections(sets: Iterable[int]) -> set[int]:
    """The sets and everything that several of them have in common: what joint requirements can leave."""
    found: set[int] = set()
    for one in sets:
        found |= {one & other for other in found} | {one}
        if len(found) > MOST:
            raise RuntimeError("the ranges of a package are too many to be intersected")
    return found - {0}


def choose(where: Scope, name: str, wheels: list[dict[str, Any]], specifiers: Iterable[str]) -> set[str]:
    """The releases to keep of a package of which these specifiers are asked for."""
    releases = Releases(wheels)
    if name in where.roots:
        return releases.named(releases.matching(where.roots[name]))
    asked = {specifier: releases.admitted(specifier) for specifier in specifiers}
    kept = releases.matching(where.libraries[name]) if name in where.libraries else 0
    cuda = name.startswith(CUDA)
    if cuda:  # older GPUs and drivers need older lines
        kept |= union(map(releases.lines, asked.values()))
    elif all(map(exact, asked)):  # a part of something, such as tensorflow-intel: nobody asks for other releases
        return releases.named(union(map(releases.newest, asked.values())))
    newest = [place for place in range(len(releases.versions)) if releases.offered >> place & 1]
    kept |= union(1 << place for place in newest[-(NEWEST_CUDA if cuda else NEWEST) :])
    kept |= union(map(releases.newest, intersections(sorted({*asked.values(), releases.offered}))))
    return releases.named(kept)
