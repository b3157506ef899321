"""Finds failures that no message explains, and the causes that their words suggest.

A line shows a failure if a failure word is near CUDA, a GPU, a loader or a resolver. A frame of a
Python traceback is read together with its line of source code.
matrix_data/doctor/failure_words.toml holds the words.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cache

from .catalog import DIGITS, failure_words
from .model import MAX_TEXT, Fact
from .prefilter import Places, literal_search

_MAX_APART = 120  # bytes between a failure word and its subject
_CONTEXT = 240  # bytes of a line that are shown before and after a failure word
_NEIGHBORS = 480  # bytes around a failure in which words suggest its cause, to the end of a line
_MOST_NEIGHBORS = 1 << 12  # the same, of long lines
_MAX_WINDOWS = 1 << 14  # windows that are remembered, by their hashes
_MAX_FAILURES = 32  # failures of a log whose words are read
_FRAME = b'file "'  # how a frame of a Python traceback begins
_INDENT = b"    "  # of its line of source code
_TRACEBACK = "traceback (most recent call"  # the line before the frames, which names no failure
# Three letters, in UTF-8, of Greek, Cyrillic, Hebrew, Arabic, or a script of India or East Asia.
_OTHER_SCRIPT = re.compile(
    rb"(?:[\xce-\xdb][\x80-\xbf]|[\xe0\xe1\xe3-\xed][\x80-\xbf][\x80-\xbf]){3}"
)
_FRAMES = re.compile(rb'file "[^\n]*(?:\n[^\n]{0,60}    [^\n]*)?')


class _Search:
    """Searches a text of small letters for forms: a plain text, and what has to follow it."""

    def __init__(self, forms: Sequence[tuple[str, str]]) -> None:
        literals = [text.encode() for text, _rest in forms]
        self._find = literal_search(literals, prepared=True)
        self._rests = [re.compile(rest.encode()) if rest else None for _text, rest in forms]

    def texts(self, lowered: bytes) -> Places:
        """Return (number, begin, end) of the plain texts, whatever follows them."""
        return self._find(lowered)

    def places(self, lowered: bytes) -> Iterator[tuple[int, int]]:
        """Yield (number, begin) of the forms that match."""
        for number, begin, end in self.texts(lowered):
            if self.is_form(lowered, number, end):
                yield number, begin

    def is_form(self, lowered: bytes, number: int, end: int) -> bool:
        """Return whether a form's text, which ends there, is followed by what has to follow."""
        rest = self._rests[number]
        return rest is None or rest.match(lowered, end) is not None

    def is_in(self, lowered: bytes) -> bool:
        """Return whether a form matches in a text."""
        return next(self.places(lowered), None) is not None


class FailureReader:
    """Reads the blocks of a log until it has found enough failures.

    Attributes:
        facts: the first failure, then the causes that the words of the failures suggest.
    """

    def __init__(self) -> None:
        """Prepare for a log's first block."""
        self.facts: list[Fact] = []
        self._failures = 0
        self._read_windows: set[int] = set()  # hashes of windows without digits
        self._suggestions = dict(enumerate(_suggestions()))  # those that no failure had

    def read(self, block: bytes, first_line: int) -> None:
        """Read a block, whose first line has the number."""
        if self._failures == _MAX_FAILURES:
            return
        lowered = block.lower()
        done = 0
        for place in _places_near_subjects(lowered):
            if place < done:
                continue
            start, end = _window(lowered, place)
            done = end - _MAX_APART if end == place + _CONTEXT else end
            if self._is_new(lowered[start:end]) and _shows_failure(lowered[start:end]):
                line = first_line + block.count(b"\n", 0, place)
                is_unrelated = _unrelated().search(lowered, start, end)
                words = b"" if is_unrelated else _neighbors(lowered, start, end)
                self._note(_failure(block[start:end], line), words)
                if self._failures == _MAX_FAILURES:
                    return

    def _note(self, failure: Fact, words: bytes) -> None:
        """Keep the first failure, and the causes that the words around each failure suggest."""
        if not self._failures:
            self.facts.append(failure)
        elif _TRACEBACK in self.facts[0].text.lower():
            self.facts[0] = failure
        self._failures += 1
        for number, (cause, pattern) in list(self._suggestions.items()):
            suggestion = _suggested_by(failure, words, cause, pattern)
            if suggestion is not None:
                self.facts.append(suggestion)
                del self._suggestions[number]

    def _is_new(self, window: bytes) -> bool:
        """Whether no window was read that differs in digits only."""
        key = hash(window.translate(None, DIGITS))
        if key in self._read_windows:
            return False
        if len(self._read_windows) >= _MAX_WINDOWS:
            self._read_windows.clear()
        self._read_windows.add(key)
        return True


