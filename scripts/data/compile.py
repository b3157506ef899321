"""Derive the JSON files of matrix_data: the rows of device code, and tables.json.

    python scripts/tools.py data compile [FOLDER]

People write the TOML files, and `refresh` writes scans/. rows.py derives the rows of libraries/ and
frameworks/ from the scans. tables.json has the TOML files, with the rows of companion_rows.py; it
is all that gpuenv reads when it starts. check.py finds stale files.

Exit status: 0 done, 2 a TOML file is damaged: nothing is written.
"""

from __future__ import annotations

import hashlib
import json
import re
from argparse import Namespace
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import astuple

from common import ROOT, read_json
from data.companion_rows import companion_rows, named_rows
from data.rows import derived
from data.toml_files import Branch, Companions, Drivers, Gpus, Libraries, Limit, Toolkits
from gpuenv.atomic_write import write_whole
from gpuenv.compat.architectures import driver_branch, parse_target
from gpuenv.compat.data import SCHEMA, gpu_key
from gpuenv.compat.rows import BuildsFile, Family, IndexRow, convert
from gpuenv.errors import DataError
from gpuenv.model import CudaVersion, Framework, parse_pair, show_pair
from gpuenv.requirements.target import PLATFORMS
from gpuenv.serialize import read_toml

DATA = ROOT / "matrix_data"

# ---- tables.json ---------------------------------------------------------------------------------


def tabulate(folder: Path) -> dict[str, Any]:
    """Return the content of tables.json, in the order of the file.

    Raises:
        GpuEnvError: names the file and the row that is wrong.
    """
    toolkits = read(folder / "toolkits.toml", Toolkits)
    companions = read(folder / "companions.toml", Companions)
    tables = {
        "schema": SCHEMA,
        **driver_tables(read(folder / "drivers.toml", Drivers), toolkits),
        **gpu_tables(read(folder / "gpus.toml", Gpus)),
        "families": families(folder),
        **library_tables(folder / "libraries.toml", toolkits),
        **device_code_tables(folder),
        "companions": companion_rows(companions, folder),
        "indexes": indexes(folder),
        **framework_tables(folder),
    }
    # Eight digits that change if anything changes that gpuenv reads, and not with a comment.
    digest = hashlib.sha256(json.dumps(tables).encode())
    patterns = ("libraries/*.json", "frameworks/*.json", "removed_names.json")
    for path in sorted(path for pattern in patterns for path in folder.glob(pattern)):
        digest.update(path.read_bytes())
    date = toml(folder / "matrix.toml")["date"]
    return {"version": f"{date}.{digest.hexdigest()[:8]}", **tables}


