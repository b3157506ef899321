"""The packages in a conda environment, and which of them are watched."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cache

from ..compat import data
from ..compat.conda_records import CUDNN, TOOLKITS, Carriers


@cache
def watched() -> Mapping[str, str]:
    """Return {conda package: gpuenv's name of its framework, "" for CUDA and cuDNN}.

    A framework without conda packages of other names is watched by its own name.

    Raises:
        DataError: The data is damaged.
    """
    matrix = data.load()
    watched = Carriers(matrix.folder).watched
    others = set(matrix.frameworks()).difference(watched.values())
    return {**dict.fromkeys((*TOOLKITS, *CUDNN), ""), **watched, **{name: name for name in others}}


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
