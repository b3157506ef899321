"""Wheels that --find-links names: folders, files, and HTML pages; and an index that is a folder (file://)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ..errors import InputError
from ..model import Requirement, Wheel
from ..requirements.target import TargetEnvironment
from .cache import Cache
from .filenames import SDISTS, identify
from .http import Transport, shown
from .metadata import MetadataReader, local_metadata, local_path, requires_python
from .protocol import Source
from .simple_api import Fetcher, Row, is_sdist, linked, newest_first, parse, wheel


class FindLinks(Source):
    """The wheels of some places, in the order given: of two files with one name the first place's counts.

    A place is a path or a file:// URL of a folder of wheels, of a folder with one folder a package (the layout of
    PEP 503, with or without index.html), of a wheel or of an HTML page; or an http(s):// URL of an HTML page or of a
    wheel. Wheels of a folder have the size, the sha256 and the Requires-Python that the file itself has; the hash
    is kept in the cache by path, size and time of change, since a wheel can have gigabytes. Times of upload are not
    known here and --exclude-newer does not apply: the folder is the user's own choice, as it is for uv.

    `index` is what `Wheel.index` carries: "" for find-links, the URL where a folder serves as an index.
    """

    def __init__(
        self,
        locations: Sequence[str],
        *,
        transport: Transport | None = None,
        cache: Cache | None = None,
        offline: bool = False,
        refresh: bool = False,
        index: str = "",
    ) -> None:
        transport = Transport() if transport is None else transport
        self._cache = Cache() if cache is None else cache
        self._transport = transport
        self._locations = tuple(transport.login(one) if _is_web(one) else _local(one) for one in locations)
        self.url = index
        self.label = shown(index) if index else "find-links"
        self._fetcher = Fetcher(transport, self._cache, offline=offline, refresh=refresh)
        self._metadata = MetadataReader(transport, self._cache, offline=offline)
        self._listed: dict[str, list[Row]] = {}
        self._known: dict[str, Wheel] = {}

    def has(self, name: str) -> bool:
        """As protocol.Index says."""
        return bool(self._of(name))

    def wheels(self, name: str, environment: TargetEnvironment | None = None) -> tuple[Wheel, ...]:
        """As protocol.Index says. InputError for a place that is not there, PackageIndexError for a broken file."""
        # A wheel that does not fit is not worth hashing.
        fits = None if environment is None else environment.rank
        rows = [row for row in self._of(name) if not is_sdist(row)]
        return tuple(self._file(row) for row in rows if fits is None or fits(row.filename) is not None)

    def sdists(self, name: str) -> tuple[Wheel, ...]:
        """The source distributions of a name, as `wheels` has its wheels."""
        return tuple(self._file(row) for row in self._of(name) if is_sdist(row))

    def _file(self, row: Row) -> Wheel:
        if row.filename not in self._known:
            self._known[row.filename] = wheel(self._complete(row), self.url)
        return self._known[row.filename]

    def dependencies(self, wheel: Wheel) -> tuple[Requirement, ...]:
        """As protocol.Index says."""
        return self._metadata.dependencies(wheel)

    def requires_python(self, wheel: Wheel) -> str | None:
        """As SimpleIndex.requires_python."""
        return self._metadata.requires_python(wheel)

    def prefetch(self, names: Iterable[str]) -> None:
        """Nothing: a folder is quick, and a page is read once for all names."""

    def _of(self, name: str) -> list[Row]:
        rows: dict[str, Row] = {}
        for location in self._locations:
            for row in self._rows(location, name):
                if row.name == name:
                    rows.setdefault(row.filename, row)
        return newest_first(rows.values())

    def _rows(self, location: str, name: str) -> list[Row]:
        if location not in self._listed:
            self._listed[location] = self._web(location) if _is_web(location) else _listing(location)
        rows = self._listed[location]
        folder = os.path.join(location, name)
        if _is_web(location) or os.sep in name or not os.path.isdir(folder):
            return rows
        return rows + _listing(folder)

    def _web(self, url: str) -> list[Row]:
        filename = os.path.basename(url.partition("#")[0].partition("?")[0])
        if filename.endswith((".whl", *SDISTS)):
            row = linked(url, {}, url)
            return [row] if row else []
        page = self._fetcher.page(url, "--find-links")
        if page is None:
            raise InputError(f"--find-links {shown(url)} is not there, or lists no file")
        return page.rows()

    def _complete(self, row: Row) -> Row:
        """A local file's own size, hash and Requires-Python. What a page says of a web file stays as it is."""
        if not row.url.startswith("file:"):
            return row
        path = local_path(row.url)
        try:
            stat = os.stat(path)
            digest, python = self._facts(path, stat)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from None
        # The hash that a page claims goes before the file's own: who installs is to notice that they differ.
        return row._replace(
            size=stat.st_size, sha256=row.sha256 or digest, requires_python=row.requires_python or python
        )

    def _facts(self, path: str, stat: os.stat_result) -> tuple[str, str | None]:
        key = f"{os.path.realpath(path)}\0{stat.st_size}\0{stat.st_mtime_ns}"
        kept = self._cache.get("files", key)
        if kept is not None:
            return kept[1].decode(), kept[0].get("requires_python")
        import hashlib

        python = None if path.endswith(SDISTS) else requires_python(local_metadata(path))  # an sdist's may be dynamic
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self._cache.put("files", key, {"requires_python": python}, digest.encode())
        return digest, python


def _is_web(location: str) -> bool:
    return location.startswith(("http://", "https://"))


def _local(location: str) -> str:
    """An absolute path. InputError if nothing is there."""
    if "://" in location and not location.startswith("file://"):
        raise InputError(f"--find-links {shown(location)}: only file://, http:// and https:// can be read")
    path = local_path(location) if location.startswith("file://") else os.path.expanduser(location)
    path = os.path.abspath(path)
    if not os.path.exists(path):
        raise InputError(f"--find-links {path} does not exist", hint="name a folder of wheels, a wheel or an HTML page")
    return path


def _listing(path: str) -> list[Row]:
    """The wheels of a folder (its index.html goes before its files), of an HTML page, or the one wheel."""
    try:
        if os.path.isdir(path):
            page = os.path.join(path, "index.html")
            if os.path.isfile(page):
                return _local_page(page)
            return [row for name in sorted(os.listdir(path)) if (row := _local_row(os.path.join(path, name)))]
        if path.endswith((".whl", *SDISTS)):
            row = _local_row(path)
            if row is None:
                raise InputError(f"--find-links {path} has a name that is no wheel's (NAME-VERSION-TAGS.whl)")
            return [row]
        if path.endswith((".html", ".htm")):
            return _local_page(path)
        raise InputError(f"--find-links {path} is not a folder, a wheel or an HTML page")
    except OSError as error:
        raise InputError(f"--find-links {path} cannot be read: {error.strerror}") from None


def _local_row(path: str) -> Row | None:
    identity = identify(os.path.basename(path))
    if identity is None or not os.path.isfile(path):
        return None
    return Row(*identity, os.path.basename(path), _url(path), None)


def _local_page(path: str) -> list[Row]:
    with open(path, "rb") as file:
        text = file.read()
    try:
        rows = parse(text, "text/html", _url(path))
    except ValueError as error:
        raise InputError(f"--find-links {path} cannot be used: {error}") from None
    # A page may list more than what is there (a mirror in part): what is not there cannot be chosen.
    return [row for row in rows or () if not row.url.startswith("file:") or os.path.isfile(local_path(row.url))]


def _url(path: str) -> str:
    from pathlib import Path

    return Path(path).as_uri()
