"""Convolve with cuDNN on one device, without a framework.

The CUDA driver's library and libcudnn, by ctypes alone.

Options: {"folder": the folder of the environment's libcudnn.so.N, "device": {"ordinal": n}, "need":
bytes that must be free once the context exists (256 MiB unless given)}.

One 3x3 convolution in float32, float16 and, if the device and cuDNN have it, bfloat16; each on the
default stream and on two streams with handles of their own. Memory, streams and the primary context
are the driver's (cuDNN contains its own CUDA runtime and uses the current context), so no libcudart
is needed. Every status is checked.

The inputs are multiples of 1/16 from -2 to 2: exact in all three types and in TF32, and so are the
products and sums in float32. One reference in float64 serves all types, no math mode (TF32 or not)
explains a difference, and only the rounding of the result remains: 2**-11 of a value in float16 and
2**-9 in bfloat16. `error` is the largest difference over the largest reference value, so one wrong
element counts as much as all. Of the algorithms that cuDNN's heuristics offer, the first that
multiplies and adds is used (implicit or explicit GEMM). Winograd's and Fourier's transforms round
on their own; if only they are offered, the tolerance is eight times as large. The output is filled
with NaN before each run; a value that is not finite is wrong.

Answers with answers.ConvolutionAnswer.

By hand: python -I _run.py convolution.py '{"folder": ".../nvidia/cudnn/lib", "device": {"ordinal":
0}}' Runs on Python 3.9 and later; standard library only.
"""

from __future__ import annotations

import array
import ctypes
import hashlib
import math
import os
import struct
import time
from typing import NamedTuple, TypedDict

from . import _bindings
from ._bindings import GEMMS, INT, MIB, POINTER, Cudnn, Driver, Fault, Perf
from ._common import main_cudnn, run
from .answers import ConvolutionAnswer, ConvolutionRun, DeviceFacts

N, C, K, H, W, R = (
    2,
    8,
    16,
    12,
    10,
    3,
)  # images, channels, filters, height, width, filter's side; padding 1
WORKSPACE = 64 * MIB
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
# CU_DEVICE_ATTRIBUTE_...: COMPUTE_MODE, COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR.
MODE, MAJOR, MINOR = 20, 75, 76
DEVICE_UNAVAILABLE = 46  # CUDA_ERROR_DEVICE_UNAVAILABLE: another process has the device for itself
TRANSFORMED = 8  # factor of the tolerance for algorithms that transform the values


class Ordinal(TypedDict):
    """The number of a device in the CUDA driver's order."""

    ordinal: int


class Options(TypedDict, total=False):
    """The options of this probe."""

    folder: str
    device: Ordinal
    need: int


class DataType(NamedTuple):
    """A type that is tried, and what it needs.

    `math_type`: cudnnMathType_t, 3 FMA, 1 tensor cores.
    """

    name: str
    number: int  # cudnnDataType_t
    size: int  # bytes
    math_type: int
    least_capability: tuple[int, int]
    least_cudnn: tuple[int, int]
    tolerance: float


TYPES = (
    DataType("float32", 0, 4, 3, (0, 0), (0, 0), 1e-5),
    DataType("float16", 2, 2, 1, (5, 3), (0, 0), 1e-3),
    DataType("bfloat16", 9, 2, 1, (8, 0), (8, 1), 4e-3),
)
STREAMS = ("the default stream", "a second stream", "a third stream")


# ---- numbers ------------------------------------------------------------------------------------


def numbers(count: int, seed: int) -> list[float]:
    """Return multiples of 1/16 from -2 to 2.

    They come from a linear congruential generator (the C standard's example).
    """
    values = []
    for _ in range(count):
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        values.append(((seed >> 16) % 65 - 32) / 16)
    return values


def padded_rows(x: list[float], image: int) -> list[list[list[float]]]:
    """Return the rows of each channel with padding, so that a filter needs no border checks."""
    rows = [[[0.0] * (W + 2)] * (H + 2) for _ in range(C)]
    for channel in range(C):
        for line in range(H):
            start = ((image * C + channel) * H + line) * W
            rows[channel][line + 1] = [0.0, *x[start : start + W], 0.0]
    return rows


def output_row(rows: list[list[list[float]]], w: list[float], k: int, line: int) -> list[float]:
    """Return one row of the result of filter `k`."""
    sums = [0.0] * W
    for channel in range(C):
        for r in range(R):
            row, start = rows[channel][line + r], ((k * C + channel) * R + r) * R
            left, middle, right = w[start : start + R]
            for i in range(W):
                sums[i] += left * row[i] + middle * row[i + 1] + right * row[i + 2]
    return sums


