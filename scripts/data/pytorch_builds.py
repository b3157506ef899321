"""The builds of the PyTorch index for the snapshot, from facts that collect_builds.py collected.

The PyTorch index itself is not read: what is here comes from lock files that were made with it
(matrix_data/pytorch_index.json), and each version has its sources.

The dependencies of a build are the METADATA of the same version on the default index: unchanged
where the default index has the same variant on that platform, otherwise with the CUDA libraries and
triton replaced by the variant's pins. Those pins come from lock files too, so a range
(cuda-bindings) has become the release that was locked. A variant whose pins are not known is left
out, because a guess is not an answer. Windows builds carry CUDA inside and need no pins.
"""

from __future__ import annotations

import re
from pathlib import Path

from common import read_json
from data.index import serves
from gpuenv.compat.catalog import platform_of
from gpuenv.index.snapshot import Snapshot
from gpuenv.model import Requirement, Wheel
from gpuenv.requirements.target import version_key, wheel_tags
from gpuenv.requirements.versions import parse_requirement

TABLE = "pytorch_index.json"
PACKAGES = ("torch", "torchvision", "torchaudio")  # torch first: the others need builds of it
INDEX = "https://download.pytorch.org/whl/{variant}"
LINUX = 'platform_system == "Linux"'
LIBRARY = re.compile(r"nvidia-|cuda-|triton$")  # what differs between CUDA variants
Needs = tuple[Requirement, ...]
Package = tuple[dict[str, str], list[Wheel], dict[str | None, Needs]]


def pins(folder: Path) -> set[Requirement]:
    """Return every pinned requirement of a variant, without markers."""
    return {
        parse_requirement(text)
        for row in read_json(folder / TABLE)["pins"]
        for text in row["requires"]
    }


def packages(folder: Path, snapshot: Snapshot) -> dict[str, Package]:
    """Return ({version: its sources}, wheels, what they require) of each package.

    Args:
        folder: the data.
        snapshot: has the wheels of the default index.
    """
    content = read_json(folder / TABLE)
    pinned = {row["version"]: row["requires"] for row in content["pins"]}
    torch = read_json(folder / "frameworks" / "torch.json")
    defaults = {
        (row["version"], row["variant"], row["platform"])
        for row in torch["builds"]
        if row["index"] == "default"
    }
    found: dict[str, Package] = {}
    for name in PACKAGES:
        builds = {wheel.version for wheel in found["torch"][1]} if found else set()
        wheels: list[Wheel] = []
        needs: dict[str | None, Needs] = {}
        sources: dict[str, set[str]] = {}
        for row in content["wheels"]:
            filename = row["file"].rpartition("/")[2]
            distribution, version = filename.split("-")[:2]
            public, _, variant = version.partition("+")
            platform = platform_of(filename)
            if distribution != name or not variant or not serves(wheel_tags(filename)):
                continue
            like = default_wheel(snapshot, name, public, platform)
            metadata = like and snapshot.metadata(like)
            if like is None or metadata is None:
                continue
            required: Needs | None = metadata.dependencies
            if name != "torch":
                required = companion_needs(required, variant, builds)
            # The pins of Windows wheels have Linux markers: METADATA says what these need.
            elif platform != "win-amd64" and (public, variant, platform) not in defaults:
                required = torch_needs(required, [] if variant == "cpu" else pinned.get(version))
            if required is None:
                continue
            sources.setdefault(version, set()).update(row["sources"])
            needs[row["sha256"]] = required
            build = Wheel(
                name=name, version=version, filename=filename, url=row["file"], sha256=row["sha256"]
            )
            wheels.append(build.replace(requires_python=like.requires_python))
        wheels.sort(key=lambda wheel: (version_key(wheel.version), wheel.filename))
        listed = {version: ", ".join(sorted(sources[version])) for version in sorted(sources)}
        found[name] = listed, wheels, needs
    return found


def default_wheel(snapshot: Snapshot, name: str, version: str, platform: str) -> Wheel | None:
    """Return the default index's wheel for a platform, otherwise another one of the release."""
    same = [
        wheel
        for wheel in snapshot.files(name)
        if wheel.index == "default" and wheel.version == version
    ]
    same.sort(key=lambda wheel: (platform_of(wheel.filename) != platform, wheel.filename))
    return same[0] if same else None


def torch_needs(stated: Needs, pinned: list[str] | None) -> Needs | None:
    """Return the dependencies of a build of torch; None if the pins of its variant are unknown."""
    if pinned is None:
        return None
    common = [need for need in stated if not LIBRARY.match(need.name)]
    # Not every interpreter and platform has these two: the default index's markers say which.
    markers = {
        need.name: need.marker for need in stated if need.name in ("triton", "cuda-bindings")
    }
    for need in map(parse_requirement, pinned):
        marker = parse_requirement(f"{need} ; {markers.get(need.name) or LINUX}").marker
        common.append(need.replace(marker=marker))
    return tuple(common)


def companion_needs(stated: Needs, variant: str, builds: set[str]) -> Needs | None:
    """Return the dependencies of a companion's build; None if its build of torch is not known."""
    pin = next((need for need in stated if need.name == "torch" and need.specifier), None)
    if pin is None:  # torchaudio 2.11.0 fits several releases of torch
        return stated
    torch = f"{pin.specifier.removeprefix('==')}+{variant}"
    if torch not in builds:
        return None
    others = [need for need in stated if need.name != "torch"]
    return (*others, parse_requirement(f"torch=={torch}"))
