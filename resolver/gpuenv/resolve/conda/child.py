"""A child process that is asked line by line. It is started without subprocess, whose import takes as long as a start.

Where a process cannot be spawned so (Windows), subprocess starts it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import IO


class Child:
    """The process of a command; its stderr goes nowhere. OSError from any method if it cannot be reached."""

    def __init__(self, command: Sequence[str]) -> None:
        if hasattr(os, "posix_spawn"):
            pid, self._stdin, self._stdout = _spawned(command)
            self._wait: Callable[[], object] = lambda: os.waitpid(pid, 0)
        else:
            from subprocess import DEVNULL, PIPE, Popen

            process = Popen(command, stdin=PIPE, stdout=PIPE, stderr=DEVNULL)
            if process.stdin is None or process.stdout is None:
                raise OSError("no pipes")
            self._stdin, self._stdout, self._wait = process.stdin, process.stdout, process.wait

    def write(self, line: str) -> None:
        """Sends a line."""
        self._stdin.write(line.encode() + b"\n")
        self._stdin.flush()

    def read(self) -> bytes:
        """The next line; b"" if it has ended."""
        return self._stdout.readline()

    def leave(self) -> None:
        """Ends its input, at whose end it ends."""
        try:
            self._stdin.close()
        except OSError:
            pass  # what it did not read

    def close(self) -> None:
        """Ends its input and waits for its end; what it still says is not read."""
        self.leave()
        self._stdout.close()
        self._wait()


def _spawned(command: Sequence[str]) -> tuple[int, IO[bytes], IO[bytes]]:
    """(process, its stdin, its stdout). The ends that are kept here are of no other child, as all that Python opens."""
    to_read, stdin = os.pipe()
    stdout, to_write = os.pipe()
    actions = [
        (os.POSIX_SPAWN_DUP2, to_read, 0),
        (os.POSIX_SPAWN_DUP2, to_write, 1),
        (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
    ]
    try:
        pid = os.posix_spawn(command[0], [*command], os.environ, file_actions=actions)
    except OSError:
        os.close(stdin)
        os.close(stdout)
        raise
    finally:
        os.close(to_read)
        os.close(to_write)
    return pid, open(stdin, "wb"), open(stdout, "rb")
