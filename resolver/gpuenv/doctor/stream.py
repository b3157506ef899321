"""A log's text in blocks of whole lines, whatever it comes in: bytes or text, UTF-16, colours, lines without an end."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

BLOCK = 1 << 17  # characters of text that are looked at together
AHEAD = 4096  # what may belong to a message that begins before it
BEFORE, AFTER = 400, 1600  # the window around a place

_COLOUR = re.compile(rb"(?:\x1b|\\u001b|\\x1b|\\033|\^\[)\[[0-9;?]{0,24}[A-Za-z]")
_COLOURS = re.compile(rb"[\x1b\\^]")  # how they begin
_LONGEST = 40  # characters of one


def _bytes(stream: Iterable[bytes | str]) -> Iterator[bytes]:
    """Chunks as UTF-8, at most BLOCK characters each."""
    decode = None
    head: bytes | None = b""  # what comes before the mark is whole
    for chunk in stream:
        raw = chunk.encode("utf-8", "replace") if isinstance(chunk, str) else chunk
        if head is not None:
            head = raw = head + raw
            if len(raw) < 2:
                continue
            head = None
            if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):  # what a PowerShell of Windows writes
                import codecs

                decode = codecs.getincrementaldecoder("utf-16")("replace").decode
        for at in range(0, len(raw), BLOCK):
            piece = raw[at : at + BLOCK]
            yield decode(piece).encode("utf-8", "replace") if decode else piece
    if head:
        yield head


def _plain(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Without colour codes, wherever chunks end."""
    rest = b""
    for chunk in chunks:
        raw = rest + chunk if rest else chunk
        begun = _COLOURS.search(raw, max(0, len(raw) - _LONGEST))  # it may end in the next chunk
        end = begun.start() if begun else len(raw)
        rest = raw[end:]
        yield _uncoloured(raw[:end])
    yield _uncoloured(rest)


def _uncoloured(raw: bytes) -> bytes:
    # One character is found ten times faster than three.
    backslash = b"\\" in raw and (b"1b[" in raw or b"033[" in raw)
    return _COLOUR.sub(b"", raw) if b"\x1b" in raw or backslash or (b"^" in raw and b"^[[" in raw) else raw


def blocks(stream: Iterable[bytes | str]) -> Iterator[tuple[bytes, bytes, int, int]]:
    """(whole lines, what follows them, where to look from, and to), without colour codes, as UTF-8.

    `stream` gives chunks or lines, bytes (UTF-8, or UTF-16 with its mark) or text; where they end is no matter.
    The pieces of a line that is longer than a block overlap by a window: every window is whole in the one piece in
    which it is looked for.
    """
    parts: list[bytes] = []
    size = begin = 0
    for chunk in _plain(_bytes(stream)):
        parts.append(chunk)
        size += len(chunk)
        if size < BLOCK + AHEAD:
            continue
        kept = b"".join(parts)
        while len(kept) >= BLOCK + AHEAD:
            end = max(kept.rfind(b"\n", 0, BLOCK), kept.rfind(b"\r", 0, BLOCK)) + 1
            if end:
                yield kept[:end], kept[end : end + AHEAD], begin, end
                kept, begin = kept[end:], 0
            else:
                yield kept[:BLOCK], kept[BLOCK : BLOCK + AHEAD], begin, BLOCK - AFTER
                kept, begin = kept[BLOCK - BEFORE - AFTER :], BEFORE
        parts, size = [kept], len(kept)
    if size:
        kept = b"".join(parts)
        yield kept, b"", begin, len(kept)
