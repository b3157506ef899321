"""A page of an index as the cache stores it: read by release, because a solve needs few of them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, groupby
from json import JSONEncoder
from operator import itemgetter

from ..errors import PackageIndexError
from ..requirements.target import split_label, version_key, wheel_tags
from .filenames import identify, parse_requires_python
from .protocol import Listed
from .simple_api import FileEntry, FileRow, has_allowed_url, newest_first, to_entry_of, to_link
from .urls import redact_url

_COMPACT_JSON = JSONEncoder(separators=(",", ":"), check_circular=False)
_PLACE_LENGTH = 24

# Tags ("" for a source distribution), Requires-Python, and whether it is yanked.
_Group = tuple[str, str | None, bool]
_Read = Callable[[int, int], bytes | None]


class CachedPage:
    """The files of a page, by release. A solve reads the files of few of the releases.

    Args:
        head: a JSON object:

            - "url": the URL of the page.
            - "groups": [tags, Requires-Python, whether it is yanked] of files that have these in
              common. The tags of a source distribution are "".
            - "kinds": the groups of a release, by their numbers. Most releases of a package are of
              a few kinds.
            - "releases": {name: [[the number of a kind, versions separated by spaces]]}, the newest
              release first. Neighbors are mostly of one kind.
            - "places": {name: the places of its releases in this order}. A place is the start, the
              end and the CRC-32 of a line of files, as hexadecimal numbers of eight digits.
            - "has_variants": whether it lists variant wheels (PEP 825).
            - "others": the place of the files that are neither wheels nor source distributions.
        read: reads the files between a start and an end; None if they are lost.
        reload: returns the page anew if files are lost, because another process has replaced the
            page or the cache is damaged. None if files cannot be lost.

    Attributes:
        has_variants: whether the page lists variant wheels.

    Raises:
        ValueError, KeyError: the head is no such object.
    """

    __slots__ = (
        "_groups", "_kinds", "_numbers", "_others", "_places", "_read", "_releases", "_reload",
        "_url", "has_variants",
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
        self._releases: dict[str, list[tuple[int, str]]] = fields["releases"]
        self._places: dict[str, str] = fields["places"]
        self.has_variants: bool = fields["has_variants"]
        self._others: str = fields["others"]
        self._numbers: dict[str, dict[str, int]] = {}  # of releases, in the order of the head
        self._read = read
        self._reload = reload

    def versions(
        self,
        name: str,
        fits_tags: Callable[[str], bool],
        fits_python: Callable[[str | None], bool],
    ) -> dict[str, Listed]:
        """Return the releases of which a file fits, newest first. No file is parsed.

        Args:
            name: the package.
            fits_tags: whether wheels with some tags fit.
            fits_python: whether files with a Requires-Python fit.
        """
        fitting: set[int] = set()
        not_yanked: set[int] = set()
        wheels: set[int] = set()
        all_tags = {tags for tags, _, _ in self._groups}
        fitting_tags = {tags for tags in all_tags if not tags or fits_tags(tags)}
        for number, (tags, requires_python, is_yanked) in enumerate(self._groups):
            if tags in fitting_tags and fits_python(requires_python):
                fitting.add(number)
                if tags:
                    wheels.add(number)
                if not is_yanked:
                    not_yanked.add(number)
        kinds: dict[int, Listed] = {}  # those that fit
        for kind, groups in enumerate(self._kinds):
            fits = fitting.intersection(groups)
            if fits:
                best = fits & not_yanked or fits
                kinds[kind] = Listed(fits.isdisjoint(not_yanked), best.isdisjoint(wheels))
        listed: dict[str, Listed] = {}
        for kind, versions in self._releases.get(name, ()):
            if kind in kinds:
                listed.update(dict.fromkeys(versions.split(), kinds[kind]))
        return listed

    def files(
        self, name: str, accepts: Callable[[str], bool] | None = None, version: str | None = None
    ) -> list[FileEntry]:
        """Return wheels and source distributions, newest first and by file name.

        Args:
            name: the package.
            accepts: whether files with some tags fit (those of a source distribution are ""); None
                accepts all.
            version: the only version that is returned; None returns all.

        Raises:
            PackageIndexError: files are lost, and the index failed.
        """
        if version is not None:
            return self._release(name, version, accepts, self._read)
        files = self._read(0, _parse_place(self._others)[1])  # the others are the last ones

        def read(start: int, end: int) -> bytes | None:
            return files[start:end] if files is not None else None

        entries: list[FileEntry] = []
        for listed in self._numbers_of(name):
            entries += self._release(name, listed, accepts, read)
        return entries

    def _release(
        self, name: str, version: str, accepts: Callable[[str], bool] | None, read: _Read
    ) -> list[FileEntry]:
        entries: list[FileEntry] = []
        for row in self._rows(lambda page: page._place_of(name, version), read):
            # Most files are for other targets and need not be checked.
            if accepts is None or accepts(wheel_tags(row.filename)):
                entry = to_entry_of(name, version, row, self._url)
                if entry is not None:
                    entries.append(entry)
        return sorted(entries, key=_filename)

    def entries(self) -> list[FileEntry]:
        """Return all wheels and source distributions, newest first."""
        return newest_first(chain.from_iterable(map(self.files, self._releases)))

    def find_link(self, filename: str) -> tuple[str, str | None] | None:
        """Return the (URL, sha256) of one of the other files; None if the page lacks it."""
        for row in self._rows(_others, self._read):
            if row.filename == filename:
                return to_link(row, self._url)
        return None

    def _rows(self, place_on: Callable[[CachedPage], str], read: _Read) -> list[FileRow]:
        """Return the files at a place of the page."""
        line = _line(place_on(self), read)
        if line is None and self._reload is not None:
            page = self._reload()
            line = _line(place_on(page), page._read)
        return [FileRow(*row) for row in json.loads(line or b"[]")]

    def _numbers_of(self, name: str) -> dict[str, int]:
        """Return {version: number} of the releases of a package, newest first."""
        if name not in self._numbers:
            versions = " ".join(text for _, text in self._releases.get(name, ()))
            self._numbers[name] = {
                version: number for number, version in enumerate(versions.split())
            }
        return self._numbers[name]

    def _place_of(self, name: str, version: str) -> str:
        number = self._numbers_of(name).get(version)
        if number is None:
            raise PackageIndexError(
                f"index {redact_url(self._url)} has removed {name} {version} meanwhile",
                hint="run the command again",
            )
        return self._places[name][number * _PLACE_LENGTH : (number + 1) * _PLACE_LENGTH]


def _format_place(start: int, end: int, line: bytes) -> str:
    return f"{start:08x}{end:08x}{zlib.crc32(line):08x}"


def _parse_place(place: str) -> tuple[int, int, int]:
    """Return the start, the end and the CRC-32 of a line."""
    return int(place[:8], 16), int(place[8:16], 16), int(place[16:], 16)


def _line(place: str, read: _Read) -> bytes | None:
    """Return the line at a place; None if it is lost or damaged."""
    start, end, checksum = _parse_place(place)
    line = read(start, end)
    return line if line is not None and zlib.crc32(line) == checksum else None


def _others(page: CachedPage) -> str:
    return page._others


def _filename(entry: FileEntry) -> str:
    return entry.filename


class NewPage:
    """A page as the cache stores it: its head and its files.

    There is a line for the wheels and source distributions of each release, and one for the other
    files. A file is a FileRow as a JSON list. Pages have megabytes, and a solve reads few of the
    lines.
    """

    def __init__(self, url: str, rows: Iterable[FileRow]) -> None:
        self._lines: list[bytes] = []
        self._end = 0
        self._groups = _Groups()
        releases: dict[tuple[str, str], list[FileRow]] = {}
        others: list[FileRow] = []
        for row in rows:
            release = identify(row.filename)
            if release is None:
                if not row.filename.endswith(".whl"):
                    others.append(row)
            elif has_allowed_url(row, url):
                releases.setdefault(release, []).append(row)
        self.head = self._head(url, releases, others)
        self.files = b"".join(self._lines)

    def _head(
        self, url: str, releases: Mapping[tuple[str, str], list[FileRow]], others: list[FileRow]
    ) -> bytes:
        kinds: dict[tuple[int, ...], int] = {}
        listed: dict[str, list[tuple[int, str, str]]] = {}
        newest = sorted(releases, key=lambda release: version_key(release[1]), reverse=True)
        for name, version in newest:
            files = releases[name, version]
            numbers = set(map(self._groups.number_of, files))
            kind = kinds.setdefault(tuple(sorted(numbers)), len(kinds))
            listed.setdefault(name, []).append((kind, version, self._add_line(files)))
        head = {
            "url": url,
            "groups": list(self._groups.found),
            "kinds": list(kinds),
            "releases": {name: _by_kind(rows) for name, rows in listed.items()},
            "places": {
                name: "".join(place for _, _, place in rows) for name, rows in listed.items()
            },
            "has_variants": self._groups.has_variants,
            "others": self._add_line(others),
        }
        return _COMPACT_JSON.encode(head).encode()

    def _add_line(self, files: Sequence[FileRow]) -> str:
        """Add a line, and return its place."""
        line = _COMPACT_JSON.encode(files).encode()
        self._lines.append(line)
        start, self._end = self._end, self._end + len(line)
        return _format_place(start, self._end, line)


def _by_kind(rows: Iterable[tuple[int, str, str]]) -> list[tuple[int, str]]:
    """Join the versions of neighbors of one kind, separated by spaces."""
    joined = []
    for kind, neighbors in groupby(rows, itemgetter(0)):
        joined.append((kind, " ".join(version for _, version, _ in neighbors)))
    return joined


class _Groups:
    """The groups of the files of a page.

    Attributes:
        found: {group: its number}, in the order of the numbers.
        has_variants: whether one of the wheels is a variant wheel.
    """

    def __init__(self) -> None:
        self.found: dict[_Group, int] = {}
        self.has_variants = False
        self._by_end: dict[_Group, int] = {}

    def number_of(self, row: FileRow) -> int:
        """Return the number of a file's group."""
        is_yanked = row.yanked is True or isinstance(row.yanked, str)
        python = row.requires_python if isinstance(row.requires_python, str) else None
        # Few wheels of a page have an end of their own: py3-none-any.whl
        end = row.filename.split("-", 2)[-1] if row.filename.endswith(".whl") else ""
        number = self._by_end.get((end, python, is_yanked))
        if number is None:
            group = wheel_tags(row.filename), parse_requires_python(python), is_yanked
            number = self.found.setdefault(group, len(self.found))
            self._by_end[end, python, is_yanked] = number
            self.has_variants = self.has_variants or bool(split_label(row.filename)[1])
        return number
