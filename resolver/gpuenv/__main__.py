"""The program: `gpuenv` and `python -m gpuenv`."""

import contextlib
import gc
import os
import sys


def main() -> None:
    """Run the command line and end the process."""
    # Collecting garbage costs 3 % of a solve, and a command ends before it frees anything.
    gc.disable()
    from .cli import main as run_command

    _open_closed_streams()
    status = run_command()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    # Taking the interpreter apart costs 10 % of a solve. All output is written.
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
