"""Imports a framework that has no probe of its own and says its version and what it mapped. Contract: __init__.py.

Options: {"import_name": NAME}. Runs on Python 3.9 and later; standard library and the framework only.
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


def probe(options: dict[str, Any]) -> dict[str, Any]:
    """The answer that the contract describes, as far as an import goes."""
    child.step("import " + options["import_name"])
    begin = time.perf_counter()
    module = importlib.import_module(options["import_name"])
    answer = {"import_s": time.perf_counter() - begin, "version": str(getattr(module, "__version__", ""))}
    return {**answer, "file": getattr(module, "__file__", None), "mapped": child.mapped()}


if __name__ == "__main__":
    child.main(probe)
