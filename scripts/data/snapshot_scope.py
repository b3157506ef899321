"""Choose what the index snapshot holds: its roots, and the releases of every package.

The roots come from matrix_data: a new framework needs its TOML file and no edit here. Of a
framework's distributions and of the libraries that rules R2 and R3 choose among every release is
held. Of any other package those are held that a solve may end with: whatever ranges the packages of
one environment ask for, the newest release that all of them admit, and the newest older one that
itself asks for less of another package.
"""

from __future__ import annotations

import glob
import os
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from data.registry import environments
from gpuenv.requirements.versions import contains

# How many of the newest releases of a package are held; fewer of CUDA libraries: many files.
NEWEST = 12
NEWEST_CUDA = 2
CUDA = ("nvidia-", "cuda-")
MOST = 100_000  # sets of releases; nearly all are intervals of a page, so there are far fewer


class Scope(NamedTuple):
    """Where the walk starts."""

    roots: dict[
        str, str
    ]  # distribution -> specifier: the frameworks' own, whose METADATA is read file by file
    libraries: dict[str, str]  # the same for the libraries that are held whole
    requirements: list[
        Requirement
    ]  # what the ways of installing a framework ask for, with their extras


def scope(folder: str) -> Scope:
    """Return the roots that the frameworks/*.toml and scans.toml of matrix_data name."""
    roots: dict[str, str] = {}
    requirements: list[Requirement] = []
    for path in sorted(glob.glob(os.path.join(folder, "frameworks", "*.toml"))):
        with open(path, "rb") as file:
            data = tomllib.load(file)
        if "since" not in data:
            continue  # its releases are looked up live
        for way in data.get("way", [{"requires": [data["distribution"]], "carriers": []}]):
            if "local" in way:
                continue  # its builds are on no index
            asked = list(map(Requirement, way["requires"]))
            requirements += asked
            for name in (*(requirement.name for requirement in asked), *way["carriers"]):
                roots[canonicalize_name(name)] = f">={data['since']}"
        roots.update(
            {
                canonicalize_name(name): f">={since}"
                for name, since in data.get("also_since", {}).items()
            }
        )
    with open(os.path.join(folder, "scans.toml"), "rb") as file:
        scans = tomllib.load(file)["scan"]
    libraries: dict[str, str] = {}
    for scan in scans:
        if scan.get("path") and not scan.get("lines"):
            for name in scan["distributions"]:
                libraries.setdefault(name, f">={scan['since']}")
    return Scope(roots, libraries, requirements)


@cache
def serves(tags: str, requires_python: str | None) -> tuple[int, ...]:
    """Return the supported targets that a wheel serves, as indexes of environments()."""
    return tuple(
        place
        for place, environment in enumerate(environments())
        if environment.rank(f"a-1-{tags}.whl") is not None
        and environment.accepts_python(requires_python)
    )


class Releases:
    """The releases of a package; sets of them are ints with bit n for the n-th oldest."""

    def __init__(self, wheels: list[dict[str, Any]]) -> None:
        """Take wheels of registry.read_anchor in ascending order; some may have "requires"."""
        self.versions = list(dict.fromkeys(wheel["version"] for wheel in wheels))
        places = {version: place for place, version in enumerate(self.versions)}
        self.offered = 0  # not yanked
        self.by_target = [0] * len(environments())
        self._requires: dict[tuple[int, int], tuple[str, ...]] = {}
        for wheel in wheels:
            place = places[wheel["version"]]
            self.offered |= (wheel["yanked"] is None) << place
            tags = "-".join(wheel["filename"][:-4].split("-")[-3:])
            for target in serves(tags, wheel["requires_python"]):
                self.by_target[target] |= 1 << place
                if "requires" in wheel:
                    self._requires.setdefault((place, target), tuple(wheel["requires"]))

    def requires(self, place: int, target: int) -> tuple[str, ...] | None:
        """Return the Requires-Dist lines of a release on a target; None if they were not read."""
        return self._requires.get((place, target))

    def matching(self, specifier: str) -> int:
        """Return the releases that a specifier admits, yanked or not."""
        return sum(
            1 << place
            for place, version in enumerate(self.versions)
            if contains(specifier, version, False)
        )

    def admitted(self, specifier: str) -> int:
        """Return the releases that a solve may take: yanked ones only if the specifier pins."""
        matching = self.matching(specifier)
        return matching if pins(specifier) else matching & self.offered

    def newest(self, releases: int) -> int:
        """Return the newest of a set for each target."""
        return union(
            1 << place
            for target in self.by_target
            if (place := (releases & target).bit_length() - 1) >= 0
        )

    def lines(self, releases: int) -> int:
        """Return the newest of each major.minor of a set, for each target."""
        groups: dict[tuple[int, ...], int] = defaultdict(int)
        for place, version in enumerate(self.versions):
            groups[Version(version).release[:2]] |= releases & 1 << place
        return union(map(self.newest, groups.values()))

    def named(self, releases: int) -> set[str]:
        """Return the versions of a set."""
        return {version for place, version in enumerate(self.versions) if releases >> place & 1}


