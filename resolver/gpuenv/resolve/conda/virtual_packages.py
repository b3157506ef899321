"""Virtual packages: what conda knows of a host, from gpuenv's Host.

Names and meanings are conda's. `__cuda_arch` is from CEP 46: the smallest compute capability of
the devices, absent without `__cuda`. CONDA_OVERRIDE_* replace facts of the host, as in conda: an
empty value means that the host does not have it.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...compat.conda_records import Virtual
from ...errors import InputError
from ...model import Gpu, Host, parse_pair, show_pair

SUBDIRS = {"linux-x86_64": "linux-64", "linux-aarch64": "linux-aarch64", "win-amd64": "win-64"}


def overridden(host: Host, env: Mapping[str, str]) -> Host:
    """Return the host as CONDA_OVERRIDE_CUDA, _CUDA_ARCH and _GLIBC describe it.

    A CUDA that is set this way says nothing about the driver's release: that is unknown then.

    Raises:
        InputError: A value is no version.
    """
    cuda, arch, glibc = (_value(env, name) for name in ("CUDA", "CUDA_ARCH", "GLIBC"))
    if cuda == "":
        return host.replace(gpus=(), driver=None, driver_cuda=None, problems=())
    if cuda is not None:
        host = host.replace(driver=None, driver_cuda=_pair("CUDA", cuda), problems=())
        if not host.gpus and arch is None:
            gpu = Gpu(name="a GPU of CONDA_OVERRIDE_CUDA", compute_capability=None)
            host = host.replace(gpus=(gpu,))
    if arch:
        name = "a GPU of CONDA_OVERRIDE_CUDA_ARCH"
        gpu = Gpu(name=name, compute_capability=_pair("CUDA_ARCH", arch))
        host = host.replace(gpus=(gpu,), problems=())
    if glibc:
        host = host.replace(glibc=_pair("GLIBC", glibc))
    return host


def _value(env: Mapping[str, str], name: str) -> str | None:
    value = env.get(f"CONDA_OVERRIDE_{name}")
    return None if value is None else value.strip()


def _pair(name: str, text: str) -> tuple[int, int]:
    """Return the first two numbers of a version; "12" is 12.0."""
    try:
        return parse_pair(".".join([*text.split("."), "0"][:2]))
    except ValueError:
        message = f"CONDA_OVERRIDE_{name}={text}: is not a version such as 12.8"
        raise InputError(message) from None


def of_host(host: Host) -> tuple[Virtual, ...]:
    """Return the virtual packages of a host, sorted by name.

    `__cuda` needs a device and the CUDA of its driver. `__linux` has no version: no package of the
    stack asks for one, and a lock must not depend on a kernel.
    """
    virtual: list[Virtual] = [("__archspec", "1", host.machine)]
    if host.gpus and host.driver_cuda is not None:
        virtual.append(("__cuda", show_pair(host.driver_cuda), "0"))
        capabilities = [gpu.compute_capability for gpu in host.gpus]
        known = [capability for capability in capabilities if capability is not None]
        if known:
            virtual.append(("__cuda_arch", show_pair(min(known)), "0"))
    if host.os == "windows":
        return (*virtual, ("__win", "0", "0"))
    if host.glibc is not None:
        virtual.append(("__glibc", show_pair(host.glibc), "0"))
    return (*virtual, ("__linux", "0", "0"), ("__unix", "0", "0"))
