"""Read the images of fat binaries from a stream.

The payloads of fat binaries are passed over while the stream goes by, because the largest libraries
have two gigabytes of a wheel.

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

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import IO

from ..model import Value

MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
HEADER = 16
ENTRY = 64
SIZE_OF_ALL, SEVERAL_ENTRIES = 56, 72
VERSION = 0x101
PTX, SASS, SEVERAL = 1, 2, 0x100
SPECIFIC, FAMILY = 0x100000, 0x200000
LARGEST_HEADER = 1 << 20  # of an entry; of several compressed as one it holds a header for each
SMALLEST_ARCH, LARGEST_ARCH = 10, 200
# The sections of fat binaries; the second is of code that is linked on the device (-rdc).
SECTIONS = (".nv_fatbin", "__nv_relfatbin")
BLOCK = 1 << 24

# (offset of the fat binary, kind, target, PTX language version or "")
Image = tuple[int, int, str, str]


class DamagedFileError(ValueError):
    """A file that is not what it should be; the text says what and where."""


class Images(Value):
    """The device code of a file, counted.

    Attributes:
        binaries: the number of fat binaries.
        sass: (target, number of fat binaries that have it), ascending.
        ptx: (target, PTX language version, number of fat binaries that have it), ascending.
        elsewhere: the number of images outside the sections where fat binaries belong.
    """

    binaries: int = 0
    sass: tuple[tuple[str, int], ...] = ()
    ptx: tuple[tuple[str, str, int], ...] = ()
    elsewhere: int = 0


class Splitter:
    """Finds the images in a library that comes as a stream of bytes.

    Attributes:
        images: every image.
        binaries: where each fat binary starts and ends.
        faults: what is wrong with the fat binaries that cannot be read, by their offset. Outside
            the sections of fat binaries the bytes may have been something else.
    """

    def __init__(self, file: IO[bytes] | None, size: int, start: int = 0) -> None:
        """Begin at a place of a library.

        Args:
            file: gets everything but the payloads, which become holes; None keeps nothing.
            size: the size of the library in bytes, or where the part that is read ends.
            start: the offset in the library of the first byte.
        """
        self.file, self.size = file, size
        self.images: list[Image] = []
        self.binaries: dict[int, int] = {}
        self.faults: dict[int, str] = {}
        self.block, self.place = b"", 0  # what came, and how much of it is decided
        self.at = start  # the offset in the library of what is not decided
        self.skip = 0  # bytes of a payload that are still to come
        self.binary, self.end = 0, 0  # the fat binary that is read: where it starts and ends

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the library."""
        if self.skip >= len(data):
            self.skip -= len(data)
            self.at += len(data)
            return
        self.at += self.skip
        self.block, self.place, self.skip = self.block[self.place :] + data[self.skip :], 0, 0
        while self._step():
            pass

    def pass_payload(self) -> int:
        """Return how many of the next bytes are payload, and count them as taken.

        A caller that can seek need not read them.
        """
        passed, self.skip = self.skip, 0
        if passed:
            # The decided bytes are gone, so that feed continues after the payload.
            self.at, self.block, self.place = self.at + passed, b"", 0
        return passed

    def close(self) -> None:
        """End after the last bytes. Raises DamagedFileError if bytes are missing."""
        rest = len(self.block) - self.place
        if self.skip or self.at + rest != self.size:
            raise DamagedFileError(f"it ends at byte {self.at + rest} of {self.size}")
        self._keep(rest)
        if self.file is not None:
            self.file.truncate(self.size)

    def _step(self) -> bool:
        """Decide what the next bytes are. Return whether another step may follow."""
        if self.at < self.end:
            return self._entry()
        place = self.block.find(MAGIC, self.place)
        while place >= 0 and (self.at + place - self.place) % 8:
            place = self.block.find(MAGIC, place + 1)
        if place < 0:
            self._keep(max(0, len(self.block) - self.place - len(MAGIC) + 1))
            return False
        self._keep(place - self.place)
        room = len(self.block) - place
        if room < HEADER + ENTRY and self.at + room < self.size:
            return False
        length = struct.unpack_from("<Q", self.block, place + 8)[0] if room >= HEADER + ENTRY else 0
        if length == 0 and room >= HEADER + ENTRY:  # one of libcublasLt 12.8.3.14 has no entry
            self.binaries[self.at] = self.at + HEADER
            self._keep(HEADER)
            return True
        if not 0 < length <= self.size - self.at - HEADER or not _is_entry(
            self.block, place + HEADER, length
        ):
            self._keep(len(MAGIC))  # a program that looks for fat binaries has the number, too
            return True
        self.binary, self.end = self.at, self.at + HEADER + length
        self.binaries[self.binary] = self.end
        self._pass(HEADER)
        return True

    def _entry(self) -> bool:
        room = len(self.block) - self.place
        if self.end - self.at < ENTRY:  # padding
            count = min(self.end - self.at, room)
            self._keep(count)
            return count > 0
        if room < ENTRY:
            return False
        if not _is_entry(self.block, self.place, self.end - self.at):
            return self._fault(
                f"the fat binary at byte {self.binary} has no entry at byte {self.at}"
            )
        kind, _, head, payload = struct.unpack_from("<HHIQ", self.block, self.place)
        if room < head:
            return False
        if not self._note(kind, self.block[self.place : self.place + head]):
            return self._fault(
                f"the entry at byte {self.at} does not hold the images that it names"
            )
        self._pass(head)
        passed = min(payload, len(self.block) - self.place)
        self.place, self.at, self.skip = self.place + passed, self.at + passed, payload - passed
        return True

    def _fault(self, text: str) -> bool:
        """Note a fault and stop reading this fat binary."""
        self.faults[self.binary] = text
        self.end = self.at
        return True

    def _note(self, kind: int, head: bytes) -> bool:
        """Note the images of an entry. Return False if its header contradicts itself."""
        if not kind & SEVERAL:
            self._image(kind, head, 0)
            return True
        total, count = struct.unpack_from("<QI", head, SIZE_OF_ALL)
        places: list[int] = []
        offset, place = 0, SEVERAL_ENTRIES
        # Names and options have any length. The payload begins where the last one ended.
        while place + ENTRY <= len(head):
            inner, version, start, size = struct.unpack_from("<HHIQ", head, place)
            if 0 < inner < SEVERAL and (version, start) == (VERSION, offset & 0xFFFFFFFF) and size:
                places.append(place)
                offset, place = offset + size, place + ENTRY
            else:
                place += 8
        if (len(places), offset) != (count, total):
            return False
        for place in places:
            self._image(struct.unpack_from("<H", head, place)[0], head, place)
        return True

    def _image(self, kind: int, head: bytes, place: int) -> None:
        minor, major, architecture = struct.unpack_from("<HHI", head, place + 24)
        flags = struct.unpack_from("<Q", head, place + 40)[0]
        suffix = ""
        if flags & SPECIFIC:
            suffix = "a"
        elif flags & FAMILY:
            suffix = "f"
        language = f"{major}.{minor}" if kind == PTX else ""
        self.images.append((self.binary, kind, f"{architecture}{suffix}", language))

    def _pass(self, count: int) -> None:
        # Headers stay out of the file like payloads: a library has a hundred thousand of them.
        self.place, self.at = self.place + count, self.at + count

    def _keep(self, count: int) -> None:
        if count and self.file is not None:
            self.file.seek(self.at)
            self.file.write(self.block[self.place : self.place + count])
        self._pass(count)


