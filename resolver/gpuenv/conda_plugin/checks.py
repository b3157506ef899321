"""The checks of an environment: those of `gpuenv verify`, and those of conda's own records."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from ..prefix import find_interpreter
from . import command
from .packages import cudnn_wheels, installed_packages

TIMEOUT = 120.0  # seconds, for the checks after a transaction
DETECT_TIMEOUT = 30.0  # of them, for the look at the driver
END_SECONDS = 5.0  # of them, for a verification to end its own child processes
SHOWN = 6  # failed checks that a message names
_MARKS = {"pass": "ok  ", "fail": "FAIL"}


class Check(TypedDict):
    """One check, as `gpuenv verify --json` has it. `status` is pass, fail or unknown."""

    name: str
    subject: str
    status: str
    evidence: str
    seconds: float


def examine(prefix: str, timeout: float) -> list[Check]:
    """Return the checks of `gpuenv verify`, and those of conda's own records.

    Raises:
        RuntimeError: gpuenv gave no checks; the text says why.
    """
    deadline = time.monotonic() + timeout
    packages = installed_packages(prefix)
    own = [*cuda_check(packages, os.environ), *cudnn_check(packages, cudnn_wheels(prefix))]
    if find_interpreter(prefix) is None:
        return own
    seconds_left = deadline - time.monotonic()
    own_limit = str(max(1.0, seconds_left - END_SECONDS))
    arguments = ["verify", "--json", "--target", prefix, "--timeout", own_limit]
    checks: list[Check] = run_gpuenv(arguments, prefix, seconds_left)["checks"]
    names = {(check["name"], check["subject"]) for check in checks}
    return [*checks, *(check for check in own if (check["name"], check["subject"]) not in names)]


def run_gpuenv(arguments: Sequence[str], folder: str, timeout: float) -> dict[str, Any]:
    """Return the JSON document that gpuenv writes in a child process.

    Raises:
        RuntimeError: It wrote none in time; the text is its last line on stderr.
    """
    try:
        child = subprocess.run(
            command(arguments), cwd=folder, capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"gpuenv {arguments[0]} did not end within {timeout:.0f} s") from None
    try:
        document = json.loads(child.stdout)
    except ValueError:
        document = None
    if not isinstance(document, dict) or child.returncode not in (0, 1):
        lines = child.stderr.decode(errors="replace").strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"gpuenv ended with {child.returncode}")
    return document


def cuda_check(packages: Mapping[str, str], env: Mapping[str, str]) -> list[Check]:
    """Compare the driver's CUDA with the environment's (R1).

    conda's solvers ignore `constrains: __cuda` where nothing depends on __cuda.
    """
    installed = packages.get("cuda-version") or packages.get("cudatoolkit")
    if installed is None:
        return []
    source, driver = "CONDA_OVERRIDE_CUDA says", env.get("CONDA_OVERRIDE_CUDA")
    if not driver:
        source = "this host's driver runs"
    if driver is None:
        driver = _driver_cuda()
    major = driver.partition(".")[0]
    evidence = f"CUDA {installed} is installed, {source} CUDA {driver}"
    if not major.isdigit():
        status = "unknown"
        evidence = f"CUDA {installed} is installed, and no driver is known that would run it"
    elif int(major) >= int(installed.partition(".")[0]):
        status = "pass"
    elif "cuda-compat" in packages:
        status, evidence = "unknown", f"{evidence}, and cuda-compat is to bridge that"
    else:
        status, evidence = "fail", f"{evidence} and nothing newer than {major}.x"
    return [_check("driver", "cuda-version", status, evidence)]


def _driver_cuda() -> str:
    """Return the CUDA of this host's driver, "" if it is unknown."""
    host = run_gpuenv(["detect", "--json"], os.curdir, DETECT_TIMEOUT)
    return ".".join(map(str, host.get("driver_cuda") or ()))


def cudnn_check(packages: Mapping[str, str], wheels: Mapping[str, tuple[str, str]]) -> list[Check]:
    """Name the cuDNN of conda and that of pip where one environment has both (R5)."""
    version = packages.get("libcudnn") or packages.get("cudnn")
    if version is None or not wheels:
        return []
    names = []
    for name, (wheel_version, folder) in sorted(wheels.items()):
        names.append(f"{name} {wheel_version} ({folder})")
    evidence = (
        f"cudnn {version} of conda and {', '.join(names)} of pip: "
        "imports decide which one a process gets"
    )
    return [_check("owners", "cuDNN", "fail", evidence)]


def _check(name: str, subject: str, status: str, evidence: str) -> Check:
    return {
        "name": name,
        "subject": subject,
        "status": status,
        "evidence": evidence,
        "seconds": 0.0,
    }


def failed(checks: Sequence[Check]) -> list[Check]:
    """Return the checks that failed."""
    return [check for check in checks if check["status"] == "fail"]


def summary(checks: Sequence[Check], prefix: str) -> list[str]:
    """Return a line with the counts, then one for each of the first checks that failed."""
    statuses = [check["status"] for check in checks]
    passed, unknown = statuses.count("pass"), statuses.count("unknown")
    failures = [check_line(check) for check in failed(checks)]
    lines = [f"{prefix}: {passed} checks passed, {len(failures)} failed, {unknown} unknown"]
    lines += failures[:SHOWN]
    if len(failures) > SHOWN:
        more = len(failures) - SHOWN
        lines.append(f"  and {more} more: conda gpuenv verify --target {prefix}")
    return lines


def check_line(check: Check) -> str:
    """Return one check as a line for people."""
    title = " ".join(filter(None, (check["name"], check["subject"])))
    return f"  {_MARKS.get(check['status'], '?   ')} {title}: {check['evidence']}"
