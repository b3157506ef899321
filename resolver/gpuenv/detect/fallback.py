"""Read facts about the GPUs where NVML is missing or fails.

The other sources are /proc, nvidia-smi, libcuda and the SoC of a Jetson.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence

from ..model import ComputeCapability, CudaVersion, Gpu, Problem, parse_pair, parse_release
from .nvml import Device, Reading
from .system import System, missing_driver, read_text

_SMI_SECONDS = 60.0
_SMI_FIELDS = (
    "index",
    "name",
    "uuid",
    "pci.bus_id",
    "memory.total",
    "memory.free",
    "driver_version",
    "compute_cap",
)
_SMI_FIELDS_BEFORE_R510 = _SMI_FIELDS[:-1]  # compute_cap exists from R510 on
_SMI_DRIVER = _SMI_FIELDS.index("driver_version")
_SMI_CAPABILITY = _SMI_FIELDS.index("compute_cap")
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


def read(
    failed: Reading,
    root: str,
    env: Mapping[str, str],
    system: System,
    kernel: tuple[str, str] | None,
) -> Reading:
    """Return a failed reading of NVML with the facts that other sources have.

    Args:
        failed: the reading of NVML.
        root: prefix of every path.
        env: the environment variables of the process.
        system: the platform.
        kernel: (driver release, file) of the loaded kernel module.
    """
    problems = list(failed.problems)
    sources = list(failed.sources)
    driver = failed.driver
    cuda = failed.driver_cuda
    if driver is None and kernel is not None:
        driver, file = kernel
        sources.append(("driver", file))
    devices: tuple[Device, ...] = ()
    if failed.state != "hung":  # nvidia-smi would hang, too
        devices, smi_driver, smi_source = _query_nvidia_smi(root, env)
        if smi_source:
            sources.append(("gpus", smi_source))
        if driver is None and smi_driver is not None:
            driver = smi_driver
            sources.append(("driver", "nvidia-smi"))
    if not devices:
        devices = _proc_devices(root)
        if devices:
            sources.append(("gpus", f"/{_PROC_GPUS}"))
    mismatch = any(problem.code == "driver-library-mismatch" for problem in problems)
    if cuda is None and (kernel is not None or system.tegra) and not mismatch:
        cuda = _libcuda_version()
        if cuda is not None:
            sources.append(("driver_cuda", "libcuda.so.1: cuDriverGetVersion"))
    problem = _missing_part(failed.state, root, system, bool(devices))
    if problem is not None:
        problems.append(problem)
    return failed.replace(
        devices=devices,
        driver=driver,
        driver_cuda=cuda,
        problems=tuple(problems),
        sources=tuple(sources),
    )


def _missing_part(state: str, root: str, system: System, has_devices: bool) -> Problem | None:
    """Return what is missing for NVML to work, None if nothing is known to be missing."""
    if state == "missing":
        return missing_driver(root, system)
    if state == "unbound" and not has_devices:
        return Problem(
            code="nvml-binding-missing",
            detail="the Python package nvidia-ml-py is not installed where gpuenv runs",
            hint="install nvidia-ml-py in gpuenv's environment",
        )
    return None


# ---- nvidia-smi ----------------------------------------------------------------------------------


def _query_nvidia_smi(
    root: str, env: Mapping[str, str]
) -> tuple[tuple[Device, ...], str | None, str]:
    """Run `nvidia-smi --query-gpu`: its CSV output is stable, its banner is not.

    Returns:
        The devices, the driver release, and the source of the devices or why nvidia-smi failed
        ("" if there is nothing to report).
    """
    wsl = os.path.join(root, "usr/lib/wsl/lib")
    folders = os.pathsep.join([env.get("PATH", os.defpath), wsl])
    executable = shutil.which("nvidia-smi", path=folders)
    if executable is None:
        return (), None, ""
    output, error = _run_nvidia_smi(executable, _SMI_FIELDS, env)
    if error:
        output, error = _run_nvidia_smi(executable, _SMI_FIELDS_BEFORE_R510, env)
    if error:
        return (), None, f"nvidia-smi failed: {error}"
    devices = []
    driver = None
    for line in output.splitlines():
        row = [cell.strip() for cell in line.split(",")]
        if len(row) < len(_SMI_FIELDS_BEFORE_R510):
            continue
        if driver is None and _is_release(row[_SMI_DRIVER]):
            driver = row[_SMI_DRIVER]
        device = _smi_device(row)
        if device is not None:
            devices.append(device)
    if devices:
        return tuple(devices), driver, "nvidia-smi"
    return (), driver, ""


def _run_nvidia_smi(
    executable: str, fields: Sequence[str], env: Mapping[str, str]
) -> tuple[str, str]:
    """Return (output, "") or ("", why it failed)."""
    import subprocess  # takes 10 ms, and is needed only where NVML failed

    command = [executable, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SMI_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", type(error).__name__
    if done.returncode == 0:
        return done.stdout.decode(errors="replace"), ""
    lines = (done.stdout or done.stderr).decode(errors="replace").strip().splitlines()
    message = "no output"
    if lines:
        message = lines[0]
    return "", f"exit status {done.returncode}: {message}"


def _smi_device(row: Sequence[str]) -> Device | None:
    """Return the device of a row of nvidia-smi's output, None for a row of another kind."""
    if not row[0].isdigit():
        return None
    index, name, uuid, bus_id = int(row[0]), row[1], row[2], row[3]
    if "lost" in name.lower():  # "[GPU is lost]"
        return Device(index=index, gpu=None)
    capability = None
    if len(row) == len(_SMI_FIELDS):
        capability = _parse_capability(row[_SMI_CAPABILITY])
    gpu = Gpu(
        name=name,
        compute_capability=capability,
        index=index,
        memory_total=_parse_mib(row[4]),
        memory_free=_parse_mib(row[5]),
    )
    # A cell may also be "[N/A]" or an error.
    if uuid.startswith("GPU-"):
        gpu = gpu.replace(uuid=uuid)
    if ":" in bus_id:
        gpu = gpu.replace(pci_bus_id=bus_id)
    return Device(index=index, gpu=gpu)


