"""A project's own request: [project] and [dependency-groups] of its pyproject.toml (PEP 621, PEP 735)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import InputError
from .files import decoded
from .parse import Asked, requirement


def read_project(folder: str, extras: Sequence[str] = (), groups: Sequence[str] = ()) -> Asked:
    """What the pyproject.toml of a folder asks for: its dependencies, and those of extras and dependency groups.

    The project itself is not among them. InputError for a file that is none, for an extra or group that it does not
    have (PEP 621, PEP 735), and for what cannot be locked.
    """
    path = folder if folder.endswith(".toml") else os.path.join(folder, "pyproject.toml")
    return _Project(path).asked(extras, groups)


class _Project:
    """[project] and [dependency-groups] of one pyproject.toml."""

    def __init__(self, path: str) -> None:
        import tomllib

        self.path = path
        self.text = decoded(path, path)
        try:
            self.data = tomllib.loads(self.text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{path}: is not TOML: {error}") from None
        project = self.data.get("project", {})
        groups = self.data.get("dependency-groups", {})
        if not isinstance(project, dict) or not isinstance(groups, dict):
            raise InputError(f"{path}: project and dependency-groups are tables")
        self.project = project
        self.name = _normal(str(project.get("name", "")))
        self.groups = self._normalized(groups, "dependency-groups")
        optional = project.get("optional-dependencies", {})
        if not isinstance(optional, dict):
            raise InputError(f"{path}: project.optional-dependencies is a table")
        self.optional = self._normalized(optional, "project.optional-dependencies")

    def asked(self, extras: Sequence[str], groups: Sequence[str]) -> Asked:
        """The whole request."""
        if not self.project and not self.groups:
            raise InputError(f"{self.path}: has neither [project] nor [dependency-groups]: nothing to solve")
        self._check_static(extras)
        found = dict(self._expanded(self._texts(self.project.get("dependencies", []), "project.dependencies"), ()))
        for extra in extras:
            found |= self._extra(_normal(extra), ())
        for group in groups:
            found |= dict(self._expanded(self._group(_normal(group), ()), ()))
        self._check_sources(found)
        python = self.project.get("requires-python")
        if python is not None and not isinstance(python, str):
            raise InputError(f"{self.path}: project.requires-python is a text")
        if python:
            self._check_specifier(python)
        return Asked(requirements=tuple(found), requires_python=python, origins=tuple(found.items()))

    def _normalized(self, table: Mapping[str, Any], key: str) -> dict[str, tuple[str, Any]]:
        found: dict[str, tuple[str, Any]] = {}
        for name, value in table.items():
            if _normal(name) in found:
                raise InputError(f"{self.path}: {key} has {name} twice, as {found[_normal(name)][0]} too")
            found[_normal(name)] = (f"{key}.{name}", value)
        return found

    def _check_static(self, extras: Sequence[str]) -> None:
        dynamic = self.project.get("dynamic", [])
        for key in ("dependencies", *(["optional-dependencies"] if extras else []), "requires-python"):
            if isinstance(dynamic, list) and key in dynamic:
                hint = "write it into pyproject.toml, or give the requirements with -r"
                raise InputError(f"{self.path}: project.{key} is dynamic: only a build would tell it", hint=hint)

    def _check_specifier(self, python: str) -> None:
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        try:
            SpecifierSet(python)
        except InvalidSpecifier:
            raise InputError(f"{self._where(python)}: requires-python {python!r} is no version specifier") from None

    def _check_sources(self, found: Mapping[str, str]) -> None:
        """A package that the project takes from elsewhere must not come from an index that has the same name."""
        sources = self.data.get("tool", {}).get("uv", {}).get("sources", {})
        names = {_normal(name): (name, source) for name, source in sources.items()}
        for text, where in found.items():
            name, source = names.get(_normal(re.split(r"[^\w.-]", text)[0]), ("", None))
            kinds = [key for one in (source if isinstance(source, list) else [source]) if one for key in one]
            elsewhere = [kind for kind in kinds if kind in ("git", "path", "url", "workspace")]
            if elsewhere:
                what = f"{where}: {name} comes from tool.uv.sources ({elsewhere[0]}), not from an index"
                raise InputError(what, hint="give a wheel of it with --find-links, and take the source out")

    def _texts(self, value: object, key: str) -> list[tuple[str, str]]:
        """(requirement, where) of a list of requirements."""
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise InputError(f"{self.path}: {key} is a list of requirements")
        return [(requirement(one, where), where) for one in value if (where := self._where(one))]

    def _where(self, text: str) -> str:
        """FILE:LINE of a text that stands in the file; the first line that has it."""
        lines = self.text.splitlines()
        return f"{self.path}:{next((number for number, line in enumerate(lines, 1) if text in line), 1)}"

    def _extra(self, name: str, above: tuple[str, ...]) -> dict[str, str]:
        if name not in self.optional:
            known = ", ".join(self.optional) or "none"
            raise InputError(f"{self.path}: the project has no extra {name}; it has {known}")
        if name in above:
            return {}  # an extra that names itself adds nothing
        key, value = self.optional[name]
        return dict(self._expanded(self._texts(value, key), (*above, name)))

    def _expanded(self, texts: Sequence[tuple[str, str]], above: tuple[str, ...]) -> Iterator[tuple[str, str]]:
        """The requirements, with those on the project's own extras (`name[all]`) as what these ask for."""
        from packaging.requirements import Requirement as Parsed

        for text, where in texts:
            parsed = Parsed(text)
            if not self.name or _normal(parsed.name) != self.name:
                yield text, where
                continue
            for extra in sorted(map(_normal, parsed.extras)):
                for inner, place in self._extra(extra, above).items():
                    yield _under(inner, parsed.marker), place

    def _group(self, name: str, above: tuple[str, ...]) -> list[tuple[str, str]]:
        if name not in self.groups:
            known = ", ".join(self.groups) or "none"
            raise InputError(f"{self.path}: the project has no dependency group {name}; it has {known}")
        if name in above:
            raise InputError(f"{self.path}: the dependency group {' includes '.join((*above, name))}")
        key, value = self.groups[name]
        if not isinstance(value, list):
            raise InputError(f"{self.path}: {key} is a list")
        found = []
        for entry in value:
            if isinstance(entry, str):
                found += self._texts([entry], key)
            elif isinstance(entry, dict) and [*map(type, entry.values())] == [str] and "include-group" in entry:
                found += self._group(_normal(entry["include-group"]), (*above, name))
            else:
                raise InputError(f"{self.path}: {key} holds requirements and {{include-group = NAME}} only")
        return found


def _under(text: str, marker: object) -> str:
    """A requirement that holds only where `marker` holds too."""
    if marker is None:
        return text
    from packaging.markers import Marker
    from packaging.requirements import Requirement as Parsed

    parsed = Parsed(text)
    parsed.marker = Marker(f"({parsed.marker}) and ({marker})") if parsed.marker else Marker(str(marker))
    return str(parsed)


def _normal(name: str) -> str:
    """The PEP 503 form of a name."""
    return re.sub(r"[-_.]+", "-", name).lower()
