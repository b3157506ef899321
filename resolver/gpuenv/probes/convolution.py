"""Convolves with cuDNN on one device, with no framework: the CUDA driver's library and libcudnn, by ctypes alone.

Options: {"folder": the folder of the environment's libcudnn.so.N, "device": {"ordinal": n}, "need": bytes that must be
free once the context exists (256 MiB unless given)}.

One 3x3 convolution in float32, float16 and, where the device and cuDNN have it, bfloat16; each on the default stream
and on two streams with handles of their own. Memory, streams and the primary context are the driver's (cuDNN carries
its own CUDA runtime and takes the current context), so that no libcudart is needed. Every status is looked at.

The inputs are multiples of 1/16 from -2 to 2: exact in all three formats and in TF32 as well, and so are the products
and sums in float32. One reference in float64 serves all, no math mode (TF32 or not) excuses a difference, and what is
left is the rounding of the result: 2**-11 of a value in float16 and 2**-9 in bfloat16. `error` is the largest
difference over the largest reference value: one wrong element is as bad as all. Of the algorithms that cuDNN's
heuristics offer the first that multiplies and adds is taken (implicit or explicit GEMM): Winograd's and Fourier's
transforms round on their own, and where they alone are offered the tolerance is eight times as large. The output is
filled with NaN before each run; what is not finite is wrong.

Answers {"version", "driver": {"path", "version", "count"}, "device": {"name", "capability", "mode", "total", "free"},
"need", "context_s", "check_s", "runs": [{"what", "error" | null, "tolerance", "wrong": how many values, "values",
"first": text, "seconds"}], "left": [what was not run and why], "fault": null | {"kind": "library" | "driver" |
"memory" | "cudnn", "call", "status", "name", "said", "during", "after"}, "free", "users": [text], "mapped": [path]}.
Keys that were not come to are left out.

By hand: python convolution.py '{"folder": ".../nvidia/cudnn/lib", "device": {"ordinal": 0}}'
Runs on Python 3.9 and later; standard library only.
"""

from __future__ import annotations

import array
import ctypes
import importlib.machinery
import json
import math
import os
import re
import struct
import sys
import time
import types
from typing import Any


