"""Reads what the binaries of a wheel say: device code, needed libraries, owned paths (a maintainers' tool).

    python scripts/scan_wheel.py SOURCE ... [--cache DIR] [--output FILE]

A SOURCE is the path or the URL of a wheel (a URL may end in #sha256=...), or the file name of a wheel on the default
index. Remote wheels are read by range: the directory at the end, then only the members that matter, each as a stream
(device_code.py), so that memory stays small however large the wheel is. A file store that ignores ranges is read
from beginning to end. What was read of each member is kept in the cache folder by its checksum and size: an
interrupted run goes on where it ended, and a library that several wheels share is read once.

The record: {"name", "version", "file", "sha256", "size", "requires_python", "requires", "texts", "owns",
"libraries"}; `texts` are the small files in which builds say what they were built with; `owns` has the folders that
the wheel installs into and the number of files in each, shared folders (nvidia/...) file by file; `libraries` is what
device_code.read_library says, libraries that say the same under one row.

Exit status: 0 done, 1 a wheel could not be read, 2 bad usage.
"""

from __future__ import annotations

import argparse
import email.parser
import fnmatch
import hashlib
import json
import os
import sys
import time
import urllib.parse
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import IO, Any

import requests
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from device_code import DamagedFileError, read_library
from registry import RangeFile, simple_url, write

CHUNK = 1 << 20
ATTEMPTS = 5
LOCAL_HEADER = 30
# Where frameworks say what they were built with.
TEXTS = (
    "torch/version.py", "*/python/platform/build_info.py", "*/capi/build_and_package_info.py", "cupy/.data/_wheel.json",
    "*/version.py",
)  # fmt: skip
LARGEST_TEXT = 64 * 1024


class Progress:
    """One line a wheel on a terminal, rewritten; elsewhere a line when a wheel is done."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.done, self.shown = name, total, 0, 0.0
        self.live = sys.stderr.isatty()

    def add(self, count: int) -> None:
        """`count` more bytes of the wheel were read."""
        self.done += count
        now = time.monotonic()
        if self.live and now - self.shown > 0.2:
            self.shown = now
            share = f"{self.done / 1e6:,.0f} of {self.total / 1e6:,.0f} MB"
            print(f"\r\033[K{self.name}: {share}", end="", file=sys.stderr, flush=True)

    def end(self, text: str) -> None:
        """The wheel is done."""
        print(("\r\033[K" if self.live else "") + f"{self.name}: {text}", file=sys.stderr, flush=True)


class RemoteWheel(RangeFile):
    """A wheel at a URL."""

    def stream(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from start to end; a broken connection is taken up where it broke."""
        failures = 0
        while start < end:
            try:
                headers = {"Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
                with self.session.get(self.url, headers=headers, timeout=120, stream=True) as reply:
                    reply.raise_for_status()
                    for chunk in reply.iter_content(CHUNK):
                        failures, start = 0, start + len(chunk)
                        yield chunk
            except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError):
                failures += 1
                if failures == ATTEMPTS:
                    raise
                time.sleep(2**failures)


class LocalWheel:
    """A wheel on disk, read as a remote one is."""

    def __init__(self, path: str) -> None:
        self.file: IO[bytes] = open(path, "rb")  # noqa: SIM115  it lives as long as the scan
        self.size = os.path.getsize(path)

    def stream(self, start: int, end: int) -> Iterator[bytes]:
        """The bytes from start to end."""
        self.file.seek(start)
        while start < end and (chunk := self.file.read(min(CHUNK, end - start))):
            start += len(chunk)
            yield chunk


