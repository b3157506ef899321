"""Add requirements to a pyproject.toml, or remove some; the rest of the file stays as it is."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import unquote

import tomlkit
from packaging.requirements import Requirement
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import Array

from ..compat.data import CompatibilityData
from ..errors import InputError, did_you_mean
from ..requirements.source_urls import EDITABLE
from ..requirements.target import normalize_name, parse_requirement

Place = tuple[str, str]  # a table and a key in it
GROUPS, EXTRAS = "dependency-groups", "project.optional-dependencies"
_OWN, _SOURCES = "tool.gpuenv", "tool.uv.sources"
_OF_PROJECT = ("project", "dependencies")


def with_requirements(
    text: str, path: str, add: Sequence[str], chosen: Place | None, data: CompatibilityData
) -> str:
    """Return the text of a pyproject.toml with more requirements.

    A requirement goes to the chosen list, and [tool.gpuenv] gets the name of that, so that it is
    locked. Otherwise it goes to the list that has its name already; or to the dependencies of
    [project], if the profiles use them; or to [tool.gpuenv], to `frameworks` or `requirements`.
    PEP 508 has no relative paths: those of [project] and of groups go to [tool.uv.sources].

    Args:
        text: the text of the file.
        path: its path, for messages.
        add: PEP 508 texts; one replaces a requirement of the same name.
        chosen: (GROUPS, a group) or (EXTRAS, an extra); None is neither.
        data: the compatibility data, which knows the frameworks.

    Raises:
        InputError: a requirement cannot be added.
    """
    file = _File(text, path)
    if chosen is not None and not file.has_project:
        raise InputError(f"{path}: the profiles lock no [project], which has groups and extras")
    if chosen is not None and not re.fullmatch(r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?", chosen[1]):
        raise InputError(f"{chosen[1]!r}: is no name of a group or an extra")
    chosen = file.spelled(chosen) if chosen is not None else None
    for requirement in add:
        name = parse_requirement(requirement).name
        if file.has_project and name == normalize_name(str(file.table("project").get("name", ""))):
            url = Requirement(requirement).url
            if url is None or os.path.normpath(url.partition("#")[0]) != ".":
                hint = "its requirements are locked without that; gpuenv add . installs it, too"
                raise InputError(f"{requirement}: is the project of {path} itself", hint=hint)
            home, plain = (_OWN, "requirements"), f"{name} @ .{EDITABLE}"
        else:
            home = chosen or file.home_of(name, is_framework=data.framework(name) is not None)
            plain = requirement if home[0] == _OWN else file.with_source(requirement)
        array = file.array(home)
        named = [index for index, other in enumerate(array) if _name(other) == name]
        if named:
            array[named[0]] = plain
        else:
            array.append(plain)
    if chosen is not None:
        used = file.array((_OWN, "groups" if chosen[0] == GROUPS else "extras"))
        if normalize_name(chosen[1]) not in map(normalize_name, map(str, used)):
            used.append(chosen[1])
    return tomlkit.dumps(file.document)


def without_requirements(text: str, path: str, remove: Sequence[str], chosen: Place | None) -> str:
    """Return the text of a pyproject.toml without some requirements.

    Args:
        text: the text of the file.
        path: its path, for messages.
        remove: their names.
        chosen: the list that they are removed from, as `with_requirements`; None is all of them.

    Raises:
        InputError: no list has one of the names.
    """
    file = _File(text, path)
    lists = file.lists()
    chosen = file.spelled(chosen) if chosen is not None else None
    arrays = [array for place, array in lists.items() if chosen in (None, place)]
    for name in map(normalize_name, remove):
        named = [(array, index) for array in arrays for index in range(len(array))]
        named = [(array, index) for array, index in named if _name(array[index]) == name]
        if not named:
            names = [_name(requirement) for array in arrays for requirement in array]
            hint = did_you_mean(name, names) or "the tables of profiles are left alone"
            where = path if chosen is None else f"{path}: {'.'.join(chosen)}"
            raise InputError(f"{name}: {where} does not name it", hint=hint)
        for array, index in reversed(named):
            del array[index]
        if not any(name in map(_name, array) for array in lists.values()):
            file.table(_SOURCES).pop(file.spelled((_SOURCES, name))[1], None)
    return tomlkit.dumps(file.document)


class _File:
    """A pyproject.toml while it is edited.

    Attributes:
        has_project: whether the profiles lock what [project] and the dependency groups name.
    """

    def __init__(self, text: str, path: str) -> None:
        self._path = path
        self._read(text)
        own, project = self.table(_OWN), self.document.get("project")
        self.has_project = isinstance(project, dict) and own.get("project-dependencies", True)

    def _read(self, text: str) -> None:
        try:
            self.document = tomlkit.parse(text)
        except TOMLKitError as error:
            hint = "write its tables as [NAME]"
            raise InputError(f"{self._path}: cannot be changed: {error}", hint=hint) from None

    def table(self, name: str) -> dict[str, Any]:
        """Return a table; {} if there is none."""
        table: dict[str, Any] = self.document
        for key in name.split("."):
            table = table.get(key, {})
            if not isinstance(table, dict):  # tomlkit's are, also those whose parts are apart
                raise InputError(f"{self._path}: {name} must be a table")
        return table

    def lists(self) -> dict[Place, Array]:
        """Return the lists of requirements."""
        places = [(_OWN, "frameworks"), (_OWN, "requirements")]
        if self.has_project:
            places.append(_OF_PROJECT)
            places += [(table, key) for table in (GROUPS, EXTRAS) for key in self.table(table)]
        return {place: self.array(place) for place in places if place[1] in self.table(place[0])}

    def spelled(self, place: Place) -> Place:
        """Return a place with its key as the file spells it."""
        table, key = place
        same = [
            other for other in self.table(table) if normalize_name(other) == normalize_name(key)
        ]
        return table, [*same, key][0]

    def home_of(self, name: str, *, is_framework: bool) -> Place:
        """Return the list for a requirement outside of groups and extras: one that has its name."""
        for place, array in self.lists().items():
            if place[0] not in (GROUPS, EXTRAS) and name in map(_name, array):
                return place
        if self.has_project:
            return _OF_PROJECT
        return _OWN, "frameworks" if is_framework else "requirements"

    def array(self, place: Place) -> Array:
        """Return a list, which is made if there is none. Arrays that were returned before end."""
        self._begin(place)
        array = self.table(place[0])[place[1]]
        if not isinstance(array, Array):
            raise InputError(f"{self._path}: {'.'.join(place)}: must be a list of texts")
        return array

    def with_source(self, requirement: str) -> str:
        """Return a requirement without its path, which becomes its source."""
        parsed = Requirement(requirement)
        place, _, fragment = (parsed.url or "").partition("#")
        if not place.startswith((".", "/")):
            return requirement
        source = tomlkit.inline_table()
        source["path"] = os.path.normpath(unquote(place))
        if f"#{fragment}" == EDITABLE:
            source["editable"] = True
        table, key = self.spelled((_SOURCES, parsed.name))
        self._begin((table, key))
        self.table(table)[key] = source
        parsed.url = None
        return str(parsed)

    def _begin(self, place: Place) -> None:
        """Write an empty list for a key that a table does not have. A new table comes last."""
        table, key = place
        if key in self.table(table):
            return
        # tomlkit would write the key after a comment that belongs to the next table.
        text = tomlkit.dumps(self.document)
        line = f"{key if re.fullmatch('[A-Za-z0-9_-]+', key) else json.dumps(key)} = []\n"
        header = re.search(rf"(?m)^\[{re.escape(table)}\].*\n", text)
        if header is not None:
            text = text[: header.end()] + line + text[header.end() :]
        else:
            text += "\n" * (2 - text.endswith("\n")) + f"[{table}]\n{line}"
        self._read(text)


def _name(requirement: object) -> str:
    """Return the name of a requirement; "" for other entries, such as an included group."""
    try:
        return parse_requirement(str(requirement)).name
    except InputError:
        return ""
