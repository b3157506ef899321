"""The checks of an environment: those of `gpuenv verify`."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any, TypedDict

from . import command

TIMEOUT = 120.0  # seconds, for the checks after a transaction
DRY_RUN_TIMEOUT = 30.0
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


def examine(prefix: str) -> list[Check]:
    """Return the checks of `gpuenv verify`.

    Raises:
        RuntimeError: gpuenv gave no checks; the text says why.
    """
    own_limit = str(max(1.0, TIMEOUT - END_SECONDS))
    arguments = ["verify", "--json", "--target", prefix, "--timeout", own_limit]
    checks: list[Check] = run_gpuenv(arguments, prefix, TIMEOUT)["checks"]
    return checks


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