def reference(x: list[float], w: list[float]) -> list[float]:
    """Return the convolution (cross-correlation, as in the frameworks) in float64."""
    out = []
    for image in range(N):
        rows = padded_rows(x, image)
        for k in range(K):
            for line in range(H):
                out += output_row(rows, w, k, line)
    return out


def encode(values: list[float], name: str) -> bytes:
    """Return values that the type holds exactly, as its bytes (little-endian)."""
    if name == "float16":
        return struct.pack(f"<{len(values)}e", *values)
    data = array.array("f", values).tobytes()
    if name == "float32":
        return data
    return array.array("H", data)[1::2].tobytes()  # bfloat16: the upper half of a float32


def decode(data: bytes, name: str) -> list[float]:
    """Return the values of bytes of a type."""
    if name == "float16":
        return list(struct.unpack(f"<{len(data) // 2}e", data))
    if name == "bfloat16":
        data = array.array("I", [half << 16 for half in array.array("H", data)]).tobytes()
    return array.array("f", data).tolist()


class Comparison(NamedTuple):
    """How far a result is from the reference: the part of ConvolutionRun that compare() gives."""

    error: float | None
    wrong: int
    first: str


def compare(out: list[float], right: list[float], tolerance: float) -> Comparison:
    """Compare a result with the reference. `error` is None if a value is not finite."""
    scale = max(abs(value) for value in right)
    errors = []
    for have, want in zip(out, right):  # noqa: B905  Python 3.9
        errors.append(abs(have - want) / scale if math.isfinite(have) else math.inf)
    wrong = [index for index, error in enumerate(errors) if not error <= tolerance]
    first = ""
    if wrong:
        first = f"value {wrong[0]} is {out[wrong[0]]!r}, expected {right[wrong[0]]!r}"
    worst = max(errors)
    return Comparison(worst if math.isfinite(worst) else None, len(wrong), first)


# ---- the device ---------------------------------------------------------------------------------


def start_driver(driver: Driver, answer: ConvolutionAnswer) -> None:
    """Start the driver.

    Adds its version and the number of devices that it shows to this process.
    """
    paths = [path for path in _bindings.mapped() if os.path.basename(path).startswith("libcuda.so")]
    answer["driver"] = {"path": paths[0] if paths else driver.path}
    driver.call("cuInit", 0)
    answer["driver"]["version"] = driver.read_int("cuDriverGetVersion")
    answer["driver"]["count"] = driver.read_int("cuDeviceGetCount")


def read_device(driver: Driver, ordinal: int, device: DeviceFacts) -> int:
    """Return the CUdevice of an ordinal. Adds its name, PCI bus id, capability and mode."""
    number = driver.read_int("cuDeviceGet", ordinal)
    text = ctypes.create_string_buffer(256)
    driver.call("cuDeviceGetName", text, len(text), number)
    device["name"] = text.value.decode(errors="replace")
    driver.call("cuDeviceGetPCIBusId", text, len(text), number)
    device["bus"] = text.value.decode(errors="replace")
    major = driver.read_int("cuDeviceGetAttribute", MAJOR, number)
    minor = driver.read_int("cuDeviceGetAttribute", MINOR, number)
    device["capability"] = [major, minor]
    device["mode"] = driver.read_int("cuDeviceGetAttribute", MODE, number)
    return number


