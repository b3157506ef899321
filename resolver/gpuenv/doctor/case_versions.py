"""GPUs, drivers, CUDA versions and releases that a case names, as several rules compare them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from ..compat.data import load
from ..compat.evaluate import built_with
from ..requirements.versions import version_key
from .catalog import (
    capability_of_series,
    compilers,
    cuda_of_driver,
    highest_capability_of,
    newest_capabilities,
)
from .facts import Case
from .model import Fact
from .status_codes import version_tuple

Capability = tuple[int, ...]  # a compute capability: (9, 0)
# Since CUDA 11.0, a driver supports the later minor versions of its own major version.
MINOR_VERSION_COMPATIBILITY = (11, 0)
# Without any code list, a GPU newer than this is more likely newer than the build than older.
LAST_COMMON_CAPABILITY = (7, 5)


def driver_cuda(fact: Fact) -> tuple[int, ...]:
    """Return the CUDA version that a driver supports, by that version or by its release."""
    return version_tuple(cuda_of_driver(fact.value) if fact.kind == "driver" else fact.value)


def newest_driver(case: Case, *, of_log: bool = False) -> tuple[tuple[int, ...], Fact] | None:
    """Return the highest CUDA version that a driver of the case supports, and its fact."""
    facts = [fact for fact in case.of_kind("driver-cuda", "driver") if fact.from_log or not of_log]
    drivers = {driver_cuda(fact): fact for fact in facts}
    drivers.pop((), None)
    return (max(drivers), drivers[max(drivers)]) if drivers else None


def is_driver_older(driver: tuple[int, ...], cuda: tuple[int, ...]) -> bool:
    """Whether a driver for one CUDA version does not support builds for another."""
    return cuda[0] > driver[0] or driver < cuda < MINOR_VERSION_COMPATIBILITY


def compiled_capabilities(cuda: tuple[int, ...]) -> tuple[Capability, Capability] | None:
    """Return the lowest and the highest capability that a CUDA release compiles for, or None.

    A major version alone stands for its last release.
    """
    newest = None
    for since, lowest, highest in compilers():
        if cuda >= since[: len(cuda)]:
            newest = lowest, highest
    return newest


def gpu_capabilities(case: Case) -> Iterator[tuple[tuple[int, int], Fact]]:
    """Yield the compute capabilities that facts state, then those of GPUs known by name."""
    for fact in case.of_kind("capability"):
        version = version_tuple(fact.value)
        if len(version) > 1:
            yield (version[0], version[1]), fact
    for fact in case.of_kind("gpu"):
        capability = highest_capability_of(fact.value) or capability_of_series(fact.value)
        if capability:
            yield capability, fact


def newest_capability(framework: str, version: tuple[int, ...]) -> Capability | None:
    """Return the highest capability that the builds of a release have SASS for; None is unknown."""
    for before, capability in newest_capabilities(framework):
        if version < before:
            return capability
    return None


@cache
def libraries_of_build(framework: str, version: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Return the CUDA and the cuDNN of a release's builds for Linux, as far as they are known.

    Only the major version of CUDA is returned if builds of its other minor versions fit, too.
    """
    release = ".".join(map(str, version))
    cuda, cudnn = built_with(framework, release, "linux-x86_64", load())
    if cuda >= MINOR_VERSION_COMPATIBILITY:
        cuda = cuda[:1]
    return {name: built for name, built in (("cuda", cuda), ("cudnn", cudnn)) if built}


@cache
def first_after_cudnn(distribution: str, major: int) -> str:
    """Return the first release that loads the cuDNN after a major version; "" is unknown."""
    data, platform = load(), "linux-x86_64"
    releases = [release.version for release in data.releases(distribution, platform)]
    releases += data.known_versions(distribution, platform)
    loads = False
    for release in sorted(set(releases), key=version_key):
        cudnn = built_with(distribution, release, platform, data)[1]
        loads = loads or cudnn == (major,)
        if loads and cudnn == (major + 1,):
            return release
    return ""


def newest_releases(case: Case) -> dict[str, tuple[tuple[int, ...], Fact]]:
    """Return the newest release of each framework that the facts name."""
    newest: dict[str, tuple[tuple[int, ...], Fact]] = {}
    for fact in case.of_kind("version"):
        version = version_tuple(fact.value)
        if fact.subject not in newest or newest[fact.subject][0] < version:
            newest[fact.subject] = (version, fact)
    return newest
