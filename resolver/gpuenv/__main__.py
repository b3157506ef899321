"""The program: `gpuenv` and `python -m gpuenv`."""

import os
import sys


def main() -> None:
    """Runs the command line and ends the process."""
    from .cli import main as run

    _end(run())


def _end(status: int) -> None:
    """Ends without taking the interpreter apart, which is a twentieth of a solve: all is written, nothing is left."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        pass
    os._exit(status)


if __name__ == "__main__":
    main()
