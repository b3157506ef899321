"""Start one probe: python -B [-I] _run.py [--parent=PID] PROBE.py OPTIONS.

With --parent the probe is killed when its parent ends, however it ends (Linux, prctl(2)).

The probe runs as __main__ of a package named gpuenv_probes, whose folder is the folder of the
probe. Probes share code by relative imports (`from ._common import step`), so this folder is never
on sys.path, where its torch.py would shadow the real torch. Nothing that is installed in the target
environment can replace a module of the package, because the package is registered here before any
import.

Runs on Python 3.8 and later; standard library only.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
from types import ModuleType

PACKAGE = "gpuenv_probes"
PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent ends."""
    if sys.platform != "linux":
        return
    try:
        import ctypes
    except ImportError:  # a Python without libffi
        return
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the setting
        sys.exit(1)


def main() -> None:
    """Run the probe; it finds its options in sys.argv[1]."""
    if sys.argv[1].startswith("--parent="):
        end_with_parent(int(sys.argv.pop(1).partition("=")[2]))
    path = os.path.abspath(sys.argv.pop(1))
    folder, file_name = os.path.split(path)
    if not sys.flags.isolated:
        sys.path = [entry for entry in sys.path if entry != os.path.dirname(__file__)]
    package = ModuleType(PACKAGE)
    package.__path__ = [folder]
    sys.modules[PACKAGE] = package
    name = os.path.splitext(file_name)[0]
    runpy.run_module(f"{PACKAGE}.{name}", run_name="__main__")


if __name__ == "__main__":
    main()
