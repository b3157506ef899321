"""`conda doctor gpuenv` and its fixer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from . import command, of_conda
from .checks import TIMEOUT, WATCHED, check_line, examine, frameworks, records, summary, wheels


def health(prefix: str, verbose: bool) -> None:
    """The health check: prints what gpuenv finds in the environment."""
    constants = of_conda("base.constants")  # before 26.1 the marks were elsewhere
    good, wrong = getattr(constants, "OK_MARK", "ok"), getattr(constants, "X_MARK", "FAIL")
    if not WATCHED.keys() & records(prefix).keys() and not wheels(prefix):
        print(f"{good} gpuenv: no CUDA, cuDNN or framework of a GPU is in the environment.\n")
        return
    checks = examine(prefix, TIMEOUT)
    lines = summary(checks, prefix)
    bad = any(one["status"] == "fail" for one in checks)
    print(f"{wrong if bad else good} gpuenv: {lines[0].removeprefix(prefix + ': ')}")
    print("\n".join([check_line(one) for one in checks] if verbose else lines[1:]) + "\n")


def fix(prefix: str, _arguments: Any, confirm: Callable[[str], None]) -> int:
    """The fixer: solves for this host, shows what would change, and installs it once the user has agreed.

    `confirm` raises where the user declines or the run is dry: nothing has been written to the environment by then.
    """
    import subprocess
    import tempfile

    packages = records(prefix)
    bad = [one for one in examine(prefix, TIMEOUT) if one["status"] == "fail"]
    if not bad:
        print("gpuenv: no check fails, nothing is to be fixed.")
        return 0
    print("\n".join(check_line(one) for one in bad))
    names = frameworks(packages)
    if not names:
        print("gpuenv: no framework is installed that a solution could be looked for.")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        lock = os.path.join(folder, "explicit.txt")
        flags = [flag for name in names for flag in ("--framework", name)]
        flags += ["--python", ".".join(packages["python"].split(".")[:2])] if "python" in packages else []
        # gpuenv takes one channel at a time: what "defaults" stands for is left to its own default.
        channels = [str(one) for one in of_conda("base.context").context.channels if one != "defaults"]
        flags += [flag for one in channels for flag in ("--channel", one)]
        solve = ["solve", "--backend", "conda", "--format", "conda-explicit", *flags, "-o", lock]
        if subprocess.run(command(solve), cwd=folder, check=False).returncode or not os.path.exists(lock):
            print("gpuenv: no solution was found, nothing was changed.")
            return 1
        confirm(f"Install these builds into {prefix}?")
        install = [sys.executable, "-P", "-m", "conda", "install", "--yes", "--prefix", prefix, "--file", lock]
        return subprocess.run(install, check=False).returncode
