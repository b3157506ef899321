"""The index of a solve: several sources as one, with each package name bound to one of them.

No other source can supply a bound name, whatever its version. So a package of a stranger on an
extra index cannot replace one's own (dependency confusion), and releases of the default index do
not mix with a framework's own builds.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, lru_cache
from typing import BinaryIO

from ..compat.data import data_folder
from ..errors import OfflineError, PackageIndexError, Reason
from ..model import IndexOptions, Python, Requirement, Wheel
from ..requirements.target import TargetEnvironment
from ..requirements.tool_tables import FLAT
from ..requirements.versions import is_prerelease
from .cache import Cache
from .default_index import default_index
from .http import MAX_THREADS, Transport
from .metadata import FileReader
from .own_indexes import OwnIndex, OwnIndexes, WithOwnBuilds
from .pages import PageReader
from .prefetch import Prefetcher
from .protocol import DIRECT_URL, Index, Metadata
from .snapshot import Snapshot
from .source_builds import SourceBuilder
from .sources import FindLinks, Merged, OfIndex, SimpleIndex, Source, newest_first
from .urls import is_http_url, path_to_file_url
from .variants import ReleaseVariants

FURTHER_BUILDS = 45.0  # seconds in which metadata is built, once a request is refused
_FIRST_PYTHON = (3, 9)  # the snapshot leaves out wheels for older interpreters
_OLDEST = Python(version=_FIRST_PYTHON)


class MultiIndex(Index):
    """Binds every name to the first of these sources that has it, and remembers the binding:

    1. `find_links`;
    2. `extra`, in order;
    3. `snapshot`, which needs no network;
    4. `default`.

    A name in `bound` comes from its own index only.

    A later source is asked only for names that no earlier one has. So a name on the user's own
    index never comes from the default index, where a stranger may have registered it. With
    `merges`, which a project can ask for, its releases are those of all of them but `find_links`.

    Args:
        reader: reads files.
        default: the default index.
        find_links: the locations of --find-links.
        snapshot: the shipped part of the default index.
        extra: the extra indexes.
        offline: send no requests in the background.
        live: names that the snapshot does not supply unless `offline`.
        own: the indexes with further builds of frameworks and companions. They are not asked for
            packages that the snapshot supplies, unless `read_own` names them.
        open_index: opens an index by its URL, each once.
        bound: {package: the URL of the only index that it may come from}.
        seen: {package: a file that an index listed earlier}. It is listed beside those of the
            snapshot.
        own_packages: {URL of an extra index: the only packages that it supplies}. The snapshot has
            files of these.
    """

    def __init__(
        self,
        reader: FileReader,
        *,
        default: Source | None = None,
        find_links: Source | None = None,
        snapshot: Snapshot | None = None,
        extra: Sequence[Source] = (),
        offline: bool = False,
        live: Collection[str] = (),
        own: OwnIndexes | None = None,
        open_index: Callable[[str], Source | None] = lambda _: None,
        bound: Mapping[str, str] | None = None,
        own_packages: Mapping[str, Collection[str]] | None = None,
        merges: bool = False,
        seen: Mapping[str, Wheel] | None = None,
    ) -> None:
        self._reader, self._default, self._snapshot = reader, default, snapshot
        self._find_links, self._extra, self._offline = find_links, extra, offline
        self._own, self._open_index = own, open_index
        self._read_own: set[str] = set()  # packages
        self._failures: dict[str, Reason] = {}  # by the name of the index
        self._bound, self._own_packages = dict(bound or {}), dict(own_packages or {})
        self._merges, self._seen = merges, seen or {}
        self._sources: dict[str, Source | None] = {}  # that names are bound to
        self._widened: dict[str, Source] = {}  # by name, what `widen` found
        self._prefetcher: Prefetcher | None = None
        self._live = frozenset(() if offline else live)
        self._is_in_data: Callable[[str], bool] | None = None

    # ---- binding ----

    def is_local(self, name: str) -> bool:
        """Return whether --find-links or the snapshot supply a package, without any request."""
        return self._local_source(name) is not None

    def at_hand(self, name: str) -> bool:
        """Implement Index.at_hand: whether the snapshot supplies a package."""
        source = self._sources.get(name) or self._widened.get(name) or self._local_source(name)
        return source is not None and (source is self._snapshot or isinstance(source, OfIndex))

    def is_bound(self, name: str) -> bool:
        """Implement Index.is_bound."""
        return name in self._bound

    def widen(self, name: str) -> bool:
        """Bind a name of the snapshot to the default index, for releases that the snapshot lacks.

        The builds that the snapshot has of a framework's own index stay.

        Returns:
            Whether the name was bound anew.

        Raises:
            OfflineError: the package's page is not in the cache.
            PackageIndexError: the index failed.
        """
        if not self.at_hand(name):
            return False
        source = self._source(name)
        live = self._open_index(source.url) if isinstance(source, OfIndex) else self._default
        if live is None or not live.has(name):
            return False
        self._widened[name] = live
        if source is not None and any("+" in wheel.version for wheel in source.files(name)):
            self._widened[name] = WithOwnBuilds(live, [source], self._note_failure)
        self._sources[name] = self._widened[name]
        return True

    def read_own(self, names: Collection[str]) -> None:
        """Read further builds of packages, although the snapshot or the data has some."""
        self._read_own.update(names)
        self._reader.end_builds(math.inf)  # the request is solved again
        for name in names:
            self._sources.pop(name, None)

    def _source(self, name: str) -> Source | None:
        """Return the source that a name is bound to."""
        if name not in self._sources:
            merged = self._merged(name) if self._merges else None
            source = merged or self._widened.get(name)
            source = source or self._local_source(name) or self._live_source(name)
            is_users = source is not None and source in (merged, self._find_links, *self._extra)
            own = [] if is_users or name in self._bound else self._own_of(name, source)
            self._sources[name] = WithOwnBuilds(source, own, self._note_failure) if own else source
        return self._sources[name]

    def _merged(self, name: str) -> Source | None:
        """Return the sources of a name as one; None if not even one extra index has it."""
        if name in self._bound or (self._find_links is not None and self._find_links.has(name)):
            return None
        shipped = self._shipped_of(name)
        parts = [shipped] if shipped else [extra for extra in self._extra if extra.has(name)]
        last = self._snapshot if self._is_shipped(name) else self._default
        if parts and last is not None and last.has(name):
            parts.append(last)
        return Merged(parts) if parts else None

    def _own_of(self, name: str, main: Source | None) -> list[Source]:
        """Return the indexes that can have further builds of a package."""
        if self._own is None:
            return []
        is_at_hand = isinstance(main, (Snapshot, OfIndex))
        if name not in self._read_own and (is_at_hand or self._own.is_on_demand(name)):
            return []

        def versions() -> list[str]:
            files = main.files(name) if main is not None else ()
            versions = dict.fromkeys(file.version for file in files)
            return [version for version in versions if not is_prerelease(version)]

        return self._own.sources(name, versions)

    def _note_failure(self, source: Source, error: PackageIndexError) -> None:
        if isinstance(source, OwnIndex) and not isinstance(error, OfflineError):
            name, have = source.row.name, str(error)
            reason = Reason("index-failed", name, "", have)
            self._failures.setdefault(name, reason)

    def failures(self) -> tuple[Reason, ...]:
        """Return the own indexes that failed, and why. Code: index-failed."""
        return tuple(self._failures.values())

    def _local_source(self, name: str) -> Source | None:
        """Return the source of a name that no request can change; None for other names."""
        if name in self._bound:
            return self._shipped_of(name)
        if self._find_links is not None and self._find_links.has(name):
            return self._find_links
        if any(source.may_have(name) for source in self._extra):
            return self._shipped_of(name)
        return self._snapshot if self._is_shipped(name) else None

    def _shipped_of(self, name: str) -> Source | None:
        """Return what the snapshot has of the index that a package comes from."""
        if self._snapshot is None or name in self._live:
            return None
        urls = [url for url, names in self._own_packages.items() if name in names]
        if name in self._bound:
            urls = [self._bound[name]]
        sources = (OfIndex(self._snapshot, url) for url in urls)
        return next((source for source in sources if source.has(name)), None)

    def _live_source(self, name: str) -> Source | None:
        if name in self._bound:
            return self._open_index(self._bound[name])
        for source in self._extra:
            if source.has(name):
                return source
        if self._is_shipped(name):
            return self._snapshot
        try:
            is_listed = self._default is not None and self._default.has(name)
        except OfflineError as error:
            similar = self._snapshot.similar(name) if self._snapshot is not None else ()
            if similar:
                hint = f"did you mean {' or '.join(similar)}? Otherwise {error.hint}"
                raise OfflineError(error.message, hint=hint) from None
            raise
        return self._default if is_listed else None

    def _is_shipped(self, name: str) -> bool:
        """Return whether the snapshot has a package and the live index is not asked for it."""
        if self._snapshot is None or name in self._live:
            return False
        is_live = self._is_in_data is not None and not self._is_in_data(name)
        return not is_live and self._snapshot.has(name)

    # ---- the interface of an index ----

    def files(self, name: str, environment: TargetEnvironment | None = None) -> Sequence[Wheel]:
        """Implement Index.files."""
        source, seen = self._source(name), self._seen.get(name)
        files = source.files(name, environment) if source is not None else ()
        if seen is None or not self.at_hand(name) or seen.url in {file.url for file in files}:
            return files
        return newest_first([*files, seen])

    def metadata(self, wheel: Wheel) -> Metadata:
        """Implement Index.metadata. A file that the snapshot has, too, is not asked for."""
        shipped = None
        if self._snapshot is not None and wheel.index != DIRECT_URL:
            shipped = self._snapshot.metadata(wheel)
        return self._reader.known(wheel) or shipped or self._reader.metadata(wheel)

    def open(self, wheel: Wheel) -> BinaryIO | None:
        """Implement Index.open: of files, not of trees of git. Nothing is downloaded offline."""
        is_remote = is_http_url(wheel.url) and not self._offline
        return self._reader.open(wheel) if wheel.is_local or is_remote else None

    def variants(self, wheels: Sequence[Wheel]) -> ReleaseVariants:
        """Implement Index.variants."""
        source = self._source(wheels[0].name) if wheels[0].index != DIRECT_URL else None
        listed = source.variants_file(wheels[0]) if source is not None else None
        return self._reader.variants(wheels, listed)

    def direct(self, name: str, url: str) -> Wheel:
        """Implement Index.direct."""
        return self._reader.direct(name, url)

    def left_out(self, name: str) -> Sequence[str]:
        """Implement Index.left_out: releases of the default index that the snapshot lacks."""
        snapshot = self._snapshot
        is_shipped = snapshot is not None and self._source(name) is snapshot
        return snapshot.left_out(name) if is_shipped and snapshot else ()

    def sizes(self, wheels: Sequence[Wheel]) -> dict[str, int]:
        """Ask remote indexes for the missing sizes of files, several at once.

        Returns:
            {file name: bytes} of the files whose size was missing and is now known.
        """
        unknown = []
        for wheel in wheels:
            source = self._sources.get(wheel.name)
            is_remote = source not in (None, self._snapshot) and wheel.index != DIRECT_URL
            if is_remote and wheel.size is None:
                unknown.append(wheel)
        with ThreadPoolExecutor(MAX_THREADS) as pool:
            sizes = zip(unknown, pool.map(self._reader.size, unknown), strict=True)
            return {wheel.filename: size for wheel, size in sizes if size is not None}

    def hashed(self, wheel: Wheel) -> Wheel:
        """Return a file with its sha256. If its index gives none, the file is downloaded."""
        return self._reader.hashed(wheel)

    # ---- prefetching ----

    def start_prefetch(
        self,
        requirements: Sequence[Requirement],
        constraints: Sequence[Requirement],
        environment: TargetEnvironment,
        is_in_data: Callable[[str], bool],
        may_build: Callable[[str], bool],
    ) -> None:
        """Start to request, in the background, all that these requirements are going to need.

        Nothing starts if no network is needed. If it is, the default index is also asked for the
        newest releases of what the snapshot has, except for packages of the compatibility data:
        the data has all of their builds. A package that has a URL in a requirement or in a
        constraint is requested from no index.
        """
        needs_network = any(
            need.url is None and not self.is_local(need.name) for need in requirements
        )
        if needs_network and not self._offline:
            self._is_in_data = is_in_data
            self._prefetcher = Prefetcher(self, self.is_local, environment, constraints, may_build)
            self._prefetcher.follow(requirements)

    def request_dependencies(self, wheels: Sequence[Wheel]) -> None:
        """Implement Index.request_dependencies, if a prefetch is running."""
        if self._prefetcher is not None:
            # A build ahead of time could be one that nothing needs.
            self._prefetcher.request(
                wheel for wheel in wheels if not self.at_hand(wheel.name) and not wheel.is_sdist
            )

    def limit_builds(self) -> None:
        """Implement Index.limit_builds."""
        self._reader.end_builds(FURTHER_BUILDS)

    def request_needs(self, wheel: Wheel, extras: Sequence[str]) -> None:
        """Implement Index.request_needs, if a prefetch is running."""
        if self._prefetcher is not None:
            self._prefetcher.request_needs(wheel, extras)

    def stop_prefetch(self) -> None:
        """Start no more requests in the background, and end the builds there."""
        if self._prefetcher is not None:
            self._prefetcher.stop()
            self._reader.end_builds(0.0)
            self._prefetcher = None


def open_indexes(
    options: IndexOptions,
    own_packages: Mapping[str, Collection[str]] | None = None,
    live: Collection[str] = (),
    *,
    own: OwnIndexes | None = None,
    python: Python = _OLDEST,
    may_build: Callable[[str], bool] = lambda _: True,
    seen: Sequence[Wheel] = (),
) -> tuple[Snapshot, MultiIndex]:
    """Open the indexes of a solve.

    The snapshot supplies packages only if the default index is pip's built-in one, since its file
    locations are relative to that index's file store, and only for interpreters whose wheels it
    has. It has no upload times and is not refreshed, so --exclude-newer and --refresh disable it,
    too. --no-index disables every index with it.

    Args:
        options: the user's options.
        own_packages: {URL of an index: the only packages that it may supply}.
        live: packages of which the user's rows know releases that the snapshot lacks.
        own: the indexes of frameworks and companions, read besides the default index.
        python: the target's Python. Source distributions are built with it if it is here.
        may_build: whether a package may be built from a source distribution.
        seen: files of an earlier lock.

    Returns:
        The snapshot and the index to solve with.

    Raises:
        InputError: an option or a setting of pip or uv cannot be used.
    """
    default = default_index()
    snapshot = _open_snapshot(default.file_store, default.url)
    uses_snapshot = (
        default.builtin
        and python.version >= _FIRST_PYTHON
        and options.index_url is None
        and not options.no_index
        and not options.exclude_newer
        and not options.exclude_newer_of
        and not options.refresh
    )
    pages = PageReader(Transport(), Cache(), options)
    names = own_packages or {}
    others = tuple(url for url in options.extra_index_urls if url not in names)
    of_builds = options.replace(extra_index_urls=others)  # a framework's index has no build tools
    reader = FileReader(pages, SourceBuilder(python, of_builds, may_build))
    default_source, extra = None, []
    if not options.no_index:
        default_source = open_index(options.index_url or default.url, pages)
        extra = [open_index(url, pages, names.get(url)) for url in options.extra_index_urls]
    pairs = [text.partition("=")[::2] for text in options.package_indexes]
    main = (options.index_url or default.url).rstrip("/")
    bound = {name: url for name, url in pairs if url.rstrip("/") != main}
    index = MultiIndex(
        reader,
        default=default_source,
        find_links=FindLinks(options.find_links, pages) if options.find_links else None,
        snapshot=snapshot if uses_snapshot else None,
        extra=extra,
        offline=options.offline,
        live=live,
        own=own,
        open_index=cache(lambda url: open_index(url, pages)),
        bound=bound,
        own_packages=names,
        merges=options.merge_indexes,
        seen={wheel.name: wheel for wheel in seen if wheel.index.rstrip("/") == default.url},
    )
    return snapshot, index


@lru_cache(maxsize=1)  # the solves of a process share what it has read
def _open_snapshot(file_store: str, default_url: str) -> Snapshot:
    return Snapshot(os.path.join(data_folder(), "snapshot"), file_store, default_index=default_url)


def open_index(url: str, pages: PageReader, names: Collection[str] | None = None) -> Source:
    """Open an index by its URL: over HTTP, a folder (file://; PEP 503 layout or flat), or a page
    or a folder of files, after FLAT.

    Args:
        url: the URL.
        pages: reads pages. Its option `exclude_newer` applies to an index over HTTP.
        names: the packages that the index may supply; None is any package.

    Raises:
        InputError: the folder does not exist, or `exclude_newer` is no date.
    """
    if url.startswith(("file://", FLAT)):
        place = url.removeprefix(FLAT)
        return FindLinks([place], pages, index=place if "://" in place else path_to_file_url(place))
    return SimpleIndex(url, pages, names)
