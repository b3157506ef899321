"""Run the command line as on a Mac or on Windows: `python laptop.py darwin|win32 COMMAND ...`.

Modules and functions that the platform lacks cannot be used, and there is no /proc. The standard
library is this machine's: paths have its separators.
"""

import builtins
import importlib.abc
import io
import os
import platform as system
import signal
import subprocess  # noqa: F401  imported before the platform changes
import sys
import tempfile  # noqa: F401
import threading  # noqa: F401

import platformdirs  # noqa: F401  on Windows it asks the system by ctypes

# What CPython's documentation does not offer on the platform.
MODULES = {
    "darwin": set(),
    "win32": {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty"},
}
FUNCTIONS = {
    "darwin": ("confstr", "sched_getaffinity"),
    "win32": (
        "confstr",
        "fork",
        "geteuid",
        "getpgid",
        "getuid",
        "killpg",
        "sched_getaffinity",
        "setsid",
        "uname",
    ),
}
SIGNALS = {"darwin": (), "win32": ("SIGHUP", "SIGKILL", "SIGPIPE")}
LINUX_FOLDERS = ("/proc", "/sys", "/dev/nvidia")


class Blocked(importlib.abc.MetaPathFinder):
    """Finds none of some modules."""

    def __init__(self, names):
        self._names = names

    def find_spec(self, name, path=None, target=None):
        if name in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def without_linux_folders(function):
    """Return a function on paths for which the folders of Linux are not there."""

    def changed(path=".", *arguments, **options):
        if isinstance(path, (str, bytes)) and os.fsdecode(path).startswith(LINUX_FOLDERS):
            raise FileNotFoundError(2, "No such file or directory", path)
        return function(path, *arguments, **options)

    return changed


def become(platform):
    """Make this process look like one on another platform."""
    for name in MODULES[platform]:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, Blocked(MODULES[platform]))
    builtins.open = io.open = without_linux_folders(open)
    os.listdir = without_linux_folders(os.listdir)
    for name in FUNCTIONS[platform]:
        delattr(os, name)
    for name in SIGNALS[platform]:
        delattr(signal, name)
    if platform == "darwin":
        os.uname = lambda: os.uname_result(("Darwin", "mac", "24.0", "Darwin", "arm64"))
    if platform == "win32":
        system.machine = lambda: "AMD64"
    sys.platform = platform


if __name__ == "__main__":
    become(sys.argv[1])
    from gpuenv.cli import main

    sys.exit(main(sys.argv[2:]))
