"""Core metadata of files: METADATA of wheels, PKG-INFO of source distributions.

Reads it from archives, checks it against the file's name, and extracts requirements.
"""

from __future__ import annotations

import re
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from email.message import Message
from email.parser import BytesHeaderParser
from functools import lru_cache
from io import RawIOBase
from typing import BinaryIO

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as ParsedRequirement
from packaging.version import Version

from ..errors import PackageIndexError, Reason, UnusableFileError
from ..model import Requirement, Wheel
from ..requirements.parse import shortened
from ..requirements.versions import LONGEST_REQUIREMENT, normalize_name
from .filenames import parse_requires_python, repair_specifiers
from .variants import split_variant_marker

MAX_METADATA_BYTES = 64 << 20  # protects against zip bombs

_STATIC_METADATA = (2, 2)  # the first version that has the field Dynamic (PEP 643)
_RELEVANT_FIELDS = frozenset({"requires-dist", "provides-extra", "requires-python"})
_BODY = re.compile(rb"\r?\n\r?\n")  # an empty line ends the fields
_DAMAGED_WHEEL = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    ValueError,
)
DAMAGED_SDIST = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    OSError,
    EOFError,
    ValueError,
    NotImplementedError,
)


# ---- archives ------------------------------------------------------------------------------------


def read_local_metadata(path: str) -> bytes:
    """Return the metadata of a wheel on disk.

    Raises:
        PackageIndexError: the file cannot be read or has no metadata.
    """
    try:
        with open(path, "rb") as file:
            return read_wheel_metadata(file, path)
    except OSError as error:
        raise PackageIndexError(f"{path} cannot be read: {error.strerror}") from None


def read_wheel_metadata(
    file: BinaryIO | RawIOBase, filename: str, member: str = "METADATA"
) -> bytes:
    """Return NAME-VERSION.dist-info/METADATA of an open wheel, or another file of that folder.

    Args:
        file: the wheel.
        filename: its name, for messages.
        member: the name of the file in the folder.

    Raises:
        PackageIndexError: the file is not a wheel, or it does not have exactly one such member.
        UnusableFileError: it is a variant wheel that lacks the description of its variant.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            infos = archive.infolist()
            members = [info for info in infos if _is_wheel_metadata(info.filename, member)]
            if not members and member != "METADATA":
                raise _missing_member(filename, member)
            if len(members) != 1:
                raise PackageIndexError(
                    f"{filename}: it has {len(members)} {member} files; a wheel has exactly one"
                )
            _check_one_folder(filename, archive.namelist())
            if members[0].file_size > MAX_METADATA_BYTES:
                raise PackageIndexError(
                    f"{filename}: its {member} is larger than {MAX_METADATA_BYTES >> 20} MiB"
                )
            return archive.read(members[0])
    except _DAMAGED_WHEEL as error:
        raise PackageIndexError(f"{filename}: it is not a readable wheel ({error})") from None


def _check_one_folder(filename: str, paths: Sequence[str]) -> None:
    """Raise PackageIndexError if the files of a wheel's metadata could be of different wheels."""
    folders = {path.partition("/")[0] for path in paths if "/" in path}
    count = sum(folder.endswith(".dist-info") for folder in folders)
    if count > 1:
        message = f"{filename}: it has {count} .dist-info folders; a wheel has exactly one"
        raise PackageIndexError(message)


def _missing_member(filename: str, member: str) -> UnusableFileError:
    return UnusableFileError(
        Reason(
            code="bad-metadata",
            subject=filename,
            need=f"a file {member} in its .dist-info folder",
            have="none",
            source="PEP 825",
        )
    )


def read_sdist_metadata(path: str, filename: str) -> bytes | None:
    """Return NAME-VERSION/PKG-INFO of a source distribution, None if it has none.

    Raises:
        UnusableFileError: it is no readable archive.
    """
    try:
        with open(path, "rb") as file:
            read = _read_zip_sdist if filename.endswith(".zip") else _read_tar_sdist
            return read(file)
    except DAMAGED_SDIST as error:
        raise UnusableFileError(
            Reason(
                code="bad-metadata",
                subject=filename,
                need="a readable archive",
                have=f"none ({error})",
            )
        ) from None


def _read_zip_sdist(file: BinaryIO) -> bytes | None:
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if _is_sdist_metadata(info.filename):
                return archive.read(info) if info.file_size <= MAX_METADATA_BYTES else None
    return None


def _read_tar_sdist(file: BinaryIO) -> bytes | None:
    with tarfile.open(fileobj=file, mode="r:gz") as archive:
        for member in archive:
            small = member.isfile() and member.size <= MAX_METADATA_BYTES
            if small and _is_sdist_metadata(member.name):
                content = archive.extractfile(member)
                return content.read() if content is not None else b""
    return None


def _is_wheel_metadata(path: str, member: str) -> bool:
    folder, _, name = path.partition("/")
    return name == member and folder.endswith(".dist-info")


def _is_sdist_metadata(member: str) -> bool:
    folder, _, name = member.removeprefix("./").partition("/")
    return bool(folder) and name == "PKG-INFO"


# ---- checks --------------------------------------------------------------------------------------


def check_identity(fields: Message, wheel: Wheel) -> None:
    """Check that metadata has the name and version of its file's name. pip checks it, too.

    Raises:
        UnusableFileError: it is the metadata of another release.
    """
    name, version = str(fields["Name"] or ""), str(fields["Version"] or "")
    same_name = not name or normalize_name(name) == wheel.name
    if same_name and (not version or _is_same_version(version, wheel.version)):
        return
    raise UnusableFileError(
        Reason(
            code="bad-metadata",
            subject=wheel.filename,
            need=f"metadata of {wheel.name} {wheel.version}",
            have=f"metadata of {name} {version}",
        )
    )


def _is_same_version(text: str, version: str) -> bool:
    try:
        return Version(text) == Version(version)
    except ValueError:
        return False


def why_dynamic(fields: Message) -> str:
    """Return why a wheel built from an sdist may not have the dependencies of its PKG-INFO.

    That is: fields that matter are dynamic, or its version of the metadata does not say which
    fields are (PEP 643). "" if the PKG-INFO is as good as the metadata of a wheel.
    """
    version = str(fields["Metadata-Version"] or "")
    dynamic = {str(field).strip().lower() for field in fields.get_all("Dynamic") or ()}
    dynamic &= _RELEVANT_FIELDS
    if dynamic:
        return f"it has dynamic {', '.join(sorted(dynamic))}"
    if _parse_metadata_version(version) < _STATIC_METADATA:
        return f"its metadata is of version {version or 'unknown'}"
    return ""


def _parse_metadata_version(version: str) -> tuple[int, ...]:
    return tuple(int(part[:4]) if part.isdigit() else 0 for part in version.split("."))


# ---- fields --------------------------------------------------------------------------------------


def parse_fields(metadata: bytes) -> Message:
    """Return the fields of metadata, without the description in its body."""
    return BytesHeaderParser().parsebytes(_BODY.split(metadata, maxsplit=1)[0])


def parse_dependencies(fields: Message, filename: str) -> tuple[Requirement, ...]:
    """Return the Requires-Dist fields, in their order; `filename` is for messages.

    Raises:
        PackageIndexError: it is no metadata.
        UnusableFileError: a requirement cannot be read.
    """
    if fields["Metadata-Version"] is None and fields["Name"] is None:
        raise PackageIndexError(
            f"{filename}: what its index serves as its metadata is not metadata"
        )
    texts = fields.get_all("Requires-Dist") or ()
    return tuple(_parse_dependency(str(text), filename) for text in texts)


def parse_python_requirement(fields: Message) -> str | None:
    """Return the Requires-Python field, None if there is none or it cannot be read."""
    return parse_requires_python(str(fields["Requires-Python"] or "") or None)


def _parse_dependency(text: str, filename: str) -> Requirement:
    try:
        return _to_requirement(text)
    except (ValueError, RecursionError):
        raise UnusableFileError(
            Reason(
                code="bad-metadata",
                subject=filename,
                need="readable requirements",
                have=f"the unreadable requirement {shortened(text)}",
                source="PEP 508",
            )
        ) from None


@lru_cache(maxsize=4096)  # the releases of a package have most requirements in common
def _to_requirement(text: str) -> Requirement:
    # packaging does not know the markers about the variant of a wheel (PEP 825).
    text, variant_marker = split_variant_marker(text)
    if len(text) > LONGEST_REQUIREMENT:
        raise ValueError(f"it has more than {LONGEST_REQUIREMENT} characters")
    try:
        parsed = ParsedRequirement(text)
    except InvalidRequirement:
        parsed = ParsedRequirement(repair_specifiers(text))
    return Requirement(
        name=normalize_name(parsed.name),
        extras=tuple(sorted(map(normalize_name, parsed.extras))),
        specifier=str(parsed.specifier),
        marker=variant_marker or (str(parsed.marker) if parsed.marker else None),
        url=parsed.url,
    )
