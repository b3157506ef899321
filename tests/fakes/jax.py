"""The part of JAX that the probe uses.

FAKE_PLUGIN is the reason why its plug-in cannot be used; it is only logged.
"""

import logging
import os
from types import SimpleNamespace as Space

import fake_arrays
from fake_arrays import CPU, Array, count

__version__ = "0.11.2"


class Device:
    compute_capability = "9.0"

    def __init__(self, index):
        self.index, self.device_kind = index, f"Stand-in {index}"

    def __repr__(self):
        return "CpuDevice" if self.index == CPU else f"CudaDevice({self.index})"


class Tensor(Array):
    def astype(self, kind):
        return Tensor(self.flat, self.shape, self.device)

    def block_until_ready(self):
        return self

    def devices(self):
        return {cpu if self.device == CPU or "FAKE_ON_CPU" in os.environ else gpus[self.device]}

    def ravel(self):
        return self


cpu, gpus = Device(CPU), [Device(index) for index in range(count)]
_asked = []


def devices(platform):
    if not _asked and "FAKE_PLUGIN" in os.environ and os.environ.get("JAX_PLATFORMS") != "cpu":
        try:
            raise RuntimeError(os.environ["FAKE_PLUGIN"].replace("/", "\n"))
        except RuntimeError:
            logging.getLogger("jax._src.xla_bridge").exception("Jax plugin configuration error")
    _asked.append(platform)
    if platform == "cpu":
        return [cpu]
    if not gpus or "FAKE_PLUGIN" in os.environ:
        raise RuntimeError("Unknown backend cuda. Available backends are ['cpu']")
    return gpus


def conv(images, filters, strides, padding, precision):
    out = fake_arrays.convolve(images, filters, images.device)
    return Tensor(out.flat, out.shape, out.device)


def device_put(one, device):
    return Tensor(one.flat, one.shape, device.index)


def jit(function):
    return function


lax = Space(conv_general_dilated=conv, Precision=Space(HIGHEST="highest"))
numpy = Space(float32="float32", float16="float16", bfloat16="bfloat16")
fake_arrays.open_libraries()
