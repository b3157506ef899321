"""Whether a lock fits a host: the needs of the lock that the host does not meet."""

from __future__ import annotations

from ..compat import evaluate
from ..compat.architectures import reaches_floor
from ..compat.data import CompatibilityData
from ..compat.variants import FEATURES
from ..errors import Reason
from ..model import Host, Lock, show_pair

SOURCE = "[tool.gpuenv.needs]"


def _reason(code: str, need: str, have: str) -> Reason:
    return Reason(code, "lock", need, have, source=SOURCE)


def fit(lock: Lock, host: Host) -> tuple[Reason, ...]:
    """Return a reason for each need of the lock that the host does not meet; () if it fits.

    Unknown facts of the host are reasons too, with a code that ends in -unknown.
    """
    needs = lock.needs
    reasons: list[Reason] = []

    if needs.platform and host.platform != needs.platform:
        reasons.append(_reason("platform", needs.platform, host.platform))
    if needs.python and host.python.version != needs.python:
        need, have = show_pair(needs.python), show_pair(host.python.version)
        reasons.append(_reason("python", f"Python {need}", f"Python {have}"))
    if needs.glibc and host.os == "linux":
        need = f"glibc {show_pair(needs.glibc)} or newer"
        if host.glibc is None:
            reasons.append(_reason("glibc-unknown", need, "unknown"))
        elif host.glibc < needs.glibc:
            reasons.append(_reason("glibc", need, f"glibc {show_pair(host.glibc)}"))
    if needs.driver is not None:
        reasons += _driver_reasons(needs.driver, lock, host)
    return tuple(reasons)


def _driver_reasons(floor: str, lock: Lock, host: Host) -> list[Reason]:
    """Return what is missing for a lock that needs a GPU and a driver for a toolkit."""
    reasons, needs = [], lock.needs
    is_for_unknown = any(gpu.compute_capability is None for gpu in lock.host.gpus)
    if not host.gpus:
        reasons.append(_reason("no-gpu", "an NVIDIA GPU", "no visible GPU"))
    need = f"driver {floor} or newer"
    if host.driver is None and host.driver_cuda is not None and needs.cuda is not None:
        # Only the driver's CUDA version is known (CONDA_OVERRIDE_CUDA): its major decides.
        if host.driver_cuda[0] < needs.cuda[0]:
            have = f"a driver for CUDA {show_pair(host.driver_cuda)}"
            reasons.append(_reason("driver-cuda", f"a driver for CUDA {needs.cuda[0]}", have))
    elif host.driver is None:
        reasons.append(_reason("driver-unknown", need, "no driver found"))
    elif not reaches_floor(host, floor, needs.cuda):
        reasons.append(_reason("driver-floor", need, f"driver {host.driver}"))
    need = f"compute capability {', '.join(map(show_pair, needs.compute_capabilities))}"
    for gpu in host.gpus:
        if gpu.compute_capability is None:
            have = f"{gpu.name}, of unknown compute capability"
            reasons += [_reason("device-unknown", need, have)] * (not is_for_unknown)
        elif gpu.compute_capability not in needs.compute_capabilities:
            reasons.append(
                _reason("device", need, f"{gpu.name}, {show_pair(gpu.compute_capability)}")
            )
    return reasons


def variant_fit(lock: Lock, host: Host, data: CompatibilityData) -> tuple[Reason, ...]:
    """Return what speaks against the variant wheels of a lock on a host."""
    versions = lock.versions
    reasons: list[Reason] = []
    for variant in lock.variants:
        # The properties of other namespaces suit every host: the publisher lists what suits.
        known = tuple(row for row in variant.properties if row[0] in FEATURES)
        subject = f"{variant.name} {versions.get(variant.name, '')} ({variant.label})"
        reasons += evaluate.variant_reasons(
            subject, variant.replace(properties=known), {}, host, data
        )
    return tuple(dict.fromkeys(reasons))
