"""The records of matrix_data/scans: what was read from each wheel that a [[scan]] row asks for.

scans/<distribution>.json has a line for each wheel and then one for each row of libraries, so that
a diff shows what changed. A record has `name`, what gpuenv.binaries.rows.read_record returns, and
`owns`: how many files the wheel installs into each folder, in the shared folder nvidia by file.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import parse_wheel_filename

from common import read_json
from data.index import DefaultIndex, say
from gpuenv.atomic_write import write_whole
from gpuenv.binaries.rows import read_record
from gpuenv.binaries.wheel import opened
from gpuenv.compat.catalog import platform_of
from gpuenv.compat.rows import read_scopes
from gpuenv.model import Wheel
from gpuenv.requirements.target import version_key
from gpuenv.serialize import read_toml

Record = dict[str, Any]


class Scans:
    """The records in a folder of the data."""

    def __init__(self, data: Path) -> None:
        self.data, self.folder = data, data / "scans"
        self._records: dict[str, list[Record]] = {}

    def names(self) -> list[str]:
        """Return the distributions that have records."""
        return sorted(path.stem for path in self.folder.glob("*.json"))

    def of(self, name: str) -> list[Record]:
        """Return the records of a distribution, sorted by version and file name."""
        if name not in self._records:
            content = read_json(self.folder / f"{name}.json", {"scans": []})
            self._records[name] = content["scans"]
        return self._records[name]

    def put(self, record: Record) -> None:
        """Write a record, in place of that of the same file."""
        name = record["name"]
        records = [row for row in self.of(name) if row["file"] != record["file"]] + [record]
        records.sort(key=lambda row: (version_key(row["version"]), row["file"]))
        self._records[name] = records
        self.folder.mkdir(exist_ok=True)
        write_whole(str(self.folder / f"{name}.json"), as_text(name, records).encode())

    def missing(self, index: DefaultIndex, names: Iterable[str]) -> Iterator[Wheel]:
        """Yield the wheels without a record that the [[scan]] rows ask for.

        They are the newest first in each distribution.

        Args:
            index: the index.
            names: the distributions; () is all of them.

        Raises:
            PackageIndexError: the index did not answer.
        """
        interpreters = interpreters_of(self.data)
        for scope in read_scopes(str(self.data)):
            for name in scope["distributions"]:
                if names and name not in names:
                    continue
                releases: dict[str, list[Wheel]] = {}
                for wheel in index.wheels(name):
                    is_new = version_key(wheel.version) >= version_key(scope["since"])
                    if is_new and platform_of(wheel.filename) == scope["platform"]:
                        releases.setdefault(wheel.version, []).append(wheel)
                newest = list(releases)
                if scope.get("lines"):  # only the newest release of each major.minor
                    lines = {version_key(version).release[:2]: version for version in releases}
                    newest = list(lines.values())
                known = {record["file"] for record in self.of(name)}
                for version in reversed(newest):
                    wheel = best(releases[version], interpreters)
                    if wheel.filename not in known:
                        yield wheel


def as_text(name: str, records: Iterable[Record]) -> str:
    """Return the text of a file of records."""
    texts = []
    for record in records:
        head = json.dumps({key: value for key, value in record.items() if key != "libraries"})
        rows = ",\n".join(f"   {json.dumps(row)}" for row in record["libraries"])
        rows = f"\n{rows}\n  " if rows else ""
        texts.append(f'  {head[:-1]}, "libraries": [{rows}]}}')
    return f'{{\n "distribution": "{name}",\n "scans": [\n' + ",\n".join(texts) + "\n ]\n}\n"


def interpreters_of(data: Path) -> list[str]:
    """Return the interpreters whose wheels are read, the best first."""
    interpreters: list[str] = read_toml(str(data / "scans.toml"))["interpreters"]
    return interpreters


def best(wheels: Iterable[Wheel], interpreters: list[str]) -> Wheel:
    """Return the wheel of a release to read: of the first interpreter, the newest build.

    Of several, the largest one: those for old systems may be without device code (xgboost).
    """

    def place(wheel: Wheel) -> tuple[Any, ...]:
        _, _, build, tags = parse_wheel_filename(wheel.filename)
        places = [interpreters.index(t.interpreter) for t in tags if t.interpreter in interpreters]
        is_free_threaded = any(tag.abi.endswith("t") for tag in tags)
        first = min(places, default=len(interpreters))
        number = [-number for number in build[:1]]
        return is_free_threaded, first, number, -(wheel.size or 0), wheel.filename

    return min(wheels, key=place)


def scan(index: DefaultIndex, wheel: Wheel) -> Record:
    """Return the record of a wheel. One of UNREADABLE is raised if it cannot be read."""
    with index.open(wheel) as file:
        facts = read_record(
            file, wheel.filename, sha256=wheel.sha256 or "", patterns=["*"], progress=say
        )
        with opened(file) as archive:
            paths = archive.namelist()
    head: Mapping[str, Any] = {"name": wheel.name, **facts, "version": wheel.version}
    return {**head, "owns": owned(paths)}


def owned(paths: Iterable[str]) -> dict[str, int]:
    """Return {folder, with a slash at its end, or file: how many files of a wheel are in it}."""
    rows: Counter[str] = Counter()
    for installed in paths:
        path = re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", installed)
        top, slash, _ = path.partition("/")
        if path.endswith("/") or top.endswith((".dist-info", ".data")):
            continue
        if top != "nvidia":  # a folder that several distributions install into
            rows[top + slash] += 1
        elif "/include/" in path or path.endswith((".h", ".hpp", ".py")):
            rows[path.rpartition("/")[0] + "/"] += 1
        else:
            rows[path] += 1
    return dict(sorted(rows.items()))
