"""Import TensorFlow and convolve: on the CPU, and with cuDNN on every GPU. Contract: __init__.py.

Runs on Python 3.8 and later; standard library, TensorFlow and its numpy only.

If a library is missing, TensorFlow shows no GPU and reports this in its log only ("Cannot dlopen
some GPU libraries"), without the name of the library. Therefore its loader is made to log the
names. Operations may not move to another device, TF32 is off, and GPU memory is allocated as it is
needed. The CPU convolution supports channels-last images only, so all images are channels-last.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from types import ModuleType

from ._common import step
from ._framework import ROCM, Array, Framework, Options, UnusableError, logged, main
from .answers import FrameworkAnswer, Run


class TensorFlow(Framework):
    """TensorFlow. A device is "GPU:N" or "CPU:0"."""

    # Log lines that say why TensorFlow cannot use a GPU.
    log = (
        r"Cannot dlopen|Could not load dynamic library|Could not find cuda drivers|"
        r"failed call to cuInit|CUDA_ERROR|CuDNN|cuDNN|CUDNN_STATUS|cudnn handle|DNN library|"
        r"libdevice|Skipping registering GPU|Ignoring visible gpu"
    )

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        os.environ.update(TF_CPP_MIN_LOG_LEVEL="0", TF_CPP_VMODULE="dso_loader=1")

    def build(self, module: ModuleType) -> FrameworkAnswer:
        self.tf = module
        module.config.set_soft_device_placement(False)
        module.config.experimental.enable_tensor_float_32_execution(False)
        facts = module.sysconfig.get_build_info()
        if facts.get("is_rocm_build"):
            return ROCM
        if not facts.get("is_cuda_build"):
            return {"cuda": None}
        # "12.5.1"; the lock and the data have the first two parts.
        version = ".".join(str(facts.get("cuda_version", "")).split(".")[:2])
        return {"cuda": version or "?", "for_cpus": True}

    def devices(self) -> Sequence[str]:
        step("list_physical_devices")
        self.gpus = self.tf.config.list_physical_devices("GPU")
        for gpu in self.gpus:  # possible only before a device is used, so before the CPU's run
            self.tf.config.experimental.set_memory_growth(gpu, True)
        if not self.gpus:
            reason = logged(self.log)
            why = f": {reason}" if reason else " and does not say why"
            raise UnusableError(f"TensorFlow sees no GPU{why}")
        return [f"GPU:{index}" for index in range(len(self.gpus))]

    def describe(self, device: str) -> tuple[str, Sequence[int]]:
        gpu = self.gpus[int(device.partition(":")[2])]
        details = self.tf.config.experimental.get_device_details(gpu)
        return str(details.get("device_name", "")), details.get("compute_capability", ())

    def convolve(self, device: str, dtype: str) -> list[Run]:
        tf, where = self.tf, device.replace("cpu", "CPU:0")
        images, filters = self.arrays()
        with tf.device("/" + where):
            images = tf.cast(tf.constant(images.transpose(0, 2, 3, 1)), getattr(tf, dtype))
            filters = tf.cast(tf.constant(filters.transpose(2, 3, 1, 0)), getattr(tf, dtype))

        def once() -> tuple[Array, Array]:
            with tf.device("/" + where):
                # Copying the result to the host in the same step waits for the end.
                result = tf.nn.conv2d(images, filters, strides=1, padding="SAME")
            return result, result.numpy()

        def values(results: tuple[Array, Array]) -> Array:
            result, host_copy = results
            if not str(result.device).endswith(where):
                raise RuntimeError(f"the result is on {result.device}, not on {where}")
            return host_copy.astype("float64").transpose(0, 3, 1, 2).ravel().tolist()

        return [self.measure(f"conv2d {dtype} on {where}", dtype, once, values)]


if __name__ == "__main__":
    main(TensorFlow)
