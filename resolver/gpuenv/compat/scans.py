"""Compare scans of wheels (scans/*.json, in a checkout only) with the rows and with the index."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from ..errors import DataError
from ..model import Wheel
from ..requirements.target import is_prerelease, version_key
from .catalog import Wheels, platform_of
from .data import CompatibilityData
from .rows import read, read_toml

DEFAULT = "default"  # the index whose wheels are scanned
ANY_PLATFORM = "linux-x86_64"  # wheels for any platform have their rows here
_RECORD_FIELDS = frozenset({"version", "file", "sha256", "libraries"})

Document = Mapping[str, Any]  # a row or a record of a JSON or TOML file


class Scans:
    """The records of scans/, and the [[scan]] rows (scopes) that say which wheels need one.

    Raises DataError for a damaged file.
    """

    def __init__(self, data: CompatibilityData) -> None:
        self._data, self._folder = data, data.folder
        self.records: dict[str, list[dict[str, Any]]] = {}
        for name in _names_in(os.path.join(self._folder, "scans"), ".json"):
            self.records[name] = self._read_records(name)

    @classmethod
    def beside(cls, data: CompatibilityData) -> Scans | None:
        """Return the scans of a checkout; None for an installed package, which has none."""
        for name in ("scans", "scans.toml"):
            if not os.path.exists(os.path.join(data.folder, name)):
                return None
        return cls(data)

    def _read_records(self, name: str) -> list[dict[str, Any]]:
        path = os.path.join(self._folder, "scans", f"{name}.json")
        records = read(path).get("scans")
        if not isinstance(records, list) or not all(map(_is_record, records)):
            fields = ", ".join(sorted(_RECORD_FIELDS))
            raise DataError(f"{path}: scans is not a list of records with {fields}")
        return records

    @cached_property
    def scopes(self) -> list[dict[str, Any]]:
        """Every [[scan]] row."""
        return read_scopes(self._folder)

    def counts(self) -> tuple[tuple[str, int], ...]:
        """Return (distribution, number of scanned wheels), in alphabetical order."""
        return tuple((name, len(records)) for name, records in sorted(self.records.items()))

    # ---- against the rows

    def contradictions(self, wheels: Wheels | None) -> Iterator[str]:
        """Yield where a row differs from the record of its wheel, or the index has another file."""
        tables: dict[str, list[dict[str, Any]]] = {}
        for framework in self._data.all_frameworks():
            rows = self._rows("frameworks", framework.name, "builds")
            tables[framework.distribution] = rows
        for name in self._data.libraries():
            tables[name] = self._rows("libraries", name, "releases")
        for name, rows in tables.items():
            records = {record["file"]: record for record in self.records.get(name, [])}
            for row in rows:
                if row["evidence"] == "scanned":
                    yield from self._differences(name, row, records.get(row["file"]))
        for name, records_of_name in self.records.items():
            yield from self._without_row(name, records_of_name, tables.get(name, []))
            yield from _against_index(records_of_name, wheels(name) if wheels else ())

    def _rows(self, folder: str, name: str, table: str) -> list[dict[str, Any]]:
        path = os.path.join(self._folder, folder, f"{name}.json")
        return read(path)[table] if os.path.exists(path) else []

    def _differences(self, name: str, row: Document, record: Document | None) -> Iterator[str]:
        subject, file = f"{name} {row['version']} on {row['platform']}", row["file"]
        if record is None:
            yield f"{subject} was scanned from {file}, which has no record"
            return
        if row["sha256"] != record["sha256"]:
            yield f"{subject} has another sha256 than the record of {file}"
        if row["version"] != record["version"]:
            yield f"{subject} was scanned from {file}, which is {record['version']}"
        sass, ptx = self._targets(name, record)
        row_sass = {*(row["sass"] or ()), *row.get("some", ())}
        for target in sorted(row_sass - sass):
            yield f"{subject} has sm_{target}, which the record of {file} lacks"
        for target in sorted(sass - row_sass):
            yield f"{subject} lacks sm_{target}, which the record of {file} has"
        for target in sorted({*(row["ptx"] or ())} - ptx):
            yield f"{subject} has compute_{target}, which the record of {file} lacks"

    def _targets(self, name: str, record: Document) -> tuple[set[str], set[str]]:
        """Return the SASS and PTX targets in any fat binary of the libraries in scope."""
        patterns = self._patterns(name, platform_of(record["file"]))
        sass: set[str] = set()
        ptx: set[str] = set()
        for library in record["libraries"]:
            if _any_matches(library["paths"], patterns):
                sass.update(library["sass"])
                ptx.update(entry[0] for entry in library["ptx"])
        return sass, ptx

    def _patterns(self, name: str, platform: str) -> Sequence[str]:
        """Return the patterns of the files that count for a distribution on a platform."""
        for scope in self.scopes:
            if name in scope["distributions"] and scope["platform"] == platform:
                patterns: Sequence[str] = scope.get("files", ["*"])
                return patterns
        return ["*"]

    def _without_row(
        self, name: str, records: Sequence[Document], rows: Sequence[Document]
    ) -> Iterator[str]:
        """Yield records of device code without a row, or with a row that a document made."""
        evidence: dict[tuple[str, str], str] = {}
        for row in rows:
            if row.get("index", DEFAULT) == DEFAULT:
                evidence[row["version"], row["platform"]] = row["evidence"]
        for record in records:
            platform = platform_of(record["file"]) or ANY_PLATFORM
            kind = evidence.get((record["version"], platform))
            if kind != "scanned" and any(self._targets(name, record)):
                problem = "has no row" if kind is None else "has a documented row"
                yield f"{record['file']} was scanned and {problem}: run scripts/derive_rows.py"

    # ---- against the index

    def missing(self, wheels: Wheels) -> Iterator[str]:
        """Yield the releases of the index in scope without a record: "torch 2.15.0 on ..."."""
        for scope in self.scopes:
            platform = scope["platform"]
            for name in scope["distributions"]:
                scanned = self._scanned_versions(name, platform)
                for version in _versions_in_scope(scope, wheels(name)):
                    # The index may have a newer release of the line than this list of wheels.
                    superseded = scope.get("lines") and _has_newer_of_line(scanned, version)
                    if version not in scanned and not superseded:
                        yield f"{name} {version} on {platform}"

    def _scanned_versions(self, name: str, platform: str) -> set[str]:
        records = self.records.get(name, [])
        return {record["version"] for record in records if platform_of(record["file"]) == platform}

    def unlisted(self, wheels: Wheels) -> list[str]:
        """Return the distributions in scope that the index does not have."""
        names: set[str] = set()
        for scope in self.scopes:
            names.update(scope["distributions"])
        return sorted(name for name in names if not wheels(name))


def read_scopes(folder: str) -> list[dict[str, Any]]:
    """Return every [[scan]] row of scans.toml and of frameworks/*.toml in a folder of the data.

    Raises:
        DataError: a file is damaged.
    """
    frameworks = os.path.join(folder, "frameworks")
    paths = [os.path.join(folder, "scans.toml")]
    paths += [os.path.join(frameworks, f"{name}.toml") for name in _names_in(frameworks, ".toml")]
    scopes: list[dict[str, Any]] = []
    for path in paths:
        scopes += read_toml(path).get("scan", [])
    return scopes


def _is_record(record: object) -> bool:
    return isinstance(record, dict) and record.keys() >= _RECORD_FIELDS


def _any_matches(paths: Iterable[str], patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(path, pattern) for path in paths for pattern in patterns)


def _versions_in_scope(scope: Document, wheels: Iterable[Wheel]) -> list[str]:
    """Return the versions that need a record, newest first."""
    since = version_key(scope["since"])
    in_scope: set[str] = set()
    for wheel in wheels:
        right_file = wheel.index == DEFAULT and platform_of(wheel.filename) == scope["platform"]
        if not right_file or is_prerelease(wheel.version):
            continue
        if version_key(wheel.version) >= since:
            in_scope.add(wheel.version)
    versions = sorted(in_scope, key=version_key, reverse=True)
    if scope.get("lines"):  # only the newest of each major.minor
        newest: dict[tuple[str, ...], str] = {}
        for version in versions:
            newest.setdefault(_line(version), version)
        versions = list(newest.values())
    return versions


def _line(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])


def _has_newer_of_line(versions: Iterable[str], version: str) -> bool:
    same_line = [other for other in versions if _line(other) == _line(version)]
    return any(version_key(other) > version_key(version) for other in same_line)


def _against_index(records: Iterable[Document], wheels: Iterable[Wheel]) -> Iterator[str]:
    hashes = {wheel.filename: wheel.sha256 for wheel in wheels if wheel.index == DEFAULT}
    for record in records:
        if hashes.get(record["file"], record["sha256"]) != record["sha256"]:
            yield f"{record['file']} was scanned with another sha256 than the index has"


def _names_in(folder: str, suffix: str) -> list[str]:
    names = sorted(os.listdir(folder))
    return [name.removesuffix(suffix) for name in names if name.endswith(suffix)]
