"""Asks rattler: a stand-alone script, because the process of py-rattler sometimes crashes when it ends by itself.

One JSON request a line on stdin, one JSON answer a line on stdout:

{"do": "open", "channels": [URL], "subdirs": [..], "cache": "fetch" | "offline" | "refresh"}      -> {"opened": n}
{"do": "records", "names": [..]}                              -> {"records": [record]}
{"do": "solve", "specs": [..], "constraints": [..], "virtual": [[name, version, build]]}
                                        -> {"records": [record]}, {"refused": text} or {"unreadable": text}
{"do": "install", "prefix": .., "records": [record], "subdir": ..}     -> {"installed": n}

A failure is {"failed": text}, and {"nowhere": text} where a channel is not one. A record is that of repodata.json with
"url", "channel" and "fn" beside.
Only py-rattler is imported, nothing of gpuenv.
"""

from __future__ import annotations

import gc
import sys

# The start is most of a solve: no garbage to look for, and no TLS of Python's (rattler has its own; asyncio takes
# "no module ssl" for a Python without it), which together are a quarter of the imports.
gc.disable()
sys.modules["ssl"] = None  # type: ignore[assignment]

import asyncio  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
from typing import Any  # noqa: E402

ACTIONS = {"fetch": "cache-or-fetch", "offline": "force-cache-only", "refresh": "no-cache"}


def whole() -> Any:
    """py-rattler."""
    sys.modules.pop("rattler", None)
    import rattler  # type: ignore[import-not-found,unused-ignore]
    from rattler import exceptions

    rattler.exceptions = exceptions  # which Python does not do for what `for_solving` has imported
    return rattler


def for_solving() -> Any:
    """As much of py-rattler as a solve needs: what links, locks and indexes packages is a third of its import.

    Its modules stand for the package here, whose own __init__ is not run; where they are not as they were in the
    release that is asked for, it is the whole package. ImportError without it.
    """
    folders = [os.path.join(folder, "rattler") for folder in sys.path]
    package: Any = type(sys)("rattler")
    package.__path__ = [folder for folder in folders if os.path.isdir(folder)]
    sys.modules["rattler"] = package
    try:
        from rattler import exceptions
        from rattler.package import BuildString, PackageName
        from rattler.repo_data.gateway import Gateway, SourceConfig
        from rattler.solver.solver import solve
        from rattler.version import Version
        from rattler.virtual_package.generic import GenericVirtualPackage
    except ImportError:
        return whole()
    used = (BuildString, PackageName, Gateway, SourceConfig, solve, Version, GenericVirtualPackage)
    package.__dict__.update({one.__name__: one for one in used}, exceptions=exceptions)
    return package