def inflate(wheel: RemoteWheel | LocalWheel, member: zipfile.ZipInfo, progress: Progress) -> Iterator[bytes]:
    """A member's content. DamagedFileError if it is not what the wheel's directory says."""
    (head,) = [b"".join(wheel.stream(member.header_offset, member.header_offset + LOCAL_HEADER))]
    if head[:4] != b"PK\3\4":
        raise DamagedFileError("no member begins where the wheel's directory says")
    start = member.header_offset + LOCAL_HEADER + int.from_bytes(head[26:28], "little")
    start += int.from_bytes(head[28:30], "little")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DamagedFileError(f"it is compressed by method {member.compress_type}, which no wheel may use")
    engine = zlib.decompressobj(-zlib.MAX_WBITS) if member.compress_type == zipfile.ZIP_DEFLATED else None
    checksum = length = 0
    for chunk in wheel.stream(start, start + member.compress_size):
        progress.add(len(chunk))
        data = chunk
        while data:
            try:
                # Bounded, or a block of zeros would come out a thousand times as large.
                content = engine.decompress(data, 8 * CHUNK) if engine else data
            except zlib.error as error:
                raise DamagedFileError(f"it cannot be decompressed ({error})") from error
            checksum, length = zlib.crc32(content, checksum), length + len(content)
            yield content
            data = engine.unconsumed_tail if engine else b""
    if engine and (content := engine.flush()):
        checksum, length = zlib.crc32(content, checksum), length + len(content)
        yield content
    if checksum != member.CRC or length != member.file_size:
        raise DamagedFileError("its checksum is not the one in the wheel's directory")


def is_library(member: zipfile.ZipInfo) -> bool:
    """Whether a member's name says that it is a shared library of Linux."""
    name = member.filename.rpartition("/")[2]
    return (name.endswith(".so") or ".so." in name) and member.file_size > 0


def scan(wheel: RemoteWheel | LocalWheel, file: str, sha256: str, cache: str | None) -> dict[str, Any]:
    """The record of a wheel. DamagedFileError names the member and what is wrong with it."""
    try:
        with zipfile.ZipFile(wheel if isinstance(wheel, RemoteWheel) else wheel.file) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
    except (zipfile.BadZipFile, ValueError) as error:
        raise DamagedFileError(f"it is no wheel: {error}") from error
    progress = Progress(file, sum(member.compress_size for member in members if is_library(member)))
    started = time.monotonic()
    name, version, _, _ = parse_wheel_filename(file)
    texts = {
        member.filename: b"".join(inflate(wheel, member, progress)).decode("utf-8", "replace")
        for member in members
        if any(fnmatch.fnmatch(member.filename, pattern) for pattern in TEXTS) and member.file_size < LARGEST_TEXT
    }
    (metadata,) = [one for one in members if one.filename.count("/") == 1 and one.filename.endswith("-info/METADATA")]
    head = email.parser.HeaderParser().parsestr(b"".join(inflate(wheel, metadata, progress)).decode("utf-8", "replace"))
    libraries = [(one.filename, read_member(wheel, one, cache, progress)) for one in members if is_library(one)]
    progress.end(f"{len(libraries)} libraries, {progress.done / 1e6:,.0f} MB, {time.monotonic() - started:.1f} s")
    return {
        "name": canonicalize_name(name),
        "version": str(version),
        "file": file,
        "sha256": sha256,
        "size": wheel.size,
        "requires_python": head.get("Requires-Python"),
        "requires": head.get_all("Requires-Dist") or [],
        "texts": texts,
        "owns": owned([member.filename for member in members]),
        "libraries": grouped(libraries),
    }


def read_member(
    wheel: RemoteWheel | LocalWheel, member: zipfile.ZipInfo, cache: str | None, progress: Progress
) -> dict[str, Any]:
    """What one library says, from the cache if it is there."""
    kept = os.path.join(cache, "members", f"{member.CRC:08x}-{member.file_size}.json") if cache else None
    if kept and os.path.exists(kept):
        progress.add(member.compress_size)
        with open(kept, encoding="utf-8") as stored:
            found: dict[str, Any] = json.load(stored)
            return found
    try:
        found = read_library(inflate(wheel, member, progress), member.file_size)
    except DamagedFileError as error:
        raise DamagedFileError(f"{member.filename}: {error}") from error
    if kept:
        write(kept, json.dumps(found))
    return found


