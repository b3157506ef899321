"""`conda doctor gpuenv` and its fixer."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable

from . import command, import_conda
from .checks import TIMEOUT, check_line, examine, failed, summary
from .packages import cudnn_wheels, frameworks_of, installed_packages, watched_among


def report_health(prefix: str, verbose: bool) -> None:
    """Print what gpuenv finds in the environment."""
    constants = import_conda("base.constants")
    # Before conda 26.1 the marks were elsewhere.
    ok_mark = getattr(constants, "OK_MARK", "ok")
    fail_mark = getattr(constants, "X_MARK", "FAIL")
    if not watched_among(installed_packages(prefix)) and not cudnn_wheels(prefix):
        print(f"{ok_mark} gpuenv: no CUDA, cuDNN or framework of a GPU is in the environment.\n")
        return
    checks = examine(prefix, TIMEOUT)
    counts, *details = summary(checks, prefix)
    mark = fail_mark if failed(checks) else ok_mark
    if verbose:
        details = [check_line(check) for check in checks]
    print(f"{mark} gpuenv: {counts.removeprefix(prefix + ': ')}")
    print("\n".join(details) + "\n")


def fix(prefix: str, _arguments: object, confirm: Callable[[str], None]) -> int:
    """Solve for this host, show what would change, and install it if the user agrees.

    Args:
        prefix: The environment.
        confirm: Asks the user, and raises where the user declines or conda runs dry. Until then
            nothing is written to the environment.

    Returns:
        The exit status.
    """
    failures = failed(examine(prefix, TIMEOUT))
    if not failures:
        print("gpuenv: no check fails, so there is nothing to fix.")
        return 0
    print("\n".join(check_line(check) for check in failures))
    packages = installed_packages(prefix)
    frameworks = frameworks_of(packages)
    if not frameworks:
        print("gpuenv: no framework is installed to solve for.")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        lock = os.path.join(folder, "explicit.txt")
        solve = ["solve", "--backend", "conda", "--format", "conda-explicit", "-o", lock]
        solve += _solve_flags(frameworks, packages.get("python"))
        status = subprocess.run(command(solve), cwd=folder, check=False).returncode
        if status or not os.path.exists(lock):
            print("gpuenv: no solution was found, nothing was changed.")
            return 1
        confirm(f"Install these builds into {prefix}?")
        conda = [sys.executable, "-P", "-m", "conda"]
        install = [*conda, "install", "--yes", "--prefix", prefix, "--file", lock]
        return subprocess.run(install, check=False).returncode


def _solve_flags(frameworks: list[str], python: str | None) -> list[str]:
    flags = []
    for framework in frameworks:
        flags += ["--framework", framework]
    if python is not None:
        flags += ["--python", ".".join(python.split(".")[:2])]
    # gpuenv reads one channel at a time: what "defaults" stands for is left to its own default.
    for channel in import_conda("base.context").context.channels:
        if channel != "defaults":
            flags += ["--channel", str(channel)]
    return flags
