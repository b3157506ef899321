"""Scan every release that a [[scan]] row asks for and that matrix_data/scans/ lacks.

    python scripts/tools.py data scan-releases --cache DIR [--jobs N] [--dry-run] [DISTRIBUTION ...]

Each record (scan_wheel.py) goes into matrix_data/scans/<distribution>.json as soon as it is made,
so that an interrupted run goes on where it ended. The files have one row of libraries a line: a
diff shows what changed. Exit status: 0 done, 1 a wheel could not be read.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tomllib
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path
from typing import Any

from packaging.utils import parse_wheel_filename
from packaging.version import Version

from common import ROOT
from data.device_code import DamagedFileError
from data.registry import Registry, simple_url, write
from data.scan_wheel import scan_source

DATA = str(ROOT / "matrix_data")


def platform_of(file: str) -> str:
    """Return linux-x86_64, linux-aarch64 or win-amd64, by a wheel's file name; "" for any."""
    tag = file[:-4].rpartition("-")[2]
    for machine in ("x86_64", "aarch64"):
        if machine in tag:
            return f"linux-{machine}"
    return "win-amd64" if "win_amd64" in tag else ""


@cache
def scopes(folder: str | Path) -> list[dict[str, Any]]:
    """Return every [[scan]] row of scans.toml and of frameworks/*.toml.

    `carriers` has the carriers of the framework's ways, but for builds that are documented.
    """
    rows: list[dict[str, Any]] = []
    for path in [Path(folder) / "scans.toml", *sorted(Path(folder).glob("frameworks/*.toml"))]:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
        ways = [way for way in data.get("way", []) if "local" not in way]
        carriers = [name for way in ways for name in way.get("carriers", [])]
        rows += [{**row, "carriers": carriers} for row in data.get("scan", [])]
    return rows


def wanted(
    scope: dict[str, Any], registry: Registry, only: Iterable[str] = ()
) -> list[dict[str, Any]]:
    """Return the wheels to scan (see `registry.read_anchor`), newest first in each distribution."""
    chosen: list[dict[str, Any]] = []
    pages: dict[str, list[dict[str, Any]]] = {}
    for row in scope["scan"]:
        for name in row["distributions"]:
            if only and name not in only:
                continue
            if name not in pages:
                pages[name] = registry.files(name)
            releases: dict[Version, list[dict[str, Any]]] = {}
            for wheel in pages[name]:
                version = Version(wheel["version"])
                if platform_of(wheel["filename"]) == row["platform"] and version >= Version(
                    row["since"]
                ):
                    releases.setdefault(version, []).append(wheel)
            versions = sorted(releases, reverse=True)
            if row.get("lines"):
                versions = list(
                    {version.release[:2]: version for version in reversed(versions)}.values()
                )
            chosen += [
                {**best(releases[version], scope["interpreters"]), "name": name}
                for version in versions
            ]
    return chosen


def best(wheels: list[dict[str, Any]], interpreters: list[str]) -> dict[str, Any]:
    """Return the wheel of a release to scan: of the first listed interpreter, the newest build."""

    def place(wheel: dict[str, Any]) -> tuple[Any, ...]:
        _, _, build, tags = parse_wheel_filename(wheel["filename"])
        names = [
            interpreters.index(tag.interpreter) for tag in tags if tag.interpreter in interpreters
        ]
        free_threaded = any(tag.abi.endswith("t") for tag in tags)
        return (
            free_threaded,
            min(names, default=len(interpreters)),
            [-number for number in build[:1]],
            wheel["filename"],
        )

    return min(wheels, key=place)


class Scans:
    """The records of matrix_data/scans/, one file a distribution."""

    def __init__(self, folder: str) -> None:
        """Use a folder, which is made when something is written."""
        self.folder = folder
        self._records: dict[str, list[dict[str, Any]]] = {}

    def of(self, name: str) -> list[dict[str, Any]]:
        """Return the records of a distribution, sorted by version and file name."""
        if name not in self._records:
            path = os.path.join(self.folder, name + ".json")
            self._records[name] = []
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    self._records[name] = json.load(file)["scans"]
        return self._records[name]

    def names(self) -> list[str]:
        """Return the distributions of which there are records."""
        if not os.path.isdir(self.folder):
            return []
        return sorted(
            name[: -len(".json")] for name in os.listdir(self.folder) if name.endswith(".json")
        )

    def put(self, record: dict[str, Any]) -> None:
        """Add a record, or replace the record of the same file."""
        name = record["name"]
        kept = [row for row in self.of(name) if row["file"] != record["file"]] + [record]
        kept.sort(key=lambda row: (Version(row["version"]), row["file"]))
        self._records[name] = kept
        write(os.path.join(self.folder, name + ".json"), dump(name, kept))


def dump(name: str, records: list[dict[str, Any]]) -> str:
    """Return the text of a file of records: a line for each wheel, then a line for each row."""
    texts = []
    for record in records:
        head = json.dumps({key: value for key, value in record.items() if key != "libraries"})
        rows = ",\n".join("   " + json.dumps(row) for row in record["libraries"])
        texts.append(
            f'  {head[:-1]}, "libraries": [\n{rows}\n  ]}}'
            if rows
            else f'  {head[:-1]}, "libraries": []}}'
        )
    return (
        f'{{\n "distribution": {json.dumps(name)},\n "scans": [\n' + ",\n".join(texts) + "\n ]\n}\n"
    )


def scan_wheel(wheel: dict[str, Any], cache: str | None) -> dict[str, Any]:
    """Return one record. This runs in a process of its own."""
    return scan_source(f"{wheel['url']}#sha256={wheel['sha256']}", cache)


def without_scan(wheels: list[dict[str, Any]], scans: Scans) -> list[dict[str, Any]]:
    """Return the wheels that have no record yet."""
    return [
        wheel
        for wheel in wheels
        if not any(have["file"] == wheel["filename"] for have in scans.of(wheel["name"]))
    ]


def scan_missing(wheels: list[dict[str, Any]], scans: Scans, cache: str, jobs: int) -> list[str]:
    """Scan the wheels that have no record yet; the errors of those that cannot be read."""
    todo = without_scan(wheels, scans)
    errors = []
    with ProcessPoolExecutor(jobs) as pool:
        running = {pool.submit(scan_wheel, wheel, cache): wheel for wheel in todo}
        for number, future in enumerate(as_completed(running), 1):
            try:
                scans.put(future.result())
            except (DamagedFileError, OSError) as error:
                errors.append(f"{running[future]['filename']}: {error}")
            print(f"{number} of {len(todo)}", file=sys.stderr, flush=True)
    return errors


def main(words: list[str]) -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("distributions", nargs="*", metavar="DISTRIBUTION")
    parser.add_argument(
        "--cache", default=".scan-cache", help="folder for what was read from wheels"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--dry-run", action="store_true", help="only name the wheels that lack a scan"
    )
    options = parser.parse_args(words)
    scope = tomllib.loads((Path(DATA) / "scans.toml").read_text(encoding="utf-8")) | {
        "scan": scopes(DATA)
    }
    scans = Scans(os.path.join(DATA, "scans"))
    wheels = wanted(
        scope,
        Registry(simple_url(), os.path.join(options.cache, "metadata")),
        options.distributions,
    )
    if options.dry_run:
        for wheel in without_scan(wheels, scans):
            print(wheel["filename"])
        return 0
    errors = scan_missing(wheels, scans, options.cache, options.jobs)
    for error in errors:
        print(f"error: {error}", file=sys.stderr)
    return 1 if errors else 0
