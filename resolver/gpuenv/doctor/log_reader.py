"""Reads logs of any size in bounded memory, and returns the facts that known messages state.

The prefilter finds the lines that may hold a message. Such a line is searched for the needles of
its messages, and around a needle the pattern is tried, in a window of at most 2000 characters. So
neither the length of a line nor the end of a chunk matters. Color codes are removed first. Prefixes
of ranks and containers stay outside what a pattern reads.

Logs repeat. Lines that differ only in their digits are read `REPEATS` times and then skipped, and
so is what was read often without a new fact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import accumulate, chain, islice

from .catalog import DIGITS, Message, fill, messages
from .cudnn_calls import HandleTracker
from .dates import year_facts
from .failure_words import FailureReader, failure_of_short_text
from .model import MAX_TEXT, Fact
from .pasted import MAX_PASTED, message_lines, restored, split_prefix
from .prefilter import Prefilter
from .stream import AFTER, AHEAD, BEFORE, blocks, cleaned

LONG_LINE = 1 << 11  # bytes; a longer line is read only around its needles
SMALL_LOG = 1 << 15  # bytes; a smaller log is searched for needles alone, without preparation
MAX_REPORT = 1 << 9  # bytes of a text that a person wrote about a failure, rather than a log
SHORT_LINES = 3  # of a text in which a failure of any program counts
REPEATS = 4  # times that lines which differ only in digits are read
MAX_FACTS = 2000  # of one log
_KINDS_OF_GPU = ("gpu", "capability")
# What was read more often than the first number in a row without a new fact is read at most the
# second number of times in a block: messages of a line, and a needle of a long line.
_IDLE_LINE = (512, 16)
_IDLE_NEEDLE = (256, 4)
_RETRY = 16  # blocks after which a search for repeated lines that did not help is tried again
_MAX_WINDOWS = 4096  # windows around needles that are remembered
_MOST_MATCHES = 8  # of a message in a line
_MAX_LINES = 1 << 14  # lines that are remembered, by their hashes

# Progress bars end their lines with carriage returns.
_LINE_ENDS = bytes(10 if byte == 13 else byte for byte in range(256))
_PRINTABLE = bytes(32 if byte < 32 or byte == 127 else byte for byte in range(256))
# Letters that are not ASCII and equal i, s and k if the case is ignored.
_FOLDED_LETTERS = tuple(letter.encode() for letter in "\u0130\u0131\u017f\u212a")

_Numbers = tuple[int, ...]  # of messages
_Needles = dict[bytes, _Numbers]  # each with the messages that it may belong to
_Idle = bytes | _Numbers  # a needle, or the messages of a line

_prefilters: dict[bool, Prefilter] = {}


def read_log(stream: Iterable[bytes | str], *, with_failure: bool = False) -> tuple[Fact, ...]:
    """Return the facts of a log, each once, in the order of their first lines.

    The misuse of cuDNN handles and then the years come last. Of the other facts, the first
    MAX_FACTS are kept.

    Args:
        stream: chunks or lines: text, or bytes in UTF-8 or in UTF-16 with a byte order mark.
            Invalid bytes are replaced.
        with_failure: add the first line that has a failure word, whether a message explains it or
            not, and the causes that the words of such lines suggest.
    """
    chunks = cleaned(stream)
    head = b"".join(_head(chunks))
    facts = _read_parts(head, chunks, with_failure=with_failure)
    return (*facts, *year_facts(head)) if facts else facts


def _read_parts(head: bytes, chunks: Iterable[bytes], *, with_failure: bool) -> tuple[Fact, ...]:
    """Return the facts of a log whose head was read already."""
    if len(head) > MAX_PASTED:
        return _read(chain([head], chunks), with_failure=with_failure)
    readings = [_read([text], with_failure=with_failure) for text in restored(head)]
    if len(head) > MAX_REPORT and not _failures(readings[0]):
        # In a log, lines of different records may show a failure if they are joined.
        return max(readings, key=_explained)  # the first of those with the most facts
    facts = max(readings, key=lambda facts: (_explained(facts), len(_failures(facts))))
    is_short = len(head) <= MAX_REPORT and head.strip().count(b"\n") < SHORT_LINES
    if with_failure and is_short and not _failures(facts):
        names_gpu = any(fact.kind in _KINDS_OF_GPU for fact in facts)
        return (*facts, *failure_of_short_text(head, names_gpu=names_gpu))
    return facts


def _explained(facts: Iterable[Fact]) -> int:
    """Return how many facts messages state."""
    return sum(not _is_of_words(fact) for fact in facts)


def _failures(facts: Iterable[Fact]) -> list[Fact]:
    """Return the failure that words show, and the causes that they suggest."""
    return [fact for fact in facts if _is_of_words(fact)]


def _is_of_words(fact: Fact) -> bool:
    return fact.kind == "suggests" or fact.subject == "unexplained"


def _head(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the first chunks of a log, until they are too long for a log that was pasted."""
    size = 0
    for chunk in chunks:
        yield chunk
        size += len(chunk)
        if size > MAX_PASTED:
            return


