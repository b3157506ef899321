"""Derive matrix_data/tables.json from its TOML files: compile_matrix.py [--check] [FOLDER].

tables.json is all that gpuenv reads at start-up; the builds and libraries stay in their own JSON
files. With --check nothing is written, and the exit status is 1 if tables.json is not what the TOML
files say.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from common import ROOT
from data.companion_rows import companion_rows
from gpuenv.compat.architectures import driver_branch, parse_target
from gpuenv.compat.data import SCHEMA, SEVERITIES, gpu_key
from gpuenv.compat.rows import BuildsFile, Family, IndexRow, convert
from gpuenv.errors import DataError
from gpuenv.model import Framework, parse_pair, parse_release, show_pair
from gpuenv.requirements.target import PLATFORMS

CLASSES = ("data-centre", "workstation", "geforce", "mining", "jetson", "desktop")
MONTHS = tuple(f"{month:02}" for month in range(1, 13))
KINDS = ("long-term", "production", "new-feature", "evaluation")
RANGE = re.compile(r"(==|[<>]=?)\d+(\.\d+)*(,(==|[<>]=?)\d+(\.\d+)*)*|\d+(\.\d+)*(\.\*)?")
OTHER_TABLES = ("bad", "bad_pair")  # of libraries.toml, compiled to another form


def main(words: list[str]) -> int:
    """Write the tables, or compare them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=ROOT / "matrix_data")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; 1 if the tables are stale"
    )
    options = parser.parse_args(words)
    target = options.folder / "tables.json"
    try:
        text = render(options.folder)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if options.check:
        fresh = target.exists() and target.read_text(encoding="ascii") == text
        print(f"{target} is {'fresh' if fresh else 'stale'}")
        return 0 if fresh else 1
    write(target, text)
    return 0


