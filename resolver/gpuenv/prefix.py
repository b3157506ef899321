"""What a folder with an environment is: where its interpreter is, whether conda made it."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .errors import InputError

# POSIX, virtual environments on Windows, conda environments on Windows.
_INTERPRETERS = (("bin", "python"), ("Scripts", "python.exe"), ("python.exe",))
# Distributions that install others. They may be in an environment beside what a lock names.
INSTALLATION_TOOLS = frozenset({"pip", "setuptools", "wheel"})


def find_interpreter(prefix: str) -> str | None:
    """Return the interpreter of the environment in a folder; None if it has none."""
    for parts in _INTERPRETERS:
        path = os.path.join(prefix, *parts)
        if os.path.isfile(path):
            return path
    return None


def interpreter_of(prefix: str) -> str:
    """Return the interpreter of the environment in a folder. InputError if it has none."""
    path = find_interpreter(prefix)
    if path is None:
        raise InputError(f"{prefix}: has no interpreter, so it is no environment")
    return path


def is_venv(prefix: str) -> bool:
    """Return whether a folder is a virtual environment."""
    return os.path.isfile(os.path.join(prefix, "pyvenv.cfg"))


def is_conda(prefix: str) -> bool:
    """Return whether a folder is a conda environment."""
    return os.path.isdir(os.path.join(prefix, "conda-meta"))


def environment_on_path(env: Mapping[str, str]) -> str | None:
    """Return the virtual or conda environment of the first python on PATH.

    None if there is no python, or if it belongs to no environment, as /usr/bin/python.
    """
    import shutil  # most solves do not need it

    executable = shutil.which("python", path=env.get("PATH"))
    if executable is None:
        return None
    folder = os.path.dirname(os.path.abspath(executable))
    # POSIX and Windows keep the interpreter in a folder of the prefix; conda on Windows does not.
    for prefix in (os.path.dirname(folder), folder):
        if is_venv(prefix) or is_conda(prefix):
            return prefix
    return None


def prefix_of(target: str) -> str:
    """Return the prefix of a folder or of an interpreter: bin/python, or python.exe on Windows."""
    if os.path.isdir(target):
        return target
    folder = os.path.dirname(os.path.abspath(target))
    if os.path.basename(folder) == "bin":
        return os.path.dirname(folder)
    return folder
