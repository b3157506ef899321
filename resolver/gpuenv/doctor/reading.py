"""The reader of logs: any amount of text, in bounded memory, to the facts that its machine-made messages state.

A block of 64 KiB is split into words first; only where it holds a word of a message are the message's needles looked
for, and only where a needle stands is a pattern tried, in a window of a few thousand characters. So the time is that
of splitting, a line's length is no matter, and a colour code, a rank's or a container's prefix stands outside of
what the pattern reads. Lines that repeat but for their digits are read a few times and then left alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from .catalogue import Message, messages
from .model import Fact
from .statuses import cuda_of, cudnn_of

BLOCK = 1 << 16  # characters of text that are looked at together
LONGEST = 1 << 16  # of a line; a longer one is read in pieces
AHEAD = 4096  # what may belong to a message that begins before it
BEFORE, AFTER = 400, 1600  # the window around a needle
HITS = 64  # of one needle in one block: what repeats more often than that says nothing new
REPEATS = 4  # readings of lines that differ in their digits only
SHAPES = 4096  # such lines that are remembered
MOST = 2000  # facts of one log
SHOWN = 300  # characters of a fact's text

_LETTERS = bytes((c | 32) if 65 <= c <= 90 else c if 97 <= c <= 122 or c == 10 else 32 for c in range(256))
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
    """(whole lines, what follows them): the second holds a few thousand characters unless the log ends."""
    kept = b""
    for chunk in chunks:
        kept = kept + chunk if kept else chunk
        while len(kept) >= BLOCK + AHEAD:
            end = kept.rfind(b"\n", 0, BLOCK) + 1 or BLOCK
            yield kept[:end], kept[end : end + AHEAD]
            kept = kept[end:]
    if kept:
        yield kept, b""


class _Reader:
    def __init__(self) -> None:
        self.found: dict[tuple[str, str, str], Fact] = {}
        self.line = 1
        self.seen: dict[bytes, int] = {}
        self.needles: dict[bytes, list[Message]] = {}
        self.words: dict[bytes, set[bytes]] = {}
        self.whole: dict[bytes, frozenset[bytes]] = {}
        for message in messages():
            for needle in message.needles:
                self.needles.setdefault(needle, []).append(message)
                self.whole[needle] = whole = frozenset(_WHOLE.findall(needle.translate(_LETTERS)))
                for word in [max(whole, key=len)] if whole else message.words:
                    self.words.setdefault(word, set()).add(needle)
        self.known = frozenset(self.words)

    def read(self, block: bytes, more: bytes) -> None:
        lines = block.count(b"\n")
        if b"\x1b" in block or b"u001b" in block or b"x1b" in block or b"^[" in block or b"\\033" in block:
            block = _COLOUR.sub(b"", block)
        words = block.translate(_LETTERS).split()
        if not self.known.isdisjoint(words):
            self._look(block, more, frozenset(words))
        self.line += lines

    def _look(self, block: bytes, more: bytes, words: frozenset[bytes]) -> None:
        """Finds the needles of these words, and reads the lines that hold them, in their order."""
        hits: dict[int, set[bytes]] = {}
        for needle in set().union(*(self.words[word] for word in words.intersection(self.known))):
            if not self.whole[needle] <= words:
                continue
            at, count = block.find(needle), 0
            while at >= 0 and count < HITS:
                hits.setdefault(at, set()).add(needle)
                count += 1
                at = block.find(needle, at + 1)
        line, last = self.line, 0
        for at in sorted(hits):
            line += block.count(b"\n", last, at)
            last = at
            self._try(block, more, at, hits[at], line)

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
            for message in self.needles[needle]:
                raw = window
                if message.lines:
                    following = (block[begin : end + AHEAD] + more[:AHEAD]).split(b"\n", message.lines + 1)
                    raw = b" ".join(following[: message.lines + 1])[: BEFORE + AFTER]
                self._match(message, _NOISE.sub(" ", raw.decode("utf-8", "replace")), line)

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
