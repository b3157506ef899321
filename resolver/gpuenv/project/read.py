"""Read and check [tool.gpuenv].

The check is strict: the message for a mistake is one line with the key, what is wrong and what is
allowed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from ..compat.data import CompatibilityData
from ..errors import InputError
from ..model import Host, Requirement
from ..requirements.parse import build_names, no_build_names
from ..requirements.target import parse_requirement
from ..serialize import read_toml
from .profiles import GLIBC, PLATFORM, Profile, Project

FILE = "pyproject.toml"
Describe = Callable[[Profile], Host]
Dependencies = Callable[[str, Sequence[str], Sequence[str]], Sequence[str]]
# A table whose values `_Reader._table` has checked: each key has a value of its kind.
_Table = Mapping[str, Any]

_MOST_GPUS = 64
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")

# The keys of the tables, and the kinds of their values (see _KINDS). `gpu` has checks of its own.
_SHARED_KEYS = {
    "frameworks": "strings",
    "requirements": "strings",
    "constraints": "strings",
    "python": "string",
    "separate-versions": "flag",
    "backend": "string",
    "channels": "strings",
    "wheels": "strings",
}
_INDEX_KEYS = {
    "index-url": "string",
    "extra-index-urls": "strings",
    "find-links": "strings",
    "no-index": "flag",
    "default-index-only": "flag",
    "pre": "flag",
    "exclude-newer": "string",
    "no-build": "flag",
    "no-build-package": "strings",
    "no-binary": "strings",
}
_DEPENDENCY_KEYS = {"project-dependencies": "flag", "extras": "strings", "groups": "strings"}
_TOP_KEYS = _SHARED_KEYS | _DEPENDENCY_KEYS | _INDEX_KEYS | {"profiles": "table"}
_PROFILE_KEYS = _SHARED_KEYS | {
    "gpu": "any",
    "count": "count",
    "driver": "string",
    "platform": "string",
    "glibc": "string",
}


# ---- kinds of values -----------------------------------------------------------------------------


def _is_string(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_string_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(element, str) for element in value)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= _MOST_GPUS


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


def _is_any(value: object) -> bool:
    return value is not None


# kind -> (check, what a message calls it)
_KINDS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "string": (_is_string, "a string in quotes"),
    "strings": (_is_string_list, "a list of strings"),
    "flag": (_is_flag, "true or false"),
    "count": (_is_count, f"a whole number from 1 to {_MOST_GPUS}"),
    "table": (_is_table, "a table"),
    "any": (_is_any, ""),
}


# ---- the table -----------------------------------------------------------------------------------


def has_table(data: Mapping[str, object]) -> bool:
    """Return whether a pyproject.toml has a [tool.gpuenv], right or wrong."""
    tools = data.get("tool")
    return isinstance(tools, dict) and "gpuenv" in tools


def read_project(
    folder: str, data: CompatibilityData, describe: Describe, dependencies: Dependencies
) -> Project:
    """Read the profiles of the pyproject.toml in a folder.

    Args:
        folder: the folder, "" for the working folder.
        data: the compatibility data, which knows the frameworks.
        describe: returns the host of a profile; its errors name the host flags.
        dependencies: returns the requirements of the project itself for (path, extras, groups).

    Raises:
        InputError: the file has a mistake.
    """
    path = os.path.join(folder, FILE)
    hint = "gpuenv init writes a first one"
    if not os.path.isfile(path):
        where = "this folder"
        if folder:
            where = f"the folder {folder}"
        raise InputError(f"{where} has no {FILE}", hint=hint)
    document = read_toml(path)
    if not has_table(document):
        raise InputError(f"{path}: has no [tool.gpuenv]", hint=hint)
    reader = _Reader(path, data)
    profiles = reader.profiles(document["tool"]["gpuenv"], describe, dependencies)
    return Project(path=path, folder=folder, profiles=profiles)


class _Reader:
    """Reads the table of one file. Every message begins with the path and the key."""

    def __init__(self, path: str, data: CompatibilityData) -> None:
        self.path = path
        self.data = data

    def profiles(
        self, table: object, describe: Describe, dependencies: Dependencies
    ) -> tuple[Profile, ...]:
        top = self._table(table, "tool.gpuenv", _TOP_KEYS)
        tables = top.get("profiles", {})
        if not tables:
            message = f"{self.path}: tool.gpuenv.profiles: there is no profile to lock for"
            hint = (
                'add one, such as [tool.gpuenv.profiles.h100] with gpu = "H100"'
                ' and driver = "580.65.06"'
            )
            raise InputError(message, hint=hint)
        self._check_urls(top)
        dependency_texts = self._dependencies(top, dependencies)
        profiles: dict[str, Profile] = {}
        for name, profile_table in tables.items():
            where = f"tool.gpuenv.profiles.{name}"
            self._check_name(name, where, profiles)
            profile = self._profile(name, where, profile_table, top, dependency_texts)
            profiles[name.lower()] = self._with_platform(profile, where, describe)
        return tuple(profiles.values())

    def _check_urls(self, top: _Table) -> None:
        if "index-url" in top:
            self._check_url("tool.gpuenv.index-url", top["index-url"])
        for url in top.get("extra-index-urls", ()):
            self._check_url("tool.gpuenv.extra-index-urls", url)
        if top.get("no-index") and not top.get("find-links"):
            self._fail("tool.gpuenv.no-index", "needs find-links, the folders of the wheels")

    def _check_url(self, where: str, url: str) -> None:
        scheme, slashes, rest = url.partition("://")
        if not slashes or scheme not in ("http", "https", "file"):
            self._fail(where, f"must be a URL such as https://HOST/simple, not {url!r}")
        if "@" in rest.partition("/")[0]:
            message = f"{self.path}: {where} has credentials, which locks would show"
            raise InputError(message, hint="put them into ~/.netrc")

    def _dependencies(self, top: _Table, dependencies: Dependencies) -> Sequence[str]:
        """Return the requirements of the project itself if the table asks for them."""
        if top.get("project-dependencies"):
            return dependencies(self.path, top.get("extras", ()), top.get("groups", ()))
        for key in ("extras", "groups"):
            if key in top:
                self._fail(f"tool.gpuenv.{key}", "needs project-dependencies = true")
        return ()

    def _check_name(self, name: str, where: str, profiles: Mapping[str, Profile]) -> None:
        if not name or not set(name) <= NAME_CHARACTERS:
            message = f"{self.path}: {where}: {name!r} must consist of letters, digits, - and _"
            hint = "pip and uv accept a lock only as pylock.NAME.toml without a dot in NAME"
            raise InputError(message, hint=hint)
        if name.lower() in profiles:
            same = profiles[name.lower()].name
            problem = f"differs from {same} only in case; some file systems have one file for both"
            self._fail(where, problem)

    def _with_platform(self, profile: Profile, where: str, describe: Describe) -> Profile:
        """Return a profile with the platform of its host. InputError if there is no such host."""
        try:
            return profile.replace(platform=describe(profile).platform)
        except InputError as error:
            # The message names the host flags; the keys have the same names without the dashes.
            message = f"{self.path}: {where}: {error.message.replace('--', '')}"
            raise InputError(message, hint=error.hint.replace("--", "")) from None

    def _profile(
        self,
        name: str,
        where: str,
        table: object,
        top: _Table,
        dependencies: Sequence[str],
    ) -> Profile:
        fields = self._table(table, where, _PROFILE_KEYS)
        gpus = self._gpus(fields, where)
        if "driver" not in fields and gpus:
            hint = "give the oldest release that it must run on, such as 580.65.06"
            raise InputError(f"{self.path}: {where}.driver is missing", hint=hint)
        if "driver" in fields and not gpus:
            self._fail(f"{where}.driver", "is given, but the profile has no GPU")
        own_frameworks = map(parse_requirement, fields.get("frameworks", ()))
        conda = self._is_conda(fields, top, where)
        requirements = self._requirements(*_shared(fields, top, where, "requirements"), conda=conda)
        wheels = self._requirements(*_shared(fields, top, where, "wheels"))
        profile = Profile(
            name=name,
            frameworks=self._frameworks(*_shared(fields, top, where, "frameworks")),
            requirements=requirements if conda else (*dependencies, *requirements),
            constraints=self._requirements(*_shared(fields, top, where, "constraints")),
            python=self._python(*_shared(fields, top, where, "python")),
            gpus=gpus,
            driver=fields.get("driver"),
            platform=fields.get("platform", ""),
            glibc=_glibc(fields),
            index_url=top.get("index-url"),
            extra_index_urls=tuple(top.get("extra-index-urls", ())),
            find_links=tuple(top.get("find-links", ())),
            no_index=top.get("no-index", False),
            default_index_only=top.get("default-index-only", False),
            pre=top.get("pre", False),
            exclude_newer=top.get("exclude-newer"),
            no_build=no_build_names(
                top.get("no-build-package", ()), everything=top.get("no-build", False)
            ),
            no_binary=build_names(top.get("no-binary", ())),
            # Conda's builds do not have the versions of the wheels.
            separate_versions=conda or bool(_shared(fields, top, where, "separate-versions")[0]),
            own_ranges=tuple(framework.name for framework in own_frameworks if framework.specifier),
            conda=conda,
            channels=tuple(_shared(fields, top, where, "channels")[0] or ()) if conda else (),
            wheels=(*dependencies, *wheels) if conda else (),
        )
        if not profile.frameworks and not profile.requirements:
            self._fail(where, "asks for nothing: name frameworks or requirements")
        return profile

    # ---- values

    def _is_conda(self, fields: _Table, top: _Table, where: str) -> bool:
        """Return whether a profile is of conda packages. Raise InputError for wrong keys."""
        backend, place = _shared(fields, top, where, "backend")
        if backend not in (None, "pip", "conda"):
            self._fail(place, f'must be "pip" or "conda", not {backend!r}')
        misplaced = ("constraints",) if backend == "conda" else ("channels", "wheels")
        for key in misplaced:
            if key in fields:
                needed = "pip" if backend == "conda" else "conda"
                self._fail(f"{where}.{key}", f'needs backend = "{needed}"')
        return bool(backend == "conda")

    def _gpus(self, fields: _Table, where: str) -> tuple[str, ...]:
        """Return one text for each device, () for "none"."""
        texts = self._gpu_texts(fields.get("gpu"), f"{where}.gpu")
        has_none = any(text.strip().lower() == "none" for text in texts)
        if "count" in fields and (len(texts) > 1 or has_none):
            self._fail(f"{where}.count", "is for one kind of GPU")
        if not has_none:
            count: int = fields.get("count", 1)
            return texts * count
        if len(texts) > 1:
            self._fail(f"{where}.gpu", '"none" cannot be combined with a GPU')
        return ()

    def _gpu_texts(self, value: object, where: str) -> tuple[str, ...]:
        kinds = 'a name such as "H100" or "sm_90", a list of them, or "none"'
        if value is None:
            self._fail(where, f"is missing: it is {kinds}")
        texts = value
        if isinstance(value, str):
            texts = [value]
        if not isinstance(texts, list) or not texts or not all(map(_is_string, texts)):
            self._fail(where, f"must not be {value!r}: it is {kinds}")
        return tuple(texts)

    def _frameworks(self, texts: Sequence[str] | None, where: str) -> tuple[str, ...]:
        names: list[str] = []
        for text in texts or ():
            requirement = self._parse(text, where)
            if self.data.framework(requirement.name) is None:
                hint = _suggestion(requirement.name, self.data.frameworks())
                raise InputError(f"{self.path}: {where}: unknown framework {text!r}", hint=hint)
            if requirement.marker or requirement.url:
                problem = f"must hold names with version ranges, such as torch>=2.9, not {text!r}"
                self._fail(where, problem)
            if requirement.name in names:
                self._fail(where, f"{requirement.name} is named twice")
            names.append(requirement.name)
        return tuple(texts or ())

    def _requirements(
        self, texts: Sequence[str] | None, where: str, *, conda: bool = False
    ) -> tuple[str, ...]:
        """Check requirements, and return them. The solver checks the specs of conda."""
        for text in texts or ():
            if not conda:
                self._parse(text, where)
        return tuple(texts or ())

    def _parse(self, text: str, where: str) -> Requirement:
        try:
            return parse_requirement(text)
        except InputError as error:
            message = f"{self.path}: {where}: {error.message}"
            raise InputError(message, hint=error.hint) from None

    def _python(self, text: str | None, where: str) -> str:
        if text is None:
            hint = 'give the target interpreter: python = "3.12"'
            raise InputError(f"{self.path}: {where} is missing", hint=hint)
        major, _, minor = text.removesuffix("t").partition(".")
        if major != "3" or not (minor.isascii() and minor.isdigit()):
            self._fail(where, f'must be a version such as "3.12" or "3.13t", not {text!r}')
        return text

    # ---- tables

    def _table(self, table: object, where: str, kinds: Mapping[str, str]) -> _Table:
        """Return a table whose keys and kinds of values are right."""
        if not isinstance(table, dict):
            self._fail(where, f"must be a table, not {table!r}")
        for key, value in table.items():
            if key not in kinds:
                hint = _suggestion(key, sorted(kinds))
                raise InputError(f"{self.path}: {where}.{key} is not a key", hint=hint)
            is_kind, kind = _KINDS[kinds[key]]
            if not is_kind(value):
                self._fail(f"{where}.{key}", f"must be {kind}, not {_toml_text(value)}")
        return table

    def _fail(self, where: str, problem: str) -> NoReturn:
        raise InputError(f"{self.path}: {where} {problem}")


def _shared(fields: _Table, top: _Table, where: str, key: str) -> tuple[Any, str]:
    """Return (value, where it is) of a key that a profile takes from the table if it lacks it."""
    if key in fields:
        return fields[key], f"{where}.{key}"
    return top.get(key), f"tool.gpuenv.{key}"


def _glibc(fields: _Table) -> str | None:
    glibc: str | None = fields.get("glibc")
    platform: str = fields.get("platform", PLATFORM)
    if glibc is None and platform.startswith("linux-"):
        return GLIBC
    return glibc


def _toml_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value)


def _suggestion(text: str, known: Sequence[str]) -> str:
    """Return a hint with the known names that are close to a text, otherwise with all."""
    close = get_close_matches(text, known, n=2, cutoff=0.6)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"known are {', '.join(known)}"
