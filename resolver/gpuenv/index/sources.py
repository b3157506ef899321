"""Where files come from: an index over HTTP, folders and pages (--find-links)."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from urllib.parse import quote

from .. import activity
from ..errors import InputError
from ..model import Wheel
from ..requirements.parse import parse_cutoff, with_zone
from ..requirements.target import FILE_SUFFIXES, TargetEnvironment
from ..requirements.versions import normalize_name, version_key
from ..serialize import file_digest, read_input
from .cache import KeyedMemo
from .metadata import requires_python_of
from .pages import Page, PageReader, linked_files, parse_page
from .urls import file_url_to_path, is_http_url, path_to_file_url, redact_url
from .variants import index_file_name

_CACHE_KIND = "files"
_PAGE_SUFFIXES = (".html", ".htm")


def newest_first(files: Iterable[Wheel]) -> list[Wheel]:
    """Return files by their versions, those of one version in their order."""
    return sorted(files, key=lambda file: version_key(file.version), reverse=True)


class Source(ABC):
    """Files by package name."""

    @abstractmethod
    def files(self, name: str, environment: TargetEnvironment | None = None) -> Sequence[Wheel]:
        """See Index.files."""

    def has(self, name: str) -> bool:
        """Return whether the source lists any file of the package.

        Raises:
            PackageIndexError: the index failed.
        """
        return bool(self.files(name))

    def may_have(self, name: str) -> bool:
        """Return whether the source can have a package, without a request."""
        return True

    def variants_file(self, wheel: Wheel) -> tuple[str, str | None] | None:
        """Return the (URL, sha256) of the file about the variants of a release (PEP 825)."""
        return None


class SimpleIndex(Source):
    """One index over HTTP. Answers are remembered, errors too, so every page is requested once.

    Args:
        url: the URL that the packages' pages are below; it usually ends in /simple. Credentials in
            it are sent to its host and appear nowhere else: `url` and `Wheel.index` have none.
        pages: reads pages. Its option `exclude_newer` is a date (UTC, the whole day is included) or
            an RFC 3339 time: files that were uploaded at that time or later are left out, and files
            without an upload time, too. uv has the same rule.
        names: the packages that the index may supply; None is any package.

    Raises:
        InputError: `exclude_newer` is no date.
    """

    def __init__(self, url: str, pages: PageReader, names: Collection[str] | None = None) -> None:
        self.url = pages.transport.login(url).rstrip("/")
        self._reader, self._names = pages, names
        newest, newest_of = pages.options.exclude_newer, pages.options.exclude_newer_of
        dates = (text.partition("=")[::2] for text in newest_of)
        self._cutoffs = {name: parse_cutoff(date) if date else None for name, date in dates}
        self._cutoff = parse_cutoff(newest) if newest is not None else None
        self._pages: KeyedMemo[str, Page | None] = KeyedMemo()
        self._files: dict[tuple[str, TargetEnvironment | None], list[Wheel]] = {}

    def has(self, name: str) -> bool:
        """Return whether the index lists any file of the package, usable or not.

        So no later index supplies a package whose files here are all too new.
        """
        return self._page(name) is not None

    def files(self, name: str, environment: TargetEnvironment | None = None) -> list[Wheel]:
        """Return the files of a package; one that the index does not have (404) gives none."""
        page = self._page(name)
        if page is None:
            return []
        key = name, environment
        if key not in self._files:
            files = page.files(environment)
            self._files[key] = [
                file for file in files if file.name == name and self._is_old_enough(file)
            ]
        return self._files[key]

    def variants_file(self, wheel: Wheel) -> tuple[str, str | None] | None:
        """Implement Source.variants_file."""
        page = self._page(wheel.name)
        return page.variant_files.get(index_file_name(wheel.filename)) if page is not None else None

    def may_have(self, name: str) -> bool:
        """Implement Source.may_have."""
        return self._names is None or name in self._names

    def _page(self, name: str) -> Page | None:
        if not self.may_have(name):
            return None
        if not is_http_url(self.url):
            raise InputError(
                f"{redact_url(self.url)} is not the URL of an index: "
                "it starts with neither https:// nor http://"
            )
        url = self._page_url(name)
        subject = self._subject(name)
        index = "" if url == self.url else self.url  # one page is as that of --find-links
        return self._pages.get(url, lambda: self._reader.read(url, subject, index))

    def _subject(self, name: str) -> str:
        return f"index {redact_url(self.url)} failed for {name}"

    def _page_url(self, name: str) -> str:
        # A name that is not normalized could lead to another page, or to a folder above.
        return f"{self.url}/{quote(normalize_name(name), safe='')}/"

    def _is_old_enough(self, wheel: Wheel) -> bool:
        cutoff = self._cutoffs.get(wheel.name, self._cutoff)
        if cutoff is None:
            return True
        try:
            uploaded = with_zone(datetime.fromisoformat(wheel.upload_time or ""))
        except ValueError:
            return False
        return uploaded < cutoff


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
        pages: reads pages.
        index: the value of `Wheel.index`: "" for --find-links, the URL of a folder that serves as
            an index.

    Raises:
        InputError: a location does not exist or has an unknown scheme.
    """

    def __init__(self, locations: Iterable[str], pages: PageReader, index: str = "") -> None:
        self._pages, self.url = pages, index
        self._locations = [self._resolve(location) for location in locations]
        self._listings: dict[str, list[Wheel]] = {}  # by location
        self._variant_files: dict[str, tuple[str, str | None]] = {}  # of pages on the web
        self._completed: dict[str, Wheel] = {}  # by URL

    def has(self, name: str) -> bool:
        """Implement Source.has."""
        return bool(self._listed(name))

    def files(self, name: str, environment: TargetEnvironment | None = None) -> list[Wheel]:
        """Implement Source.files. Only files that fit the environment are read and hashed.

        Raises:
            InputError: a location cannot be read.
            PackageIndexError: a file is damaged.
        """
        files = []
        for wheel in self._listed(name):
            fits = environment is None or environment.rank(wheel.filename) is not None
            if not (fits or wheel.is_sdist):
                continue
            if wheel.url not in self._completed:
                self._completed[wheel.url] = self._complete(wheel)
            files.append(self._completed[wheel.url])
        return files

    def variants_file(self, wheel: Wheel) -> tuple[str, str | None] | None:
        """Implement Source.variants_file, by the file beside the wheel or on a page."""
        name = index_file_name(wheel.filename)
        if wheel.is_local:
            path = os.path.join(os.path.dirname(file_url_to_path(wheel.url)), name)
            return (path_to_file_url(path), None) if os.path.isfile(path) else None
        return self._variant_files.get(name)

    def _resolve(self, location: str) -> str:
        """Return the URL of a web location without credentials, or the path of a local one."""
        if is_http_url(location):
            return self._pages.transport.login(location)
        if "://" in location and not location.startswith("file://"):
            schemes = "only file://, http:// and https:// can be read"
            raise InputError(f"--find-links {redact_url(location)}: {schemes}")
        is_url = location.startswith("file://")
        path = file_url_to_path(location) if is_url else os.path.expanduser(location)
        path = os.path.abspath(path)
        if not os.path.exists(path):
            raise InputError(
                f"--find-links {path} does not exist",
                hint="name a folder of wheels, a wheel or an HTML page",
            )
        return path

    def _listed(self, name: str) -> list[Wheel]:
        """Return the files of a package as the locations list them, newest first."""
        listed: dict[str, Wheel] = {}
        for location in self._locations:
            places = [location]
            if not is_http_url(location) and os.sep not in name:
                places += filter(os.path.isdir, [os.path.join(location, name)])
            for place in places:
                if place not in self._listings:
                    is_web = is_http_url(place)
                    read = self._read_web if is_web else self._read_local
                    self._listings[place] = read(place)
                for wheel in self._listings[place]:
                    if wheel.name == name:
                        listed.setdefault(wheel.filename, wheel)
        return newest_first(sorted(listed.values(), key=lambda wheel: wheel.filename))

    def _read_web(self, url: str) -> list[Wheel]:
        if os.path.basename(url.partition("#")[0].partition("?")[0]).endswith(FILE_SUFFIXES):
            return linked_files([url], self.url)
        page = self._pages.read(url, "--find-links", self.url)
        if page is None:
            shown = redact_url(url)
            activity.current.announce(f"--find-links {shown} does not exist or lists no file")
            return []
        self._variant_files.update(page.variant_files)
        return page.files()

    def _read_local(self, path: str) -> list[Wheel]:
        """List a folder (its index.html if it has one, otherwise its files), a page or a file."""
        try:
            if os.path.isdir(path):
                page = os.path.join(path, "index.html")
                if os.path.isfile(page):
                    return self._read_local(page)
                paths = [os.path.join(path, name) for name in sorted(os.listdir(path))]
                links = [path_to_file_url(file) for file in paths if os.path.isfile(file)]
                return linked_files(links, self.url)
            if path.endswith(FILE_SUFFIXES):
                wheels = linked_files([path_to_file_url(path)], self.url)
                if not wheels:
                    raise InputError(
                        f"--find-links {path}: its name is not that of a wheel "
                        "(NAME-VERSION-TAGS.whl)"
                    )
                return wheels
            if not path.endswith(_PAGE_SUFFIXES):
                raise InputError(f"--find-links {path} is not a folder, a wheel or an HTML page")
            listed = parse_page(read_input(path), "text/html", path_to_file_url(path), self.url)
        except OSError as error:
            raise InputError(f"--find-links {path} cannot be read: {error.strerror}") from None
        except ValueError as error:
            raise InputError(f"--find-links {path} cannot be used: {error}") from None
        # A page may list more files than the folder has, as in a partial mirror.
        return [
            wheel
            for wheel in (listed.files() if listed is not None else ())
            if not wheel.is_local or os.path.isfile(file_url_to_path(wheel.url))
        ]

    def _complete(self, wheel: Wheel) -> Wheel:
        """Add the size, hash and Requires-Python of a local file."""
        if not wheel.is_local:
            return wheel
        path, cache = file_url_to_path(wheel.url), self._pages.cache
        try:
            stat = os.stat(path)
            key = f"{os.path.realpath(path)}\0{stat.st_size}\0{stat.st_mtime_ns}"
            stored = cache.get(_CACHE_KIND, key, tuple[str, str | None])
            if stored is not None:
                sha256, requires_python = stored
            else:
                requires_python = None
                if not wheel.is_sdist:  # the field of an sdist can be dynamic
                    requires_python = requires_python_of(path)
                sha256 = file_digest(path)
                cache.put(_CACHE_KIND, key, (sha256, requires_python))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from None
        # The hash of a page is preferred to the file's: the installer must notice a difference.
        return wheel.replace(
            size=stat.st_size,
            sha256=wheel.sha256 or sha256,
            requires_python=wheel.requires_python or requires_python,
        )


class OfIndex(Source):
    """The files of a source that are of one index.

    Args:
        main: the source.
        url: the URL of the index.
    """

    def __init__(self, main: Source, url: str) -> None:
        self._main, self.url = main, url.rstrip("/")

    def files(self, name: str, environment: TargetEnvironment | None = None) -> list[Wheel]:
        """Implement Source.files."""
        files = self._main.files(name, environment) if self._main.has(name) else ()
        return [file for file in files if file.index.rstrip("/") == self.url]


class Merged(Source):
    """The releases of a package on several indexes. Of the same file, that of the first counts."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def files(self, name: str, environment: TargetEnvironment | None = None) -> list[Wheel]:
        """Implement Source.files."""
        files: dict[str, Wheel] = {}
        for source in self._sources:
            for file in source.files(name, environment):
                files.setdefault(file.filename, file)
        return newest_first(files.values())

    def variants_file(self, wheel: Wheel) -> tuple[str, str | None] | None:
        """Implement Source.variants_file."""
        return next(filter(None, (source.variants_file(wheel) for source in self._sources)), None)
