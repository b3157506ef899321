"""Imports CuPy and convolves on every GPU, twice: by a kernel that NVRTC compiles, and by cuDNN. Contract: __init__.py.

Options: {"import_name": "cupy", "device": bool}. Runs on Python 3.9 and later; standard library, CuPy and its numpy
only.

CuPy has no CPU, so "cpu" is left out. CuPy 14 has no cuDNN: the libcudnn that the environment's distributions have is
called by ctypes with CuPy's arrays and stream; before, cupy.cudnn is asked. Where there is no cuDNN, "without_cudnn"
says so and the kernel is all. Compiled kernels are kept in memory, not in the user's cache.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.machinery
import os
import time
import types
from typing import Any

KERNEL = """
extern "C" __global__ void convolve(const float* x, const float* w, float* y) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at >= IMAGES * FILTERS * SIDE * SIDE) return;
  int column = at % SIDE, line = at / SIDE % SIDE, plane = at / (SIDE * SIDE);
  int filter = plane % FILTERS, image = plane / FILTERS;
  float sum = 0;
  for (int channel = 0; channel < CHANNELS; ++channel)
    for (int r = 0; r < WINDOW; ++r)
      for (int s = 0; s < WINDOW; ++s) {
        int l = line + r - 1, c = column + s - 1;
        if (l >= 0 && l < SIDE && c >= 0 && c < SIDE)
          sum += x[((image * CHANNELS + channel) * SIDE + l) * SIDE + c]
               * w[((filter * CHANNELS + channel) * WINDOW + r) * WINDOW + s];
      }
  y[at] = sum;
}
"""
# cudnn_graph.h, cudnn_cnn.h: cudnnDataType_t, cudnnConvolutionMode_t, cudnnMathType_t, cudnnTensorFormat_t, and the
# algorithms that multiply and add (IMPLICIT_GEMM, IMPLICIT_PRECOMP_GEMM, GEMM): the others round on their own.
DATA, NCHW, CROSS_CORRELATION, FMA, TENSOR_OP, GEMMS = {"float32": 0, "float16": 2}, 0, 1, 3, 1, (0, 1, 2)


def load_child() -> Any:
    """_child.py beside this script, without its folder on sys.path, where torch.py would stand for the real one."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_child.py")
    loader = importlib.machinery.SourceFileLoader("gpuenv_child", path)
    module = types.ModuleType(loader.name)
    loader.exec_module(module)
    return module


child = load_child()

class Perf(ctypes.Structure):
    """cudnnConvolutionFwdAlgoPerf_t."""

    _fields_ = [("algo", ctypes.c_int), ("status", ctypes.c_int), ("time", ctypes.c_float), ("memory", ctypes.c_size_t),
                ("determinism", ctypes.c_int), ("math", ctypes.c_int), ("reserved", ctypes.c_int * 3)]  # fmt: skip


