"""Compare the builds of the PyTorch index with public lock files (pytorch_index.json)."""

from __future__ import annotations

import os
from collections.abc import Iterator

from .catalog import Wheels, platform_of
from .data import CompatibilityData
from .rows import read
from .scans import DEFAULT

_PACKAGES = ("torch", "torchvision", "torchaudio")


def contradictions(data: CompatibilityData, wheels: Wheels | None) -> Iterator[str]:
    """Yield where lock files name another hash than the snapshot, or a build without a row.

    Args:
        data: the compatibility data.
        wheels: gives the wheels of a distribution in the index snapshot; None compares no hashes.
    """
    path = os.path.join(data.folder, "pytorch_index.json")
    if not os.path.exists(path):
        return
    listed: dict[str, str | None] = {}
    for name in _PACKAGES if wheels is not None else ():
        for wheel in wheels(name) if wheels is not None else ():
            if wheel.index != DEFAULT:
                listed[wheel.filename] = wheel.sha256
    for row in read(path)["wheels"]:
        filename = row["file"].rpartition("/")[2]
        source = row["sources"][0]
        if listed.get(filename, row["sha256"]) != row["sha256"]:
            yield f"{filename} has another sha256 in the snapshot than in {source}"
        distribution, version = filename.split("-")[:2]
        platform = platform_of(filename)
        is_build = distribution == "torch" and "+cu" in version
        if is_build and data.build(distribution, version, platform) is None:
            yield f"{filename} is in {source}, and {version} on {platform} has no row"
