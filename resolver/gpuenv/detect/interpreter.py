"""Find the target interpreter and its version.

A child process is started only where no file has the version.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

from ..errors import InputError
from ..model import Python, Value
from ..prefix import find_interpreter

# Patterns. re compiles one when it is first used: a solve uses none or one of them.
_VERSION = r"3\.(\d{1,2})(\.\d{1,3}(?:(?:a|b|rc)\d+)?)?(t?)"
_FULL_VERSION = r"3\.\d+\.\d+(?:(?:a|b|rc)\d+)?(?![\d])"
_CONDA_RECORD = r"python-(3\.\d+\.\d+[^-]*)-([^-]+)\.json"
_FREE_THREADED_BUILD = r"cp3\d+t$"
_SECONDS = 30.0
_HINT = "give a version such as 3.12 or 3.13t, or the path of an interpreter"

# This runs under Python 2, too, so that the error can name the version instead of a SyntaxError.
_QUERY = """
import os, sys
try: libc = os.confstr("CS_GNU_LIBC_VERSION") or "none"
except Exception: libc = "none"
print("|".join(["gpuenv", sys.version.split()[0], getattr(sys, "abiflags", ""), libc]))
"""


class Target(Value):
    """The target interpreter.

    `source` is where its version came from; `libc` is its C library ("glibc 2.36", "none"), None
    if the interpreter was not run.
    """

    python: Python
    source: str
    libc: str | None = None


def find(python: str | None, env: Mapping[str, str]) -> Target:
    """Find the target interpreter.

    Args:
        python: a version, a path or a command; None takes the interpreter of the active virtual
            or conda environment, otherwise the one that runs gpuenv.
        env: the environment variables of the process.

    Raises:
        InputError: `python` is neither a version nor an interpreter.
    """
    if python is None:
        return _active(env)
    target = _parse_version(python)
    if target is not None:
        return target
    return _find_executable(python, env)


def _active(env: Mapping[str, str]) -> Target:
    """Return the interpreter of the active environment, otherwise the one that runs gpuenv."""
    skipped = ""
    for variable, read in (("VIRTUAL_ENV", _read_venv), ("CONDA_PREFIX", _read_conda)):
        prefix = env.get(variable)
        if not prefix:
            continue
        if os.path.realpath(prefix) == os.path.realpath(sys.prefix):
            break
        target = read(prefix, variable, env)
        if target is not None:
            return target
        skipped += f"; {variable}={prefix} has no interpreter"
    return Target(python=_running_python(), source=f"the interpreter running gpuenv{skipped}")


def _running_python() -> Python:
    free_threaded = "t" in getattr(sys, "abiflags", "")  # Windows has no abiflags
    return _python(sys.version.split()[0], free_threaded, sys.executable or None)


def _python(full: str, free_threaded: bool, executable: str | None) -> Python:
    major, minor = full.split(".")[:2]
    return Python(
        version=(int(major), int(minor)),
        full_version=full.rstrip("+"),
        free_threaded=free_threaded,
        executable=executable,
    )


def _parse_version(text: str) -> Target | None:
    """Return the interpreter for a version such as "3.12" or "3.13.1t"; None for another text."""
    match = re.fullmatch(_VERSION, text.strip())
    if match is None:
        return None
    minor, rest, threads = match.groups()
    full_version = None
    if rest:
        full_version = f"3.{minor}{rest}"
    python = Python(
        version=(3, int(minor)), full_version=full_version, free_threaded=threads == "t"
    )
    return Target(python=python, source="--python")


def _find_executable(python: str, env: Mapping[str, str]) -> Target:
    """Return the interpreter of a path, a prefix or a command. InputError if it is none."""
    path: str | None = python
    if os.path.isdir(python):
        path = find_interpreter(python)
    elif os.sep not in python:
        import shutil  # most solves name a version

        path = shutil.which(python, path=env.get("PATH"))
    if not path or not os.path.isfile(path):
        message = f"--python {python!r} is neither a Python 3 version nor an interpreter"
        raise InputError(message, hint=_HINT)
    if os.path.abspath(path) == sys.executable:
        return Target(python=_running_python(), source="--python")
    return _query(path, "--python", env)


def _read_venv(prefix: str, variable: str, env: Mapping[str, str]) -> Target | None:
    """Return the interpreter of a virtual environment, None if it has none.

    The version is that of pyvenv.cfg: `version` (venv) or `version_info` (virtualenv, uv).
    """
    executable = find_interpreter(prefix)
    if executable is None:
        return None
    settings = _read_settings(os.path.join(prefix, "pyvenv.cfg"))
    text = settings.get("version") or settings.get("version_info") or ""
    match = re.match(_FULL_VERSION, text)
    if match is None:
        return _query_if_possible(executable, variable, env)
    major_minor = ".".join(match[0].split(".")[:2])
    free_threaded = os.path.isdir(os.path.join(prefix, "lib", f"python{major_minor}t"))
    python = _python(match[0], free_threaded, executable)
    return Target(python=python, source=f"{variable}: pyvenv.cfg")


def _read_settings(path: str) -> dict[str, str]:
    """Read lines such as "version = 3.12.1"; keys become lower case. {} without a file."""
    settings = {}
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                key, equals, value = line.partition("=")
                if equals:
                    settings[key.strip().lower()] = value.strip()
    except OSError:
        return {}
    return settings


def _read_conda(prefix: str, variable: str, env: Mapping[str, str]) -> Target | None:
    """Return the interpreter of a conda environment, None if it has none.

    The version is in the file name of the python package's record, such as
    conda-meta/python-3.13.1-h9a34b6e_5_cp313t.json.
    """
    executable = find_interpreter(prefix)
    if executable is None:
        return None
    try:
        names = os.listdir(os.path.join(prefix, "conda-meta"))
    except OSError:
        names = []
    records = []
    for name in names:
        match = re.fullmatch(_CONDA_RECORD, name)
        if match:
            records.append(match)
    if len(records) != 1:  # none, or one more that an interrupted update left behind
        return _query_if_possible(executable, variable, env)
    full, build = records[0].groups()
    free_threaded = re.search(_FREE_THREADED_BUILD, build) is not None
    python = _python(full, free_threaded, executable)
    return Target(python=python, source=f"{variable}: conda-meta")


def _query_if_possible(executable: str, variable: str, env: Mapping[str, str]) -> Target | None:
    try:
        return _query(executable, variable, env)
    except InputError:
        return None


def _query(executable: str, source: str, env: Mapping[str, str]) -> Target:
    """Run an interpreter to get its version and its C library. InputError if it is not one."""
    import subprocess  # takes 10 ms, and most targets need no child process

    try:
        done = subprocess.run(
            [executable, "-I", "-S", "-c", _QUERY],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
        full, flags, libc = _parse_answer(done.stdout.decode(errors="replace"))
        python = _python(full, "t" in flags, executable)
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        message = f"{executable} does not answer as a Python interpreter"
        raise InputError(message, hint=_HINT) from error
    if python.version[0] != 3:
        message = f"{executable} is Python {python.full_version}, but gpuenv supports only Python 3"
        raise InputError(message, hint=_HINT)
    return Target(python=python, source=f"{source}: asked {executable}", libc=libc)


def _parse_answer(output: str) -> tuple[str, str, str]:
    """Return (version, ABI flags, C library) from the output of _QUERY. ValueError if not one."""
    for line in output.splitlines():
        if line.startswith("gpuenv|"):
            _, full, flags, libc = line.split("|")
            return full, flags, libc
    raise ValueError("no line of the output begins with gpuenv|")
