"""The fewest locks that serve a fleet, what more locks would give, and what a newer driver would.

A lock for several classes is solved for one described host: all their GPUs, the oldest driver that
supports these, and the oldest glibc. So a profile of pyproject.toml can describe it. Whether the
lock serves a class is then checked by the needs of the lock.

1. Each class of hosts gets the newest lock of its own.
2. `fewest_groups` finds the fewest locks. A class that is not weaker than another of its kind can
   always join the weaker one, so only the others count.
3. One lock after another is added, each time the one that saves most, until each class has the
   versions that it could have alone. The cost of a plan is how many releases older the frameworks
   are, summed over the nodes.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import gpuenv
from gpuenv import (
    Host,
    IndexOptions,
    InputError,
    Lock,
    NoSolutionError,
    Reason,
    Request,
    add_profiles,
    compatibility_data,
    matrix_catalog,
    parse_release,
    reaches_release,
    to_plain,
    unmet_needs,
)

from .classes import HostClass, distinct_gpus, driver_step, host_json

BUDGET = 200_000  # steps of the search for a proof


@dataclass(frozen=True, kw_only=True)
class LockPlan:
    """Locks that together serve all classes that a lock can serve.

    `groups` has each lock with the numbers of its classes. `cost` is how many releases older the
    locks are than those of each class alone, summed over the nodes.
    """

    groups: Sequence[tuple[Lock, Sequence[int]]]
    cost: int


class Solver:
    """Solves a request for hosts, each once. `solves` counts the resolutions."""

    def __init__(self, request: Request, options: IndexOptions) -> None:
        self.request, self.options = request, options
        self.solves = 0
        self._known: dict[Host, Lock | tuple[Reason, ...]] = {}

    def lock_for(self, host: Host) -> Lock | tuple[Reason, ...]:
        """Return the lock for a host, or why there is none."""
        if host not in self._known:
            self.solves += 1
            try:
                plan = gpuenv.solve(self.request, host, self.options, changes=False)
            except NoSolutionError as error:
                self._known[host] = error.explanation.reasons
                return self._known[host]
            self._known[host] = gpuenv.lock(plan)
        return self._known[host]


def asked_versions(lock: Lock) -> dict[str, str]:
    """Return the versions of the frameworks of a lock, and of the packages that were asked for."""
    versions = {choice.framework: choice.version for choice in lock.choices}
    pinned = lock.versions
    for text in (*lock.frameworks, *lock.requirements):
        name = canonicalize_name(Requirement(text).name)
        if name in pinned:
            versions.setdefault(name, pinned[name])
    return versions


# ---- hosts ---------------------------------------------------------------------------------------


def _kind(host: Host) -> tuple[object, ...]:
    """Return the facts that hosts of one lock must have in common."""
    python = host.python
    return host.platform, python.version, python.free_threaded, bool(host.gpus)


def serves(lock: Lock, host: Host) -> bool:
    """Return whether a lock runs on a host."""
    return _kind(lock.host) == _kind(host) and not unmet_needs(lock, host)


def _merged_host(hosts: Sequence[Host]) -> Host | None:
    """Return the least that hosts have in common; None if no lock can serve them all."""
    first = hosts[0]
    if any(_kind(host) != _kind(first) for host in hosts):
        return None
    merged = first.replace(glibc=min((host.glibc for host in hosts if host.glibc), default=None))
    if not first.gpus:
        return merged
    oldest = min(hosts, key=lambda host: parse_release(host.driver or "0"))
    driver, cuda = oldest.driver or "", oldest.driver_cuda
    gpus = distinct_gpus(gpu for host in hosts for gpu in host.gpus)
    data = compatibility_data()
    for gpu in gpus:
        # No driver of the oldest branch knows this GPU, and no single host has both.
        branch = data.first_branches.get(gpu.compute_capability or (0, 0))
        if branch is not None and parse_release(driver) < (branch[0],):
            driver = f"{branch[0]}.00"
            cuda = data.driver_cuda(driver)
    return merged.replace(gpus=gpus, driver=driver, driver_cuda=cuda)


def _is_weaker(host: Host, other: Host) -> bool:
    """Return whether every lock that serves a host serves another one, too."""

    def strength(host: Host) -> tuple[Any, ...]:
        cuda, driver = host.driver_cuda or (0, 0), parse_release(host.driver or "0")
        return host.glibc or (0, 0), cuda, driver

    return (
        _kind(host) == _kind(other)
        and set(host.capabilities).issuperset(other.capabilities)
        and all(own <= its for own, its in zip(strength(host), strength(other), strict=True))
    )


# ---- locks ---------------------------------------------------------------------------------------


def fewest_groups(
    items: Sequence[int], holds: Callable[[frozenset[int]], bool]
) -> tuple[list[frozenset[int]], bool]:
    """Return the fewest groups that hold all items, and whether there cannot be fewer.

    Args:
        items: The items; each fits into a group of its own.
        holds: Whether one group can hold these items. It can then hold a part of them, too.
    """
    best: list[frozenset[int]] = []  # each item in the first group that can hold it
    for item in items:
        for number, group in enumerate(best):
            if holds(group | {item}):
                best[number] = group | {item}
                break
        else:
            best.append(frozenset({item}))
    # The first item of each group first: if no two of them share a group, the search ends at once.
    rivals = [next(item for item in items if item in group) for group in best]
    ordered = [*rivals, *(item for item in items if item not in rivals)]
    steps = 0

    def place(number: int, groups: list[frozenset[int]]) -> None:
        """Branch and bound: an item joins a group that can hold it, or begins one."""
        nonlocal best, steps
        steps += 1
        if steps >= BUDGET or len(groups) >= len(best):
            return
        if number == len(ordered):
            best = groups
            return
        item = frozenset({ordered[number]})
        for index, group in enumerate(groups):
            if holds(group | item):
                place(number + 1, [*groups[:index], group | item, *groups[index + 1 :]])
        place(number + 1, [*groups, item])

    place(0, [])
    return best, steps < BUDGET


# A lock, and {class: cost} for the classes that it serves.
Offer = tuple[Lock, dict[int, int]]


class Fleet:
    """The classes of a fleet, by number, and the locks that are known for them.

    `newest` has the lock that each class could have alone, or the reasons why there is none.
    """

    def __init__(self, classes: Sequence[HostClass], solver: Solver) -> None:
        self.classes, self._solver, self._catalog = classes, solver, matrix_catalog()
        self.newest = [solver.lock_for(host_class.host) for host_class in classes]
        self._known: list[Offer] = []
        for lock in self.newest:
            if isinstance(lock, Lock):
                self._add(lock)

    def versions(self, item: int) -> Mapping[str, str]:
        """Return the versions that a class could have alone."""
        lock = self.newest[item]
        return asked_versions(lock) if isinstance(lock, Lock) else {}

    def solved(self) -> list[int]:
        """Return the classes that have a lock."""
        return [item for item, lock in enumerate(self.newest) if isinstance(lock, Lock)]

    def count(self, items: Iterable[int]) -> int:
        """Return how many nodes some classes have."""
        return sum(len(self.classes[item].nodes) for item in items)

    def _add(self, lock: Lock) -> dict[int, int]:
        """Keep a lock, and return what it costs the classes that it serves."""
        costs, versions = {}, asked_versions(lock)
        for item in self.solved():
            host = self.classes[item].host
            if serves(lock, host):
                distances = [
                    self._distance(name, host.platform, version, versions.get(name, version))
                    for name, version in self.versions(item).items()
                ]
                costs[item] = sum(distances) * self.count([item])
        self._known.append((lock, costs))
        return costs

    def _distance(self, name: str, platform: str, newer: str, older: str) -> int:
        """Return how many releases one version is older than another; 1 if they are not known."""
        if newer == older:
            return 0
        if compatibility_data().framework(name) is not None:
            entry = self._catalog.entry(name, platform)
            releases = [release.version for release in entry.releases]
            if newer in releases and older in releases:
                return abs(releases.index(newer) - releases.index(older))
        return 1

    def _find(self, items: Iterable[int]) -> bool:
        """Solve for the least that classes have in common. Return whether the lock serves all."""
        host = _merged_host([self.classes[item].host for item in items])
        lock = None if host is None else self._solver.lock_for(host)
        return isinstance(lock, Lock) and self._add(lock).keys() >= set(items)

    def fewest(self) -> tuple[list[frozenset[int]], bool]:
        """Return the fewest groups of the weakest classes, and whether there cannot be fewer."""
        refused: list[frozenset[int]] = []

        def holds(items: frozenset[int]) -> bool:
            if any(items <= costs.keys() for _, costs in self._known):
                return True
            if any(other <= items for other in refused) or not self._find(items):
                refused.append(items)
                return False
            return True

        def joins(item: int, other: int) -> bool:
            """Return whether a class can join a weaker one in any group."""
            host, weaker = self.classes[item].host, self.classes[other].host
            # Of two equal classes the first one counts.
            return _is_weaker(weaker, host) and (other < item or not _is_weaker(host, weaker))

        solved = self.solved()
        weakest = [
            item
            for item in solved
            if not any(other != item and joins(item, other) for other in solved)
        ]
        return fewest_groups(weakest, holds)

    def plans(self) -> tuple[list[LockPlan], bool]:
        """Return the plans, the fewest locks first, and whether fewer locks cannot serve all."""
        solved = self.solved()

        def share(offers: Sequence[Offer]) -> tuple[int, list[list[int]]]:
            """Give each class the lock that costs it least: (cost, classes of each lock)."""
            shares: list[list[int]] = [[] for _ in offers]
            total = 0
            for item in solved:
                serving = [
                    (costs[item], number)
                    for number, (_, costs) in enumerate(offers)
                    if item in costs
                ]
                cost, number = min(serving)
                shares[number].append(item)
                total += cost
            return total, shares

        def best(items: Collection[int]) -> Offer:
            """Return the lock for some classes that costs them least."""
            self._find(items)
            # The last one is for all of them, so its host says what they have in common.
            holding = [offer for offer in reversed(self._known) if set(items) <= offer[1].keys()]
            return min(holding, key=lambda offer: sum(offer[1][item] for item in items))

        groups, proved = self.fewest()
        offers = [best(group) for group in groups]
        plans: list[LockPlan] = []
        while True:
            offers = [best(items) for items in share(offers)[1] if items]
            cost, shares = share(offers)
            plan = [(lock, items) for (lock, _), items in zip(offers, shares, strict=True) if items]
            plan.sort(key=lambda group: self.count(group[1]), reverse=True)
            # Each plan costs less than the one before. It may need no more locks than that.
            while plans and len(plans[-1].groups) >= len(plan):
                plans.pop()
            plans.append(LockPlan(groups=tuple(plan), cost=cost))
            if not cost:
                return plans, proved
            offers.append(min(self._known, key=lambda known: share([*offers, known])[0]))


def _upgradable(fleet: Fleet, driver: str) -> list[list[int]]:
    """Return the classes that a driver release is an upgrade for: all, and those of each step."""
    last_branches, branch = compatibility_data().last_branches, parse_release(driver)[0]
    by_step: dict[str, list[int]] = {}
    for item, host in enumerate(host_class.host for host_class in fleet.classes):
        last = [last_branches.get(gpu.compute_capability or (0, 0)) for gpu in host.gpus]
        is_supported = all(limit is None or branch <= limit[0] for limit in last)
        is_older = host.driver is not None and not reaches_release(host.driver, driver)
        if host.gpus and is_older and is_supported:
            by_step.setdefault(driver_step(host.driver, host.os), []).append(item)
    if len(by_step) < 2:
        return list(by_step.values())
    return [sorted(itertools.chain(*by_step.values())), *by_step.values()]


def _what_ifs(
    fleet: Fleet, solver: Solver, locks: int, drivers: Iterable[str]
) -> Iterator[dict[str, Any]]:
    """Yield what a newer driver changes: on all older hosts, and on those of each driver."""
    data = compatibility_data()
    for driver in drivers:
        for items in _upgradable(fleet, driver):
            classes = list(fleet.classes)
            for item in items:
                host = classes[item].host.replace(
                    driver=driver, driver_cuda=data.driver_cuda(driver)
                )
                classes[item] = replace(classes[item], host=host)
            changed = Fleet(classes, solver)
            gains: Counter[tuple[str, str, str]] = Counter()
            for item in items:
                new = changed.versions(item)
                for name, old in fleet.versions(item).items():
                    if Version(new.get(name, old)) > Version(old):
                        gains[name, old, new[name]] += fleet.count([item])
            fewest = len(changed.fewest()[0])
            solved = fleet.count(set(changed.solved()) - set(fleet.solved()))
            if fewest < locks or solved or gains:
                yield {
                    "driver": driver,
                    "classes": items,
                    "nodes": fleet.count(items),
                    "locks": fewest,
                    "solved": solved,
                    "gains": [
                        {"name": name, "old": old, "new": new, "nodes": count}
                        for (name, old, new), count in gains.items()
                    ],
                }


def solve_fleet(
    classes: Sequence[HostClass], solver: Solver, drivers: Sequence[str] | None = None
) -> tuple[list[LockPlan], dict[str, Any]]:
    """Solve a request for all classes of a fleet.

    Args:
        classes: The classes.
        solver: Solves for one host.
        drivers: The driver releases of what-if questions; None asks for the floors of the CUDA
            toolkits.

    Returns:
        The plans, the fewest locks first, and what the document of `fleet solve --json` has of
        them. It names classes by number.

    Raises:
        PackageIndexError: An index did not answer.
    """
    fleet = Fleet(classes, solver)
    plans, proved = fleet.plans()
    if drivers is None:
        data = compatibility_data()
        floors = [data.driver_floor((major, 0), "linux") for major in data.floors]
        drivers = sorted({floor[0] for floor in floors if floor is not None}, key=parse_release)
    document = {
        "locks": len(plans[0].groups),
        "proved": proved,
        "plans": [
            {
                "locks": len(plan.groups),
                "cost": plan.cost,
                "groups": [_group_json(fleet, lock, items) for lock, items in plan.groups],
            }
            for plan in plans
        ],
        "what_if": list(_what_ifs(fleet, solver, len(plans[0].groups), drivers)),
        "unsolved": [
            {"class": item, "reasons": to_plain(lock)}
            for item, lock in enumerate(fleet.newest)
            if not isinstance(lock, Lock)
        ],
        "solves": solver.solves,
    }
    return plans, document


def _group_json(fleet: Fleet, lock: Lock, items: Collection[int]) -> dict[str, Any]:
    versions = asked_versions(lock)
    older: Counter[tuple[str, str]] = Counter()
    for item in items:
        for name, newest in fleet.versions(item).items():
            if versions.get(name, newest) != newest:
                older[name, newest] += fleet.count([item])
    return {
        "classes": list(items),
        "nodes": fleet.count(items),
        "versions": versions,
        "older": [
            {"name": name, "newest": newest, "nodes": count}
            for (name, newest), count in older.items()
        ],
        "needs": to_plain(lock.needs),
        "host": host_json(lock.host),
    }


def write_profiles(plan: LockPlan, request: Request, folder: str) -> tuple[str, tuple[str, ...]]:
    """Add a profile for each lock. `gpuenv lock` makes the locks of the profiles afterwards.

    Existing profiles are not changed.

    Args:
        plan: The plan.
        request: What the locks are solved for.
        folder: The folder of pyproject.toml.

    Returns:
        The path of the file, and the names of the new profiles.

    Raises:
        InputError: The file asks for something else, or cannot be written; nothing was written.
    """
    for name in ("constraints", "hashes", "no_build", "no_binary", "pre", "exclude_newer"):
        if getattr(request, name):
            flag = name.replace("_", "-")
            raise InputError(f"--write-profiles: does not write {flag}; nothing was written")
    versions = [asked_versions(lock) for lock, _ in plan.groups]
    return add_profiles(
        folder,
        [lock.host for lock, _ in plan.groups],
        frameworks=request.frameworks,
        requirements=request.requirements,
        separate_versions=any(other != versions[0] for other in versions),
    )
