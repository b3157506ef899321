"""Builds the index snapshot: the dated copy of what the indexes say about torch's stack (a maintainers' tool).

    python scripts/build_snapshot.py --cache DIR [--facts DIR] [--date YYYY-MM-DD]
    python scripts/build_snapshot.py --compile-only

It asks the default index that pip is configured with for the pages of torch, torchvision, torchaudio and triton, walks
the closure of everything that their wheels can need on a supported interpreter and platform, reads each wheel's
METADATA and size by range requests, and writes one JSON file for each package under matrix_data/snapshot/default.
File locations are kept relative to the index's file store. With --facts, the builds of the PyTorch index are written
too (snapshot_pytorch.py). At last the compiled answers are made (snapshot_compile.py). What was read is kept in the
cache folder by the wheel's sha256, so an interrupted run goes on where it ended; the same input gives the same bytes.
"""

from __future__ import annotations

import argparse
import datetime
import email.parser
import html.parser
import io
import json
import os
import sys
import threading
import urllib.parse
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import requests
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "resolver"))

from gpuenv.environment import FIRST_FREE_THREADED, PLATFORMS, PYTHONS, TargetEnvironment  # noqa: E402
from gpuenv.model import Host, Python  # noqa: E402

SNAPSHOT = os.path.join(os.path.dirname(HERE), "matrix_data", "snapshot")
ROOTS = {"torch": ">=2.0", "torchvision": ">=0.15", "torchaudio": ">=2.0", "triton": ">=2.0"}
# Besides what is needed: all of cuDNN, because R3 and R4 choose among its releases, and the newest few of the others.
WHOLE = {"nvidia-cudnn-cu11": ">=8.5", "nvidia-cudnn-cu12": ">=8.5", "nvidia-cudnn-cu13": ">=8.5"}
NEWEST = 12
NEWEST_NVIDIA = 2
TAIL = 64 * 1024
FIRST_MICRO = 10  # a wheel for "3.12.0" may be refused by requires-python ">=3.12.1": take a later micro release


@cache
def environments() -> tuple[TargetEnvironment, ...]:
    """Every supported target: interpreters, free-threaded ones among them, on each platform."""
    found = []
    for version in PYTHONS:
        for free_threaded in (False, True)[: 1 + (version >= FIRST_FREE_THREADED)]:
            for platform in PLATFORMS:
                os_name, _, machine = platform.partition("-")
                full = f"{version[0]}.{version[1]}.{FIRST_MICRO}"
                python = Python(version=version, free_threaded=free_threaded, full_version=full)
                windows = os_name == "win"
                host = Host(
                    os="windows" if windows else os_name, machine="x86_64" if windows else machine, python=python
                )
                found.append(TargetEnvironment(host))
    return tuple(found)


# ---- reading the index ------------------------------------------------------------------------------------------


