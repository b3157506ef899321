"""Read the default index: its pages, and parts of remote wheels by range requests."""

from __future__ import annotations

import email.parser
import html.parser
import io
import json
import os
import threading
import urllib.parse
import zipfile
from functools import cache
from typing import Any

import requests
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from gpuenv.index.default_index import default_index
from gpuenv.model import Host, Python
from gpuenv.requirements.target import (
    FIRST_FREE_THREADED,
    PLATFORMS,
    PYTHONS,
    TargetEnvironment,
)

TAIL = 64 * 1024
# Requires-Python ">=3.12.1" refuses a wheel for "3.12.0": ask for a later micro release.
FIRST_MICRO = 10


@cache
def environments() -> tuple[TargetEnvironment, ...]:
    """Return every supported target: each interpreter, also free-threaded, on each platform."""
    targets = []
    for version in PYTHONS:
        for free_threaded in (False, True)[: 1 + (version >= FIRST_FREE_THREADED)]:
            for platform in PLATFORMS:
                os_name, _, machine = platform.partition("-")
                full = f"{version[0]}.{version[1]}.{FIRST_MICRO}"
                python = Python(version=version, free_threaded=free_threaded, full_version=full)
                windows = os_name == "win"
                host = Host(
                    os="windows" if windows else os_name,
                    machine="x86_64" if windows else machine,
                    python=python,
                )
                targets.append(TargetEnvironment(host))
    return tuple(targets)


def simple_url() -> str:
    """Return the configured default index, else pip's built-in one."""
    return default_index().url


def write(path: str, text: str) -> None:
    """Write a temporary file and rename it, so that readers and other writers see whole files."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    part = f"{path}.{os.getpid()}.part"
    with open(part, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
    os.replace(part, path)


class Page(html.parser.HTMLParser):
    """The anchors of a simple page: (href, attributes)."""

    def __init__(self, text: str) -> None:
        """Parse the whole page at once."""
        super().__init__()
        self.anchors: list[dict[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep anchors only."""
        if tag == "a":
            self.anchors.append(dict(attrs))


class RangeFile(io.RawIOBase):
    """A remote file that zipfile can read: a read requests a range of at least `TAIL` bytes."""

    def __init__(self, session: requests.Session, url: str) -> None:
        """Read the end of the file, which also gives its size."""
        self.session, self.url, self.at = session, url, 0
        reply = self._get(f"bytes=-{TAIL}")
        self.size = int(reply.headers["Content-Range"].rpartition("/")[2])
        self.start, self.block = self.size - len(reply.content), reply.content

    def _get(self, wanted: str) -> requests.Response:
        reply = self.session.get(
            self.url, headers={"Range": wanted, "Accept-Encoding": "identity"}, timeout=120
        )
        reply.raise_for_status()
        if reply.status_code != requests.codes.partial_content:
            raise RuntimeError(
                f"the file store ignores range requests: {os.path.basename(self.url)}"
            )
        return reply

    def seekable(self) -> bool:
        """Implement io.RawIOBase.seekable."""
        return True

    def readable(self) -> bool:
        """Implement io.RawIOBase.readable."""
        return True

    def tell(self) -> int:
        """Implement io.RawIOBase.tell."""
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Implement io.RawIOBase.seek."""
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def read(self, size: int = -1) -> bytes:
        """Implement io.RawIOBase.read."""
        end = self.size if size is None or size < 0 else min(self.size, self.at + size)
        if end <= self.at:
            return b""
        if not self.start <= self.at <= end <= self.start + len(self.block):
            self.start = self.at
            self.block = self._get(
                f"bytes={self.at}-{min(self.size, max(end, self.at + TAIL)) - 1}"
            ).content
        data = self.block[self.at - self.start : end - self.start]
        self.at = end
        return data


class Registry:
    """The default index: pages, and facts about files, remembered in the cache folder by sha256."""

    def __init__(self, simple_url: str, cache: str) -> None:
        """Open an index by its base URL. `cache` is a folder, which is made if it is missing."""
        self.simple_url, self.cache = simple_url.rstrip("/"), cache
        self.local = threading.local()
        os.makedirs(cache, exist_ok=True)

    @property
    def session(self) -> requests.Session:
        """Return the session of this thread."""
        if not hasattr(self.local, "session"):
            self.local.session = requests.Session()
        session: requests.Session = self.local.session
        return session

    def files(self, name: str) -> list[dict[str, Any]]:
        """Return the final releases' wheels that fit a supported target, in ascending order."""
        # A mirror may have kept the page of one package for weeks, beside fresh ones of others.
        fresh = {"Cache-Control": "no-cache"}
        reply = self.session.get(f"{self.simple_url}/{name}/", headers=fresh, timeout=120)
        reply.raise_for_status()
        wheels = [
            wheel
            for anchor in Page(reply.text).anchors
            if (wheel := read_anchor(anchor, reply.url))
        ]
        return sorted(wheels, key=lambda wheel: (Version(wheel["version"]), wheel["filename"]))

    def facts(self, wheel: dict[str, Any], with_metadata: bool) -> dict[str, Any]:
        """Return "size" and, with_metadata, "requires" (Requires-Dist) and "requires_python"."""
        path = os.path.join(self.cache, wheel["sha256"] + ".json")
        facts: dict[str, Any] = {}
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                facts = json.load(file)
        if "size" in facts and (not with_metadata or "requires" in facts):
            return facts
        if with_metadata:
            remote = RangeFile(self.session, wheel["url"])
            facts = {"size": remote.size, **read_metadata(remote)}
        else:
            reply = self.session.head(
                wheel["url"], headers={"Accept-Encoding": "identity"}, timeout=120
            )
            reply.raise_for_status()
            facts = {"size": int(reply.headers["Content-Length"])}
        write(path, json.dumps(facts))
        return facts


def read_anchor(anchor: dict[str, str | None], base: str) -> dict[str, Any] | None:
    """Return the facts of a wheel on a simple page; None if no supported target can install it."""
    url, _, fragment = urllib.parse.urljoin(base, anchor.get("href") or "").partition("#")
    filename = urllib.parse.unquote(url.rpartition("/")[2])
    algorithm, _, digest = fragment.partition("=")
    try:
        _, version, _, _ = parse_wheel_filename(filename)
    except (InvalidWheelFilename, InvalidVersion):
        return None
    if version.is_prerelease or algorithm != "sha256" or not supported(filename):
        return None
    return {
        "filename": filename,
        "version": str(version),
        "url": url,
        "location": os.path.dirname(urllib.parse.urlsplit(url).path).strip("/"),
        "sha256": digest,
        "requires_python": anchor.get("data-requires-python"),
        "yanked": (anchor["data-yanked"] or "") if "data-yanked" in anchor else None,
        "upload_time": anchor.get("data-upload-time"),
    }


def supported(filename: str) -> bool:
    """Return whether a wheel fits any supported target."""
    return any(environment.rank(filename) is not None for environment in environments())


def read_metadata(remote: RangeFile) -> dict[str, Any]:
    """Return Requires-Dist and Requires-Python of a remote wheel."""
    with zipfile.ZipFile(remote) as archive:
        (member,) = (
            n for n in archive.namelist() if n.count("/") == 1 and n.endswith(".dist-info/METADATA")
        )
        head = email.parser.HeaderParser().parsestr(archive.read(member).decode("utf-8", "replace"))
    return {
        "requires": head.get_all("Requires-Dist") or [],
        "requires_python": head.get("Requires-Python"),
    }
