"""Import torch and convolve: on the CPU, and with cuDNN on every visible device.

Contract: __init__.py. Runs on Python 3.8 and later; standard library and torch only. TF32 is
switched off in this process, so that float32 means float32.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from types import ModuleType

from ._common import step
from ._framework import Array, Framework, failure, main
from ._reference import INPUT, WEIGHT
from .answers import FrameworkAnswer, Run


class Torch(Framework):
    """PyTorch. A device is "cuda:N" or "cpu"."""

    def build(self, module: ModuleType) -> FrameworkAnswer:
        self.torch = module
        module.backends.cudnn.allow_tf32 = False
        answer: FrameworkAnswer = {"cuda": module.version.cuda}
        if getattr(module.version, "hip", None):
            answer["aside"] = f"a ROCm {module.version.hip} build: it is for AMD GPUs"
        if importlib.util.find_spec("numpy") is not None:
            # A torch that was built for another NumPy is imported with a warning only.
            step("Tensor.numpy")
            try:
                module.zeros(1).numpy()
            except Exception as error:
                answer["numpy_failure"] = failure(error, "compiled using NumPy")
        return answer

    def devices(self) -> Sequence[str]:
        # Without a usable driver the calls below warn or fail with less information than this one.
        step("torch.cuda.init")
        self.torch.cuda.init()
        return [f"cuda:{index}" for index in range(self.torch.cuda.device_count())]

    def describe(self, device: str) -> tuple[str, Sequence[int]]:
        cuda, index = self.torch.cuda, int(device.partition(":")[2])
        return cuda.get_device_name(index), cuda.get_device_capability(index)

    def convolve(self, device: str, dtype: str) -> list[Run]:
        torch, torch_type = self.torch, getattr(self.torch, dtype)
        images = torch.tensor(self.images).reshape(INPUT).to(torch_type).to(device)
        filters = torch.tensor(self.filters).reshape(WEIGHT).to(torch_type).to(device)

        def once() -> Array:
            result = torch.nn.functional.conv2d(images, filters, padding=1)
            if device != "cpu":
                torch.cuda.synchronize(device)
            return result

        def values(result: Array) -> Array:
            return result.cpu().double().flatten().tolist()

        with torch.no_grad():
            return [self.measure(f"Conv2d {dtype} on {device}", dtype, once, values)]

    def versions(self) -> FrameworkAnswer:
        if self.torch.version.cuda is None:
            return {}
        step("torch.backends.cudnn.version")
        try:
            return {"cudnn": self.torch.backends.cudnn.version()}
        except Exception as error:
            return {"cudnn_failure": failure(error)}


if __name__ == "__main__":
    main(Torch)
