"""Import JAX and convolve: on the CPU, and with XLA on every GPU. Contract: __init__.py.

Options: {"import_name": "jax", "device": bool}. Runs on Python 3.9 and later; standard library, JAX
and its numpy only.

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
import time
from types import ModuleType

from ._common import step
from ._framework import (
    Array,
    Convolution,
    Device,
    Options,
    failure,
    float_types,
    main,
    mapped,
    release,
)
from .answers import FrameworkAnswer, FrameworkDevice, Run

# What XLA writes to stderr about a cuDNN or a driver that it cannot use.
GPU_PROBLEMS = (
    r"C[Uu]DNN|cuDNN|cudnn handle|Could not load|CUDA_ERROR|failed call to cuInit|DNN library|"
    r"[Oo]ut of memory"
)
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


def plugin_versions(name: str) -> FrameworkAnswer:
    """Return the CUDA major of the plug-in, and the cuDNN that it finds or why it is unusable.

    Called last: JAX has then opened the libraries by path, and their names lead to those.
    """
    step(f"ask {name} for its versions")
    versions = importlib.import_module(name + "._versions")
    answer: FrameworkAnswer = {"cuda": str(int(versions.cuda_runtime_build_version()) // 1000)}
    try:
        loaded, built = int(versions.cudnn_get_version()), int(versions.cudnn_build_version())
    except Exception as error:
        answer["cudnn_failure"] = f"JAX finds no cuDNN: {failure(error)}"
        return answer
    # cuDNN 9's numbers: // 10000 is the major version, // 100 the major and the minor version.
    if loaded // 100 < built // 100 or loaded // 10000 != built // 10000:
        answer["cudnn_failure"] = (
            f"cuDNN {release(loaded)} is loaded, and JAX was built against {release(built)}"
        )
    answer["cudnn"] = loaded
    return answer


def is_installed(name: str) -> bool:
    """Return whether a module of that name is installed."""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def installed_plugin() -> str | None:
    """Return the installed CUDA plug-in; None for a CPU build."""
    for name in PLUGINS:
        if is_installed(name + "._versions"):
            return name
    return None


def convolve(jax: ModuleType, work: Convolution, device: Device, where: str, dtype: str) -> Run:
    """Convolve in one type; `where` names the device in texts."""
    numpy = importlib.import_module("numpy")
    jax_type = getattr(jax.numpy, dtype)
    images, filters = [
        jax.device_put(array, device).astype(jax_type) for array in work.arrays(numpy)
    ]

    def convolution(images: Array, filters: Array) -> Array:
        return jax.lax.conv_general_dilated(
            images, filters, (1, 1), [(1, 1), (1, 1)], precision=jax.lax.Precision.HIGHEST
        )

    compiled = jax.jit(convolution)

    def once() -> Array:
        return compiled(images, filters).block_until_ready()

    def values(result: Array) -> list[float]:
        if result.devices() != {device}:
            raise RuntimeError(f"the result is on {result.devices()}, not on {device}")
        flat: list[float] = numpy.asarray(result).astype("float64").ravel().tolist()
        return flat

    return work.run(f"conv_general_dilated {dtype} on {where}", dtype, once, values)


def try_device(jax: ModuleType, work: Convolution, device: Device, index: int) -> FrameworkDevice:
    """Convolve on one device. A failure is an answer, so that the other devices are tried."""
    answer: FrameworkDevice = {"index": index}
    try:
        step(f"device {index}")
        answer["name"] = str(device.device_kind)
        text = str(getattr(device, "compute_capability", ""))
        capability = [int(part) for part in text.split(".") if part.isdigit()]
        answer["capability"] = capability
        answer["runs"] = [
            convolve(jax, work, device, f"cuda:{index}", dtype) for dtype in float_types(capability)
        ]
    except Exception as error:
        answer["failure"] = failure(error, GPU_PROBLEMS)
    return answer


def try_devices(jax: ModuleType, work: Convolution, log: LogTexts) -> FrameworkAnswer:
    """Return "devices" or "device_failure"."""
    step("jax.devices('cuda')")
    try:
        devices = jax.devices("cuda")
    except Exception as error:
        texts = dict.fromkeys([*log.texts[-3:], failure(error, GPU_PROBLEMS)])
        return {"device_failure": " | ".join(texts)}
    return {
        "devices": [try_device(jax, work, device, index) for index, device in enumerate(devices)]
    }


def chosen_platforms() -> list[str]:
    """Return the platforms that the user allows JAX to use; [] allows all."""
    text = os.environ.get("JAX_PLATFORMS") or os.environ.get("JAX_PLATFORM_NAME") or ""
    return text.split(",") if text else []


def listen(*loggers: str) -> LogTexts:
    """Return a handler that keeps what these loggers say."""
    log = LogTexts()
    for name in loggers:
        logging.getLogger(name).addHandler(log)
    return log


def run_all(
    jax: ModuleType, options: Options, chosen: list[str], plugin: str | None
) -> FrameworkAnswer:
    """Convolve on the GPUs, then on the CPU, if build, options and user allow it."""
    answer: FrameworkAnswer = {}
    work, log = Convolution(), listen("jax", "jax_plugins")
    if plugin is not None and options.get("device"):
        if chosen and not {"cuda", "gpu"} & set(chosen):
            answer["aside"] = f"JAX_PLATFORMS={','.join(chosen)} keeps JAX from using the GPUs"
        else:
            answer.update(try_devices(jax, work, log))
    if not chosen or "cpu" in chosen or not options.get("device"):
        try:
            answer["cpu"] = convolve(jax, work, jax.devices("cpu")[0], "cpu", "float32")
        except RuntimeError as error:
            # If a plug-in fails, JAX may refuse every backend. Then that failure is the answer.
            if "device_failure" not in answer:
                raise
            step(f"the CPU failed, too: {failure(error)}")
    return answer


def probe(options: Options) -> FrameworkAnswer:
    """Return the answer of the contract."""
    chosen = chosen_platforms()
    os.environ.update(
        XLA_PYTHON_CLIENT_PREALLOCATE="false",
        JAX_ENABLE_COMPILATION_CACHE="false",
        TF_CPP_MIN_LOG_LEVEL="1",
    )
    if not options.get("device"):
        os.environ["JAX_PLATFORMS"] = "cpu"
    name = options.get("import_name", "jax")
    step("import " + name)
    begin = time.perf_counter()
    jax = importlib.import_module(name)
    answer: FrameworkAnswer = {
        "import_s": time.perf_counter() - begin,
        "version": str(jax.__version__),
        "file": getattr(jax, "__file__", None),
        "cuda": None,
        "devices": [],
    }
    plugin = installed_plugin()
    answer.update(run_all(jax, options, chosen, plugin))
    if plugin is not None:
        answer.update(plugin_versions(plugin))
    answer["mapped"] = mapped()
    return answer


if __name__ == "__main__":
    main(probe)
