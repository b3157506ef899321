"""Import CuPy and convolve on every GPU, twice: by a kernel that NVRTC compiles, and by cuDNN.

Contract: __init__.py.

Options: {"import_name": "cupy", "device": bool}. Runs on Python 3.9 and later; standard library,
CuPy and its numpy only.

CuPy has no CPU, so "cpu" is left out. CuPy 14 has no cuDNN: the libcudnn of the environment's
distributions is called by ctypes with CuPy's arrays and stream. Older releases have cupy.cudnn. If
there is no cuDNN, "without_cudnn" says so and only the kernel runs. Compiled kernels are kept in
memory, not in the user's cache.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import time
from collections.abc import Callable
from functools import partial
from types import ModuleType

from . import _reference
from ._bindings import Cudnn, CudnnConvolution
from ._common import step
from ._framework import (
    Array,
    Convolution,
    Options,
    failure,
    find_libcudnn,
    main,
    mapped,
    mapped_cudnn,
)
from ._reference import RESULT
from .answers import FrameworkAnswer, FrameworkDevice, Run

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
# cudnnDataType_t and cudnnMathType_t (FMA, tensor cores) of each type that is tried.
DATA = {"float32": (0, 3), "float16": (2, 1)}


def with_cudnn(cupy: ModuleType, cudnn: Cudnn, *arrays: Array, dtype: str) -> Callable[[], None]:
    """Return a function that convolves on the current stream: from images and filters into out."""
    handle = ctypes.c_void_p()
    cudnn.call("cudnnCreate", ctypes.byref(handle))  # it lives until the process ends
    cudnn.call("cudnnSetStream", handle, ctypes.c_void_p(cupy.cuda.get_current_stream().ptr))
    work = CudnnConvolution(cudnn, handle, *DATA[dtype])
    images, filters, out = arrays
    space = cupy.empty((max(work.best.memory, 1),), dtype="uint8")

    def convolve() -> None:
        # The arrays, not their addresses, are kept: CuPy reuses memory that nothing refers to.
        work.forward(handle, *(array.data.ptr for array in (images, filters, space, out)))

    return convolve


def find_cudnn(cupy: ModuleType) -> tuple[Cudnn | ModuleType | None, str]:
    """Return the cuDNN (cupy.cudnn before CuPy 14), and "" or why there is none."""
    if int(cupy.__version__.split(".")[0]) < 14:
        step("import cupy.cudnn")
        try:
            return importlib.import_module("cupy.cudnn"), ""
        except ImportError as error:
            return None, f"CuPy finds no cuDNN ({failure(error)})"
    path = find_libcudnn()
    if path is None:
        return None, "no cuDNN is installed, and CuPy does not need it"
    return Cudnn(path), ""


def compile_kernel(
    cupy: ModuleType, images: Array, filters: Array, out: Array
) -> Callable[[], None]:
    """Return a function that convolves by KERNEL."""
    names = ("IMAGES", "CHANNELS", "SIDE", "FILTERS", "WINDOW")
    options = tuple(f"-D{name}={getattr(_reference, name)}" for name in names)
    kernel = cupy.RawKernel(KERNEL, "convolve", options=options)
    blocks = (out.size + 127) // 128
    return partial(kernel, (blocks,), (128,), (images, filters, out))


def methods(
    cupy: ModuleType, cudnn: Cudnn | ModuleType | None, work: Convolution, dtype: str
) -> tuple[Array, dict[str, Callable[[], object]]]:
    """Return an array, and by name the functions that convolve into it on the current device."""
    numpy = importlib.import_module("numpy")
    images, filters = [cupy.asarray(array).astype(dtype) for array in work.arrays(numpy)]
    out = cupy.empty(RESULT, dtype=dtype)
    functions: dict[str, Callable[[], object]] = {}
    if dtype == "float32":
        functions["kernel of NVRTC"] = compile_kernel(cupy, images, filters, out)
    if isinstance(cudnn, Cudnn):
        convolve = with_cudnn(cupy, cudnn, images, filters, out, dtype=dtype)
        functions["cudnnConvolutionForward"] = convolve
    elif cudnn is not None:
        ones = (1, 1)  # padding, stride, dilation
        functions["cupy.cudnn.convolution_forward"] = partial(
            cudnn.convolution_forward, images, filters, None, out, ones, ones, ones, 1,
            auto_tune=False, tensor_core="auto",
        )  # fmt: skip
    return out, functions


def measure(  # noqa: PLR0917
    cupy: ModuleType,
    work: Convolution,
    out: Array,
    what: str,
    dtype: str,
    convolve: Callable[[], object],
) -> Run:
    """Convolve several times into `out` by one of methods()."""

    def once() -> Array:
        convolve()
        cupy.cuda.get_current_stream().synchronize()
        return out

    def values(result: Array) -> list[float]:
        flat: list[float] = cupy.asnumpy(result).astype("float64").ravel().tolist()
        result.fill(float("nan"))  # so that values which are not computed again are seen
        return flat

    out.fill(float("nan"))
    return work.run(f"{what} {dtype}", dtype, once, values)


def try_device(
    cupy: ModuleType, work: Convolution, cudnn: Cudnn | ModuleType | None, index: int
) -> FrameworkDevice:
    """Convolve on one device. A failure is an answer, so that the other devices are tried."""
    answer: FrameworkDevice = {"index": index}
    try:
        step(f"device {index}")
        name = cupy.cuda.runtime.getDeviceProperties(index)["name"]
        answer["name"] = name.decode() if isinstance(name, bytes) else str(name)
        answer["runs"] = []
        with cupy.cuda.Device(index):
            for dtype in DATA:
                out, functions = methods(cupy, cudnn, work, dtype)
                for what, convolve in functions.items():
                    answer["runs"].append(measure(cupy, work, out, what, dtype, convolve))
    except Exception as error:
        answer["failure"] = failure(error)
    return answer


def try_devices(cupy: ModuleType, work: Convolution) -> FrameworkAnswer:
    """Return "devices" and perhaps "without_cudnn" and "cudnn_failure", or "device_failure"."""
    step("getDeviceCount")
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        return {"device_failure": failure(error)}
    answer: FrameworkAnswer = {}
    try:
        cudnn, reason = find_cudnn(cupy)
    except Exception as error:
        answer["cudnn_failure"] = failure(error)
        cudnn, reason = None, "cuDNN could not be opened"
    if cudnn is None:
        answer["without_cudnn"] = reason
    answer["devices"] = [try_device(cupy, work, cudnn, index) for index in range(count)]
    return answer


def probe(options: Options) -> FrameworkAnswer:
    """Return the answer of the contract."""
    os.environ["CUPY_CACHE_IN_MEMORY"] = "1"
    name = options.get("import_name", "cupy")
    step("import " + name)
    begin = time.perf_counter()
    cupy = importlib.import_module(name)
    answer: FrameworkAnswer = {
        "import_s": time.perf_counter() - begin,
        "version": str(cupy.__version__),
        "file": getattr(cupy, "__file__", None),
        "devices": [],
    }
    if cupy.cuda.runtime.is_hip:
        answer["cuda"], answer["aside"] = None, "a ROCm build: it is for AMD GPUs"
    else:
        # CuPy's distributions are made for a major version.
        answer["cuda"] = str(int(cupy.cuda.runtime.runtimeGetVersion()) // 1000)
        if options.get("device"):
            answer.update(try_devices(cupy, Convolution()))
    answer["mapped"] = mapped()
    answer["cudnn"] = mapped_cudnn()
    return answer


if __name__ == "__main__":
    main(probe)