def failure_of_short_text(text: bytes, *, names_gpu: bool) -> Iterator[Fact]:
    """Yield the first failure of any program in a short text, and the causes that it suggests.

    A text that names a GPU reports a failure if it denies something, or is in another script.

    Args:
        names_gpu: whether a message found a GPU in the text. Words near a failure may show it, too.
    """
    lowered = _harmless().sub(b" ", text.lower())
    places = [place for _number, place in _short().places(lowered)]
    if not places and (names_gpu or _subjects().is_in(lowered)):
        places = [place for _number, place in _negations().places(lowered)]
    if not places and _reports_in_another_script(lowered):
        places = [0]
    for place in places[:1]:
        start, end = _window(lowered, place)
        failure = _failure(lowered[start:end], 1 + lowered.count(b"\n", 0, place))
        yield failure
        if not _unrelated().search(lowered):
            suggested = [_suggested_by(failure, lowered, *pair) for pair in _suggestions()]
            yield from filter(None, suggested)


def _suggested_by(
    failure: Fact, words: bytes, cause: str, pattern: re.Pattern[bytes]
) -> Fact | None:
    """Return the fact that the words of a failure suggest a cause, or None."""
    match = pattern.search(words)
    if match is None:
        return None
    value = match[0].decode("utf-8", "replace")
    return failure.replace(kind="suggests", subject=cause, value=value)


def _reports_in_another_script(text: bytes) -> bool:
    """Whether a text that is not in Latin letters names a GPU and does not say that it works."""
    if not (_OTHER_SCRIPT.search(text) and _subjects().is_in(text)):
        return False
    return not any(word.encode() in text for word in failure_words().success)


def _places_near_subjects(lowered: bytes) -> Iterator[int]:
    """Yield the places of forms that may show a failure: alone, or with a subject near them.

    Most words of a failure have no subject near, so this is looked at before the form.
    """
    failures, count = _failures(), len(failure_words().failures)
    places = failures.texts(lowered)
    if not places:
        return
    subjects = sorted(begin for _number, begin, _end in _subjects().texts(lowered))
    for number, begin, end in places:
        if number < count:
            nearest = bisect_left(subjects, begin - _CONTEXT)
            if nearest == len(subjects) or subjects[nearest] > begin + _CONTEXT:
                continue
        if failures.is_form(lowered, number, end):
            yield begin


def shows_failure(line: str) -> bool:
    """Return whether a line says that something failed that concerns a GPU or a library."""
    return _shows_failure(line.lower().encode("utf-8", "replace"))


def _shows_failure(window: bytes) -> bool:
    """Whether a part of a line in small letters shows a failure, without its harmless text."""
    if not (_subjects().is_in(window) or _alone().is_in(window)):
        return False
    text = _harmless().sub(b" ", window)
    if _alone().is_in(text):
        return True
    for number, place in _failures().places(text):
        is_word = number < len(failure_words().failures)
        near = text[max(0, place - _MAX_APART) : place + _MAX_APART]
        if is_word and _subjects().is_in(near):
            return True
    return False


def _failure(window: bytes, line: int) -> Fact:
    text = " ".join(window.decode("utf-8", "replace").split())[:MAX_TEXT]
    return Fact(kind="symptom", subject="unexplained", where=f"log line {line}", text=text)


def _window(text: bytes, place: int) -> tuple[int, int]:
    """Return where the line around a place begins and ends; of a long line, a part.

    A frame of a traceback ends with its line of code.
    """
    first, last = max(0, place - _CONTEXT), place + _CONTEXT
    start = max(text.rfind(b"\n", first, place), text.rfind(b"\r", first, place)) + 1
    end = _line_end(text, place, last)
    if text.startswith(_FRAME, place) and end < last:
        code = _line_end(text, text.find(b"\n", end) + 1, last)
        if _INDENT in text[end:code]:
            end = code
    return start or first, end


def _neighbors(text: bytes, start: int, end: int) -> bytes:
    """Return the failure and the lines around it as one line, without harmless text and frames."""
    first, last = max(0, start - _MOST_NEIGHBORS), end + _MOST_NEIGHBORS
    line_start = text.rfind(b"\n", first, max(0, start - _NEIGHBORS)) + 1
    line_end = text.find(b"\n", end + _NEIGHBORS, last)
    part = text[line_start or first : line_end if line_end >= 0 else last]
    return b" ".join(_harmless().sub(b" ", _FRAMES.sub(b" ", part)).split())


def _line_end(text: bytes, place: int, last: int) -> int:
    """Return where the line of a place ends, at most `last`."""
    ends = (text.find(b"\n", place, last), text.find(b"\r", place, last))
    return min((end for end in ends if end >= 0), default=last)


@cache
def _failures() -> _Search:
    """Return the search for all that may show a failure; the words come first."""
    words = failure_words()
    return _Search((*words.failures, *words.alone))


@cache
def _alone() -> _Search:
    return _Search(failure_words().alone)


@cache
def _short() -> _Search:
    return _Search(failure_words().short)


@cache
def _negations() -> _Search:
    return _Search(failure_words().negations)


@cache
def _subjects() -> _Search:
    return _Search(failure_words().subjects)


@cache
def _harmless() -> re.Pattern[bytes]:
    return re.compile("|".join(failure_words().harmless).encode())


@cache
def _unrelated() -> re.Pattern[bytes]:
    return re.compile("|".join(failure_words().unrelated).encode())


@cache
def _suggestions() -> tuple[tuple[str, re.Pattern[bytes]], ...]:
    """Return (cause, words that suggest it)."""
    return tuple(
        (cause, re.compile(pattern.encode())) for cause, pattern in failure_words().suggestions
    )