def _read(chunks: Iterable[bytes], *, with_failure: bool) -> tuple[Fact, ...]:
    """Return the facts of a log in the form that `stream.cleaned` gives."""
    reader, handles, failures = LogReader(), HandleTracker(), FailureReader()
    for block, following, begin, end in blocks(chunks):
        part = block[begin:end]
        handles.read(part, reader.line)
        if with_failure:
            failures.read(part, reader.line)
        reader.read(block, following, begin, end)
    return (*reader.facts.values(), *handles.facts.values(), *failures.facts)


def _prefilter(*, exact: bool) -> Prefilter:
    if exact not in _prefilters:
        _prefilters[exact] = Prefilter(messages(), exact=exact)
    return _prefilters[exact]


def _line_key(line: bytes) -> int:
    """Return the same number for lines that differ only in digits."""
    return hash(line.translate(None, DIGITS))


def _lines_with(lines: list[bytes], needles: Iterable[bytes]) -> Iterator[int]:
    """Yield the numbers of the lines that hold a needle."""
    for number, line in enumerate(lines):
        if any(needle in line for needle in needles):
            yield number


def _readable(window: bytes) -> str:
    return window.translate(_PRINTABLE).decode("utf-8", "replace")


class LogReader:
    """Reads the blocks of a log one after another.

    Attributes:
        facts: the facts by (kind, subject, value).
        line: the number of the next block's first line.
    """

    def __init__(self, *, small: int = SMALL_LOG) -> None:
        """Prepare for a log's first block; a log below `small` bytes needs no preparation."""
        self.facts: dict[tuple[str, str, str], Fact] = {}
        self.line = 1
        self._small = small
        self._messages = messages()
        self._blocks = 0
        self._lines_repeat = True
        self._line_reads: dict[int, int] = {}  # by line key
        self._finished_lines: set[int] = set()  # keys of lines that need no more reading
        self._window_reads: dict[int, int] = {}  # by needle and window without digits, hashed
        self._idle_reads: dict[_Idle, int] = {}  # readings since the last new fact
        # By the messages of a line: their needles, and those of them with digits.
        self._needles_of: dict[_Numbers, tuple[_Needles, _Needles]] = {}

    def read(self, block: bytes, following: bytes, begin: int, end: int) -> None:
        """Read a block.

        Args:
            following: what follows the block in the log; messages may continue there.
            begin, end: the range of the block in which to search.
        """
        if len(self.facts) >= MAX_FACTS:
            return
        self._block, self._following, self._begin, self._end = block, following, begin, end
        self._counted = 0  # up to here, the lines of the block are in `line`
        self._reads_in_block: dict[_Idle, int] = {}
        self._text = block.translate(_LINE_ENDS) if b"\r" in block else block
        # If lines were removed from the text: where a line begins in the text, and in the block.
        self._origins: list[tuple[int, int]] = []
        prefilter = self._choose_prefilter()
        keys = self._drop_repeated_lines(prefilter)
        self._finish(keys - self._read_lines(prefilter))
        self.line += block.count(b"\n", self._counted)

    def _choose_prefilter(self) -> Prefilter:
        is_whole_log = self.line == 1 and not self._following
        is_small = is_whole_log and len(self._block) < self._small
        # The formulas of patterns are in small letters of ASCII.
        is_folded = not self._text.isascii() and any(
            letter in self._text for letter in _FOLDED_LETTERS
        )
        return _prefilter(exact=is_small or is_folded)

    # ---- lines that repeat ----

    def _drop_repeated_lines(self, prefilter: Prefilter) -> set[int]:
        """Remove the finished lines from the text, except those with a needle that has digits.

        If few lines repeat, this is done for one block in `_RETRY`.

        Returns:
            The keys of the lines that remain.
        """
        self._blocks += 1
        if not self._lines_repeat and self._blocks % _RETRY:
            return set()
        keys = list(map(hash, self._text.translate(None, DIGITS).split(b"\n")))
        fresh = set(keys) - self._finished_lines
        kept: list[int] = []
        if fresh:
            kept = [number for number, key in enumerate(keys) if key in fresh]
        self._lines_repeat = len(kept) * 2 < len(keys)
        numbered = prefilter.numbered_in(self._text)
        lines: list[bytes] = []
        if fresh or numbered:
            lines = self._text.split(b"\n")
        if numbered:
            with_needle = _lines_with(lines, numbered)
            kept = sorted({*kept, *with_needle})
        if not kept or kept[0]:  # the continued first line is not among them
            self._begin = 0
        if len(kept) < len(keys):
            self._keep_lines(lines, kept)
        return fresh

    def _keep_lines(self, lines: list[bytes], kept: list[int]) -> None:
        """Reduce the text to some of its lines."""
        starts = [0, *accumulate(len(line) + 1 for line in lines)]
        kept_lines = [lines[number] for number in kept]
        self._text = b"\n".join(kept_lines)
        new_starts = accumulate((len(line) + 1 for line in kept_lines), initial=0)
        for new_start, number in zip(new_starts, kept, strict=False):
            self._origins.append((new_start, starts[number]))

    def _finish(self, keys: set[int]) -> None:
        """Remember that these lines need not be read again."""
        if len(self._finished_lines) > _MAX_LINES:
            self._finished_lines.clear()
        self._finished_lines |= keys

    def _is_idle(self, what: _Idle, limits: tuple[int, int]) -> bool:
        """Whether something was read often enough without a new fact."""
        in_a_row, in_a_block = limits
        if self._idle_reads.get(what, 0) <= in_a_row:
            return False
        self._reads_in_block[what] = self._reads_in_block.get(what, 0) + 1
        return self._reads_in_block[what] > in_a_block

    def _count_reading(self, what: _Idle, facts_before: int) -> None:
        """Count a reading of a line or a needle, and whether it found a new fact."""
        if len(self._idle_reads) >= _MAX_LINES:
            self._idle_reads.clear()
        if len(self.facts) > facts_before:
            self._idle_reads[what] = 0
        else:
            self._idle_reads[what] = self._idle_reads.get(what, 0) + 1

    # ---- lines ----

    def _read_lines(self, prefilter: Prefilter) -> set[int]:
        """Read the lines of the text that may hold messages.

        Returns:
            The keys of these lines. They are finished only after enough readings.
        """
        text = self._text
        lowered = prefilter.lowered(text)
        messages_of, tests = prefilter.messages_of, prefilter.tests
        unfinished = set[int]()
        start = stop = 0
        is_long = False
        numbers: list[int] = []
        for index, place, _end in prefilter.hits(lowered):
            if place >= stop:  # the first literal of the next line
                if numbers:
                    unfinished.add(self._read_line(prefilter, lowered, start, stop, numbers))
                start = text.rfind(b"\n", stop, place) + 1 or stop
                stop = text.find(b"\n", place)
                stop = len(text) if stop < 0 else stop
                line, numbers = lowered[start:stop], []
                is_long = self._is_long(start, stop)
            for number in messages_of[index]:
                if number not in numbers and (is_long or tests[number](line)):
                    numbers.append(number)
        if numbers:
            unfinished.add(self._read_line(prefilter, lowered, start, stop, numbers))
        return unfinished

    def _is_long(self, start: int, stop: int) -> bool:
        """Whether a line is read around its needles only; pieces of a longer line are, too."""
        return stop - start > LONG_LINE or (self._begin > 0 and not start)

    def _read_line(
        self, prefilter: Prefilter, lowered: bytes, start: int, stop: int, numbers: list[int]
    ) -> int:
        """Read a line of the text for messages, and return its key, or 0 if none is needed."""
        line = self._text[start:stop]
        origin = start
        if self._origins:
            place = bisect_right(self._origins, (start, len(self._block))) - 1
            origin = self._origins[place][1]
        if self._is_long(start, stop):
            self._read_long_line(prefilter, line, lowered[start:stop], numbers, origin)
            return _line_key(line)
        numbers.sort()
        in_line = tuple(numbers)
        if self._is_idle(in_line, _IDLE_LINE):
            return 0
        key = _line_key(line)
        reads = self._line_reads.get(key, 0)
        if len(self._line_reads) >= _MAX_LINES:  # all lines of the log differ: start again
            self._line_reads.clear()
        self._line_reads[key] = reads + 1
        if reads + 1 >= REPEATS:
            self._finish({key})
        needles, needles_with_digits = self._needles(in_line)
        if reads >= REPEATS:
            needles = needles_with_digits
        if needles:
            facts_before = len(self.facts)
            self._try_needles(line, needles, origin)
            if reads < REPEATS:
                self._count_reading(in_line, facts_before)
        return key

    def _try_needles(self, line: bytes, needles: _Needles, origin: int) -> None:
        """Try the messages of the needles, in the order of the needles in the line."""
        places = _prefilter(exact=True).needles(line, needles)
        if len(line) <= BEFORE:  # all windows are the whole line
            counts = Counter(needle for _place, needle in places)
            if counts:
                counted = [(needle, needles[needle], count) for needle, count in counts.items()]
                self._try_window(line, counted, origin)
            return
        for place, needle in places:
            first = max(0, place - BEFORE)
            window = line[first : place + AFTER]
            self._try_window(window, [(needle, needles[needle], 1)], origin + first)

    def _needles(self, numbers: _Numbers) -> tuple[_Needles, _Needles]:
        """Return the needles of messages, and those of them with digits."""
        known = self._needles_of.get(numbers)
        if known is not None:
            return known
        needles: _Needles = {}
        numbered = set[bytes]()
        for number in numbers:
            message = self._messages[number]
            numbered.update(message.numbered)
            for needle in message.needles:
                needles[needle] = (*needles.get(needle, ()), number)
        with_digits = {needle: needles[needle] for needle in needles if needle in numbered}
        if len(self._needles_of) >= _MAX_WINDOWS:
            self._needles_of.clear()
        self._needles_of[numbers] = needles, with_digits
        return needles, with_digits

    def _read_long_line(
        self, prefilter: Prefilter, line: bytes, lowered: bytes, numbers: list[int], origin: int
    ) -> None:
        """Read a long line, or a piece of one, around the needles of the messages."""
        begin = 0 if origin else self._begin
        end = self._end if len(line) == len(self._block) else len(line)
        needles, _with_digits = self._needles(tuple(sorted(numbers)))
        for place, needle in _prefilter(exact=True).needles(line, needles):
            if not begin <= place < end or self._is_idle(needle, _IDLE_NEEDLE):
                continue
            facts_before = len(self.facts)
            first, last = max(0, place - BEFORE), place + AFTER
            window = lowered[first:last]
            matching = tuple(
                [number for number in needles[needle] if prefilter.tests[number](window)]
            )
            if matching:
                self._try_window(line[first:last], [(needle, matching, 1)], origin + first)
            self._count_reading(needle, facts_before)

    # ---- messages ----

    def _try_window(
        self, window: bytes, needles: list[tuple[bytes, _Numbers, int]], start: int
    ) -> None:
        """Try messages in a window of the block.

        Args:
            needles: (needle, its messages, how often it is in the window).
            start: where the window begins in the block.
        """
        shape, text, tried = window.translate(None, DIGITS), "", set[int]()
        for needle, numbers, count in needles:
            key = hash((needle, shape))
            reads = self._window_reads.get(key, 0)
            if reads >= REPEATS:
                continue
            if reads or len(self._window_reads) < _MAX_WINDOWS:
                self._window_reads[key] = reads + count
            text = text or _readable(window)
            for number in numbers:
                if number not in tried:
                    tried.add(number)
                    message = self._messages[number]
                    searched = text
                    if message.lines:
                        searched = self._with_lines(message, start, len(window))
                    self._match(message, searched, start)

    def _with_lines(self, message: Message, start: int, size: int) -> str:
        """Return a window together with the following lines of a message."""
        end = start + size + AHEAD
        text = self._block[start:end]
        if end > len(self._block):
            text += self._following[: end - len(self._block)]
        first, *others = text.replace(b"\r\n", b"\n").split(b"\n")
        begin = self._block.rfind(b"\n", 0, start) + 1
        source, _line = split_prefix(self._block[begin : start + size])
        lines = [first, *message_lines(others, message.lines, source)]
        return _readable(b" ".join(lines)[: BEFORE + AFTER])

    def _match(self, message: Message, text: str, start: int) -> None:
        """Note the facts of a message: of the first match of its pattern, or of every one."""
        match = message.compiled().search(text)
        if match is None:
            return
        if start > self._counted:
            self.line += self._block.count(b"\n", self._counted, start)
            self._counted = start
        shown = text
        if len(text) > MAX_TEXT:
            shown = text[max(0, match.start() - 60) :][:MAX_TEXT]
        if message.cause:
            self._note(message.sure, message.cause, message.name, shown)
        matches = [match]
        if message.every:
            matches = list(islice(message.compiled().finditer(text), _MOST_MATCHES))
        for kind, subject, template in message.facts:
            for match in matches:
                value = fill(template, match)
                if value or not template:
                    self._note(kind, fill(subject, match), value, shown)

    def _note(self, kind: str, subject: str, value: str, shown: str) -> None:
        key = (kind, subject, value)
        if key not in self.facts and len(self.facts) < MAX_FACTS:
            where = f"log line {self.line}"
            self.facts[key] = Fact(
                kind=kind, subject=subject, value=value, where=where, text=shown.strip()
            )
