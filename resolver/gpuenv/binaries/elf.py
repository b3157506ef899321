"""Read what the headers of an ELF file say: the libraries that it needs, and its sections.

Format: the ELF specification (System V ABI, chapters 4 and 5), 64-bit, little-endian. No file is
mapped into memory: a file that is truncated while it is read, or that is on a broken disk, gives an
error and no signal.

pyelftools is not used. It reads each field by a call, and whole hash tables before the dynamic
section: it reads 1,210 libraries in 2.2 s, this module in 0.1 s; a damaged file with a dynamic
section of 300 MB takes minutes, here 1 s; and a limit on its reading that prevents this refuses
libraries with many symbols (libtriton.so).
"""

from __future__ import annotations

import os
import re
import struct
import time
from collections.abc import Iterable, Iterator
from typing import IO, Any

from ..model import Value

CHUNK = 8 << 20  # bytes that are read at once; a name across two chunks is found in the second
LONGEST = 128  # bytes of a file name in a library's text
TABLE = 32 << 20  # no table and no dynamic section is larger, nor are all texts of one together
_LONGEST_TEXT = 64 << 10
_FARTHEST = 1 << 40  # no file is longer; seek refuses places that no file can have
# Of the dynamic section (System V ABI, figure 5-10).
_NEEDED, _STRTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 5, 10, 14, 15, 29
_SHARED = 3  # type of the file: ET_DYN
_LOAD, _DYNAMIC = 1, 2  # program headers
_NO_BITS = 8  # type of a section without content: SHT_NOBITS
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4  # flags of a section
_FILE_NAME = re.compile(rb"\x00(lib[A-Za-z0-9_+.-]{1,100}\.so(?:\.[0-9]+)*)\x00")


class NotElfError(Exception):
    """The file is no 64-bit ELF shared library, or it is truncated; the text says which."""


class Library(Value):
    """What the file at `path` says.

    `names` are the file names among its texts: what it may open by name.

    `rpath` and `runpath` contain the entries as they stand, with $ORIGIN. `whole` is false if the
    deadline passed before all texts were read.
    """

    path: str
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    whole: bool = True


class Section(Value):
    """A section with content: where it is in the file."""

    name: str
    flags: int
    offset: int
    length: int


class File(Value):
    """An ELF file of any kind and machine.

    Attributes:
        size: the size of the file.
        type: 3 is a shared library.
        machine: 190 is CUDA.
        abi: of the machine.
        flags: of the machine.
        segments: (type, offset in the file, address, length in the file) of each program header.
        sections: those with content.
        sections_end: where the section table ends; beyond `size` if the file is cut short.
    """

    size: int
    type: int
    machine: int
    abi: int
    flags: int
    segments: tuple[tuple[int, int, int, int], ...]
    sections: tuple[Section, ...]
    sections_end: int


