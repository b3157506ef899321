"""Import a distribution and load its libraries, and run one small operation of it on every device.

Options: {"name": distribution, "frameworks": modules that are imported first, "modules": its
modules, "files": its libraries, "suspects": its extension modules that may not fit the NumPy,
"device": bool, "devices": int}. With "device" false it must not touch a GPU.

A package may hide that it cannot load a library: it warns and goes on without its kernels, or it
tries one file after the other. So each library that the imports have not loaded is loaded in a
process of its own: two of them may register the same operators, which ends the process.

Answers with answers.CompanionAnswer. Runs on Python 3.8 and later; standard library and the
distribution only.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import signal
import sys
import tempfile
from typing import TypedDict

from ._common import mapped_libraries, run, step
from ._framework import failure, logged
from .answers import CompanionAnswer
from .operations import OPERATIONS

NUMPY = "compiled using NumPy 1.x cannot be run in|compiled against NumPy C-API version"
# What the loader says, also where a package quotes it in the middle of a long text.
LOADER = re.compile(
    r"\S+: cannot open shared object file|(?:\S+: )?undefined symbol: \S+|"
    r"\S+: version \S+ not found"
)


class Options(TypedDict):
    """The options of this probe."""

    name: str
    frameworks: list[str]
    modules: list[str]
    files: list[str]
    suspects: list[str]
    device: bool
    devices: int


def describe(error: BaseException) -> str:
    """Return an exception and its first cause, and what the loader said in a long text."""
    text, first = failure(error), error
    while first.__cause__ or first.__context__:
        first = first.__cause__ or first.__context__ or first
    cause = failure(first)
    words = dict.fromkeys(LOADER.findall(f"{error} {first}"))
    parts = [text] if cause in text else [text, cause]
    return " | ".join([*parts, *[word for word in list(words)[:3] if word not in text + cause]])


def try_import(name: str) -> str:
    """Return why a module cannot be imported; "" if it can."""
    step("import " + name)
    try:
        importlib.import_module(name)
    except Exception as error:
        return describe(error)
    return ""


def load(path: str) -> str:
    """Return why a library cannot be loaded; "" if it can."""
    step("load " + path)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            ctypes.CDLL(path, mode=os.RTLD_NOW)
        except OSError as error:
            os.write(writer, str(error).encode()[:4000])
        os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8", errors="replace") as stream:
        text = stream.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return text


def try_operation(options: Options, answer: CompanionAnswer) -> None:
    """Run the operation of the distribution, if there is one, on each device.

    All of them use torch: without a torch for CUDA none is run.
    """
    operation = OPERATIONS.get(options["name"])
    if operation is None or not options["device"] or try_import("torch"):
        return
    if getattr(getattr(sys.modules["torch"], "version", None), "cuda", "") is None:
        return
    answer["operation"] = []
    for index in range(options["devices"]):
        step(f"{operation.__name__} on cuda:{index}")
        try:
            wrong = operation(f"cuda:{index}")
        except Exception as error:
            wrong = describe(error)
        answer["operation"].append(wrong)


def probe(options: Options) -> CompanionAnswer:
    """Return the answer that this file's docstring describes.

    What an import writes into caches and settings is removed, and Hugging Face is not asked.
    """
    with tempfile.TemporaryDirectory(prefix="gpuenv-probe-") as folder:
        os.environ.update(XDG_CACHE_HOME=folder, XDG_CONFIG_HOME=folder, HF_HUB_OFFLINE="1")
        os.environ["NUMBA_CACHE_DIR"] = folder  # otherwise the __pycache__ of each package
        setting = choose_keras_backend()
        answer = examine(options)
    if setting and options["name"] == "keras":
        answer["setting"] = setting
    return answer


def choose_keras_backend() -> str:
    """Let Keras 3 take a framework that is installed, if TensorFlow is not. Return the setting."""
    installed = [name for name in ("tensorflow", "jax", "torch") if importlib.util.find_spec(name)]
    if not installed or installed[0] == "tensorflow" or "KERAS_BACKEND" in os.environ:
        return ""
    os.environ["KERAS_BACKEND"] = installed[0]
    return f"KERAS_BACKEND={installed[0]}"


def examine(options: Options) -> CompanionAnswer:
    """Import, load and run what the options name."""
    answer: CompanionAnswer = {"failures": {}, "loads": {}, "numpy": ""}
    for name in options["frameworks"]:
        text = try_import(name)
        if text:
            answer["framework"] = f"import {name}: {text}"
            return answer
    start = os.fstat(2).st_size  # what a framework has printed until here is its own fault
    for name in (*options["modules"], *options["suspects"]):
        text = try_import(name)
        if text:
            answer["failures"][name] = text
    answer["numpy"] = logged(NUMPY, start)
    mapped = {os.path.realpath(path) for path in mapped_libraries(re.compile(""))}
    for path in options["files"]:
        if os.path.realpath(path) in mapped:
            answer["loads"][path] = None
        else:
            answer["loads"][path] = load(path)
    if not answer["failures"]:
        try_operation(options, answer)
    return answer


if __name__ == "__main__":
    run(probe)
