"""Locks of uv, poetry, pdm, pipenv and pip: what each of them installs on one host.

A reader follows its tool: uv's locks are walked from the project, with the markers of the host; the
others say for each package when it is installed. The dependencies of the project are taken, and
those of the extras and groups that are asked for.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
from packaging.markers import Marker
from packaging.requirements import Requirement

from ..errors import InputError
from ..index.protocol import DIRECT_URL
from ..index.urls import path_to_file_url
from ..model import Host, Value
from ..requirements.files import read_files
from ..requirements.target import contains, marker_environment, normalize_name, version_key
from ..serialize import from_plain, parse_toml, read_input, read_toml

MAIN = "main"
_NAMES = {"uv.lock": "uv", "poetry.lock": "poetry", "pdm.lock": "pdm", "Pipfile.lock": "pipenv"}
# (tool, a table, a key in it): by these a lock is known, whatever its name is.
_SIGNS = (
    ("pipenv", "_meta", "pipfile-spec"),
    ("pdm", "metadata", "lock_version"),
    ("poetry", "metadata", "content-hash"),
)
_HASH_OPTION = re.compile(r"(?m)^[^#\n]*\s--hash[= ]sha256:")  # of a line of requirements
_EXTRA = re.compile(r"""(?<![\w"'])extra\s*(==|!=)\s*["']([^"']*)["']""")
_REVERSED_EXTRA = re.compile(r"""["']([^"']*)["']\s*(==|!=)\s*extra\b(?!s)""")
_PYLOCK = "export it, and give pylock.toml: {} -o pylock.toml"
_POETRY_HINT = _PYLOCK.format("poetry export --format pylock.toml")
_POETRY_HINT += " (poetry-plugin-export 1.10); or lock it again with Poetry 2"
_PDM_HINT = _PYLOCK.format("pdm export --format pylock")
# What the content hash of Poetry 1 covers; the last one only where it is there.
_HASHED_TABLES = ("dependencies", "source", "extras", "dev-dependencies", "group")


class LockedFile(Value):
    """A file of a package. `url` is "" if the lock names the file only."""

    filename: str
    url: str = ""
    sha256: str = ""
    size: int | None = None


class LockedPackage(Value):
    """A package that a lock installs.

    Attributes:
        name: its normalized name.
        version: its version; None for a folder or a repository.
        index: the URL of its index; "" if none is named, DIRECT_URL for a file at its own URL.
        files: its files.
        hashes: the sha256s of its files, if the lock does not name them.
        sources: "a folder" or "a repository" if it is one; such a package has no hash.
    """

    name: str
    version: str | None
    index: str = ""
    files: tuple[LockedFile, ...] = ()
    hashes: tuple[str, ...] = ()
    sources: str = ""


class Selection(Value):
    """What a lock installs on one host.

    `indexes` may supply every package. `left_out` are the extras of the project if none was asked
    for.
    """

    created_by: str
    packages: tuple[LockedPackage, ...]
    requires_python: str = ""
    indexes: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class Wanted:
    """The host, the extras and the groups that a lock is read for."""

    def __init__(self, path: str, host: Host, extras: Sequence[str], groups: Sequence[str]) -> None:
        self.path, self.host = path, host
        self.left_out: tuple[str, ...] = ()
        self.extras = set(map(normalize_name, extras))
        self.groups = set(map(normalize_name, groups))
        self._variables = marker_environment(host)

    def holds(self, marker: str | None, extras: Collection[str] | None = None) -> bool:
        """Return whether a marker holds, with these extras or those that are asked for.

        Raises:
            ValueError: it is no marker.
        """
        if not marker:
            return True
        signs = {"==": "in", "!=": "not in"}
        marker = _EXTRA.sub(lambda match: f'"{match[2]}" {signs[match[1]]} extras', marker)
        marker = _REVERSED_EXTRA.sub(lambda match: f'"{match[1]}" {signs[match[2]]} extras', marker)
        names = frozenset(self.extras if extras is None else extras)
        variables: dict[str, str | Set[str]]
        variables = {**self._variables, "extras": names, "dependency_groups": frozenset()}
        try:
            return Marker(marker).evaluate(variables, context="lock_file")
        except (KeyError, RecursionError):  # of a variable that there is not; of parentheses
            raise ValueError(f"{marker[:80]!r} is no marker") from None

    def require_known(self, extras: Collection[str], groups: Collection[str]) -> None:
        """Raise InputError for an extra or a group that the lock does not have."""
        self.left_out = () if self.extras or self.groups else tuple(sorted(extras))
        for kind, wanted, known in (
            ("extra", self.extras, extras),
            ("group", self.groups, groups),
        ):
            for name in sorted(wanted - set(map(normalize_name, known))):
                there = ", ".join(sorted(known)) or "none"
                raise InputError(f"{self.path}: has no {kind} {name}; it has {there}")


