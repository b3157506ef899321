"""A live package index: the simple repository API over HTTP (PEP 503, 658, 691, 700, 714)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote

from ..errors import InputError, PackageIndexError
from ..model import Requirement, Wheel
from ..requirements.target import TargetEnvironment
from ..requirements.versions import normalize_name
from .cache import Cache
from .cached_page import CachedPage
from .http import Transport
from .keyed_memo import KeyedMemo
from .metadata import MetadataReader, OpenBuilder
from .page_fetcher import PageFetcher
from .protocol import Releases, Source
from .simple_api import FileEntry, to_wheel
from .urls import is_http_url, redact_url

if TYPE_CHECKING:  # few packages have variant wheels
    from .variants import ReleaseVariants

_CACHE_KIND = "sizes"
_LAST_DAY = datetime(datetime.max.year, 12, 31, tzinfo=UTC)
_DATE_LENGTH = len("2026-01-31")


class SimpleIndex(Source):
    """One index over HTTP.

    Answers are remembered, errors too, so every page is requested once.

    Args:
        url: the URL that the packages' pages are below; it usually ends in /simple. Credentials in
            it are sent to its host and appear nowhere else: `url` and `Wheel.index` have none.
        transport: sends the requests.
        cache: stores pages, metadata and sizes.
        offline: use the cache only.
        refresh: bypass the cache for pages.
        exclude_newer: a date (UTC, the whole day is included) or an RFC 3339 time. Files that were
            uploaded at that time or later are left out, and files without an upload time, too. uv
            has the same rule.
        builder: opens what builds source distributions; None builds nothing.

    Raises:
        InputError: the URL is not an http(s) one, or `exclude_newer` is no date.
    """

    def __init__(
        self,
        url: str,
        *,
        transport: Transport | None = None,
        cache: Cache | None = None,
        offline: bool = False,
        refresh: bool = False,
        exclude_newer: str | None = None,
        builder: OpenBuilder | None = None,
    ) -> None:
        if not is_http_url(url):
            raise InputError(
                f"{redact_url(url)} is not the URL of an index: "
                "it starts with neither https:// nor http://"
            )
        transport = transport or Transport()
        cache = cache or Cache()
        self.url = transport.login(url).rstrip("/")
        self.label = redact_url(self.url)
        self._cutoff: datetime | None = None
        if exclude_newer is not None:
            self._cutoff = parse_cutoff(exclude_newer)
        self._transport, self._cache, self._offline = transport, cache, offline
        self._fetcher = PageFetcher(transport, cache, offline=offline, refresh=refresh)
        self._metadata = MetadataReader(transport, cache, offline=offline, builder=builder)
        self._pages: KeyedMemo[str, CachedPage | None] = KeyedMemo()
        self._wheels: dict[tuple[str, TargetEnvironment | None], tuple[Wheel, ...]] = {}
        self._releases: dict[tuple[str, TargetEnvironment], Releases | None] = {}

    def has(self, name: str) -> bool:
        """Return whether the index lists any file of the package, usable or not.

        So no later index supplies a package whose files here are all too new, or sdists.
        """
        return self._page(name) is not None

    def wheels(self, name: str, environment: TargetEnvironment | None = None) -> tuple[Wheel, ...]:
        """Implement Index.wheels; a package that the index does not have (404) gives ()."""
        page = self._page(name)
        if page is None:
            return ()
        key = name, environment
        if key not in self._wheels:
            # The tags of a source distribution are "", which fit nothing.
            accepts = bool if environment is None else environment.fits
            self._wheels[key] = self._to_wheels(page.files(name, accepts))
        return self._wheels[key]

    def releases(self, name: str, environment: TargetEnvironment) -> Releases | None:
        """Implement Index.releases: None if the upload time or the variants of files count."""
        key = name, environment
        if key not in self._releases:
            self._releases[key] = self._list_releases(name, environment)
        return self._releases[key]

    def _list_releases(self, name: str, environment: TargetEnvironment) -> Releases | None:
        page = self._page(name)
        if page is None or page.has_variants or self._cutoff is not None:
            return None

        def fits(tags: str) -> bool:
            return not tags or environment.fits(tags)

        def files(version: str) -> tuple[Wheel, ...]:
            return self._to_wheels(page.files(name, fits, version))

        versions = page.versions(name, environment.fits, environment.accepts_python)
        return Releases(versions, files)

    def sdists(self, name: str) -> tuple[Wheel, ...]:
        """Implement Index.sdists."""
        page = self._page(name)
        if page is None:
            return ()
        return self._to_wheels(page.files(name, lambda tags: not tags))

    def dependencies(self, wheel: Wheel) -> tuple[Requirement, ...]:
        """Implement Index.dependencies; a file with the wrong hash is a PackageIndexError."""
        return self._metadata.dependencies(wheel)

    def variants(self, wheels: Sequence[Wheel]) -> ReleaseVariants:
        """Implement Index.variants, by the file that the package's page lists."""
        from .variants import index_file_name

        page = self._page(wheels[0].name)
        listed = None
        if page is not None:
            listed = page.find_link(index_file_name(wheels[0].filename))
        return self._metadata.variants(wheels, listed)

    def requires_python(self, wheel: Wheel) -> str | None:
        """Implement Index.requires_python."""
        return self._metadata.requires_python(wheel)

    def size(self, wheel: Wheel) -> int | None:
        """Implement Index.size: by a range request of one byte, whose response has the length.

        None if the server does not tell; a lock can do without. The answer is cached by hash.
        """
        size = wheel.size
        if size is None:
            size = self._metadata.size(wheel)
        if size is None:
            size = self._cached_size(wheel)
        if size is None and not self._offline:
            size = self._request_size(wheel)
        return size

    def _cached_size(self, wheel: Wheel) -> int | None:
        if wheel.sha256 is None:
            return None
        entry = self._cache.get(_CACHE_KIND, wheel.sha256)
        return entry.integer("size") if entry is not None else None

    def _request_size(self, wheel: Wheel) -> int | None:
        subject = f"index {self.label} failed for {wheel.filename}"
        try:
            reply = self._transport.get_range(wheel.url, subject, "0-0")
        except PackageIndexError:
            return None
        length = reply.headers.get("content-range", "").rpartition("/")[2]
        if not length.isdigit():
            return None
        if wheel.sha256 is not None:
            self._cache.put(_CACHE_KIND, wheel.sha256, {"size": int(length)}, b"")
        return int(length)

    def _to_wheels(self, entries: Iterable[FileEntry]) -> tuple[Wheel, ...]:
        return tuple(to_wheel(entry, self.url) for entry in entries if self._is_old_enough(entry))

    def _page(self, name: str) -> CachedPage | None:
        return self._pages.get(name, lambda: self._fetch_page(name))

    def _fetch_page(self, name: str) -> CachedPage | None:
        # A name that is not normalized could lead to another page, or to a folder above.
        url = f"{self.url}/{quote(normalize_name(name), safe='')}/"
        return self._fetcher.fetch(url, f"index {self.label} failed for {name}")

    def _is_old_enough(self, entry: FileEntry) -> bool:
        if self._cutoff is None:
            return True
        uploaded = _parse_upload_time(entry.upload_time)
        return uploaded is not None and uploaded < self._cutoff


def parse_cutoff(text: str) -> datetime:
    """Return the first moment that --exclude-newer leaves out; times without a zone are UTC.

    Raises:
        InputError: the text is neither a date nor a time.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"--exclude-newer {text!r} is neither a date (2026-01-31) "
            "nor a time (2026-01-31T12:00:00Z)"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)  # the local zone would make solves differ
    if len(text) <= _DATE_LENGTH and moment < _LAST_DAY:
        moment += timedelta(days=1)
    return moment


def _parse_upload_time(text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment
