"""The reader of logs: any amount of text, in bounded memory, to the facts that its machine-made messages state.

The places where messages may stand are found in whole blocks at once (see places.py). Logs repeat, and where they do
not, their lines still say the same with other numbers: a line with such a place is read if its like was not read a few
times already. In such a line the needles of the messages are looked for, and where one stands the pattern is tried, in
a window of at most two thousand characters. A line's length is no matter, nor is where a chunk ends; colour codes are
taken out first, and a rank's or a container's prefix stands outside of what the pattern reads.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import accumulate

from .catalogue import Message, messages
from .chunks import AFTER, AHEAD, BEFORE, blocks
from .forms import filled
from .handles import Handles
from .model import Fact
from .places import DIGITS, Places, numbered

PIECE = 1 << 11  # a longer line is read around the places alone
SMALL = 1 << 15  # a log that is shorter than that is read by needles alone: the rest takes time to prepare
IDLE = (512, 16)  # a needle that was read so often in a row for nothing new is read so often in a block
LONG = (256, 4)  # the same in lines that are longer than PIECE
REPEATS = 4  # readings of lines that differ in their digits only
SELDOM = 16  # blocks: so often it is tried again what did not help
SHAPES = 4096  # needles with such lines around them that are remembered
LINES = 1 << 14  # such lines that are remembered, by their hashes
MOST = 2000  # facts of one log
SHOWN = 300  # characters of a fact's text

_ENDS = bytes(10 if c == 13 else c for c in range(256))  # a bar of progress is many lines, too
_SPACED = bytes(32 if c < 32 or c == 127 else c for c in range(256))
_FOLDED = tuple(c.encode() for c in "\u0130\u0131\u017f\u212a")  # letters of no ASCII that are i, s and k in any case

Needles = dict[bytes, tuple[int, ...]]  # each with the messages that it may stand for, by their numbers
_PLACES: dict[bool, Places] = {}


def _places(*, exact: bool) -> Places:
    if exact not in _PLACES:
        _PLACES[exact] = Places(messages(), exact=exact)
    return _PLACES[exact]


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


def _all(text: bytes, needle: bytes, begin: int, end: int) -> Iterator[int]:
    """Where a needle begins in a text between two places."""
    last = end + len(needle) - 1
    at = text.find(needle, begin, last)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1, last)


def _readable(window: bytes) -> str:
    return window.translate(_SPACED).decode("utf-8", "replace")


class Reader:
    """Reads blocks one after the other; `found` are the facts, by what they say."""

    def __init__(self, *, small: int = SMALL) -> None:
        self.found: dict[tuple[str, str, str], Fact] = {}
        self.line = 1
        self.small = small
        self.messages = messages()
        self.times: dict[int, int] = {}  # readings of lines without their digits, hashed
        self.past: set[int] = set()  # those that were read REPEATS times, or hold nothing
        self.repeats, self.blocks = True, 0
        self.needles: dict[tuple[int, ...], Needles] = {}  # by the messages that a line can hold
        self.seen: dict[int, int] = {}  # readings by needle and the window around it without its digits, hashed
        self.idle: dict[bytes, int] = {}  # readings of each needle since it said something new

    def read(self, block: bytes, more: bytes, begin: int, end: int) -> None:
        """The next block, and what is behind it; only what stands between `begin` and `end` counts."""
        if len(self.found) >= MOST:  # nothing is added to these
            return
        self.block, self.more, self.begin, self.end = block, more, begin, end
        self.counted, self.fresh = 0, dict[bytes, int]()
        self.text = block.translate(_ENDS) if b"\r" in block else block
        self.starts: list[tuple[int, int]] = []  # of the lines of the text in it and in the block, if they differ
        small = self.line == 1 and len(block) < self.small and not more
        # What is said of small letters is said of ASCII's.
        folded = not self.text.isascii() and any(letter in self.text for letter in _FOLDED)
        places = _places(exact=small or folded)
        keys = self._unread(places)
        kept = self._read(places) if self.text else set()
        self._pass(keys - kept)
        self.line += block.count(b"\n", self.counted)

    def _unread(self, places: Places) -> set[int]:
        """Leaves of the text the lines that were not read often enough; their hashes without digits.

        Where few lines repeat it is seldom looked at.
        """
        self.blocks += 1
        if not self.repeats and self.blocks % SELDOM:
            return set()
        keys = list(map(hash, self.text.translate(None, DIGITS).split(b"\n")))
        fresh = set(keys) - self.past
        numbered = places.numbered(self.text)
        lines = self.text.split(b"\n") if fresh or numbered else []
        which = [i for i, key in enumerate(keys) if key in fresh] if fresh else []
        self.repeats = len(which) * 2 < len(keys)
        if numbered:
            which = [i for i, key in enumerate(keys) if key in fresh or any(one in lines[i] for one in numbered)]
        if not which or which[0]:  # the rest of a long line is not among them
            self.begin = 0
        if len(which) < len(keys):
            starts = [0, *accumulate([len(line) + 1 for line in lines])]
            some = [lines[i] for i in which]
            self.text = b"\n".join(some)
            self.starts = list(zip(accumulate([len(line) + 1 for line in some], initial=0), [starts[i] for i in which]))
        return fresh

    def _read(self, places: Places) -> set[int]:
        """The text, line by line; the hashes of the lines that it cannot be done with."""
        text = self.text
        lowered = places.lowered(text)
        of, tests = places.of, places.tests
        kept = set[int]()
        start = stop = 0
        some: list[int] = []
        here: list[tuple[int, int]] = []
        for index, at, _end in places.hits(lowered):
            if at >= stop:
                if some or here:
                    kept.add(self._read_line(places, lowered, start, stop, some, here))
                start = text.rfind(b"\n", stop, at) + 1 or stop
                stop = text.find(b"\n", at)
                stop = len(text) if stop < 0 else stop
                line, some, here = lowered[start:stop], [], []
                long = stop - start > PIECE or (self.begin and not start)
            if long:
                here.append((index, at))
            else:
                for number in of[index]:
                    if tests[number](line) and number not in some:
                        some.append(number)
        if some or here:
            kept.add(self._read_line(places, lowered, start, stop, some, here))
        return kept

    def _read_line(
        self, places: Places, lowered: bytes, start: int, stop: int, some: list[int], here: list[tuple[int, int]]
    ) -> int:
        """A line of the text by the messages that it can hold, or a long one by its places; its hash."""
        line = self.text[start:stop]
        key = hash(line.translate(None, DIGITS))
        origin = start
        if self.starts:
            before, origin = self.starts[bisect_right(self.starts, (start, len(self.block))) - 1]
        if here:
            self._read_long(places, line, lowered[start:stop], [(index, at - start) for index, at in here], origin)
            return key
        times = self.times.get(key, 0)
        if len(self.times) >= LINES:  # a log whose lines are all different: begin again
            self.times.clear()
        self.times[key] = times + 1
        needles = self._needles(tuple(sorted(some)))
        if times >= REPEATS:
            needles = {needle: of for needle, of in needles.items() if numbered(needle)}
        found = [(at, needle) for needle in needles if (at := line.find(needle)) >= 0]
        found.sort()
        if len(line) <= BEFORE:
            if found:
                self._try(line, [(needle, needles[needle], line.count(needle)) for _at, needle in found], origin)
        else:  # windows differ
            for at, needle in sorted((at, needle) for _at, needle in found for at in _all(line, needle, 0, len(line))):
                first = max(0, at - BEFORE)
                self._try(line[first : at + AFTER], [(needle, needles[needle], 1)], origin + first)
        if times + 1 >= REPEATS:
            self._pass({key})
        return key

    def _pass(self, keys: set[int]) -> None:
        if len(self.past) > LINES:
            self.past.clear()
        self.past |= keys

    def _needles(self, some: tuple[int, ...]) -> Needles:
        """The needles of messages, each with those of them that it may stand for."""
        needles = self.needles.get(some)
        if needles is None:
            needles = {}
            for number in some:
                for needle in self.messages[number].needles:
                    needles[needle] = (*needles.get(needle, ()), number)
            if len(self.needles) >= SHAPES:
                self.needles.clear()
            self.needles[some] = needles
        return needles

    def _read_long(
        self, places: Places, line: bytes, lowered: bytes, here: list[tuple[int, int]], origin: int
    ) -> None:
        """A line, or a part of one, by what stands around its places: a needle is in one window with a place."""
        begin = self.begin if not origin else 0
        end = self.end if len(line) == len(self.block) else len(line)
        done = dict[int, int]()
        found: dict[tuple[int, bytes], list[int]] = {}
        for index, place in here:
            for number in places.of[index]:
                first = max(done.get(number, begin), place - AFTER)
                last = done[number] = min(place + BEFORE + 1, end)
                for needle in self.messages[number].needles:
                    for at in _all(line, needle, first, last):
                        found.setdefault((at, needle), []).append(number)
        for at, needle in sorted(found):
            if self.idle.get(needle, 0) > LONG[0] and self.fresh.get(needle, 0) >= LONG[1]:
                continue
            first, last = max(0, at - BEFORE), at + AFTER
            text = lowered[first:last]
            some = tuple([number for number in sorted(found[at, needle]) if places.tests[number](text)])
            self._try(line[first:last], [(needle, some, 1)], origin + first, LONG)

    def _try(
        self,
        window: bytes,
        needles: list[tuple[bytes, tuple[int, ...], int]],
        start: int,
        idle: tuple[int, int] = IDLE,
    ) -> None:
        """The messages of needles that stand so many times in a window, which begins there."""
        text, shape, tried = "", b"", set[int]()
        for needle, some, count in needles:
            if self.idle.get(needle, 0) > idle[0]:
                self.fresh[needle] = self.fresh.get(needle, 0) + 1
                if self.fresh[needle] > idle[1]:
                    continue
            shape = shape or window.translate(None, DIGITS)
            key = hash((needle, shape))
            times = self.seen.get(key, 0)
            if times >= REPEATS:
                continue
            if times or len(self.seen) < SHAPES:
                self.seen[key] = times + count
            text = text or _readable(window)
            before = len(self.found)
            for number in some:
                if number not in tried:
                    tried.add(number)
                    message = self.messages[number]
                    self._match(message, self._following(message, start, len(window)) if message.lines else text, start)
            self.idle[needle] = 0 if len(self.found) > before else self.idle.get(needle, 0) + 1

    def _following(self, message: Message, start: int, size: int) -> str:
        """A window with the lines behind it that belong to a message."""
        text = self.block[start : start + size + AHEAD]
        if len(text) < size + AHEAD:
            text += self.more
        lines = text.replace(b"\r\n", b"\n").split(b"\n", message.lines + 1)[: message.lines + 1]
        return _readable(b" ".join(lines)[: BEFORE + AFTER])

    def _match(self, message: Message, text: str, start: int) -> None:
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
