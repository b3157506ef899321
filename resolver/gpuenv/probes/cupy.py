"""Import CuPy and convolve on every GPU, twice: by a kernel that NVRTC compiles, and by cuDNN.

Contract: __init__.py.

Runs on Python 3.8 and later; standard library, CuPy and its numpy only.

CuPy has no CPU, so "cpu" is left out. CuPy 14 has no cuDNN: the libcudnn of the environment's
distributions is called by ctypes with CuPy's arrays and stream. Older releases have cupy.cudnn. If
there is no cuDNN, "without_cudnn" says so and only the kernel runs. Compiled kernels are kept in
memory, not in the user's cache.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType

from . import _reference
from ._bindings import ADDRESS, POINTER, Cudnn, CudnnConvolution
from ._common import main_cudnn, step
from ._framework import ROCM, Array, Framework, Options, failure, main
from ._reference import RESULT
from .answers import FrameworkAnswer, Run

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


class Cupy(Framework):
    """CuPy. A device is its number."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        os.environ["CUPY_CACHE_IN_MEMORY"] = "1"
        self.about_cudnn: FrameworkAnswer = {}

    def build(self, module: ModuleType) -> FrameworkAnswer:
        self.cupy = module
        if module.cuda.runtime.is_hip:
            return ROCM
        # CuPy's distributions are made for a major version.
        return {"cuda": str(int(module.cuda.runtime.runtimeGetVersion()) // 1000)}

    def devices(self) -> Sequence[int]:
        count = self.cupy.cuda.runtime.getDeviceCount()
        try:
            self.cudnn, reason = self.find_cudnn()
        except Exception as error:
            self.about_cudnn["cudnn_failure"] = failure(error)
            self.cudnn, reason = None, "cuDNN could not be opened"
        if self.cudnn is None:
            self.about_cudnn["without_cudnn"] = reason
        return range(count)

    def find_cudnn(self) -> tuple[Cudnn | ModuleType | None, str]:
        """Return the cuDNN (cupy.cudnn before CuPy 14), and "" or why there is none."""
        if int(self.cupy.__version__.split(".")[0]) < 14:
            step("import cupy.cudnn")
            try:
                return importlib.import_module("cupy.cudnn"), ""
            except ImportError as error:
                return None, f"CuPy finds no cuDNN ({failure(error)})"
        for entry in sys.path:
            folder = os.path.join(entry, "nvidia", "cudnn", "lib")
            main_library = main_cudnn(folder) if os.path.isdir(folder) else None
            if main_library is not None:
                return Cudnn(os.path.join(folder, main_library)), ""
        return None, "no cuDNN is installed, and CuPy does not need it"

    def describe(self, device: int) -> tuple[str, Sequence[int]]:
        name = self.cupy.cuda.runtime.getDeviceProperties(device)["name"]
        return name.decode() if isinstance(name, bytes) else str(name), ()

    def convolve(self, device: int, dtype: str) -> list[Run]:
        cupy = self.cupy
        with cupy.cuda.Device(device):
            images, filters = [cupy.asarray(array).astype(dtype) for array in self.arrays()]
            out = cupy.empty(RESULT, dtype=dtype)
            ways: dict[str, Callable[[], object]] = {}
            if dtype == "float32":
                names = ("IMAGES", "CHANNELS", "SIDE", "FILTERS", "WINDOW")
                options = tuple(f"-D{name}={getattr(_reference, name)}" for name in names)
                kernel = cupy.RawKernel(KERNEL, "convolve", options=options)
                blocks = (out.size + 127) // 128
                ways["kernel of NVRTC"] = partial(kernel, (blocks,), (128,), (images, filters, out))
            if isinstance(self.cudnn, Cudnn):
                ways["cudnnConvolutionForward"] = self.with_cudnn(
                    self.cudnn, images, filters, out, dtype
                )
            elif self.cudnn is not None:
                ones = (1, 1)  # padding, stride, dilation
                ways["cupy.cudnn.convolution_forward"] = partial(
                    self.cudnn.convolution_forward, images, filters, None, out, ones, ones, ones, 1,
                    auto_tune=False, tensor_core="auto",
                )  # fmt: skip
            return [self.measure_way(what, dtype, way, out) for what, way in ways.items()]

    def with_cudnn(
        self, cudnn: Cudnn, images: Array, filters: Array, out: Array, dtype: str
    ) -> Callable[[], None]:
        """Return a function that convolves from images and filters into out by cuDNN."""
        cupy = self.cupy
        handle = cudnn.output(POINTER, "cudnnCreate")  # it lives until the process ends
        cudnn.call("cudnnSetStream", handle, POINTER(cupy.cuda.get_current_stream().ptr))
        work = CudnnConvolution(cudnn, handle, *DATA[dtype])
        space = cupy.empty((max(work.best.memory, 1),), dtype="uint8")

        def convolve() -> None:
            # The arrays, not their addresses, are kept: CuPy reuses memory that nothing refers to.
            arrays = (images, filters, space, out)
            work.forward(handle, *(ADDRESS(array.data.ptr) for array in arrays))

        return convolve

    def measure_way(self, what: str, dtype: str, way: Callable[[], object], out: Array) -> Run:
        """Convolve several times into `out`."""
        cupy = self.cupy

        def once() -> Array:
            way()
            cupy.cuda.get_current_stream().synchronize()
            return out

        def values(result: Array) -> Array:
            flat = cupy.asnumpy(result).astype("float64").ravel().tolist()
            result.fill(float("nan"))  # so that values which are not computed again are seen
            return flat

        out.fill(float("nan"))
        return self.measure(f"{what} {dtype}", dtype, once, values)

    def run_cpu(self, answer: FrameworkAnswer) -> None:
        """CuPy has no CPU."""

    def versions(self) -> FrameworkAnswer:
        return {**self.about_cudnn, **super().versions()}


if __name__ == "__main__":
    main(Cupy)
