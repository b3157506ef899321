"""Import TensorFlow and convolve: on the CPU, and with cuDNN on every GPU. Contract: __init__.py.

Options: {"import_name": "tensorflow", "device": bool}. Runs on Python 3.9 and later; standard
library, TensorFlow and its numpy only.

If a library is missing, TensorFlow shows no GPU and reports this in its log only ("Cannot dlopen
some GPU libraries"), without the name of the library. Therefore its loader is made to log the
names. Operations may not move to another device, TF32 is off, and GPU memory is allocated as it is
needed. The CPU convolution supports channels-last images only, so all images are channels-last.
"""

from __future__ import annotations

import importlib
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
    logged,
    main,
    mapped,
    mapped_cudnn,
)
from .answers import FrameworkAnswer, FrameworkDevice, Run

# Log lines that say why TensorFlow cannot use a GPU.
GPU_PROBLEMS = (
    r"Cannot dlopen|Could not load dynamic library|Could not find cuda drivers|"
    r"failed call to cuInit|CUDA_ERROR|CuDNN|cuDNN|CUDNN_STATUS|cudnn handle|DNN library|libdevice|"
    r"Skipping registering GPU|Ignoring visible gpu"
)


def convolve(tf: ModuleType, work: Convolution, where: str, dtype: str) -> Run:
    """Convolve in one type on "CPU:0" or "GPU:n"."""
    numpy = importlib.import_module("numpy")
    tf_type = getattr(tf, dtype)
    images, filters = work.arrays(numpy)
    with tf.device("/" + where):
        images = tf.cast(tf.constant(images.transpose(0, 2, 3, 1)), tf_type)
        filters = tf.cast(tf.constant(filters.transpose(2, 3, 1, 0)), tf_type)

    def once() -> tuple[Array, Array]:
        with tf.device("/" + where):
            # Copying the result to the host in the same step waits for the end.
            result = tf.nn.conv2d(images, filters, strides=1, padding="SAME")
        return result, result.numpy()

    def values(results: tuple[Array, Array]) -> list[float]:
        result, host_copy = results
        device = str(result.device)
        if not device.endswith(where):
            raise RuntimeError(f"the result is on {device}, not on {where}")
        flat: list[float] = host_copy.astype("float64").transpose(0, 3, 1, 2).ravel().tolist()
        return flat

    return work.run(f"conv2d {dtype} on {where}", dtype, once, values)


def try_device(tf: ModuleType, work: Convolution, gpu: Device, index: int) -> FrameworkDevice:
    """Convolve on one device. A failure is an answer, so that the other devices are tried."""
    answer: FrameworkDevice = {"index": index}
    try:
        step(f"device {index}")
        details = tf.config.experimental.get_device_details(gpu)
        answer["name"] = str(details.get("device_name", ""))
        capability = list(details.get("compute_capability", ()))
        answer["capability"] = capability
        answer["runs"] = [
            convolve(tf, work, f"GPU:{index}", dtype) for dtype in float_types(capability)
        ]
    except Exception as error:
        answer["failure"] = failure(error, GPU_PROBLEMS)
    return answer


def try_devices(tf: ModuleType, work: Convolution) -> FrameworkAnswer:
    """Return "devices" or "device_failure"."""
    step("list_physical_devices")
    try:
        gpus = tf.config.list_physical_devices("GPU")
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
    except Exception as error:
        return {"device_failure": failure(error, GPU_PROBLEMS)}
    if gpus:
        return {"devices": [try_device(tf, work, gpu, index) for index, gpu in enumerate(gpus)]}
    reason = logged(GPU_PROBLEMS)
    if reason:
        return {"device_failure": f"TensorFlow sees no GPU: {reason}"}
    return {"device_failure": "TensorFlow sees no GPU and does not say why"}


def build_facts(tf: ModuleType) -> FrameworkAnswer:
    """Return the "cuda" of the build, and "aside" for a build for other GPUs."""
    build = tf.sysconfig.get_build_info()
    if build.get("is_rocm_build"):
        return {"cuda": None, "aside": "a ROCm build: it is for AMD GPUs"}
    if not build.get("is_cuda_build"):
        return {"cuda": None}
    # "12.5.1"; the lock and the data have the first two parts.
    return {"cuda": ".".join(str(build.get("cuda_version", "")).split(".")[:2]) or "?"}


def probe(options: Options) -> FrameworkAnswer:
    """Return the answer of the contract."""
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="0", TF_CPP_VMODULE="dso_loader=1")
    name = options.get("import_name", "tensorflow")
    step("import " + name)
    begin = time.perf_counter()
    tf = importlib.import_module(name)
    answer: FrameworkAnswer = {
        "import_s": time.perf_counter() - begin,
        "version": str(tf.__version__),
        "file": getattr(tf, "__file__", None),
        "devices": [],
    }
    answer.update(build_facts(tf))
    work = Convolution()
    tf.config.set_soft_device_placement(False)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    # Before the CPU runs: memory growth can be set only before a device is used.
    if answer["cuda"] is not None and options.get("device"):
        answer.update(try_devices(tf, work))
    answer["cpu"] = convolve(tf, work, "CPU:0", "float32")
    answer["mapped"] = mapped()
    answer["cudnn"] = mapped_cudnn()
    return answer


if __name__ == "__main__":
    main(probe)
