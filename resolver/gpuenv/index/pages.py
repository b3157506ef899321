"""Pages of the simple repository API: PEP 503 HTML and PEP 691 JSON, read through the cache.

Files with other names than those of wheels and sdists, and links that a page may not have
(file:// on a web page), are left out. The cache stores a page after it was parsed and checked.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from html.parser import HTMLParser
from operator import itemgetter
from threading import Lock
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import msgspec
from packaging.specifiers import SpecifierSet

from ..errors import OfflineError, PackageIndexError
from ..model import IndexOptions, Value, Wheel
from ..requirements.target import FILE_SUFFIXES, TargetEnvironment, identify, wheel_tags
from ..requirements.versions import version_key
from ..serialize import decode
from .cache import Cache
from .http import FORBIDDEN, GONE, NOT_MODIFIED, OK, UNAUTHORIZED, Reply, Transport
from .urls import last_part, redact_url
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
# Old metadata has ">=1.0.*", which PEP 440 forbids. It was always read as ">=1.0".
_STARRED = r"((?:>=|<=|~=|>|<)\s*[0-9][0-9.]*?)\.\*"
_HTML_TYPES = ("text/html", "application/vnd.pypi.simple.v1+html")
_FILE_SUFFIXES = (*FILE_SUFFIXES, ".egg", ".exe", ".tar.bz2")  # what counts as a file
_PLAIN_URL = re.compile(r"https?://[A-Za-z0-9.:-]+/[A-Za-z0-9:/._+~%-]*")
_URL_SAFE = "%/:=&?~#+!$,;'@()*[]"  # characters that pip and uv leave as they are
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")

# One thread at a time parses a page: each large page takes tens of megabytes meanwhile.
_parsing = Lock()

# ---- file names ----------------------------------------------------------------------------------


def repair_specifiers(text: str) -> str:
    """Return specifiers without the stars that PEP 440 forbids (">=1.0.*" becomes ">=1.0")."""
    return re.sub(_STARRED, r"\1", text)


@lru_cache  # the files of a page have few values
def parse_requires_python(text: object) -> str | None:
    """Return a Requires-Python value that PEP 440 accepts, repaired if necessary.

    None if there is none or it cannot be read; pip ignores such a value, too.
    """
    for specifiers in (text, repair_specifiers(text)) if isinstance(text, str) and text else ():
        try:
            SpecifierSet(specifiers)
        except ValueError:
            continue
        return specifiers
    return None


# ---- parsing -------------------------------------------------------------------------------------


class _File(msgspec.Struct, rename="kebab"):
    """A file as the JSON of PEP 691, 700 and 714 has it. Only what is needed is read."""

    filename: str
    url: str
    hashes: Any = None
    size: Any = None
    requires_python: Any = None
    yanked: Any = None
    upload_time: Any = None
    core_metadata: Any = None
    dist_info_metadata: Any = None


class _StoredFile(_File, array_like=True):
    """A file in the cache, without the names of the fields."""


_stored_files = msgspec.msgpack.Decoder(list[_StoredFile])


class _JsonPage(msgspec.Struct):
    files: list[_File]
    meta: dict[str, Any] = {}


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
        try:
            page = decode(body, _JsonPage)
        except (RecursionError, msgspec.DecodeError):
            raise ValueError("its JSON does not follow PEP 691") from None
        files, version = page.files, str(page.meta.get("api-version", "1.0"))
    elif media_type in _HTML_TYPES or (not media_type and start.startswith(b"<")):
        charset = parameters.partition("charset=")[2].strip(" \"'") or "utf-8"
        files, version = _read_html(body, charset, url)
    else:
        raise ValueError(f"its content type is {media_type or 'not given'}")
    if version.partition(".")[0] != "1":
        raise ValueError(f"it uses version {version} of the simple API, which is not supported")
    try:
        return _page(files, url, index) if files else None
    except OverflowError:  # a number of more than 64 bits
        raise ValueError("its JSON does not follow PEP 691") from None


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

    def handle_data(self, data: str) -> None:
        """Keep the hash that the release pages of GitHub have beside a link."""
        if self.anchors and data.strip().startswith("sha256:"):
            self.anchors[-1].setdefault("sha256", data.strip().removeprefix("sha256:"))


def _read_html(body: bytes, charset: str, url: str) -> tuple[list[_File], str]:
    """Return the files of an HTML page and its version of the API."""
    try:
        text = body.decode(charset, "replace")
    except LookupError:
        text = body.decode("utf-8", "replace")
    parser = _LinkParser()
    parser.feed(text)
    parser.close()
    base = urljoin(url, parser.base or "")
    files = []
    lists_files = False
    for attributes in parser.anchors:
        link = (attributes.get("href") or "").strip()
        is_file = link.partition("#")[0].partition("?")[0].endswith(_FILE_SUFFIXES)
        lists_files = lists_files or is_file
        try:
            files.append(_linked_file(urljoin(base, link), attributes))
        except ValueError:  # the link is no URL
            continue
    return files if lists_files else [], parser.api_version


def _linked_file(link: str, attributes: Mapping[str, str | None]) -> _File:
    """Return the file of a link, with the attributes of PEP 503, 592, 658 and 714."""
    url, _, fragment = link.partition("#")
    digests = [field[7:] for field in fragment.split("&") if field.startswith("sha256=")]
    if not digests and attributes.get("sha256"):
        digests = [attributes["sha256"] or ""]
    metadata = attributes.get("data-core-metadata", attributes.get("data-dist-info-metadata"))
    served = None
    if metadata not in (None, "false"):
        served = {"sha256": (metadata or "").partition("sha256=")[2]}
    return _File(
        filename=last_part(url),
        url=url,
        hashes={"sha256": digests[-1]} if digests else None,
        requires_python=attributes.get("data-requires-python"),
        upload_time=attributes.get("data-upload-time") or None,
        yanked=(attributes["data-yanked"] or "") if "data-yanked" in attributes else None,
        core_metadata=served,
    )


def linked_files(links: Sequence[str], index: str) -> list[Wheel]:
    """Return the wheels and sdists that absolute URLs name, with the files' hashes as fragments.

    Args:
        links: the URLs: of one scheme.
        index: the value of `Wheel.index`.

    Raises:
        ValueError: one is no URL.
    """
    return _page([_linked_file(link, {}) for link in links], "".join(links[:1]), index).files()


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
    machine. A URL that ends in a slash names no file.
    """
    if _PLAIN_URL.fullmatch(url):  # nearly all are so, and the rest takes as long as all else
        return url
    try:
        parts = urlsplit(urljoin(page_url, url))
    except ValueError:  # it is no URL
        return None
    is_local = parts.scheme == "file" and page_url.startswith("file:")
    if url.endswith("/") or (parts.scheme not in ("http", "https") and not is_local):
        return None
    # Credentials belong to the index. Characters are escaped as pip and uv do.
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    return quote(bare.geturl(), safe=_URL_SAFE)


