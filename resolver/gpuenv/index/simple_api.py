"""Pages of the simple repository API: PEP 503 HTML and PEP 691 JSON.

A page becomes a list of FileRow, the files as the page gives them. `to_entry` checks a row and
makes it a FileEntry, if it is a wheel or a source distribution. Most rows of a page are for other
platforms and are never checked. Files with other names (PEP 427, PEP 625 and the older spellings)
and links that an index may not give (file:// on a web page) are no entries.
"""

# Without "from __future__ import annotations": NamedTuple compiles each annotation that is a text,
# which takes 2 % of a solve with a warm cache.
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote, unquote, urljoin, urlsplit

from ..model import Wheel
from ..requirements.versions import version_key
from .filenames import SDIST_SUFFIXES, identify, parse_requires_python
from .urls import is_http_url

# Content negotiation of PEP 691.
ACCEPT = (
    "application/vnd.pypi.simple.v1+json, "
    "application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
)

_HTML_TYPES = ("text/html", "application/vnd.pypi.simple.v1+html")
_FILE_SUFFIXES = (".whl", *SDIST_SUFFIXES, ".egg", ".exe", ".tar.bz2")  # what counts as a file
_URL_SAFE = "%/:=&?~#+!$,;'@()*[]"  # characters that pip and uv leave as they are
_WEB_ORIGIN = r"https?://[a-z0-9.-]+(?::[0-9]+)?/"
_PLAIN_CHARACTERS = frozenset(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789:/._+~%-"
)
_HEX_DIGITS = frozenset("0123456789abcdef")
_SHA256_LENGTH = 64

# FileEntry.metadata of a file with and without a metadata file of its own (PEP 658).
_NOT_SERVED = None
_SERVED_WITHOUT_HASH = ""

_Attributes = Mapping[str, str | None]


class FileRow(NamedTuple):
    """A file of a page with the fields of PEP 691, not checked yet."""

    filename: str
    url: str  # may be relative
    sha256: object
    size: object
    requires_python: object
    yanked: object
    upload_time: object
    core_metadata: object


class FileEntry(NamedTuple):
    """One wheel or sdist of a page.

    `metadata` is the sha256 of the metadata file that the index serves (PEP 658), "" if its hash is
    not given, None if there is no such file. `yanked` is None or the reason, which can be "".
    """

    name: str
    version: str
    filename: str
    url: str
    sha256: str | None
    size: int | None = None
    requires_python: str | None = None
    yanked: str | None = None
    upload_time: str | None = None
    metadata: str | None = None


def to_wheel(entry: FileEntry, index: str) -> Wheel:
    """Return the value that other stages use; `index` is the URL of the index."""
    return Wheel(**entry._asdict(), index=index)


def newest_first(entries: Iterable[FileEntry]) -> list[FileEntry]:
    """Sort by version (PEP 440), newest first, and by file name within a version."""
    by_version: dict[str, list[FileEntry]] = {}
    for entry in entries:
        by_version.setdefault(entry.version, []).append(entry)
    ordered: list[FileEntry] = []
    for version in sorted(by_version, key=version_key, reverse=True):
        ordered.extend(sorted(by_version[version], key=lambda entry: entry.filename))
    return ordered


def parse_page(body: bytes, content_type: str, url: str) -> list[FileRow] | None:
    """Parse a page of the simple API.

    Args:
        body: the page.
        content_type: the Content-Type header, "" if there is none.
        url: the page's URL, the base of relative links.

    Returns:
        The files in the page's order. None if it lists no file.

    Raises:
        ValueError: it is no page of version 1 of the simple API.
    """
    media_type, _, parameters = content_type.lower().partition(";")
    media_type = media_type.strip()
    start = body[:1024].lstrip()
    if media_type.endswith("json") or (not media_type and start.startswith(b"{")):
        return _parse_json(body)
    if media_type in _HTML_TYPES or (not media_type and start.startswith(b"<")):
        charset = parameters.partition("charset=")[2].strip(" \"'") or "utf-8"
        return _parse_html(_decode(body, charset), url)
    raise ValueError(f"its content type is {media_type or 'not given'}")


