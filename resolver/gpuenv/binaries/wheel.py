"""Read a wheel: the device code of its files, and what it says that it was built with.

The wheel is a file, here or on a server. Its members are streams, so that memory stays small. What
was read of a member is cached by its checksum and size: an interrupted reading continues where it
stopped, and a library in several wheels is read once.
"""

from __future__ import annotations

import email.parser
import fnmatch
import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

from ..compat.architectures import parse_target
from ..index.cache import Cache
from ..model import Code
from .device_code import CHUNK, code_of, read_stream
from .environment import CodeFile, Contents, Progress, is_code_file, owner_of
from .fat_binaries import DamagedFileError, Images

# Where frameworks say what they were built with.
TEXTS = (
    "torch/version.py",
    "*/python/platform/build_info.py",
    "*/capi/build_and_package_info.py",
    "cupy/.data/_wheel.json",
    "*/version.py",
)
_LARGEST_TEXT = 64 * 1024
_METADATA = re.compile(r"[^/]+\.dist-info/METADATA")
_CODE_KIND, _KIND = "wheel-code", "wheel-member"  # of the cache


class _Archive:
    """An open wheel. Errors name the wheel's member.

    Raises DamagedFileError if it is no complete wheel.
    """

    def __init__(self, file: IO[bytes], name: str, progress: Progress | None) -> None:
        self.name, self._progress, self._cache = name, progress, Cache()
        try:
            self._zip = zipfile.ZipFile(file)
        except zipfile.BadZipFile as error:
            raise DamagedFileError(f"it is no complete wheel: {error}") from error

    def members(self) -> list[zipfile.ZipInfo]:
        """Return the files of the wheel."""
        return [member for member in self._zip.infolist() if not member.is_dir()]

    def text(self, member: zipfile.ZipInfo) -> str:
        """Return the text of a small file."""
        try:
            return self._zip.read(member).decode("utf-8", "replace")
        except (zipfile.BadZipFile, ValueError) as error:
            raise DamagedFileError(f"{member.filename}: {error}") from error

    def images(self, member: zipfile.ZipInfo) -> Images | None:
        """Return the device code of a member; None for a file that can have none."""
        key = f"{member.CRC:08x}-{member.file_size}"
        entry = self._cache.get(_KIND, key)
        if entry is not None:
            return images_of(json.loads(entry.body))
        if self._progress is not None:
            size = f"{member.file_size / 1e6:,.0f} MB"
            self._progress(f"{self.name}: reading {member.filename} ({size})")
        try:
            with self._zip.open(member) as stream:
                images = read_stream(_chunks(stream), member.file_size)
        except (zipfile.BadZipFile, EOFError) as error:
            raise DamagedFileError(f"{member.filename}: {error}") from error
        if images is not None:
            self._cache.put(_KIND, key, {}, json.dumps(fields_of(images)).encode())
        return images


def fields_of(images: Images) -> dict[str, Any]:
    """Return the device code of a file as JSON."""
    return {
        "binaries": images.binaries,
        "sass": dict(images.sass),
        "ptx": [list(image) for image in images.ptx],
    }


def images_of(fields: dict[str, Any]) -> Images:
    """Return the device code that `fields_of` wrote."""
    return Images(
        binaries=fields["binaries"],
        sass=tuple(fields["sass"].items()),
        ptx=tuple(tuple(image) for image in fields["ptx"]),
    )


def scan_wheel(path: str, progress: Progress | None = None) -> Contents:
    """Read the libraries, cubins and fat binaries in a wheel. They are not unpacked.

    Raises:
        DamagedFileError: it is no complete wheel, or its content is not what its directory says.
        OSError: the file cannot be read.
    """
    owner = owner_of(os.path.basename(path))
    files = []
    with open(path, "rb") as file:
        archive = _Archive(file, os.path.basename(path), progress)
        members = [member for member in archive.members() if is_code_file(member.filename)]
        for member in members:
            try:
                images = archive.images(member)
            except DamagedFileError as error:
                if str(error).startswith(member.filename):
                    raise
                files.append(CodeFile(path=member.filename, owner=owner, fault=str(error)))
                continue
            if images is not None and (images.sass or images.ptx):
                files.append(CodeFile(path=member.filename, owner=owner, images=images))
    return Contents(files=tuple(files), read=len(members))


def wheel_code(
    path: str, sha256: str | None, toolkits: Mapping[str, str], cache: Cache
) -> Code | None:
    """Return every target that a library, cubin or fat binary of a wheel has.

    Args:
        path: the wheel.
        sha256: its hash, the key of the cache; None reads it again.
        toolkits: the first toolkit that writes each version of the PTX language.
        cache: stores the targets.

    Returns:
        None if the wheel has no device code or cannot be read.
    """
    if sha256 is not None:
        entry = cache.get(_CODE_KIND, sha256)
        if entry is not None:
            return _stored_code(json.loads(entry.body), path)
    try:
        contents = scan_wheel(path)
    except (DamagedFileError, OSError):
        return None
    codes = [code_of(file.images, toolkits, every_target=True) for file in contents.files]
    sass = sorted({target for code in codes for target in code.sass or ()}, key=parse_target)
    ptx = sorted({target for code in codes for target in code.ptx or ()}, key=parse_target)
    makers = [code.made_by for code in codes if code.ptx]
    made_by = None
    if None not in makers:
        made_by = max((maker for maker in makers if maker is not None), default=None)
    fields = {"sass": sass, "ptx": ptx, "made_by": made_by}
    if sha256 is not None:
        cache.put(_CODE_KIND, sha256, {}, json.dumps(fields).encode())
    return _stored_code(json.loads(json.dumps(fields)), path)


def _stored_code(fields: Mapping[str, list[str]], path: str) -> Code | None:
    if not fields["sass"] and not fields["ptx"]:
        return None
    maker = fields["made_by"]
    return Code(
        sass=tuple(fields["sass"]),
        ptx=tuple(fields["ptx"]),
        made_by=(int(maker[0]), int(maker[1])) if maker else None,
        evidence="scanned",
        source=f"the libraries in {os.path.basename(path)}",
    )


def read_record(
    file: IO[bytes],
    filename: str,
    *,
    sha256: str,
    patterns: Sequence[str],
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return what a wheel says, as `rows` takes it.

    Args:
        file: the wheel.
        filename: its name.
        sha256: its hash, which the index gave.
        patterns: the libraries that count.
        progress: is called with a line for each library that is read.

    Raises:
        DamagedFileError: the wheel is damaged.
    """
    archive = _Archive(file, filename, progress)
    members = archive.members()
    texts, metadata, libraries = {}, "", []
    for member in members:
        name = member.filename
        if _METADATA.fullmatch(name):
            metadata = archive.text(member)
        elif _matches(name, TEXTS) and member.file_size < _LARGEST_TEXT:
            texts[name] = archive.text(member)
        elif is_code_file(name) and _matches(name, patterns):
            images = archive.images(member)
            if images is not None and images.binaries:
                libraries.append({"paths": [name], **fields_of(images)})
    head = email.parser.HeaderParser().parsestr(metadata)
    return {
        "version": head["Version"],
        "file": filename,
        "sha256": sha256,
        "requires": head.get_all("Requires-Dist") or [],
        "texts": texts,
        "libraries": libraries,
    }


def _matches(path: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for pattern in patterns)


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK):
        yield chunk
