"""Describe a host by the texts of the host flags. No hardware is read here."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from ..compat.data import CompatibilityData
from ..errors import InputError
from ..interpreters import find_target
from ..model import (
    ComputeCapability,
    Gpu,
    Host,
    Problem,
    parse_pair,
    parse_release,
    show_pair,
)
from ..requirements.target import PLATFORMS
from . import system

_PLATFORM_OF_SERVERS = "linux-x86_64"
_OLDEST_BRANCH = 100  # a driver release with a smaller first number is a CUDA version
# Facts about detected devices. They say nothing about described ones.
_DEVICE_SOURCES = ("virtualization", "visible-devices", "device-order", "mig", "l4t")
_OTHER_VENDORS = re.compile(
    r"(?i)(amd|radeon|instinct|rx ?\d|mi ?\d|intel|arc|gaudi|apple|m[1-9]\b)"
)
_COUNT = re.compile(r"^\d+\s*[x*]\s*|\s*[x*]\s*\d+$")  # of "2x H100"
_LIKE_DIGITS = str.maketrans("oil", "011")
_ARCHITECTURES = {  # NVIDIA, "Your GPU Compute Capability"
    "maxwell": "sm_50 or sm_52",
    "pascal": "sm_60 (P100) or sm_61",
    "volta": "sm_70",
    "turing": "sm_75",
    "ampere": "sm_80 (A100) or sm_86",
    "ada": "sm_89",
    "lovelace": "sm_89",
    "hopper": "sm_90",
    "blackwell": "sm_100 (B200), sm_103 (B300), sm_120 (RTX 50) or sm_121 (GB10)",
}


def describe(
    base: Host | None,
    data: CompatibilityData,
    *,
    gpus: Sequence[str],
    driver: str | None,
    python: str | None,
    platform: str | None,
    glibc: str | None,
) -> Host:
    """Return a host with the facts that the flags give.

    Args:
        base: a host that was read from a file, or a detected one if `gpus` is empty: a driver that
            was detected here says nothing about a GPU of another machine. With None, the
            platform, glibc and interpreter are this machine's, and a driver that is not given
            stays unknown.
        data: knows the GPUs and the drivers.
        gpus: marketing names, "sm_90", "9.0", or "none" alone. One text may have several names,
            separated by commas.
        driver: the driver release, or its beginning.
        python: the target interpreter: a version, a path or a command.
        platform: "linux-x86_64", "linux-aarch64" or "win-amd64". The default is the platform of
            the GPUs if they exist on one only; for GPUs on a Mac it is linux-x86_64.
        glibc: the glibc version of the target.

    Raises:
        InputError: a text is not understood, or the GPUs do not exist on the platform.
    """
    described_gpus = _parse_gpus(gpus, data)
    host = _this_machine() if base is None else base
    if platform is not None:
        host = _with_platform(host, platform, "--platform")
    elif base is None and described_gpus and host.platform not in PLATFORMS:
        # A Mac, which has no such GPU: the GPU is one of a server.
        host = _with_platform(host, _PLATFORM_OF_SERVERS, "--gpu")
    for gpu in described_gpus:
        only = data.gpu_platform(gpu)
        if only is None:
            continue
        if platform not in (None, only):
            message = f"--gpu {gpu.name!r} exists on {only} only, not on {platform}"
            raise InputError(message, hint="leave --platform out")
        host = _with_platform(host, only, "--gpu")
    if glibc is not None:
        host = _with_fact(host, "glibc", "--glibc", glibc=_parse_glibc(glibc, host.os))
    if python is not None:
        target = find_target(python, os.environ)
        interpreter = target.python
        if system.machine_here() != (host.os, host.machine):
            interpreter = interpreter.replace(executable=None)
        elif target.libc is not None and base is None:
            version, source = system.glibc_here(target.libc)
            host = _with_fact(host, "glibc", source, glibc=version)
        host = _with_fact(host, "python", target.source, python=interpreter)
    if driver is not None:
        host = _with_driver(host, driver, data)
    if gpus:
        host = _with_fact(
            host, "gpus", "--gpu", gpus=described_gpus, problems=(), virtualization=None
        )
        host = _without_sources(host, _DEVICE_SOURCES)
    return host


def _this_machine() -> Host:
    """Return this machine with unknown GPUs."""
    kind, machine = system.machine_here()
    glibc, glibc_source = system.glibc_here()
    target = find_target(None, os.environ)
    problem = Problem("no-gpu", "no GPU was described", system.NO_GPU_HINT)
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


def _with_fact(host: Host, fact: str, source: str, **changes: object) -> Host:
    """Return a host with changed fields, and with the source of the fact that they hold."""
    host = _without_sources(host, (fact,))
    return host.replace(sources=(*host.sources, (fact, source)), **changes)


def _without_sources(host: Host, facts: Sequence[str]) -> Host:
    return host.replace(sources=tuple(pair for pair in host.sources if pair[0] not in facts))


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


def _with_driver(host: Host, text: str, data: CompatibilityData) -> Host:
    hint = "give the release as nvidia-smi prints it, such as 580.65.06"
    release, problems = text.strip(), host.problems
    try:
        branch = parse_release(release)[0]
    except ValueError:
        raise InputError(f"--driver {text!r} is not a driver release", hint=hint) from None
    if branch < _OLDEST_BRANCH:
        message = f"--driver {text!r} looks like a CUDA version, not a driver release"
        raise InputError(message, hint=hint)
    if host.gpus:
        # The problems of the detected driver are not those of the driver that the user gives.
        problems = tuple(problem for problem in problems if not problem.code.startswith("driver-"))
    host = _with_fact(host, "driver", "--driver", driver=release, problems=problems)
    source, cuda = f"R{release.partition('.')[0]} of --driver", data.driver_cuda(release)
    return _with_fact(host, "driver_cuda", source, driver_cuda=cuda)


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


def _parse_gpus(texts: Sequence[str], data: CompatibilityData) -> tuple[Gpu, ...]:
    names = [name.strip() for text in texts for name in text.split(",")]
    if any(name.lower() in ("none", "cpu") for name in names):
        if len(names) > 1:
            message = "--gpu none cannot be combined with another --gpu"
            raise InputError(message, hint="give none alone, or the GPUs alone")
        return ()
    gpus = []
    for index, text in enumerate(names):
        capability = _parse_capability(text)
        known = data.known_gpu(text) if text and capability is None else None
        newest = data.capabilities()[-1]
        if capability is not None and capability > newest:
            message = f"--gpu {text!r}: what runs on it is unknown"
            message += f", as the newest known compute capability is {show_pair(newest)}"
            raise InputError(message, hint="solve on a host that has it")
        if capability is not None:
            known = f"sm_{capability[0]}{capability[1]}", capability
        if known is None:
            raise InputError(f"--gpu {text!r} is not a known GPU", hint=_gpu_hint(text, data))
        gpus.append(Gpu(name=known[0], compute_capability=known[1], index=index))
    return tuple(gpus)


def _gpu_hint(text: str, data: CompatibilityData) -> str:
    """Return what the user may have meant by an unknown GPU."""
    if _OTHER_VENDORS.match(text):
        return "gpuenv is for GPUs of NVIDIA; --gpu none chooses for the CPU"
    targets = _ARCHITECTURES.get(text.lower())
    if targets is not None:
        return f"it is an architecture: give the GPU, or {targets}"
    single = _COUNT.sub("", text)
    if single != text and data.known_gpu(single) is not None:
        return f"give it once for each GPU: --gpu {single} --gpu {single}"
    typed = data.known_gpu(single.lower().translate(_LIKE_DIGITS))
    close_names = (typed[0].upper(),) if typed is not None else data.close_names(single)
    hint = "give its compute capability, as sm_90"
    return f"did you mean {' or '.join(close_names)}? Otherwise {hint}" if close_names else hint


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