def to_entry(row: FileRow, page_url: str) -> FileEntry | None:
    """Check a row (PEP 691, 700, 714). A field of the wrong type counts as not given.

    Returns:
        None for what is no wheel or sdist, and for a link that the page may not have.
    """
    identity = identify(row.filename)
    return None if identity is None else to_entry_of(*identity, row, page_url)


def to_entry_of(name: str, version: str, row: FileRow, page_url: str) -> FileEntry | None:
    """Check a row of which the name and the version are known."""
    url = _bare_url(row.url, page_url)
    if url is None:
        return None
    size = row.size
    return FileEntry(
        name,
        version,
        row.filename,
        url,
        sha256=_parse_sha256(row.sha256),
        size=size if type(size) is int and size >= 0 else None,
        requires_python=parse_requires_python(_text(row.requires_python)),
        yanked="" if row.yanked is True else _text(row.yanked),
        upload_time=_text(row.upload_time),
        metadata=_parse_core_metadata(row.core_metadata),
    )


def has_allowed_url(row: FileRow, page_url: str) -> bool:
    """Return whether the page may have the link of a file."""
    url = row.url
    origin = url[: url.find("/", len("https://")) + 1]
    return _is_web_origin(origin) or _bare_url(url, page_url) is not None


@lru_cache  # the files of a page have one origin
def _is_web_origin(origin: str) -> bool:
    return re.fullmatch(_WEB_ORIGIN, origin) is not None


def to_link(row: FileRow, page_url: str) -> tuple[str, str | None] | None:
    """Return the (URL, sha256) of any file of a page; None if the page may not have the link."""
    url = _bare_url(row.url, page_url)
    return None if url is None else (url, _parse_sha256(row.sha256))


def to_entries(rows: Iterable[FileRow], page_url: str) -> list[FileEntry]:
    """Return the rows that are wheels or sdists, as entries."""
    entries = [to_entry(row, page_url) for row in rows]
    return [entry for entry in entries if entry is not None]


def _parse_core_metadata(value: object) -> str | None:
    if not value:
        return _NOT_SERVED
    return _parse_sha256(_table(value).get("sha256")) or _SERVED_WITHOUT_HASH


def _decode(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset, "replace")
    except LookupError:
        return body.decode("utf-8", "replace")


def _check_api_version(version: str) -> None:
    if version.partition(".")[0] != "1":
        raise ValueError(f"it uses version {version} of the simple API, which is not supported")


# ---- JSON ----------------------------------------------------------------------------------------


def _parse_json(body: bytes) -> list[FileRow] | None:
    try:
        page = _require_table(json.loads(body))
        files = page["files"]
        meta = _require_table(page.get("meta", {}))
        _check_api_version(str(meta.get("api-version", "1.0")))
        if not isinstance(files, list):
            raise TypeError("files must be a list")
        rows = [_row_of_json(_require_table(file)) for file in files]
    except (KeyError, TypeError, RecursionError, json.JSONDecodeError):
        raise ValueError("its JSON does not follow PEP 691") from None
    return rows or None


def _row_of_json(file: Mapping[str, object]) -> FileRow:
    filename, url = file["filename"], file["url"]
    if not isinstance(filename, str) or not isinstance(url, str):
        raise TypeError("a file needs a name and a URL")
    get = file.get
    return FileRow(
        filename,
        url,
        _table(get("hashes")).get("sha256"),
        get("size"),
        get("requires-python"),
        get("yanked"),
        get("upload-time"),
        get("core-metadata", get("dist-info-metadata")),  # the second is its name before PEP 714
    )


