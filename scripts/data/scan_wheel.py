"""Read the facts of a wheel's binaries: device code, needed libraries, owned paths.

    python scripts/tools.py data scan-wheel SOURCE ... [--cache DIR] [--output FILE]

A SOURCE is the path of a wheel, its URL with #sha256=... at the end, or its file name on the
default index. Remote wheels are read by range: the directory at the end, then only the members that
matter, each as a stream (device_code.py), so that memory stays small however large the wheel is. A
file store that ignores ranges is read from beginning to end into a temporary file. What was read of
each member is kept in the cache folder by its checksum and size: an interrupted run goes on where
it ended, and a library that several wheels share is read once.

The sha256 in the record is that of the file for a path; for a URL it is the one that the URL or the
index tells, which nobody can check who reads parts only. What is read is checked against the
checksums in the wheel's directory.

The record: {"name", "version", "file", "sha256", "size", "requires_python", "requires", "texts",
"owns", "libraries"}; `texts` are the small files in which builds say what they were built with;
`owns` has the folders that the wheel installs into and the number of files in each, shared folders
(nvidia/...) file by file; `libraries` is what device_code.read_library says, libraries that say the
same under one row.

Exit status: 0 done, 1 a wheel could not be read, 2 bad usage.
"""

from __future__ import annotations

import argparse
import email.parser
import fnmatch
import json
import os
import re
import struct
import sys
import time
import urllib.parse
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import requests
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion

from data.device_code import DamagedFileError, read_kernel, read_library
from data.registry import simple_url, write
from data.wheel_source import CHUNK, LocalWheel, RangesIgnoredError, RemoteWheel, download

LOCAL_HEADER = 30
INSTALLED_DATA = re.compile(r"^[^/]+\.data/(purelib|platlib)/")
LIBRARY = re.compile(r"[^/]\.(so(\.\d[\w.]*)?|dll|pyd)$")
# Where frameworks say what they were built with.
TEXTS = (
    "torch/version.py", "*/python/platform/build_info.py", "*/capi/build_and_package_info.py",
    "cupy/.data/_wheel.json",
    "*/version.py",
)  # fmt: skip
LARGEST_TEXT = 64 * 1024
KERNELS = (".cubin", ".fatbin")
# A wheel with more kernels is downloaded, because a request for each kernel takes longer.
MANY = 100


