"""URLs of indexes and files: redact for messages, split off credentials, map file:// to paths."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit, urlunsplit


def redact_url(url: str) -> str:
    """Return a URL for messages: credentials masked, no query or fragment (they hold tokens)."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "(an unreadable URL)"
    credentials, _, host = parts.netloc.rpartition("@")
    if credentials:
        host = f"****@{host}"
    text = urlunsplit((parts.scheme, host, parts.path, "", ""))
    return "".join(char if char.isprintable() else "?" for char in text)


def split_credentials(url: str) -> tuple[str, tuple[str, str] | None]:
    """Split a URL into (URL without credentials, (user, password) or None), percent-decoded."""
    parts = urlsplit(url)
    credentials, at, host = parts.netloc.rpartition("@")
    if not at:
        return url, None
    user, _, password = credentials.partition(":")
    return urlunsplit(parts._replace(netloc=host)), (unquote(user), unquote(password))


def without_credentials(url: str) -> str:
    """Return a URL of a conda channel or package without its password and its token.

    anaconda.org and its mirrors take a token as a part of the path: /t/TOKEN/CHANNEL.
    """
    if not is_http_url(url):
        return url
    return re.sub(r"/t/[A-Za-z0-9-]+(?=/)", "", split_credentials(url)[0], count=1)


def is_http_url(location: str) -> bool:
    """Return whether a location is an http:// or https:// URL."""
    return location.startswith(("http://", "https://"))


def last_part(url: str) -> str:
    """Return the last part of the path of a URL, percent-decoded: the name of a file."""
    return unquote(urlsplit(url).path.rpartition("/")[2])


def file_url_to_path(url: str) -> str:
    """Return the path that a file:// URL names."""
    path = urlsplit(url).path
    if os.name == "nt":
        from urllib.request import url2pathname  # loads the whole HTTP client

        return url2pathname(path)
    return unquote(path)


def path_to_file_url(path: str) -> str:
    """Return the file:// URL of an absolute path."""
    from pathlib import Path  # heavy, and few indexes are folders

    return Path(path).as_uri()
