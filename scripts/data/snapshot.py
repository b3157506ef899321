"""Build the index snapshot, the dated copy of what the indexes say about the frameworks.

    python scripts/tools.py data snapshot --cache DIR [--date YYYY-MM-DD]
    python scripts/tools.py data snapshot --pytorch-only
    python scripts/tools.py data snapshot --index-only

It asks the default index that pip is configured with for the pages of the frameworks that
matrix_data names, walks the closure of everything that their wheels can need on a supported
interpreter and platform, reads each wheel's METADATA and size by range requests, and writes one
JSON file for each package under matrix_data/snapshot/default. Which releases are kept is
snapshot_scope.py's business. File locations are kept relative to the index's file store. The builds
of the PyTorch index are written too (snapshot_pytorch.py); with --pytorch-only nothing else
changes. index.json is written last. What was read is kept in the cache folder by the wheel's
sha256, so an interrupted run goes on where it ended; the same input gives the same bytes.
"""

from __future__ import annotations

import argparse
import datetime
import glob
import hashlib
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from common import ROOT
from data import snapshot_pytorch
from data.registry import Registry, environments, simple_url, write
from data.snapshot_scope import Needs, Scope, choose, parsed, scope

DATA = str(ROOT / "matrix_data")
SNAPSHOT = os.path.join(DATA, "snapshot")

# ---- finding releases ----------------------------------------------------------------------------


def normalized(text: str) -> str | None:
    """Return a Requires-Dist line as packaging writes it, with normalized names.

    None for a direct reference or an invalid line.
    """
    requirement = parsed(text)
    if requirement is None:
        return None
    extras = ",".join(sorted(canonicalize_name(extra) for extra in requirement.extras))
    marker = f"; {requirement.marker}" if requirement.marker else ""
    return (
        canonicalize_name(requirement.name)
        + (f"[{extras}]" if extras else "")
        + f"{requirement.specifier}{marker}"
    )


@cache
def possible(marker: str, extras: tuple[str, ...]) -> bool:
    """Return whether a marker holds on any supported target."""
    return any(environment.marker(marker, extras) for environment in environments())


def group(wheel: dict[str, Any], roots: Container[str]) -> tuple[str, str, str]:
    """Return the group of a wheel: its version's wheels for one platform, which share METADATA.

    The frameworks' own are read file by file, because torch's has differed between wheels of one
    version.
    """
    name, platform = (
        canonicalize_name(wheel["filename"].split("-")[0]),
        wheel["filename"].rpartition("-")[2],
    )
    if name in roots:
        return name, wheel["version"], wheel["filename"]
    return (
        name,
        wheel["version"],
        next((p for p in ("aarch64", "x86_64", "win_amd64") if p in platform), "any"),
    )


