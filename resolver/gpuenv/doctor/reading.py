"""The reader of logs: any amount of text, in bounded memory, to the facts that its machine-made messages state.

Logs repeat. So a block is split into lines without their digits, and what was read a few times already is left alone:
that costs as much as a copy of the block. A line that is new is split into words; only where it holds a word of a
message are that message's needles looked for in it, and only where a needle stands is a pattern tried, in a window of
a few thousand characters. A line's length is no matter, and a colour code, a rank's or a container's prefix stands
outside of what the pattern reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from .catalogue import Message, messages
from .model import Fact
from .statuses import cuda_of, cudnn_of

BLOCK = 1 << 18  # characters of text that are looked at together; a longer line is read in pieces
PIECE = 1 << 14  # of a long line, split into words at once
AHEAD = 4096  # what may belong to a message that begins before it
BEFORE, AFTER = 400, 1600  # the window around a needle
HITS = 256  # of one needle in one block: what repeats more often than that says nothing new
IDLE, FEW = 512, 8  # a needle that was read so often in a row for nothing new is read so often in a block
REPEATS = 4  # readings of lines that differ in their digits only
SHAPES = 4096  # needles with such lines around them that are remembered
LINES = 1 << 14  # such lines that are remembered, by their hashes
MOST = 2000  # facts of one log
SHOWN = 300  # characters of a fact's text

_LETTERS = bytes((c | 32) if 65 <= c <= 90 else c if 97 <= c <= 122 else 32 for c in range(256))
_ENDS = bytes(10 if c == 13 else c for c in range(256))  # a bar of progress is many lines, too
_WHOLE = re.compile(rb"(?<= )[a-z]+(?= )")  # a needle's words that it holds with what stands around them
_DIGITS = b"0123456789"
_COLOUR = re.compile(rb"(?:\x1b|\\u001b|\\x1b|\\033|\^\[)\[[0-9;?]{0,24}[A-Za-z]")
_NOISE = re.compile(r"[\x00-\x1f\x7f]+")
_SIZES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "b": 1}
_FIELD = re.compile(r"\{(\d)(?:\|(\w+))?\}")


def read_log(stream: Iterable[bytes | str]) -> tuple[Fact, ...]:
    """The facts of a log, each once, in the order of their first lines.

    `stream` gives chunks or lines, bytes (UTF-8, or UTF-16 with its mark; what is neither is replaced) or text. Memory
    is bounded whatever the log's size and its lines' lengths; at most MOST facts are kept, the first ones.
    """
    reader = _Reader()
    for block, more in _blocks(_bytes(stream)):
        reader.read(block, more)
    return tuple(reader.found.values())


def _bytes(stream: Iterable[bytes | str]) -> Iterator[bytes]:
    """Chunks as UTF-8, at most BLOCK characters each."""
    decode = None
    first = True
    for chunk in stream:
        raw = chunk.encode("utf-8", "replace") if isinstance(chunk, str) else chunk
        if first and raw:
            first = False
            if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):  # what a PowerShell of Windows writes
                import codecs

                decode = codecs.getincrementaldecoder("utf-16")("replace").decode
        for at in range(0, len(raw), BLOCK):
            piece = raw[at : at + BLOCK]
            yield decode(piece).encode("utf-8", "replace") if decode else piece


def _blocks(chunks: Iterator[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """(whole lines, what follows them): the second holds a few thousand characters unless the log ends.

    The pieces of a line that is longer than a block overlap by a window, so that no message is cut.
    """
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        parts.append(chunk)
        size += len(chunk)
        if size < BLOCK + AHEAD:
            continue
        kept = b"".join(parts)
        while len(kept) >= BLOCK + AHEAD:
            end = kept.rfind(b"\n", 0, BLOCK) + 1
            begin = end or BLOCK - BEFORE - AFTER
            end = end or BLOCK
            yield kept[:end], kept[end : end + AHEAD]
            kept = kept[begin:]
        parts, size = [kept], len(kept)
    if size:
        yield b"".join(parts), b""


class _Reader:
    def __init__(self) -> None:
        self.found: dict[tuple[str, str, str], Fact] = {}
        self.line = 1
        self.seen: dict[bytes, int] = {}  # readings by needle and the line around it without its digits
        self.times: dict[int, int] = {}  # readings by the hash of a line without its digits
        self.done: set[int] = set()  # those that were read REPEATS times
        self.needles: dict[bytes, list[Message]] = {}
        self.words: dict[bytes, set[bytes]] = {}
        self.whole: dict[bytes, frozenset[bytes]] = {}
        self.runs: dict[bytes, bytes] = {}  # the longest run of letters of each
        self.idle: dict[bytes, int] = {}  # readings of each since it said something new
        self.sought: dict[frozenset[bytes], tuple[bytes, ...]] = {}  # needles by the words of a line
        for message in messages():
            for needle in message.needles:
                self.needles.setdefault(needle, []).append(message)
                self.whole[needle] = whole = frozenset(_WHOLE.findall(needle.translate(_LETTERS)))
                self.runs[needle] = max(needle.translate(_LETTERS).split(), key=len)
                for word in [max(sorted(whole), key=len)] if whole else message.words:
                    self.words.setdefault(word, set()).add(needle)
        self.known = frozenset(self.words)
        # Lines that differ in their digits only may differ in these: they are looked for everywhere.
        self.numbered = tuple(needle for needle in self.needles if needle != needle.translate(None, _DIGITS))

    def read(self, block: bytes, more: bytes) -> None:
        keys = list(map(hash, block.translate(_ENDS, _DIGITS).split(b"\n")))
        fresh = set(keys) - self.done
        numbered = [needle for needle in self.numbered if needle in block]
        if fresh or numbered:
            self._look(_plain(block), more, keys, fresh, numbered)
        self.line += block.count(b"\n")

    def _look(self, block: bytes, more: bytes, keys: list[int], fresh: set[int], numbered: list[bytes]) -> None:
        """Finds the needles in the lines whose keys are fresh, and reads what is around them, in their order."""
        hits: dict[int, set[bytes]] = {}
        counts = {needle: HITS - FEW for needle, times in self.idle.items() if times > IDLE}
        for needle in numbered:
            _places(block, needle, 0, hits, counts)
        if fresh:
            at = 0
            for key, line in zip(keys, block.translate(_ENDS).split(b"\n"), strict=True):
                if key in fresh and self._once_more(key):
                    if len(line) <= PIECE:
                        self._seek(line, at, hits, counts)
                    else:
                        for begin in range(0, len(line), PIECE):
                            self._seek(line[begin : begin + PIECE + BEFORE], at + begin, hits, counts)
                at += len(line) + 1
        number, last = self.line, 0
        for at in sorted(hits):
            number += block.count(b"\n", last, at)
            last = at
            self._try(block, more, at, hits[at], number)

    def _once_more(self, key: int) -> bool:
        """Whether a line is to be read; counts its readings."""
        times = self.times.get(key, 0) + 1
        if times > REPEATS:
            return False
        if len(self.times) >= LINES:  # a log whose lines are all different: begin again
            self.times.clear()
            self.done.clear()
        self.times[key] = times
        if times == REPEATS:
            self.done.add(key)
        return True

    def _seek(self, line: bytes, begin: int, hits: dict[int, set[bytes]], counts: dict[bytes, int]) -> None:
        """Notes where needles stand in a line that begins there, if it has words of theirs."""
        every = frozenset(line.translate(_LETTERS).split())
        words = self.known & every
        if not words:
            return
        needles = self.sought.get(words)
        if needles is None:
            if len(self.sought) >= SHAPES:
                self.sought.clear()
            needles = tuple(set().union(*(self.words[word] for word in words)).difference(self.numbered))
            self.sought[words] = needles
        if len(line) > BEFORE:  # where to look at its vocabulary is cheaper than to look for a needle
            text = b" ".join(every)
            needles = tuple(one for one in needles if self.whole[one] <= every and self.runs[one] in text)
        for needle in needles:
            if needle in line:
                _places(line, needle, begin, hits, counts)

    def _try(self, block: bytes, more: bytes, at: int, needles: set[bytes], line: int) -> None:
        begin = max(block.rfind(b"\n", max(0, at - BEFORE), at) + 1, at - BEFORE, 0)
        stop = block.find(b"\n", at, at + AFTER)
        end = stop if stop >= 0 else min(len(block), at + AFTER)
        window = block[begin:end]
        shape = window.translate(None, _DIGITS)
        for needle in sorted(needles):
            key = needle + b"\0" + shape
            times = self.seen.get(key, 0)
            if times >= REPEATS or (not times and len(self.seen) >= SHAPES and len(self.found) >= MOST):
                continue
            if times or len(self.seen) < SHAPES:
                self.seen[key] = times + 1
            before = len(self.found)
            for message in self.needles[needle]:
                raw = window
                if message.lines:
                    following = (block[begin : end + AHEAD] + more[:AHEAD]).split(b"\n", message.lines + 1)
                    raw = b" ".join(following[: message.lines + 1])[: BEFORE + AFTER]
                self._match(message, _NOISE.sub(" ", raw.decode("utf-8", "replace")), line)
            self.idle[needle] = self.idle.get(needle, 0) + 1 if len(self.found) == before else 0

    def _match(self, message: Message, text: str, line: int) -> None:
        pattern = message.compiled()
        found = pattern.search(text)
        if found is None:
            return
        shown = text if len(text) <= SHOWN else text[max(0, found.start() - 60) :][:SHOWN]
        where = f"log line {line}"
        if message.cause:
            self._keep(Fact(kind=message.sure, subject=message.cause, value=message.name, where=where, text=shown))
        for kind, subject, value in message.facts:
            filled = _fill(value, found)
            if filled or not value:
                about = _fill(subject, found)
                self._keep(Fact(kind=kind, subject=about, value=filled, where=where, text=shown.strip()))

    def _keep(self, fact: Fact) -> None:
        key = (fact.kind, fact.subject, fact.value)
        if key not in self.found and len(self.found) < MOST:
            self.found[key] = fact.replace(text=fact.text.strip())


def _plain(block: bytes) -> bytes:
    """Without its colour codes; it has as many lines as before."""
    if b"\x1b" in block or b"1b[" in block or b"^[[" in block or b"033[" in block:
        return _COLOUR.sub(b"", block)
    return block


def _places(text: bytes, needle: bytes, begin: int, hits: dict[int, set[bytes]], counts: dict[bytes, int]) -> None:
    """Adds the places of a needle in a text that begins there, until it has HITS of them in its block."""
    count = counts.get(needle, 0)
    at = text.find(needle)
    while at >= 0 and count < HITS:
        hits.setdefault(begin + at, set()).add(needle)
        count += 1
        at = text.find(needle, at + 1)
    counts[needle] = count


def _fill(template: str, found: re.Match[str]) -> str:
    if "{" not in template:
        return template
    return _FIELD.sub(lambda field: _form(field[2], (found[int(field[1])] or "").strip()), template)


def _bytes_of(text: str) -> str:
    number, _, unit = text.partition(" ")
    try:
        return str(int(float(number) * _SIZES.get(unit[:1], 1)))
    except ValueError:
        return ""


_FORMS: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    "cudnn": cudnn_of,
    "cuda": cuda_of,
    "name": lambda text: text.rpartition("/")[2],
    "distribution": lambda text: text.lower().replace("_", "-"),
    "bytes": _bytes_of,
}


def _form(form: str | None, text: str) -> str:
    """A group's text in one of the forms of messages.toml; "" where it is not of that form."""
    if not text or form is None:
        return text
    if form in _FORMS:
        return _FORMS[form](text)
    digits = re.findall(r"\d{2,3}", text)  # capability, capabilities
    return " ".join(f"{one[:-1]}.{one[-1]}" for one in digits)
