"""Shared by the framework probes: what each of them does, in which order.

A probe module has a subclass of Framework that says how its framework does it, and calls
main(SUBCLASS). Every framework computes the convolution of _reference.py, several times in each
type on each device. The error of a result is ||out - ref|| / ||reference||; NaN never passes.
Tolerances: 1e-5 in float32 (direct sums are exact; Winograd and FFT algorithms leave about 1e-6),
2e-3 in float16 and 1.6e-2 in bfloat16 (rounding of the result alone leaves 2e-4 and 1.6e-3).

Runs on Python 3.8 and later; standard library only.
"""

from __future__ import annotations

import ctypes
import importlib
import math
import operator
import os
import re
import stat
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from types import ModuleType
from typing import Any, TypedDict, TypeVar

from ._bindings import call_number
from ._common import mapped_libraries, run, step
from ._reference import INPUT, WEIGHT, inputs, reference
from .answers import FrameworkAnswer, FrameworkDevice, Run

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


# Of log lines: colors, the time, the place in the source, the class of an ONNX Runtime error.
LOG_PREFIXES = (
    r"\x1b\[[0-9;]*m",
    r"^(\d{4}-\d\d-\d\d |[IWEF]\d{4} )\d\d:\d\d:\d\d\.\d+:? *(\d+ )?",
    r"^[^\]]*\.(cc|cpp|h):\d+[^\]]*\] ",
    r"^.*\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : ",
)


ROCM: FrameworkAnswer = {"cuda": None, "aside": "a ROCm build: it is for AMD GPUs"}


class UnusableError(Exception):
    """No device can be used; the text says why, as it is."""


class Options(TypedDict):
    """The options of a framework probe. `devices` is the number of GPUs that the host shows."""

    import_name: str
    device: bool
    devices: int


class Framework:
    """How one framework does what the probes ask for. This class only imports it (module.py).

    An exception of `devices` means that no device can be used; one of `describe` or `convolve`
    fails that device, and the others are tried.
    """

    log = ""  # a pattern of the lines on stderr that say why the framework cannot use a GPU

    def __init__(self, options: Options) -> None:
        """Set the environment variables that the framework reads at its import."""
        self.options = options
        self.images, self.filters = inputs()

    @cached_property
    def reference(self) -> list[float]:
        """The exact result. A framework that cannot be imported does not need it."""
        return reference()

    def build(self, module: ModuleType) -> FrameworkAnswer:
        """Return "cuda", and "aside" if no GPU is to be tried; {} if nothing can be computed."""
        return {}

    def devices(self) -> Sequence[Device]:
        """Return the GPUs that the framework sees."""
        raise NotImplementedError

    def describe(self, device: Device) -> tuple[str, Sequence[int]]:
        """Return the name and the compute capability of a GPU; "" and () if they are not known."""
        raise NotImplementedError

    def convolve(self, device: Device, dtype: str) -> list[Run]:
        """Convolve in one type on one device, by `measure`."""
        raise NotImplementedError

    def run_cpu(self, answer: FrameworkAnswer) -> None:
        """Add "cpu", the convolution on the CPU, after the GPUs were tried."""
        (answer["cpu"],) = self.convolve("cpu", "float32")

    def versions(self) -> FrameworkAnswer:
        """Return "cudnn", the number of cudnnGetVersion, or why cuDNN cannot be used."""
        for path in mapped_libraries(LIBRARY):
            if os.path.basename(path).startswith("libcudnn.so"):
                return {"cudnn": call_number(ctypes.CDLL(path), "cudnnGetVersion")}
        return {"cudnn": None}

    # ---- for the subclasses ---------------------------------------------------------------------

    def arrays(self) -> tuple[Array, Array]:
        """Return the inputs as NumPy's float32 arrays of the shapes INPUT and WEIGHT."""
        numpy = importlib.import_module("numpy")
        images = numpy.array(self.images, dtype="float32").reshape(INPUT)
        return images, numpy.array(self.filters, dtype="float32").reshape(WEIGHT)

    def error(self, values: Sequence[float]) -> float:
        """Return ||values - reference|| / ||reference||.

        ValueError if the number of values differs.
        """
        if len(values) != len(self.reference):
            raise ValueError(f"the result has {len(values)} values, not {len(self.reference)}")
        differences = map(operator.sub, values, self.reference)
        norm = math.sqrt(sum(value * value for value in self.reference))
        return math.sqrt(sum(difference * difference for difference in differences)) / norm

    def measure(
        self,
        what: str,
        dtype: str,
        once: Callable[[], Result],
        values: Callable[[Result], Sequence[float]],
    ) -> Run:
        """Convolve several times.

        The first result and the last are compared: a library may choose another algorithm after the
        first call. The error is the first that does not pass, NaN included; else the larger one.

        Args:
            once: convolves and waits for the end.
            values: returns the result of `once`, flat in NKHW.
        """
        step(what)
        tolerance = TOLERANCE[dtype]
        errors: list[float] = []
        seconds: list[float] = []
        for number in range(REPEATS + 1):
            begin = time.perf_counter()
            result = once()
            seconds.append(time.perf_counter() - begin)
            if number in (0, REPEATS):
                errors.append(self.error(values(result)))
        failing = [error for error in errors if not error <= tolerance]
        return {
            "what": what,
            "error": failing[0] if failing else max(errors),
            "tolerance": tolerance,
            "first_s": seconds[0],
            "steady_s": min(seconds[1:]),
        }


