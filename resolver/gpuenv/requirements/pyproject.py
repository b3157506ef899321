"""A project's requirements: [project] and [dependency-groups] of its pyproject.toml.

Sources: PEP 621 (project metadata), PEP 735 (dependency groups).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import InputError
from ..serialize import parse_toml
from .files import decoded
from .parse import RequirementSet, checked_requirement
from .versions import normalize_name

if TYPE_CHECKING:
    from packaging.markers import Marker  # heavy

_OTHER_SOURCES = ("git", "path", "url", "workspace")  # of tool.uv.sources

Located = tuple[str, str]  # (requirement, "FILE:LINE")
Table = dict[str, tuple[str, object]]  # normalized name -> (key in the file, value)


def read_project(
    folder: str, extras: Sequence[str] = (), groups: Sequence[str] = ()
) -> RequirementSet:
    """Read the dependencies of a project, of some of its extras and of some dependency groups.

    The project itself is not among them.

    Args:
        folder: the folder of a pyproject.toml, or the path of a .toml file.
        extras: names of extras.
        groups: names of dependency groups.

    Raises:
        InputError: the file cannot be read, it has no such extra or group, or a requirement
            cannot be locked.
    """
    path = folder
    if not folder.endswith(".toml"):
        path = os.path.join(folder, "pyproject.toml")
    return _Project(path).read(extras, groups)


class _Project:
    """[project] and [dependency-groups] of one pyproject.toml."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._text = decoded(path, path)
        try:
            self._document: dict[str, object] = parse_toml(self._text)
        except ValueError as error:
            raise InputError(f"{path}: is not TOML: {error}") from None
        project = self._document.get("project", {})
        groups = self._document.get("dependency-groups", {})
        if not isinstance(project, dict) or not isinstance(groups, dict):
            raise InputError(f"{path}: project and dependency-groups are tables")
        self._project: dict[str, object] = project
        self._name = normalize_name(str(project.get("name", "")))
        self._groups = self._by_name(groups, "dependency-groups")
        extras = project.get("optional-dependencies", {})
        if not isinstance(extras, dict):
            raise InputError(f"{path}: project.optional-dependencies is a table")
        self._extras = self._by_name(extras, "project.optional-dependencies")

    def read(self, extras: Sequence[str], groups: Sequence[str]) -> RequirementSet:
        """Return the requirements of the project, of extras and of groups."""
        if not self._project and not self._groups:
            raise InputError(
                f"{self._path}: has neither [project] nor [dependency-groups]: nothing to solve"
            )
        self._check_static(extras)
        own = self._located(self._project.get("dependencies", []), "project.dependencies")
        origins = dict(self._expanded(own, ()))
        for extra in extras:
            origins |= self._extra(normalize_name(extra), ())
        for group in groups:
            origins |= dict(self._expanded(self._group(normalize_name(group), ()), ()))
        self._check_sources(origins)
        return RequirementSet(
            requirements=tuple(origins),
            requires_python=self._requires_python(),
            origins=tuple(origins.items()),
        )

    # ---- checks

    def _by_name(self, table: Mapping[str, object], key: str) -> Table:
        by_name: Table = {}
        for name, value in table.items():
            normalized = normalize_name(name)
            if normalized in by_name:
                other = by_name[normalized][0]
                raise InputError(f"{self._path}: {key} has {name} twice, as {other} too")
            by_name[normalized] = (f"{key}.{name}", value)
        return by_name

    def _check_static(self, extras: Sequence[str]) -> None:
        """Raise InputError if the request depends on a field that only a build would give."""
        dynamic = self._project.get("dynamic", [])
        if not isinstance(dynamic, list):
            return
        keys = ["dependencies", "requires-python"]
        if extras:
            keys.insert(1, "optional-dependencies")
        for key in keys:
            if key in dynamic:
                raise InputError(
                    f"{self._path}: project.{key} is dynamic: only a build would tell it",
                    hint="write it into pyproject.toml, or give the requirements with -r",
                )

    def _requires_python(self) -> str | None:
        from packaging.specifiers import InvalidSpecifier, SpecifierSet  # heavy

        python = self._project.get("requires-python")
        if python is None:
            return None
        if not isinstance(python, str):
            raise InputError(f"{self._path}: project.requires-python is a text")
        try:
            SpecifierSet(python)
        except InvalidSpecifier:
            raise InputError(
                f"{self._where(python)}: requires-python {python!r} is no version specifier"
            ) from None
        return python

    def _check_sources(self, origins: Mapping[str, str]) -> None:
        """Raise InputError for a package that the project takes from a source of its own.

        An index may have another package of the same name.
        """
        sources = self._uv_sources()
        for text, where in origins.items():
            name, source = sources.get(normalize_name(_name_of(text)), ("", None))
            kind = _kind_of_source(source)
            if kind is not None:
                raise InputError(
                    f"{where}: {name} comes from tool.uv.sources ({kind}), not from an index",
                    hint="give a wheel of it with --find-links, and take the source out",
                )

    def _uv_sources(self) -> dict[str, tuple[str, object]]:
        """Return tool.uv.sources by normalized name, with the name as it is written."""
        table: object = self._document
        for key in ("tool", "uv", "sources"):
            table = table.get(key, {}) if isinstance(table, dict) else {}
        if not isinstance(table, dict):
            return {}
        return {normalize_name(name): (name, source) for name, source in table.items()}

    # ---- requirements

    def _located(self, value: object, key: str) -> list[Located]:
        """Return the checked requirements of a list, each with its place."""
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise InputError(f"{self._path}: {key} is a list of requirements")
        located = []
        for text in value:
            where = self._where(text)
            located.append((checked_requirement(text, where), where))
        return located

    def _where(self, text: str) -> str:
        """Return FILE:LINE of the first line that has a text."""
        for number, line in enumerate(self._text.splitlines(), 1):
            if text in line:
                return f"{self._path}:{number}"
        return f"{self._path}:1"

    def _extra(self, name: str, ancestors: tuple[str, ...]) -> dict[str, str]:
        """Return the requirements of an extra with their places.

        Args:
            name: the normalized name.
            ancestors: the extras that led to it. An extra that names itself adds nothing.
        """
        if name not in self._extras:
            known = ", ".join(self._extras) or "none"
            raise InputError(f"{self._path}: the project has no extra {name}; it has {known}")
        if name in ancestors:
            return {}
        key, value = self._extras[name]
        return dict(self._expanded(self._located(value, key), (*ancestors, name)))

    def _expanded(
        self, located: Sequence[Located], ancestors: tuple[str, ...]
    ) -> Iterator[Located]:
        """Yield requirements, with those on the project's own extras (`name[all]`) replaced."""
        from packaging.requirements import Requirement as ParsedRequirement  # heavy

        for text, where in located:
            parsed = ParsedRequirement(text)
            if not self._name or normalize_name(parsed.name) != self._name:
                yield text, where
                continue
            for extra in sorted(map(normalize_name, parsed.extras)):
                for inner, place in self._extra(extra, ancestors).items():
                    yield _with_marker(inner, parsed.marker), place

    def _group(self, name: str, ancestors: tuple[str, ...]) -> list[Located]:
        """Return the requirements of a dependency group and of the groups that it includes."""
        if name not in self._groups:
            known = ", ".join(self._groups) or "none"
            raise InputError(
                f"{self._path}: the project has no dependency group {name}; it has {known}"
            )
        if name in ancestors:
            circle = " includes ".join((*ancestors, name))
            raise InputError(f"{self._path}: the dependency group {circle}")
        key, value = self._groups[name]
        if not isinstance(value, list):
            raise InputError(f"{self._path}: {key} is a list")
        located: list[Located] = []
        for entry in value:
            if isinstance(entry, str):
                located += self._located([entry], key)
                continue
            included = _included_group(entry)
            if included is None:
                raise InputError(
                    f"{self._path}: {key} holds requirements and {{include-group = NAME}} only"
                )
            located += self._group(normalize_name(included), (*ancestors, name))
        return located


def _kind_of_source(source: object) -> str | None:
    """Return the first key of a uv source that is not an index; None if it has none."""
    entries: list[object] = [source]
    if isinstance(source, list):
        entries = source
    for entry in entries:
        if isinstance(entry, dict):
            for key in entry:
                if key in _OTHER_SOURCES:
                    return str(key)
    return None


def _included_group(entry: object) -> str | None:
    """Return NAME of {include-group = NAME}; None for anything else."""
    if not isinstance(entry, dict) or list(entry) != ["include-group"]:
        return None
    name = entry["include-group"]
    return name if isinstance(name, str) else None


def _name_of(text: str) -> str:
    """Return the name at the start of a PEP 508 text."""
    return re.split(r"[^\w.-]", text)[0]


def _with_marker(text: str, marker: Marker | None) -> str:
    """Return a requirement that holds only if a marker holds, too."""
    if marker is None:
        return text
    from packaging.markers import Marker  # heavy
    from packaging.requirements import Requirement as ParsedRequirement

    parsed = ParsedRequirement(text)
    if parsed.marker is None:
        parsed.marker = Marker(str(marker))
    else:
        parsed.marker = Marker(f"({parsed.marker}) and ({marker})")
    return str(parsed)
