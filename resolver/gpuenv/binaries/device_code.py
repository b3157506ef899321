"""Read the device code of one file: a shared library, a cubin, a fat binary, or PTX.

Shared libraries are ELF files, or PE files (.dll and .pyd on Windows).

The flags of a cubin (machine EM_CUDA) were found by compiling a kernel for each target with ptxas
12.9 and 13.0. Version 7 of the ABI has the target in the lowest byte and bit 0x800 for an
architecture-specific target. Version 8 has the target in the second byte; bit 0x8 or attribute 9 of
the section .nv.compat marks an architecture-specific target. No version marks a family target.

Payloads of fat binaries are passed over, because the largest libraries have two gigabytes of them.
CUDA's `fatbinary` writes the layout (include/fatbinary_section.h names the magic number). The rest
was found by making fat binaries with known targets and comparing them with the list of `cuobjdump`:

    header      u32 magic, u16 version, u16 header size, u64 size of the entries
    entry       u16 kind (1 PTX, 2 SASS; +0x100 several images compressed as one), u16, u32 header
                size, u64 size of the payload, ..., at 24 u16 minor and u16 major of the PTX
                language (for PTX), at 28 u32 architecture, at 40 u64 flags (0x100000
                architecture-specific, 0x200000 family-specific)
    several     at 56 u64 size of all images decompressed, at 64 u32 count, u32 length of what
                follows with these two, then one entry header for each image: u32 offset of its
                decompressed payload in place of the header's size, u64 size of it, and after its 64
                bytes the names and options of the entry

Kinds other than PTX and SASS (code for link-time optimization) are passed over: no GPU runs them.
"""

from __future__ import annotations

import io
import os
import re
import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import IO

from ..compat.architectures import parse_target
from ..model import Code, Value, parse_pair
from . import elf

# Of libraries that are no collections of engines, a target counts if a tenth of the fat binaries
# that have the most common target have it, too: torch 2.15.0 has sm_75 in each of 476, and sm_89 in
# one. A target with a suffix beside the plain one of its device (sm_100a in 59 of torch's 476) adds
# nothing for that device: it counts only if half of them have it.
_SOME, _MOST = 0.1, 0.5

_CUDA_MACHINE = 190  # EM_CUDA
_SECOND_ABI = 65  # ELFOSABI of cubins of the ABI version 8
_SPECIFIC_FIRST, _SPECIFIC_SECOND = 0x800, 0x8  # flags of an architecture-specific target
_LARGEST_COMPAT = 1 << 16  # bytes of .nv.compat
_PE_SECTIONS = (".nv_fatb", "__nv_rel")  # a name has at most eight bytes
_PTX_VERSION = re.compile(rb"^\s*\.version\s+(\d+\.\d+)", re.MULTILINE)
_PTX_TARGET = re.compile(rb"^\s*\.target\s+sm_(\d+[af]?)", re.MULTILINE)
# Bytes at the beginning: the headers of every library of Windows, or the part of a text in which
# PTX names its version and target.
_HEAD = 1 << 14
_MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
PTX, SASS = 1, 2
# The sections of fat binaries; the second is of code that is linked on the device (-rdc).
_SECTIONS = (".nv_fatbin", "__nv_relfatbin")
_BLOCK = 1 << 20
_HEADER = 16
_ENTRY = 64
_SIZE_OF_ALL, _SEVERAL_ENTRIES = 56, 72
_VERSION = 0x101
_SEVERAL = 0x100
_SPECIFIC, _FAMILY = 0x100000, 0x200000
_LARGEST_HEADER = 1 << 20  # of an entry; of several compressed as one it holds a header for each
_SMALLEST_ARCH, _LARGEST_ARCH = 10, 200

# (kind, target, PTX language version or "")
Image = tuple[int, str, str]


class DamagedFileError(ValueError):
    """A file that is not what it should be; the text says what and where."""


class _NoFatBinaryError(DamagedFileError):
    """There is no fat binary at a place of a file."""


