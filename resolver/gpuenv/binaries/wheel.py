"""Read the device code of the files in a wheel."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from typing import IO

from ..compat.architectures import parse_target
from ..index.cache import Cache
from ..model import Code
from .device_code import CHUNK, code_of, read_stream
from .environment import CodeFile, Contents, Progress, is_code_file, owner_of
from .fat_binaries import DamagedFileError

_KIND = "wheel-code"  # of the cache


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
        entry = cache.get(_KIND, sha256)
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
        cache.put(_KIND, sha256, {}, json.dumps(fields).encode())
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
