"""The dependencies of a wheel: from its metadata file, from a part of the wheel, or from the whole wheel.

In this order: the metadata file that the index serves beside the wheel (PEP 658, 714), the end of the wheel by range
requests (a zip file has its directory there), the whole wheel. Of a source distribution the whole file is read, for
its PKG-INFO. What was found is kept by the file's sha256, for ever, since a file does not change.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, BinaryIO

from ..errors import GpuEnvError, OfflineError, PackageIndexError, Reason, UnusableFileError
from ..model import Requirement, Wheel
from ..requirements.target import normalize_name
from .cache import Cache
from .filenames import python_range, without_stars
from .http import GONE, OK, PARTIAL, Transport, shown
from .keyed_lock import Turns
from .simple_api import OFFLINE_HINT, is_sdist

BLOCK = 1 << 16  # bytes that a range request asks for at least
_LARGEST = 64 << 20  # bytes of METADATA, against zip bombs


class MetadataReader:
    """Finds the requirements of wheels, over HTTP or in a local file, through the cache."""

    def __init__(self, transport: Transport, cache: Cache, *, offline: bool = False) -> None:
        self.transport, self.cache, self.offline = transport, cache, offline
        self._known: dict[tuple[str, str | None], tuple[Requirement, ...] | GpuEnvError] = {}
        self._pythons: dict[str, str | None] = {}
        self._sizes: dict[str, int] = {}
        self._turns = Turns()

    def dependencies(self, wheel: Wheel) -> tuple[Requirement, ...]:
        """All requirements, with the markers on.

        Raises PackageIndexError, OfflineError, UnusableFileError for an sdist that only a build would tell. Answers
        are remembered, failures too.
        """
        key = wheel.url, wheel.sha256
        if key not in self._known:
            with self._turns.of(wheel.url):
                if key not in self._known:
                    self._known[key] = self._ask(wheel)
        known = self._known[key]
        if isinstance(known, GpuEnvError):
            raise known
        return known

    def _ask(self, wheel: Wheel) -> tuple[Requirement, ...] | GpuEnvError:
        try:
            return self._find(wheel)
        except GpuEnvError as error:
            return error

    def _find(self, wheel: Wheel) -> tuple[Requirement, ...]:
        if wheel.sha256 is not None:
            kept = self.cache.get("metadata", wheel.sha256)
            if kept is not None and (known := _load(kept[1])) is not None:
                self._pythons[wheel.url] = kept[0].get("requires_python")
                if (size := kept[0].get("size")) is not None:
                    self._sizes[wheel.url] = size
                return known
        if wheel.url.startswith("file:"):
            data = local_metadata(local_path(wheel.url))
        elif self.offline:
            raise OfflineError(
                f"the dependencies of {wheel.filename} are not in the cache and --offline is on", hint=OFFLINE_HINT
            )
        else:
            data = self._fetch(wheel)
        check_identity(data, wheel)
        if is_sdist(wheel):
            check_static(data, wheel)
        found = requirements(data, wheel.filename)
        self._pythons[wheel.url] = python = requires_python(data)
        if wheel.sha256 is not None:
            size = self._sizes.get(wheel.url)
            header = {"filename": wheel.filename, "requires_python": python, "size": size}
            self.cache.put("metadata", wheel.sha256, header, _dump(found))
        return found

    def requires_python(self, wheel: Wheel) -> str | None:
        """The Requires-Python of a file whose dependencies were read by this reader."""
        return self._pythons.get(wheel.url)

    def size(self, wheel: Wheel) -> int | None:
        """The bytes of a file, where reading its dependencies told them."""
        return self._sizes.get(wheel.url)

    def _fetch(self, wheel: Wheel) -> bytes:
        if isinstance(wheel.metadata, str) and (data := self._metadata_file(wheel, wheel.metadata)) is not None:
            return data
        if is_sdist(wheel):
            return self._whole(wheel)
        try:
            remote = _Remote(self.transport, wheel)
            self._sizes[wheel.url] = remote.length
            return _read_member(remote, wheel.filename)
        except _NoRangesError:
            return self._whole(wheel)

    def _metadata_file(self, wheel: Wheel, expected: str) -> bytes | None:
        """The PEP 658 file; None if the index announces one that it does not have (some mirrors do)."""
        what = f"metadata of {wheel.filename}"
        reply = self.transport.get(_beside(wheel.url), what)
        if reply.status in GONE:
            return None
        if reply.status != OK:
            raise PackageIndexError(f"{what}: {shown(wheel.url)}.metadata answers {reply.status}")
        if expected:
            import hashlib

            _check(f"{wheel.filename}.metadata", expected, hashlib.sha256(reply.body).hexdigest(), wheel)
        return reply.body

    def _whole(self, wheel: Wheel) -> bytes:
        import tempfile

        with tempfile.TemporaryFile() as file:
            reply, digest = self.transport.download(wheel.url, wheel.filename, file)
            if reply.status != OK:
                raise PackageIndexError(f"{wheel.filename}: {shown(wheel.url)} answers {reply.status}")
            if wheel.sha256 is not None:
                _check(wheel.filename, wheel.sha256, digest, wheel)
            return _read_info(file, wheel.filename) if is_sdist(wheel) else _read_member(file, wheel.filename)


class _NoRangesError(Exception):
    """The server does not answer range requests as RFC 9110 says."""


class _Remote(io.RawIOBase):
    """A wheel on a server as a file that can be read at any place. Keeps the block that was read last."""

    def __init__(self, transport: Transport, wheel: Wheel) -> None:
        super().__init__()
        self._transport, self._wheel = transport, wheel
        self._at, self._start, self._block = 0, 0, b""
        # Not every server knows the form "the last N bytes"; where the size is known it is not needed.
        size = wheel.size
        self._size = self._ask(f"{max(0, size - BLOCK)}-{size - 1}" if size else f"-{BLOCK}")

    @property
    def length(self) -> int:
        """The bytes of the whole file."""
        return self._size

    def _ask(self, span: str) -> int:
        """Read a block. Returns the size of the whole file."""
        import re

        reply = self._transport.get_range(self._wheel.url, self._wheel.filename, span)
        if reply.status in GONE:
            url = shown(self._wheel.url)
            raise PackageIndexError(f"{self._wheel.filename}: the index names it, but {url} answers {reply.status}")
        told = re.fullmatch(r"bytes (\d+)-(\d+)/(\d+)", reply.headers.get("content-range", ""))
        if reply.status != PARTIAL or told is None:
            raise _NoRangesError
        start, end, size = (int(number) for number in told.groups())
        if len(reply.body) != end - start + 1 or end >= size:
            raise _NoRangesError
        self._start, self._block = start, reply.body
        return size

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, origin + offset)
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        end = self._size if size < 0 else min(self._at + size, self._size)
        if end <= self._at:
            return b""
        if not self._start <= self._at <= end <= self._start + len(self._block):
            size_before = self._size
            last = min(max(end, self._at + BLOCK), self._size) - 1
            if self._ask(f"{self._at}-{last}") != size_before or self._start != self._at or len(self._block) <= 0:
                raise _NoRangesError
        data = self._block[self._at - self._start : end - self._start]
        self._at += len(data)
        return data


def requirements(data: bytes, filename: str) -> tuple[Requirement, ...]:
    """The Requires-Dist fields of a METADATA file (core metadata specification), in its order."""
    from email.parser import BytesHeaderParser

    fields = BytesHeaderParser().parsebytes(data)
    if fields["Metadata-Version"] is None and fields["Name"] is None:
        raise PackageIndexError(f"{filename}: what its index serves as its metadata is none")
    return tuple(_requirement(str(text), filename) for text in fields.get_all("Requires-Dist") or ())


def _requirement(text: str, filename: str) -> Requirement:
    from packaging.requirements import InvalidRequirement
    from packaging.requirements import Requirement as Parsed

    try:
        parsed = Parsed(text)
    except InvalidRequirement:
        try:
            parsed = Parsed(without_stars(text))
        except InvalidRequirement:
            raise UnusableFileError(
                Reason(
                    code="bad-metadata",
                    subject=filename,
                    need="readable requirements",
                    have=f"the unreadable requirement {text!r}",
                    source="PEP 508",
                )
            ) from None
    return Requirement(
        name=normalize_name(parsed.name),
        extras=tuple(sorted(normalize_name(extra) for extra in parsed.extras)),
        specifier=str(parsed.specifier),
        marker=str(parsed.marker) if parsed.marker else None,
        url=parsed.url,
    )


def local_path(url: str) -> str:
    """The path that a file:// URL names."""
    import os
    from urllib.parse import unquote, urlsplit

    if os.name == "nt":
        from urllib.request import url2pathname

        return url2pathname(urlsplit(url).path)
    return unquote(urlsplit(url).path)


