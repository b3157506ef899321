"""Read the device code that a shared library carries, and the libraries that it needs.

`read_library` takes the library as a stream, because the largest are two gigabytes of a wheel that
nobody wants to unpack: gpuenv.binaries.fat_binaries reads the images while the stream goes by,
everything else goes to a temporary file for pyelftools.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from collections.abc import Iterable
from typing import IO, Any

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "resolver"))

from gpuenv.binaries import pe  # noqa: E402  - the path must be set first
from gpuenv.binaries.device_code import read_stream  # noqa: E402
from gpuenv.binaries.fat_binaries import (  # noqa: E402
    SECTIONS,
    DamagedFileError,
    Images,
    Splitter,
    check_section,
    summary,
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
    with tempfile.TemporaryFile() as file:
        splitter = Splitter(file, size)
        for chunk in chunks:
            splitter.feed(chunk)
        splitter.close()
        file.seek(0)
        head = file.read(len(ELF))
        if head.startswith(pe.MAGIC):
            return _describe_pe(file, splitter)
        if head != ELF:
            raise DamagedFileError("it is neither an ELF file nor a PE file")
        try:
            return _describe(ELFFile(file), splitter)
        except (DamagedFileError, MemoryError):
            raise
        except Exception as error:  # the parser stumbles over damaged files in every way
            text = " ".join(str(error).split()) or type(error).__name__
            raise DamagedFileError(f"its ELF structure is damaged ({text})") from error


def read_kernel(chunks: Iterable[bytes], size: int) -> Images:
    """Return the device code of a cubin or a fat binary. DamagedFileError for anything else."""
    images = read_stream(chunks, size)
    if images is None:
        raise DamagedFileError("it is neither a cubin nor a fat binary")
    return images


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
            check_section(elf.stream, section.name, start, end, splitter)
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
        **_summary(splitter, where),
    }


def _describe_pe(file: IO[bytes], splitter: Splitter) -> dict[str, Any]:
    try:
        content = pe.read(file)
    except pe.NotPeError as error:
        raise DamagedFileError(str(error)) from error
    where = []
    for section in content.sections:
        start, end = section.offset, section.offset + section.length
        if section.name in pe.FAT_SECTIONS:
            check_section(file, section.name, start, end, splitter)
            where.append((start, end))
    return {
        "machine": content.machine,
        "soname": "",
        "needs": list(content.imports),
        "runpath": "",
        "opens": [],
        **_summary(splitter, where),
    }


def _summary(splitter: Splitter, where: list[tuple[int, int]]) -> dict[str, Any]:
    images = summary(splitter.images, where)
    return {
        "binaries": images.binaries,
        "sass": dict(images.sass),
        "ptx": [list(row) for row in images.ptx],
        "elsewhere": images.elsewhere,
    }


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
