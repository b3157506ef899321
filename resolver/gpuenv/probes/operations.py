"""One small operation on a device for each distribution that has kernels of its own.

Each function gets a device of torch ("cuda:0"), and returns "" or what is wrong with the result.
To add a distribution, add a function and its row in OPERATIONS.

Runs on Python 3.8 and later; standard library and the distribution only.
"""

from __future__ import annotations

import importlib
import os
import tempfile
from typing import Any, Callable  # of collections.abc it has no arguments in Python 3.8

Operation = Callable[[str], str]
Array = Any  # a tensor: torch is not installed where the types are checked
tl: Any = None  # triton.language: a kernel may use a module of this name only


def difference(result: Array, expected: Array, limit: float) -> str:
    """Return "" if no value differs by more than a limit; NaN never passes."""
    largest = float((result.float().cpu() - expected.float().cpu()).abs().max())
    return "" if largest <= limit else f"a value differs by {largest:.3g}, more than {limit:g}"


def check_attention(attend: Callable[..., Array], device: str) -> str:
    """Compare attention in the layout [batch, sequence, head, value] with that of the CPU.

    The queries, keys and values are in float16, and the same at each call.
    """
    torch = importlib.import_module("torch")
    generator = torch.Generator().manual_seed(1)
    shape = (2, 32, 4, 64)
    inputs = [torch.randn(shape, generator=generator).half().to(device) for _ in range(3)]
    result = attend(*inputs)
    heads_first = [array.float().cpu().transpose(1, 2) for array in inputs]
    expected = torch.nn.functional.scaled_dot_product_attention(*heads_first).transpose(1, 2)
    return difference(result, expected, 1e-2)


def nms(device: str) -> str:
    """torchvision: of three boxes, the second overlaps the first."""
    torch, ops = importlib.import_module("torch"), importlib.import_module("torchvision.ops")
    corners = [[0.0, 0.0, 10.0, 10.0], [1.0, 1.0, 11.0, 11.0], [20.0, 20.0, 30.0, 30.0]]
    boxes = torch.tensor(corners, device=device)
    kept = ops.nms(boxes, torch.tensor([0.9, 0.8, 0.7], device=device), 0.5).tolist()
    return "" if kept == [0, 2] else f"the boxes {kept} are kept, not [0, 2]"


def lfilter(device: str) -> str:
    """torchaudio: a recursive filter, as on the CPU."""
    torch = importlib.import_module("torch")
    functional = importlib.import_module("torchaudio.functional")
    sound = torch.sin(torch.arange(64.0)).reshape(1, 64)
    factors = torch.tensor([1.0, 0.1, 0.2]), torch.tensor([0.4, 0.2, 0.9])
    expected = functional.lfilter(sound, *factors)
    return difference(
        functional.lfilter(sound.to(device), *[row.to(device) for row in factors]), expected, 1e-4
    )


def memory_efficient_attention(device: str) -> str:
    """xformers: attention by its own kernels."""
    ops = importlib.import_module("xformers.ops")
    return check_attention(ops.memory_efficient_attention, device)


def flash_attn_func(device: str) -> str:
    """flash-attn: a forward pass."""
    return check_attention(importlib.import_module("flash_attn").flash_attn_func, device)


def quantize_blockwise(device: str) -> str:
    """bitsandbytes: 8 bits for each value, and back."""
    torch = importlib.import_module("torch")
    functional = importlib.import_module("bitsandbytes.functional")
    values = torch.linspace(-1, 1, 4096).to(device)
    return difference(
        functional.dequantize_blockwise(*functional.quantize_blockwise(values)), values, 0.05
    )


def scatter(device: str) -> str:
    """torch-scatter: sums of four values by index."""
    torch = importlib.import_module("torch")
    torch_scatter = importlib.import_module("torch_scatter")
    index = torch.tensor([0, 1, 0, 1], device=device)
    result = torch_scatter.scatter(torch.arange(4.0, device=device), index, reduce="sum").tolist()
    return "" if result == [2.0, 4.0] else f"the sums are {result}, not [2, 4]"


def add_one(values, count):  # type: ignore[no-untyped-def]  # triton reads annotations
    """Add 1 to each value: the kernel of `jit`, which compiles this source."""
    places = tl.program_id(0) * 64 + tl.arange(0, 64)
    within = places < count
    tl.store(values + places, tl.load(values + places, mask=within) + 1, mask=within)


def jit(device: str) -> str:
    """triton: compile a kernel and run it. It calls a C compiler; its cache is not touched."""
    global tl  # noqa: PLW0603  the name that the kernel uses
    torch, triton = importlib.import_module("torch"), importlib.import_module("triton")
    tl = importlib.import_module("triton.language")
    values = torch.arange(100.0, device=device)
    with tempfile.TemporaryDirectory(prefix="gpuenv-probe-") as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        with torch.cuda.device(device):
            triton.jit(add_one)[(2,)](values, 100)
    return difference(values, torch.arange(100.0) + 1, 0)


OPERATIONS: dict[str, Operation] = {
    "bitsandbytes": quantize_blockwise,
    "flash-attn": flash_attn_func,
    "torch-scatter": scatter,
    "torchaudio": lfilter,
    "torchvision": nms,
    "triton": jit,
    "xformers": memory_efficient_attention,
}
