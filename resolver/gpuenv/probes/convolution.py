"""Convolve with cuDNN on one device, without a framework.

The CUDA driver's library and libcudnn, by ctypes alone.

Options: {"folder": the folder of the environment's libcudnn.so.N, "device": {"ordinal": n}}.

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

By hand: python -I _run.py convolution.py '{"folder": ".../cudnn/lib", "device": {"ordinal": 0}}'
Runs on Python 3.8 and later; standard library only.
"""

from __future__ import annotations

import array
import ctypes
import hashlib
import math
import os
import re
import struct
import time
from collections.abc import Mapping
from typing import NamedTuple, TypedDict

from ._bindings import (
    ADDRESS,
    GEMMS,
    INT,
    LIBRARY,
    POINTER,
    SIZE,
    Cudnn,
    CudnnConvolution,
    Driver,
    Fault,
)
from ._common import main_cudnn, mapped_libraries, run
from ._reference import RESULT, inputs, reference
from .answers import ConvolutionAnswer, ConvolutionRun, DeviceFacts

NEED = 256 << 20  # bytes that must be free: cuDNN's kernels and workspaces take up to 200 MB
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
# CU_DEVICE_ATTRIBUTE_...: COMPUTE_MODE, COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR.
MODE, MAJOR, MINOR = 20, 75, 76
TRANSFORMED = 8  # factor of the tolerance for algorithms that transform the values


class Options(TypedDict):
    """The options of this probe. `device` is the number of a device in the driver's order."""

    folder: str
    device: Mapping[str, int]


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


def compare(
    what: str, data: bytes, data_type: DataType, right: list[float], tolerance: float
) -> ConvolutionRun:
    """Compare a result with the reference. `error` is None if a value is not finite."""
    out = decode(data, data_type.name)
    scale = max(abs(value) for value in right)
    errors = []
    for have, want in zip(out, right):  # noqa: B905  Python 3.8
        errors.append(abs(have - want) / scale if math.isfinite(have) else math.inf)
    wrong = [index for index, error in enumerate(errors) if not error <= tolerance]
    first = ""
    if wrong:
        first = f"value {wrong[0]} is {out[wrong[0]]!r}, expected {right[wrong[0]]!r}"
    worst = max(errors)
    return {
        "what": what,
        "error": worst if math.isfinite(worst) else None,
        "tolerance": tolerance,
        "wrong": len(wrong),
        "values": len(out),
        "first": first,
        "sha256": hashlib.sha256(data).hexdigest(),
    }


# ---- the device ---------------------------------------------------------------------------------


def allocate(driver: Driver, size: int) -> ctypes.c_uint64:
    """Return the address of memory of the device. It is freed when the process ends."""
    address: ctypes.c_uint64 = driver.output(ADDRESS, "cuMemAlloc_v2", SIZE(size))
    return address


def upload(driver: Driver, data: bytes) -> ctypes.c_uint64:
    """Return the address of a copy of the data in memory of the device."""
    address = allocate(driver, len(data))
    driver.call("cuMemcpyHtoD_v2", address, data, SIZE(len(data)))
    return address


def make_handles(
    driver: Driver, cudnn: Cudnn, answer: ConvolutionAnswer
) -> tuple[list[ctypes.c_void_p], list[ctypes.c_void_p]]:
    """Return a cuDNN handle and a stream for each of STREAMS."""
    handles, streams = [], [POINTER()]
    for index, name in enumerate(STREAMS):
        cudnn.during = name
        handles.append(cudnn.output(POINTER, "cudnnCreate"))
        answer["handles"] = len(handles)
        if index:
            streams.append(driver.output(POINTER, "cuStreamCreate", NON_BLOCKING))
            cudnn.call("cudnnSetStream", handles[-1], streams[-1])
    return handles, streams