class Progress:
    """One line a wheel on a terminal, rewritten; elsewhere a line when a wheel is done."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.done, self.shown = name, total, 0, 0.0
        self.live = sys.stderr.isatty()

    def add(self, count: int) -> None:
        """Record that `count` more bytes of the wheel were read."""
        self.done += count
        now = time.monotonic()
        if self.live and now - self.shown > 0.2:
            self.shown = now
            share = f"{self.done / 1e6:,.0f} of {self.total / 1e6:,.0f} MB"
            print(f"\r\033[K{self.name}: {share}", end="", file=sys.stderr, flush=True)

    def end(self, text: str) -> None:
        """Print the last line of the wheel."""
        print(
            ("\r\033[K" if self.live else "") + f"{self.name}: {text}", file=sys.stderr, flush=True
        )


class UsageError(ValueError):
    """A source that can be none; the text says what and why."""


@contextmanager
def named(name: str) -> Iterator[None]:
    """Add the name of a member to the message if it is damaged."""
    try:
        yield
    except DamagedFileError as error:
        shown = "".join(character if character.isprintable() else "?" for character in name)
        raise DamagedFileError(f"{shown}: {error}") from error


def inflate(
    wheel: RemoteWheel | LocalWheel, member: zipfile.ZipInfo, progress: Progress | None = None
) -> Iterator[bytes]:
    """Yield a member's content. DamagedFileError if it is not what the wheel's directory says."""
    if not 0 <= member.header_offset <= wheel.size - LOCAL_HEADER - member.compress_size:
        raise DamagedFileError("it stands outside the wheel by the wheel's directory")
    head = b"".join(wheel.stream(member.header_offset, member.header_offset + LOCAL_HEADER))
    if head[:4] != b"PK\3\4":
        raise DamagedFileError("no member begins where the wheel's directory says")
    start = member.header_offset + LOCAL_HEADER + int.from_bytes(head[26:28], "little")
    start += int.from_bytes(head[28:30], "little")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise DamagedFileError(
            f"it is compressed by method {member.compress_type}, which no wheel may use"
        )
    engine = (
        zlib.decompressobj(-zlib.MAX_WBITS)
        if member.compress_type == zipfile.ZIP_DEFLATED
        else None
    )
    checksum = length = 0
    for chunk in wheel.stream(start, start + member.compress_size):
        if progress:
            progress.add(len(chunk))
        data = chunk
        while data:
            try:
                # Bounded, or a block of zeros would come out a thousand times as large.
                content = engine.decompress(data, 8 * CHUNK) if engine else data
            except zlib.error as error:
                raise DamagedFileError(f"it cannot be decompressed ({error})") from error
            checksum, length = zlib.crc32(content, checksum), length + len(content)
            if length > member.file_size:
                raise DamagedFileError(
                    f"it has more than the {member.file_size} bytes of the wheel's directory"
                )
            yield content
            data = engine.unconsumed_tail if engine else b""
    if engine and (content := engine.flush()):
        checksum, length = zlib.crc32(content, checksum), length + len(content)
        yield content
    if length != member.file_size:
        raise DamagedFileError(
            f"it has {length} of the {member.file_size} bytes of the wheel's directory"
        )
    if checksum != member.CRC:
        raise DamagedFileError("its checksum is not the one in the wheel's directory")


def is_library(member: zipfile.ZipInfo) -> bool:
    """Return whether a member is, by its name, a shared library of Linux or Windows."""
    return LIBRARY.search(member.filename) is not None and member.file_size > 0


def directory(wheel: RemoteWheel | LocalWheel) -> list[zipfile.ZipInfo]:
    """Return the files of a wheel."""
    try:
        with zipfile.ZipFile(wheel if isinstance(wheel, RemoteWheel) else wheel.file) as archive:
            return [member for member in archive.infolist() if not member.filename.endswith("/")]
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, struct.error) as error:
        raise DamagedFileError(f"it is no complete wheel ({error})") from error


def scan(
    wheel: RemoteWheel | LocalWheel, file: str, sha256: str, cache: str | None
) -> dict[str, Any]:
    """Return the record of a wheel. DamagedFileError names the member and what is wrong with it."""
    members = directory(wheel)
    kernels = [member for member in members if member.filename.endswith(KERNELS)]
    if len(kernels) > MANY and isinstance(wheel, RemoteWheel):
        with closing(download(wheel.session, wheel.url, sha256)) as whole:
            return scan(whole, file, sha256, cache)
    progress = Progress(file, sum(member.compress_size for member in members if is_library(member)))
    started = time.monotonic()
    name, version, _, _ = parse_wheel_filename(file)
    texts = {
        member.filename: read_text(wheel, member)
        for member in members
        if any(fnmatch.fnmatchcase(member.filename, pattern) for pattern in TEXTS)
        and member.file_size < LARGEST_TEXT
    }
    metadata = [
        member for member in members if re.fullmatch(r"[^/]+\.dist-info/METADATA", member.filename)
    ]
    if len(metadata) != 1:
        raise DamagedFileError(f"it has {len(metadata)} files *.dist-info/METADATA")
    head = email.parser.HeaderParser().parsestr(read_text(wheel, metadata[0]))
    libraries = [
        (member.filename, read_member(wheel, member, cache, progress))
        for member in members
        if is_library(member)
    ]
    progress.end(
        f"{len(libraries)} libraries, {progress.done / 1e6:,.0f} MB, "
        f"{time.monotonic() - started:.1f} s"
    )
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
        "libraries": grouped(libraries) + counted(wheel, kernels),
    }


def counted(
    wheel: RemoteWheel | LocalWheel, kernels: list[zipfile.ZipInfo]
) -> list[dict[str, Any]]:
    """Return one row for the cubins and fat binaries of each top-level folder."""
    rows: dict[str, dict[str, Any]] = {}
    for member in kernels:
        path = f"{member.filename.partition('/')[0]}/*{os.path.splitext(member.filename)[1]}"
        row = rows.setdefault(path, {"paths": [path], "needs": [], "opens": [], "binaries": 0})
        sass, ptx = row.setdefault("sass", Counter()), row.setdefault("ptx", Counter())
        with named(member.filename):
            images = read_kernel(inflate(wheel, member), member.file_size)
        row["binaries"] += images.binaries
        sass.update(dict(images.sass))
        ptx.update({image[:2]: image[2] for image in images.ptx})
    for row in rows.values():
        row["sass"] = dict(sorted(row["sass"].items(), key=lambda pair: (len(pair[0]), pair[0])))
        row["ptx"] = [[*image, count] for image, count in sorted(row["ptx"].items())]
    return list(rows.values())


def read_text(wheel: RemoteWheel | LocalWheel, member: zipfile.ZipInfo) -> str:
    """Return a small text of a wheel."""
    with named(member.filename):
        return b"".join(inflate(wheel, member)).decode("utf-8", "replace")


def read_member(
    wheel: RemoteWheel | LocalWheel, member: zipfile.ZipInfo, cache: str | None, progress: Progress
) -> dict[str, Any]:
    """Return the facts of one library, from the cache if it has them."""
    kept = (
        os.path.join(cache, "members", f"{member.CRC:08x}-{member.file_size}.json")
        if cache
        else None
    )
    facts = read_kept(kept)
    if facts is not None:
        progress.add(member.compress_size)
        return facts
    with named(member.filename):
        content = inflate(wheel, member, progress)
        try:
            facts = read_library(content, member.file_size)
        except DamagedFileError:
            for _ in content:  # a wrong checksum of the member says more than what follows from it
                pass
            raise
    if kept:
        write(kept, json.dumps(facts))
    return facts


def read_kept(path: str | None) -> dict[str, Any] | None:
    """Return a document of the cache; None where there is none that can be read."""
    if not path:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            document: dict[str, Any] = json.load(file)
            return document
    except (FileNotFoundError, ValueError):
        return None


def owned(paths: Iterable[str]) -> dict[str, int]:
    """Return {folder (with a slash at the end) or file of a wheel: how many files it stands for}.

    A folder of the wheel's own is one row. Folders that several distributions install into
    (nvidia/...) are told file by file, headers folder by folder.
    """
    rows: Counter[str] = Counter()
    for path in (INSTALLED_DATA.sub("", path) for path in paths):
        top, slash, _ = path.partition("/")
        if top.endswith((".dist-info", ".data")):
            continue
        if top == "nvidia":
            folder = path.rpartition("/")[0] + "/"
            rows[
                folder if "/include/" in folder or path.endswith((".h", ".hpp", ".py")) else path
            ] += 1
        else:
            rows[top + slash] += 1
    return dict(sorted(rows.items()))


def grouped(libraries: list[tuple[str, dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return one row for all libraries with equal facts (but for their sonames), sorted by path."""
    rows: dict[str, dict[str, Any]] = {}
    for path, facts in sorted(libraries, key=lambda library: library[0]):
        soname = facts["soname"]
        # A soname that is the file's name says nothing new.
        shown = {**facts, "soname": "" if soname == path.rpartition("/")[2] else soname}
        row = rows.setdefault(json.dumps(shown), {"paths": [], **shown})
        row["paths"].append(path)
    return list(rows.values())


