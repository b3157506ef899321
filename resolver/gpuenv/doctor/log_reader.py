"""Reads logs of any size in bounded memory, and returns the facts that messages state.

One search finds the needles of all messages. Around a needle, the pattern of its message is tried
in the line, or in a window of a long line. So neither the length of a line nor the end of a chunk
matters. Lines that differ only in their digits are read `REPEATS` times.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import accumulate, groupby, islice

from .catalog import Message, fill, messages
from .cudnn_calls import HandleTracker
from .model import MAX_TEXT, Fact
from .pasted import MAX_PASTED, message_lines, restored, split_prefix
from .stream import AFTER, BEFORE, blocks, cleaned, find_all, with_head

LONG_LINE = 1 << 11  # bytes; a longer line is read only around its needles
REPEATS = 8  # times that lines which differ only in digits are read
MAX_FACTS = 2000  # of one log
_MOST_MATCHES = 8  # of a message in a line
_MOST_LINES = 40  # after a line, in which the other lines of its message are
# What people's sentences lack: times, paths, brackets, assignments, dotted names, listings.
_PRINTED = re.compile(
    rb"(?m)^(?:\s{2,}|[#>$|*+-])|\d[:.]\d\d|\w/\w|"
    rb"\S {2,}\S|[\[\]{}<>=|]|\w\(|\w\.\w|0x|[\w)]: |^\s*\w+$"
)
_IDLE = 400  # readings of long lines without a new fact, after which a message is not read there
_MAX_KEYS = 1 << 16  # windows that are remembered, by their hashes
_DIGITS = b"0123456789"

# Progress bars end their lines with carriage returns.
_LINE_ENDS = bytes(10 if byte == 13 else byte for byte in range(256))
_PRINTABLE = bytes(32 if byte < 32 or byte == 127 else byte for byte in range(256))

Places = Sequence[tuple[int, int, int]]  # (number of the needle, begin, end), ordered by ends


def read_log(stream: Iterable[bytes | str]) -> tuple[Fact, ...]:
    """Return the facts of a log, each once, in the order of their first lines.

    The misuse of cuDNN handles comes last. Of the other facts, the first MAX_FACTS are kept. A log
    that may have been pasted is read in each form that it may have had before, and the form with
    the most facts counts. A text that no program can have printed gives the fact "words", too.

    Args:
        stream: chunks or lines: text, or bytes in UTF-8 or in UTF-16 with a byte order mark.
            Invalid bytes are replaced.
    """
    head, chunks = with_head(cleaned(stream), MAX_PASTED + 1)
    if len(head) > MAX_PASTED:
        return _read(chunks)
    # Lines of different records, if they are joined, may look like a failure.
    facts = max(
        (_read([text]) for text in restored(head)),
        key=lambda facts: sum(fact.kind != "symptom" for fact in facts),
    )
    if head.strip() and not _PRINTED.search(head):
        return (*facts, Fact(kind="words", where="log", text=_readable(head.strip())[:MAX_TEXT]))
    return facts


def _read(chunks: Iterable[bytes]) -> tuple[Fact, ...]:
    reader, handles = LogReader(), HandleTracker()
    for block, following, begin, end in blocks(chunks):
        handles.read(block[begin:end], reader.line)
        reader.read(block, following, begin, end)
    return (*reader.facts.values(), *handles.facts.values())


# ---- the search ---------------------------------------------------------------------------------


def literal_search(literals: Sequence[bytes]) -> Callable[[bytes], Places]:
    """Return a function that finds all occurrences of literals in a text, overlapping ones too."""
    try:
        module = import_module("ahocorasick_rs")
    except ImportError:  # it has no wheel for every Python
        return lambda text: sorted(_find_each(literals, text), key=lambda place: place[2])
    automaton = module.BytesAhoCorasick(
        literals, implementation=module.Implementation.ContiguousNFA
    )
    return lambda text: automaton.find_matches_as_indexes(text, overlapping=True)


def _find_each(literals: Sequence[bytes], text: bytes) -> Iterator[tuple[int, int, int]]:
    for index, literal in enumerate(literals):
        for begin in find_all(text, literal):
            yield index, begin, begin + len(literal)


@cache
def _search() -> tuple[Callable[[bytes], Places], list[tuple[int, ...]]]:
    """Return the search for all needles, and for each needle the numbers of its messages."""
    numbers: dict[bytes, list[int]] = {}
    for number, message in enumerate(messages()):
        for needle in message.needles:
            numbers.setdefault(needle, []).append(number)
    return literal_search(list(numbers)), [tuple(of_needle) for of_needle in numbers.values()]


def _readable(window: bytes) -> str:
    return window.translate(_PRINTABLE).decode("utf-8", "replace")


class LogReader:
    """Reads the blocks of a log one after another.

    Attributes:
        facts: the facts by (kind, subject, value).
        line: the number of the next block's first line.
    """

    def __init__(self) -> None:
        """Prepare for a log's first block."""
        self.facts: dict[tuple[str, str, str], Fact] = {}
        self.line = 1
        self._find, self._numbers = _search()
        self._messages = messages()
        # By message: readings of long lines since its last fact.
        self._idle: Counter[int] = Counter()
        self._done: set[int] = set()  # numbers of messages that are read once
        # By the hash of a window without digits, and its needles.
        self._reads: Counter[int] = Counter()

    def read(self, block: bytes, following: bytes, begin: int, end: int) -> None:
        """Read a block.

        Args:
            following: what follows the block in the log; messages may continue there.
            begin, end: the range of the block in which to search.
        """
        text = block.translate(_LINE_ENDS) if b"\r" in block else block
        self._block, self._lines, self._following = block, text.split(b"\n"), following
        if len(self.facts) < MAX_FACTS:
            starts = self._starts = [0, *accumulate(len(line) + 1 for line in self._lines)]
            found = (place for place in self._find(text) if begin <= place[1] < end)
            for number, places in groupby(found, lambda place: bisect_right(starts, place[1]) - 1):
                self._read_line(number, starts[number], places)
        self.line += block.count(b"\n")

    def _read_line(self, number: int, at: int, places: Iterable[tuple[int, int, int]]) -> None:
        """Read a line, or the windows around the needles of a long line.

        Args:
            at: where the line begins in its block.
            places: the needles in the line.
        """
        line, start, stop = self._lines[number], 0, 0
        if len(line) <= LONG_LINE:
            self._read_window(number, 0, len(line), [needle for needle, _, _ in places])
            return
        needles: list[int] = []
        for needle, begin, end in places:
            if end - at > stop:
                if needles:
                    self._read_window(number, start, stop, needles)
                start, stop, needles = max(begin - at - BEFORE, 0), begin - at + AFTER, []
            needles.append(needle)
        self._read_window(number, start, stop, needles)

    def _read_window(self, line: int, start: int, stop: int, needles: list[int]) -> None:
        """Read a window, unless those that differ only in digits were read often enough."""
        window = self._lines[line][start:stop]
        is_part = len(self._lines[line]) > LONG_LINE
        key = hash((window.translate(None, _DIGITS), *needles))
        if len(self._reads) > _MAX_KEYS:
            self._reads.clear()
        self._reads[key] += 1
        is_often = self._reads[key] > REPEATS
        for number in sorted({number for needle in needles for number in self._numbers[needle]}):
            message = self._messages[number]
            if (is_often and not message.numbers) or number in self._done:
                continue
            if is_part and self._idle[number] > _IDLE:
                continue
            before = len(self.facts)
            if message.lines:
                text = self._with_lines(message, line, start, stop)
            else:
                text = _readable(window)
            if self._match(message, text, line) and message.once:
                self._done.add(number)
            if is_part:
                self._idle[number] = 0 if len(self.facts) > before else self._idle[number] + 1

    def _with_lines(self, message: Message, line: int, start: int, stop: int) -> str:
        """Return a window together with the following lines of a message."""
        whole = self._lines[line]
        others = self._lines[line + 1 : line + 1 + _MOST_LINES]
        if len(others) < _MOST_LINES:
            following = self._following.translate(_LINE_ENDS).split(b"\n")
            others = [*others, *following][:_MOST_LINES]
        source, _line = split_prefix(whole)
        lines = [whole[start:stop], *message_lines(others, message.lines, source)]
        return _readable(b" ".join(lines)[: BEFORE + AFTER])

    def _match(self, message: Message, text: str, line: int) -> bool:
        """Note the facts of a message: of the first match of its pattern, or of every one.

        Returns:
            Whether the pattern matches.
        """
        matches = [
            *islice(message.compiled().finditer(text), _MOST_MATCHES if message.every else 1)
        ]
        for match in matches:
            shown = text
            if len(text) > MAX_TEXT:
                shown = text[max(0, match.start() - 60) :][:MAX_TEXT]
            for kind, subject, template in message.facts:
                value = fill(template, match)
                if template and not value:
                    continue
                key = (kind, fill(subject, match), value)
                if key in self.facts or len(self.facts) >= MAX_FACTS:
                    continue
                # Carriage returns end no line of a file.
                number = self.line + self._block.count(b"\n", 0, self._starts[line])
                self.facts[key] = Fact(
                    kind=kind,
                    subject=key[1],
                    value=value,
                    where=f"log line {number}",
                    text=shown.strip(),
                )
        return bool(matches)
