"""Pages of the simple repository API: PEP 503 HTML and PEP 691 JSON, read through the cache.

Files with other names than those of wheels and sdists, and links that a page may not have
(file:// on a web page), are left out. The cache stores a page after it was parsed and checked.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from html.parser import HTMLParser
from threading import Lock
from typing import Any
from urllib.parse import quote, unquote, urljoin, urlsplit

import msgspec

from ..errors import OfflineError, PackageIndexError
from ..model import IndexOptions, Value, Wheel
from ..requirements.target import TargetEnvironment, wheel_tags
from ..requirements.versions import version_key
from .cache import Cache, CacheEntry
from .filenames import SDIST_SUFFIXES, identify, parse_requires_python
from .http import FORBIDDEN, GONE, NOT_MODIFIED, OK, UNAUTHORIZED, Reply, Transport
from .urls import redact_url
from .variants import INDEX_FILE_SUFFIX

DEFAULT_FRESH = 600.0  # seconds that a page is used without asking again, by default
MAX_FRESH = 86400.0  # whatever the index says
OFFLINE_HINT = "run once without --offline, or give the wheels with --find-links"

# Content negotiation of PEP 691.
_ACCEPT = (
    "application/vnd.pypi.simple.v1+json, "
    "application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
)
_CACHE_KIND = "pages"
_HTML_TYPES = ("text/html", "application/vnd.pypi.simple.v1+html")
_FILE_SUFFIXES = (".whl", *SDIST_SUFFIXES, ".egg", ".exe", ".tar.bz2")  # what counts as a file
_PLAIN_URL = re.compile(r"https?://[A-Za-z0-9.:-]+/[A-Za-z0-9:/._+~%-]*")
_URL_SAFE = "%/:=&?~#+!$,;'@()*[]"  # characters that pip and uv leave as they are
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")

# One thread at a time parses a page: each large page takes tens of megabytes meanwhile.
_parsing = Lock()

_Table = Mapping[str, Any]  # a file as the JSON of PEP 691 has it


# ---- parsing -------------------------------------------------------------------------------------


def parse_page(body: bytes, content_type: str, url: str, index: str = "") -> Page | None:
    """Parse a page of the simple API.

    Args:
        body: the page.
        content_type: the Content-Type header, "" if there is none.
        url: the page's URL, the base of relative links.
        index: the value of `Wheel.index`.

    Returns:
        None if it lists no file.

    Raises:
        ValueError: it is no page of version 1 of the simple API.
    """
    media_type, _, parameters = content_type.lower().partition(";")
    media_type = media_type.strip()
    start = body[:1024].lstrip()
    if media_type.endswith("json") or (not media_type and start.startswith(b"{")):
        files = _read_json(body)
    elif media_type in _HTML_TYPES or (not media_type and start.startswith(b"<")):
        charset = parameters.partition("charset=")[2].strip(" \"'") or "utf-8"
        files = _read_html(body, charset, url)
    else:
        raise ValueError(f"its content type is {media_type or 'not given'}")
    return _page(files, url, index) if files else None


def _read_json(body: bytes) -> Sequence[_Table]:
    try:
        page = msgspec.json.decode(body)
        _check_api_version(str(page.get("meta", {}).get("api-version", "1.0")))
        files: list[_Table] = list(page["files"])
        for file in files:
            if not (isinstance(file["filename"], str) and isinstance(file["url"], str)):
                raise TypeError("a file needs a name and a URL")
    except (AttributeError, KeyError, TypeError, RecursionError, msgspec.DecodeError):
        raise ValueError("its JSON does not follow PEP 691") from None
    return files


def _check_api_version(version: str) -> None:
    if version.partition(".")[0] != "1":
        raise ValueError(f"it uses version {version} of the simple API, which is not supported")


class _LinkParser(HTMLParser):
    """Collects what PEP 503 and PEP 629 define: links, the base URL and the API version."""

    def __init__(self) -> None:
        super().__init__()
        self.anchors: list[dict[str, str | None]] = []
        self.base: str | None = None
        self.api_version = "1.0"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the attributes of <a>, the first <base> and the last version in <meta>."""
        attributes = dict(attrs)
        if tag == "a":
            self.anchors.append(attributes)
        elif tag == "base" and self.base is None:
            self.base = attributes.get("href") or ""
        elif tag == "meta" and attributes.get("name") == "pypi:repository-version":
            self.api_version = attributes.get("content") or ""


def _read_html(body: bytes, charset: str, url: str) -> Sequence[_Table]:
    try:
        text = body.decode(charset, "replace")
    except LookupError:
        text = body.decode("utf-8", "replace")
    parser = _LinkParser()
    parser.feed(text)
    parser.close()
    _check_api_version(parser.api_version)
    base = urljoin(url, parser.base or "")
    files = []
    lists_files = False
    for attributes in parser.anchors:
        link = (attributes.get("href") or "").strip()
        is_file = link.partition("#")[0].partition("?")[0].endswith(_FILE_SUFFIXES)
        lists_files = lists_files or is_file
        try:
            files.append(_table(urljoin(base, link), attributes))
        except ValueError:  # the link is no URL
            continue
    return files if lists_files else ()