class Convolution:
    """The convolution in one type, with its descriptors, buffers and algorithm."""

    def __init__(
        self, driver: Driver, cudnn: Cudnn, data_type: DataType, handle: ctypes.c_void_p
    ) -> None:
        self.driver, self.cudnn, self.type = driver, cudnn, data_type
        self.tolerance = data_type.tolerance
        cudnn.during = data_type.name
        self.x, self.y = self._descriptor("Tensor"), self._descriptor("Tensor")
        self.w, self.conv = self._descriptor("Filter"), self._descriptor("Convolution")
        number = data_type.number
        cudnn.call("cudnnSetTensor4dDescriptor", self.x, 0, number, N, C, H, W)
        cudnn.call("cudnnSetTensor4dDescriptor", self.y, 0, number, N, K, H, W)
        cudnn.call("cudnnSetFilter4dDescriptor", self.w, number, 0, K, C, R, R)
        # Padding 1, stride 1, dilation 1, cross-correlation, sums in float32.
        cudnn.call("cudnnSetConvolution2dDescriptor", self.conv, 1, 1, 1, 1, 1, 1, 1, 0)
        cudnn.call("cudnnSetConvolutionMathType", self.conv, data_type.math_type)
        self._check_shape()
        self.best = self._algorithm(handle)
        cudnn.call("cudnnSetConvolutionMathType", self.conv, self.best.math)
        self.memory: list[ctypes.c_uint64] = []
        self.inputs: list[ctypes.c_uint64] = []
        self.space = self._buffer(max(self.best.memory, 1))
        self.out = self._buffer(self._out_size())

    def _descriptor(self, kind: str) -> ctypes.c_void_p:
        descriptor = POINTER()
        self.cudnn.call(f"cudnnCreate{kind}Descriptor", ctypes.byref(descriptor))
        return descriptor

    def _out_size(self) -> int:
        return N * K * H * W * self.type.size

    def _buffer(self, size: int) -> ctypes.c_uint64:
        address: ctypes.c_uint64 = _bindings.ADDRESS()
        self.driver.call("cuMemAlloc_v2", ctypes.byref(address), size)
        self.memory.append(address)
        return address

    def _check_shape(self) -> None:
        call = "cudnnGetConvolution2dForwardOutputDim"
        shape = [INT() for _ in range(4)]
        self.cudnn.call(call, self.conv, self.x, self.w, *map(ctypes.byref, shape))
        if [number.value for number in shape] != [N, K, H, W]:
            raise Fault("cudnn", call, 0, "", f"a shape of {shape!r}")

    def _algorithm(self, handle: ctypes.c_void_p) -> Perf:
        """Return the first usable algorithm, one of GEMMS if there is one.

        For another one the tolerance is larger.
        """
        table, count = (Perf * 16)(), INT()
        call = "cudnnGetConvolutionForwardAlgorithm_v7"
        self.cudnn.call(
            call, handle, self.x, self.w, self.conv, self.y, len(table), ctypes.byref(count), table
        )
        offered = table[: count.value]
        usable = [perf for perf in offered if perf.status == 0 and perf.memory <= WORKSPACE]
        for perf in usable:
            if perf.algo in GEMMS:
                return perf
        if usable:
            self.tolerance *= TRANSFORMED
            return usable[0]
        statuses = ", ".join(f"{perf.algo}: {perf.status}" for perf in offered)
        raise Fault("cudnn", call, 0, "", f"{self.type.name}: no algorithm ({statuses})")

    def upload(self, x: list[float], w: list[float]) -> None:
        """Copy the inputs to the device."""
        for values in (x, w):
            data = encode(values, self.type.name)
            self.inputs.append(self._buffer(len(data)))
            self.driver.call("cuMemcpyHtoD_v2", self.inputs[-1], data, len(data))

    def run(
        self, handle: ctypes.c_void_p, stream: ctypes.c_void_p, what: str, right: list[float]
    ) -> ConvolutionRun:
        """Convolve on a stream and compare the result with the reference."""
        size = self._out_size()
        alpha, beta = ctypes.c_float(1), ctypes.c_float(0)
        self.cudnn.during = self.driver.during = what
        begin = time.perf_counter()
        self.driver.call("cuMemsetD8_v2", self.out, 0xFF, size)  # NaN in each of the types
        self.driver.call("cuCtxSynchronize")
        self.cudnn.call(
            "cudnnConvolutionForward", handle, ctypes.byref(alpha), self.x, self.inputs[0], self.w,
            self.inputs[1], self.conv, self.best.algo, self.space, self.best.memory,
            ctypes.byref(beta), self.y, self.out,
        )  # fmt: skip
        self.driver.call("cuStreamSynchronize", stream)
        data = ctypes.create_string_buffer(size)
        self.driver.call("cuMemcpyDtoH_v2", data, self.out, size)
        self.cudnn.during = self.driver.during = ""
        seconds = time.perf_counter() - begin
        values = decode(data.raw, self.type.name)
        comparison = compare(values, right, self.tolerance)
        return {
            "what": what,
            "error": comparison.error,
            "tolerance": self.tolerance,
            "wrong": comparison.wrong,
            "values": len(values),
            "first": comparison.first,
            "sha256": hashlib.sha256(data.raw).hexdigest(),
            "seconds": seconds,
        }

    def destroy(self) -> None:
        """Free the buffers and the descriptors."""
        for address in self.memory:
            self.driver.call("cuMemFree_v2", address)
        self.cudnn.call("cudnnDestroyTensorDescriptor", self.x)
        self.cudnn.call("cudnnDestroyTensorDescriptor", self.y)
        self.cudnn.call("cudnnDestroyFilterDescriptor", self.w)
        self.cudnn.call("cudnnDestroyConvolutionDescriptor", self.conv)


