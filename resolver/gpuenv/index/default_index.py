"""The default package index of this machine: the one that pip or uv is configured with.

Precedence, first match wins:

1. the environment variables PIP_INDEX_URL, UV_DEFAULT_INDEX, UV_INDEX_URL;
2. `index-url` in pip's configuration files. pip's documentation ("Configuration") has their order:
   [install] before [global]; in each, PIP_CONFIG_FILE, the site's, the user's, the system's file;
3. uv.toml, unless UV_NO_CONFIG is set: UV_CONFIG_FILE alone, or the user's file, then the system's
   (uv's documentation, "Configuration files"). In each file, an [[index]] with `default = true`,
   then `index-url`, then `[pip] index-url`. A project's uv.toml is not read;
4. pip's built-in default.

pip itself is asked in this process, since it knows its files, their order and its default. That
takes a few dozen milliseconds of imports, so the answer is cached together with everything that it
depends on: the environment variables, and the time and size of each file, existing or not.
"""

from __future__ import annotations

import os
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence

from ..errors import InputError
from ..model import Value
from ..serialize import parse_toml, read_input
from .cache import Cache, CacheEntry

_HINT = "correct it, or give the index with --index-url"
_CACHE_KIND = "defaults"

_PIP_VARIABLE = "PIP_INDEX_URL"
_UV_NAMED_VARIABLE = "UV_DEFAULT_INDEX"  # its value can be NAME=URL
_INDEX_VARIABLES = (_PIP_VARIABLE, _UV_NAMED_VARIABLE, "UV_INDEX_URL")
_CONFIG_FILE_VARIABLES = ("PIP_CONFIG_FILE", "UV_CONFIG_FILE")

