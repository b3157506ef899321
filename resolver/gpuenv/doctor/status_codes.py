"""Numbers and names of what the libraries answer: cuDNN 8 and 9, CUDA's driver and runtime, NVML; kinds of Xid.

Sources: cudnn_ops_infer.h of 8.9.7 and cudnn_graph.h of 9.x; cuda.h and driver_types.h of CUDA 13.0; nvml.h of R580;
NVIDIA, "XID Errors" (r580).
"""

from __future__ import annotations

CUDNN8 = {
    0: "SUCCESS", 1: "NOT_INITIALIZED", 2: "ALLOC_FAILED", 3: "BAD_PARAM", 4: "INTERNAL_ERROR", 5: "INVALID_VALUE",
    6: "ARCH_MISMATCH", 7: "MAPPING_ERROR", 8: "EXECUTION_FAILED", 9: "NOT_SUPPORTED", 10: "LICENSE_ERROR",
    11: "RUNTIME_PREREQUISITE_MISSING", 12: "RUNTIME_IN_PROGRESS", 13: "RUNTIME_FP_OVERFLOW", 14: "VERSION_MISMATCH",
}  # fmt: skip
CUDNN9 = {
    0: "SUCCESS", 1001: "NOT_INITIALIZED", 1002: "SUBLIBRARY_VERSION_MISMATCH", 1003: "SERIALIZATION_VERSION_MISMATCH",
    1004: "DEPRECATED", 1005: "LICENSE_ERROR", 1006: "RUNTIME_IN_PROGRESS", 1007: "RUNTIME_FP_OVERFLOW",
    1008: "SUBLIBRARY_LOADING_FAILED", 2000: "BAD_PARAM", 2002: "BAD_PARAM_NULL_POINTER",
    2003: "BAD_PARAM_MISALIGNED_POINTER", 2004: "BAD_PARAM_NOT_FINALIZED", 2005: "BAD_PARAM_OUT_OF_BOUND",
    2006: "BAD_PARAM_SIZE_INSUFFICIENT", 2007: "BAD_PARAM_STREAM_MISMATCH", 2008: "BAD_PARAM_SHAPE_MISMATCH",
    2009: "BAD_PARAM_DUPLICATED_ENTRIES", 2010: "BAD_PARAM_ATTRIBUTE_TYPE", 2011: "BAD_PARAM_CUDA_GRAPH_MISMATCH",
    2012: "BAD_PARAM_DESCRIPTOR_TYPE", 3000: "NOT_SUPPORTED", 3001: "NOT_SUPPORTED_GRAPH_PATTERN",
    3002: "NOT_SUPPORTED_SHAPE", 3003: "NOT_SUPPORTED_DATA_TYPE", 3004: "NOT_SUPPORTED_LAYOUT",
    3005: "NOT_SUPPORTED_INCOMPATIBLE_CUDA_DRIVER", 3006: "NOT_SUPPORTED_INCOMPATIBLE_CUDART",
    3007: "NOT_SUPPORTED_ARCH_MISMATCH", 3008: "NOT_SUPPORTED_RUNTIME_PREREQUISITE_MISSING",
    3009: "NOT_SUPPORTED_SUBLIBRARY_UNAVAILABLE", 3010: "NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT",
    3011: "NOT_SUPPORTED_PADDING", 3012: "NOT_SUPPORTED_BAD_LAUNCH_PARAM",
    3013: "NOT_SUPPORTED_CUDA_GRAPH_NATIVE_API", 3014: "NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE", 4000: "INTERNAL_ERROR",
    4001: "INTERNAL_ERROR_COMPILATION_FAILED", 4002: "INTERNAL_ERROR_UNEXPECTED_VALUE",
    4003: "INTERNAL_ERROR_HOST_ALLOCATION_FAILED", 4004: "INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    4005: "INTERNAL_ERROR_BAD_LAUNCH_PARAM", 4006: "INTERNAL_ERROR_TEXTURE_CREATION_FAILED", 5000: "EXECUTION_FAILED",
    5001: "EXECUTION_FAILED_CUDA_DRIVER", 5002: "EXECUTION_FAILED_CUBLAS", 5003: "EXECUTION_FAILED_CUDART",
    5004: "EXECUTION_FAILED_CURAND",
}  # fmt: skip
# What a number of CUDA's driver (and, since CUDA 10.1, of its runtime) says of the cause by itself.
CUDA_CAUSES = {
    2: "out_of_memory_masked", 30: "uvm_or_driver_state_broken", 34: "lib_shadowing", 35: "driver_too_old",
    36: "driver_too_old", 38: "visible_devices_wrong", 46: "gpu_busy_or_exclusive", 100: "visible_devices_wrong",
    101: "visible_devices_wrong", 214: "gpu_hardware_fault", 216: "gpu_busy_or_exclusive", 220: "gpu_hardware_fault",
    222: "driver_too_old", 303: "driver_not_found", 802: "fabric_manager_not_running", 804: "compat_libcuda_misuse",
    999: "uvm_or_driver_state_broken",
}  # fmt: skip
NVML_CAUSES = {
    9: "driver_not_loaded", 12: "driver_not_found", 15: "gpu_hardware_fault",
    18: "driver_userspace_kernel_mismatch", 999: "container_gpu_access_lost",
}  # fmt: skip
# Xids that name the GPU, its memory or its link; the others (13, 31, 43, 45, 69, 109..) are made by programs, too.
XID_HARDWARE = frozenset({48, 54, 61, 62, 63, 64, 74, 79, 92, 94, 95, 110, 119, 120, 121, 140, 143, 151, 154, 158, 167})


def cudnn_of(text: str) -> str:
    """A cuDNN version as dotted digits, of "9.1.0", "(8, 3, 2)", "7605", "8907" or "90100"; "" for anything else."""
    parts = text.translate({40: None, 41: None, 32: None, 44: "."}).split(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= 6 for part in parts if part):
        return ""
    parts = [part for part in parts if part]
    if len(parts) > 1:
        return ".".join(str(int(part)) for part in parts[:3])
    if not parts:
        return ""
    number = int(parts[0])
    if number >= 90000:
        return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"
    return f"{number // 1000}.{number % 1000 // 100}.{number % 100}" if number >= 1000 else ""


def cuda_of(text: str) -> str:
    """A CUDA version as a pair, of cudaDriverGetVersion's number: "12040" -> "12.4"; "" where it is none."""
    return f"{int(text) // 1000}.{int(text) % 1000 // 10}" if text.isascii() and text.isdigit() else ""


def pair(text: str) -> tuple[int, ...]:
    """The numbers of a dotted version, to compare; () where there is none."""
    return tuple(int(one) for one in text.split(".") if one.isascii() and one.isdigit() and len(one) < 10)
