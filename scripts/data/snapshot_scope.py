"""Choose what the index snapshot holds: its roots, and the releases of every package.

The roots come from matrix_data: a new framework needs its TOML file and no edit here. Of a
framework's distributions and of the libraries that rules R2 and R3 choose among every release is
held. Of any other package those are held that a solve may end with: whatever ranges the packages of
one environment ask for, the newest release that all of them admit, and the newest older one that
itself asks for less of another package.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from data.index import serves, targets
from gpuenv.model import Requirement, Wheel
from gpuenv.requirements.target import wheel_tags
from gpuenv.requirements.versions import contains, normalize_name, parse_requirement, version_key
from gpuenv.serialize import read_toml

# How many of the newest releases of a package are held; fewer of CUDA libraries: many files.
NEWEST = 12
NEWEST_CUDA = 2
CUDA = ("nvidia-", "cuda-")
MOST = 100_000  # sets of releases; nearly all are intervals of a page, so there are far fewer


class Scope(NamedTuple):
    """Where the walk starts: {distribution: specifier} of frameworks and of libraries held whole.

    `requirements` are what the ways of installing a framework ask for, with their extras.
    """

    roots: dict[str, str]
    libraries: dict[str, str]
    requirements: list[Requirement]


def read_scope(folder: Path) -> Scope:
    """Return the roots that the frameworks/*.toml and scans.toml of the data name."""
    scope = Scope({}, {}, [])
    for path in sorted(folder.glob("frameworks/*.toml")):
        content = read_toml(str(path))
        if "since" not in content:
            continue  # its releases are looked up live
        for way in content.get("way", [{"requires": [content["distribution"]], "carriers": []}]):
            if "local" in way:
                continue  # its builds are on no index
            asked = list(map(parse_requirement, way["requires"]))
            scope.requirements.extend(asked)
            for name in (*(requirement.name for requirement in asked), *way["carriers"]):
                scope.roots[normalize_name(name)] = f">={content['since']}"
        for name, since in content.get("also_since", {}).items():
            scope.roots[normalize_name(name)] = f">={since}"
    for scan in read_toml(str(folder / "scans.toml"))["scan"]:
        if scan.get("path") and not scan.get("lines"):
            for name in scan["distributions"]:
                scope.libraries.setdefault(name, f">={scan['since']}")
    return scope


@cache
def served(tags: str, requires_python: str | None) -> tuple[int, ...]:
    """Return the places of the targets that a wheel serves."""
    return tuple(
        place for place in serves(tags) if targets()[place].accepts_python(requires_python)
    )


class Releases:
    """The releases of a package; sets of them are ints with bit n for the n-th oldest.

    Args:
        wheels: its wheels, oldest first.
        requires: what was read of wheels, by sha256.
    """

    def __init__(
        self, wheels: Iterable[Wheel], requires: Mapping[str | None, tuple[Requirement, ...]]
    ) -> None:
        self.versions = list(dict.fromkeys(wheel.version for wheel in wheels))
        places = {version: place for place, version in enumerate(self.versions)}
        self.offered = 0  # not yanked
        self.by_target = [0] * len(targets())
        # What a release (its place) requires on a target; a key is missing if it was not read.
        self.requires: dict[tuple[int, int], tuple[Requirement, ...]] = {}
        for wheel in wheels:
            place = places[wheel.version]
            self.offered |= (wheel.yanked is None) << place
            for target in served(wheel_tags(wheel.filename), wheel.requires_python):
                self.by_target[target] |= 1 << place
                if wheel.sha256 in requires:
                    self.requires.setdefault((place, target), requires[wheel.sha256])

    def matching(self, specifier: str) -> int:
        """Return the releases that a specifier admits, yanked or not."""
        return union(
            1 << place
            for place, version in enumerate(self.versions)
            if contains(specifier, version, False)
        )

    def admitted(self, specifier: str) -> int:
        """Return the releases that a solve may take: yanked ones only if the specifier pins."""
        is_pin = "==" in specifier or "~=" in specifier
        return self.matching(specifier) & (-1 if is_pin else self.offered)

    def newest(self, releases: int) -> int:
        """Return the newest of a set for each target."""
        places = [(releases & target).bit_length() - 1 for target in self.by_target]
        return union(1 << place for place in places if place >= 0)

    def lines(self, releases: int) -> int:
        """Return the newest of each major.minor of a set, for each target."""
        groups: dict[tuple[int, ...], int] = defaultdict(int)
        for place, version in enumerate(self.versions):
            groups[version_key(version).release[:2]] |= releases & 1 << place
        return union(map(self.newest, groups.values()))

    def named(self, releases: int) -> set[str]:
        """Return the versions of a set."""
        return {version for place, version in enumerate(self.versions) if releases >> place & 1}


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


# What a release needs: package, or package[extra] -> the releases that will do.
Bounds = dict[str, int]


class Needs:
    """What releases need of other packages, and which of two releases asks for more.

    Args:
        pages: the wheels of the known packages; it may grow.
        requires: what was read of wheels, by sha256; it may grow.
    """

    def __init__(
        self,
        pages: Mapping[str, list[Wheel]],
        requires: Mapping[str | None, tuple[Requirement, ...]],
    ) -> None:
        self.pages, self.requires = pages, requires
        self._matching: dict[tuple[str, str], int] = {}
        self._bounds: dict[tuple[tuple[Requirement, ...], int, tuple[str, ...]], Bounds] = {}

    def bounds(
        self, requires: tuple[Requirement, ...], target: int, extras: tuple[str, ...]
    ) -> Bounds:
        """Return the bounds that requirements set on a target, with all of the extras."""
        key = requires, target, extras
        if key not in self._bounds:
            bounds = self._bounds[key] = {}
            for need in requires:
                if need.marker is None or targets()[target].marker(need.marker, extras):
                    admitted = self._admitted(need.name, need.specifier)
                    bounds[need.name] = bounds.get(need.name, -1) & admitted
                    bounds |= {f"{need.name}[{extra}]": -1 for extra in need.extras}
        return self._bounds[key]

    def _admitted(self, name: str, specifier: str) -> int:
        if name not in self.pages:  # no kept release needs it: its bounds are never the wider ones
            return 0
        if (name, specifier) not in self._matching:
            self._matching[name, specifier] = Releases(self.pages[name], {}).matching(specifier)
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
            requires = releases.requires.get((place, target))
            if requires is None:
                return kept or 1 << place, bool(kept)  # what is kept will be read anyhow
            bounds = tuple(self.bounds(requires, target, some) for some in {(), extras})
            if not any(all(map(allows, newer, bounds)) for newer in chosen):
                kept |= 1 << place
                chosen.append(bounds)
            if not any(bounds):
                break
        return kept, False


def allows(wide: Bounds, narrow: Bounds) -> bool:
    """Return whether all that satisfies the narrow bounds satisfies the wide ones."""
    return all(name in narrow and not narrow[name] & ~releases for name, releases in wide.items())


def choose(
    scope: Scope, needs: Needs, name: str, specifiers: Iterable[str], extras: Iterable[str]
) -> tuple[set[str], bool]:
    """Return the releases of a package to keep, and whether the choice needs more METADATA."""
    releases = Releases(needs.pages[name], needs.requires)
    if name in scope.roots:
        return releases.named(releases.matching(scope.roots[name])), False
    asked = {specifier: releases.admitted(specifier) for specifier in specifiers}
    kept = releases.matching(scope.libraries[name]) if name in scope.libraries else 0
    is_cuda = name.startswith(CUDA)
    if is_cuda:  # older GPUs and drivers need older lines
        kept |= union(map(releases.lines, asked.values()))
    elif all(map(is_exact, asked)):  # a part of something, such as tensorflow-intel
        return releases.named(union(map(releases.newest, asked.values()))), False
    offered = [place for place in range(len(releases.versions)) if releases.offered >> place & 1]
    kept |= union(1 << place for place in offered[-(NEWEST_CUDA if is_cuda else NEWEST) :])
    joint, missing = intersections(sorted({*asked.values(), releases.offered})), False
    for target, on_target in enumerate(releases.by_target):
        for admitted in {allowed & on_target for allowed in joint}:
            some, unread = needs.mildest(releases, admitted, target, tuple(sorted(extras)))
            kept, missing = kept | some, missing or unread
    return releases.named(kept), missing


def is_exact(specifier: str) -> bool:
    """Return whether a specifier names one release."""
    return any(
        clause.startswith("==") and not clause.endswith(".*") for clause in specifier.split(",")
    )
