"""Locks for several classes of hosts: solved for the least that all of them have.

A lock for several classes is solved for one described host: all their GPUs, the oldest driver that
supports these, and the oldest glibc. So a profile of pyproject.toml can describe it. Whether the
lock serves a class is then checked by the needs of the lock.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import gpuenv
from gpuenv import (
    Host,
    IndexOptions,
    Lock,
    NoSolutionError,
    Plan,
    Reason,
    Request,
    compatibility_data,
    matrix_catalog,
    parse_release,
    unmet_needs,
)

from .classes import HostClass, distinct_gpus

Key = tuple[object, ...]


@dataclass(frozen=True, kw_only=True)
class FleetLock:
    """A lock, the host that it was solved for, and the versions of what was asked for."""

    host: Host
    lock: Lock
    versions: tuple[tuple[str, str], ...]


class Solver:
    """Solves a request for hosts, each once. `solves` counts the resolutions."""

    def __init__(self, request: Request, options: IndexOptions) -> None:
        self.request, self.options = request, options
        self.solves = 0
        self._known: dict[Key, FleetLock | tuple[Reason, ...]] = {}

    def lock_for(self, host: Host) -> FleetLock | None:
        """Return the lock for a host; None if there is none."""
        answer = self._answer(host)
        return answer if isinstance(answer, FleetLock) else None

    def reasons_against(self, host: Host) -> tuple[Reason, ...]:
        """Return why there is no lock for a host; () if there is one."""
        answer = self._answer(host)
        return () if isinstance(answer, FleetLock) else answer

    def _answer(self, host: Host) -> FleetLock | tuple[Reason, ...]:
        key = (*kind(host), host.driver, host.driver_cuda, host.glibc, capabilities(host))
        if key not in self._known:
            self._known[key] = self._solve(host)
        return self._known[key]

    def _solve(self, host: Host) -> FleetLock | tuple[Reason, ...]:
        self.solves += 1
        try:
            plan = gpuenv.solve(self.request, host, self.options, changes=False)
        except NoSolutionError as error:
            return error.explanation.reasons
        versions = requested_versions(self.request, plan)
        return FleetLock(host=host, lock=gpuenv.lock(plan), versions=versions)


def requested_versions(request: Request, plan: Plan) -> tuple[tuple[str, str], ...]:
    """Return (name, version) of the frameworks of a plan, and of the packages that were named."""
    versions = {choice.framework: choice.version for choice in plan.choices}
    pinned = {pin.wheel.name: pin.wheel.version for pin in plan.pins}
    for text in (*request.frameworks, *request.requirements):
        name = canonicalize_name(Requirement(text).name)
        if name in pinned:
            versions.setdefault(name, pinned[name])
    return tuple(versions.items())


def kind(host: Host) -> Key:
    """Return the facts that hosts of one lock must have in common."""
    python = host.python
    return host.platform, python.version, python.free_threaded, bool(host.gpus)


def capabilities(host: Host) -> frozenset[object]:
    """Return the compute capabilities of a host."""
    return frozenset(gpu.compute_capability for gpu in host.gpus)


def serves(lock: FleetLock, host: Host) -> bool:
    """Return whether a lock runs on a host."""
    return kind(lock.host) == kind(host) and not unmet_needs(lock.lock, host)


def merged_host(hosts: Sequence[Host]) -> Host | None:
    """Return the least that hosts have in common; None if no lock can serve them all."""
    first = hosts[0]
    if any(kind(host) != kind(first) for host in hosts):
        return None
    merged = first.replace(glibc=min((host.glibc for host in hosts if host.glibc), default=None))
    if not first.gpus:
        return merged
    oldest = min(hosts, key=lambda host: parse_release(host.driver or "0"))
    driver, cuda = oldest.driver or "", oldest.driver_cuda
    gpus = distinct_gpus(gpu for host in hosts for gpu in host.gpus)
    for gpu in gpus:
        # No driver of the oldest branch knows this GPU, and no single host has both.
        branch = compatibility_data().first_branch(gpu.compute_capability or (0, 0))
        if branch is not None and parse_release(driver) < (branch[0],):
            driver = f"{branch[0]}.00"
            cuda = compatibility_data().driver_cuda(driver)
    return merged.replace(gpus=gpus, driver=driver, driver_cuda=cuda)


def is_weaker(host: Host, other: Host) -> bool:
    """Return whether every lock that serves a host serves another one, too."""
    if kind(host) != kind(other) or not capabilities(host) >= capabilities(other):
        return False
    if (host.glibc or (0, 0)) > (other.glibc or (0, 0)):
        return False
    if (host.driver_cuda or (0, 0)) > (other.driver_cuda or (0, 0)):
        return False
    return parse_release(host.driver or "0") <= parse_release(other.driver or "0")


class Finder:
    """Finds the locks of sets of classes. Sets are bit masks of the numbers of the classes."""

    def __init__(self, classes: Sequence[HostClass], solver: Solver) -> None:
        self.classes, self.solver = classes, solver

    def find(self, items: Iterable[int]) -> FleetLock | None:
        """Return a lock that serves all of these classes; None if there is none."""
        hosts = [self.classes[item].host for item in items]
        host = merged_host(hosts)
        if host is None:
            return None
        lock = self.solver.lock_for(host)
        if lock is None or not all(serves(lock, class_host) for class_host in hosts):
            return None
        return lock

    def served(self, lock: FleetLock) -> int:
        """Return the classes that a lock serves."""
        served = 0
        for item, host_class in enumerate(self.classes):
            if serves(lock, host_class.host):
                served |= 1 << item
        return served


def version_distance(newer: str, older: str, releases: Sequence[str]) -> int:
    """Return how many releases one version is older than another; 1 if they are not listed."""
    if newer == older:
        return 0
    if newer in releases and older in releases:
        return abs(releases.index(newer) - releases.index(older))
    return 1


@cache
def known_releases(name: str, platform: str) -> Sequence[str]:
    """Return the releases of a framework, in their order; none of another package."""
    if compatibility_data().framework(name) is None:
        return ()
    releases = matrix_catalog().entry(name, platform).releases
    return tuple(release.version for release in releases)
