"""The fewest locks that serve a fleet, what each further merge costs, and what would save a lock.

1. Each class of hosts gets the newest lock of its own. A class that is weaker than another cannot
   have newer versions, so a known lock with the other's versions that serves it is as good.
2. Classes whose newest versions one lock has share it: that costs nothing. Then the two groups
   whose merge costs least are merged, again and again. The cost is how many releases older the
   frameworks become, summed over the nodes.
3. The fewest locks are proved apart from that (`cover`): a class that is not weaker than another of
   its kind can always join the weaker one, so only the others count.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.version import Version

from gpuenv import (
    Host,
    InputError,
    Reason,
    Request,
    add_profiles,
    compatibility_data,
    parse_release,
    reaches_release,
)

from .classes import HostClass, driver_step
from .cover import Family, Grouping, fewest_groups, members
from .locks import (
    Finder,
    FleetLock,
    Solver,
    is_weaker,
    kind,
    known_releases,
    serves,
    version_distance,
)


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
    plans.reverse()
    questions = _questions(fleet, toolkit_floors() if drivers is None else drivers)
    return FleetSolution(
        classes=tuple(classes),
        newest=tuple(None if lock is None else dict(lock.versions) for lock in fleet.newest),
        plans=tuple(_worthwhile(plans)),
        proved=grouping.proved,
        unsolved=tuple(fleet.unsolved()),
        what_if=tuple(what_if for question in questions if (what_if := _ask(fleet, *question))),
    )


def _worthwhile(plans: Sequence[LockPlan]) -> Iterator[LockPlan]:
    """Yield the plans, the fewest locks first, that cost less than every one with fewer locks."""
    least: int | None = None
    for plan in plans:
        if least is None or plan.cost < least:
            least = plan.cost
            yield plan


class _Fleet:
    """The classes of a fleet with the newest lock of each."""

    def __init__(self, classes: Sequence[HostClass], solver: Solver) -> None:
        self.classes, self.solver = classes, solver
        self.finder = Finder(classes, solver)
        self.newest = self._newest_locks()
        self.items = [item for item, lock in enumerate(self.newest) if lock is not None]
        self._groups: dict[frozenset[int], Group | None] = {}

    def _newest_locks(self) -> list[FleetLock | None]:
        """Return the newest lock of each class, solved for the strongest hosts first."""
        newest: dict[int, FleetLock | None] = {}
        for item in sorted(range(len(self.classes)), key=self._strength, reverse=True):
            lock = self._as_good_as_a_stronger_class(item, newest)
            newest[item] = lock if lock is not None else self.finder.find([item])
        return [newest[item] for item in range(len(self.classes))]

    def _as_good_as_a_stronger_class(
        self, item: int, newest: Mapping[int, FleetLock | None]
    ) -> FleetLock | None:
        """Return a known lock for a class with the versions of a stronger class; None without."""
        host = self.classes[item].host
        known = {id(lock): lock for lock in newest.values() if lock is not None}
        serving = [lock for lock in known.values() if serves(lock, host)]
        for other, stronger in newest.items():
            if stronger is not None and is_weaker(host, self.classes[other].host):
                for lock in serving:
                    if lock.versions == stronger.versions:
                        return lock
        return None

    def _strength(self, item: int) -> tuple[object, ...]:
        host = self.classes[item].host
        return parse_release(host.driver or "0"), host.glibc or (0, 0), -len(host.gpus), -item

    def unsolved(self) -> Iterator[Unsolved]:
        """Yield the classes without a lock."""
        for item, lock in enumerate(self.newest):
            if lock is None:
                reasons = self.solver.reasons_against(self.classes[item].host)
                yield Unsolved(item=item, reasons=reasons)

    # ---- the fewest locks -----------------------------------------------------------------------

    def fewest(self) -> Grouping:
        """Return the fewest groups of the classes that are weaker than all others of their kind."""
        family = Family(self._find)
        weakest = [item for item in self.items if not self._joins_another(item)]
        return fewest_groups(weakest, family)

    def _find(self, items: int) -> int | None:
        lock = self.finder.find(members(items))
        return None if lock is None else self.finder.served(lock)

    def _joins_another(self, item: int) -> bool:
        """Return whether a class can join a weaker one in any group."""
        host = self.classes[item].host
        for other in self.items:
            weaker = other != item and is_weaker(self.classes[other].host, host)
            # Of two equal classes the first one counts.
            if weaker and (other < item or not is_weaker(host, self.classes[other].host)):
                return True
        return False

    def plan_of(self, grouping: Grouping) -> LockPlan:
        """Return the plan of groups, with the classes that can join one of them."""
        locks = [self.finder.find(members(group)) for group in grouping.groups]
        found_locks = [lock for lock in locks if lock is not None]
        items: list[list[int]] = [[] for _ in found_locks]
        for item in self.items:
            serving = [
                number for number, lock in enumerate(found_locks) if serves(lock, self._host(item))
            ]
            best = min(serving, key=lambda number: self._cost([item], found_locks[number]))
            items[best].append(item)
        return LockPlan(groups=tuple(map(self._group, items, found_locks)))

    def _host(self, item: int) -> Host:
        return self.classes[item].host

    # ---- merges ----------------------------------------------------------------------------------

    def merges(self) -> list[LockPlan]:
        """Return the plans from the newest versions everywhere to the last possible merge."""
        groups = self._without_cost()
        plans = [LockPlan(groups=tuple(groups))]
        while (merged := self._cheapest_merge(groups)) is not None:
            groups = merged
            plans.append(LockPlan(groups=tuple(groups)))
        return plans

    def _without_cost(self) -> list[Group]:
        """Return groups of classes that share a lock with the newest versions of each."""
        remaining = set(self.items)
        groups = []
        while remaining:
            choices = {}
            for lock in (self.newest[item] for item in sorted(remaining)):
                if lock is not None and id(lock) not in choices:
                    choices[id(lock)] = (lock, self._at_their_newest(lock, remaining))
            lock, served = max(choices.values(), key=lambda choice: self._nodes(choice[1]))
            groups.append(self._group(served, lock))
            remaining -= set(served)
        return groups

    def _at_their_newest(self, lock: FleetLock, items: set[int]) -> list[int]:
        served = []
        for item in sorted(items):
            newest = self.newest[item]
            if newest and newest.versions == lock.versions and serves(lock, self._host(item)):
                served.append(item)
        return served

    def _nodes(self, items: Sequence[int]) -> int:
        return sum(len(self.classes[item].nodes) for item in items)

    def _group(self, items: Sequence[int], lock: FleetLock) -> Group:
        return Group(items=tuple(sorted(items)), lock=lock, cost=self._cost(items, lock))

    def _cost(self, items: Sequence[int], lock: FleetLock) -> int:
        return self._cost_of_versions(items, dict(lock.versions))

    def _cost_of_versions(self, items: Sequence[int], versions: Mapping[str, str]) -> int:
        cost = 0
        for item in items:
            newest = self.newest[item]
            for name, version in newest.versions if newest else ():
                releases = known_releases(name, self._host(item).platform)
                distance = version_distance(version, versions.get(name, version), releases)
                cost += distance * len(self.classes[item].nodes)
        return cost

    def _cheapest_merge(self, groups: Sequence[Group]) -> list[Group] | None:
        """Return the groups after the cheapest merge; None if no two of them can be merged.

        A merge is solved only if it may be the cheapest: it costs at least what the older versions
        of both groups cost.
        """
        queue: list[tuple[int, int, int, Group | None]] = []
        for second, group in enumerate(groups):
            for first in range(second):
                if kind(groups[first].lock.host) == kind(group.lock.host):
                    least = self._least_cost(groups[first], group)
                    heapq.heappush(queue, (least, first, second, None))
        while queue:
            cost, first, second, merged = heapq.heappop(queue)
            if merged is not None:
                rest = [group for n, group in enumerate(groups) if n not in (first, second)]
                return [*rest, merged]
            merged = self._merged(groups[first], groups[second])
            if merged is not None:
                cost = merged.cost - groups[first].cost - groups[second].cost
                heapq.heappush(queue, (cost, first, second, merged))
        return None

    def _least_cost(self, group: Group, other: Group) -> int:
        """Return what a merge of two groups costs at least."""
        older = dict(group.lock.versions)
        for name, version in other.lock.versions:
            if name not in older or Version(version) < Version(older[name]):
                older[name] = version
        together = self._cost_of_versions((*group.items, *other.items), older)
        return together - group.cost - other.cost

    def _merged(self, group: Group, other: Group) -> Group | None:
        items = frozenset((*group.items, *other.items))
        if items not in self._groups:
            lock = self.finder.find(sorted(items))
            self._groups[items] = None if lock is None else self._group(sorted(items), lock)
        return self._groups[items]


# ---- what if -------------------------------------------------------------------------------------


def toolkit_floors() -> list[str]:
    """Return the driver releases that CUDA toolkits need, the oldest first."""
    data = compatibility_data()
    floors = [data.driver_floor((major, 0), "linux") for major in data.floors]
    return sorted({floor[0] for floor in floors if floor is not None}, key=parse_release)


def _questions(fleet: _Fleet, drivers: Sequence[str]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield (driver release, classes that get it): all older ones, and those of each driver."""
    for driver in drivers:
        by_step: dict[str, list[int]] = {}
        for item, host_class in enumerate(fleet.classes):
            if _can_upgrade(host_class.host, driver):
                by_step.setdefault(driver_step(host_class.host), []).append(item)
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
    last = [data.last_branch(gpu.compute_capability or (0, 0)) for gpu in host.gpus]
    branch = parse_release(driver)[0]
    return all(limit is None or branch <= limit[0] for limit in last)


