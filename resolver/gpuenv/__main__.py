"""The program: `gpuenv` and `python -m gpuenv`."""

import os
import sys

from .cli import main as run_command


def main() -> None:
    """Run the command line and end the process."""
    status = run_command()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        pass
    # Taking the interpreter apart would cost a twentieth of a solve. All output is written.
    os._exit(status)


if __name__ == "__main__":
    main()
