"""Pages of the simple repository API (PEP 503 HTML, PEP 691 JSON) and how they are fetched and kept.

A page becomes rows, one a wheel or source distribution: what a cache entry holds and what a `Wheel` is made of. Files
with names that are of neither (PEP 427, PEP 625 and what was usual before it) and links that an index may not give
(file:// on a web page) are left out.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ..errors import OfflineError, PackageIndexError
from ..model import Wheel
from ..requirements.target import version_key
from .cache import Cache
from .filenames import SDISTS, identify, python_range
from .html_links import read_anchors
from .http import (
    FORBIDDEN,
    GONE,
    NOT_MODIFIED,
    OK,
    UNAUTHORIZED,
    Reply,
    Transport,
    shown,
    split_credentials,
)

ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"  # PEP 691
FRESH = 600.0  # seconds that a page is taken as it is, where the index says nothing else
LONGEST_FRESH = 86400.0
OFFLINE_HINT = "run once without --offline, or give the wheels with --find-links"

_NO_PEP_658 = None  # a row's `metadata`: the index serves no metadata file
_FILES = (".whl", *SDISTS, ".egg", ".exe", ".tar.bz2")  # what a link of a page has to be to count
_UNHASHED = ""  # it serves one and gives no hash for it


class Row(NamedTuple):
    """One wheel or sdist of a page. `metadata` is None, "" or the sha256 of the PEP 658 metadata file."""

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


def wheel(row: Row, index: str) -> Wheel:
    """The value that the other stages see."""
    return Wheel(index=index, **row._asdict())


def is_sdist(file: Row | Wheel) -> bool:
    """Whether a file is a source distribution."""
    return file.filename.endswith(SDISTS)


def newest_first(rows: Iterable[Row]) -> list[Row]:
    """Sorted by version (PEP 440), newest first; those of one version by file name."""
    by_version: dict[str, list[Row]] = {}
    for row in rows:
        by_version.setdefault(row.version, []).append(row)
    versions = sorted(by_version, key=version_key, reverse=True)
    return [row for version in versions for row in sorted(by_version[version], key=lambda row: row.filename)]


class Page:
    """The files of a page, newest first, as text with one a line: few of thousands are ever looked at.

    `again` reads the text where it is kept; with it `release` gives the memory back.
    """

    __slots__ = ("_again", "_text")

    def __init__(self, text: str, again: Callable[[], str] | None = None) -> None:
        self._text: str | None = text
        self._again = again

    def text(self) -> str:
        """The whole text."""
        if self._text is None and self._again is not None:
            return self._again()
        return self._text or ""

    def release(self) -> None:
        """The text is not needed soon."""
        if self._again is not None:
            self._text = None

    def rows(self, wanted: Callable[[str], bool] | None = None) -> list[Row]:
        """The files whose names are wanted; None is all. ValueError or TypeError for a text that is no page."""
        import json

        text = self.text()
        lines = text.split("\n") if text else []
        if wanted is not None:
            # Name and version are plain; a file name may hold anything, and if it is strange it is looked at later.
            lines = [line for line in lines if "\\" in (name := line.split('"', 6)[5]) or wanted(name)]
        found = [Row(*row) for row in json.loads(f"[{','.join(lines)}]")]
        return found if wanted is None else [row for row in found if wanted(row.filename)]


def _text_of(rows: Iterable[Row]) -> str:
    from json import JSONEncoder

    return "\n".join(map(JSONEncoder(separators=(",", ":")).encode, rows))


# ---- fetching --------------------------------------------------------------------------------------------------


# One page at a time is read: threads would not be quicker, and the largest pages take tens of megabytes while they are.
_reading = threading.Lock()


class Fetcher:
    """Gets pages through the cache. `refresh` asks the index anew whatever is kept; `offline` never asks it."""

    def __init__(self, transport: Transport, cache: Cache, *, offline: bool = False, refresh: bool = False) -> None:
        self.transport, self.cache, self.offline, self.refresh = transport, cache, offline, refresh

    def page(self, url: str, what: str) -> Page | None:
        """The files of a page; None if the index has no such page, or one that lists no file.

        `what` starts the messages ("index URL: torch"). Raises PackageIndexError, OfflineError.
        """
        kept = self._kept(url)
        if kept is not None and (self.offline or (not self.refresh and _is_fresh(kept[0]))):
            return self._page(url, what, kept[1], True)
        if self.offline:
            raise OfflineError(f"{what}: its page is not in the cache and --offline is on", hint=OFFLINE_HINT)
        reply = self.transport.get(url, what, _conditions(kept[0] if kept else {}))
        if reply.status == NOT_MODIFIED and kept is not None:
            there = self._keep(url, kept[0] | _validity(reply, kept[0]), kept[1])
            return self._page(url, what, kept[1], there)
        with _reading:
            text = self._judge(reply, what, url)
        there = False
        if "no-store" not in reply.headers.get("cache-control", ""):
            # That a page is not there is kept for --offline only: it may be uploaded the next moment.
            there = self._keep(url, _validity(reply, {}) if text is not None else {"time": 0.0, "fresh": 0.0}, text)
        return self._page(url, what, text, there)

    def _page(self, url: str, what: str, text: str | None, there: bool) -> Page | None:
        def again() -> str:
            kept = self._kept(url)
            page = self.page(url, what) if kept is None else None  # somebody emptied the cache
            return (kept[1] if kept else page.text() if page else None) or ""

        return None if text is None else Page(text, again if there else None)

    def _kept(self, url: str) -> tuple[dict[str, Any], str | None] | None:
        entry = self.cache.get("pages", url)
        try:
            return None if entry is None else (entry[0], entry[1].decode("ascii") if entry[0]["there"] else None)
        except (ValueError, KeyError):
            return None

    def _keep(self, url: str, header: Mapping[str, Any], text: str | None) -> bool:
        return self.cache.put("pages", url, {**header, "there": text is not None}, (text or "").encode("ascii"))

    def _judge(self, reply: Reply, what: str, url: str) -> str | None:
        if reply.status == OK:
            try:
                rows = parse(reply.body, reply.headers.get("content-type", ""), reply.url)
                return None if rows is None else _text_of(newest_first(rows))
            except ValueError as error:
                raise PackageIndexError(
                    f"{what}: {shown(url)} answers with no package page ({error})",
                    hint="the URL of an index usually ends in /simple",
                ) from None
        if reply.status in GONE:
            return None
        # A bucket without the right to list answers so for a name that it does not have.
        if reply.status == FORBIDDEN and b"<Code>AccessDenied</Code>" in reply.body:
            return None
        hint = "check the URL"
        if reply.status in (UNAUTHORIZED, FORBIDDEN):
            hint = "give credentials in ~/.netrc or in the URL (https://user:password@host/...)"
        raise PackageIndexError(f"{what}: {shown(url)} answers {reply.status}", hint=hint)


def _conditions(kept: Mapping[str, Any]) -> dict[str, str]:
    headers = {"Accept": ACCEPT, "Cache-Control": "max-age=0"}  # past any cache on the way that is not fresh
    if etag := kept.get("etag"):
        headers["If-None-Match"] = etag
    if modified := kept.get("modified"):
        headers["If-Modified-Since"] = modified
    return headers


def _validity(reply: Reply, before: Mapping[str, Any]) -> dict[str, Any]:
    """When and for how long a page is fresh, and how to ask whether it has changed."""
    import re
    import time

    control = reply.headers.get("cache-control", "").lower()
    fresh = FRESH
    if "no-cache" in control:
        fresh = 0.0
    elif age := re.search(r"\bmax-age=(\d+)", control):
        fresh = min(float(age[1]), LONGEST_FRESH)
    return {
        "time": time.time(),
        "fresh": fresh,
        "etag": reply.headers.get("etag", before.get("etag")),
        "modified": reply.headers.get("last-modified", before.get("modified")),
    }


def _is_fresh(header: Mapping[str, Any]) -> bool:
    import time

    since, fresh = header.get("time"), header.get("fresh")
    if not isinstance(since, (int, float)) or not isinstance(fresh, (int, float)):
        return False
    return 0 <= time.time() - since < fresh  # a clock that was put back makes a page stale, not fresh for ever


# ---- reading ---------------------------------------------------------------------------------------------------


def parse(body: bytes, content_type: str, url: str) -> list[Row] | None:
    """The wheels and sdists of a page, in its order; None if it lists no file at all, [] if it has only others.

    ValueError for what is no page of the simple API.
    """
    kind, _, rest = content_type.lower().partition(";")
    kind = kind.strip()
    start = body[:1024].lstrip()
    if kind.endswith("json") or (not kind and start.startswith(b"{")):
        return _parse_json(body, url)
    if kind in ("text/html", "application/vnd.pypi.simple.v1+html") or (not kind and start.startswith(b"<")):
        charset = rest.partition("charset=")[2].strip(" \"'") or "utf-8"
        return _parse_html(_decoded(body, charset), url)
    raise ValueError(f"its content type is {kind or 'not given'}")


def _decoded(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset, "replace")
    except LookupError:
        return body.decode("utf-8", "replace")


def _parse_json(body: bytes, url: str) -> list[Row] | None:
    import json
    from urllib.parse import urljoin

    try:
        page = json.loads(body)
        api = str(page.get("meta", {}).get("api-version", "1.0"))
        files = page["files"]
        if api.partition(".")[0] != "1":
            raise ValueError(f"it speaks version {api} of the simple API")
        rows = []
        for file in files:
            row = _row(file["filename"], urljoin(url, file["url"]), url)
            if row is not None:
                rows.append(_with_json(row, file))
        return rows if files else None
    except (KeyError, TypeError, AttributeError, RecursionError, json.JSONDecodeError):
        raise ValueError("its JSON is not what PEP 691 says") from None


def _with_json(row: Row, file: Mapping[str, Any]) -> Row:
    """What PEP 691, 700 and 714 tell of a file; a field of the wrong type counts as not given."""
    yanked = file.get("yanked", False)
    metadata = file.get("core-metadata", file.get("dist-info-metadata", False))
    size, python, uploaded = file.get("size"), file.get("requires-python"), file.get("upload-time")
    return row._replace(
        sha256=_hash(_dict(file.get("hashes")).get("sha256")),
        size=size if type(size) is int and size >= 0 else None,
        requires_python=python_range(python) if isinstance(python, str) else None,
        yanked=yanked if isinstance(yanked, str) else "" if yanked is True else None,
        upload_time=uploaded if isinstance(uploaded, str) else None,
        metadata=_NO_PEP_658 if not metadata else _hash(_dict(metadata).get("sha256")) or _UNHASHED,
    )


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _parse_html(text: str, url: str) -> list[Row] | None:
    from urllib.parse import urljoin

    base, anchors, version = read_anchors(text)
    if version is not None and version.partition(".")[0] != "1":
        raise ValueError(f"it speaks version {version} of the simple API")
    base = urljoin(url, base) if base else url
    web = base.startswith(("http://", "https://"))
    rows = []
    files = False
    for anchor in anchors:
        href = anchor.get("href") or ""
        files = files or href.partition("#")[0].partition("?")[0].endswith(_FILES)
        if ".whl" not in href and not any(kind in href for kind in SDISTS):
            continue
        try:
            row = _usual(href, anchor) if web else None
            row = linked(urljoin(base, href.strip()), anchor, url) if row is None else row
        except ValueError:  # a link that is no URL
            continue
        if row is not None:
            rows.append(row)
    return rows if files else None


# A whole URL, with nothing in it that would have to be resolved, quoted or taken out.
_LINK = re.compile(
    r"(https?://[A-Za-z0-9.-]+(?::[0-9]+)?(?:/[A-Za-z0-9_+-][A-Za-z0-9._+-]*)+)(?:#sha256=([0-9a-f]{64}))?"
)


def _usual(href: str, anchor: Mapping[str, str | None]) -> Row | None:
    """As `linked`, for a link that is written as most are; None for any other."""
    link = _LINK.fullmatch(href)
    filename = link[1].rpartition("/")[2] if link else ""
    identity = identify(filename) if link else None
    return _attributed(identity, filename, link[1], link[2], anchor) if link and identity else None


def linked(link: str, anchor: Mapping[str, str | None], page: str) -> Row | None:
    """The file that a link of an HTML page names, with the attributes of PEP 503, 592, 658 and 714."""
    from urllib.parse import unquote, urlsplit

    parts = urlsplit(link)
    row = _row(unquote(parts.path.rpartition("/")[2]), parts._replace(fragment="").geturl(), page)
    if row is None:
        return None
    fragment = dict(pair.partition("=")[::2] for pair in parts.fragment.split("&"))
    return _attributed((row.name, row.version), row.filename, row.url, _hash(fragment.get("sha256")), anchor)


def _attributed(
    identity: tuple[str, str], filename: str, url: str, sha256: str | None, anchor: Mapping[str, str | None]
) -> Row:
    metadata = anchor.get("data-core-metadata", anchor.get("data-dist-info-metadata"))
    yanked = (anchor["data-yanked"] or "") if "data-yanked" in anchor else None
    python = python_range(anchor.get("data-requires-python"))
    served = _NO_PEP_658 if metadata in (None, "false") else _hash(metadata.partition("sha256=")[2]) or _UNHASHED
    uploaded = anchor.get("data-upload-time") or None
    return Row(*identity, filename, url, sha256, None, python, yanked, uploaded, served)


def _row(filename: object, url: str, page: str) -> Row | None:
    """A row with a name, a version and a place only; None for what is no wheel, or lies where it may not."""
    from urllib.parse import quote, urlsplit

    if not isinstance(filename, str):
        raise TypeError("a file name is a text")
    scheme = urlsplit(url).scheme
    if scheme not in ("http", "https") and not (scheme == "file" and urlsplit(page).scheme == "file"):
        return None
    identity = identify(filename)
    # As pip and uv write it: credentials belong to the index, and no space or control character to a URL.
    bare = quote(split_credentials(url)[0], safe="%/:=&?~#+!$,;'@()*[]")
    return Row(*identity, filename, bare, None) if identity else None


def _hash(text: object) -> str | None:
    """A sha256 as 64 lower-case hex digits, else None."""
    if isinstance(text, str) and len(text) == 64 and not set(text.lower()) - set("0123456789abcdef"):
        return text.lower()
    return None
