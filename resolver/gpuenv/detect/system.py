"""The platform, and the traces of a driver in the file system. All paths are below `root`."""

from __future__ import annotations

import os
import platform
import re
import sys
from collections.abc import Container, Mapping

from ..compat.variants import CPU_FEATURES
from ..model import Problem, major_minor, parse_release

NO_GPU_HINT = "describe the host with --gpu or --host, or solve for the CPU with --gpu none"
CONTAINER_HINT = (
    "start the container with --gpus all (or a CDI device),"
    " with nvidia-container-toolkit on its host"
)

# Where the driver's libraries are if the loader does not search there: WSL, Kubernetes device
# plug-ins, NixOS.
DRIVER_FOLDERS = ("usr/lib/wsl/lib", "usr/local/nvidia/lib64", "run/opengl-driver/lib")

# Source: NVIDIA/open-gpu-kernel-modules, nv-procfs. The open module writes
# "NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build", the closed module
# "NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024".
_KERNEL_MODULE = re.compile(
    r"^NVRM version:.*Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+){1,3})(?:\s|$)", re.MULTILINE
)
_CONTAINER_CGROUP = re.compile(r"docker|kubepods|containerd|libpod|lxc|garden")
_CONTAINER_FILES = (".dockerenv", "run/.containerenv", ".singularity.d")
_CONTAINER_VARIABLES = (
    "container",
    "KUBERNETES_SERVICE_HOST",
    "APPTAINER_CONTAINER",
    "SINGULARITY_CONTAINER",
)
_DRIVER_TRACES = ("dev/nvidiactl", "dev/nvidia0", "proc/driver/nvidia", "sys/module/nvidia")
_NVIDIA_VENDOR = "0x10de"
_DISPLAY_CLASS = "0x03"
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
_READ_LIMIT = 65536


def read_text(root: str, path: str) -> str:
    """Return the first 64 Ki characters of a file, "" if it cannot be read."""
    try:
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            return file.read(_READ_LIMIT)
    except OSError:
        return ""


def cpu_features(root: str, machine: str) -> tuple[str, ...]:
    """Return the features of the CPU that variant wheels ask for; () if they are not known."""
    key = "flags" if machine == "x86_64" else "Features"
    for line in read_text(root, "proc/cpuinfo").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == key:
            features = set(value.split())
            if "pni" in features:  # Linux's name
                features.add("sse3")
            return tuple(sorted(features & CPU_FEATURES))
    return ()


def exists(root: str, path: str) -> bool:
    """Return whether a path below `root` exists."""
    return os.path.exists(os.path.join(root, path))


# ---- the platform --------------------------------------------------------------------------------


