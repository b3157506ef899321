"""What a shared library says of the libraries that it needs: read from its file, never loaded.

Format: the ELF specification (System V ABI, chapters 4 and 5), 64-bit, little-endian. Nothing is mapped: a file that
is cut short while it is read, or lies on a broken disk, gives an error and no signal.
"""

from __future__ import annotations

import os
import re
import struct
import time

from ..model import Value

CHUNK = 8 << 20  # bytes that are read at once; a name that lies across two chunks is seen in the second
LONGEST = 128  # a file name in a library's text
TABLE = 64 << 20  # no dynamic section or string table is larger than this
# Of the dynamic section (System V ABI, figure 5-10).
_NEEDED, _STRTAB, _STRSZ, _SONAME, _RPATH, _RUNPATH = 1, 5, 10, 14, 15, 29
_LOAD, _DYNAMIC = 1, 2  # program headers
_WRITE, _ALLOC, _EXECUTE = 1, 2, 4  # flags of a section
_FILE_NAME = re.compile(rb"\x00(lib[A-Za-z0-9_+.-]{1,100}\.so(?:\.[0-9]+)*)\x00")


class NotElfError(Exception):
    """The file is no 64-bit ELF shared library, or it is cut short; the text says which."""


class Library(Value):
    """What the file at `path` says. `names` are the file names among its texts: what it may open by name.

    `rpath` and `runpath` hold the entries as they stand, with $ORIGIN. `whole` is false if the time was over before
    all texts were read.
    """

    path: str
    soname: str = ""
    needed: tuple[str, ...] = ()
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    whole: bool = True


def read(path: str, *, names: bool, deadline: float = float("inf")) -> Library:
    """The library at `path`; its texts are read only with `names`, until `deadline` (time.monotonic).

    NotElfError if it is none; OSError if it cannot be read.
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
    if len(head) < 64 or head[:4] != b"\x7fELF":
        raise NotElfError("it is empty" if size == 0 else "it is no ELF file")
    if head[4:6] != b"\x02\x01":
        raise NotElfError("it is no 64-bit little-endian ELF file")
    kind, phoff, shoff = struct.unpack_from("<H14x2Q", head, 16)
    phsize, phnum, shsize, shnum, shstr = struct.unpack_from("<5H", head, 54)
    if kind != 3:
        raise NotElfError("it is an ELF file and no shared library")
    segments = _segments(file, phoff, phsize, phnum)
    end = max([offset + length for type_, offset, _, length in segments if type_ == _LOAD], default=0)
    if end > size:
        raise NotElfError(f"it is cut short: {size} bytes, and its headers speak of {end}")
    tags = _dynamic(file, segments)
    found = () if not names else _texts(file, (shoff, shsize, shnum, shstr), size, deadline)
    return Library(
        path=path,
        soname=next(iter(tags[_SONAME]), ""),
        needed=tuple(tags[_NEEDED]),
        rpath=_entries(tags[_RPATH]),
        runpath=_entries(tags[_RUNPATH]),
        names=tuple(sorted(set(found or ()))),
        whole=found is not None,
    )


def _entries(texts: list[str]) -> tuple[str, ...]:
    return tuple(entry for text in texts for entry in text.split(":") if entry)


def _segments(file: int, offset: int, size: int, count: int) -> list[tuple[int, int, int, int]]:
    """(type, offset in the file, address, length in the file) of each program header."""
    table = os.pread(file, min(size * count, TABLE), offset)
    rows = [struct.unpack_from("<I4xQQ8xQ", table, index * size) for index in range(count)]
    return [(type_, start, address, length) for type_, start, address, length in rows]


def _dynamic(file: int, segments: list[tuple[int, int, int, int]]) -> dict[int, list[str]]:
    """The texts of the dynamic section's entries, by tag."""
    texts: dict[int, list[str]] = {tag: [] for tag in (_NEEDED, _SONAME, _RPATH, _RUNPATH)}
    found = [(offset, length) for type_, offset, _, length in segments if type_ == _DYNAMIC]
    if not found:
        return texts
    table = os.pread(file, min(found[0][1], TABLE), found[0][0])
    rows = list(struct.iter_unpack("<2Q", table[: len(table) // 16 * 16]))
    values = dict(rows)
    strings = b""
    for type_, offset, address, length in segments:
        if type_ == _LOAD and address <= values.get(_STRTAB, -1) < address + length:
            strings = os.pread(file, min(values.get(_STRSZ, 0), TABLE), offset + values[_STRTAB] - address)
    for tag, value in rows:
        if tag in texts:
            texts[tag].append(strings[value : strings.find(b"\0", value)].decode(errors="replace"))
    return texts


def _texts(file: int, table: tuple[int, int, int, int], size: int, deadline: float) -> list[str] | None:
    """The file names among the read-only data; None when the time was over. GPU code and text are no data."""
    offset, width, count, names = table
    headers = os.pread(file, min(width * count, TABLE), offset)
    rows = [struct.unpack_from("<IIQQQQ", headers, place) for place in range(0, len(headers) - 63, max(width, 64))]
    if names >= len(rows):
        return []
    strings = os.pread(file, min(rows[names][5], TABLE), rows[names][4])
    found: list[str] = []
    for name, _, flags, _, start, length in rows:
        title = strings[name : strings.find(b"\0", name)]
        # Not .lrodata: it holds large objects only (x86-64 psABI, medium code model), such as weights of heuristics.
        if not title.startswith(b".rodata") or flags & (_WRITE | _EXECUTE) or not flags & _ALLOC:
            continue
        for place in range(start, min(start + length, size), CHUNK):
            if time.monotonic() > deadline:
                return None
            # One chunk begins where the last names of the one before could have begun.
            begin = max(start, place - LONGEST)
            data = os.pread(file, min(place + CHUNK, start + length) - begin, begin)
            found += _names_in(b"\0" + data if begin == start else data)
    return found


def _names_in(data: bytes) -> list[str]:
    """File names that are texts of their own, ended by NUL on both sides: no part of a message or of a path."""
    found = []
    place = data.find(b"\0lib")
    while place >= 0:
        match = _FILE_NAME.match(data, place)
        if match:
            found.append(match.group(1).decode())
        place = data.find(b"\0lib", place + 1)
    return found
