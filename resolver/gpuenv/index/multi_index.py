"""One index made of several, each package name bound to one of them: no other can supply it, whatever its version.

That is what keeps a stranger's package on an extra index from taking the place of one's own (dependency confusion),
and a version of the default index from mixing with a framework's own builds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import InputError
from ..model import Requirement, Wheel
from ..requirements.target import TargetEnvironment
from .cache import Cache
from .protocol import Index, Source

if TYPE_CHECKING:
    from .direct_url import DirectFiles
    from .find_links import FindLinks
    from .http import Transport
    from .live import SimpleIndex
    from .prefetch import Ahead

THREADS = 8
SNAPSHOT = "snapshot"
NOWHERE = ""  # the label of a name that no index has
DIRECT = "url"  # Wheel.index of a file that a requirement names by its URL


class Later(Source):
    """A source that is opened when it is first asked: a solve from the snapshot loads no network code."""

    def __init__(self, label: str, opener: Callable[[], Source]) -> None:
        if "@" in label or "?" in label:  # a URL with credentials or a token
            from .http import shown

            label = shown(label)
        self.label = label
        self._opener = opener
        self._opened: Source | None = None

    def opened(self) -> Source:
        """The source itself."""
        if self._opened is None:
            self._opened = self._opener()
        return self._opened

    def has(self, name: str) -> bool:
        """As protocol.Index says."""
        return self.opened().has(name)

    def wheels(self, name: str, environment: TargetEnvironment | None = None) -> Sequence[Wheel]:
        """As protocol.Index says."""
        return self.opened().wheels(name, environment)

    def dependencies(self, wheel: Wheel) -> Sequence[Requirement]:
        """As protocol.Index says."""
        return self.opened().dependencies(wheel)

    def sdists(self, name: str) -> Sequence[Wheel]:
        """As protocol.Index says."""
        return self.opened().sdists(name)

    def requires_python(self, wheel: Wheel) -> str | None:
        """As protocol.Index says."""
        return self.opened().requires_python(wheel)

    def prefetch(self, names: Iterable[str]) -> None:
        """As protocol.Index says."""
        self.opened().prefetch(names)

    def size(self, wheel: Wheel) -> int | None:
        """As protocol.Index says."""
        return self.opened().size(wheel)


class CombinedIndex(Index):
    """Binds every name to the first of these that has it, and remembers which:

    1. `pinned[name]`, whether it has the name or not (a framework's own index, for that framework's packages);
    2. `find_links`;
    3. `snapshot` (under the label "snapshot"), which needs no network;
    4. `default`;
    5. `extra`, in order.

    Later ones are asked only for names that no earlier one has. `bound` says where each name asked for came from.
    """

    def __init__(
        self,
        *,
        default: Source | None = None,
        pinned: Mapping[str, Source] | None = None,
        find_links: Source | None = None,
        snapshot: Index | None = None,
        extra: Sequence[Source] = (),
        direct: Callable[[], DirectFiles] | None = None,
        offline: bool = False,
    ) -> None:
        self._default, self._offline, self._opener = default, offline, direct
        self._direct: DirectFiles | None = None
        self._pinned = dict(pinned or {})
        self._local: list[tuple[str, Index]] = []
        if find_links is not None:
            self._local.append((find_links.label, find_links))
        if snapshot is not None:
            self._local.append((SNAPSHOT, snapshot))
        self._remote: list[tuple[str, Source]] = [(one.label, one) for one in (default, *extra) if one is not None]
        self._sources: dict[str, tuple[str, Index | None]] = {}
        self._ahead: Ahead | None = None

    def look_ahead(
        self, requirements: Sequence[Requirement], limits: Sequence[Requirement], environment: TargetEnvironment
    ) -> None:
        """Begin to ask an index over the network for all that these are going to need, until `look_no_more`.

        `limits` are the user's constraints. A name that has a URL anywhere is looked for on no index.
        """
        if not self._offline and any(one.url is None and not self.is_local(one.name) for one in requirements):
            from .prefetch import Ahead

            if isinstance(self._default, Later):
                self._default.opened()  # once, and not by several threads
            self._ahead = Ahead(self, environment, limits)
            self._ahead.follow(requirements)

    def look_no_more(self) -> None:
        """No more than what is asked for is asked of the indexes."""
        if self._ahead is not None:
            self._ahead.stop()
            self._ahead = None

    def is_local(self, name: str) -> bool:
        """Whether a name needs no index over the network, or one of its own."""
        return name in self._pinned or self._local_source(name) is not None

    def bind(self, name: str) -> str:
        """The label of the index that supplies `name`, "" if none has it. May ask indexes; raises as they do."""
        return self._source(name)[0]

    @property
    def bound(self) -> dict[str, str]:
        """{name: label} of every name that was asked for, sorted."""
        return {name: self._sources[name][0] for name in sorted(self._sources)}

    def source(self, name: str) -> Index | None:
        """The index that supplies `name`, None if none has it."""
        return self._source(name)[1]

    def has(self, name: str) -> bool:
        """As protocol.Index says: whether any of the indexes has the name."""
        return self._source(name)[1] is not None

    def wheels(self, name: str, environment: TargetEnvironment | None = None) -> Sequence[Wheel]:
        """As protocol.Index says, from the one index that the name is bound to."""
        source = self._source(name)[1]
        return () if source is None else source.wheels(name, environment)

    def sdists(self, name: str) -> Sequence[Wheel]:
        """The source distributions of a name, as `wheels` has its wheels; a snapshot holds none."""
        source = self._source(name)[1]
        return () if source is None else source.sdists(name)

    def left_out(self, name: str) -> Sequence[str]:
        """Versions of a name that its index has beside those listed here: the snapshot is a part of the live one."""
        label, source = self._source(name)
        return () if source is None or label != SNAPSHOT or self._offline else source.left_out(name)

    def direct(self, name: str, url: str) -> Wheel:
        """The file of `name` at a URL that a requirement names. InputError for one that is not of that name."""
        return self._files().file(name, url)

    def _files(self) -> DirectFiles:
        if self._direct is None:
            if self._opener is None:
                raise InputError("requirements at a URL cannot be read here")
            self._direct = self._opener()
        return self._direct

    def widen(self, name: str) -> bool:
        """Binds a name of the snapshot to the live default index, of which the snapshot is a part; True if it did.

        For releases that the snapshot leaves out. Raises PackageIndexError if the index does not answer.
        """
        if self._offline or self._default is None or self.bind(name) != SNAPSHOT or not self._default.has(name):
            return False
        self._sources[name] = (self._default.label, self._default)
        return True

    def dependencies(self, wheel: Wheel) -> Sequence[Requirement]:
        """As protocol.Index says, from the index that `wheel.name` is bound to."""
        source = self._files() if wheel.index == DIRECT else self._source(wheel.name)[1]
        if source is None:
            raise InputError(f"no index has {wheel.name}, so the dependencies of {wheel.filename} are not known")
        found = source.dependencies(wheel)
        if self._ahead is not None:
            self._ahead.follow(found)
        return found

    def requires_python(self, wheel: Wheel) -> str | None:
        """What the metadata of a file says, where its index reads metadata."""
        if wheel.index == DIRECT:
            return self._files().requires_python(wheel)
        source = self._source(wheel.name)[1]
        return None if source is None else source.requires_python(wheel)

    def sizes(self, wheels: Sequence[Wheel]) -> dict[str, int]:
        """{file name: bytes} of the files without a size that came from an index over the network, asked at once."""
        asked = []
        for wheel in wheels:
            label, source = self._sources.get(wheel.name, (NOWHERE, None))
            if source is not None and wheel.size is None and label != SNAPSHOT and wheel.index != DIRECT:
                asked.append((wheel, source))
        if not asked:
            return {}
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(THREADS) as pool:
            found = pool.map(lambda pair: pair[1].size(pair[0]), asked)
            return {wheel.filename: size for (wheel, _), size in zip(asked, found, strict=True) if size is not None}

    def prefetch(self, names: Iterable[str]) -> None:
        """Ask at once for the pages that these names need from an index over the network. Raises nothing of theirs.

        Only the first index that would be asked is: the default one, or the one that a name is pinned to.
        """
        wanted: dict[int, tuple[Source, list[str]]] = {}
        for name in dict.fromkeys(names):
            source = self._pinned.get(name)
            if source is None and self._remote and name not in self._sources and self._local_source(name) is None:
                source = self._remote[0][1]
            if source is not None:
                wanted.setdefault(id(source), (source, []))[1].append(name)
        for source, missing in wanted.values():
            source.prefetch(missing)

    def at_hand(self, name: str) -> bool:
        """Whether all about a name is answered without the network: it comes from the snapshot."""
        found = self._sources.get(name) or (None if name in self._pinned else self._local_source(name))
        return found is not None and found[0] == SNAPSHOT

    def _source(self, name: str) -> tuple[str, Index | None]:
        found = self._sources.get(name)
        if found is None:
            found = self._sources[name] = self._find(name)
        return found

    def _find(self, name: str) -> tuple[str, Index | None]:
        if (pinned := self._pinned.get(name)) is not None:
            return pinned.label, pinned
        if (local := self._local_source(name)) is not None:
            return local
        for label, source in self._remote:
            if source.has(name):
                return label, source
        return NOWHERE, None

    def _local_source(self, name: str) -> tuple[str, Index] | None:
        return next(((label, source) for label, source in self._local if source.has(name)), None)


def open_index(
    url: str,
    *,
    transport: Transport,
    cache: Cache,
    offline: bool = False,
    refresh: bool = False,
    exclude_newer: str | None = None,
) -> SimpleIndex | FindLinks:
    """The index at a URL of --index-url or --extra-index-url: over HTTP, or a folder (file://, PEP 503 or flat)."""
    from .find_links import FindLinks
    from .live import SimpleIndex

    if url.startswith("file://"):
        return FindLinks([url], transport=transport, cache=cache, offline=offline, refresh=refresh, index=url)
    return SimpleIndex(
        url, transport=transport, cache=cache, offline=offline, refresh=refresh, exclude_newer=exclude_newer
    )
