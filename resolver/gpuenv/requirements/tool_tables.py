"""What the tables of other tools in a pyproject.toml say about a solve.

A key is honored, or an error with its line and key says what to do. Keys that cannot change what is
solved (caches, links, publishing, the style of an environment) are passed over.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from glob import glob
from operator import itemgetter
from typing import Any, NoReturn
from urllib.parse import quote

from packaging.requirements import Requirement

from .. import activity
from ..errors import InputError
from ..serialize import parse_toml, read_input, read_toml
from .conda_projects import TARGETS, default_tables
from .parse import (
    RequirementSet,
    build_names,
    checked_requirement,
    git_url,
    metadata_text,
    parse_cutoff,
    requirement_of_row,
    tree_name,
)
from .versions import normalize_name, poetry_specifier

Table = Mapping[str, Any]
Holds = Callable[[str], bool]  # whether a marker holds on the target
_POETRY_PLACES = ("git", "path", "url", "rev", "tag", "branch", "subdirectory")
FLAT = "flat+"  # before the URL of an index that is one page or folder for all packages


class ToolTables:
    """The tables of a pyproject.toml.

    Attributes:
        groups: the dependency groups that tools have beside [dependency-groups].
    """

    def __init__(
        self, path: str, text: str, document: Table, *, holds: Holds, start: str | None
    ) -> None:
        """Read the tables.

        Args:
            path: the pyproject.toml.
            text: its text, for the lines of messages.
            document: its content.
            holds: whether a marker holds on the target.
            start: the folder from where the paths of requirements start; "" is the working folder,
                None makes whole paths.
        """
        self._path, self._holds, self._start = path, holds, start
        self._known = read_toml(os.path.join(os.path.dirname(__file__), "tool_keys.toml"))
        self._texts, tools = [(path, "", text)], _table(document, "tool", path)
        self._poetry, self._pdm = _table(tools, "poetry", path), _table(tools, "pdm", path)
        self._is_poetry_1 = "project" not in document and "dependencies" in self._poetry
        named = self._poetry if self._is_poetry_1 else _table(document, "project", path)
        self._name = normalize_name(str(named.get("name", "")))
        self._folder = os.path.dirname(path)
        self._root, self._uv = self._workspace({**_table(tools, "uv", path), **self._uv_toml()})
        self._pixi = _table(tools, "pixi", path)
        self._read_pixi_options()
        self._urls: dict[str, str] = {}  # of indexes, by their names
        self._default: str | None = None
        self._extra: list[str] = []
        self._find_links: list[str] = []
        self._bound: dict[str, str] = {}  # {package: URL of its only index}
        self._sources: dict[str, list[Table]] = {}
        self._overrides: list[str] = []
        self._pre = False
        self.groups: dict[str, Any] = {}
        if "dev-dependencies" in self._uv:
            self.groups["dev"] = self._uv["dev-dependencies"]
        self._read_uv()
        self._read_poetry()
        self._read_pdm()

    def _where(self, key: str) -> str:
        """Return FILE:LINE and the key, in the file that has most of it."""
        found = []
        for path, prefix, text in self._texts:
            length, line = line_of(text, key.removeprefix(prefix))
            found.append((length + len(prefix), f"{path}:{line}: {key}"))
        return max(found, key=itemgetter(0))[1]

    def _fail(self, key: str, problem: str, hint: str = "") -> NoReturn:
        raise InputError(f"{self._where(key)} {problem}", hint=hint)

    def _uv_toml(self) -> dict[str, Any]:
        """Return the settings of a uv.toml beside the file, which come before [tool.uv]."""
        path = os.path.join(self._folder, "uv.toml")
        try:
            text = read_input(path).decode() if os.path.isfile(path) else ""
            self._texts.append((path, "tool.uv.", text))
            return parse_toml(text)
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be read: {error}") from None

    def _workspace(self, own: Table) -> tuple[str, Table]:
        """Return the root of the workspace, and the settings that hold in it: those of its root.

        Args:
            own: the settings of this project, which may be a member. Its sources come first.
        """
        folder = above = os.path.abspath(self._folder or ".")
        while "workspace" not in own and os.path.dirname(above) != above:
            above = os.path.dirname(above)
            path = os.path.join(above, "pyproject.toml")
            with suppress(OSError, ValueError):
                text = read_input(path).decode()
                settings = dict(_table(parse_toml(text).get("tool", {}), "uv", path))
                if "workspace" in settings and folder in _members(above, settings["workspace"]):
                    sources: dict[str, Any] = {}
                    for name, value in _table(settings, "sources", path).items():
                        rows = value if isinstance(value, list) else [value]
                        sources[name] = [_moved(row, above, folder) for row in rows]
                    sources |= _table(own, "sources", self._path)
                    self._texts.append((path, "", text))
                    for key in ("default-groups", "dev-dependencies"):  # of the root itself
                        settings.pop(key, None)
                    return above, {**own, **settings, "sources": sources}
        return folder, own

    def _check_keys(self) -> None:
        """Raise InputError for a key of any table that is not honored."""
        resolution = self._pdm.get("resolution", {})
        tables = (self._uv, self._poetry, self._pdm, resolution)
        for name, table in zip(("uv", "poetry", "pdm", "pdm.resolution"), tables, strict=True):
            self._require_known(f"tool.{name}", table)
        for kind, rows in (
            ("tool.uv.index", self._list("index")),
            ("tool.poetry.source", self._poetry.get("source", ())),
            ("tool.pdm.source", self._pdm.get("source", ())),
        ):
            for number, row in enumerate(rows):
                self._require_known(f"{kind}[{number}]", row, kind)
        for key, _, name, row in self._poetry_rows():
            self._require_known(f"{key}.{name}", row, "tool.poetry.dependencies")

    def _require_known(self, place: str, table: Table, kind: str = "") -> None:
        """Raise InputError for what is not honored in a table, and name what is not read.

        Args:
            place: the key of the table.
            table: the table.
            kind: the name of such tables in tool_keys.toml, if it is not the place.
        """
        known = {"refused": {}, "values": {}, "named": {}, **self._known[kind or place]}
        keys = {*known["refused"], *known["honored"].split(), *known["no-effect"].split()}
        for key, value in table.items():
            plain, where = key.replace("_", "-"), f"{place}.{key}"
            if plain in known["refused"] and value:
                self._fail(where, "is not honored", known["refused"][plain])
            if value not in known["values"].get(plain, [value]):
                hint = f"known are {', '.join(known['values'][plain])}; or take it out"
                self._fail(where, f"{value} is not honored", hint)
            if plain not in keys and "plugins" not in known:
                hint = "gpuenv does not know whether it changes what is solved; take it out"
                self._fail(where, "is not a known key", hint)
            if plain not in keys or (plain in known["named"] and value not in ([], "auto")):
                text = known["named"].get(plain, "it is not a known key, and is not read")
                activity.current.announce(f"{self._where(where)}: {text}")

    def _add_index(self, where: str, row: Table, kind: str, *, flat: bool = False) -> None:
        """Add an index.

        Args:
            where: its place, for messages.
            row: its table.
            kind: "default", "extra", or "explicit": it supplies only what names it.
            flat: whether it is a page or a folder with the files of all packages.
        """
        url, name = row.get("url"), row.get("name", "")
        if not isinstance(url, str):
            raise InputError(f"{self._where(where)}: {name or 'an index'} has no url")
        if name:
            self._urls[str(name)] = FLAT + url if flat else url
        if flat:
            self._find_links += [] if kind == "explicit" else [url]
        elif kind == "default":
            self._default = self._default or url
        elif kind == "extra":
            self._extra.append(url)

    def _read_uv(self) -> None:
        for number, row in enumerate(self._list("index")):
            kind = next((kind for kind in ("explicit", "default") if row.get(kind)), "extra")
            flat = row.get("format") == "flat"
            self._add_index(f"tool.uv.index[{number}]", row, kind, flat=flat)
        for url in self._list("extra-index-url"):
            self._add_index("tool.uv.extra-index-url", {"url": url}, "extra")
        if "index-url" in self._uv:
            self._add_index("tool.uv.index-url", {"url": self._uv["index-url"]}, "default")
        self._find_links += map(str, self._list("find-links"))
        if not self._uv.get("no-sources"):
            for name, source in _table(self._uv, "sources", self._path).items():
                rows = source if isinstance(source, list) else [source]
                self._sources[normalize_name(name)] = rows
        for name in self._list("no-sources-package"):
            self._sources.pop(normalize_name(name), None)

    def _list(self, key: str) -> list[Any]:
        values = self._uv.get(key, [])
        if not isinstance(values, list):
            self._fail(f"tool.uv.{key}", "must be a list")
        return values

    def _read_poetry(self) -> None:
        """Read the sources and groups of poetry; `poetry_project` reads the other dependencies.

        A primary source replaces the default index, unless that is named beside it.
        """
        sources = self._poetry.get("source", ())
        names = [source.get("name", "").lower() for source in sources]
        for number, (name, source) in enumerate(zip(names, sources, strict=True)):
            where, kind = f"tool.poetry.source[{number}]", source.get("priority", "primary")
            if name == "pypi" and "url" not in source:
                continue
            if kind not in ("primary", "default", "explicit"):
                hint = "make it explicit, and name it as the source of its packages"
                self._fail(where, f"has the priority {kind}, which is not honored", hint)
            if kind != "explicit":
                kind = "extra" if "pypi" in names else "default"
            self._add_index(where, source, kind)
        for key, group, name, row in self._poetry_rows():
            if not self._holds_in_poetry(row):
                continue
            source = {key: row[key] for key in _POETRY_PLACES if key in row}
            source |= {"editable": row["develop"]} if "develop" in row else {}
            if str(row.get("source", "pypi")).lower() != "pypi":
                source = {"index": row["source"]}
            if group:
                self.groups.setdefault(group, []).append(_text_of_poetry(name, row))
            if source if group or self._is_poetry_1 else "index" in source:
                rows = self._sources.setdefault(normalize_name(name), [])
                rows.append({**source, "group": group} if group else source)

    def poetry_project(self) -> dict[str, Any] | None:
        """Return what [project] would say of a project of poetry without one; None of others.

        Only the dependencies that hold on the target are in it.
        """
        if not self._is_poetry_1:
            return None
        dependencies: list[str] = []
        texts: dict[str, list[str]] = {}  # {package: its requirements}
        for key, group, name, row in self._poetry_rows():
            if group or not self._holds_in_poetry(row):
                continue
            if "||" in str(row.get("version", "")):
                hint = "give one range, such as >=1,<3"
                self._fail(f"{key}.{name}", "has alternatives, which is not honored", hint)
            text = _text_of_poetry(name, row)
            texts.setdefault(normalize_name(name), []).append(text)
            dependencies += [] if row.get("optional") else [text]
        extras: dict[str, list[str]] = {}
        for extra, names in _table(self._poetry, "extras", self._path).items():
            rows = [texts.get(normalize_name(name), []) for name in names]
            extras[extra] = [text for row in rows for text in row]
        project = {"name": self._name, "dependencies": dependencies}
        return project | {
            "optional-dependencies": extras,
            "requires-python": poetry_python(self._poetry, self._holds_in_poetry),
        }

    def _holds_in_poetry(self, row: Table) -> bool:
        """Return whether a dependency of poetry is for the target."""
        platform = row.get("platform")
        markers = [row.get("markers"), platform and f"sys_platform == '{platform}'"]
        alternatives = [
            re.findall(r"([<>=!~]+)\s*([^,\s]+)", poetry_specifier(part))
            for part in str(row.get("python", "*")).split("||")
        ]
        return all(map(self._holds, filter(None, markers))) and any(
            all(self._holds(f"python_full_version {sign} '{version}'") for sign, version in clauses)
            for clauses in alternatives
        )

    def _poetry_rows(self) -> Iterator[tuple[str, str, str, Table]]:
        """Yield (the key of the table, its group, name, row) of each dependency of poetry."""
        place, dev = "tool.poetry", self._poetry.get("dev-dependencies", {})
        tables = [
            (f"{place}.dependencies", "", self._poetry),
            (f"{place}.dev-dependencies", "dev", {"dependencies": dev}),
        ]
        groups = _table(self._poetry, "group", self._path)
        for group in groups:
            names = [group]
            for name in names:
                table = _table(groups, name, self._path)
                names += [name for name in table.get("include-groups", ()) if name not in names]
                tables.append((f"{place}.group.{name}.dependencies", group, table))
        for key, group, table in tables:
            for name, entry in _table(table, "dependencies", self._path).items():
                for row in entry if isinstance(entry, list) else [entry]:
                    if name != "python":
                        yield key, group, name, row if isinstance(row, dict) else {"version": row}

    def _read_pdm(self) -> None:
        """Read the sources, overrides and groups of pdm."""
        pdm = self._pdm
        for number, source in enumerate(pdm.get("source", ())):
            where = f"tool.pdm.source[{number}]"
            names = source.get("include_packages", source.get("include-packages", ()))
            if any("*" in name for name in names):
                hint = "name each package in include_packages"
                self._fail(where, "has patterns of packages, which are not honored", hint)
            kind = "default" if source.get("name") == "pypi" else "explicit" if names else "extra"
            flat = source.get("type") == "find_links"
            self._add_index(where, {"name": number, **source}, kind, flat=flat)
            for name in map(normalize_name, names):
                self._bound[name] = str(source["url"])
        resolution = _table(pdm, "resolution", self._path)
        for name, value in _table(resolution, "overrides", self._path).items():
            place = f" @ {value}" if "://" in value else value
            is_version = value[:1].isdigit()
            self._overrides.append(f"{name}{'==' if is_version else ''}{place}")
        self._overrides += [_excluding(name) for name in resolution.get("excludes", ())]
        self._pre = bool(resolution.get("allow-prereleases"))
        self.groups |= _table(pdm, "dev-dependencies", self._path)

    def _read_pixi_options(self) -> None:
        """Read tool.pixi.pypi-options into the settings of uv that say the same."""
        settings = dict(self._uv)
        for key, given in _table(self._pixi, "pypi-options", self._path).items():
            own, value = self._known["pixi-options"].get(key), given
            if own is None:
                self._fail(f"tool.pixi.pypi-options.{key}", "is not honored", "take it out")
            if key == "find-links":
                value = [row.get("url") or row.get("path") for row in value]
            if key == "dependency-overrides":
                value = [requirement_of_row(name, row, None) for name, row in value.items()]
            if isinstance(value, list):
                own = f"{own}-package" if own.startswith("no-") else own
                value = [*settings.get(own, ()), *value]
            settings[own] = value
        self._uv = settings

    def wheels_of_pixi(self, groups: Iterable[str]) -> list[str]:
        """Return the wheels of pixi's default environment. A folder "." is the project.

        A feature among the groups that are asked for becomes one.
        """
        holding = (name for name, marker in self._known["platforms"].items() if self._holds(marker))
        targets = TARGETS.get(next(holding, ""), ())
        features = _table(self._pixi, "feature", self._path)
        for name in features.keys() & {*groups}:
            feature = features[name]
            tables = [feature, *(feature.get("target", {}).get(key, {}) for key in targets)]
            self.groups.setdefault(name, []).extend(self._pixi_wheels(tables, name))
        try:
            return self._pixi_wheels(default_tables(self._pixi, targets), "")
        except KeyError as error:
            return self._fail("tool.pixi.environments", f"names {error}, which is no feature")

    def _pixi_wheels(self, tables: Iterable[Table], group: str) -> list[str]:
        """Return the wheels of tables. Their sources hold for a group, "" for the project."""
        texts = []
        for table in tables:
            for name in _table(table, "dependencies", self._path).keys() - {"python", "pip"}:
                key = f"feature.{group}.dependencies" if group else "dependencies"
                hint = "solve a pixi.toml with --backend conda -r pixi.toml, or take it out"
                self._fail(f"tool.pixi.{key}.{name}", "is a conda package", hint)
            for name, value in _table(table, "pypi-dependencies", self._path).items():
                row: dict[str, Any] = {} if isinstance(value, str) else dict(value)
                if row.get("path") in (".", "./"):
                    continue
                texts.append(requirement_of_row(name, value, None))
                for key in ("version", "extras", "env-markers"):
                    row.pop(key, None)
                if "index" in row:
                    self._bound[normalize_name(name)] = row.pop("index")
                if row:
                    source = {**row, "group": group} if group else row
                    self._sources.setdefault(normalize_name(name), []).append(source)
        return texts

    # ---- sources ----

    def applied(self, text: str, where: str, extra: str = "", group: str = "") -> str:
        """Return a requirement with its source: the text of one at a URL, or as it was.

        Args:
            text: the requirement.
            where: its place, for messages.
            extra: the extra that has the requirement.
            group: the dependency group that has it.
        """
        requirement = Requirement(text)
        name = normalize_name(requirement.name)
        for source in self._sources.get(name, ()):
            conditions = {"extra": extra, "group": group}
            key = f"tool.uv.sources.{name}"
            if not isinstance(source, dict):
                self._fail(key, "must be a table")
            if any(source.get(kind, value) != value for kind, value in conditions.items()):
                continue
            if "marker" in source and not self._holds(source["marker"]):
                continue
            places = self._known["sources"]
            kinds = [kind for kind in places if kind in source]
            known = {*kinds, *places["every"], *(places[kinds[0]] if kinds else ())}
            if len(kinds) != 1 or source.keys() - known:
                unknown = sorted(source.keys() - known) or kinds
                self._fail(key, f"cannot be read: {', '.join(unknown) or 'it names no place'}")
            if kinds == ["index"]:
                self._bind(name, source["index"], key)
                return text
            requirement.url = self._url(name, source, key)
            requirement.specifier = type(requirement.specifier)()
            return checked_requirement(str(requirement), where)
        return text

    def _bind(self, name: str, index: object, key: str) -> None:
        if index not in self._urls:
            known = ", ".join(self._urls) or "none"
            self._fail(key, f"names the index {index!r}", f"known are {known}")
        self._bound[name] = self._urls[str(index)]

    def _url(self, name: str, source: Table, key: str) -> str:
        """Return where a source is: a URL, or a path that starts with ./ or /."""
        if "url" in source:
            if source.get("subdirectory"):
                self._fail(key, "has a subdirectory of an archive", "give a wheel of it")
            return str(source["url"])
        if "git" in source:
            return git_url(source)
        path = str(source["path"]) if "path" in source else self._member(name, key)
        place = os.path.join(self._folder, path)
        if not os.path.exists(place):
            self._fail(key, f"names {path}, which does not exist")
        is_editable = source.get("editable", "workspace" in source) and os.path.isdir(place)
        if self._start is None:
            place = os.path.abspath(place)
        elif not os.path.isabs(path):
            place = os.path.join(".", os.path.relpath(place, self._start or "."))
        return quote(place) + ("#editable" if is_editable else "")

    def _member(self, name: str, key: str) -> str:
        """Return the folder of a member of the workspace, relative to the project."""
        members = [self._root, *_members(self._root, self._uv.get("workspace", {}))]
        for member in members:
            if tree_name(member) == name:
                return os.path.relpath(member, self._folder or ".")
        return self._fail(key, "names a member that tool.uv.workspace.members does not have")

    def refuse_indexes(self, bound: Collection[str]) -> None:
        """Raise InputError if a requirement is bound to an index, as only those of a project are.

        Args:
            bound: the packages whose index the project that is solved gives.
        """
        for name in self._bound.keys() - bound:
            hint = "give the source in the project that is solved"
            self._fail(f"tool.uv.sources.{name}", "names an index, which is not honored", hint)

    # ---- everything else ----

    def settings(self, extras: Iterable[str], groups: Iterable[str]) -> RequirementSet:
        """Return what holds for the whole project, for the extras and groups that are asked for.

        Raises:
            InputError: the target is none of the project's environments, or what is asked for
                conflicts, or a key is not honored.
        """
        self._check_keys()
        self._check_environments()
        self._check_conflicts(extras, groups)
        if (newest := self._uv.get("exclude-newer")) is not None:
            parse_cutoff(str(newest), self._where("tool.uv.exclude-newer"))
        newest_of = _table(self._uv, "exclude-newer-package", self._path)
        for name, date in newest_of.items():
            if date is not False:
                parse_cutoff(str(date), self._where(f"tool.uv.exclude-newer-package.{name}"))
        texts = {}
        for kind in ("constraint", "override"):
            key = f"{kind}-dependencies"
            where = self._where(f"tool.uv.{key}")
            checked = [checked_requirement(text, where) for text in self._list(key)]
            texts[kind] = [self.applied(text, where) for text in checked]
        # uv drops what is excluded: as an override that never holds does.
        texts["override"] += map(_excluding, self._list("exclude-dependencies"))
        where = self._where("tool.pdm.resolution.overrides")
        texts["override"] += [checked_requirement(text, where) for text in self._overrides]
        return RequirementSet(
            constraints=tuple(texts["constraint"]),
            overrides=tuple(texts["override"]),
            index_url=self._default,
            extra_index_urls=tuple(dict.fromkeys(self._extra)),
            find_links=tuple(self._find_links),
            no_index=bool(self._uv.get("no-index")),
            pre=self._pre or self._uv.get("prerelease") == "allow",
            no_build=self._build_names("no-build"),
            no_binary=self._build_names("no-binary"),
            exclude_newer=None if newest is None else str(newest),
            exclude_newer_of=tuple(
                f"{normalize_name(name)}={date or ''}" for name, date in newest_of.items()
            ),
            package_indexes=tuple(f"{name}={url}" for name, url in sorted(self._bound.items())),
            merge_indexes=str(self._uv.get("index-strategy")).startswith("unsafe"),
            known_metadata=tuple(map(self._metadata, self._list("dependency-metadata"))),
            build_settings=tuple(self._build_settings()),
        )

    def _check_environments(self) -> None:
        """Raise InputError if the target is none of the project's environments."""
        stated = self._uv.get("environments", [])
        environments = [stated] if isinstance(stated, str) else self._list("environments")
        if environments and not any(map(self._holds, environments)):
            hint = f"the target must be one of: {'; '.join(environments)}"
            self._fail("tool.uv.environments", "leaves the target out", hint)

    def _check_conflicts(self, extras: Iterable[str], groups: Iterable[str]) -> None:
        """Raise InputError if the extras and groups that are asked for exclude each other."""
        asked = {*(("extra", normalize_name(extra)) for extra in extras)}
        asked |= {("group", normalize_name(group)) for group in groups}
        for conflict in self._list("conflicts"):
            rows = [
                (kind, normalize_name(row[kind]))
                for row in conflict
                if normalize_name(row.get("package", self._name)) == self._name
                for kind in ("extra", "group")
                if kind in row
            ]
            both = [f"{kind} {name}" for kind, name in rows if (kind, name) in asked]
            if len(both) > 1:
                self._fail("tool.uv.conflicts", f"excludes {' with '.join(both)}", "give one")

    def _build_names(self, key: str) -> tuple[str, ...]:
        """Return the packages of uv's no-build or no-binary, a flag and a list."""
        return build_names(self._list(f"{key}-package"), everything=bool(self._uv.get(key)))

    def _metadata(self, row: Table) -> str:
        """Return a row of dependency-metadata as the METADATA that it stands for."""
        key = "tool.uv.dependency-metadata"
        names = {"name", "version", "requires-dist", "requires-python", "provides-extra"}
        if not isinstance(row, dict) or row.keys() - names or "name" not in row:
            self._fail(key, f"has a row with other keys than {', '.join(sorted(names))}")
        where = self._where(key)
        return metadata_text(
            row["name"],
            row.get("version"),
            row.get("requires-python"),
            row.get("provides-extra", ()),
            [checked_requirement(text, where) for text in row.get("requires-dist", ())],
        )

    def _build_settings(self) -> Iterator[str]:
        """Yield what the project says about builds."""
        key = "build-constraint-dependencies"
        for text in self._list(key):
            checked = checked_requirement(text, self._where(f"tool.uv.{key}"))
            yield f"constraint * {checked}"
        key = "extra-build-dependencies"
        for name, rows in _table(self._uv, key, self._path).items():
            where, package = self._where(f"tool.uv.{key}.{name}"), normalize_name(name)
            for row in rows:
                text = str(row.get("requirement") if isinstance(row, dict) else row)
                checked = checked_requirement(text, where)
                yield f"requirement {package} {checked}"
        kinds = {"config-settings-package": "config", "extra-build-variables": "variable"}
        for key, kind in kinds.items():
            for name, pairs in _table(self._uv, key, self._path).items():
                yield from _settings_of(kind, normalize_name(name), pairs)
        yield from _settings_of("config", "*", _table(self._uv, "config-settings", self._path))