class Images(Value):
    """The device code of a file, counted.

    Attributes:
        binaries: the number of fat binaries.
        sass: (target, number of fat binaries that have it), ascending.
        ptx: (target, PTX language version, number of fat binaries that have it), ascending.
    """

    binaries: int = 0
    sass: tuple[tuple[str, int], ...] = ()
    ptx: tuple[tuple[str, str, int], ...] = ()


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
            if section.name in _SECTIONS
        ]
    elif head.startswith(b"MZ"):
        ranges = _pe_ranges(head)
    elif head.startswith(_MAGIC):
        ranges = [(0, size)]
    else:
        version, ptx_target = _PTX_VERSION.search(head), _PTX_TARGET.search(head)
        if version is None or ptx_target is None:
            return None
        return _one_image(PTX, ptx_target[1].decode(), version[1].decode())
    for _, end in ranges:
        if end > size:
            raise DamagedFileError(f"its device code ends at byte {end} of {size}")
    return read_ranges(file, ranges)


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
            if name.rstrip(b"\0").decode("ascii", "replace") in _PE_SECTIONS:
                ranges.append((offset, offset + length))
    except struct.error:
        raise DamagedFileError("its headers are cut short, or damaged") from None
    return ranges


# ---- fat binaries --------------------------------------------------------------------------------


def read_ranges(file: IO[bytes], ranges: Iterable[tuple[int, int]]) -> Images:
    """Read parts of a file that have nothing but zeros and fat binaries.

    Args:
        file: an open file.
        ranges: where each part begins and ends.

    Raises:
        DamagedFileError: a part has something else, or ends before a fat binary does.
    """
    counts: Counter[Image] = Counter()
    binaries, size = 0, file.seek(0, io.SEEK_END)
    for start, end in ranges:
        place = _first_content(file, start, end)
        while place < end:
            try:
                last, images = _read_binary(file, place, size)
            except _NoFatBinaryError:
                problem = f"has something else than a fat binary at byte {place}"
                raise DamagedFileError(f"its section of device code {problem}") from None
            if last > end:
                problem = f"ends at byte {end}, before the last fat binary does"
                raise DamagedFileError(f"its section of device code {problem}")
            counts.update(images)
            binaries += bool(images)  # one of libcublasLt 12.8.3.14 has no entry
            place = _first_content(file, last, end)
    return summary(counts, binaries)


def summary(counts: Counter[Image], binaries: int = 1) -> Images:
    """Return the device code of a file.

    Args:
        counts: in how many fat binaries each image is.
        binaries: the number of fat binaries.
    """
    sass, ptx = [], []
    for image in sorted(counts, key=lambda image: (int(image[1].rstrip("af")), image)):
        kind, target, language = image
        if kind == SASS:
            sass.append((target, counts[image]))
        elif kind == PTX:
            ptx.append((target, language, counts[image]))
    return Images(binaries=binaries, sass=tuple(sass), ptx=tuple(ptx))


def _read_binary(file: IO[bytes], start: int, size: int) -> tuple[int, set[Image]]:
    """Read the fat binary at a place of a file of `size` bytes.

    Returns:
        Where it ends, and its images.

    Raises:
        _NoFatBinaryError: there is none.
        DamagedFileError: it contradicts itself.
    """
    file.seek(start)
    head = file.read(_HEADER)
    if start % 8 or len(head) < _HEADER or not head.startswith(_MAGIC):
        raise _NoFatBinaryError(f"there is no fat binary at byte {start}")
    end = start + _HEADER + struct.unpack_from("<Q", head, 8)[0]
    if end > size:
        raise _NoFatBinaryError(f"what begins at byte {start} ends after the file")
    images: set[Image] = set()
    place = start + _HEADER
    while end - place >= _ENTRY:  # what is shorter is padding
        file.seek(place)
        entry = file.read(_ENTRY)
        if len(entry) < _ENTRY:
            raise DamagedFileError(f"it ends at byte {place + len(entry)} of {end}")
        kind, version, length, payload = struct.unpack_from("<HHIQ", entry)
        architecture = struct.unpack_from("<I", entry, 28)[0]
        if kind & _SEVERAL:
            known, least = kind == _SEVERAL, _SEVERAL_ENTRIES
        else:
            known, least = kind > 0 and _SMALLEST_ARCH <= architecture < _LARGEST_ARCH, _ENTRY
        fits = least <= length <= _LARGEST_HEADER and place + length + payload <= end
        if not (known and version == _VERSION and fits):
            text = f"the fat binary at byte {start} has no entry at byte {place}"
            raise (DamagedFileError if images else _NoFatBinaryError)(text)
        if kind == _SEVERAL:
            images |= _several(entry + file.read(length - _ENTRY), place)
        else:
            images.add(_image(kind, entry, 0))
        place += length + payload
    return end, images


