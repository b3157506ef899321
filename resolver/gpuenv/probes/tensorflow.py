"""Imports TensorFlow and convolves: on the CPU, and with cuDNN on every GPU. See the contract in __init__.py.

Options: {"import_name": "tensorflow", "device": bool}. Runs on Python 3.9 and later; standard library, TensorFlow and
its numpy only.

Where a library is missing TensorFlow sees no GPU and says so in its log alone ("Cannot dlopen some GPU libraries"),
without the library's name: its loader is made to log that too. Operations may not move to another device, TF32 is
off, GPU memory is taken as it is needed. The CPU's convolution knows channels-last images only, so all are.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import time
import types
from typing import Any

NOISE = (
    r"Cannot dlopen|Could not load dynamic library|Could not find cuda drivers|failed call to cuInit|CUDA_ERROR|"
    r"CuDNN|cuDNN|CUDNN_STATUS|cudnn handle|DNN library|libdevice|Skipping registering GPU|Ignoring visible gpu"
)


def load_child() -> Any:
    """_child.py beside this script, without its folder on sys.path, where torch.py would stand for the real one."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_child.py")
    loader = importlib.machinery.SourceFileLoader("gpuenv_child", path)
    module = types.ModuleType(loader.name)
    loader.exec_module(module)
    return module


child = load_child()

def convolve(tf: Any, work: Any, where: str, dtype: str) -> dict[str, Any]:
    """One RUN of the contract; `where` is CPU:0 or GPU:n."""
    numpy = importlib.import_module("numpy")
    kind = getattr(tf, dtype)
    images, filters = work.arrays(numpy)
    with tf.device("/" + where):
        images = tf.cast(tf.constant(images.transpose(0, 2, 3, 1)), kind)
        filters = tf.cast(tf.constant(filters.transpose(2, 3, 1, 0)), kind)

    def once() -> Any:
        with tf.device("/" + where):
            # The result comes to the host in the same step: that is what waits for the end.
            out = tf.nn.conv2d(images, filters, strides=1, padding="SAME")
        return out, out.numpy()

    def values(result: Any) -> list[float]:
        device = str(result[0].device)
        if not device.endswith(where):
            raise RuntimeError(f"the result is on {device}, not on {where}")
        found: list[float] = result[1].astype("float64").transpose(0, 3, 1, 2).ravel().tolist()
        return found

    run: dict[str, Any] = work.run(f"conv2d {dtype} on {where}", dtype, once, values)
    return run


def try_device(tf: Any, work: Any, gpu: Any, index: int) -> dict[str, Any]:
    """One member of "devices"; a failure on one device leaves the others to be tried."""
    answer: dict[str, Any] = {"index": index}
    try:
        child.step(f"device {index}")
        details = tf.config.experimental.get_device_details(gpu)
        answer["name"] = str(details.get("device_name", ""))
        answer["capability"] = list(details.get("compute_capability", ()))
        dtypes = ["float32", "float16"] + (["bfloat16"] if answer["capability"] >= [8, 0] else [])
        answer["runs"] = [convolve(tf, work, f"GPU:{index}", dtype) for dtype in dtypes]
    except Exception as error:
        answer["failure"] = child.failure(error, NOISE)
    return answer


def try_devices(tf: Any, work: Any) -> dict[str, Any]:
    """{"devices"} or {"device_failure"}."""
    child.step("list_physical_devices")
    try:
        gpus = tf.config.list_physical_devices("GPU")
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, True)
    except Exception as error:
        return {"device_failure": child.failure(error, NOISE)}
    if not gpus:
        why = child.said(NOISE)
        return {"device_failure": "TensorFlow sees no GPU" + (f": {why}" if why else " and does not say why")}
    return {"devices": [try_device(tf, work, gpu, index) for index, gpu in enumerate(gpus)]}


def probe(options: dict[str, Any]) -> dict[str, Any]:
    """The answer that the contract describes, with import_s, file and *_failure texts."""
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="0", TF_CPP_VMODULE="dso_loader=1")
    child.step("import " + options.get("import_name", "tensorflow"))
    begin = time.perf_counter()
    tf = importlib.import_module(options.get("import_name", "tensorflow"))
    answer: dict[str, Any] = {"import_s": time.perf_counter() - begin, "version": str(tf.__version__)}
    build = tf.sysconfig.get_build_info()
    answer.update(file=getattr(tf, "__file__", None), cuda=None, devices=[])
    if build.get("is_rocm_build"):
        answer["aside"] = "a build for ROCm: its GPUs are not NVIDIA's"
    elif build.get("is_cuda_build"):
        # "12.5.1"; the lock and the data know the first two.
        answer["cuda"] = ".".join(str(build.get("cuda_version", "")).split(".")[:2]) or "?"
    work = child.Convolution()
    tf.config.set_soft_device_placement(False)
    tf.config.experimental.enable_tensor_float_32_execution(False)
    # Before anything runs: how memory is taken can be said only before a device is used.
    if answer["cuda"] is not None and options.get("device"):
        answer.update(try_devices(tf, work))
    answer["cpu"] = convolve(tf, work, "CPU:0", "float32")
    answer["mapped"] = child.mapped()
    answer["cudnn"] = child.mapped_cudnn()
    return answer


if __name__ == "__main__":
    child.main(probe)
