"""Open what a solve reads from: the snapshot, and the indexes of the options and configuration.

Network code is imported when an index is first asked.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from ..model import IndexOptions, Python
from .cache import Cache, cache_folder
from .default_index import DefaultIndex, default_index
from .keyed_memo import KeyedMemo
from .multi_index import LazyIndex, MultiIndex
from .protocol import DIRECT_URL, Source
from .snapshot import Snapshot

if TYPE_CHECKING:  # loads `requests`
    from .direct_url import DirectFiles
    from .http import Transport
    from .metadata import OpenBuilder
    from .source_builds import SourceBuilder


_FIRST_PYTHON = (3, 9)  # the snapshot leaves out wheels for older interpreters
_OLDEST = Python(version=_FIRST_PYTHON)


def open_indexes(
    options: IndexOptions,
    data: str,
    own_packages: Mapping[str, Collection[str]] | None = None,
    live: Collection[str] = (),
    own: Mapping[str, Sequence[str]] | None = None,
    *,
    python: Python = _OLDEST,
) -> tuple[Snapshot, MultiIndex]:
    """Open the indexes of a solve.

    The snapshot supplies packages only if the default index is pip's built-in one, since its file
    locations are relative to that index's file store, and only for interpreters whose wheels it
    has. It has no upload times and is not refreshed, so --exclude-newer and --refresh disable it,
    too. --no-index disables every index with it.

    Args:
        options: the user's options.
        data: the folder of the compatibility data, which contains the snapshot.
        own_packages: {URL of an index: the only packages that it may supply}.
        live: packages of which the user's rows know releases that the snapshot lacks.
        own: {package: URLs of its framework's own indexes}, read besides the default index.
        python: the target's Python. Source distributions are built with it if it is here.

    Returns:
        The snapshot and the index to solve with.
    """
    cache = Cache(cache_folder())
    default = default_index(cache)
    snapshot = _open_snapshot(data, default.file_store, default.url)
    uses_snapshot = (
        default.builtin
        and python.version >= _FIRST_PYTHON
        and options.index_url is None
        and not options.no_index
        and not options.exclude_newer
        and not options.refresh
    )
    opener = _Opener(options, cache, default, python)
    default_source = None
    extra_urls: tuple[str, ...] = ()
    if not options.no_index:
        default_source = opener.lazy(options.index_url or default.url)
        extra_urls = options.extra_index_urls
    index = MultiIndex(
        default=default_source,
        find_links=opener.find_links() if options.find_links else None,
        snapshot=snapshot if uses_snapshot else None,
        extra=[opener.lazy(url, (own_packages or {}).get(url)) for url in extra_urls],
        direct=LazyIndex(DIRECT_URL, opener.direct_files),
        offline=options.offline,
        live=live,
        own=own,
        open_url=opener.lazy,
    )
    return snapshot, index


@lru_cache(maxsize=1)  # the solves of a process share what it has read
def _open_snapshot(data: str, file_store: str, default_url: str) -> Snapshot:
    folder = os.path.join(data, "snapshot")
    return Snapshot(folder, file_store, default_index=default_url)


class _Opener:
    """Opens indexes with the same options. They share connections, credentials and the cache."""

    def __init__(
        self, options: IndexOptions, cache: Cache, default: DefaultIndex, python: Python
    ) -> None:
        self._options, self._cache, self._default = options, cache, default
        self._python = python
        self._builders: KeyedMemo[Python, SourceBuilder] = KeyedMemo()

    @cached_property
    def _transport(self) -> Transport:
        from .http import Transport

        return Transport(cert=self._default.cert)

    def _builder(self) -> SourceBuilder:
        """Return the one builder of every thread, which remembers the builds that failed."""
        return self._builders.get(self._python, self._new_builder)

    def _new_builder(self) -> SourceBuilder:
        from .source_builds import SourceBuilder

        return SourceBuilder(
            (*self._python.version, self._python.free_threaded),
            self._options,
            default_index=self._default.url,
            cert=self._default.cert,
            folder=self._cache.folder,
        )

    def lazy(self, url: str, names: Collection[str] | None = None) -> Source:
        """Return the index at a URL, which is opened on first use; see LazyIndex for `names`."""
        return LazyIndex(_label(url), lambda: self.index(url), names)

    def index(self, url: str) -> Source:
        """Open the index at a URL of --index-url or --extra-index-url."""
        return open_index(
            url,
            self._options,
            transport=self._transport,
            cache=self._cache,
            builder=self._builder,
        )

    def find_links(self) -> Source:
        """Open the locations of --find-links."""
        from .find_links import FindLinks

        return FindLinks(
            self._options.find_links,
            transport=self._transport,
            cache=self._cache,
            offline=self._options.offline,
            refresh=self._options.refresh,
            builder=self._builder,
        )

    def direct_files(self) -> DirectFiles:
        """Open the reader of URLs in requirements."""
        from .direct_url import DirectFiles

        return DirectFiles(
            self._transport, self._cache, offline=self._options.offline, builder=self._builder
        )


def open_index(
    url: str,
    options: IndexOptions,
    *,
    transport: Transport,
    cache: Cache,
    builder: OpenBuilder | None = None,
) -> Source:
    """Open an index by its URL: over HTTP, or a folder (file://; PEP 503 layout or flat).

    Raises:
        InputError: it is another URL, or the folder does not exist.
    """
    if url.startswith("file://"):
        from .find_links import FindLinks

        return FindLinks(
            [url],
            transport=transport,
            cache=cache,
            offline=options.offline,
            refresh=options.refresh,
            index=url,
            builder=builder,
        )
    from .live import SimpleIndex

    return SimpleIndex(
        url,
        transport=transport,
        cache=cache,
        offline=options.offline,
        refresh=options.refresh,
        exclude_newer=options.exclude_newer,
        builder=builder,
    )


def _label(url: str) -> str:
    """Return a URL without credentials and tokens."""
    if "@" in url or "?" in url:
        from .urls import redact_url  # loads urllib, which a solve from the snapshot does not need

        return redact_url(url)
    return url
