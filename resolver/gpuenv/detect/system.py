"""The platform, and the traces that a driver leaves in the file system. All paths below `root`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping

from ..model import Problem, Value, parse_pair, parse_release

NO_GPU_HINT = "describe the host with --gpu or --host, or solve for the CPU with --gpu none"
CONTAINER_HINT = "start the container with --gpus all (or a CDI device), with nvidia-container-toolkit on its host"

# Where the driver's libraries lie when the loader does not know it: WSL, Kubernetes device plug-ins, NixOS.
DRIVER_FOLDERS = ("usr/lib/wsl/lib", "usr/local/nvidia/lib64", "run/opengl-driver/lib")

# NVIDIA/open-gpu-kernel-modules, nv-procfs: "NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build";
# the closed module: "NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC 2024".
_KERNEL = r"(?m)^NVRM version:.*Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+){1,3})(?:\s|$)"
_CGROUP = r"docker|kubepods|containerd|libpod|lxc|garden"
_NVIDIA_VENDOR, _DISPLAY_CLASS = "0x10de", "0x03"


class System(Value):
    """The platform of this machine. `virtualization` is as in Host; `container` may hold beside "wsl2"."""

    os: str
    machine: str
    glibc: tuple[int, int] | None
    virtualization: str | None
    container: bool
    tegra: bool
    sources: tuple[tuple[str, str], ...]


def read_text(root: str, path: str) -> str:
    """The file's text, "" if it cannot be read."""
    try:
        with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
            return file.read(65536)
    except OSError:
        return ""


def exists(root: str, path: str) -> bool:
    """Whether there is something at `path` below `root`."""
    return os.path.exists(os.path.join(root, path))


def read(root: str, env: Mapping[str, str], libc: str | None = None) -> System:
    """`libc` is what a target interpreter said of its C library; by default this interpreter's own is asked."""
    kind, machine = machine_here()
    glibc, glibc_source = glibc_here() if libc is None else glibc_of(libc)
    sources = [("os", "uname"), ("machine", "uname"), ("glibc", glibc_source)]
    tegra, wsl, container = _tegra(root), _wsl2(root), _container(root, env)
    virtualization = None
    for name, source in (("tegra", tegra), ("wsl2", wsl), ("container", container)):
        if source and virtualization is None:
            virtualization = name
            sources.append(("virtualization", source))
    return System(
        os=kind, machine=machine, glibc=glibc, virtualization=virtualization,
        container=bool(container), tegra=bool(tegra), sources=tuple(sources),
    )  # fmt: skip


def machine_here() -> tuple[str, str]:
    """(os, machine) of this process, as Host spells them."""
    if sys.platform == "win32":
        raw = os.environ.get("PROCESSOR_ARCHITECTURE", "AMD64")
    else:
        raw = os.uname().machine
    machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(raw.lower(), raw)
    return ("windows" if sys.platform == "win32" else sys.platform), machine


def glibc_here() -> tuple[tuple[int, int] | None, str]:
    """(version, source) of this process's C library; None where it is not glibc."""
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        text = ""
    return glibc_of(text, "confstr")


def glibc_of(text: str, source: str = "the target interpreter") -> tuple[tuple[int, int] | None, str]:
    """(version, source) from the C library's own text, "glibc 2.36"; None for another C library."""
    name, _, version = text.partition(" ")
    if name != "glibc":
        return None, f"{source}: the C library is not glibc"
    try:
        return parse_pair(".".join(version.split(".")[:2])), source
    except ValueError:
        return None, f"{source}: {text!r} is not understood"


def _tegra(root: str) -> str:
    if exists(root, "etc/nv_tegra_release"):
        return "/etc/nv_tegra_release"
    return "/proc/device-tree/compatible" if "nvidia,tegra" in read_text(root, "proc/device-tree/compatible") else ""


def _wsl2(root: str) -> str:
    """WSL1 has "Microsoft" in its version too, and no GPU: WSL2 alone has the paravirtual device or its folder."""
    version = read_text(root, "proc/version").lower()
    if "microsoft" not in version:
        return ""
    if "wsl2" in version or "microsoft-standard" in version:
        return "/proc/version"
    return "/usr/lib/wsl/lib" if exists(root, "usr/lib/wsl/lib") else ""


def _container(root: str, env: Mapping[str, str]) -> str:
    for path in (".dockerenv", "run/.containerenv", ".singularity.d"):
        if exists(root, path):
            return f"/{path}"
    for variable in ("container", "KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"):
        if env.get(variable):
            return f"environment variable {variable}"
    import re

    return "/proc/1/cgroup" if re.search(_CGROUP, read_text(root, "proc/1/cgroup")) else ""


def kernel_driver(root: str) -> tuple[str, str] | None:
    """(release, file) of the loaded kernel module; None if there is none or its line is not understood."""
    import re

    match = re.search(_KERNEL, read_text(root, "proc/driver/nvidia/version"))
    if match:
        return match[1], "/proc/driver/nvidia/version"
    text = read_text(root, "sys/module/nvidia/version").strip()
    try:
        parse_release(text)
    except ValueError:
        return None
    return text, "/sys/module/nvidia/version"


def driver_trace(root: str) -> str:
    """A path that only a loaded kernel module makes, "" if there is none."""
    paths = ("dev/nvidiactl", "dev/nvidia0", "proc/driver/nvidia", "sys/module/nvidia")
    return next((f"/{path}" for path in paths if exists(root, path)), "")


def pci_gpus(root: str) -> Iterator[tuple[str, str]]:
    """(address, kernel driver or "none") of every NVIDIA display device on the PCI bus."""
    folder = os.path.join(root, "sys/bus/pci/devices")
    try:
        addresses = sorted(os.listdir(folder))
    except OSError:
        return
    for address in addresses:
        device = os.path.join(folder, address)
        if read_text(device, "vendor").strip() != _NVIDIA_VENDOR:
            continue
        if read_text(device, "class").startswith(_DISPLAY_CLASS):
            driver = os.path.join(device, "driver")
            yield address, os.path.basename(os.path.realpath(driver)) if os.path.exists(driver) else "none"


def missing_driver(root: str, here: System) -> Problem | None:
    """Why NVML's library is not there; None on a Jetson, whose older releases ship without it."""
    trace = driver_trace(root)
    if here.tegra:
        return None
    if trace or (here.virtualization == "wsl2" and here.container and exists(root, "dev/dxg")):
        hint = CONTAINER_HINT if here.container else "install the driver's compute libraries of the loaded release"
        detail = f"{trace or '/dev/dxg'} is there, libnvidia-ml.so.1 is not"
        return Problem(code="driver-libraries-missing", detail=detail, hint=hint)
    if here.virtualization == "wsl2":
        hint = "install NVIDIA's driver for Windows (and none inside WSL); " + NO_GPU_HINT
        return Problem(code="no-gpu", detail="WSL 2 without NVIDIA's libraries in /usr/lib/wsl/lib", hint=hint)
    on_bus = list(pci_gpus(root))
    if on_bus:
        names = ", ".join(f"{address} (kernel driver: {driver})" for address, driver in on_bus)
        hint = f"install NVIDIA's driver{' on the container host' if here.container else ''}, or {NO_GPU_HINT}"
        return Problem(code="driver-not-installed", detail=f"NVIDIA GPU on the PCI bus: {names}", hint=hint)
    return Problem(code="no-gpu", detail="neither an NVIDIA GPU nor its driver is on this machine", hint=NO_GPU_HINT)
