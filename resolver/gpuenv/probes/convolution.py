"""Convolve with cuDNN on one device, without a framework.

The CUDA driver's library and libcudnn, by ctypes alone.

Options: {"folder": the folder of the environment's libcudnn.so.N, "device": {"ordinal": n}, "need":
bytes that must be free once the context exists (256 MiB unless given)}.

The convolution of _reference.py in float32, float16 and, if the device and cuDNN have it, bfloat16;
each on the default stream and on two streams with handles of their own. Memory, streams and the
primary context are the driver's (cuDNN contains its own CUDA runtime and uses the current context),
so no libcudart is needed. Every status is checked.

Only the rounding of the result remains as an error: 2**-11 of a value in float16 and 2**-9 in
bfloat16. `error` is the largest difference over the largest reference value, so one wrong element
counts as much as all. Of the algorithms that cuDNN's heuristics offer, the first that multiplies
and adds is used (implicit or explicit GEMM). Winograd's and Fourier's transforms round on their
own; if only they are offered, the tolerance is eight times as large. The output is filled with NaN
before each run; a value that is not finite is wrong.

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
from ._bindings import MIB, POINTER, SIZE, Cudnn, CudnnConvolution, Driver, Fault
from ._common import main_cudnn, run
from ._reference import RESULT, inputs, reference
from .answers import ConvolutionAnswer, ConvolutionRun, DeviceFacts

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
    """The convolution in one type, with its buffers in the device's memory."""

    def __init__(
        self, driver: Driver, cudnn: Cudnn, data_type: DataType, handle: ctypes.c_void_p
    ) -> None:
        self.driver, self.type = driver, data_type
        cudnn.during = data_type.name
        self.work = CudnnConvolution(cudnn, handle, data_type.number, data_type.math_type)
        self.tolerance = data_type.tolerance * (TRANSFORMED if self.work.transforms else 1)
        self.memory: list[ctypes.c_uint64] = []
        self.space = self._buffer(max(self.work.best.memory, 1))
        self.out_size = math.prod(RESULT) * data_type.size
        self.out = self._buffer(self.out_size)
        self.x, self.w = map(self._upload, inputs())

    def _buffer(self, size: int) -> ctypes.c_uint64:
        address: ctypes.c_uint64 = _bindings.ADDRESS()
        self.driver.call("cuMemAlloc_v2", ctypes.byref(address), SIZE(size))
        self.memory.append(address)
        return address

    def _upload(self, values: list[float]) -> ctypes.c_uint64:
        data = encode(values, self.type.name)
        address = self._buffer(len(data))
        self.driver.call("cuMemcpyHtoD_v2", address, data, SIZE(len(data)))
        return address

    def run(
        self, handle: ctypes.c_void_p, stream: ctypes.c_void_p, what: str, right: list[float]
    ) -> ConvolutionRun:
        """Convolve on a stream and compare the result with the reference."""
        cudnn = self.work.cudnn
        cudnn.during = self.driver.during = what
        begin = time.perf_counter()
        size = SIZE(self.out_size)
        self.driver.call("cuMemsetD8_v2", self.out, 0xFF, size)  # NaN in each of the types
        self.driver.call("cuCtxSynchronize")
        self.work.forward(handle, self.x, self.w, self.space, self.out)
        self.driver.call("cuStreamSynchronize", stream)
        data = ctypes.create_string_buffer(self.out_size)
        self.driver.call("cuMemcpyDtoH_v2", data, self.out, size)
        cudnn.during = self.driver.during = ""
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
        self.work.destroy()


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
    right = reference()
    handles, streams = make_handles(driver, cudnn, answer)
    for data_type in TYPES:
        reason = reason_to_leave_out(data_type, answer["device"]["capability"], cudnn)
        if reason is not None:
            answer["left"].append(reason)
            continue
        convolution = Convolution(driver, cudnn, data_type, handles[0])
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
        driver = Driver("libcuda.so.1")
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
