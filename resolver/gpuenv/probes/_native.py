"""libcuda and libcudnn by ctypes: every call with a step before it and a look at its status after it.

Loaded by its path (see the head of convolution.py). Runs on Python 3.9 and later; standard library only. Sources of
the signatures and structures: cuda.h, nvml.h, cudnn_ops.h, cudnn_cnn.h.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from typing import Any

POINTER, INT, SIZE, TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p
ADDRESS, INTS, SIZES = ctypes.c_uint64, ctypes.POINTER(INT), ctypes.POINTER(SIZE)
OUT = ctypes.POINTER(POINTER)
MIB = 1 << 20
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
ALLOC_FAILED = {8: {2}, 9: {4003, 4004}}  # by cuDNN's major version


class Perf(ctypes.Structure):
    """cudnnConvolutionFwdAlgoPerf_t."""

    _fields_ = [("algo", INT), ("status", INT), ("time", ctypes.c_float), ("memory", SIZE), ("determinism", INT),
                ("math", INT), ("reserved", INT * 3)]  # fmt: skip


class Process(ctypes.Structure):
    """nvmlProcessInfo_t as of nvmlDeviceGetComputeRunningProcesses_v3."""

    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gpu_instance", ctypes.c_uint),
                ("compute_instance", ctypes.c_uint)]  # fmt: skip


DRIVER: dict[str, tuple[Any, ...]] = {
    "cuInit": (ctypes.c_uint,),
    "cuDriverGetVersion": (INTS,),
    "cuDeviceGetCount": (INTS,),
    "cuDeviceGet": (INTS, INT),
    "cuDeviceGetName": (TEXT, INT, INT),
    "cuDeviceGetPCIBusId": (TEXT, INT, INT),
    "cuDeviceGetAttribute": (INTS, INT, INT),
    "cuDevicePrimaryCtxRetain": (OUT, INT),
    "cuDevicePrimaryCtxRelease_v2": (INT,),
    "cuCtxSetCurrent": (POINTER,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (SIZES, SIZES),
    "cuMemAlloc_v2": (ctypes.POINTER(ADDRESS), SIZE),
    "cuMemFree_v2": (ADDRESS,),
    "cuMemcpyHtoD_v2": (ADDRESS, POINTER, SIZE),
    "cuMemcpyDtoH_v2": (POINTER, ADDRESS, SIZE),
    "cuMemsetD8_v2": (ADDRESS, ctypes.c_ubyte, SIZE),
    "cuStreamCreate": (OUT, ctypes.c_uint),
    "cuStreamSynchronize": (POINTER,),
    "cuStreamDestroy_v2": (POINTER,),
}
FORWARD = (POINTER, POINTER, POINTER, ADDRESS, POINTER, ADDRESS, POINTER, INT, ADDRESS, SIZE, POINTER, POINTER, ADDRESS)
CUDNN: dict[str, tuple[Any, ...]] = {
    "cudnnCreate": (OUT,),
    "cudnnDestroy": (POINTER,),
    "cudnnSetStream": (POINTER, POINTER),
    "cudnnCreateTensorDescriptor": (OUT,),
    "cudnnSetTensor4dDescriptor": (POINTER, INT, INT, INT, INT, INT, INT),
    "cudnnDestroyTensorDescriptor": (POINTER,),
    "cudnnCreateFilterDescriptor": (OUT,),
    "cudnnSetFilter4dDescriptor": (POINTER, INT, INT, INT, INT, INT, INT),
    "cudnnDestroyFilterDescriptor": (POINTER,),
    "cudnnCreateConvolutionDescriptor": (OUT,),
    "cudnnSetConvolution2dDescriptor": (POINTER, INT, INT, INT, INT, INT, INT, INT, INT),
    "cudnnSetConvolutionMathType": (POINTER, INT),
    "cudnnDestroyConvolutionDescriptor": (POINTER,),
    "cudnnGetConvolution2dForwardOutputDim": (POINTER, POINTER, POINTER, INTS, INTS, INTS, INTS),
    "cudnnGetConvolutionForwardAlgorithm_v7": (
        POINTER, POINTER, POINTER, POINTER, POINTER, INT, INTS, ctypes.POINTER(Perf),
    ),
    "cudnnConvolutionForward": FORWARD,
}  # fmt: skip


def step(text: str) -> None:
    """Says on stderr what comes next, so that a crash can be told together with where it happened."""
    sys.stderr.write("gpuenv-step: " + text + "\n")
    sys.stderr.flush()


class Fault(Exception):  # noqa: N818  what it tells may be the host's fault and no error of ours
    """A call that failed; `told` is the answer's "fault"."""

    def __init__(self, kind: str, call: str, status: int | None, name: str, said: str) -> None:
        super().__init__(call)
        self.told: dict[str, Any] = {"kind": kind, "call": call, "status": status, "name": name, "said": said}