def _text_of_poetry(name: str, row: Table) -> str:
    """Return a dependency of poetry without its source as a requirement."""
    version = poetry_specifier(str(row.get("version", "*")))
    return requirement_of_row(name, {"version": version, "extras": row.get("extras", ())})


def poetry_python(poetry: Table, holds: Callable[[Table], bool] = lambda _: True) -> str:
    """Return the Python of a project of poetry as a specifier: the alternative that holds."""
    dependencies = poetry.get("dependencies")
    row = dependencies.get("python", "*") if isinstance(dependencies, dict) else "*"
    text = str(row.get("version", "*") if isinstance(row, dict) else row)
    alternatives = text.split("||")
    holding = (part for part in alternatives if holds({"python": part}))
    return poetry_specifier(next(holding, alternatives[0]))


def _settings_of(kind: str, package: str, pairs: Table) -> Iterator[str]:
    """Yield KEY=VALUE settings of a package; a value can be a list."""
    for key, value in pairs.items():
        for text in value if isinstance(value, list) else [value]:
            yield f"{kind} {package} {key}={text}"


def _members(root: str, workspace: Table) -> list[str]:
    """Return the folders of the members of a workspace."""

    def folders(key: str) -> set[str]:
        found = (glob(pattern, root_dir=root) for pattern in map(str, workspace.get(key, ())))
        return {os.path.normpath(os.path.join(root, path)) for paths in found for path in paths}

    return sorted(folders("members") - folders("exclude"))