def _several(head: bytes, place: int) -> set[Image]:
    """Return the images of an entry of several that are compressed as one."""
    total, count = struct.unpack_from("<QI", head, _SIZE_OF_ALL)
    images = []
    offset, inner = 0, _SEVERAL_ENTRIES
    # Names and options have any length. The payload begins where the last one ended.
    while inner + _ENTRY <= len(head):
        kind, version, start, size = struct.unpack_from("<HHIQ", head, inner)
        if 0 < kind < _SEVERAL and (version, start) == (_VERSION, offset & 0xFFFFFFFF) and size:
            images.append(_image(kind, head, inner))
            offset, inner = offset + size, inner + _ENTRY
        else:
            inner += 8
    if (len(images), offset) != (count, total):
        raise DamagedFileError(f"the entry at byte {place} does not hold the images that it names")
    return set(images)


def _image(kind: int, head: bytes, place: int) -> Image:
    minor, major, architecture = struct.unpack_from("<HHI", head, place + 24)
    flags = struct.unpack_from("<Q", head, place + 40)[0]
    suffix = "a" if flags & _SPECIFIC else "f" if flags & _FAMILY else ""
    return kind, f"{architecture}{suffix}", f"{major}.{minor}" if kind == PTX else ""


def _first_content(file: IO[bytes], start: int, end: int) -> int:
    """Return the place of the first byte that is not zero, `end` if all are."""
    place, size = start, _HEADER  # most fat binaries follow one another
    while place < end:
        file.seek(place)
        block = file.read(min(size, end - place))
        if not block:
            raise DamagedFileError(f"it ends at byte {place} of {end}")
        if rest := block.lstrip(b"\0"):
            return place + len(block) - len(rest)
        place, size = place + len(block), _BLOCK
    return end


# ---- what counts ---------------------------------------------------------------------------------


def code_of(images: Images, toolkits: Mapping[str, str], *, every_target: bool) -> Code:
    """Return the targets of a file that count.

    PTX of only a minority of the fat binaries gets no toolkit, so that it never serves a device.

    Args:
        images: the device code of the file.
        toolkits: the first toolkit that writes each version of the PTX language.
        every_target: whether each target counts that any fat binary has, as in collections of
            engines: each fat binary there serves one kind of device.
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
    return Code(sass=tuple(sass), ptx=tuple(ptx), made_by=made_by, evidence="scanned")


def all_code(codes: Sequence[Code]) -> Code:
    """Return every target that any of some files has.

    The PTX gets a toolkit if that of each file has one.
    """
    sass = {target for code in codes for target in code.sass or ()}
    ptx = {target for code in codes for target in code.ptx or ()}
    makers = [code.made_by for code in codes if code.ptx]
    known = [maker for maker in makers if maker is not None]
    return Code(
        sass=tuple(sorted(sass, key=parse_target)),
        ptx=tuple(sorted(ptx, key=parse_target)),
        made_by=max(known) if known and len(known) == len(makers) else None,
        evidence="scanned",
    )
