"""The own indexes of frameworks and companions: which pages can have builds for a request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property

from ..compat import evaluate
from ..compat.data import CompatibilityData
from ..compat.extensions import FRAMEWORK, release_of
from ..compat.rows import IndexRow
from ..errors import PackageIndexError, is_doubt
from ..model import CudaVersion, Host, IndexOptions, Wheel
from ..requirements.target import TargetEnvironment
from ..requirements.versions import contains
from .cache import Cache
from .http import MAX_THREADS, Transport
from .pages import PageReader
from .sources import Merged, SimpleIndex, Source, newest_first

_NEWEST = 8  # releases with a page of their own that are read, if the request names none
_LOCAL = re.compile(r"\+[\w.]*")
_CPU = re.compile(r"\+.*(?<![a-z])cpu")


class OwnIndex(SimpleIndex):
    """A page, or the pages of an index, with builds that the default index lacks.

    Only wheels count, with a local version unless the row says that they have none, and no nightly
    builds. A link to another host counts only if the row has its start.

    Args:
        row: the index.
        url: its URL, with the fields of that of the row filled in.
        pages: reads pages.
        fits: whether the host can run a build.
    """

    def __init__(
        self, row: IndexRow, url: str, pages: PageReader, fits: Callable[[Wheel], bool]
    ) -> None:
        super().__init__(url, pages, row.distributions)
        self.row, self._fits = row, fits

    def files(self, name: str, environment: TargetEnvironment | None = None) -> list[Wheel]:
        """Implement Source.files."""
        starts = (f"{'/'.join(self.url.split('/')[:3])}/", *self.row.files)
        return [
            file
            for file in super().files(name, environment)
            if not file.is_sdist and ".dev" not in file.version
            if file.url.startswith(starts) and (self.row.plain or "+" in file.version)
            if self._fits(file)
        ]

    def _subject(self, name: str) -> str:
        return f"its page of {name}"

    def _page_url(self, name: str) -> str:
        return self.url if self.row.flat else super()._page_url(name)


class WithOwnBuilds(Merged):
    """A package of a framework or a companion: files of one index, and builds of others.

    Args:
        main: the index or the snapshot that has the package; None if none has.
        own: the sources of further builds.
        failed: called with an own index that failed, and why. It is left out.
    """

    def __init__(
        self,
        main: Source | None,
        own: Sequence[Source],
        failed: Callable[[Source, PackageIndexError], None],
    ) -> None:
        super().__init__([*filter(None, [main]), *own])
        self._main, self._own, self._failed = main, own, failed

    def files(self, name: str, environment: TargetEnvironment | None = None) -> list[Wheel]:
        """Implement Source.files. Raises PackageIndexError if nothing else has the package."""
        files = list(self._main.files(name, environment)) if self._main is not None else []
        known = {(file.filename, file.sha256) for file in files}
        errors = []
        with ThreadPoolExecutor(MAX_THREADS) as pool:
            answers = [pool.submit(source.files, name, environment) for source in self._own]
        for source, answer in zip(self._own, answers, strict=True):
            try:
                builds = answer.result()
            except PackageIndexError as error:
                self._failed(source, error)
                errors.append(error)
                continue
            files += [
                file
                for file in builds
                if isinstance(source, OwnIndex) or "+" in file.version
                if (file.filename, file.sha256) not in known
            ]
        if errors and self._main is None and not files:
            raise errors[0]
        return newest_first(files)


class OwnIndexes:
    """The indexes of the data, for one request on one host.

    Pages are read for builds of torch that the host can run and that the request admits.

    Args:
        data: the compatibility data, which has the indexes.
        host: the host.
        ranges: what the request and its constraints demand: {package: specifiers}.
        options: with `refresh`, the builds of frameworks, all of which the data has, are looked
            for, too.
    """

    def __init__(
        self,
        data: CompatibilityData,
        host: Host,
        ranges: Mapping[str, Sequence[str]],
        options: IndexOptions,
    ) -> None:
        self._data, self._host, self._ranges = data, host, ranges
        # One try and short time-outs: what has an answer without these must not wait for them.
        transport = Transport(connect=3.0, read=10.0, tries=1)
        self._pages = PageReader(transport, Cache(), options)
        self._opened: dict[str, OwnIndex] = {}  # by URL

    def is_on_demand(self, name: str) -> bool:
        """Return whether the builds of a package are read only if there is no solution without."""
        return not self._pages.options.refresh and self._data.framework_of(name) is not None

    def sources(self, name: str, versions: Callable[[], Sequence[str]]) -> list[Source]:
        """Return the indexes that can have builds of a package; each is opened once.

        Args:
            name: the package.
            versions: returns the releases on the default index, newest first.
        """
        platform, sources = self._host.platform, dict[str, Source]()
        for row in self._data.indexes(name):
            if row.platforms and platform not in row.platforms:
                continue
            releases: Sequence[str] = ("",)
            if "{version}" in row.url:
                ranges = [_LOCAL.sub("", range_) for range_ in self._ranges.get(name, ())]
                releases = [v for v in versions() if all(contains(range_, v) for range_ in ranges)]
            for torch, cuda in self._builds_of(row):
                if cuda is None and "{major}" in row.url:
                    continue
                for version in releases[:_NEWEST]:
                    url = row.url.format(
                        cuda=f"cu{cuda[0]}{cuda[1]}" if cuda else "cpu",
                        major=cuda[0] if cuda else "",
                        torch=torch,
                        pt=torch.replace(".", ""),
                        version=version,
                    )
                    own = OwnIndex(row, url, self._pages, self._fits)
                    sources[url] = self._opened.setdefault(url, own)
        return list(sources.values())

    def _fits(self, wheel: Wheel) -> bool:
        """Return whether a build of a companion is for a build of torch that fits."""
        if self._host.gpus and _CPU.search(wheel.version):
            return False
        platform = self._host.platform
        links = self._data.links(wheel.name, wheel.version, platform, wheel.url)
        if links is None:
            return True
        ranges = [range_ for name, range_ in links.frameworks if name == FRAMEWORK and range_]
        return any(
            all(contains(range_, f"{torch}.0") for range_ in ranges)
            and (not links.cuda or (cuda is not None and cuda[0] in links.cuda))
            for torch, cuda in self._builds
        )

    def _builds_of(self, row: IndexRow) -> Iterator[tuple[str, CudaVersion | None]]:
        """Yield the releases of torch and the CUDA versions that an index can have builds for."""
        if not row.cuda:
            yield from self._builds
            return
        majors = {cuda[0] for _, cuda in self._builds if cuda is not None}
        for text in row.cuda:  # cu125
            cuda = (int(text[2:4]), int(text[4:])) if text.startswith("cu") else None
            if (cuda[0] in majors) if cuda else not self._host.gpus:
                yield "", cuda

    @cached_property
    def _builds(self) -> Sequence[tuple[str, CudaVersion | None]]:
        """The first two numbers and the CUDA of the builds of torch that fit, newest first."""
        builds: dict[tuple[str, CudaVersion | None], None] = {}
        ranges = self._ranges.get(FRAMEWORK, ())
        for build in self._data.builds(FRAMEWORK, self._host.platform):
            kind = release_of(build.version), build.cuda
            is_wanted = (build.cuda is None or self._host.gpus) and kind not in builds
            if is_wanted and all(contains(range_, build.local) for range_ in ranges):
                reasons = evaluate.build_reasons(
                    build.local, build, self._host, self._data, on_path=True
                )
                if all(map(is_doubt, reasons)):
                    builds[kind] = None
        return tuple(builds)
