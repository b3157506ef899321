"""Derive the JSON files of matrix_data: the rows of device code, and tables.json.

    python scripts/tools.py data compile [--check] [FOLDER]

People write the TOML files, and `refresh` writes scans/. rows.py derives the rows of libraries/ and
frameworks/ from the scans. tables.json has the TOML files, with the rows of companion_rows.py; it
is all that gpuenv reads when it starts. With --check nothing is written, and the exit status is 1
if a file is stale. 2: a TOML file is damaged; then nothing is written, either.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import astuple

from common import ROOT
from data.companion_rows import companion_rows
from data.rows import derived
from data.toml_files import Bad, BadPair, Companions, Drivers, Gpus, Limit, Rule, Toolkits
from gpuenv.atomic_write import write_whole
from gpuenv.compat.architectures import driver_branch, parse_target
from gpuenv.compat.data import SCHEMA, gpu_key
from gpuenv.compat.rows import BuildsFile, Family, IndexRow, convert
from gpuenv.errors import DataError, GpuEnvError
from gpuenv.model import Framework, parse_pair, show_pair
from gpuenv.requirements.target import PLATFORMS
from gpuenv.serialize import read_toml

DATA = ROOT / "matrix_data"

# ---- tables.json ---------------------------------------------------------------------------------


def tabulate(folder: Path) -> dict[str, Any]:
    """Return the content of tables.json, in the order of the file.

    Raises:
        GpuEnvError: names the file and the row that is wrong.
    """
    drivers = read(folder / "drivers.toml", Drivers)
    toolkits = read(folder / "toolkits.toml", Toolkits)
    gpus = read(folder / "gpus.toml", Gpus)
    libraries = toml(folder / "libraries.toml")
    bad, bad_pairs = libraries.pop("bad"), libraries.pop("bad_pair")
    for table, rows in libraries.items():
        convert(rows, list[Rule], f"libraries.toml: {table}")
    companions = toml(folder / "companions.toml")
    convert(companions, Companions, "companions.toml")
    frameworks = {
        path: read_framework(path) for path in sorted((folder / "frameworks").glob("*.toml"))
    }
    heads = {
        path.stem: json.loads(path.read_text(encoding="ascii"))
        for path in folder.glob("libraries/*.json")
    }
    gpu_groups = {gpu_key(name): group for group in gpus.group for name in group.names}
    tables = {
        "version": f"{toml(folder / 'matrix.toml')['date']}.{digest(folder)}",
        "schema": SCHEMA,
        "floors": list(map(astuple, drivers.floor)),
        "branches": [[row.branch, row.cuda] for row in drivers.branch],
        "first": limits(drivers.first),
        "last": limits(drivers.last),
        "compilers": {row.cuda: row.targets for row in toolkits.compiler},
        "ptx_toolkits": ptx_toolkits(toolkits),
        "toolkits": {
            row.version: {
                field: value
                for field in ("driver_linux", "driver_windows", "confidence")
                if (value := getattr(row, field))
            }
            for row in toolkits.toolkit
        },
        "first_drivers": first_drivers(drivers, toolkits),
        "gpus": {key: parse_pair(group.capability) for key, group in gpu_groups.items()},
        "gpu_platforms": {
            key: group.only_platform for key, group in gpu_groups.items() if group.only_platform
        },
        "gpu_names": [name for group in gpus.group for name in group.names],
        "ambiguous": [gpu_key(name) for name in gpus.ambiguous],
        "families": families(folder),
        "bad": bad_releases(convert(bad, list[Bad], "libraries.toml: bad"), toolkits),
        "bad_pairs": [
            [row.name, astuple(row.a), astuple(row.b), *astuple(row)[3:]]
            for row in convert(bad_pairs, list[BadPair], "libraries.toml: bad_pair")
        ],
        "rules": libraries,
        # The distributions whose code a convolution runs.
        "path": sorted(name for name, head in heads.items() if head.get("path", True)),
        "extension_libraries": extension_libraries(folder, heads),
        "companions": companion_rows(companions, folder),
        "indexes": indexes(folder),
        "frameworks": {
            path.stem: msgspec.to_builtins(framework) for path, framework in frameworks.items()
        },
        "builds": {
            path.stem: builds(path)
            for path, framework in frameworks.items()
            if framework.is_single_distribution and not path.with_suffix(".json").exists()
        },
    }
    check_order(drivers, toolkits)
    if len(tables["gpus"]) < len(tables["gpu_names"]):
        raise DataError("gpus.toml: a name is there twice")
    return tables


def toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file."""
    return read_toml(str(path))