def _parse_mib(text: str) -> int | None:
    """Return a number of MiB in bytes, None for another text."""
    if text.isascii() and text.isdigit():
        return int(text) * _MIB
    return None


def _parse_capability(text: str) -> ComputeCapability | None:
    try:
        return parse_pair(text)
    except ValueError:
        return None


def _is_release(text: str) -> bool:
    try:
        parse_release(text)
    except ValueError:
        return False
    return True


# ---- /proc and libcuda ---------------------------------------------------------------------------


def _proc_devices(root: str) -> tuple[Device, ...]:
    """Return the devices of the kernel module in PCI order, without compute capabilities."""
    try:
        addresses = sorted(os.listdir(os.path.join(root, _PROC_GPUS)))
    except OSError:
        return ()
    devices = []
    for index, address in enumerate(addresses):
        facts = _parse_information(read_text(root, f"{_PROC_GPUS}/{address}/information"))
        uuid = facts.get("GPU UUID")
        if uuid is not None and not _COMPLETE_UUID.fullmatch(uuid):
            uuid = None
        gpu = Gpu(
            name=facts.get("Model") or "unknown",
            compute_capability=None,
            index=index,
            uuid=uuid,
            pci_bus_id=address,
        )
        devices.append(Device(index=index, gpu=gpu))
    return tuple(devices)


def _parse_information(text: str) -> dict[str, str]:
    """Parse lines such as "Model: Tesla T4"."""
    facts = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        facts[key.strip()] = value.strip()
    return facts


def _libcuda_version() -> CudaVersion | None:
    """Return the CUDA version that libcuda was made for.

    The call needs no device and starts nothing.
    """
    import ctypes  # takes 4 ms

    name = "libcuda.so.1"
    if os.name == "nt":
        name = "nvcuda.dll"
    number = ctypes.c_int()
    try:
        library = ctypes.CDLL(name)
        status = library.cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return None
    if status != 0 or number.value <= 0:
        return None
    return number.value // 1000, number.value % 1000 // 10


# ---- Jetson --------------------------------------------------------------------------------------


def add_tegra(reading: Reading, root: str) -> Reading:
    """Return a reading with the GPU of a Jetson.

    The GPU is added if no source listed a device. Where NVML reported no compute capability, it is
    that of the SoC.
    """
    sources = list(reading.sources)
    problems = list(reading.problems)
    devices = list(reading.devices)
    release = _L4T_RELEASE.search(read_text(root, "etc/nv_tegra_release"))
    if release:
        sources.append(("l4t", f"{release[1]}.{release[2]}, /etc/nv_tegra_release"))
    if not devices:
        model = read_text(root, "proc/device-tree/model").strip("\0\n ") or "NVIDIA Jetson"
        devices.append(Device(index=0, gpu=Gpu(name=model, compute_capability=None, index=0)))
        sources.append(("gpus", "/proc/device-tree"))
    compatible = read_text(root, "proc/device-tree/compatible")
    capability = _tegra_capability(compatible)
    if capability is not None:
        devices = [_with_capability(device, capability) for device in devices]
    elif any(device.gpu and device.gpu.compute_capability is None for device in devices):
        soc = compatible.replace("\0", " ").strip() or "unknown"
        detail = f"this Jetson's SoC is none of {', '.join(_TEGRA_CAPABILITIES)}: {soc}"
        hint = "give its compute capability with --gpu sm_XY"
        problems.append(Problem(code="tegra-unknown-model", detail=detail, hint=hint))
    return reading.replace(devices=tuple(devices), problems=tuple(problems), sources=tuple(sources))


def _tegra_capability(compatible: str) -> ComputeCapability | None:
    """Return the compute capability for the device tree's list of compatible models."""
    for soc, capability in _TEGRA_CAPABILITIES.items():
        if f"nvidia,{soc}" in compatible:
            return capability
    return None


def _with_capability(device: Device, capability: ComputeCapability) -> Device:
    """Return a device with a compute capability if it has none."""
    if device.gpu is None or device.gpu.compute_capability is not None:
        return device
    return device.replace(gpu=device.gpu.replace(compute_capability=capability))