class Library:
    """A library whose functions are called with a step before and a look at the status after."""

    def __init__(self, path: str, signatures: dict[str, tuple[Any, ...]], mode: int = ctypes.DEFAULT_MODE) -> None:
        step("open " + path)
        try:
            self.loaded = ctypes.CDLL(path, mode=mode)
        except OSError as error:
            raise Fault("library", "dlopen " + path, None, "", str(error)) from None
        self.path, self.signatures, self.during = path, signatures, ""

    def call(self, name: str, *arguments: Any) -> None:
        if self.during:
            step("call " + name + ": " + self.during)
        else:
            step("call " + name)
        try:
            function = getattr(self.loaded, name)
        except AttributeError:
            raise Fault("library", name, None, "", self.path + " has no such function") from None
        function.argtypes = self.signatures[name]
        status = int(function(*arguments))
        if status != 0:
            raise self.fault(name, status)

    def fault(self, name: str, status: int) -> Fault:
        raise NotImplementedError


class Driver(Library):
    def fault(self, name: str, status: int) -> Fault:
        text = ctypes.c_char_p()
        if hasattr(self.loaded, "cuGetErrorName"):
            self.loaded.cuGetErrorName(status, ctypes.byref(text))
        return Fault(
            "memory" if status == OUT_OF_MEMORY else "driver", name, status, (text.value or b"").decode(), self.during
        )


class Cudnn(Library):
    def __init__(self, path: str) -> None:
        super().__init__(path, CUDNN, os.RTLD_NOW | os.RTLD_GLOBAL)
        self.major = int(path.rsplit(".", 1)[1])
        step("call cudnnGetVersion")
        self.loaded.cudnnGetVersion.restype = SIZE
        self.number = int(self.loaded.cudnnGetVersion())
        # cudnn_version.h: 8907 is 8.9.7, and from 9.0 on 92000 is 9.20.0.
        parts = (10000, 100) if self.number >= 90000 else (1000, 100)
        self.release = (self.number // parts[0], self.number % parts[0] // parts[1])

    def fault(self, name: str, status: int) -> Fault:
        self.loaded.cudnnGetErrorString.restype = ctypes.c_char_p
        text = (self.loaded.cudnnGetErrorString(status) or b"").decode(errors="replace")
        said = self.during
        if hasattr(self.loaded, "cudnnGetLastErrorString"):  # cuDNN 9
            buffer = ctypes.create_string_buffer(4096)
            self.loaded.cudnnGetLastErrorString(buffer, SIZE(len(buffer)))
            said = "; ".join(part for part in (buffer.value.decode(errors="replace").strip(), said) if part)
        return Fault("memory" if status in ALLOC_FAILED.get(self.major, ()) else "cudnn", name, status, text, said)


def mapped() -> list[str]:
    """The libraries of cuDNN, cuBLAS, NVRTC, the runtime and the driver that /proc/self/maps names."""
    paths: dict[str, None] = {}
    with open("/proc/self/maps") as table:
        for line in table:
            path = line[line.find("/") :].rstrip("\n") if "/" in line else ""
            if re.match(r"lib(cudnn|cublas|nvrtc|cudart|cuda|nvidia-)", os.path.basename(path)):
                paths[path] = None
    return list(paths)


def users(bus: str) -> list[str]:
    """The processes that use the device, as NVML tells them; [] where it does not."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        handle, count = POINTER(), ctypes.c_uint(64)
        table = (Process * 64)()
        step("ask NVML who uses the device")
        if nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByPciBusId_v2(bus.encode(), ctypes.byref(handle)):
            return []
        if nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), table):
            return []
    except (OSError, AttributeError):
        return []
    ours = os.getpid()
    known = [one for one in table[: count.value] if one.pid != ours]
    # All bits set is NVML's "not available".
    return ["process %d%s" % (one.pid, "" if one.used >> 63 else " (%d MiB)" % (one.used // MIB)) for one in known]