def make_handles(
    driver: Driver, cudnn: Cudnn, answer: ConvolutionAnswer
) -> tuple[list[ctypes.c_void_p], list[ctypes.c_void_p]]:
    """Return a cuDNN handle and a stream for each of STREAMS."""
    handles, streams = [], [POINTER()]
    for index, name in enumerate(STREAMS):
        handle = POINTER()
        cudnn.during = name
        cudnn.call("cudnnCreate", ctypes.byref(handle))
        handles.append(handle)
        answer["handles"] = len(handles)
        if index:
            streams.append(POINTER())
            driver.call("cuStreamCreate", ctypes.byref(streams[-1]), NON_BLOCKING)
            cudnn.call("cudnnSetStream", handle, streams[-1])
    return handles, streams


def reason_to_leave_out(data_type: DataType, capability: list[int], cudnn: Cudnn) -> str | None:
    """Return why a type cannot be tried here; None if it can."""
    if tuple(capability) < data_type.least_capability:
        return (
            f"{data_type.name}: not supported by compute capability {capability[0]}.{capability[1]}"
        )
    if cudnn.release < data_type.least_cudnn:
        return f"{data_type.name}: not supported by cuDNN {cudnn.release[0]}.{cudnn.release[1]}"
    return None


def convolve(driver: Driver, cudnn: Cudnn, answer: ConvolutionAnswer) -> None:
    """Convolve in all types on all streams. Each run is added to the answer at once."""
    x, w = numbers(N * C * H * W, 20240229), numbers(K * C * R * R, 4711)
    right = reference(x, w)
    handles, streams = make_handles(driver, cudnn, answer)
    for data_type in TYPES:
        reason = reason_to_leave_out(data_type, answer["device"]["capability"], cudnn)
        if reason is not None:
            answer["left"].append(reason)
            continue
        convolution = Convolution(driver, cudnn, data_type, handles[0])
        convolution.upload(x, w)
        for handle, stream, where in zip(handles, streams, STREAMS):  # noqa: B905  Python 3.9
            what = f"{data_type.name} on {where}"
            answer["runs"].append(convolution.run(handle, stream, what, right))
        convolution.destroy()
    for handle in handles:
        cudnn.call("cudnnDestroy", handle)
    for stream in streams[1:]:
        driver.call("cuStreamDestroy_v2", stream)


def try_device(driver: Driver, folder: str, ordinal: int, answer: ConvolutionAnswer) -> None:
    """Make a context, open cuDNN and convolve.

    Adds to the answer what was reached, also if a Fault ends it.
    """
    begin = time.perf_counter()
    start_driver(driver, answer)
    answer["device"] = {}
    device = answer["device"]
    number = read_device(driver, ordinal, device)
    context = POINTER()
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
    driver.call("cuCtxSetCurrent", context)
    device["free"], device["total"] = driver.memory()
    answer["context_s"] = time.perf_counter() - begin
    if device["free"] < answer["need"]:
        raise Fault("memory", "", None, "", "")
    begin = time.perf_counter()
    name = main_cudnn(folder)
    if name is None:
        raise Fault("library", "", None, "", "no libcudnn.so.N in " + folder)
    cudnn = Cudnn(os.path.join(folder, name))
    answer["version"], answer["runs"], answer["left"] = cudnn.number, [], []
    try:
        convolve(driver, cudnn, answer)
        answer["check_s"] = time.perf_counter() - begin
        driver.call("cuDevicePrimaryCtxRelease_v2", number)
    except Fault as fault:
        add_driver_state(driver, answer, fault)
        raise


def add_driver_state(driver: Driver, answer: ConvolutionAnswer, fault: Fault) -> None:
    """Add what the driver says after a failure.

    The status of cuDNN often hides a fault of the driver or a lack of memory.
    """
    try:
        driver.during = ""
        driver.call("cuCtxSynchronize")
        answer["free"] = driver.memory()[0]
    except Fault as second:
        facts = second.facts
        fault.facts["after"] = f"{facts['call']} gave {facts['status']} {facts['name']}"


def probe(options: Options) -> ConvolutionAnswer:
    """Return the answer that this file's docstring describes."""
    answer: ConvolutionAnswer = {"need": int(options.get("need", 256 * MIB)), "fault": None}
    try:
        driver = Driver("libcuda.so.1", _bindings.DRIVER)
        try_device(driver, options["folder"], int(options["device"]["ordinal"]), answer)
    except Fault as fault:
        answer.setdefault("driver", {})
        answer["fault"] = fault.facts
        bus = answer.get("device", {}).get("bus")
        in_use = fault.facts["kind"] == "memory" or fault.facts["status"] == DEVICE_UNAVAILABLE
        if in_use and bus:
            answer["users"] = _bindings.users(bus)
    answer["mapped"] = _bindings.mapped()
    return answer


if __name__ == "__main__":
    run(probe)