def local_metadata(path: str) -> bytes:
    """METADATA of a wheel in a folder, PKG-INFO of a source distribution."""
    try:
        with open(path, "rb") as file:
            return _read_member(file, path) if path.endswith(".whl") else _read_info(file, path)
    except OSError as error:
        raise PackageIndexError(f"{path} cannot be read: {error.strerror}") from None


def requires_python(data: bytes) -> str | None:
    """The Requires-Python field of a METADATA file; None also for one that cannot be read."""
    from email.parser import BytesHeaderParser

    return python_range(str(BytesHeaderParser().parsebytes(data)["Requires-Python"] or "") or None)


def _read_member(file: BinaryIO | _Remote, filename: str) -> bytes:
    """NAME-VERSION.dist-info/METADATA of an open wheel."""
    import zipfile
    import zlib

    try:
        with zipfile.ZipFile(file) as archive:
            members = [info for info in archive.infolist() if _is_metadata(info.filename)]
            if len(members) != 1:
                raise PackageIndexError(f"{filename}: it has {len(members)} METADATA files, a wheel has one")
            if members[0].file_size > _LARGEST:
                raise PackageIndexError(f"{filename}: its METADATA is larger than {_LARGEST >> 20} MiB")
            return archive.read(members[0])
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise PackageIndexError(f"{filename}: it is not a readable wheel ({error})") from None


