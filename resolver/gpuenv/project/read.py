"""Read and check [tool.gpuenv].

The check is strict: the message for a mistake is one line with the key, what is wrong and what is
allowed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any, NoReturn
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from ..compat.data import CompatibilityData
from ..compat.names import unknown_framework
from ..errors import InputError, did_you_mean
from ..requirements import pyproject
from ..requirements.parse import RequirementSet, build_names
from ..requirements.target import TargetEnvironment, parse_requirement
from ..serialize import read_toml
from .profiles import GLIBC, PLATFORM, Profile, Project, host_of, index_options

FILE = "pyproject.toml"
NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")

# The kinds of values: the type, and what a message calls it.
_STRING = (Annotated[str, Meta(pattern=r"\S")], "a string in quotes")
_STRINGS = (list[str], "a list of strings")
_FLAG = (bool, "true or false")
_COUNT = (Annotated[int, Meta(ge=1, le=64)], "a whole number from 1 to 64")
_TABLE_OF_PROFILES = (dict[str, Any], "a table")
_ANY = (Any, "")

_SHARED_KEYS = {
    **dict.fromkeys(("frameworks", "requirements", "constraints", "channels", "wheels"), _STRINGS),
    **dict.fromkeys(("override-dependencies", "extras", "groups"), _STRINGS),
    **dict.fromkeys(("python", "backend"), _STRING),
    "separate-versions": _FLAG,
}
TOP_KEYS = _SHARED_KEYS | {
    **dict.fromkeys(("index-url", "exclude-newer"), _STRING),
    **dict.fromkeys(("extra-index-urls", "find-links"), _STRINGS),
    **dict.fromkeys(("no-build-package", "no-binary"), _STRINGS),
    **dict.fromkeys(("no-index", "default-index-only", "pre", "no-build"), _FLAG),
    "project-dependencies": _FLAG,
    "profiles": _TABLE_OF_PROFILES,
}
PROFILE_KEYS = _SHARED_KEYS | {
    **dict.fromkeys(("driver", "platform", "glibc"), _STRING),
    "gpu": _ANY,  # it has checks of its own
    "count": _COUNT,
}


Built = Callable[..., tuple[Sequence[str], str | None]]


def has_table(data: Mapping[str, object]) -> bool:
    """Return whether a pyproject.toml has a [tool.gpuenv], right or wrong."""
    tools = data.get("tool")
    return isinstance(tools, dict) and "gpuenv" in tools


def has_dependencies(document: Mapping[str, Any]) -> bool:
    """Return whether a pyproject.toml has dependencies of a project: [project], or of Poetry 1."""
    tools = document.get("tool")
    poetry = tools.get("poetry") if isinstance(tools, dict) else None
    return "project" in document or (isinstance(poetry, dict) and "dependencies" in poetry)


def read_project(folder: str, data: CompatibilityData, built: Built) -> Project:
    """Read the profiles of the pyproject.toml in a folder.

    Args:
        folder: the folder, "" for the working folder.
        data: the compatibility data, which knows the frameworks.
        built: returns what the backend of the project says where no file tells it, as
            `built_requirements` of the API does.

    Raises:
        InputError: the file has a mistake.
    """
    path = os.path.join(folder, FILE)
    document = read_document(folder)
    top = _Table(path, "tool.gpuenv", document["tool"]["gpuenv"], TOP_KEYS)
    if not top.values.get("profiles"):
        hint = 'add one, such as [tool.gpuenv.profiles.h100] with gpu = "H100"'
        top.fail(
            "profiles", ": there is no profile to lock for", f'{hint} and driver = "580.65.06"'
        )
    _check_indexes(top)
    has_own = top.values.get("project-dependencies", has_dependencies(document))
    profiles: dict[str, Profile] = {}
    for name, fields in top.values["profiles"].items():
        if not name or not set(name) <= NAME_CHARACTERS:
            hint = "pip and uv accept a lock only as pylock.NAME.toml without a dot in NAME"
            problem = f": {name!r} must consist of letters, digits, - and _"
            top.fail(f"profiles.{name}", problem, hint)
        if name.lower() in profiles:
            same = profiles[name.lower()].name
            problem = f" differs from {same} only in case; some file systems have one file for both"
            top.fail(f"profiles.{name}", problem)
        table = _Table(path, f"tool.gpuenv.profiles.{name}", fields, PROFILE_KEYS, top.values)
        extras, groups = table.values.get("extras", ()), table.values.get("groups", ())
        if (extras or groups) and not has_own:
            table.fail("extras" if extras else "groups", " needs [project]")
        _check_requests(table, data, conda=table.values.get("backend") == "conda")
        profile = _profile(name, table)
        try:
            host = host_of(profile, data)
        except InputError as error:
            # It names the host flags; the keys have the same names without the dashes.
            message, hint = error.message.replace("--", ""), error.hint.replace("--", "")
            top.fail(f"profiles.{name}", f": {message}", hint)
        profile = profile.replace(platform=host.platform)
        if has_own:
            marker = TargetEnvironment(host).marker
            holds = partial(marker, extras=())
            ask = partial(built, host=host, options=index_options(profile, folder))
            own = pyproject.read_project(path, extras, groups, holds=holds, start=folder, built=ask)
            profile = _with_project(profile, own, path)
        profiles[name.lower()] = profile
    return Project(path=path, folder=folder, profiles=tuple(profiles.values()))


def read_document(folder: str) -> Mapping[str, Any]:
    """Return the pyproject.toml of a folder. InputError if it is no project of gpuenv."""
    path, hint = os.path.join(folder, FILE), "gpuenv init writes a first one"
    if not os.path.isfile(path):
        where = f"the folder {folder}" if folder else "this folder"
        raise InputError(f"{where} has no {FILE}", hint=hint)
    document = read_toml(path)
    if not has_table(document):
        raise InputError(f"{path}: has no [tool.gpuenv]", hint=hint)
    return document


class _Table:
    """A table in which each key has a value of its kind.

    Attributes:
        fields: the table as it is written.
        values: the same, and what a profile takes from the table of all profiles.
    """

    def __init__(
        self,
        path: str,
        where: str,
        table: object,
        kinds: Mapping[str, tuple[object, str]],
        shared: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.path, self.where = path, where
        if not isinstance(table, dict):
            raise InputError(f"{path}: {where} must be a table, not {table!r}")
        self.fields: dict[str, Any] = table
        self.values = {**shared, **table}
        for key, value in table.items():
            if key not in kinds:
                self.fail(key, " is not a key", _suggestion(key, sorted(kinds)))
            kind, text = kinds[key]
            if not _is_of_kind(value, kind):
                shown = str(value).lower() if isinstance(value, bool) else repr(value)
                self.fail(key, f" must be {text}, not {shown}")

    def fail(self, key: str, problem: str, hint: str = "") -> NoReturn:
        """Raise InputError for a value. It is that of all profiles if the profile has no own."""
        where = self.where
        if key in _SHARED_KEYS and key not in self.fields:
            where = "tool.gpuenv"
        raise InputError(f"{self.path}: {where}.{key}{problem}", hint=hint) from None


def _is_of_kind(value: object, kind: object) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


def _suggestion(text: str, known: Sequence[str]) -> str:
    """Return a hint with the known names that are close to a text, otherwise with all."""
    return did_you_mean(text, known, 2) or f"known are {', '.join(known)}"


def _check_indexes(top: _Table) -> None:
    urls = [("index-url", top.values["index-url"])] if "index-url" in top.values else []
    urls += [("extra-index-urls", url) for url in top.values.get("extra-index-urls", ())]
    for key, url in urls:
        scheme, slashes, rest = url.partition("://")
        if not slashes or scheme not in ("http", "https", "file"):
            top.fail(key, f" must be a URL such as https://HOST/simple, not {url!r}")
        if "@" in rest.partition("/")[0]:
            hint = "put them into ~/.netrc"
            top.fail(key, " has credentials, which locks would show", hint)
    if top.values.get("no-index") and not top.values.get("find-links"):
        top.fail("no-index", " needs find-links, the folders of the wheels")


# ---- a profile -----------------------------------------------------------------------------------


def _profile(name: str, table: _Table) -> Profile:
    """Return a profile with the platform as it is written."""
    values = table.values
    fields: dict[str, Any] = {}  # of the Profile
    for key, value in values.items():
        name_of_field = key.replace("-", "_")
        if name_of_field in Profile.__struct_fields__:
            fields[name_of_field] = tuple(value) if isinstance(value, list) else value
    gpus = _gpus(table)
    if gpus and "driver" not in values:
        hint = "give the oldest release that it must run on, such as 580.65.06"
        table.fail("driver", " is missing", hint)
    if "driver" in values and not gpus:
        table.fail("driver", " is given, but the profile has no GPU")
    if values.get("platform", PLATFORM).startswith("linux-"):
        fields.setdefault("glibc", GLIBC)
    frameworks = map(parse_requirement, table.fields.get("frameworks", ()))
    fields["own_ranges"] = tuple(text.name for text in frameworks if text.specifier)
    fields["overrides"] = tuple(values.get("override-dependencies", ()))
    if values.get("backend") == "conda":
        fields["separate_versions"] = True  # conda's builds do not have the versions of the wheels
    else:
        fields["wheels"] = fields["channels"] = ()
    everything = values.get("no-build", False)
    fields["no_build"] = build_names(values.get("no-build-package", ()), everything=everything)
    fields["no_binary"] = build_names(values.get("no-binary", ()))
    return Profile(name=name, gpus=gpus, **fields)


def _with_project(profile: Profile, own: RequirementSet, path: str) -> Profile:
    """Return a profile that also asks for what the project itself does.

    Args:
        profile: the profile.
        own: what the project asks for; its paths are relative to the project.
        path: the pyproject.toml.
    """
    bound = [text.partition("=")[2] for text in own.package_indexes]
    for url in filter(None, [own.index_url, *own.extra_index_urls, *bound]):
        if "@" in urlsplit(url).netloc:
            message = f"{path}: an index has credentials, which locks would show"
            raise InputError(message, hint="put them into ~/.netrc")
    kind = "requirements"
    if profile.backend == "conda":
        kind = "wheels"
        if own.constraints:
            hint = 'write them into the requirements, or use backend = "pip"'
            message = f"{path}: tool.uv.constraint-dependencies is not honored with conda"
            raise InputError(message, hint=hint)
    lists = (
        "constraints", "overrides", "extra_index_urls", "find_links", "package_indexes",
        "known_metadata", "build_settings", "exclude_newer_of",
    )  # fmt: skip
    return profile.replace(
        **{kind: (*own.requirements, *getattr(profile, kind))},
        **{
            name: tuple(dict.fromkeys((*getattr(own, name), *getattr(profile, name))))
            for name in lists
        },
        no_build=build_names([*own.no_build, *profile.no_build]),
        no_binary=build_names([*own.no_binary, *profile.no_binary]),
        index_url=profile.index_url or own.index_url,
        no_index=profile.no_index or own.no_index,
        merge_indexes=own.merge_indexes,
        pre=profile.pre or own.pre,
        exclude_newer=profile.exclude_newer or own.exclude_newer,
    )


def _gpus(table: _Table) -> tuple[str, ...]:
    """Return one text for each device, () for "none"."""
    kinds = 'it is a name such as "H100" or "sm_90", a list of them, or "none"'
    value = table.values.get("gpu")
    if value is None:
        table.fail("gpu", f" is missing: {kinds}")
    texts = [value] if isinstance(value, str) else value
    if not texts or not _is_of_kind(texts, list[str]) or not all(map(str.strip, texts)):
        table.fail("gpu", f" must not be {value!r}: {kinds}")
    has_none = any(text.strip().lower() == "none" for text in texts)
    if "count" in table.values and (len(texts) > 1 or has_none):
        table.fail("count", " is for one kind of GPU")
    if not has_none:
        return tuple(texts * table.values.get("count", 1))
    if len(texts) > 1:
        table.fail("gpu", ' "none" cannot be combined with a GPU')
    return ()


def _check_requests(table: _Table, data: CompatibilityData, *, conda: bool) -> None:
    """Check the Python, frameworks and requirements. The solver checks the specs of conda."""
    backend = table.values.get("backend", "pip")
    if backend not in ("pip", "conda"):
        table.fail("backend", f' must be "pip" or "conda", not {backend!r}')
    for key in ("constraints",) if conda else ("channels", "wheels"):
        if key in table.fields:
            table.fail(key, f' needs backend = "{"pip" if conda else "conda"}"')
    python = table.values.get("python")
    if python is None:
        table.fail("python", " is missing", 'give the target interpreter: python = "3.12"')
    major, _, minor = python.removesuffix("t").partition(".")
    if major != "3" or not (minor.isascii() and minor.isdigit()):
        table.fail("python", f' must be a version such as "3.12" or "3.13t", not {python!r}')
    names: list[str] = []
    texts = ("frameworks", "constraints", "override-dependencies", "wheels")
    for key in (*texts, *([] if conda else ["requirements"])):
        for text in table.values.get(key, ()):
            try:
                requirement = parse_requirement(text)
            except InputError as error:
                table.fail(key, f": {error.message}", error.hint)
            if key != "frameworks":
                continue
            if data.framework(requirement.name) is None:
                hint = unknown_framework(text, requirement.name, data).hint
                table.fail(key, f": unknown framework {text!r}", hint)
            if requirement.marker or requirement.url:
                problem = "must hold names with version ranges, such as torch>=2.9"
                table.fail(key, f" {problem}, not {text!r}")
            if requirement.name in names:
                table.fail(key, f" {requirement.name} is named twice")
            names.append(requirement.name)
