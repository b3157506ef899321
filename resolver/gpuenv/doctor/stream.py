"""Turns a log in any form into blocks of whole lines: UTF-8 bytes without codes and escapes.

A log that is compressed with gzip or in a zip archive is unpacked first, in bounded memory.
"""

from __future__ import annotations

import codecs
import html
import re
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain

from ..errors import InputError

BLOCK = 1 << 17  # bytes that are searched at once
AHEAD = 4096  # bytes after a block that may belong to a message in it
BEFORE, AFTER = 400, 1600  # bytes of the window around a needle

_COLOR_START = rb"(?:\x1b|\\u001b|\\x1b|\\033|\^\[)\["
# A code, or the beginning of one that another code interrupts.
_COLOR = re.compile(_COLOR_START + rb"[0-9;?]{0,24}(?:[A-Za-z]|(?=" + _COLOR_START + rb"))")
_ENTITY = re.compile(rb"&(?:quot|apos|lt|gt|amp|nbsp|#\d{2,4}|#x[0-9a-fA-F]{2,4});")
_INTERRUPTED = re.compile(_COLOR_START + rb"[0-9;?]{0,24}\Z")
_MAX_INTERRUPTED = 8  # beginnings of codes, one after the other
# What Docker's log files have before and after each line.
_DOCKER_RECORD = re.compile(
    rb'(?m)^\{"log": ?"|(?:\\n)?", ?"stream": ?"std(?:err|out)"[^}\n]{0,80}\}'
)
# Without "\\t" in a path of Windows, which some programs do not escape.
_JSON_ESCAPE = re.compile(rb'\\(?:u([0-9a-fA-F]{4})|(["\\/]))|(?:(?<=\d:)|(?<![\w:\\]))\\t')
# Typographic quotes become ASCII; marks without a width are left out.
_ASCII_QUOTES = {
    "\u2018".encode(): b"'",
    "\u2019".encode(): b"'",
    "\u201c".encode(): b'"',
    "\u201d".encode(): b'"',
    "\u200b".encode(): b"",
}
_TYPOGRAPHIC = re.compile(b"|".join(_ASCII_QUOTES))
_CODE_START = re.compile(rb"[\x1b\\^&\xe2]")
_MAX_CODE = 40  # bytes of one code
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")  # PowerShell on Windows writes UTF-16
_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
_UNPACKED = 1 << 16  # bytes that are unpacked at once
_IN_MEMORY = 1 << 24  # bytes of a zip archive; a larger one is in a temporary file

Block = tuple[bytes, bytes, int, int]


def cleaned(stream: Iterable[bytes | str]) -> Iterator[bytes]:
    """Yield a log in UTF-8, without color codes, escapes of HTML and JSON, and typographic quotes.

    Args:
        stream: chunks or lines, as bytes (UTF-8, or UTF-16 with a byte order mark) or as text. It
            does not matter where they end.
    """
    rest = b""
    for chunk in _as_utf8(stream):
        raw = rest + chunk if rest else chunk
        # The start of a code near the end waits for the next chunk.
        start = _CODE_START.search(raw, max(0, len(raw) - _MAX_CODE))
        end = start.start() if start else len(raw)
        for _ in range(_MAX_INTERRUPTED):
            before = _INTERRUPTED.search(raw, max(0, end - _MAX_CODE), end)
            if before is None:
                break
            end = before.start()
        rest = raw[end:]
        yield _plain(raw[:end])
    yield _plain(rest)


def blocks(chunks: Iterable[bytes]) -> Iterator[Block]:
    """Cut a log, as `cleaned` gives it, into blocks.

    Yields:
        (block, following, begin, end): whole lines, up to AHEAD bytes after them, and the range of
        the block in which to search. The pieces of a line that is longer than a block overlap by a
        window, so that every window is whole in the piece in which it is searched.
    """
    parts: list[bytes] = []
    size = begin = 0
    for chunk in chunks:
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


