"""Shared by the framework probes.

The convolution, its exact result, error texts and the libraries that are loaded.

The convolution: 2x16x16x16 with 16 filters of 3x3, padding 1, stride 1, no bias. Every input is a
multiple of 1/64 with at most 7 bits, so float32, TF32, float16 and bfloat16 hold it exactly, and
one reference serves them all. The reference is computed here with integers, without a framework.
The error of a result is ||out - ref|| / ||ref||; NaN never passes. Tolerances: 1e-5 in float32
(direct sums are exact; Winograd and FFT algorithms leave about 1e-6), 2e-3 in float16 and 1.6e-2 in
bfloat16 (rounding of the result alone leaves 2e-4 and 1.6e-3).

Runs on Python 3.9 and later; standard library only.
"""

from __future__ import annotations

import ctypes
import math
import operator
import os
import re
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, TypedDict, TypeVar

from . import _common
from ._common import MAIN_CUDNN, cudnn_release, step
from .answers import FrameworkAnswer, Run

Array = Any  # an array of a framework: none of them is installed where the types are checked
Device = Any  # a device of a framework
Result = TypeVar("Result")

IMAGES, CHANNELS, SIDE, FILTERS, WINDOW = 2, 16, 16, 16, 3
INPUT, WEIGHT = (IMAGES, CHANNELS, SIDE, SIDE), (FILTERS, CHANNELS, WINDOW, WINDOW)
RESULT = (IMAGES, FILTERS, SIDE, SIDE)
PADDED = SIDE + 2
UNIT = 64
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
REPEATS = 10
SHOWN = 3  # lines of stderr that an answer quotes
# A plain "libcu" would match libcurl and libcups, too.
LIBRARY = re.compile(
    r"(lib(cud|cublas|cufft|cufile|cupti|curand|cusolver|cusparse|cutensor|nv|nccl|torch|c10"
    r"|tensorflow|onnxruntime|jax)|xla_|_pywrap_tensorflow|onnxruntime_).*\.so"
)


class Options(TypedDict, total=False):
    """The options of a framework probe. `devices` is the number of GPUs that the host shows."""

    import_name: str
    device: bool
    devices: int


# ---- the convolution ----------------------------------------------------------------------------


def integers(count: int, seed: int) -> list[int]:
    """Return integers from -127 to 127 of a linear congruential generator (C's rand).

    They are the same on every Python.
    """
    values = []
    for _ in range(count):
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        values.append((seed >> 16) % 255 - 127)
    return values


def integer_inputs() -> tuple[list[int], list[int]]:
    """Return the images and the filters in units of 1/64, flat."""
    return integers(math.prod(INPUT), 1), integers(math.prod(WEIGHT), 2)


def inputs() -> tuple[list[float], list[float]]:
    """Return the images (NCHW) and the filters (KCRS), flat."""
    images, filters = integer_inputs()
    return [value / UNIT for value in images], [value / UNIT for value in filters]


def padded_planes(images: list[int], image: int) -> list[list[int]]:
    """Return the channels of one image, each flat and with a border of zeros."""
    planes = []
    for channel in range(CHANNELS):
        plane = [0] * (PADDED * PADDED)
        for line in range(SIDE):
            source = ((image * CHANNELS + channel) * SIDE + line) * SIDE
            target = (line + 1) * PADDED + 1
            plane[target : target + SIDE] = images[source : source + SIDE]
        planes.append(plane)
    return planes


def patch(planes: list[list[int]], corner: int) -> list[int]:
    """Return the values under the filter.

    `corner` is the index of its upper left corner in each padded plane.
    """
    values: list[int] = []
    for plane in planes:
        for line in range(WINDOW):
            start = corner + line * PADDED
            values += plane[start : start + WINDOW]
    return values


def reference() -> list[float]:
    """Return the exact result, flat in NKHW."""
    images, filters = integer_inputs()
    size = CHANNELS * WINDOW * WINDOW
    rows = [filters[start : start + size] for start in range(0, len(filters), size)]
    sums: list[int] = []
    for image in range(IMAGES):
        planes = padded_planes(images, image)
        patches = []
        for line in range(SIDE):
            patches += [patch(planes, line * PADDED + column) for column in range(SIDE)]
        for row in rows:
            sums += [sum(map(operator.mul, values, row)) for values in patches]
    return [value / (UNIT * UNIT) for value in sums]


