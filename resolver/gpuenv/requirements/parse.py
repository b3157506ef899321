"""One requirement as a text, checked for what a lock can hold; and the result of reading files."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import Requirement

from ..errors import InputError
from ..model import EVERY_PACKAGE, IndexOptions
from ..serialize import parse_toml, read_input
from .target import FILE_SUFFIXES, identify
from .versions import LONGEST_REQUIREMENT, corrected_requirement, normalize_name

_ARCHIVES = (".whl", ".tar.gz", ".zip", ".tar.bz2", ".tgz", ".tar.xz", ".tar")
NO_PACKAGE = ":none:"
NameOf = Callable[[str], str]
# "1 week" and "P7D", as uv reads them; hours, days or weeks, since months differ.
_SPAN = re.compile(r"(?:PT?)?(\d{1,5})\s*([hdw])(?:ours?|ays?|eeks?)?(?: ago)?", re.IGNORECASE)
_LAST_DAY = datetime(datetime.max.year, 12, 31, tzinfo=UTC)
_DATE_LENGTH = len("2026-01-31")
# Where a project without a name in pyproject.toml has it, if it is written out.
_NAMES = {
    "setup.cfg": r"(?m)^name\s*=\s*([A-Za-z0-9._-]+)\s*$",
    "setup.py": r"\bname\s*=\s*[\"']([A-Za-z0-9._-]+)[\"']",
}
_VCS = ("git", "hg", "svn", "bzr")
_GIT = ("git+https", "git+http", "git+ssh", "git+file", "git+git")


class RequirementSet(IndexOptions):
    """What requirement files or a project ask for, and where it may come from.

    Attributes:
        requirements: PEP 508 texts.
        constraints: PEP 508 texts.
        overrides: PEP 508 texts (see Overrides).
        hashes: (normalized name, its allowed sha256s).
        require_hashes: whether pip's hash-checking mode is on.
        pre, no_build, no_binary: as in Request.
        origins: (text, "FILE:LINE") of each requirement and of --index-url.
    """

    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    hashes: tuple[tuple[str, tuple[str, ...]], ...] = ()
    require_hashes: bool = False
    pre: bool = False
    no_build: tuple[str, ...] = ()
    no_binary: tuple[str, ...] = ()
    requires_python: str | None = None
    origins: tuple[tuple[str, str], ...] = ()


def parse_cutoff(text: str, where: str = "--exclude-newer") -> datetime:
    """Return the first moment that --exclude-newer leaves out; times without a zone are UTC.

    Args:
        text: a date, a time, or how long ago it is.
        where: the start of the message.

    Raises:
        InputError: the text is none of these.
    """
    if span := _SPAN.fullmatch(text.strip()):
        hours = {"h": 1, "d": 24, "w": 168}[span[2].lower()]
        return datetime.now(UTC) - timedelta(hours=int(span[1]) * hours)
    try:
        moment = with_zone(datetime.fromisoformat(text))
    except ValueError:
        raise InputError(
            f"{where} {text!r} is neither a date (2026-01-31) nor a time (2026-01-31T12:00:00Z) "
            "nor how long ago (7 days)"
        ) from None
    if len(text) <= _DATE_LENGTH and moment < _LAST_DAY:
        moment += timedelta(days=1)
    return moment


def with_zone(moment: datetime) -> datetime:
    """Return a time with a zone, UTC by default: the local zone would make solves differ."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def build_names(values: Sequence[str], *, everything: bool = False) -> tuple[str, ...]:
    """Return the packages that values of --no-binary or --only-binary name, as in pip.

    Args:
        values: names, several with commas, ":all:", or ":none:", which takes back what precedes.
        everything: whether all packages are meant, as by --no-build.
    """
    names: set[str] = set()
    for value in ",".join(values).split(","):
        if value == NO_PACKAGE:
            names.clear()
        elif value.strip():
            names.add(value if value == EVERY_PACKAGE else normalize_name(value.strip()))
    return tuple(sorted(names | {EVERY_PACKAGE} if everything else names))


