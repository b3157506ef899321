"""Answers questions to rattler in a process of its own: py-rattler sometimes crashes at its exit.

Each line of stdin is a JSON request, each line of stdout its JSON answer:

{"do": "open", "channels": [URL], "subdirs": [..], "cache": "fetch" | "offline" | "refresh"}
    -> {"opened": number of channels}
{"do": "records", "names": [..]}
    -> {"records": [record]}
{"do": "solve", "specs": [..], "constraints": [..], "virtual": [[name, version, build]],
 "installed": prefix or ""}
    -> {"records": [record]}, {"refused": text} or {"unreadable": text}
{"do": "install", "prefix": .., "records": [record], "subdir": .., "remove": [..]}
    -> {"installed": number of packages}

A failure is {"failed": text}, or {"nowhere": text} where a channel is none. Without py-rattler the
first answer is {"missing": text}. A record is that of repodata.json, with "url", "channel" and
"fn". The script imports py-rattler and nothing of gpuenv. It ends
with its input, and when its parent ends, whose process id is its argument.
"""

from __future__ import annotations

import glob
import inspect
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, NoReturn

Request = dict[str, Any]
Answer = dict[str, Any]
Record = dict[str, Any]

CACHE_ACTIONS = {
    "fetch": "cache-or-fetch",
    "offline": "force-cache-only",
    "refresh": "no-cache",
}
# py-rattler's interface changes between releases: the first that works, and the first that may not.
FIRST_RELEASE, NEXT_RELEASE = (0, 26), (0, 29)
PARENT_SECONDS = 1.0  # between two looks at the parent process


class Session:
    """The channels that were opened, and their repodata as far as it was read."""

    def __init__(self) -> None:
        """Import py-rattler. ImportError without a release that works."""
        import asyncio

        import rattler  # type: ignore[import-not-found,unused-ignore]
        import rattler.exceptions  # type: ignore[import-not-found,unused-ignore]

        check_release(rattler.__version__)
        self.rattler: Any = rattler
        self.gateway: Any = None
        self.channels: list[str] = []
        self.subdirs: list[str] = []
        # Releases before 0.28 and 0.27 have other names, and channels without relations.
        self.build_string: Any = getattr(rattler, "BuildString", str)
        self.platform: Any = getattr(rattler, "Subdir", None) or rattler.Platform
        parameters = inspect.signature(rattler.Gateway.query).parameters
        self.relations = {}
        if "channel_relations" in parameters:
            self.relations["channel_relations"] = "disabled"
        self.runner = asyncio.Runner()
        self.actions = {
            "open": self.open,
            "records": self.records,
            "solve": self.solve,
            "install": self.install,
        }

    def answer(self, request: Request) -> Answer:
        """Return the answer to one request; a failure is an answer, too."""
        try:
            return self.runner.run(self.actions[request["do"]](request))
        except Exception as error:
            text = str(error)
            if " " not in text:
                text = f"{type(error).__name__}: {error}"
            # rattler has a class for a URL that it cannot read, and none for a missing channel.
            unreadable = isinstance(error, self.rattler.exceptions.InvalidChannelError)
            if unreadable or "could not find subdir" in text:
                return {"nowhere": text}
            return {"failed": text}

    async def open(self, request: Request) -> Answer:
        """Set the channels."""
        action = CACHE_ACTIONS[request.get("cache", "fetch")]
        config = self.rattler.SourceConfig(cache_action=action)
        self.gateway = self.rattler.Gateway(default_config=config)
        self.channels, self.subdirs = request["channels"], request["subdirs"]
        return {"opened": len(self.channels)}

    async def records(self, request: Request) -> Answer:
        """Return every record of some names."""
        result = await self.gateway.query(
            self.channels,
            self.subdirs,
            request["names"],
            recursive=False,
            **self.relations,
        )
        return {"records": [plain_record(record) for group in result for record in group]}

    async def solve(self, request: Request) -> Answer:
        """Return the closure of some specs."""
        rattler = self.rattler
        virtual = [
            rattler.GenericVirtualPackage(
                rattler.PackageName(name), rattler.Version(version), self.build_string(build)
            )
            for name, version, build in request["virtual"]
        ]
        try:
            records = await rattler.solve(
                sources=self.channels,
                specs=self.match_specs(request["specs"]),
                constraints=self.match_specs(request.get("constraints", ())) or None,
                platforms=self.subdirs,
                gateway=self.gateway,
                locked_packages=self.installed(request["installed"]) or None,
                virtual_packages=virtual,
                **self.relations,
            )
        except rattler.exceptions.SolverError as error:
            return {"refused": str(error)}
        except rattler.exceptions.InvalidMatchSpecError as error:
            return {"unreadable": str(error)}
        return {"records": [plain_record(record) for record in records]}

    def match_specs(self, texts: Sequence[str]) -> list[object]:
        """Return specs for rattler, which refuses a dot in the build string of a text."""
        return [self.rattler.MatchSpec(text) for text in texts]

    async def install(self, request: Request) -> Answer:
        """Link packages into a prefix, and remove those that the request names."""
        rattler, prefix, rows = self.rattler, request["prefix"], request["records"]
        installed = self.installed(prefix)
        changed = {*request["remove"], *(row["name"] for row in rows)}
        # rattler removes what is not among the records.
        kept = [record for record in installed if record.name.source not in changed]
        await rattler.install(
            records=[*kept, *(self.repodata_record(row) for row in rows)],
            target_prefix=prefix,
            installed_packages=installed,
            platform=self.platform(request["subdir"]),
            show_progress=False,
            execute_link_scripts=False,
        )
        for row in rows:
            complete_installed_record(prefix, row)
        return {"installed": len(rows)}

    def installed(self, prefix: str) -> list[Any]:
        """Return the packages of a prefix; [] for "", which is none."""
        if not prefix:
            return []
        pattern = os.path.join(glob.escape(prefix), "conda-meta", "*.json")
        return [self.rattler.PrefixRecord.from_path(path) for path in sorted(glob.glob(pattern))]

    def repodata_record(self, row: Record) -> object:
        """Return a row of a lock as a record of rattler."""
        rattler = self.rattler
        package = rattler.PackageRecord(
            name=row["name"],
            version=row["version"],
            build=self.build_string(row["build"]),
            build_number=int(row.get("build_number", 0)),
            subdir=row["subdir"],
            depends=list(row.get("depends", ())),
            sha256=bytes.fromhex(row["sha256"]),
        )
        return rattler.RepoDataRecord(package, row["fn"], row["url"], row.get("channel") or "")


