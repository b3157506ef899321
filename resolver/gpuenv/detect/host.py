"""Detect this host.

`detect` is the only reader of hardware. It never raises an error for what it detects: a fact that
cannot be known is None, and `Host.problems` says why. `Host.sources` holds pairs (fact, where it
came from). The codes of the problems:

    no-gpu                    This machine has no NVIDIA GPU and no NVIDIA driver.
    driver-not-installed      An NVIDIA GPU is on the PCI bus, but there is neither a kernel module
                              nor a library.
    driver-not-loaded         NVML 9: the libraries exist, but the kernel module is not loaded.
    driver-libraries-missing  The kernel module or its device nodes exist, but the libraries do not
                              (a container).
    driver-libraries-broken   libnvidia-ml.so.1 exists, but cannot be loaded.
    driver-libraries-off-path The libraries exist, but the loader does not search their folder.
    driver-library-mismatch   NVML 18: the libraries are of another release than the kernel module.
    libcuda-missing           NVML works, but libcuda.so.1 is missing.
    nvml-library-not-found    NVML 12: NVML exists, but a library that it needs does not.
    nvml-binding-missing      The Python package nvidia-ml-py is not installed.
    nvml-timeout              NVML gave no answer in time.
    nvml-unknown-error        NVML 999.
    nvml-error                Any other NVML error, with its number and name.
    no-permission             NVML 4.
    gpu-lost                  NVML 15 for one device; the others are listed.
    gpu-reset-required        NVML 16 for one device; the others are listed.
    compute-prohibited        A visible device is in compute mode "prohibited".
    mig-no-instance           A device is in MIG mode and has no instance.
    devices-hidden            CUDA_VISIBLE_DEVICES hides every device on purpose.
    visible-device-missing    CUDA_VISIBLE_DEVICES names a device that does not exist.
    visible-devices-repeated  CUDA_VISIBLE_DEVICES names a device twice, which hides all.
    device-order              CUDA_VISIBLE_DEVICES selects from unlike devices by index, and their
                              order is unknown.
    tegra-unknown-model       A Jetson whose SoC is unknown to gpuenv.

NVML takes 0.07 s on a GPU host, and the import of its binding 0.02 s. A driver that hangs is
abandoned after `nvml.SECONDS`. A process with a call inside the kernel may still be slow to end.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..model import Host, Problem
from . import fallback, interpreter, nvml, system, visible


def detect(
    *, root: str = "/", env: Mapping[str, str] | None = None, python: str | None = None
) -> Host:
    """Detect this host, as a process sees it.

    `Gpu.index` is NVML's index (PCI order, as in nvidia-smi). The position in `Host.gpus` is the
    number that the CUDA runtime gives to the device.

    Args:
        root: prefix of every path of /proc, /sys, /etc, /dev and of the driver's own folders. The
            loader's search for NVML comes first and ignores it.
        env: the environment variables of the process; the default is this process's.
        python: the target interpreter: a path, a command, or a version such as "3.12" or "3.13t".
            The default is that of the active virtual or conda environment, otherwise the one
            that runs gpuenv.

    Raises:
        InputError: `python` is neither an interpreter nor a version.
    """
    if env is None:
        env = os.environ
    target = interpreter.find(python, env)
    platform = system.read(root, env, target.libc)
    reading = _read_devices(root, env, platform)
    gpus, visible_problems, visible_sources = visible.select(reading.devices, env, reading.driver)
    problems = (*reading.problems, *visible_problems)
    if not reading.devices and not problems:
        no_gpu = Problem(code="no-gpu", detail="NVML lists no device", hint=system.NO_GPU_HINT)
        problems = (no_gpu,)
    return Host(
        os=platform.os,
        machine=platform.machine,
        glibc=platform.glibc,
        python=target.python,
        gpus=gpus,
        driver=reading.driver,
        driver_cuda=reading.driver_cuda,
        virtualization=platform.virtualization,
        problems=problems,
        cpu=system.cpu_features(root, platform.machine),
        sources=(
            *platform.sources,
            ("python", target.source),
            *reading.sources,
            *visible_sources,
        ),
    )


def _read_devices(root: str, env: Mapping[str, str], platform: system.System) -> nvml.Reading:
    kernel = system.kernel_driver(root)
    kernel_release = None
    if kernel is not None:
        kernel_release = kernel[0]
    reading = nvml.read(root, kernel_release)
    if reading.state != "ok":
        reading = fallback.read(reading, root, env, platform, kernel)
    if platform.tegra:
        reading = fallback.add_tegra(reading, root)
    return reading