def checked_requirement(text: str, where: str, name_of: NameOf | None = None) -> str:
    """Return a requirement as a PEP 508 text.

    A URL or a path alone gets the name from its file name, or from the project in the folder.

    Args:
        text: the requirement as the user wrote it.
        where: "FILE:LINE", the start of every message.
        name_of: tells the name of the project at a URL or a path, by its metadata, where nothing
            else does. None refuses these.

    Raises:
        InputError: the text is not a requirement, or a lock cannot hold it.
    """
    if len(text) > LONGEST_REQUIREMENT:
        raise InputError(f"{where}: has more than {LONGEST_REQUIREMENT} characters")
    head, marker = _split_marker(text)
    if _is_url(head):
        text = f"{_name_in_url(head, where, name_of)} @ {head}{marker}"
    elif _is_path(head):
        text = _at_path(head, where, name_of=name_of) + marker
    try:
        parsed = Requirement(text)
        if parsed.marker is not None:  # it may be one that no target can evaluate
            parsed.marker.evaluate({"extra": ""})
    except (ValueError, RecursionError, UndefinedEnvironmentName) as error:
        detail = (str(error).splitlines() or ["it is empty"])[0]
        corrected = corrected_requirement(head)
        raise InputError(
            f"{where}: {shortened(text)} is not a requirement: {detail}",
            hint=f"write {corrected}" if corrected else "",
        ) from None
    if parsed.url is not None:
        _check_url(parsed.name, parsed.url, where)
    return str(parsed)


def requirement_of_row(
    name: str, value: str | Mapping[str, Any], others: Iterable[str] | None = ()
) -> str:
    """Return a row of a pixi.toml or a Pipfile as PEP 508 has it.

    Args:
        name: the package.
        value: its version, or a table with it, extras and a marker.
        others: the further keys that the caller reads; None for any.

    Raises:
        ValueError: another key, or a version without an operator.
    """
    row = {"version": value} if isinstance(value, str) else value
    if others is None:
        others = row
    unknown = sorted(row.keys() - {"version", "extras", "env-markers", "markers", *others})
    if unknown:
        raise ValueError(f"{name}: {unknown[0]} is not read; version and extras are")
    extras, version = ",".join(row.get("extras", ())), str(row.get("version", "*"))
    if version[:1].isdigit():
        raise ValueError(f"{name}: {version} is no version specifier; write =={version}")
    text = name + (f"[{extras}]" if extras else "") + ("" if version == "*" else version)
    marker = row.get("env-markers", row.get("markers"))
    return f"{text} ; {marker}" if marker else text


def git_url(row: Mapping[str, Any]) -> str:
    """Return the URL of a repository that a row of uv or pixi names by `git`, as pip has it."""
    revision = row.get("rev") or row.get("tag") or row.get("branch")
    url = str(row["git"])
    url = url if url.startswith("git+") else f"git+{url}"
    url += f"@{revision}" if revision else ""
    return f"{url}#subdirectory={row['subdirectory']}" if "subdirectory" in row else url


def metadata_text(
    name: str,
    version: str | None,
    requires_python: str | None,
    extras: Iterable[str],
    requirements: Iterable[str],
) -> str:
    """Return the METADATA of a release that a project states. None is not stated."""
    fields = [("Name", name), ("Version", version), ("Requires-Python", requires_python)]
    fields += [("Provides-Extra", extra) for extra in extras]
    fields += [("Requires-Dist", text) for text in requirements]
    lines = (f"{field}: {value}\n" for field, value in fields if value is not None)
    return f"Metadata-Version: 2.3\n{''.join(lines)}\n"


def editable_requirement(text: str, where: str, name_of: NameOf | None = None) -> str:
    """Return the text of -e, a folder or a repository, as a PEP 508 text.

    Raises:
        InputError: it is neither, or it cannot be read.
    """
    head, marker = _split_marker(text)
    if head.startswith("git+"):
        return checked_requirement(text, where, name_of)
    if not os.path.isdir(os.path.expanduser(head.partition("[")[0])):
        raise InputError(f"{where}: --editable {shortened(head)} is no folder")
    text = _at_path(head, where, "#editable", name_of) + marker
    return checked_requirement(text, where)


def _split_marker(text: str) -> tuple[str, str]:
    """Return what comes before the semicolon of a marker, and the marker with it; "" for none.

    A URL may have semicolons. As in pip, one with a space beside it ends the URL.
    """
    if "://" not in text:
        head, semicolon, marker = text.partition(";")
    else:
        head, semicolon, marker = re.sub(r"\s;|;\s", "\n", text, count=1).partition("\n")
    return head.strip(), f" ; {marker}" if semicolon else ""


