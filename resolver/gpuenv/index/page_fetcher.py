"""Fetch the pages of an index through the cache."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Mapping

from ..errors import OfflineError, PackageIndexError
from .cache import Cache, CacheEntry
from .cached_page import CachedPage, NewPage
from .http import FORBIDDEN, GONE, NOT_MODIFIED, OK, UNAUTHORIZED, Reply, Transport
from .simple_api import ACCEPT, parse_page
from .urls import redact_url

DEFAULT_FRESH = 600.0  # seconds that a page is used without asking again, by default
MAX_FRESH = 86400.0  # whatever the index says
OFFLINE_HINT = "run once without --offline, or give the wheels with --find-links"

_CACHE_KIND = "pages"
_FILES_KIND = "page-files"

# One thread at a time parses a page: several are not faster, and each large page takes tens of
# megabytes meanwhile.
_parse_lock = threading.Lock()


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

    def _page_in_memory(self, page: NewPage | None) -> CachedPage | None:
        if page is None:
            return None
        files = page.files
        return CachedPage(page.head, lambda start, end: files[start:end])

    def _store(
        self, url: str, header: Mapping[str, object], page: NewPage | None
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


def _read_reply(reply: Reply, subject: str, url: str) -> NewPage | None:
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


def _parse_reply(reply: Reply, subject: str, url: str) -> NewPage | None:
    try:
        rows = parse_page(reply.body, reply.headers.get("content-type", ""), reply.url)
    except ValueError as error:
        raise PackageIndexError(
            f"{subject}: {redact_url(url)} is not a page of a package index ({error})",
            hint="the URL of an index usually ends in /simple",
        ) from None
    if rows is None:
        return None
    return NewPage(reply.url, rows)


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


def _new_header(reply: Reply, page: NewPage | None) -> dict[str, object]:
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