def parse(file: IO[bytes]) -> File:
    """Read the header, the program headers and the section table of an open file.

    Raises:
        NotElfError: the file is no 64-bit ELF file, or its headers are damaged.
        OSError: the file cannot be read.
    """
    head, size = bytes_at(file, 0, 64), os.fstat(file.fileno()).st_size
    if len(head) < 64 or head[:4] != b"\x7fELF":
        raise NotElfError("it is no ELF file" if size else "it is empty")
    if head[4:6] != b"\x02\x01":
        raise NotElfError("it is no 64-bit little-endian ELF file")
    kind, machine, phoff, shoff, flags, phsize, phnum, shsize, shnum, names = struct.unpack_from(
        "<2H12x2QI2x5H", head, 16
    )
    try:
        segments = _rows(bytes_at(file, phoff, phsize * phnum), "<I4xQQ8xQ16x", phsize, phnum)
        table = bytes_at(file, shoff, shsize * shnum)
        # Of a file that is cut short the table is read as far as it is there.
        rows = _rows(table, "<IIQ8xQQ24x", shsize, len(table) // max(shsize, 64))
        strings = bytes_at(file, *rows[names][3:]) if names < len(rows) else b""
        titles = _texts(strings, (row[0] for row in rows))
    except struct.error:
        raise NotElfError("its headers are cut short, or damaged") from None
    return File(
        size=size,
        type=kind,
        machine=machine,
        abi=head[7],
        flags=flags,
        segments=tuple(segments),
        sections=tuple(
            Section(name=title, flags=flags, offset=start, length=length)
            for title, (_, kind, flags, start, length) in zip(titles, rows, strict=True)
            if kind != _NO_BITS
        ),
        sections_end=shoff + shsize * shnum,
    )


def bytes_at(file: IO[bytes], offset: int, length: int) -> bytes:
    """Return the bytes at a place of a file, as far as they are there and at most TABLE."""
    file.seek(min(offset, _FARTHEST))
    return file.read(min(length, TABLE))


def _rows(table: bytes, row: str, size: int, count: int) -> list[tuple[Any, ...]]:
    return [struct.unpack_from(row, table, number * size) for number in range(count)]


def _texts(strings: bytes, places: Iterable[int]) -> list[str]:
    """Return the texts at places of a table. NotElfError if they are too long together."""
    texts, left = [], TABLE
    for place in places:
        limit = min(place + _LONGEST_TEXT, len(strings))
        end = strings.find(b"\0", place, limit)
        left -= max((limit if end < 0 else end) - place, 0)
        if left < 0:
            raise NotElfError("its table of names is damaged")
        texts.append(strings[place : max(end, place)].decode(errors="replace"))
    return texts


def read(path: str, *, names: bool, deadline: float = float("inf")) -> Library:
    """Read the library at `path`: see `read_open`."""
    with open(path, "rb") as file:
        return read_open(file, path, names=names, deadline=deadline)


def read_open(
    file: IO[bytes], path: str, *, names: bool, deadline: float = float("inf")
) -> Library:
    """Read an open library.

    Args:
        file: the library.
        path: where it is.
        names: read its texts, too.
        deadline: time.monotonic when reading of texts stops.

    Raises:
        NotElfError: the file is no library.
        OSError: the file cannot be read.
    """
    content = parse(file)
    if content.type != _SHARED:
        raise NotElfError("it is an ELF file and no shared library")
    ends = [offset + length for kind, offset, _, length in content.segments if kind == _LOAD]
    end = max(ends, default=0)
    if end > content.size:
        raise NotElfError(f"it is cut short: {content.size} bytes, and its headers need {end}")
    texts = _dynamic_texts(file, content.segments)
    opened = _opened_names(file, content, deadline) if names else set()
    return Library(
        path=path,
        soname=next(iter(texts[_SONAME]), ""),
        needed=tuple(texts[_NEEDED]),
        rpath=tuple(filter(None, ":".join(texts[_RPATH]).split(":"))),
        runpath=tuple(filter(None, ":".join(texts[_RUNPATH]).split(":"))),
        names=tuple(sorted(opened or ())),
        whole=opened is not None,
    )


def _dynamic_texts(
    file: IO[bytes], segments: Iterable[tuple[int, int, int, int]]
) -> dict[int, list[str]]:
    """Return the texts of the dynamic section's entries, by tag."""
    texts: dict[int, list[str]] = {tag: [] for tag in (_NEEDED, _SONAME, _RPATH, _RUNPATH)}
    places = [(offset, length) for kind, offset, _, length in segments if kind == _DYNAMIC]
    if not places:
        return texts
    table = bytes_at(file, *places[0])
    rows = list(struct.iter_unpack("<2Q", table[: len(table) // 16 * 16]))
    values, strings = dict(rows), b""
    for kind, offset, address, length in segments:
        if kind == _LOAD and address <= values.get(_STRTAB, -1) < address + length:
            place = offset + values[_STRTAB] - address
            strings = bytes_at(file, place, values.get(_STRSZ, 0))
    return {tag: _texts(strings, (value for kind, value in rows if kind == tag)) for tag in texts}


def _opened_names(file: IO[bytes], content: File, deadline: float) -> set[str] | None:
    """Return the file names in the read-only data; None if the deadline passed.

    A name counts if it is a whole text, with a NUL on both sides: a part of a message or of a path
    is no file name.
    """
    names: set[str] = set()
    for data in _read_only_data(file, content):
        if time.monotonic() > deadline:
            return None
        # A search for fixed bytes is several times as fast as one for the pattern.
        at = data.find(b"\0lib")
        while at >= 0:
            match = _FILE_NAME.match(data, at)
            if match:
                names.add(match[1].decode())
            at = data.find(b"\0lib", at + 1)
    return names


def find_texts(path: str, texts: Iterable[bytes]) -> set[bytes]:
    """Return those of the texts, each shorter than LONGEST, that the read-only data contains.

    Raises:
        NotElfError: the file is no ELF file.
        OSError: the file cannot be read.
    """
    with open(path, "rb") as file:
        content = parse(file)
        return {text for data in _read_only_data(file, content) for text in texts if text in data}


def _read_only_data(file: IO[bytes], content: File) -> Iterator[bytes]:
    """Yield the read-only data in parts. A section begins after a NUL.

    GPU code is not read, nor is .lrodata: it has large objects only (x86-64 psABI, medium code
    model), such as weights of heuristics.
    """
    for section in content.sections:
        is_data = section.flags & _ALLOC and not section.flags & (_WRITE | _EXECUTE)
        if not (section.name.startswith(".rodata") and is_data):
            continue
        start, end = section.offset, min(section.offset + section.length, content.size)
        for place in range(start, end, CHUNK):
            # A part begins where the last texts of the previous one could have begun.
            begin = max(start, place - LONGEST)
            length = min(place + CHUNK, end) - begin
            yield (b"\0" if begin == start else b"") + bytes_at(file, begin, length)


def expand_origin(path: str, entries: Iterable[str]) -> list[str]:
    """Return search path entries of the library at `path` with $ORIGIN replaced.

    $ORIGIN is the folder of the real file.
    """
    origin = os.path.dirname(os.path.realpath(path))
    folders = []
    for entry in entries:
        folder = entry.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
        folders.append(os.path.normpath(folder))
    return folders
