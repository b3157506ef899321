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
import tempfile
from collections.abc import Iterable, Mapping
from typing import IO

from ..compat.architectures import parse_target
from ..model import Code, parse_pair
from . import elf, pe
from .fat_binaries import (
    MAGIC,
    PTX,
    SASS,
    SECTIONS,
    DamagedFileError,
    Image,
    Images,
    Splitter,
    check_section,
    summary,
)

CHUNK = 1 << 18
# Of libraries that are no collections of engines, a target counts if a tenth of the fat binaries
# that have the most common target have it, too: torch 2.15.0 has sm_75 in each of 476, and sm_89 in
# one. A target with a suffix beside the plain one of its device (sm_100a in 59 of torch's 476) adds
# nothing for that device: it counts only if half of them have it.
_SOME, _MOST = 0.1, 0.5

_CUDA_MACHINE = 190  # EM_CUDA
_SECOND_ABI = 65  # ELFOSABI of cubins of the ABI version 8
_SPECIFIC_FIRST, _SPECIFIC_SECOND = 0x800, 0x8  # flags of an architecture-specific target
_PTX_VERSION = re.compile(rb"^\s*\.version\s+(\d+\.\d+)", re.MULTILINE)
_PTX_TARGET = re.compile(rb"^\s*\.target\s+sm_(\d+[af]?)", re.MULTILINE)
_PTX_HEAD = 1 << 14  # bytes of a text in which PTX names its version and target


def read_file(path: str) -> Images | None:
    """Return the device code of a file; None for a file that can have none.

    Raises:
        DamagedFileError: the file is damaged.
        OSError: the file cannot be read.
    """
    with open(path, "rb", buffering=0) as file:
        head = os.pread(file.fileno(), _PTX_HEAD, 0)
        if head.startswith(b"\x7fELF"):
            return _read_elf(file)
        if head.startswith(pe.MAGIC):
            return _read_library(file, _fat_ranges_of_pe(file))
        if head.startswith(MAGIC):
            return _read_ranges(file, [(0, os.fstat(file.fileno()).st_size)])
        return _read_ptx(head)


def read_stream(chunks: Iterable[bytes], size: int) -> Images | None:
    """Return the device code of a file of `size` bytes that comes as a stream.

    The payloads of fat binaries are not stored.

    Raises:
        DamagedFileError: the file is damaged.
    """
    with tempfile.TemporaryFile(buffering=0) as file:
        splitter = Splitter(file, size)
        for chunk in chunks:
            splitter.feed(chunk)
        splitter.close()
        head = os.pread(file.fileno(), _PTX_HEAD, 0)
        if head.startswith(b"\x7fELF"):
            content = _elf(file)
            if content.machine == _CUDA_MACHINE:
                return _read_cubin(file, content)
            return _count(file, splitter, _fat_ranges(content))
        if head.startswith(pe.MAGIC):
            return _count(file, splitter, _fat_ranges_of_pe(file))
        if splitter.binaries.keys() & {0}:
            return summary(splitter.images, [(0, size)])
        return _read_ptx(head)


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


# ---- libraries -----------------------------------------------------------------------------------


def _elf(file: IO[bytes]) -> elf.File:
    try:
        return elf.read_sections(file.fileno())
    except elf.NotElfError as error:
        raise DamagedFileError(str(error)) from error


def _read_elf(file: IO[bytes]) -> Images | None:
    content = _elf(file)
    if content.machine == _CUDA_MACHINE:
        return _read_cubin(file, content)
    return _read_library(file, _fat_ranges(content))


def _read_library(file: IO[bytes], ranges: list[tuple[int, int]]) -> Images:
    size = os.fstat(file.fileno()).st_size
    for _, end in ranges:
        if end > size:
            raise DamagedFileError(f"its device code ends at byte {end} of {size}")
    return _read_ranges(file, ranges)


def _fat_ranges(content: elf.File) -> list[tuple[int, int]]:
    fatbin_sections = [section for section in content.sections if section.name in SECTIONS]
    return [(section.offset, section.offset + section.length) for section in fatbin_sections]


def _fat_ranges_of_pe(file: IO[bytes]) -> list[tuple[int, int]]:
    try:
        content = pe.read(file)
    except pe.NotPeError as error:
        raise DamagedFileError(str(error)) from error
    return [
        (section.offset, section.offset + section.length)
        for section in content.sections
        if section.name in pe.FAT_SECTIONS
    ]


def _read_ranges(file: IO[bytes], ranges: list[tuple[int, int]]) -> Images:
    """Read the fat binaries in parts of a file. Payloads are skipped."""
    images: list[Image] = []
    for start, end in ranges:
        splitter = Splitter(None, end, start)
        at = start
        while at < end:
            data = os.pread(file.fileno(), min(CHUNK, end - at), at)
            if not data:
                raise DamagedFileError(f"it ends at byte {at} of {end}")
            splitter.feed(data)
            at += len(data) + splitter.pass_payload()
        check_section(file, "of device code", start, end, splitter)
        images += splitter.images
    return summary(images, ranges)


def _count(file: IO[bytes], splitter: Splitter, ranges: list[tuple[int, int]]) -> Images:
    for start, end in ranges:
        check_section(file, "of device code", start, end, splitter)
    return summary(splitter.images, ranges)


def _read_cubin(file: IO[bytes], content: elf.File) -> Images:
    number, specific = content.flags & 0xFF, bool(content.flags & _SPECIFIC_FIRST)
    if content.abi == _SECOND_ABI:
        number = content.flags >> 8 & 0xFF
        specific = bool(content.flags & _SPECIFIC_SECOND) or _is_marked(file, content)
    target = f"{number}a" if specific else str(number)
    return summary([(0, SASS, target, "")], [(0, 1)])


def _is_marked(file: IO[bytes], content: elf.File) -> bool:
    """Return whether .nv.compat says that a cubin is architecture-specific.

    Its entries are u8 form, u8 attribute and a value of two bytes; in form 4 the value is the size
    of what follows.
    """
    for section in content.sections:
        if section.name != ".nv.compat":
            continue
        data = os.pread(file.fileno(), min(section.length, CHUNK), section.offset)
        place = 0
        while place + 4 <= len(data):
            form, attribute, value = data[place], data[place + 1], data[place + 2]
            if attribute == 9 and value == 1:
                return True
            place += 4 + (int.from_bytes(data[place + 2 : place + 4], "little") * (form == 4))
    return False


def _read_ptx(head: bytes) -> Images | None:
    version, target = _PTX_VERSION.search(head), _PTX_TARGET.search(head)
    if version is None or target is None:
        return None
    return summary([(0, PTX, target[1].decode(), version[1].decode())], [(0, 1)])