# ---- pages ---------------------------------------------------------------------------------------


class Page(Value):
    """The files of a page: wheels and source distributions.

    A page has thousands of wheels, and a solve needs few of them. So only the file names are read
    before a page is stored, to put the releases into their order; the rest of a wheel is read
    when a target asks for its tags. That, the memory of ranks and versions (requirements.target,
    versions) and the TLS context of http.open_session make a cold solve of 140 pages (the set
    whisperx) take 2.1 s of processor time instead of 3.4 s, and a warm one 0.55 s instead of 0.72.

    Attributes:
        url: the base of relative links.
        index: the value of `Wheel.index`.
        releases: {what the names of a release's files begin with: (place, name, version)}, by place
            the newest version first.
        groups: {tags: the files of the wheels that have these}; "" for source distributions.
        variant_files: (URL, sha256) of the files that describe the variants of releases (PEP 825).
    """

    url: str
    index: str
    releases: dict[str, tuple[int, str, str]]
    groups: dict[str, msgspec.Raw]
    variant_files: dict[str, tuple[str, str | None]]

    def files(self, environment: TargetEnvironment | None = None) -> list[Wheel]:
        """Return the files, newest first and by file name; with an environment, those that fit.

        A field of the wrong type counts as not given. `metadata` is the sha256 of the metadata file
        that the index serves (PEP 658), "" if its hash is not given, None if there is no such file.
        A link that the page may not have is left out.
        """
        files: list[_StoredFile] = []
        for tags, group in self.groups.items():
            if environment is None or not tags or environment.fits(tags):
                files += _stored_files.decode(group)
        rows = [
            (*self.releases[_release_key(file.filename)], file.filename, file) for file in files
        ]
        rows.sort(key=itemgetter(0, 3))
        wheels = []
        for _, name, version, filename, file in rows:
            url, size, metadata = _checked_url(file.url, self.url), file.size, file.core_metadata
            if metadata is None:
                metadata = file.dist_info_metadata
            if url is None:
                continue
            wheels.append(
                Wheel(
                    name=name,
                    version=version,
                    filename=filename,
                    url=url,
                    sha256=_sha256(file.hashes),
                    size=size if type(size) is int and size >= 0 else None,
                    requires_python=parse_requires_python(file.requires_python),
                    yanked="" if file.yanked is True else _text(file.yanked),
                    upload_time=_text(file.upload_time),
                    index=self.index,
                    metadata=(_sha256(metadata) or "") if metadata else None,
                )
            )
        return wheels