def read(path: Path, kind: type[Any]) -> Any:
    """Return a TOML file as a value."""
    return convert(toml(path), kind, path.name)


def check_order(drivers: Drivers, toolkits: Toolkits) -> None:
    """Check that branches, toolkits and targets ascend."""
    ascending([row.branch for row in drivers.branch], "drivers.toml: the branches")
    ascending([parse_pair(row.cuda) for row in drivers.branch], "drivers.toml: CUDA of branches")
    ascending([parse_pair(row.cuda) for row in toolkits.compiler], "toolkits.toml: the compilers")
    for row in toolkits.compiler:
        # 101 is older than 103, though it is 11.0 now.
        order = [(int(target.rstrip("af")), target) for target in row.targets]
        ascending(order, f"toolkits.toml: the targets of {row.cuda}")
        if row.evidence == "scanned" and not (row.file and row.sha256):
            raise DataError(f"toolkits.toml: {row.cuda} was scanned and names no file and sha256")


def ascending(values: list[Any], what: str) -> None:
    """Raise DataError if values do not ascend."""
    if any(earlier >= later for earlier, later in pairwise(values)):
        raise DataError(f"{what} do not ascend")


def limits(rows: Sequence[Limit]) -> list[list[Any]]:
    """Return the first or the last branches of compute capabilities."""
    ascending([row.branch for row in rows], "drivers.toml: first and last branches")
    return [
        [row.branch, [parse_pair(text) for text in row.capabilities], row.source] for row in rows
    ]


def ptx_toolkits(toolkits: Toolkits) -> dict[str, str]:
    """Return {PTX language: the oldest toolkit that writes it, or whose driver reads it first}."""
    rows: dict[tuple[int, int], tuple[int, int]] = {}
    for row in toolkits.compiler:
        rows.setdefault(parse_pair(row.ptx), parse_pair(row.cuda))
    for other in toolkits.ptx:
        rows.setdefault(parse_pair(other.version), parse_pair(other.cuda))
    ordered = sorted(rows.items())
    ascending([cuda for _, cuda in ordered], "toolkits.toml: the toolkits of PTX languages")
    return {show_pair(language): show_pair(cuda) for language, cuda in ordered}


def first_drivers(drivers: Drivers, toolkits: Toolkits) -> dict[int, list[str | None]]:
    """Return the first driver of each branch, on Linux and on Windows.

    That is the one which the first toolkit of the branch's CUDA version brings, unless the branch
    names an older one.
    """
    firsts: dict[int, list[str | None]] = {}
    for branch in drivers.branch:
        releases = [row for row in toolkits.toolkit if row.version.startswith(f"{branch.cuda}.")]
        linux = [row.driver_linux for row in releases if row.driver_linux]
        windows = [row.driver_windows for row in releases if row.driver_windows]
        first = [branch.first or next(iter(linux), None), next(iter(windows), None)]
        if any(release and driver_branch(release) != branch.branch for release in first):
            raise DataError(f"drivers.toml: {first} are not of branch {branch.branch}")
        firsts[branch.branch] = first
    return firsts


