"""Read the device code that a shared library carries, and the libraries that it needs.

`read_library` takes the library as a stream, which it writes to a temporary file for pyelftools,
pefile and gpuenv.binaries.fat_binaries.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import IO, Any

import pefile
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

from gpuenv.binaries.device_code import (
    PE_SECTIONS,
    read_code,
)
from gpuenv.binaries.fat_binaries import (
    MAGIC,
    SECTIONS,
    DamagedFileError,
    Images,
    read_binary,
    read_ranges,
)

# The name of a library that is opened by name is a constant; code may add a version.
SUFFIX = re.compile(rb"\.so(?:\.\d+)*(?![\w.+-])")
STEM = re.compile(rb"(?<![\w.%/+-])lib[\w+-]+\Z")
LONGEST_NAME = 255
CONSTANTS = (".rodata", ".data")
BLOCK = 1 << 24


ELF = b"\x7fELF"
TAGS = {"DT_NEEDED": "needed", "DT_SONAME": "soname", "DT_RUNPATH": "runpath", "DT_RPATH": "rpath"}


def read_library(chunks: Iterable[bytes], size: int) -> dict[str, Any]:
    """Return the facts of one shared library.

    Args:
        chunks: the content of the file.
        size: its size in bytes.

    Returns:
        {"machine", "soname", "needs", "runpath", "opens", "binaries", "sass", "ptx", "elsewhere"}.
        `needs` and `opens` are names as they are in the file. `binaries` is the number of fat
        binaries. `sass` maps each target, in the compiler's spelling and in ascending order, to
        the number of fat binaries that carry it. `ptx` has rows [target, PTX language version,
        number]. `elsewhere` is the number of images outside the sections for fat binaries.

    Raises:
        DamagedFileError: the file is neither an ELF file nor a PE file, it is truncated, or a fat
            binary in it cannot be read.
    """
    with stored(chunks, size) as file:
        head = file.read(len(ELF))
        if head.startswith(b"MZ"):
            return _describe_pe(file)
        if head != ELF:
            raise DamagedFileError("it is neither an ELF file nor a PE file")
        try:
            return _describe(ELFFile(file), size)
        except (DamagedFileError, MemoryError):
            raise
        except Exception as error:  # the parser stumbles over damaged files in every way
            text = " ".join(str(error).split()) or type(error).__name__
            raise DamagedFileError(f"its ELF structure is damaged ({text})") from error


def read_kernel(chunks: Iterable[bytes], size: int) -> Images:
    """Return the device code of a cubin or a fat binary. DamagedFileError for anything else."""
    with stored(chunks, size) as file:
        images = read_code(file)
    if images is None:
        raise DamagedFileError("it is neither a cubin nor a fat binary")
    return images


@contextmanager
def stored(chunks: Iterable[bytes], size: int) -> Iterator[IO[bytes]]:
    """Give a temporary file with the content. DamagedFileError if it has another size."""
    with tempfile.NamedTemporaryFile() as file:
        for chunk in chunks:
            file.write(chunk)
        if file.tell() != size:
            raise DamagedFileError(f"it ends at byte {file.tell()} of {size}")
        file.seek(0)
        yield file


def _describe(elf: ELFFile, size: int) -> dict[str, Any]:
    if not elf.num_sections():
        raise DamagedFileError("it has no table of sections")
    where: list[tuple[str, int, int]] = []
    constants: set[bytes] = set()
    linking: dict[str, list[str]] = {}
    for section in elf.iter_sections():
        start, end = section["sh_offset"], section["sh_offset"] + section["sh_size"]
        if section["sh_type"] in ("SHT_NOBITS", "SHT_NULL"):
            continue
        if end > size:
            raise DamagedFileError(f"its section {section.name!r} ends at byte {end} of {size}")
        if isinstance(section, DynamicSection):
            for tag in section.iter_tags():
                if tag.entry.d_tag in TAGS:
                    linking.setdefault(tag.entry.d_tag, []).append(
                        getattr(tag, TAGS[tag.entry.d_tag])
                    )
        elif section.name in SECTIONS:
            where.append((section.name, start, end))
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
        **_device_code(elf.stream, size, where),
    }


def _describe_pe(file: IO[bytes]) -> dict[str, Any]:
    size = os.fstat(file.fileno()).st_size
    try:
        with closing(pefile.PE(file.name, fast_load=True)) as content:
            names = ("IMAGE_DIRECTORY_ENTRY_IMPORT", "IMAGE_DIRECTORY_ENTRY_DELAY_IMPORT")
            content.parse_data_directories([pefile.DIRECTORY_ENTRY[name] for name in names])
            imports = [
                entry.dll.decode("ascii", "replace")
                for table in ("DIRECTORY_ENTRY_IMPORT", "DIRECTORY_ENTRY_DELAY_IMPORT")
                for entry in getattr(content, table, ())
            ]
            machine = pefile.MACHINE_TYPE.get(content.FILE_HEADER.Machine, "")
            where = [
                (name, section.PointerToRawData, section.PointerToRawData + section.SizeOfRawData)
                for section in content.sections
                if (name := section.Name.rstrip(b"\0").decode("ascii", "replace")) in PE_SECTIONS
            ]
    except pefile.PEFormatError as error:
        raise DamagedFileError(f"it is no PE file ({error})") from error
    return {
        "machine": {"AMD64": "x86_64", "ARM64": "aarch64"}.get(
            machine.removeprefix("IMAGE_FILE_MACHINE_"), machine
        ),
        "soname": "",
        "needs": list(dict.fromkeys(imports)),
        "runpath": "",
        "opens": [],
        **_device_code(file, size, where),
    }


def _device_code(file: IO[bytes], size: int, where: list[tuple[str, int, int]]) -> dict[str, Any]:
    """Return the device code of sections, and how many images there are elsewhere."""
    ranges = [(start, end) for _, start, end in where]
    name = " or ".join(name for name, _, _ in where)
    images = read_ranges(file, ranges, f"its section {name}")
    elsewhere, at = 0, 0
    for start, end in [*sorted(ranges), (size, size)]:
        elsewhere += _images_between(file, at, start, size)
        at = end
    return {
        "binaries": images.binaries,
        "sass": dict(images.sass),
        "ptx": [list(row) for row in images.ptx],
        "elsewhere": elsewhere,
    }


def _images_between(file: IO[bytes], at: int, end: int, size: int) -> int:
    """Return the number of images in a part of a file of `size` bytes that may have anything."""
    count = 0
    while at < end:
        file.seek(at)
        block = file.read(min(BLOCK, end - at))
        place = block.find(MAGIC)
        if place < 0:
            at += max(len(block) - len(MAGIC) + 1, 1)
            continue
        at += place
        try:
            last, images = read_binary(file, at, size)
        except DamagedFileError:  # a program that looks for fat binaries has the number, too
            at += len(MAGIC)
        else:
            at, count = last, count + len(images)
    return count


def _names(stream: IO[bytes], start: int, end: int) -> set[bytes]:
    names: set[bytes] = set()
    for place in range(start, end, BLOCK):
        # A name belongs to the block in which it begins; the byte before it and all of it are seen.
        first = max(start, place - 1)
        stream.seek(first)
        block = stream.read(min(place + BLOCK + LONGEST_NAME + 1, end) - first)
        # Ends are rare and quickly found, beginnings are not.
        for end_of in SUFFIX.finditer(block):
            stem = STEM.search(block[max(0, end_of.start() - LONGEST_NAME) : end_of.start()])
            if stem and place <= first + end_of.start() - len(stem[0]) < place + BLOCK:
                names.add(stem[0] + end_of[0])
    return {name for name in names if len(name) <= LONGEST_NAME}