class Cudnn:
    """As much of cuDNN's C functions as a convolution takes, on CuPy's pointers and current stream."""

    def __init__(self, path: str) -> None:
        child.step("open " + path)
        self._library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        self._library.cudnnGetErrorString.restype = ctypes.c_char_p
        self._library.cudnnGetVersion.restype = ctypes.c_size_t
        self.version = int(self._library.cudnnGetVersion())

    def call(self, name: str, *arguments: Any) -> None:
        """Calls a function of cuDNN's; RuntimeError if it does not return CUDNN_STATUS_SUCCESS."""
        child.step("call " + name)
        status = int(getattr(self._library, name)(*arguments))
        if status:
            text = (self._library.cudnnGetErrorString(status) or b"").decode(errors="replace")
            raise RuntimeError(f"{name} gave {status} {text}: {self._last()}".rstrip(": "))

    def _last(self) -> str:
        if not hasattr(self._library, "cudnnGetLastErrorString"):
            return ""  # before 9
        buffer = ctypes.create_string_buffer(2048)
        self._library.cudnnGetLastErrorString(buffer, ctypes.c_size_t(len(buffer)))
        return buffer.value.decode(errors="replace").strip()

    def made(self, what: str) -> ctypes.c_void_p:
        """What cudnnCreate`what` makes; all of it ends with the process."""
        handle = ctypes.c_void_p()
        self.call("cudnnCreate" + what, ctypes.byref(handle))
        return handle

    def convolution(self, cupy: Any, images: Any, filters: Any, out: Any, *, dtype: str) -> Any:
        """A function that convolves on the current stream."""
        handle, kind = self.made(""), DATA[dtype]
        self.call("cudnnSetStream", handle, ctypes.c_void_p(cupy.cuda.get_current_stream().ptr))
        x, y, w = self.made("TensorDescriptor"), self.made("TensorDescriptor"), self.made("FilterDescriptor")
        how = self.made("ConvolutionDescriptor")
        self.call("cudnnSetTensor4dDescriptor", x, NCHW, kind, *child.INPUT)
        self.call("cudnnSetTensor4dDescriptor", y, NCHW, kind, *child.RESULT)
        self.call("cudnnSetFilter4dDescriptor", w, kind, NCHW, *child.WEIGHT)
        # Padding, stride and dilation 1; the sums are float32 in both types.
        self.call("cudnnSetConvolution2dDescriptor", how, 1, 1, 1, 1, 1, 1, CROSS_CORRELATION, DATA["float32"])
        self.call("cudnnSetConvolutionMathType", how, FMA if dtype == "float32" else TENSOR_OP)
        best = self._algorithm(handle, x, w, how, y)
        self.call("cudnnSetConvolutionMathType", how, best.math)
        space = cupy.empty((max(best.memory, 1),), dtype="uint8")
        one, zero = ctypes.c_float(1), ctypes.c_float(0)
        arrays = (images, filters, space, out)

        def convolve() -> None:
            # The arrays, not their addresses, are kept: memory that nobody holds is handed out anew.
            places = [ctypes.c_void_p(array.data.ptr) for array in arrays]
            self.call(
                "cudnnConvolutionForward", handle, ctypes.byref(one), x, places[0], w, places[1], how, best.algo,
                places[2], ctypes.c_size_t(best.memory), ctypes.byref(zero), y, places[3],
            )  # fmt: skip

        return convolve

    def _algorithm(self, handle: Any, *descriptors: Any) -> Perf:
        """The first that the heuristics offer of GEMMS."""
        table, count = (Perf * 16)(), ctypes.c_int()
        name = "cudnnGetConvolutionForwardAlgorithm_v7"
        self.call(name, handle, *descriptors, len(table), ctypes.byref(count), table)
        for one in table[: count.value]:
            if one.status == 0 and one.algo in GEMMS:
                return one
        raise RuntimeError(f"{name} offers none of {count.value} algorithms that multiply and add")


def find_cudnn(cupy: Any) -> tuple[Any, str]:
    """(the Cudnn, cupy's own module, or None; why there is none)."""
    if int(cupy.__version__.split(".")[0]) < 14:
        child.step("import cupy.cudnn")
        try:
            return importlib.import_module("cupy.cudnn"), ""
        except ImportError as error:
            return None, f"CuPy finds no cuDNN ({child.failure(error)})"
    path = child.find_libcudnn()
    if path is None:
        return None, "no cuDNN is installed, and CuPy needs none"
    return Cudnn(path), ""


