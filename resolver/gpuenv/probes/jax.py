"""Import JAX and convolve: on the CPU, and with XLA on every GPU. Contract: __init__.py.

Runs on Python 3.8 and later; standard library, JAX and its numpy only.

JAX continues with the CPU if its CUDA plug-in fails, and logs the reason. Therefore the backend is
requested by name, and the log is part of the failure. XLA refuses a cuDNN of another major version
or of a lower minor version than it was built against, at the first convolution
(xla/stream_executor/cuda/cuda_dnn.cc). The plug-in reports both versions without a GPU, so they are
compared here as well; JAX's own comparison in jax_plugins/xla_cuda13/__init__.py compares 91002
with 91200 // 100 and so passes everything (0.11.2). GPU memory is not allocated in advance, and no
compiled program is kept.
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
from collections.abc import Sequence
from types import ModuleType

from ._common import cudnn_text, step
from ._framework import Array, Device, Framework, Options, UnusableError, failure, main
from .answers import FrameworkAnswer, Run

PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin", "jaxlib.cuda")


class LogTexts(logging.Handler):
    """Keeps what JAX logs at level WARNING and above, and the exceptions that it ignores."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            self.texts.append(failure(error))
        else:
            # Not getMessage: some of JAX's messages lack their arguments, and it raises for them.
            self.texts.append(str(record.msg) % (record.args or ()))


class Jax(Framework):
    """JAX. A device is JAX's own, with its name in texts: "cuda:N" or "cpu".

    `chosen` are the platforms that the user allows; [] allows all. `plugin` is the installed CUDA
    plug-in; "" is a CPU build.
    """

    # What XLA writes to stderr about a cuDNN or a driver that it cannot use.
    log = (
        r"C[Uu]DNN|cuDNN|cudnn handle|Could not load|CUDA_ERROR|failed call to cuInit|DNN library|"
        r"[Oo]ut of memory"
    )

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        text = os.environ.get("JAX_PLATFORMS") or os.environ.get("JAX_PLATFORM_NAME") or ""
        self.chosen = text.split(",") if text else []
        os.environ.update(
            XLA_PYTHON_CLIENT_PREALLOCATE="false",
            JAX_ENABLE_COMPILATION_CACHE="false",
            TF_CPP_MIN_LOG_LEVEL="1",
        )
        if not options["device"]:
            os.environ["JAX_PLATFORMS"] = "cpu"
        self.plugin = next(filter(is_plugin, PLUGINS), "")
        self.messages = LogTexts()
        for name in ("jax", "jax_plugins"):
            logging.getLogger(name).addHandler(self.messages)

    def build(self, module: ModuleType) -> FrameworkAnswer:
        self.jax = module
        if not self.plugin:
            return {"cuda": None}
        answer: FrameworkAnswer = {"cuda": "?"}  # versions() knows it
        if self.options["device"] and self.chosen and not {"cuda", "gpu"} & set(self.chosen):
            platforms = ",".join(self.chosen)
            answer["aside"] = f"JAX_PLATFORMS={platforms} keeps JAX from using the GPUs"
        return answer

    def devices(self) -> Sequence[tuple[Device, str]]:
        step("jax.devices('cuda')")
        try:
            devices = self.jax.devices("cuda")
        except Exception as error:
            texts = dict.fromkeys([*self.messages.texts[-3:], failure(error, self.log)])
            raise UnusableError(" | ".join(texts)) from None
        return [(device, f"cuda:{index}") for index, device in enumerate(devices)]

    def describe(self, device: tuple[Device, str]) -> tuple[str, Sequence[int]]:
        text = str(getattr(device[0], "compute_capability", ""))
        capability = [int(part) for part in text.split(".") if part.isdigit()]
        return str(device[0].device_kind), capability

    def convolve(self, device: tuple[Device, str], dtype: str) -> list[Run]:
        jax, numpy = self.jax, importlib.import_module("numpy")
        place, name = device
        images, filters = [
            jax.device_put(array, place).astype(getattr(jax.numpy, dtype))
            for array in self.arrays()
        ]

        def convolution(images: Array, filters: Array) -> Array:
            return jax.lax.conv_general_dilated(
                images, filters, (1, 1), [(1, 1), (1, 1)], precision=jax.lax.Precision.HIGHEST
            )

        compiled = jax.jit(convolution)

        def once() -> Array:
            return compiled(images, filters).block_until_ready()

        def values(result: Array) -> Array:
            if result.devices() != {place}:
                raise RuntimeError(f"the result is on {result.devices()}, not on {place}")
            return numpy.asarray(result).astype("float64").ravel().tolist()

        return [self.measure(f"conv_general_dilated {dtype} on {name}", dtype, once, values)]

    def run_cpu(self, answer: FrameworkAnswer) -> None:
        if self.chosen and "cpu" not in self.chosen and self.options["device"]:
            return
        try:
            (answer["cpu"],) = self.convolve((self.jax.devices("cpu")[0], "cpu"), "float32")
        except RuntimeError as error:
            # If a plug-in fails, JAX may refuse every backend. Then that failure is the answer.
            if "device_failure" not in answer:
                raise
            step(f"the CPU failed, too: {failure(error)}")

    def versions(self) -> FrameworkAnswer:
        """Return the CUDA major of the plug-in, and the cuDNN that it finds or why it is unusable.

        Called last: JAX has then opened the libraries by path, and their names lead to those.
        """
        if not self.plugin:
            return {}
        step(f"ask {self.plugin} for its versions")
        versions = importlib.import_module(self.plugin + "._versions")
        answer: FrameworkAnswer = {"cuda": str(int(versions.cuda_runtime_build_version()) // 1000)}
        try:
            loaded, built = int(versions.cudnn_get_version()), int(versions.cudnn_build_version())
        except Exception as error:
            answer["cudnn_failure"] = f"JAX finds no cuDNN: {failure(error)}"
            return answer
        # cuDNN 9's numbers: // 10000 is the major version, // 100 the major and the minor version.
        if loaded // 100 < built // 100 or loaded // 10000 != built // 10000:
            built_text = f"JAX was built against {cudnn_text(built)}"
            answer["cudnn_failure"] = f"cuDNN {cudnn_text(loaded)} is loaded, and {built_text}"
        answer["cudnn"] = loaded
        return answer


def is_plugin(name: str) -> bool:
    """Return whether a CUDA plug-in of that name is installed."""
    try:
        return importlib.util.find_spec(name + "._versions") is not None
    except ImportError:
        return False


if __name__ == "__main__":
    main(Jax)