def _ask(fleet: _Fleet, driver: str, items: tuple[int, ...]) -> WhatIf | None:
    """Return what a newer driver on some classes changes; None if it changes nothing."""
    cuda = compatibility_data().driver_cuda(driver)
    classes = list(fleet.classes)
    for item in items:
        host = classes[item].host.replace(driver=driver, driver_cuda=cuda)
        classes[item] = replace(classes[item], host=host)
    changed = _Fleet(classes, fleet.solver)
    locks = len(changed.fewest().groups)
    solved = sum(len(classes[i].nodes) for i in changed.items if i not in fleet.items)
    gains = tuple(_gains(fleet, changed))
    if locks >= len(fleet.fewest().groups) and not solved and not gains:
        return None
    return WhatIf(driver=driver, items=items, locks=locks, solved=solved, gains=gains)


def _gains(fleet: _Fleet, changed: _Fleet) -> Iterator[VersionGain]:
    """Yield which packages become newer, and on how many nodes."""
    nodes: dict[tuple[str, str, str], int] = {}
    for item, (before, after) in enumerate(zip(fleet.newest, changed.newest, strict=True)):
        if before is None or after is None:
            continue
        new = dict(after.versions)
        for name, version in before.versions:
            if Version(new.get(name, version)) > Version(version):
                key = (name, version, new[name])
                nodes[key] = nodes.get(key, 0) + len(fleet.classes[item].nodes)
    for (name, old, newer), count in nodes.items():
        yield VersionGain(name=name, old=old, new=newer, nodes=count)


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
    versions = {group.lock.versions for group in plan.groups}
    return add_profiles(
        folder,
        [group.lock.host for group in plan.groups],
        frameworks=request.frameworks,
        requirements=request.requirements,
        separate_versions=len(versions) > 1,
    )