def _require_table(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise TypeError("a JSON object is missing")
    return value


def _table(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


# ---- HTML ----------------------------------------------------------------------------------------


def _parse_html(text: str, url: str) -> list[FileRow] | None:
    from .html_links import LinkParser  # most indexes answer with JSON

    parser = LinkParser()
    parser.feed(text)
    parser.close()
    if parser.api_version is not None:
        _check_api_version(parser.api_version)
    base = urljoin(url, parser.base or "")
    rows: list[FileRow] = []
    lists_files = False
    for attributes in parser.anchors:
        link = (attributes.get("href") or "").strip()
        lists_files = lists_files or _names_file(link)
        try:
            rows.append(_row_of_link(_absolute_url(base, link), attributes))
        except ValueError:  # the link is no URL
            continue
    return rows if lists_files else None


def _names_file(link: str) -> bool:
    return link.partition("#")[0].partition("?")[0].endswith(_FILE_SUFFIXES)


def parse_link(link: str, attributes: _Attributes, page_url: str) -> FileEntry | None:
    """Return the file that a link names, with the attributes of PEP 503, 592, 658 and 714.

    Args:
        link: an absolute URL, with the file's hash as its fragment.
        attributes: the attributes of the link's tag; {} for a URL alone.
        page_url: the URL of the page, which decides whether file:// links are allowed.

    Returns:
        None for a link that names no wheel or sdist.

    Raises:
        ValueError: it is no URL.
    """
    return to_entry(_row_of_link(link, attributes), page_url)


def _row_of_link(link: str, attributes: _Attributes) -> FileRow:
    url, _, fragment = link.partition("#")
    yanked = None
    if "data-yanked" in attributes:
        yanked = attributes["data-yanked"] or ""
    return FileRow(
        filename=unquote(urlsplit(url).path.rpartition("/")[2]),
        url=url,
        sha256=_parse_fragment(fragment),
        size=None,
        requires_python=attributes.get("data-requires-python"),
        yanked=yanked,
        upload_time=attributes.get("data-upload-time") or None,
        core_metadata=_read_core_metadata(attributes),
    )


def _parse_fragment(fragment: str) -> str | None:
    """Return the sha256 of a URL fragment such as "sha256=...&egg=name"."""
    sha256 = None
    for field in fragment.split("&"):
        key, _, value = field.partition("=")
        if key == "sha256":
            sha256 = value
    return _parse_sha256(sha256)


def _read_core_metadata(attributes: _Attributes) -> object:
    """Return data-core-metadata, or its name before PEP 714, as the JSON of PEP 691 has it."""
    value = attributes.get("data-core-metadata", attributes.get("data-dist-info-metadata"))
    if value in (None, "false"):
        return False
    return {"sha256": value.partition("sha256=")[2]}


# ---- both ----------------------------------------------------------------------------------------


def _absolute_url(base: str, link: str) -> str:
    """Resolve a link. Most are absolute, and urljoin takes as long as the rest of the parsing."""
    if is_http_url(link):
        return link
    return urljoin(base, link)


def _bare_url(url: str, page_url: str) -> str | None:
    """Return an absolute URL without credentials, with spaces and control characters escaped.

    None for a URL that the page may not have: a page on the web must not name files of this
    machine.
    """
    if is_http_url(url) and _PLAIN_CHARACTERS.issuperset(url):
        return url  # nearly all are so, and the rest takes as long as all other parsing
    try:
        parts = urlsplit(_absolute_url(page_url, url))
    except ValueError:  # it is no URL
        return None
    local = parts.scheme == "file" and page_url.startswith("file:")
    if parts.scheme not in ("http", "https") and not local:
        return None
    # Credentials belong to the index. Characters are escaped as pip and uv do.
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    return quote(bare.geturl(), safe=_URL_SAFE)


def _parse_sha256(text: object) -> str | None:
    """Return a sha256 as 64 lower-case hex digits, None for anything else."""
    if not isinstance(text, str) or len(text) != _SHA256_LENGTH:
        return None
    digest = text.lower()
    if not _HEX_DIGITS.issuperset(digest):
        return None
    return digest
