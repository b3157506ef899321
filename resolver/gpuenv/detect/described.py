"""A host made of flags. No hardware is read here, and neither NVML nor ctypes is imported."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from ..errors import InputError
from ..model import ComputeCapability, Gpu, Host, Problem, Python, parse_pair, parse_release
from ..requirements.target import PLATFORMS
from . import interpreter, system

Lookup = Callable[[str], tuple[int, int] | None]


_OLDEST_BRANCH = 100  # smaller first numbers are CUDA versions given by mistake
_SM = r"(?i)sm_(\d{1,2})(\d)"


def describe(  # one for each flag, and the look-ups that a stage may not import
    base: Host | None,
    *,
    gpus: Sequence[str],
    driver: str | None,
    python: str | None,
    platform: str | None,
    glibc: str | None,
    capability: Lookup,
    driver_cuda: Lookup,
    suggest: Callable[[str], Sequence[str]],
) -> Host:
    """`base` with the facts that the flags give; the flags' texts as the user wrote them.

    `base` is a host read from a file, or a detected one if `gpus` is empty: a driver that was detected here says
    nothing about a GPU that is elsewhere. With `base` None, platform, glibc and interpreter are this machine's,
    and a driver that is not given stays unknown. `gpus` are marketing names, "sm_90", "9.0", or "none" alone.

    `capability` gives the compute capability of a marketing name, `driver_cuda` the CUDA version of a driver
    release, None where they know none; `suggest` gives names near to a text. Raises errors.InputError.
    """
    host = _this_machine() if base is None else base
    if platform is not None:
        host = _on_platform(host, platform)
    if glibc is not None:
        host = _with(host, "glibc", "--glibc", glibc=_glibc(glibc, host.os))
    if python is not None:
        host = _with_python(host, python, base)
    if driver is not None:
        release = _driver(driver)
        # The codes say what ails a driver; the user says which driver to count on instead.
        kept = tuple(it for it in host.problems if not (host.gpus and it.code.startswith("driver-")))
        host = _with(host, "driver", "--driver", driver=release, problems=kept)
        host = _with(host, "driver_cuda", f"R{release.split('.')[0]} of --driver", driver_cuda=driver_cuda(release))
    if gpus:
        found = _gpus(gpus, capability, suggest)
        host = _with(host, "gpus", "--gpu", gpus=found, problems=(), virtualization=None)
        dropped = ("virtualization", "visible-devices", "device-order", "mig", "l4t")
        host = host.replace(sources=tuple(pair for pair in host.sources if pair[0] not in dropped))
    return host


def _this_machine() -> Host:
    """This machine without its GPU: the flags that say nothing about one leave a host whose GPU is not known."""
    kind, machine = system.machine_here()
    glibc, glibc_source = system.glibc_here()
    target = interpreter.find(None, os.environ)
    problem = Problem(code="no-gpu", detail="no GPU was described", hint=system.NO_GPU_HINT)
    return Host(
        os=kind, machine=machine, glibc=glibc, python=target.python, problems=(problem,),
        sources=(("os", "uname"), ("machine", "uname"), ("glibc", glibc_source), ("python", target.source)),
    )  # fmt: skip


def _with(host: Host, fact: str, source: str, **changes: object) -> Host:
    sources = (*(pair for pair in host.sources if pair[0] != fact), (fact, source))
    return host.replace(sources=sources, **changes)


def _on_platform(host: Host, platform: str) -> Host:
    if platform not in PLATFORMS:
        raise InputError(f"--platform {platform!r} is not known", hint=f"give one of {', '.join(PLATFORMS)}")
    if platform == host.platform:
        return host
    kind, machine = PLATFORMS[platform]
    python = host.python.replace(executable=None)  # an interpreter of another platform
    host = _with(host, "os", "--platform", os=kind, python=python, glibc=None)
    host = _with(host, "machine", "--platform", machine=machine)
    return host.replace(sources=tuple(pair for pair in host.sources if pair[0] != "glibc"))


def _glibc(text: str, kind: str) -> tuple[int, int]:
    if kind != "linux":
        raise InputError("--glibc is given for a platform that is not Linux", hint="leave --glibc out")
    try:
        version = parse_pair(text)
    except ValueError:
        version = (0, 0)
    if version[0] != 2:
        raise InputError(f"--glibc {text!r} is not a glibc version", hint="give it as in ldd --version, such as 2.28")
    return version


def _with_python(host: Host, text: str, base: Host | None) -> Host:
    target = interpreter.find(text, os.environ)
    kind, machine = system.machine_here()
    python: Python = target.python
    if (kind, machine) != (host.os, host.machine):
        python = python.replace(executable=None)
    elif target.libc is not None and base is None:
        glibc, source = system.glibc_of(target.libc)
        host = _with(host, "glibc", source, glibc=glibc)
    return _with(host, "python", target.source, python=python)


def _driver(text: str) -> str:
    hint = "give the whole release as nvidia-smi prints it, such as 580.65.06"
    try:
        branch = parse_release(text.strip())[0]
    except ValueError:
        raise InputError(f"--driver {text!r} is not a driver release", hint=hint) from None
    if branch < _OLDEST_BRANCH:
        raise InputError(f"--driver {text!r} looks like a CUDA version, not a driver release", hint=hint)
    return text.strip()


def _gpus(texts: Sequence[str], capability: Lookup, suggest: Callable[[str], Sequence[str]]) -> tuple[Gpu, ...]:
    if any(text.strip().lower() == "none" for text in texts):
        if len(texts) > 1:
            raise InputError("--gpu none stands beside another --gpu", hint="give none alone, or the GPUs alone")
        return ()
    return tuple(_gpu(text.strip(), index, capability, suggest) for index, text in enumerate(texts))


def _gpu(text: str, index: int, capability: Lookup, suggest: Callable[[str], Sequence[str]]) -> Gpu:
    number = _number(text)
    if number is not None:
        return Gpu(name=f"sm_{number[0]}{number[1]}", compute_capability=number, index=index)
    known = capability(text) if text else None
    if known is None:
        near = list(suggest(text)) if text else []
        names = f"did you mean {' or '.join(near)}? Else " if near else ""
        raise InputError(f"--gpu {text!r} is not a known GPU", hint=f"{names}give its compute capability, as sm_90")
    return Gpu(name=text, compute_capability=known, index=index)


def _number(text: str) -> ComputeCapability | None:
    """ "sm_90", "SM_120" and "9.0" as a compute capability; None for a name ."""
    if text[:3].lower() != "sm_" and "." not in text:  # a name, without re
        return None
    import re

    match = re.fullmatch(_SM, text)
    try:
        return (int(match[1]), int(match[2])) if match else parse_pair(text)
    except ValueError:
        return None
