"""What a host is: its GPUs, driver, platform and interpreter, detected, read from a file or described by flags.

`detect` is the only reader of hardware. It never raises for what it finds: a fact that cannot be known is None, and
`Host.problems` says why. `Host.sources` holds (fact, where it came from) pairs. The codes of the problems:

    no-gpu                      nothing of NVIDIA's is on this machine
    driver-not-installed        an NVIDIA GPU is on the PCI bus, and neither kernel module nor library is there
    driver-not-loaded           NVML 9: the libraries are there, the kernel module is not
    driver-libraries-missing    the kernel module or its device nodes are there, the libraries are not (a container)
    driver-libraries-broken     libnvidia-ml.so.1 is there and cannot be loaded
    driver-libraries-off-path   the libraries are there, and the loader does not look where they are
    driver-library-mismatch     NVML 18: libraries of another release than the kernel module
    libcuda-missing             NVML answers and libcuda.so.1 is not there
    nvml-library-not-found      NVML 12: NVML is there and misses a library of its own
    nvml-binding-missing        the Python package nvidia-ml-py is not there
    nvml-timeout                NVML gave no answer in time
    nvml-unknown-error          NVML 999
    nvml-error                  any other NVML error, with its number and name
    no-permission               NVML 4
    gpu-lost, gpu-reset-required        NVML 15 and 16 for one device; the others are still listed
    compute-prohibited          a visible device is in compute mode "prohibited"
    mig-no-instance             a device is in MIG mode and has no instance
    devices-hidden              CUDA_VISIBLE_DEVICES hides every device on purpose
    visible-device-missing      CUDA_VISIBLE_DEVICES names a device that is not there
    visible-devices-repeated    CUDA_VISIBLE_DEVICES names a device twice, which leaves none
    device-order                CUDA_VISIBLE_DEVICES has indexes of unlike devices in an unknown order
    tegra-unknown-model         a Jetson whose SoC is not known here

Time: NVML takes 0.07 s on a GPU host, its binding 0.02 s to import. A driver that hangs is given up after
`nvml.SECONDS`; a process with a call stuck inside the kernel may still be slow to end.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..model import Host, Problem
from .described import describe
from .host_file import read_host, write_host

__all__ = ["describe", "detect", "read_host", "write_host"]


def detect(*, root: str = "/", env: Mapping[str, str] | None = None, python: str | None = None) -> Host:
    """This host as a process started with `env` (default: this process's) would see it.

    `root` stands before every path of /proc, /sys, /etc, /dev and the driver's own folders; NVML is found by the
    ordinary loader first. `python` is the target interpreter: a path, a command, or a version such as "3.12" or
    "3.13t"; by default the active virtual or conda environment's, else the one that runs gpuenv.

    `Gpu.index` is NVML's index (nvidia-smi's, PCI order); the place in `Host.gpus` is the CUDA runtime's number.
    Raises errors.InputError for a `python` that is neither.
    """
    from . import fallback, interpreter, nvml, system, visible  # describe needs none of them

    env = os.environ if env is None else env
    target = interpreter.find(python, env)
    here = system.read(root, env, target.libc)
    kernel = system.kernel_driver(root)
    reading = nvml.read(root, kernel[0] if kernel else None)
    if reading.state != "ok":
        reading = fallback.read(reading, root, env, here, kernel)
    if here.tegra:
        reading = fallback.add_tegra(reading, root)
    gpus, problems, sources = visible.select(reading.devices, env, reading.driver)
    problems = (*reading.problems, *problems)
    if not reading.devices and not problems:
        problems = (Problem(code="no-gpu", detail="NVML lists no device", hint=system.NO_GPU_HINT),)
    return Host(
        os=here.os,
        machine=here.machine,
        glibc=here.glibc,
        python=target.python,
        gpus=gpus,
        driver=reading.driver,
        driver_cuda=reading.driver_cuda,
        virtualization=here.virtualization,
        problems=problems,
        sources=(*here.sources, ("python", target.source), *reading.sources, *sources),
    )