def _moved(source: Any, above: str, folder: str) -> Any:
    """Return a source of the root of a workspace as it is in the file of a member."""
    if not isinstance(source, dict) or "path" not in source:
        return source
    return {**source, "path": os.path.relpath(os.path.join(above, source["path"]), folder)}


def _excluding(name: str) -> str:
    """Return the override that removes a package."""
    return f"{normalize_name(name)} ; python_version < '0'"


def _table(tables: object, key: str, path: str) -> Table:
    table = tables.get(key, {}) if isinstance(tables, dict) else {}
    if not isinstance(table, dict):
        raise InputError(f"{path}: {key} must be a table")
    return table


def line_of(text: str, key: str) -> tuple[int, int]:
    """Return how much of a key a TOML document has, and the line that has it; (0, 1) for nothing.

    Args:
        text: the document.
        key: the whole key, such as "tool.uv.sources.torch" or "tool.poetry.source[0].priority".
    """
    wanted, best, table = _comparable(key), (0, 1), ""
    counts: Counter[str] = Counter()
    for number, content in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[(\[?)([^\[\]]+)\]", content):
            found = table = _comparable(header[2])
            if header[1]:
                found = table = f"{table}[{counts[table]}]"
                counts[_comparable(header[2])] += 1
        elif assigned := re.match(r"\s*([\w.\"' -]+?)\s*=", content):
            found = f"{table}.{_comparable(assigned[1])}".lstrip(".")
        else:
            continue
        if f"{wanted}.".startswith((f"{found}.", f"{found}[")) and len(found) > best[0]:
            best = len(found), number
    return best


def _comparable(key: str) -> str:
    """Return a key as all of its spellings have it."""
    return re.sub(r"[\s\"']", "", key).replace("_", "-").lower()
