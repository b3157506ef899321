"""environment.yml and pixi.toml: the channels, conda's specs and the wheels that they ask for."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote

from ..errors import InputError, error_text
from ..model import Value
from ..serialize import load_yaml, parse_toml, read_input
from . import conda_versions
from .files import read_lines
from .parse import NameOf, RequirementSet, git_url, requirement_of_row
from .versions import normalize_name

PIXI_TOML = "pixi.toml"
_KEYS = {"name", "prefix", "channels", "dependencies", "variables", "platforms", "category"}
_PIXI_SPECS = ("dependencies", "host-dependencies", "build-dependencies")
# Keys that say where a wheel of pixi comes from.
_PLACES = ("index", "path", "editable", "url", "git", "rev", "tag", "branch", "subdirectory")
# Options of pixi's wheels, and what a requirements file calls them.
_PIXI_OPTIONS = {"index-url": "--index-url", "extra-index-urls": "--extra-index-url"}
# The names of a platform under `target` of a pixi.toml.
TARGETS = {
    "linux-x86_64": ("unix", "linux", "linux-64"),
    "linux-aarch64": ("unix", "linux", "linux-aarch64"),
    "win-amd64": ("win", "win-64"),
}
Table = Mapping[str, Any]


class CondaProject(Value):
    """What a project file of conda or pixi asks for.

    `wheels` has the wheels and what the options beside them say. `with_configured` says that conda
    adds the channels of its settings.
    """

    channels: tuple[str, ...] = ()
    specs: tuple[str, ...] = ()
    wheels: RequirementSet = RequirementSet()
    with_configured: bool = False


def is_project_file(path: str) -> bool:
    """Return whether a file is an environment.yml or a pixi.toml, by its name."""
    return path.endswith((".yml", ".yaml")) or os.path.basename(path) == PIXI_TOML


def read_project_file(path: str, platform: str, name_of: NameOf | None = None) -> CondaProject:
    """Read an environment.yml, or the default environment of a pixi.toml.

    Args:
        path: the file.
        platform: as in Host.platform; a pixi.toml can ask for more on some platforms.
        name_of: as for `checked_requirement`.

    Raises:
        InputError: The file cannot be read, is none, or asks for what gpuenv cannot read.
    """
    is_pixi = os.path.basename(path) == PIXI_TOML
    project = _read_pixi_toml(path, platform) if is_pixi else _read_environment(path, name_of)
    for spec in project.specs:
        conda_versions.require_spec(spec, path)
    return project


# ---- environment.yml -----------------------------------------------------------------------------


def _read_environment(path: str, name_of: NameOf | None) -> CondaProject:
    try:
        document = load_yaml(read_input(path))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read: {error_text(error)}") from None
    if not isinstance(document, dict) or not isinstance(document.get("dependencies"), list):
        raise InputError(f"{path}: is no environment.yml: it has no list of dependencies")
    unknown = sorted(set(map(str, document)) - _KEYS)
    if unknown:
        hint = "channels and dependencies are read"
        raise InputError(f"{path}: unknown key {unknown[0]}", hint=hint)
    specs: list[str] = []
    wheels: list[str] = []
    for entry in document["dependencies"]:
        match entry:
            case str():
                specs.append(entry)
            case {"pip": list(texts), **others} if not others:
                wheels += map(str, texts)
            case _:
                raise InputError(f"{path}: {entry!r} is no spec and no list of pip")
    channels = [str(channel) for channel in document.get("channels") or ()]
    return CondaProject(
        channels=tuple(channel for channel in channels if channel != "nodefaults"),
        specs=tuple(specs),
        # conda gives the list to pip as a requirements file in the folder of this one.
        wheels=read_lines(wheels, path, "pip", name_of),
        with_configured="nodefaults" not in channels,
    )


# ---- pixi.toml -----------------------------------------------------------------------------------


def _read_pixi_toml(path: str, platform: str) -> CondaProject:
    try:
        document = parse_toml(read_input(path).decode())
        workspace = document["project" if "project" in document else "workspace"]
        tables = list(default_tables(document, TARGETS.get(platform, ())))
        channels = [*map(_channel, workspace["channels"])]
        for table in tables:
            channels += map(_channel, table.get("channels", ()))
        specs = [
            _spec(name, value)
            for table in tables
            for key in _PIXI_SPECS
            for name, value in _rows(table, key)
        ]
        wheels = _wheels(tables, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    except KeyError as error:
        raise InputError(f"{path}: is no pixi.toml: it has no {error.args[0]}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: {error}") from None
    return CondaProject(
        channels=tuple(dict.fromkeys(channels)),
        specs=tuple(specs),
        wheels=wheels,
    )


def _wheels(tables: Iterable[Table], path: str) -> RequirementSet:
    """Return the wheels of a pixi.toml's tables. ValueError for a key that is not read."""
    lines: list[str] = []
    bound: list[str] = []
    for table in tables:
        for key, given in _rows(table, "pypi-options"):
            if key not in _PIXI_OPTIONS:
                raise ValueError(f"pypi-options.{key} is not read; {', '.join(_PIXI_OPTIONS)} are")
            urls = [given] if isinstance(given, str) else given
            lines += [f"{_PIXI_OPTIONS[key]} {url}" for url in urls]
        for name, value in _rows(table, "pypi-dependencies"):
            text = requirement_of_row(name, value, _PLACES)
            head, semicolon, marker = text.partition(" ; ")
            row = {} if isinstance(value, str) else value
            if "index" in row:
                bound.append(f"{normalize_name(name)}={row['index']}")
            elif "path" in row:
                place = quote(os.path.join(".", os.path.dirname(path), row["path"]))
                head += f" @ {place}{'#editable' if row.get('editable') else ''}"
            elif "url" in row or "git" in row:
                head += f" @ {row.get('url') or git_url(row)}"
            lines.append(head + semicolon + marker)
    wheels = read_lines(lines, path, "pypi-dependencies")
    return wheels.replace(package_indexes=tuple(bound))


def default_tables(document: Table, targets: tuple[str, ...]) -> Iterator[Table]:
    """Yield the tables with the dependencies of the default environment on a platform."""
    default = document.get("environments", {}).get("default", [])
    is_table = isinstance(default, dict)
    names = default.get("features", []) if is_table else default
    tables = [document["feature"][name] for name in names]
    if not (is_table and default.get("no-default-feature")):
        tables.insert(0, {**document, "channels": []})
    for table in tables:
        yield table
        for target in targets:
            yield table.get("target", {}).get(target, {})


def _rows(table: Table, key: str) -> Iterator[tuple[str, Any]]:
    rows = table.get(key, {})
    if not isinstance(rows, dict):
        raise ValueError(f"{key} must be a table")
    yield from rows.items()


def _channel(entry: str | Table) -> str:
    return entry if isinstance(entry, str) else str(entry["channel"])


def _spec(name: str, value: str | Table) -> str:
    """Return a dependency as conda's spec. ValueError if it is none of a package in a channel."""
    table = {"version": value} if isinstance(value, str) else value
    unknown = sorted(table.keys() - {"version", "build", "channel"})
    if unknown:
        raise ValueError(f"{name}: {unknown[0]} is not read; version, build and channel are")
    version = "".join(str(table.get("version", "*")).split())
    spec = conda_versions.text_of(name, version, table.get("build") or "*")
    return f"{table['channel']}::{spec}" if "channel" in table else spec
