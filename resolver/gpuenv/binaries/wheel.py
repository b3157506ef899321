"""Read the device code of the files in a wheel.

The wheel is a file, here or on a server. One member at a time is unpacked to a temporary file, so
that memory stays small.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO

from ..index.cache import Cache
from ..model import Code
from .device_code import DamagedFileError, all_code, code_of, read_code
from .environment import CodeFile, Contents, Progress, is_code_file, owner_of

_BLOCK = 1 << 20
_KIND = "wheel-code"  # of the cache


@contextmanager
def opened(file: IO[bytes]) -> Iterator[zipfile.ZipFile]:
    """Give a wheel to a block. DamagedFileError if it is no complete wheel."""
    try:
        archive = zipfile.ZipFile(file)
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise DamagedFileError(f"it is no complete wheel: {error}") from error
    with archive:
        yield archive


@contextmanager
def unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[IO[bytes]]:
    """Give the content of a member to a block. DamagedFileError if the member is damaged."""
    with tempfile.TemporaryFile() as file:
        try:
            if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise zipfile.BadZipFile("its compression is none that wheels may use")
            with archive.open(member) as stream:
                shutil.copyfileobj(stream, file, _BLOCK)
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
            raise DamagedFileError(f"{member.filename}: {error}") from error
        file.seek(0)
        yield file


def scan_wheel(path: str, progress: Progress | None = None) -> Contents:
    """Read the libraries, cubins and fat binaries in a wheel.

    Raises:
        DamagedFileError: it is no complete wheel, or its content is not what its directory says.
        OSError: the file cannot be read.
    """
    filename = os.path.basename(path)
    owner, files = owner_of(filename), []
    with open(path, "rb") as wheel, opened(wheel) as archive:
        members = [member for member in archive.infolist() if is_code_file(member.filename)]
        for member in members:
            tell_member(progress, filename, member)
            with unpacked(archive, member) as file:
                try:
                    images = read_code(file)
                except DamagedFileError as error:
                    files.append(CodeFile(path=member.filename, owner=owner, fault=str(error)))
                    continue
            if images is not None and (images.sass or images.ptx):
                files.append(CodeFile(path=member.filename, owner=owner, images=images))
    return Contents(files=tuple(files), read=len(members))


def tell_member(progress: Progress | None, filename: str, member: zipfile.ZipInfo) -> None:
    """Say that a member of a wheel is read."""
    if progress is not None:
        progress(f"{filename}: reading {member.filename} ({member.file_size / 1e6:,.0f} MB)")


def wheel_code(path: str, sha256: str | None, toolkits: Mapping[str, str]) -> Code | None:
    """Return every target that a library, cubin or fat binary of a wheel has.

    Args:
        path: the wheel.
        sha256: its hash, the key of the cache; None reads it again.
        toolkits: the first toolkit that writes each version of the PTX language.

    Returns:
        None if the wheel has no device code or cannot be read.
    """
    # Unpacking a wheel of two gigabytes takes ten seconds.
    cache = Cache()
    code = cache.get(_KIND, sha256, Code) if sha256 is not None else None
    if code is None:
        try:
            contents = scan_wheel(path)
        except (DamagedFileError, OSError):
            return None
        files = contents.files
        code = all_code([code_of(file.images, toolkits, every_target=True) for file in files])
        if sha256 is not None:
            cache.put(_KIND, sha256, code)
    if not code.sass and not code.ptx:
        return None
    return code.replace(source=f"the libraries in {os.path.basename(path)}")
