"""Check a pylock.toml against the METADATA of its wheels, with packaging and without the solver.

    python scripts/tools.py prove lock LOCK --python 3.12 --metadata DIR REQUIREMENT ...

Every requirement whose marker holds must be met by a pin, every pin must be required, and every
wheel must fit the target (Linux, x86_64, glibc 2.35). METADATA is read by range requests and kept
in a folder by the sha256 of its wheel. The dependencies of a wheel that cannot be reached are those
of the lock, without their ranges; so are those of a source distribution.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
import zipfile
from argparse import Namespace
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from packaging.metadata import parse_email
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from common import ROOT
from gpuenv.errors import PackageIndexError
from gpuenv.index.http import Transport
from gpuenv.index.metadata import RemoteFile
from gpuenv.model import Wheel
from linux_markers import linux_markers

FRAMEWORKS = os.path.join(ROOT, "matrix_data", "frameworks")
GLIBC_MINORS = range(35, 4, -1)
LEGACY_PLATFORMS = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}  # by glibc 2.N
MICRO_VERSIONS = range(40)
THREADS = 16


class Release(NamedTuple):
    """A pin of a lock with the fields of its wheel's METADATA."""

    name: str
    version: Version
    filename: str
    requires: list[Requirement]
    requires_python: str
    is_read: bool = True  # False: there is no METADATA to read, `requires` is from the lock


def violations(lock: str, requirements: Sequence[str], python: str, metadata: str) -> list[str]:
    """Return what is wrong with a lock, one line each."""
    with open(lock, "rb") as file:
        document = tomllib.load(file)
    with ThreadPoolExecutor(THREADS) as pool:
        releases = list(pool.map(lambda row: read_release(row, metadata), document["packages"]))
    pins = {release.name: release for release in releases}
    roots = [Requirement(text) for text in requirements]
    roots = list(_with_frameworks(roots, document.get("tool", {}).get("gpuenv", {})))
    faults = list(_requirement_faults(roots, pins, python))
    for release in releases:
        faults += _target_faults(release, python)
    return list(dict.fromkeys(faults))


def versions(lock: str) -> dict[str, str]:
    """Return the version of each pin of a lock."""
    with open(lock, "rb") as file:
        packages = tomllib.load(file)["packages"]
    return {package["name"]: package["version"] for package in packages}


def read_release(package: dict[str, Any], folder: str) -> Release:
    """Return the release of a row of a lock, with its METADATA from the folder or the index."""
    name, version = canonicalize_name(package["name"]), Version(package["version"])
    requires = [Requirement(row["name"]) for row in package.get("dependencies", ())]
    if "wheels" not in package:
        return Release(name, version, "", requires, "", is_read=False)
    wheel = package["wheels"][0]
    path = os.path.join(folder, wheel["hashes"]["sha256"])
    if not os.path.exists(path):
        try:
            content = _read_metadata(wheel)
        except PackageIndexError:
            print(f"not reached: {wheel['name']}", file=sys.stderr)
            return Release(name, version, wheel["name"], requires, "", is_read=False)
        with open(path, "wb") as file:
            file.write(content)
    with open(path, "rb") as file:
        fields, _ = parse_email(file.read())
    # ">=1.9.*" of old metadata was always read as ">=1.9".
    texts = [
        re.sub(r"([<>]=?\s*[\d.]+)\.\*", r"\1", text) for text in fields.get("requires_dist", ())
    ]
    requires = [Requirement(text) for text in texts]
    return Release(name, version, wheel["name"], requires, fields.get("requires_python", ""))


def _read_metadata(wheel: dict[str, Any]) -> bytes:
    file = Wheel(name="", version="", filename=wheel["name"], url=wheel["url"], sha256=None)
    with Transport() as transport:
        remote = RemoteFile(transport, file)
        with zipfile.ZipFile(remote) as archive:  # type: ignore[arg-type]
            names = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
            return archive.read(min(names, key=len))