def surroundings(root: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return what this machine is besides its platform: tegra, wsl2 and container, in this order.

    Each has the file or variable that shows it. The first one is Host.virtualization.

    Args:
        root: prefix of every path.
        env: the environment variables of the process.
    """
    evidence = {
        "tegra": _tegra_evidence(root),
        "wsl2": _wsl2_evidence(root),
        "container": _container_evidence(root, env),
    }
    return {name: place for name, place in evidence.items() if place}


def machine_here() -> tuple[str, str]:
    """Return (os, machine) of this process, spelled as in Host."""
    kind = "windows" if sys.platform == "win32" else sys.platform
    machine = platform.machine()
    return kind, _MACHINES.get(machine.lower(), machine)


def glibc_here(libc: str | None = None) -> tuple[tuple[int, int] | None, str]:
    """Return (version, source) of a C library; the version is None if it is not glibc.

    Args:
        libc: what the target interpreter reported, "glibc 2.36"; None takes the C library of this
            process.
    """
    source = "the target interpreter"
    if libc is None:
        source = "confstr"
        try:
            libc = os.confstr("CS_GNU_LIBC_VERSION")
        except (AttributeError, ValueError, OSError):
            libc = None
    name, _, version = (libc or "").partition(" ")
    if name != "glibc":
        return None, f"{source}: the C library is not glibc"
    glibc = major_minor(version)
    if glibc is None:
        source += f": {libc!r} is not a glibc version"
    return glibc, source


def _tegra_evidence(root: str) -> str:
    """Return the file that shows a Jetson, "" if none does."""
    if exists(root, "etc/nv_tegra_release"):
        return "/etc/nv_tegra_release"
    if "nvidia,tegra" in read_text(root, "proc/device-tree/compatible"):
        return "/proc/device-tree/compatible"
    return ""


def _wsl2_evidence(root: str) -> str:
    """Return the path that shows WSL 2, "" if none does.

    WSL 1 also has "Microsoft" in its version, but no GPU: only WSL 2 has the folder of the
    paravirtual driver.
    """
    version = read_text(root, "proc/version").lower()
    if "microsoft" not in version:
        return ""
    if "wsl2" in version or "microsoft-standard" in version:
        return "/proc/version"
    if exists(root, "usr/lib/wsl/lib"):
        return "/usr/lib/wsl/lib"
    return ""


def _container_evidence(root: str, env: Mapping[str, str]) -> str:
    """Return the path or variable that shows a container, "" if none does."""
    for path in _CONTAINER_FILES:
        if exists(root, path):
            return f"/{path}"
    for variable in _CONTAINER_VARIABLES:
        if env.get(variable):
            return f"environment variable {variable}"
    if _CONTAINER_CGROUP.search(read_text(root, "proc/1/cgroup")):
        return "/proc/1/cgroup"
    return ""


# ---- traces of a driver --------------------------------------------------------------------------


def kernel_driver(root: str) -> tuple[str, str] | None:
    """Return (driver release, file) of the loaded kernel module.

    None if no module is loaded or its release cannot be parsed.
    """
    match = _KERNEL_MODULE.search(read_text(root, "proc/driver/nvidia/version"))
    if match:
        return match[1], "/proc/driver/nvidia/version"
    release = read_text(root, "sys/module/nvidia/version").strip()
    try:
        parse_release(release)
    except ValueError:
        return None
    return release, "/sys/module/nvidia/version"


def missing_driver(root: str, surroundings: Container[str]) -> Problem | None:
    """Return why NVML's library is missing.

    None on a Jetson: its older releases do not ship the library.
    """
    if "tegra" in surroundings:
        return None
    is_container, is_wsl2 = "container" in surroundings, "wsl2" in surroundings
    # These exist only if a kernel module is loaded.
    traces = [f"/{path}" for path in _DRIVER_TRACES if exists(root, path)]
    if is_wsl2 and is_container and exists(root, "dev/dxg"):
        traces.append("/dev/dxg")
    if traces:
        hint = "install the driver's compute libraries of the loaded release"
        return Problem(
            "driver-libraries-missing",
            f"{traces[0]} exists, but libnvidia-ml.so.1 was not found",
            CONTAINER_HINT if is_container else hint,
        )
    if is_wsl2:
        return Problem(
            "no-gpu",
            "WSL 2 has no NVIDIA libraries in /usr/lib/wsl/lib",
            f"install NVIDIA's driver for Windows (and none inside WSL); {NO_GPU_HINT}",
        )
    gpus = _pci_gpus(root)
    if gpus:
        where = " on the container host" if is_container else ""
        return Problem(
            "driver-not-installed",
            f"the PCI bus has an NVIDIA GPU without NVIDIA's driver: {', '.join(gpus)}",
            f"install NVIDIA's driver{where}, or {NO_GPU_HINT}",
        )
    return Problem(
        "no-gpu",
        "this machine has no NVIDIA GPU and no NVIDIA driver",
        NO_GPU_HINT,
    )


def _pci_gpus(root: str) -> list[str]:
    """Return the address and the kernel driver of every NVIDIA display device on the PCI bus."""
    folder = os.path.join(root, "sys/bus/pci/devices")
    try:
        addresses = sorted(os.listdir(folder))
    except OSError:
        return []
    gpus = []
    for address in addresses:
        device = os.path.join(folder, address)
        is_nvidia = read_text(device, "vendor").strip() == _NVIDIA_VENDOR
        if is_nvidia and read_text(device, "class").startswith(_DISPLAY_CLASS):
            link = os.path.join(device, "driver")
            driver = os.path.basename(os.path.realpath(link)) if os.path.exists(link) else "none"
            gpus.append(f"{address} (kernel driver: {driver})")
    return gpus
