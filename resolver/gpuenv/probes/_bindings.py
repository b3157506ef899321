"""libcuda and libcudnn by ctypes: a step before every call, a check of the status after it.

Runs on Python 3.9 and later; standard library only. Sources of the signatures and structures:
cuda.h, nvml.h, cudnn_ops.h, cudnn_cnn.h.
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import Optional

from . import answers
from ._common import cudnn_release, mapped_libraries, step

POINTER, INT, SIZE, TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_char_p
ADDRESS, INTS, SIZES = ctypes.c_uint64, ctypes.POINTER(INT), ctypes.POINTER(SIZE)
OUT = ctypes.POINTER(POINTER)
MIB = 1 << 20
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
ALLOC_FAILED = {8: {2}, 9: {4003, 4004}}  # by cuDNN's major version
# CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, _IMPLICIT_PRECOMP_GEMM, _GEMM: they multiply and add.
# The others transform the values first, which rounds.
GEMMS = (0, 1, 2)
# What mapped() reports: cuDNN, cuBLAS, NVRTC, the runtime and the driver.
LIBRARY = re.compile(r"lib(cudnn|cublas|nvrtc|cudart|cuda|nvidia-)")

Signature = tuple[object, ...]  # ctypes types


class Perf(ctypes.Structure):
    """cudnnConvolutionFwdAlgoPerf_t."""

    _fields_ = [
        ("algo", INT),
        ("status", INT),
        ("time", ctypes.c_float),
        ("memory", SIZE),
        ("determinism", INT),
        ("math", INT),
        ("reserved", INT * 3),
    ]


class Process(ctypes.Structure):
    """nvmlProcessInfo_t as of nvmlDeviceGetComputeRunningProcesses_v3."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


DRIVER: dict[str, Signature] = {
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
FORWARD = (
    POINTER,
    POINTER,
    POINTER,
    ADDRESS,
    POINTER,
    ADDRESS,
    POINTER,
    INT,
    ADDRESS,
    SIZE,
    POINTER,
    POINTER,
    ADDRESS,
)
CUDNN: dict[str, Signature] = {
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


class Fault(Exception):  # noqa: N818  it may be the host's fault and no error of the probe
    """A call that failed; `facts` is the "fault" of the answer."""

    def __init__(self, kind: str, call: str, status: Optional[int], name: str, said: str) -> None:
        super().__init__(call)
        self.facts: answers.Fault = {
            "kind": kind,
            "call": call,
            "status": status,
            "name": name,
            "said": said,
        }


class Library:
    """A library whose functions are called with a step before and a check of the status after.

    `during` says what the next calls are for; it becomes part of steps and faults.
    """

    def __init__(
        self, path: str, signatures: dict[str, Signature], mode: int = ctypes.DEFAULT_MODE
    ) -> None:
        step("open " + path)
        try:
            self.loaded = ctypes.CDLL(path, mode=mode)
        except OSError as error:
            raise Fault("library", "dlopen " + path, None, "", str(error)) from None
        self.path, self.signatures, self.during = path, signatures, ""

    def call(self, name: str, *arguments: object) -> None:
        """Call a function. Fault if the library lacks it or its status is not 0."""
        if self.during:
            step(f"call {name}: {self.during}")
        else:
            step(f"call {name}")
        try:
            function = getattr(self.loaded, name)
        except AttributeError:
            raise Fault("library", name, None, "", f"{self.path} has no such function") from None
        function.argtypes = self.signatures[name]
        status = int(function(*arguments))
        if status != 0:
            raise self.fault(name, status)

    def fault(self, name: str, status: int) -> Fault:
        """Return the fault of a function that gave a status."""
        raise NotImplementedError


class Driver(Library):
    """libcuda."""

    def fault(self, name: str, status: int) -> Fault:
        text = ctypes.c_char_p()
        if hasattr(self.loaded, "cuGetErrorName"):
            self.loaded.cuGetErrorName(status, ctypes.byref(text))
        kind = "memory" if status == OUT_OF_MEMORY else "driver"
        return Fault(kind, name, status, (text.value or b"").decode(), self.during)

    def read_int(self, name: str, *arguments: object) -> int:
        """Return the integer that a function writes to its first argument."""
        value = INT()
        self.call(name, ctypes.byref(value), *arguments)
        return int(value.value)

    def memory(self) -> tuple[int, int]:
        """Return the free and total bytes of the current context's device."""
        free, total = SIZE(), SIZE()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value


class Cudnn(Library):
    """libcudnn.so.N. `number` is its cudnnGetVersion, `release` its major and minor version."""

    def __init__(self, path: str) -> None:
        super().__init__(path, CUDNN, os.RTLD_NOW | os.RTLD_GLOBAL)
        self.major = int(path.rsplit(".", 1)[1])
        step("call cudnnGetVersion")
        self.loaded.cudnnGetVersion.restype = SIZE
        self.number = int(self.loaded.cudnnGetVersion())
        self.release = cudnn_release(self.number)[:2]

    def fault(self, name: str, status: int) -> Fault:
        self.loaded.cudnnGetErrorString.restype = ctypes.c_char_p
        status_name = (self.loaded.cudnnGetErrorString(status) or b"").decode(errors="replace")
        parts = [self._last_error(), self.during]
        kind = "memory" if status in ALLOC_FAILED.get(self.major, ()) else "cudnn"
        return Fault(kind, name, status, status_name, "; ".join(part for part in parts if part))

    def _last_error(self) -> str:
        if not hasattr(self.loaded, "cudnnGetLastErrorString"):
            return ""  # before cuDNN 9
        buffer = ctypes.create_string_buffer(4096)
        self.loaded.cudnnGetLastErrorString(buffer, SIZE(len(buffer)))
        return buffer.value.decode(errors="replace").strip()


def mapped() -> list[str]:
    """Return the paths in /proc/self/maps that match LIBRARY."""
    return mapped_libraries(LIBRARY)


def users(bus: str) -> list[str]:
    """Return the other processes that use the device at a PCI bus id, by NVML.

    [] if NVML cannot tell.
    """
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        handle, count = POINTER(), ctypes.c_uint(64)
        table = (Process * 64)()
        step("ask NVML who uses the device")
        if nvml.nvmlInit_v2():
            return []
        if nvml.nvmlDeviceGetHandleByPciBusId_v2(bus.encode(), ctypes.byref(handle)):
            return []
        if nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), table):
            return []
    except (OSError, AttributeError):
        return []
    texts = []
    for process in table[: count.value]:
        if process.pid == os.getpid():
            continue
        # All bits set is NVML's "not available".
        amount = "" if process.used >> 63 else f" ({process.used // MIB} MiB)"
        texts.append(f"process {process.pid}{amount}")
    return texts
