"""The target interpreter: which one, and its version, with a child process only where no file says it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from ..errors import InputError
from ..model import Python, Value

_VERSION = r"(3)\.(\d{1,2})(\.\d{1,3}(?:(?:a|b|rc)\d+)?)?(t?)"
_CONDA = r"python-(3\.\d+\.\d+[^-]*)-([^-]+)\.json"
_SECONDS = 30.0
_HINT = "give a version such as 3.12 or 3.13t, or the path of an interpreter"

# Runs under any interpreter, so that a wrong one is named by its version and not by a SyntaxError.
_ASK = """
import os, sys
try: libc = os.confstr("CS_GNU_LIBC_VERSION") or "none"
except Exception: libc = "none"
print("|".join(["gpuenv", sys.version.split()[0], getattr(sys, "abiflags", ""), libc]))
"""


class Target(Value):
    """The interpreter, where its version came from, and its C library ("glibc 2.36", "none") if it was asked."""

    python: Python
    source: str
    libc: str | None = None


def find(python: str | None, env: Mapping[str, str]) -> Target:
    """The interpreter that `python` names, else the active environment's, else this one.

    Raises InputError for a text that is neither a version nor an interpreter.
    """
    if python is not None:
        return _version(python) or _named(python, env)
    passed_over = ""
    for variable, read in (("VIRTUAL_ENV", _read_venv), ("CONDA_PREFIX", _read_conda)):
        prefix = env.get(variable)
        if not prefix:
            continue
        if os.path.realpath(prefix) == os.path.realpath(sys.prefix):
            break
        found = read(prefix, variable, env)
        if found is not None:
            return found
        passed_over += f"; {variable}={prefix} has no interpreter"
    return Target(python=_this(), source="the interpreter running gpuenv" + passed_over)


def _this() -> Python:
    return _python(sys.version.split()[0], "t" in getattr(sys, "abiflags", ""), sys.executable or None)


def _python(full: str, free_threaded: bool, executable: str | None) -> Python:
    major, minor = full.split(".")[:2]
    return Python(
        version=(int(major), int(minor)),
        full_version=full.rstrip("+"),
        free_threaded=free_threaded,
        executable=executable,
    )


def _version(text: str) -> Target | None:
    text = text.strip()
    if len(text) <= 4 and text[:2] == "3." and text[2:].isascii() and text[2:].isdigit():  # "3.12", without re
        return Target(python=Python(version=(3, int(text[2:])), full_version=None), source="--python")
    import re

    match = re.fullmatch(_VERSION, text)
    if match is None:
        return None
    major, minor, rest, threads = match.groups()
    python = Python(
        version=(int(major), int(minor)),
        full_version=f"{major}.{minor}{rest}" if rest else None,
        free_threaded=bool(threads),
    )
    return Target(python=python, source="--python")


def _named(python: str, env: Mapping[str, str]) -> Target:
    path = python
    if os.path.isdir(path):
        path = _executable(path)
    elif os.sep not in path:
        import shutil  # not needed for a version

        path = shutil.which(path, path=env.get("PATH")) or ""
    if not path or not os.path.isfile(path):
        raise InputError(f"--python {python!r} is neither a Python 3 version nor an interpreter", hint=_HINT)
    if os.path.abspath(path) == sys.executable:
        return Target(python=_this(), source="--python")
    return _ask(path, "--python", env)


def _executable(prefix: str) -> str:
    inner = ("Scripts", "python.exe") if os.name == "nt" else ("bin", "python")
    return os.path.join(prefix, *inner)


def _read_venv(prefix: str, variable: str, env: Mapping[str, str]) -> Target | None:
    """By the version line of pyvenv.cfg: `version` (venv), `version_info` (virtualenv, uv)."""
    executable = _executable(prefix)
    if not os.path.isfile(executable):
        return None
    try:
        with open(os.path.join(prefix, "pyvenv.cfg"), encoding="utf-8", errors="replace") as file:
            lines = dict(_key_value(line) for line in file if "=" in line)
    except OSError:
        lines = {}
    text = lines.get("version") or lines.get("version_info") or ""
    import re

    match = re.match(r"3\.\d+\.\d+(?:(?:a|b|rc)\d+)?(?![\d])", text)
    if match is None:
        return _try(executable, variable, env)
    major_minor = ".".join(match[0].split(".")[:2])
    free_threaded = os.path.isdir(os.path.join(prefix, "lib", f"python{major_minor}t"))
    return Target(python=_python(match[0], free_threaded, executable), source=f"{variable}: pyvenv.cfg")


def _key_value(line: str) -> tuple[str, str]:
    key, _, value = line.partition("=")
    return key.strip().lower(), value.strip()


def _read_conda(prefix: str, variable: str, env: Mapping[str, str]) -> Target | None:
    """By the name of the python package's record: conda-meta/python-3.13.1-h9a34b6e_5_cp313t.json."""
    executable = os.path.join(prefix, "python.exe") if os.name == "nt" else _executable(prefix)
    if not os.path.isfile(executable):
        return None
    try:
        names = os.listdir(os.path.join(prefix, "conda-meta"))
    except OSError:
        names = []
    import re

    records = [match for name in names if (match := re.fullmatch(_CONDA, name))]
    if len(records) != 1:  # none, or one left behind by an interrupted update
        return _try(executable, variable, env)
    full, build = records[0].groups()
    free_threaded = re.search(r"cp3\d+t$", build) is not None
    return Target(python=_python(full, free_threaded, executable), source=f"{variable}: conda-meta")


def _try(executable: str, variable: str, env: Mapping[str, str]) -> Target | None:
    try:
        return _ask(executable, variable, env)
    except InputError:
        return None


def _ask(executable: str, source: str, env: Mapping[str, str]) -> Target:
    import subprocess  # takes 10 ms

    try:
        done = subprocess.run(  # the user names the interpreter
            [executable, "-I", "-S", "-c", _ASK],
            env=dict(env), stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=False,
        )  # fmt: skip
        lines = done.stdout.decode(errors="replace").splitlines()
        answer = next(line for line in lines if line.startswith("gpuenv|"))
        _, full, flags, libc = answer.split("|")
        python = _python(full, "t" in flags, executable)
    except (OSError, subprocess.TimeoutExpired, StopIteration, ValueError) as error:
        raise InputError(f"{executable} does not answer as a Python interpreter", hint=_HINT) from error
    if python.version[0] != 3:
        raise InputError(f"{executable} is Python {python.full_version}, and only Python 3 is served", hint=_HINT)
    return Target(python=python, source=f"{source}: asked {executable}", libc=libc)
