"""[tool.gpuenv] as values, strictly: a mistake is one line with the key, what is wrong and what is allowed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from ..compat.data import CompatibilityData
from ..errors import InputError
from ..model import Host
from ..requirements.target import parse_requirement
from ..serialize import read_toml
from .profiles import GLIBC, PLATFORM, Profile, Project

FILE = "pyproject.toml"
Describe = Callable[[Profile], Host]
Dependencies = Callable[[str, Sequence[str], Sequence[str]], Sequence[str]]

# key -> the kind of its value; `profiles` and `gpu` are looked at by themselves
_SHARED = {"frameworks": "texts", "requirements": "texts", "constraints": "texts", "python": "text"}
_OPTIONS = {
    "index-url": "text", "extra-index-urls": "texts", "find-links": "texts", "default-index-only": "flag",
    "pre": "flag", "exclude-newer": "text",
}  # fmt: skip
_PROJECT = {"project-dependencies": "flag", "extras": "texts", "groups": "texts"}
_TOP = _SHARED | _PROJECT | _OPTIONS | {"profiles": "table"}
_PROFILE = _SHARED | {"gpu": "any", "count": "number", "driver": "text", "platform": "text", "glibc": "text"}
_KINDS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    "text": (lambda value: isinstance(value, str) and bool(value.strip()), "a text in quotes"),
    "texts": (lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value), "a list of texts"),
    "flag": (lambda value: isinstance(value, bool), "true or false"),
    "number": (lambda value: type(value) is int and 1 <= value <= _MOST_GPUS, "a whole number from 1 to 64"),
    "table": (lambda value: isinstance(value, dict), "a table"),
    "any": (lambda value: value is not None, ""),
}
_MOST_GPUS = 64
_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def has_table(data: Mapping[str, Any]) -> bool:
    """Whether there is a [tool.gpuenv], right or wrong."""
    tools = data.get("tool")
    return isinstance(tools, dict) and "gpuenv" in tools


def read_project(folder: str, matrix: CompatibilityData, describe: Describe, dependencies: Dependencies) -> Project:
    """The profiles of the pyproject.toml in a folder ("" for here).

    `describe` gives the host of a profile and raises InputError in the words of the host flags; `dependencies(path,
    extras, groups)` gives the requirements of the project itself. InputError for all that is wrong with the file.
    """
    path = os.path.join(folder, FILE)
    if not os.path.isfile(path):
        where = f"the folder {folder}" if folder else "this folder"
        raise InputError(f"{where} has no {FILE}", hint="gpuenv init writes a first one")
    data = read_toml(path)
    if not has_table(data):
        raise InputError(f"{path}: has no [tool.gpuenv]", hint="gpuenv init writes a first one")
    return _Reader(path, matrix).project(folder, data["tool"]["gpuenv"], describe, dependencies)


class _Reader:
    """The keys of one file. `path` and the key start every message."""

    def __init__(self, path: str, matrix: CompatibilityData) -> None:
        self.path, self.matrix = path, matrix

    def project(self, folder: str, table: object, describe: Describe, dependencies: Dependencies) -> Project:
        top = self._table(table, "tool.gpuenv", _TOP)
        profiles = top.get("profiles", {})
        if not profiles:
            hint = 'add one, such as [tool.gpuenv.profiles.h100] with gpu = "H100" and driver = "580.65.06"'
            raise InputError(f"{self.path}: tool.gpuenv.profiles: there is no profile to lock for", hint=hint)
        self._check_urls(top)
        own: Sequence[str] = ()
        if top.get("project-dependencies"):
            own = dependencies(self.path, top.get("extras", ()), top.get("groups", ()))
        else:
            for key in ("extras", "groups"):
                if key in top:
                    self._fail(f"tool.gpuenv.{key}", "is of use only with project-dependencies = true")
        found: dict[str, Profile] = {}
        for name, table_ in profiles.items():
            where = f"tool.gpuenv.profiles.{name}"
            self._check_name(name, where, found)
            found[name.lower()] = profile = self._profile(name, where, table_, top, own)
            try:
                describe(profile)
            except InputError as error:  # its words are those of the host flags
                hint = error.hint.replace("--", "")
                raise InputError(f"{self.path}: {where}: {error.message.replace('--', '')}", hint=hint) from None
        return Project(path=self.path, folder=folder, profiles=tuple(found.values()))

    def _check_urls(self, top: Mapping[str, Any]) -> None:
        for key in ("index-url", "extra-index-urls"):
            for url in [top[key]] if isinstance(top.get(key), str) else top.get(key, ()):
                scheme, slashes, rest = url.partition("://")
                if not slashes or scheme not in ("http", "https", "file"):
                    self._fail(f"tool.gpuenv.{key}", f"must be a URL such as https://HOST/simple, and not {url!r}")
                if "@" in rest.partition("/")[0]:
                    hint = "put them into ~/.netrc"
                    what = f"{self.path}: tool.gpuenv.{key} has credentials, which locks would show"
                    raise InputError(what, hint=hint)

    def _check_name(self, name: str, where: str, found: Mapping[str, Profile]) -> None:
        if not name or not set(name) <= _NAME:
            hint = "pip and uv take a lock as pylock.NAME.toml with no dot in NAME"
            raise InputError(f"{self.path}: {where}: {name!r} has more than letters, digits, - and _", hint=hint)
        if name.lower() in found:
            other = found[name.lower()].name
            self._fail(where, f"differs from {other} in case only, and some file systems hold one file for both")

    def _profile(
        self, name: str, where: str, table: object, top: Mapping[str, Any], own: Sequence[str]
    ) -> Profile:
        fields = self._table(table, where, _PROFILE)
        merged = {key: fields.get(key, top.get(key)) for key in _SHARED}
        at = {key: f"{where if key in fields else 'tool.gpuenv'}.{key}" for key in _SHARED}
        gpus = self._gpus(fields, where)
        if "driver" not in fields and gpus:
            hint = "give the oldest release that it must run on, such as 580.65.06"
            raise InputError(f"{self.path}: {where}.driver is missing", hint=hint)
        if "driver" in fields and not gpus:
            self._fail(f"{where}.driver", "is given, and the profile has no GPU")
        platform = fields.get("platform", PLATFORM)
        profile = Profile(
            name=name,
            frameworks=self._frameworks(merged["frameworks"] or (), at["frameworks"]),
            requirements=(*own, *self._requirements(merged["requirements"] or (), at["requirements"])),
            constraints=self._requirements(merged["constraints"] or (), at["constraints"]),
            python=self._python(merged["python"], at["python"]),
            gpus=gpus,
            driver=fields.get("driver"),
            platform=platform,
            glibc=fields.get("glibc", GLIBC if platform.startswith("linux-") else None),
            options=tuple(
                (key, tuple(value) if isinstance(value, list) else value)
                for key in _OPTIONS
                if (value := top.get(key))
            ),
        )
        if not profile.frameworks and not profile.requirements:
            self._fail(where, "asks for nothing: name frameworks or requirements")
        return profile

    # ---- values

    def _gpus(self, fields: Mapping[str, Any], where: str) -> tuple[str, ...]:
        value, key = fields.get("gpu"), f"{where}.gpu"
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not texts or not all(isinstance(one, str) and one.strip() for one in texts):
            wrong = "is missing: it is" if value is None else f"must not be {value!r}: it is"
            self._fail(key, f'{wrong} a name such as "H100" or "sm_90", a list of them, or "none"')
        none = [one.strip().lower() == "none" for one in texts]
        if "count" in fields and (len(texts) > 1 or any(none)):
            self._fail(f"{where}.count", "is for one kind of GPU")
        if any(none) and len(texts) > 1:
            self._fail(key, '"none" stands beside a GPU')
        return () if any(none) else tuple(texts) * fields.get("count", 1)

    def _frameworks(self, texts: Sequence[str], where: str) -> tuple[str, ...]:
        names: list[str] = []
        for text in texts:
            parsed = self._parsed(text, where)
            if self.matrix.framework(parsed.name) is None:
                known = self.matrix.frameworks()
                raise InputError(f"{self.path}: {where}: no framework is {text!r}", hint=_like(parsed.name, known))
            if parsed.marker or parsed.url:
                self._fail(where, f"{text!r} is more than a name with a version range, such as torch>=2.9")
            if parsed.name in names:
                self._fail(where, f"{parsed.name} is named twice")
            names.append(parsed.name)
        return tuple(texts)

    def _requirements(self, texts: Sequence[str], where: str) -> tuple[str, ...]:
        for text in texts:
            self._parsed(text, where)
        return tuple(texts)

    def _parsed(self, text: str, where: str) -> Any:
        try:
            return parse_requirement(text)
        except InputError as error:
            raise InputError(f"{self.path}: {where}: {error.message}", hint=error.hint) from None

    def _python(self, text: Any, where: str) -> str:
        if text is None:
            raise InputError(f"{self.path}: {where} is missing", hint='give the target interpreter: python = "3.12"')
        major, _, minor = str(text).removesuffix("t").partition(".")
        if major != "3" or not (minor.isascii() and minor.isdigit()):
            self._fail(where, f'must be a version such as "3.12", or "3.13t", and not {text!r}')
        return str(text)

    # ---- tables

    def _table(self, table: object, where: str, kinds: Mapping[str, str]) -> dict[str, Any]:
        if not isinstance(table, dict):
            self._fail(where, f"must be a table, and not {table!r}")
        for key, value in table.items():
            if key not in kinds:
                raise InputError(f"{self.path}: {where}.{key} is not a key", hint=_like(key, sorted(kinds)))
            test, kind = _KINDS[kinds[key]]
            if not test(value):
                self._fail(f"{where}.{key}", f"must be {kind}, and not {_shown(value)}")
        return table

    def _fail(self, where: str, what: str) -> NoReturn:
        raise InputError(f"{self.path}: {where} {what}")


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else repr(value)


def _like(text: str, known: Sequence[str]) -> str:
    """The known names like a text, else all."""
    from difflib import get_close_matches

    close = get_close_matches(text, known, n=2, cutoff=0.6)
    return f"did you mean {' or '.join(close)}?" if close else f"known are {', '.join(known)}"
