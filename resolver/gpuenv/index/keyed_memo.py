"""Answers that several threads ask for, each computed once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from concurrent.futures import Future, wait
from typing import Generic, TypeVar

_Key = TypeVar("_Key", bound=Hashable)
_Answer = TypeVar("_Answer")


_WAIT = 0.2  # seconds


class KeyedMemo(Generic[_Key, _Answer]):
    """Remembers one answer per key. Errors are remembered and raised again.

    Threads that ask for the same key wait for the first one's answer.
    """

    def __init__(self) -> None:
        self._answers: dict[_Key, Future[_Answer]] = {}
        self._lock = threading.Lock()

    def get(self, key: _Key, compute: Callable[[], _Answer]) -> _Answer:
        """Return the answer for a key; the first call computes it."""
        mine: Future[_Answer] = Future()
        with self._lock:
            answer = self._answers.setdefault(key, mine)
        if answer is mine:
            try:
                mine.set_result(compute())
            except BaseException as error:
                mine.set_exception(error)
                raise
        # If Ctrl-C comes just before a wait without a limit, the wait does not notice it.
        while not answer.done():
            wait([answer], _WAIT)
        return answer.result()