def load_native() -> Any:
    """_native.py beside this script, without its folder on sys.path, where torch.py would stand for the real one."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_native.py")
    loader = importlib.machinery.SourceFileLoader("gpuenv_native", path)
    module = types.ModuleType(loader.name)
    loader.exec_module(module)
    return module


native = load_native()
Fault, INT, POINTER, SIZE = native.Fault, native.INT, native.POINTER, native.SIZE

MIB = 1 << 20
N, C, K, H, W, R = 2, 8, 16, 12, 10, 3  # images, channels, filters, height, width, filter's side; padding 1
WORKSPACE = 64 * MIB
NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
# CU_DEVICE_ATTRIBUTE_...: COMPUTE_MODE, COMPUTE_CAPABILITY_MAJOR, COMPUTE_CAPABILITY_MINOR.
MODE, MAJOR, MINOR = 20, 75, 76
TRANSFORMED = 8
GEMMS = (0, 1, 2)  # CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, _IMPLICIT_PRECOMP_GEMM, _GEMM
# name, cudnnDataType_t, bytes, cudnnMathType_t (3 FMA, 1 tensor cores), least capability, least cuDNN, tolerance
TYPES = (
    ("float32", 0, 4, 3, (0, 0), (0, 0), 1e-5),
    ("float16", 2, 2, 1, (5, 3), (0, 0), 1e-3),
    ("bfloat16", 9, 2, 1, (8, 0), (8, 1), 4e-3),
)
STREAMS = ("the default stream", "a second stream", "a third stream")


# ---- numbers ----------------------------------------------------------------------------------------------------


def numbers(count: int, seed: int) -> list[float]:
    """Multiples of 1/16 from -2 to 2 by a linear congruential generator (that of the C standard's example)."""
    values = []
    for _ in range(count):
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        values.append(((seed >> 16) % 65 - 32) / 16)
    return values


def reference(x: list[float], w: list[float]) -> list[float]:
    """The convolution (cross-correlation, as the frameworks have it) in float64."""
    out = []
    for n in range(N):
        # Rows with the padding around them, so that a row of the filter slides without a look at borders.
        rows = [[[0.0] * (W + 2)] * (H + 2) for _ in range(C)]
        for c in range(C):
            for h in range(H):
                start = ((n * C + c) * H + h) * W
                rows[c][h + 1] = [0.0, *x[start : start + W], 0.0]
        for k in range(K):
            for h in range(H):
                sums = [0.0] * W
                for c in range(C):
                    for r in range(R):
                        row, at = rows[c][h + r], ((k * C + c) * R + r) * R
                        a, b, d = w[at : at + R]
                        for i in range(W):
                            sums[i] += a * row[i] + b * row[i + 1] + d * row[i + 2]
                out += sums
    return out


def encode(values: list[float], name: str) -> bytes:
    """Values that the type holds exactly, as its bytes (little-endian)."""
    if name == "float16":
        return struct.pack("<%de" % len(values), *values)
    data = array.array("f", values).tobytes()
    return data if name == "float32" else array.array("H", data)[1::2].tobytes()


def decode(data: bytes, name: str) -> list[float]:
    if name == "float16":
        return list(struct.unpack("<%de" % (len(data) // 2), data))
    if name == "bfloat16":
        data = array.array("I", [half << 16 for half in array.array("H", data)]).tobytes()
    return array.array("f", data).tolist()


def compare(out: list[float], right: list[float], tolerance: float) -> dict[str, Any]:
    """How far the output is from the reference; "error" null where a value is not finite."""
    scale = max(abs(value) for value in right)
    errors = [abs(have - want) / scale if math.isfinite(have) else math.inf for have, want in zip(out, right)]  # noqa: B905  Python 3.9
    wrong = [index for index, error in enumerate(errors) if not error <= tolerance]
    worst = max(errors)
    answer: dict[str, Any] = {
        "error": worst if math.isfinite(worst) else None,
        "tolerance": tolerance,
        "wrong": len(wrong),
    }
    first = "value %d is %r, expected %r" % (wrong[0], out[wrong[0]], right[wrong[0]]) if wrong else ""
    answer.update(values=len(out), first=first)
    return answer


# ---- the device -------------------------------------------------------------------------------------------------


def ask(driver: Any, name: str, *arguments: Any) -> int:
    value = INT()
    driver.call(name, ctypes.byref(value), *arguments)
    return int(value.value)


def read_driver(driver: Any) -> dict[str, Any]:
    """Starts the driver: its version and the number of devices that it shows to this process."""
    paths = [path for path in native.mapped() if os.path.basename(path).startswith("libcuda.so")]
    answer: dict[str, Any] = {"path": paths[0] if paths else driver.path}
    try:
        driver.call("cuInit", 0)
    except Fault as fault:
        fault.told["driver"] = answer
        raise
    answer.update(version=ask(driver, "cuDriverGetVersion"), count=ask(driver, "cuDeviceGetCount"))
    return answer


def read_device(driver: Any, ordinal: int, device: dict[str, Any]) -> int:
    number = ask(driver, "cuDeviceGet", ordinal)
    name = ctypes.create_string_buffer(256)
    driver.call("cuDeviceGetName", name, len(name), number)
    device["name"] = name.value.decode(errors="replace")
    driver.call("cuDeviceGetPCIBusId", name, len(name), number)
    device["bus"] = name.value.decode(errors="replace")
    device["capability"] = [ask(driver, "cuDeviceGetAttribute", which, number) for which in (MAJOR, MINOR)]
    device["mode"] = ask(driver, "cuDeviceGetAttribute", MODE, number)
    return number


def memory(driver: Any) -> tuple[int, int]:
    """(free, total) bytes of the current context's device."""
    free, total = SIZE(), SIZE()
    driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


class Convolution:
    """The convolution in one type: descriptors, buffers, and the algorithm that the heuristics offer."""

    def __init__(self, driver: Any, cudnn: Any, row: tuple[Any, ...], handle: ctypes.c_void_p) -> None:
        self.driver, self.cudnn = driver, cudnn
        self.name, self.number, self.size, self.math, _, _, self.tolerance = row
        cudnn.during = self.name
        self.x, self.y = self._made("Tensor"), self._made("Tensor")
        self.w, self.how = self._made("Filter"), self._made("Convolution")
        cudnn.call("cudnnSetTensor4dDescriptor", self.x, 0, self.number, N, C, H, W)
        cudnn.call("cudnnSetTensor4dDescriptor", self.y, 0, self.number, N, K, H, W)
        cudnn.call("cudnnSetFilter4dDescriptor", self.w, self.number, 0, K, C, R, R)
        # Padding 1, stride 1, dilation 1, cross-correlation, sums in float32.
        cudnn.call("cudnnSetConvolution2dDescriptor", self.how, 1, 1, 1, 1, 1, 1, 1, 0)
        cudnn.call("cudnnSetConvolutionMathType", self.how, self.math)
        shape = [INT() for _ in range(4)]
        cudnn.call("cudnnGetConvolution2dForwardOutputDim", self.how, self.x, self.w, *map(ctypes.byref, shape))
        if [one.value for one in shape] != [N, K, H, W]:
            raise Fault("cudnn", "cudnnGetConvolution2dForwardOutputDim", 0, "", "a shape of %r" % shape)
        self.best = self._algorithm(handle)
        cudnn.call("cudnnSetConvolutionMathType", self.how, self.best.math)
        self.memory: list[ctypes.c_uint64] = []
        self.space = self._buffer(max(self.best.memory, 1))
        self.out = self._buffer(N * K * H * W * self.size)

    def _made(self, what: str) -> ctypes.c_void_p:
        descriptor: ctypes.c_void_p = POINTER()
        self.cudnn.call("cudnnCreate%sDescriptor" % what, ctypes.byref(descriptor))
        return descriptor

    def _buffer(self, size: int) -> ctypes.c_uint64:
        address: ctypes.c_uint64 = native.ADDRESS()
        self.driver.call("cuMemAlloc_v2", ctypes.byref(address), size)
        self.memory.append(address)
        return address

    def _algorithm(self, handle: ctypes.c_void_p) -> Any:
        table, count = (native.Perf * 16)(), INT()
        call = "cudnnGetConvolutionForwardAlgorithm_v7"
        self.cudnn.call(call, handle, self.x, self.w, self.how, self.y, len(table), ctypes.byref(count), table)
        found = [one for one in table[: count.value] if one.status == 0 and one.memory <= WORKSPACE]
        plain = [one for one in found if one.algo in GEMMS]
        if plain or found:
            self.tolerance *= 1 if plain else TRANSFORMED
            return (plain or found)[0]
        gave = ", ".join("%d: %d" % (one.algo, one.status) for one in table[: count.value])
        raise Fault("cudnn", call, 0, "", "%s: no algorithm (%s)" % (self.name, gave))

    def upload(self, x: list[float], w: list[float]) -> None:
        self.inputs = []
        for values in (x, w):
            data = encode(values, self.name)
            self.inputs.append(self._buffer(len(data)))
            self.driver.call("cuMemcpyHtoD_v2", self.inputs[-1], data, len(data))

    def run(self, handle: ctypes.c_void_p, stream: ctypes.c_void_p, what: str, right: list[float]) -> dict[str, Any]:
        size = N * K * H * W * self.size
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        self.cudnn.during = self.driver.during = what
        begin = time.perf_counter()
        self.driver.call("cuMemsetD8_v2", self.out, 0xFF, size)  # NaN in each of the types
        self.driver.call("cuCtxSynchronize")
        self.cudnn.call(
            "cudnnConvolutionForward", handle, ctypes.byref(one), self.x, self.inputs[0], self.w, self.inputs[1],
            self.how, self.best.algo, self.space, self.best.memory, ctypes.byref(zero), self.y, self.out,
        )  # fmt: skip
        self.driver.call("cuStreamSynchronize", stream)
        data = ctypes.create_string_buffer(size)
        self.driver.call("cuMemcpyDtoH_v2", data, self.out, size)
        self.cudnn.during = self.driver.during = ""
        seconds = time.perf_counter() - begin
        return {"what": what, **compare(decode(data.raw, self.name), right, self.tolerance), "seconds": seconds}

    def destroy(self) -> None:
        for address in self.memory:
            self.driver.call("cuMemFree_v2", address)
        for what, one in (("Tensor", self.x), ("Tensor", self.y), ("Filter", self.w), ("Convolution", self.how)):
            self.cudnn.call("cudnnDestroy%sDescriptor" % what, one)


def convolve(driver: Any, cudnn: Any, answer: dict[str, Any]) -> None:
    """All types on all streams; the runs are added to the answer as they come."""
    x, w = numbers(N * C * H * W, 20240229), numbers(K * C * R * R, 4711)
    right = reference(x, w)
    handles, streams = [], [POINTER()]
    for index in range(len(STREAMS)):
        handle = POINTER()
        cudnn.during = STREAMS[index]
        cudnn.call("cudnnCreate", ctypes.byref(handle))
        handles.append(handle)
        answer["handles"] = len(handles)
        if index:
            streams.append(POINTER())
            driver.call("cuStreamCreate", ctypes.byref(streams[-1]), NON_BLOCKING)
            cudnn.call("cudnnSetStream", handle, streams[-1])
    for row in TYPES:
        if tuple(answer["device"]["capability"]) < row[4]:
            answer["left"].append("%s: compute capability %d.%d has none" % (row[0], *answer["device"]["capability"]))
        elif cudnn.release < row[5]:
            answer["left"].append("%s: cuDNN %d.%d has none" % (row[0], *cudnn.release))
        else:
            one = Convolution(driver, cudnn, row, handles[0])
            one.upload(x, w)
            for handle, stream, where in zip(handles, streams, STREAMS):  # noqa: B905  Python 3.9
                answer["runs"].append(one.run(handle, stream, row[0] + " on " + where, right))
            one.destroy()
    for handle in handles:
        cudnn.call("cudnnDestroy", handle)
    for stream in streams[1:]:
        driver.call("cuStreamDestroy_v2", stream)


def on_device(driver: Any, folder: str, ordinal: int, answer: dict[str, Any]) -> None:
    begin = time.perf_counter()
    answer["driver"] = read_driver(driver)
    device: dict[str, Any] = {}
    answer["device"] = device
    number = read_device(driver, ordinal, device)
    context = POINTER()
    driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), number)
    driver.call("cuCtxSetCurrent", context)
    device["free"], device["total"] = memory(driver)
    answer["context_s"] = time.perf_counter() - begin
    if device["free"] < answer["need"]:
        raise Fault("memory", "", None, "", "")
    begin = time.perf_counter()
    mains = [name for name in os.listdir(folder) if re.fullmatch(r"libcudnn\.so\.[0-9]+", name)]
    if not mains:
        raise Fault("library", "", None, "", "no libcudnn.so.N in " + folder)
    cudnn = native.Cudnn(os.path.join(folder, max(mains, key=lambda name: int(name.rsplit(".", 1)[1]))))
    answer.update(version=cudnn.number, runs=[], left=[])
    try:
        convolve(driver, cudnn, answer)
        answer["check_s"] = time.perf_counter() - begin
        driver.call("cuDevicePrimaryCtxRelease_v2", number)
    except Fault as fault:
        after(driver, answer, fault)
        raise


def after(driver: Any, answer: dict[str, Any], fault: Any) -> None:
    """What the driver says after a failure: cuDNN's own status often hides it, and so does a lack of memory."""
    try:
        driver.during = ""
        driver.call("cuCtxSynchronize")
        answer["free"] = memory(driver)[0]
    except Fault as second:
        fault.told["after"] = "%s gave %s %s" % tuple(second.told[key] for key in ("call", "status", "name"))


def probe(options: dict[str, Any]) -> dict[str, Any]:
    """The answer that this file's first lines describe."""
    answer: dict[str, Any] = {"need": int(options.get("need", 256 * MIB)), "fault": None}
    try:
        driver = native.Driver("libcuda.so.1", native.DRIVER)
        on_device(driver, options["folder"], int(options["device"]["ordinal"]), answer)
    except Fault as fault:
        answer.setdefault("driver", fault.told.pop("driver", {}))
        answer["fault"] = fault.told
        # CUDA_ERROR_DEVICE_UNAVAILABLE is a device that others have for themselves.
        if (fault.told["kind"] == "memory" or fault.told["status"] == 46) and answer.get("device", {}).get("bus"):
            answer["users"] = native.users(answer["device"]["bus"])
    answer["mapped"] = native.mapped()
    return answer


def main() -> None:
    """Runs the probe and prints its one document."""
    try:
        answer = probe(json.loads(sys.argv[1]))
    except Exception as error:
        answer = {"failure": "%s: %s" % (type(error).__name__, error)}
    native.step("done")
    sys.stdout.write("\ngpuenv-probe: " + json.dumps(answer) + "\n")
    sys.stdout.flush()
    # Not an ordinary exit: the libraries' destructors are not what is examined here.
    os._exit(0)


if __name__ == "__main__":
    main()
