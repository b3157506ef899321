"""Answers questions to rattler in a process of its own: py-rattler sometimes crashes at its exit.

Each line of stdin is a JSON request, each line of stdout its JSON answer:

{"do": "open", "channels": [URL], "subdirs": [..], "cache": "fetch" | "offline" | "refresh"}
    (no answer)
{"do": "records", "names": [..]}
    -> {"records": [record]}
{"do": "solve", "specs": [..], "constraints": [..], "virtual": [[name, version, build]],
 "installed": prefix or ""}
    -> {"records": [record]}
{"do": "install", "prefix": .., "records": [record], "subdir": .., "remove": [..]}
    -> {"installed": number of packages}

A failure is {"error": kind, "text": text}. The kinds are refused (there is no closure), unreadable
(a spec), nowhere (a channel is none), missing (py-rattler) and failed. A record is that of
repodata.json, with "url", "channel" and "fn". The script imports py-rattler and nothing of gpuenv.
It ends with its input, and when its parent ends, whose process id is its argument.
"""

from __future__ import annotations

import glob
import json
import os
import sys
import threading
import time
from typing import Any, NoReturn

Document = dict[str, Any]

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

        release = tuple(map(int, rattler.__version__.split(".")[:2]))
        if not FIRST_RELEASE <= release < NEXT_RELEASE:
            bounds = ">={}.{},<{}.{}".format(*FIRST_RELEASE, *NEXT_RELEASE)
            raise ImportError(
                f"py-rattler {rattler.__version__} is installed, and gpuenv works with {bounds}"
            )
        self.rattler: Any = rattler
        self.gateway: Any = None
        self.channels: list[str] = []
        self.subdirs: list[str] = []
        # Releases before 0.28 and 0.27 have other names.
        self.build_string: Any = getattr(rattler, "BuildString", str)
        self.platform: Any = getattr(rattler, "Subdir", None) or rattler.Platform
        self.runner = asyncio.Runner()

    def answer(self, request: Document) -> Document:
        """Return the answer to one request; a failure is an answer, too."""
        exceptions = self.rattler.exceptions
        try:
            return self.runner.run(getattr(self, request["do"])(request))
        except exceptions.SolverError as error:
            return {"error": "refused", "text": str(error)}
        except exceptions.InvalidMatchSpecError as error:
            return {"error": "unreadable", "text": str(error)}
        except Exception as error:
            text = str(error)
            if " " not in text:
                text = f"{type(error).__name__}: {error}"
            # rattler has a class for a URL that it cannot read, and none for a missing channel.
            unreadable = isinstance(error, exceptions.InvalidChannelError)
            is_nowhere = unreadable or "could not find subdir" in text
            return {"error": "nowhere" if is_nowhere else "failed", "text": text}

    def open(self, request: Document) -> None:
        """Set the channels."""
        config = self.rattler.SourceConfig(cache_action=CACHE_ACTIONS[request["cache"]])
        self.gateway = self.rattler.Gateway(default_config=config)
        self.channels, self.subdirs = request["channels"], request["subdirs"]

    async def records(self, request: Document) -> Document:
        """Return every record of some names."""
        result = await self.gateway.query(
            self.channels,
            self.subdirs,
            request["names"],
            recursive=False,
            channel_relations="disabled",
        )
        return {"records": [plain_record(record) for group in result for record in group]}

    async def solve(self, request: Document) -> Document:
        """Return the closure of some specs."""
        rattler = self.rattler
        virtual = [
            rattler.GenericVirtualPackage(
                rattler.PackageName(name), rattler.Version(version), self.build_string(build)
            )
            for name, version, build in request["virtual"]
        ]
        records = await rattler.solve(
            sources=self.channels,
            # A text that is no MatchSpec must not have a dot in its build string.
            specs=[rattler.MatchSpec(text) for text in request["specs"]],
            constraints=[rattler.MatchSpec(text) for text in request["constraints"]] or None,
            platforms=self.subdirs,
            gateway=self.gateway,
            locked_packages=self.installed(request["installed"]) or None,
            virtual_packages=virtual,
            channel_relations="disabled",
        )
        return {"records": [plain_record(record) for record in records]}

    async def install(self, request: Document) -> Document:
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

    def repodata_record(self, row: Document) -> object:
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


def complete_installed_record(prefix: str, row: Document) -> None:
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
    complete = {
        **{key: value for key, value in index.items() if value is not None},
        **record,
        **{key: row[key] for key in ("size", "md5") if row.get(key) is not None},
        "depends": row.get("depends", index.get("depends") or []),
        "constrains": record.get("constrains") or index.get("constrains") or [],
    }
    temporary = f"{path}.tmp"
    with open(temporary, "w", encoding="utf-8") as file:
        json.dump(complete, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def plain_record(record: Any) -> Document:
    """Return a record of rattler as JSON-able data."""
    hashes = {"sha256": record.sha256, "md5": record.md5}
    return {
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
        **{name: value and bytes(value).hex() for name, value in hashes.items()},
    }


def end_with_parent(parent: int) -> None:
    """End this process when its parent has ended, even in the middle of a solve."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    os._exit(1)


def serve(parent: int) -> NoReturn:
    """Answer line by line until the requests or the parent process end; then end this process."""

    def write(answer: Document) -> None:
        print(json.dumps(answer), flush=True)

    threading.Thread(target=end_with_parent, args=(parent,), daemon=True).start()
    # asyncio works without ssl, and rattler has a TLS of its own: that saves 5 % of a solve.
    sys.modules.setdefault("ssl", None)  # type: ignore[arg-type]
    try:
        session = Session()
    except ImportError as error:
        write({"error": "missing", "text": str(error)})
        os._exit(0)
    for line in sys.stdin:
        request = json.loads(line)
        if request["do"] == "open":
            session.open(request)
        else:
            write(session.answer(request))
    os._exit(0)  # the answers are complete: Python's own exit is where py-rattler crashes


if __name__ == "__main__":
    serve(int(sys.argv[1]))
