"""What a command is doing at the moment, for whoever shows progress.

The stages count; the command line reads the counters from another thread. A program that solves in
several threads gets the sums of all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Activity:
    """Counters of the step that runs now.

    Attributes:
        step: "solving" or "verifying"; "" if nothing runs that has counters.
        requests: requests that were sent to indexes.
        subject: what the last request was about.
        decided: packages that are decided.
        conflicts: conflicts of packages that were resolved.
        started: parts of a verification that were started.
        running: parts of a verification that run now.
        announce: is called with a line about work that the user should know of, such as a build.
    """

    def __init__(self) -> None:
        self.step = ""
        self.announce: Callable[[str], None] = lambda _: None
        self._reset()

    def _reset(self) -> None:
        self.requests = self.decided = self.conflicts = self.started = 0
        self.subject = ""
        self.running: tuple[str, ...] = ()

    @contextmanager
    def during(self, step: str) -> Iterator[None]:
        """Count for a step. A step inside another one belongs to the outer one."""
        if self.step:
            yield
            return
        self._reset()
        self.step = step
        try:
            yield
        finally:
            self.step = ""

    def note_request(self, subject: str) -> None:
        """Count a request to an index."""
        self.requests += 1
        self.subject = subject

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Show a part of a verification while it runs."""
        self.started += 1
        self.running = (*self.running, name)
        try:
            yield
        finally:
            rest = list(self.running)
            if name in rest:  # another thread may have written at the same time
                rest.remove(name)
            self.running = tuple(rest)


current = Activity()
