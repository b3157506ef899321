"""Interpreters, and the programs that make environments with them: uv, pip, venv.

gpuenv looks at the interpreter that runs it and at those of pyenv. python-discovery knows those on
PATH and those that uv manages. It runs an interpreter to learn its release.
"""

from __future__ import annotations

import glob
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping

from .errors import InputError, InstallError
from .model import Lock, Python, Value, show_pair
from .prefix import find_interpreter, venv_version

_VERSION = re.compile(r"3\.(\d{1,2})(\.\d{1,3}(?:(?:a|b|rc)\d+)?)?(t?)")
_FULL_VERSION = re.compile(r"3\.\d+\.\d+(?:(?:a|b|rc)\d+)?(?!\d)")
_HINT = "give a version such as 3.12 or 3.13t, or the path of an interpreter"


class Target(Value):
    """The interpreter that an environment has or gets.

    `source` is where its version came from; `libc` is its C library ("glibc 2.36", "none"), None
    if the interpreter was not run.
    """

    python: Python
    source: str
    libc: str | None = None


# ---- the interpreter of a host -------------------------------------------------------------------


def find_target(python: str | None, env: Mapping[str, str]) -> Target:
    """Find the target interpreter.

    Args:
        python: a version, a path or a command; None takes the interpreter of the active virtual
            or conda environment, otherwise the one that runs gpuenv.
        env: the environment variables of the process.

    Raises:
        InputError: `python` is neither a version nor an interpreter.
    """
    if python is None:
        return _active_target(env)
    version = parse_version(python)
    if version is not None:
        return Target(python=version, source="--python")
    path: str | None = python
    if os.path.isdir(python):
        path = find_interpreter(python)
    elif os.sep not in python:
        path = shutil.which(python, path=env.get("PATH"))
    if not path or not os.path.isfile(path):
        message = f"--python {python!r} is neither a Python 3 version nor an interpreter"
        raise InputError(message, hint=_HINT)
    if os.path.abspath(path) == sys.executable:
        return Target(python=_running_python(), source="--python")
    return _ask(path, "--python", env)


def _active_target(env: Mapping[str, str]) -> Target:
    """Return the interpreter of the active environment, otherwise the one that runs gpuenv."""
    skipped = ""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = env.get(variable)
        if not prefix:
            continue
        if os.path.realpath(prefix) == os.path.realpath(sys.prefix):
            break
        executable = find_interpreter(prefix)
        if executable is None:
            skipped += f"; {variable}={prefix} has no interpreter"
            continue
        version = _FULL_VERSION.match(venv_version(prefix))
        if version is None:
            try:
                return _ask(executable, variable, env)
            except InputError:
                skipped += f"; {variable}={prefix} has no interpreter"
                continue
        minor = ".".join(version[0].split(".")[:2])
        free_threaded = os.path.isdir(os.path.join(prefix, "lib", f"python{minor}t"))
        python = _python(version[0], free_threaded, executable)
        return Target(python=python, source=f"{variable}: pyvenv.cfg")
    return Target(python=_running_python(), source=f"the interpreter running gpuenv{skipped}")


def parse_version(text: str) -> Python | None:
    """Return the Python of a version such as "3.12" or "3.13.1t"; None for another text."""
    match = _VERSION.fullmatch(text.strip())
    if match is None:
        return None
    minor, rest, threads = match.groups()
    return Python(
        version=(3, int(minor)),
        full_version=f"3.{minor}{rest}" if rest else None,
        free_threaded=threads == "t",
    )


def _python(full: str, free_threaded: bool, executable: str | None) -> Python:
    major, minor = full.split(".")[:2]
    return Python(
        version=(int(major), int(minor)),
        full_version=full.rstrip("+"),
        free_threaded=free_threaded,
        executable=executable,
    )


def _running_python() -> Python:
    free_threaded = "t" in getattr(sys, "abiflags", "")  # Windows has no abiflags
    return _python(sys.version.split()[0], free_threaded, sys.executable or None)


def _ask(executable: str, source: str, env: Mapping[str, str]) -> Target:
    """Run an interpreter to get its version and its C library. InputError if it is not one."""
    python = _inspect(executable, env)
    if python is None:
        message = f"{executable} does not answer as an interpreter of Python 3"
        raise InputError(message, hint=_HINT)
    code = "import os; print(os.confstr('CS_GNU_LIBC_VERSION'))"
    command = [executable, "-I", "-S", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=dict(env), check=False)
    libc = done.stdout.strip() or "none"
    return Target(python=python, source=f"{source}: asked {executable}", libc=libc)


