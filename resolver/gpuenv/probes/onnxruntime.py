"""Import ONNX Runtime and run a model of one Conv node: on the CPU, and on every GPU.

Contract: __init__.py.

ONNX Runtime cannot count the GPUs: the options say how many there are. Runs on Python 3.9 and
later; standard library, ONNX Runtime and its numpy only.

If its CUDA library cannot be loaded, ONNX Runtime continues with the CPU and logs one line, which
is therefore part of the failure. The profile of the session tells whether the node ran on the GPU.
ONNX Runtime's documentation loads the CUDA libraries of installed distributions by preload_dlls(),
which not every release has. The model is written here as protocol buffers (onnx.proto of onnx 1.14,
IR version 8, operator set 13), so that the package onnx is not needed.
"""

from __future__ import annotations

import importlib
import json
import os
import struct
import tempfile
from collections.abc import Sequence
from types import ModuleType

from ._common import step
from ._framework import Array, Framework, main
from ._reference import INPUT, RESULT, WEIGHT
from .answers import FrameworkAnswer, Run

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
# onnx.proto: TensorProto.DataType, and the format of struct for one value.
TYPES = {"float32": (1, "f"), "float16": (10, "e")}


# ---- the model ----------------------------------------------------------------------------------


def number(field: int, value: int) -> bytes:
    """Return a protocol-buffer field that holds an integer."""
    return varint(field << 3) + varint(value)


def block(field: int, data: bytes) -> bytes:
    """Return a protocol-buffer field that holds bytes, a text or a message."""
    return varint(field << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    """Return an integer as seven bits a byte, the lowest first."""
    encoded = b""
    while value > 127:
        encoded += bytes([value & 127 | 128])
        value >>= 7
    return encoded + bytes([value])


def tensor_info(name: bytes, dtype: int, shape: tuple[int, ...]) -> bytes:
    """Return the ValueInfoProto of a tensor."""
    dimensions = b"".join(block(1, number(1, size)) for size in shape)
    return block(1, name) + block(2, block(1, number(1, dtype) + block(2, dimensions)))


def model(filters: list[float], dtype: str) -> bytes:
    """Return a ModelProto: y = Conv(x, w) with padding 1; w is an initializer."""
    code, letter = TYPES[dtype]
    padding = number(8, 1) * 4
    pads = block(1, b"pads") + padding + number(20, 7)  # AttributeProto: ints, INTS
    node = block(1, b"x") + block(1, b"w") + block(2, b"y")
    node += block(3, b"conv") + block(4, b"Conv") + block(5, pads)
    raw = struct.pack(f"<{len(filters)}{letter}", *filters)
    dimensions = b"".join(number(1, size) for size in WEIGHT)
    weight = dimensions + number(2, code) + block(8, b"w") + block(9, raw)
    graph = block(1, node) + block(2, b"graph") + block(5, weight)
    graph += block(11, tensor_info(b"x", code, INPUT)) + block(12, tensor_info(b"y", code, RESULT))
    return number(1, 8) + block(7, graph) + block(8, block(1, b"") + number(2, 13))


# ---- running it ---------------------------------------------------------------------------------


class OnnxRuntime(Framework):
    """ONNX Runtime. A device is "cuda:N" or "cpu"."""

    # Log lines that say why ONNX Runtime cannot use a GPU.
    log = (
        r"Failed to load|Failed to create|cannot open shared object|CUDA failure|CUDNN|cuDNN|"
        r"CUDA error|CUDNN_STATUS"
    )

    def build(self, module: ModuleType) -> FrameworkAnswer:
        self.ort = module
        providers = module.get_available_providers()
        if CUDA in providers:
            version = str(getattr(module, "cuda_version", "") or "?")
            return {"cuda": ".".join(version.split(".")[:2])}
        if "ROCMExecutionProvider" in providers:
            return {"cuda": None, "aside": "a ROCm build: it is for AMD GPUs"}
        return {"cuda": None}

    def devices(self) -> Sequence[str]:
        if hasattr(self.ort, "preload_dlls"):
            step("preload_dlls")
            self.ort.preload_dlls()
        return [f"cuda:{index}" for index in range(self.options["devices"])]

    def describe(self, device: str) -> tuple[str, Sequence[int]]:
        return "", ()

    def convolve(self, device: str, dtype: str) -> list[Run]:
        provider = CPU
        chosen: list[object] = [CPU]
        if device != "cpu":
            number = device.partition(":")[2]
            provider = CUDA
            chosen = [(CUDA, {"device_id": number, "use_tf32": "0"})]
        settings = self.ort.SessionOptions()
        settings.enable_profiling = True
        settings.graph_optimization_level = self.ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        with tempfile.TemporaryDirectory(prefix="gpuenv-probe-") as folder:
            settings.profile_file_prefix = os.path.join(folder, "profile")
            step(f"InferenceSession on {device}")
            session = self.ort.InferenceSession(
                model(self.filters, dtype),
                sess_options=settings,
                providers=chosen,
                enable_fallback=0,
            )
            if provider not in session.get_providers():
                raise RuntimeError(f"the session has {', '.join(session.get_providers())} only")
            images = self.arrays(importlib.import_module("numpy"))[0].astype(dtype)

            def once() -> Array:
                return session.run(["y"], {"x": images})

            def values(outputs: Array) -> list[float]:
                flat: list[float] = outputs[0].astype("float64").ravel().tolist()
                return flat

            what = f"Conv {dtype} on {provider} {device}"
            run = self.measure(what, dtype, once, values)
            used = used_providers(session.end_profiling())
        if used != {provider}:
            names = ", ".join(sorted(used)) or "nothing"
            raise RuntimeError(f"the Conv node ran on {names}, not on {provider}")
        return [run]


def used_providers(profile: str) -> set[str]:
    """Return the providers that ran the Conv nodes of a session, by its profile (a path)."""
    with open(profile) as stream:
        events = json.load(stream)
    providers = set()
    for event in events:
        arguments = event.get("args", {})
        # Optimizations turn Conv into NhwcConv or FusedConv.
        is_convolution = event.get("cat") == "Node" and arguments.get("op_name", "").endswith(
            "Conv"
        )
        if is_convolution and arguments.get("provider"):
            providers.add(arguments["provider"])
    return providers


if __name__ == "__main__":
    main(OnnxRuntime)
