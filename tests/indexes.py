"""Indexes of one source, with what tests ask of them."""

from collections.abc import Sequence
from typing import Any

from gpuenv.index.cache import Cache
from gpuenv.index.http import Transport
from gpuenv.index.metadata import FileReader
from gpuenv.index.multi_index import MultiIndex
from gpuenv.index.pages import PageReader
from gpuenv.index.sources import FindLinks, SimpleIndex
from gpuenv.model import IndexOptions, Requirement, Wheel
from gpuenv.requirements.target import TargetEnvironment


class Asked(MultiIndex):
    """An index whose answers tests take apart."""

    def has(self, name: str) -> bool:
        return bool(self.label(name))

    def wheels(self, name: str, environment: TargetEnvironment | None = None) -> Sequence[Wheel]:
        files = self.files(name, environment)
        return tuple(file for file in files if file.filename.endswith(".whl"))

    def sdists(self, name: str) -> Sequence[Wheel]:
        return tuple(file for file in self.files(name) if not file.filename.endswith(".whl"))

    def dependencies(self, wheel: Wheel) -> tuple[Requirement, ...]:
        return self.metadata(wheel).dependencies

    def requires_python(self, wheel: Wheel) -> str | None:
        return self.metadata(wheel).requires_python

    def size(self, wheel: Wheel) -> int | None:
        return self._reader.size(wheel)


def readers(
    transport: Transport | None = None, cache: Cache | None = None, **options: Any
) -> tuple[PageReader, FileReader]:
    transport, cache = transport or Transport(), cache or Cache()
    asked = IndexOptions(**options)
    return PageReader(transport, cache, asked), FileReader(transport, cache, asked)


def simple_source(url: str, transport: Transport, cache: Cache) -> SimpleIndex:
    return SimpleIndex(url, readers(transport, cache)[0])


def combined_index(
    transport: Transport | None = None,
    cache: Cache | None = None,
    *,
    offline: bool = False,
    **sources: Any,
) -> Asked:
    return Asked(readers(transport, cache, offline=offline)[1], offline=offline, **sources)


def simple_index(
    url: str, transport: Transport | None = None, cache: Cache | None = None, **options: Any
) -> Asked:
    pages, files = readers(transport, cache, **options)
    source = SimpleIndex(url, pages, exclude_newer=options.get("exclude_newer"))
    return Asked(files, default=source)


def find_links(
    locations: Sequence[str],
    transport: Transport | None = None,
    cache: Cache | None = None,
    **options: Any,
) -> Asked:
    pages, files = readers(transport, cache, **options)
    return Asked(files, find_links=FindLinks(locations, pages))