def tool_of(path: str) -> str:
    """Return which lock of another tool a file is: one of READERS, "pip" or "pylock" (PEP 751).

    "pip" are requirements with hashes. The content decides; of a damaged file the name does. "" is
    any other file, and no file.
    """
    if not os.path.isfile(path):
        return ""
    by_name = _NAMES.get(os.path.basename(path), "")
    try:
        text = read_input(path).decode()
    except (OSError, UnicodeDecodeError):
        return by_name
    try:
        document = _parsed(text)
    except (ValueError, RecursionError):
        return by_name or ("pip" if _HASH_OPTION.search(text) else "")
    for tool, table, key in _SIGNS:
        if isinstance(document.get(table), dict) and key in document[table]:
            return tool
    if "lock-version" in document:
        own = document.get("tool")
        return "" if isinstance(own, dict) and "gpuenv" in own else "pylock"
    is_uv = {"version", "requires-python"} <= document.keys()
    return "uv" if is_uv else by_name


def select(path: str, host: Host, extras: Sequence[str], groups: Sequence[str]) -> Selection:
    """Return what a lock of uv, poetry, pdm, pipenv or pip installs on a host.

    Raises:
        InputError: it cannot be read, or what it installs on one host does not follow from it.
    """
    tool, wanted = tool_of(path), Wanted(path, host, extras, groups)
    try:
        if tool == "pip":
            selection = _of_requirements(path, wanted)
        else:
            selection = READERS[tool](_parsed(read_input(path).decode()), path, wanted)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        message = " ".join(str(error).split())[:300]
        raise InputError(f"{path}: is no lock of {tool} that can be read: {message}") from None
    names = set()
    for package in selection.packages:
        try:
            version_key(package.version or "0")
        except InputError as error:
            raise InputError(f"{path}: package {package.name}: {error.message}") from None
        if package.name in names:
            hint = "name the extras and groups that decide: --extra NAME, --group NAME"
            raise InputError(f"{path}: has two versions of {package.name} for this host", hint=hint)
        names.add(package.name)
    return selection.replace(left_out=wanted.left_out)


def _parsed(text: str) -> dict[str, Any]:
    """Return the content of a lock, TOML or JSON. ValueError if it is neither."""
    if not text.lstrip().startswith("{"):
        return parse_toml(text)
    document: dict[str, Any] = json.loads(text)
    return document


def _file(name: str, digest: str | None, url: str = "", size: int | None = None) -> LockedFile:
    algorithm, _, sha256 = (digest or "").partition(":")
    return LockedFile(
        filename=name or _last_part(url),
        url=url.partition("#")[0],
        sha256=sha256 if algorithm == "sha256" else "",
        size=size,
    )


def _last_part(url: str) -> str:
    return unquote(urlsplit(url).path.rpartition("/")[2])


def beside(path: str, *parts: str) -> str:
    """Return the file:// URL of a path that a lock has, relative to the lock."""
    return path_to_file_url(os.path.abspath(os.path.join(os.path.dirname(path), *parts)))


# ---- uv ------------------------------------------------------------------------------------------


class _UvSource(msgspec.Struct):
    registry: str | None = None
    git: str | None = None
    url: str | None = None
    path: str | None = None
    directory: str | None = None
    editable: str | None = None
    virtual: str | None = None


class _UvDependency(msgspec.Struct):
    name: str
    version: str | None = None
    source: _UvSource | None = None
    marker: str | None = None
    extra: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()  # of a requirement of a script


class _UvFile(msgspec.Struct):
    url: str | None = None
    path: str | None = None
    filename: str | None = None
    hash: str | None = None
    size: int | None = None


