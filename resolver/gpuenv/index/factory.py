"""Open what a solve reads from: the snapshot, and the indexes of the options and configuration."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

from ..model import IndexOptions, Python
from .cache import Cache
from .default_index import default_index
from .http import Transport
from .metadata import FileReader
from .multi_index import MultiIndex
from .pages import PageReader
from .snapshot import Snapshot
from .source_builds import SourceBuilder
from .sources import FindLinks, SimpleIndex, Source

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

    Raises:
        InputError: an option or a setting of pip or uv cannot be used.
    """
    default, cache = default_index(), Cache()
    snapshot = _open_snapshot(os.path.join(data, "snapshot"), default.file_store, default.url)
    uses_snapshot = (
        default.builtin
        and python.version >= _FIRST_PYTHON
        and options.index_url is None
        and not options.no_index
        and not options.exclude_newer
        and not options.refresh
    )
    transport = Transport(cert=default.cert)
    pages = PageReader(transport, cache, options)
    release = (*python.version, python.free_threaded)
    builder = SourceBuilder(release, options, default, cache.folder)
    default_source, extra = None, []
    if not options.no_index:
        default_source = open_index(options.index_url or default.url, pages, options)
        names = own_packages or {}
        extra = [
            open_index(url, pages, options, names.get(url)) for url in options.extra_index_urls
        ]
    index = MultiIndex(
        FileReader(transport, cache, options, builder),
        default=default_source,
        find_links=FindLinks(options.find_links, pages) if options.find_links else None,
        snapshot=snapshot if uses_snapshot else None,
        extra=extra,
        offline=options.offline,
        live=live,
        own=own,
        open_index=lambda url: open_index(url, pages, options),
    )
    return snapshot, index


@lru_cache(maxsize=1)  # the solves of a process share what it has read
def _open_snapshot(folder: str, file_store: str, default_url: str) -> Snapshot:
    return Snapshot(folder, file_store, default_index=default_url)


def open_index(
    url: str, pages: PageReader, options: IndexOptions, names: Collection[str] | None = None
) -> Source:
    """Open an index by its URL: over HTTP, or a folder (file://; PEP 503 layout or flat).

    Args:
        url: the URL.
        pages: reads pages.
        options: `exclude_newer` applies to an index over HTTP.
        names: the packages that the index may supply; None is any package.

    Raises:
        InputError: the folder does not exist, or `exclude_newer` is no date.
    """
    if url.startswith("file://"):
        return FindLinks([url], pages, index=url)
    return SimpleIndex(url, pages, names=names, exclude_newer=options.exclude_newer)