class Walk:
    """Finds the releases to keep, by walking from the roots until nothing new is needed."""

    def __init__(self, registry: Registry, where: Scope, also: Iterable[str]) -> None:
        """`also` are requirement texts that are needed as well (the PyTorch index's pins)."""
        self.registry, self.scope = registry, where
        self.pages: dict[str, list[dict[str, Any]]] = {}
        self.kept: dict[str, set[str]] = defaultdict(set)
        self.wanted: dict[str, set[str]] = defaultdict(set)
        self.extras: dict[str, set[str]] = defaultdict(set)
        self.surveyed: set[str] = set()  # packages of which every release's METADATA is read
        self.facts: dict[str, dict[str, Any]] = {}
        self.walked: set[tuple[str, tuple[str, ...]]] = set()
        for name, specifier in where.roots.items():
            self.wanted[name].add(specifier)
        for requirement in (*where.requirements, *map(Requirement, also)):
            self.want(requirement)

    def want(self, requirement: Requirement) -> None:
        """Record that releases of a package are needed."""
        name = canonicalize_name(requirement.name)
        self.wanted[name].add(str(requirement.specifier))
        self.extras[name].update(map(canonicalize_name, requirement.extras))

    def run(self) -> None:
        """Follow all requirements."""
        before = None
        while before != (before := self.extent()):
            names = sorted(self.wanted)
            with ThreadPoolExecutor(8) as pool:
                new = [name for name in names if name not in self.pages]
                self.pages.update(zip(new, pool.map(self.registry.files, new), strict=True))
                for name in names:
                    self.choose(name)
                self.read(
                    [wheel for name in sorted(self.surveyed) for wheel in self.pages[name]],
                    pool,
                    sizes=False,
                )
                self.read([wheel for name in names for wheel in self.files(name)], pool)
            for name in names:
                self.follow(name)

    def extent(self) -> tuple[int, ...]:
        """Return the progress: numbers that only grow."""
        counted = (self.wanted, self.extras, self.kept)
        return (
            len(self.wanted),
            *(sum(map(len, table.values())) for table in counted),
            len(self.surveyed),
        )

    def choose(self, name: str) -> None:
        """Record the releases to keep, and whether the choice needs all METADATA of the package."""
        kept, missing = choose(
            self.scope, Needs(self.pages), name, self.wanted[name], self.extras[name]
        )
        self.kept[name] |= kept
        if missing:
            self.surveyed.add(name)

    def read(
        self, wheels: list[dict[str, Any]], pool: ThreadPoolExecutor, sizes: bool = True
    ) -> None:
        """Add Requires-Dist, Requires-Python and sizes to wheels. One METADATA serves a group."""
        roots = self.scope.roots
        firsts = {group(wheel, roots): wheel["sha256"] for wheel in reversed(wheels)}
        leading = set(firsts.values())
        wanted = wheels if sizes else [wheel for wheel in wheels if wheel["sha256"] in leading]
        todo = [wheel for wheel in wanted if wheel["sha256"] not in self.facts]
        print(f"{len(self.pages)} packages, {len(wanted)} files, {len(todo)} to read", flush=True)
        facts = pool.map(lambda wheel: self.registry.facts(wheel, wheel["sha256"] in leading), todo)
        self.facts.update(zip((wheel["sha256"] for wheel in todo), facts, strict=True))
        for wheel in wheels:
            first = self.facts[firsts[group(wheel, roots)]]
            wheel["requires"] = first["requires"]
            wheel["requires_python"] = wheel["requires_python"] or first["requires_python"]
            wheel["size"] = self.facts[wheel["sha256"]]["size"] if sizes else None

    def files(self, name: str) -> Iterator[dict[str, Any]]:
        """Return the wheels of the kept releases."""
        return (wheel for wheel in self.pages[name] if wheel["version"] in self.kept[name])

    def left_out(self, name: str) -> list[str]:
        """Return the omitted releases between kept ones that a target could take.

        A range that ends there needs the live index.
        """
        taken = [wheel["version"] for wheel in self.pages[name] if wheel["yanked"] is None]
        kept = sorted(map(Version, self.kept[name]))
        between = (
            version for version in dict.fromkeys(taken) if kept[0] < Version(version) < kept[-1]
        )
        return [version for version in between if version not in self.kept[name]]

    def follow(self, name: str) -> None:
        """Record the requirements of the kept releases of a package."""
        extras = tuple(sorted(self.extras[name]))
        for wheel in self.files(name):
            for text in filter(None, map(normalized, wheel["requires"])):
                if (text, extras) not in self.walked:
                    self.walked.add((text, extras))
                    requirement = Requirement(text)
                    if requirement.marker is None or possible(str(requirement.marker), extras):
                        self.want(requirement)


# ---- writing -------------------------------------------------------------------------------------


def dump_package(head: dict[str, Any], wheels: list[dict[str, Any]]) -> str:
    """Return one package as JSON, with one file or one metadata on each line.

    A new release changes few lines.

    `wheels` are ascending; a wheel has the fields of `read_anchor`, "requires" and "size". Those of
    equal tags are written together.
    """
    versions = list(dict.fromkeys(wheel["version"] for wheel in wheels))
    pythons = sorted({wheel["requires_python"] for wheel in wheels if wheel["requires_python"]})
    metadata: dict[str, int] = {}
    groups: dict[str, list[str]] = {}
    for wheel in wheels:
        requires = line(list(dict.fromkeys(filter(None, map(normalized, wheel["requires"])))))
        python = pythons.index(wheel["requires_python"]) if wheel["requires_python"] else None
        number = metadata.setdefault(requires, len(metadata))
        row = [
            versions.index(wheel["version"]),
            *(wheel[key] for key in ("filename", "location", "sha256", "size")),
        ]
        tags = "-".join(wheel["filename"][:-4].split("-")[-3:])
        groups.setdefault(tags, []).append(
            line([*row, python, wheel["yanked"], wheel["upload_time"], number])
        )
    fields = [f"{line(key)}:{line(value)}" for key, value in {**head, "versions": versions}.items()]
    fields.append(f'"requires_python":{line(pythons)}')
    fields.append('"metadata":[\n' + ",\n".join(metadata) + "\n]")
    files = (
        f"{line(tags)}:[\n" + ",\n".join(rows) + "\n]" for tags, rows in sorted(groups.items())
    )
    fields.append('"files":{\n' + ",\n".join(files) + "\n}")
    return "{\n" + ",\n".join(fields) + "\n}\n"


