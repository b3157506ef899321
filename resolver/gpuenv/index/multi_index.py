"""Several indexes as one, with each package name bound to one of them.

No other index can supply a bound name, whatever its version. So a package of a stranger on an extra
index cannot replace one's own (dependency confusion), and releases of the default index do not mix
with a framework's own builds.
"""

from __future__ import annotations

from _thread import allocate_lock  # to import threading takes 1 % of a solve
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ..errors import InputError, OfflineError, PackageIndexError
from ..model import Requirement, Wheel
from ..requirements.target import TargetEnvironment
from .protocol import DIRECT_URL, Index, Releases, Source

if TYPE_CHECKING:  # a solve from the snapshot starts no threads
    from .prefetch import Prefetcher
    from .variants import ReleaseVariants

MAX_THREADS = 32
SNAPSHOT = "snapshot"  # the label of names that the snapshot supplies
NOT_FOUND = ""  # the label of a name that no index has


class LazyIndex(Source):
    """An index that is opened on first use: a solve from the snapshot loads no network code.

    Args:
        label: the index's name for messages, without credentials.
        opener: opens the index; it is called once.
        names: the packages that the index may supply; None is any package.
    """

    def __init__(
        self, label: str, opener: Callable[[], Index], names: Collection[str] | None = None
    ) -> None:
        self.label = label
        self._names = names
        self._opener = opener
        self._index: Index | None = None
        self._lock = allocate_lock()

    def _open(self) -> Index:
        with self._lock:
            if self._index is None:
                self._index = self._opener()
            return self._index

    def has(self, name: str) -> bool:
        """Implement Index.has."""
        if self._names is not None and name not in self._names:
            return False
        return self._open().has(name)

    def wheels(self, name: str, environment: TargetEnvironment | None = None) -> Sequence[Wheel]:
        """Implement Index.wheels."""
        return self._open().wheels(name, environment)

    def releases(self, name: str, environment: TargetEnvironment) -> Releases | None:
        """Implement Index.releases."""
        return self._open().releases(name, environment)

    def dependencies(self, wheel: Wheel) -> Sequence[Requirement]:
        """Implement Index.dependencies."""
        return self._open().dependencies(wheel)

    def variants(self, wheels: Sequence[Wheel]) -> ReleaseVariants:
        """Implement Index.variants."""
        return self._open().variants(wheels)

    def sdists(self, name: str) -> Sequence[Wheel]:
        """Implement Index.sdists."""
        return self._open().sdists(name)

    def left_out(self, name: str) -> Sequence[str]:
        """Implement Index.left_out."""
        return self._open().left_out(name)

    def requires_python(self, wheel: Wheel) -> str | None:
        """Implement Index.requires_python."""
        return self._open().requires_python(wheel)

    def direct(self, name: str, url: str) -> Wheel:
        """Implement Index.direct."""
        return self._open().direct(name, url)

    def size(self, wheel: Wheel) -> int | None:
        """Implement Index.size."""
        return self._open().size(wheel)