class Convolution:
    """The inputs as flat lists of floats, and the comparison with the exact result."""

    def __init__(self) -> None:
        self.images, self.filters = inputs()
        self._reference = reference()
        self._norm = math.sqrt(sum(value * value for value in self._reference))

    def arrays(self, numpy: ModuleType) -> tuple[Array, Array]:
        """Return the inputs as float32 arrays of the shapes INPUT and WEIGHT."""
        images = numpy.array(self.images, dtype="float32").reshape(INPUT)
        return images, numpy.array(self.filters, dtype="float32").reshape(WEIGHT)

    def error(self, values: Sequence[float]) -> float:
        """Return ||values - reference|| / ||reference||.

        ValueError if the number of values differs.
        """
        if len(values) != len(self._reference):
            raise ValueError(f"the result has {len(values)} values, not {len(self._reference)}")
        differences = map(operator.sub, values, self._reference)
        return math.sqrt(sum(difference * difference for difference in differences)) / self._norm

    def run(
        self,
        what: str,
        dtype: str,
        once: Callable[[], Result],
        values: Callable[[Result], Sequence[float]],
    ) -> Run:
        """Convolve several times.

        The first result and the last are compared: a library may choose another algorithm after the
        first call.

        Args:
            once: convolves and waits for the end.
            values: returns the result of `once`, flat in NKHW.
        """
        step(what)
        result, first = timed(once)
        errors = [self.error(values(result))]
        steady = []
        for _ in range(REPEATS):
            result, seconds = timed(once)
            steady.append(seconds)
        errors.append(self.error(values(result)))
        return {
            "what": what,
            "error": worst_error(errors, TOLERANCE[dtype]),
            "tolerance": TOLERANCE[dtype],
            "first_s": first,
            "steady_s": min(steady),
        }


def timed(call: Callable[[], Result]) -> tuple[Result, float]:
    """Return the result of a call and its seconds."""
    begin = time.perf_counter()
    result = call()
    return result, time.perf_counter() - begin


def worst_error(errors: Sequence[float], tolerance: float) -> float:
    """Return the first error that does not pass, NaN included; else the largest."""
    for error in errors:
        if not error <= tolerance:
            return error
    return max(errors)


def float_types(capability: Sequence[int]) -> list[str]:
    """Return the types that a device of a compute capability is tried in."""
    types = ["float32", "float16"]
    if list(capability) >= [8, 0]:
        types.append("bfloat16")
    return types


# ---- libraries ----------------------------------------------------------------------------------


def mapped() -> list[str]:
    """Return the CUDA and framework libraries that this process has mapped."""
    return _common.mapped_libraries(LIBRARY)


def mapped_cudnn() -> int | None:
    """Return the cudnnGetVersion number of the cuDNN that this process has loaded.

    None if there is none.
    """
    for path in mapped():
        if os.path.basename(path).startswith("libcudnn.so"):
            library = ctypes.CDLL(path)
            library.cudnnGetVersion.restype = ctypes.c_size_t
            return int(library.cudnnGetVersion())
    return None


def find_libcudnn() -> str | None:
    """Return the libcudnn.so.N of a distribution on sys.path; None if there is none."""
    for entry in sys.path:
        folder = os.path.join(entry, "nvidia", "cudnn", "lib")
        if not os.path.isdir(folder):
            continue
        for name in sorted(os.listdir(folder)):
            if MAIN_CUDNN.fullmatch(name):
                return os.path.join(folder, name)
    return None


def release(number: int) -> str:
    """Return 9.20.0 for 92000, and 8.9.7 for 8907."""
    return ".".join(map(str, cudnn_release(number)))


# ---- error texts --------------------------------------------------------------------------------


def stderr_text() -> str:
    """Return what was written to stderr so far.

    "" if stderr is not a regular file that can be read.
    """
    try:
        if not stat.S_ISREG(os.fstat(2).st_mode):
            return ""
        # A file description of its own: reading must not move the place where the next line is
        # written.
        with open("/proc/self/fd/2", "rb") as stream:
            return stream.read().decode(errors="replace")
    except OSError:
        return ""


def matching_lines(pattern: str) -> Iterator[str]:
    """Return the lines on stderr that match, steps excluded."""
    for line in stderr_text().splitlines():
        if not line.startswith("gpuenv-step: ") and re.search(pattern, line):
            yield line


def logged(pattern: str) -> str:
    """Return the last lines on stderr that match, joined.

    C++ libraries write only there why they continue without a GPU.
    """
    lines = dict.fromkeys(without_log_prefix(line) for line in matching_lines(pattern))
    return " | ".join(list(lines)[-SHOWN:])


def without_log_prefix(line: str) -> str:
    """Return at most 300 characters of a log line, without colors, time and source position."""
    line = re.sub(r"\x1b\[[0-9;]*m", "", line).strip()
    line = re.sub(r"^(\d{4}-\d\d-\d\d |[IWEF]\d{4} )\d\d:\d\d:\d\d\.\d+:? *(\d+ )?", "", line)
    line = re.sub(r"^[^\]]*\.(cc|cpp|h):\d+[^\]]*\] ", "", line)
    line = re.sub(r"^.*\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ", "", line)
    return line[:300]


def failure(error: BaseException, pattern: str = "") -> str:
    """Return the type and first lines of an exception, and matching lines of stderr."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
    text = f"{type(error).__name__}: {' '.join(lines[:6])[:500]}".rstrip(": ")
    if not pattern:
        return text
    log = logged(pattern)
    if not log or log in text:
        return text
    return f"{text} | {log}"


def main(probe: Callable[[Options], FrameworkAnswer]) -> None:
    """Run a framework probe with the options of the command line and write its answer."""
    warnings.simplefilter("ignore")

    def hide_devices_and_probe(options: Options) -> FrameworkAnswer:
        if not options.get("device"):
            os.environ["CUDA_VISIBLE_DEVICES"] = (
                ""  # before the framework is imported: no GPU is touched
            )
        return probe(options)

    _common.run(hide_devices_and_probe, failure)
