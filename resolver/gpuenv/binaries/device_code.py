"""Read the device code of one file: a shared library, a cubin, a fat binary, or PTX.

Shared libraries are ELF files, or PE files (.dll and .pyd on Windows).

The flags of a cubin (machine EM_CUDA) were found by compiling a kernel for each target with ptxas
12.9 and 13.0. Version 7 of the ABI has the target in the lowest byte and bit 0x800 for an
architecture-specific target. Version 8 has the target in the second byte; bit 0x8 or attribute 9 of
the section .nv.compat marks an architecture-specific target. No version marks a family target.
"""

from __future__ import annotations

import os
import re
import struct
from collections import Counter
from collections.abc import Mapping
from typing import IO

from ..compat.architectures import parse_target
from ..model import Code, parse_pair
from . import elf
from .fat_binaries import (
    MAGIC,
    PTX,
    SASS,
    SECTIONS,
    DamagedFileError,
    Images,
    read_ranges,
    summary,
)

# Of libraries that are no collections of engines, a target counts if a tenth of the fat binaries
# that have the most common target have it, too: torch 2.15.0 has sm_75 in each of 476, and sm_89 in
# one. A target with a suffix beside the plain one of its device (sm_100a in 59 of torch's 476) adds
# nothing for that device: it counts only if half of them have it.
_SOME, _MOST = 0.1, 0.5

_CUDA_MACHINE = 190  # EM_CUDA
_SECOND_ABI = 65  # ELFOSABI of cubins of the ABI version 8
_SPECIFIC_FIRST, _SPECIFIC_SECOND = 0x800, 0x8  # flags of an architecture-specific target
_LARGEST_COMPAT = 1 << 16  # bytes of .nv.compat
PE_SECTIONS = (".nv_fatb", "__nv_rel")  # a name has at most eight bytes
_PTX_VERSION = re.compile(rb"^\s*\.version\s+(\d+\.\d+)", re.MULTILINE)
_PTX_TARGET = re.compile(rb"^\s*\.target\s+sm_(\d+[af]?)", re.MULTILINE)
# Bytes at the beginning: the headers of every library of Windows, or the part of a text in which
# PTX names its version and target.
_HEAD = 1 << 14


def read_file(path: str) -> Images | None:
    """Return the device code of the file at `path`: see `read_code`."""
    with open(path, "rb") as file:
        return read_code(file)


def read_code(file: IO[bytes]) -> Images | None:
    """Return the device code of an open file; None for a file that can have none.

    Raises:
        DamagedFileError: the file is damaged.
        OSError: the file cannot be read.
    """
    head, size = file.read(_HEAD), os.fstat(file.fileno()).st_size
    file.seek(0)
    if head.startswith(b"\x7fELF"):
        try:
            content = elf.parse(file)
        except elf.NotElfError as error:
            raise DamagedFileError(str(error)) from error
        end = content.sections_end
        if end > size:
            raise DamagedFileError(f"its section table ends at byte {end} of {size}")
        if content.machine == _CUDA_MACHINE:
            return _one_image(SASS, _target_of_cubin(file, content))
        ranges = [
            (section.offset, section.offset + section.length)
            for section in content.sections
            if section.name in SECTIONS
        ]
    elif head.startswith(b"MZ"):
        ranges = _pe_ranges(head)
    elif head.startswith(MAGIC):
        ranges = [(0, size)]
    else:
        version, ptx_target = _PTX_VERSION.search(head), _PTX_TARGET.search(head)
        if version is None or ptx_target is None:
            return None
        return _one_image(PTX, ptx_target[1].decode(), version[1].decode())
    for _, end in ranges:
        if end > size:
            raise DamagedFileError(f"its device code ends at byte {end} of {size}")
    return read_ranges(file, ranges, "its section of device code")


def _one_image(kind: int, target: str, language: str = "") -> Images:
    return summary(Counter([(kind, target, language)]))


def _target_of_cubin(file: IO[bytes], content: elf.File) -> str:
    flags = content.flags
    number, specific = flags & 0xFF, bool(flags & _SPECIFIC_FIRST)
    if content.abi == _SECOND_ABI:
        number, specific = flags >> 8 & 0xFF, bool(flags & _SPECIFIC_SECOND)
        for section in content.sections:
            if section.name != ".nv.compat":
                continue
            # The entries are u8 form, u8 attribute and a value of two bytes; in form 4 the value is
            # the size of what follows.
            data = elf.bytes_at(file, section.offset, min(section.length, _LARGEST_COMPAT))
            place = 0
            while place + 4 <= len(data):
                form, attribute, value = data[place], data[place + 1], data[place + 2]
                specific = specific or (attribute, value) == (9, 1)
                place += 4 + (int.from_bytes(data[place + 2 : place + 4], "little") * (form == 4))
    return f"{number}a" if specific else str(number)


def _pe_ranges(head: bytes) -> list[tuple[int, int]]:
    """Return where the fat binaries of a library of Windows are, by its headers.

    Format: Microsoft's "PE Format". pefile is not used: it maps the file into memory, and leaves
    out sections with several unusual facts. Libraries with GPU code have two of its three: more
    than 256 MiB, at an address above 256 MiB.
    """
    try:
        (start,) = struct.unpack_from("<I", head, 0x3C)
        signature, count, optional_size, magic = struct.unpack_from("<4s2xH12xH2xH", head, start)
        if (signature, magic) != (b"PE\0\0", 0x20B):
            raise DamagedFileError("it is not a 64-bit PE file")
        table = start + 24 + optional_size
        ranges = []
        for place in range(table, table + 40 * count, 40):
            name, length, offset = struct.unpack_from("<8s8x2I", head, place)
            if name.rstrip(b"\0").decode("ascii", "replace") in PE_SECTIONS:
                ranges.append((offset, offset + length))
    except struct.error:
        raise DamagedFileError("its headers are cut short, or damaged") from None
    return ranges


def code_of(
    images: Images, toolkits: Mapping[str, str], *, every_target: bool, source: str = ""
) -> Code:
    """Return the targets of a file that count.

    PTX of only a minority of the fat binaries gets no toolkit, so that it never serves a device.

    Args:
        images: the device code of the file.
        toolkits: the first toolkit that writes each version of the PTX language.
        every_target: whether each target counts that any fat binary has, as in collections of
            engines: each fat binary there serves one kind of device.
        source: where the code is from.
    """
    commonest = max((count for _, count in images.sass), default=0)
    sass = []
    for target, count in images.sass:
        share = _MOST if parse_target(target)[1] else _SOME
        if every_target or count >= commonest * share:
            sass.append(target)
    ptx = sorted({target for target, _, _ in images.ptx}, key=parse_target)
    whole = bool(ptx) and sum(count for _, _, count in images.ptx) >= _MOST * images.binaries
    makers = [toolkits.get(language) for _, language, _ in images.ptx]
    known = [parse_pair(maker) for maker in makers if maker]
    made_by = None
    if whole and len(known) == len(makers):
        made_by = max(known)
    return Code(
        sass=tuple(sass), ptx=tuple(ptx), made_by=made_by, evidence="scanned", source=source
    )