def _page(files: Iterable[_File], page_url: str, index: str) -> Page:
    """Return a page of files. What is no wheel or source distribution is left out."""
    identities: dict[str, tuple[str, str] | None] = {}
    groups: dict[str, list[object]] = {}
    variant_files: dict[str, tuple[str, str | None]] = {}
    for file in files:
        filename = file.filename
        key = _release_key(filename)
        tags = "" if key is filename else _tags_of(filename[len(key) :])
        if tags is None:
            continue
        if key not in identities:
            identities[key] = identify(f"{key}-py3-none-any.whl" if tags else filename)
        if identities[key] is not None:
            groups.setdefault(tags, []).append(msgspec.structs.astuple(file))
        elif filename.endswith(INDEX_FILE_SUFFIX):
            url = _checked_url(file.url, page_url)
            if url is not None:
                variant_files[filename] = url, _sha256(file.hashes)
    releases = [(*identity, key) for key, identity in identities.items() if identity is not None]
    # Stable sorts: texts of one version (1.0, 1.0.0) by their text.
    releases.sort()
    releases.sort(key=lambda release: version_key(release[1]), reverse=True)
    places = {release[:2]: place for place, release in enumerate(releases)}
    return Page(
        url=page_url,
        index=index,
        releases={key: (places[name, version], name, version) for name, version, key in releases},
        groups={tags: msgspec.Raw(msgspec.msgpack.encode(rows)) for tags, rows in groups.items()},
        variant_files=variant_files,
    )


def _release_key(filename: str) -> str:
    """Return what names all wheels of a release: NAME-VERSION; the whole name of other files."""
    parts = filename.split("-", 2)
    if len(parts) == 3 and filename.endswith(".whl"):
        return f"{parts[0]}-{parts[1]}"
    return filename


@lru_cache(4096)  # the wheels of a release have the tags of other releases
def _tags_of(end: str) -> str | None:
    """Return the tags in the end of a wheel's file name, None if it cannot be read."""
    example = f"a-1{end}"
    return wheel_tags(example) if identify(example) else None


class _Stored(Value):
    """A page in the cache, since when and for how long it is fresh (RFC 9111), and what version."""

    page: Page | None
    time: float = 0.0
    fresh: float = 0.0
    etag: str | None = None
    last_modified: str | None = None


class PageReader:
    """Reads pages through the cache.

    Args:
        transport: sends the requests.
        cache: stores the pages.
        options: `offline` uses the cache only, however old its pages are; `refresh` asks the index
            whether a page has changed, however fresh it is.
    """

    def __init__(self, transport: Transport, cache: Cache, options: IndexOptions) -> None:
        self.transport, self.cache, self.options = transport, cache, options

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
        stored = self.cache.get(_CACHE_KIND, url, _Stored)
        if stored is not None:
            # A clock that was set back makes a page stale, not fresh for ever.
            is_fresh = 0 <= time.time() - stored.time < stored.fresh
            if self.options.offline or (is_fresh and not self.options.refresh):
                return stored.page
        if self.options.offline:
            raise OfflineError(
                f"{subject}: its page is not in the cache and --offline is on", hint=OFFLINE_HINT
            )
        headers = {"Accept": _ACCEPT, "Cache-Control": "max-age=0"}  # no stale page of a proxy
        if stored is not None and stored.etag:
            headers["If-None-Match"] = stored.etag
        if stored is not None and stored.last_modified:
            headers["If-Modified-Since"] = stored.last_modified
        reply = self.transport.get(url, subject, headers)
        if reply.status == NOT_MODIFIED and stored is not None:
            page = stored.page
        else:
            with _parsing:
                page = _page_of(reply, url, subject, index)
            stored = _Stored(page=page)
        if page is not None:  # otherwise it is stored for --offline only: it may be uploaded soon
            stored = _Stored(
                page=page,
                time=time.time(),
                fresh=_seconds_fresh(reply.headers),
                etag=reply.headers.get("etag") or stored.etag,
                last_modified=reply.headers.get("last-modified") or stored.last_modified,
            )
        if "no-store" not in reply.headers.get("cache-control", ""):
            self.cache.put(_CACHE_KIND, url, stored)
        return page


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


def _seconds_fresh(headers: Mapping[str, str]) -> float:
    """Return for how long a page is fresh (RFC 9111)."""
    cache_control = headers.get("cache-control", "").lower()
    max_age = re.search(r"\bmax-age=(\d+)", cache_control)
    if "no-cache" in cache_control:
        return 0.0
    return min(float(max_age[1]), MAX_FRESH) if max_age is not None else DEFAULT_FRESH
