"""The requirements of a project, by its pyproject.toml, or of a script.

Sources: PEP 621 (project metadata), PEP 735 (dependency groups), PEP 723 (scripts).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.dependency_groups import DependencyGroupResolver
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet

from ..errors import InputError, did_you_mean
from ..model import Value
from ..serialize import from_plain, parse_toml, read_input
from .files import decoded
from .parse import RequirementSet, checked_requirement, metadata_text
from .tool_tables import ToolTables, line_of
from .versions import normalize_name

_GROUPS = (
    "dependency-groups.{}", "tool.poetry.group.{}.dependencies", "tool.pdm.dev-dependencies.{}"
)  # fmt: skip
PLAIN = "requirements.txt"
_NAMES_CONDA = re.compile("env|conda")
_DEPENDENCIES = re.compile(rb"^dependencies:", re.MULTILINE)
Built = Callable[[str, Sequence[str]], tuple[Sequence[str], str | None]]


class _ProjectTable(Value, forbid_unknown_fields=False, rename="kebab"):
    name: str = ""
    version: str | None = None
    dynamic: tuple[str, ...] = ()
    requires_python: str | None = None
    dependencies: tuple[str, ...] = ()
    optional_dependencies: dict[str, tuple[str, ...]] | None = None


class _Document(Value, forbid_unknown_fields=False, rename="kebab"):
    project: _ProjectTable | None = None
    build_system: dict[str, Any] | None = None
    dependency_groups: dict[str, Any] | None = None


def read_project(
    folder: str,
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
    *,
    holds: Callable[[str], bool] = lambda _: True,
    start: str = "",
    built: Built | None = None,
) -> RequirementSet:
    """Read the dependencies of a project, of some of its extras and of some dependency groups.

    The project itself is not among them. What [tool.uv] says about a solve holds for them.

    Args:
        folder: the folder of a pyproject.toml, or the path of a .toml file.
        extras: names of extras.
        groups: names of dependency groups.
        holds: whether a marker holds on the target; it is asked about sources and environments.
        start: the folder from where the paths of requirements start; "" is the working folder.
        built: returns what the backend of the project says, where no file tells it: the
            dependencies on the target with some extras, and Requires-Python. None refuses these.

    Raises:
        InputError: the file cannot be read, it has no such extra or group, a requirement cannot be
            locked, or something in it is not honored.
    """
    path = folder if folder.endswith(".toml") else os.path.join(folder, "pyproject.toml")
    place = os.path.dirname(path)
    is_alone = has_setup(place) and not os.path.exists(path)
    text, document, content = _read_document("" if is_alone else path)
    has_backend = has_setup(place) or document.build_system is not None
    tools = ToolTables(path, text, content, holds=holds, start=start)
    project = document.project
    if project is None and (of_poetry := tools.poetry_project()) is not None:
        project = from_plain(of_poetry, _ProjectTable, "")
    is_old = project is None and has_backend and built is not None
    if project is None and not document.dependency_groups and not is_old:
        raise _nothing_to_solve(path, content)
    project = project or _ProjectTable()
    dynamic = _dynamic_keys(project, extras)
    if dynamic and built is None:
        raise InputError(
            f"{path}:{line_of(text, 'project.dynamic')[1]}: project.{dynamic[0]} is dynamic: "
            "only a build would tell it",
            hint="write it into pyproject.toml, or give the requirements with -r",
        )
    reader = _Reader(path, text, project, tools)
    python = project.requires_python
    if (is_old or dynamic) and built is not None:
        dependencies, python = built(place, extras)
        reader.add(dependencies)
    else:
        reader.add(project.dependencies)
        for extra in extras:
            reader.add_extra(normalize_name(extra))
    reader.add(tools.wheels_of_pixi(groups))
    for group in groups:
        table = tools.groups | (document.dependency_groups or {})
        places = (line_of(text, key.format(group)) for key in _GROUPS)
        reader.add(_grouped(table, group, f"{path}:{max(places)[1]}"), group=group)
    try:
        SpecifierSet(python or "")
    except InvalidSpecifier:
        where = reader.where(python or "")
        raise InputError(f"{where}: requires-python {python!r} is no version specifier") from None
    return tools.settings(extras, groups).replace(
        requirements=tuple(reader.origins),
        requires_python=python,
        origins=tuple(reader.origins.items()),
    )


def _nothing_to_solve(path: str, content: Mapping[str, Any]) -> InputError:
    """Return the error for a pyproject.toml without requirements; it may have [tool.gpuenv]."""
    is_ours = "gpuenv" in content.get("tool", {})
    hint = "gpuenv lock solves for the profiles of [tool.gpuenv]" if is_ours else ""
    problem = "has neither [project] nor [dependency-groups]: nothing to solve"
    return InputError(f"{path}: {problem}", hint=hint)


def has_setup(folder: str) -> bool:
    """Return whether a folder has a project of setuptools, which needs no [project]."""
    return any(os.path.isfile(os.path.join(folder, name)) for name in ("setup.py", "setup.cfg"))


def importable(folder: str) -> list[Path]:
    """Return the files of other tools that a project can begin from, the first one first.

    That is requirements.txt, then other requirements files, a Pipfile, and environments of conda,
    whatever their names are.
    """
    place = Path(folder)
    texts = sorted(
        place.glob("requirements*.txt"), key=lambda path: (path.name != PLAIN, path.name)
    )
    conda = [
        path
        for path in sorted(
            place.glob("*.y*ml"), key=lambda path: (path.stem != "environment", path.name)
        )
        if path.is_file() and _NAMES_CONDA.search(path.stem)
        if path.stem == "environment" or _DEPENDENCIES.search(read_input(str(path)))
    ]
    return [path for path in (*texts, place / "Pipfile", *conda) if path.is_file()]


def importable_by_name(folder: str) -> list[Path]:
    """Return requirements files that are not `importable`: of subfolders, or of other names."""
    name = "requir*ment*.txt"
    patterns = (name, f"*/{name}", f"*/*/{name}", "requirements/*.txt")
    return sorted({path for pattern in patterns for path in Path(folder).glob(pattern)})


def _dynamic_keys(project: _ProjectTable, extras: Sequence[str]) -> list[str]:
    """Return the keys of [project] that are needed and that only a build tells."""
    keys = ["dependencies", "optional-dependencies", "requires-python"]
    if not extras:
        keys.remove("optional-dependencies")
    return [key for key in keys if key in project.dynamic]


def _read_document(path: str) -> tuple[str, _Document, dict[str, Any]]:
    """Return the text of a pyproject.toml, "" for none; its tables of Python; its whole content."""
    text = decoded(path) if path else ""
    try:
        content = parse_toml(text)
    except ValueError as error:
        raise InputError(f"{path}: is not TOML: {error}") from None
    try:
        return text, from_plain(content, _Document, ""), content
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None


def static_metadata(
    folder: str, bound: Collection[str] = (), *, requires: bool = True
) -> bytes | None:
    """Return the METADATA of the project in a folder; None if only a build can tell it.

    Args:
        folder: the folder.
        bound: the packages whose index the project that is solved gives.
        requires: whether it has the requirements; False for the project that is solved, because
            the request has them, for the target.

    Raises:
        InputError: it cannot be read, or it takes a requirement from an index of its own.
    """
    path = os.path.join(os.path.abspath(folder), "pyproject.toml")
    if not os.path.isfile(path):
        return None
    text, document, content = _read_document(path)
    project = document.project
    fields = {"version", "dependencies", "optional-dependencies", "requires-python"}
    if project is None or not project.version or fields & {*project.dynamic}:
        return None

    def refuse(marker: str) -> bool:
        raise InputError(f"{path}: tool.uv.sources has the marker {marker!r}, which is not honored")

    tools = ToolTables(path, text, content, holds=refuse, start=None)
    extras = [normalize_name(extra) for extra in project.optional_dependencies or ()]
    texts: list[str] = []
    for extra in ("", *extras) if requires else ():
        reader = _Reader(path, text, project, tools)
        if extra:
            reader.add_extra(extra, Marker(f'extra == "{extra}"'))
        else:
            reader.add(project.dependencies)
        texts += reader.origins
    tools.refuse_indexes(bound)
    text = metadata_text(project.name, project.version, project.requires_python, extras, texts)
    return text.encode()


class _Reader:
    """Collects the requirements of a project, each with its place.

    Attributes:
        origins: "FILE:LINE" of each requirement.
    """

    def __init__(self, path: str, text: str, project: _ProjectTable, tools: ToolTables) -> None:
        self._path, self._lines, self._tools = path, text.splitlines(), tools
        self._name = normalize_name(project.name)
        self._extras: dict[str, tuple[str, ...]] = {}
        for name, texts in (project.optional_dependencies or {}).items():
            if normalize_name(name) in self._extras:
                raise InputError(f"{path}: project.optional-dependencies has {name} twice")
            self._extras[normalize_name(name)] = texts
        self.origins: dict[str, str] = {}

    def add(
        self,
        texts: Iterable[str],
        marker: Marker | None = None,
        ancestors: tuple[str, ...] = (),
        group: str = "",
    ) -> None:
        """Add requirements; those on the project's own extras (`name[all]`) are replaced.

        Args:
            texts: the requirements.
            marker: where they hold.
            ancestors: the extras that led to them. An extra that names itself adds nothing.
            group: the dependency group that has them.
        """
        extra_of_texts = ancestors[-1] if ancestors else ""
        for text in texts:
            where = self.where(text)
            checked = checked_requirement(text, where)
            parsed = Requirement(self._tools.applied(checked, where, extra_of_texts, group))
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
            known = f"it has {', '.join(self._extras) or 'none'}"
            known = did_you_mean(name, self._extras, 3) or known
            raise InputError(f"{self._path}: the project has no extra {name}; {known}")
        self.add(self._extras[name], marker, (*ancestors, name))

    def where(self, text: str) -> str:
        """Return FILE:LINE of the first line that has a text, or that names its package."""
        name = re.split(r"[^\w.-]", text)[0]
        quoted = re.escape(name)
        for pattern in (re.escape(text), rf"[\"']{quoted}\b", rf"^\s*{quoted}\s*="):
            for number, line in enumerate(self._lines, 1):
                if re.search(pattern, line):
                    return f"{self._path}:{number}"
        return f"{self._path}:1"


def _grouped(table: dict[str, Any], group: str, where: str) -> list[str]:
    """Return the requirements of a dependency group and of the groups that it includes."""
    try:
        return [str(parsed) for parsed in DependencyGroupResolver(table).resolve(group)]
    except ExceptionGroup as error:
        detail = "; ".join(map(str, error.exceptions))
        known = ", ".join(table) or "none"
        raise InputError(f"{where}: {detail}", hint=f"its dependency groups are {known}") from None


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