class WithOwnBuilds(Source):
    """A package of a framework: files of one index, and builds of the framework's own indexes.

    An own index supplies only builds that the main index lacks: files with a local version such as
    2.14.1+cu126. Nightly builds are left out.

    Args:
        main: the index or the snapshot that has the package; None if none has.
        own: the framework's own indexes.
    """

    def __init__(self, main: Index | None, own: Sequence[Source]) -> None:
        self.label = own[0].label
        self._main, self._own = main, own
        self._owners: dict[tuple[str, str], Index] = {}  # (index, file name) of a build

    def has(self, name: str) -> bool:
        """Implement Index.has."""
        return self._main is not None or any(source.has(name) for source in self._own)

    def wheels(self, name: str, environment: TargetEnvironment | None = None) -> Sequence[Wheel]:
        """Implement Index.wheels."""
        from ..requirements.target import is_prerelease, version_key

        files = list(self._main.wheels(name, environment)) if self._main is not None else []
        known = {file.filename for file in files}
        for source in self._own:
            for file in self._own_files(source, name, environment):
                is_build = "+" in file.version and not is_prerelease(file.version)
                if is_build and file.filename not in known:
                    self._owners[file.index, file.filename] = source
                    files.append(file)
        files.sort(key=lambda file: version_key(file.version), reverse=True)
        return files

    def _own_files(
        self, source: Source, name: str, environment: TargetEnvironment | None
    ) -> Sequence[Wheel]:
        try:
            return source.wheels(name, environment)
        except PackageIndexError as error:
            error.hint = "check the network, or use --default-index-only to leave this index out"
            raise

    def _of(self, wheel: Wheel) -> Index:
        owner = self._owners.get((wheel.index, wheel.filename), self._main)
        if owner is None:
            raise InputError(f"{wheel.filename} is on none of the indexes of {wheel.name}")
        return owner

    def dependencies(self, wheel: Wheel) -> Sequence[Requirement]:
        """Implement Index.dependencies."""
        return self._of(wheel).dependencies(wheel)

    def variants(self, wheels: Sequence[Wheel]) -> ReleaseVariants:
        """Implement Index.variants."""
        return self._of(wheels[0]).variants(wheels)

    def sdists(self, name: str) -> Sequence[Wheel]:
        """Implement Index.sdists."""
        return self._main.sdists(name) if self._main is not None else ()

    def left_out(self, name: str) -> Sequence[str]:
        """Implement Index.left_out."""
        return self._main.left_out(name) if self._main is not None else ()

    def requires_python(self, wheel: Wheel) -> str | None:
        """Implement Index.requires_python."""
        return self._of(wheel).requires_python(wheel)

    def size(self, wheel: Wheel) -> int | None:
        """Implement Index.size."""
        return self._of(wheel).size(wheel)


def _never(name: str) -> bool:
    del name
    return False


