"""`gpuenv verify --hook` and `--format`: an end in time even if the driver hangs.

A driver may hang inside the kernel, where no signal reaches a process. So a child process verifies,
and this process only waits for it: at the limit it kills the child and all processes that the child
started, and waits for none of them any longer.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress
from glob import glob
from typing import NoReturn

from ..errors import GpuEnvError
from ..model import Check, Host
from ..render.checks import Format, Outcome, Report, hook
from .environments import on_end_signals

# Seconds beyond the limit in which the child ends its own children and reports what it saw.
GRACE = 1.2
KILLED = 0.3  # seconds to wait for the end of a child that was killed
FIRST_STEP = "starting"
INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h

Verify = Callable[[Namespace, float, Callable[[str], None]], tuple[Sequence[Check], Host]]


class _EndSignal(BaseException):
    """A signal asks this process to end. The argument is its number."""


def run_hook(
    arguments: Namespace, timeout: float, verify: Verify, make_report: Format = hook
) -> int:
    """Verify in a child process and print a report.

    Args:
        arguments: the parsed flags of `gpuenv verify`.
        timeout: seconds for all of it.
        verify: makes the checks; it takes the flags, the seconds that remain, and a function to
            call with the name of each step.
        make_report: returns the report of an outcome.

    Returns:
        The exit status of the report.
    """
    begin = time.monotonic()
    deadline = begin + timeout + GRACE
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _work(arguments, timeout, begin, writer, verify, make_report)
    os.close(writer)

    def raise_end(number: int, _frame: object) -> None:
        raise _EndSignal(number)

    on_end_signals(raise_end)
    try:
        result, step = _read_result(reader, deadline)
    except KeyboardInterrupt:
        _kill_tree(child)
        raise
    except _EndSignal as ended:
        _kill_tree(child)
        # End by the signal, so that its sender sees that the signal was obeyed.
        signal.signal(ended.args[0], signal.SIG_DFL)
        os.kill(os.getpid(), ended.args[0])
        raise
    if result is not None:
        _wait(child)
        text, status = str(result["text"]), int(str(result["status"]))
        return _print_report(Report(text=text, status=status, is_error=bool(result["is_error"])))
    if time.monotonic() >= deadline:
        _kill_tree(child)
        failure = f"time limit: no result in {timeout:g} s"
    else:
        ended_with = _wait(child)
        end = "and it does not end"
        if ended_with is not None:
            code = os.waitstatus_to_exitcode(ended_with)
            end = f"ended by signal {-code}" if code < 0 else f"ended with {code}"
        failure = f"verification: no result, {end}"
    problem = f"{failure}; it was at: {step}"
    return _print_report(make_report(Outcome(problem=problem, seconds=time.monotonic() - begin)))


def _print_report(report: Report) -> int:
    print(report.text, file=sys.stderr if report.is_error else sys.stdout)
    return report.status


# ---- the child -----------------------------------------------------------------------------------


def _work(  # noqa: PLR0917
    arguments: Namespace,
    timeout: float,
    begin: float,
    writer: int,
    verify: Verify,
    make_report: Format,
) -> NoReturn:
    """Verify. Write each step, and then the report, as a line of JSON to the pipe."""

    def write(**fields: object) -> None:
        os.write(writer, json.dumps(fields).encode() + b"\n")

    def write_report(outcome: Outcome) -> int:
        report = make_report(outcome)
        write(text=report.text, status=report.status, is_error=report.is_error)
        return report.status

    status = INTERNAL_ERROR
    try:
        os.setsid()  # an interrupt from the terminal must reach the parent only
        # Nothing but the report must reach the user: libraries print, too.
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1) if arguments.debug else (0, 1, 2):
            os.dup2(null, stream)
        seconds = timeout - (time.monotonic() - begin)
        checks, host = verify(arguments, seconds, lambda step: write(step=step))
        outcome = Outcome(
            checks=tuple(checks),
            host=host,
            seconds=time.monotonic() - begin,
            device=not arguments.no_device,
            strict=arguments.strict,
        )
        status = write_report(outcome)
    except BaseException as error:
        if arguments.debug:
            traceback.print_exc()
        if isinstance(error, GpuEnvError):
            hint = f"; {error.hint}" if error.hint else ""
            problem = f"{error.message}{hint}"
            status = write_report(Outcome(problem=problem, error_status=error.exit_status))
        elif isinstance(error, Exception):
            problem = f"internal error: {type(error).__name__}: {error} (--debug shows where)"
            status = write_report(Outcome(problem=problem, error_status=INTERNAL_ERROR))
    finally:
        os._exit(status)


# ---- the parent ----------------------------------------------------------------------------------


def _read_result(reader: int, deadline: float) -> tuple[dict[str, object] | None, str]:
    """Return (the child's result or None at the deadline, the last step that began)."""
    data, step = b"", FIRST_STEP
    while (remaining := deadline - time.monotonic()) > 0:
        if not select.select([reader], [], [], remaining)[0]:
            break
        chunk = os.read(reader, 65536)
        if not chunk:
            break
        *lines, data = (data + chunk).split(b"\n")
        for line in lines:
            fields: dict[str, object] = json.loads(line)
            if "text" in fields:
                return fields, step
            step = str(fields["step"])
    return None, step


def _wait(child: int, limit: float = KILLED) -> int | None:
    """Return the wait status of the child; None if it does not end within `limit` seconds."""
    end = time.monotonic() + limit
    while time.monotonic() < end:
        number, status = os.waitpid(child, os.WNOHANG)
        if number:
            return status
        time.sleep(0.005)
    return None


def _kill_tree(child: int) -> None:
    """Kill the child and all processes that it started, each of which has its own process group."""
    _kill(child, signal.SIGSTOP)  # it must start no more of them meanwhile
    children: dict[int, list[int]] = {}
    for path in glob("/proc/[0-9]*/stat"):
        with suppress(OSError), open(path, "rb") as file:
            parent = int(file.read().rpartition(b")")[2].split()[1])
            children.setdefault(parent, []).append(int(path.split("/")[2]))
    started = children.get(child, [])
    for number in started:  # grows on the way
        started += children.get(number, [])
    for number in started:
        _kill(-number, signal.SIGKILL)
        _kill(number, signal.SIGKILL)
    _kill(child, signal.SIGKILL)
    _wait(child)


def _kill(number: int, sign: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(number, sign)