def render(folder: Path) -> str:
    """Return the text of tables.json, with one table on each line, in a fixed order.

    DataError names the file and the row.
    """
    tables = tabulate(folder)
    lines = [
        f"{json.dumps(name)}:{json.dumps(table, separators=(',', ':'))}"
        for name, table in tables.items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def tabulate(folder: Path) -> dict[str, Any]:
    """Return the tables, as gpuenv.compat.data reads them."""
    drivers, toolkits = _toml(folder / "drivers.toml"), _toml(folder / "toolkits.toml")
    gpus, libraries = _toml(folder / "gpus.toml"), _toml(folder / "libraries.toml")
    paths = sorted((folder / "frameworks").glob("*.toml"))
    frameworks = {path: read_framework(path) for path in paths}
    return {
        "version": f"{_toml(folder / 'matrix.toml')['date']}.{_digest(folder)}",
        "schema": SCHEMA,
        "floors": [
            [row["cuda"], row.get("linux"), row.get("windows"), _sourced(row)]
            for row in drivers["floor"]
        ],
        "branches": _branches(drivers),
        "first": _limits(drivers["first"]),
        "last": _limits(drivers["last"]),
        "compilers": _compilers(toolkits),
        "ptx_toolkits": _ptx_toolkits(toolkits),
        "toolkits": _toolkits(toolkits),
        "first_drivers": _first_drivers(drivers, toolkits),
        "gpus": _gpus(gpus),
        "gpu_platforms": _gpu_platforms(gpus),
        "gpu_names": [name for group in gpus["group"] for name in group["names"]],
        "ambiguous": [gpu_key(name) for name in gpus["ambiguous"]],
        "families": _families(folder),
        "bad": _bad(libraries, toolkits),
        "bad_pairs": _bad_pairs(libraries),
        "rules": _rule_tables(libraries),
        "path": _path(folder),
        "extension_libraries": _extension_libraries(folder),
        "companions": _companions(folder),
        "indexes": _indexes(folder),
        "frameworks": {
            path.stem: msgspec.to_builtins(framework) for path, framework in frameworks.items()
        },
        "builds": {
            path.stem: _builds(path)
            for path, framework in frameworks.items()
            if framework.is_single_distribution and not path.with_suffix(".json").exists()
        },
    }


def read_framework(path: Path) -> Framework:
    """Return the framework that a TOML file describes.

    A file without a [[way]] says that one distribution has every variant.

    Raises:
        DataError: names the file and the field that is wrong.
    """
    content = _toml(path)
    name = content.get("distribution", "")
    every_variant = {"variant": "*", "requires": [name], "carriers": [name]}
    fields = {field: content[field] for field in Framework.__struct_fields__ if field in content}
    ways = content.get("way", [every_variant])
    framework = convert(fields | {"ways": ways}, Framework, str(path))
    if not framework.ways or not all(way.requires for way in framework.ways):
        raise DataError(f"{path} cannot be read: it has no way, or one that requires nothing")
    return framework


def _builds(path: Path) -> dict[str, Any]:
    """Return the [[build]] rows of a framework that has no JSON file."""
    content = _toml(path)
    tables = {"builds": content.get("build", []), "companions": content.get("companion", [])}
    if not convert(tables, BuildsFile, str(path)).builds:
        hint = "give the framework's file a [[build]]"
        raise DataError(f"{path.with_suffix('.json')} is missing", hint=hint)
    return tables


def _limits(rows: list[dict[str, Any]]) -> list[list[Any]]:
    """Return the first or the last branch of compute capabilities, sorted by branch."""
    _ascending((row["branch"] for row in rows), "drivers.toml: first and last branches")
    return [
        [row["branch"], [parse_pair(text) for text in row["capabilities"]], _sourced(row)]
        for row in rows
    ]


def _branches(data: dict[str, Any]) -> list[list[Any]]:
    branches: list[list[Any]] = []
    for row in data["branch"]:
        where = f"drivers.toml: branch {row['branch']}"
        _sourced(row), _known_fields(row, "branch cuda first kind end_of_life source", where)
        year, _, month = row.get("end_of_life", "2020-01").partition("-")
        if row.get("kind", KINDS[0]) not in KINDS or not (year.isdigit() and month in MONTHS):
            raise DataError(
                f"{where}: kind is none of {', '.join(KINDS)}, or end_of_life is no month such as "
                f"2026-06"
            )
        branches.append([row["branch"], row["cuda"]])
    _ascending((branch for branch, _ in branches), "drivers.toml: the branches")
    _ascending(
        (parse_pair(cuda) for _, cuda in branches),
        "drivers.toml: the CUDA versions of the branches",
    )
    _check_forward_compat(data, {branch: parse_pair(cuda) for branch, cuda in branches})
    return branches


def _check_forward_compat(data: dict[str, Any], branches: dict[int, tuple[int, int]]) -> None:
    """Check the rows of forward compatibility, which nothing reads at run time."""
    rows = data.get("forward_compat", [])
    for row in rows:
        where = f"drivers.toml: forward_compat {row['cuda']}"
        _sourced(row), _known_fields(row, "cuda branches classes source", where)
        _ascending(row["branches"], f"{where}: its branches")
        strange = [
            branch
            for branch in row["branches"]
            if branches.get(branch, (99, 0)) >= parse_pair(row["cuda"])
        ]
        strange += [name for name in row["classes"] if name not in CLASSES]
        if strange or not row["branches"] or not row["classes"]:
            raise DataError(
                f"{where}: {strange or 'an empty list'} is no older branch and no class of "
                f"gpus.toml"
            )
    _ascending(
        (parse_pair(row["cuda"]) for row in rows), "drivers.toml: the rows of forward_compat"
    )


def _compilers(data: dict[str, Any]) -> dict[str, list[str]]:
    rows: dict[str, list[str]] = {}
    for row in data["compiler"]:
        where = f"toolkits.toml: compiler {row['cuda']}"
        _sourced(row), _evident(row, where)
        targets = [_target(target, where) for target in row["targets"]]
        order = [
            (int(target.rstrip("af")), target) for target in targets
        ]  # 101 is older than 103, though now 11.0
        if row["cuda"] in rows or any(earlier >= later for earlier, later in pairwise(order)):
            raise DataError(f"{where} is there twice, or its targets do not ascend")
        rows[row["cuda"]] = targets
    _ascending(map(parse_pair, rows), "toolkits.toml: the compilers")
    return rows


def _ptx_toolkits(data: dict[str, Any]) -> dict[str, str]:
    """Return {PTX language: the oldest toolkit that writes it, or whose driver reads it first}."""
    rows: dict[tuple[int, int], tuple[int, int]] = {}
    for row in data["compiler"]:
        rows.setdefault(parse_pair(row["ptx"]), parse_pair(row["cuda"]))
    for row in data.get("ptx", []):
        _sourced(row), _evident(row, f"toolkits.toml: ptx {row['version']}")
        if rows.setdefault(parse_pair(row["version"]), parse_pair(row["cuda"])) != parse_pair(
            row["cuda"]
        ):
            raise DataError(
                f"toolkits.toml: a compiler writes PTX {row['version']}, its row is wrong or "
                f"needless"
            )
    ordered = sorted(rows.items())
    _ascending((cuda for _, cuda in ordered), "toolkits.toml: the toolkits of newer PTX languages")
    return {show_pair(language): show_pair(cuda) for language, cuda in ordered}


def _toolkits(data: dict[str, Any]) -> dict[str, dict[str, str]]:
    rows: dict[str, dict[str, str]] = {}
    for row in data["toolkit"]:
        for field in ("driver_linux", "driver_windows"):
            if field in row:
                parse_release(row[field])
        if row["version"] in rows:
            raise DataError(f"toolkits.toml: two rows for {row['version']}")
        fields = ("driver_linux", "driver_windows", "confidence")
        rows[row["version"]] = (
            {field: row[field] for field in fields if field in row} if _sourced(row) else {}
        )
    return rows


def _first_drivers(
    drivers: dict[str, Any], toolkits: dict[str, Any]
) -> dict[int, list[str | None]]:
    """Return the first driver of each branch, on Linux and on Windows.

    That is the one which the first toolkit of the branch's CUDA version brings, unless the branch
    names an older one.
    """
    firsts: dict[int, list[str | None]] = {}
    for branch in drivers["branch"]:
        brought: dict[str, Any] = {}
        for row in toolkits["toolkit"]:
            if row["version"].startswith(f"{branch['cuda']}."):
                brought = {**row, **brought}
        linux = branch.get("first", brought.get("driver_linux"))
        firsts[branch["branch"]] = [linux, brought.get("driver_windows")]
    for number, releases in firsts.items():
        if any(release and driver_branch(release) != number for release in releases):
            raise DataError(f"drivers.toml: {releases} are not of branch {number}")
    return firsts


def _gpus(data: dict[str, Any]) -> dict[str, tuple[int, int]]:
    keys: dict[str, tuple[int, int]] = {}
    for group in data["group"]:
        _sourced(group)
        where = f"gpus.toml: group {group['capability']}"
        _known_fields(group, "capability class only_platform names source", where)
        if group.get("class") not in CLASSES:
            raise DataError(f"{where}: class is none of {', '.join(CLASSES)}")
        if group.get("only_platform", "linux-x86_64") not in PLATFORMS:
            raise DataError(f"{where}: only_platform is none of {', '.join(PLATFORMS)}")
        for name in group["names"]:
            if not gpu_key(name) or gpu_key(name) in keys:
                raise DataError(f"gpus.toml: {name!r} is there twice or has no name of its own")
            keys[gpu_key(name)] = parse_pair(group["capability"])
    return keys


def _gpu_platforms(data: dict[str, Any]) -> dict[str, str]:
    """Return the platform of each GPU that exists on one platform only."""
    platforms: dict[str, str] = {}
    for group in data["group"]:
        if "only_platform" in group:
            platforms |= {gpu_key(name): group["only_platform"] for name in group["names"]}
    return platforms


def _families(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _toml(folder / "families.toml")["family"]
    families = [convert(row, Family, "families.toml") for row in rows]
    paths = [family.path for family in families]
    names = [name for family in families for name in family.distributions]
    if len(set(paths)) < len(paths) or len(set(names)) < len(names):
        raise DataError("families.toml: a path or a distribution is there twice")
    for family in families:
        if set(family.replaceable) - set(family.distributions) or len(family.distributions) < 2:
            raise DataError(f"families.toml: {family.path}: a member is missing")
    return rows


def _bad(libraries: dict[str, Any], toolkits: dict[str, Any]) -> list[list[Any]]:
    known = {parse_target(target)[0] for row in toolkits["compiler"] for target in row["targets"]}
    bad: list[list[Any]] = []
    for row in libraries["bad"]:
        _known_fields(
            row,
            "distributions versions severity text source capabilities driver_cuda with_gpu instead",
            "libraries.toml: bad",
        )
        capabilities = [parse_pair(text) for text in row.get("capabilities", [])]
        if row.get("with_gpu"):
            capabilities = sorted(known)
        strange = [show_pair(capability) for capability in capabilities if capability not in known]
        if strange:
            raise DataError(
                f"libraries.toml: no compiler makes code for compute capability {strange[0]}"
            )
        names, versions = _side(row, "libraries.toml: bad")
        driver_cuda = parse_pair(row["driver_cuda"]) if "driver_cuda" in row else None
        verdict = [_severity(row), row["text"], _sourced(row)]
        bad.append([names, versions, *verdict, capabilities, driver_cuda])
    return bad


def _bad_pairs(libraries: dict[str, Any]) -> list[list[Any]]:
    pairs: dict[str, list[Any]] = {}
    for row in libraries.get("bad_pair", []):
        where = f"libraries.toml: bad_pair {row['name']}"
        _known_fields(row, "name a b several_gpus severity text source", where)
        a, b = _side(row["a"], where), _side(row["b"], where)
        if row["name"] in pairs or set(a[0]) & set(b[0]):
            raise DataError(f"{where} is there twice, or has a distribution on both sides")
        if _severity(row) != "broken":
            raise DataError(
                f"{where}: a pair must be broken, the solver has no way to avoid one only where it "
                f"can"
            )
        pairs[row["name"]] = [
            row["name"],
            a,
            b,
            row.get("several_gpus", False),
            "broken",
            row["text"],
            _sourced(row),
        ]
    return list(pairs.values())


def _rule_tables(libraries: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of libraries.toml that rules read as they are written."""
    tables = {name: rows for name, rows in libraries.items() if name not in OTHER_TABLES}
    for name, rows in tables.items():
        for row in rows:
            _check_rule_row(row, f"libraries.toml: {name}", type(rows[0].get("value")))
    return tables


def _check_rule_row(row: dict[str, Any], where: str, value_type: type) -> None:
    _sourced(row)
    fields = "distributions platforms versions variants capabilities value gives libraries source"
    fields += " requires variables"
    _known_fields(row, fields, where)
    for capability in row.get("capabilities", ()):
        parse_pair(capability)
    strange = set(row.get("platforms", ())) - set(PLATFORMS)
    if strange or not isinstance(row.get("value"), value_type):
        raise DataError(f"{where}: platforms or value is wrong in {row}")
    if "versions" in row:
        _check_range(row["versions"], where)


def _side(row: dict[str, Any], where: str) -> tuple[list[str], str]:
    """Check one side of a row. Return its (distributions, versions)."""
    _check_range(row["versions"], where)
    if not row["distributions"]:
        raise DataError(f"{where}: distributions is empty")
    return row["distributions"], row["versions"]


def _check_range(versions: str, where: str) -> None:
    if not RANGE.fullmatch(versions):
        raise DataError(
            f"{where}: {versions!r} is not a range such as >=12.8,<13.2, not 9.10.0.* and not a "
            f"version"
        )


def _severity(row: dict[str, Any]) -> str:
    if row["severity"] not in SEVERITIES:
        raise DataError(f"libraries.toml: severity {row['severity']!r} is none of {SEVERITIES}")
    return str(row["severity"])


def _known_fields(row: dict[str, Any], fields: str, where: str) -> None:
    strange = sorted(set(row) - set(fields.split()))
    if strange:
        raise DataError(f"{where}: no field is named {strange[0]}")


def _extension_libraries(folder: Path) -> dict[str, bool]:
    """Return {companion in libraries/: whether only the newest release of each line is scanned}."""
    names: dict[str, bool] = {}
    if (folder / "scans.toml").exists():
        for scope in _toml(folder / "scans.toml").get("scan", []):
            if scope.get("extension"):
                names.update(dict.fromkeys(scope["distributions"], scope.get("lines", False)))
    known = [name for name in sorted(names) if (folder / "libraries" / f"{name}.json").exists()]
    return {name: names[name] for name in known}


def _companions(folder: Path) -> dict[str, list[Any]]:
    """Return what releases of companions need, by distribution. See companion_rows.py."""
    document = _toml(folder / "companions.toml")
    for row in document["row"] + document["compares_cuda"]:
        where = f"companions.toml: {_side(row, 'companions.toml')[0][0]}"
        fields = "distributions versions platforms frameworks cuda cuda_minor cudnn numpy source"
        _sourced(row), _known_fields(row, fields, where)
        if set(row.get("platforms", ())) - set(PLATFORMS):
            raise DataError(f"{where}: platforms is none of {', '.join(PLATFORMS)}")
    return companion_rows(document, folder)


def _indexes(folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = _toml(folder / "indexes.toml")["index"]
    for row in rows:
        index = convert(row, IndexRow, "indexes.toml")
        fields = set(re.findall(r"{(\w*)}", index.url))
        unknown = fields - {"cuda", "major", "torch", "pt", "version"}
        if unknown or set(index.platforms) - set(PLATFORMS) or not index.distributions:
            where = f"indexes.toml: {index.name}"
            raise DataError(f"{where}: a field of its URL, a platform or a distribution is wrong")
    return rows


def _path(folder: Path) -> list[str]:
    """Return the distributions whose code a convolution runs, as the heads of their files say."""
    heads = {
        path.stem: json.loads(path.read_text(encoding="ascii"))
        for path in folder.glob("libraries/*.json")
    }
    return sorted(name for name, head in heads.items() if head.get("path", True))


def _ascending(values: Iterable[Any], what: str) -> None:
    if any(earlier >= later for earlier, later in pairwise(values)):
        raise DataError(f"{what} do not ascend")


def _evident(row: dict[str, Any], where: str) -> None:
    if row.get("evidence") not in ("scanned", "documented"):
        raise DataError(f"{where}: evidence is neither scanned nor documented")
    if row["evidence"] == "scanned" and not (row.get("file") and row.get("sha256")):
        raise DataError(f"{where}: what was scanned names its file and sha256")


def _target(text: str, where: str) -> str:
    try:
        parse_target(text)
    except ValueError as error:
        raise DataError(f"{where}: {error}") from error
    return text


def _sourced(row: dict[str, Any]) -> str:
    """Return the row's source; every row must have one."""
    source = row.get("source")
    if not isinstance(source, str) or not source:
        raise DataError(f"a row without a source: {row}")
    return source


def _digest(folder: Path) -> str:
    """Return eight digits that change if any file of the matrix changes."""
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


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {error}") from error


def write(target: Path, text: str) -> None:
    """Write beside the target and rename, so that no reader sees half a file."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=target.name + ".")
    with os.fdopen(handle, "w", encoding="ascii") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    Path(name).chmod(0o644)
    Path(name).replace(target)
