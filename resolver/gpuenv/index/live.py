"""A live package index: the simple repository API over HTTP (PEP 503, 658, 691, 700, 714)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import TypeVar

from ..errors import InputError, PackageIndexError
from ..model import Requirement, Wheel
from ..requirements.target import TargetEnvironment, normalize_name
from .cache import Cache
from .filenames import SDISTS
from .http import Transport, shown
from .keyed_lock import Turns
from .metadata import MetadataReader
from .protocol import Source
from .simple_api import Fetcher, Page, Row, wheel

THREADS = 8

_T = TypeVar("_T")


class SimpleIndex(Source):
    """One index, by the URL under which the pages of its packages lie (it usually ends in /simple).

    Credentials in the URL are sent with requests to its host and appear nowhere else: `url`, which `Wheel.index`
    carries, has none. Answers are remembered, failures too, so every page is asked for once.

    `exclude_newer` (a date, the whole of that day in UTC included, or an RFC 3339 time) leaves out files that were
    uploaded at that time or later, and files whose upload time is not known, as uv does; `undated` then has the
    names with such files, so that an index that gives no times can be told to the user.
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
    ) -> None:
        if not url.startswith(("https://", "http://")):
            raise InputError(f"{shown(url)} is not the URL of an index: it starts with neither https:// nor http://")
        transport = Transport() if transport is None else transport
        cache = Cache() if cache is None else cache
        self.url = transport.login(url).rstrip("/")
        self.label = shown(self.url)
        self.undated: set[str] = set()
        self._cutoff = None if exclude_newer is None else parse_cutoff(exclude_newer)
        self._transport, self._cache, self._offline = transport, cache, offline
        self._fetcher = Fetcher(transport, cache, offline=offline, refresh=refresh)
        self._metadata = MetadataReader(transport, cache, offline=offline)
        self._known: dict[str, Page | PackageIndexError | None] = {}
        self._fitting: dict[tuple[str, TargetEnvironment], tuple[Wheel, ...]] = {}
        self._turns = Turns()

    def has(self, name: str) -> bool:
        """Whether the index lists any file of `name`: a wheel, a wheel that is too new, or an sdist.

        So a name that is its own is not left to a later index because none of its files may be used.
        """
        return self._look(name) is not None

    def wheels(self, name: str, environment: TargetEnvironment | None = None) -> tuple[Wheel, ...]:
        """As protocol.Index says. A name that the index does not have (404) gives ()."""
        if environment is None:
            return self._made(name, lambda filename: not filename.endswith(SDISTS))
        key = name, environment
        if key not in self._fitting:
            self._fitting[key] = self._made(name, lambda filename: environment.rank(filename) is not None)
            if (page := self._look(name)) is not None:
                page.release()
        return self._fitting[key]

    def sdists(self, name: str) -> tuple[Wheel, ...]:
        """The source distributions of a name, as `wheels` has its wheels."""
        return self._made(name, lambda filename: filename.endswith(SDISTS))

    def _made(self, name: str, wanted: Callable[[str], bool]) -> tuple[Wheel, ...]:
        page = self._look(name)
        rows = page.rows(wanted) if page is not None else ()
        return tuple(wheel(row, self.url) for row in rows if row.name == name and self._in_time(row))

    def dependencies(self, wheel: Wheel) -> tuple[Requirement, ...]:
        """As protocol.Index says. Raises PackageIndexError, also for a file with the wrong hash."""
        return self._metadata.dependencies(wheel)

    def requires_python(self, wheel: Wheel) -> str | None:
        """What the metadata of a file says, of which the dependencies were asked before."""
        return self._metadata.requires_python(wheel)

    def prefetch(self, names: Iterable[str]) -> None:
        """Ask for several pages at once. A page that fails says so when it is needed, not here."""
        for_all(self._ask_ahead, [name for name in dict.fromkeys(names) if name not in self._known])

    def prefetch_dependencies(self, wheels: Iterable[Wheel]) -> None:
        """Ask for the dependencies of several wheels at once, into the cache. Failures wait, as for `prefetch`."""

        from contextlib import suppress

        def ahead(one: Wheel) -> None:
            with suppress(PackageIndexError):
                self.dependencies(one)

        for_all(ahead, list(wheels))

    def locate(self, wheel: Wheel) -> Wheel | None:
        """The wheel as this index has it: same file name, and same sha256 where both know it. None: it has not."""
        for mine in self.wheels(wheel.name):
            if mine.filename == wheel.filename and (not mine.sha256 or not wheel.sha256 or mine.sha256 == wheel.sha256):
                return mine
        return None

    def size(self, wheel: Wheel) -> int | None:
        """The bytes of a file whose page does not say it: the length that a request for its first byte answers.

        None if the server does not tell; a lock can do without. Asked once for each hash, then cached.
        """
        told = wheel.size if wheel.size is not None else self._metadata.size(wheel)
        if told is None and wheel.sha256 is not None and (known := self._cache.get("sizes", wheel.sha256)) is not None:
            told = int(known[0]["size"])
        return told if told is not None or self._offline else self._asked_size(wheel)

    def _asked_size(self, wheel: Wheel) -> int | None:
        try:
            reply = self._transport.get_range(wheel.url, f"index {self.label} failed for {wheel.filename}", "0-0")
        except PackageIndexError:
            return None
        total = reply.headers.get("content-range", "").rpartition("/")[2]
        if not total.isdigit():
            return None
        if wheel.sha256 is not None:
            self._cache.put("sizes", wheel.sha256, {"size": int(total)}, b"")
        return int(total)

    def _look(self, name: str) -> Page | None:
        if name not in self._known:
            with self._turns.of(name):
                if name not in self._known:
                    self._known[name] = self._ask(name)
        known = self._known[name]
        if isinstance(known, PackageIndexError):
            raise known
        return known

    def _ask_ahead(self, name: str) -> None:
        from contextlib import suppress

        with suppress(PackageIndexError):
            self._look(name)

    def _ask(self, name: str) -> Page | PackageIndexError | None:
        # A name that is not normalized could name another page, or a folder above.
        page = f"{self.url}/{_quoted(normalize_name(name))}/"
        try:
            return self._fetcher.page(page, f"index {self.label} failed for {name}")
        except PackageIndexError as error:
            return error

    def _in_time(self, row: Row) -> bool:
        if self._cutoff is None:
            return True
        uploaded = _time(row.upload_time)
        if uploaded is None:
            self.undated.add(row.name)
            return False
        return uploaded < self._cutoff


def for_all(job: Callable[[_T], None], items: Sequence[_T]) -> None:
    """Call `job` with every item, on up to THREADS threads, and wait for all."""
    if not items:
        return
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(THREADS, len(items))) as pool:
        for future in [pool.submit(job, item) for item in items]:
            future.result()


def parse_cutoff(text: str) -> datetime:
    """The first moment that --exclude-newer leaves out. InputError for what is neither a date nor a time."""
    from datetime import UTC, datetime, timedelta

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InputError(
            f"--exclude-newer {text!r} is neither a date (2026-01-31) nor a time (2026-01-31T12:00:00Z)"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)  # not the local zone: a solve gives the same everywhere
    return moment + timedelta(days=1) if len(text) <= len("2026-01-31") else moment


def _time(text: str | None) -> datetime | None:
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


def _quoted(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="")
