"""`conda doctor gpuenv` and its fixer."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable

from gpuenv_conda_plugin import import_conda

from ..install import conda_prefix
from ..prefix import find_interpreter
from . import command
from .checks import DRY_RUN_TIMEOUT, check_line, examine, failed, run_gpuenv, summary
from .packages import cudnn_wheels, watched_in


def report_health(prefix: str, verbose: bool) -> None:
    """Print what gpuenv finds in the environment."""
    constants = import_conda("base.constants")
    # Before conda 26.1 the marks were elsewhere.
    ok_mark = getattr(constants, "OK_MARK", "ok")
    fail_mark = getattr(constants, "X_MARK", "FAIL")
    if not watched_in(prefix) and not cudnn_wheels(prefix):
        print(f"{ok_mark} gpuenv: no CUDA, cuDNN or framework of a GPU is in the environment.\n")
        return
    checks = examine(prefix)
    counts, *details = summary(checks, prefix)
    mark = fail_mark if failed(checks) else ok_mark
    if verbose:
        details = [check_line(check) for check in checks]
    print(f"{mark} gpuenv: {counts.removeprefix(prefix + ': ')}")
    print("\n".join(details) + "\n")


def fix(prefix: str, _arguments: object, confirm: Callable[[str], None]) -> int:
    """Solve for this host, show what would change, install it if the user agrees, check again.

    As little as possible changes. Pins, earlier requests and what packages need of each other hold.

    Args:
        prefix: The environment.
        confirm: Asks the user, and raises where the user declines or conda runs dry. Until then
            nothing is written to the environment.

    Returns:
        The exit status: 1 if the environment is not repaired.
    """
    failures = failed(examine(prefix))
    if not failures:
        print("gpuenv: no check fails, so there is nothing to fix.")
        return 0
    print("\n".join(check_line(check) for check in failures))
    if any(check["name"] == "owners" for check in failures) and not _remove_cudnn(prefix, confirm):
        return 1
    if any(check["name"] != "owners" for check in failures) and not _repair(prefix, confirm):
        return 1
    failures = failed(examine(prefix))
    if failures:
        print("gpuenv: these checks still fail:")
        print("\n".join(check_line(check) for check in failures))
        return 1
    print("gpuenv: the environment is repaired: no check fails.")
    return 0


def _repair(prefix: str, confirm: Callable[[str], None]) -> bool:
    """Install other builds. Return whether it was done."""
    with tempfile.TemporaryDirectory() as folder:
        lock = os.path.join(folder, "explicit.txt")
        solve = ["solve", "--repair", prefix, "-o", lock, "--quiet"]
        if subprocess.run(command(solve), cwd=folder, check=False).returncode:
            print("gpuenv: no builds fit this host and the environment; nothing was changed.")
            return False
        sync = ["sync", lock, "--target", prefix]
        changes = run_gpuenv([*sync, "--dry-run", "--json"], folder, DRY_RUN_TIMEOUT)
        if "error" in changes:
            print(f"gpuenv: {changes['error']['message']}")
            return False
        lines = [
            f"  {kind}  {package['name']} {package['before']} -> {package['after']}"
            for kind in ("add", "change", "again", "remove")
            for package in changes[kind]
        ]
        if not lines:
            print("gpuenv: the builds fit this host; something else is broken: gpuenv doctor.")
            return False
        print("\n".join(lines))
        confirm(f"Change these packages in {prefix}?")
        done = subprocess.run(command([*sync, "--yes", "--no-verify"]), cwd=folder, check=False)
        return done.returncode == 0


def _remove_cudnn(prefix: str, confirm: Callable[[str], None]) -> bool:
    """Uninstall the cuDNN of pip beside that of conda. Return whether it was done."""
    wheels = cudnn_wheels(prefix)
    needed = [
        f"{wheel.name} of pip needs {name}"
        for name in wheels
        for wheel in conda_prefix.wheels_in(prefix)
        for requirement in conda_prefix.requirements_of(wheel)
        if requirement.name == name and "extra" not in (requirement.marker or "")
    ]
    if needed:
        print(f"gpuenv: nothing was changed: {'; '.join(needed)}.")
        print("  Uninstall these wheels, and install their packages with conda instead.")
        return False
    confirm(f"Uninstall {', '.join(wheels)} (pip) from {prefix}?")
    python = [str(find_interpreter(prefix)), "-m", "pip", "uninstall", "--yes"]
    return subprocess.run([*python, *wheels], check=False).returncode == 0
