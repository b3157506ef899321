"""Locks that other tools wrote: which tool, and what its lock installs on one host.

A reader (`uv_lock`, `poetry_lock`, `flat_locks`) follows its tool. The dependencies of the project
are taken, and those of the extras and groups that are asked for.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from packaging.markers import Marker

from ..compat.extensions import may_describe_itself_as
from ..errors import InputError, Reason
from ..index.urls import last_part, path_to_file_url
from ..model import Host, Value
from ..requirements.source_urls import is_tree
from ..requirements.target import identify, marker_environment, normalize_name
from ..serialize import parse_toml, read_input

_NAMES = {"uv.lock": "uv", "poetry.lock": "poetry", "pdm.lock": "pdm", "Pipfile.lock": "pipenv"}
# (tool, a table, a key in it): by these a lock is known, whatever its name is.
_SIGNS = (
    ("pipenv", "_meta", "pipfile-spec"),
    ("pdm", "metadata", "lock_version"),
    ("poetry", "metadata", "content-hash"),
)
_HASH_OPTION = re.compile(r"(?m)^[^#\n]*\s--hash[= ]sha256:")  # of a line of requirements
_EXTRA = re.compile(r"""(?<![\w"'])extra\s*(==|!=)\s*["']([^"']*)["']""")


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
        index: the URL of its index; "" if none is named.
        files: its files.
        hashes: the sha256s of its files, if the lock does not name them.
        url: where it is if it is on no index: a file, a folder or a commit (see
            `requirements.source_urls`).
    """

    name: str
    version: str | None
    index: str = ""
    files: tuple[LockedFile, ...] = ()
    hashes: tuple[str, ...] = ()
    url: str = ""

    @property
    def is_source_tree(self) -> bool:
        """Whether it is a folder or a commit."""
        return bool(self.url) and is_tree(self.url)

    @property
    def release(self) -> str | None:
        """Return the version. The name of a wheel at a URL may add a build of torch to it."""
        is_file = self.url and self.files and not self.is_source_tree
        named = identify(self.files[0].filename) if is_file else None
        version = self.version
        if named is not None and (version is None or may_describe_itself_as(named[1], version)):
            return named[1]
        return version


class LockContents(Value):
    """What a lock of any tool installs on one host.

    Attributes:
        created_by: the tool.
        packages: what it installs.
        requires_python: a specifier.
        environments: markers, one of which must hold; () says nothing.
        indexes: the URLs of indexes that may supply every package.
        variants: the names of packages whose variant wheels were not judged.
        path: the file.
        left_out: the extras of the project, if none was asked for.
        reasons: what the files and markers of the lock say against the host.
    """

    created_by: str
    packages: tuple[LockedPackage, ...]
    requires_python: str = ""
    environments: tuple[Marker, ...] = ()
    indexes: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()
    path: str = ""
    left_out: tuple[str, ...] = ()
    reasons: tuple[Reason, ...] = ()

    @property
    def pins(self) -> tuple[tuple[str, str], ...]:
        """Return (name, version); a folder or a repository may have no version."""
        pins = [(package.name, package.release) for package in self.packages]
        return tuple((name, version) for name, version in pins if version is not None)


class Wanted:
    """The host, the extras and the groups that a lock is read for."""

    def __init__(self, path: str, host: Host, extras: Sequence[str], groups: Sequence[str]) -> None:
        self.path, self.host = path, host
        self.left_out: tuple[str, ...] = ()
        self.extras = set(map(normalize_name, extras))
        self.groups = set(map(normalize_name, groups))
        self.variables: dict[str, str] = marker_environment(host)

    def holds(self, marker: str | None, extras: Collection[str] | None = None) -> bool:
        """Return whether a marker holds, with these extras or those that are asked for.

        Raises:
            ValueError: it is no marker.
        """
        if not marker:
            return True
        signs = {"==": "in", "!=": "not in"}
        marker = _EXTRA.sub(lambda match: f'"{match[2]}" {signs[match[1]]} extras', marker)
        variables: dict[str, str | Set[str]] = {**self.variables}
        variables["extras"] = frozenset(self.extras if extras is None else extras)
        variables["dependency_groups"] = frozenset(self.groups)
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

    def beside(self, *parts: str) -> str:
        """Return the file:// URL of a path that the lock has, relative to the lock."""
        return path_to_file_url(os.path.abspath(os.path.join(os.path.dirname(self.path), *parts)))


class _Named(Protocol):
    @property
    def name(self) -> str: ...


Package = TypeVar("Package", bound=_Named)


class Edge(NamedTuple, Generic[Package]):
    """A dependency: its normalized name, which of several releases it means, and its extras."""

    name: str
    fits: Callable[[Package], bool]
    extras: Collection[str] = ()


def closure(
    packages: Iterable[Package],
    edges: Iterable[Edge[Package]],
    below: Callable[[Package, str], Iterable[Edge[Package]]],
) -> list[Package]:
    """Return the packages that some dependencies lead to.

    Args:
        packages: all packages of the lock.
        edges: the dependencies of the project.
        below: returns the dependencies of a package with an extra, "" without one.

    Raises:
        ValueError: a dependency means no release, or several.
    """
    by_name: dict[str, list[Package]] = {}
    for package in packages:
        by_name.setdefault(normalize_name(package.name), []).append(package)
    found: dict[int, Package] = {}
    seen: set[tuple[int, str]] = set()
    waiting = list(edges)
    while waiting:
        edge = waiting.pop()
        named = by_name.get(edge.name, [])
        meant = named if len(named) == 1 else list(filter(edge.fits, named))
        if len(meant) != 1:
            raise ValueError(f"a package depends on {edge.name}, and {len(meant)} releases fit")
        found[id(meant[0])] = meant[0]
        for extra in ("", *edge.extras):
            if (id(meant[0]), extra) not in seen:
                seen.add((id(meant[0]), extra))
                waiting += below(meant[0], extra)
    return list(found.values())


def parsed(path: str) -> dict[str, Any]:
    """Return the content of a lock, TOML or JSON. ValueError if it is neither."""
    text = read_input(path).decode()
    if not text.lstrip().startswith("{"):
        return parse_toml(text)
    document: dict[str, Any] = json.loads(text)
    return document


def locked_file(
    name: str, digest: str | None, url: str = "", size: int | None = None
) -> LockedFile:
    """Return a file of a lock; the name may be that of its URL."""
    algorithm, _, sha256 = (digest or "").partition(":")
    return LockedFile(
        filename=name or last_part(url),
        url=url.partition("#")[0],
        sha256=sha256 if algorithm == "sha256" else "",
        size=size,
    )


def tool_of(path: str) -> str:
    """Return which lock of another tool a file is: one of READERS of `other_tools`.

    "pip" are requirements with hashes, "pylock" is PEP 751. The content decides; of a damaged file
    the name does. "" is any other file, and no file.
    """
    if not os.path.isfile(path):
        return ""
    by_name = _NAMES.get(os.path.basename(path), "")
    try:
        document = parsed(path)
    except OSError:
        return by_name
    except (ValueError, RecursionError):
        has_hashes = _HASH_OPTION.search(read_input(path).decode(errors="replace"))
        return by_name or ("pip" if has_hashes else "")
    for tool, table, key in _SIGNS:
        if isinstance(document.get(table), dict) and key in document[table]:
            return tool
    if "lock-version" in document:
        own = document.get("tool")
        return "" if isinstance(own, dict) and "gpuenv" in own else "pylock"
    return "uv" if {"version", "requires-python"} <= document.keys() else by_name
