"""The packages in a conda environment, and which of them are watched."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache

from ..compat import data
from ..compat.conda_records import CUDA_PACKAGES
from ..prefix import conda_packages


@cache
def watched() -> Mapping[str, str]:
    """Return {conda package: gpuenv's name of its framework, "" for CUDA and cuDNN}.

    A framework without conda packages of other names is watched by its own name.

    Raises:
        DataError: The data is damaged.
    """
    matrix = data.load()
    watched = matrix.conda.watched
    others = set(matrix.frameworks()).difference(watched.values())
    return {**dict.fromkeys(CUDA_PACKAGES, ""), **watched, **{name: name for name in others}}


def watched_among(packages: Iterable[str]) -> set[str]:
    """Return those packages that are watched."""
    return watched().keys() & set(packages)


def frameworks_of(packages: Iterable[str]) -> list[str]:
    """Return gpuenv's names of the frameworks among conda packages."""
    names = {watched().get(package, "") for package in packages}
    return sorted(names - {""})


def watched_in(prefix: str) -> set[str]:
    """Return the watched packages that conda installed into an environment."""
    return watched_among(conda_packages(prefix))


def cudnn_wheels(prefix: str) -> list[str]:
    """Return the names of the wheels with a cuDNN in the environment."""
    from ..install import conda_prefix

    names = (wheel.name for wheel in conda_prefix.wheels_in(prefix))
    return sorted(name for name in names if name.startswith("nvidia-cudnn"))
