"""gpuenv.json in an environment of wheels: what `gpuenv sync` has installed there."""

from __future__ import annotations

import json
import os

from ..atomic_write import write_whole
from ..model import Value

FILE = "gpuenv.json"


class BuiltPackage(Value):
    """A package of a lock. `record` is the sha256 of its RECORD after the installation."""

    version: str
    sha256: str | None
    record: str


class Build(Value):
    """What `gpuenv sync` has installed.

    `token` names the transaction. `path` is that of the environment: its scripts have it. `made`
    is false for an environment that existed before gpuenv changed it. `time` is when the record was
    written, in nanoseconds by the clock of the file system: after all files of the packages. `lock`
    is the text of the lock that the environment holds; "" after a change without a lock.
    """

    token: str = ""
    path: str = ""
    made: bool = True
    time: int = 0
    lock: str = ""
    packages: dict[str, BuiltPackage]


def read_build(prefix: str) -> Build | None:
    """Return the record of an environment; None if it has none that can be read."""
    try:
        with open(os.path.join(prefix, FILE), encoding="utf-8") as file:
            fields = json.load(file)
            time = os.fstat(file.fileno()).st_mtime_ns
        rows = fields.get("packages", {})
        packages = {
            str(name): BuiltPackage(version=version, sha256=sha256, record=record)
            for name, (version, sha256, record) in rows.items()
        }
        return Build(
            token=str(fields.get("token", "")),
            path=str(fields.get("path", "")),
            made=bool(fields.get("made", True)),
            time=time,
            lock=str(fields.get("lock", "")),
            packages=packages,
        )
    except (OSError, ValueError, TypeError, AttributeError, KeyError):
        return None


def write_build(prefix: str, build: Build) -> None:
    """Write the record of an environment. One that was read keeps its time."""
    path = os.path.join(prefix, FILE)
    packages = {
        name: [package.version, package.sha256, package.record]
        for name, package in build.packages.items()
    }
    fields = {
        "made_by": "gpuenv",
        "token": build.token,
        "path": build.path,
        "made": build.made,
        "lock": build.lock,
        "packages": packages,
    }
    write_whole(path, json.dumps(fields).encode())
    if build.time:
        os.utime(path, ns=(build.time, build.time))