class _UvPackage(msgspec.Struct, rename="kebab"):
    name: str
    source: _UvSource
    version: str | None = None
    resolution_markers: tuple[str, ...] = ()
    dependencies: tuple[_UvDependency, ...] = ()
    optional_dependencies: dict[str, tuple[_UvDependency, ...]] = {}
    dev_dependencies: dict[str, tuple[_UvDependency, ...]] = {}
    sdist: _UvFile | None = None
    wheels: tuple[_UvFile, ...] = ()

    @property
    def is_project(self) -> bool:
        """Whether it is the project at the root of a workspace."""
        return "." in (self.source.virtual, self.source.editable, self.source.directory)


class _UvManifest(msgspec.Struct, frozen=True):
    members: tuple[str, ...] = ()
    requirements: tuple[_UvDependency, ...] = ()


class _UvLock(msgspec.Struct, rename="kebab"):
    version: int
    package: tuple[_UvPackage, ...] = ()
    requires_python: str = ""
    manifest: _UvManifest = _UvManifest()


def _of_uv(document: dict[str, Any], path: str, wanted: Wanted) -> Selection:
    """Walk from the project, from all members of a workspace without one, or from a script."""
    lock = from_plain(document, _UvLock, "")
    members = lock.manifest.members
    roots = [package for package in lock.package if package.is_project]
    roots = roots or [package for package in lock.package if package.name in members]
    waiting = list(lock.manifest.requirements)
    if not roots and not waiting:
        raise ValueError("it has no project")
    wanted.require_known(
        [extra for root in roots for extra in root.optional_dependencies],
        [group for root in roots for group in root.dev_dependencies],
    )
    active = set(wanted.extras)  # uv's markers name the extras and groups of conflicts so
    for root in roots:
        for kind, names in (("extra", wanted.extras), ("group", wanted.groups)):
            active |= {f"{kind}-{len(root.name)}-{root.name}-{name}" for name in names}
        waiting += root.dependencies
        tables = (root.optional_dependencies, wanted.extras), (root.dev_dependencies, wanted.groups)
        for table, names in tables:
            waiting += [
                row for name in table if normalize_name(name) in names for row in table[name]
            ]
    by_name: dict[str, list[_UvPackage]] = {}
    for package in lock.package:
        by_name.setdefault(package.name, []).append(package)
    packages: dict[int, _UvPackage] = {}
    extras: dict[int, set[str]] = {}
    while waiting:
        needed = waiting.pop()
        if not wanted.holds(needed.marker, active):
            continue
        package = _uv_package(
            by_name.get(needed.name, []), needed, partial(wanted.holds, extras=active)
        )
        if id(package) not in packages:
            packages[id(package)] = package
            waiting += package.dependencies
        known = extras.setdefault(id(package), set())
        for extra in {*needed.extra, *needed.extras} - known:
            known.add(extra)
            waiting += package.optional_dependencies.get(extra, ())
    return Selection(
        created_by="uv",
        packages=tuple(
            _of_uv_package(package, path) for package in packages.values() if package not in roots
        ),
        requires_python=lock.requires_python,
    )


def _uv_package(
    packages: Sequence[_UvPackage], needed: _UvDependency, holds: Callable[[str], bool]
) -> _UvPackage:
    """Return the one of the packages of a name that a dependency is on."""
    matching = [
        package
        for package in packages
        if needed.version in (None, package.version) and needed.source in (None, package.source)
    ]
    if len(matching) > 1:
        matching = [package for package in matching if any(map(holds, package.resolution_markers))]
    if len(matching) != 1:
        raise ValueError(f"a package depends on {needed.name}, and {len(matching)} have this name")
    return matching[0]


def _of_uv_package(package: _UvPackage, path: str) -> LockedPackage:
    source, files = package.source, []
    for file in [*package.wheels, *filter(None, [package.sdist])]:
        url = file.url or source.url or ""
        if source.path is not None:
            url = beside(path, source.path)
        elif file.path is not None:
            url = beside(path, source.registry or "", file.path)
        files.append(_file(file.filename or "", file.hash, url, file.size))
    registry = source.registry or ""
    folder = (source.directory, source.editable, source.virtual) != (None, None, None)
    return LockedPackage(
        name=normalize_name(package.name),
        version=package.version,
        index=DIRECT_URL if source.url or source.path else registry if "://" in registry else "",
        files=tuple(files),
        sources="a repository" if source.git else "a folder" if folder else "",
    )


