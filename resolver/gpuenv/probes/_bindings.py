"""libcuda and libcudnn by ctypes: a step before every call, a check of the status after it.

Runs on Python 3.8 and later; standard library only. Sources of the signatures and structures:
cuda.h, cudnn_ops.h, cudnn_cnn.h. A number is passed as a C int. What is wider is a ctypes
object: POINTER for handles, ADDRESS for places in a device's memory, SIZE for size_t.
"""

from __future__ import annotations

import ctypes
import os
import re
from typing import Any, Optional

from . import answers
from ._common import cudnn_release, step
from ._reference import INPUT, RESULT, WEIGHT

POINTER, INT, SIZE, ADDRESS = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t, ctypes.c_uint64
MIB = 1 << 20
OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY
ALLOC_FAILED = {8: {2}, 9: {4003, 4004}}  # by cuDNN's major version
# CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, _IMPLICIT_PRECOMP_GEMM, _GEMM: they multiply and add.
# The others transform the values first, which rounds.
GEMMS = (0, 1, 2)
WORKSPACE = 64 * MIB
# The mapped libraries of interest: cuDNN, cuBLAS, NVRTC, the runtime and the driver.
LIBRARY = re.compile(r"lib(cudnn|cublas|nvrtc|cudart|cuda|nvidia-)")


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

    def __str__(self) -> str:
        facts = self.facts
        status = "" if facts["status"] is None else f" gave {facts['status']} {facts['name']}"
        return f"{facts['call']}{status}: {facts['said']}".rstrip(": ")


class Library:
    """A library whose functions are called with a step before and a check of the status after.

    `during` says what the next calls are for; it becomes part of steps and faults.
    """

    def __init__(self, path: str, mode: int = ctypes.DEFAULT_MODE) -> None:
        step("open " + path)
        try:
            self.loaded = ctypes.CDLL(path, mode=mode)
        except OSError as error:
            raise Fault("library", "dlopen " + path, None, "", str(error)) from None
        self.path, self.during = path, ""

    def call(self, name: str, *arguments: object) -> None:
        """Call a function. Fault if the library lacks it or its status is not 0."""
        step(f"call {name}: {self.during}".removesuffix(": "))
        try:
            function = getattr(self.loaded, name)
        except AttributeError:
            raise Fault("library", name, None, "", f"{self.path} has no such function") from None
        status = int(function(*arguments))
        if status != 0:
            raise self.fault(name, status)

    def output(self, kind: Any, name: str, *arguments: object) -> Any:
        """Return what a function writes to its first argument, as an object of the kind."""
        value = kind()
        self.call(name, ctypes.byref(value), *arguments)
        return value

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

    def memory(self) -> tuple[int, int]:
        """Return the free and total bytes of the current context's device."""
        free, total = SIZE(), SIZE()
        self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value


class Cudnn(Library):
    """libcudnn.so.N. `number` is its cudnnGetVersion, `release` its major and minor version."""

    def __init__(self, path: str) -> None:
        super().__init__(path, os.RTLD_NOW | os.RTLD_GLOBAL)
        self.major = int(path.rsplit(".", 1)[1])
        self.number = call_number(self.loaded, "cudnnGetVersion")
        self.release = cudnn_release(self.number)[:2]

    def fault(self, name: str, status: int) -> Fault:
        self.loaded.cudnnGetErrorString.restype = ctypes.c_char_p
        status_name = (self.loaded.cudnnGetErrorString(status) or b"").decode(errors="replace")
        buffer = ctypes.create_string_buffer(4096)
        if hasattr(self.loaded, "cudnnGetLastErrorString"):  # from cuDNN 9 on
            self.loaded.cudnnGetLastErrorString(buffer, SIZE(len(buffer)))
        parts = [buffer.value.decode(errors="replace").strip(), self.during]
        kind = "memory" if status in ALLOC_FAILED.get(self.major, ()) else "cudnn"
        return Fault(kind, name, status, status_name, "; ".join(part for part in parts if part))


def call_number(library: ctypes.CDLL, name: str) -> int:
    """Return the size_t that a function without arguments gives."""
    step("call " + name)
    function = getattr(library, name)
    function.restype = SIZE
    return int(function())


class CudnnConvolution:
    """The convolution of _reference.py by cuDNN in one type: its descriptors and its algorithm.

    `data_type` is a cudnnDataType_t, `math_type` a cudnnMathType_t. `best` is the algorithm: one
    that is not of GEMMS only if no other was offered.
    """

    def __init__(
        self, cudnn: Cudnn, handle: ctypes.c_void_p, data_type: int, math_type: int
    ) -> None:
        self.cudnn = cudnn
        self.x, self.y, self.w, self.conv = (
            cudnn.output(POINTER, f"cudnnCreate{kind}Descriptor")
            for kind in ("Tensor", "Tensor", "Filter", "Convolution")
        )
        cudnn.call("cudnnSetTensor4dDescriptor", self.x, 0, data_type, *INPUT)
        cudnn.call("cudnnSetTensor4dDescriptor", self.y, 0, data_type, *RESULT)
        cudnn.call("cudnnSetFilter4dDescriptor", self.w, data_type, 0, *WEIGHT)
        # Padding 1, stride 1, dilation 1, cross-correlation, sums in float32.
        cudnn.call("cudnnSetConvolution2dDescriptor", self.conv, 1, 1, 1, 1, 1, 1, 1, 0)
        cudnn.call("cudnnSetConvolutionMathType", self.conv, math_type)
        shape = [INT() for _ in RESULT]
        call = "cudnnGetConvolution2dForwardOutputDim"
        cudnn.call(call, self.conv, self.x, self.w, *map(ctypes.byref, shape))
        if tuple(number.value for number in shape) != RESULT:
            raise Fault("cudnn", call, 0, "", f"a shape of {shape!r}")
        self.best = self._algorithm(handle)
        cudnn.call("cudnnSetConvolutionMathType", self.conv, self.best.math)

    def _algorithm(self, handle: ctypes.c_void_p) -> Perf:
        """Return the first usable algorithm, one of GEMMS if there is one."""
        table, count = (Perf * 16)(), INT()
        call = "cudnnGetConvolutionForwardAlgorithm_v7"
        self.cudnn.call(
            call, handle, self.x, self.w, self.conv, self.y, len(table), ctypes.byref(count), table
        )
        offered = table[: count.value]
        usable = [perf for perf in offered if perf.status == 0 and perf.memory <= WORKSPACE]
        if not usable:
            statuses = ", ".join(f"{perf.algo}: {perf.status}" for perf in offered)
            raise Fault("cudnn", call, 0, "", f"{self.cudnn.during}: no algorithm ({statuses})")
        return min(usable, key=lambda perf: perf.algo not in GEMMS)  # False is less than True

    def forward(
        self,
        handle: ctypes.c_void_p,
        x: ctypes.c_uint64,
        w: ctypes.c_uint64,
        space: ctypes.c_uint64,
        y: ctypes.c_uint64,
    ) -> None:
        """Convolve. The arguments after the handle are addresses in the device's memory."""
        alpha, beta = ctypes.c_float(1), ctypes.c_float(0)
        self.cudnn.call(
            "cudnnConvolutionForward", handle, ctypes.byref(alpha), self.x, x, self.w, w, self.conv,
            self.best.algo, space, SIZE(self.best.memory), ctypes.byref(beta), self.y, y,
        )  # fmt: skip