def line(value: Any) -> str:
    """Return JSON without spaces, ASCII only."""
    return json.dumps(value, separators=(",", ":"))


def clear(folder: str) -> None:
    """Remove the package files of an earlier run."""
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.endswith(".json"):
            os.remove(os.path.join(folder, name))


def write_index(date: str | None) -> None:
    """Write index.json. `date` None keeps the date that the snapshot has."""
    if date is None:
        with open(os.path.join(SNAPSHOT, "index.json"), encoding="utf-8") as file:
            date = json.load(file)["date"]
    digest = hashlib.sha256()
    counts: dict[str, dict[str, int]] = {}
    for path in sorted(glob.glob(os.path.join(SNAPSHOT, "*", "*.json"))):
        name = os.path.relpath(path, SNAPSHOT).replace(os.sep, "/")
        with open(path, "rb") as file:
            content = file.read()
        digest.update(name.encode() + b"\0" + content)
        data = json.loads(content)
        files = sum(map(len, data["files"].values()))
        counts[name.removesuffix(".json")] = {"versions": len(data["versions"]), "files": files}
    index = {"date": date, "version": f"{date}+{digest.hexdigest()[:12]}", "packages": counts}
    write(os.path.join(SNAPSHOT, "index.json"), json.dumps(index, indent=1) + "\n")


def build(arguments: argparse.Namespace) -> None:
    """Build the snapshot."""
    pytorch = snapshot_pytorch.Facts(DATA)
    walk = Walk(Registry(simple_url(), arguments.cache), scope(DATA), pytorch.pins())
    walk.run()
    folder = os.path.join(SNAPSHOT, "default")
    clear(folder)
    for name in sorted(walk.pages):
        wheels = list(walk.files(name))
        if wheels:
            head = {"name": name, "index": "default", "left_out": walk.left_out(name)}
            write(os.path.join(folder, name + ".json"), dump_package(head, wheels))
        else:
            print(f"no wheel of {name} serves a supported target", file=sys.stderr)
    write_pytorch(pytorch, lambda name: list(walk.files(name)))
    write_index(arguments.date)


def write_pytorch(
    pytorch: snapshot_pytorch.Facts, default: Callable[[str], list[dict[str, Any]]]
) -> None:
    """Write the builds of the PyTorch index. `default` returns the default index's wheels."""
    folder = os.path.join(SNAPSHOT, "pytorch")
    clear(folder)
    for name in snapshot_pytorch.PACKAGES:
        head, wheels = pytorch.package(name, default(name))
        write(os.path.join(folder, name + ".json"), dump_package(head, wheels))


def written(name: str) -> list[dict[str, Any]]:
    """Return the wheels of a package that the snapshot has of the default index."""
    with open(os.path.join(SNAPSHOT, "default", name + ".json"), encoding="ascii") as file:
        content = json.load(file)
    wheels = []
    for rows in content["files"].values():
        for version, filename, _, _, _, python, _, _, metadata in rows:
            wheels.append(
                {
                    "filename": filename,
                    "version": content["versions"][version],
                    "requires": content["metadata"][metadata],
                    "requires_python": None
                    if python is None
                    else content["requires_python"][python],
                }
            )
    return sorted(wheels, key=lambda wheel: (Version(wheel["version"]), wheel["filename"]))


def main(words: list[str]) -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--cache", default=".snapshot-cache", help="folder for what was read from wheels"
    )
    parser.add_argument(
        "--date", help="the snapshot's date (default: today; with --index-only: as it is)"
    )
    parser.add_argument(
        "--index-only",
        action="store_true",
        help="only write index.json again",
    )
    parser.add_argument(
        "--pytorch-only",
        action="store_true",
        help="only write the builds of the PyTorch index again",
    )
    arguments = parser.parse_args(words)
    if arguments.pytorch_only:
        write_pytorch(snapshot_pytorch.Facts(DATA), written)
    if arguments.pytorch_only or arguments.index_only:
        write_index(arguments.date)
        return
    arguments.date = arguments.date or datetime.datetime.now(datetime.UTC).date().isoformat()
    build(arguments)