def check_release(version: str) -> None:
    """Raise ImportError if this script does not work with a release of py-rattler."""
    release = tuple(map(int, version.split(".")[:2]))
    if not FIRST_RELEASE <= release < NEXT_RELEASE:
        first, following = (".".join(map(str, pair)) for pair in (FIRST_RELEASE, NEXT_RELEASE))
        raise ImportError(
            f"py-rattler {version} is installed, and gpuenv works with >={first},<{following}"
        )


def complete_installed_record(prefix: str, row: Record) -> None:
    """Add what the package says of itself to its record in conda-meta.

    A lock has no constraints, and an @EXPLICIT file has no dependencies. Later installations need
    both. The size and the md5 of the file are those of the lock.
    """
    stem = "-".join((row["name"], row["version"], row["build"]))
    path = os.path.join(prefix, "conda-meta", f"{stem}.json")
    with open(path, encoding="utf-8") as file:
        record = json.load(file)
    index_path = os.path.join(record.get("extracted_package_dir") or "", "info", "index.json")
    if not os.path.exists(index_path):
        return  # it was linked earlier, and the cache of packages was emptied since
    with open(index_path, encoding="utf-8") as file:
        index = json.load(file)
    if "depends" not in row:
        record["depends"] = index.get("depends") or []
    complete = {**{key: value for key, value in index.items() if value is not None}, **record}
    if not record.get("constrains"):
        complete["constrains"] = index.get("constrains") or []
    complete |= {key: row[key] for key in ("size", "md5") if row.get(key) is not None}
    temporary = f"{path}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(complete, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def plain_record(record: Any) -> Record:
    """Return a record of rattler as JSON-able data."""
    row = {
        "name": record.name.source,
        "version": str(record.version),
        "build": str(record.build),
        "build_number": record.build_number,
        "subdir": str(record.subdir),
        "depends": list(record.depends),
        "constrains": list(record.constrains),
        "url": str(record.url),
        # conda writes the folder of the platform, too, into the records of a prefix.
        "channel": str(record.channel or "").removesuffix(f"/{record.subdir}"),
        "fn": record.file_name,
        "size": record.size,
    }
    return row | {name: hash_of(record, name) for name in ("sha256", "md5")}


def hash_of(record: Any, name: str) -> str | None:
    """Return a hash of a record of rattler in hexadecimal."""
    value = getattr(record, name)
    return None if value is None else bytes(value).hex()


def end_with_parent(parent: int) -> None:
    """End this process when its parent has ended, even in the middle of a solve."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


def serve(parent: int) -> NoReturn:
    """Answer line by line until the requests or the parent process end; then end this process."""

    def write(answer: Answer) -> None:
        print(json.dumps(answer), flush=True)

    threading.Thread(target=end_with_parent, args=(parent,), daemon=True).start()
    # asyncio works without ssl, and rattler has a TLS of its own: that saves 5 % of a solve.
    sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]
    try:
        session = Session()
    except ImportError as error:
        write({"missing": str(error)})
        os._exit(0)
    for line in sys.stdin:
        write(session.answer(json.loads(line)))
    os._exit(0)  # the answers are complete: Python's own exit is where py-rattler crashes


if __name__ == "__main__":
    serve(int(sys.argv[1]))