def read_source(source: str) -> tuple[str, str, str]:
    """Return (file name, URL, sha256) of a source.

    The last two are "" for a path or a file name. UsageError if the text is not a source.
    """
    url, _, fragment = source.partition("#")
    remote = "://" in source
    file = urllib.parse.unquote(urllib.parse.urlsplit(url).path) if remote else source
    file = file.rpartition("/")[2]
    try:
        parse_wheel_filename(file)
    except (InvalidWheelFilename, InvalidVersion) as error:
        raise UsageError(f"{source}: {error}") from error
    sha256 = re.fullmatch(r"sha256=([0-9a-f]{64})", fragment)
    if remote and not sha256:
        raise UsageError(
            f"{source}: a URL must end in #sha256= and the 64 hexadecimal digits of the file"
        )
    return (file, url, sha256[1]) if remote and sha256 else (file, "", "")


def open_source(source: str) -> tuple[RemoteWheel | LocalWheel, str, str]:
    """Return (wheel, file name, sha256) of a source. DamagedFileError if there is no such wheel."""
    file, url, sha256 = read_source(source)
    if not url and (os.path.exists(source) or "/" in source):
        local = LocalWheel(open(source, "rb"))  # noqa: SIM115  - it lives as long as the scan
        return local, file, local.sha256()
    session = requests.Session()
    try:
        if not url:
            url, sha256 = on_index(session, canonicalize_name(parse_wheel_filename(file)[0]), file)
        return RemoteWheel(session, url), file, sha256
    except RangesIgnoredError:
        with session:
            return download(session, url, sha256), file, sha256
    except BaseException:
        session.close()
        raise


def on_index(session: requests.Session, name: str, file: str) -> tuple[str, str]:
    """Return (URL, sha256) of a file on the default index."""
    from data.registry import Page

    reply = session.get(f"{simple_url().rstrip('/')}/{name}/", timeout=120)
    reply.raise_for_status()
    for anchor in Page(reply.text).anchors:
        url, _, fragment = urllib.parse.urljoin(reply.url, anchor.get("href") or "").partition("#")
        if urllib.parse.unquote(url.rpartition("/")[2]) == file and fragment.startswith("sha256="):
            return url, fragment.removeprefix("sha256=")
    raise DamagedFileError("it is neither a file here nor on the default index")


def scan_source(source: str, cache: str | None) -> dict[str, Any]:
    """Return what `scan` returns, from the cache if it has a scan of the same file.

    UsageError for what can be no source. DamagedFileError and OSError (requests' errors are some)
    do not name the wheel: who asks for it knows it.
    """
    wheel, file, sha256 = open_source(source)
    with closing(wheel):
        kept = os.path.join(cache, "wheels", sha256 + ".json") if cache else None
        record = read_kept(kept)
        if record is not None:
            return record
        record = scan(wheel, file, sha256, cache)
        if kept:
            write(kept, json.dumps(record))
        return record


def main(words: list[str]) -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    parser.add_argument(
        "--cache", help="folder for what was read, so that an interrupted run goes on"
    )
    parser.add_argument(
        "--output", help="where the records go, one JSON document a line (default: stdout)"
    )
    options = parser.parse_args(words)
    records, failed = [], 0
    try:
        files = [read_source(source)[0] for source in options.sources]
    except UsageError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for file, source in zip(files, options.sources, strict=True):
        try:
            records.append(json.dumps(scan_source(source, options.cache)))
        except (DamagedFileError, OSError) as error:
            print(f"error: {file}: {error}", file=sys.stderr)
            failed = 1
    text = "".join(record + "\n" for record in records)
    if options.output:
        write(os.path.abspath(options.output), text)
    else:
        sys.stdout.write(text)
    return failed
