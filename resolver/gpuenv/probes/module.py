"""Imports a framework that has no probe of its own and says its version and what it mapped. Contract: __init__.py.

Options: {"import_name": NAME}. Runs on Python 3.9 and later; standard library and the framework only.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import time


def mapped() -> list[str]:
    """The libraries of NVIDIA's that /proc/self/maps names."""
    paths: dict[str, None] = {}
    with open("/proc/self/maps") as table:
        for line in table:
            path = line[line.find("/") :].rstrip("\n") if "/" in line else ""
            if re.match(r"lib(cu[a-z]+|nv[A-Za-z]+|nccl)[_A-Za-z0-9]*\.so", os.path.basename(path)):
                paths[path] = None
    return list(paths)


def main() -> None:
    """Runs the probe and prints its one document."""
    options = json.loads(sys.argv[1])
    sys.stderr.write("gpuenv-step: import " + options["import_name"] + "\n")
    sys.stderr.flush()
    begin = time.perf_counter()
    try:
        module = importlib.import_module(options["import_name"])
        version = str(getattr(module, "__version__", ""))
        answer = {"version": version, "file": getattr(module, "__file__", None), "mapped": mapped()}
        answer["import_s"] = time.perf_counter() - begin
    except Exception as error:
        answer = {"failure": f"{type(error).__name__}: {str(error).strip()}"}
    sys.stdout.write("\ngpuenv-probe: " + json.dumps(answer) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
