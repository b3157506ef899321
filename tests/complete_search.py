"""A complete search for a solution of a small universe, without gpuenv: packaging alone.

It takes one release after the other and goes back if a requirement cannot be met. It learns
nothing and looks at all combinations before it answers that there is none. How pre-releases and
yanked releases are admitted is checked on whole solutions only.
"""

from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from linux_markers import linux_markers

PYTHON = "3.12.4"
TARGET = linux_markers(PYTHON)


class UndecidedError(Exception):
    """The search took more steps than it may take: nothing is proven."""


class Demand(NamedTuple):
    """A requirement on a package: the versions that meet it, its ranges and its extras."""

    name: str
    versions: frozenset[str]
    specifier: str
    extras: frozenset[str]
    by_url: bool


class State(NamedTuple):
    """What is chosen, and what is demanded of each package."""

    pins: Mapping[str, str]
    versions: Mapping[str, frozenset[str]]
    specifiers: Mapping[str, tuple[str, ...]]
    extras: Mapping[str, frozenset[str]]
    by_url: frozenset[str]


START = State({}, {}, {}, {}, frozenset())


class Search:
    """The solutions of requirements on a universe (see universe.rows for its form)."""

    def __init__(self, packages, requires, constraints=()):
        """Create a search.

        Args:
            packages: the universe.
            requires: the requirements of the request.
            constraints: the constraints of the request.
        """
        self.packages = packages
        self.requires = [Requirement(text) for text in requires]
        self.constraints = {}
        for text in constraints:
            constraint = Requirement(text)
            self.constraints.setdefault(constraint.name, []).append(str(constraint.specifier))
        self.fitting = {name: self._fitting(name) for name in packages}
        self.dead = set()
        self._demands = {}
        self._steps = 0

    def _fitting(self, name):
        """Return the releases for the target's Python that meet the constraints."""
        limits = self.constraints.get(name, ())
        return frozenset(
            version
            for version, release in self.packages[name].items()
            if is_in(release.get("python", ""), PYTHON)
            and all(is_in(specifier, version) for specifier in limits)
        )

    def without_exceptions(self):
        """Return a search that leaves out what only the requirement of a release would admit.

        That are pre-releases, yanked releases, and releases that require the file at a URL.
        """
        packages = {}
        for name, releases in self.packages.items():
            ranges = [*self.constraints.get(name, ())]
            ranges += [str(one.specifier) for one in self.requires if one.name == name]
            ranges = [text for text in ranges if text]
            in_range = [
                one for one in self.fitting[name] if all(is_in(text, one) for text in ranges)
            ]
            packages[name] = {
                version: releases[version]
                for version in admitted(releases, in_range, ranges)
                if not any(" @ " in text for text in releases[version].get("requires", ()))
            }
        return Search(packages, list(map(str, self.requires)))

    def is_possible(self, limit):
        """Return whether there is a solution.

        Raises:
            UndecidedError: no answer after `limit` releases were tried.
        """
        self._steps = limit
        self._drop_dead_releases()
        state = self._with(START, map(self._demand, self.requires))
        return state is not None and self._search(state)

    def _search(self, state):
        open_names = [name for name in state.versions if name not in state.pins]
        if not open_names:
            return not any(True for _ in self._not_admitted(state))
        name = min(open_names, key=lambda one: (len(state.versions[one]), one))
        for version in sorted(state.versions[name], key=Version, reverse=True):
            self._steps -= 1
            if not self._steps:
                raise UndecidedError
            following = self._pin(state, name, version)
            if following is not None and self._search(following):
                return True
        return False

    def _pin(self, state, name, version):
        pinned = state._replace(pins={**state.pins, name: version})
        demands = list(self.demands(name, version, ""))
        for extra in sorted(state.extras.get(name, ())):
            demands += self.demands(name, version, extra)
        return self._with(pinned, demands)

    def _with(self, state, demands):
        """Return a state with more demands; None if one of them cannot be met."""
        versions, specifiers = dict(state.versions), dict(state.specifiers)
        extras, by_url = dict(state.extras), set(state.by_url)
        waiting = list(demands)
        while waiting:
            demand = waiting.pop()
            name = demand.name
            versions[name] = versions.get(name, demand.versions) & demand.versions
            specifiers[name] = (*specifiers.get(name, ()), demand.specifier)
            if demand.by_url:
                by_url.add(name)
            new_extras = demand.extras - extras.get(name, frozenset())
            extras[name] = extras.get(name, frozenset()) | new_extras
            pin = state.pins.get(name)
            if not versions[name] or (pin is not None and pin not in versions[name]):
                return None
            if pin is not None:
                for extra in sorted(new_extras):
                    waiting += self.demands(name, pin, extra)
        return State(state.pins, versions, specifiers, extras, frozenset(by_url))

    def demands(self, name, version, extra):
        """Return what a release demands; with an extra, what the extra alone adds."""
        key = (name, version, extra)
        if key not in self._demands:
            texts = self.packages[name][version].get("requires", ())
            found = [parsed(text) for text in texts if applies(parsed(text).marker, extra)]
            self._demands[key] = [self._demand(requirement) for requirement in found]
        return self._demands[key]

    def _demand(self, requirement):
        name, specifier = requirement.name, str(requirement.specifier)
        versions = [one for one in self.fitting.get(name, ()) if is_in(specifier, one)]
        if requirement.url:
            file = requirement.url.rpartition("/")[2]
            versions = [one for one in versions if file.split("-")[1] == one]
        alive = frozenset(one for one in versions if (name, one) not in self.dead)
        extras = frozenset(requirement.extras)
        return Demand(name, alive, specifier, extras, bool(requirement.url))

    def _drop_dead_releases(self):
        """Drop releases with a requirement that no release meets."""
        before = -1
        while before != len(self.dead):
            before = len(self.dead)
            self._demands.clear()
            for name, versions in self.fitting.items():
                for version in versions:
                    if not all(one.versions for one in self.demands(name, version, "")):
                        self.dead.add((name, version))
        self._demands.clear()

    def _not_admitted(self, state):
        """Yield pins that the rules for pre-releases and yanked releases exclude."""
        for name, version in state.pins.items():
            if name in state.by_url:
                continue
            ranges = [text for text in state.specifiers[name] if text]
            ranges += self.constraints.get(name, [])
            in_range = [
                one for one in self.fitting[name] if all(is_in(text, one) for text in ranges)
            ]
            if version not in admitted(self.packages[name], in_range, ranges):
                yield f"{name} {version} is not admitted"

    def faults(self, pins):
        """Return what is wrong with pins as a solution; [] if nothing is."""
        faults = [
            f"{name} {version} is no candidate"
            for name, version in pins.items()
            if version not in self.fitting[name]
        ]
        state, waiting = START, [self._demand(requirement) for requirement in self.requires]
        reached = set()
        while waiting:
            demand = waiting.pop()
            if pins.get(demand.name) not in demand.versions:
                faults.append(f"{demand} is not met by {pins.get(demand.name)}")
                continue
            name, pin = demand.name, pins[demand.name]
            state = self._with(state._replace(pins={}), [demand]) or state
            for extra in {"", *demand.extras} - {one for of, one in reached if of == name}:
                reached.add((name, extra))
                waiting += self.demands(name, pin, extra)
        needed = {name for name, _ in reached}
        faults += [f"nothing needs {name}" for name in sorted(pins.keys() - needed)]
        if not faults:
            faults += self._not_admitted(state._replace(pins=dict(pins)))
        return faults


def admitted(releases, in_range, ranges):
    """Return the versions that PEP 440 and PEP 592 admit among those in all ranges."""
    versions = list(in_range)
    if not any(SpecifierSet(text).prereleases for text in ranges):
        versions = [one for one in in_range if not Version(one).is_prerelease] or versions
    not_yanked = [one for one in versions if not releases[one].get("yanked")]
    pins = [clause for text in ranges for clause in text.split(",") if clause.startswith("==")]
    if not_yanked or all(clause.endswith(".*") for clause in pins):
        return not_yanked
    return versions


@cache
def parsed(text):
    """Return a requirement."""
    return Requirement(text)


@cache
def is_in(specifier, version):
    """Return whether a specifier set contains a version, pre-release or not."""
    return SpecifierSet(specifier).contains(Version(version), prereleases=True)


def applies(marker, extra):
    """Return whether a dependency belongs to a release, or to what an extra adds."""
    if marker is None:
        return not extra
    return _holds(str(marker), extra) and (not extra or not _holds(str(marker), ""))


@cache
def _holds(marker, extra):
    return Marker(marker).evaluate({**TARGET, "extra": extra})
