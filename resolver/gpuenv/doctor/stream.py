"""Turns a log in any form into blocks of whole lines: UTF-8 bytes without color codes."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator

BLOCK = 1 << 17  # bytes that are searched at once
AHEAD = 4096  # bytes after a block that may belong to a message in it
BEFORE, AFTER = 400, 1600  # bytes of the window around a needle

_COLOR = re.compile(rb"(?:\x1b|\\u001b|\\x1b|\\033|\^\[)\[[0-9;?]{0,24}[A-Za-z]")
_COLOR_START = re.compile(rb"[\x1b\\^]")
_MAX_COLOR = 40  # bytes of one color code
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")  # PowerShell on Windows writes UTF-16

Block = tuple[bytes, bytes, int, int]


def blocks(stream: Iterable[bytes | str]) -> Iterator[Block]:
    """Cut a log into blocks.

    Args:
        stream: chunks or lines, as bytes (UTF-8, or UTF-16 with a byte order mark) or as text. It
            does not matter where they end.

    Yields:
        (block, following, begin, end): whole lines, up to AHEAD bytes after them, and the range of
        the block in which to search. The pieces of a line that is longer than a block overlap by a
        window, so that every window is whole in the piece in which it is searched.
    """
    parts: list[bytes] = []
    size = begin = 0
    for chunk in _without_colors(_as_utf8(stream)):
        parts.append(chunk)
        size += len(chunk)
        if size < BLOCK + AHEAD:
            continue
        rest = b"".join(parts)
        while len(rest) >= BLOCK + AHEAD:
            end = max(rest.rfind(b"\n", 0, BLOCK), rest.rfind(b"\r", 0, BLOCK)) + 1
            if end:
                yield rest[:end], rest[end : end + AHEAD], begin, end
                rest, begin = rest[end:], 0
            else:
                yield rest[:BLOCK], rest[BLOCK : BLOCK + AHEAD], begin, BLOCK - AFTER
                rest, begin = rest[BLOCK - BEFORE - AFTER :], BEFORE
        parts, size = [rest], len(rest)
    if size:
        rest = b"".join(parts)
        yield rest, b"", begin, len(rest)


def _as_utf8(stream: Iterable[bytes | str]) -> Iterator[bytes]:
    """Yield the chunks as UTF-8, with at most BLOCK characters each."""
    decoder: codecs.IncrementalDecoder | None = None
    head: bytes | None = b""  # until two bytes are known, which may be a byte order mark
    for chunk in stream:
        raw = chunk.encode("utf-8", "replace") if isinstance(chunk, str) else chunk
        if head is not None:
            head = raw = head + raw
            if len(raw) < 2:
                continue
            head = None
            if raw[:2] in _UTF16_MARKS:
                decoder = codecs.getincrementaldecoder("utf-16")("replace")
        for begin in range(0, len(raw), BLOCK):
            piece = raw[begin : begin + BLOCK]
            if decoder is not None:
                piece = decoder.decode(piece).encode("utf-8", "replace")
            yield piece
    if head:
        yield head


def _without_colors(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the chunks without color codes, including codes that two chunks share."""
    rest = b""
    for chunk in chunks:
        raw = rest + chunk if rest else chunk
        # The start of a code near the end waits for the next chunk.
        start = _COLOR_START.search(raw, max(0, len(raw) - _MAX_COLOR))
        end = start.start() if start else len(raw)
        rest = raw[end:]
        yield _without_color(raw[:end])
    yield _without_color(rest)


def _without_color(raw: bytes) -> bytes:
    # Searching for one byte first is ten times faster than searching for three.
    has_escape = b"\x1b" in raw
    has_backslash = b"\\" in raw and (b"1b[" in raw or b"033[" in raw)
    has_caret = b"^" in raw and b"^[[" in raw
    if has_escape or has_backslash or has_caret:
        return _COLOR.sub(b"", raw)
    return raw


def find_all(text: bytes, part: bytes, step: int = 1) -> Iterator[int]:
    """Yield where a part occurs in a text; each search starts `step` bytes after the last match."""
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + step)
