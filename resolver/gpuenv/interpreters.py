"""Find interpreters to make virtual environments with, and uv.

gpuenv looks at the interpreter that runs it, at PATH, and at the interpreters that pyenv and uv
manage. uv downloads one if the user agrees.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

from .errors import InputError, InstallError
from .model import Lock
from .prefix import find_interpreter

_VERSION_CODE = (
    "import sys, sysconfig; "
    "print(*sys.version_info[:2], int(bool(sysconfig.get_config_var('Py_GIL_DISABLED'))))"
)
_SECONDS = 30
Release = tuple[int, int, bool]  # major, minor, free-threaded


def find_base_interpreter(lock: Lock, python: str | None, uv: str | None) -> str:
    """Return an interpreter of the lock's Python.

    Args:
        lock: the lock.
        python: the version or the interpreter that the user wants.
        uv: the path of uv, None without it.

    Raises:
        InputError: there is none, or `python` is not of the lock's version.
    """
    required = required_release(lock)
    if required is None:
        return sys.executable
    if python is not None and not is_version(python):
        return _checked(python, required)
    interpreter = find_interpreter_of(required, uv)
    if interpreter is not None:
        return interpreter
    hint = "name one: --python EXE"
    if uv is not None:
        hint += ", or let uv download one: --python-downloads"
    version = version_text(required)
    raise InputError(f"no Python {version} was found, which the lock is for", hint=hint)


def find_interpreter_of(required: Release, uv: str | None) -> str | None:
    """Return an interpreter of a release; None if there is none here."""
    for candidate in _candidates(version_text(required), uv):
        if _release_of(candidate) == required:
            return candidate
    return None


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
    beside = os.path.join(os.path.dirname(sys.executable), "uv")
    if os.access(beside, os.X_OK):  # importing uv costs 4 ms
        return beside
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        return shutil.which("uv")


def download(version: str, uv: str | None) -> str:
    """Let uv download an interpreter, and return its path.

    Raises:
        InputError: uv is not installed.
        InstallError: uv cannot download it.
    """
    if uv is None:
        raise InputError("--python-downloads needs uv, which is not installed", hint="install uv")
    # Without --no-bin, uv writes a link into the user's folder of programs.
    command = [uv, "python", "install", "--quiet", "--no-bin", version]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    path = _managed_by_uv(version, uv)
    if process.returncode or path is None:
        errors = [line for line in process.stderr.splitlines() if line.startswith("error: ")]
        detail = "".join(errors[:1]).removeprefix("error: ") or f"status {process.returncode}"
        raise InstallError(
            f"uv cannot download Python {version}: {detail}", hint="name one: --python EXE"
        )
    return path


def required_release(lock: Lock) -> Release | None:
    """Return the Python that a lock needs; None if it needs none."""
    if lock.needs.python is None:
        return None
    return (*lock.needs.python, lock.host.python.free_threaded)


def version_text(release: Release) -> str:
    """Return (3, 13, True) as "3.13t"."""
    major, minor, free_threaded = release
    return f"{major}.{minor}t" if free_threaded else f"{major}.{minor}"


def is_version(python: str) -> bool:
    """Return whether a text is a version such as "3.12" or "3.13t", not an interpreter."""
    return python.removesuffix("t").replace(".", "").isdigit()


def _checked(python: str, required: Release) -> str:
    """Return the interpreter that the user named. InputError if it is of another version."""
    release = _release_of(python)
    if release == required:
        return python
    have = "cannot be run"
    if release is not None:
        have = f"is Python {version_text(release)}"
    version = version_text(required)
    raise InputError(f"--python {python}: {have}; the lock is for Python {version}")


def _candidates(version: str, uv: str | None) -> Iterator[str]:
    yield sys.executable
    on_path = shutil.which(f"python{version}")
    if on_path:
        yield on_path
    yield from _managed_by_pyenv(version)
    if uv is not None:
        managed = _managed_by_uv(version, uv)
        if managed:
            yield managed


def _managed_by_pyenv(version: str) -> Iterator[str]:
    """Return pyenv's interpreters of a version such as "3.12" or "3.13t", the newest first."""
    folder = os.path.join(os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")), "versions")
    try:
        names = os.listdir(folder)
    except OSError:
        return
    patches: list[tuple[int, str]] = []
    free_threaded = version.endswith("t")
    for name in names:
        minor, _, patch = name.removesuffix("t").rpartition(".")
        same_kind = name.endswith("t") == free_threaded
        if same_kind and minor == version.removesuffix("t") and patch.isdecimal():
            patches.append((int(patch), name))
    for _, name in sorted(patches, reverse=True):
        executable = find_interpreter(os.path.join(folder, name))
        if executable is not None:
            yield executable


def _managed_by_uv(version: str, uv: str) -> str | None:
    # Among all interpreters uv would also try those of PATH, and fail at the links of pyenv.
    flags = ["--managed-python", "--no-project", "--no-python-downloads", "--offline"]
    command = [uv, "python", "find", *flags, version]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    return process.stdout.strip() if process.returncode == 0 else None


def _release_of(executable: str) -> Release | None:
    """Return the release of an interpreter; None if it cannot be run."""
    if executable == sys.executable:
        without_gil = "free-threading build" in sys.version  # importing sysconfig costs 4 ms
        return sys.version_info[0], sys.version_info[1], without_gil
    command = [executable, "-I", "-c", _VERSION_CODE]
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
        major, minor, free_threaded = process.stdout.split()
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return int(major), int(minor), free_threaded == "1"