# ---- poetry --------------------------------------------------------------------------------------


class _PoetryFile(msgspec.Struct):
    file: str
    hash: str = ""


class _PoetrySource(msgspec.Struct):
    type: str
    url: str = ""


class _PoetryPackage(msgspec.Struct):
    name: str
    version: str
    optional: bool = False
    groups: tuple[str, ...] | None = None
    markers: str | dict[str, str] | None = None
    files: tuple[_PoetryFile, ...] = ()
    dependencies: dict[str, Any] = {}
    extras: dict[str, tuple[str, ...]] = {}
    source: _PoetrySource | None = None


class _PoetryMetadata(msgspec.Struct, rename="kebab"):
    content_hash: str
    python_versions: str = "*"
    files: dict[str, tuple[_PoetryFile, ...]] = {}  # of Poetry before 1.3


class _PoetryLock(msgspec.Struct):
    metadata: _PoetryMetadata
    package: tuple[_PoetryPackage, ...] = ()
    extras: dict[str, tuple[str, ...]] = {}


def _of_poetry(document: dict[str, Any], path: str, wanted: Wanted) -> Selection:
    lock = from_plain(document, _PoetryLock, "")
    if all(package.groups is not None for package in lock.package):
        packages = _poetry_2_packages(lock, wanted)
    else:
        packages = _Poetry1(lock, path, wanted).packages()
    return Selection(
        created_by="poetry",
        packages=tuple(_of_poetry_package(package, lock, path) for package in packages),
        requires_python=_specifier(lock.metadata.python_versions) or "",
    )


def _poetry_2_packages(lock: _PoetryLock, wanted: Wanted) -> list[_PoetryPackage]:
    """Return the packages of the groups that are wanted, whose markers hold."""
    known = {group for package in lock.package for group in package.groups or ()}
    wanted.require_known(lock.extras, known - {MAIN})
    packages = []
    for package in lock.package:
        groups = (wanted.groups | {MAIN}) & set(package.groups or ())
        markers = package.markers
        by_group = markers if isinstance(markers, dict) else dict.fromkeys(groups, markers or "")
        if package.optional and not markers:
            groups -= {MAIN}
        if any(wanted.holds(by_group.get(group)) for group in groups):
            packages.append(package)
    return packages


class _Poetry1:
    """A lock of Poetry 1: it has no markers of its packages, so the project is where it starts."""

    def __init__(self, lock: _PoetryLock, path: str, wanted: Wanted) -> None:
        self.lock, self.wanted = lock, wanted
        project = os.path.join(os.path.dirname(path), "pyproject.toml")
        if not os.path.isfile(project):
            message = f"{path}: Poetry 1 wrote it, and pyproject.toml is not beside it"
            raise InputError(f"{message}: it does not say what this host needs", hint=_POETRY_HINT)
        tool = read_toml(project).get("tool")
        table = tool.get("poetry") if isinstance(tool, dict) else None
        self.table: dict[str, Any] = table if isinstance(table, dict) else {}
        relevant = {
            key: self.table.get(key)
            for key in _HASHED_TABLES
            if key != "group" or self.table.get(key) is not None
        }
        text = json.dumps(relevant, sort_keys=True, default=str)
        if hashlib.sha256(text.encode()).hexdigest() != lock.metadata.content_hash:
            message = f"{path}: {project} has changed since it was locked"
            raise InputError(message, hint="lock it again: poetry lock")

    def packages(self) -> list[_PoetryPackage]:
        """Return the packages below those that the project depends on."""
        groups = self.table.get("group") or {}
        self.wanted.require_known(self.lock.extras, groups)
        names = {
            normalize_name(re.split(r"[^\w.-]", text)[0])
            for extra, texts in self.lock.extras.items()
            if normalize_name(extra) in self.wanted.extras
            for text in texts
        }
        tables = [self.table.get("dependencies") or {}]
        tables += [
            table.get("dependencies") or {}
            for group, table in groups.items()
            if normalize_name(group) in self.wanted.groups
        ]
        waiting = [edge for table in tables for edge in self._edges(table, names)]
        packages: dict[tuple[str, str], _PoetryPackage] = {}
        extras: dict[tuple[str, str], set[str]] = {}
        while waiting:
            name, specifier, wanted_extras = waiting.pop()
            package = self._package(name, specifier)
            key = (package.name, package.version)
            new = set(wanted_extras) - extras.get(key, set())
            if key in packages and not new:
                continue
            packages[key] = package
            known = extras.setdefault(key, set())
            known |= new
            texts = [text for extra in known for text in package.extras.get(extra, ())]
            below = {normalize_name(re.split(r"[^\w.-]", text)[0]) for text in texts}
            waiting += self._edges(package.dependencies, below, known)
        return list(packages.values())

    def _edges(
        self, table: Mapping[str, Any], optional: Collection[str], extras: Collection[str] = ()
    ) -> Iterator[tuple[str, str, Sequence[str]]]:
        """Yield (name, specifier, extras) of the dependencies that hold; `optional` ones, too."""
        for name, rows in table.items():
            for value in rows if isinstance(rows, list) else [rows]:
                row = value if isinstance(value, dict) else {"version": value}
                python = _specifier(row.get("python", "*"))
                full = marker_environment(self.wanted.host)["python_full_version"]
                if name == "python" or python is None or not contains(python, full):
                    continue
                platform = row.get("platform")
                marker = row.get("markers") or (platform and f"sys_platform == '{platform}'")
                if row.get("optional") and normalize_name(name) not in optional:
                    continue
                if self.wanted.holds(marker, extras):
                    specifier = _specifier(row.get("version", "*"))
                    yield normalize_name(name), specifier or "", row.get("extras", ())

    def _package(self, name: str, specifier: str) -> _PoetryPackage:
        packages = [
            package for package in self.lock.package if normalize_name(package.name) == name
        ]
        if len(packages) > 1:
            packages = [package for package in packages if contains(specifier, package.version)]
        if len(packages) != 1:
            message = f"{name}: Poetry 1 locked it, and which of {len(packages)} releases is meant"
            raise InputError(f"{message} does not follow from the lock", hint=_POETRY_HINT)
        return packages[0]