def with_head(chunks: Iterable[bytes], size: int) -> tuple[bytes, Iterator[bytes]]:
    """Return the first bytes of a stream, at least `size` of them if it has so many, and all."""
    rest = iter(chunks)
    parts, known = [], 0
    for chunk in rest:
        parts.append(chunk)
        known += len(chunk)
        if known >= size:
            break
    head = b"".join(parts)
    return head, chain([head], rest)


def _as_utf8(stream: Iterable[bytes | str]) -> Iterator[bytes]:
    """Yield the chunks as UTF-8, with at most BLOCK bytes each."""
    raw = (
        chunk.encode("utf-8", "replace") if isinstance(chunk, str) else chunk for chunk in stream
    )
    head, chunks = with_head(raw, 2)
    if head[:2] in _UTF16_MARKS:
        text = codecs.iterdecode(chunks, "utf-16", "replace")
        chunks = codecs.iterencode(text, "utf-8", "replace")
    for chunk in chunks:
        for begin in range(0, len(chunk), BLOCK):
            yield chunk[begin : begin + BLOCK]


def _plain(raw: bytes) -> bytes:
    # Searching for one byte first is ten times faster than searching for several.
    has_backslash = b"\\" in raw and (b"1b[" in raw or b"033[" in raw)
    has_code = b"\x1b" in raw or has_backslash or (b"^" in raw and b"^[[" in raw)
    text = _COLOR.sub(b"", raw) if has_code else raw
    if (b"{" in text and b'{"log":' in text) or (b"}" in text and b'"stream"' in text):
        text = _JSON_ESCAPE.sub(_unescaped_json, _DOCKER_RECORD.sub(b"", text))
    if b"&" in text:
        text = _ENTITY.sub(lambda entity: html.unescape(entity[0].decode()).encode(), text)
    if b"\\" in text:
        text = text.replace(b'\\n"', b'"').replace(b'\\"', b'"')
    if b"\xe2" in text:
        text = _TYPOGRAPHIC.sub(lambda mark: _ASCII_QUOTES[mark[0]], text)
    return text


def _unescaped_json(escape: re.Match[bytes]) -> bytes:
    """Return the character of an escape of JSON."""
    number, character = escape.groups()
    if number is not None:
        return chr(int(number, 16)).encode("utf-8", "replace")
    return character or b"\t"


def find_all(text: bytes, part: bytes) -> Iterator[int]:
    """Yield where a part occurs in a text, also where it overlaps itself."""
    place = text.find(part)
    while place >= 0:
        yield place
        place = text.find(part, place + 1)


# ---- compressed logs ----------------------------------------------------------------------------


def unpacked(stream: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text of a log; the files of a zip archive follow each other.

    Raises:
        InputError: the compressed data are damaged, or an archive is encrypted.
    """
    head, whole = with_head(stream, len(_ZIP))
    if head.startswith(_GZIP):
        return _of_gzip(whole)
    if head.startswith(_ZIP):
        return _of_zip(whole)
    return whole


def _of_gzip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text of one or several gzip files; the end may be missing."""
    file = zlib.decompressobj(wbits=31)
    try:
        for chunk in chunks:
            rest = chunk
            while rest:
                yield file.decompress(rest, _UNPACKED)
                rest = file.unconsumed_tail
                if file.eof:
                    rest = file.unused_data
                    file = zlib.decompressobj(wbits=31)
    except zlib.error:
        raise InputError("the log is damaged gzip data: unpack it with gunzip") from None


def _of_zip(chunks: Iterable[bytes]) -> Iterator[bytes]:
    import tempfile
    import zipfile

    with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY) as file:
        file.writelines(chunks)
        try:
            with zipfile.ZipFile(file) as archive:
                for member in archive.infolist():
                    with archive.open(member) as text:
                        yield from iter(lambda: text.read(_UNPACKED), b"")
                    yield b"\n"
        except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError):
            message = "the log is a zip archive that cannot be read: unpack it first"
            raise InputError(message) from None
