"""Read facts about the GPUs where NVML is missing or fails.

The other sources are /proc, nvidia-smi, libcuda and the SoC of a Jetson.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from collections.abc import Container, Mapping

from ..model import CudaVersion, Gpu, Problem, parse_pair, parse_release
from .nvml import Device, Reading, cuda_version
from .system import missing_driver, read_text

_SMI_SECONDS = 60.0
_SMI_FIELDS = (
    "index",
    "name",
    "uuid",
    "pci.bus_id",
    "memory.total",
    "memory.free",
    "driver_version",
    "compute_cap",  # from R510 on
)
_MIB = 1024 * 1024

_PROC_GPUS = "proc/driver/nvidia/gpus"
# The kernel module shows "GPU-????????-..." before the first use of a device.
_COMPLETE_UUID = re.compile(r"GPU-[0-9a-f-]{36}")

_L4T_RELEASE = re.compile(r"# R(\d+) \(release\), REVISION: ([\d.]+)")
# SoC -> compute capability. Source: NVIDIA, "CUDA GPU compute capability", the rows of the Jetson
# modules.
_TEGRA_CAPABILITIES = {
    "tegra210": (5, 3),
    "tegra186": (6, 2),
    "tegra194": (7, 2),
    "tegra234": (8, 7),
    "tegra264": (11, 0),
}


def complete(
    reading: Reading,
    root: str,
    env: Mapping[str, str],
    surroundings: Container[str],
    kernel: tuple[str, str] | None,
) -> None:
    """Add the facts that other sources have to a failed reading of NVML.

    Args:
        reading: the reading of NVML.
        root: prefix of every path.
        env: the environment variables of the process.
        surroundings: see `system.surroundings`.
        kernel: (driver release, file) of the loaded kernel module.
    """
    if reading.driver is None and kernel is not None:
        reading.driver, file = kernel
        reading.sources.append(("driver", file))
    if reading.state != "hung":  # nvidia-smi would hang, too
        _ask_nvidia_smi(reading, root, env)
    if not reading.devices:
        reading.devices = _proc_devices(root)
        if reading.devices:
            reading.sources.append(("gpus", f"/{_PROC_GPUS}"))
    mismatch = any(problem.code == "driver-library-mismatch" for problem in reading.problems)
    if reading.driver_cuda is None and (kernel or "tegra" in surroundings) and not mismatch:
        reading.driver_cuda = _libcuda_version()
        if reading.driver_cuda is not None:
            reading.sources.append(("driver_cuda", "libcuda.so.1: cuDriverGetVersion"))
    problem = None
    if reading.state == "missing":
        problem = missing_driver(root, surroundings)
        if reading.devices and problem is not None and problem.code != "driver-libraries-missing":
            problem = Problem(  # GPUs are listed: the machine has some
                "driver-libraries-missing",
                "nvidia-smi lists GPUs, but libnvidia-ml.so.1 was not found",
                "install the driver's compute libraries of the loaded release",
            )
    elif reading.state == "unbound" and not reading.devices:
        problem = Problem(
            "nvml-binding-missing",
            "the Python package nvidia-ml-py is not installed where gpuenv runs",
            "install nvidia-ml-py in gpuenv's environment",
        )
    if problem is not None:
        reading.problems.append(problem)


# ---- nvidia-smi ----------------------------------------------------------------------------------


def _ask_nvidia_smi(reading: Reading, root: str, env: Mapping[str, str]) -> None:
    """Run `nvidia-smi --query-gpu`: its CSV output is stable, its banner is not."""
    wsl = os.path.join(root, "usr/lib/wsl/lib")
    folders = os.pathsep.join([env.get("PATH", os.defpath), wsl])
    executable = shutil.which("nvidia-smi", path=folders)
    if executable is None:
        return
    failure = ""
    for fields in (_SMI_FIELDS, _SMI_FIELDS[:-1]):
        query = f"--query-gpu={','.join(fields)}"
        command = [executable, query, "--format=csv,noheader,nounits"]
        try:
            done = subprocess.run(
                command,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_SMI_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            failure = type(error).__name__
            continue
        if done.returncode == 0:
            break
        lines = (done.stdout or done.stderr).strip().splitlines()
        failure = f"exit status {done.returncode}: {lines[0] if lines else 'no output'}"
    else:
        reading.sources.append(("gpus", f"nvidia-smi failed: {failure}"))
        return
    release = None
    for line in done.stdout.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) < len(_SMI_FIELDS) - 1:
            continue
        row = dict(zip(_SMI_FIELDS, cells, strict=False))
        release = release or _release(row["driver_version"])
        if row["index"].isdigit():
            reading.devices.append(_smi_device(row))
    if reading.devices:
        reading.sources.append(("gpus", "nvidia-smi"))
    if reading.driver is None and release is not None:
        reading.driver = release
        reading.sources.append(("driver", "nvidia-smi"))


def _release(text: str) -> str | None:
    try:
        parse_release(text)
    except ValueError:
        return None
    return text


def _smi_device(row: Mapping[str, str]) -> Device:
    """Return the device of a row of nvidia-smi's output. A cell may be "[N/A]" or an error."""
    index = int(row["index"])
    if "lost" in row["name"].lower():  # "[GPU is lost]"
        return Device(index=index, gpu=None)
    try:
        capability = parse_pair(row.get("compute_cap", ""))
    except ValueError:
        capability = None
    gpu = Gpu(
        name=row["name"],
        compute_capability=capability,
        index=index,
        uuid=row["uuid"] if row["uuid"].startswith("GPU-") else None,
        pci_bus_id=row["pci.bus_id"] if ":" in row["pci.bus_id"] else None,
        memory_total=_parse_mib(row["memory.total"]),
        memory_free=_parse_mib(row["memory.free"]),
    )
    return Device(index=index, gpu=gpu)


