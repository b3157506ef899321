"""Asks an index ahead for what a solve will need: an index is far away, and answers many questions at once.

The resolver asks for one page after the other, and for the metadata of one file after the other. While it waits for
the first, threads follow the same way through the requirements on their own: of each name the newest release that all
ranges known so far admit, which is nearly always the one that is chosen. Nothing depends on their guesses: they only
fill what the sources remember, and what they guessed wrong was asked in vain. Failures are remembered there, too, and
raised to whoever needs the answer.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from queue import SimpleQueue

from ..errors import GpuEnvError
from ..model import Requirement, Wheel
from ..requirements.target import TargetEnvironment
from .multi_index import CombinedIndex

THREADS = 8  # more are not quicker where two cores read what they bring, and each takes two megabytes
_MMAP_THRESHOLD = -3  # malloc.h
_Job = tuple[str, tuple[str, ...]]


class Ahead:
    """Threads that follow requirements through an index until `stop`, for one environment and within `limits`."""

    def __init__(self, index: CombinedIndex, environment: TargetEnvironment, limits: Sequence[Requirement]) -> None:
        self._index, self._environment = index, environment
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._ranges: dict[str, list[str]] = {}
        self._at_urls: set[str] = set()
        self._seen: set[tuple[str, tuple[str, ...], str]] = set()
        self.threads: list[threading.Thread] = []
        self._idle = 0
        self._open = 0  # questions that are asked or wait
        self._done = threading.Condition(self._lock)
        self._stopped = False
        _return_buffers()
        for one in limits:
            if self._holds(one.marker, ()):
                self._note(one)

    def follow(self, requirements: Iterable[Requirement], extras: Sequence[str] = ()) -> None:
        """Ask for what these need, if their markers hold with the extras. Returns at once."""
        asked = [one for one in requirements if self._holds(one.marker, extras)]
        for one in asked:
            self._note(one)
        for one in asked:
            if one.name in self._at_urls or self._index.is_local(one.name):
                continue
            key = (one.name, one.extras, one.specifier)
            with self._lock:
                if key in self._seen or self._stopped:
                    continue
                self._seen.add(key)
                if not self._idle and len(self.threads) < THREADS:
                    # Not waited for when the process ends: an answer that is still on its way is needed by nobody.
                    thread = threading.Thread(target=self._work, daemon=True)
                    self.threads.append(thread)
                    thread.start()
                self._open += 1
                self._jobs.put((one.name, one.extras))

    def _note(self, one: Requirement) -> None:
        if one.url is not None:
            self._at_urls.add(one.name)
        known = self._ranges.setdefault(one.name, [])
        if one.specifier and one.specifier not in known:
            known.append(one.specifier)

    def wait(self) -> None:
        """Return when there is nothing more to ask."""
        with self._done:
            self._done.wait_for(lambda: self._open == 0)

    def stop(self) -> None:
        """No new question is asked. Threads end with the answer that they wait for."""
        self._stopped = True
        for _ in self.threads:
            self._jobs.put(None)

    def _holds(self, marker: str | None, extras: Sequence[str]) -> bool:
        try:
            return marker is None or self._environment.marker(marker, extras)
        except GpuEnvError:
            return False  # the resolver says it of the release that it chooses

    def _work(self) -> None:
        while True:
            with self._lock:
                self._idle += 1
            job = self._jobs.get()
            with self._lock:
                self._idle -= 1
            if job is None or self._stopped:
                return
            try:
                self._look(*job)
            except GpuEnvError:
                pass  # said to whoever needs the answer
            finally:
                with self._lock:
                    self._open -= 1
                    self._done.notify_all()

    def _look(self, name: str, extras: tuple[str, ...]) -> None:
        best = self._best(name)
        if best is None or self._stopped:
            return
        requirements = self._index.dependencies(best)
        self.follow(requirements)
        if extras:
            self.follow(requirements, extras)

    def _best(self, name: str) -> Wheel | None:
        """The wheel that is chosen if nothing else is asked of its name."""
        environment, ranges = self._environment, list(self._ranges[name])
        found: Wheel | None = None
        for wheel in self._index.wheels(name, environment):
            if found is not None and wheel.version != found.version:
                break
            if wheel.yanked is not None or environment.is_prerelease(wheel.version):
                continue
            if not environment.accepts_python(wheel.requires_python):
                continue
            if not all(environment.contains(one, wheel.version, True) for one in ranges):
                continue
            if found is None or (environment.rank(wheel.filename) or 0) < (environment.rank(found.filename) or 0):
                found = wheel
        return found


def _return_buffers() -> None:
    """Has glibc give the memory of large buffers back when they are freed.

    Left alone, it raises the size from which it does so with the first page of megabytes that is freed, and keeps what
    later ones took, for each thread: more than all that a solve needs.
    """
    import ctypes
    import sys

    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none, and keeps nothing
        if mallopt is not None:
            mallopt(_MMAP_THRESHOLD, 1 << 17)
