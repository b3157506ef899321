"""Indexes of one source, with what tests ask of them."""

import sys

from gpuenv.index.cache import Cache
from gpuenv.index.http import Transport
from gpuenv.index.metadata import FileReader
from gpuenv.index.multi_index import MultiIndex
from gpuenv.index.pages import PageReader
from gpuenv.index.source_builds import SourceBuilder
from gpuenv.index.sources import FindLinks, SimpleIndex
from gpuenv.model import IndexOptions


class Asked(MultiIndex):
    """An index whose answers tests take apart."""

    def has(self, name):
        return self._source(name) is not None

    def wheels(self, name, environment=None):
        files = self.files(name, environment)
        return tuple(file for file in files if file.filename.endswith(".whl"))

    def sdists(self, name):
        return tuple(file for file in self.files(name) if not file.filename.endswith(".whl"))

    def dependencies(self, wheel):
        return self.metadata(wheel).dependencies

    def requires_python(self, wheel):
        return self.metadata(wheel).requires_python

    def size(self, wheel):
        return self._reader.size(wheel)


def readers(transport=None, cache=None, **options):
    transport, cache = transport or Transport(), cache or Cache()
    asked = IndexOptions(**options)
    builder = SourceBuilder(sys.executable, asked, lambda _: False)
    pages = PageReader(transport, cache, asked)
    return pages, FileReader(pages, builder)


def simple_source(url, transport, cache):
    return SimpleIndex(url, readers(transport, cache)[0])


def combined_index(transport=None, cache=None, *, offline=False, **sources):
    return Asked(readers(transport, cache, offline=offline)[1], offline=offline, **sources)


def simple_index(url, transport=None, cache=None, **options):
    pages, files = readers(transport, cache, **options)
    source = SimpleIndex(url, pages)
    return Asked(files, default=source)


def find_links(locations, transport=None, cache=None, **options):
    pages, files = readers(transport, cache, **options)
    return Asked(files, find_links=FindLinks(locations, pages))
