"""Shared by all probes.

Steps on stderr, the answer on stdout, mapped libraries, version numbers of cuDNN.

Runs on Python 3.8 and later; standard library only.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

MAIN_CUDNN = re.compile(r"libcudnn\.so\.([0-9]+)")


def step(text: str) -> None:
    """Write to stderr what comes next: after a crash it tells which action caused it."""
    sys.stderr.write(f"gpuenv-step: {text}\n")
    sys.stderr.flush()


def run(
    probe: Callable[[Any], Mapping[str, object]],
    describe_error: Callable[[BaseException], str] | None = None,
) -> None:
    """Run a probe with the options of the command line, write its answer and end the process.

    The process ends without destructors: those of the libraries are not under test and take time.

    Warnings are not shown. Without a device, no framework sees a GPU.

    Args:
        probe: returns the answer to the options.
        describe_error: the text of an exception; by default its type and its text.
    """
    warnings.simplefilter("ignore")
    options = json.loads(sys.argv[1])
    if options.get("device") is False:  # before a framework is imported
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    try:
        answer = probe(options)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        answer = {"failure": text if describe_error is None else describe_error(error)}
    step("done")
    sys.stdout.write("\ngpuenv-probe: " + json.dumps(answer) + "\n")
    sys.stdout.flush()
    os._exit(0)


def mapped_libraries(pattern: re.Pattern[str]) -> list[str]:
    """Return the files of /proc/self/maps whose base name matches, each once, in its order."""
    paths: dict[str, None] = {}
    with open("/proc/self/maps") as table:
        for line in table:
            start = line.find("/")
            if start < 0:
                continue
            path = line[start:].rstrip("\n")
            if pattern.match(os.path.basename(path)):
                paths[path] = None
    return list(paths)


def main_cudnn(folder: str) -> str | None:
    """Return the file name of the libcudnn.so.N with the highest N in a folder.

    None if there is none.
    """
    majors = []
    for name in os.listdir(folder):
        match = MAIN_CUDNN.fullmatch(name)
        if match:
            majors.append(int(match[1]))
    if not majors:
        return None
    return f"libcudnn.so.{max(majors)}"


def cudnn_text(number: int) -> str:
    """Return 9.20.0 for 92000, and 8.9.7 for 8907."""
    return ".".join(map(str, cudnn_release(number)))


def cudnn_release(number: int) -> tuple[int, int, int]:
    """Return (9, 20, 0) for 92000 and (8, 9, 7) for 8907.

    Source: cudnn_version.h. The encoding changed with 9.0.
    """
    if number >= 90000:
        return number // 10000, number // 100 % 100, number % 100
    return number // 1000, number // 100 % 10, number % 100
