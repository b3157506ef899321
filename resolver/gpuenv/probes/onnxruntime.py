"""Import ONNX Runtime and run a model of one Conv node: on the CPU, and on every GPU.

Contract: __init__.py.

Options: {"import_name": "onnxruntime", "device": bool, "devices": number of GPUs, 1 if it is not
given, because ONNX Runtime cannot count them}. Runs on Python 3.9 and later; standard library, ONNX
Runtime and its numpy only.

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
import shutil
import struct
import tempfile
import time
from types import ModuleType

from ._common import step
from ._framework import (
    Array,
    Convolution,
    Options,
    failure,
    main,
    mapped,
    mapped_cudnn,
)
from ._reference import INPUT, RESULT, WEIGHT
from .answers import FrameworkAnswer, FrameworkDevice, Run

# Log lines that say why ONNX Runtime cannot use a GPU.
GPU_PROBLEMS = (
    r"Failed to load|Failed to create|cannot open shared object|CUDA failure|CUDNN|cuDNN|"
    r"CUDA error|CUDNN_STATUS"
)
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


def convolve(ort: ModuleType, work: Convolution, index: int | None, dtype: str, folder: str) -> Run:
    """Convolve in one type on the CPU (index None) or a GPU. `folder` takes the profile."""
    numpy = importlib.import_module("numpy")
    provider, where = CPU, "cpu"
    chosen: object = CPU
    if index is not None:
        provider, where = CUDA, f"cuda:{index}"
        chosen = (CUDA, {"device_id": str(index), "use_tf32": "0"})
    settings = ort.SessionOptions()
    settings.enable_profiling = True
    settings.profile_file_prefix = os.path.join(folder, f"{dtype}-{where.replace(':', '')}")
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    step(f"InferenceSession on {where}")
    session = ort.InferenceSession(
        model(work.filters, dtype), sess_options=settings, providers=[chosen], enable_fallback=0
    )
    if provider not in session.get_providers():
        raise RuntimeError(f"the session has {', '.join(session.get_providers())} only")
    images = work.arrays(numpy)[0].astype(dtype)

    def once() -> Array:
        return session.run(["y"], {"x": images})

    def values(outputs: Array) -> list[float]:
        flat: list[float] = outputs[0].astype("float64").ravel().tolist()
        return flat

    run = work.run(f"Conv {dtype} on {provider} {where}", dtype, once, values)
    used = used_providers(session.end_profiling())
    if used != {provider}:
        names = ", ".join(sorted(used)) or "nothing"
        raise RuntimeError(f"the Conv node ran on {names}, not on {provider}")
    return run


def try_device(ort: ModuleType, work: Convolution, index: int, folder: str) -> FrameworkDevice:
    """Convolve on one device. A failure is an answer, so that the other devices are tried."""
    answer: FrameworkDevice = {"index": index}
    try:
        step(f"device {index}")
        answer["runs"] = [convolve(ort, work, index, dtype, folder) for dtype in TYPES]
    except Exception as error:
        answer["failure"] = failure(error, GPU_PROBLEMS)
    return answer


def try_devices(
    ort: ModuleType, work: Convolution, count: int, folder: str
) -> list[FrameworkDevice]:
    """Convolve on each of `count` devices."""
    if hasattr(ort, "preload_dlls"):
        step("preload_dlls")
        ort.preload_dlls()
    return [try_device(ort, work, index, folder) for index in range(count)]


def build_facts(ort: ModuleType) -> FrameworkAnswer:
    """Return the "cuda" of the build, and "aside" for a build for other GPUs."""
    providers = ort.get_available_providers()
    if CUDA in providers:
        version = str(getattr(ort, "cuda_version", "") or "?")
        return {"cuda": ".".join(version.split(".")[:2])}
    if "ROCMExecutionProvider" in providers:
        return {"cuda": None, "aside": "a ROCm build: it is for AMD GPUs"}
    return {"cuda": None}


def probe(options: Options) -> FrameworkAnswer:
    """Return the answer of the contract."""
    name = options.get("import_name", "onnxruntime")
    step("import " + name)
    begin = time.perf_counter()
    ort = importlib.import_module(name)
    answer: FrameworkAnswer = {
        "import_s": time.perf_counter() - begin,
        "version": str(ort.__version__),
        "file": getattr(ort, "__file__", None),
        "devices": [],
    }
    answer.update(build_facts(ort))
    work = Convolution()
    folder = tempfile.mkdtemp(prefix="gpuenv-probe-")
    try:
        answer["cpu"] = convolve(ort, work, None, "float32", folder)
        if answer["cuda"] is not None and options.get("device"):
            answer["devices"] = try_devices(ort, work, options.get("devices", 1), folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    answer["mapped"] = mapped()
    answer["cudnn"] = mapped_cudnn()
    return answer


if __name__ == "__main__":
    main(probe)
