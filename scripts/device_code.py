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
    several     at 64 u32 count, u32 length, then one entry header an image, without payloads
"""

from __future__ import annotations

import re
import struct
import tempfile
from collections import Counter
from collections.abc import Iterable
from typing import IO, Any

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

MAGIC = struct.pack("<IHH", 0xBA55ED50, 1, 16)
HEADER = 16
ENTRY = 64
VERSION = 0x101
PTX, SASS, SEVERAL = 1, 2, 0x100
SPECIFIC, FAMILY = 0x100000, 0x200000
LARGEST_HEADER = 1 << 20  # of an entry; of several compressed as one it holds a header for each
SMALLEST_ARCH, LARGEST_ARCH = 10, 200
# Fat binaries stand in these; the second is of code that is linked on the device (-rdc).
SECTIONS = (".nv_fatbin", "__nv_relfatbin")
# A library that is opened by name: the name stands in the constants. A version may be added at run time.
LIBRARY_NAME = re.compile(rb"(?<![\w.%/+-])lib[\w+-]+\.so(?:\.\d+)*(?![\w.+-])")
CONSTANTS = (".rodata", ".data", ".data.rel.ro")


class DamagedFileError(ValueError):
    """A file that is not what it should be; the text says what and where."""


class Splitter:
    """Writes a library to `file`, fat binaries' payloads left out as holes, and notes every image that it carries.

    `images` has (offset of the fat binary, kind, target, PTX language version or "").
    """

    def __init__(self, file: IO[bytes], size: int) -> None:
        """`size` is the library's, in bytes."""
        self.file, self.size = file, size
        self.images: list[tuple[int, int, str, str]] = []
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
        if not 0 < length <= self.size - self.at - HEADER or not _is_entry(self.block, place + HEADER, length):
            self._keep(len(MAGIC))  # the number as such, in a program that looks for fat binaries
            return True
        self.binary, self.end = self.at, self.at + HEADER + length
        self._keep(HEADER)
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
            raise DamagedFileError(f"the fat binary at byte {self.binary} has no entry at byte {self.at}")
        kind, _, head, payload = struct.unpack_from("<HHIQ", self.block, self.place)
        if room < head:
            return False
        self._note(kind, self.block[self.place : self.place + head])
        self._keep(head)
        passed = min(payload, len(self.block) - self.place)
        self.place, self.at, self.skip = self.place + passed, self.at + passed, payload - passed
        return True

    def _note(self, kind: int, head: bytes) -> None:
        if not kind & SEVERAL:
            self._image(kind, head, 0)
            return
        count, length = struct.unpack_from("<II", head, ENTRY)
        places = [
            place
            for place in range(ENTRY + 8, min(ENTRY + length, len(head) - ENTRY + 1), 8)
            if struct.unpack_from("<HHI", head, place) in ((PTX, VERSION, 0), (SASS, VERSION, 0))
        ]
        if len(places) != count:
            raise DamagedFileError(f"the entry at byte {self.at} names {count} images and shows {len(places)}")
        for place in places:
            self._image(struct.unpack_from("<H", head, place)[0], head, place)

    def _image(self, kind: int, head: bytes, place: int) -> None:
        minor, major, architecture = struct.unpack_from("<HHI", head, place + 24)
        flags = struct.unpack_from("<Q", head, place + 40)[0]
        suffix = "a" if flags & SPECIFIC else "f" if flags & FAMILY else ""
        self.images.append((self.binary, kind, f"{architecture}{suffix}", f"{major}.{minor}" if kind == PTX else ""))

    def _keep(self, count: int) -> None:
        if count:
            self.file.seek(self.at)
            self.file.write(self.block[self.place : self.place + count])
            self.place, self.at = self.place + count, self.at + count


def _is_entry(data: bytes, place: int, room: int) -> bool:
    kind, version, head, payload = struct.unpack_from("<HHIQ", data, place)
    architecture = struct.unpack_from("<I", data, place + 28)[0]
    known = bool(kind & SEVERAL) or SMALLEST_ARCH <= architecture < LARGEST_ARCH
    return known and version == VERSION and ENTRY <= head <= LARGEST_HEADER and head + payload <= room


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
        try:
            return _describe(ELFFile(file), splitter.images)
        except (ELFError, UnicodeDecodeError, struct.error, ValueError, AttributeError) as error:
            raise DamagedFileError(f"it is no complete ELF file ({error or type(error).__name__})") from error


def _describe(elf: ELFFile, images: list[tuple[int, int, str, str]]) -> dict[str, Any]:
    where: list[tuple[int, int]] = []
    constants: set[bytes] = set()
    soname, runpath, needs = "", "", []
    for section in elf.iter_sections():
        if section["sh_type"] == "SHT_DYNAMIC":
            for tag in section.iter_tags():
                if tag.entry.d_tag == "DT_NEEDED":
                    needs.append(tag.needed)
                elif tag.entry.d_tag == "DT_SONAME":
                    soname = tag.soname
                elif tag.entry.d_tag in ("DT_RUNPATH", "DT_RPATH"):
                    runpath = getattr(tag, "runpath", None) or tag.rpath
        elif section.name in SECTIONS:
            where.append((section["sh_offset"], section["sh_offset"] + section["sh_size"]))
        elif section.name.startswith(CONSTANTS) and section["sh_type"] == "SHT_PROGBITS":
            constants |= _names(elf.stream, section["sh_offset"], section["sh_size"])
    inside = {image for image in images if any(start <= image[0] < end for start, end in where)}
    sass = Counter((target, "") for _, kind, target, _ in inside if kind == SASS)
    ptx = Counter((target, language) for _, kind, target, language in inside if kind == PTX)
    opens = {name.decode() for name in constants} - {soname, *needs}
    return {
        "machine": elf["e_machine"].removeprefix("EM_").lower(),
        "soname": soname,
        "needs": needs,
        "runpath": runpath,
        "opens": sorted(opens),
        "binaries": len({image[0] for image in inside}),
        "sass": {target: sass[target, ""] for target, _ in sorted(sass, key=_order)},
        "ptx": [[*image, ptx[image]] for image in sorted(ptx, key=_order)],
        "elsewhere": len(set(images)) - len(inside),
    }


def _names(stream: IO[bytes], offset: int, size: int) -> set[bytes]:
    found: set[bytes] = set()
    overlap, block = 256, 1 << 24
    for start in range(offset, offset + size, block - overlap):
        stream.seek(start)
        found.update(LIBRARY_NAME.findall(stream.read(min(block, offset + size - start))))
    return found


def _order(image: tuple[str, str]) -> tuple[int, str, str]:
    target, language = image
    return int(target.rstrip("af")), target, language
