"""Unpacks a log that was compressed with gzip or that is in a zip archive, in bounded memory."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from itertools import chain

from ..errors import InputError

_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"
_CHUNK = 1 << 16  # bytes
_IN_MEMORY = 1 << 24  # bytes of a zip archive; a larger one is in a temporary file


def unpacked(stream: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the text of a log; the files of a zip archive follow each other.

    Raises:
        InputError: the compressed data are damaged, or an archive is encrypted.
    """
    chunks = iter(stream)
    head = b""
    for chunk in chunks:
        head += chunk
        if len(head) >= len(_ZIP):
            break
    whole = chain([head], chunks)
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
                yield file.decompress(rest, _CHUNK)
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
                        yield from iter(lambda: text.read(_CHUNK), b"")
                    yield b"\n"
        except (zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError, EOFError):
            message = "the log is a zip archive that cannot be read: unpack it first"
            raise InputError(message) from None