def owned(paths: Iterable[str]) -> dict[str, int]:
    """Folders (with a slash at the end) and files that a wheel installs, and how many files each stands for.

    A folder of the wheel's own is one row. Folders that several distributions install into (nvidia/...) are told file
    by file, headers folder by folder.
    """
    rows: Counter[str] = Counter()
    for path in paths:
        top, slash, _ = path.partition("/")
        if top.endswith((".dist-info", ".data")):
            continue
        if top == "nvidia":
            folder = path.rpartition("/")[0] + "/"
            rows[folder if "/include/" in folder or path.endswith((".h", ".hpp", ".py")) else path] += 1
        else:
            rows[top + slash] += 1
    return dict(sorted(rows.items()))


def grouped(libraries: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Libraries that say the same (but for their sonames) under one row, in the order of their paths."""
    rows: dict[str, dict[str, Any]] = {}
    for path, facts in sorted(libraries):
        soname = facts["soname"]
        # A soname that is the file's name says nothing new.
        shown = {**facts, "soname": "" if soname == path.rpartition("/")[2] else soname}
        row = rows.setdefault(json.dumps(shown), {"paths": [], **shown})
        row["paths"].append(path)
    return list(rows.values())


def open_source(source: str) -> tuple[RemoteWheel | LocalWheel, str, str]:
    """(wheel, file name, sha256) of a path, a URL or a file name on the default index; DamagedFileError for others."""
    file = urllib.parse.unquote(source.partition("#")[0].rpartition("/")[2])
    try:
        name, _, _, _ = parse_wheel_filename(file)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise DamagedFileError(f"{source}: {error}") from error
    if os.path.exists(source):
        digest = hashlib.sha256()
        local = LocalWheel(source)
        for chunk in local.stream(0, local.size):
            digest.update(chunk)
        return local, file, digest.hexdigest()
    session = requests.Session()
    url, _, fragment = source.partition("#")
    if "://" not in source:
        url, fragment = on_index(session, canonicalize_name(name), file)
    sha256 = fragment.removeprefix("sha256=")
    return RemoteWheel(session, url), file, sha256


def on_index(session: requests.Session, name: str, file: str) -> tuple[str, str]:
    """(URL, fragment) of a file on the default index."""
    from registry import Page

    reply = session.get(f"{simple_url().rstrip('/')}/{name}/", timeout=120)
    reply.raise_for_status()
    for anchor in Page(reply.text).anchors:
        url, _, fragment = urllib.parse.urljoin(reply.url, anchor.get("href") or "").partition("#")
        if urllib.parse.unquote(url.rpartition("/")[2]) == file:
            return url, fragment
    raise DamagedFileError(f"{file}: neither a file here nor on the default index")


def scan_source(source: str, cache: str | None) -> dict[str, Any]:
    """As `scan`, with the whole record from the cache where a scan of the same file is there."""
    wheel, file, sha256 = open_source(source)
    kept = os.path.join(cache, "wheels", sha256 + ".json") if cache and sha256 else None
    if kept and os.path.exists(kept):
        with open(kept, encoding="utf-8") as stored:
            record: dict[str, Any] = json.load(stored)
            return record
    try:
        record = scan(wheel, file, sha256, cache)
    except DamagedFileError as error:
        raise DamagedFileError(f"{file}: {error}") from error
    if kept:
        write(kept, json.dumps(record))
    return record


def main(arguments: list[str] | None = None) -> int:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    parser.add_argument("--cache", help="folder for what was read, so that an interrupted run goes on")
    parser.add_argument("--output", help="where the records go, one JSON document a line (default: stdout)")
    options = parser.parse_args(arguments)
    records, failed = [], 0
    for source in options.sources:
        try:
            records.append(json.dumps(scan_source(source, options.cache)))
        except (DamagedFileError, OSError) as error:  # requests' errors are OSErrors
            print(f"error: {error}", file=sys.stderr)
            failed = 1
    text = "".join(record + "\n" for record in records)
    if options.output:
        write(os.path.abspath(options.output), text)
    else:
        sys.stdout.write(text)
    return failed


if __name__ == "__main__":
    sys.exit(main())
