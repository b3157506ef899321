"""Fetch the pages of an index through the cache."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from json import JSONEncoder

from ..errors import OfflineError, PackageIndexError
from ..requirements.target import wheel_tags
from .cache import Cache
from .http import FORBIDDEN, GONE, NOT_MODIFIED, OK, UNAUTHORIZED, Reply, Transport
from .simple_api import ACCEPT, FileEntry, FileRow, newest_first, parse_page, to_entries, to_link
from .urls import redact_url

DEFAULT_FRESH = 600.0  # seconds that a page is used without asking again, by default
MAX_FRESH = 86400.0  # whatever the index says
OFFLINE_HINT = "run once without --offline, or give the wheels with --find-links"

_CACHE_KIND = "pages"
_COMPACT_JSON = JSONEncoder(separators=(",", ":"))

# One thread at a time parses a page: several are not faster, and each large page takes tens of
# megabytes meanwhile.
_parse_lock = threading.Lock()


class CachedPage:
    """The files of a page as text: its URL, then two lines for all files with the same wheel tags.

    The first of two lines has the tags ("" for source distributions), the second one the files. A
    solve looks at few of the thousands of files: those with tags that do not fit are not parsed.

    Args:
        text: the lines.
        reload: reads the text again from where it is stored; None if it is not stored.
    """

    __slots__ = ("_reload", "_text")

    def __init__(self, text: str, reload: Callable[[], str] | None = None) -> None:
        self._text: str | None = text
        self._reload = reload

    def text(self) -> str:
        """Return the lines."""
        if self._text is not None:
            return self._text
        if self._reload is not None:
            return self._reload()
        return ""

    def release(self) -> None:
        """Free the memory of the text if it can be read again."""
        if self._reload is not None:
            self._text = None

    def entries(self, accepts: Callable[[str], bool] | None = None) -> list[FileEntry]:
        """Return the files, newest first; only those whose tags are accepted if it is given.

        Raises:
            ValueError, TypeError: the text is no page.
        """
        rows, url = self._rows(accepts)
        return newest_first(to_entries(rows, url))

    def find_link(self, filename: str) -> tuple[str, str | None] | None:
        """Return the (URL, sha256) of a file that is no wheel; None if the page lacks it."""
        rows, url = self._rows(lambda tags: not tags)
        for row in rows:
            if row.filename == filename:
                return to_link(row, url)
        return None

    def _rows(self, accepts: Callable[[str], bool] | None) -> tuple[list[FileRow], str]:
        """Return the rows with accepted tags, and the URL of the page."""
        text = self.text()
        url, start = _line(text, 0)
        accepted = []  # JSON without the brackets of the list
        while start < len(text):
            tags, files_start = _line(text, start)
            end = _line_end(text, files_start)
            if accepts is None or accepts(json.loads(tags)):
                accepted.append(text[files_start:end])
            start = end + 1
        rows = json.loads(f"[{','.join(accepted)}]")
        return [FileRow(*row) for row in rows], json.loads(url)


def _line(text: str, start: int) -> tuple[str, int]:
    """Return the line that starts at a place, and the start of the next one."""
    end = _line_end(text, start)
    return text[start:end], end + 1


def _line_end(text: str, start: int) -> int:
    end = text.find("\n", start)
    return len(text) if end < 0 else end


def _to_lines(url: str, page_rows: Iterable[FileRow]) -> str:
    """Return the text of a page, for CachedPage. Each file is a FileRow as a JSON list."""
    by_tags: dict[str, list[FileRow]] = {}
    for row in page_rows:
        by_tags.setdefault(wheel_tags(row.filename), []).append(row)
    lines = [_COMPACT_JSON.encode(url)]
    for tags, rows in by_tags.items():
        files = _COMPACT_JSON.encode(rows).removeprefix("[").removesuffix("]")
        lines += [_COMPACT_JSON.encode(tags), files]
    return "\n".join(lines)


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
        stored = self._load(url)
        if stored is not None and self._is_usable(stored):
            return self._make_page(url, subject, stored.text, is_stored=True)
        if self._offline:
            raise OfflineError(
                f"{subject}: its page is not in the cache and --offline is on", hint=OFFLINE_HINT
            )
        reply = self._transport.get(url, subject, _request_headers(stored))
        if reply.status == NOT_MODIFIED and stored is not None:
            header = {**stored.header, **_freshness(reply, stored.header)}
            is_stored = self._store(url, header, stored.text)
            return self._make_page(url, subject, stored.text, is_stored=is_stored)
        with _parse_lock:
            text = _read_reply(reply, subject, url)
        is_stored = False
        if "no-store" not in reply.headers.get("cache-control", ""):
            is_stored = self._store(url, _new_header(reply, text), text)
        return self._make_page(url, subject, text, is_stored=is_stored)

    def _is_usable(self, stored: _StoredPage) -> bool:
        return self._offline or (not self._refresh and _is_fresh(stored.header))

    def _make_page(
        self, url: str, subject: str, text: str | None, *, is_stored: bool
    ) -> CachedPage | None:
        def reload() -> str:
            stored = self._load(url)
            if stored is not None:
                return stored.text or ""
            page = self.fetch(url, subject)  # the cache was emptied meanwhile
            return page.text() if page is not None else ""

        if text is None:
            return None
        return CachedPage(text, reload if is_stored else None)

    def _load(self, url: str) -> _StoredPage | None:
        entry = self._cache.get(_CACHE_KIND, url)
        if entry is None:
            return None
        try:
            text = entry.body.decode("ascii") if entry.header["there"] else None
        except (ValueError, KeyError):
            return None
        return _StoredPage(entry.header, text)

    def _store(self, url: str, header: Mapping[str, object], text: str | None) -> bool:
        fields = {**header, "there": text is not None}
        return self._cache.put(_CACHE_KIND, url, fields, (text or "").encode("ascii"))


class _StoredPage:
    """A page in the cache; `text` None records that the index does not have it."""

    __slots__ = ("header", "text")

    def __init__(self, header: Mapping[str, object], text: str | None) -> None:
        self.header, self.text = header, text


def _read_reply(reply: Reply, subject: str, url: str) -> str | None:
    """Return the lines of a page, None for a page that does not exist or lists no file."""
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


def _parse_reply(reply: Reply, subject: str, url: str) -> str | None:
    try:
        rows = parse_page(reply.body, reply.headers.get("content-type", ""), reply.url)
    except ValueError as error:
        raise PackageIndexError(
            f"{subject}: {redact_url(url)} is not a page of a package index ({error})",
            hint="the URL of an index usually ends in /simple",
        ) from None
    if rows is None:
        return None
    return _to_lines(reply.url, rows)


# ---- freshness (RFC 9111) ------------------------------------------------------------------------


def _request_headers(stored: _StoredPage | None) -> dict[str, str]:
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


def _new_header(reply: Reply, text: str | None) -> dict[str, object]:
    """Return the cache header of a new page.

    A missing page is stored for --offline only: it may be uploaded the next moment.
    """
    if text is None:
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
