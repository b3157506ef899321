"""The default package index of this machine: what pip or uv is configured with, else what pip has built in.

pip is asked in this process, for it knows its files, their order and its own default. That takes a few dozen
milliseconds of imports, so the answer is kept in the cache with all that it depends on.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import InputError
from ..model import Value
from .cache import Cache

_HINT = "mend it, or give the index with --index-url"
_PIP = "PIP_INDEX_URL"
_UV = ("UV_DEFAULT_INDEX", "UV_INDEX_URL")
_PIP_IGNORED = ("extra-index-url", "find-links", "no-index", "trusted-host", "proxy", "client-cert")
_UV_IGNORED = ("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_NO_INDEX")
# All that the answer depends on, beside the files.
_ENVIRONMENT = (
    *("HOME", "USERPROFILE", "APPDATA", "PROGRAMDATA", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"),
    *("PIP_CONFIG_FILE", _PIP, "PIP_CERT", *("PIP_" + key.upper().replace("-", "_") for key in _PIP_IGNORED)),
    *("UV_CONFIG_FILE", "UV_NO_CONFIG", *_UV, *_UV_IGNORED),
)


class DefaultIndex(Value):
    """The default index. URLs have no slash at their end.

    `url` is the simple API's (credentials of a configured URL are in it: `Transport.login` takes them out);
    `file_store` is the base URL of the files of pip's built-in index, whichever index is configured; `builtin` is
    true if `url` is pip's built-in one; `source` says where `url` was found; `ignored` are (where, what) of settings
    of pip and uv that gpuenv does not use, fit to be shown; `cert` is the CA bundle that pip is configured with.
    """

    url: str
    file_store: str
    builtin: bool
    source: str
    ignored: tuple[tuple[str, str], ...] = ()
    cert: str | None = None


def default_index(cache: Cache | None = None) -> DefaultIndex:
    """The index for packages that are bound to no other. InputError if a configuration file cannot be read.

    The first of: PIP_INDEX_URL, UV_DEFAULT_INDEX, UV_INDEX_URL; pip's configuration files; uv.toml of the user and
    of the system (not of a project: its index is one of its own flags); pip's built-in default.
    """
    cache = Cache() if cache is None else cache
    key = _key()
    environment = _environment()
    kept = cache.get("defaults", key)
    if kept is not None and (answer := _still_true(kept[0], environment)) is not None:
        return answer
    answer, files = _ask()
    # Credentials are not written anywhere: with some in the settings, they are read anew every time.
    if "@" not in f"{answer.url} {environment}":
        marks = [[path, _mark(path)] for path in files]
        cache.put("defaults", key, {"environment": environment, "files": marks, "answer": _plain(answer)}, b"")
    return answer


def settings_files(cache: Cache) -> list[str]:
    """Every file that the last answer for this Python came from, there or not."""
    kept = cache.get("defaults", _key())
    return [path for path, _ in kept[0].get("files", ())] if kept is not None else []


def _key() -> str:
    """One entry for each installation of Python: each may have its own pip and its own site configuration."""
    import zlib

    return f"{zlib.crc32(sys.prefix.encode('utf-8', 'surrogatepass')):08x}"


def _environment() -> dict[str, str]:
    found = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
    if any(name in found and not os.path.isabs(found[name]) for name in ("PIP_CONFIG_FILE", "UV_CONFIG_FILE")):
        found["cwd"] = os.getcwd()
    return found | {"prefix": sys.prefix}


def _mark(path: str) -> list[int] | None:
    """What changes when a file does; None for no file."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return [stat.st_mtime_ns, stat.st_size]


def _plain(answer: DefaultIndex) -> dict[str, Any]:
    return {name: getattr(answer, name) for name in DefaultIndex._fields}


def _still_true(header: Mapping[str, Any], environment: Mapping[str, str]) -> DefaultIndex | None:
    try:
        if header["environment"] != environment or any(_mark(path) != mark for path, mark in header["files"]):
            return None
        answer = dict(header["answer"])
        answer["ignored"] = tuple((where, what) for where, what in answer["ignored"])
        return DefaultIndex(**answer)
    except (KeyError, TypeError, ValueError):
        return None


# ---- asking pip and uv -----------------------------------------------------------------------------------------


class _Setting(Value):
    """One index-url that was found."""

    url: str
    source: str


def _ask() -> tuple[DefaultIndex, list[str]]:
    """The answer, and every file that it depends on, there or not."""
    try:
        import pip
        from pip._internal.models.index import PyPI
    except ImportError:
        raise InputError("pip cannot be imported, so its default index is not known", hint=_HINT) from None
    pip_values, files = _pip_configuration()
    uv_settings, uv_ignored, uv_files = _uv_configuration()
    builtin = PyPI.simple_url.rstrip("/")
    found = [*_from_environment(), *_from_pip(pip_values), *uv_settings, _Setting(url=builtin, source="pip's default")]
    chosen = found[0]
    url = chosen.url.rstrip("/")
    others = [(one.source, f"index-url = {_shown(one.url)}") for one in found[1:-1] if one.url.rstrip("/") != url]
    ignored = [(where, f"{key} = {_shown(text)}") for key, where, text in pip_values if key in _PIP_IGNORED]
    ignored += [(name, _shown(os.environ[name])) for name in _UV_IGNORED if os.environ.get(name)]
    certificates = [text for key, _, text in pip_values if key == "cert" and os.path.exists(text)]
    answer = DefaultIndex(
        url=url,
        file_store=f"https://{PyPI.file_storage_domain}",
        builtin=url == builtin,
        source=chosen.source,
        ignored=tuple(others + ignored + uv_ignored),
        cert=certificates[-1] if certificates else None,
    )
    return answer, [os.path.abspath(pip.__file__), *files, *uv_files]


