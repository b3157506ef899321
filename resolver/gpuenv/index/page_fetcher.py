"""Fetch the pages of an index through the cache."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from json import JSONEncoder

from ..errors import OfflineError, PackageIndexError
from ..requirements.target import split_label, version_key, wheel_tags
from .cache import Cache, CacheEntry
from .filenames import identify, parse_requires_python
from .http import FORBIDDEN, GONE, NOT_MODIFIED, OK, UNAUTHORIZED, Reply, Transport
from .simple_api import (
    ACCEPT,
    FileEntry,
    FileRow,
    newest_first,
    parse_page,
    to_entries,
    to_entry_of,
    to_link,
)
from .urls import redact_url

DEFAULT_FRESH = 600.0  # seconds that a page is used without asking again, by default
MAX_FRESH = 86400.0  # whatever the index says
OFFLINE_HINT = "run once without --offline, or give the wheels with --find-links"

_CACHE_KIND = "pages"
_FILES_KIND = "page-files"
_COMPACT_JSON = JSONEncoder(separators=(",", ":"))

# Tags, Requires-Python, and whether it is yanked.
_Group = tuple[str, str | None, bool]

# One thread at a time parses a page: several are not faster, and each large page takes tens of
# megabytes meanwhile.
_parse_lock = threading.Lock()


class CachedPage:
    """The files of a page, by release. A solve reads the files of few of the releases.

    Args:
        head: a JSON object:

            - "url": the URL of the page.
            - "groups": [tags, Requires-Python, whether it is yanked] of wheels that have these in
              common.
            - "releases": {name: {version: [the three numbers of its place, the numbers of its
              groups ...]}}, the newest release first. A place is the start, the end and the CRC-32
              of a line of files.
            - "variants": the names that have variant wheels.
            - "others": the place of the files that are no wheels.
        read: reads the files between a start and an end; None if they are lost.
        reload: returns the page anew if files are lost, because another process has replaced the
            page or the cache is damaged. None if files cannot be lost.

    Raises:
        ValueError, KeyError: the head is no such object.
    """

    __slots__ = ("_groups", "_others", "_read", "_releases", "_reload", "_url", "_variants")

    def __init__(
        self,
        head: bytes,
        read: Callable[[int, int], bytes | None],
        reload: Callable[[], CachedPage] | None = None,
    ) -> None:
        fields = json.loads(head)
        self._url: str = fields["url"]
        self._groups: list[_Group] = fields["groups"]
        self._releases: dict[str, dict[str, list[int]]] = fields["releases"]
        self._variants: list[str] = fields["variants"]
        self._others: list[int] = fields["others"]
        self._read = read
        self._reload = reload

    def versions(
        self,
        name: str,
        fits_tags: Callable[[str], bool],
        fits_python: Callable[[str | None], bool],
    ) -> dict[str, bool]:
        """Return the versions of which a wheel fits, newest first. No file is parsed.

        Args:
            name: the package.
            fits_tags: whether wheels with some tags fit.
            fits_python: whether wheels with a Requires-Python fit.

        Returns:
            {version: whether all wheels that fit are yanked}.
        """
        is_yanked: dict[int, bool] = {}  # of the groups that fit
        fitting_tags = set(filter(fits_tags, {tags for tags, _, _ in self._groups}))
        for number, (tags, requires_python, yanked) in enumerate(self._groups):
            if tags in fitting_tags and fits_python(requires_python):
                is_yanked[number] = yanked
        versions: dict[str, bool] = {}
        for version, (_, _, _, *groups) in self._releases.get(name, {}).items():
            fitting = [is_yanked[number] for number in groups if number in is_yanked]
            if fitting:
                versions[version] = all(fitting)
        return versions

    def has_variants(self, name: str) -> bool:
        """Return whether a package has variant wheels (PEP 825)."""
        return name in self._variants

    def wheels(
        self, name: str, accepts: Callable[[str], bool] | None = None, version: str | None = None
    ) -> list[FileEntry]:
        """Return wheels of a package, newest first and by file name.

        Args:
            name: the package.
            accepts: whether wheels with some tags fit; None accepts all.
            version: the only version that is returned; None returns all.

        Raises:
            PackageIndexError: files are lost, and the index failed.
        """
        versions = list(self._releases.get(name, {})) if version is None else [version]
        entries: list[FileEntry] = []
        for listed in versions:
            entries += self._release(name, listed, accepts)
        return entries

    def _release(
        self, name: str, version: str, accepts: Callable[[str], bool] | None
    ) -> list[FileEntry]:
        entries: list[FileEntry] = []
        for row in self._rows(lambda page: page._place(name, version)):
            # Most wheels are for other targets and need not be checked.
            if accepts is None or accepts(wheel_tags(row.filename)):
                entry = to_entry_of(name, version, row, self._url)
                if entry is not None:
                    entries.append(entry)
        return sorted(entries, key=_filename)

    def sdists(self) -> list[FileEntry]:
        """Return the source distributions, newest first."""
        return newest_first(to_entries(self._rows(_others), self._url))

    def entries(self) -> list[FileEntry]:
        """Return all wheels and source distributions, newest first."""
        wheels = chain.from_iterable(map(self.wheels, self._releases))
        return newest_first([*wheels, *self.sdists()])

    def find_link(self, filename: str) -> tuple[str, str | None] | None:
        """Return the (URL, sha256) of a file that is no wheel; None if the page lacks it."""
        for row in self._rows(_others):
            if row.filename == filename:
                return to_link(row, self._url)
        return None

    def _rows(self, place_on: Callable[[CachedPage], list[int]]) -> list[FileRow]:
        """Return the files at a place of the page."""
        line = self._line(place_on(self))
        if line is None and self._reload is not None:
            page = self._reload()
            line = page._line(place_on(page))
        return [FileRow(*row) for row in json.loads(line or b"[]")]

    def _line(self, place: Sequence[int]) -> bytes | None:
        start, end, checksum = place
        line = self._read(start, end)
        return line if line is not None and zlib.crc32(line) == checksum else None

    def _place(self, name: str, version: str) -> list[int]:
        try:
            return self._releases[name][version][:3]
        except KeyError:
            raise PackageIndexError(
                f"index {redact_url(self._url)} has removed {name} {version} meanwhile",
                hint="run the command again",
            ) from None


def _others(page: CachedPage) -> list[int]:
    return page._others


def _filename(entry: FileEntry) -> str:
    return entry.filename


class _NewPage:
    """A page as the cache stores it: its head and its files.

    There is a line for the wheels of each release, and one for the other files. A file is a FileRow
    as a JSON list. Pages have megabytes, and a solve reads few of the lines.
    """

    def __init__(self, url: str, rows: Iterable[FileRow]) -> None:
        self._lines: list[bytes] = []
        self._end = 0
        wheels: dict[tuple[str, str], list[FileRow]] = {}
        others: list[FileRow] = []
        for row in rows:
            if not row.filename.endswith(".whl"):
                others.append(row)
                continue
            release = identify(row.filename)
            if release is not None and to_link(row, url) is not None:
                wheels.setdefault(release, []).append(row)
        self.head = self._head(url, wheels, others)
        self.files = b"".join(self._lines)

    def _head(
        self, url: str, wheels: Mapping[tuple[str, str], list[FileRow]], others: list[FileRow]
    ) -> bytes:
        groups: dict[_Group, int] = {}
        releases: dict[str, dict[str, list[int]]] = {}
        variants: dict[str, None] = {}
        newest = sorted(wheels, key=lambda release: version_key(release[1]), reverse=True)
        for name, version in newest:
            files = wheels[name, version]
            numbers = [groups.setdefault(_group_of(row), len(groups)) for row in files]
            listed = [*self._add_line(files), *dict.fromkeys(numbers)]
            releases.setdefault(name, {})[version] = listed
            if any(split_label(row.filename)[1] for row in files):
                variants[name] = None
        head = {
            "url": url,
            "groups": list(groups),
            "releases": releases,
            "variants": list(variants),
            "others": self._add_line(others),
        }
        return _COMPACT_JSON.encode(head).encode()

    def _add_line(self, files: Sequence[FileRow]) -> list[int]:
        """Add a line, and return its place."""
        line = _COMPACT_JSON.encode(files).encode()
        self._lines.append(line)
        start, self._end = self._end, self._end + len(line)
        return [start, self._end, zlib.crc32(line)]


def _group_of(row: FileRow) -> _Group:
    """Return what a solve has to know of a wheel before it reads it."""
    is_yanked = row.yanked is True or isinstance(row.yanked, str)
    text = row.requires_python if isinstance(row.requires_python, str) else None
    return wheel_tags(row.filename), parse_requires_python(text), is_yanked


class PageFetcher:
    """Fetches pages through the cache.

    Args:
        transport: sends the requests.
        cache: stores the pages.
        offline: use the cache only, however old its pages are.
        refresh: bypass the cache: ask the index whether a page has changed, however fresh it is.
    """

    def __init__(
        self,
        transport: Transport,
        cache: Cache,
        *,
        offline: bool = False,
        refresh: bool = False,
    ) -> None:
        self._transport, self._cache = transport, cache
        self._offline, self._refresh = offline, refresh

    def fetch(self, url: str, subject: str) -> CachedPage | None:
        """Return a page.

        Args:
            url: the page's URL.
            subject: the start of error messages ("index URL failed for torch").

        Returns:
            None if the index has no such page, or one that lists no file.

        Raises:
            OfflineError: the page is not in the cache, and requests are not allowed.
            PackageIndexError: there is no response, or it is no page.
        """
        stored = self._cache.get(_CACHE_KIND, url)
        if stored is not None and self._is_usable(stored):
            return self._stored_page(url, subject, stored)
        if self._offline:
            raise OfflineError(
                f"{subject}: its page is not in the cache and --offline is on", hint=OFFLINE_HINT
            )
        reply = self._transport.get(url, subject, _request_headers(stored))
        if reply.status == NOT_MODIFIED and stored is not None:
            header = {**stored.header, **_freshness(reply, stored.header)}
            self._cache.put(_CACHE_KIND, url, header, stored.body)
            return self._stored_page(url, subject, stored)
        with _parse_lock:
            page = _read_reply(reply, subject, url)
        if "no-store" in reply.headers.get("cache-control", ""):
            return self._page_in_memory(page)
        entry = self._store(url, _new_header(reply, page), page)
        if stored is not None:
            self._cache.remove(_FILES_KIND, stored.text("files") or "")
        if entry is None:
            return self._page_in_memory(page)
        return self._stored_page(url, subject, entry)

    def _is_usable(self, stored: CacheEntry) -> bool:
        return self._offline or (not self._refresh and _is_fresh(stored.header))

    def _stored_page(self, url: str, subject: str, entry: CacheEntry) -> CachedPage | None:
        """Return a page whose files are read from the cache, each when it is asked for."""
        files = entry.text("files")
        if files is None:
            return None  # the index does not have the page

        def read(start: int, end: int) -> bytes | None:
            return self._cache.read_part(_FILES_KIND, files, start, end)

        def reload() -> CachedPage:
            stored = self._cache.get(_CACHE_KIND, url)
            if stored is not None and stored.text("files") == files:  # its files are damaged
                self._cache.remove(_CACHE_KIND, url)
            page = self.fetch(url, subject)
            if page is None:
                raise PackageIndexError(f"{subject}: its page has been removed meanwhile")
            return page

        return CachedPage(entry.body, read, reload)

    def _page_in_memory(self, page: _NewPage | None) -> CachedPage | None:
        if page is None:
            return None
        files = page.files
        return CachedPage(page.head, lambda start, end: files[start:end])

    def _store(
        self, url: str, header: Mapping[str, object], page: _NewPage | None
    ) -> CacheEntry | None:
        """Write a page. Return its entry, or None if the cache cannot be written.

        The files have a key of their own, so that they always belong to the head that names it.
        """
        if page is None:
            entry = CacheEntry(header={**header, "files": None}, body=b"")
            return entry if self._cache.put(_CACHE_KIND, url, entry.header, b"") else None
        key = os.urandom(16).hex()
        entry = CacheEntry(header={**header, "files": key}, body=page.head)
        if not self._cache.put(_FILES_KIND, key, {}, page.files):
            return None
        return entry if self._cache.put(_CACHE_KIND, url, entry.header, page.head) else None


def _read_reply(reply: Reply, subject: str, url: str) -> _NewPage | None:
    """Return a page, None for a page that does not exist or lists no file."""
    if reply.status == OK:
        return _parse_reply(reply, subject, url)
    if reply.status in GONE:
        return None
    # A storage bucket that may not be listed answers so for a name that it does not have.
    if reply.status == FORBIDDEN and b"<Code>AccessDenied</Code>" in reply.body:
        return None
    hint = "check the URL"
    if reply.status in (UNAUTHORIZED, FORBIDDEN):
        hint = "give credentials in ~/.netrc or in the URL (https://user:password@host/...)"
    raise PackageIndexError(
        f"{subject}: {redact_url(url)} answered with status {reply.status}", hint=hint
    )


def _parse_reply(reply: Reply, subject: str, url: str) -> _NewPage | None:
    try:
        rows = parse_page(reply.body, reply.headers.get("content-type", ""), reply.url)
    except ValueError as error:
        raise PackageIndexError(
            f"{subject}: {redact_url(url)} is not a page of a package index ({error})",
            hint="the URL of an index usually ends in /simple",
        ) from None
    if rows is None:
        return None
    return _NewPage(reply.url, rows)


# ---- freshness (RFC 9111) ------------------------------------------------------------------------


def _request_headers(stored: CacheEntry | None) -> dict[str, str]:
    """Return headers that ask for a page only if it has changed since it was stored."""
    headers = {"Accept": ACCEPT, "Cache-Control": "max-age=0"}  # no stale page of a proxy
    if stored is None:
        return headers
    etag, modified = stored.header.get("etag"), stored.header.get("modified")
    if isinstance(etag, str) and etag:
        headers["If-None-Match"] = etag
    if isinstance(modified, str) and modified:
        headers["If-Modified-Since"] = modified
    return headers


def _new_header(reply: Reply, page: _NewPage | None) -> dict[str, object]:
    """Return the cache header of a new page.

    A missing page is stored for --offline only: it may be uploaded the next moment.
    """
    if page is None:
        return {"time": 0.0, "fresh": 0.0}
    return _freshness(reply, {})


def _freshness(reply: Reply, stored: Mapping[str, object]) -> dict[str, object]:
    """Return since when and for how long a page is fresh, and what identifies its version."""
    cache_control = reply.headers.get("cache-control", "").lower()
    max_age = re.search(r"\bmax-age=(\d+)", cache_control)
    fresh = DEFAULT_FRESH
    if "no-cache" in cache_control:
        fresh = 0.0
    elif max_age is not None:
        fresh = min(float(max_age[1]), MAX_FRESH)
    return {
        "time": time.time(),
        "fresh": fresh,
        "etag": reply.headers.get("etag", stored.get("etag")),
        "modified": reply.headers.get("last-modified", stored.get("modified")),
    }


def _is_fresh(header: Mapping[str, object]) -> bool:
    since, fresh = header.get("time"), header.get("fresh")
    if not isinstance(since, (int, float)) or not isinstance(fresh, (int, float)):
        return False
    # A clock that was set back makes a page stale, not fresh for ever.
    return 0 <= time.time() - since < fresh
