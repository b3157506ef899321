"""Files that a requirement names by URL: `foo @ https://.../foo-1.0-py3-none-any.whl#sha256=..`."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence

from ..errors import InputError, OfflineError, PackageIndexError
from ..model import Requirement, Wheel
from ..requirements.target import TargetEnvironment
from .cache import Cache
from .http import OK, Transport
from .metadata import MetadataReader, OpenBuilder
from .page_fetcher import OFFLINE_HINT
from .protocol import DIRECT_URL, Index
from .simple_api import parse_link, to_wheel
from .urls import file_url_to_path, redact_url
from .variants import ReleaseVariants


class DirectFiles(Index):
    """Wheels and source distributions at URLs (https, http, file). Each is read once.

    The file must have the sha256 of the URL's fragment. Without one the whole file is downloaded to
    compute its hash, as pip does when it locks.
    """

    def __init__(
        self,
        transport: Transport,
        cache: Cache,
        *,
        offline: bool = False,
        builder: OpenBuilder | None = None,
    ) -> None:
        self._transport, self._offline = transport, offline
        self._metadata = MetadataReader(transport, cache, offline=offline, builder=builder)
        self._files: dict[str, Wheel] = {}  # by URL

    def has(self, name: str) -> bool:
        """Return False: no package can be looked up by name."""
        del name
        return False

    def wheels(self, name: str, environment: TargetEnvironment | None = None) -> tuple[Wheel, ...]:
        """Return (): no package can be looked up by name."""
        del name, environment
        return ()

    def direct(self, name: str, url: str) -> Wheel:
        """Implement Index.direct.

        Raises:
            InputError: the URL names no wheel or sdist, or one of another package.
            OfflineError: the hash is not known, and requests are not allowed.
            PackageIndexError: the file cannot be downloaded.
        """
        if url not in self._files:
            self._files[url] = self._read(url)
        wheel = self._files[url]
        if wheel.name != name:
            raise InputError(f"{name} @ {redact_url(url)}: the file belongs to {wheel.name}")
        return wheel

    def dependencies(self, wheel: Wheel) -> tuple[Requirement, ...]:
        """Implement Index.dependencies."""
        return self._metadata.dependencies(wheel)

    def variants(self, wheels: Sequence[Wheel]) -> ReleaseVariants:
        """Implement Index.variants, by the metadata in the wheels."""
        return self._metadata.variants(wheels)

    def requires_python(self, wheel: Wheel) -> str | None:
        """Implement Index.requires_python."""
        return self._metadata.requires_python(wheel)

    def _read(self, url: str) -> Wheel:
        entry = parse_link(url, {}, url)
        if entry is None:
            raise InputError(
                f"{redact_url(url)} names no wheel and no source distribution "
                "(NAME-VERSION-TAGS.whl)"
            )
        wheel = to_wheel(entry, DIRECT_URL)
        if wheel.url.startswith("file:"):
            return _hash_local(wheel)
        if wheel.sha256 is None:
            return self._hash_remote(wheel)
        return wheel

    def _hash_remote(self, wheel: Wheel) -> Wheel:
        if self._offline:
            raise OfflineError(
                f"{wheel.filename}: its URL has no #sha256=, and --offline is on",
                hint=OFFLINE_HINT,
            )
        with tempfile.TemporaryFile() as file:
            reply, sha256 = self._transport.download(wheel.url, wheel.filename, file)
            if reply.status != OK:
                raise PackageIndexError(
                    f"{wheel.filename}: {redact_url(wheel.url)} answered with status {reply.status}"
                )
            return wheel.replace(sha256=sha256, size=file.tell())


def _hash_local(wheel: Wheel) -> Wheel:
    path = file_url_to_path(wheel.url)
    if os.path.exists(path) and not os.path.isfile(path):  # a pipe may never end
        raise InputError(f"{path} is not a regular file")
    try:
        with open(path, "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    if wheel.sha256 not in (None, sha256):
        raise InputError(f"{path} has the sha256 {sha256}; the requirement names {wheel.sha256}")
    return wheel.replace(sha256=sha256, size=os.path.getsize(path))
