"""Virtual packages: what conda knows of a host, from gpuenv's Host.

Names and meanings are conda's; `__cuda_arch` is CEP 46: the smallest compute capability of the devices, absent without
`__cuda`. CONDA_OVERRIDE_* stand for facts of the host, as in conda: "" is "not there".
"""

from __future__ import annotations

from collections.abc import Mapping

from ...compat.conda_records import Virtual
from ...errors import InputError
from ...model import Gpu, Host, parse_pair, show_pair

SUBDIRS = {"linux-x86_64": "linux-64", "linux-aarch64": "linux-aarch64", "win-amd64": "win-64"}
_ARCHSPEC = {"x86_64": "x86_64", "aarch64": "aarch64"}


def overridden(host: Host, env: Mapping[str, str]) -> Host:
    """The host as CONDA_OVERRIDE_CUDA, _CUDA_ARCH and _GLIBC of `env` describe it. InputError for what is no version.

    A driver's CUDA that is set this way says nothing about its release, which is unknown then.
    """
    cuda, arch, glibc = (_value(env, name) for name in ("CUDA", "CUDA_ARCH", "GLIBC"))
    if cuda == "":
        return host.replace(gpus=(), driver=None, driver_cuda=None, problems=())
    if cuda is not None:
        host = host.replace(driver=None, driver_cuda=_pair("CUDA", cuda), problems=())
        if not host.gpus and arch is None:
            host = host.replace(gpus=(Gpu(name="a GPU of CONDA_OVERRIDE_CUDA", compute_capability=None),))
    if arch:
        name = "a GPU of CONDA_OVERRIDE_CUDA_ARCH"
        host = host.replace(gpus=(Gpu(name=name, compute_capability=_pair("CUDA_ARCH", arch)),), problems=())
    return host.replace(glibc=_pair("GLIBC", glibc)) if glibc else host


def _value(env: Mapping[str, str], name: str) -> str | None:
    found = env.get(f"CONDA_OVERRIDE_{name}")
    return None if found is None else found.strip()


def _pair(name: str, text: str) -> tuple[int, int]:
    try:
        return parse_pair(".".join([*text.split("."), "0"][:2]))
    except ValueError:
        raise InputError(f"CONDA_OVERRIDE_{name}={text}: is not a version such as 12.8") from None


def of_host(host: Host) -> tuple[Virtual, ...]:
    """The virtual packages of a host, in the order of their names.

    `__cuda` is there where a device and its driver's CUDA are known; `__linux` has no version, since no package of the
    stack asks for one and a lock must not depend on a kernel.
    """
    found: list[Virtual] = [("__archspec", "1", _ARCHSPEC.get(host.machine, host.machine))]
    if host.gpus and host.driver_cuda is not None:
        found.append(("__cuda", show_pair(host.driver_cuda), "0"))
        known = [gpu.compute_capability for gpu in host.gpus if gpu.compute_capability is not None]
        if known:
            found.append(("__cuda_arch", show_pair(min(known)), "0"))
    if host.os == "windows":
        return (*found, ("__win", "0", "0"))
    if host.glibc is not None:
        found.append(("__glibc", show_pair(host.glibc), "0"))
    return (*found, ("__linux", "0", "0"), ("__unix", "0", "0"))
