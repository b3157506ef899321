"""The program of a bundle: `python3 FILE --target DIR` installs the environment of the bundle.

`gpuenv download --bundle FILE` stores this script as __main__.py (bundle.py). It unpacks gpuenv
into a temporary folder and runs it there. The folder is locked while the process lives, so that the
next run removes the folder of a killed one.

    python3 FILE [FLAG ...]              gpuenv sync with the lock and the wheels of the bundle
    python3 FILE COMMAND [ARGUMENT ...]  another command of gpuenv

It starts on every Python 3, to say which release it needs. gpuenv has compiled modules for the
Python of the lock.
"""

import os
import shutil
import signal
import sys
import tempfile
import zipfile
from contextlib import suppress
from importlib import import_module

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

OLDEST = (3, 11)
FOLDER = "gpuenv-bundle-"  # the beginning of the names of the temporary folders


def main() -> int:
    """Unpack gpuenv, run it, and return its exit status."""
    if sys.version_info < OLDEST:
        sys.exit("the bundle needs Python {}.{} or later: python3.X FILE".format(*OLDEST))
    bundle = os.path.dirname(os.path.abspath(__file__))
    signal.signal(signal.SIGTERM, _exit)  # else the temporary folder would stay
    remove_leftovers()
    folder = make_folder()
    try:
        with zipfile.ZipFile(bundle) as archive:
            archive.extractall(folder)
        sys.dont_write_bytecode = True
        sys.path.insert(0, os.path.join(folder, "program"))
        try:
            run_command = import_module("gpuenv.cli").main  # the unpacked gpuenv
        except ImportError as error:  # a compiled module
            sys.exit(f"{error}: start the bundle with the Python that its lock is for")
        words = sys.argv[1:]
        if not words or words[0].startswith("-"):
            lock = os.path.join(folder, "pylock.toml")
            flags = ["--find-links", bundle, "--no-index", "--installer", "pip"]
            words = ["sync", lock, *flags, *words]
        return int(run_command(words))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_folder() -> str:
    """Make a temporary folder, and lock it until this process ends."""
    while True:
        folder = tempfile.mkdtemp(prefix=FOLDER)
        if fcntl is None:
            return folder
        fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_EX)
        if os.path.isdir(folder):  # another run can have removed it before it was locked
            return folder


def remove_leftovers() -> None:
    """Remove the folders whose process has ended."""
    if fcntl is None:
        return
    above = tempfile.gettempdir()
    for name in os.listdir(above):
        if name.startswith(FOLDER):
            with suppress(OSError):  # of a running process, or of another user
                remove_unlocked(os.path.join(above, name))


def remove_unlocked(folder: str) -> None:
    """Remove a folder. OSError if it is locked."""
    number = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder)
    finally:
        os.close(number)


def _exit(number: int, _frame: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
