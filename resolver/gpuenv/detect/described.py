"""Describe a host by the texts of the host flags.

No hardware is read here. NVML and ctypes are not imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ..errors import InputError
from ..model import ComputeCapability, Gpu, Host, Problem, Python, parse_pair, parse_release
from ..requirements.target import PLATFORMS
from . import interpreter, system

Lookup = Callable[[str], tuple[int, int] | None]
KnownGpu = Callable[[str], tuple[str, ComputeCapability] | None]
Suggest = Callable[[str], Sequence[str]]
PlatformOf = Callable[[Gpu], str | None]

_PLATFORM_OF_SERVERS = "linux-x86_64"
_NO_GPU = ("none", "cpu")
_OLDEST_BRANCH = 100  # a driver release with a smaller first number is a CUDA version
# Facts about detected devices. They say nothing about described ones.
_DEVICE_SOURCES = ("virtualization", "visible-devices", "device-order", "mig", "l4t")


def describe(  # one argument for each flag, and look-ups in data that this package may not import
    base: Host | None,
    *,
    gpus: Sequence[str],
    driver: str | None,
    python: str | None,
    platform: str | None,
    glibc: str | None,
    known_gpu: KnownGpu,
    driver_cuda: Lookup,
    suggest: Suggest,
    platform_of: PlatformOf,
) -> Host:
    """Return a host with the facts that the flags give.

    Args:
        base: a host that was read from a file, or a detected one if `gpus` is empty: a driver that
            was detected here says nothing about a GPU of another machine. With None, the
            platform, glibc and interpreter are this machine's, and a driver that is not given
            stays unknown.
        gpus: marketing names, "sm_90", "9.0", or "none" alone. One text may have several names,
            separated by commas.
        driver: the driver release, or its beginning.
        python: the target interpreter: a version, a path or a command.
        platform: "linux-x86_64", "linux-aarch64" or "win-amd64". The default is the platform of
            the GPUs if they exist on one only; for GPUs on a Mac it is linux-x86_64.
        glibc: the glibc version of the target.
        known_gpu: returns (name, compute capability) of a marketing name, None if unknown.
        driver_cuda: returns the CUDA version of a driver release, None if unknown.
        suggest: returns GPU names that are close to a text.
        platform_of: returns the platform of a GPU that exists on one only, None for others.

    Raises:
        InputError: a text is not understood, or the GPUs do not exist on the platform.
    """
    described_gpus = _parse_gpus(gpus, known_gpu, suggest)
    host = base
    if host is None:
        host = _this_machine()
    if platform is not None:
        host = _with_platform(host, platform, "--platform")
    elif base is None and described_gpus and host.platform not in PLATFORMS:
        # A Mac, which has no such GPU: the GPU is one of a server.
        host = _with_platform(host, _PLATFORM_OF_SERVERS, "--gpu")
    host = _with_platform_of_gpus(host, described_gpus, platform, platform_of)
    if glibc is not None:
        version = _parse_glibc(glibc, host.os)
        host = _with_fact(host, "glibc", "--glibc", glibc=version)
    if python is not None:
        host = _with_python(host, python, keep_glibc=base is not None)
    if driver is not None:
        host = _with_driver(host, _parse_driver(driver), driver_cuda)
    if gpus:
        host = _with_gpus(host, described_gpus)
    return host


def _this_machine() -> Host:
    """Return this machine with unknown GPUs."""
    kind, machine = system.machine_here()
    glibc, glibc_source = system.glibc_here()
    target = interpreter.find(None, os.environ)
    problem = Problem(code="no-gpu", detail="no GPU was described", hint=system.NO_GPU_HINT)
    return Host(
        os=kind,
        machine=machine,
        glibc=glibc,
        python=target.python,
        problems=(problem,),
        sources=(
            ("os", "uname"),
            ("machine", "uname"),
            ("glibc", glibc_source),
            ("python", target.source),
        ),
    )


# ---- the facts of a host -------------------------------------------------------------------------


def _with_fact(host: Host, fact: str, source: str, **changes: object) -> Host:
    """Return a host with changed fields, and with the source of the fact that they hold."""
    host = _without_sources(host, (fact,))
    return host.replace(sources=(*host.sources, (fact, source)), **changes)


def _without_sources(host: Host, facts: Sequence[str]) -> Host:
    kept = tuple(pair for pair in host.sources if pair[0] not in facts)
    return host.replace(sources=kept)


def _with_platform(host: Host, platform: str, source: str) -> Host:
    if platform not in PLATFORMS:
        hint = f"give one of {', '.join(PLATFORMS)}"
        raise InputError(f"--platform {platform!r} is not known", hint=hint)
    if platform == host.platform:
        return host
    kind, machine = PLATFORMS[platform]
    # The interpreter's executable and the glibc are those of the old platform.
    python = host.python.replace(executable=None)
    host = _with_fact(host, "os", source, os=kind, python=python, glibc=None)
    host = _with_fact(host, "machine", source, machine=machine)
    return _without_sources(host, ("glibc",))


def _with_platform_of_gpus(
    host: Host, gpus: Sequence[Gpu], platform: str | None, platform_of: PlatformOf
) -> Host:
    """Return a host with the platform of the GPUs that exist on one platform only."""
    for gpu in gpus:
        only = platform_of(gpu)
        if only is None:
            continue
        if platform not in (None, only):
            message = f"--gpu {gpu.name!r} exists on {only} only, not on {platform}"
            raise InputError(message, hint="leave --platform out")
        host = _with_platform(host, only, "--gpu")
    return host


def _with_python(host: Host, text: str, *, keep_glibc: bool) -> Host:
    target = interpreter.find(text, os.environ)
    python: Python = target.python
    if system.machine_here() != (host.os, host.machine):
        python = python.replace(executable=None)
    elif target.libc is not None and not keep_glibc:
        glibc, source = system.glibc_of(target.libc)
        host = _with_fact(host, "glibc", source, glibc=glibc)
    return _with_fact(host, "python", target.source, python=python)


def _with_driver(host: Host, release: str, driver_cuda: Lookup) -> Host:
    problems = host.problems
    if host.gpus:
        # The problems of the detected driver are not those of the driver that the user gives.
        problems = tuple(problem for problem in problems if not problem.code.startswith("driver-"))
    host = _with_fact(host, "driver", "--driver", driver=release, problems=problems)
    branch = release.split(".", maxsplit=1)[0]
    cuda = driver_cuda(release)
    return _with_fact(host, "driver_cuda", f"R{branch} of --driver", driver_cuda=cuda)


def _with_gpus(host: Host, gpus: tuple[Gpu, ...]) -> Host:
    host = _with_fact(host, "gpus", "--gpu", gpus=gpus, problems=(), virtualization=None)
    return _without_sources(host, _DEVICE_SOURCES)


# ---- the texts of the flags ----------------------------------------------------------------------


def _parse_glibc(text: str, kind: str) -> tuple[int, int]:
    if kind != "linux":
        message = "--glibc is given for a platform that is not Linux"
        raise InputError(message, hint="leave --glibc out")
    try:
        version = parse_pair(text)
    except ValueError:
        version = (0, 0)
    if version[0] != 2:
        hint = "give it as in ldd --version, such as 2.28"
        raise InputError(f"--glibc {text!r} is not a glibc version", hint=hint)
    return version


def _parse_driver(text: str) -> str:
    hint = "give the release as nvidia-smi prints it, such as 580.65.06"
    release = text.strip()
    try:
        branch = parse_release(release)[0]
    except ValueError:
        raise InputError(f"--driver {text!r} is not a driver release", hint=hint) from None
    if branch < _OLDEST_BRANCH:
        message = f"--driver {text!r} looks like a CUDA version, not a driver release"
        raise InputError(message, hint=hint)
    return release


def _parse_gpus(texts: Sequence[str], known_gpu: KnownGpu, suggest: Suggest) -> tuple[Gpu, ...]:
    names = [name.strip() for text in texts for name in text.split(",")]
    if any(name.lower() in _NO_GPU for name in names):
        if len(names) > 1:
            message = "--gpu none cannot be combined with another --gpu"
            raise InputError(message, hint="give none alone, or the GPUs alone")
        return ()
    gpus = []
    for index, name in enumerate(names):
        gpus.append(_parse_gpu(name, index, known_gpu, suggest))
    return tuple(gpus)


def _parse_gpu(text: str, index: int, known_gpu: KnownGpu, suggest: Suggest) -> Gpu:
    number = _parse_capability(text)
    if number is not None:
        return Gpu(name=f"sm_{number[0]}{number[1]}", compute_capability=number, index=index)
    known = None
    names: Sequence[str] = ()
    if text:
        known = known_gpu(text)
        if known is None:
            names = suggest(text)
    if known is not None:
        name, capability = known
        return Gpu(name=name, compute_capability=capability, index=index)
    hint = "give its compute capability, as sm_90"
    if names:
        hint = f"did you mean {' or '.join(names)}? Otherwise {hint}"
    raise InputError(f"--gpu {text!r} is not a known GPU", hint=hint)


def _parse_capability(text: str) -> ComputeCapability | None:
    """Return the compute capability of "sm_90", "SM120" or "9.0"; None for a name."""
    word = text.lower()
    digits = word.removeprefix("sm").removeprefix("_")
    if word.startswith("sm") and digits.isdecimal() and len(digits) in (2, 3):
        return int(digits[:-1]), int(digits[-1])
    try:
        return parse_pair(text)
    except ValueError:
        return None