def families(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of families.toml."""
    rows: list[dict[str, Any]] = toml(folder / "families.toml")["family"]
    known = convert(rows, list[Family], "families.toml")
    paths = [family.path for family in known]
    names = [name for family in known for name in family.distributions]
    if len({*paths}) < len(paths) or len({*names}) < len(names):
        raise DataError("families.toml: a path or a distribution is there twice")
    for family in known:
        if {*family.replaceable} - {*family.distributions} or len(family.distributions) < 2:
            raise DataError(f"families.toml: {family.path}: a member is missing")
    return rows


def bad_releases(rows: Iterable[Bad], toolkits: Toolkits) -> list[list[Any]]:
    """Return the releases that are known to be bad, as gpuenv.compat.data reads them."""
    compiled = {parse_target(target)[0] for row in toolkits.compiler for target in row.targets}
    bad = []
    for row in rows:
        capabilities = [parse_pair(text) for text in row.capabilities]
        if not compiled.issuperset(capabilities):
            raise DataError(f"libraries.toml: no compiler makes code for {row.capabilities}")
        if row.with_gpu:
            capabilities = sorted(compiled)
        driver_cuda = parse_pair(row.driver_cuda) if row.driver_cuda else None
        verdict = [row.severity, row.text, row.source]
        bad.append([row.distributions, row.versions, *verdict, capabilities, driver_cuda])
    return bad


def extension_libraries(folder: Path, heads: Mapping[str, Any]) -> dict[str, bool]:
    """Return {companion in libraries/: whether only the newest release of each line is scanned}."""
    path = folder / "scans.toml"
    scopes = toml(path).get("scan", []) if path.exists() else []
    names = {
        name: scope.get("lines", False)
        for scope in scopes
        if scope.get("extension")
        for name in scope["distributions"]
    }
    return {name: names[name] for name in sorted(names) if name in heads}


def indexes(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of indexes.toml."""
    rows: list[dict[str, Any]] = toml(folder / "indexes.toml")["index"]
    for index in convert(rows, list[IndexRow], "indexes.toml"):
        unknown = {*re.findall(r"{(\w*)}", index.url)} - {"cuda", "major", "torch", "pt", "version"}
        if unknown or {*index.platforms} - {*PLATFORMS} or not index.distributions:
            what = "a field of its URL, a platform or a distribution is wrong"
            raise DataError(f"indexes.toml: {index.name}: {what}")
    return rows


def read_framework(path: Path) -> Framework:
    """Return the framework that a TOML file describes.

    A file without a [[way]] says that one distribution has every variant.
    """
    content = toml(path)
    name = content.get("distribution", "")
    every_variant = {"variant": "*", "requires": [name], "carriers": [name]}
    fields = {field: content[field] for field in Framework.__struct_fields__ if field in content}
    ways = content.get("way", [every_variant])
    framework = convert(fields | {"ways": ways}, Framework, str(path))
    if not framework.ways or not all(way.requires for way in framework.ways):
        raise DataError(f"{path} cannot be read: it has no way, or one that requires nothing")
    return framework


def builds(path: Path) -> dict[str, Any]:
    """Return the [[build]] rows of a framework that has no JSON file."""
    content = toml(path)
    tables = {"builds": content.get("build", []), "companions": content.get("companion", [])}
    if not convert(tables, BuildsFile, str(path)).builds:
        hint = "give the framework's file a [[build]]"
        raise DataError(f"{path.with_suffix('.json')} is missing", hint=hint)
    return tables


def digest(folder: Path) -> str:
    """Return eight digits that change if any file of the data changes."""
    digest = hashlib.sha256()
    paths = [
        *folder.glob("*.toml"),
        *folder.glob("libraries/*.json"),
        *folder.glob("frameworks/*.*"),
        *folder.glob("scans/companions.jsonl"),
    ]
    for path in sorted(paths):
        digest.update(f"{path.relative_to(folder).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


# ---- the program ---------------------------------------------------------------------------------


def files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield (path, text) of each derived file."""
    yield from derived(folder, tabulate(folder))
    # The others were written by now: it has a digest of them.
    lines = [
        f"{json.dumps(name)}:{json.dumps(table, separators=(',', ':'))}"
        for name, table in tabulate(folder).items()
    ]
    yield folder / "tables.json", "{\n" + ",\n".join(lines) + "\n}\n"


def compiled(folder: Path, *, check: bool = False) -> Iterator[tuple[Path, str, str]]:
    """Write the derived files that changed; yield the path, the old and the new text of each.

    With `check` nothing is written.

    Raises:
        GpuEnvError: a TOML file is damaged.
    """
    for path, text in files(folder):
        old = path.read_text("ascii") if path.exists() else ""
        if text != old:
            if not check:
                write_whole(str(path), text.encode())
            yield path, old, text


def main(words: list[str]) -> int:
    """Write what changed, or say what would."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=DATA)
    parser.add_argument("--check", action="store_true", help="write nothing; 1 if a file is stale")
    options = parser.parse_args(words)
    try:
        paths = [path for path, _, _ in compiled(options.folder, check=options.check)]
    except GpuEnvError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for path in paths:
        print(f"{path} is {'stale' if options.check else 'written'}")
    return 1 if options.check and paths else 0
