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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from operator import itemgetter

from ..errors import GpuEnvError
from ..model import Requirement, Wheel
from ..requirements.target import SDIST_RANK, TargetEnvironment
from ..requirements.versions import contains, is_prerelease
from .http import MAX_THREADS
from .protocol import Index

_M_MMAP_THRESHOLD = -3  # malloc.h
_MMAP_THRESHOLD_BYTES = 1 << 17  # glibc's initial value, which it raises for large buffers


class Prefetcher:
    """Follows requirements through an index, in threads, until `stop`.

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
        if sys.platform == "linux":
            # By default, glibc keeps the memory of pages that were parsed: 40 of 250 MiB of the set
            # open-webui. musl has no mallopt and keeps none.
            mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
            if mallopt is not None:
                mallopt(_M_MMAP_THRESHOLD, _MMAP_THRESHOLD_BYTES)
        self._pool = ThreadPoolExecutor(MAX_THREADS)
        self._ranges: dict[str, list[str]] = {}  # the known specifiers of each package
        self._undecided: set[str] = set()  # packages whose known ranges exclude each other
        self._at_urls: set[str] = set()  # packages that are taken from a URL, not from an index
        self._seen: set[tuple[str, tuple[str, ...], str]] = set()
        for constraint in constraints:
            if self._applies(constraint, ()):
                self._note(constraint)

    def follow(self, requirements: Iterable[Requirement], extras: Sequence[str] = ()) -> None:
        """Start to request what these need, if their markers hold with the extras. Never waits."""
        applicable = [need for need in requirements if self._applies(need, extras)]
        for requirement in applicable:
            self._note(requirement)
        for requirement in applicable:
            name = requirement.name
            key = name, requirement.extras, requirement.specifier
            if name in self._at_urls or name in self._undecided or key in self._seen:
                continue
            if not self._is_local(name):
                self._seen.add(key)
                self._start(self._prefetch, name, requirement.extras)

    def request(self, wheels: Iterable[Wheel]) -> None:
        """Start to read the metadata of wheels. Never waits."""
        for wheel in wheels:
            self._start(self._index.metadata, wheel)

    def request_needs(self, wheel: Wheel, extras: Sequence[str]) -> None:
        """Start to read what a wheel requires. Never waits."""
        self._start(self._follow, wheel, tuple(extras))

    def stop(self) -> None:
        """Start no more requests."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _start(self, job: Callable[..., object], *arguments: object) -> None:
        try:
            self._pool.submit(job, *arguments)
        except RuntimeError:  # it was stopped
            pass

    def _note(self, requirement: Requirement) -> None:
        if requirement.url is not None:
            self._at_urls.add(requirement.name)
        ranges = self._ranges.setdefault(requirement.name, [])
        if requirement.specifier and requirement.specifier not in ranges:
            ranges.append(requirement.specifier)

    def _applies(self, requirement: Requirement, extras: Sequence[str]) -> bool:
        try:
            marker = requirement.marker
            return marker is None or self._environment.marker(marker, extras)
        except GpuEnvError:
            return False  # the resolver reports it if it chooses the release

    def _prefetch(self, name: str, extras: tuple[str, ...]) -> None:
        """Read the wheel that is chosen if the known ranges are all that restricts a package.

        If none is in all ranges, some come from releases that are not chosen. Guesses about the
        package end then: of thousands of wheels none would be found, for each further range.
        """
        environment, ranges = self._environment, list(self._ranges[name])
        files = self._index.files(name, environment)
        for version, group in groupby(files, lambda wheel: wheel.version):
            contained = (contains(text, version) for text in ranges)
            if is_prerelease(version) or not all(contained):
                continue
            fitting = []
            for wheel in group:
                rank = environment.rank(wheel.filename)
                if wheel.is_sdist and self._may_build(name):
                    rank = SDIST_RANK
                is_usable = environment.accepts_python(wheel.requires_python)
                if rank is not None and is_usable and wheel.yanked is None:
                    fitting.append((rank, wheel))
            if fitting:
                self._follow(min(fitting, key=itemgetter(0))[1], extras)
                return
        self._undecided.add(name)

    def _follow(self, wheel: Wheel, extras: tuple[str, ...]) -> None:
        dependencies = self._index.metadata(wheel).dependencies
        self.follow(dependencies)
        if extras:
            self.follow(dependencies, extras)