def _table(link: str, attributes: Mapping[str, str | None]) -> _Table:
    """Return the file of a link, with the attributes of PEP 503, 592, 658 and 714."""
    url, _, fragment = link.partition("#")
    digests = [field[7:] for field in fragment.split("&") if field.startswith("sha256=")]
    metadata = attributes.get("data-core-metadata", attributes.get("data-dist-info-metadata"))
    table: dict[str, Any] = {
        "filename": unquote(urlsplit(url).path.rpartition("/")[2]),
        "url": url,
        "hashes": {"sha256": digests[-1] if digests else None},
        "requires-python": attributes.get("data-requires-python"),
        "upload-time": attributes.get("data-upload-time") or None,
    }
    if "data-yanked" in attributes:
        table["yanked"] = attributes["data-yanked"] or ""
    if metadata not in (None, "false"):
        table["core-metadata"] = {"sha256": metadata.partition("sha256=")[2]}
    return table


def parse_link(link: str, index: str) -> Wheel | None:
    """Return the file that a URL names, with the file's hash as its fragment.

    Args:
        link: an absolute URL.
        index: the value of `Wheel.index`.

    Returns:
        None for a link that names no wheel or sdist.

    Raises:
        ValueError: it is no URL.
    """
    return _wheel(_table(link, {}), link, index)


def _wheel(file: _Table, page_url: str, index: str) -> Wheel | None:
    """Return a file (PEP 691, 700, 714). A field of the wrong type counts as not given.

    `metadata` is the sha256 of the metadata file that the index serves (PEP 658), "" if its hash is
    not given, None if there is no such file.

    Returns:
        None for what is no wheel or sdist, and for a link that the page may not have.
    """
    url, identity = _checked_url(file["url"], page_url), identify(file["filename"])
    if url is None or identity is None:
        return None
    size, yanked = file.get("size"), file.get("yanked")
    metadata = file.get("core-metadata", file.get("dist-info-metadata"))
    return Wheel(
        name=identity[0],
        version=identity[1],
        filename=file["filename"],
        url=url,
        sha256=_sha256(file.get("hashes")),
        size=size if type(size) is int and size >= 0 else None,
        requires_python=parse_requires_python(_text(file.get("requires-python"))),
        yanked="" if yanked is True else _text(yanked),
        upload_time=_text(file.get("upload-time")),
        index=index,
        metadata=(_sha256(metadata) or "") if metadata else None,
    )


def _sha256(hashes: object) -> str | None:
    """Return the sha256 of a table of hashes as 64 lower-case hex digits, None for no such one."""
    digest = hashes.get("sha256") if isinstance(hashes, dict) else None
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        return None
    return digest.lower()


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _checked_url(url: str, page_url: str) -> str | None:
    """Return an absolute URL without credentials, with spaces and control characters escaped.

    None for a URL that the page may not have: a page on the web must not name files of this
    machine.
    """
    if _PLAIN_URL.fullmatch(url):  # nearly all are so, and the rest takes as long as all else
        return url
    try:
        parts = urlsplit(urljoin(page_url, url))
    except ValueError:  # it is no URL
        return None
    is_local = parts.scheme == "file" and page_url.startswith("file:")
    if parts.scheme not in ("http", "https") and not is_local:
        return None
    # Credentials belong to the index. Characters are escaped as pip and uv do.
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    return quote(bare.geturl(), safe=_URL_SAFE)


# ---- pages ---------------------------------------------------------------------------------------


class Page(Value):
    """The files of a page: wheels and source distributions.

    A solve needs few of the thousands of wheels of a page, so others stay JSON.

    Attributes:
        wheels: {tags: the wheels that have these, as a JSON list}; "" for source distributions.
        variant_files: (URL, sha256) of the files that describe the variants of releases (PEP 825).
    """

    wheels: dict[str, msgspec.Raw]
    variant_files: dict[str, tuple[str, str | None]]

    def files(self, environment: TargetEnvironment | None = None) -> list[Wheel]:
        """Return the files, newest first and by file name; with an environment, those that fit."""
        files: list[Wheel] = []
        for tags, group in self.wheels.items():
            if environment is None or not tags or environment.fits(tags):
                files += msgspec.json.decode(group, type=list[Wheel])
        return newest_first(files)