def _specifier(text: object) -> str | None:
    """Return a constraint of Poetry as a PEP 440 specifier; None if there is none."""
    if not isinstance(text, str) or "|" in text:
        return None
    clauses = []
    for clause in re.split(r"\s*,\s*|\s+(?=[<>=!~^])", text.strip()):
        match = re.fullmatch(r"([\^~])\s*(\d+(?:\.\d+)*)", clause)
        if match is not None:
            numbers = [int(number) for number in match[2].split(".")]
            place = min(1, len(numbers) - 1)
            if match[1] == "^":
                place = next((at for at, number in enumerate(numbers) if number), len(numbers) - 1)
            upper = [*numbers[:place], numbers[place] + 1]
            clauses.append(f">={match[2]},<{'.'.join(map(str, upper))}")
        elif clause not in ("*", ""):
            clauses.append(clause if clause[0] in "<>=!~" else f"=={clause}")
    return ",".join(clauses)


def _of_poetry_package(package: _PoetryPackage, lock: _PoetryLock, path: str) -> LockedPackage:
    kind, place = "", ""
    if package.source is not None:
        kind, place = package.source.type, package.source.url
    url = {"url": place, "file": beside(path, place)}.get(kind, "")
    files = package.files or lock.metadata.files.get(package.name, ())
    return LockedPackage(
        name=normalize_name(package.name),
        version=package.version,
        index=DIRECT_URL if url else place if kind == "legacy" else "",
        files=tuple(_file(file.file, file.hash, url) for file in files),
        sources={"git": "a repository", "directory": "a folder"}.get(kind, ""),
    )


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
    url: str | None = None
    path: str | None = None


class _PdmTarget(msgspec.Struct):
    requires_python: str = ""


class _PdmMetadata(msgspec.Struct):
    groups: tuple[str, ...] = ()
    targets: tuple[_PdmTarget, ...] = ()


class _PdmLock(msgspec.Struct):
    metadata: _PdmMetadata
    package: tuple[_PdmPackage, ...] = ()


