"""A page of an index as the cache stores it: read by release, because a solve needs few of them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from json import JSONEncoder

from ..errors import PackageIndexError
from ..requirements.target import split_label, version_key, wheel_tags
from .filenames import identify, parse_requires_python
from .simple_api import (
    FileEntry,
    FileRow,
    has_allowed_url,
    newest_first,
    to_entries,
    to_entry_of,
    to_link,
)
from .urls import redact_url

_COMPACT_JSON = JSONEncoder(separators=(",", ":"), check_circular=False)

# Tags, Requires-Python, and whether it is yanked.
_Group = tuple[str, str | None, bool]
_Read = Callable[[int, int], bytes | None]


class CachedPage:
    """The files of a page, by release. A solve reads the files of few of the releases.

    Args:
        head: a JSON object:

            - "url": the URL of the page.
            - "groups": [tags, Requires-Python, whether it is yanked] of wheels that have these in
              common.
            - "kinds": the groups of a release, by their numbers. Most releases of a package are of
              a few kinds.
            - "releases": {name: {version: [the three numbers of its place, the number of its
              kind]}}, the newest release first. A place is the start, the end and the CRC-32 of a
              line of files.
            - "variants": the names that have variant wheels.
            - "others": the place of the files that are no wheels.
        read: reads the files between a start and an end; None if they are lost.
        reload: returns the page anew if files are lost, because another process has replaced the
            page or the cache is damaged. None if files cannot be lost.

    Raises:
        ValueError, KeyError: the head is no such object.
    """

    __slots__ = (
        "_groups", "_kinds", "_others", "_read", "_releases", "_reload", "_url", "_variants",
    )  # fmt: skip

    def __init__(
        self,
        head: bytes,
        read: _Read,
        reload: Callable[[], CachedPage] | None = None,
    ) -> None:
        fields = json.loads(head)
        self._url: str = fields["url"]
        self._groups: list[_Group] = fields["groups"]
        self._kinds: list[list[int]] = fields["kinds"]
        self._releases: dict[str, dict[str, list[int]]] = fields["releases"]
        self._variants: list[str] = fields["variants"]
        self._others: list[int] = fields["others"]
        self._read = read
        self._reload = reload

    def versions(
        self,
        name: str,
        fits_tags: Callable[[str], bool],
        fits_python: Callable[[str | None], bool],
    ) -> dict[str, bool]:
        """Return the versions of which a wheel fits, newest first. No file is parsed.

        Args:
            name: the package.
            fits_tags: whether wheels with some tags fit.
            fits_python: whether wheels with a Requires-Python fit.

        Returns:
            {version: whether all wheels that fit are yanked}.
        """
        is_yanked: dict[int, bool] = {}  # of the groups that fit
        fitting_tags = set(filter(fits_tags, {tags for tags, _, _ in self._groups}))
        for number, (tags, requires_python, yanked) in enumerate(self._groups):
            if tags in fitting_tags and fits_python(requires_python):
                is_yanked[number] = yanked
        all_yanked: dict[int, bool] = {}  # of the kinds that fit
        for kind, groups in enumerate(self._kinds):
            fitting = [is_yanked[number] for number in groups if number in is_yanked]
            if fitting:
                all_yanked[kind] = all(fitting)
        versions: dict[str, bool] = {}
        for version, (_, _, _, kind) in self._releases.get(name, {}).items():
            if kind in all_yanked:
                versions[version] = all_yanked[kind]
        return versions

    def has_variants(self, name: str) -> bool:
        """Return whether a package has variant wheels (PEP 825)."""
        return name in self._variants

    def wheels(
        self, name: str, accepts: Callable[[str], bool] | None = None, version: str | None = None
    ) -> list[FileEntry]:
        """Return wheels of a package, newest first and by file name.

        Args:
            name: the package.
            accepts: whether wheels with some tags fit; None accepts all.
            version: the only version that is returned; None returns all.

        Raises:
            PackageIndexError: files are lost, and the index failed.
        """
        if version is not None:
            return self._release(name, version, accepts, self._read)
        files = self._read(0, self._others[1])  # all of them: the others are the last ones

        def read(start: int, end: int) -> bytes | None:
            return files[start:end] if files is not None else None

        entries: list[FileEntry] = []
        for listed in self._releases.get(name, {}):
            entries += self._release(name, listed, accepts, read)
        return entries

    def _release(
        self, name: str, version: str, accepts: Callable[[str], bool] | None, read: _Read
    ) -> list[FileEntry]:
        entries: list[FileEntry] = []
        for row in self._rows(lambda page: page._place(name, version), read):
            # Most wheels are for other targets and need not be checked.
            if accepts is None or accepts(wheel_tags(row.filename)):
                entry = to_entry_of(name, version, row, self._url)
                if entry is not None:
                    entries.append(entry)
        return sorted(entries, key=_filename)

    def sdists(self) -> list[FileEntry]:
        """Return the source distributions, newest first."""
        return newest_first(to_entries(self._rows(_others, self._read), self._url))

    def entries(self) -> list[FileEntry]:
        """Return all wheels and source distributions, newest first."""
        wheels = chain.from_iterable(map(self.wheels, self._releases))
        return newest_first([*wheels, *self.sdists()])

    def find_link(self, filename: str) -> tuple[str, str | None] | None:
        """Return the (URL, sha256) of a file that is no wheel; None if the page lacks it."""
        for row in self._rows(_others, self._read):
            if row.filename == filename:
                return to_link(row, self._url)
        return None

    def _rows(self, place_on: Callable[[CachedPage], list[int]], read: _Read) -> list[FileRow]:
        """Return the files at a place of the page."""
        line = _line(place_on(self), read)
        if line is None and self._reload is not None:
            page = self._reload()
            line = _line(place_on(page), page._read)
        return [FileRow(*row) for row in json.loads(line or b"[]")]

    def _place(self, name: str, version: str) -> list[int]:
        try:
            return self._releases[name][version][:3]
        except KeyError:
            raise PackageIndexError(
                f"index {redact_url(self._url)} has removed {name} {version} meanwhile",
                hint="run the command again",
            ) from None


def _line(place: Sequence[int], read: _Read) -> bytes | None:
    """Return the line at a place; None if it is lost or damaged."""
    start, end, checksum = place
    line = read(start, end)
    return line if line is not None and zlib.crc32(line) == checksum else None


def _others(page: CachedPage) -> list[int]:
    return page._others


def _filename(entry: FileEntry) -> str:
    return entry.filename


class NewPage:
    """A page as the cache stores it: its head and its files.

    There is a line for the wheels of each release, and one for the other files. A file is a FileRow
    as a JSON list. Pages have megabytes, and a solve reads few of the lines.
    """

    def __init__(self, url: str, rows: Iterable[FileRow]) -> None:
        self._lines: list[bytes] = []
        self._end = 0
        wheels: dict[tuple[str, str], list[FileRow]] = {}
        others: list[FileRow] = []
        for row in rows:
            if not row.filename.endswith(".whl"):
                others.append(row)
                continue
            release = identify(row.filename)
            if release is not None and has_allowed_url(row, url):
                wheels.setdefault(release, []).append(row)
        self.head = self._head(url, wheels, others)
        self.files = b"".join(self._lines)

    def _head(
        self, url: str, wheels: Mapping[tuple[str, str], list[FileRow]], others: list[FileRow]
    ) -> bytes:
        groups: dict[_Group, int] = {}
        kinds: dict[tuple[int, ...], int] = {}
        releases: dict[str, dict[str, list[int]]] = {}
        variants: dict[str, None] = {}
        newest = sorted(wheels, key=lambda release: version_key(release[1]), reverse=True)
        for name, version in newest:
            files = wheels[name, version]
            numbers = {groups.setdefault(_group_of(row), len(groups)) for row in files}
            kind = kinds.setdefault(tuple(sorted(numbers)), len(kinds))
            releases.setdefault(name, {})[version] = [*self._add_line(files), kind]
            if any(split_label(row.filename)[1] for row in files):
                variants[name] = None
        head = {
            "url": url,
            "groups": list(groups),
            "kinds": list(kinds),
            "releases": releases,
            "variants": list(variants),
            "others": self._add_line(others),
        }
        return _COMPACT_JSON.encode(head).encode()

    def _add_line(self, files: Sequence[FileRow]) -> list[int]:
        """Add a line, and return its place."""
        line = _COMPACT_JSON.encode(files).encode()
        self._lines.append(line)
        start, self._end = self._end, self._end + len(line)
        return [start, self._end, zlib.crc32(line)]


def _group_of(row: FileRow) -> _Group:
    """Return what a solve must know about a wheel before it reads the wheel."""
    is_yanked = row.yanked is True or isinstance(row.yanked, str)
    text = row.requires_python if isinstance(row.requires_python, str) else None
    return wheel_tags(row.filename), parse_requires_python(text), is_yanked
