"""Locks of conda environments that other tools wrote: conda-lock.yml and pixi.lock.

They hold conda packages and wheels, of several platforms. What is read is one platform: that of
this machine, or the only one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from sysconfig import get_platform
from typing import Any
from urllib.parse import unquote

from ..errors import InputError
from ..index.urls import path_to_file_url
from ..model import Host, Lock, Needs, Pin, Python, Wheel, major_minor
from ..requirements.versions import normalize_name
from ..resolve.conda.virtual_packages import SUBDIRS
from . import grammar

Document = Mapping[str, Any]

PIXI = "pixi.lock"
_KEYS = {
    PIXI: ("version", "environments", "packages"),
    "conda-lock.yml": ("version", "metadata", "package"),
}
_PIXI_VERSIONS = (4, 5, 6, 7)


def kind_of(text: str) -> str:
    """Return the kind of lock whose keys a text has: pixi.lock, conda-lock.yml, "" for none."""
    for kind, keys in _KEYS.items():
        if all(re.search(rf"^{key}:", text, re.MULTILINE) for key in keys):
            return kind
    return ""


def chosen_subdir(subdirs: Sequence[str], path: str) -> str:
    """Return the platform of a lock that is read; InputError if this machine's is not there."""
    platform = get_platform()
    this_subdir = SUBDIRS.get(platform, platform)
    if this_subdir in subdirs:
        return this_subdir
    if len(subdirs) == 1:
        return subdirs[0]
    raise InputError(f"{path}: is for {', '.join(subdirs) or 'no platform'}, not for {this_subdir}")


def without_needs(pins: tuple[Pin, ...], wheels: Sequence[Wheel] = ()) -> Lock:
    """Return the lock of files of which nothing else is known, with wheels beside them."""
    python = next((pin.wheel.version for pin in pins if pin.wheel.name == "python"), "")
    version = major_minor(python) or (0, 0)
    host = Host(python=Python(version=version))
    lock = Lock(pins=pins, needs=Needs(), choices=(), host=host, frameworks=())
    if not wheels:
        return lock
    lock = lock.replace(needs=Needs(python=version))
    beside = tuple(Pin(wheel=wheel) for wheel in wheels)
    return lock.replace(wheels=lock.replace(pins=beside))


def wheel(name: str, version: str, url: str, sha256: object) -> Wheel:
    """Return a wheel of a lock. ValueError if its texts are not what they should be."""
    filename = unquote(url.partition("#")[0].rpartition("/")[2])
    if not filename.endswith(".whl"):
        raise ValueError(f"package {name}: {filename or url} is no wheel")
    parsed = Wheel(
        name=normalize_name(name),
        version=version,
        filename=filename,
        url=url,
        sha256=grammar.check_sha256(name, sha256),
    )
    grammar.check_wheel(parsed)
    return parsed


def pixi_files(document: Document, path: str) -> tuple[list[Document], list[Wheel]]:
    """Return the conda packages and the wheels of the default environment of a pixi.lock.

    Raises:
        InputError: Its format or its platforms are others.
        KeyError, TypeError, ValueError, AttributeError: It is no pixi.lock.
    """
    if document["version"] not in _PIXI_VERSIONS:
        known = ", ".join(map(str, _PIXI_VERSIONS))
        raise InputError(f"{path}: pixi.lock version {document['version']}; {known} are read")
    environment = document["environments"]["default"]["packages"]
    # Since version 7 a platform has a name of its own, and may describe a host.
    subdirs = {row["name"]: row.get("subdir", row["name"]) for row in document.get("platforms", ())}
    subdir = chosen_subdir(sorted({subdirs.get(name, name) for name in environment}), path)
    names = [name for name in environment if subdirs.get(name, name) == subdir]
    if len(names) > 1:
        raise InputError(f"{path}: has several platforms for {subdir}: {', '.join(names)}")
    named = {url for row in environment[names[0]] for url in row.values()}
    packages: list[Document] = []
    wheels = []
    for row in document["packages"]:
        url = row.get("conda") or row.get("pypi") or row["url"]
        if url not in named:
            continue
        if "://" not in url:  # a file; a relative path is relative to the lock
            url = path_to_file_url(os.path.abspath(os.path.join(os.path.dirname(path), url)))
        if "conda" in row or row.get("kind") == "conda":
            packages.append({**row, "url": url})
        else:
            wheels.append(wheel(row["name"], str(row["version"]), url, row.get("sha256")))
    return packages, wheels


def of_platform(packages: Iterable[Document], path: str) -> Iterator[Document]:
    """Yield the packages of a conda-lock.yml that are for one platform."""
    rows = list(packages)
    subdirs = sorted({str(row["platform"]) for row in rows if "platform" in row})
    subdir = chosen_subdir(subdirs, path) if subdirs else None
    return (row for row in rows if row.get("platform") == subdir)
