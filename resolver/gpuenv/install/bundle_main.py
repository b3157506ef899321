"""The program of a bundle: `python3 FILE --target DIR` installs the environment of the bundle.

`gpuenv download --bundle FILE` stores this script as __main__.py (bundle.py). It unpacks gpuenv
into a temporary folder and runs it there.

    python3 FILE [FLAG ...]              gpuenv sync with the lock and the wheels of the bundle
    python3 FILE COMMAND [ARGUMENT ...]  another command of gpuenv

It starts on every Python 3, to say which release it needs.
"""

import os
import signal
import sys
import tempfile
import zipfile
from importlib import import_module

OLDEST = (3, 11)


def main() -> int:
    """Unpack gpuenv, run it, and return its exit status."""
    if sys.version_info < OLDEST:
        sys.exit("the bundle needs Python {}.{} or later: python3.X FILE".format(*OLDEST))
    bundle = os.path.dirname(os.path.abspath(__file__))
    signal.signal(signal.SIGTERM, _exit)  # else the temporary folder would stay
    with tempfile.TemporaryDirectory(prefix="gpuenv-") as folder:
        with zipfile.ZipFile(bundle) as archive:
            archive.extractall(folder)
        sys.dont_write_bytecode = True
        sys.path.insert(0, os.path.join(folder, "program"))
        run_command = import_module("gpuenv.cli").main  # the unpacked gpuenv
        words = sys.argv[1:]
        if not words or words[0].startswith("-"):
            lock = os.path.join(folder, "pylock.toml")
            flags = ["--find-links", bundle, "--no-index", "--installer", "pip"]
            words = ["sync", lock, *flags, *words]
        return int(run_command(words))


def _exit(number: int, _frame: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