class MultiIndex(Index):
    """Binds every name to the first of these indexes that has it, and remembers the binding:

    1. `find_links`;
    2. `extra`, in order;
    3. `snapshot` (under the label "snapshot"), which needs no network;
    4. `default`.

    A later index is asked only for names that no earlier one has. So a name on the user's own index
    never comes from the default index, where a stranger may have registered it.

    Args:
        default: the default index.
        find_links: the locations of --find-links.
        snapshot: the shipped part of the default index.
        extra: the extra indexes.
        direct: reads the files that requirements name by URL.
        offline: send no requests in the background.
        live: names that the snapshot does not supply unless `offline`.
        own: {package: URLs of its framework's own indexes, which have further builds of it}.
        open_url: opens an index by its URL.
    """

    def __init__(
        self,
        *,
        default: Source | None = None,
        find_links: Source | None = None,
        snapshot: Index | None = None,
        extra: Sequence[Source] = (),
        direct: Index | None = None,
        offline: bool = False,
        live: Collection[str] = (),
        own: Mapping[str, Sequence[str]] | None = None,
        open_url: Callable[[str], Source] | None = None,
    ) -> None:
        self._own = dict(own or {})
        self._open_url = open_url
        self._opened: dict[str, Source] = {}  # frameworks' own indexes, by URL
        self._default, self._direct, self._offline = default, direct, offline
        self._snapshot = snapshot
        self._shipped: dict[str, dict[str | None, Wheel]] = {}  # {name: {sha256: the file}}
        self._find_links, self._extra = find_links, extra
        self._bindings: dict[str, tuple[str, Index | None]] = {}
        self._prefetcher: Prefetcher | None = None
        self._is_live: Callable[[str], bool] = _never
        self._live = frozenset(() if offline else live)

    # ---- binding ----

    def label(self, name: str) -> str:
        """Return the label of the index that a name is bound to, "" if no index has it.

        Raises:
            PackageIndexError: an index failed; no later one is asked.
        """
        return self._bind(name)[0]

    def is_local(self, name: str) -> bool:
        """Return whether --find-links or the snapshot supply a package, without any request."""
        return self._bind_locally(name) is not None

    def at_hand(self, name: str) -> bool:
        """Implement Index.at_hand: whether the snapshot supplies a package."""
        binding = self._bindings.get(name) or self._bind_locally(name)
        return binding is not None and binding[0] == SNAPSHOT

    def widen(self, name: str) -> bool:
        """Bind a name of the snapshot to the default index, for releases that the snapshot lacks.

        Returns:
            Whether the name was bound anew.

        Raises:
            OfflineError: the package's page is not in the cache.
            PackageIndexError: the index failed.
        """
        if self._default is None or not self.at_hand(name):
            return False
        if not self._default.has(name):
            return False
        self._bindings[name] = (self._default.label, self._default)
        return True

    def _bind(self, name: str) -> tuple[str, Index | None]:
        binding = self._bindings.get(name)
        if binding is None:
            binding = self._bindings[name] = self._with_own(name, self._find(name))
        return binding

    def read_own(self, own: Mapping[str, Sequence[str]]) -> None:
        """Read the builds of packages from the own indexes of their framework.

        Args:
            own: {package: URLs}.

        Raises:
            PackageIndexError: an index failed.
        """
        for name, urls in own.items():
            self._own[name] = urls
            self._bindings.pop(name, None)
            self.wheels(name)

    def _with_own(self, name: str, binding: tuple[str, Index | None]) -> tuple[str, Index | None]:
        """Add the own indexes of a package's framework to the snapshot or the default index."""
        urls, index = self._own.get(name, ()), binding[1]
        is_users = index is not None and index in (self._find_links, *self._extra)
        if not urls or self._open_url is None or is_users:
            return binding
        for url in urls:
            if url not in self._opened:
                self._opened[url] = self._open_url(url)
        combined = WithOwnBuilds(index, [self._opened[url] for url in urls])
        return combined.label, combined

    def _find(self, name: str) -> tuple[str, Index | None]:
        local = self._bind_locally(name)
        if local is not None:
            return local
        for source in self._extra:
            if source.has(name):
                return source.label, source
        snapshot = self._snapshot_with(name)
        if snapshot is not None:
            return SNAPSHOT, snapshot
        if self._default is not None and self._default_has(name):
            return self._default.label, self._default
        return NOT_FOUND, None

    def _default_has(self, name: str) -> bool:
        """Return whether the default index has a package. An error offers similar names."""
        try:
            return self._default is not None and self._default.has(name)
        except OfflineError as error:
            similar = () if self._snapshot is None else self._snapshot.similar(name)
            if similar:
                hint = f"did you mean {' or '.join(similar)}? Otherwise {error.hint}"
                raise OfflineError(error.message, hint=hint) from None
            raise

    def _bind_locally(self, name: str) -> tuple[str, Index] | None:
        """Return the binding of a name that no request can change; None for other names."""
        if self._find_links is not None and self._find_links.has(name):
            return self._find_links.label, self._find_links
        snapshot = self._snapshot_with(name)
        if snapshot is not None and not self._extra:
            return SNAPSHOT, snapshot
        return None

    def _snapshot_with(self, name: str) -> Index | None:
        """Return the snapshot if it has a package and the live index is not asked for it."""
        if self._snapshot is None or self._is_live(name) or name in self._live:
            return None
        if not self._snapshot.has(name):
            return None
        return self._snapshot

    # ---- the interface of an index ----

    def has(self, name: str) -> bool:
        """Implement Index.has: whether any of the indexes has the package."""
        return self._bind(name)[1] is not None

    def wheels(self, name: str, environment: TargetEnvironment | None = None) -> Sequence[Wheel]:
        """Implement Index.wheels."""
        index = self._bind(name)[1]
        return index.wheels(name, environment) if index is not None else ()

    def releases(self, name: str, environment: TargetEnvironment) -> Releases | None:
        """Implement Index.releases."""
        index = self._bind(name)[1]
        return index.releases(name, environment) if index is not None else None

    def variants(self, wheels: Sequence[Wheel]) -> ReleaseVariants:
        """Implement Index.variants."""
        index = self._index_of(wheels[0])
        return index.variants(wheels) if index is not None else super().variants(wheels)

    def sdists(self, name: str) -> Sequence[Wheel]:
        """Implement Index.sdists; the snapshot has none."""
        index = self._bind(name)[1]
        return index.sdists(name) if index is not None else ()

    def left_out(self, name: str) -> Sequence[str]:
        """Implement Index.left_out: releases of the default index that the snapshot lacks."""
        label, index = self._bind(name)
        if index is None or label != SNAPSHOT:
            return ()
        return index.left_out(name)

    def dependencies(self, wheel: Wheel) -> Sequence[Requirement]:
        """Implement Index.dependencies."""
        index = self._index_of(wheel)
        if index is None:
            raise InputError(
                f"{wheel.name} was not found on any index, "
                f"so the dependencies of {wheel.filename} are not known"
            )
        if self._snapshot is not None and index is not self._snapshot:
            shipped = self._shipped_file(wheel, self._snapshot)
            if shipped is not None:
                return self._snapshot.dependencies(shipped)
        return index.dependencies(wheel)

    def _shipped_file(self, wheel: Wheel, snapshot: Index) -> Wheel | None:
        """Return the snapshot's entry of a file, which has the dependencies of the same content."""
        name = wheel.name
        if name not in self._shipped:
            files = snapshot.wheels(name) if snapshot.has(name) else ()
            self._shipped[name] = {file.sha256: file for file in files}
        return self._shipped[name].get(wheel.sha256)

    def request_dependencies(self, wheels: Sequence[Wheel]) -> None:
        """Implement Index.request_dependencies, if a prefetch is running."""
        if self._prefetcher is None:
            return
        jobs = []
        for wheel in wheels:
            index = self._index_of(wheel)
            is_local = index is None or self.at_hand(wheel.name)
            # A build ahead of time could be one that nothing needs.
            if not is_local and wheel.filename.endswith(".whl"):
                jobs.append(partial(self.dependencies, wheel))
        self._prefetcher.request(jobs)

    def request_needs(self, wheel: Wheel, extras: Sequence[str]) -> None:
        """Implement Index.request_needs, if a prefetch is running."""
        prefetcher = self._prefetcher
        if prefetcher is not None:
            prefetcher.request([lambda: prefetcher.follow(self.dependencies(wheel), extras)])

    def requires_python(self, wheel: Wheel) -> str | None:
        """Implement Index.requires_python."""
        index = self._index_of(wheel)
        return index.requires_python(wheel) if index is not None else None

    def direct(self, name: str, url: str) -> Wheel:
        """Implement Index.direct."""
        if self._direct is None:
            return super().direct(name, url)
        return self._direct.direct(name, url)

    def sizes(self, wheels: Sequence[Wheel]) -> dict[str, int]:
        """Ask remote indexes for the missing sizes of files, several at once.

        Returns:
            {file name: bytes} of the files whose size was missing and is now known.
        """
        queries = []
        for wheel in wheels:
            label, index = self._bindings.get(wheel.name, (NOT_FOUND, None))
            is_remote = label != SNAPSHOT and wheel.index != DIRECT_URL
            if index is not None and is_remote and wheel.size is None:
                queries.append((index, wheel))
        if not queries:
            return {}
        from concurrent.futures import ThreadPoolExecutor  # slow: it loads logging

        sizes = {}
        with ThreadPoolExecutor(MAX_THREADS) as pool:
            answers = pool.map(lambda query: query[0].size(query[1]), queries)
            for (_, wheel), size in zip(queries, answers, strict=True):
                if size is not None:
                    sizes[wheel.filename] = size
        return sizes

    def _index_of(self, wheel: Wheel) -> Index | None:
        if wheel.index == DIRECT_URL:
            return self._direct
        return self._bind(wheel.name)[1]

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
        if self._offline:
            return
        if any(need.url is None and not self.is_local(need.name) for need in requirements):
            from .prefetch import Prefetcher

            self._is_live = lambda name: not is_in_data(name)
            self._prefetcher = Prefetcher(self, self.is_local, environment, constraints, may_build)
            self._prefetcher.follow(requirements)

    def stop_prefetch(self) -> None:
        """Start no more requests in the background."""
        if self._prefetcher is not None:
            self._prefetcher.stop()
            self._prefetcher = None
