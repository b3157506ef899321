"""Add requirements to a pyproject.toml, or remove some; the rest of the file stays as it is."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

import tomlkit
from tomlkit.items import Array

from ..compat.data import CompatibilityData
from ..errors import InputError
from ..requirements.target import normalize_name, parse_requirement


def edited(
    text: str,
    path: str,
    *,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    data: CompatibilityData,
) -> str:
    """Return the text of a pyproject.toml with other requirements.

    A requirement goes to the list that has its name already. Otherwise it goes to the dependencies
    of [project], if the profiles use them; or to [tool.gpuenv], to `frameworks` or `requirements`.

    Args:
        text: the text of the file.
        path: its path, for messages.
        add: PEP 508 texts; one replaces a requirement of the same name.
        remove: names.
        data: the compatibility data, which knows the frameworks.

    Raises:
        InputError: a requirement cannot be read, or no list has a name of `remove`.
    """
    document = tomlkit.parse(text)
    tools = document.get("tool")
    own = tools.get("gpuenv") if isinstance(tools, dict) else None
    if not isinstance(own, dict):  # tomlkit's tables are, also those whose parts are apart
        raise InputError(f"{path}: tool.gpuenv must be a table")
    keys = [key for key in ("frameworks", "requirements") if key in own]
    arrays = [_array(own, key, f"{path}: tool.gpuenv") for key in keys]
    project = document.get("project") if own.get("project-dependencies", True) else None
    if isinstance(project, dict):
        arrays.append(_array(project, "dependencies", f"{path}: project"))

    def places(name: str) -> list[tuple[Array, int]]:
        return [
            (array, place)
            for array in arrays
            for place, requirement in enumerate(array)
            if _name(str(requirement)) == name
        ]

    for name in remove:
        named = places(normalize_name(name))
        if not named:
            names = [_name(str(requirement)) for array in arrays for requirement in array]
            close = get_close_matches(normalize_name(name), names, n=1, cutoff=0.6)
            hint = f"did you mean {close[0]}?" if close else "the tables of profiles are left alone"
            raise InputError(f"{name}: {path} does not name it", hint=hint)
        for array, place in reversed(named):
            del array[place]
    itself = normalize_name(str(project.get("name", ""))) if project is not None else ""
    for requirement in add:
        name = parse_requirement(requirement).name
        if name == itself:
            hint = "its requirements are locked without that"
            raise InputError(f"{requirement}: is the project of {path} itself", hint=hint)
        named = places(name)
        if named:
            array, place = named[0]
            array[place] = requirement
        elif isinstance(project, dict):
            arrays[-1].append(requirement)
        else:
            key = "frameworks" if data.framework(name) is not None else "requirements"
            _array(own, key, f"{path}: tool.gpuenv").append(requirement)
    return tomlkit.dumps(document)


def _name(text: str) -> str:
    try:
        return parse_requirement(text).name
    except InputError:
        return ""


def _array(table: dict[str, object], key: str, where: str) -> Array:
    """Return a list of a table, which is made if there is none."""
    if key not in table:
        table[key] = tomlkit.array()
    array = table[key]
    if not isinstance(array, Array):
        raise InputError(f"{where}.{key}: must be a list of texts")
    return array
