"""Which pages of the own indexes of frameworks and companions can have builds for a request."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from ..compat import evaluate
from ..compat.data import CompatibilityData
from ..compat.extensions import FRAMEWORK, release_of
from ..compat.rows import IndexRow
from ..errors import is_doubt
from ..model import CudaVersion, Host, Wheel
from ..requirements.versions import contains

_NEWEST = 8  # releases with a page of their own that are read, if the request names none
_LOCAL = re.compile(r"\+[\w.]*")
_CPU = re.compile(r"\+.*(?<![a-z])cpu")


class OwnIndexes:
    """The indexes of the data, for one request on one host.

    Pages are read for builds of torch that the host can run and that the request admits.

    Args:
        data: the compatibility data, which has the indexes.
        host: the host.
        ranges: what the request and its constraints demand: {package: specifiers}.
        refresh: whether the builds of frameworks, all of which the data has, are looked for, too.
    """

    def __init__(
        self,
        data: CompatibilityData,
        host: Host,
        ranges: Mapping[str, Sequence[str]],
        *,
        refresh: bool,
    ) -> None:
        self._data, self._host, self._ranges, self._refresh = data, host, ranges, refresh

    def is_on_demand(self, name: str) -> bool:
        """Return whether the builds of a package are read only if there is no solution without."""
        return not self._refresh and self._data.framework_of(name) is not None

    def pages(
        self, name: str, versions: Callable[[], Sequence[str]]
    ) -> Iterator[tuple[IndexRow, str]]:
        """Yield the indexes that can have builds of a package, with their URLs.

        Args:
            name: the package.
            versions: returns the releases on the default index, newest first.
        """
        platform, found = self._host.platform, set()
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
                    if url not in found:
                        found.add(url)
                        yield row, url

    def fits(self, wheel: Wheel) -> bool:
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
                if all(map(is_doubt, [reason for every in reasons.values() for reason in every])):
                    builds[kind] = None
        return tuple(builds)
