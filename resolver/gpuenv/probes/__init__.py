"""Stand-alone scripts that the target's interpreter runs: standard library, ctypes and one framework each.

The contract between a probe and whoever runs it:

- It runs on Python 3.9 and later, in a child process, and imports nothing of gpuenv.
- Its one argument is a JSON object. The framework probes understand {"import_name": str, "device": bool}; "device"
  false forbids touching a GPU.
- On stderr it says what it is about to do, one line a step, as `gpuenv-step: TEXT`, so that a crash or a hang can be
  told together with the step that it happened in.
- On stdout it prints one line `gpuenv-probe: {JSON}`. Anything else there is noise of the libraries.
- An exception is an answer too: {"failure": "TypeName: text"}.
- A framework probe answers {"version": str, "cuda": "13.0" or "13" | null for a build for the CPU, "cudnn": int | null,
  "arch_list": [str], "cpu": RUN, "devices": [{"index": int, "name": str, "capability": [9, 0], "runs": [RUN]} or the
  same with "failure": str], "mapped": [PATH]} where RUN is {"what": str, "error": relative error, "tolerance": float,
  "first_s": s, "steady_s": s}; keys that a framework has no answer for are left out. "mapped" are the CUDA and
  framework libraries of /proc/self/maps when all is done. "first_s" is the first call, in which libraries load their
  kernels and programs are compiled, "steady_s" the shortest of those after it.
- Instead of devices: "device_failure", why none can be used; "aside", why none was tried though nothing is wrong (the
  user's own choice, a build for other GPUs). "cudnn_failure" is a cuDNN that the framework cannot use, and
  "without_cudnn" why a framework that needs none did without.
- Lines of stderr that tell why a library went on without a GPU are part of a failure's text.

_child.py holds what the framework probes share: the convolution, its exact result, and all of the above.
A framework whose data file names a probe that is not here is only imported (module.py).
"""