# All variables that the answer depends on.
_VARIABLES = (
    *("HOME", "USERPROFILE", "APPDATA", "PROGRAMDATA", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"),
    *_CONFIG_FILE_VARIABLES,
    *_INDEX_VARIABLES,
    *("PIP_CERT", "UV_NO_CONFIG"),
)
_TRUE = ("1", "true", "yes", "on")


class DefaultIndex(Value):
    """The default index. Its URLs have no slash at the end.

    `url` is that of the simple API, with the credentials of the configuration: `Transport.login`
    splits them off. `file_store` is the base URL of the files of pip's built-in index, whichever
    index is configured. `builtin` tells whether `url` is pip's built-in index. `cert` is the CA
    bundle that pip is configured with, if it exists.
    """

    url: str
    file_store: str
    builtin: bool
    cert: str | None = None


def default_index(cache: Cache | None = None) -> DefaultIndex:
    """Return the index for packages that no other index supplies.

    Raises:
        InputError: a configuration file cannot be read, or pip cannot be imported.
    """
    cache = cache or Cache()
    key = _cache_key()
    environment = _relevant_environment()
    entry = cache.get(_CACHE_KIND, key)
    if entry is not None:
        cached = _read_entry(entry, environment)
        if cached is not None:
            return cached
    answer, files = _ask_pip_and_uv()
    # Credentials are not written to the cache.
    if "@" not in f"{answer.url} {environment}":
        header = {
            "environment": environment,
            "files": [[path, _fingerprint(path)] for path in files],
            "answer": [answer.url, answer.file_store, answer.builtin, answer.cert],
        }
        cache.put(_CACHE_KIND, key, header, b"")
    return answer


# ---- the cache -----------------------------------------------------------------------------------


def _cache_key() -> str:
    """Return the key of this Python: each can have its own pip and its own site configuration."""
    return f"{zlib.crc32(sys.prefix.encode('utf-8', 'surrogatepass')):08x}"


def _relevant_environment() -> dict[str, str]:
    relevant = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    for name in _CONFIG_FILE_VARIABLES:
        if name in relevant and not os.path.isabs(relevant[name]):
            relevant["cwd"] = os.getcwd()
    relevant["prefix"] = sys.prefix
    return relevant


def _fingerprint(path: str) -> list[int] | None:
    """Return what changes when a file changes; None for a file that does not exist."""
    try:
        stat = os.stat(path)
    except OSError:
        return None
    return [stat.st_mtime_ns, stat.st_size]


def _read_entry(entry: CacheEntry, environment: Mapping[str, str]) -> DefaultIndex | None:
    """Return the cached answer if all that it depends on is unchanged."""
    files, answer = entry.header.get("files"), entry.header.get("answer")
    if entry.header.get("environment") != environment:
        return None
    if not isinstance(files, list) or not isinstance(answer, list):
        return None
    try:
        if any(_fingerprint(path) != fingerprint for path, fingerprint in files):
            return None
        url, file_store, builtin, cert = answer
    except (TypeError, ValueError):
        return None
    return DefaultIndex(url=url, file_store=file_store, builtin=builtin, cert=cert)


# ---- asking --------------------------------------------------------------------------------------


class _PipSetting(Value):
    """A setting of pip; `variable` is the environment variable that it comes from, if any."""

    key: str
    value: str
    variable: str | None


def _ask_pip_and_uv() -> tuple[DefaultIndex, list[str]]:
    """Return the default index, and every file that the answer depends on, existing or not."""
    try:
        import pip
        from pip._internal.models.index import PyPI
    except ImportError:
        raise InputError(
            "pip cannot be imported, so its default index is not known", hint=_HINT
        ) from None
    pip_settings, pip_files = _read_pip_configuration()
    uv_urls, uv_files = _read_uv_configuration()
    builtin = PyPI.simple_url.rstrip("/")
    url = builtin
    for candidate in (*_environment_urls(), *_pip_urls(pip_settings), *uv_urls):
        url = candidate.rstrip("/")
        break
    answer = DefaultIndex(
        url=url,
        file_store=f"https://{PyPI.file_storage_domain}",
        builtin=url == builtin,
        cert=_pip_certificates(pip_settings),
    )
    return answer, [os.path.abspath(pip.__file__), *pip_files, *uv_files]


def _environment_urls() -> Iterator[str]:
    for name in _INDEX_VARIABLES:
        url = os.environ.get(name, "").strip()
        if name == _UV_NAMED_VARIABLE:
            url = _strip_index_name(url)
        if url:
            yield url


def _strip_index_name(text: str) -> str:
    """Return the URL of uv's NAME=URL, or of a URL alone."""
    name, equals, url = text.partition("=")
    if equals and "/" not in name and ":" not in name:
        return url
    return text


# ---- pip -----------------------------------------------------------------------------------------


def _pip_urls(settings: Sequence[_PipSetting]) -> list[str]:
    """Return the values of index-url in files, the one that wins first."""
    from_files = [setting for setting in settings if setting.variable != _PIP_VARIABLE]
    return [setting.value for setting in reversed(from_files) if setting.key == "index-url"]


def _pip_certificates(settings: Sequence[_PipSetting]) -> str | None:
    """Return the CA bundle that wins, of those that exist."""
    bundle = None
    for setting in settings:
        if setting.key == "cert" and os.path.exists(setting.value):
            bundle = setting.value
    return bundle


def _read_pip_configuration() -> tuple[list[_PipSetting], list[str]]:
    """Return pip's settings for installing, the one that wins last, and all its files."""
    from pip._internal.configuration import OVERRIDE_ORDER, Configuration
    from pip._internal.exceptions import PipError

    configuration = Configuration(isolated=False)
    try:
        configuration.load()
    except PipError as error:
        message = " ".join(str(error).split())
        raise InputError(f"pip's configuration cannot be read: {message}", hint=_HINT) from None
    files: list[str] = []
    for _, paths in configuration.iter_config_files():
        files.extend(os.path.abspath(path) for path in paths)
    # A later section overrides an earlier one.
    sections: dict[str, list[_PipSetting]] = {"global": [], "install": [], ":env:": []}
    for kind in OVERRIDE_ORDER:
        for full_key, value in _pip_values(configuration.get_values_in_config(kind)):
            section, _, key = full_key.partition(".")
            if section in sections and value:  # pip ignores an empty value
                variable = None
                if section == ":env:":
                    variable = f"PIP_{key.upper().replace('-', '_')}"
                sections[section].append(_PipSetting(key=key, value=value, variable=variable))
    return [*sections["global"], *sections["install"], *sections[":env:"]], files


def _pip_values(values: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield (section.key, value). Newer releases of pip group the values by file."""
    for name, value in values.items():
        if isinstance(value, dict):
            for key, text in value.items():
                yield key, str(text)
        else:
            yield name, str(value)


# ---- uv ------------------------------------------------------------------------------------------


def _read_uv_configuration() -> tuple[list[str], list[str]]:
    """Return the default indexes of uv.toml, the one that wins first, and the files looked for."""
    if os.environ.get("UV_NO_CONFIG", "").lower() in _TRUE:
        return [], []
    files = _uv_files()
    urls: list[str] = []
    for path in files:
        urls.extend(_uv_urls(_read_uv_toml(path)))
    return urls, files


def _uv_urls(table: Mapping[str, object]) -> Iterator[str]:
    """Yield the default indexes of one uv.toml."""
    indexes = table.get("index")
    if not isinstance(indexes, list):
        indexes = []
    tables = [index for index in indexes if isinstance(index, dict)]
    urls: list[object] = [index.get("url") for index in tables if index.get("default") is True]
    urls.append(table.get("index-url"))
    pip_table = table.get("pip")
    if isinstance(pip_table, dict):
        urls.append(pip_table.get("index-url"))
    for url in urls:
        if isinstance(url, str):
            yield url


def _uv_files() -> list[str]:
    """Return where uv looks for its configuration, the file that wins first."""
    if own_file := os.environ.get("UV_CONFIG_FILE"):
        return [os.path.abspath(own_file)]
    user = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    if os.name == "nt":
        folders = [os.environ.get("APPDATA") or user, os.environ.get("PROGRAMDATA", "")]
    else:
        system = os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep)
        folders = [user, *filter(None, system), "/etc"]
    return [os.path.join(folder, "uv", "uv.toml") for folder in folders]


def _read_uv_toml(path: str) -> dict[str, object]:
    try:
        return parse_toml(read_input(path).decode())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise InputError(f"uv's configuration {path} cannot be read: {error}", hint=_HINT) from None
