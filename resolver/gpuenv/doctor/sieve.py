"""The sieve of the log reader: which messages a line can hold, by its words alone, for many lines at once.

A line's text is taken in small letters and with a space for all that is no letter, and split into words; a word matters
if it holds a fragment of a message's needles or of the literals that its pattern needs. Of a line are left the words
that matter: they repeat, whatever names the line has, and what they allow is remembered.

A line's image is coarser: without digits and the letters a to f. Lines that differ in numbers, addresses and hashes
have one image, and a line that holds a text has an image that holds the text's image; so an image tells what none of
its lines can hold, and costs a nanosecond a character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import compress

from .catalogue import Message
from .literals import bare, formula_of, holds, mapped

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes three milliseconds
    from typing import Any

BATCH = 200  # lines whose words are together in memory, which is near then
WORDS = 1 << 14  # that are remembered
KEPT = 1 << 12  # other things that are

HEX = b"0123456789abcdefABCDEF"
LETTERS = bytes(
    10 if c in (10, 13) else (c | 32) if 65 <= c <= 90 else c if 97 <= c <= 122 or c == 95 else 32 for c in range(256)
)
_MARK = b"\x01"  # no line has it once its letters are taken
_MARKED = 1
_SHORTEST = 3  # letters of a fragment that is not a word of its own

Possible = dict[bytes, tuple[Message, ...]]  # the messages of each needle


class _Words(dict[bytes, int]):
    """The bits of the fragments that words hold, 0 for none; each is judged when it is met."""

    def __init__(self, inner: dict[bytes, int], whole: dict[bytes, int]) -> None:
        self.begun: dict[bytes, list[tuple[bytes, int]]] = {}  # fragments by their first letters
        for fragment, bit in inner.items():
            self.begun.setdefault(fragment[:_SHORTEST], []).append((fragment, bit))
        self.search = re.compile(_trie(list(inner))).search
        self.first = {word: bits | self._bits(word, 0) for word, bits in whole.items()} | {_MARK: _MARKED}
        self.update(self.first)

    def __missing__(self, word: bytes) -> int:
        found = self.search(word)
        bits = self[word] = self._bits(word, found.start()) if found else 0
        return bits

    def _bits(self, word: bytes, begin: int) -> int:
        bits = 0
        for at in range(begin, len(word) - _SHORTEST + 1):
            for fragment, bit in self.begun.get(word[at : at + _SHORTEST], ()):
                if word.startswith(fragment, at):
                    bits |= bit
        return bits

    def shrink(self) -> None:
        """Forgets words if they are many."""
        if len(self) > WORDS:
            self.clear()
            self.update(self.first)


class Sieve:
    """Of some messages; `words`, `of_line`, `mask`, `possible` and `hopeless` are what a reader of lines asks."""

    def __init__(self, messages: Iterable[Message]) -> None:
        self.inner: dict[bytes, int] = {}  # the bits of fragments that may stand anywhere in a word
        self.whole: dict[bytes, int] = {}  # and of those that are words
        self.formulas: dict[str, Any] = {}  # by the messages' names
        self.rules: list[tuple[Message, list[tuple[bytes, int]], Any]] = []
        self.images: list[tuple[list[bytes], Any]] = []
        for message in messages:
            formula = formula_of(message.pattern)
            self.formulas[message.name] = mapped(formula, bare)
            if message.lines:  # what the lines after a needle's hold is not known when that line is judged
                formula = None
            needles = [(needle, self._mask(needle)) for needle in message.needles]
            self.rules.append((message, needles, mapped(formula, self._mask_of_text)))
            self.images.append(([image_of(needle) for needle in message.needles], mapped(formula, _image_of_bare)))
        self.bits = {needle: bits for _message, needles, _formula in self.rules for needle, bits in needles}
        self.table = _Words(self.inner, self.whole)
        self.masks: dict[bytes, int] = {}  # of what is left of lines
        self.known: dict[tuple[int, bool], Possible] = {}
        self.lines: dict[bytes, Possible] = {}  # and of whole lines

    def _mask_of_text(self, text: str) -> int:
        return self._mask(text.encode())

    def _mask(self, text: bytes) -> int:
        """The bits of a text's fragments; the short ones are left out, and 0 is in every line."""
        letters = text.translate(LETTERS)
        words = letters.split()
        mask = 0
        for number, word in enumerate(words):
            first, last = not number, number == len(words) - 1
            bounded = not (first and letters[:1] != b" ") and not (last and letters[-1:] != b" ")
            if len(word) >= _SHORTEST or (bounded and not _of_hex(word)):
                bits = self.whole if bounded else self.inner
                mask |= bits.setdefault(word, _MARKED << (1 + len(self.whole) + len(self.inner)))
        return mask

    def words(self, lines: list[bytes]) -> list[bytes]:
        """Of each line the words that matter, space separated, with a space at either end."""
        found: list[bytes] = []
        for begin in range(0, len(lines), BATCH):
            self.table.shrink()
            letters = b"\n".join(lines[begin : begin + BATCH]).translate(LETTERS).replace(b"\n", b" \x01 ")
            words = b" ".join([_MARK, letters, _MARK]).split()
            matter = compress(words, map(self.table.__getitem__, words))
            found += b" ".join(matter).split(_MARK)[1:-1]
        return found

    def mask(self, words: bytes) -> int:
        """The fragments that words that matter hold."""
        mask = self.masks.get(words)
        if mask is None:
            if len(self.masks) >= KEPT:
                self.masks.clear()
            mask = 0
            for word in words.split():
                mask |= self.table[word]
            self.masks[words] = mask
        return mask

    def hopeless(self, image: bytes) -> bool:
        """Whether no line of an image holds a message."""
        return not any(
            any(needle in image for needle in needles) and holds(formula, image.__contains__)
            for needles, formula in self.images
        )

    def of_line(self, words: bytes) -> Possible:
        """What a line can hold whose words that matter are these."""
        found = self.lines.get(words)
        if found is None:
            if len(self.lines) >= KEPT:
                self.lines.clear()
            mask = self.mask(words)
            found = self.lines[words] = self.possible(mask, needles_only=False)
        return found

    def possible(self, mask: int, *, needles_only: bool) -> Possible:
        """The needles that fragments allow, each with the messages that they allow."""
        key = mask, needles_only
        found = self.known.get(key)
        if found is None:
            if len(self.known) >= KEPT:
                self.known.clear()
            found = self.known[key] = self._possible(mask, needles_only)
        return found

    def _possible(self, mask: int, needles_only: bool) -> Possible:
        found: dict[bytes, list[Message]] = {}
        for message, needles, formula in self.rules:
            some = [needle for needle, bits in needles if mask & bits == bits]
            if some and (needles_only or holds(formula, lambda bits: mask & bits == bits)):
                for needle in some:
                    found.setdefault(needle, []).append(message)
        return {needle: tuple(some) for needle, some in found.items()}

    def within(self, possible: Possible, mask: int) -> Possible:
        """Those of some needles that fragments allow."""
        bits = self.bits
        return {needle: some for needle, some in possible.items() if mask & bits[needle] == bits[needle]}


def _of_hex(word: bytes) -> bool:
    """Whether a word is what is left of an address or a hash: in every line."""
    return not word.strip(b"abcdefx")


def image_of(text: bytes) -> bytes:
    """The image of lines, each of a line."""
    return text.translate(LETTERS, HEX)


def _image_of_bare(text: str) -> bytes:
    return image_of(bare(text).encode())


def _trie(texts: list[bytes]) -> bytes:
    """A pattern that finds one of some texts, or their common beginning where one begins another."""
    if len(texts) == 1:
        return re.escape(texts[0])
    if b"" in texts:
        return b""
    groups: dict[bytes, list[bytes]] = {}
    for text in sorted(texts):
        groups.setdefault(text[:1], []).append(text[1:])
    parts = [first + _trie(rest) for first, rest in groups.items()]
    return parts[0] if len(parts) == 1 else b"(?:" + b"|".join(parts) + b")"
