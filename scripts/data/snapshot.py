"""Build the index snapshot, the dated copy of what the indexes say about the frameworks.

    python scripts/tools.py data snapshot [--date YYYY-MM-DD]

It asks the default index that pip is configured with for the pages of the frameworks that
matrix_data names, walks the closure of everything that their wheels can need on a supported
interpreter and platform, reads their METADATA and sizes, and writes one JSON file for each package
below matrix_data/snapshot/default. snapshot_scope.py chooses the releases. File locations are kept
relative to the index's file store. The builds of the PyTorch index are written too
(pytorch_builds.py), and index.json last. What was read is in gpuenv's cache by the wheel's sha256,
so that an interrupted run goes on where it ended; the same input gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from argparse import Namespace
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from data import pytorch_builds
from data.compile import DATA
from data.index import DefaultIndex, say, targets
from data.snapshot_scope import Chooser, Scope, read_scope
from gpuenv.atomic_write import write_whole
from gpuenv.compat.catalog import platform_of
from gpuenv.errors import UnusableFileError
from gpuenv.index.protocol import Metadata
from gpuenv.index.snapshot import Snapshot
from gpuenv.model import Requirement, Wheel
from gpuenv.requirements.target import version_key, wheel_tags

THREADS = 8
Requires = Mapping[str | None, tuple[Requirement, ...]]  # by the sha256 of a wheel

# ---- finding releases ----------------------------------------------------------------------------


@cache
def is_possible(marker: str, extras: tuple[str, ...]) -> bool:
    """Return whether a marker holds on any supported target."""
    return any(target.marker(marker, extras) for target in targets())


class Walk:
    """Finds the releases to keep, by walking from the roots until nothing new is needed.

    Args:
        index: the default index.
        scope: the roots.
        also: further requirements (the pins of the PyTorch index).
    """

    def __init__(self, index: DefaultIndex, scope: Scope, also: Iterable[Requirement]) -> None:
        self.index, self.scope = index, scope
        self.pages: dict[str, list[Wheel]] = {}
        self.requires: dict[str | None, tuple[Requirement, ...]] = {}
        self.pythons: dict[str | None, str | None] = {}  # Requires-Python, which a page may lack
        self.kept: dict[str, set[str]] = defaultdict(set)
        self.wanted: dict[str, set[str]] = defaultdict(set)  # the specifiers of a package
        self.extras: dict[str, set[str]] = defaultdict(set)
        self.surveyed: set[str] = set()  # packages of which every release's METADATA is read
        for name, specifier in scope.roots.items():
            self.wanted[name].add(specifier)
        for requirement in (*scope.requirements, *also):
            self.want(requirement)

    def want(self, requirement: Requirement) -> None:
        """Record that releases of a package are needed."""
        self.wanted[requirement.name].add(requirement.specifier)
        self.extras[requirement.name].update(requirement.extras)

    def run(self) -> None:
        """Follow all requirements."""
        before: tuple[int, ...] = ()
        while before != (before := self.extent()):
            names = sorted(self.wanted)
            with ThreadPoolExecutor(THREADS) as pool:
                new = [name for name in names if name not in self.pages]
                self.pages.update(zip(new, pool.map(self.index.wheels, new), strict=True))
                chooser = Chooser(self.scope, self.pages, self.requires)
                for name in names:
                    kept, missing = chooser.choose(name, self.wanted[name], self.extras[name])
                    self.kept[name] |= kept
                    if missing:
                        self.surveyed.add(name)
                self.read(pool, [w for name in sorted(self.surveyed) for w in self.pages[name]])
                self.read(pool, [wheel for name in names for wheel in self.files(name)])
            for name in names:
                self.follow(name)

    def extent(self) -> tuple[int, ...]:
        """Return the progress: numbers that only grow."""
        tables = (self.wanted, self.extras, self.kept)
        counts = [sum(map(len, table.values())) for table in tables]
        return len(self.wanted), *counts, len(self.surveyed)

    def read(self, pool: ThreadPoolExecutor, wheels: Iterable[Wheel]) -> None:
        """Read METADATA. One wheel stands for those of its release and platform.

        Of the frameworks each wheel is read: torch's has differed between wheels of one version.
        """
        groups: dict[tuple[str, ...], list[Wheel]] = {}
        for wheel in wheels:
            is_root = wheel.name in self.scope.roots
            part = wheel.filename if is_root else platform_of(wheel.filename)
            groups.setdefault((wheel.name, wheel.version, part), []).append(wheel)
        todo = [group for group in groups.values() if group[0].sha256 not in self.requires]
        say(f"{len(self.pages)} packages, {len(groups)} groups of wheels, {len(todo)} to read")
        firsts = [group[0] for group in todo]
        for group, metadata in zip(todo, pool.map(self.metadata, firsts), strict=True):
            requires = tuple(need for need in metadata.dependencies if need.url is None)
            for wheel in group:
                self.requires[wheel.sha256] = requires
                self.pythons[wheel.sha256] = wheel.requires_python or metadata.requires_python

    def metadata(self, wheel: Wheel) -> Metadata:
        """Return the METADATA of a wheel; nothing of one that cannot be used."""
        try:
            return self.index.reader.metadata(wheel)
        except UnusableFileError as error:
            say(f"{wheel.filename}: {error}")
            return Metadata()

    def files(self, name: str) -> list[Wheel]:
        """Return the wheels of the kept releases."""
        return [wheel for wheel in self.pages[name] if wheel.version in self.kept[name]]

    def left_out(self, name: str) -> list[str]:
        """Return the omitted releases between kept ones that a target could take.

        A range that ends there needs the live index.
        """
        kept = sorted(map(version_key, self.kept[name]))
        offered = dict.fromkeys(w.version for w in self.pages[name] if w.yanked is None)
        return [
            version
            for version in offered
            if version not in self.kept[name] and kept[0] < version_key(version) < kept[-1]
        ]

    def follow(self, name: str) -> None:
        """Record the requirements of the kept releases of a package."""
        extras = tuple(sorted(self.extras[name]))
        for need in {need for wheel in self.files(name) for need in self.requires[wheel.sha256]}:
            if need.marker is None or is_possible(need.marker, extras):
                self.want(need)


# ---- writing -------------------------------------------------------------------------------------


def package_text(head: Mapping[str, Any], wheels: Iterable[Wheel], requires: Requires) -> str:
    """Return a package as JSON, with one file or one metadata on each line.

    A new release changes few lines. `wheels` are ascending; those of equal tags are written
    together.
    """
    versions = list(dict.fromkeys(wheel.version for wheel in wheels))
    pythons = sorted({wheel.requires_python for wheel in wheels if wheel.requires_python})
    metadata: dict[str, int] = {}
    groups: dict[str, list[str]] = {}
    for wheel in wheels:
        texts = list(dict.fromkeys(map(requirement_text, requires[wheel.sha256])))
        row = [
            versions.index(wheel.version),
            wheel.filename,
            os.path.dirname(urlsplit(wheel.url).path).strip("/"),
            wheel.sha256,
            wheel.size,
            pythons.index(wheel.requires_python) if wheel.requires_python else None,
            wheel.yanked,
            None,  # the upload time: --exclude-newer asks the index itself
            metadata.setdefault(compact(texts), len(metadata)),
        ]
        groups.setdefault(wheel_tags(wheel.filename), []).append(compact(row))
    fields = [f'"{key}":{compact(value)}' for key, value in {**head, "versions": versions}.items()]
    fields.append(f'"requires_python":{compact(pythons)}')
    fields.append('"metadata":[\n' + ",\n".join(metadata) + "\n]")
    files = [f'"{tags}":[\n' + ",\n".join(rows) + "\n]" for tags, rows in sorted(groups.items())]
    fields.append('"files":{\n' + ",\n".join(files) + "\n}")
    return "{\n" + ",\n".join(fields) + "\n}\n"


def requirement_text(need: Requirement) -> str:
    """Return a requirement as packaging writes it."""
    extras = f"[{','.join(need.extras)}]" if need.extras else ""
    marker = f"; {need.marker}" if need.marker else ""
    return f"{need.name}{extras}{need.specifier}{marker}"


def compact(value: object) -> str:
    """Return JSON without spaces, ASCII only."""
    return json.dumps(value, separators=(",", ":"))


def write_packages(folder: Path, texts: Mapping[str, str]) -> None:
    """Write the files of packages, in place of those of an earlier run."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.json"):
        if path.stem not in texts:
            path.unlink()
    for name, text in texts.items():
        write_whole(str(folder / f"{name}.json"), text.encode())


