"""Choose what the index snapshot holds: its roots, and the releases of every package.

The roots come from matrix_data: a new framework needs its TOML file and no edit here. Of a
framework's distributions and of the libraries that rules R2 and R3 choose among every release is
held. Of any other package those are held that a solve may end with: whatever ranges the packages of
one environment ask for, the newest release that all of them admit, and the newest older one that
itself asks for less of another package.
"""

from __future__ import annotations

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
Versions = frozenset[str]  # a set of releases
# What a release needs: package, or package[extra] -> the releases that will do.
Bounds = dict[str, Versions]


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
    """The releases of a package.

    Args:
        wheels: its wheels, oldest first.
        requires: what was read of wheels, by sha256.
    """

    def __init__(
        self, wheels: Iterable[Wheel], requires: Mapping[str | None, tuple[Requirement, ...]]
    ) -> None:
        self.places = {
            version: place
            for place, version in enumerate(dict.fromkeys(wheel.version for wheel in wheels))
        }  # oldest first
        self.offered: Versions = frozenset(w.version for w in wheels if w.yanked is None)
        # What a release requires on a target; None if it was not read.
        self.requires: list[dict[str, tuple[Requirement, ...] | None]] = [{} for _ in targets()]
        for wheel in wheels:
            for target in served(wheel_tags(wheel.filename), wheel.requires_python):
                known = self.requires[target]
                if known.get(wheel.version) is None:
                    known[wheel.version] = requires.get(wheel.sha256)

    def sorted(self, releases: Versions) -> list[str]:
        """Return releases, newest first."""
        return sorted(releases, key=self.places.__getitem__, reverse=True)

    def newest(self, releases: Versions) -> Versions:
        """Return the newest of a set for each target."""
        on_targets = [releases.intersection(on_target) for on_target in self.requires]
        return frozenset(self.sorted(some)[0] for some in on_targets if some)

    def lines(self, releases: Versions) -> Versions:
        """Return the newest of each major.minor of a set, for each target."""
        groups: dict[tuple[int, ...], set[str]] = {}
        for version in releases:
            groups.setdefault(version_key(version).release[:2], set()).add(version)
        return frozenset().union(*(self.newest(frozenset(group)) for group in groups.values()))


class Chooser:
    """Chooses the releases to keep.

    Args:
        scope: the roots.
        pages: the wheels of the known packages, oldest first; it may grow.
        requires: what was read of wheels, by sha256; it may grow.
    """

    def __init__(
        self,
        scope: Scope,
        pages: Mapping[str, list[Wheel]],
        requires: Mapping[str | None, tuple[Requirement, ...]],
    ) -> None:
        self.scope, self.pages, self.requires = scope, pages, requires
        self._matching: dict[tuple[str, str], Versions] = {}
        self._bounds: dict[tuple[tuple[Requirement, ...], int, tuple[str, ...]], Bounds] = {}

    def choose(
        self, name: str, specifiers: Iterable[str], extras: Iterable[str]
    ) -> tuple[Versions, bool]:
        """Return the releases of a package to keep, and whether this needs more METADATA."""
        if name in self.scope.roots:
            return self.matching(name, self.scope.roots[name]), False
        releases = Releases(self.pages[name], self.requires)
        asked = {}
        for specifier in specifiers:
            asked[specifier] = self.matching(name, specifier)
            if "==" not in specifier and "~=" not in specifier:  # a solve takes no yanked release
                asked[specifier] &= releases.offered
        kept: set[str] = set()
        is_cuda = name.startswith(CUDA)
        if name in self.scope.libraries:
            kept |= self.matching(name, self.scope.libraries[name])
        if is_cuda:  # older GPUs and drivers need older lines
            kept = kept.union(*map(releases.lines, asked.values()))
        elif all(map(is_exact, asked)):  # a part of something, such as tensorflow-intel
            return frozenset().union(*map(releases.newest, asked.values())), False
        kept.update(releases.sorted(releases.offered)[: NEWEST_CUDA if is_cuda else NEWEST])
        joint, missing = intersections({*asked.values(), releases.offered}), False
        for target, on_target in enumerate(releases.requires):
            for admitted in {allowed.intersection(on_target) for allowed in joint}:
                some, unread = self.mildest(releases, admitted, target, tuple(sorted(extras)))
                kept |= some
                missing = missing or unread
        return frozenset(kept), missing

    def matching(self, name: str, specifier: str) -> Versions:
        """Return the releases of a package that a specifier admits, yanked or not."""
        key = name, specifier
        if key not in self._matching:
            versions = dict.fromkeys(wheel.version for wheel in self.pages[name])
            admitted = (version for version in versions if contains(specifier, version, False))
            self._matching[key] = frozenset(admitted)
        return self._matching[key]

    def mildest(
        self, releases: Releases, admitted: Versions, target: int, extras: tuple[str, ...]
    ) -> tuple[set[str], bool]:
        """Return the releases that a solve on a target may choose from a set.

        Each of them has a milder requirement on some package than all newer ones. The second
        value says that the answer needs METADATA that was not read.
        """
        chosen: list[tuple[Bounds, ...]] = []
        kept: set[str] = set()
        for version in releases.sorted(admitted):
            requires = releases.requires[target][version]
            if requires is None:
                return kept or {version}, bool(kept)  # what is kept will be read anyhow
            bounds = tuple(self.bounds(requires, target, some) for some in {(), extras})
            if not any(all(map(allows, newer, bounds)) for newer in chosen):
                kept.add(version)
                chosen.append(bounds)
            if not any(bounds):
                break
        return kept, False

    def bounds(
        self, requires: tuple[Requirement, ...], target: int, extras: tuple[str, ...]
    ) -> Bounds:
        """Return the bounds that requirements set on a target, with all of the extras."""
        key = requires, target, extras
        if key not in self._bounds:
            bounds = self._bounds[key] = {}
            for need in requires:
                if need.marker is not None and not targets()[target].marker(need.marker, extras):
                    continue
                # No kept release needs an unknown package: its bounds are never the wider ones.
                admitted: Versions = frozenset()
                if need.name in self.pages:
                    admitted = self.matching(need.name, need.specifier)
                bounds[need.name] = bounds.get(need.name, admitted) & admitted
                bounds |= {f"{need.name}[{extra}]": frozenset() for extra in need.extras}
        return self._bounds[key]


def allows(wide: Bounds, narrow: Bounds) -> bool:
    """Return whether all that satisfies the narrow bounds satisfies the wide ones."""
    return all(name in narrow and narrow[name] <= releases for name, releases in wide.items())


def intersections(sets: Iterable[Versions]) -> set[Versions]:
    """Return the sets and all their intersections, which joint requirements can leave."""
    intersected: set[Versions] = set()
    for releases in sets:
        intersected |= {releases & other for other in intersected} | {releases}
        if len(intersected) > MOST:
            raise RuntimeError("the ranges of a package are too many to be intersected")
    return intersected - {frozenset()}


def is_exact(specifier: str) -> bool:
    """Return whether a specifier names one release."""
    return any(
        clause.startswith("==") and not clause.endswith(".*") for clause in specifier.split(",")
    )
