"""What can be known of the GPUs where NVML is missing or fails: /proc, nvidia-smi, libcuda, the SoC of a Jetson."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from ..model import CudaVersion, Gpu, Problem, parse_pair, parse_release
from .nvml import Device, Reading
from .system import System, missing_driver, read_text

_SMI_SECONDS = 60.0
_FIELDS = ("index", "name", "uuid", "pci.bus_id", "memory.total", "memory.free", "driver_version", "compute_cap")
_MIB = 1024 * 1024
_MISMATCH = "driver-library-mismatch"

# SoC -> compute capability. Source: NVIDIA, "CUDA GPU compute capability", the rows of the Jetson modules.
_TEGRA = {"tegra210": (5, 3), "tegra186": (6, 2), "tegra194": (7, 2), "tegra234": (8, 7), "tegra264": (11, 0)}


def read(failed: Reading, root: str, env: Mapping[str, str], here: System, kernel: tuple[str, str] | None) -> Reading:
    """`failed` with what other sources know added. `kernel` is (release, file) of the loaded module."""
    problems, sources = list(failed.problems), list(failed.sources)
    driver, cuda = failed.driver, failed.driver_cuda
    if driver is None and kernel is not None:
        driver = kernel[0]
        sources.append(("driver", kernel[1]))
    devices, smi_driver = ((), None) if failed.state == "hung" else _nvidia_smi(root, env, sources)
    if driver is None and smi_driver is not None:
        driver = smi_driver
        sources.append(("driver", "nvidia-smi"))
    if not devices:
        devices = _proc_gpus(root)
        if devices:
            sources.append(("gpus", "/proc/driver/nvidia/gpus"))
    mismatch = any(problem.code == _MISMATCH for problem in problems)
    if cuda is None and (kernel is not None or here.tegra) and not mismatch:
        cuda = _libcuda()
        if cuda is not None:
            sources.append(("driver_cuda", "libcuda.so.1: cuDriverGetVersion"))
    problem = _why(failed.state, root, here, bool(devices))
    if problem is not None:
        problems.append(problem)
    return failed.replace(
        devices=devices, driver=driver, driver_cuda=cuda, problems=tuple(problems), sources=tuple(sources)
    )


def _why(state: str, root: str, here: System, devices: bool) -> Problem | None:
    if state == "missing":
        return missing_driver(root, here)
    if state == "unbound" and not devices:
        return Problem(
            code="nvml-binding-missing",
            detail="the Python package nvidia-ml-py is not installed where gpuenv runs",
            hint="install nvidia-ml-py beside gpuenv",
        )
    return None


def _nvidia_smi(
    root: str, env: Mapping[str, str], sources: list[tuple[str, str]]
) -> tuple[tuple[Device, ...], str | None]:
    """(devices, driver release) by `nvidia-smi --query-gpu`, whose CSV is stable where its banner is not."""
    import shutil  # only where NVML failed

    wsl = os.path.join(root, "usr/lib/wsl/lib")
    executable = shutil.which("nvidia-smi", path=os.pathsep.join([env.get("PATH", os.defpath), wsl]))
    if executable is None:
        return (), None
    text = ""
    for fields in (_FIELDS, _FIELDS[:-1]):  # before R510 there is no compute_cap
        text, error = _run_smi(executable, fields, env)
        if not error:
            break
    else:
        sources.append(("gpus", f"nvidia-smi failed: {error}"))
        return (), None
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]
    found = [device for row in rows if (device := _smi_device(row)) is not None]
    if found:
        sources.append(("gpus", "nvidia-smi"))
    return tuple(found), next((row[6] for row in rows if len(row) >= len(_FIELDS) - 1 and _is_release(row[6])), None)


def _run_smi(executable: str, fields: Sequence[str], env: Mapping[str, str]) -> tuple[str, str]:
    """(output, "") or ("", why it failed)."""
    import subprocess  # only where NVML failed

    command = [executable, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(  # found on the user's PATH
            command, env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, timeout=_SMI_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", type(error).__name__
    if done.returncode:
        said = (done.stdout or done.stderr).decode(errors="replace").strip().splitlines()
        return "", f"exit status {done.returncode}: {said[0] if said else 'no output'}"
    return done.stdout.decode(errors="replace"), ""


def _smi_device(row: Sequence[str]) -> Device | None:
    if len(row) < len(_FIELDS) - 1 or not row[0].isdigit():
        return None
    index, name, uuid, bus = int(row[0]), row[1], row[2], row[3]
    if "lost" in name.lower():  # "[GPU is lost]"
        return Device(index=index, gpu=None)
    gpu = Gpu(
        name=name,
        compute_capability=_pair(row[7]) if len(row) == len(_FIELDS) else None,
        index=index,
        uuid=uuid if uuid.startswith("GPU-") else None,
        pci_bus_id=bus if ":" in bus else None,
        memory_total=_mib(row[4]),
        memory_free=_mib(row[5]),
    )
    return Device(index=index, gpu=gpu)


def _mib(text: str) -> int | None:
    return int(text) * _MIB if text.isascii() and text.isdigit() else None


def _pair(text: str) -> tuple[int, int] | None:
    try:
        return parse_pair(text)
    except ValueError:
        return None


def _is_release(text: str) -> bool:
    try:
        return bool(parse_release(text))
    except ValueError:
        return False


def _proc_gpus(root: str) -> tuple[Device, ...]:
    """The devices that the kernel module drives, in PCI order: their names and UUIDs, no compute capability."""
    folder = "proc/driver/nvidia/gpus"
    try:
        addresses = sorted(os.listdir(os.path.join(root, folder)))
    except OSError:
        return ()
    devices = []
    for index, address in enumerate(addresses):
        text = read_text(root, f"{folder}/{address}/information")
        facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
        uuid = facts.get("GPU UUID", "")
        gpu = Gpu(
            name=facts.get("Model") or "unknown",
            compute_capability=None,
            index=index,
            uuid=uuid if re.fullmatch(r"GPU-[0-9a-f-]{36}", uuid) else None,  # "GPU-????????-..." before first use
            pci_bus_id=address,
        )
        devices.append(Device(index=index, gpu=gpu))
    return tuple(devices)


def _libcuda() -> CudaVersion | None:
    """What libcuda itself was made for; this call needs no device and starts nothing."""
    import ctypes  # only where NVML failed

    number = ctypes.c_int()
    try:
        library = ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
        status = library.cuDriverGetVersion(ctypes.byref(number))
    except (OSError, AttributeError):
        return None
    return None if status or number.value <= 0 else (number.value // 1000, number.value % 1000 // 10)


def add_tegra(reading: Reading, root: str) -> Reading:
    """A Jetson's own GPU: the device if nothing else lists it, else its compute capability where NVML has none."""
    sources = list(reading.sources)
    release = re.search(r"# R(\d+) \(release\), REVISION: ([\d.]+)", read_text(root, "etc/nv_tegra_release"))
    if release:
        sources.append(("l4t", f"{release[1]}.{release[2]}, /etc/nv_tegra_release"))
    compatible = read_text(root, "proc/device-tree/compatible")
    capability = next((pair for soc, pair in _TEGRA.items() if f"nvidia,{soc}" in compatible), None)
    devices: Sequence[Device] = reading.devices
    if not devices:
        model = read_text(root, "proc/device-tree/model").strip("\0\n ") or "NVIDIA Jetson"
        devices = (Device(index=0, gpu=Gpu(name=model, compute_capability=None, index=0)),)
        sources.append(("gpus", "/proc/device-tree"))
    problems = reading.problems
    unknown = [device for device in devices if device.gpu and device.gpu.compute_capability is None]
    if unknown and capability is None:
        said = compatible.replace("\0", " ").strip() or "not told"
        detail = f"this Jetson's SoC is none of {', '.join(_TEGRA)}: {said}"
        problems = (*problems, Problem(code="tegra-unknown-model", detail=detail, hint="say it with --gpu sm_XY"))
    elif capability is not None:
        devices = [_with_capability(device, capability) for device in devices]
    return reading.replace(devices=tuple(devices), problems=problems, sources=tuple(sources))


def _with_capability(device: Device, capability: tuple[int, int]) -> Device:
    if device.gpu is None or device.gpu.compute_capability is not None:
        return device
    return device.replace(gpu=device.gpu.replace(compute_capability=capability))
