"""Shared by the framework probes.

The convolution of _reference.py, error texts and the libraries that are loaded.

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
from ._reference import INPUT, WEIGHT, inputs, reference
from .answers import FrameworkAnswer, Run

Array = Any  # an array of a framework: none of them is installed where the types are checked
Device = Any  # a device of a framework
Result = TypeVar("Result")

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