def toml(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file."""
    return read_toml(str(path))


def read(path: Path, kind: type[Any]) -> Any:
    """Return a TOML file as a value."""
    return convert(toml(path), kind, path.name)


def ascending(values: Iterable[Any], what: str) -> None:
    """Raise DataError if values do not ascend."""
    if any(earlier >= later for earlier, later in pairwise(values)):
        raise DataError(f"{what} do not ascend")


def driver_tables(drivers: Drivers, toolkits: Toolkits) -> dict[str, Any]:
    """Return the tables of drivers.toml and toolkits.toml."""
    for rows in (drivers.first, drivers.last, drivers.branch):
        ascending([row.branch for row in rows], "drivers.toml: the branches")
    ascending([parse_pair(row.cuda) for row in drivers.branch], "drivers.toml: CUDA of branches")
    ascending([parse_pair(row.cuda) for row in toolkits.compiler], "toolkits.toml: the compilers")
    for row in toolkits.compiler:
        # 101 is older than 103, though it is 11.0 now.
        order = [(int(target.rstrip("af")), target) for target in row.targets]
        ascending(order, f"toolkits.toml: the targets of {row.cuda}")
        if row.evidence == "scanned" and not (row.file and row.sha256):
            raise DataError(f"toolkits.toml: {row.cuda} was scanned and names no file and sha256")
    # The oldest toolkit that writes a PTX language, or whose driver reads it first.
    languages: dict[CudaVersion, CudaVersion] = {}
    for row in toolkits.compiler:
        languages.setdefault(parse_pair(row.ptx), parse_pair(row.cuda))
    for row in toolkits.ptx:
        languages.setdefault(parse_pair(row.version), parse_pair(row.cuda))
    ordered = sorted(languages.items())
    ascending([cuda for _, cuda in ordered], "toolkits.toml: the toolkits of PTX languages")
    fields = ("driver_linux", "driver_windows", "confidence")
    return {
        "floors": [astuple(row) for row in drivers.floor],
        "branches": [[row.branch, row.cuda] for row in drivers.branch],
        "first": limits(drivers.first),
        "last": limits(drivers.last),
        "compilers": {row.cuda: row.targets for row in toolkits.compiler},
        "ptx_toolkits": {show_pair(language): show_pair(cuda) for language, cuda in ordered},
        "toolkits": {
            row.version: {name: getattr(row, name) for name in fields if getattr(row, name)}
            for row in toolkits.toolkit
        },
        "first_drivers": {row.branch: first_driver(row, toolkits) for row in drivers.branch},
    }


def limits(rows: Iterable[Limit]) -> list[Any]:
    """Return the first or the last branches of compute capabilities."""
    return [[row.branch, list(map(parse_pair, row.capabilities)), row.source] for row in rows]


def first_driver(branch: Branch, toolkits: Toolkits) -> list[str | None]:
    """Return the first driver of a branch, on Linux and on Windows.

    That is the one which the first toolkit of the branch's CUDA version brings, unless the branch
    names an older one.
    """
    releases = [row for row in toolkits.toolkit if row.version.startswith(f"{branch.cuda}.")]
    linux = next((row.driver_linux for row in releases if row.driver_linux), None)
    windows = next((row.driver_windows for row in releases if row.driver_windows), None)
    drivers = [branch.first or linux, windows]
    if any(driver and driver_branch(driver) != branch.branch for driver in drivers):
        raise DataError(f"drivers.toml: {drivers} are not of branch {branch.branch}")
    return drivers


def gpu_tables(gpus: Gpus) -> dict[str, Any]:
    """Return the tables of gpus.toml."""
    names = [name for group in gpus.group for name in group.names]
    groups = {gpu_key(name): group for group in gpus.group for name in group.names}
    if len(groups) < len(names):
        raise DataError("gpus.toml: a name is there twice")
    platforms = {key: group.only_platform for key, group in groups.items() if group.only_platform}
    return {
        "gpus": {key: parse_pair(group.capability) for key, group in groups.items()},
        "gpu_platforms": platforms,
        "gpu_names": names,
        "ambiguous": list(map(gpu_key, gpus.ambiguous)),
    }


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


def library_tables(path: Path, toolkits: Toolkits) -> dict[str, Any]:
    """Return the tables of libraries.toml. Those of rules are as they are there."""
    tables = toml(path)
    libraries = convert(tables, Libraries, path.name)
    compiled = {parse_target(target)[0] for row in toolkits.compiler for target in row.targets}
    bad = []
    for row in libraries.bad:
        capabilities = list(map(parse_pair, row.capabilities))
        if not compiled.issuperset(capabilities):
            raise DataError(f"libraries.toml: no compiler makes code for {row.capabilities}")
        if row.with_gpu:
            capabilities = sorted(compiled)
        driver_cuda = parse_pair(row.driver_cuda) if row.driver_cuda else None
        verdict = [row.severity, row.text, row.source]
        where = [capabilities, driver_cuda, row.platforms, row.pythons or ""]
        bad.append([row.distributions, row.versions, *verdict, *where])
    bad_pairs = [[p.name, astuple(p.a), astuple(p.b), *astuple(p)[3:]] for p in libraries.bad_pair]
    rules = {name: rows for name, rows in tables.items() if name not in ("bad", "bad_pair")}
    named_bad, named_pairs = named_rows(path.parent)
    return {"bad": bad + named_bad, "bad_pairs": bad_pairs + named_pairs, "rules": rules}


def device_code_tables(folder: Path) -> dict[str, Any]:
    """Return the tables about the files of libraries/.

    `path` has the distributions whose code a convolution runs, `extension_libraries` the companions
    and whether only the newest release of each line is scanned.
    """
    paths = {path.stem: path for path in folder.glob("libraries/*.json")}
    heads = {name: read_json(paths[name]) for name in sorted(paths)}
    scopes = folder / "scans.toml"
    extensions = {
        name: scope.get("lines", False)
        for scope in (toml(scopes).get("scan", []) if scopes.exists() else [])
        for name in scope["distributions"]
        if scope.get("extension") and name in heads
    }
    return {
        "path": [name for name, head in heads.items() if head.get("path", True)],
        "extension_libraries": dict(sorted(extensions.items())),
    }


def indexes(folder: Path) -> list[dict[str, Any]]:
    """Return the rows of indexes.toml."""
    rows: list[dict[str, Any]] = toml(folder / "indexes.toml")["index"]
    for index in convert(rows, list[IndexRow], "indexes.toml"):
        unknown = {*re.findall(r"{(\w*)}", index.url)} - {"cuda", "major", "torch", "pt", "version"}
        if unknown or {*index.platforms} - {*PLATFORMS} or not index.distributions:
            what = "a field of its URL, a platform or a distribution is wrong"
            raise DataError(f"indexes.toml: {index.name}: {what}")
    return rows


def framework_tables(folder: Path) -> dict[str, Any]:
    """Return the frameworks, and the [[build]] rows of those that have no JSON file.

    A file without a [[way]] says that one distribution has every variant.
    """
    frameworks, builds = {}, {}
    for path in sorted((folder / "frameworks").glob("*.toml")):
        content = toml(path)
        name = content.get("distribution", "")
        every_variant = {"variant": "*", "requires": [name], "carriers": [name]}
        fields = {name: content[name] for name in Framework.__struct_fields__ if name in content}
        fields["ways"] = content.get("way", [every_variant])
        framework = convert(fields, Framework, str(path))
        if not framework.ways or not all(way.requires for way in framework.ways):
            raise DataError(f"{path} cannot be read: it has no way, or one that requires nothing")
        frameworks[path.stem] = msgspec.to_builtins(framework)
        if framework.is_single_distribution and not path.with_suffix(".json").exists():
            rows = {"builds": content.get("build", []), "companions": content.get("companion", [])}
            if not convert(rows, BuildsFile, str(path)).builds:
                hint = "give the framework's file a [[build]]"
                raise DataError(f"{path.with_suffix('.json')} is missing", hint=hint)
            builds[path.stem] = rows
    return {"frameworks": frameworks, "builds": builds}


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


ARGUMENTS = {
    "folder": {"nargs": "?", "type": Path, "default": DATA},
}


def main(options: Namespace) -> int:
    """Write what changed. GpuEnvError: a TOML file is damaged."""
    for path, _, _ in compiled(options.folder):
        print(f"{path} is written")
    return 0
