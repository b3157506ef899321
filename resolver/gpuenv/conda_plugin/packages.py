"""The packages in a conda environment, and which of them are watched."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from functools import cache

from ..compat import data
from ..compat.conda_records import CUDNN, TOOLKITS


@cache
def watched() -> Mapping[str, str]:
    """Return {conda package: gpuenv's name of its framework, "" for CUDA and cuDNN}.

    The names come from the compatibility data. `watch` in conda/carriers.json names the packages
    of a framework that have no device code of their own. A framework without an entry there is
    watched by its own name.

    Raises:
        DataError, OSError, ValueError, KeyError: The data is damaged.
    """
    matrix = data.load()
    packages = dict.fromkeys((*TOOLKITS, *CUDNN), "")
    with open(os.path.join(matrix.folder, "conda", "carriers.json"), encoding="utf-8") as file:
        carriers = json.load(file)["carriers"]
    frameworks = set(matrix.frameworks())
    for row in carriers:
        frameworks.discard(row["framework"])
        for name in (row["package"], row["carrier"], *row.get("watch", ())):
            packages[name] = row["framework"]
    for name in frameworks:
        packages[name] = name
    return packages


def watched_among(packages: Iterable[str]) -> set[str]:
    """Return those packages that are watched."""
    return watched().keys() & set(packages)


def frameworks_of(packages: Iterable[str]) -> list[str]:
    """Return gpuenv's names of the frameworks among conda packages."""
    names = {watched().get(package, "") for package in packages}
    return sorted(names - {""})


def installed_packages(prefix: str) -> dict[str, str]:
    """Return {name: version} of conda's packages.

    They are read from the file names of their records, such as cudnn-9.10.2.21-h1_0.json.
    """
    packages = {}
    for filename in _names_in(os.path.join(prefix, "conda-meta")):
        parts = filename.removesuffix(".json").rsplit("-", 2)
        if filename.endswith(".json") and len(parts) == 3:
            packages[parts[0]] = parts[1]
    return packages


def cudnn_wheels(prefix: str) -> list[str]:
    """Return the names of the wheels with a cuDNN in the environment."""
    from ..install import conda_prefix

    names = (wheel.name for wheel in conda_prefix.wheels_in(prefix))
    return sorted(name for name in names if name.startswith("nvidia-cudnn"))


def _names_in(folder: str) -> list[str]:
    """Return what is in a folder; nothing where it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []
