"""One thread at a time for each thing that is asked for: who comes later waits for the first one's answer."""

from __future__ import annotations

import threading


class Turns:
    """Locks by name, made when they are first asked for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._turns: dict[str, threading.Lock] = {}

    def of(self, name: str) -> threading.Lock:
        """The lock of a name."""
        with self._lock:
            return self._turns.setdefault(name, threading.Lock())