def ways(cupy: Any, cudnn: Any, work: Any, dtype: str) -> tuple[Any, list[tuple[str, Any]]]:
    """(array, [(name, function that convolves into the array)]) on the current device."""
    numpy = importlib.import_module("numpy")
    images, filters = [cupy.asarray(one).astype(dtype) for one in work.arrays(numpy)]
    out = cupy.empty(child.RESULT, dtype=dtype)
    found: list[tuple[str, Any]] = []
    if dtype == "float32":
        names = ("IMAGES", "CHANNELS", "SIDE", "FILTERS", "WINDOW")
        options = tuple(f"-D{name}={getattr(child, name)}" for name in names)
        kernel, blocks = cupy.RawKernel(KERNEL, "convolve", options=options), (out.size + 127) // 128
        found.append(("kernel of NVRTC", lambda: kernel((blocks,), (128,), (images, filters, out))))
    if isinstance(cudnn, Cudnn):
        found.append(("cudnnConvolutionForward", cudnn.convolution(cupy, images, filters, out, dtype=dtype)))
    elif cudnn is not None:
        ones = (1, 1)  # padding, stride, dilation
        found.append(
            (
                "cupy.cudnn.convolution_forward",
                lambda: cudnn.convolution_forward(
                    images, filters, None, out, ones, ones, ones, 1, auto_tune=False, tensor_core="auto"
                ),
            )
        )
    return out, found


def measure(cupy: Any, work: Any, out: Any, named: tuple[str, Any], dtype: str) -> dict[str, Any]:
    """One RUN of the contract, of a way that ways() gave with `out`."""
    what, convolve = named

    def once() -> Any:
        convolve()
        cupy.cuda.get_current_stream().synchronize()
        return out

    def values(result: Any) -> list[float]:
        found: list[float] = cupy.asnumpy(result).astype("float64").ravel().tolist()
        result.fill(float("nan"))  # what is not computed anew is seen
        return found

    out.fill(float("nan"))
    run: dict[str, Any] = work.run(f"{what} {dtype}", dtype, once, values)
    return run


def try_device(cupy: Any, work: Any, cudnn: Any, index: int) -> dict[str, Any]:
    """One member of "devices"; a failure on one device leaves the others to be tried."""
    answer: dict[str, Any] = {"index": index}
    try:
        child.step(f"device {index}")
        name = cupy.cuda.runtime.getDeviceProperties(index)["name"]
        answer["name"] = name.decode() if isinstance(name, bytes) else str(name)
        answer["runs"] = []
        with cupy.cuda.Device(index):
            for dtype in DATA:
                out, found = ways(cupy, cudnn, work, dtype)
                answer["runs"] += [measure(cupy, work, out, named, dtype) for named in found]
    except Exception as error:
        answer["failure"] = child.failure(error)
    return answer


def try_devices(cupy: Any, work: Any) -> dict[str, Any]:
    """{"devices", "cudnn" or "without_cudnn"} or {"device_failure"}."""
    child.step("getDeviceCount")
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        return {"device_failure": child.failure(error)}
    answer: dict[str, Any] = {}
    try:
        cudnn, why = find_cudnn(cupy)
    except Exception as error:
        answer["cudnn_failure"], cudnn, why = child.failure(error), None, "cuDNN could not be opened"
    if cudnn is None:
        answer["without_cudnn"] = why
    answer["devices"] = [try_device(cupy, work, cudnn, index) for index in range(count)]
    return answer


def probe(options: dict[str, Any]) -> dict[str, Any]:
    """The answer that the contract describes, with import_s, file and *_failure texts."""
    os.environ["CUPY_CACHE_IN_MEMORY"] = "1"
    child.step("import " + options.get("import_name", "cupy"))
    begin = time.perf_counter()
    cupy = importlib.import_module(options.get("import_name", "cupy"))
    answer: dict[str, Any] = {"import_s": time.perf_counter() - begin, "version": str(cupy.__version__)}
    answer.update(file=getattr(cupy, "__file__", None), devices=[])
    if cupy.cuda.runtime.is_hip:
        answer.update(cuda=None, aside="a build for ROCm: its GPUs are not NVIDIA's")
    else:
        # The major version is what CuPy's distributions are made for.
        answer["cuda"] = str(int(cupy.cuda.runtime.runtimeGetVersion()) // 1000)
        if options.get("device"):
            answer.update(try_devices(cupy, child.Convolution()))
    answer["mapped"] = child.mapped()
    answer["cudnn"] = child.mapped_cudnn()
    return answer


if __name__ == "__main__":
    child.main(probe)
