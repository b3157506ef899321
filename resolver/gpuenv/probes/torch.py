"""Imports torch and convolves: on the CPU, and with cuDNN on every visible device. See the contract in __init__.py.

Options: {"import_name": "torch", "device": bool}. Runs on Python 3.9 and later; standard library and torch only.
TF32 is switched off in this process, so that float32 means float32.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import os
import time
import types
from typing import Any


def load_child() -> Any:
    """_child.py beside this script, without its folder on sys.path, where torch.py would stand for the real one."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_child.py")
    loader = importlib.machinery.SourceFileLoader("gpuenv_child", path)
    module = types.ModuleType(loader.name)
    loader.exec_module(module)
    return module


child = load_child()


def convolve(torch: Any, work: Any, device: str, dtype: str) -> dict[str, Any]:
    """One RUN of the contract."""
    kind = getattr(torch, dtype)
    images = torch.tensor(work.images).reshape(child.INPUT).to(kind).to(device)
    filters = torch.tensor(work.filters).reshape(child.WEIGHT).to(kind).to(device)

    def once() -> Any:
        out = torch.nn.functional.conv2d(images, filters, padding=1)
        if device != "cpu":
            torch.cuda.synchronize(device)
        return out

    with torch.no_grad():
        run: dict[str, Any] = work.run(
            f"Conv2d {dtype} on {device}", dtype, once, lambda out: out.cpu().double().flatten().tolist()
        )
    return run


def try_device(torch: Any, work: Any, index: int) -> dict[str, Any]:
    """One member of "devices"; a failure on one device leaves the others to be tried."""
    answer: dict[str, Any] = {"index": index}
    try:
        child.step(f"device {index}")
        answer["name"] = torch.cuda.get_device_name(index)
        answer["capability"] = list(torch.cuda.get_device_capability(index))
        dtypes = ["float32", "float16"] + (["bfloat16"] if answer["capability"] >= [8, 0] else [])
        answer["runs"] = [convolve(torch, work, f"cuda:{index}", dtype) for dtype in dtypes]
    except Exception as error:
        answer["failure"] = child.failure(error)
    return answer


def try_devices(torch: Any, work: Any) -> dict[str, Any]:
    """{"devices"} or {"device_failure"}."""
    # Asked first: without a usable driver the questions below warn or fail, and each says less than this one.
    child.step("torch.cuda.init")
    try:
        torch.cuda.init()
        count = torch.cuda.device_count()
    except Exception as error:
        return {"device_failure": child.failure(error)}
    return {"devices": [try_device(torch, work, index) for index in range(count)]}


def probe(options: dict[str, Any]) -> dict[str, Any]:
    """The answer that the contract describes, with import_s, file and *_failure texts."""
    child.step("import " + options.get("import_name", "torch"))
    begin = time.perf_counter()
    torch = importlib.import_module(options.get("import_name", "torch"))
    answer: dict[str, Any] = {"import_s": time.perf_counter() - begin, "version": str(torch.__version__)}
    answer.update(cuda=torch.version.cuda, file=getattr(torch, "__file__", None), devices=[])
    work = child.Convolution()
    answer["cpu"] = convolve(torch, work, "cpu", "float32")
    if getattr(torch.version, "hip", None):
        answer["aside"] = f"a build for ROCm {torch.version.hip}: its GPUs are not NVIDIA's"
    if torch.version.cuda is not None:
        torch.backends.cudnn.allow_tf32 = False
        child.step("torch.backends.cudnn.version")
        try:
            answer["cudnn"] = torch.backends.cudnn.version()
        except Exception as error:
            answer["cudnn_failure"] = child.failure(error)
        # The C function: torch.cuda.get_arch_list says [] where no device is available.
        flags = torch._C._cuda_getArchFlags() if hasattr(torch._C, "_cuda_getArchFlags") else None
        answer["arch_list"] = flags.split() if flags else list(torch.cuda.get_arch_list())
        if options.get("device"):
            answer.update(try_devices(torch, work))
    answer["mapped"] = child.mapped()
    return answer


if __name__ == "__main__":
    child.main(probe)
