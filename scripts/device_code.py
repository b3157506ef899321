"""What a shared library says about itself: the device code that it carries, and the libraries that it needs.

`read_library` takes the library as a stream, because the largest are two gigabytes of a wheel that nobody wants to
unpack: the payloads of fat binaries are passed over while the stream goes by, everything else goes to a temporary
file for pyelftools.

The layout of a fat binary is what CUDA's `fatbinary` writes (include/fatbinary_section.h names the magic number); the
rest was found by making fat binaries with known targets and comparing with what `cuobjdump` lists, which
tests/test_scan.py repeats:

    header      u32 magic, u16 version, u16 header size, u64 size of the entries
    entry       u16 kind (1 PTX, 2 SASS; +0x100 several images compressed as one), u16, u32 header size,
                u64 size of the payload, ..., at 24 u16 minor and u16 major of the PTX language (for PTX),
                at 28 u32 architecture, at 40 u64 flags (0x100000 architecture-specific, 0x200000 family-specific)
    several     at 56 u64 size of all images decompressed, at 64 u32 count, u32 length of what follows with these two,
                then one entry header an image: u32 offset of its decompressed payload in place of the header's size,
                u64 size of it, and after its 64 bytes the names and options that the entry has

Kinds other than PTX and SASS (code for link-time optimisation) are passed over: no GPU runs them as they are.
"""

from __future__ import annotations

import re
import struct
import tempfile
from collections import Counter
from collections.abc import Iterable
from typing import IO, Any

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
HEADER = 16
ENTRY = 64
SIZE_OF_ALL, SEVERAL_ENTRIES = 56, 72
VERSION = 0x101
PTX, SASS, SEVERAL = 1, 2, 0x100
SPECIFIC, FAMILY = 0x100000, 0x200000
LARGEST_HEADER = 1 << 20  # of an entry; of several compressed as one it holds a header for each
SMALLEST_ARCH, LARGEST_ARCH = 10, 200
# Fat binaries stand in these; the second is of code that is linked on the device (-rdc).
SECTIONS = (".nv_fatbin", "__nv_relfatbin")
# A library that is opened by name: the name stands in the constants. A version may be added at run time.
SUFFIX = re.compile(rb"\.so(?:\.\d+)*(?![\w.+-])")
STEM = re.compile(rb"(?<![\w.%/+-])lib[\w+-]+\Z")
LONGEST_NAME = 255
CONSTANTS = (".rodata", ".data")
BLOCK = 1 << 24


ELF = b"\x7fELF"
TAGS = {"DT_NEEDED": "needed", "DT_SONAME": "soname", "DT_RUNPATH": "runpath", "DT_RPATH": "rpath"}


class DamagedFileError(ValueError):
    """A file that is not what it should be; the text says what and where."""


class Splitter:
    """Writes a library to `file`, fat binaries' payloads left out as holes, and notes every image that it carries.

    `images` has (offset of the fat binary, kind, target, PTX language version or ""), `binaries` where fat binaries
    start and end, `faults` what is wrong with those that cannot be read, by their offset: a fault only in a section
    of fat binaries, elsewhere it was none.
    """

    def __init__(self, file: IO[bytes], size: int) -> None:
        """`size` is the library's, in bytes."""
        self.file, self.size = file, size
        self.images: list[tuple[int, int, str, str]] = []
        self.binaries: dict[int, int] = {}
        self.faults: dict[int, str] = {}
        self.block, self.place = b"", 0  # what came, and how much of it is decided
        self.at = 0  # the offset in the library of what is not decided
        self.skip = 0  # bytes of a payload that are still to come
        self.binary, self.end = 0, 0  # the fat binary that is being read: where it starts and ends

    def feed(self, data: bytes) -> None:
        """The next bytes of the library."""
        if self.skip >= len(data):
            self.skip -= len(data)
            self.at += len(data)
            return
        self.at += self.skip
        self.block, self.place, self.skip = self.block[self.place :] + data[self.skip :], 0, 0
        while self._step():
            pass

    def close(self) -> None:
        """After the last bytes. DamagedFileError if fewer came than should have."""
        rest = len(self.block) - self.place
        if self.skip or self.at + rest != self.size:
            raise DamagedFileError(f"it ends at byte {self.at + rest} of {self.size}")
        self._keep(rest)
        self.file.truncate(self.size)

    def _step(self) -> bool:
        """Whether something was decided and another step may follow."""
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
        if length == 0 and room >= HEADER + ENTRY:  # libcublasLt 12.8.3.14 has one without entries
            self.binaries[self.at] = self.at + HEADER
            self._keep(HEADER)
            return True
        if not 0 < length <= self.size - self.at - HEADER or not _is_entry(
            self.block, place + HEADER, length
        ):
            self._keep(len(MAGIC))  # the number as such, in a program that looks for fat binaries
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
        """What was taken for a fat binary is not read on."""
        self.faults[self.binary] = text
        self.end = self.at
        return True

    def _note(self, kind: int, head: bytes) -> bool:
        """Notes the images of an entry; False if its header contradicts itself."""
        if not kind & SEVERAL:
            self._image(kind, head, 0)
            return True
        (total, count), places, offset, place = (
            struct.unpack_from("<QI", head, SIZE_OF_ALL),
            [],
            0,
            SEVERAL_ENTRIES,
        )
        # An entry's names and options are of any length, but its payload begins where that of the last one ended.
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
        suffix = "a" if flags & SPECIFIC else "f" if flags & FAMILY else ""
        self.images.append(
            (
                self.binary,
                kind,
                f"{architecture}{suffix}",
                f"{major}.{minor}" if kind == PTX else "",
            )
        )

    def _pass(self, count: int) -> None:
        # Headers stay out of the file like payloads: a library has a hundred thousand, each would be a system call.
        self.place, self.at = self.place + count, self.at + count

    def _keep(self, count: int) -> None:
        if count:
            self.file.seek(self.at)
            self.file.write(self.block[self.place : self.place + count])
            self.place, self.at = self.place + count, self.at + count


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


