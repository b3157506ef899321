"""Files that --find-links names (folders, files, HTML pages); folders that serve as an index."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence

from ..errors import InputError
from ..model import Requirement, Wheel
from ..requirements.target import TargetEnvironment
from ..serialize import read_input
from .cache import Cache
from .cached_page import CachedPage
from .core_metadata import parse_fields, parse_python_requirement, read_local_metadata
from .filenames import SDIST_SUFFIXES, identify, is_sdist
from .http import Transport
from .metadata import MetadataReader, OpenBuilder
from .page_fetcher import PageFetcher
from .protocol import Source
from .simple_api import FileEntry, newest_first, parse_link, parse_page, to_entries, to_wheel
from .urls import file_url_to_path, is_http_url, path_to_file_url, redact_url
from .variants import ReleaseVariants, index_file_name

_CACHE_KIND = "files"
_FILE_SUFFIXES = (".whl", *SDIST_SUFFIXES)
_PAGE_SUFFIXES = (".html", ".htm")


class FindLinks(Source):
    """The files of some locations. The first location wins if two have a file of the same name.

    A location is a path or a file:// URL of: a folder of wheels; a folder with one folder per
    package (the layout of PEP 503, with or without index.html); a wheel; an HTML page. Or it is an
    http(s):// URL of an HTML page or of a wheel.

    Local files have the size, sha256 and Requires-Python of the file itself. The hash is cached by
    path, size and modification time, since a wheel can have gigabytes. --exclude-newer does not
    apply, as in uv: upload times are not known, and the folder is the user's own choice.

    Args:
        locations: the locations, in the order of preference.
        transport: sends the requests.
        cache: stores pages, hashes and metadata.
        offline: use local files and the cache only.
        refresh: bypass the cache for pages.
        index: the value of `Wheel.index`: "" for --find-links, the URL of a folder that serves as
            an index.
        builder: opens what builds source distributions; None builds nothing.

    Raises:
        InputError: a location does not exist or has an unknown scheme.
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
        builder: OpenBuilder | None = None,
    ) -> None:
        transport = transport or Transport()
        self._cache = cache or Cache()
        self._locations = tuple(_resolve(location, transport) for location in locations)
        self.url = index
        self.label = redact_url(index) or "find-links"
        self._fetcher = PageFetcher(transport, self._cache, offline=offline, refresh=refresh)
        self._metadata = MetadataReader(transport, self._cache, offline=offline, builder=builder)
        self._pages: list[CachedPage] = []
        self._listings: dict[str, list[FileEntry]] = {}  # by location
        self._wheels: dict[str, Wheel] = {}  # by file name

    def has(self, name: str) -> bool:
        """Implement Index.has."""
        return bool(self._entries(name))

    def wheels(self, name: str, environment: TargetEnvironment | None = None) -> tuple[Wheel, ...]:
        """Implement Index.wheels. Only wheels that fit the environment are read and hashed.

        Raises:
            InputError: a location cannot be read.
            PackageIndexError: a file is damaged.
        """
        wheels = []
        for entry in self._entries(name):
            fits = environment is None or environment.rank(entry.filename) is not None
            if fits and not is_sdist(entry.filename):
                wheels.append(self._wheel(entry))
        return tuple(wheels)

    def sdists(self, name: str) -> tuple[Wheel, ...]:
        """Implement Index.sdists."""
        entries = self._entries(name)
        return tuple(self._wheel(entry) for entry in entries if is_sdist(entry.filename))

    def dependencies(self, wheel: Wheel) -> tuple[Requirement, ...]:
        """Implement Index.dependencies."""
        return self._metadata.dependencies(wheel)

    def variants(self, wheels: Sequence[Wheel]) -> ReleaseVariants:
        """Implement Index.variants, by the file beside the wheels or on a page."""
        return self._metadata.variants(wheels, self._variants_file(wheels[0]))

    def _variants_file(self, wheel: Wheel) -> tuple[str, str | None] | None:
        name = index_file_name(wheel.filename)
        if wheel.url.startswith("file:"):
            path = os.path.join(os.path.dirname(file_url_to_path(wheel.url)), name)
            return (path_to_file_url(path), None) if os.path.isfile(path) else None
        for page in self._pages:
            link = page.find_link(name)
            if link is not None:
                return link
        return None

    def requires_python(self, wheel: Wheel) -> str | None:
        """Implement Index.requires_python."""
        return self._metadata.requires_python(wheel)

    def _entries(self, name: str) -> list[FileEntry]:
        entries: dict[str, FileEntry] = {}
        for location in self._locations:
            for entry in self._list(location, name):
                if entry.name == name:
                    entries.setdefault(entry.filename, entry)
        return newest_first(entries.values())

    def _list(self, location: str, name: str) -> list[FileEntry]:
        """List the files of a location and of its folder for the package, if it has one."""
        if location not in self._listings:
            self._listings[location] = self._read_location(location)
        entries = self._listings[location]
        folder = os.path.join(location, name)
        if is_http_url(location) or os.sep in name or not os.path.isdir(folder):
            return entries
        return entries + _read_local(folder)

    def _read_location(self, location: str) -> list[FileEntry]:
        if is_http_url(location):
            return self._read_web(location)
        return _read_local(location)

    def _read_web(self, url: str) -> list[FileEntry]:
        filename = os.path.basename(url.partition("#")[0].partition("?")[0])
        if filename.endswith(_FILE_SUFFIXES):
            entry = parse_link(url, {}, url)
            return [entry] if entry is not None else []
        page = self._fetcher.fetch(url, "--find-links")
        if page is None:
            raise InputError(f"--find-links {redact_url(url)} does not exist or lists no file")
        self._pages.append(page)
        return page.entries()

    def _wheel(self, entry: FileEntry) -> Wheel:
        if entry.filename not in self._wheels:
            if entry.url.startswith("file:"):
                entry = self._complete(entry)
            self._wheels[entry.filename] = to_wheel(entry, self.url)
        return self._wheels[entry.filename]

    def _complete(self, entry: FileEntry) -> FileEntry:
        """Add the size, hash and Requires-Python of a local file."""
        path = file_url_to_path(entry.url)
        try:
            stat = os.stat(path)
            sha256, requires_python = self._read_file(path, stat)
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from None
        # The hash of a page is preferred to the file's: the installer must notice a difference.
        return entry._replace(
            size=stat.st_size,
            sha256=entry.sha256 or sha256,
            requires_python=entry.requires_python or requires_python,
        )

    def _read_file(self, path: str, stat: os.stat_result) -> tuple[str, str | None]:
        """Return (sha256, Requires-Python) of a file, from the cache if it has not changed."""
        key = f"{os.path.realpath(path)}\0{stat.st_size}\0{stat.st_mtime_ns}"
        entry = self._cache.get(_CACHE_KIND, key)
        if entry is not None:
            return entry.body.decode(), entry.text("requires_python")
        requires_python = None
        if not is_sdist(path):  # the field of an sdist can be dynamic
            requires_python = parse_python_requirement(parse_fields(read_local_metadata(path)))
        with open(path, "rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        self._cache.put(_CACHE_KIND, key, {"requires_python": requires_python}, sha256.encode())
        return sha256, requires_python


def _resolve(location: str, transport: Transport) -> str:
    """Return the URL of a web location without credentials, or the absolute path of a local one."""
    if is_http_url(location):
        return transport.login(location)
    if location.startswith("file://"):
        path = file_url_to_path(location)
    elif "://" in location:
        raise InputError(
            f"--find-links {redact_url(location)}: only file://, http:// and https:// can be read"
        )
    else:
        path = os.path.expanduser(location)
    path = os.path.abspath(path)
    if not os.path.exists(path):
        raise InputError(
            f"--find-links {path} does not exist",
            hint="name a folder of wheels, a wheel or an HTML page",
        )
    return path


def _read_local(path: str) -> list[FileEntry]:
    """List a folder, an HTML page, or a single file."""
    try:
        if os.path.isdir(path):
            return _read_folder(path)
        if path.endswith(_FILE_SUFFIXES):
            entry = _local_entry(path)
            if entry is None:
                raise InputError(
                    f"--find-links {path}: its name is not that of a wheel (NAME-VERSION-TAGS.whl)"
                )
            return [entry]
        if path.endswith(_PAGE_SUFFIXES):
            return _read_local_page(path)
        raise InputError(f"--find-links {path} is not a folder, a wheel or an HTML page")
    except OSError as error:
        raise InputError(f"--find-links {path} cannot be read: {error.strerror}") from None


def _read_folder(path: str) -> list[FileEntry]:
    """List a folder: its index.html if it has one, otherwise its files."""
    page = os.path.join(path, "index.html")
    if os.path.isfile(page):
        return _read_local_page(page)
    entries = []
    for filename in sorted(os.listdir(path)):
        entry = _local_entry(os.path.join(path, filename))
        if entry is not None:
            entries.append(entry)
    return entries


def _local_entry(path: str) -> FileEntry | None:
    filename = os.path.basename(path)
    identity = identify(filename)
    if identity is None or not os.path.isfile(path):
        return None
    name, version = identity
    return FileEntry(name, version, filename, path_to_file_url(path), sha256=None)


def _read_local_page(path: str) -> list[FileEntry]:
    body = read_input(path)
    try:
        url = path_to_file_url(path)
        entries = to_entries(parse_page(body, "text/html", url) or (), url)
    except ValueError as error:
        raise InputError(f"--find-links {path} cannot be used: {error}") from None
    # A page may list more files than the folder has, as in a partial mirror.
    return [entry for entry in entries if _is_available(entry.url)]


def _is_available(url: str) -> bool:
    return not url.startswith("file:") or os.path.isfile(file_url_to_path(url))