def _of_pdm(document: dict[str, Any], path: str, wanted: Wanted) -> Selection:
    """Return the packages of the groups that are wanted. An extra of a project is a group, too."""
    lock = from_plain(document, _PdmLock, "")
    if any(package.groups is None for package in lock.package):
        message = f"{path}: its packages have no groups: it was locked without inherit_metadata"
        raise InputError(message, hint=_PDM_HINT)
    known = set(lock.metadata.groups) - {"default"}
    wanted.require_known(known, known)
    groups = wanted.extras | wanted.groups | {"default"}
    # A package with extras has an entry of its own, with the same files.
    packages: dict[tuple[str, str | None], LockedPackage] = {}
    for package in lock.package:
        if groups & set(map(normalize_name, package.groups or ())) and wanted.holds(package.marker):
            url = package.url or ("" if package.path is None else beside(path, package.path))
            name, version = normalize_name(package.name), package.version
            packages[name, version] = LockedPackage(
                name=name,
                version=version,
                index=DIRECT_URL if url else "",
                files=tuple(_file(file.file, file.hash, file.url or url) for file in package.files),
                sources="a repository" if package.git else "",
            )
    targets = lock.metadata.targets
    return Selection(
        created_by="pdm",
        packages=tuple(packages.values()),
        requires_python=targets[0].requires_python if len(targets) == 1 else "",
    )


# ---- pipenv and pip ------------------------------------------------------------------------------


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
    path: str | None = None
    file: str | None = None


class _PipenvLock(msgspec.Struct):
    meta: _PipenvMeta = msgspec.field(name="_meta")
    default: dict[str, _PipenvPackage] = {}
    develop: dict[str, _PipenvPackage] = {}


def _of_pipenv(document: dict[str, Any], path: str, wanted: Wanted) -> Selection:
    lock = from_plain(document, _PipenvLock, "")
    wanted.require_known((), ["develop"])
    urls = {source.name: source.url for source in lock.meta.sources}
    rows = {**(lock.develop if wanted.groups else {}), **lock.default}
    packages = []
    for name, row in rows.items():
        if not wanted.holds(row.markers):
            continue
        if row.index is not None and row.index not in urls:
            raise ValueError(f"{name} is of the index {row.index}, which it does not have")
        url = row.file or ""
        if row.path is not None and row.path.endswith(".whl"):
            url = beside(path, row.path)
        digest = row.hashes[0] if len(row.hashes) == 1 else None
        is_folder = row.path is not None and not url
        index = row.index if row.index is not None else next(iter(urls), None)
        packages.append(
            LockedPackage(
                name=normalize_name(name),
                version=None if row.version is None else row.version.removeprefix("=="),
                index=DIRECT_URL if url else "" if index is None else urls[index],
                files=(_file("", digest, url),) if url else (),
                hashes=() if url else _sha256s(row.hashes),
                sources="a repository" if row.git else "a folder" if is_folder else "",
            )
        )
    python = lock.meta.requires.get("python_version")
    requires = f"=={python}.*" if python else ""
    return Selection(created_by="pipenv", packages=tuple(packages), requires_python=requires)


def _sha256s(hashes: Sequence[str]) -> tuple[str, ...]:
    return tuple(text.removeprefix("sha256:") for text in hashes if text.startswith("sha256:"))


def _of_requirements(path: str, wanted: Wanted) -> Selection:
    """Read pinned requirements with hashes."""
    wanted.require_known((), ())
    read = read_files([path])
    hashes, packages = dict(read.hashes), []
    for text in read.requirements:
        requirement = Requirement(text)
        name = normalize_name(requirement.name)
        if not wanted.holds(None if requirement.marker is None else str(requirement.marker)):
            continue
        url = requirement.url or ""
        digest = re.search(r"sha256=([0-9a-f]{64})", url)
        known = (digest[1],) if digest else hashes.get(name, ())
        version = next((clause.version for clause in requirement.specifier), None)
        file = LockedFile(
            filename=_last_part(url), url=url.partition("#")[0], sha256=next(iter(known), "")
        )
        packages.append(
            LockedPackage(
                name=name,
                version=version,
                index=DIRECT_URL if url else read.index_url or "",
                files=(file,) if url else (),
                hashes=() if url else known,
            )
        )
    indexes = read.extra_index_urls
    return Selection(created_by="pip", packages=tuple(packages), indexes=indexes)


READERS: dict[str, Callable[[dict[str, Any], str, Wanted], Selection]] = {
    "uv": _of_uv,
    "poetry": _of_poetry,
    "pdm": _of_pdm,
    "pipenv": _of_pipenv,
}
