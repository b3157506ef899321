"""One requirement as a text, checked for what a lock can hold; and what all files of a request add up to."""

from __future__ import annotations

import re
from typing import Any

from ..errors import InputError
from ..model import Value

_ARCHIVES = (".whl", ".tar.gz", ".zip", ".tar.bz2", ".tgz", ".tar.xz", ".tar")
_VCS = ("git", "hg", "svn", "bzr")


class Asked(Value):
    """What files ask for, fit for model.Request and model.IndexOptions.

    `requirements` and `constraints` are PEP 508 texts; `hashes` are (normalized name, its allowed sha256s);
    `require_hashes` is pip's hash-checking mode. `origins` are (text, "FILE:LINE") of each requirement and of
    --index-url.
    """

    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    hashes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    require_hashes: bool = False
    index_url: str | None = None
    extra_index_urls: tuple[str, ...] = ()
    find_links: tuple[str, ...] = ()
    pre: bool = False
    requires_python: str | None = None
    origins: tuple[tuple[str, str], ...] = ()


def requirement(text: str, where: str) -> str:
    """A requirement as a PEP 508 text; the URL of a wheel or sdist alone gets the name of its file.

    InputError, starting with `where`, for what is no requirement or cannot be locked.
    """
    from packaging.requirements import InvalidRequirement
    from packaging.requirements import Requirement as Parsed

    head, semicolon, marker = text.partition(" ;" if "://" in text else ";")
    head = head.strip()
    if _is_url(head):
        text = f"{_named_by_url(head, where)} @ {head}" + (f" ; {marker}" if semicolon else "")
    elif _is_path(head):
        hint = "give the folder of a wheel with --find-links, and name the package"
        raise InputError(f"{where}: {cut(head)} is a path, which a lock cannot hold", hint=hint)
    try:
        parsed = Parsed(text)
        _check_markers(parsed)
    except InvalidRequirement as error:
        first = (str(error).splitlines() or ["it is none"])[0]
        more = "; did you mean ==" if re.fullmatch(r"[\w.\[\],-]+\s*=\s*[\w.]+", head) else ""
        raise InputError(f"{where}: {cut(text)} is not a requirement: {first}{more}") from None
    if parsed.url is not None:
        _check_url(parsed.name, parsed.url, where)
    return str(parsed)


def _check_markers(parsed: Any) -> None:
    """A marker that no target can answer is a mistake now, not when it is asked."""
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
    from packaging.requirements import InvalidRequirement

    try:
        if parsed.marker is not None:
            parsed.marker.evaluate({"extra": ""})
    except (UndefinedComparison, UndefinedEnvironmentName) as error:
        raise InvalidRequirement(str(error)) from None


def _is_url(text: str) -> bool:
    """A URL that stands alone: no name before it, and no drive of Windows."""
    scheme, colon, rest = text.partition(":")
    return bool(colon) and rest.startswith("/") and len(scheme) > 1 and scheme.replace("+", "").isalnum()


def _is_path(text: str) -> bool:
    if text.startswith((".", "/", "~", "\\")) or re.match(r"[A-Za-z]:[\\/]", text):
        return True
    before_at = text.partition("@")[0]
    return "/" in before_at or "\\" in before_at or ("@" not in text and text.lower().endswith(_ARCHIVES))


def _named_by_url(url: str, where: str) -> str:
    """The name that the file of a URL carries. InputError for a URL that is no wheel or sdist."""
    from urllib.parse import unquote, urlsplit

    from packaging.utils import (
        InvalidSdistFilename,
        InvalidWheelFilename,
        parse_sdist_filename,
        parse_wheel_filename,
    )

    _check_url("the requirement", url, where)
    filename = unquote(urlsplit(url).path.rpartition("/")[2])
    try:
        parse = parse_wheel_filename if filename.endswith(".whl") else parse_sdist_filename
        return str(parse(filename)[0])
    except (InvalidWheelFilename, InvalidSdistFilename):
        raise InputError(f"{where}: {shown(url)} names no wheel: write it as NAME @ URL") from None


def _check_url(name: str, url: str, where: str) -> None:
    """InputError for a URL that cannot be locked: a version-control one, one with credentials, no file."""
    from urllib.parse import unquote, urlsplit

    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme.lower(), parts.netloc
    except ValueError:
        raise InputError(f"{where}: {name} is at an unreadable URL") from None
    if scheme.split("+")[0] in _VCS:
        hint = "name a release, or build a wheel of it and give its folder with --find-links"
        raise InputError(f"{where}: {name} is at a version-control URL, which has no hash to lock", hint=hint)
    if scheme not in ("http", "https", "file"):
        raise InputError(f"{where}: {name} is at a {scheme or 'relative'} URL: only https, http and file can be read")
    if "@" in host:
        hint = "put them into ~/.netrc"
        raise InputError(f"{where}: {name} is at a URL with credentials, which a lock would show", hint=hint)
    if not unquote(parts.path).lower().endswith((".whl", ".tar.gz", ".zip")):
        raise InputError(f"{where}: {name} is at {shown(url)}, which is neither a wheel nor a source distribution")


def shown(url: str) -> str:
    """A URL without what may be secret: credentials, query, fragment."""
    from urllib.parse import urlsplit, urlunsplit

    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def cut(text: str, most: int = 80) -> str:
    """A text in quotes, its end left out where it is long."""
    return repr(text if len(text) <= most else text[: most - 3] + "...")
