"""Read the images of fat binaries in a file.

Payloads are passed over, because the largest libraries have two gigabytes of them.

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
import struct
from collections import Counter
from collections.abc import Iterable
from typing import IO

from ..model import Value

MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
PTX, SASS = 1, 2
# The sections of fat binaries; the second is of code that is linked on the device (-rdc).
SECTIONS = (".nv_fatbin", "__nv_relfatbin")
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


class NoFatBinaryError(DamagedFileError):
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


def read_ranges(file: IO[bytes], ranges: Iterable[tuple[int, int]], name: str) -> Images:
    """Read parts of a file that have nothing but zeros and fat binaries.

    Args:
        file: an open file.
        ranges: where each part begins and ends.
        name: what messages call a part.

    Raises:
        DamagedFileError: a part has something else, or ends before a fat binary does.
    """
    counts: Counter[Image] = Counter()
    binaries, size = 0, file.seek(0, io.SEEK_END)
    for start, end in ranges:
        place = _first_content(file, start, end)
        while place < end:
            try:
                last, images = read_binary(file, place, size)
            except NoFatBinaryError:
                raise DamagedFileError(
                    f"{name} has something else than a fat binary at byte {place}"
                ) from None
            if last > end:
                raise DamagedFileError(
                    f"{name} ends at byte {end}, before the last fat binary does"
                )
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


def read_binary(file: IO[bytes], start: int, size: int) -> tuple[int, set[Image]]:
    """Read the fat binary at a place of a file of `size` bytes.

    Returns:
        Where it ends, and its images.

    Raises:
        NoFatBinaryError: there is none.
        DamagedFileError: it contradicts itself.
    """
    file.seek(start)
    head = file.read(_HEADER)
    if start % 8 or len(head) < _HEADER or not head.startswith(MAGIC):
        raise NoFatBinaryError(f"there is no fat binary at byte {start}")
    end = start + _HEADER + struct.unpack_from("<Q", head, 8)[0]
    if end > size:
        raise NoFatBinaryError(f"what begins at byte {start} ends after the file")
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
            raise (DamagedFileError if images else NoFatBinaryError)(text)
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
