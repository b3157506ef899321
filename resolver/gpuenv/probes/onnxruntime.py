"""Imports ONNX Runtime and runs a model of one Conv node: on the CPU, and on every GPU. Contract: __init__.py.

Options: {"import_name": "onnxruntime", "device": bool, "devices": number of GPUs, 1 if it is not given: ONNX Runtime
counts none}. Runs on Python 3.9 and later; standard library, ONNX Runtime and its numpy only.

Where its CUDA library cannot be loaded ONNX Runtime goes on with the CPU after a line in its log, which is therefore
part of the failure. That the node ran on the GPU is told by the session's own profile. ONNX Runtime's documentation
has the CUDA libraries of installed distributions opened by preload_dlls(), where a release has it. The model is
written here as protocol buffers (onnx.proto of onnx 1.14, IR version 8, operator set 13): the package onnx need not
be there.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import os
import shutil
import struct
import tempfile
import time
import types
from typing import Any

NOISE = r"Failed to load|Failed to create|cannot open shared object|CUDA failure|CUDNN|cuDNN|CUDA error|CUDNN_STATUS"
CUDA, CPU = "CUDAExecutionProvider", "CPUExecutionProvider"
# onnx.proto: TensorProto.DataType, and the format of struct for one value.
TYPES = {"float32": (1, "f"), "float16": (10, "e")}


def load_child() -> Any:
    """_child.py beside this script, without its folder on sys.path, where torch.py would stand for the real one."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_child.py")
    loader = importlib.machinery.SourceFileLoader("gpuenv_child", path)
    module = types.ModuleType(loader.name)
    loader.exec_module(module)
    return module


child = load_child()

def number(field: int, value: int) -> bytes:
    """A protocol-buffer field that holds an integer."""
    return varint(field << 3) + varint(value)


def block(field: int, data: bytes) -> bytes:
    """A protocol-buffer field that holds bytes, a text or a message."""
    return varint(field << 3 | 2) + varint(len(data)) + data


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first."""
    found = b""
    while value > 127:
        found += bytes([value & 127 | 128])
        value >>= 7
    return found + bytes([value])


def tensor_info(name: bytes, dtype: int, shape: tuple[int, ...]) -> bytes:
    """ValueInfoProto of a tensor."""
    dimensions = b"".join(block(1, number(1, size)) for size in shape)
    return block(1, name) + block(2, block(1, number(1, dtype) + block(2, dimensions)))


def model(filters: list[float], dtype: str) -> bytes:
    """ModelProto: y = Conv(x, w) with padding 1; w is an initializer."""
    code, letter = TYPES[dtype]
    pads = block(1, b"pads") + b"".join(number(8, 1) for _ in range(4)) + number(20, 7)  # AttributeProto: ints, INTS
    node = block(1, b"x") + block(1, b"w") + block(2, b"y") + block(3, b"conv") + block(4, b"Conv") + block(5, pads)
    raw = struct.pack(f"<{len(filters)}{letter}", *filters)
    weight = b"".join(number(1, size) for size in child.WEIGHT) + number(2, code) + block(8, b"w") + block(9, raw)
    graph = block(1, node) + block(2, b"graph") + block(5, weight)
    graph += block(11, tensor_info(b"x", code, child.INPUT)) + block(12, tensor_info(b"y", code, child.RESULT))
    return number(1, 8) + block(7, graph) + block(8, block(1, b"") + number(2, 13))


def ran_on(path: str) -> set[str]:
    """The providers that the Conv nodes of a session's profile ran on."""
    with open(path) as stream:
        events = json.load(stream)
    arguments = [event.get("args", {}) for event in events if event.get("cat") == "Node"]
    # NhwcConv and FusedConv are what optimizations make of it.
    return {one["provider"] for one in arguments if one.get("op_name", "").endswith("Conv") and one.get("provider")}


def convolve(ort: Any, work: Any, index: int | None, dtype: str, folder: str) -> dict[str, Any]:
    """One RUN of the contract, on the CPU (None) or a GPU. `folder` takes the profile."""
    numpy = importlib.import_module("numpy")
    provider, where = (CPU, "cpu") if index is None else (CUDA, f"cuda:{index}")
    chosen = CPU if index is None else (CUDA, {"device_id": str(index), "use_tf32": "0"})
    settings = ort.SessionOptions()
    settings.enable_profiling = True
    settings.profile_file_prefix = os.path.join(folder, f"{dtype}-{where.replace(':', '')}")
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    child.step(f"InferenceSession on {where}")
    session = ort.InferenceSession(
        model(work.filters, dtype), sess_options=settings, providers=[chosen], enable_fallback=0
    )
    if provider not in session.get_providers():
        raise RuntimeError(f"the session has {', '.join(session.get_providers())} only")
    images = work.arrays(numpy)[0].astype(dtype)

    def values(out: Any) -> list[float]:
        found: list[float] = out[0].astype("float64").ravel().tolist()
        return found

    run: dict[str, Any] = work.run(
        f"Conv {dtype} on {provider} {where}", dtype, lambda: session.run(["y"], {"x": images}), values
    )
    places = ran_on(session.end_profiling())
    if places != {provider}:
        raise RuntimeError(f"the Conv node ran on {', '.join(sorted(places)) or 'nothing'}, not on {provider}")
    return run


def try_device(ort: Any, work: Any, index: int, folder: str) -> dict[str, Any]:
    """One member of "devices"; a failure on one device leaves the others to be tried."""
    answer: dict[str, Any] = {"index": index}
    try:
        child.step(f"device {index}")
        answer["runs"] = [convolve(ort, work, index, dtype, folder) for dtype in TYPES]
    except Exception as error:
        answer["failure"] = child.failure(error, NOISE)
    return answer


def probe(options: dict[str, Any]) -> dict[str, Any]:
    """The answer that the contract describes, with import_s, file and *_failure texts."""
    child.step("import " + options.get("import_name", "onnxruntime"))
    begin = time.perf_counter()
    ort = importlib.import_module(options.get("import_name", "onnxruntime"))
    answer: dict[str, Any] = {"import_s": time.perf_counter() - begin, "version": str(ort.__version__)}
    answer.update(file=getattr(ort, "__file__", None), cuda=None, devices=[])
    if CUDA in ort.get_available_providers():
        answer["cuda"] = ".".join(str(getattr(ort, "cuda_version", "") or "?").split(".")[:2])
    elif "ROCMExecutionProvider" in ort.get_available_providers():
        answer["aside"] = "a build for ROCm: its GPUs are not NVIDIA's"
    work = child.Convolution()
    folder = tempfile.mkdtemp(prefix="gpuenv-probe-")
    try:
        answer["cpu"] = convolve(ort, work, None, "float32", folder)
        if answer["cuda"] is not None and options.get("device"):
            if hasattr(ort, "preload_dlls"):
                child.step("preload_dlls")
                ort.preload_dlls()
            answer["devices"] = [try_device(ort, work, index, folder) for index in range(options.get("devices", 1))]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    answer["mapped"] = child.mapped()
    answer["cudnn"] = child.mapped_cudnn()
    return answer


if __name__ == "__main__":
    child.main(probe)
