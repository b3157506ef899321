"""Build wheels from installed distributions, with the files that RECORD lists.

    python scripts/tools.py prove rewheel --dest wheels torch torchvision

For hosts without a network that hold the frameworks already: the wheels go into a folder for
`gpuenv solve --find-links`. The distributions named and everything that they require are taken from
the interpreter that runs this. Files are stored, not compressed: the wheels are read once. Scripts
outside the library folder are left out (entry points make them again), and so is bytecode.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import sys
import time
import zipfile
from argparse import Namespace
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LEFT_OUT = ("INSTALLER", "REQUESTED", "direct_url.json", "RECORD")


def closure(names: list[str]) -> dict[str, Distribution]:
    """Return the distributions and their requirements here, by normalized name.

    The extras that a requirement names are included.
    """
    distributions: dict[str, Distribution] = {}
    asked: set[tuple[str, str]] = set()
    queue = [Requirement(name) for name in names]
    while queue:
        requirement = queue.pop()
        name = canonicalize_name(requirement.name)
        try:
            dist = distributions.setdefault(name, distribution(name))
        except PackageNotFoundError:
            sys.exit(f"{name} is required but not installed")
        for extra in {"", *requirement.extras}:
            if (name, extra) in asked:
                continue
            asked.add((name, extra))
            for text in dist.requires or ():
                need = Requirement(text)
                environment = {**default_environment(), "extra": extra}
                if need.marker is None or need.marker.evaluate(environment):
                    queue.append(need)
    return distributions


def file_name(dist: Distribution) -> str:
    """Return name-version-tags.whl, with the tags of the WHEEL file."""
    tags = [
        line[5:].split("-")
        for line in (dist.read_text("WHEEL") or "").splitlines()
        if line.startswith("Tag: ")
    ]
    sets = [".".join(dict.fromkeys(tag[part] for tag in tags)) for part in range(3)]
    name = canonicalize_name(dist.metadata["Name"]).replace("-", "_")
    return f"{name}-{dist.version}-{'-'.join(sets)}.whl"


def digest(path: str) -> str:
    """Return the hash of a file as RECORD writes it."""
    with open(path, "rb") as file:
        value = hashlib.file_digest(file, "sha256").digest()
    return "sha256=" + base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def build(dist: Distribution, dest: str) -> str:
    """Write the wheel of one distribution and return its path."""
    path = os.path.join(dest, file_name(dist))
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    info = ""
    with zipfile.ZipFile(path + ".tmp", "w", zipfile.ZIP_STORED, strict_timestamps=False) as wheel:
        for entry in dist.files or ():
            name = entry.as_posix()
            own = (
                entry.parent.name.endswith(".dist-info") and len(entry.parts) == 2
            )  # not that of a vendored one
            if own and entry.name == "RECORD":
                info = name
            if name.startswith("..") or name.endswith(".pyc") or (own and entry.name in LEFT_OUT):
                continue
            source = os.fspath(entry.locate())
            wheel.write(source, name)
            # RECORD's own hash if it has one: verify compares with what the publisher wrote.
            known = f"{entry.hash.mode}={entry.hash.value}" if entry.hash else digest(source)
            rows.writerow((name, known, os.path.getsize(source)))
        if not info:
            sys.exit(f"{dist.metadata['Name']} has no RECORD")
        rows.writerow((info, "", ""))
        wheel.writestr(info, record.getvalue())
    os.replace(path + ".tmp", path)
    return path


ARGUMENTS = {
    "--dest": {"required": True},
    "name": {"nargs": "+"},
}


def main(arguments: Namespace) -> None:
    """Make the wheels and say how long it took."""
    os.makedirs(arguments.dest, exist_ok=True)
    start = time.perf_counter()
    paths = [build(dist, arguments.dest) for _, dist in sorted(closure(arguments.name).items())]
    size = sum(map(os.path.getsize, paths))
    print(f"{len(paths)} wheels, {size / 1e9:.2f} GB, {time.perf_counter() - start:.1f} s")
