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

from .catalog import DIGITS, Message, messages
from .cudnn_calls import Handles
from .model import Fact
from .normalize import filled
from .prefilter import Places
from .stream import AFTER, AHEAD, BEFORE, blocks

PIECE = 1 << 11  # a longer line is read around the places alone
SMALL = 1 << 15  # a log that is shorter than that is read by needles alone: the rest takes time to prepare
IDLE = (512, 16)  # lines of the same messages that were read so often in a row for nothing new: so often in a block
LONG = (256, 4)  # the same of a needle in lines that are longer than PIECE
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
What = bytes | tuple[int, ...]  # a needle, or messages

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


def _all(text: bytes, needle: bytes) -> Iterator[int]:
    """Where a needle begins in a text."""
    at = text.find(needle)
    while at >= 0:
        yield at
        at = text.find(needle, at + 1)


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
        self.needles: dict[tuple[int, ...], tuple[Needles, Needles]] = {}  # by the messages that a line can hold
        self.seen: dict[int, int] = {}  # readings by needle and the window around it without its digits, hashed
        self.idle: dict[What, int] = {}  # readings since it said something new

    def read(self, block: bytes, more: bytes, begin: int, end: int) -> None:
        """The next block, and what is behind it; only what stands between `begin` and `end` counts."""
        if len(self.found) >= MOST:  # nothing is added to these
            return
        self.block, self.more, self.begin, self.end = block, more, begin, end
        self.counted, self.fresh = 0, dict[What, int]()
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
        numbered = places.numbered_in(self.text)
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
            here = accumulate([len(line) + 1 for line in some], initial=0)
            self.starts = [(at, starts[i]) for at, i in zip(here, which, strict=False)]  # one more is behind the last
        return fresh

    def _read(self, places: Places) -> set[int]:
        """The text, line by line; the hashes of the lines that it cannot be done with."""
        text = self.text
        lowered = places.lowered(text)
        of, tests = places.of, places.tests
        kept = set[int]()
        start = stop = 0
        long = False
        some: list[int] = []
        for index, at, _end in places.hits(lowered):
            if at >= stop:
                if some:
                    kept.add(self._read_line(places, lowered, start, stop, some, long=long))
                start = text.rfind(b"\n", stop, at) + 1 or stop
                stop = text.find(b"\n", at)
                stop = len(text) if stop < 0 else stop
                line, some = lowered[start:stop], []
                long = stop - start > PIECE or (self.begin > 0 and not start)
            for number in of[index]:
                if number not in some and (long or tests[number](line)):
                    some.append(number)
        if some:
            kept.add(self._read_line(places, lowered, start, stop, some, long=long))
        return kept

    def _read_line(
        self, places: Places, lowered: bytes, start: int, stop: int, some: list[int], *, long: bool
    ) -> int:
        """A line of the text by the messages that it can hold; its hash without digits, 0 if that is no matter."""
        line = self.text[start:stop]
        origin = start
        if self.starts:
            origin = self.starts[bisect_right(self.starts, (start, len(self.block))) - 1][1]
        if long:
            self._read_long(places, line, lowered[start:stop], some, origin)
            return hash(line.translate(None, DIGITS))
        some.sort()
        which = tuple(some)
        if self._tired(which, IDLE):
            return 0
        key = hash(line.translate(None, DIGITS))
        times = self.times.get(key, 0)
        if len(self.times) >= LINES:  # a log whose lines are all different: begin again
            self.times.clear()
        self.times[key] = times + 1
        if times + 1 >= REPEATS:
            self._pass({key})
        needles = self._needles(which)[times >= REPEATS]
        if not needles:
            return key
        known = len(self.found)
        found = [(at, needle) for needle in needles if (at := line.find(needle)) >= 0]
        found.sort()
        if len(line) <= BEFORE:
            if found:
                self._try(line, [(needle, needles[needle], line.count(needle)) for _at, needle in found], origin)
        else:  # windows differ
            for at, needle in sorted((at, one) for _at, one in found for at in _all(line, one)):
                first = max(0, at - BEFORE)
                self._try(line[first : at + AFTER], [(needle, needles[needle], 1)], origin + first)
        if times < REPEATS:
            self._rest(which, known)
        return key

    def _tired(self, what: What, idle: tuple[int, int]) -> bool:
        """Whether that was read often enough for nothing new."""
        if self.idle.get(what, 0) <= idle[0]:
            return False
        self.fresh[what] = self.fresh.get(what, 0) + 1
        return self.fresh[what] > idle[1]

    def _rest(self, what: What, known: int) -> None:
        """Counts a reading, before which so many facts were known."""
        if len(self.idle) >= LINES:
            self.idle.clear()
        self.idle[what] = 0 if len(self.found) > known else self.idle.get(what, 0) + 1

    def _pass(self, keys: set[int]) -> None:
        if len(self.past) > LINES:
            self.past.clear()
        self.past |= keys

    def _needles(self, some: tuple[int, ...]) -> tuple[Needles, Needles]:
        """The needles of messages, each with those of them that it may stand for; and the numbered ones among them."""
        both = self.needles.get(some)
        if both is None:
            needles: Needles = {}
            for number in some:
                for needle in self.messages[number].needles:
                    needles[needle] = (*needles.get(needle, ()), number)
            numbered = {needle for number in some for needle in self.messages[number].numbered}
            both = needles, {needle: of for needle, of in needles.items() if needle in numbered}
            if len(self.needles) >= SHAPES:
                self.needles.clear()
            self.needles[some] = both
        return both

    def _read_long(self, places: Places, line: bytes, lowered: bytes, some: list[int], origin: int) -> None:
        """A line, or a part of one, by the needles of the messages that it has a place of."""
        begin = 0 if origin else self.begin
        end = self.end if len(line) == len(self.block) else len(line)
        needles, tests = self._needles(tuple(sorted(some)))[0], places.tests
        for at, needle in sorted((at, needle) for at, needle in _places(exact=True).needles(line) if needle in needles):
            if not begin <= at < end or self._tired(needle, LONG):
                continue
            known = len(self.found)
            first, last = max(0, at - BEFORE), at + AFTER
            text = lowered[first:last]
            which = tuple([number for number in needles[needle] if tests[number](text)])
            if which:
                self._try(line[first:last], [(needle, which, 1)], origin + first)
            self._rest(needle, known)

    def _try(self, window: bytes, needles: list[tuple[bytes, tuple[int, ...], int]], start: int) -> None:
        """The messages of needles that stand so many times in a window, which begins there."""
        shape, text, tried = window.translate(None, DIGITS), "", set[int]()
        for needle, some, count in needles:
            key = hash((needle, shape))
            times = self.seen.get(key, 0)
            if times >= REPEATS:
                continue
            if times or len(self.seen) < SHAPES:
                self.seen[key] = times + count
            text = text or _readable(window)
            for number in some:
                if number not in tried:
                    tried.add(number)
                    message = self.messages[number]
                    self._match(message, self._following(message, start, len(window)) if message.lines else text, start)

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