def _inspect(executable: str, env: Mapping[str, str]) -> Python | None:
    """Return what an interpreter says about itself; None if it is none of Python 3."""
    from python_discovery import PythonInfo  # runs code of the interpreter that imports it

    logging.getLogger("python_discovery").setLevel(logging.CRITICAL)  # gpuenv says what failed
    info = PythonInfo.from_exe(executable, raise_on_error=False, resolve_to_host=False, env=env)
    if info is None:
        return None
    return _python(info.version.split()[0], info.free_threaded, executable)


# ---- an interpreter for a new environment --------------------------------------------------------


def find_base_interpreter(lock: Lock, python: str | None) -> str:
    """Return an interpreter of the lock's Python.

    Args:
        lock: the lock.
        python: the version or the interpreter that the user wants.

    Raises:
        InputError: there is none, or `python` is not of the lock's version.
    """
    required = required_python(lock)
    if required is None:
        return sys.executable
    version = required.release
    if python is None or parse_version(python) is not None:
        interpreter = find_interpreter_of(required)
        if interpreter is not None:
            return interpreter
        hint = "name one: --python EXE"
        if find_uv() is not None:
            hint += ", or let uv download one: --python-downloads"
        raise InputError(f"no Python {version} was found, which the lock is for", hint=hint)
    named = _inspect(shutil.which(python) or python, os.environ)
    if named is not None and named.release == version:
        return python
    have = "cannot be run"
    if named is not None:
        have = f"is Python {named.release}"
    raise InputError(f"--python {python}: {have}; the lock is for Python {version}")


def find_interpreter_of(wanted: Python) -> str | None:
    """Return an interpreter of the release of a Python; None if there is none here."""
    if wanted.release == _running_python().release:
        return sys.executable
    root = os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv"))
    pattern = os.path.join(glob.escape(root), "versions", f"{show_pair(wanted.version)}.*")
    newest_first = sorted(glob.glob(pattern), key=_numbers, reverse=True)
    of_pyenv = [os.path.join(folder, "bin", "python") for folder in newest_first]
    from python_discovery import get_interpreter

    info = get_interpreter(f"cpython{wanted.release}", try_first_with=of_pyenv)
    return None if info is None else info.executable


def _numbers(path: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", os.path.basename(path))]


def download(wanted: Python) -> str:
    """Let uv download an interpreter, and return its path.

    Raises:
        InputError: uv is not installed.
        InstallError: uv cannot download it.
    """
    uv, version = find_uv(), wanted.release
    if uv is None:
        raise InputError("--python-downloads needs uv, which is not installed", hint="install uv")
    # Without --no-bin, uv writes a link into the user's folder of programs.
    command = [uv, "python", "install", "--quiet", "--no-bin", version]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    path = find_interpreter_of(wanted)
    if process.returncode or path is None:
        errors = [line for line in process.stderr.splitlines() if line.startswith("error: ")]
        detail = "".join(errors[:1]).removeprefix("error: ") or f"status {process.returncode}"
        raise InstallError(
            f"uv cannot download Python {version}: {detail}", hint="name one: --python EXE"
        )
    return path


def required_python(lock: Lock) -> Python | None:
    """Return the Python that a lock needs; None if it needs none."""
    if lock.needs.python is None:
        return None
    return Python(version=lock.needs.python, free_threaded=lock.host.python.free_threaded)


# ---- uv, pip and venv ----------------------------------------------------------------------------


def find_pip() -> str | None:
    """Return the program of the pip beside gpuenv, which other interpreters can run; or None.

    `pip --python` runs it so, too, but in a second process, which outlives the first.
    """
    pip = importlib.util.find_spec("pip")
    if pip is None or not pip.submodule_search_locations:
        return None
    return os.path.join(pip.submodule_search_locations[0], "__pip-runner__.py")


def find_uv() -> str | None:
    """Return the path of uv: the one beside gpuenv, otherwise the one on PATH."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        beside = os.path.dirname(sys.executable)
        return shutil.which("uv", path=os.pathsep.join((beside, *os.get_exec_path())))


def venv_command(
    base: str, folder: str, *, uv: str | None, prompt: str, pip: bool = False
) -> list[str]:
    """Return the command that makes a virtual environment.

    Args:
        base: the interpreter.
        folder: the folder of the environment.
        uv: the uv that makes it; None lets the venv module of the interpreter make it.
        prompt: what a shell shows in which the environment is active.
        pip: whether it gets the pip that came with the interpreter; not with uv.
    """
    if uv is not None:
        flags = ["--quiet", "--no-project", "--no-config", "--prompt", prompt, "--python", base]
        return [uv, "venv", *flags, folder]
    without = [] if pip else ["--without-pip"]
    return [base, "-I", "-m", "venv", *without, "--prompt", prompt, folder]
