"""The process of rattler_child.py, which answers line by line."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
from contextlib import suppress

END_SECONDS = 10.0  # for a child to end after its input has ended; then it is killed
_SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rattler_child.py")


class RattlerProcess:
    """A child process. Its stderr is dropped.

    It ends with its input, with this process, and at the latest END_SECONDS after `close`.
    """

    def __init__(self, python: str | None) -> None:
        """Start the child. `python` is an interpreter that has py-rattler; None is this one."""
        self._process = subprocess.Popen(
            [python or sys.executable, "-I", "-X", "utf8", _SCRIPT, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(self.close)

    def ask(self, line: str) -> bytes:
        """Send a line and return the answer; b"" if the child has ended."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None  # noqa: S101  both are pipes
        with suppress(OSError):  # if it has ended, its last answer says why
            stdin.write(line.encode() + b"\n")
            stdin.flush()
        return stdout.readline()

    def close(self) -> None:
        """End the child and wait for its end."""
        atexit.unregister(self.close)
        for stream in filter(None, (self._process.stdin, self._process.stdout)):
            with suppress(OSError):  # it has ended before it read everything
                stream.close()
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_SECONDS)
        finally:
            self._process.kill()  # does nothing to a process that has ended
            self._process.wait()
