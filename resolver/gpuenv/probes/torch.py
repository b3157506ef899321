"""Import torch and convolve: on the CPU, and with cuDNN on every visible device.

Contract: __init__.py.

Options: {"import_name": "torch", "device": bool}. Runs on Python 3.9 and later; standard library
and torch only. TF32 is switched off in this process, so that float32 means float32.
"""

from __future__ import annotations

import importlib
import time
from types import ModuleType

from ._common import step
from ._framework import (
    Array,
    Convolution,
    Options,
    failure,
    float_types,
    main,
    mapped,
)
from ._reference import INPUT, WEIGHT
from .answers import FrameworkAnswer, FrameworkDevice, Run


def convolve(torch: ModuleType, work: Convolution, device: str, dtype: str) -> Run:
    """Convolve in one type on "cpu" or "cuda:N"."""
    torch_type = getattr(torch, dtype)
    images = torch.tensor(work.images).reshape(INPUT).to(torch_type).to(device)
    filters = torch.tensor(work.filters).reshape(WEIGHT).to(torch_type).to(device)

    def once() -> Array:
        result = torch.nn.functional.conv2d(images, filters, padding=1)
        if device != "cpu":
            torch.cuda.synchronize(device)
        return result

    def values(result: Array) -> list[float]:
        flat: list[float] = result.cpu().double().flatten().tolist()
        return flat

    with torch.no_grad():
        return work.run(f"Conv2d {dtype} on {device}", dtype, once, values)


def try_device(torch: ModuleType, work: Convolution, index: int) -> FrameworkDevice:
    """Convolve on one device. A failure is an answer, so that the other devices are tried."""
    answer: FrameworkDevice = {"index": index}
    try:
        step(f"device {index}")
        answer["name"] = torch.cuda.get_device_name(index)
        capability = list(torch.cuda.get_device_capability(index))
        answer["capability"] = capability
        answer["runs"] = [
            convolve(torch, work, f"cuda:{index}", dtype) for dtype in float_types(capability)
        ]
    except Exception as error:
        answer["failure"] = failure(error)
    return answer


def try_devices(torch: ModuleType, work: Convolution) -> FrameworkAnswer:
    """Return "devices" or "device_failure"."""
    # First: without a usable driver the calls below warn or fail with less information than this
    # one.
    step("torch.cuda.init")
    try:
        torch.cuda.init()
        count = torch.cuda.device_count()
    except Exception as error:
        return {"device_failure": failure(error)}
    return {"devices": [try_device(torch, work, index) for index in range(count)]}


def arch_list(torch: ModuleType) -> list[str]:
    """Return the targets that the build has code for.

    The C function is preferred, because torch.cuda.get_arch_list returns [] where no device is
    available.
    """
    flags = None
    if hasattr(torch._C, "_cuda_getArchFlags"):
        flags = torch._C._cuda_getArchFlags()
    if flags:
        return list(flags.split())
    return list(torch.cuda.get_arch_list())


def cuda_facts(torch: ModuleType) -> FrameworkAnswer:
    """Return "cudnn" or "cudnn_failure", and "arch_list"."""
    answer: FrameworkAnswer = {}
    step("torch.backends.cudnn.version")
    try:
        answer["cudnn"] = torch.backends.cudnn.version()
    except Exception as error:
        answer["cudnn_failure"] = failure(error)
    answer["arch_list"] = arch_list(torch)
    return answer


def probe(options: Options) -> FrameworkAnswer:
    """Return the answer of the contract."""
    name = options.get("import_name", "torch")
    step("import " + name)
    begin = time.perf_counter()
    torch = importlib.import_module(name)
    answer: FrameworkAnswer = {
        "import_s": time.perf_counter() - begin,
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "file": getattr(torch, "__file__", None),
        "devices": [],
    }
    work = Convolution()
    answer["cpu"] = convolve(torch, work, "cpu", "float32")
    if getattr(torch.version, "hip", None):
        answer["aside"] = f"a ROCm {torch.version.hip} build: it is for AMD GPUs"
    if torch.version.cuda is not None:
        torch.backends.cudnn.allow_tf32 = False
        answer.update(cuda_facts(torch))
        if options.get("device"):
            answer.update(try_devices(torch, work))
    answer["mapped"] = mapped()
    return answer


if __name__ == "__main__":
    main(probe)