def _is_entry(data: bytes, place: int, room: int) -> bool:
    kind, version, head, payload = struct.unpack_from("<HHIQ", data, place)
    architecture = struct.unpack_from("<I", data, place + 28)[0]
    if kind & SEVERAL:
        known, least = kind == SEVERAL, SEVERAL_ENTRIES
    else:
        known, least = kind > 0 and SMALLEST_ARCH <= architecture < LARGEST_ARCH, ENTRY
    return bool(
        known and version == VERSION and least <= head <= LARGEST_HEADER and head + payload <= room
    )


def summary(images: Iterable[Image], sections: Sequence[tuple[int, int]]) -> Images:
    """Count images.

    Args:
        images: those of a whole file.
        sections: (start, end) of each section of fat binaries.
    """
    unique = set(images)
    inside = set()
    for image in unique:
        if any(start <= image[0] < end for start, end in sections):
            inside.add(image)
    sass = Counter(target for _, kind, target, _ in inside if kind == SASS)
    ptx = Counter((target, language) for _, kind, target, language in inside if kind == PTX)
    ptx_keys = sorted(ptx, key=lambda key: (_number(key[0]), *key))
    return Images(
        binaries=len({image[0] for image in inside}),
        sass=tuple((target, sass[target]) for target in sorted(sass, key=_target_order)),
        ptx=tuple((*key, ptx[key]) for key in ptx_keys),
        elsewhere=len(unique) - len(inside),
    )


def check_section(stream: IO[bytes], name: str, start: int, end: int, splitter: Splitter) -> None:
    """Check that a section has nothing but zeros and fat binaries that could be read.

    Args:
        stream: the library.
        name: the name of the section.
        start: where it starts.
        end: where it ends.
        splitter: read the library.

    Raises:
        DamagedFileError: it has something else.
    """
    for place, fault in splitter.faults.items():
        if start <= place < end:
            raise DamagedFileError(fault)
    at = start
    inside = sorted(pair for pair in splitter.binaries.items() if start <= pair[0] < end)
    for first, last in [*inside, (end, end)]:
        for place in range(at, first, BLOCK):
            stream.seek(place)
            gap = stream.read(min(BLOCK, first - place))
            if rest := gap.lstrip(b"\0"):
                byte = place + len(gap) - len(rest)
                raise DamagedFileError(
                    f"its section {name} has something else than a fat binary at byte {byte}"
                )
        if last > end:
            raise DamagedFileError(
                f"its section {name} ends at byte {end}, before the last fat binary does"
            )
        at = last


def _target_order(target: str) -> tuple[int, str]:
    return _number(target), target


def _number(target: str) -> int:
    return int(target.rstrip("af"))