def _pip_configuration() -> tuple[list[tuple[str, str, str]], list[str]]:
    """(key, where, value) of pip's settings for installing, the one that holds last; and all its files."""
    from pip._internal.configuration import OVERRIDE_ORDER, Configuration
    from pip._internal.exceptions import PipError

    configuration = Configuration(isolated=False)
    try:
        configuration.load()
    except PipError as error:
        raise InputError(f"pip's configuration cannot be read: {' '.join(str(error).split())}", hint=_HINT) from None
    by_kind = {kind: [os.path.abspath(path) for path in paths] for kind, paths in configuration.iter_config_files()}
    by_section: dict[str, list[tuple[str, str, str]]] = {"global": [], "install": [], ":env:": []}
    for kind in OVERRIDE_ORDER:
        files = " or ".join(path for path in by_kind.get(kind, ()) if os.path.exists(path))
        for full, where, text in _values(configuration.get_values_in_config(kind), files):
            section, _, key = full.partition(".")
            if section in by_section and text:  # pip takes an empty value for none
                by_section[section].append((key, where, text))
    return [value for section in by_section.values() for value in section], [
        path for paths in by_kind.values() for path in paths
    ]


def _values(values: Mapping[str, Any], files: str) -> Iterator[tuple[str, str, str]]:
    """(key, where, value): newer releases of pip keep the values by file, older ones by key alone."""
    for name, value in values.items():
        inner, where = (value, name) if isinstance(value, dict) else ({name: value}, files)
        for key, text in inner.items():
            variable = key.startswith(":env:.")
            yield key, f"PIP_{key[6:].upper().replace('-', '_')}" if variable else where, str(text)


def _from_environment() -> list[_Setting]:
    found = []
    for name in (_PIP, *_UV):
        text = os.environ.get(name, "").strip()
        if name == "UV_DEFAULT_INDEX":
            text = _unnamed(text)
        if text:
            found.append(_Setting(url=text, source=name))
    return found


def _from_pip(values: list[tuple[str, str, str]]) -> list[_Setting]:
    found = [_Setting(url=text, source=where) for key, where, text in values if key == "index-url" and where != _PIP]
    return found[::-1]


def _uv_configuration() -> tuple[list[_Setting], list[tuple[str, str]], list[str]]:
    """(default indexes, what is ignored, the files looked for) of uv.toml: the user's goes before the system's."""
    if os.environ.get("UV_NO_CONFIG", "").lower() in ("1", "true", "yes", "on"):
        return [], [], []
    files = _uv_files()
    settings: list[_Setting] = []
    ignored: list[tuple[str, str]] = []
    for path in files:
        table = _read_toml(path)
        indexes = [one for one in _tables(table.get("index")) if isinstance(one.get("url"), str)]
        urls = [one["url"] for one in indexes if one.get("default") is True]
        urls += [one["index-url"] for one in (table, table.get("pip")) if isinstance(one, dict) and "index-url" in one]
        settings += [_Setting(url=url, source=path) for url in urls if isinstance(url, str)]
        ignored += [(path, f"index = {_shown(one['url'])}") for one in indexes if one.get("default") is not True]
        ignored += [(path, f"{key} = {_shown(_words(table[key]))}") for key in _PIP_IGNORED if table.get(key)]
    return settings, ignored, files


def _uv_files() -> list[str]:
    """Where uv looks for its own configuration, the one that holds first (uv's documentation, configuration files)."""
    if own := os.environ.get("UV_CONFIG_FILE"):
        return [os.path.abspath(own)]
    user = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    if os.name == "nt":
        user = os.environ.get("APPDATA") or user
        return [os.path.join(user, "uv", "uv.toml"), os.path.join(os.environ.get("PROGRAMDATA", ""), "uv", "uv.toml")]
    system = [folder for folder in os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep) if folder]
    return [os.path.join(folder, "uv", "uv.toml") for folder in (user, *system, "/etc")]


def _read_toml(path: str) -> dict[str, Any]:
    import tomllib

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except FileNotFoundError:
        return {}
    except NotADirectoryError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"uv's configuration {path} cannot be read: {error}", hint=_HINT) from None


def _tables(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _words(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _unnamed(text: str) -> str:
    """uv allows NAME=URL."""
    name, equals, url = text.partition("=")
    return url if equals and "/" not in name and ":" not in name else text


def _shown(text: str) -> str:
    from .http import shown

    return " ".join(shown(word) for word in text.split())
