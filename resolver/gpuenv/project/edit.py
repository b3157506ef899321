"""Add requirements to a pyproject.toml, or remove some; the rest of the file stays as it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import InputError
from ..requirements.target import normalize_name, parse_requirement

if TYPE_CHECKING:
    from tomlkit import TOMLDocument
    from tomlkit.items import Array, Table

IsFramework = Callable[[str], bool]


def edited(
    text: str,
    path: str,
    *,
    add: Sequence[str] = (),
    remove: Sequence[str] = (),
    is_framework: IsFramework,
) -> str:
    """Return the text of a pyproject.toml with other requirements.

    A requirement goes to the list that has its name already. Otherwise it goes to the dependencies
    of [project], if the profiles use them; or to [tool.gpuenv], to `frameworks` or `requirements`.

    Args:
        text: the text of the file.
        path: its path, for messages.
        add: PEP 508 texts; one replaces a requirement of the same name.
        remove: names.
        is_framework: returns whether a name is that of a framework.

    Raises:
        InputError: a requirement cannot be read, or no list has a name of `remove`.
    """
    import tomlkit  # only this command edits the file

    document = tomlkit.parse(text)
    lists = _Lists(document, path)
    for name in remove:
        lists.remove(normalize_name(name))
    for requirement in add:
        lists.add(requirement, is_framework)
    return tomlkit.dumps(document)


class _Lists:
    """The lists of a pyproject.toml that have requirements."""

    def __init__(self, document: TOMLDocument, path: str) -> None:
        self._path = path
        self._own: Table = _table(document, path, "tool", "gpuenv")
        self._arrays: list[Array] = []
        for key in ("frameworks", "requirements"):
            if key in self._own:
                self._arrays.append(_array(self._own[key], f"{path}: tool.gpuenv.{key}"))
        self._project: Array | None = None
        if self._own.get("project-dependencies") and "project" in document:
            project = _table(document, path, "project")
            if "dependencies" not in project:
                project.add("dependencies", _new_array())
            self._project = _array(project["dependencies"], f"{path}: project.dependencies")
            self._arrays.append(self._project)

    def remove(self, name: str) -> None:
        """Remove every requirement of a name. InputError if there is none."""
        is_removed = False
        for array in self._arrays:
            for place in reversed(range(len(array))):
                if _name(str(array[place])) == name:
                    del array[place]
                    is_removed = True
        if not is_removed:
            hint = "the project, [tool.gpuenv] and its profiles are separate lists"
            raise InputError(f"--remove {name}: {self._path} does not name it", hint=hint)

    def add(self, text: str, is_framework: IsFramework) -> None:
        """Add a requirement, in the place of one of the same name if there is one."""
        name = parse_requirement(text).name
        for array in self._arrays:
            for place in range(len(array)):
                if _name(str(array[place])) == name:
                    array[place] = text
                    return
        if self._project is not None:
            self._project.append(text)
            return
        key = "frameworks" if is_framework(name) else "requirements"
        if key not in self._own:
            self._own.add(key, _new_array())
        _array(self._own[key], f"{self._path}: tool.gpuenv.{key}").append(text)


def _name(text: str) -> str:
    try:
        return parse_requirement(text).name
    except InputError:
        return ""


def _table(document: TOMLDocument, path: str, *keys: str) -> Table:
    from tomlkit.items import Table as TomlTable

    table: object = document
    for key in keys:
        table = table.get(key) if isinstance(table, dict) else None
    if not isinstance(table, TomlTable):
        message = f"{path}: has no table [{'.'.join(keys)}]"
        raise InputError(message, hint="gpuenv init writes one")
    return table


def _array(value: object, place: str) -> Array:
    from tomlkit.items import Array as TomlArray

    if not isinstance(value, TomlArray):
        raise InputError(f"{place}: must be a list of texts")
    return value


def _new_array() -> Array:
    import tomlkit

    return tomlkit.array()
