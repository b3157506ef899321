"""The program: `gpuenv` and `python -m gpuenv`."""

import gc
import os
import sys

from .cli import main as run_command


def main() -> None:
    """Run the command line and end the process."""
    # Collecting garbage costs 3 % of a solve, and a command ends before it frees anything.
    gc.disable()
    status = run_command()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        pass
    # Taking the interpreter apart costs 10 % of a solve. All output is written.
    os._exit(status)


if __name__ == "__main__":
    main()