def pins(specifier: str) -> bool:
    """Return whether a specifier names a release or a series rather than bounds."""
    return "==" in specifier or "~=" in specifier


def exact(specifier: str) -> bool:
    """Return whether a specifier names one release."""
    return any(
        clause.startswith("==") and not clause.endswith(".*") for clause in specifier.split(",")
    )


def union(sets: Iterable[int]) -> int:
    """Return the union of sets of releases."""
    merged = 0
    for releases in sets:
        merged |= releases
    return merged


def intersections(sets: Iterable[int]) -> set[int]:
    """Return the sets and all their intersections, which joint requirements can leave."""
    intersected: set[int] = set()
    for releases in sets:
        intersected |= {releases & other for other in intersected} | {releases}
        if len(intersected) > MOST:
            raise RuntimeError("the ranges of a package are too many to be intersected")
    return intersected - {0}


Bounds = dict[
    str, int
]  # what a release needs: package, or package[extra] -> the releases that will do


class Needs:
    """What releases need of other packages, and which of two releases asks for more."""

    def __init__(self, pages: Mapping[str, list[dict[str, Any]]]) -> None:
        """Take the wheels of the known packages. `pages` may grow."""
        self.pages = pages
        self._matching: dict[tuple[str, str], int] = {}
        self._bounds: dict[tuple[tuple[str, ...], int, tuple[str, ...]], Bounds] = {}

    def of(self, requires: tuple[str, ...], target: int, extras: tuple[str, ...]) -> Bounds:
        """Return the bounds that Requires-Dist lines set on a target, with all of the extras."""
        key = requires, target, extras
        if key not in self._bounds:
            bounds: Bounds = {}
            for requirement in filter(None, map(parsed, requires)):
                name = canonicalize_name(requirement.name)
                if requirement.marker is None or environments()[target].marker(
                    str(requirement.marker), extras
                ):
                    bounds[name] = bounds.get(name, -1) & self._admitted(
                        name, str(requirement.specifier)
                    )
                    bounds.update(
                        (f"{name}[{canonicalize_name(extra)}]", -1) for extra in requirement.extras
                    )
            self._bounds[key] = bounds
        return self._bounds[key]

    def _admitted(self, name: str, specifier: str) -> int:
        if (
            name not in self.pages
        ):  # no kept release needs it, so its bounds are never the wider ones
            return 0
        if (name, specifier) not in self._matching:
            self._matching[name, specifier] = Releases(self.pages[name]).matching(specifier)
        return self._matching[name, specifier]

    def mildest(
        self, releases: Releases, admitted: int, target: int, extras: tuple[str, ...]
    ) -> tuple[int, bool]:
        """Return the releases that a solve may choose from a set.

        Each of them has a milder requirement on some package than all newer ones. The second
        value says that the answer needs METADATA that was not read.
        """
        chosen: list[tuple[Bounds, ...]] = []
        kept, rest = 0, admitted & releases.by_target[target]
        while rest:
            place = rest.bit_length() - 1
            rest ^= 1 << place
            requires = releases.requires(place, target)
            if requires is None:
                return kept or 1 << place, bool(kept)  # what is kept will be read anyhow
            bounds = tuple(self.of(requires, target, some) for some in {(), extras})
            if not any(all(map(allows, newer, bounds)) for newer in chosen):
                kept |= 1 << place
                chosen.append(bounds)
            if not any(bounds):
                break
        return kept, False


def allows(wide: Bounds, narrow: Bounds) -> bool:
    """Return whether all that satisfies the narrow bounds satisfies the wide ones."""
    return all(name in narrow and not narrow[name] & ~releases for name, releases in wide.items())


@cache
def parsed(text: str) -> Requirement | None:
    """Return a parsed Requires-Dist line; None for a direct reference or an invalid line."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    return None if requirement.url else requirement


def choose(
    where: Scope, needs: Needs, name: str, specifiers: Iterable[str], extras: Iterable[str]
) -> tuple[set[str], bool]:
    """Return the releases of a package to keep, and whether the choice needs more METADATA."""
    releases = Releases(needs.pages[name])
    if name in where.roots:
        return releases.named(releases.matching(where.roots[name])), False
    asked = {specifier: releases.admitted(specifier) for specifier in specifiers}
    kept = releases.matching(where.libraries[name]) if name in where.libraries else 0
    cuda = name.startswith(CUDA)
    if cuda:  # older GPUs and drivers need older lines
        kept |= union(map(releases.lines, asked.values()))
    elif all(
        map(exact, asked)
    ):  # a part of something, such as tensorflow-intel: nobody asks for other releases
        return releases.named(union(map(releases.newest, asked.values()))), False
    newest = [place for place in range(len(releases.versions)) if releases.offered >> place & 1]
    kept |= union(1 << place for place in newest[-(NEWEST_CUDA if cuda else NEWEST) :])
    joint, missing = intersections(sorted({*asked.values(), releases.offered})), False
    for target, served in enumerate(releases.by_target):
        for admitted in {allowed & served for allowed in joint}:
            some, unread = needs.mildest(releases, admitted, target, tuple(sorted(extras)))
            kept, missing = kept | some, missing or unread
    return releases.named(kept), missing