def _parse_mib(text: str) -> int | None:
    """Return a number of MiB in bytes, None for another text."""
    return int(text) * _MIB if text.isascii() and text.isdigit() else None


# ---- /proc and libcuda ---------------------------------------------------------------------------


def _proc_devices(root: str) -> list[Device]:
    """Return the devices of the kernel module in PCI order, without compute capabilities."""
    try:
        addresses = sorted(os.listdir(os.path.join(root, _PROC_GPUS)))
    except OSError:
        return []
    devices = []
    for index, address in enumerate(addresses):
        facts = {}
        for line in read_text(root, f"{_PROC_GPUS}/{address}/information").splitlines():
            key, _, value = line.partition(":")  # "Model: Tesla T4"
            facts[key.strip()] = value.strip()
        uuid = facts.get("GPU UUID", "")
        gpu = Gpu(
            name=facts.get("Model") or "unknown",
            compute_capability=None,
            index=index,
            uuid=uuid if _COMPLETE_UUID.fullmatch(uuid) else None,
            pci_bus_id=address,
        )
        devices.append(Device(index=index, gpu=gpu))
    return devices


def _libcuda_version() -> CudaVersion | None:
    """Return the CUDA version that libcuda was made for.

    The call needs no device and starts nothing.
    """
    number = ctypes.c_int()
    try:
        library = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
        status = library.cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return None
    return cuda_version(number.value) if status == 0 else None


# ---- Jetson --------------------------------------------------------------------------------------


def add_tegra(reading: Reading, root: str) -> None:
    """Add the GPU of a Jetson to a reading.

    The GPU is added if no source listed a device. Where NVML reported no compute capability, it is
    that of the SoC.
    """
    release = _L4T_RELEASE.search(read_text(root, "etc/nv_tegra_release"))
    if release:
        source = f"{release[1]}.{release[2]}, /etc/nv_tegra_release"
        reading.sources.append(("l4t", source))
    if not reading.devices:
        model = read_text(root, "proc/device-tree/model").strip("\0\n ") or "NVIDIA Jetson"
        gpu = Gpu(name=model, compute_capability=None, index=0)
        reading.devices.append(Device(index=0, gpu=gpu))
        reading.sources.append(("gpus", "/proc/device-tree"))
    compatible = read_text(root, "proc/device-tree/compatible")
    known = [pair for soc, pair in _TEGRA_CAPABILITIES.items() if f"nvidia,{soc}" in compatible]
    for number, device in enumerate(reading.devices):
        if device.gpu is None or device.gpu.compute_capability is not None:
            continue
        if known:
            gpu = device.gpu.replace(compute_capability=known[0])
            reading.devices[number] = device.replace(gpu=gpu)
            continue
        soc = compatible.replace("\0", " ").strip() or "unknown"
        detail = f"this Jetson's SoC is none of {', '.join(_TEGRA_CAPABILITIES)}: {soc}"
        hint = "give its compute capability with --gpu sm_XY"
        reading.problems.append(Problem("tegra-unknown-model", detail, hint))
        break
