"""What the tables of other tools in a pyproject.toml say about a solve.

A key is honored, or an error with the key says what to do. Keys that cannot change what is solved
(caches, links, publishing, the style of an environment) are passed over.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, NoReturn
from urllib.parse import quote

from packaging.requirements import Requirement

from ..errors import InputError
from ..serialize import parse_toml, read_input
from .parse import RequirementSet, build_names, checked_requirement, no_build_names, tree_name
from .versions import normalize_name

Table = Mapping[str, Any]
Holds = Callable[[str], bool]  # whether a marker holds on the target


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Keys of [tool.uv] that change nothing of what is solved, or that other tables decide.
_WITHOUT_EFFECT = _words(
    """
    add-bounds allow-insecure-host audit build-backend cache-dir cache-keys check-url
    compile-bytecode concurrent-builds concurrent-downloads concurrent-installs default-groups
    dependency-groups dev-dependencies extra-build-dependencies fork-strategy http-proxy
    https-proxy keyring-provider link-mode managed native-tls no-build-isolation
    no-build-isolation-package no-cache no-proxy no-verify-hashes offline package pip preview
    preview-features publish-url pypy-install-mirror python-downloads
    python-downloads-json-url python-install-mirror python-preference reinstall
    reinstall-package required-environments required-version system-certs torch-backend
    trusted-publishing upgrade upgrade-package verify-hashes workspace
    """
)
# Keys of [tool.uv] that are honored.
_UV_READ = _words(
    """
    conflicts constraint-dependencies environments exclude-dependencies exclude-newer
    extra-index-url find-links index index-strategy index-url no-binary no-binary-package no-build
    no-build-package no-index no-sources override-dependencies prerelease resolution sources
    """
)
# What helps where a key is not honored.
_NOT_HONORED = {
    "build-constraint-dependencies": "builds have no constraints here; give wheels of these "
    "packages with --find-links",
    "config-settings": "builds get no settings here; give wheels with --find-links",
    "config-settings-package": "builds get no settings here; give wheels with --find-links",
    "dependency-metadata": "name what the packages require with override-dependencies",
    "exclude-newer-package": "use one date for all: exclude-newer",
    "extra-build-variables": "set the variables in the environment of gpuenv",
    "no-sources-package": "take these packages out of tool.uv.sources",
}
# The keys of a source, by what each says.
_PLACES = ("index", "url", "path", "git", "workspace")
_CONDITIONS = ("marker", "extra", "group", "package")
_DETAILS = {
    "git": {"rev", "tag", "branch", "subdirectory"},
    "path": {"editable", "package"},
    "url": {"subdirectory"},
    "workspace": {"editable"},
}


class Indexes:
    """The indexes of a project, by their names."""

    def __init__(self) -> None:
        self.urls: dict[str, str] = {}
        self.default: str | None = None
        self.extra: list[str] = []
        self.find_links: list[str] = []

    def add(self, url: object, name: str, where: str, *, explicit: bool, default: bool) -> None:
        """Add an index; one that is explicit supplies only what names it."""
        if not isinstance(url, str):
            raise InputError(f"{where}: {name or 'an index'} has no url")
        if name:
            self.urls[name] = url
        if default:
            self.default = self.default or url
        elif not explicit:
            self.extra.append(url)


class ToolTables:
    """The tables of a pyproject.toml.

    Attributes:
        groups: the dependency groups that tools have beside [dependency-groups].
        texts: the requirements that they add to those of the project.
    """

    def __init__(self, path: str, tools: Table, holds: Holds, start: str | None) -> None:
        """Read the tables.

        Args:
            path: the pyproject.toml.
            tools: its table `tool`.
            holds: whether a marker holds on the target.
            start: the folder from where the paths of requirements start; "" is the working folder,
                None makes whole paths.
        """
        self._path, self._holds, self._start = path, holds, start
        self._folder = os.path.dirname(path)
        self._uv: Table = {**_table(tools, "uv", path), **self._uv_toml()}
        self._indexes = Indexes()
        self._bound: dict[str, str] = {}  # {package: URL of its only index}
        self._sources: dict[str, list[Table]] = {}
        self._overrides: list[str] = []
        self._pre = False
        self.groups: dict[str, Any] = {}
        if "dev-dependencies" in self._uv:
            self.groups["dev"] = self._uv["dev-dependencies"]
        self._read_uv()
        self._read_poetry(_table(tools, "poetry", path))
        self._read_pdm(_table(tools, "pdm", path))
        self._pixi = _table(tools, "pixi", path)
        self.texts: list[str] = []
        self._read_pixi()

    def _fail(self, key: str, problem: str, hint: str = "") -> NoReturn:
        raise InputError(f"{self._path}: {key} {problem}", hint=hint)

    def _uv_toml(self) -> dict[str, Any]:
        """Return the settings of a uv.toml beside the file, which come before [tool.uv]."""
        path = os.path.join(self._folder, "uv.toml")
        try:
            return parse_toml(read_input(path).decode()) if os.path.isfile(path) else {}
        except (OSError, ValueError) as error:
            raise InputError(f"{path}: cannot be read: {error}") from None

    def _check_keys(self) -> None:
        for key, value in self._uv.items():
            if key in _NOT_HONORED and value:
                self._fail(f"tool.uv.{key}", "is not honored", _NOT_HONORED[key])
            if key not in _UV_READ | _WITHOUT_EFFECT | _NOT_HONORED.keys():
                hint = "gpuenv does not know whether it changes what is solved; take it out"
                self._fail(f"tool.uv.{key}", "is not a known key", hint)
        if self._uv.get("resolution", "highest") != "highest":
            hint = "the newest releases that fit are taken; take it out"
            self._fail("tool.uv.resolution", "is not honored", hint)
        if self._uv.get("prerelease") == "disallow":
            hint = "pre-releases are taken only where a requirement names one; take it out"
            self._fail("tool.uv.prerelease", "disallow is not honored", hint)

    def _read_uv(self) -> None:
        for number, index in enumerate(self._list("index")):
            where = f"{self._path}: tool.uv.index[{number}]"
            if index.get("format") == "flat":
                self._indexes.find_links.append(str(index.get("url")))
                continue
            self._indexes.add(
                index.get("url"),
                str(index.get("name", "")),
                where,
                explicit=bool(index.get("explicit")),
                default=bool(index.get("default")),
            )
        for url in self._list("extra-index-url"):
            self._indexes.add(url, "", self._path, explicit=False, default=False)
        if "index-url" in self._uv:
            self._indexes.add(self._uv["index-url"], "", self._path, explicit=False, default=True)
        self._indexes.find_links += map(str, self._list("find-links"))
        if not self._uv.get("no-sources"):
            for name, source in _table(self._uv, "sources", self._path).items():
                rows = source if isinstance(source, list) else [source]
                self._sources[normalize_name(name)] = rows

    def _list(self, key: str) -> list[Any]:
        values = self._uv.get(key, [])
        if not isinstance(values, list):
            self._fail(f"tool.uv.{key}", "must be a list")
        return values

    def _read_poetry(self, poetry: Table) -> None:
        """Read the sources of poetry. Its backend tells the dependencies."""
        for number, source in enumerate(poetry.get("source", ())):
            where = f"tool.poetry.source[{number}]"
            priority = source.get("priority", "primary")
            if str(source.get("name", "")).lower() == "pypi" and "url" not in source:
                continue
            if priority not in ("primary", "default", "explicit"):
                hint = "make it explicit, and name it as the source of its packages"
                self._fail(where, f"has the priority {priority}, which is not honored", hint)
            self._indexes.add(
                source.get("url"),
                str(source.get("name", "")),
                f"{self._path}: {where}",
                explicit=priority == "explicit",
                default=priority != "explicit",
            )
        for name, entry in _table(poetry, "dependencies", self._path).items():
            for row in entry if isinstance(entry, list) else [entry]:
                index = row.get("source") if isinstance(row, dict) else None
                if index is not None and str(index).lower() != "pypi":
                    source = {"index": index}
                    if "markers" in row:
                        source["marker"] = row["markers"]
                    self._sources.setdefault(normalize_name(name), []).append(source)

    def _read_pdm(self, pdm: Table) -> None:
        """Read the sources, overrides and groups of pdm."""
        for number, source in enumerate(pdm.get("source", ())):
            where = f"tool.pdm.source[{number}]"
            names = source.get("include_packages", source.get("include-packages", ()))
            if any("*" in name for name in names) or "exclude_packages" in source:
                hint = "name each package in include_packages"
                self._fail(where, "has patterns of packages, which are not honored", hint)
            if source.get("type") == "find_links":
                self._indexes.find_links.append(str(source.get("url")))
                continue
            self._indexes.add(
                source.get("url"),
                str(source.get("name", number)),
                f"{self._path}: {where}",
                explicit=bool(names),
                default=source.get("name") == "pypi",
            )
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

    def _read_pixi(self) -> None:
        """Read the wheels of the default environment of pixi; a folder "." is the project."""
        for name, value in _table(self._pixi, "pypi-dependencies", self._path).items():
            row: dict[str, Any] = {"version": value} if isinstance(value, str) else dict(value)
            if row.get("path") in (".", "./"):
                continue
            version, extras = row.pop("version", "*"), ",".join(row.pop("extras", ()))
            text = name + (f"[{extras}]" if extras else "")
            self.texts.append(text + ("" if version == "*" else version))
            if "index" in row:
                self._bound[normalize_name(name)] = row.pop("index")
            if row:
                self._sources[normalize_name(name)] = [row]

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
            kinds = [kind for kind in _PLACES if kind in source]
            known = {*kinds, *_CONDITIONS, *(_DETAILS.get(kinds[0], ()) if kinds else ())}
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
        if index not in self._indexes.urls:
            known = ", ".join(self._indexes.urls) or "none"
            self._fail(key, f"names the index {index!r}", f"known are {known}")
        self._bound[name] = self._indexes.urls[str(index)]

    def _url(self, name: str, source: Table, key: str) -> str:
        """Return where a source is: a URL, or a path that starts with ./ or /."""
        subdirectory = source.get("subdirectory")
        if "url" in source:
            if subdirectory:
                self._fail(key, "has a subdirectory of an archive", "give a wheel of it")
            return str(source["url"])
        if "git" in source:
            revision = source.get("rev") or source.get("tag") or source.get("branch")
            url = str(source["git"])
            url = url if url.startswith("git+") else f"git+{url}"
            url += f"@{revision}" if revision else ""
            return f"{url}#subdirectory={subdirectory}" if subdirectory else url
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
        from glob import glob  # few projects have a workspace

        root, workspace = self._folder or ".", self._uv.get("workspace")
        above = os.path.abspath(root)
        while workspace is None and os.path.dirname(above) != above:  # this is a member itself
            above = root = os.path.dirname(above)
            with suppress(OSError, ValueError):
                document = parse_toml(read_input(os.path.join(root, "pyproject.toml")).decode())
                workspace = document.get("tool", {}).get("uv", {}).get("workspace")
        for pattern in (workspace or {}).get("members", ()):
            for member in sorted(glob(str(pattern), root_dir=root)):
                if tree_name(os.path.join(root, member)) == name:
                    return os.path.relpath(os.path.join(root, member), self._folder or ".")
        return self._fail(key, "names a member that tool.uv.workspace.members does not have")

    def refuse_indexes(self) -> None:
        """Raise InputError if a requirement is bound to an index: only those of a project are."""
        for name in self._bound:
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
        for name in _table(self._pixi, "dependencies", self._path):
            if name not in ("python", "pip"):
                hint = "solve a pixi.toml with --backend conda -r pixi.toml, or take it out"
                self._fail(f"tool.pixi.dependencies.{name}", "is a conda package", hint)
        environments = self._list("environments")
        if isinstance(self._uv.get("environments"), str):
            environments = [self._uv["environments"]]
        if environments and not any(map(self._holds, environments)):
            hint = f"the target must be one of: {'; '.join(environments)}"
            self._fail("tool.uv.environments", "leaves the target out", hint)
        asked = {*(("extra", normalize_name(extra)) for extra in extras)}
        asked |= {("group", normalize_name(group)) for group in groups}
        for conflict in self._list("conflicts"):
            rows = [
                (kind, normalize_name(row[kind]))
                for row in conflict
                for kind in ("extra", "group")
                if kind in row
            ]
            both = [f"{kind} {name}" for kind, name in rows if (kind, name) in asked]
            if len(both) > 1:
                self._fail("tool.uv.conflicts", f"excludes {' with '.join(both)}", "give one")
        if self._uv.get("index-strategy", "first-index") != "first-index" and self._indexes.extra:
            hint = "each package comes from one index; bind packages to it with tool.uv.sources"
            self._fail("tool.uv.index-strategy", "is not honored", hint)
        texts = {}
        for kind in ("constraint", "override"):
            key = f"{kind}-dependencies"
            where = f"{self._path}: tool.uv.{key}"
            checked = [checked_requirement(text, where) for text in self._list(key)]
            texts[kind] = [self.applied(text, where) for text in checked]
        # uv drops what is excluded: as an override that never holds does.
        texts["override"] += map(_excluding, self._list("exclude-dependencies"))
        where = f"{self._path}: tool.pdm.resolution.overrides"
        texts["override"] += [checked_requirement(text, where) for text in self._overrides]
        no_binary = [":all:"] if self._uv.get("no-binary") else []
        return RequirementSet(
            constraints=tuple(texts["constraint"]),
            overrides=tuple(texts["override"]),
            index_url=self._indexes.default,
            extra_index_urls=tuple(dict.fromkeys(self._indexes.extra)),
            find_links=tuple(self._indexes.find_links),
            no_index=bool(self._uv.get("no-index")),
            pre=self._pre or self._uv.get("prerelease") == "allow",
            no_build=no_build_names(
                self._list("no-build-package"), everything=bool(self._uv.get("no-build"))
            ),
            no_binary=build_names([*no_binary, *self._list("no-binary-package")]),
            exclude_newer=self._uv.get("exclude-newer"),
            package_indexes=tuple(f"{name}={url}" for name, url in sorted(self._bound.items())),
        )


def _excluding(name: str) -> str:
    """Return the override that removes a package."""
    return f"{normalize_name(name)} ; python_version < '0'"


def _table(tables: object, key: str, path: str) -> Table:
    table = tables.get(key, {}) if isinstance(tables, dict) else {}
    if not isinstance(table, dict):
        raise InputError(f"{path}: {key} must be a table")
    return table
