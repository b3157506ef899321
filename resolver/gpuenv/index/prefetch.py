"""Request from an index ahead of time what a solve will need.

The resolver asks for one page after another, and for the metadata of one file after another. While
it waits for the first answer, threads follow the requirements on their own: of each package they
take the newest release that all known ranges admit, which is nearly always the one that is chosen.
The result of a solve does not depend on these guesses: they only fill what the index remembers.
Errors are remembered there, too, and raised when the resolver needs the answer.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Queue

from ..errors import GpuEnvError
from ..model import Requirement, Wheel
from ..requirements.target import SDIST_RANK, TargetEnvironment
from .filenames import is_sdist
from .protocol import Index

MAX_THREADS = 32  # threads wait for the index most of the time

_M_MMAP_THRESHOLD = -3  # malloc.h
_MMAP_THRESHOLD_BYTES = 1 << 17  # glibc's initial value
_Job = Callable[[], object]


class Prefetcher:
    """Threads that follow requirements through an index until `stop`.

    Args:
        index: what to ask. It must remember its answers and allow calls from several threads.
        is_local: whether a package needs no network; such packages are not prefetched.
        environment: the target of the solve.
        constraints: the user's constraints.
        may_build: whether a package may be built from a source distribution.
    """

    def __init__(
        self,
        index: Index,
        is_local: Callable[[str], bool],
        environment: TargetEnvironment,
        constraints: Sequence[Requirement],
        may_build: Callable[[str], bool],
    ) -> None:
        self._index, self._is_local, self._environment = index, is_local, environment
        self._may_build = may_build
        self.jobs: Queue[_Job | None] = Queue()  # None ends a thread
        self.threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._ranges: dict[str, list[str]] = {}  # the known specifiers of each package
        self._undecided: set[str] = set()  # packages whose known ranges exclude each other
        self._at_urls: set[str] = set()  # packages that are taken from a URL, not from an index
        self._seen: set[tuple[str, tuple[str, ...], str]] = set()
        self._idle = 0  # threads that wait for a job
        self._stopped = False
        _return_freed_memory()
        for constraint in constraints:
            if self._applies(constraint, ()):
                self._note(constraint)

    def follow(self, requirements: Iterable[Requirement], extras: Sequence[str] = ()) -> None:
        """Start to request what these need, if their markers hold with the extras. Never waits."""
        applicable = [need for need in requirements if self._applies(need, extras)]
        for requirement in applicable:
            self._note(requirement)
        for requirement in applicable:
            if requirement.name not in self._at_urls and not self._is_local(requirement.name):
                self._submit(requirement)

    def request(self, jobs: Iterable[_Job]) -> None:
        """Start jobs. Never waits."""
        with self._lock:
            for job in jobs:
                self._start(job)

    def stop(self) -> None:
        """Start no more requests. Threads end after the one that they wait for."""
        self._stopped = True
        for _ in self.threads:
            self.jobs.put(None)

    def _submit(self, requirement: Requirement) -> None:
        key = (requirement.name, requirement.extras, requirement.specifier)
        with self._lock:
            if key in self._seen or requirement.name in self._undecided or self._stopped:
                return
            self._seen.add(key)
            self._start(lambda: self._prefetch(requirement.name, requirement.extras))

    def _start(self, job: _Job) -> None:
        if self._stopped:
            return
        if self.jobs.qsize() >= self._idle and len(self.threads) < MAX_THREADS:
            # A daemon: when the process ends, nobody needs a late answer.
            thread = threading.Thread(target=self._run, daemon=True)
            self.threads.append(thread)
            thread.start()
        self.jobs.put(job)

    def _note(self, requirement: Requirement) -> None:
        if requirement.url is not None:
            self._at_urls.add(requirement.name)
        ranges = self._ranges.setdefault(requirement.name, [])
        if requirement.specifier and requirement.specifier not in ranges:
            ranges.append(requirement.specifier)

    def _applies(self, requirement: Requirement, extras: Sequence[str]) -> bool:
        if requirement.marker is None:
            return True
        try:
            return self._environment.marker(requirement.marker, extras)
        except GpuEnvError:
            return False  # the resolver reports it if it chooses the release

    def _run(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            job = self.jobs.get()
            with self._lock:
                self._idle -= 1
            try:
                if job is None or self._stopped:
                    return
                job()
            except GpuEnvError:
                pass  # the index raises it again when the resolver asks
            finally:
                self.jobs.task_done()

    def _prefetch(self, name: str, extras: tuple[str, ...]) -> None:
        wheel = self._likely_choice(name)
        if wheel is None or self._stopped:
            return
        dependencies = self._index.dependencies(wheel)
        self.follow(dependencies)
        if extras:
            self.follow(dependencies, extras)

    def _likely_choice(self, name: str) -> Wheel | None:
        """Return the wheel that is chosen if the known ranges are all that restricts a package.

        If none is in all ranges, some come from releases that are not chosen. Guesses about the
        package end then: of thousands of wheels none would be found, for each further range.
        """
        ranges = list(self._ranges[name])
        best: Wheel | None = None
        for wheel in self._wheels(name, ranges):
            if best is not None and wheel.version != best.version:
                break
            if not self._is_eligible(wheel):
                continue
            if best is None or (self._rank(wheel) or 0) < (self._rank(best) or 0):
                best = wheel
        if best is None:
            self._undecided.add(name)
        return best

    def _wheels(self, name: str, ranges: Sequence[str]) -> Iterator[Wheel]:
        """Yield the wheels in some ranges; releases that need not be read are left out."""
        releases = self._index.releases(name, self._environment)
        if releases is None:
            for wheel in self._index.wheels(name, self._environment):
                if self._is_in(ranges, wheel.version):
                    yield wheel
            return
        for version in releases.versions:
            if self._is_in(ranges, version):
                yield from releases.files(version)

    def _is_in(self, ranges: Sequence[str], version: str) -> bool:
        environment = self._environment
        if environment.is_prerelease(version):
            return False
        return all(environment.contains(specifier, version, True) for specifier in ranges)

    def _is_eligible(self, wheel: Wheel) -> bool:
        environment = self._environment
        is_allowed = wheel.yanked is None and environment.accepts_python(wheel.requires_python)
        return is_allowed and self._rank(wheel) is not None

    def _rank(self, wheel: Wheel) -> int | None:
        if is_sdist(wheel.filename):
            return SDIST_RANK if self._may_build(wheel.name) else None
        return self._environment.rank(wheel.filename)


def _return_freed_memory() -> None:
    """Make glibc return the memory of large buffers to the system when they are freed.

    By default, it raises the size from which it does so when the first page of megabytes is freed,
    and then keeps such buffers for each thread: more memory than the rest of a solve needs.
    """
    if sys.platform != "linux":
        return
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # musl has no mallopt and keeps no such buffers
        return
    mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
