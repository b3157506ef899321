"""Read the device code of the files in a wheel."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from typing import IO

from .device_code import CHUNK, read_stream
from .environment import CodeFile, Contents, Progress, is_code_file, owner_of
from .fat_binaries import DamagedFileError


def scan_wheel(path: str, progress: Progress | None = None) -> Contents:
    """Read the libraries, cubins and fat binaries in a wheel. They are not unpacked.

    Raises:
        DamagedFileError: it is no complete wheel, or one of its files is damaged.
        OSError: the file cannot be read.
    """
    files = []
    read = 0
    owner = owner_of(os.path.basename(path))
    try:
        with zipfile.ZipFile(path) as archive:
            members = [one for one in archive.infolist() if is_code_file(one.filename)]
            for member in members:
                read += 1
                if progress is not None:
                    progress(f"reading {member.filename} ({member.file_size / 1e6:,.0f} MB)")
                found = _read_member(archive, member, owner)
                if found is not None:
                    files.append(found)
    except zipfile.BadZipFile as error:
        raise DamagedFileError(f"it is no complete wheel: {error}") from error
    return Contents(files=tuple(files), read=read)


def _read_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, owner: str
) -> CodeFile | None:
    with archive.open(member) as stream:
        try:
            images = read_stream(_chunks(stream), member.file_size)
        except DamagedFileError as error:
            return CodeFile(path=member.filename, owner=owner, fault=str(error))
    if images is None or not (images.sass or images.ptx):
        return None
    return CodeFile(path=member.filename, owner=owner, images=images)


def _chunks(stream: IO[bytes]) -> Iterator[bytes]:
    while chunk := stream.read(CHUNK):
        yield chunk
