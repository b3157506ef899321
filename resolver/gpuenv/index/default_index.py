"""The default package index of this machine: the one that pip or uv is configured with.

Precedence, first match wins:

1. the environment variables PIP_INDEX_URL, UV_DEFAULT_INDEX, UV_INDEX_URL;
2. `index-url` in pip's configuration files. pip's documentation ("Configuration") has their order:
   [install] before [global]; in each, PIP_CONFIG_FILE, the site's, the user's, the system's file;
3. uv.toml, unless UV_NO_CONFIG is set: UV_CONFIG_FILE alone, or the user's file, then the system's
   (uv's documentation, "Configuration files"). In each file, an [[index]] with `default = true`,
   then `index-url`, then `[pip] index-url`. A project's uv.toml is not read;
4. pip's built-in default.
"""

from __future__ import annotations

import os
import pkgutil
import re
import sys
from collections.abc import Iterator
from configparser import Error as ConfigurationError
from configparser import RawConfigParser

from platformdirs import site_config_dir, user_config_dir

from ..errors import InputError, error_text
from ..model import IndexOptions, Value
from ..serialize import parse_toml, read_input

_HINT = "correct it, or give the index with --index-url"
_SYSTEM = "/etc"
_TRUE = ("1", "true", "yes", "on")
# pip prints its built-in index in its help, which takes half a second, and the place of the files
# of that index nowhere. Both are in this file of its package.
_PIP_FILE = "_internal/models/index.py"
_BUILTIN = re.compile(r'"(https://[^"]+/)",\s*file_storage_domain="([^"]+)"')


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


def without_default(options: IndexOptions) -> IndexOptions:
    """Return options that do not name the default index where it is asked anyway.

    Projects name it beside other indexes. An extra index that follows it stays behind it.
    """
    url, extra = default_index().url, options.extra_index_urls
    if options.index_url is not None and options.index_url.rstrip("/") == url:
        options = options.replace(index_url=None)
    if options.index_url is None and extra and extra[-1].rstrip("/") == url:
        options = options.replace(extra_index_urls=extra[:-1])
    return options


def default_index() -> DefaultIndex:
    """Return the index for packages that no other index supplies.

    Raises:
        InputError: a configuration file cannot be read, or pip is not installed.
    """
    builtin, file_store = builtin_index()
    pip = _pip_settings()
    named = os.environ.get("UV_DEFAULT_INDEX", "").strip()
    # uv takes NAME=URL, too.
    name, _, rest = named.partition("=")
    urls = [
        os.environ.get("PIP_INDEX_URL", "").strip(),
        rest if rest and not {*name} & {*"/:"} else named,
        os.environ.get("UV_INDEX_URL", "").strip(),
        pip.get("index-url"),
        *_uv_urls(),
        builtin,
    ]
    url = next(url for url in urls if url).rstrip("/")
    certs = [os.environ.get("PIP_CERT"), pip.get("cert")]
    return DefaultIndex(
        url=url,
        file_store=file_store,
        builtin=url == builtin,
        cert=next((cert for cert in certs if cert and os.path.exists(cert)), None),
    )


def builtin_index() -> tuple[str, str]:
    """Return pip's built-in index, and the base URL of the files of that index.

    Raises:
        InputError: pip is not installed.
    """
    try:
        source = pkgutil.get_data("pip", _PIP_FILE) or b""
    except (ImportError, OSError):
        source = b""
    match = _BUILTIN.search(source.decode())
    if match is None:
        raise InputError("pip cannot be read, so its default index is not known", hint=_HINT)
    return f"{match[1]}simple", f"https://{match[2]}"


def pip_files() -> list[str]:
    """Return the configuration files that pip's documentation names, the one that wins last."""
    own = os.environ.get("PIP_CONFIG_FILE", "")
    if own == os.devnull:
        return []
    name = "pip.ini" if os.name == "nt" else "pip.conf"
    folders = site_config_dir("pip", False, multipath=True).split(os.pathsep)
    if os.name != "nt":
        folders.append(_SYSTEM)
    if not os.path.exists(own):
        user = user_config_dir("pip", False, roaming=True)
        if sys.platform == "darwin" and not os.path.isdir(user):
            user = os.path.expanduser("~/.config/pip")
        folders += [os.path.expanduser("~/pip" if os.name == "nt" else "~/.pip"), user]
    paths = [os.path.join(folder, name) for folder in (*folders, sys.prefix)]
    return [*paths, own] if own else paths


def _pip_settings() -> dict[str, str]:
    """Return pip's settings for installing."""
    parser = RawConfigParser()
    try:
        parser.read(pip_files(), encoding="utf-8")
    except (ConfigurationError, UnicodeError) as error:
        message = f"pip's configuration cannot be read: {error_text(error)}"
        raise InputError(message, hint=_HINT) from None
    settings = {}
    for section in ("global", "install"):
        for key, value in parser[section].items() if parser.has_section(section) else ():
            if value:  # pip ignores an empty value
                settings[key.replace("_", "-")] = value
    return settings


def _uv_urls() -> Iterator[str]:
    """Yield the default indexes of uv.toml, the one that wins first."""
    if os.environ.get("UV_NO_CONFIG", "").lower() in _TRUE:
        return
    user = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    folders = [user, *os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(os.pathsep), _SYSTEM]
    if os.name == "nt":
        folders = [os.environ.get("APPDATA") or user, os.environ.get("PROGRAMDATA", "")]
    own_file = os.environ.get("UV_CONFIG_FILE")
    paths = [os.path.join(folder, "uv", "uv.toml") for folder in folders if folder]
    for path in [own_file] if own_file else paths:
        try:
            table = parse_toml(read_input(path).decode())
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            message = f"uv's configuration {path} cannot be read: {error}"
            raise InputError(message, hint=_HINT) from None
        indexes, pip = table.get("index"), table.get("pip")
        rows = indexes if isinstance(indexes, list) else ()
        tables = [row for row in rows if isinstance(row, dict)]
        urls = [row.get("url") for row in tables if row.get("default") is True]
        urls.append(table.get("index-url"))
        urls.append(pip.get("index-url") if isinstance(pip, dict) else None)
        yield from (url for url in urls if isinstance(url, str))