def write_index(folder: Path, date: str) -> None:
    """Write index.json of the snapshot in a folder."""
    digest = hashlib.sha256()
    counts = {}
    for path in sorted(folder.glob("*/*.json")):
        content = path.read_bytes()
        name = path.relative_to(folder).as_posix()
        digest.update(name.encode() + b"\0" + content)
        package = json.loads(content)
        files = sum(map(len, package["files"].values()))
        counts[name.removesuffix(".json")] = {"versions": len(package["versions"]), "files": files}
    index = {"date": date, "version": f"{date}+{digest.hexdigest()[:12]}", "packages": counts}
    write_whole(str(folder / "index.json"), (json.dumps(index, indent=1) + "\n").encode())


def write_pytorch(data: Path) -> None:
    """Write the builds of the PyTorch index into the snapshot of a folder of the data."""
    folder = data / "snapshot"
    snapshot, texts = Snapshot(str(folder), ""), {}
    for name, (sources, wheels, needs) in pytorch_builds.packages(data, snapshot).items():
        head = {"name": name, "index": pytorch_builds.INDEX, "sources": sources}
        texts[name] = package_text(head, wheels, needs)
    write_packages(folder / "pytorch", texts)
    write_index(folder, snapshot.date)


ARGUMENTS = {
    "--folder": {"type": Path, "default": DATA},
    "--date": {"help": "the snapshot's date (default: today)"},
}


def main(options: Namespace) -> int:
    """Build the snapshot."""
    index = DefaultIndex()
    walk = Walk(index, read_scope(options.folder), pytorch_builds.pins(options.folder))
    walk.run()
    texts = {}
    with ThreadPoolExecutor(THREADS) as pool:
        for name in sorted(walk.pages):
            wheels = walk.files(name)
            sizes = pool.map(index.reader.size, wheels)
            complete = [
                wheel.replace(size=size, requires_python=walk.pythons[wheel.sha256])
                for wheel, size in zip(wheels, sizes, strict=True)
            ]
            head = {"name": name, "index": "default", "left_out": walk.left_out(name)}
            if complete:
                texts[name] = package_text(head, complete, walk.requires)
            else:
                say(f"no wheel of {name} serves a supported target")
    snapshot = options.folder / "snapshot"
    write_packages(snapshot / "default", texts)
    write_index(snapshot, options.date or datetime.now(UTC).date().isoformat())
    write_pytorch(options.folder)
    return 0
