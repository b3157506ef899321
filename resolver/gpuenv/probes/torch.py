"""Imports torch and convolves: on the CPU, and with cuDNN on every visible device. See the contract in __init__.py.

Options: {"import_name": "torch", "device": bool}. Runs on Python 3.9 and later; standard library and torch only.

The result of each convolution is compared with the same one in float64 on the CPU, of the same rounded inputs, as
||out - ref|| / ||ref||: at most 1e-5 in float32 (TF32 off; the sums have 144 terms, so float32 leaves about 2e-7)
and at most 2e-3 in float16 (whose result alone is rounded to 5e-4).
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import warnings
from typing import Any

LIBRARIES = ("libcud", "libcublas", "libcufft", "libcufile", "libcupti", "libcurand", "libcus", "libnv", "libnccl",
             "libtorch", "libc10")  # fmt: skip
TOLERANCE = {"float32": 1e-5, "float16": 2e-3}
REPEATS = 10


def step(text: str) -> None:
    """Says on stderr what comes next, so that a crash can be told together with where it happened."""
    sys.stderr.write("gpuenv-step: " + text + "\n")
    sys.stderr.flush()


def mapped() -> list[str]:
    """The CUDA and torch libraries that /proc/self/maps names."""
    paths: dict[str, None] = {}
    with open("/proc/self/maps") as table:
        for line in table:
            path = line[line.find("/") :].rstrip("\n") if "/" in line else ""
            if os.path.basename(path).startswith(LIBRARIES):
                paths[path] = None
    return list(paths)


def convolve(torch: Any, device: str, dtype: str) -> dict[str, Any]:
    """One RUN of the contract: 8x16x32x32 with 32 filters of 3x3 and a bias, padding 1."""
    what = f"Conv2d {dtype} on {device}"
    kind = getattr(torch, dtype)
    generator = torch.Generator().manual_seed(20240229)
    shapes = [(8, 16, 32, 32), (32, 16, 3, 3), (32,)]
    inputs = [torch.randn(shape, generator=generator).to(kind) for shape in shapes]
    reference = torch.nn.functional.conv2d(*[one.double() for one in inputs], padding=1)

    def once() -> tuple[Any, float]:
        begin = time.perf_counter()
        out = torch.nn.functional.conv2d(*placed, padding=1)
        if device != "cpu":
            torch.cuda.synchronize(device)
        return out, time.perf_counter() - begin

    step(what)
    with torch.no_grad():
        placed = [one.to(device) for one in inputs]
        out, first = once()
        steady = min(once()[1] for _ in range(REPEATS))
        error = (out.detach().cpu().double() - reference).norm() / reference.norm()
    return {"what": what, "error": float(error), "tolerance": TOLERANCE[dtype], "first_s": first, "steady_s": steady}


def first_line(error: BaseException) -> str:
    """The first line of an exception's text; torch's go on with pages of advice."""
    return str(error).strip().split("\n")[0]


def try_device(torch: Any, index: int) -> dict[str, Any]:
    """One member of "devices"; a failure on one device leaves the others to be tried."""
    answer: dict[str, Any] = {"index": index}
    try:
        step(f"device {index}")
        answer["name"] = torch.cuda.get_device_name(index)
        answer["capability"] = list(torch.cuda.get_device_capability(index))
        answer["runs"] = [convolve(torch, f"cuda:{index}", dtype) for dtype in ("float32", "float16")]
    except Exception as error:
        answer["failure"] = f"{type(error).__name__}: {first_line(error)}"
    return answer


def probe(options: dict[str, Any]) -> dict[str, Any]:
    """The answer that the contract describes, with import_s, file and *_failure texts."""
    step("import " + options.get("import_name", "torch"))
    begin = time.perf_counter()
    torch = importlib.import_module(options.get("import_name", "torch"))
    answer: dict[str, Any] = {"import_s": time.perf_counter() - begin, "version": str(torch.__version__)}
    answer.update(cuda=torch.version.cuda, file=getattr(torch, "__file__", None))
    if options.get("device"):
        # Asked first: without a usable driver the questions below warn or fail, and each says less than this one.
        step("torch.cuda.init")
        try:
            if torch.version.cuda is not None:
                torch.cuda.init()
        except Exception as error:
            answer["device_failure"] = f"{type(error).__name__}: {first_line(error)}"
    step("torch.backends.cudnn.version")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_tf32 = False
    answer["cpu"] = convolve(torch, "cpu", "float32")
    if torch.version.cuda is not None:
        try:
            answer["cudnn"] = torch.backends.cudnn.version()
            answer["cudnn_available"] = bool(torch.backends.cudnn.is_available())
        except Exception as error:
            answer["cudnn_failure"] = f"{type(error).__name__}: {first_line(error)}"
        flags = torch._C._cuda_getArchFlags() if hasattr(torch._C, "_cuda_getArchFlags") else None
        answer["arch_list"] = flags.split() if flags else list(torch.cuda.get_arch_list())
        answer["devices"] = []
        if options.get("device") and "device_failure" not in answer:
            count = torch.cuda.device_count()
            answer["devices"] = [try_device(torch, index) for index in range(count)]
    answer["mapped"] = mapped()
    return answer


def main() -> None:
    """Runs the probe and prints its one document."""
    warnings.simplefilter("ignore")
    try:
        answer = probe(json.loads(sys.argv[1]))
    except Exception as error:
        answer = {"failure": f"{type(error).__name__}: {first_line(error)}"}
    step("done")
    sys.stdout.write("\ngpuenv-probe: " + json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
