"""Import ONNX Runtime and run a model of one Conv node: on the CPU, and on every GPU.

Contract: __init__.py.

ONNX Runtime cannot count the GPUs: the options say how many there are. Runs on Python 3.8 and
later; standard library, ONNX Runtime and its numpy only.

If its CUDA library cannot be loaded, ONNX Runtime continues with the CPU and logs one line, which
is therefore part of the failure. The profile of the session tells whether the node ran on the GPU.
ONNX Runtime's documentation loads the CUDA libraries of installed distributions by preload_dlls(),
which not every release has.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
from collections.abc import Sequence
from types import ModuleType

from ._common import step
from ._framework import ROCM, Array, Framework, main
from .answers import FrameworkAnswer, Run

CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
# The model in the format of onnx.proto: node Conv(x, w) -> y with pads [1, 1, 1, 1]; x is float32
# [2, 16, 16, 16], w [16, 16, 3, 3], y [2, 16, 16, 16]; IR version 8, operator set 13.
MODEL = base64.b64decode(
    "CAg6iAEKKAoBeAoBdxIBeRoEY29udiIEQ29udioRCgRwYWRzQAFAAUABQAGgAQcSBWdyYXBoWhsKAXgSFgoUCAESEAoC"
    "CAIKAggQCgIIEAoCCBBaGwoBdxIWChQIARIQCgIIEAoCCBAKAggDCgIIA2IbCgF5EhYKFAgBEhAKAggCCgIIEAoCCBAK"
    "AggQQgQKABAN"
)
# The element type of a tensor of four dimensions (onnx.proto): FLOAT, FLOAT16.
FLOAT, FLOAT16 = b"\x08\x01\x12\x10", b"\x08\x0a\x12\x10"


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
            return ROCM
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
                MODEL if dtype == "float32" else MODEL.replace(FLOAT, FLOAT16),
                sess_options=settings,
                providers=chosen,
                enable_fallback=0,
            )
            if provider not in session.get_providers():
                raise RuntimeError(f"the session has {', '.join(session.get_providers())} only")
            images, filters = [array.astype(dtype) for array in self.arrays()]

            def once() -> Array:
                return session.run(["y"], {"x": images, "w": filters})

            def values(outputs: Array) -> Array:
                return outputs[0].astype("float64").ravel().tolist()

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
