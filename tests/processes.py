"""Programs that tests run, and the processes below this one that a test has left behind."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import time
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h


def run_program(
    command: Sequence[str | Path], timeout: float = 120, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, whatever its status. The options are those of subprocess."""
    return subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=timeout, **options
    )


def adopt_orphans() -> None:
    """Make this process the parent of what its children leave behind, so that it is seen here."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def running() -> set[int]:
    """The children of this process, including those that ended and were not waited for.

    Empty where there is no /proc.
    """
    found: set[int] = set()
    try:
        tasks = os.listdir("/proc/self/task")
    except OSError:
        return found
    for task in tasks:
        try:
            with open(f"/proc/self/task/{task}/children", "rb", buffering=0) as file:
                found.update(map(int, file.read().split()))
        except OSError:  # the thread has ended
            continue
    return found


def left_over(before: Set[int], seconds: float) -> list[str]:
    """The command lines of new children that are still running after a wait of `seconds` at most.

    They are killed, so that only one test fails because of them.
    """
    end = time.monotonic() + seconds
    while new := {number for number in running() - before if not _has_ended(number)}:
        if time.monotonic() > end:
            break
        time.sleep(0.01)
    lines = [_command_line(number) for number in sorted(new)]
    for number in new:
        _end(number)
    return lines


def _has_ended(number: int) -> bool:
    """Whether a child has ended; it is waited for then, as it is an orphan or nobody did."""
    try:
        return os.waitpid(number, os.WNOHANG)[0] == number
    except ChildProcessError:
        return True


def _command_line(number: int) -> str:
    try:
        data = Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return f"process {number}"
    return f"{number}: {data.decode(errors='replace').replace(chr(0), ' ').strip()}"


def _end(number: int) -> None:
    try:
        os.kill(number, 9)
        os.waitpid(number, 0)
    except (ProcessLookupError, ChildProcessError):
        pass