def _with_frameworks(roots: list[Requirement], plan: dict[str, Any]) -> Iterator[Requirement]:
    """Yield the requirements; those on a framework as its chosen variant is required."""
    variants: dict[str, list[str]] = {}
    for choice in plan.get("choices", ()):
        with open(os.path.join(FRAMEWORKS, f"{choice['framework']}.toml"), "rb") as file:
            framework = tomllib.load(file)
        for way in framework["way"]:
            if way["variant"] not in (choice["variant"], "*"):
                continue
            names = [framework["distribution"]] + [Requirement(x).name for x in way["requires"]]
            variants |= dict.fromkeys(names, way["requires"])
    for root in roots:
        texts = variants.get(canonicalize_name(root.name))
        if texts is None:
            yield root
            continue
        for text in texts:
            required = Requirement(text)
            required.specifier &= root.specifier
            required.marker = root.marker
            if required.name == root.name:
                required.extras |= root.extras
            yield required


def _requirement_faults(
    roots: Sequence[Requirement], pins: dict[str, Release], python: str
) -> Iterator[str]:
    waiting = [("the request", root) for root in roots if _holds(root, "", python)]
    reached: set[tuple[str, str]] = set()
    while waiting:
        parent, required = waiting.pop()
        name = canonicalize_name(required.name)
        pin = pins.get(name)
        if pin is None:
            yield f"{parent} needs {required}, which is not pinned"
            continue
        if not required.specifier.contains(pin.version, prereleases=True):
            yield f"{parent} needs {required}, pinned is {pin.version}"
        for extra in ("", *required.extras):
            if (name, extra) in reached:
                continue
            reached.add((name, extra))
            further = [
                requirement for requirement in pin.requires if _holds(requirement, extra, python)
            ]
            waiting += [(f"{pin.name} {pin.version}", requirement) for requirement in further]
    if not all(pin.is_read for pin in pins.values()):
        return  # the extras that such a wheel requires are not known
    for name in sorted(pins.keys() - {name for name, _ in reached}):
        yield f"nothing requires {name}"


def _holds(required: Requirement, extra: str, python: str) -> bool:
    if required.marker is None:
        return True
    return required.marker.evaluate({**linux_markers(f"{python}.0"), "extra": extra})


def _target_faults(release: Release, python: str) -> Iterator[str]:
    if not release.filename:
        return  # a source distribution
    name, version, _, tags = parse_wheel_filename(release.filename)
    if (name, version) != (release.name, release.version):
        yield f"{release.filename} is not a file of {release.name} {release.version}"
    if tags.isdisjoint(_target_tags(python)):
        yield f"{release.filename} does not fit the target"
    full_versions = [f"{python}.{micro}" for micro in MICRO_VERSIONS]
    accepted = SpecifierSet(release.requires_python).filter(full_versions)
    if not any(accepted):
        yield f"{release.name} {release.version} is for Python {release.requires_python}"


def _target_tags(python: str) -> set[Tag]:
    major, minor = map(int, python.split("."))
    platforms = []
    for glibc_minor in GLIBC_MINORS:
        platforms.append(f"manylinux_2_{glibc_minor}_x86_64")
        if glibc_minor in LEGACY_PLATFORMS:
            platforms.append(f"{LEGACY_PLATFORMS[glibc_minor]}_x86_64")
    platforms.append("linux_x86_64")
    tags = set(cpython_tags((major, minor), platforms=platforms))
    return tags | set(compatible_tags((major, minor), f"cp{major}{minor}", platforms))


ARGUMENTS = {
    "lock": {"metavar": "LOCK"},
    "requirements": {"metavar": "REQUIREMENT", "nargs": "+"},
    "--python": {"required": True, "metavar": "X.Y"},
    "--metadata": {"required": True, "metavar": "DIR", "help": "folder for METADATA"},
}


def main(arguments: Namespace) -> None:
    """Print the violations; 1 if there are any."""
    os.makedirs(arguments.metadata, exist_ok=True)
    faults = violations(
        arguments.lock, arguments.requirements, arguments.python, arguments.metadata
    )
    print("\n".join(faults) or "no violations")
    sys.exit(bool(faults))
