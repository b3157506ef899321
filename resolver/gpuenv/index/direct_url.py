"""Files that a requirement names by their URL: `foo @ https://.../foo-1.0-py3-none-any.whl#sha256=...`."""

from __future__ import annotations

from ..errors import InputError, OfflineError, PackageIndexError
from ..model import Requirement, Wheel
from .cache import Cache
from .http import OK, Transport, shown
from .metadata import MetadataReader, local_path
from .multi_index import DIRECT
from .simple_api import OFFLINE_HINT, linked


class DirectFiles:
    """Wheels and source distributions at URLs (https, http, file). Each is read once.

    The sha256 is the one of the URL's fragment, of which the file is held to; without one the file is downloaded whole
    to find it, as pip does when it locks.
    """

    def __init__(self, transport: Transport, cache: Cache, *, offline: bool = False) -> None:
        self._transport, self._offline = transport, offline
        self._metadata = MetadataReader(transport, cache, offline=offline)
        self._known: dict[str, Wheel] = {}

    def file(self, name: str, url: str) -> Wheel:
        """The file at a URL, of the package `name`. InputError for a file of another name, or of none."""
        if url not in self._known:
            self._known[url] = self._look(url)
        found = self._known[url]
        if found.name != name:
            raise InputError(f"{name} @ {shown(url)}: the file is one of {found.name}")
        return found

    def dependencies(self, wheel: Wheel) -> tuple[Requirement, ...]:
        """As protocol.Index says."""
        return self._metadata.dependencies(wheel)

    def requires_python(self, wheel: Wheel) -> str | None:
        """As SimpleIndex.requires_python."""
        return self._metadata.requires_python(wheel)

    def _look(self, url: str) -> Wheel:
        row = linked(url, {}, url)
        if row is None:
            raise InputError(f"{shown(url)} names no wheel and no source distribution (NAME-VERSION-TAGS.whl)")
        wheel = Wheel(index=DIRECT, **row._asdict())
        if wheel.url.startswith("file:"):
            return self._local(wheel)
        if wheel.sha256 is None:
            return self._downloaded(wheel)
        return wheel

    def _local(self, wheel: Wheel) -> Wheel:
        import hashlib
        import os

        path = local_path(wheel.url)
        try:
            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from None
        if wheel.sha256 not in (None, digest):
            raise InputError(f"{path} has the sha256 {digest}, and the requirement says {wheel.sha256}")
        return wheel.replace(sha256=digest, size=os.path.getsize(path))

    def _downloaded(self, wheel: Wheel) -> Wheel:
        import tempfile

        if self._offline:
            what = f"{wheel.filename}: its URL has no #sha256=, and --offline is on"
            raise OfflineError(what, hint=OFFLINE_HINT)
        with tempfile.TemporaryFile() as file:
            reply, digest = self._transport.download(wheel.url, wheel.filename, file)
            if reply.status != OK:
                raise PackageIndexError(f"{wheel.filename}: {shown(wheel.url)} answers {reply.status}")
            return wheel.replace(sha256=digest, size=file.tell())
