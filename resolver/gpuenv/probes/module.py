"""Import a framework that has no probe of its own, and report its version and libraries.

Contract: __init__.py.

Options: {"import_name": NAME}. Runs on Python 3.9 and later; standard library and the framework
only.
"""

from __future__ import annotations

import importlib
import time

from ._common import step
from ._framework import Options, main, mapped
from .answers import FrameworkAnswer


def probe(options: Options) -> FrameworkAnswer:
    """Return the answer of the contract as far as an import goes."""
    step("import " + options["import_name"])
    begin = time.perf_counter()
    module = importlib.import_module(options["import_name"])
    return {
        "import_s": time.perf_counter() - begin,
        "version": str(getattr(module, "__version__", "")),
        "file": getattr(module, "__file__", None),
        "mapped": mapped(),
    }


if __name__ == "__main__":
    main(probe)
