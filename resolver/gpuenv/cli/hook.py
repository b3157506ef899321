"""`gpuenv verify --hook`: one line, and an end in time whatever hangs.

What may hang (a driver that does not answer, even in the kernel, where no signal reaches) is done by a child. This
process only waits for it, so it can always end: at the limit it ends the child and all that the child started, as far
as they can be ended, and waits for none of them.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import Namespace
from typing import Any

from ..errors import GpuEnvError
from ..render.hook import hook_line, one_line

GRACE = 1.2  # s that a child has beyond the limit, to end its own children and to say what was seen
LAST = 0.3  # s that are waited for a child that was killed
STARTING = "starting"


class _Ended(BaseException):
    """A signal asks this process to end."""


def hook(arguments: Namespace, timeout: float) -> int:
    """Prints the line; 0 if nothing failed, 1 if something did or the time was over, 2 for bad input (on stderr)."""
    begin = time.monotonic()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _work(arguments, timeout, begin, writing)
    os.close(writing)
    _raise_on_signals()
    try:
        answer, step = _answer(reading, begin + timeout + GRACE)
    except (_Ended, KeyboardInterrupt) as ended:
        _end_tree(child)
        if isinstance(ended, KeyboardInterrupt):
            raise
        _die_by(ended.args[0])
        raise
    over = answer is None and time.monotonic() >= begin + timeout + GRACE
    status = _end_tree(child) if over else _wait(child)
    if answer is None:
        what = f"time limit: no result in {timeout:g} s" if over else f"verification: no result, {_told(status)}"
        print(one_line(f"gpuenv: fail: {what}; it was at: {step}"))
        return 1
    print(answer["line"], file=sys.stderr if answer["bad_input"] else sys.stdout)
    return int(answer["status"])


# ---- the child ----------------------------------------------------------------------------------------------------


def _work(arguments: Namespace, timeout: float, begin: float, writing: int) -> None:
    """Verifies, and writes what it does and at last what came of it to the pipe; never returns."""
    import json

    def tell(**fields: Any) -> None:
        os.write(writing, json.dumps(fields).encode() + b"\n")

    status = 70
    try:
        os.setsid()  # a Ctrl-C is this process's parent's business
        _quiet(arguments)
        status = _verify(arguments, timeout, begin, tell)
    except BaseException as error:
        if arguments.debug:
            import traceback

            traceback.print_exc()
        if isinstance(error, GpuEnvError):
            hint = f"; {error.hint}" if error.hint else ""
            tell(line=one_line(f"gpuenv: {error.message}{hint}"), status=error.exit_status, bad_input=True)
        elif isinstance(error, Exception):
            what = f"{type(error).__name__}: {error} (--debug shows where)"
            tell(line=one_line(f"gpuenv: internal error: {what}"), status=status, bad_input=True)
    finally:
        os._exit(status)


def _verify(arguments: Namespace, timeout: float, begin: float, tell: Any) -> int:
    from ..render import plans
    from .verify import checked

    left = timeout - (time.monotonic() - begin)
    checks, host = checked(arguments, left, lambda step: tell(step=step))
    good = plans.ok(checks) and not (arguments.strict and any(one.status != "pass" for one in checks))
    line = hook_line(checks, host, time.monotonic() - begin, device=not arguments.no_device)
    tell(line=line, status=0 if good else 1, bad_input=False)
    return 0 if good else 1


def _quiet(arguments: Namespace) -> None:
    """Nothing but the line reaches the user: libraries print, too."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)
    if not arguments.debug:
        os.dup2(null, 2)


# ---- the parent ---------------------------------------------------------------------------------------------------


def _answer(reading: int, deadline: float) -> tuple[dict[str, Any] | None, str]:
    """(the last line of the child, None if there is none in time; what it did last)."""
    import json
    import select

    data, step = b"", STARTING
    while (left := deadline - time.monotonic()) > 0:
        if not select.select([reading], [], [], left)[0]:
            break
        more = os.read(reading, 65536)
        if not more:
            return None, step
        *lines, data = (data + more).split(b"\n")
        for line in lines:
            fields = json.loads(line)
            if "line" in fields:
                return fields, step
            step = fields["step"]
    return None, step


def _raise_on_signals() -> None:
    import signal

    def leave(number: int, _frame: object) -> None:
        raise _Ended(number)

    for name in ("SIGTERM", "SIGHUP"):
        if signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            signal.signal(getattr(signal, name), leave)


def _die_by(number: int) -> None:
    """Ends by the signal, so that who sent it sees that it did."""
    import signal

    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)


def _wait(child: int, most: float = LAST) -> int | None:
    """The status of the child once it has ended; None if it has not ended in that time."""
    end = time.monotonic() + most
    while time.monotonic() < end:
        number, status = os.waitpid(child, os.WNOHANG)
        if number:
            return status
        time.sleep(0.005)
    return None


def _told(status: int | None) -> str:
    if status is None:
        return "and it does not end"
    return f"ended by signal {-code}" if (code := os.waitstatus_to_exitcode(status)) < 0 else f"ended with {code}"


def _end_tree(child: int) -> int | None:
    """Ends the child and all that it started, each of which has a process group of its own."""
    import signal

    _kill(child, signal.SIGSTOP)  # so that it starts no more of them meanwhile
    for number in _descendants(child):
        _kill(-number, signal.SIGKILL)
        _kill(number, signal.SIGKILL)
    _kill(child, signal.SIGKILL)
    return _wait(child)


def _kill(number: int, sign: int) -> None:
    try:
        os.kill(number, sign)
    except (ProcessLookupError, PermissionError):
        return


def _descendants(root: int) -> list[int]:
    """The processes that a process started, and theirs, by /proc."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(name))
    found, queue = [], [root]
    while queue:
        queue += (children := parents.get(queue.pop(), []))
        found += children
    return found
