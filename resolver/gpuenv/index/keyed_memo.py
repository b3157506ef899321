"""Answers that several threads ask for, each computed once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from ..errors import GpuEnvError

_WAIT = 0.2  # seconds
_Key = TypeVar("_Key", bound=Hashable)
_Answer = TypeVar("_Answer")


class KeyedMemo(Generic[_Key, _Answer]):
    """Remembers one answer per key. Errors of gpuenv are remembered and raised again.

    Each key has a lock: threads that ask for the same key wait for the first one's answer, and
    threads that ask for different keys do not wait for each other.
    """

    def __init__(self) -> None:
        self._answers: dict[_Key, _Answer | GpuEnvError] = {}
        self._locks: dict[_Key, threading.Lock] = {}
        self._locks_lock = threading.Lock()

    def get(self, key: _Key, compute: Callable[[], _Answer]) -> _Answer:
        """Return the answer for a key; the first call computes it."""
        if key not in self._answers:
            lock = self._lock_of(key)
            # If Ctrl-C comes just before a wait without a limit, the wait does not notice it.
            while not lock.acquire(timeout=_WAIT):
                pass
            try:
                if key not in self._answers:
                    self._answers[key] = _answer_or_error(compute)
            finally:
                lock.release()
        answer = self._answers[key]
        if isinstance(answer, GpuEnvError):
            raise answer
        return answer

    def _lock_of(self, key: _Key) -> threading.Lock:
        with self._locks_lock:
            return self._locks.setdefault(key, threading.Lock())


def _answer_or_error(compute: Callable[[], _Answer]) -> _Answer | GpuEnvError:
    try:
        return compute()
    except GpuEnvError as error:
        return error
