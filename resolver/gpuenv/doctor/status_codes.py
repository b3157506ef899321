"""Status numbers of CUDA, Xids, and versions in the forms that libraries print.

Sources: cuda.h and driver_types.h of CUDA 13.0; NVIDIA, "XID Errors" (r580); cudnn_version.h.
"""

from __future__ import annotations

import re

# The causes that a number of CUDA's driver (and, since CUDA 10.1, of its runtime) names.
CUDA_CAUSES = {
    2: "out_of_memory_masked",
    30: "uvm_or_driver_state_broken",
    34: "lib_shadowing",
    35: "driver_too_old",
    36: "driver_too_old",
    38: "visible_devices_wrong",
    46: "gpu_busy_or_exclusive",
    100: "visible_devices_wrong",
    101: "visible_devices_wrong",
    214: "gpu_hardware_fault",
    216: "gpu_busy_or_exclusive",
    220: "gpu_hardware_fault",
    222: "driver_too_old",
    303: "driver_not_found",
    802: "fabric_manager_not_running",
    804: "compat_libcuda_misuse",
    999: "uvm_or_driver_state_broken",
}
# Xids that mean a fault of the GPU, its memory or its link. Programs cause other Xids, too.
XID_HARDWARE = frozenset(
    (48, 54, 61, 62, 63, 64, 74, 79, 92, 94, 95, 110, 119, 120, 121, 140, 143, 151, 154, 158, 167)
)

# Those of them that have no other meaning: memory, link, power, and a GPU that left the bus.
XID_CERTAIN = frozenset((48, 54, 64, 74, 79, 94, 95))

# Xids that a program causes: an illegal address or instruction, and what follows from its end.
XID_PROGRAM = frozenset(("13", "31", "43", "45"))


def cudnn_version(text: str) -> str:
    """Return a cuDNN version with dots, or "" for any other text.

    Known forms: "9.1.0", "(8, 3, 2)", and the number of cudnnGetVersion: "7605", "8907", "90100".
    """
    parts = [part for part in re.sub("[() ]", "", text).replace(",", ".").split(".") if part]
    if not parts or not all(_is_number(part, 6) for part in parts):
        return ""
    if len(parts) > 1:
        return ".".join(str(int(part)) for part in parts[:3])
    number = int(parts[0])
    if number >= 90000:
        return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"
    if number >= 1000:
        return f"{number // 1000}.{number % 1000 // 100}.{number % 100}"
    return ""


def _is_number(text: str, max_digits: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= max_digits


def cuda_version(text: str) -> str:
    """Return the version of cudaDriverGetVersion's number: "12040" -> "12.4"; "" for other text."""
    if not (text.isascii() and text.isdigit()):
        return ""
    return f"{int(text) // 1000}.{int(text) % 1000 // 10}"


def version_tuple(text: str) -> tuple[int, ...]:
    """Return the numbers of a dotted version, for comparison: "12.4" -> (12, 4); () for none."""
    return tuple(int(part) for part in text.split(".") if _is_number(part, 9))