def convolve(driver: Driver, cudnn: Cudnn, answer: ConvolutionAnswer) -> None:
    """Convolve in all types on all streams. Each run is added to the answer at once."""
    right = reference()
    handles, streams = make_handles(driver, cudnn, answer)
    major, minor = answer["device"]["capability"]
    for data_type in TYPES:
        name = data_type.name
        if (major, minor) < data_type.least_capability:
            reason = f"{name}: not supported by compute capability {major}.{minor}"
            answer["left"].append(reason)
            continue
        if cudnn.release < data_type.least_cudnn:
            release = ".".join(map(str, cudnn.release))
            answer["left"].append(f"{name}: not supported by cuDNN {release}")
            continue
        cudnn.during = name
        work = CudnnConvolution(cudnn, handles[0], data_type.number, data_type.math_type)
        tolerance = data_type.tolerance * (1 if work.best.algo in GEMMS else TRANSFORMED)
        size = math.prod(RESULT) * data_type.size
        space, out = allocate(driver, max(work.best.memory, 1)), allocate(driver, size)
        x, w = [upload(driver, encode(values, name)) for values in inputs()]
        for handle, stream, where in zip(handles, streams, STREAMS):  # noqa: B905  Python 3.8
            cudnn.during = driver.during = f"{name} on {where}"
            # NaN in each of the types
            driver.call("cuMemsetD8_v2", out, 0xFF, SIZE(size))
            driver.call("cuCtxSynchronize")
            work.forward(handle, x, w, space, out)
            driver.call("cuStreamSynchronize", stream)
            data = ctypes.create_string_buffer(size)
            driver.call("cuMemcpyDtoH_v2", data, out, SIZE(size))
            run = compare(driver.during, data.raw, data_type, right, tolerance)
            answer["runs"].append(run)
        cudnn.during = driver.during = ""


def read_device(driver: Driver, ordinal: int, device: DeviceFacts) -> int:
    """Return the CUdevice of an ordinal. Adds its name, capability and mode."""
    number: int = driver.output(INT, "cuDeviceGet", ordinal).value
    text = ctypes.create_string_buffer(256)
    driver.call("cuDeviceGetName", text, len(text), number)
    device["name"] = text.value.decode(errors="replace")
    device["capability"] = [
        driver.output(INT, "cuDeviceGetAttribute", part, number).value for part in (MAJOR, MINOR)
    ]
    device["mode"] = driver.output(INT, "cuDeviceGetAttribute", MODE, number).value
    return number


def try_device(driver: Driver, folder: str, ordinal: int, answer: ConvolutionAnswer) -> None:
    """Make a context, open cuDNN and convolve.

    Adds to the answer what was reached, also if a Fault ends it.
    """
    begin = time.perf_counter()
    paths = mapped_libraries(re.compile(r"libcuda\.so"))
    answer["driver"] = {"path": paths[0] if paths else driver.path}
    driver.call("cuInit", 0)
    answer["driver"]["count"] = driver.output(INT, "cuDeviceGetCount").value
    device = answer["device"] = {}
    number = read_device(driver, ordinal, device)
    driver.call("cuCtxSetCurrent", driver.output(POINTER, "cuDevicePrimaryCtxRetain", number))
    device["free"], device["total"] = driver.memory()
    answer["context_s"] = time.perf_counter() - begin
    if device["free"] < NEED:
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
    except Fault as fault:
        # What the driver says afterwards: cuDNN's status often hides a fault of the driver or a
        # lack of memory.
        try:
            driver.during = ""
            driver.call("cuCtxSynchronize")
            answer["free"] = driver.memory()[0]
        except Fault as second:
            facts = second.facts
            fault.facts["after"] = f"{facts['call']} gave {facts['status']} {facts['name']}"
        raise


def probe(options: Options) -> ConvolutionAnswer:
    """Return the answer that this file's docstring describes."""
    answer: ConvolutionAnswer = {"fault": None}
    try:
        driver = Driver("libcuda.so.1")
        try_device(driver, options["folder"], options["device"]["ordinal"], answer)
    except Fault as fault:
        answer.setdefault("driver", {})
        answer["fault"] = fault.facts
    answer["mapped"] = mapped_libraries(LIBRARY)
    return answer


if __name__ == "__main__":
    run(probe)
