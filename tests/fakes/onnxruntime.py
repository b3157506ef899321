"""As much of ONNX Runtime as the probe asks for.

FAKE_LOG is what its C++ says when its CUDA library cannot be loaded: the session is then one of the
CPU. With FAKE_ON_CPU the session has the GPU's provider and runs the node on the CPU.
"""

import json
import os
from types import SimpleNamespace as Space

import fake_arrays
from fake_arrays import CPU, count

__version__, cuda_version = "1.30.0", "13.0"
GraphOptimizationLevel = Space(ORT_DISABLE_ALL=0)


class SessionOptions:
    enable_profiling, profile_file_prefix = False, ""


def get_available_providers():
    return ["CUDAExecutionProvider", "CPUExecutionProvider"]


def preload_dlls():
    fake_arrays.open_libraries()


class InferenceSession:
    def __init__(self, model, sess_options, providers, enable_fallback):
        assert enable_fallback == 0
        self.options, self.device = sess_options, CPU
        chosen = providers[0]
        if chosen != "CPUExecutionProvider":
            if "FAKE_LOG" in os.environ:
                fake_arrays.say(os.environ["FAKE_LOG"])
            elif int(chosen[1]["device_id"]) >= count:
                raise RuntimeError("CUDA failure 101: invalid device ordinal")
            else:
                self.device = int(chosen[1]["device_id"])
        assert b"Conv" in model and b"pads" in model

    def get_providers(self):
        return ["CPUExecutionProvider"] if self.device == CPU else get_available_providers()

    def run(self, names, inputs):
        return [fake_arrays.convolve(inputs["x"], inputs["w"], self.device)]

    def end_profiling(self):
        on_cpu = self.device == CPU or "FAKE_ON_CPU" in os.environ
        provider = "CPUExecutionProvider" if on_cpu else "CUDAExecutionProvider"
        path = self.options.profile_file_prefix + "_1.json"
        with open(path, "w") as stream:
            json.dump(
                [
                    {"cat": "Node", "args": {"op_name": "Conv", "provider": provider}},
                    {"cat": "Session"},
                ],
                stream,
            )
        return path
