"""The program: `gpuenv` and `python -m gpuenv`."""

import contextlib
import os
import sys

from .cli import main as run_command


def main() -> None:
    """Run the command line and end the process."""
    _open_closed_streams()
    try:
        status = run_command()
    except SystemExit as end:  # of the parser, or at a signal
        status = int(end.code or 0)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    # All output is written. A thread that waits for an index must not hold the process.
    os._exit(status)


def _open_closed_streams() -> None:
    """Open the null device for each standard stream that is closed.

    Otherwise the next opened file would get the number of that stream, and with it its output.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is not None:
            continue
        null = os.open(os.devnull, os.O_RDWR)
        if null != number:
            os.dup2(null, number)
            os.close(null)
        setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


if __name__ == "__main__":
    main()
