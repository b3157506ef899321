"""The default index, read through gpuenv's own cache: its pages, and what wheels say."""

from __future__ import annotations

import sys
from functools import cache
from typing import BinaryIO

from gpuenv.binaries.device_code import DamagedFileError
from gpuenv.binaries.elf import NotElfError
from gpuenv.errors import PackageIndexError
from gpuenv.index.cache import Cache
from gpuenv.index.default_index import default_index
from gpuenv.index.http import Transport
from gpuenv.index.metadata import FileReader, NoRangesError, open_wheel
from gpuenv.index.multi_index import open_index
from gpuenv.index.pages import PageReader
from gpuenv.index.source_builds import SourceBuilder
from gpuenv.model import Host, IndexOptions, Python, Wheel
from gpuenv.requirements.target import (
    FIRST_FREE_THREADED,
    PLATFORMS,
    PYTHONS,
    TargetEnvironment,
    is_prerelease,
    version_key,
    wheel_tags,
)

# What is raised for a wheel that cannot be read.
UNREADABLE = (DamagedFileError, NoRangesError, NotElfError, PackageIndexError)
# Requires-Python ">=3.12.1" refuses a wheel for "3.12.0": ask for a later micro release.
LATE_MICRO = 10


@cache
def targets() -> tuple[TargetEnvironment, ...]:
    """Return every supported target: each interpreter, also free-threaded, on each platform."""
    found = []
    for major, minor in PYTHONS:
        for free_threaded in (False, True):
            if free_threaded and (major, minor) < FIRST_FREE_THREADED:
                continue
            full = f"{major}.{minor}.{LATE_MICRO}"
            python = Python(version=(major, minor), free_threaded=free_threaded, full_version=full)
            for os_name, machine in PLATFORMS.values():
                found.append(TargetEnvironment(Host(os=os_name, machine=machine, python=python)))
    return tuple(found)


@cache
def serves(tags: str) -> tuple[int, ...]:
    """Return the targets, as places of `targets`, that wheels with some tags fit."""
    return tuple(place for place, target in enumerate(targets()) if target.fits(tags))


class DefaultIndex:
    """The default index that pip is configured with. It is asked for each page anew."""

    def __init__(self) -> None:
        options = IndexOptions(refresh=True)
        self.transport = Transport()
        pages = PageReader(self.transport, Cache(), options)
        self.pages = open_index(default_index().url, pages)
        builder = SourceBuilder(sys.executable, options, lambda _: False)
        self.reader = FileReader(pages, builder)

    def wheels(self, name: str) -> list[Wheel]:
        """Return the wheels of final releases that fit a supported target, oldest first.

        Raises:
            PackageIndexError: the index did not answer.
        """
        wheels = [
            file
            for file in self.pages.files(name)
            if file.filename.endswith(".whl")
            and file.sha256
            and not is_prerelease(file.version)
            and serves(wheel_tags(file.filename))
        ]
        return sorted(wheels, key=lambda wheel: (version_key(wheel.version), wheel.filename))

    def sources(self, name: str) -> list[Wheel]:
        """Return the source distributions of final releases, oldest first."""
        files = [file for file in self.pages.files(name) if file.filename.endswith(".tar.gz")]
        final = [file for file in files if file.sha256 and not is_prerelease(file.version)]
        return sorted(final, key=lambda file: version_key(file.version))

    def open(self, wheel: Wheel) -> BinaryIO:
        """Open a wheel as a file. PackageIndexError if its server does not send it."""
        return open_wheel(wheel, self.transport, say)


def say(text: str) -> None:
    """Print a line of progress."""
    print(text, file=sys.stderr, flush=True)
