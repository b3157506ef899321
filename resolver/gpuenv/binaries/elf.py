"""Read what the headers of an ELF file say: the libraries that it needs, and its sections.

Format: the ELF specification (System V ABI, chapters 4 and 5), 64-bit, little-endian. No file is
mapped into memory: a file that is truncated while it is read, or that is on a broken disk, gives an
error and no signal.
"""

from __future__ import annotations

import os
import re
import struct
import time
from collections.abc import Iterable

from ..model import Value

CHUNK = 8 << 20  # bytes that are read at once; a name across two chunks is found in the second
LONGEST = 128  # bytes of a file name in a library's text
TABLE = 64 << 20  # no dynamic section or string table is larger than this
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


def read(path: str, *, names: bool, deadline: float = float("inf")) -> Library:
    """Read the library at `path`.

    Args:
        names: read its texts, too.
        deadline: time.monotonic when reading of texts stops.

    Raises:
        NotElfError: the file is no library.
        OSError: the file cannot be read.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return _read(file, path, names, deadline)
    except (struct.error, OverflowError):
        raise NotElfError("its headers are cut short, or damaged") from None
    finally:
        os.close(file)


def _read(file: int, path: str, names: bool, deadline: float) -> Library:
    size = os.fstat(file).st_size
    head = os.pread(file, 64, 0)
    _check_head(head, size)
    file_type, phoff, shoff = struct.unpack_from("<H14x2Q", head, 16)
    phsize, phnum, shsize, shnum, shstr = struct.unpack_from("<5H", head, 54)
    if file_type != _SHARED:
        raise NotElfError("it is an ELF file and no shared library")
    segments = _segments(file, phoff, phsize, phnum)
    ends = [offset + length for kind, offset, _, length in segments if kind == _LOAD]
    end = max(ends, default=0)
    if end > size:
        raise NotElfError(f"it is cut short: {size} bytes, and its headers need {end}")
    tags = _dynamic(file, segments)
    table = _SectionTable(offset=shoff, row_size=shsize, count=shnum, names=shstr)
    texts: list[str] | None = []
    if names:
        texts = _texts(file, table, size, deadline)
    return Library(
        path=path,
        soname=next(iter(tags[_SONAME]), ""),
        needed=tuple(tags[_NEEDED]),
        rpath=_entries(tags[_RPATH]),
        runpath=_entries(tags[_RUNPATH]),
        names=tuple(sorted(set(texts or ()))),
        whole=texts is not None,
    )


class Section(Value):
    """A section with content: where it is in the file."""

    name: str
    flags: int
    offset: int
    length: int


class File(Value):
    """An ELF file of any kind and machine: its sections, and what its header says of it."""

    machine: int
    abi: int
    flags: int
    sections: tuple[Section, ...]


def read_sections(file: int) -> File:
    """Read the header and the section table of an open file.

    Raises:
        NotElfError: the file is no 64-bit ELF file, or its section table is cut short.
        OSError: the file cannot be read.
    """
    head, size = os.pread(file, 64, 0), os.fstat(file).st_size
    _check_head(head, size)
    (machine,) = struct.unpack_from("<H", head, 18)
    flags, _, _, _, shsize, shnum, shstr = struct.unpack_from("<I6H", head, 48)
    (shoff,) = struct.unpack_from("<Q", head, 40)
    end = shoff + shsize * shnum
    if end > size:
        raise NotElfError(f"it is cut short: {size} bytes, and its section table ends at {end}")
    table = _SectionTable(offset=shoff, row_size=shsize, count=shnum, names=shstr)
    try:
        sections = _sections(file, table)
    except (struct.error, OverflowError):
        raise NotElfError("its section table is damaged") from None
    return File(machine=machine, abi=head[7], flags=flags, sections=tuple(sections))


def _check_head(head: bytes, size: int) -> None:
    """Raise NotElfError if the first bytes of a file are not those of a 64-bit ELF file."""
    if len(head) < 64 or head[:4] != b"\x7fELF":
        if size == 0:
            raise NotElfError("it is empty")
        raise NotElfError("it is no ELF file")
    if head[4:6] != b"\x02\x01":
        raise NotElfError("it is no 64-bit little-endian ELF file")


class _SectionTable(Value):
    """Where the section headers are; `names` is the index of the section with their names."""

    offset: int
    row_size: int
    count: int
    names: int


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


def _entries(texts: list[str]) -> tuple[str, ...]:
    entries = ":".join(texts).split(":")
    return tuple(filter(None, entries))


def _segments(file: int, offset: int, size: int, count: int) -> list[tuple[int, int, int, int]]:
    """Return (type, offset in the file, address, length in the file) of each program header."""
    table = os.pread(file, min(size * count, TABLE), offset)
    segments = []
    for index in range(count):
        kind, start, address, length = struct.unpack_from("<I4xQQ8xQ", table, index * size)
        segments.append((kind, start, address, length))
    return segments


def _dynamic(file: int, segments: list[tuple[int, int, int, int]]) -> dict[int, list[str]]:
    """Return the texts of the dynamic section's entries, by tag."""
    texts: dict[int, list[str]] = {tag: [] for tag in (_NEEDED, _SONAME, _RPATH, _RUNPATH)}
    sections = [(offset, length) for kind, offset, _, length in segments if kind == _DYNAMIC]
    if not sections:
        return texts
    offset, length = sections[0]
    table = os.pread(file, min(length, TABLE), offset)
    rows = list(struct.iter_unpack("<2Q", table[: len(table) // 16 * 16]))
    values = dict(rows)
    strings = b""
    for kind, offset, address, length in segments:
        if kind == _LOAD and address <= values.get(_STRTAB, -1) < address + length:
            start = offset + values[_STRTAB] - address
            strings = os.pread(file, min(values.get(_STRSZ, 0), TABLE), start)
    for tag, value in rows:
        if tag in texts:
            text = strings[value : strings.find(b"\0", value)]
            texts[tag].append(text.decode(errors="replace"))
    return texts


def _texts(file: int, table: _SectionTable, size: int, deadline: float) -> list[str] | None:
    """Return the file names in the read-only data; None if the deadline passed.

    GPU code is not read.
    """
    texts: list[str] = []
    for start, length in _read_only_sections(file, table):
        for place in range(start, min(start + length, size), CHUNK):
            if time.monotonic() > deadline:
                return None
            # A chunk begins where the last names of the previous one could have begun.
            begin = max(start, place - LONGEST)
            data = os.pread(file, min(place + CHUNK, start + length) - begin, begin)
            if begin == start:
                data = b"\0" + data
            texts += _names_in(data)
    return texts


def _read_only_sections(file: int, table: _SectionTable) -> list[tuple[int, int]]:
    """Return (offset, length) of the sections with read-only data.

    Not .lrodata: it has large objects only (x86-64 psABI, medium code model), such as weights of
    heuristics.
    """
    ranges = []
    for section in _sections(file, table):
        is_data = section.flags & _ALLOC and not section.flags & (_WRITE | _EXECUTE)
        if section.name.startswith(".rodata") and is_data:
            ranges.append((section.offset, section.length))
    return ranges


def _sections(file: int, table: _SectionTable) -> list[Section]:
    headers = os.pread(file, min(table.row_size * table.count, TABLE), table.offset)
    places = range(0, len(headers) - 63, max(table.row_size, 64))
    rows = [struct.unpack_from("<IIQQQQ", headers, place) for place in places]
    if table.names >= len(rows):
        return []
    _, _, _, _, names_start, names_length = rows[table.names]
    strings = os.pread(file, min(names_length, TABLE), names_start)
    sections = []
    for name, kind, flags, _, start, length in rows:
        title = strings[name : strings.find(b"\0", name)].decode(errors="replace")
        if kind != _NO_BITS:
            sections.append(Section(name=title, flags=flags, offset=start, length=length))
    return sections


def _names_in(data: bytes) -> list[str]:
    """Return file names that are whole texts, with a NUL on both sides.

    A part of a message or of a path is no file name.
    """
    names = []
    place = data.find(b"\0lib")
    while place >= 0:
        match = _FILE_NAME.match(data, place)
        if match:
            names.append(match.group(1).decode())
        place = data.find(b"\0lib", place + 1)
    return names
