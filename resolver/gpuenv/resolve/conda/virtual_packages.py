"""Virtual packages: what conda knows of a host, from gpuenv's Host.

Names and meanings are conda's. `__cuda_arch` is from CEP 46: the smallest compute capability of
the devices, absent without `__cuda`. CONDA_OVERRIDE_* replace facts of the host, as in conda: an
empty value means that the host does not have it, or that its version is not known.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...compat.conda_records import Virtual
from ...errors import InputError
from ...model import Gpu, Host, major_minor, show_pair

_VARIABLE = "CONDA_OVERRIDE_"
SUBDIRS = {"linux-x86_64": "linux-64", "linux-aarch64": "linux-aarch64", "win-amd64": "win-64"}


def overridden(host: Host, env: Mapping[str, str]) -> Host:
    """Return the host as CONDA_OVERRIDE_* describe it. `Host.sources` names the variables.

    A CUDA that is set this way says nothing about the driver's release: that is unknown then.

    Raises:
        InputError: A value is no version.
    """
    cuda, arch, glibc = (_value(env, name) for name in ("CUDA", "CUDA_ARCH", "GLIBC"))
    # What kept GPUs from being detected (`problems`) does not count where they are described.
    if cuda is not None:
        gpus = host.gpus or (Gpu(name=f"a GPU of {_VARIABLE}CUDA", compute_capability=None),)
        host = _fact(
            host,
            "driver_cuda",
            "CUDA",
            gpus=gpus if cuda else (),
            driver=None,
            driver_cuda=_pair("CUDA", cuda),
            problems=(),
        )
    if arch is not None and cuda != "":
        capability = _pair("CUDA_ARCH", arch)
        gpu = Gpu(name=f"a GPU of {_VARIABLE}CUDA_ARCH", compute_capability=capability)
        host = _fact(host, "gpus", "CUDA_ARCH", gpus=(gpu,), problems=())
    if glibc is not None:
        host = _fact(host, "glibc", "GLIBC", glibc=_pair("GLIBC", glibc))
    for name in ("archspec", "linux", "win"):
        value = _value(env, name.upper())
        if value is not None:
            pairs = (*host.virtual, (f"__{name}", value))
            host = _fact(host, f"__{name}", name.upper(), virtual=pairs)
    return host


def gpu_variables(host: Host) -> str:
    """Return which variables describe other GPUs than those of this machine; "" for none."""
    named = [source for _, source in host.sources if source.startswith(_VARIABLE + "CUDA")]
    return " and ".join(named)


def _fact(host: Host, fact: str, name: str, **changes: object) -> Host:
    sources = {**dict(host.sources), fact: _VARIABLE + name}
    return host.replace(sources=tuple(sources.items()), **changes)


def _value(env: Mapping[str, str], name: str) -> str | None:
    value = env.get(_VARIABLE + name)
    return None if value is None else value.strip()


def _pair(name: str, text: str) -> tuple[int, int] | None:
    """Return the first two numbers of a version; "12" is 12.0, and "" is None."""
    pair = major_minor(f"{text}.0")
    if text and pair is None:
        raise InputError(f"{_VARIABLE}{name}={text}: is not a version such as 12.8")
    return pair


def of_host(host: Host) -> tuple[Virtual, ...]:
    """Return the virtual packages of a host, sorted by name.

    `__cuda` needs a device and the CUDA of its driver. `__linux` has no version: no package of the
    stack asks for one, and a lock must not depend on a kernel.
    """
    given = dict(host.virtual)
    archspec = given.get("__archspec", host.machine)
    virtual: list[Virtual] = [("__archspec", "1", archspec)] if archspec else []
    if host.gpus and host.driver_cuda is not None:
        virtual.append(("__cuda", show_pair(host.driver_cuda), "0"))
        least = min(filter(None, host.capabilities), default=None)
        if least is not None:
            virtual.append(("__cuda_arch", show_pair(least), "0"))
    if host.os == "windows":
        return (*virtual, ("__win", given.get("__win") or "0", "0"))
    if host.glibc is not None:
        virtual.append(("__glibc", show_pair(host.glibc), "0"))
    return (*virtual, ("__linux", given.get("__linux") or "0", "0"), ("__unix", "0", "0"))
