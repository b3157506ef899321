"""A wheel variant provider for NVIDIA GPUs that counts every visible device.

The interface is that of variantlib and of the draft PEP 850. Features of the namespace nvidia, the
one that counts most first:

- cuda_version_lower_bound: the driver supports at least this CUDA version.
- cuda_version_upper_bound: the CUDA version of the driver is older than this.
- sm_arch: the wheel has device code: 90_real is SASS for 9.0, and 80_virtual is PTX for 8.0.

Runs on Python 3.9 and later; standard library only.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from .devices import Capability, Driver, read_driver

__all__ = ["Feature", "NvidiaProvider"]

FORCED_CUDA = "NV_VARIANT_PROVIDER_FORCE_CUDA_DRIVER_VERSION"
FORCED_SM = "NV_VARIANT_PROVIDER_FORCE_SM_ARCH"
LOWER, UPPER, SM = "cuda_version_lower_bound", "cuda_version_upper_bound", "sm_arch"

_VERSION = re.compile(r"[0-9]+(\.[0-9]+)?")
_CUDA_MAJORS = range(11, 16)
_CUDA_MINORS = range(21)
_SM_MAJORS = range(5, 13)
_SM_MINORS = range(10)
# Code for these runs on no other device, and no other code runs on these (CUDA C++ Programming
# Guide, Binary Compatibility).
_TEGRA = {(5, 3), (6, 2), (7, 2), (8, 7)}


@dataclass(frozen=True)
class Feature:
    """A feature and its values, the best one first."""

    name: str
    values: list[str]
    multi_value: bool


class NvidiaProvider:
    """The provider. An installer calls its class methods."""

    namespace = "nvidia"
    is_build_plugin = False
    all_properties_compatible = False  # they depend on the host

    @classmethod
    def get_all_configs(cls) -> list[Feature]:
        """Return every feature with every value."""
        versions = _cuda_versions()
        real = [_real(capability) for capability in _capabilities()]
        virtual = [_virtual(capability) for capability in _capabilities()]
        return [
            Feature(LOWER, versions, multi_value=False),
            Feature(UPPER, versions, multi_value=False),
            Feature(SM, [*real, *virtual], multi_value=True),
        ]

    @classmethod
    def get_supported_configs(cls) -> list[Feature]:
        """Return the features that all visible devices support.

        The list is empty without a device, without a driver, and for a driver that supports no
        known CUDA version. A feature without a value is left out.
        """
        driver = _forced(read_driver())
        if driver is None or driver.cuda is None or not driver.capabilities:
            return []
        reached = [version for version in _cuda_versions() if _pair(version) <= driver.cuda]
        if not reached:
            return []
        newer = [version for version in _cuda_versions() if _pair(version) > driver.cuda]
        features = [
            Feature(LOWER, reached, multi_value=False),
            Feature(UPPER, newer, multi_value=False),
            Feature(SM, _common_architectures(driver.capabilities), multi_value=True),
        ]
        return [feature for feature in features if feature.values]


def _forced(driver: Driver | None) -> Driver | None:
    """Replace what was read by what the environment variables say."""
    cuda, architectures = os.environ.get(FORCED_CUDA), os.environ.get(FORCED_SM)
    if not cuda and not architectures:
        return driver
    driver = driver or Driver(cuda=None, capabilities=())
    if cuda:
        driver = driver._replace(cuda=_forced_pair(FORCED_CUDA, cuda))
    if architectures:
        pairs = [_forced_pair(FORCED_SM, text) for text in architectures.split(",")]
        driver = driver._replace(capabilities=tuple(pairs))
    return driver


def _forced_pair(variable: str, text: str) -> tuple[int, int]:
    if not _VERSION.fullmatch(text.strip()):
        raise ValueError(f"{variable} has {text!r}, which is not of the form X.Y")
    return _pair(text.strip())


def _pair(text: str) -> tuple[int, int]:
    """Return "12.8" as (12, 8) and "12" as (12, 0)."""
    major, _, minor = text.partition(".")
    return int(major), int(minor or "0")


def _cuda_versions() -> list[str]:
    """Return every CUDA version, the newest first; 12 is another spelling of 12.0."""
    versions = []
    for major in reversed(_CUDA_MAJORS):
        versions += [f"{major}.{minor}" for minor in reversed(_CUDA_MINORS)]
        versions.append(str(major))
    return versions


def _capabilities() -> list[Capability]:
    """Return every compute capability, the newest first."""
    return [(major, minor) for major in reversed(_SM_MAJORS) for minor in reversed(_SM_MINORS)]


def _real(capability: Capability) -> str:
    return f"{capability[0]}{capability[1]}_real"


def _virtual(capability: Capability) -> str:
    return f"{capability[0]}{capability[1]}_virtual"


def _common_architectures(devices: tuple[Capability, ...]) -> list[str]:
    """Return the values of sm_arch of which each alone serves every device.

    SASS runs on the same major version with the same or a newer minor version, and PTX on the same
    or a newer compute capability if the driver is as new as the toolkit that made it.
    """
    sass = [
        target
        for target in _capabilities()
        if all(_runs_sass(target, device) for device in devices)
    ]
    ptx = [target for target in _capabilities() if target <= min(devices)]
    return [*map(_real, sass), *map(_virtual, ptx)]


def _runs_sass(target: Capability, device: Capability) -> bool:
    if target in _TEGRA or device in _TEGRA:
        return target == device
    return target[0] == device[0] and target[1] <= device[1]
