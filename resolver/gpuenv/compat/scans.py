"""What was read from wheels (scans/*.json, in a checkout only), held against the rows and against the index."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from ..errors import DataError
from ..model import Wheel
from ..requirements.target import is_prerelease, version_key
from .catalog import Wheels, platform_of
from .data import CompatibilityData
from .rows import read, read_toml

DEFAULT = "default"  # the index whose wheels are scanned


class Scans:
    """The records of scans/ and the [[scan]] rows that say which wheels should have one. DataError if damaged."""

    def __init__(self, matrix: CompatibilityData) -> None:
        self.matrix, self.folder = matrix, matrix.folder
        self.records = {name: self._records(name) for name in _listed(os.path.join(self.folder, "scans"), ".json")}

    @classmethod
    def beside(cls, matrix: CompatibilityData) -> Scans | None:
        """The scans of a checkout; None for an installed package, which does not carry them."""
        paths = [os.path.join(matrix.folder, name) for name in ("scans", "scans.toml")]
        return cls(matrix) if all(map(os.path.exists, paths)) else None

    def _records(self, name: str) -> list[dict[str, Any]]:
        path = os.path.join(self.folder, "scans", f"{name}.json")
        records = read(path).get("scans")
        fields = {"version", "file", "sha256", "libraries"}
        if not isinstance(records, list) or not all(isinstance(one, dict) and fields <= {*one} for one in records):
            raise DataError(f"{path}: scans is no list of records with {', '.join(sorted(fields))}")
        return records

    @cached_property
    def scopes(self) -> list[dict[str, Any]]:
        """Every [[scan]] row of scans.toml and frameworks/*.toml."""
        folder = os.path.join(self.folder, "frameworks")
        files = [os.path.join(folder, name + ".toml") for name in _listed(folder, ".toml")]
        files.insert(0, os.path.join(self.folder, "scans.toml"))
        return [row for path in files for row in read_toml(path).get("scan", [])]

    def counts(self) -> tuple[tuple[str, int], ...]:
        """(distribution, wheels scanned), in alphabetical order."""
        return tuple((name, len(records)) for name, records in sorted(self.records.items()))

    # ---- against the rows

    def contradictions(self, wheels: Wheels | None) -> Iterator[str]:
        """Where a row does not say what the record of its wheel says, or the index has another file of that name."""
        frameworks = filter(None, map(self.matrix.framework, self.matrix.frameworks()))
        tables = {one.distribution: self._rows("frameworks", one.name, "builds") for one in frameworks}
        tables |= {name: self._rows("libraries", name, "releases") for name in self.matrix.libraries()}
        for name, rows in tables.items():
            files = {one["file"]: one for one in self.records.get(name, [])}
            for row in rows:
                if row["evidence"] == "scanned":
                    yield from self._against(name, row, files.get(row["file"]))
        for name, records in self.records.items():
            yield from self._unused(name, records, tables.get(name, []))
            yield from _against_index(records, wheels(name) if wheels else ())

    def _rows(self, folder: str, name: str, table: str) -> list[dict[str, Any]]:
        path = os.path.join(self.folder, folder, f"{name}.json")
        return read(path)[table] if os.path.exists(path) else []

    def _against(self, name: str, row: Mapping[str, Any], record: Mapping[str, Any] | None) -> Iterator[str]:
        subject = f"{name} {row['version']} on {row['platform']}"
        if record is None:
            yield f"{subject} was scanned from {row['file']}, of which there is no record"
            return
        if row["sha256"] != record["sha256"]:
            yield f"{subject} has another sha256 than the record of {row['file']}"
        if row["version"] != record["version"]:
            yield f"{subject} was scanned from {row['file']}, which is {record['version']}"
        sass, ptx = self._carried(name, record)
        said = {*(row["sass"] or ()), *row.get("some", ())}
        for target in sorted(said - sass):
            yield f"{subject} has sm_{target}, which the record of {row['file']} lacks"
        for target in sorted(sass - said):
            yield f"{subject} lacks sm_{target}, which the record of {row['file']} has"
        for target in sorted({*(row["ptx"] or ())} - ptx):
            yield f"{subject} has compute_{target}, which the record of {row['file']} lacks"

    def _carried(self, name: str, record: Mapping[str, Any]) -> tuple[set[str], set[str]]:
        """The SASS and PTX targets of the libraries that count, be they in few fat binaries or in all."""
        platform = platform_of(record["file"])
        scope = next((one for one in self.scopes if name in one["distributions"] and one["platform"] == platform), {})
        patterns = scope.get("files", ["*"])
        count = [
            row for row in record["libraries"]
            if any(fnmatch.fnmatchcase(path, pattern) for path in row["paths"] for pattern in patterns)
        ]  # fmt: skip
        return {target for row in count for target in row["sass"]}, {one[0] for row in count for one in row["ptx"]}

    def _unused(self, name: str, records: list[dict[str, Any]], rows: list[dict[str, Any]]) -> Iterator[str]:
        """Records of device code without a row, and rows that a document made although there is a record."""
        own = [row for row in rows if row.get("index", DEFAULT) == DEFAULT]
        kinds = {(row["version"], row["platform"]): row["evidence"] for row in own}
        for record in records:
            kind = kinds.get((record["version"], platform_of(record["file"])))
            if kind != "scanned" and any(self._carried(name, record)):
                what = "has no row" if kind is None else "has a documented row"
                yield f"{record['file']} was scanned and {what}: run scripts/derive_rows.py"

    # ---- against the index

    def missing(self, wheels: Wheels) -> Iterator[str]:
        """The releases of the index that a [[scan]] row names and that have no record: "torch 2.15.0 on ..."."""
        for scope in self.scopes:
            for name in scope["distributions"]:
                have = {(one["version"], platform_of(one["file"])) for one in self.records.get(name, [])}
                for version in _wanted(scope, wheels(name)):
                    # Of a line the index may have a newer release by now than this list of wheels.
                    newer = scope.get("lines") and any(
                        _line(one) == _line(version) and version_key(one) > version_key(version)
                        for one, platform in have
                        if platform == scope["platform"]
                    )
                    if (version, scope["platform"]) not in have and not newer:
                        yield f"{name} {version} on {scope['platform']}"

    def unlisted(self, wheels: Wheels) -> list[str]:
        """The distributions that a [[scan]] row names and that the index does not have."""
        names = {name for scope in self.scopes for name in scope["distributions"]}
        return sorted(name for name in names if not wheels(name))


def _wanted(scope: Mapping[str, Any], wheels: Iterable[Wheel]) -> list[str]:
    """The versions to have a record of, newest first."""
    since = version_key(scope["since"])
    found = {
        wheel.version for wheel in wheels
        if wheel.index == DEFAULT and platform_of(wheel.filename) == scope["platform"]
        and version_key(wheel.version) >= since and not is_prerelease(wheel.version)
    }  # fmt: skip
    versions = sorted(found, key=version_key, reverse=True)
    if scope.get("lines"):  # only the newest of each major.minor
        lines = {_line(version): version for version in reversed(versions)}
        versions = [version for version in versions if version in lines.values()]
    return versions


def _line(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])


def _against_index(records: list[dict[str, Any]], wheels: Iterable[Wheel]) -> Iterator[str]:
    known = {wheel.filename: wheel.sha256 for wheel in wheels if wheel.index == DEFAULT}
    for record in records:
        if known.get(record["file"], record["sha256"]) != record["sha256"]:
            yield f"{record['file']} was scanned with another sha256 than the index has"


def _listed(folder: str, suffix: str) -> list[str]:
    return sorted(name.removesuffix(suffix) for name in os.listdir(folder) if name.endswith(suffix))
