"""What a solve reads from: the snapshot, and the indexes that the options and the user's configuration name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..model import IndexOptions
from .cache import Cache, cache_folder
from .default_index import default_index
from .multi_index import CombinedIndex, Later, open_index
from .protocol import Source
from .snapshot import Snapshot

if TYPE_CHECKING:
    from .direct_url import DirectFiles
    from .http import Transport


def open_indexes(options: IndexOptions, data: str) -> tuple[Snapshot, CombinedIndex]:
    """The snapshot (its compiled answers serve every solve) and what a solve reads from.

    The snapshot supplies packages only while the default index is pip's own: it knows where that one keeps its files.
    """
    cache = Cache(cache_folder())
    found = default_index(cache)
    folder = os.path.join(data, "snapshot")
    snapshot = Snapshot(folder, found.file_store, default_index=found.url)

    made: list[Transport] = []

    def transport() -> Transport:
        """One for all indexes: they share connections and logins."""
        from .http import Transport

        if not made:
            made.append(Transport(cert=found.cert))
        return made[0]

    def source(url: str | None) -> Source:
        """An index by its URL; None is the folders of --find-links."""
        from .find_links import FindLinks

        offline, refresh = options.offline, options.refresh
        if url is None:
            return FindLinks(options.find_links, transport=transport(), cache=cache, offline=offline, refresh=refresh)
        newest = options.exclude_newer
        return open_index(
            url, transport=transport(), cache=cache, offline=offline, refresh=refresh, exclude_newer=newest
        )

    def later(url: str) -> Source:
        return Later(url, lambda: source(url))

    def direct() -> DirectFiles:
        from .direct_url import DirectFiles

        return DirectFiles(transport(), cache, offline=options.offline)

    # The snapshot knows no upload times, and where only pip's own index keeps its files.
    builtin = options.index_url is None and found.builtin and not (options.refresh or options.exclude_newer)
    index = CombinedIndex(
        default=later(options.index_url or found.url),
        find_links=source(None) if options.find_links else None,
        snapshot=snapshot if builtin else None,
        extra=[source(url) for url in options.extra_index_urls],
        direct=direct,
        offline=options.offline,
    )
    return snapshot, index
