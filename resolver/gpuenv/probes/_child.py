"""What the frameworks' probes share: steps, the convolution and its exact result, evidence, the one answer.

Loaded by its path (see the head of torch.py): the scripts run isolated, and their folder, which holds a torch.py, must
never be on sys.path. Runs on Python 3.9 and later; standard library only.

The convolution: 2x16x16x16 with 16 filters of 3x3, padding 1, stride 1, no bias. Every input is a multiple of 1/64 of
at most 7 bits, so float32, TF32, float16 and bfloat16 hold it exactly and one reference serves them all: the sums are
done here in integers, without any framework. A result is compared as ||out - ref|| / ||ref||; NaN never passes.
Tolerances: 1e-5 in float32 (direct sums are exact; Winograd's and FFT's leave about 1e-6), 2e-3 in float16 and 1.6e-2
in bfloat16 (rounding the result alone leaves 2e-4 and 1.6e-3).
"""

from __future__ import annotations

import ctypes
import json
import math
import operator
import os
import re
import stat
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

IMAGES, CHANNELS, SIDE, FILTERS, WINDOW = 2, 16, 16, 16, 3
INPUT, WEIGHT = (IMAGES, CHANNELS, SIDE, SIDE), (FILTERS, CHANNELS, WINDOW, WINDOW)
RESULT = (IMAGES, FILTERS, SIDE, SIDE)
UNIT = 64
TOLERANCE = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
REPEATS = 10
SHOWN = 3  # lines of stderr that an answer quotes
# libcurl, libcups and the like are nobody's CUDA.
LIBRARY = re.compile(
    r"(lib(cud|cublas|cufft|cufile|cupti|curand|cusolver|cusparse|cutensor|nv|nccl|torch|c10|tensorflow|onnxruntime|jax)"
    r"|xla_|_pywrap_tensorflow|onnxruntime_).*\.so"
)


def step(text: str) -> None:
    """Says on stderr what comes next, so that a crash can be told together with where it happened."""
    sys.stderr.write("gpuenv-step: " + text + "\n")
    sys.stderr.flush()


def integers(count: int, seed: int) -> list[int]:
    """Odd and even integers from -127 to 127, the same on every Python: a linear congruential generator (C's rand)."""
    found = []
    for _ in range(count):
        seed = (seed * 1103515245 + 12345) & 0x7FFFFFFF
        found.append((seed >> 16) % 255 - 127)
    return found


def inputs() -> tuple[list[float], list[float]]:
    """The images (NCHW) and the filters (KCRS), flat."""
    images, filters = integers(math.prod(INPUT), 1), integers(math.prod(WEIGHT), 2)
    return [value / UNIT for value in images], [value / UNIT for value in filters]


def reference() -> list[float]:
    """The exact result, flat in NKHW."""
    images, filters = integers(math.prod(INPUT), 1), integers(math.prod(WEIGHT), 2)
    size, wide = CHANNELS * WINDOW * WINDOW, SIDE + 2
    rows = [filters[start : start + size] for start in range(0, len(filters), size)]
    found = []
    for image in range(IMAGES):
        planes = []
        for channel in range(CHANNELS):
            plane = [0] * (wide * wide)
            for line in range(SIDE):
                start = ((image * CHANNELS + channel) * SIDE + line) * SIDE
                plane[(line + 1) * wide + 1 : (line + 1) * wide + 1 + SIDE] = images[start : start + SIDE]
            planes.append(plane)
        offsets = [line * wide for line in range(WINDOW)]
        corners = [line * wide + column for line in range(SIDE) for column in range(SIDE)]
        patches = [
            [value for plane in planes for at in offsets for value in plane[at + corner : at + corner + WINDOW]]
            for corner in corners
        ]
        found += [sum(map(operator.mul, patch, row)) for row in rows for patch in patches]
    return [value / (UNIT * UNIT) for value in found]