def read_library(chunks: Iterable[bytes], size: int) -> dict[str, Any]:
    """What one shared library says of itself, in bytes of `size`.

    {"machine", "soname", "needs", "runpath", "opens", "binaries", "sass", "ptx", "elsewhere"}: names as they stand;
    `binaries` is the number of fat binaries; `sass` says for each target, spelt as the compiler does and ascending, how
    many of them carry it; `ptx` has [target, PTX language version, how many]; `elsewhere` is the number of images
    outside the sections where fat binaries belong. DamagedFileError for what is no ELF file, is cut off, or has a fat
    binary that cannot be read.
    """
    with tempfile.TemporaryFile() as file:
        splitter = Splitter(file, size)
        for chunk in chunks:
            splitter.feed(chunk)
        splitter.close()
        file.seek(0)
        if file.read(len(ELF)) != ELF:
            raise DamagedFileError("it is no ELF file")
        try:
            return _describe(ELFFile(file), splitter)
        except (DamagedFileError, MemoryError):
            raise
        except Exception as error:  # the parser stumbles over damaged files in every way
            text = " ".join(str(error).split()) or type(error).__name__
            raise DamagedFileError(f"its ELF structure is damaged ({text})") from error


def _describe(elf: ELFFile, splitter: Splitter) -> dict[str, Any]:
    if not elf.num_sections():
        raise DamagedFileError("it has no table of sections")
    where: list[tuple[int, int]] = []
    constants: set[bytes] = set()
    linking: dict[str, list[str]] = {}
    for section in elf.iter_sections():
        start, end = section["sh_offset"], section["sh_offset"] + section["sh_size"]
        if section["sh_type"] in ("SHT_NOBITS", "SHT_NULL"):
            continue
        if end > splitter.size:
            raise DamagedFileError(
                f"its section {section.name!r} ends at byte {end} of {splitter.size}"
            )
        if isinstance(section, DynamicSection):
            for tag in section.iter_tags():
                if tag.entry.d_tag in TAGS:
                    linking.setdefault(tag.entry.d_tag, []).append(
                        getattr(tag, TAGS[tag.entry.d_tag])
                    )
        elif section.name in SECTIONS:
            _check_section(elf.stream, section.name, start, end, splitter)
            where.append((start, end))
        elif section.name.startswith(CONSTANTS) and section["sh_type"] == "SHT_PROGBITS":
            constants |= _names(elf.stream, start, end)
    needs = linking.get("DT_NEEDED", [])
    (soname,) = linking.get("DT_SONAME", [""])[-1:]
    # The loader looks at DT_RPATH only where there is no DT_RUNPATH.
    (runpath,) = (linking.get("DT_RUNPATH") or linking.get("DT_RPATH") or [""])[-1:]
    opens = {name.decode() for name in constants} - {soname, *needs}
    return {
        "machine": str(elf["e_machine"]).removeprefix("EM_").lower(),
        "soname": soname,
        "needs": needs,
        "runpath": runpath,
        "opens": sorted(opens),
        **_summary(set(splitter.images), where),
    }


def _summary(
    images: set[tuple[int, int, str, str]], where: list[tuple[int, int]]
) -> dict[str, Any]:
    inside = {image for image in images if any(start <= image[0] < end for start, end in where)}
    sass = Counter((target, "") for _, kind, target, _ in inside if kind == SASS)
    ptx = Counter((target, language) for _, kind, target, language in inside if kind == PTX)
    return {
        "binaries": len({image[0] for image in inside}),
        "sass": {target: sass[target, ""] for target, _ in sorted(sass, key=_order)},
        "ptx": [[*image, ptx[image]] for image in sorted(ptx, key=_order)],
        "elsewhere": len(images) - len(inside),
    }


def _check_section(stream: IO[bytes], name: str, start: int, end: int, splitter: Splitter) -> None:
    """DamagedFileError if a section of fat binaries has anything but fat binaries that were read and zeros."""
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


def _names(stream: IO[bytes], start: int, end: int) -> set[bytes]:
    found: set[bytes] = set()
    for place in range(start, end, BLOCK):
        # A name belongs to the block in which it begins; the byte before it and all of it are seen.
        first = max(start, place - 1)
        stream.seek(first)
        block = stream.read(min(place + BLOCK + LONGEST_NAME + 1, end) - first)
        # Ends are rare and quickly found, beginnings are not.
        for end_of in SUFFIX.finditer(block):
            stem = STEM.search(block[max(0, end_of.start() - LONGEST_NAME) : end_of.start()])
            if stem and place <= first + end_of.start() - len(stem[0]) < place + BLOCK:
                found.add(stem[0] + end_of[0])
    return {name for name in found if len(name) <= LONGEST_NAME}


def _order(image: tuple[str, str]) -> tuple[int, str, str]:
    target, language = image
    return int(target.rstrip("af")), target, language
