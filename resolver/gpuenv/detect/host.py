"""Detect this host, and read and write host files.

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

A host file is UTF-8: {"gpuenv_host": 1, "host": {...}}. "host" holds the fields of model.Host by
name; fields at their default are left out:

    "os", "machine", "glibc" [2, 36], "python" {"version": [3, 12], ...},
    "gpus" [{"name", "compute_capability" [9, 0] or null, ...}], "driver" "580.65.06",
    "driver_cuda" [13, 0], "virtualization", "problems" [{"code", "detail", "hint"}],
    "sources" [[fact, source], ...]

Only "python" is required.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from ..atomic_write import write_whole
from ..errors import InputError
from ..interpreters import find_target
from ..model import Host, Problem
from ..serialize import host_from_plain, read_input, to_plain
from . import fallback, nvml, system, visible

_FORMAT = 1
_HINT = "gpuenv detect -o FILE writes such a file"


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
    env = os.environ if env is None else env
    target = find_target(python, env)
    kind, machine = system.machine_here()
    glibc, glibc_source = system.glibc_here(target.libc)
    sources = [("os", "uname"), ("machine", "uname"), ("glibc", glibc_source)]
    surroundings = system.surroundings(root, env)
    virtualization = next(iter(surroundings), None)
    if virtualization is not None:
        sources.append(("virtualization", surroundings[virtualization]))
    kernel = system.kernel_driver(root)
    reading = nvml.read(root, None if kernel is None else kernel[0])
    if reading.state != "ok":
        fallback.complete(reading, root, env, surroundings, kernel)
    if "tegra" in surroundings:
        fallback.add_tegra(reading, root)
    gpus, visible_problems, visible_sources = visible.select(reading.devices, env, reading.driver)
    problems = (*reading.problems, *visible_problems)
    if not reading.devices and not problems:
        no_gpu = Problem("no-gpu", "NVML lists no device", system.NO_GPU_HINT)
        problems = (no_gpu,)
    return Host(
        os=kind,
        machine=machine,
        glibc=glibc,
        python=target.python,
        gpus=gpus,
        driver=reading.driver,
        driver_cuda=reading.driver_cuda,
        virtualization=virtualization,
        problems=problems,
        cpu=system.cpu_features(root, machine),
        sources=(*sources, ("python", target.source), *reading.sources, *visible_sources),
    )


def read_host(path: str | os.PathLike[str]) -> Host:
    """Read a host from a file that `write_host` wrote.

    Raises:
        InputError: the file cannot be read or is wrong; the message names the file and the field.
    """
    name = os.fspath(path)
    try:
        document = json.loads(read_input(name))
    except OSError as error:
        message = f"host file {name}: {error.strerror or error}"
        raise InputError(message, hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"host file {name} is not JSON: {error}", hint=_HINT) from error
    try:
        return _parse(document)
    except (ValueError, TypeError) as error:
        raise InputError(f"host file {name}: {error}", hint=_HINT) from error


def _parse(document: object) -> Host:
    """Return the host of a document. ValueError if it is wrong."""
    if not isinstance(document, dict) or "gpuenv_host" not in document:
        raise ValueError("'gpuenv_host' is missing, so it is not a host file")
    version = document["gpuenv_host"]
    if type(version) is not int or version != _FORMAT:  # True is no format, although True == 1
        raise ValueError(f"'gpuenv_host' is {version!r}, and this gpuenv reads format {_FORMAT}")
    unknown = sorted(set(document) - {"gpuenv_host", "host"})
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}")
    return host_from_plain(document.get("host"))


def write_host(host: Host, path: str | os.PathLike[str]) -> None:
    """Write a host to a file, completely or not at all. A link is followed.

    Raises:
        InputError: the file cannot be written.
    """
    name = os.fspath(path)
    text = json.dumps({"gpuenv_host": _FORMAT, "host": to_plain(host)}, indent=2) + "\n"
    try:
        if os.path.exists(name) and not os.path.isfile(name):
            # A pipe or a device cannot be replaced by another file.
            with open(name, "w", encoding="utf-8") as file:
                file.write(text)
        else:
            write_whole(os.path.realpath(name), text.encode())
    except OSError as error:
        message = f"host file {name}: {error.strerror or error}"
        raise InputError(message, hint="give a path that can be written") from error
