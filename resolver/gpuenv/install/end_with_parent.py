"""Run a command that is killed when its parent ends, however the parent ends.

    python end_with_parent.py PARENT_PID COMMAND ...

Linux only: prctl(2), PR_SET_PDEATHSIG. The setting survives exec(2).
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Replace this process by the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the setting
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606  no shell is wanted


if __name__ == "__main__":
    main()
