"""The requirements of a project, by its pyproject.toml, or of a script.

Sources: PEP 621 (project metadata), PEP 735 (dependency groups), PEP 723 (scripts).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import Any

from packaging.dependency_groups import DependencyGroupResolver
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ..errors import InputError
from ..model import Value
from ..serialize import from_plain, parse_toml, read_input
from .files import decoded
from .parse import RequirementSet, checked_requirement
from .versions import normalize_name

_OTHER_SOURCES = ("git", "path", "url", "workspace")  # of tool.uv.sources


class _ProjectTable(Value, forbid_unknown_fields=False, rename="kebab"):
    name: str = ""
    dynamic: tuple[str, ...] = ()
    requires_python: str | None = None
    dependencies: tuple[str, ...] = ()
    optional_dependencies: dict[str, tuple[str, ...]] | None = None


class _Document(Value, forbid_unknown_fields=False, rename="kebab"):
    project: _ProjectTable | None = None
    dependency_groups: dict[str, Any] | None = None
    tool: dict[str, Any] | None = None


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
    path = folder if folder.endswith(".toml") else os.path.join(folder, "pyproject.toml")
    text = decoded(path, path)
    try:
        content = parse_toml(text)
    except ValueError as error:
        raise InputError(f"{path}: is not TOML: {error}") from None
    try:
        document = from_plain(content, _Document, "")
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    if document.project is None and not document.dependency_groups:
        raise InputError(f"{path}: has neither [project] nor [dependency-groups]: nothing to solve")
    project = document.project or _ProjectTable()
    for key in ("dependencies", "optional-dependencies", "requires-python"):
        if key in project.dynamic and (extras or key != "optional-dependencies"):
            raise InputError(
                f"{path}: project.{key} is dynamic: only a build would tell it",
                hint="write it into pyproject.toml, or give the requirements with -r",
            )
    reader = _Reader(path, text, project)
    reader.add(project.dependencies)
    for extra in extras:
        reader.add_extra(normalize_name(extra))
    if groups:
        reader.add(_grouped(document.dependency_groups or {}, groups, path))
    _check_sources(document.tool or {}, reader.origins)
    python = project.requires_python
    try:
        SpecifierSet(python or "")
    except InvalidSpecifier:
        where = reader.where(python or "")
        raise InputError(f"{where}: requires-python {python!r} is no version specifier") from None
    return RequirementSet(
        requirements=tuple(reader.origins),
        requires_python=python,
        origins=tuple(reader.origins.items()),
    )


class _Reader:
    """Collects the requirements of a project, each with its place.

    Attributes:
        origins: "FILE:LINE" of each requirement.
    """

    def __init__(self, path: str, text: str, project: _ProjectTable) -> None:
        self._path, self._lines = path, text.splitlines()
        self._name = normalize_name(project.name)
        self._extras: dict[str, tuple[str, ...]] = {}
        for name, texts in (project.optional_dependencies or {}).items():
            if normalize_name(name) in self._extras:
                raise InputError(f"{path}: project.optional-dependencies has {name} twice")
            self._extras[normalize_name(name)] = texts
        self.origins: dict[str, str] = {}

    def add(
        self, texts: Iterable[str], marker: Marker | None = None, ancestors: tuple[str, ...] = ()
    ) -> None:
        """Add requirements; those on the project's own extras (`name[all]`) are replaced.

        Args:
            texts: the requirements.
            marker: where they hold.
            ancestors: the extras that led to them. An extra that names itself adds nothing.
        """
        for text in texts:
            where = self.where(text)
            parsed = Requirement(checked_requirement(text, where))
            if marker is not None:
                parsed.marker = marker if parsed.marker is None else parsed.marker & marker
            if not self._name or normalize_name(parsed.name) != self._name:
                self.origins[str(parsed)] = where
                continue
            for extra in sorted(map(normalize_name, parsed.extras)):
                if extra not in ancestors:
                    self.add_extra(extra, parsed.marker, ancestors)

    def add_extra(
        self, name: str, marker: Marker | None = None, ancestors: tuple[str, ...] = ()
    ) -> None:
        """Add the requirements of an extra by its normalized name."""
        if name not in self._extras:
            known = ", ".join(self._extras) or "none"
            raise InputError(f"{self._path}: the project has no extra {name}; it has {known}")
        self.add(self._extras[name], marker, (*ancestors, name))

    def where(self, text: str) -> str:
        """Return FILE:LINE of the first line that has a text, or that names its package."""
        name = re.split(r"[^\w.-]", text)[0]
        for pattern in (re.escape(text), rf"[\"']{re.escape(name)}\b"):
            for number, line in enumerate(self._lines, 1):
                if re.search(pattern, line):
                    return f"{self._path}:{number}"
        return f"{self._path}:1"


def _grouped(table: dict[str, Any], groups: Sequence[str], path: str) -> list[str]:
    """Return the requirements of dependency groups and of the groups that they include."""
    try:
        resolver = DependencyGroupResolver(table)
        return [str(parsed) for group in groups for parsed in resolver.resolve(group)]
    except ExceptionGroup as error:
        detail = "; ".join(map(str, error.exceptions))
        known = ", ".join(table) or "none"
        raise InputError(f"{path}: {detail}", hint=f"its dependency groups are {known}") from None


def _check_sources(tool: dict[str, Any], origins: dict[str, str]) -> None:
    """Raise InputError for a package that the project takes from a source of its own (uv).

    An index may have another package of the same name.
    """
    uv = tool.get("uv", {})
    sources = uv.get("sources", {}) if isinstance(uv, dict) else {}
    for text, where in origins.items():
        for name, source in sources.items() if isinstance(sources, dict) else ():
            if normalize_name(name) != normalize_name(Requirement(text).name):
                continue
            for entry in source if isinstance(source, list) else [source]:
                kinds = [key for key in entry if key in _OTHER_SOURCES]
                if kinds:
                    raise InputError(
                        f"{where}: {name} comes from tool.uv.sources ({kinds[0]}), "
                        "not from an index",
                        hint="give a wheel of it with --find-links, and take the source out",
                    )


# ---- scripts -------------------------------------------------------------------------------------

# The reference implementation's pattern.
_BLOCK = re.compile(r"(?m)^# /// (?P<type>[a-zA-Z0-9-]+)$\s(?P<content>(^#(| .*)$\s)+)^# ///$")
_LARGEST_SCRIPT = 1 << 20  # bytes of a script that are searched


class Script(Value, forbid_unknown_fields=False, rename="kebab"):
    """What a script needs."""

    dependencies: tuple[str, ...] = ()
    requires_python: str | None = None


def read_script(path: str) -> Script | None:
    """Return what a script needs; None if the file is no script or has no metadata.

    Raises:
        InputError: the metadata cannot be used; the message says where.
    """
    try:
        text = read_input(path)[:_LARGEST_SCRIPT].decode("utf-8-sig").replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError):
        return None
    blocks = [match for match in _BLOCK.finditer(text) if match["type"] == "script"]
    if not blocks:
        return None
    if len(blocks) > 1:
        raise InputError(f"{path}: has {len(blocks)} blocks of script metadata", hint="leave one")
    lines = blocks[0]["content"].splitlines()
    content = "\n".join(line.removeprefix("#").removeprefix(" ") for line in lines)
    try:
        metadata = parse_toml(content)
    except ValueError as error:
        raise InputError(f"{path}: the script metadata is not TOML: {error}") from None
    try:
        script = from_plain(metadata, Script, "")
    except ValueError as error:
        raise InputError(f"{path}: the script metadata: {error}") from None
    checked = tuple(checked_requirement(text, path) for text in script.dependencies)
    return script.replace(dependencies=checked)