def main(framework: type[Framework]) -> None:
    """Run a framework probe with the options of the command line and write its answer."""

    def probe(options: Options) -> FrameworkAnswer:
        ours = framework(options)
        name = options["import_name"]
        step("import " + name)
        module = importlib.import_module(name)
        answer: FrameworkAnswer = {"version": str(getattr(module, "__version__", ""))}
        answer.update(ours.build(module))
        if "cuda" in answer:
            answer["devices"] = []
            if options["device"] and answer["cuda"] is not None and "aside" not in answer:
                answer.update(_try_devices(ours))
            ours.run_cpu(answer)
            answer.update(ours.versions())
        answer["mapped"] = mapped_libraries(LIBRARY)
        return answer

    run(probe, failure)


def _try_devices(framework: Framework) -> FrameworkAnswer:
    """Return "devices" or "device_failure"."""
    step("list the devices")
    try:
        devices = framework.devices()
    except UnusableError as error:
        return {"device_failure": str(error)}
    except Exception as error:
        return {"device_failure": failure(error, framework.log)}
    answers: list[FrameworkDevice] = []
    for index, device in enumerate(devices):
        answer: FrameworkDevice = {"index": index}
        answers.append(answer)
        try:
            step(f"device {index}")
            answer["name"], capability = framework.describe(device)
            types = ["float32", "float16"]
            if tuple(capability) >= (8, 0):
                types.append("bfloat16")
            answer["runs"] = []
            for dtype in types:
                answer["runs"] += framework.convolve(device, dtype)
        except Exception as error:
            answer["failure"] = failure(error, framework.log)
    return {"devices": answers}


# ---- error texts --------------------------------------------------------------------------------


def logged(pattern: str, start: int = 0) -> str:
    """Return the last lines on stderr after a place that match, joined; "" if it cannot be read.

    C++ libraries write only there why they continue without a GPU.
    """
    try:
        if not stat.S_ISREG(os.fstat(2).st_mode):
            return ""
        # A file description of its own: reading must not move the place where the next line is
        # written.
        with open("/proc/self/fd/2", "rb") as stream:
            stream.seek(start)
            text = stream.read().decode(errors="replace")
    except OSError:
        return ""
    lines: dict[str, None] = {}
    for line in text.splitlines():
        if not line.startswith("gpuenv-step: ") and re.search(pattern, line):
            shown = line
            for prefix in LOG_PREFIXES:
                shown = re.sub(prefix, "", shown.strip())
            lines[shown[:300]] = None
    return " | ".join(list(lines)[-SHOWN:])


def failure(error: BaseException, pattern: str = "") -> str:
    """Return the type and first lines of an exception, and matching lines of stderr."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip(" -")]
    text = f"{type(error).__name__}: {' '.join(lines[:6])[:500]}".rstrip(": ")
    log = logged(pattern) if pattern else ""
    if not log or log in text:
        return text
    return f"{text} | {log}"
