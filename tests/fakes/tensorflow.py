"""The part of TensorFlow that the probe uses.

FAKE_LOG is what its C++ logs when it finds no GPU.
"""

import os
from types import SimpleNamespace as Space

import fake_arrays
from fake_arrays import CPU, Array, count

__version__ = "2.21.0"
float32, float16, bfloat16 = "float32", "float16", "bfloat16"
_where = []


class device:  # noqa: N801
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        _where.append(CPU if "CPU" in self.name else int(self.name.rsplit(":", 1)[1]))

    def __exit__(self, *parts):
        _where.pop()


class Tensor:
    def __init__(self, array):
        self.array = array
        on_cpu = array.device == CPU or "FAKE_ON_CPU" in os.environ
        kind = "CPU:0" if on_cpu else f"GPU:{array.device}"
        self.device = "/job:localhost/replica:0/task:0/device:" + kind

    def numpy(self):
        return self.array


def gpus(kind):
    if "FAKE_LOG" in os.environ:
        fake_arrays.say(os.environ["FAKE_LOG"])
        return []
    return list(range(count))


def conv2d(images, filters, strides, padding):
    out = fake_arrays.convolve(
        images.array.transpose(0, 3, 1, 2), filters.array.transpose(3, 2, 0, 1), _where[-1]
    )
    return Tensor(out.transpose(0, 2, 3, 1))


def constant(array):
    return Tensor(Array(array.flat, array.shape, _where[-1]))


def cast(tensor, kind):
    return tensor


def set_memory_growth(gpu, value):
    if not count:
        raise RuntimeError("no such device")


nn = Space(conv2d=conv2d)
sysconfig = Space(
    get_build_info=lambda: {"is_cuda_build": True, "cuda_version": "12.5.1", "cudnn_version": "9"}
)
config = Space(
    list_physical_devices=gpus,
    set_soft_device_placement=lambda value: None,
    experimental=Space(
        set_memory_growth=set_memory_growth,
        enable_tensor_float_32_execution=lambda value: None,
        get_device_details=lambda gpu: {
            "device_name": f"Stand-in {gpu}",
            "compute_capability": (9, 0),
        },
    ),
)
fake_arrays.open_libraries()
