"""Finds a failure that no message explains.

A line shows one if a failure word is near CUDA, a GPU, a loader or a resolver.
matrix_data/doctor/failure_words.toml holds the words.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from .catalog import DIGITS, failure_words
from .model import Fact

if TYPE_CHECKING:
    from ahocorasick_rs import BytesAhoCorasick

_MAX_APART = 120  # characters between a failure word and its subject
_CONTEXT = 240  # bytes of a line that are read before and after a failure word
_MAX_TEXT = 300  # characters of the fact's text
_MAX_WINDOWS = 1 << 14  # windows that are remembered, by their hashes


class FailureReader:
    """Reads the blocks of a log until it finds a failure.

    Attributes:
        fact: the first failure, or None.
    """

    def __init__(self) -> None:
        """Start with a log's first block."""
        self.fact: Fact | None = None
        self._windows: set[int] = set()  # without digits: such lines say the same

    def read(self, block: bytes, first_line: int) -> None:
        """Read a block, whose first line has the number."""
        if self.fact is not None:
            return
        for _index, place, _end in _search().find_matches_as_indexes(block.lower()):
            window = _window(block, place)
            if self._is_new(window) and shows_failure(window.decode("utf-8", "replace")):
                line = first_line + block.count(b"\n", 0, place)
                self.fact = _failure(window, line)
                return

    def _is_new(self, window: bytes) -> bool:
        """Whether no window was read that differs in digits only."""
        key = hash(window.translate(None, DIGITS))
        if key in self._windows:
            return False
        if len(self._windows) >= _MAX_WINDOWS:
            self._windows.clear()
        self._windows.add(key)
        return True


def shows_failure(line: str) -> bool:
    """Return whether a line says that something failed that concerns a GPU or a library."""
    harmless, failure = _patterns()
    return failure.search(harmless.sub(" ", line)) is not None


def _failure(window: bytes, line: int) -> Fact:
    text = " ".join(window.decode("utf-8", "replace").split())[:_MAX_TEXT]
    return Fact(kind="symptom", subject="unexplained", where=f"log line {line}", text=text)


def _window(block: bytes, place: int) -> bytes:
    """Return the line around a place of a block, or the part of a long line."""
    first, last = max(0, place - _CONTEXT), place + _CONTEXT
    start = max(block.rfind(b"\n", first, place), block.rfind(b"\r", first, place)) + 1
    ends = (block.find(b"\n", place, last), block.find(b"\r", place, last))
    end = min((end for end in ends if end >= 0), default=last)
    return block[start or first : end]


@cache
def _search() -> BytesAhoCorasick:
    """Return the search for the texts without which a line shows no failure."""
    from ahocorasick_rs import BytesAhoCorasick

    words = failure_words()
    texts = [text.encode() for text, _form in (*words.failures, *words.alone)]
    return BytesAhoCorasick(texts)


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the patterns of harmless text and of failures."""
    words = failure_words()
    failures, subjects = _any(_forms(words.failures)), _any(words.subjects)
    gap = f".{{0,{_MAX_APART}}}?"
    near = (f"{failures}{gap}{subjects}", f"{subjects}{gap}{failures}")
    failure = _any((*near, *_forms(words.alone)))
    return re.compile(_any(words.harmless), re.IGNORECASE), re.compile(failure, re.IGNORECASE)


def _forms(rows: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    return tuple(form for _text, form in rows)


def _any(patterns: tuple[str, ...]) -> str:
    return f"(?:{'|'.join(patterns)})"
