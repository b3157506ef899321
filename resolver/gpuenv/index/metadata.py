"""The dependencies of a file: from its metadata file, from a part of the wheel, or the whole file.

Sources, in this order: the metadata file that the index serves beside the wheel (PEP 658, 714); the
end of the wheel, by range requests (a zip file has its directory there); the whole wheel. A source
distribution is always read whole, for its PKG-INFO; if that leaves dependencies open, a build tells
them. Results are cached by the file's sha256 without a limit of time, since the content of a hash
does not change; those of a build also by the interpreter.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import urlsplit

from ..errors import OfflineError, PackageIndexError, Reason, UnusableFileError
from ..model import Requirement, Wheel
from ..requirements.target import split_label
from ..serialize import to_plain
from .cache import Cache
from .filenames import is_sdist
from .http import GONE, OK, PARTIAL, Transport
from .keyed_memo import KeyedMemo
from .page_fetcher import OFFLINE_HINT
from .urls import file_url_to_path, redact_url

if TYPE_CHECKING:  # few solves build, and few packages have variant wheels
    from .source_builds import SourceBuilder
    from .variants import ReleaseVariants

BLOCK = 1 << 16  # the least bytes of a range request

_CACHE_KIND = "metadata"
_VARIANTS_KIND = "variants"
MAX_VARIANT_BYTES = 16 << 20  # a release with thousands of variants has less
_CONTENT_RANGE = r"bytes (\d+)-(\d+)/(\d+)"


# Building needs modules that take long to import, and few solves build.
OpenBuilder = Callable[[], "SourceBuilder"]


class MetadataReader:
    """Reads the dependencies of files, over HTTP or from disk, through the cache.

    Args:
        transport: sends the requests.
        cache: stores the dependencies.
        offline: use the cache only.
        builder: opens what builds source distributions; None builds nothing.
    """

    def __init__(
        self,
        transport: Transport,
        cache: Cache,
        *,
        offline: bool = False,
        builder: OpenBuilder | None = None,
    ) -> None:
        self._transport, self._cache, self._offline = transport, cache, offline
        self._builder = builder
        self._dependencies: KeyedMemo[tuple[str, str | None], tuple[Requirement, ...]] = KeyedMemo()
        self._requires_python: dict[str, str | None] = {}  # by URL, like the sizes
        self._sizes: dict[str, int] = {}

    def dependencies(self, wheel: Wheel) -> tuple[Requirement, ...]:
        """Return all requirements of a file, with their markers. Asks once for each file.

        Raises:
            PackageIndexError: the file cannot be fetched or read, or has the wrong hash.
            OfflineError: nothing about it is cached, and requests are not allowed.
            UnusableFileError: it is an sdist that cannot be built, or its metadata is of no use.
        """
        return self._dependencies.get((wheel.url, wheel.sha256), lambda: self._find(wheel))

    def requires_python(self, wheel: Wheel) -> str | None:
        """Return Requires-Python of a file whose dependencies were read by this reader."""
        return self._requires_python.get(wheel.url)

    def size(self, wheel: Wheel) -> int | None:
        """Return the bytes of a file if reading its dependencies revealed them."""
        return self._sizes.get(wheel.url)

    def variants(
        self, wheels: Sequence[Wheel], listed: tuple[str, str | None] | None = None
    ) -> ReleaseVariants:
        """Return the metadata of the variants of a release.

        Args:
            wheels: the variant wheels of the release.
            listed: (URL, sha256) of the file that describes all of them; None if there is none.
                Then one wheel of each label is read.

        Raises:
            PackageIndexError, OfflineError: as `dependencies`.
            UnusableFileError: the metadata does not follow PEP 825.
        """
        from .variants import combine

        name = wheels[0].name
        if listed is not None:
            url, sha256 = listed
            filename = url.rpartition("/")[2]
            return _parse_variants(self._read_variants_file(url, sha256, wheels[0]), name, filename)
        by_label = {split_label(wheel.filename)[1]: wheel for wheel in reversed(wheels)}
        parts = []
        for label, wheel in by_label.items():
            content = self._read_variant_of_wheel(wheel)
            parts.append(_parse_variants(content, name, wheel.filename))
            if [variant.label for variant in parts[-1].variants] != [label]:
                wrong = ValueError(f"it does not describe the variant {label} alone")
                raise _bad_variants(wheel.filename, wrong)
        try:
            return combine(parts)
        except ValueError as error:
            raise _bad_variants(f"{name} {wheels[0].version}", error) from None

    def _read_variants_file(self, url: str, sha256: str | None, wheel: Wheel) -> bytes:
        """Return the file at a URL. A release may get more variants, so a hash decides its age."""
        if url.startswith("file:"):
            with open(file_url_to_path(url), "rb") as file:
                return file.read(MAX_VARIANT_BYTES)
        cached = self._cache.get(_VARIANTS_KIND, url)
        is_same = cached is not None and sha256 is not None and cached.text("sha256") == sha256
        if cached is not None and (is_same or self._offline):
            return cached.body
        filename = url.rpartition("/")[2]
        if self._offline:
            raise OfflineError(
                f"{filename} is not in the cache and --offline is on", hint=OFFLINE_HINT
            )
        reply = self._transport.get(url, filename)
        if reply.status in GONE:
            missing = ValueError("the index lists a file that it does not have")
            raise _bad_variants(filename, missing)
        if reply.status != OK:
            raise PackageIndexError(
                f"{filename}: {redact_url(url)} answered with status {reply.status}"
            )
        digest = hashlib.sha256(reply.body).hexdigest()
        if sha256 is not None:
            _check_hash(filename, sha256, digest, wheel)
        self._cache.put(_VARIANTS_KIND, url, {"sha256": digest}, reply.body)
        return reply.body

    def _read_variant_of_wheel(self, wheel: Wheel) -> bytes:
        from .core_metadata import read_wheel_metadata
        from .variants import WHEEL_FILE

        if wheel.url.startswith("file:"):
            with open(file_url_to_path(wheel.url), "rb") as file:
                return read_wheel_metadata(file, wheel.filename, WHEEL_FILE)
        cached = None
        if wheel.sha256 is not None:
            cached = self._cache.get(_VARIANTS_KIND, wheel.sha256)
        if cached is not None:
            return cached.body
        if self._offline:
            raise OfflineError(
                f"the variant of {wheel.filename} is not in the cache and --offline is on",
                hint=OFFLINE_HINT,
            )
        try:
            content = read_wheel_metadata(
                RemoteFile(self._transport, wheel), wheel.filename, WHEEL_FILE
            )
        except NoRangesError:
            content = self._read_whole(wheel, WHEEL_FILE)
        if wheel.sha256 is not None:
            self._cache.put(_VARIANTS_KIND, wheel.sha256, {}, content)
        return content

    def _find(self, wheel: Wheel) -> tuple[Requirement, ...]:
        for known_key in self._keys(wheel):
            cached = self._load(wheel, known_key)
            if cached is not None:
                return cached
        if is_sdist(wheel.filename):
            content, key = self._read_sdist(wheel)
        else:
            content, key = self._read(wheel), wheel.sha256
        from . import core_metadata  # slow: it loads email, tarfile and packaging

        fields = core_metadata.parse_fields(content)
        try:
            core_metadata.check_identity(fields, wheel)
            dependencies = core_metadata.parse_dependencies(fields, wheel.filename)
        except UnusableFileError as error:
            self._store_refusal(wheel, key, error.reason)
            raise
        self._requires_python[wheel.url] = core_metadata.parse_python_requirement(fields)
        self._store(wheel, key, dependencies)
        return dependencies

    def _keys(self, wheel: Wheel) -> Iterator[str]:
        """Yield the keys under which the cache may have the dependencies of a file."""
        if wheel.sha256 is not None:
            yield wheel.sha256
            if is_sdist(wheel.filename) and self._builder is not None:
                yield f"{wheel.sha256} {self._builder().key}"

    def _load(self, wheel: Wheel, key: str) -> tuple[Requirement, ...] | None:
        """Return the dependencies from the cache, and note the other facts of the entry.

        Raises:
            UnusableFileError: the file was found to be of no use before.
        """
        entry = self._cache.get(_CACHE_KIND, key)
        if entry is None:
            return None
        refusal = entry.header.get("refusal")
        if isinstance(refusal, dict) and entry.text("filename") == wheel.filename:
            raise UnusableFileError(Reason(**refusal))
        dependencies = _parse_cached(entry.body)
        if dependencies is None:
            return None
        self._requires_python[wheel.url] = entry.text("requires_python")
        size = entry.integer("size")
        if size is not None:
            self._sizes[wheel.url] = size
        return dependencies

    def _store(self, wheel: Wheel, key: str | None, dependencies: Sequence[Requirement]) -> None:
        if key is None:
            return
        header = {
            "filename": wheel.filename,
            "requires_python": self._requires_python[wheel.url],
            "size": self._sizes.get(wheel.url),
        }
        self._cache.put(_CACHE_KIND, key, header, _to_cached(dependencies))

    def _store_refusal(self, wheel: Wheel, key: str | None, reason: Reason) -> None:
        if key is None:
            return
        header = {"filename": wheel.filename, "refusal": to_plain(reason)}
        self._cache.put(_CACHE_KIND, key, header, b"")

    def _read_sdist(self, wheel: Wheel) -> tuple[bytes, str | None]:
        """Return the metadata of a source distribution, and its key in the cache.

        Raises:
            UnusableFileError: it is no readable archive, or its build fails.
        """
        from .core_metadata import parse_fields, read_sdist_metadata, why_dynamic

        if self._builder is not None:
            self._builder().require_hope(wheel)  # before a download
        with tempfile.TemporaryDirectory(prefix="gpuenv-") as folder:
            path = self._archive(wheel, folder)
            content = read_sdist_metadata(path, wheel.filename)
            why = "it has no PKG-INFO" if content is None else why_dynamic(parse_fields(content))
            if content is not None and not why:
                return content, wheel.sha256
            if self._builder is None:
                raise UnusableFileError(
                    Reason(
                        code="needs-build",
                        subject=wheel.filename,
                        need="a build to tell its dependencies",
                        have=f"nothing is built here, and {why}",
                        source="PEP 643",
                    )
                )
            builder = self._builder()
            content = builder.metadata(wheel, path, f"no wheel fits, and {why}")
            key = wheel.sha256 and f"{wheel.sha256} {builder.key}"
            return content, key

    def _archive(self, sdist: Wheel, folder: str) -> str:
        """Return the path of a source distribution: where it is, or downloaded to a folder."""
        if sdist.url.startswith("file:"):
            return file_url_to_path(sdist.url)
        self._require_network(sdist)
        path = os.path.join(folder, sdist.filename)
        with open(path, "w+b") as file:
            self._download(sdist, file)
        return path

    def _read(self, wheel: Wheel) -> bytes:
        if wheel.url.startswith("file:"):
            from .core_metadata import read_local_metadata

            return read_local_metadata(file_url_to_path(wheel.url))
        self._require_network(wheel)
        return self._fetch(wheel)

    def _require_network(self, wheel: Wheel) -> None:
        if self._offline:
            raise OfflineError(
                f"the dependencies of {wheel.filename} are not in the cache and --offline is on",
                hint=OFFLINE_HINT,
            )

    def _fetch(self, wheel: Wheel) -> bytes:
        if isinstance(wheel.metadata, str):
            metadata = self._fetch_metadata_file(wheel, wheel.metadata)
            if metadata is not None:
                return metadata
        from .core_metadata import read_wheel_metadata

        try:
            remote = RemoteFile(self._transport, wheel)
            self._sizes[wheel.url] = remote.length
            return read_wheel_metadata(remote, wheel.filename)
        except NoRangesError:
            return self._read_whole(wheel)

    def _fetch_metadata_file(self, wheel: Wheel, sha256: str) -> bytes | None:
        """Return the PEP 658 file. Some mirrors announce one that they do not have: None."""
        subject = f"metadata of {wheel.filename}"
        reply = self._transport.get(_metadata_url(wheel.url), subject)
        if reply.status in GONE:
            return None
        if reply.status != OK:
            raise PackageIndexError(
                f"{subject}: {redact_url(wheel.url)}.metadata answered with status {reply.status}"
            )
        if sha256:
            digest = hashlib.sha256(reply.body).hexdigest()
            _check_hash(f"{wheel.filename}.metadata", sha256, digest, wheel)
        return reply.body

    def _read_whole(self, wheel: Wheel, member: str = "METADATA") -> bytes:
        """Download the whole wheel and read its metadata, or another file beside it."""
        from .core_metadata import read_wheel_metadata

        with tempfile.TemporaryFile() as file:
            self._download(wheel, file)
            return read_wheel_metadata(file, wheel.filename, member)

    def _download(self, wheel: Wheel, file: BinaryIO) -> None:
        """Write a file of the index to an open file, and check its hash."""
        reply, digest = self._transport.download(wheel.url, wheel.filename, file, wheel.size)
        if reply.status != OK:
            raise PackageIndexError(
                f"{wheel.filename}: {redact_url(wheel.url)} answered with status {reply.status}"
            )
        if wheel.sha256 is not None:
            _check_hash(wheel.filename, wheel.sha256, digest, wheel)


def _parse_variants(content: bytes, name: str, filename: str) -> ReleaseVariants:
    from .variants import parse

    try:
        return parse(content, name)
    except ValueError as error:
        raise _bad_variants(filename, error) from None


def _bad_variants(subject: str, error: ValueError) -> UnusableFileError:
    return UnusableFileError(
        Reason(
            code="bad-metadata",
            subject=subject,
            need="variant metadata as PEP 825 defines it",
            have=f"metadata with a mistake: {error}",
            source="PEP 825",
        )
    )


def _metadata_url(url: str) -> str:
    """Return the URL of the metadata file: .metadata after the path (PEP 658), before a query."""
    parts = urlsplit(url)
    return parts._replace(path=parts.path + ".metadata", fragment="").geturl()


def _check_hash(filename: str, expected: str, actual: str, wheel: Wheel) -> None:
    if expected != actual:
        origin = redact_url(wheel.index) or redact_url(wheel.url)
        raise PackageIndexError(
            f"{filename} of {origin} has the wrong hash: expected sha256 {expected}, got {actual}",
            hint="the file was changed in transit or on the index; do not install it",
        )


def _to_cached(dependencies: Sequence[Requirement]) -> bytes:
    rows = [[d.name, d.extras, d.specifier, d.marker, d.url] for d in dependencies]
    return json.dumps(rows).encode()


def _parse_cached(body: bytes) -> tuple[Requirement, ...] | None:
    try:
        return tuple(
            Requirement(
                name=name, extras=tuple(extras), specifier=specifier, marker=marker, url=url
            )
            for name, extras, specifier, marker, url in json.loads(body)
        )
    except (ValueError, TypeError):
        return None


# ---- range requests ------------------------------------------------------------------------------


class NoRangesError(Exception):
    """The server does not answer range requests as RFC 9110 requires."""


class RemoteFile(io.RawIOBase):
    """A wheel on a server as a seekable file. Keeps the block that was read last.

    Raises NoRangesError if the server does not support range requests.
    """

    def __init__(self, transport: Transport, wheel: Wheel, block: int = BLOCK) -> None:
        """Read the end of a wheel. A request is for `block` bytes or more."""
        super().__init__()
        self._transport, self._wheel, self._size = transport, wheel, block
        self._position = 0
        self._block_start, self._block = 0, b""
        # Not every server knows "the last N bytes"; with a known size it is not needed.
        span = f"-{BLOCK}"
        if wheel.size:
            span = f"{max(0, wheel.size - BLOCK)}-{wheel.size - 1}"
        self.length = self._read_block(span)  # bytes of the whole file

    def _read_block(self, span: str) -> int:
        """Request a block. Return the bytes of the whole file."""
        filename = self._wheel.filename
        reply = self._transport.get_range(self._wheel.url, filename, span)
        if reply.status in GONE:
            raise PackageIndexError(
                f"{filename}: the index lists it, but {redact_url(self._wheel.url)} "
                f"answered with status {reply.status}"
            )
        content_range = re.fullmatch(_CONTENT_RANGE, reply.headers.get("content-range", ""))
        if reply.status != PARTIAL or content_range is None:
            raise NoRangesError
        start, end, length = map(int, content_range.groups())
        if len(reply.body) != end - start + 1 or end >= length:
            raise NoRangesError
        self._block_start, self._block = start, reply.body
        return length

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        origins = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self.length}
        self._position = max(0, origins[whence] + offset)
        return self._position

    def read(self, size: int = -1, /) -> bytes:
        end = self.length
        if size >= 0:
            end = min(end, self._position + size)
        if end <= self._position:
            return b""
        block_end = self._block_start + len(self._block)
        if not self._block_start <= self._position <= end <= block_end:
            self._move_block(end)
        start = self._position - self._block_start
        data = self._block[start : end - self._block_start]
        self._position += len(data)
        return data

    def _move_block(self, end: int) -> None:
        """Read the block from the position to `end`, or a longer one."""
        last = min(max(end, self._position + self._size), self.length) - 1
        length = self._read_block(f"{self._position}-{last}")
        if length != self.length or self._block_start != self._position or not self._block:
            raise NoRangesError