class Page(html.parser.HTMLParser):
    """The anchors of a simple page: (href, attributes)."""

    def __init__(self, text: str) -> None:
        """Parses the whole page at once."""
        super().__init__()
        self.anchors: list[dict[str, str | None]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keeps anchors only."""
        if tag == "a":
            self.anchors.append(dict(attrs))


class RangeFile(io.RawIOBase):
    """A remote file that zipfile can read: seeks are free, reads are range requests of at least `TAIL` bytes."""

    def __init__(self, session: requests.Session, url: str) -> None:
        """Reads the end of the file, which also tells its size."""
        self.session, self.url, self.at = session, url, 0
        reply = self._get(f"bytes=-{TAIL}")
        self.size = int(reply.headers["Content-Range"].rpartition("/")[2])
        self.start, self.block = self.size - len(reply.content), reply.content

    def _get(self, wanted: str) -> requests.Response:
        reply = self.session.get(self.url, headers={"Range": wanted, "Accept-Encoding": "identity"}, timeout=120)
        reply.raise_for_status()
        if reply.status_code != requests.codes.partial_content:
            raise RuntimeError(f"the file store ignores range requests: {os.path.basename(self.url)}")
        return reply

    def seekable(self) -> bool:
        """As io.RawIOBase has it."""
        return True

    def readable(self) -> bool:
        """As io.RawIOBase has it."""
        return True

    def tell(self) -> int:
        """As io.RawIOBase has it."""
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """As io.RawIOBase has it."""
        self.at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self.at, io.SEEK_END: self.size}[whence]
        return self.at

    def read(self, size: int = -1) -> bytes:
        """As io.RawIOBase has it."""
        end = self.size if size is None or size < 0 else min(self.size, self.at + size)
        if end <= self.at:
            return b""
        if not self.start <= self.at <= end <= self.start + len(self.block):
            self.start = self.at
            self.block = self._get(f"bytes={self.at}-{min(self.size, max(end, self.at + TAIL)) - 1}").content
        data = self.block[self.at - self.start : end - self.start]
        self.at = end
        return data


class Registry:
    """The default index: pages, and facts about files, remembered in the cache folder by sha256."""

    def __init__(self, simple_url: str, cache: str) -> None:
        """`simple_url` is the simple index's base; `cache` a folder, made if missing."""
        self.simple_url, self.cache = simple_url.rstrip("/"), cache
        self.local = threading.local()
        os.makedirs(cache, exist_ok=True)

    @property
    def session(self) -> requests.Session:
        """One for each thread."""
        if not hasattr(self.local, "session"):
            self.local.session = requests.Session()
        session: requests.Session = self.local.session
        return session

    def files(self, name: str) -> list[dict[str, Any]]:
        """The wheels of a page that fit a supported target, pre-releases aside, in ascending order."""
        reply = self.session.get(f"{self.simple_url}/{name}/", timeout=120)
        reply.raise_for_status()
        found = [wheel for anchor in Page(reply.text).anchors if (wheel := read_anchor(anchor, reply.url))]
        return sorted(found, key=lambda wheel: (Version(wheel["version"]), wheel["filename"]))

    def facts(self, wheel: dict[str, Any], with_metadata: bool) -> dict[str, Any]:
        """{"size", "requires" (Requires-Dist lines), "requires_python"}; the last two only with_metadata."""
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
            reply = self.session.head(wheel["url"], headers={"Accept-Encoding": "identity"}, timeout=120)
            reply.raise_for_status()
            facts = {"size": int(reply.headers["Content-Length"])}
        write(path, json.dumps(facts))
        return facts


def read_anchor(anchor: dict[str, str | None], base: str) -> dict[str, Any] | None:
    """What a simple page says about a wheel that some supported target can install; None for anything else."""
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
    """Whether a wheel fits any supported target."""
    return any(environment.rank(filename) is not None for environment in environments())


def read_metadata(remote: RangeFile) -> dict[str, Any]:
    """Requires-Dist and Requires-Python of a remote wheel."""
    with zipfile.ZipFile(remote) as archive:
        (member,) = (n for n in archive.namelist() if n.count("/") == 1 and n.endswith(".dist-info/METADATA"))
        head = email.parser.HeaderParser().parsestr(archive.read(member).decode("utf-8", "replace"))
    return {"requires": head.get_all("Requires-Dist") or [], "requires_python": head.get("Requires-Python")}


# ---- choosing releases ------------------------------------------------------------------------------------------


def normalized(text: str) -> str | None:
    """A Requires-Dist line as packaging writes it, with normalized names; None for a direct reference or nonsense."""
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    if requirement.url:
        return None
    extras = ",".join(sorted(canonicalize_name(extra) for extra in requirement.extras))
    marker = f"; {requirement.marker}" if requirement.marker else ""
    return canonicalize_name(requirement.name) + (f"[{extras}]" if extras else "") + f"{requirement.specifier}{marker}"


@cache
def possible(marker: str, extras: tuple[str, ...]) -> bool:
    """Whether a marker holds on any supported target."""
    return any(environment.marker(marker, extras) for environment in environments())


def group(wheel: dict[str, Any]) -> tuple[str, str, str]:
    """Wheels of one group are taken to have equal METADATA: a version's wheels for one platform.

    torch and its companions are read file by file, because theirs has differed between wheels of one version.
    """
    name, platform = canonicalize_name(wheel["filename"].split("-")[0]), wheel["filename"].rpartition("-")[2]
    if name in ROOTS:
        return name, wheel["version"], wheel["filename"]
    return name, wheel["version"], next((p for p in ("aarch64", "x86_64", "win_amd64") if p in platform), "any")


class Walk:
    """Finds the releases to keep, by walking from the roots until nothing new is needed."""

    def __init__(self, registry: Registry, also: Iterable[str]) -> None:
        """`also` are requirement texts that are needed as well (the PyTorch index's pins)."""
        self.registry = registry
        self.pages: dict[str, list[dict[str, Any]]] = {}
        self.kept: dict[str, set[str]] = defaultdict(set)
        self.wanted: dict[str, set[str]] = defaultdict(set)
        self.extras: dict[str, set[str]] = defaultdict(set)
        self.facts: dict[str, dict[str, Any]] = {}
        self.walked: set[tuple[str, tuple[str, ...]]] = set()
        for name, specifier in ROOTS.items():
            self.wanted[name].add(specifier)
        for text in also:
            self.want(Requirement(text))

    def want(self, requirement: Requirement) -> None:
        """Notes that releases of a package are needed."""
        name = canonicalize_name(requirement.name)
        self.wanted[name].add(str(requirement.specifier))
        self.extras[name].update(map(canonicalize_name, requirement.extras))

    def run(self) -> None:
        """Walks to the end."""
        before = None
        while before != (before := (len(self.wanted), sum(map(len, (*self.wanted.values(), *self.extras.values()))))):
            names = sorted(self.wanted)
            with ThreadPoolExecutor(8) as pool:
                new = [name for name in names if name not in self.pages]
                self.pages.update(zip(new, pool.map(self.registry.files, new), strict=True))
                for name in names:
                    self.kept[name] |= choose(name, self.pages[name], self.wanted[name])
                self.read([wheel for name in names for wheel in self.files(name)], pool)
            for name in names:
                self.follow(name)

    def read(self, wheels: list[dict[str, Any]], pool: ThreadPoolExecutor) -> None:
        """Puts size, Requires-Dist and Requires-Python into wheels; METADATA is read once for each group."""
        firsts = {group(wheel): wheel["sha256"] for wheel in reversed(wheels)}
        leading = set(firsts.values())
        todo = [wheel for wheel in wheels if wheel["sha256"] not in self.facts]
        print(f"{len(self.pages)} packages, {len(wheels)} files, {len(todo)} to read", flush=True)
        facts = pool.map(lambda wheel: self.registry.facts(wheel, wheel["sha256"] in leading), todo)
        self.facts.update(zip((wheel["sha256"] for wheel in todo), facts, strict=True))
        for wheel in wheels:
            first = self.facts[firsts[group(wheel)]]
            wheel["requires"] = first["requires"]
            wheel["requires_python"] = wheel["requires_python"] or first["requires_python"]
            wheel["size"] = self.facts[wheel["sha256"]]["size"]

    def files(self, name: str) -> Iterator[dict[str, Any]]:
        """The wheels of the kept releases."""
        return (wheel for wheel in self.pages[name] if wheel["version"] in self.kept[name])

    def follow(self, name: str) -> None:
        """Notes what the kept releases of a package need."""
        extras = tuple(sorted(self.extras[name]))
        for wheel in self.files(name):
            for text in filter(None, map(normalized, wheel["requires"])):
                if (text, extras) not in self.walked:
                    self.walked.add((text, extras))
                    requirement = Requirement(text)
                    if requirement.marker is None or possible(str(requirement.marker), extras):
                        self.want(requirement)


def choose(name: str, wheels: list[dict[str, Any]], specifiers: Iterable[str]) -> set[str]:
    """The releases to keep: for each specifier and supported target the newest that fits, and the newest few."""
    contains = environments()[0].contains
    if name in ROOTS or name in WHOLE:
        bound = ROOTS.get(name) or WHOLE[name]
        return {wheel["version"] for wheel in wheels if contains(bound, wheel["version"], False)}
    newest = sorted({wheel["version"] for wheel in wheels if wheel["yanked"] is None}, key=Version)
    kept = set(newest[-(NEWEST_NVIDIA if name.startswith(("nvidia-", "cuda-")) else NEWEST) :])
    fitting = [fitting_versions(wheels, environment) for environment in environments()]
    for specifier in {"", *specifiers}:
        exact = "==" in specifier or "~=" in specifier  # what is pinned may be yanked
        for versions in fitting:
            found = (v for v, yanked in versions if (exact or not yanked) and contains(specifier, v, False))
            kept.update(v for v in [next(found, None)] if v)
    return kept


def fitting_versions(wheels: list[dict[str, Any]], environment: TargetEnvironment) -> list[tuple[str, bool]]:
    """(version, yanked) of the wheels that fit a target, newest first."""
    return list(
        dict.fromkeys(
            (wheel["version"], wheel["yanked"] is not None)
            for wheel in reversed(wheels)
            if environment.rank(wheel["filename"]) is not None and environment.accepts_python(wheel["requires_python"])
        )
    )


# ---- writing ----------------------------------------------------------------------------------------------------


def write(path: str, text: str) -> None:
    """Writes beside and renames, so that an interrupted run leaves no half file."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".part", "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
    os.replace(path + ".part", path)


def dump_package(head: dict[str, Any], wheels: list[dict[str, Any]]) -> str:
    """One package as JSON. The reader (gpuenv.index.snapshot) relies on the lines: one file, one metadata a line.

    `wheels` are ascending; a wheel has the fields of `read_anchor`, "requires" and "size".
    """
    versions = list(dict.fromkeys(wheel["version"] for wheel in wheels))
    pythons = sorted({wheel["requires_python"] for wheel in wheels if wheel["requires_python"]})
    metadata: dict[str, int] = {}
    rows = []
    for wheel in wheels:
        requires = line(list(dict.fromkeys(filter(None, map(normalized, wheel["requires"])))))
        python = pythons.index(wheel["requires_python"]) if wheel["requires_python"] else None
        number = metadata.setdefault(requires, len(metadata))
        row = [versions.index(wheel["version"]), *(wheel[key] for key in ("filename", "location", "sha256", "size"))]
        rows.append(line([*row, python, wheel["yanked"], wheel["upload_time"], number]))
    fields = [f"{line(key)}:{line(value)}" for key, value in {**head, "versions": versions}.items()]
    fields.append(f'"requires_python":{line(pythons)}')
    fields.append('"metadata":[\n' + ",\n".join(metadata) + "\n]")
    fields.append('"files":[\n' + ",\n".join(rows) + "\n]")
    return "{\n" + ",\n".join(fields) + "\n}\n"


def line(value: Any) -> str:
    """JSON without spaces, ASCII only."""
    return json.dumps(value, separators=(",", ":"))


def clear(folder: str) -> None:
    """Removes the package files of an earlier run."""
    for name in os.listdir(folder) if os.path.isdir(folder) else ():
        if name.endswith(".json"):
            os.remove(os.path.join(folder, name))


def simple_url() -> str:
    """The configured default index, else pip's built-in one."""
    from pip._internal.configuration import Configuration
    from pip._internal.models.index import PyPI

    configuration = Configuration(isolated=False)
    configuration.load()
    configured = dict(configuration.items()).get("global.index-url")
    return str(configured or PyPI.simple_url)


def build(arguments: argparse.Namespace, compile_all: Callable[[str, str], None]) -> None:
    """The whole run but --compile-only."""
    import snapshot_pytorch

    pytorch = snapshot_pytorch.Facts(arguments.facts) if arguments.facts else None
    walk = Walk(Registry(simple_url(), arguments.cache), pytorch.pins() if pytorch else ())
    walk.run()
    folder = os.path.join(SNAPSHOT, "default")
    clear(folder)
    for name in sorted(walk.pages):
        wheels = list(walk.files(name))
        if wheels:
            write(os.path.join(folder, name + ".json"), dump_package({"name": name, "index": "default"}, wheels))
        else:
            print(f"no wheel of {name} serves a supported target", file=sys.stderr)
    if pytorch:
        folder = os.path.join(SNAPSHOT, "pytorch")
        clear(folder)
        for name in snapshot_pytorch.PACKAGES:
            head, wheels = pytorch.package(name, list(walk.files(name)))
            write(os.path.join(folder, name + ".json"), dump_package(head, wheels))
    compile_all(SNAPSHOT, arguments.date)


def main() -> None:
    """Reads the command line."""
    import snapshot_compile

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cache", default=".snapshot-cache", help="folder for what was read from wheels")
    parser.add_argument("--facts", help="folder with variant_pins.json and pytorch_index_wheels.tsv")
    parser.add_argument("--date", help="the snapshot's date (default: today; with --compile-only: as it is)")
    parser.add_argument("--compile-only", action="store_true", help="only remake the compiled answers and index.json")
    arguments = parser.parse_args()
    if arguments.compile_only:
        snapshot_compile.compile_all(SNAPSHOT, arguments.date)
        return
    arguments.date = arguments.date or datetime.datetime.now(datetime.UTC).date().isoformat()
    build(arguments, snapshot_compile.compile_all)


if __name__ == "__main__":
    main()
