"""Read the sections and the imports of a PE file (a Windows library) from its headers.

Format: Microsoft's "PE Format". Only 64-bit files are read. A section's name has at most eight
bytes, so that .nv_fatbin is .nv_fatb here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO

from ..model import Value

MAGIC = b"MZ"
FAT_SECTIONS = (".nv_fatb", "__nv_rel")
MACHINES = {0x8664: "x86_64", 0xAA64: "aarch64"}
_HEAD = 1 << 14  # the headers of every library are shorter
_PE32_PLUS = 0x20B
_IMPORTS, _DELAYED_IMPORTS = 1, 13  # data directories
_LONGEST_NAME = 256


class NotPeError(Exception):
    """The file is not a 64-bit PE file, or it is truncated. The message says which."""


class Section(Value):
    """A section: where it is in the file and in memory."""

    name: str
    offset: int
    length: int
    address: int


class File(Value):
    """A PE file: its machine, its sections, and the libraries that it imports."""

    machine: str
    sections: tuple[Section, ...]
    imports: tuple[str, ...]


def read(file: IO[bytes]) -> File:
    """Read the headers of an open file.

    Raises:
        NotPeError: the file is not a 64-bit PE file, or it is truncated.
        OSError: the file cannot be read.
    """
    file.seek(0)
    head = file.read(_HEAD)
    try:
        return _read(file, head)
    except struct.error:
        raise NotPeError("its headers are cut short, or damaged") from None


def _read(file: IO[bytes], head: bytes) -> File:
    if not head.startswith(MAGIC):
        raise NotPeError("it is not a PE file")
    (start,) = struct.unpack_from("<I", head, 0x3C)
    if head[start : start + 4] != b"PE\0\0":
        raise NotPeError("it is not a PE file")
    machine, count, optional_size = struct.unpack_from("<HH12xH", head, start + 4)
    optional = start + 24
    if struct.unpack_from("<H", head, optional)[0] != _PE32_PLUS:
        raise NotPeError("it is not a 64-bit PE file")
    sections = []
    for place in range(optional + optional_size, optional + optional_size + 40 * count, 40):
        name, address, length, offset = struct.unpack_from("<8s4x3I", head, place)
        title = name.rstrip(b"\0").decode("ascii", "replace")
        sections.append(Section(name=title, offset=offset, length=length, address=address))
    (directories,) = struct.unpack_from("<I", head, optional + 108)
    names: list[str] = []
    for number, row_size, field in ((_IMPORTS, 20, 12), (_DELAYED_IMPORTS, 32, 4)):
        if number < directories:
            (address,) = struct.unpack_from("<I", head, optional + 112 + 8 * number)
            names += _imports(file, sections, address, row_size, field)
    return File(
        machine=MACHINES.get(machine, str(machine)),
        sections=tuple(sections),
        imports=tuple(dict.fromkeys(names)),
    )


def _imports(
    file: IO[bytes], sections: list[Section], table: int, row_size: int, field: int
) -> Iterator[str]:
    """Yield the names in a table of imports. Each row has the address of a name at `field`."""
    while table:
        row = _at(file, sections, table, row_size)
        if len(row) < row_size or not any(row):
            return
        (address,) = struct.unpack_from("<I", row, field)
        name = _at(file, sections, address, _LONGEST_NAME).partition(b"\0")[0]
        if not name:
            return
        yield name.decode("ascii", "replace")
        table += row_size


def _at(file: IO[bytes], sections: list[Section], address: int, size: int) -> bytes:
    """Return the bytes at an address of the loaded library; b"" if no section has the address."""
    for section in sections:
        if section.address <= address < section.address + section.length:
            file.seek(section.offset + address - section.address)
            return file.read(size)
    return b""