class Session:
    """The channels that were opened, and their repodata as far as it was read."""

    def __init__(self) -> None:
        self.rattler: Any = for_solving()
        self.gateway: Any = None
        self.channels: list[str] = []
        self.subdirs: list[str] = []
        self.loop = asyncio.Runner()

    def open(self, request: dict[str, Any]) -> dict[str, Any]:
        """Where packages come from."""
        config = self.rattler.SourceConfig(cache_action=ACTIONS[request.get("cache", "fetch")])
        self.gateway = self.rattler.Gateway(default_config=config)
        self.channels, self.subdirs = request["channels"], request["subdirs"]
        return {"opened": len(self.channels)}

    async def records(self, request: dict[str, Any]) -> dict[str, Any]:
        """Every record of some names."""
        found = await self.gateway.query(
            self.channels, self.subdirs, request["names"], recursive=False, channel_relations="disabled"
        )
        groups = getattr(found, "records", found)
        return {"records": [plain(one) for group in groups for one in group]}

    async def solve(self, request: dict[str, Any]) -> dict[str, Any]:
        """The closure of some specs."""
        api = self.rattler
        virtual = [
            api.GenericVirtualPackage(api.PackageName(name), api.Version(version), api.BuildString(build))
            for name, version, build in request["virtual"]
        ]
        try:
            found = await api.solve(
                sources=self.channels,
                specs=request["specs"],
                constraints=request.get("constraints") or None,
                platforms=self.subdirs,
                gateway=self.gateway,
                virtual_packages=virtual,
                channel_relations="disabled",
            )
        except api.exceptions.SolverError as error:
            return {"refused": str(error)}
        except api.exceptions.InvalidMatchSpecError as error:
            return {"unreadable": str(error)}
        return {"records": [plain(one) for one in found]}

    async def install(self, request: dict[str, Any]) -> dict[str, Any]:
        """Links the packages of a list into a prefix, and takes out what the list does not have."""
        import glob

        self.rattler = api = whole()
        prefix = request["prefix"]
        for one in request["records"]:
            check_file(one)
        paths = sorted(glob.glob(os.path.join(glob.escape(prefix), "conda-meta", "*.json")))
        await api.install(
            records=[self.record(one) for one in request["records"]],
            target_prefix=prefix,
            installed_packages=[api.PrefixRecord.from_path(path) for path in paths],
            platform=api.Subdir(request["subdir"]),
            show_progress=False,
            execute_link_scripts=False,
        )
        return {"installed": len(request["records"])}

    def record(self, row: dict[str, Any]) -> Any:
        """A row of a lock as a record."""
        api = self.rattler
        package = api.PackageRecord(
            name=row["name"],
            version=row["version"],
            build=api.BuildString(row["build"]),
            build_number=int(row.get("build_number", 0)),
            subdir=row["subdir"],
            depends=list(row.get("depends", ())),
            sha256=bytes.fromhex(row["sha256"]),
        )
        return api.RepoDataRecord(package, row["fn"], row["url"], row.get("channel") or "")


def check_file(row: dict[str, Any]) -> None:
    """rattler compares the hashes of what it downloads, not those of a local channel. ValueError if they differ."""
    from hashlib import file_digest
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    parts = urlsplit(row["url"])
    if parts.scheme == "file":
        with open(url2pathname(parts.path), "rb") as file:
            have = file_digest(file, "sha256").hexdigest()
        if have != row["sha256"]:
            raise ValueError(f"hash mismatch of {row['fn']}: the lock says sha256 {row['sha256']}, the file has {have}")


def plain(record: Any) -> dict[str, Any]:
    """A record as data."""
    found: dict[str, Any] = {
        "name": record.name.source if hasattr(record.name, "source") else str(record.name),
        "version": str(record.version),
        "build": str(record.build),
        "build_number": record.build_number,
        "subdir": str(record.subdir),
        "depends": list(record.depends),
        "constrains": list(record.constrains),
        "url": str(record.url),
        "channel": str(record.channel or ""),
        "fn": record.file_name,
        "size": record.size,
    }
    for name in ("sha256", "md5"):
        value = getattr(record, name)
        found[name] = None if value is None else bytes(value).hex()
    return found


def answer(session: Session, request: dict[str, Any]) -> dict[str, Any]:
    """What one request asks for; what fails is told, and ends nothing."""
    try:
        if request["do"] == "open":
            return session.open(request)
        found: dict[str, Any] = session.loop.run(getattr(session, request["do"])(request))
        return found
    except Exception as error:
        text = str(error) if " " in str(error) else f"{type(error).__name__}: {error}"
        # rattler has a class for a URL that it cannot read, and none for a channel that is not there.
        nowhere = isinstance(error, session.rattler.exceptions.InvalidChannelError) or "could not find subdir" in text
        return {"nowhere" if nowhere else "failed": text}


def main() -> None:
    """Answers line by line until stdin ends."""
    try:
        session = Session()
    except ImportError as error:
        sys.stdout.write(json.dumps({"missing": str(error)}) + "\n")
        sys.stdout.flush()
        os._exit(0)
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(session, json.loads(line))) + "\n")
        sys.stdout.flush()
    os._exit(0)  # results are complete and flushed: the interpreter's own end is where py-rattler crashes


if __name__ == "__main__":
    main()
