"""Makes the folder of a build: `FOLDER`, and cleans up after gpuenv.

If gpuenv ends before the build, this program ends the build and removes the folder.
It leads the process group of the build. Its standard input closes when gpuenv ends or is
killed. It makes the folder, and gpuenv does not, so that none is left if gpuenv ends before this
program begins.
"""

import os
import shutil
import signal
import sys
import time

TRIES, PAUSE = 50, 0.1  # a process that is being killed can still write a file


def main(folder: str) -> None:
    """Make the folder, wait for the end of gpuenv, then end the group."""
    os.makedirs(folder, mode=0o700)
    try:
        os.write(1, b"ready\n")
    except BrokenPipeError:  # gpuenv was killed meanwhile: the end of the input follows
        pass
    sys.stdin.buffer.read()
    group = os.getpid()
    if os.fork():
        signal.pause()  # until the other process ends the group
    os.setsid()  # leaves the group
    os.killpg(group, signal.SIGKILL)
    for _ in range(TRIES):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            break
        time.sleep(PAUSE)


if __name__ == "__main__":
    main(sys.argv[1])
