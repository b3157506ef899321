"""Imports JAX and convolves: on the CPU, and with XLA on every GPU. See the contract in __init__.py.

Options: {"import_name": "jax", "device": bool}. Runs on Python 3.9 and later; standard library, JAX and its numpy only.

JAX goes on with the CPU where its CUDA plug-in fails, and tells why in its log: the backend is therefore asked for by
name, and the log is part of the failure. XLA refuses a cuDNN of another major version or of a lower minor one than it
was built against, when it first convolves (xla/stream_executor/cuda/cuda_dnn.cc). The plug-in tells both versions
without a GPU, so they are compared here as well; JAX's own comparison in jax_plugins/xla_cuda13/__init__.py sets
91002 against 91200 // 100 and so passes everything (0.11.2). GPU memory is not taken in advance, and no compiled
program is kept.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import logging
import os
import time
import types
from typing import Any

# What XLA writes to stderr about a cuDNN or a driver that it cannot use.
NOISE = r"C[Uu]DNN|cuDNN|cudnn handle|Could not load|CUDA_ERROR|failed call to cuInit|DNN library|[Oo]ut of memory"
PLUGINS = ("jax_cuda13_plugin", "jax_cuda12_plugin", "jaxlib.cuda")


def load_child() -> Any:
    """_child.py beside this script, without its folder on sys.path, where torch.py would stand for the real one."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_child.py")
    loader = importlib.machinery.SourceFileLoader("gpuenv_child", path)
    module = types.ModuleType(loader.name)
    loader.exec_module(module)
    return module


child = load_child()


class Heard(logging.Handler):
    """Keeps what JAX logs from warnings on, with the exceptions that it logs and goes on after."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        # Some of JAX's own messages lack their arguments: getMessage raises.
        text = child.failure(error) if error is not None else str(record.msg) % (record.args or ())
        self.texts.append(text)


def plugin_versions(name: str) -> dict[str, Any]:
    """The CUDA major of the plug-in, the cuDNN that it finds, and whether that is older than it wants.

    Asked last: JAX has then opened the libraries by their paths, and names lead to those.
    """
    child.step(f"ask {name} for its versions")
    versions = importlib.import_module(name + "._versions")
    answer: dict[str, Any] = {"cuda": str(int(versions.cuda_runtime_build_version()) // 1000)}
    try:
        found, built = int(versions.cudnn_get_version()), int(versions.cudnn_build_version())
    except Exception as error:
        return {**answer, "cudnn_failure": f"JAX finds no cuDNN: {child.failure(error)}"}
    # cuDNN 9's numbers: the major and the minor version without the patch.
    if found // 100 < built // 100 or found // 10000 != built // 10000:
        answer["cudnn_failure"] = (
            f"cuDNN {child.release(found)} is loaded, and JAX was built against {child.release(built)}"
        )
    return {**answer, "cudnn": found}


def find(name: str) -> bool:
    """Whether a module of that name is installed."""
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def convolve(jax: Any, work: Any, device: Any, where: str, dtype: str) -> dict[str, Any]:
    """One RUN of the contract."""
    numpy = importlib.import_module("numpy")
    kind = getattr(jax.numpy, dtype)
    images, filters = [jax.device_put(one, device).astype(kind) for one in work.arrays(numpy)]
    conv = jax.jit(
        lambda one, other: jax.lax.conv_general_dilated(
            one, other, (1, 1), [(1, 1), (1, 1)], precision=jax.lax.Precision.HIGHEST
        )
    )

    def values(out: Any) -> list[float]:
        if out.devices() != {device}:
            raise RuntimeError(f"the result is on {out.devices()}, not on {device}")
        found: list[float] = numpy.asarray(out).astype("float64").ravel().tolist()
        return found

    run: dict[str, Any] = work.run(
        f"conv_general_dilated {dtype} on {where}", dtype, lambda: conv(images, filters).block_until_ready(), values
    )
    return run


def try_device(jax: Any, work: Any, device: Any, index: int) -> dict[str, Any]:
    """One member of "devices"; a failure on one device leaves the others to be tried."""
    answer: dict[str, Any] = {"index": index}
    try:
        child.step(f"device {index}")
        answer["name"] = str(device.device_kind)
        capability = str(getattr(device, "compute_capability", ""))
        answer["capability"] = [int(part) for part in capability.split(".") if part.isdigit()]
        dtypes = ["float32", "float16"] + (["bfloat16"] if answer["capability"] >= [8, 0] else [])
        answer["runs"] = [convolve(jax, work, device, f"cuda:{index}", dtype) for dtype in dtypes]
    except Exception as error:
        answer["failure"] = child.failure(error, NOISE)
    return answer


def try_devices(jax: Any, work: Any, heard: Heard) -> dict[str, Any]:
    """{"devices"} or {"device_failure"}."""
    child.step("jax.devices('cuda')")
    try:
        devices = jax.devices("cuda")
    except Exception as error:
        return {"device_failure": " | ".join(dict.fromkeys([*heard.texts[-3:], child.failure(error, NOISE)]))}
    return {"devices": [try_device(jax, work, device, index) for index, device in enumerate(devices)]}


def probe(options: dict[str, Any]) -> dict[str, Any]:
    """The answer that the contract describes, with import_s, file and *_failure texts."""
    chosen = os.environ.get("JAX_PLATFORMS") or os.environ.get("JAX_PLATFORM_NAME") or ""
    os.environ.update(
        XLA_PYTHON_CLIENT_PREALLOCATE="false", JAX_ENABLE_COMPILATION_CACHE="false", TF_CPP_MIN_LOG_LEVEL="1"
    )
    if not options.get("device"):
        os.environ["JAX_PLATFORMS"] = "cpu"
    child.step("import " + options.get("import_name", "jax"))
    begin = time.perf_counter()
    jax = importlib.import_module(options.get("import_name", "jax"))
    answer: dict[str, Any] = {"import_s": time.perf_counter() - begin, "version": str(jax.__version__)}
    plugin = next((one for one in PLUGINS if find(one + "._versions")), None)
    answer.update(file=getattr(jax, "__file__", None), cuda=None, devices=[])
    work, heard = child.Convolution(), Heard()
    logging.getLogger("jax").addHandler(heard)
    logging.getLogger("jax_plugins").addHandler(heard)
    if plugin is not None and options.get("device"):
        if chosen and not set(chosen.split(",")) & {"cuda", "gpu"}:
            answer["aside"] = f"JAX_PLATFORMS={chosen} keeps JAX from the GPUs"
        else:
            answer.update(try_devices(jax, work, heard))
    if not chosen or "cpu" in chosen.split(",") or not options.get("device"):
        try:
            answer["cpu"] = convolve(jax, work, jax.devices("cpu")[0], "cpu", "float32")
        except RuntimeError as error:
            # Where a plug-in fails, JAX may refuse every backend. Then that failure is the answer.
            if "device_failure" not in answer:
                raise
            child.step(f"no CPU either: {child.failure(error)}")
    if plugin is not None:
        answer.update(plugin_versions(plugin))
    answer["mapped"] = child.mapped()
    return answer


if __name__ == "__main__":
    child.main(probe)