class Convolution:
    """The inputs as lists of floats, flat, and the comparison with the exact result."""

    def __init__(self) -> None:
        self.images, self.filters = inputs()
        self._reference = reference()
        self._norm = math.sqrt(sum(value * value for value in self._reference))

    def arrays(self, numpy: Any) -> tuple[Any, Any]:
        """The inputs as float32 arrays of INPUT and WEIGHT."""
        images = numpy.array(self.images, dtype="float32").reshape(INPUT)
        return images, numpy.array(self.filters, dtype="float32").reshape(WEIGHT)

    def error(self, values: Sequence[float]) -> float:
        """||values - reference|| / ||reference||."""
        if len(values) != len(self._reference):
            raise ValueError(f"the result has {len(values)} values, not {len(self._reference)}")
        differences = map(operator.sub, values, self._reference)
        return math.sqrt(sum(one * one for one in differences)) / self._norm

    def run(
        self, what: str, dtype: str, once: Callable[[], Any], values: Callable[[Any], Sequence[float]]
    ) -> dict[str, Any]:
        """One RUN of the contract. `once` convolves and waits for the end; `values` gives its result, flat in NKHW.

        The first result and the last are compared: a library may choose another way after the first call.
        """

        def timed() -> tuple[Any, float]:
            begin = time.perf_counter()
            out = once()
            return out, time.perf_counter() - begin

        step(what)
        out, first = timed()
        errors = [self.error(values(out))]
        steady = []
        for _ in range(REPEATS):
            out, seconds = timed()
            steady.append(seconds)
        errors.append(self.error(values(out)))
        tolerance = TOLERANCE[dtype]
        error = next((one for one in errors if not one <= tolerance), max(errors))
        return {"what": what, "error": error, "tolerance": tolerance, "first_s": first, "steady_s": min(steady)}


def mapped() -> list[str]:
    """The CUDA and framework libraries that /proc/self/maps names, in the order of the table."""
    paths: dict[str, None] = {}
    with open("/proc/self/maps") as table:
        for line in table:
            path = line[line.find("/") :].rstrip("\n") if "/" in line else ""
            if LIBRARY.match(os.path.basename(path)):
                paths[path] = None
    return list(paths)


def mapped_cudnn() -> int | None:
    """What the cuDNN that this process has loaded says of its version (91900); None if there is none."""
    for path in mapped():
        if os.path.basename(path).startswith("libcudnn.so"):
            library = ctypes.CDLL(path)
            library.cudnnGetVersion.restype = ctypes.c_size_t
            return int(library.cudnnGetVersion())
    return None


def release(number: int) -> str:
    """9.20.0 of 92000, and 8.9.7 of 8907: cudnn_version.h."""
    if number >= 90000:
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    return f"{number // 1000}.{number // 100 % 10}.{number % 100}"


def said(pattern: str) -> str:
    """The last lines on stderr so far that match, joined; "" where stderr cannot be read back.

    Libraries in C++ tell there why they go on without a GPU, and nowhere else.
    """
    try:
        if not stat.S_ISREG(os.fstat(2).st_mode):
            return ""
        # A description of its own: reading must not move the place where the next line is written.
        with open("/proc/self/fd/2", "rb") as stream:
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    lines: dict[str, None] = {}
    for line in text.splitlines():
        if not line.startswith("gpuenv-step: ") and re.search(pattern, line):
            lines[bare(line)] = None
    return " | ".join(list(lines)[-SHOWN:])


def bare(line: str) -> str:
    """A log line without its colours, time, thread and place in the source, and not longer than 300."""
    line = re.sub(r"\x1b\[[0-9;]*m", "", line).strip()
    line = re.sub(r"^(\d{4}-\d\d-\d\d |[IWEF]\d{4} )\d\d:\d\d:\d\d\.\d+:? *(\d+ )?", "", line)
    line = re.sub(r"^[^\]]*\.(cc|cpp|h):\d+[^\]]*\] ", "", line)
    line = re.sub(r"^.*\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ", "", line)
    return line[:300]


def failure(error: BaseException, pattern: str = "") -> str:
    """An exception's type and the beginning of its text, with the lines on stderr that match the pattern."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
    text = f"{type(error).__name__}: {' '.join(lines[:6])[:500]}".rstrip(": ")
    heard = said(pattern) if pattern else ""
    return f"{text} | {heard}" if heard and heard not in text else text


def find_libcudnn() -> str | None:
    """The libcudnn.so.N of a distribution on sys.path: the one that code in this environment is meant to use."""
    for entry in sys.path:
        folder = os.path.join(entry, "nvidia", "cudnn", "lib")
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        for name in names:
            if re.fullmatch(r"libcudnn\.so\.[0-9]+", name):
                return os.path.join(folder, name)
    return None


def main(probe: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Runs a probe with the options of the command line and prints its answer, or why there is none."""
    warnings.simplefilter("ignore")
    try:
        options = json.loads(sys.argv[1])
        if not options.get("device"):
            os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before the framework is imported: no GPU is touched
        answer = probe(options)
    except Exception as error:
        answer = {"failure": failure(error)}
    step("done")
    sys.stdout.write("\ngpuenv-probe: " + json.dumps(answer) + "\n")
    sys.stdout.flush()
    # Not an ordinary exit: what destructors do at the end is not what is examined here, and it costs time.
    os._exit(0)
