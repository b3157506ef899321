"""Locks that say for each package when it is installed: of pdm, pipenv and pip, and PEP 751."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urldefrag

import msgspec
from packaging.requirements import Requirement

from ..errors import InputError
from ..requirements.files import read_files
from ..requirements.source_urls import EDITABLE, Commit
from ..requirements.versions import normalize_name
from ..serialize import from_plain
from .foreign import LockContents, LockedPackage, Wanted, locked_file
from .pylock import tree_url, validated, with_ordinary_names

PDM_EXPORT = "pdm export --format pylock -o pylock.toml"


# ---- pdm -----------------------------------------------------------------------------------------


class _PdmFile(msgspec.Struct):
    file: str = ""
    url: str = ""
    hash: str = ""


class _PdmPackage(msgspec.Struct):
    name: str
    version: str | None = None
    groups: tuple[str, ...] | None = None
    marker: str | None = None
    files: tuple[_PdmFile, ...] = ()
    git: str | None = None
    ref: str = ""
    revision: str = ""
    subdirectory: str = ""
    url: str | None = None
    path: str | None = None
    editable: bool = False


class _PdmTarget(msgspec.Struct):
    requires_python: str = ""


class _PdmMetadata(msgspec.Struct):
    groups: tuple[str, ...] = ()
    targets: tuple[_PdmTarget, ...] = ()


class _PdmLock(msgspec.Struct):
    metadata: _PdmMetadata
    package: tuple[_PdmPackage, ...] = ()


def of_pdm(document: dict[str, Any], wanted: Wanted) -> LockContents:
    """Return the packages of the groups that are wanted. An extra of a project is a group, too."""
    lock = from_plain(document, _PdmLock, "")
    if any(package.groups is None for package in lock.package):
        message = (
            f"{wanted.path}: its packages have no groups: it was locked without inherit_metadata"
        )
        raise InputError(message, hint=f"export it: {PDM_EXPORT}")
    known = set(lock.metadata.groups) - {"default"}
    wanted.require_known(known, known)
    groups = wanted.extras | wanted.groups | {"default"}
    # A package with extras has an entry of its own, with the same files.
    packages: dict[tuple[str, str | None], LockedPackage] = {}
    for package in lock.package:
        if groups & set(map(normalize_name, package.groups or ())) and wanted.holds(package.marker):
            url = package.url or ("" if package.path is None else wanted.beside(package.path))
            url += EDITABLE * package.editable
            if package.git is not None:
                commit = Commit(
                    url=package.git,
                    commit=package.revision,
                    revision=package.ref,
                    subdirectory=package.subdirectory,
                )
                url = str(commit)
            name, version = normalize_name(package.name), package.version
            packages[name, version] = LockedPackage(
                name=name,
                version=version,
                files=tuple(
                    locked_file(file.file, file.hash, file.url or url) for file in package.files
                ),
                url=url,
            )
    targets = lock.metadata.targets
    return LockContents(
        created_by="pdm",
        packages=tuple(packages.values()),
        requires_python=targets[0].requires_python if len(targets) == 1 else "",
    )


# ---- pipenv --------------------------------------------------------------------------------------


class _PipenvSource(msgspec.Struct):
    name: str
    url: str


class _PipenvMeta(msgspec.Struct):
    requires: dict[str, str] = {}
    sources: tuple[_PipenvSource, ...] = ()


class _PipenvPackage(msgspec.Struct):
    version: str | None = None
    hashes: tuple[str, ...] = ()
    index: str | None = None
    markers: str | None = None
    git: str | None = None
    ref: str = ""
    subdirectory: str = ""
    path: str | None = None
    editable: bool = False
    file: str | None = None


def of_pipenv(document: dict[str, Any], wanted: Wanted) -> LockContents:
    """Return the default packages, and those of the categories that are wanted as groups."""
    meta = from_plain(document["_meta"], _PipenvMeta, "_meta")
    categories = from_plain(
        {name: rows for name, rows in document.items() if name != "_meta"},
        dict[str, dict[str, _PipenvPackage]],
        "",
    )
    wanted.require_known((), categories.keys() - {"default"})
    urls = {source.name: source.url for source in meta.sources}
    rows = {
        name: row
        for category in sorted(categories, key="default".__eq__)  # those of the default win
        if category == "default" or normalize_name(category) in wanted.groups
        for name, row in categories[category].items()
    }
    packages = [
        _of_pipenv(name, row, urls, wanted)
        for name, row in rows.items()
        if wanted.holds(row.markers)
    ]
    python = meta.requires.get("python_full_version") or meta.requires.get("python_version")
    is_short = python is not None and python.count(".") == 1
    return LockContents(
        created_by="pipenv",
        packages=tuple(packages),
        requires_python=f"=={python}{'.*' * is_short}" if python else "",
    )


def _of_pipenv(
    name: str, row: _PipenvPackage, urls: Mapping[str, str], wanted: Wanted
) -> LockedPackage:
    """Return a package of a lock with the URLs of its indexes by their names."""
    if row.index is not None and row.index not in urls:
        raise ValueError(f"{name} is of the index {row.index}, which it does not have")
    version = (row.version or "").lstrip("=*") or None  # "*": not for the locking host
    package = LockedPackage(name=normalize_name(name), version=version)
    url = row.file or ""
    if row.path is not None:
        url = wanted.beside(row.path)
    url += EDITABLE * row.editable
    if row.git is not None:
        url = str(Commit(url=row.git, commit=row.ref, subdirectory=row.subdirectory))
    if url:
        digest = row.hashes[0] if len(row.hashes) == 1 else None
        return package.replace(url=url, files=(locked_file("", digest, url),))
    index = row.index if row.index is not None else next(iter(urls), None)
    hashes = tuple(text.removeprefix("sha256:") for text in row.hashes)
    return package.replace(index="" if index is None else urls[index], hashes=hashes)


# ---- requirements with hashes --------------------------------------------------------------------


def of_requirements(wanted: Wanted) -> LockContents:
    """Return pinned requirements with hashes."""
    wanted.require_known((), ())
    read = read_files([wanted.path])
    hashes, packages = dict(read.hashes), []
    for requirement in map(Requirement, read.requirements):
        if not wanted.holds(str(requirement.marker or "")):
            continue
        name, url = normalize_name(requirement.name), requirement.url or ""
        package = LockedPackage(
            name=name,
            version=next((clause.version for clause in requirement.specifier), None),
            index=read.index_url or "",
            hashes=hashes.get(name, ()),
        )
        if url:
            known = (urldefrag(url).fragment.removeprefix("sha256="), *package.hashes)
            file = locked_file("", f"sha256:{next(filter(None, known), '')}", url)
            package = package.replace(url=url, files=(file,), hashes=())
        packages.append(package)
    indexes = read.extra_index_urls
    return LockContents(created_by="pip", packages=tuple(packages), indexes=indexes)


# ---- PEP 751 -------------------------------------------------------------------------------------


def of_pylock(document: dict[str, Any], wanted: Wanted) -> LockContents:
    """Return the packages of a PEP 751 lock, and of its default groups."""
    described = with_ordinary_names(document)
    lock = validated(document)
    wanted.require_known(lock.extras or (), lock.dependency_groups or ())
    wanted.groups |= {*(lock.default_groups or ())}
    packages = []
    for entry in lock.packages:
        if not wanted.holds(str(entry.marker or "")):
            continue
        files = []
        for file in (*(entry.wheels or ()), entry.sdist, entry.archive):
            if file is not None:
                url = file.url or wanted.beside(file.path or "")
                name = getattr(file, "filename", "")  # an archive has none
                digest = f"sha256:{file.hashes.get('sha256', '')}"
                files.append(locked_file(name, digest, url, file.size))
        own_url = files[0].url if entry.archive else ""
        if entry.vcs is not None or entry.directory is not None:
            own_url = tree_url(entry, os.path.dirname(wanted.path))
        package = LockedPackage(
            name=str(entry.name),
            version=None if entry.version is None else str(entry.version),
            index=entry.index or "",
            files=tuple(files),
            url=own_url,
        )
        packages.append(package)
    return LockContents(
        created_by=lock.created_by,
        packages=tuple(packages),
        requires_python=str(lock.requires_python or ""),
        environments=tuple(lock.environments or ()),
        variants=tuple(described) if lock.created_by != "gpuenv" else (),
    )
