"""The fewest locks that serve a fleet, what each further merge costs, and what would save a lock.

A lock for several classes is solved for one described host: all their GPUs, the oldest driver that
supports these, and the oldest glibc. So a profile of pyproject.toml can describe it. Whether the
lock serves a class is then checked by the needs of the lock.

1. Each class of hosts gets the newest lock of its own. A class that is weaker than another cannot
   have newer versions, so a known lock with the other's versions that serves it is as good.
2. Classes whose newest versions one lock has share it: that costs nothing. Then the two groups
   whose merge costs least are merged, again and again. The cost is how many releases older the
   frameworks become, summed over the nodes.
3. The fewest locks are proved apart from that (`cover`): a class that is not weaker than another of
   its kind can always join the weaker one, so only the others count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

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
    unmet_needs,
)

from .classes import HostClass, distinct_gpus, driver_step
from .cover import Family, Grouping, fewest_groups, members


@dataclass(frozen=True, kw_only=True)
class FleetLock:
    """A lock, the host that it was solved for, and the versions of what was asked for."""

    host: Host
    lock: Lock
    versions: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Group:
    """Classes that share a lock. `cost` is how many releases older it is, summed over the nodes."""

    items: tuple[int, ...]
    lock: FleetLock
    cost: int


@dataclass(frozen=True, kw_only=True)
class LockPlan:
    """Locks that together serve all classes."""

    groups: tuple[Group, ...]

    @property
    def cost(self) -> int:
        """Return how many releases older the locks are than those of each class alone."""
        return sum(group.cost for group in self.groups)


@dataclass(frozen=True, kw_only=True)
class Unsolved:
    """A class for which there is no lock, and why."""

    item: int
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, kw_only=True)
class VersionGain:
    """A package that becomes newer on some nodes."""

    name: str
    old: str
    new: str
    nodes: int


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """What a newer driver on some classes changes. `locks` would be enough then."""

    driver: str
    items: tuple[int, ...]
    locks: int
    solved: int
    gains: tuple[VersionGain, ...]


@dataclass(frozen=True, kw_only=True)
class FleetSolution:
    """The plans, the fewest locks first. `proved` is whether no fewer locks can serve all.

    `newest` has the versions that each class could have alone; None has no lock.
    """

    classes: tuple[HostClass, ...]
    newest: tuple[Mapping[str, str] | None, ...]
    plans: tuple[LockPlan, ...]
    proved: bool
    unsolved: tuple[Unsolved, ...]
    what_if: tuple[WhatIf, ...] = ()

    def count(self, items: Iterable[int]) -> int:
        """Return how many nodes some classes have."""
        return sum(len(self.classes[item].nodes) for item in items)


class Solver:
    """Solves a request for hosts, each once. `solves` counts the resolutions."""

    def __init__(self, request: Request, options: IndexOptions) -> None:
        self.request, self.options = request, options
        self.solves = 0
        self._known: dict[tuple[object, ...], FleetLock | tuple[Reason, ...]] = {}

    def lock_for(self, host: Host) -> FleetLock | None:
        """Return the lock for a host; None if there is none."""
        answer = self._answer(host)
        return answer if isinstance(answer, FleetLock) else None

    def reasons_against(self, host: Host) -> tuple[Reason, ...]:
        """Return why there is no lock for a host; () if there is one."""
        answer = self._answer(host)
        return () if isinstance(answer, FleetLock) else answer

    def _answer(self, host: Host) -> FleetLock | tuple[Reason, ...]:
        key = (*_kind(host), host.driver, host.driver_cuda, host.glibc, _capabilities(host))
        if key in self._known:
            return self._known[key]
        self.solves += 1
        try:
            plan = gpuenv.solve(self.request, host, self.options, changes=False)
        except NoSolutionError as error:
            self._known[key] = error.explanation.reasons
            return self._known[key]
        # The frameworks of the plan, and the packages that were named.
        versions = {choice.framework: choice.version for choice in plan.choices}
        pinned = {pin.wheel.name: pin.wheel.version for pin in plan.pins}
        for text in (*self.request.frameworks, *self.request.requirements):
            name = canonicalize_name(Requirement(text).name)
            if name in pinned:
                versions.setdefault(name, pinned[name])
        lock = FleetLock(host=host, lock=gpuenv.lock(plan), versions=tuple(versions.items()))
        self._known[key] = lock
        return lock


def _kind(host: Host) -> tuple[object, ...]:
    """Return the facts that hosts of one lock must have in common."""
    python = host.python
    return host.platform, python.version, python.free_threaded, bool(host.gpus)


def _capabilities(host: Host) -> frozenset[object]:
    return frozenset(gpu.compute_capability for gpu in host.gpus)


def serves(lock: FleetLock, host: Host) -> bool:
    """Return whether a lock runs on a host."""
    return _kind(lock.host) == _kind(host) and not unmet_needs(lock.lock, host)


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
    return (
        _kind(host) == _kind(other)
        and _capabilities(host) >= _capabilities(other)
        and (host.glibc or (0, 0)) <= (other.glibc or (0, 0))
        and (host.driver_cuda or (0, 0)) <= (other.driver_cuda or (0, 0))
        and parse_release(host.driver or "0") <= parse_release(other.driver or "0")
    )


@cache
def _distance(name: str, platform: str, newer: str, older: str) -> int:
    """Return how many releases one version is older than another; 1 if they are not known."""
    if newer == older:
        return 0
    if compatibility_data().framework(name) is not None:
        entry = matrix_catalog().entry(name, platform)
        releases = [release.version for release in entry.releases]
        if newer in releases and older in releases:
            return abs(releases.index(newer) - releases.index(older))
    return 1


def solve_fleet(
    classes: Sequence[HostClass], solver: Solver, drivers: Sequence[str] | None = None
) -> FleetSolution:
    """Solve a request for all classes of a fleet.

    Args:
        classes: the classes.
        solver: solves for one host.
        drivers: the driver releases of what-if questions; None asks for the floors of the CUDA
            toolkits.

    Raises:
        PackageIndexError: an index did not answer.
    """
    fleet = _Fleet(classes, solver)
    plans = fleet.merges()
    grouping = fleet.fewest()
    if len(grouping.groups) < len(plans[-1].groups):
        plans.append(fleet.plan_of(grouping))
    worthwhile: list[LockPlan] = []  # each costs less than every one with fewer locks
    for plan in reversed(plans):
        if not worthwhile or plan.cost < worthwhile[-1].cost:
            worthwhile.append(plan)
    unsolved = []
    for item, lock in enumerate(fleet.newest):
        if lock is None:
            reasons = solver.reasons_against(classes[item].host)
            unsolved.append(Unsolved(item=item, reasons=reasons))
    if drivers is None:
        data = compatibility_data()
        floors = [data.driver_floor((major, 0), "linux") for major in data.floors]
        drivers = sorted({floor[0] for floor in floors if floor is not None}, key=parse_release)
    answers = [_what_if(fleet, *question) for question in _questions(fleet, drivers)]
    return FleetSolution(
        classes=tuple(classes),
        newest=tuple(None if lock is None else dict(lock.versions) for lock in fleet.newest),
        plans=tuple(worthwhile),
        proved=grouping.proved,
        unsolved=tuple(unsolved),
        what_if=tuple(answer for answer in answers if answer is not None),
    )


class _Fleet:
    """The classes of a fleet, by number, with the newest lock of each."""

    def __init__(self, classes: Sequence[HostClass], solver: Solver) -> None:
        self.classes, self.solver = classes, solver
        self.hosts = [host_class.host for host_class in classes]
        self.newest = self._newest_locks()
        self.items = [item for item, lock in enumerate(self.newest) if lock is not None]
        self._merged: dict[frozenset[int], Group | None] = {}

    def _newest_locks(self) -> list[FleetLock | None]:
        """Return the newest lock of each class, solved for the strongest hosts first."""

        def strength(item: int) -> tuple[object, ...]:
            host = self.hosts[item]
            return parse_release(host.driver or "0"), host.glibc or (0, 0), -len(host.gpus), -item

        newest: dict[int, FleetLock | None] = {}
        for item in sorted(range(len(self.hosts)), key=strength, reverse=True):
            known = {other: lock for other, lock in newest.items() if lock is not None}
            stronger = {
                lock.versions
                for other, lock in known.items()
                if _is_weaker(self.hosts[item], self.hosts[other])
            }
            newest[item] = next(
                (
                    lock
                    for lock in known.values()
                    if lock.versions in stronger and serves(lock, self.hosts[item])
                ),
                None,
            ) or self._find([item])
        return [newest[item] for item in range(len(self.hosts))]

    def _find(self, items: Iterable[int]) -> FleetLock | None:
        """Return a lock that serves all of these classes; None if there is none."""
        hosts = [self.hosts[item] for item in items]
        host = _merged_host(hosts)
        lock = None if host is None else self.solver.lock_for(host)
        if lock is None or not all(serves(lock, host) for host in hosts):
            return None
        return lock

    # ---- the fewest locks -----------------------------------------------------------------------

    def fewest(self) -> Grouping:
        """Return the fewest groups of the classes that are weaker than all others of their kind."""

        def find(items: int) -> int | None:
            lock = self._find(members(items))
            if lock is None:
                return None
            return sum(1 << item for item, host in enumerate(self.hosts) if serves(lock, host))

        def joins(item: int, other: int) -> bool:
            """Return whether a class can join a weaker one in any group."""
            host, weaker = self.hosts[item], self.hosts[other]
            # Of two equal classes the first one counts.
            return _is_weaker(weaker, host) and (other < item or not _is_weaker(host, weaker))

        weakest = [
            item
            for item in self.items
            if not any(other != item and joins(item, other) for other in self.items)
        ]
        return fewest_groups(weakest, Family(find))

    def plan_of(self, grouping: Grouping) -> LockPlan:
        """Return the plan of groups, with the classes that can join one of them."""
        locks = [lock for group in grouping.groups if (lock := self._find(members(group)))]
        items: list[list[int]] = [[] for _ in locks]
        for item in self.items:
            serving = [
                number for number, lock in enumerate(locks) if serves(lock, self.hosts[item])
            ]
            best = min(serving, key=lambda number: self._cost([item], locks[number].versions))
            items[best].append(item)
        return LockPlan(groups=tuple(map(self._group, items, locks)))

    # ---- merges ----------------------------------------------------------------------------------

    def merges(self) -> list[LockPlan]:
        """Return the plans from the newest versions everywhere to the last possible merge."""
        groups: list[Group] | None = self._without_cost()
        plans = []
        while groups is not None:
            plans.append(LockPlan(groups=tuple(groups)))
            groups = self._cheapest_merge(groups)
        return plans

    def _without_cost(self) -> list[Group]:
        """Return groups of classes that share a lock with the newest versions of each."""
        remaining = list(self.items)
        groups = []
        while remaining:
            choices: list[tuple[int, FleetLock, list[int]]] = []
            for lock in (self.newest[item] for item in remaining):
                if lock is None:
                    continue
                served = [
                    item
                    for item in remaining
                    if (newest := self.newest[item])
                    and newest.versions == lock.versions
                    and serves(lock, self.hosts[item])
                ]
                choices.append(
                    (sum(len(self.classes[item].nodes) for item in served), lock, served)
                )
            _, lock, served = max(choices, key=lambda choice: choice[0])
            groups.append(self._group(served, lock))
            remaining = [item for item in remaining if item not in served]
        return groups

    def _group(self, items: Iterable[int], lock: FleetLock) -> Group:
        items = tuple(sorted(items))
        return Group(items=items, lock=lock, cost=self._cost(items, lock.versions))

    def _cost(self, items: Iterable[int], versions: Iterable[tuple[str, str]]) -> int:
        cost, chosen = 0, dict(versions)
        for item in items:
            newest = self.newest[item]
            for name, version in newest.versions if newest else ():
                platform = self.hosts[item].platform
                distance = _distance(name, platform, version, chosen.get(name, version))
                cost += distance * len(self.classes[item].nodes)
        return cost

    def _cheapest_merge(self, groups: Sequence[Group]) -> list[Group] | None:
        """Return the groups after the cheapest merge; None if no two of them can be merged.

        A merge is solved only if it may be the cheapest: it costs at least what the older versions
        of both groups cost.
        """
        pairs = []
        for second, group in enumerate(groups):
            for first, other in enumerate(groups[:second]):
                if _kind(other.lock.host) == _kind(group.lock.host):
                    older = dict(other.lock.versions)
                    for name, version in group.lock.versions:
                        if name not in older or Version(version) < Version(older[name]):
                            older[name] = version
                    items = (*other.items, *group.items)
                    cost = self._cost(items, older.items()) - other.cost - group.cost
                    pairs.append((cost, first, second))
        best: tuple[tuple[int, int, int], Group] | None = None
        for pair in sorted(pairs):
            if best is not None and pair > best[0]:
                break
            _, first, second = pair
            merged = self._merge(groups[first], groups[second])
            if merged is not None:
                cost = merged.cost - groups[first].cost - groups[second].cost
                if best is None or (cost, first, second) < best[0]:
                    best = (cost, first, second), merged
        if best is None:
            return None
        (_, first, second), merged = best
        return [*(group for n, group in enumerate(groups) if n not in (first, second)), merged]

    def _merge(self, group: Group, other: Group) -> Group | None:
        items = frozenset((*group.items, *other.items))
        if items not in self._merged:
            lock = self._find(sorted(items))
            self._merged[items] = None if lock is None else self._group(items, lock)
        return self._merged[items]


# ---- what if -------------------------------------------------------------------------------------


def _questions(fleet: _Fleet, drivers: Sequence[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (driver release, classes that get it): all older ones, and those of each driver."""
    for driver in drivers:
        by_step: dict[str, list[int]] = {}
        for item, host in enumerate(fleet.hosts):
            if _can_upgrade(host, driver):
                by_step.setdefault(driver_step(host), []).append(item)
        everything = tuple(sorted(item for items in by_step.values() for item in items))
        if everything:
            yield driver, everything
        if len(by_step) > 1:
            for items in by_step.values():
                yield driver, tuple(items)