def _page(tables: Iterable[_Table], page_url: str, index: str) -> Page:
    groups: dict[str, list[Wheel]] = {}
    variant_files: dict[str, tuple[str, str | None]] = {}
    for table in tables:
        wheel = _wheel(table, page_url, index)
        if wheel is not None:
            groups.setdefault(wheel_tags(wheel.filename), []).append(wheel)
        elif table["filename"].endswith(INDEX_FILE_SUFFIX):
            url = _checked_url(table["url"], page_url)
            if url is not None:
                variant_files[table["filename"]] = url, _sha256(table.get("hashes"))
    wheels = {tags: msgspec.Raw(msgspec.json.encode(group)) for tags, group in groups.items()}
    return Page(wheels=wheels, variant_files=variant_files)


def newest_first(files: Iterable[Wheel]) -> list[Wheel]:
    """Sort files by version (PEP 440), newest first, and by file name within a version."""
    by_name = sorted(files, key=lambda file: file.filename)
    return sorted(by_name, key=lambda file: version_key(file.version), reverse=True)


class PageReader:
    """Reads pages through the cache.

    Args:
        transport: sends the requests.
        cache: stores the pages.
        options: `offline` uses the cache only, however old its pages are; `refresh` asks the index
            whether a page has changed, however fresh it is.
    """

    def __init__(self, transport: Transport, cache: Cache, options: IndexOptions) -> None:
        self.transport, self.cache, self._options = transport, cache, options

    def read(self, url: str, subject: str, index: str = "") -> Page | None:
        """Return a page.

        Args:
            url: the page's URL.
            subject: the start of error messages ("index URL failed for torch").
            index: the value of `Wheel.index`.

        Returns:
            None if the index has no such page, or one that lists no file.

        Raises:
            OfflineError: the page is not in the cache, and requests are not allowed.
            PackageIndexError: there is no response, or it is no page.
        """
        stored = self.cache.get(_CACHE_KIND, url)
        if stored is not None and self._is_usable(stored):
            return _unpack(stored)
        if self._options.offline:
            raise OfflineError(
                f"{subject}: its page is not in the cache and --offline is on", hint=OFFLINE_HINT
            )
        headers = {"Accept": _ACCEPT, "Cache-Control": "max-age=0"}  # no stale page of a proxy
        for name in ("etag", "last-modified"):
            condition = stored.text(name) if stored is not None else None
            if condition:
                headers["If-None-Match" if name == "etag" else "If-Modified-Since"] = condition
        reply = self.transport.get(url, subject, headers)
        header = _freshness(reply.headers)
        if reply.status == NOT_MODIFIED and stored is not None:
            page = _unpack(stored)
            header = {**stored.header, **header}
        else:
            with _parsing:
                page = _page_of(reply, url, subject, index)
        if page is None:
            # It is stored for --offline only: it may be uploaded the next moment.
            header = {"time": 0.0, "fresh": 0.0}
        if "no-store" not in reply.headers.get("cache-control", ""):
            self.cache.put(_CACHE_KIND, url, header, msgspec.json.encode(page))
        return page

    def _is_usable(self, stored: CacheEntry) -> bool:
        since, fresh = stored.header.get("time"), stored.header.get("fresh")
        if self._options.offline:
            return True
        if self._options.refresh or not (isinstance(since, float) and isinstance(fresh, float)):
            return False
        # A clock that was set back makes a page stale, not fresh for ever.
        return 0 <= time.time() - since < fresh


def _unpack(entry: CacheEntry) -> Page | None:
    return msgspec.json.decode(entry.body, type=Page | None)


def _page_of(reply: Reply, url: str, subject: str, index: str) -> Page | None:
    """Return the page of a reply, None for a page that does not exist or lists no file."""
    shown = redact_url(url)
    if reply.status == OK:
        try:
            return parse_page(reply.body, reply.headers.get("content-type", ""), reply.url, index)
        except ValueError as error:
            raise PackageIndexError(
                f"{subject}: {shown} is not a page of a package index ({error})",
                hint="the URL of an index usually ends in /simple",
            ) from None
    # A storage bucket that may not be listed answers so for a name that it does not have.
    is_denied = reply.status == FORBIDDEN and b"<Code>AccessDenied</Code>" in reply.body
    if reply.status in GONE or is_denied:
        return None
    hint = "check the URL"
    if reply.status in (UNAUTHORIZED, FORBIDDEN):
        hint = "give credentials in ~/.netrc or in the URL (https://user:password@host/...)"
    raise PackageIndexError(f"{subject}: {shown} answered with status {reply.status}", hint=hint)


def _freshness(headers: Mapping[str, str]) -> dict[str, object]:
    """Return since when and for how long a page is fresh (RFC 9111), and what identifies it."""
    cache_control = headers.get("cache-control", "").lower()
    max_age = re.search(r"\bmax-age=(\d+)", cache_control)
    fresh = DEFAULT_FRESH
    if "no-cache" in cache_control:
        fresh = 0.0
    elif max_age is not None:
        fresh = min(float(max_age[1]), MAX_FRESH)
    known = {name: headers[name] for name in ("etag", "last-modified") if name in headers}
    return {"time": time.time(), "fresh": fresh, **known}
