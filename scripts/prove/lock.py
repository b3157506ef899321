"""Check a pylock.toml against the METADATA of its wheels, with packaging and without the solver.

    python scripts/tools.py prove lock LOCK --python 3.12 --metadata DIR REQUIREMENT ...

Every requirement whose marker holds must be met by a pin, every pin must be required, and every
wheel must fit the target (Linux, x86_64, glibc 2.35). METADATA is read by range requests and kept
in a folder by the sha256 of its wheel. The dependencies of a wheel that cannot be reached are those
of the lock, without their ranges; so are those of a source distribution.
"""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from packaging.metadata import parse_email
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from common import read_toml
from gpuenv.errors import PackageIndexError
from gpuenv.index.http import Transport
from gpuenv.index.metadata import RemoteFile, read_wheel_metadata
from gpuenv.model import Wheel
from linux_markers import linux_markers

PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(5, 36)]
PLATFORMS += [
    f"{name}_x86_64" for name in ("manylinux2014", "manylinux2010", "manylinux1", "linux")
]
MICRO_VERSIONS = range(40)
THREADS = 16


class Release(NamedTuple):
    """A pin of a lock with the fields of its wheel's METADATA."""

    name: str
    version: Version
    filename: str  # "": a source distribution
    requires: list[Requirement]
    requires_python: str
    is_read: bool = True  # False: there is no METADATA to read, `requires` is from the lock


def violations(lock: str, requirements: Sequence[str], python: str, metadata: str) -> list[str]:
    """Return what is wrong with a lock, one line each."""
    document = read_toml(Path(lock).resolve())
    Path(metadata).mkdir(exist_ok=True)
    with ThreadPoolExecutor(THREADS) as pool:
        rows = document["packages"]
        releases = list(pool.map(lambda row: read_release(row, Path(metadata)), rows))
    roots = [Requirement(text) for text in requirements]
    choices = document.get("tool", {}).get("gpuenv", {}).get("choices", ())
    roots = [variant for root in roots for variant in variants_of(root, choices)]
    faults = [*requirement_faults(roots, releases, python), *target_faults(releases, python)]
    return list(dict.fromkeys(faults))


def read_release(package: dict[str, Any], folder: Path) -> Release:
    """Return the release of a row of a lock, with its METADATA from the folder or the index."""
    name, version = canonicalize_name(package["name"]), Version(package["version"])
    requires = [Requirement(row["name"]) for row in package.get("dependencies", ())]
    if "wheels" not in package:
        return Release(name, version, "", requires, "", is_read=False)
    wheel = package["wheels"][0]
    path = folder / wheel["hashes"]["sha256"]
    if not path.exists():
        file = Wheel(name="", version="", filename=wheel["name"], url=wheel["url"], sha256=None)
        try:
            with Transport() as transport:
                remote = RemoteFile(transport, file)
                path.write_bytes(read_wheel_metadata(remote, file.filename, "METADATA"))
        except PackageIndexError:
            print(f"not reached: {file.filename}", file=sys.stderr)
            return Release(name, version, file.filename, requires, "", is_read=False)
    fields, _ = parse_email(path.read_bytes())
    # ">=1.9.*" of old metadata was always read as ">=1.9".
    texts = [re.sub(r"([<>]=?\s*[\d.]+)\.\*", r"\1", t) for t in fields.get("requires_dist", ())]
    requires = [Requirement(text) for text in texts]
    return Release(name, version, wheel["name"], requires, fields.get("requires_python", ""))


def variants_of(root: Requirement, choices: Sequence[dict[str, Any]]) -> Iterator[Requirement]:
    """Yield a requirement; for one on a framework what its chosen variant requires."""
    for choice in choices:
        framework = read_toml(f"matrix_data/frameworks/{choice['framework']}.toml")
        for way in framework.get("way", ()):
            variant = [Requirement(text) for text in way["requires"]]
            names = {framework["distribution"], *(required.name for required in variant)}
            if way["variant"] in (choice["variant"], "*") and canonicalize_name(root.name) in names:
                for required in variant:
                    required.specifier &= root.specifier
                    required.marker = root.marker
                    if required.name == root.name:
                        required.extras |= root.extras
                    yield required
                return
    yield root


def requirement_faults(
    roots: Sequence[Requirement], releases: Sequence[Release], python: str
) -> Iterator[str]:
    """Yield the requirements that no pin meets, and the pins that nothing requires."""
    pins = {release.name: release for release in releases}
    waiting = [("the request", root, "") for root in roots]
    reached: set[tuple[str, str]] = set()
    while waiting:
        parent, required, of_extra = waiting.pop()
        variables = {**linux_markers(f"{python}.0"), "extra": of_extra}
        if required.marker is not None and not required.marker.evaluate(variables):
            continue
        pin = pins.get(canonicalize_name(required.name))
        if pin is None:
            yield f"{parent} needs {required}, which is not pinned"
            continue
        if not required.specifier.contains(pin.version, prereleases=True):
            yield f"{parent} needs {required}, pinned is {pin.version}"
        for extra in {"", *required.extras} - {e for name, e in reached if name == pin.name}:
            reached.add((pin.name, extra))
            waiting += [(f"{pin.name} {pin.version}", need, extra) for need in pin.requires]
    if all(pin.is_read for pin in releases):  # otherwise not all required extras are known
        for name in sorted(pins.keys() - {name for name, _ in reached}):
            yield f"nothing requires {name}"


def target_faults(releases: Sequence[Release], python: str) -> Iterator[str]:
    """Yield the wheels that are of another release than their pin, or do not fit the target."""
    major, minor = map(int, python.split("."))
    target = set(cpython_tags((major, minor), platforms=PLATFORMS))
    target |= set(compatible_tags((major, minor), f"cp{major}{minor}", PLATFORMS))
    versions = [f"{python}.{micro}" for micro in MICRO_VERSIONS]
    for release in releases:
        if not release.filename:
            continue
        name, version, _, tags = parse_wheel_filename(release.filename)
        if (name, version) != (release.name, release.version):
            yield f"{release.filename} is not a file of {release.name} {release.version}"
        if tags.isdisjoint(target):
            yield f"{release.filename} does not fit the target"
        if not any(SpecifierSet(release.requires_python).filter(versions)):
            yield f"{release.name} {release.version} is for Python {release.requires_python}"


ARGUMENTS = {
    "lock": {"metavar": "LOCK"},
    "requirements": {"metavar": "REQUIREMENT", "nargs": "+"},
    "--python": {"required": True, "metavar": "X.Y"},
    "--metadata": {"required": True, "metavar": "DIR", "help": "folder for METADATA"},
}


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Compare a lock with its requirements and its target. Return the record and the faults."""
    asked, python = arguments.requirements, arguments.python
    faults = violations(arguments.lock, asked, python, arguments.metadata)
    return {"lock": arguments.lock, "requirements": asked}, faults
