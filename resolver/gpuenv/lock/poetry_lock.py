"""poetry.lock: Poetry 2 says when a package is installed; Poetry 1 starts at the project."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from ..errors import InputError
from ..requirements.source_urls import EDITABLE, Commit
from ..requirements.versions import contains, normalize_name, poetry_specifier
from ..serialize import from_plain, read_toml, text_digest
from .foreign import Edge, LockContents, LockedPackage, Wanted, closure, locked_file

EXPORT = (
    "poetry export --format pylock.toml -o pylock.toml (poetry-plugin-export 1.10); or lock it "
    "again with Poetry 2"
)
_MAIN = "main"
# What the content hash of Poetry 1 covers; the last one only where it is there.
_HASHED_TABLES = ("dependencies", "source", "extras", "dev-dependencies", "group")


class _File(msgspec.Struct):
    file: str
    hash: str = ""


class _Source(msgspec.Struct):
    type: str = ""
    url: str = ""
    reference: str | None = None
    resolved_reference: str = ""
    subdirectory: str | None = None


class _Package(msgspec.Struct):
    name: str
    version: str
    optional: bool = False
    groups: tuple[str, ...] | None = None
    markers: str | dict[str, str] | None = None
    files: tuple[_File, ...] = ()
    dependencies: dict[str, Any] = {}
    extras: dict[str, tuple[str, ...]] = {}
    source: _Source | None = None
    develop: bool = False


class _Metadata(msgspec.Struct, rename="kebab"):
    content_hash: str
    python_versions: str = "*"
    files: dict[str, tuple[_File, ...]] = {}  # of Poetry before 1.3


class _Lock(msgspec.Struct):
    metadata: _Metadata
    package: tuple[_Package, ...] = ()
    extras: dict[str, tuple[str, ...]] = {}


def read(document: dict[str, Any], wanted: Wanted) -> LockContents:
    """Return what a poetry.lock installs."""
    lock = from_plain(document, _Lock, "")
    is_new = all(package.groups is not None for package in lock.package)
    packages = (_of_groups if is_new else _below_project)(lock, wanted)
    python = lock.metadata.python_versions
    return LockContents(
        created_by="poetry",
        packages=tuple(_locked(package, lock, wanted) for package in packages),
        requires_python="" if "||" in python else poetry_specifier(python),
    )


def _of_groups(lock: _Lock, wanted: Wanted) -> list[_Package]:
    """Return the packages of the groups that are wanted, whose markers hold."""
    known = {group for package in lock.package for group in package.groups or ()}
    wanted.require_known(lock.extras, known - {_MAIN})
    packages = []
    for package in lock.package:
        groups = (wanted.groups | {_MAIN}) & set(package.groups or ())
        markers = package.markers
        by_group = markers if isinstance(markers, dict) else dict.fromkeys(groups, markers or "")
        if package.optional and not markers:
            groups -= {_MAIN}
        if any(wanted.holds(by_group.get(group)) for group in groups):
            packages.append(package)
    return packages


def _below_project(lock: _Lock, wanted: Wanted) -> list[_Package]:
    """Return the packages below those that the pyproject.toml beside the lock asks for."""
    project = os.path.join(os.path.dirname(wanted.path), "pyproject.toml")
    if not os.path.isfile(project):
        message = f"{wanted.path}: Poetry 1 wrote it, and pyproject.toml is not beside it"
        raise InputError(
            f"{message}: it does not say what this host needs", hint=f"export it: {EXPORT}"
        )
    table: dict[str, Any] = read_toml(project).get("tool", {}).get("poetry", {})
    relevant = {key: table.get(key) for key in _HASHED_TABLES if key != "group" or key in table}
    text = json.dumps(relevant, sort_keys=True, default=str)
    if text_digest(text) != lock.metadata.content_hash:
        message = f"{wanted.path}: {project} has changed since it was locked"
        raise InputError(message, hint="lock it again: poetry lock")
    groups = {**table.get("group", {})}
    if "dev-dependencies" in table:
        groups.setdefault("dev", {"dependencies": table["dev-dependencies"]})
    wanted.require_known(lock.extras, groups)
    optional = {
        name
        for extra in lock.extras
        if normalize_name(extra) in wanted.extras
        for name in _names(lock.extras[extra])
    }
    tables = [table.get("dependencies", {})]
    tables += [
        groups[name]["dependencies"] for name in groups if normalize_name(name) in wanted.groups
    ]
    edges = [edge for table in tables for edge in _edges(table, wanted, optional)]

    def below(package: _Package, extra: str) -> Iterator[Edge[_Package]]:
        names = _names(package.extras.get(extra, ()))
        return _edges(package.dependencies, wanted, names, {extra})

    return closure(lock.package, edges, below)


def _names(texts: Collection[str]) -> set[str]:
    """Return the names of requirements such as "PySocks (>=1.5.6,!=1.5.7)"."""
    return {normalize_name(re.split(r"[^\w.-]", text)[0]) for text in texts}


def _edges(
    table: Mapping[str, Any],
    wanted: Wanted,
    optional: Collection[str],
    extras: Collection[str] = (),
) -> Iterator[Edge[_Package]]:
    """Yield the dependencies that hold on the host, and of the optional ones the named ones."""
    for name, rows in table.items():
        for value in rows if isinstance(rows, list) else [rows]:
            row = value if isinstance(value, dict) else {"version": value}
            python = wanted.variables["python_full_version"]
            if name == "python" or not _admits(row.get("python", "*"), python):
                continue
            if row.get("optional") and normalize_name(name) not in optional:
                continue
            platform = row.get("platform")
            marker = row.get("markers") or (platform and f"sys_platform == '{platform}'")
            if wanted.holds(marker, extras):
                fits = partial(_fits, row.get("version", "*"))
                yield Edge(normalize_name(name), fits, row.get("extras", ()))


def _fits(constraint: str, package: _Package) -> bool:
    return _admits(constraint, package.version)


def _admits(constraint: str, version: str) -> bool:
    """Return whether a constraint of Poetry admits a version."""
    return any(contains(poetry_specifier(part), version) for part in constraint.split("||"))


def _locked(package: _Package, lock: _Lock, wanted: Wanted) -> LockedPackage:
    source = package.source or _Source()
    place = wanted.beside(source.url)
    commit = Commit(
        url=source.url,
        commit=source.resolved_reference,
        revision=source.reference or "",
        subdirectory=source.subdirectory or "",
    )
    urls = {
        "url": source.url,
        "file": place,
        "directory": place + EDITABLE * package.develop,
        "git": str(commit),
    }
    url = urls.get(source.type, "")
    files = package.files or lock.metadata.files.get(package.name, ())
    return LockedPackage(
        name=normalize_name(package.name),
        version=package.version,
        index=source.url if source.type == "legacy" else "",
        files=tuple(locked_file(file.file, file.hash, url) for file in files),
        url=url,
    )