def _can_upgrade(host: Host, driver: str) -> bool:
    """Return whether a driver release is newer than a host's and still supports its GPUs."""
    if not host.gpus or host.driver is None or reaches_release(host.driver, driver):
        return False
    data = compatibility_data()
    last = [data.last_branches.get(gpu.compute_capability or (0, 0)) for gpu in host.gpus]
    branch = parse_release(driver)[0]
    return all(limit is None or branch <= limit[0] for limit in last)


def _what_if(fleet: _Fleet, driver: str, items: tuple[int, ...]) -> WhatIf | None:
    """Return what a newer driver on some classes changes; None if it changes nothing."""
    cuda = compatibility_data().driver_cuda(driver)
    classes = list(fleet.classes)
    for item in items:
        host = fleet.hosts[item].replace(driver=driver, driver_cuda=cuda)
        classes[item] = replace(classes[item], host=host)
    changed = _Fleet(classes, fleet.solver)
    locks = len(changed.fewest().groups)
    solved = sum(len(classes[item].nodes) for item in changed.items if item not in fleet.items)
    nodes: dict[tuple[str, str, str], int] = {}
    for host_class, before, after in zip(classes, fleet.newest, changed.newest, strict=True):
        new = dict(after.versions) if after is not None else {}
        for name, old in before.versions if before is not None else ():
            if Version(new.get(name, old)) > Version(old):
                key = (name, old, new[name])
                nodes[key] = nodes.get(key, 0) + len(host_class.nodes)
    if locks >= len(fleet.fewest().groups) and not solved and not nodes:
        return None
    gains = tuple(
        VersionGain(name=name, old=old, new=new, nodes=count)
        for (name, old, new), count in nodes.items()
    )
    return WhatIf(driver=driver, items=items, locks=locks, solved=solved, gains=gains)


# ---- profiles ------------------------------------------------------------------------------------


def write_profiles(plan: LockPlan, request: Request, folder: str) -> tuple[str, tuple[str, ...]]:
    """Add a profile for each lock. `gpuenv lock` makes the locks of the profiles afterwards.

    Existing profiles are not changed.

    Args:
        plan: the plan.
        request: what the locks are solved for.
        folder: the folder of pyproject.toml.

    Returns:
        The path of the file, and the names of the new profiles.

    Raises:
        InputError: the file asks for something else, or cannot be written; nothing was written.
    """
    for name in ("constraints", "hashes", "no_build", "no_binary", "pre", "exclude_newer"):
        if getattr(request, name):
            flag = name.replace("_", "-")
            raise InputError(f"--write-profiles: does not write {flag}; nothing was written")
    return add_profiles(
        folder,
        [group.lock.host for group in plan.groups],
        frameworks=request.frameworks,
        requirements=request.requirements,
        separate_versions=len({group.lock.versions for group in plan.groups}) > 1,
    )