def _at_path(head: str, where: str, fragment: str = "", name_of: NameOf | None = None) -> str:
    """Return a path, with extras at its end if it has any, as NAME[EXTRAS] @ ./PATH.

    As in pip and uv, paths start from the working folder.
    """
    path, bracket, extras = head.removesuffix("]").partition("[")
    path = os.path.expanduser(path)
    if os.path.isdir(path):
        name = tree_name(path)
    else:
        identity = identify(os.path.basename(path))
        name = "" if identity is None else identity[0]
        if not os.path.exists(path):
            raise InputError(f"{where}: {shortened(path)} does not exist")
    if not name and name_of is not None and os.path.isdir(path):
        name = name_of(quote(os.path.abspath(path)))
    if not name:
        message = f"{where}: {shortened(path)} does not tell its name without a build"
        raise InputError(message, hint=f"write it as NAME @ {path}")
    if not os.path.isabs(path):
        path = os.path.join(".", os.path.normpath(path))
    return f"{name}{bracket and f'[{extras}]'} @ {quote(path)}{fragment}"


def _is_url(text: str) -> bool:
    """Return whether a text is a URL without a name before it, and not a Windows path."""
    scheme, colon, rest = text.partition(":")
    is_scheme = len(scheme) > 1 and scheme.replace("+", "").isalnum()
    return bool(colon) and rest.startswith("/") and is_scheme


def _is_path(text: str) -> bool:
    if text.startswith((".", "/", "~", "\\")) or re.match(r"[A-Za-z]:[\\/]", text):
        return True
    before_url = text.partition("@")[0]
    if "/" in before_url or "\\" in before_url:
        return True
    return "@" not in text and text.lower().endswith(_ARCHIVES)


def _name_in_url(url: str, where: str, name_of: NameOf | None) -> str:
    """Return the name in a URL: that of its file, #egg=NAME of a repository, or by its metadata.

    InputError if it names none.
    """
    _check_url("the requirement", url, where)
    egg = re.search(r"[#&]egg=([A-Za-z0-9._-]+(?:\[[^\]&]*\])?)", url)
    if egg is not None:
        return egg[1]
    filename = unquote(urlsplit(url).path.rpartition("/")[2])
    identity = identify(filename)
    if identity is None and name_of is not None:
        return name_of(url)
    if identity is None:
        kind = "package" if url.startswith("git+") else "wheel"
        raise InputError(f"{where}: {public_url(url)} names no {kind}: write it as NAME @ URL")
    return identity[0]


def _check_url(name: str, url: str, where: str) -> None:
    """Raise InputError for a URL that cannot be locked."""
    try:
        parts = urlsplit(url)
        scheme, host = parts.scheme.lower(), parts.netloc
    except ValueError:
        raise InputError(f"{where}: {name} is at an unreadable URL") from None
    if scheme.split("+")[0] in _VCS and scheme not in _GIT:
        raise InputError(
            f"{where}: {name} is at a version-control URL that is not read: {scheme}",
            hint=f"these are: {', '.join(_GIT)}",
        )
    if not scheme and url.startswith((".", "/")):
        return
    if scheme not in ("http", "https", "file", *_GIT):
        raise InputError(
            f"{where}: {name} is at a {scheme or 'relative'} URL: "
            "only https, http and file can be read"
        )
    if "@" in host and (scheme != "git+ssh" or ":" in host.rpartition("@")[0]):
        raise InputError(
            f"{where}: {name} is at a URL with credentials, which a lock would show",
            hint="put them into ~/.netrc",
        )
    is_file = unquote(parts.path).lower().endswith(FILE_SUFFIXES)
    if not is_file and scheme in ("http", "https"):
        raise InputError(
            f"{where}: {name} is at {public_url(url)}, "
            "which is neither a wheel nor a source distribution"
        )


def tree_name(folder: str) -> str:
    """Return the name of the project in a folder; "" if only a build can tell it."""
    name = ""
    with suppress(OSError, ValueError, AttributeError):
        document = parse_toml(read_input(os.path.join(folder, "pyproject.toml")).decode())
        tools = document.get("tool", {})
        for table in (document.get("project", {}), tools.get("poetry", {}), tools.get("flit", {})):
            name = name or table.get("name", "")
    for file, pattern in _NAMES.items():
        with suppress(OSError, UnicodeDecodeError):
            text = "" if name else read_input(os.path.join(folder, file)).decode()
            match = re.search(pattern, text)
            name = match[1] if match else name
    return normalize_name(name)


def public_url(url: str) -> str:
    """Return a URL without what may be secret: credentials, query, fragment."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def shortened(text: str) -> str:
    """Return a text in quotes, without its end if it has more than 80 characters."""
    return repr(text if len(text) <= 80 else f"{text[:77]}...")
