"""The program `gpuenv`. It imports gpuenv only when an interrupt can end it with one line."""

from __future__ import annotations

import os
import signal

INTERRUPTED = 130


def main() -> None:
    """Import the command line and run it; the process ends with the exit status of the command."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # No exception: Python prints one that is raised in a callback of an import, and goes on.
        signal.signal(signal.SIGINT, _end)
    from gpuenv.__main__ import main as run

    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _end(_number: int, _frame: object) -> None:
    os.write(2, b"gpuenv: interrupted\n")
    os._exit(INTERRUPTED)
