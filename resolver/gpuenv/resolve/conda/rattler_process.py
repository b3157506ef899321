"""The process of rattler_child.py, which answers line by line.

It is a fork of this process where that is safe, and otherwise an interpreter of its own. A fork
takes a third less processor time, because this process has loaded most of the modules already.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import IO, NoReturn, Protocol

END_SECONDS = 10.0  # for a child to end after its input has ended; then it is killed
_PAUSE = 0.002  # seconds between two looks at a fork that ends


class _Process(Protocol):
    """The part of subprocess.Popen that is used."""

    pid: int

    @property
    def stdin(self) -> IO[bytes] | None: ...

    @property
    def stdout(self) -> IO[bytes] | None: ...

    def wait(self, timeout: float | None = None) -> int: ...

    def kill(self) -> None: ...


class RattlerProcess:
    """A child process. Its stderr is dropped.

    It ends with its input, with this process, and at the latest END_SECONDS after `close`.
    """

    def __init__(self, python: str | None) -> None:
        """Start the child. `python` is an interpreter that has py-rattler; None is this one."""
        self._process: _Process
        if python is None and _can_fork():
            self._process = _Fork()
        else:
            self._process = _start(python or sys.executable)
        atexit.register(self.close)

    def ask(self, line: str) -> bytes:
        """Send a line and return the answer; b"" if the child has ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None  # noqa: S101  both are pipes
        with suppress(OSError):  # if it has ended, its last answer says why
            stdin.write(line.encode() + b"\n")
            stdin.flush()
        return stdout.readline()

    def end_input(self) -> None:
        """End the input of the child, at which it ends."""
        if self._process.stdin is not None:
            with suppress(OSError):  # it has ended before it read everything
                self._process.stdin.close()

    def close(self) -> None:
        """End the child and wait for its end."""
        atexit.unregister(self.close)
        self.end_input()
        if self._process.stdout is not None:
            self._process.stdout.close()  # what it still writes is not read
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
        finally:
            self._process.kill()  # does nothing to a process that has ended
            self._process.wait()


def _start(python: str) -> subprocess.Popen[bytes]:
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rattler_child.py")
    return subprocess.Popen(
        [python, "-I", "-X", "utf8", script, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )


def _can_fork() -> bool:
    """Return whether a fork of this process is safe.

    No other thread may hold a lock: Linux lists the threads of libraries, too; on other systems the
    answer is no. rattler must not be loaded: it does not work in a fork of the process that did.
    """
    try:
        return len(os.listdir("/proc/self/task")) == 1 and "rattler" not in sys.modules
    except OSError:
        return False


class _Fork:
    """A fork of this process that runs rattler_child."""

    def __init__(self) -> None:
        child_input, own_output = os.pipe()
        own_input, child_output = os.pipe()
        self._status: int | None = None
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            _run_child(parent, child_input, child_output)
        os.close(child_input)
        os.close(child_output)
        self.stdin: IO[bytes] = open(own_output, "wb")  # noqa: SIM115
        self.stdout: IO[bytes] = open(own_input, "rb")  # noqa: SIM115

    def wait(self, timeout: float | None = None) -> int:
        """Return the status at the end. TimeoutExpired if it does not end in time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG if timeout is not None else 0)
            if pid:
                self._status = status
            elif deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("rattler_child", timeout or 0.0)
            else:
                time.sleep(_PAUSE)
        return self._status

    def kill(self) -> None:
        """Kill the process, unless its end is known."""
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)


def _run_child(parent: int, child_input: int, child_output: int) -> NoReturn:
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        for descriptor, standard in ((child_input, 0), (child_output, 1), (null, 2)):
            os.dup2(descriptor, standard)
        _close_other_files()
        from . import rattler_child

        with open(0, encoding="utf-8") as requests, open(1, "w", encoding="utf-8") as answers:
            rattler_child.serve(parent, requests, answers)
    finally:
        os._exit(1)


def _close_other_files() -> None:
    """Close what the parent process has open: its locks and pipes stay its own."""
    for descriptor in map(int, os.listdir("/proc/self/fd")):
        if descriptor > 2:
            with suppress(OSError):  # the folder was open only while it was listed
                os.close(descriptor)
