"""The reader of logs: any amount of text, in bounded memory, to the facts that its machine-made messages state.

Logs repeat, and where they do not, their lines still say the same with other numbers, addresses and names. So a line is
read if its like was not read a few times already, and if its words allow a message at all (see sieve.py). In such a
line the needles of the messages are looked for, and where one stands the pattern is tried, in a window of at most two
thousand characters. A line's length is no matter, nor is where a chunk ends; colour codes are taken out first, and a
rank's or a container's prefix stands outside of what the pattern reads.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import accumulate

from .catalogue import Message, messages
from .chunks import AFTER, AHEAD, BEFORE, blocks
from .forms import filled
from .handles import Handles
from .literals import holds
from .model import Fact
from .sieve import Possible, Sieve, image_of

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes three milliseconds
    from typing import Any

PIECE, PART = 1 << 11, 128  # a longer line is judged in parts
SMALL = 1 << 15  # a log that is shorter than that is read without a sieve, which takes time to make
IDLE = (512, 16)  # a needle that was read so often in a row for nothing new is read so often in a block
LONG = (256, 4)  # the same in lines that are longer than PIECE
LOOKS = 64  # at lines with the same words that matter, in a row for nothing new
SILENT = 16  # parts of a long line with the same words that matter, for nothing
REPEATS = 4  # readings of lines that differ in their digits only
SHAPES = 4096  # needles with such lines around them that are remembered
LINES = 1 << 14  # such lines that are remembered, by their hashes
SELDOM = 16  # blocks: so often it is tried again what did not help
MOST = 2000  # facts of one log
SHOWN = 300  # characters of a fact's text

_ENDS = bytes(10 if c == 13 else c for c in range(256))  # a bar of progress is many lines, too
_DIGITS = b"0123456789"
_NOISE = re.compile(r"[\x00-\x1f\x7f]+")
_CONTROLS = bytes([*range(32), 127])
_FOLDED = tuple(c.encode() for c in "\u0130\u0131\u017f\u212a")  # letters of no ASCII that are i, s and k in any case


def read_log(stream: Iterable[bytes | str]) -> tuple[Fact, ...]:
    """The facts of a log, each once, in the order of their first lines; what cuDNN's handles did comes last.

    `stream` gives chunks or lines, bytes (UTF-8, or UTF-16 with its mark; what is neither is replaced) or text. Memory
    is bounded whatever the log's size and its lines' lengths; at most MOST facts are kept, the first ones.
    """
    reader, handles = Reader(), Handles()
    for block, more, begin, end in blocks(stream):
        handles.read(block[begin:end], reader.line)
        reader.read(block, more, begin, end)
    return (*reader.found.values(), *handles.found.values())


def _readable(window: bytes) -> str:
    text = window.decode("utf-8", "replace")
    # Looking for them so costs a tenth of the pattern's search.
    return _NOISE.sub(" ", text) if len(window.translate(None, _CONTROLS)) != len(window) else text


class Reader:
    """Reads blocks one after the other; `found` are the facts, by what they say."""

    def __init__(self, *, small: int = SMALL) -> None:
        self.found: dict[tuple[str, str, str], Fact] = {}
        self.line = 1
        self.small = small
        self.sieve: Sieve | None = None
        self.messages: dict[bytes, tuple[Message, ...]] = {}  # by needle
        for message in messages():
            for needle in message.needles:
                self.messages[needle] = (*self.messages.get(needle, ()), message)
        # Lines that differ in their digits only may differ in these: they are looked for in all of them.
        self.numbered = tuple(needle for needle in self.messages if needle != needle.translate(None, _DIGITS))
        self.over = max(map(len, self.messages))
        self.times: dict[int, int] = {}  # readings of lines without their digits, hashed
        self.past: set[int] = set()  # those that were read REPEATS times, or hold nothing
        self.dead: set[int] = set()  # images of lines that hold nothing, hashed
        self.once: set[int] = set()  # images that were met,
        self.judged: set[int] = set()  # and those that were judged
        self.repeats = self.alike = True
        self.blocks = 0
        self.seen: dict[int, int] = {}  # readings by needle and the window around it without its digits, hashed
        self.idle: dict[bytes, int] = {}  # readings of each needle since it said something new
        self.looks: dict[bytes, int] = {}  # looks at lines by their words that matter since they said something new
        self.nothing: set[bytes] = set()  # words that matter of lines that say nothing, or nothing new
        self.parts: set[int] = set()  # the same of parts of long lines, hashed
        self.silent: dict[int, int] = {}  # how many such parts said nothing

    def read(self, block: bytes, more: bytes, begin: int, end: int) -> None:
        """The next block, and what is behind it; only what stands between `begin` and `end` counts."""
        if len(self.found) >= MOST:  # nothing is added to these
            return
        self.block, self.more, self.begin, self.end = block, more, begin, end
        self.ends = block.translate(_ENDS) if b"\r" in block else block
        self.counted, self.fresh = 0, dict[bytes, int]()
        if self.sieve is None and len(block) < self.small and not more:
            self._read_small()
        else:
            self.sieve = self.sieve or Sieve(messages())
            self._read_sieved(self.sieve)
        self.line += block.count(b"\n", self.counted)

    def _read_small(self) -> None:
        possible = {needle: some for needle, some in self.messages.items() if needle in self.ends}
        at = 0
        for line in self.ends.split(b"\n") if possible else ():
            if len(line) > PIECE:
                self._read_part(line, at, 0, len(line), possible)
            else:
                some = self._once_more(possible, hash(line.translate(None, _DIGITS)))
                self._read_line(line, at, some)
            at += len(line) + 1

    def _read_sieved(self, sieve: Sieve) -> None:
        folded = not self.ends.isascii() and any(letter in self.ends for letter in _FOLDED)
        lines, keys, which = self._unread()
        if which and not folded:  # what is said of images is said of ASCII's letters
            which = self._hopeful(sieve, lines, keys, which)
        if not which:
            return
        some = lines if len(which) == len(lines) else [lines[i] for i in which]
        long = max(map(len, some)) > PIECE or self.begin > 0
        if long:  # they are read by themselves
            some = [b"" if len(lines[i]) > PIECE or (self.begin and not i) else lines[i] for i in which]
        words = sieve.words(some)
        nothing = self.nothing
        todo = [(i, word) for i, word in zip(which, words, strict=True) if long or folded or word not in nothing]
        if keys and len(todo) < len(words):
            for i, word in zip(which, words, strict=True):
                if word in nothing:
                    self._keep(self.past, keys[i])
        if not todo:
            return
        starts = [0, *accumulate([len(line) + 1 for line in lines])]
        for i, word in todo:
            line = lines[i]
            if long and (len(line) > PIECE or (self.begin and not i)):
                self._read_long(sieve, line, starts[i], folded=folded)
            else:
                self._read_word(sieve, line, word, starts[i], keys[i] if keys else None, folded=folded)

    def _read_word(self, sieve: Sieve, line: bytes, word: bytes, start: int, key: int | None, *, folded: bool) -> None:
        """A line that begins there, by its words that matter."""
        possible = sieve.possible(sieve.mask(word), needles_only=True) if folded else sieve.of_line(word)
        if not possible:
            self._keep(self.nothing, word)
            return
        known = len(self.found)
        some = self._once_more(possible, hash(line.translate(None, _DIGITS)) if key is None else key)
        if some:
            self._read_line(line, start, some)
        if some is possible and not any(needle in possible for needle in self.numbered):
            self._looked(word, known)

    def _looked(self, word: bytes, known: int) -> None:
        """Counts the looks at such words; after LOOKS for nothing new they are left alone."""
        if len(self.found) > known:
            self.looks.pop(word, None)
            return
        looks = self.looks.get(word, 0) + 1
        if looks >= LOOKS:
            self._keep(self.nothing, word)
        if len(self.looks) > LINES:
            self.looks.clear()
        self.looks[word] = looks

    def _unread(self) -> tuple[list[bytes], list[int], Sequence[int]]:
        """The lines, hashes of the lines without their digits, and which of them were not read often enough.

        Where few repeat it is seldom looked at: no hashes, and all of them.
        """
        self.blocks += 1
        if not self.repeats and self.blocks % SELDOM:
            lines = self.ends.split(b"\n")
            return lines, [], range(len(lines))
        keys = list(map(hash, self.ends.translate(None, _DIGITS).split(b"\n")))
        fresh = set(keys) - self.past
        numbered = [needle for needle in self.numbered if needle in self.ends]
        if not fresh and not numbered:
            self.repeats = True
            return [], keys, []
        lines = self.ends.split(b"\n")
        which = [i for i, key in enumerate(keys) if key in fresh] if fresh else []
        self.repeats = len(which) * 2 < len(keys)
        if numbered:
            which = [i for i, key in enumerate(keys) if key in fresh or any(one in lines[i] for one in numbered)]
        return lines, keys, which

    def _hopeful(self, sieve: Sieve, lines: list[bytes], keys: list[int], which: Sequence[int]) -> Sequence[int]:
        """Those of some lines whose images can hold a message; an image is judged when it comes again."""
        if not self.alike and self.blocks % SELDOM:
            return which
        text = self.ends if len(which) == len(lines) else b"\n".join([lines[i] for i in which])
        images = image_of(text).split(b"\n")
        hashes = list(map(hash, images))
        dead, left = self.dead, []
        for i, key in zip(which, hashes, strict=True):
            if key not in dead:
                left.append(i)
            elif keys:
                self._keep(self.past, keys[i])
        self.alike = len(left) < len(hashes) * 0.7
        again = set(hashes) & self.once
        again -= self.judged
        if again:
            for key, image in dict(zip(hashes, images, strict=True)).items():
                if key in again and len(image) <= PIECE:
                    self._keep(self.judged, key)
                    if sieve.hopeless(image):
                        self._keep(dead, key)
        if len(self.once) > LINES:
            self.once.clear()
        self.once.update(hashes[:LINES])
        return left

    def _once_more(self, possible: Possible, key: int) -> Possible:
        """What is to be looked for in a line, by its hash without digits; counts its readings."""
        times = self.times.get(key, 0)
        if times >= REPEATS:
            return {needle: possible[needle] for needle in self.numbered if needle in possible}
        if len(self.times) >= LINES:  # a log whose lines are all different: begin again
            self.times.clear()
        self.times[key] = times + 1
        if times + 1 == REPEATS:
            self._keep(self.past, key)
        return possible

    def _keep(self, some: set[Any], key: Any) -> None:
        if len(some) > LINES:
            some.clear()
        some.add(key)

    def _read_line(self, line: bytes, start: int, possible: Possible) -> None:
        """Looks for needles in a line that begins there."""
        if len(line) > BEFORE:  # windows differ
            self._read_part(line, start, 0, len(line), possible)
            return
        found = [(at, needle) for needle in possible if (at := line.find(needle)) >= 0]
        if found:
            found.sort()
            self._try(line, [(needle, possible[needle], line.count(needle)) for _at, needle in found], start)

    def _read_long(self, sieve: Sieve, line: bytes, start: int, *, folded: bool) -> None:
        """A line in parts; the other words of a message that begins in one may stand in any of them."""
        ats = range(0, len(line), PART)
        words = sieve.words([line[at : at + PART + self.over] for at in ats])
        every = 0
        for word in set(words):
            every |= sieve.mask(word)
        possible = dict(sieve.possible(every, needles_only=folded))
        for at, word in zip(ats, words, strict=True):
            if hash(word) in self.parts:
                continue
            some = sieve.within(possible, sieve.mask(word))
            known = len(self.found)
            there = self._read_part(line, start, at, at + PART, some, idle=LONG) if some else set()
            silent = all(self.idle.get(needle, 0) > LONG[0] for needle in there)
            if silent and len(self.found) == known and not any(needle in some for needle in self.numbered):
                self._silent(hash(word))
            for needle in some:
                if self.fresh.get(needle, 0) >= LONG[1]:
                    del possible[needle]
            if not possible:
                break

    def _silent(self, words: int) -> None:
        """Counts the parts with such words that say nothing: the same words may stand in another order."""
        if len(self.silent) > LINES:
            self.silent.clear()
        self.silent[words] = self.silent.get(words, 0) + 1
        if self.silent[words] >= SILENT:
            self._keep(self.parts, words)

    def _read_part(
        self, line: bytes, start: int, begin: int, end: int, possible: Possible, *, idle: tuple[int, int] = IDLE
    ) -> set[bytes]:
        """What begins between two places of a line, each with a window of its own; gives the needles that are there."""
        found = []
        for needle in possible:
            last = min(end, self.end - start) + len(needle) - 1
            at = line.find(needle, max(begin, self.begin - start), last)
            while at >= 0:
                found.append((at, needle))
                at = line.find(needle, at + 1, last)
        found.sort()
        for at, needle in found:
            first = max(0, at - BEFORE)
            self._try(line[first : at + AFTER], [(needle, possible[needle], 1)], start + first, idle)
        return {needle for _at, needle in found}

    def _try(
        self,
        window: bytes,
        needles: list[tuple[bytes, tuple[Message, ...], int]],
        start: int,
        idle: tuple[int, int] = IDLE,
    ) -> None:
        """The messages of needles that stand so many times in a window, which begins there."""
        text, shape, tried = "", b"", set[str]()
        for needle, some, count in needles:
            if self.idle.get(needle, 0) > idle[0]:
                self.fresh[needle] = self.fresh.get(needle, 0) + 1
                if self.fresh[needle] > idle[1]:
                    continue
            shape = shape or window.translate(None, _DIGITS)
            key = hash((needle, shape))
            times = self.seen.get(key, 0)
            if times >= REPEATS:
                continue
            if times or len(self.seen) < SHAPES:
                self.seen[key] = times + count
            text = text or _readable(window)
            before = len(self.found)
            for message in some:
                if message.name not in tried:
                    tried.add(message.name)
                    self._match(message, self._following(message, start, len(window)) if message.lines else text, start)
            self.idle[needle] = 0 if len(self.found) > before else self.idle.get(needle, 0) + 1

    def _following(self, message: Message, start: int, size: int) -> str:
        """A window with the lines behind it that belong to a message."""
        text = self.block[start : start + size + AHEAD]
        if len(text) < size + AHEAD:
            text += self.more
        lines = text.split(b"\n", message.lines + 1)[: message.lines + 1]
        return _readable(b" ".join(lines)[: BEFORE + AFTER])

    def _match(self, message: Message, text: str, start: int) -> None:
        if self.sieve and text.isascii() and not holds(self.sieve.formulas[message.name], text.lower().__contains__):
            return
        found = message.compiled().search(text)
        if found is None:
            return
        if start > self.counted:
            self.line += self.block.count(b"\n", self.counted, start)
            self.counted = start
        shown = text if len(text) <= SHOWN else text[max(0, found.start() - 60) :][:SHOWN]
        where = f"log line {self.line}"
        if message.cause:
            self._note(Fact(kind=message.sure, subject=message.cause, value=message.name, where=where, text=shown))
        for kind, subject, value in message.facts:
            given = filled(value, found)
            if given or not value:
                about = filled(subject, found)
                self._note(Fact(kind=kind, subject=about, value=given, where=where, text=shown))

    def _note(self, fact: Fact) -> None:
        key = (fact.kind, fact.subject, fact.value)
        if key not in self.found and len(self.found) < MOST:
            self.found[key] = fact.replace(text=fact.text.strip())
