"""uv.lock: walked from the project, with the markers of the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from ..requirements.source_urls import EDITABLE, Commit
from ..requirements.versions import normalize_name
from ..serialize import from_plain
from .foreign import Edge, LockContents, LockedPackage, Wanted, closure, locked_file


class _Source(msgspec.Struct):
    registry: str | None = None
    git: str | None = None
    url: str | None = None
    path: str | None = None
    directory: str | None = None
    editable: str | None = None
    virtual: str | None = None


class _Dependency(msgspec.Struct):
    name: str
    version: str | None = None
    source: _Source | None = None
    marker: str | None = None
    extra: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()  # of a requirement of a script or of a group without a project


class _File(msgspec.Struct):
    url: str | None = None
    path: str | None = None
    filename: str | None = None
    hash: str | None = None
    size: int | None = None


class _Package(msgspec.Struct, rename="kebab"):
    name: str
    source: _Source
    version: str | None = None
    resolution_markers: tuple[str, ...] = ()
    dependencies: tuple[_Dependency, ...] = ()
    optional_dependencies: dict[str, tuple[_Dependency, ...]] = {}
    dev_dependencies: dict[str, tuple[_Dependency, ...]] = {}
    sdist: _File | None = None
    wheels: tuple[_File, ...] = ()


class _Manifest(msgspec.Struct, rename="kebab", frozen=True):
    members: tuple[str, ...] = ()
    requirements: tuple[_Dependency, ...] = ()
    dependency_groups: dict[str, tuple[_Dependency, ...]] = {}


class _Lock(msgspec.Struct, rename="kebab"):
    version: int
    package: tuple[_Package, ...] = ()
    requires_python: str = ""
    manifest: _Manifest = _Manifest()


def read(document: dict[str, Any], wanted: Wanted) -> LockContents:
    """Walk from the project, from all members of a workspace without one, or from a script."""
    lock = from_plain(document, _Lock, "")
    manifest, roots = lock.manifest, _roots(lock)
    if not (roots or manifest.requirements or manifest.dependency_groups):
        raise ValueError("it has no project")
    # Rows of the lock by what adds them.
    extras = [table for root in roots for table in root.optional_dependencies.items()]
    groups = [table for root in roots for table in root.dev_dependencies.items()]
    groups += manifest.dependency_groups.items()
    wanted.require_known([name for name, _ in extras], [name for name, _ in groups])
    active = {*wanted.extras}  # uv's markers name the extras and groups of conflicts so:
    for root in roots:
        for kind, names in (("extra", wanted.extras), ("group", wanted.groups)):
            active |= {f"{kind}-{len(root.name)}-{root.name}-{name}" for name in names}
    waiting = [*manifest.requirements, *(row for root in roots for row in root.dependencies)]
    for tables, names in ((extras, wanted.extras), (groups, wanted.groups)):
        waiting += [row for name, rows in tables if normalize_name(name) in names for row in rows]
    graph = _Graph(partial(wanted.holds, extras=active))
    found = closure(lock.package, graph.edges(waiting), graph.below)
    return LockContents(
        created_by="uv",
        packages=tuple(_locked(package, wanted) for package in found if package not in roots),
        requires_python=lock.requires_python,
    )


def _roots(lock: _Lock) -> list[_Package]:
    """Return the project at the root of a workspace; without one, the members."""
    project = [
        package
        for package in lock.package
        if "." in (package.source.virtual, package.source.editable, package.source.directory)
    ]
    members = lock.manifest.members
    return project or [package for package in lock.package if package.name in members]


class _Graph:
    """The dependencies in a lock whose markers hold."""

    def __init__(self, holds: Callable[[str | None], bool]) -> None:
        self._holds = holds

    def edges(self, rows: Iterable[_Dependency]) -> list[Edge[_Package]]:
        """Return the edges of some dependencies."""
        return [
            Edge(row.name, partial(self._fits, row), (*row.extra, *row.extras))
            for row in rows
            if self._holds(row.marker)
        ]

    def below(self, package: _Package, extra: str) -> list[Edge[_Package]]:
        """Return the edges of a package, or of one of its extras."""
        table = package.optional_dependencies
        return self.edges(table.get(extra, ()) if extra else package.dependencies)

    def _fits(self, row: _Dependency, package: _Package) -> bool:
        """Return whether a package is the one of several releases that a dependency means."""
        markers = package.resolution_markers
        is_named = row.version in (None, package.version) and row.source in (None, package.source)
        return is_named and (not markers or any(map(self._holds, markers)))


def _locked(package: _Package, wanted: Wanted) -> LockedPackage:
    source, registry, files = package.source, package.source.registry or "", []
    path = source.path or source.directory or source.virtual
    own_url = source.url or ""
    if path is not None:
        own_url = wanted.beside(path)
    elif source.editable is not None:
        own_url = wanted.beside(source.editable) + EDITABLE
    elif source.git is not None:
        own_url = _commit(source.git)
    for file in [*package.wheels, *filter(None, [package.sdist])]:
        url = file.url or own_url
        if file.path is not None and not url:
            url = wanted.beside(registry, file.path)
        files.append(locked_file(file.filename or "", file.hash, url, file.size))
    return LockedPackage(
        name=normalize_name(package.name),
        version=package.version,
        index=registry if "://" in registry else "",
        files=tuple(files),
        url=own_url,
    )


def _commit(url: str) -> str:
    """Return the tree of https://HOST/REPOSITORY?rev=main&subdirectory=python#COMMIT."""
    plain, _, commit = url.partition("#")
    plain, _, query = plain.partition("?")
    details = dict(parse_qsl(query))
    revision = next((details[key] for key in ("rev", "tag", "branch") if key in details), "")
    folder = details.get("subdirectory", "")
    return str(Commit(url=plain, commit=commit, revision=revision, subdirectory=folder))
