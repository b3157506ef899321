"""Whether a lock fits a host: every need that the host does not fulfil."""

from __future__ import annotations

from typing import Any

from ..errors import Reason
from ..model import Host, Lock, parse_release, show_pair


def fit(lock: Lock, host: Host) -> tuple[Reason, ...]:
    """Every need of the lock that the host does not fulfil; () if it fits. Unknown facts of the host are reasons too,
    with a code that ends in -unknown."""
    needs, reasons = lock.needs, []

    def against(code: str, need: str, have: str) -> None:
        reasons.append(Reason(code=code, subject="lock", need=need, have=have, source="[tool.gpuenv.needs]"))

    if needs.platform and host.platform != needs.platform:
        against("platform", needs.platform, host.platform)
    if needs.python and host.python.version != needs.python:
        against("python", f"Python {show_pair(needs.python)}", f"Python {show_pair(host.python.version)}")
    if needs.glibc and host.os == "linux":
        if host.glibc is None:
            against("glibc-unknown", f"glibc {show_pair(needs.glibc)} or newer", "unknown")
        elif host.glibc < needs.glibc:
            against("glibc", f"glibc {show_pair(needs.glibc)} or newer", f"glibc {show_pair(host.glibc)}")
    if needs.driver is not None:
        _fit_device(lock, host, against)
    return tuple(reasons)


def _fit_device(lock: Lock, host: Host, against: Any) -> None:
    needs = lock.needs
    floor = f"driver {needs.driver} or newer"
    if not host.gpus:
        against("no-gpu", "an NVIDIA GPU", "no GPU that is visible")
    if host.driver is None:
        against("driver-unknown", floor, "no driver found")
    elif parse_release(host.driver) < parse_release(needs.driver or "0.0"):
        against("driver-floor", floor, f"driver {host.driver}")
    served = ", ".join(map(show_pair, needs.compute_capabilities))
    for gpu in host.gpus:
        if gpu.compute_capability is None:
            against("device-unknown", f"compute capability {served}", f"{gpu.name}, of unknown compute capability")
        elif gpu.compute_capability not in needs.compute_capabilities:
            against("device", f"compute capability {served}", f"{gpu.name}, {show_pair(gpu.compute_capability)}")
