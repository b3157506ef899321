"""The program `gpuenv`. It imports gpuenv only when an interrupt can end it with one line."""

from __future__ import annotations

import gc
import os

INTERRUPTED = 130
# A command makes little garbage: collections took 11 of the 149 ms of a solve of torch.
OBJECTS_BEFORE_COLLECTION = 200_000


def main() -> None:
    """Import the command line and run it; the process ends with the exit status of the command."""
    gc.set_threshold(OBJECTS_BEFORE_COLLECTION)
    try:
        import signal  # it takes milliseconds

        # No exception: Python prints one that is raised in a callback of an import, and goes on.
        is_ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if is_ours:
            signal.signal(signal.SIGINT, _end)
    except KeyboardInterrupt:
        _end()
    from gpuenv.__main__ import main as run

    if is_ours:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


def _end(*_: object) -> None:
    os.write(2, b"gpuenv: interrupted\n")
    os._exit(INTERRUPTED)