def check_identity(data: bytes, wheel: Wheel) -> None:
    """UnusableFileError unless metadata is of the name and version of its file; pip passes over such a file, too."""
    from email.parser import BytesHeaderParser

    from packaging.version import InvalidVersion, Version

    fields = BytesHeaderParser().parsebytes(data)
    name, version = str(fields["Name"] or ""), str(fields["Version"] or "")
    try:
        same = not version or Version(version) == Version(wheel.version)
    except InvalidVersion:
        same = False
    if same and (not name or normalize_name(name) == wheel.name):
        return
    need, have = f"metadata of {wheel.name} {wheel.version}", f"metadata of {name} {version}"
    raise UnusableFileError(Reason(code="bad-metadata", subject=wheel.filename, need=need, have=have))


def check_static(data: bytes, wheel: Wheel) -> None:
    """UnusableFileError unless the PKG-INFO of an sdist says what a wheel built of it would say (PEP 643)."""
    from email.parser import BytesHeaderParser

    fields = BytesHeaderParser().parsebytes(data)
    version = str(fields["Metadata-Version"] or "")
    dynamic = {str(one).strip().lower() for one in fields.get_all("Dynamic") or ()}
    told = dynamic & {"requires-dist", "provides-extra", "requires-python"}
    numbers = tuple(int(part) if part.isdigit() else 0 for part in version.split("."))
    if numbers >= (2, 2) and not told:
        return
    have = f"dynamic {', '.join(sorted(told))}" if told else f"metadata of version {version or 'unknown'}"
    raise UnusableFileError(
        Reason(
            code="dynamic-metadata",
            subject=wheel.filename,
            need="static dependencies in its PKG-INFO, since nothing is built to find a solution",
            have=have,
            source="PEP 643",
        )
    )


def _read_info(file: BinaryIO, filename: str) -> bytes:
    """NAME-VERSION/PKG-INFO of an open source distribution."""
    import tarfile
    import zipfile
    import zlib

    file.seek(0)
    damaged = (tarfile.TarError, zipfile.BadZipFile, zlib.error, OSError, EOFError, ValueError, NotImplementedError)
    try:
        if filename.endswith(".zip"):
            with zipfile.ZipFile(file) as archive:
                found = [info for info in archive.infolist() if _is_info(info.filename)]
                if found and found[0].file_size <= _LARGEST:
                    return archive.read(found[0])
        else:
            with tarfile.open(fileobj=file, mode="r:gz") as tar:
                for member in tar:
                    if member.isfile() and _is_info(member.name) and member.size <= _LARGEST:
                        content = tar.extractfile(member)
                        return content.read() if content else b""
    except damaged as error:
        raise PackageIndexError(f"{filename}: it is not a readable source distribution ({error})") from None
    raise PackageIndexError(f"{filename}: it has no PKG-INFO, so its dependencies are not known")


def _is_info(member: str) -> bool:
    folder, _, name = member.removeprefix("./").partition("/")
    return bool(folder) and name == "PKG-INFO"


def _is_metadata(member: str) -> bool:
    folder, _, name = member.partition("/")
    return name == "METADATA" and folder.endswith(".dist-info")


def _beside(url: str) -> str:
    """The URL of the metadata file: .metadata after the path (PEP 658), before any query."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return parts._replace(path=parts.path + ".metadata", fragment="").geturl()


def _check(filename: str, expected: str, got: str, wheel: Wheel) -> None:
    if expected != got:
        raise PackageIndexError(
            f"{filename} of {shown(wheel.index) or shown(wheel.url)} has the wrong hash: "
            f"expected sha256 {expected}, got {got}",
            hint="the file was changed on its way or on the index; do not install it",
        )


def _dump(found: Sequence[Requirement]) -> bytes:
    import json

    return json.dumps([[one.name, one.extras, one.specifier, one.marker, one.url] for one in found]).encode()


def _load(body: bytes) -> tuple[Requirement, ...] | None:
    import json

    try:
        rows: list[list[Any]] = json.loads(body)
        return tuple(
            Requirement(name=name, extras=tuple(extras), specifier=specifier, marker=marker, url=url)
            for name, extras, specifier, marker, url in rows
        )
    except (ValueError, TypeError):
        return None
