"""Installation of wheels into a virtual environment, by uv if it is installed, else by pip.

Both get the same list: each file by its URL with its sha256, without resolution of dependencies
and without an index. A source distribution is built in isolation, with its build requirements from
its own index. An environment that gpuenv made (it has `gpuenv.json`) holds exactly the lock
afterwards. From any other environment nothing is removed.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import Protocol

from ..atomic_write import write_whole
from ..errors import InputError, InstallError
from ..model import Lock, Value, parse_pair, show_pair
from ..prefix import find_interpreter, interpreter_of
from ..requirements.versions import normalize_name
from .interpreters import find_base_interpreter
from .variant_files import with_ordinary_names

Progress = Callable[[str], None]
MARK = "gpuenv.json"
# What pip and uv write where a file does not have the hash that it should have.
_WRONG_HASH = ("DO NOT MATCH THE HASHES", "Hash mismatch")
# Settings of pip that would send the files elsewhere.
_DROPPED_VARIABLES = ("PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_REQUIRE_VIRTUALENV")
_MESSAGE_LENGTH = 400


def sync(
    lock: Lock,
    target: str,
    *,
    installer: str = "auto",
    python: str | None = None,
    progress: Progress | None = None,
) -> str:
    """Install a lock into the environment at `target`, and return its interpreter.

    A new environment that fails half way is removed again.

    Args:
        lock: The files to install.
        target: The folder of the environment; it is made if it is missing or empty.
        installer: uv, pip or auto.
        python: The version or the interpreter for a new environment.
        progress: Called with a line before each step.

    Raises:
        InputError: The target, the installer or the interpreter cannot be used.
        InstallError: The installer failed.
    """
    report = progress or _ignore
    target = os.path.abspath(target)
    tool, base = check(lock, target, installer=installer, python=python)
    if base is None:
        report(f"installing {len(lock.pins)} packages with {tool.name}")
        exact = os.path.isfile(os.path.join(target, MARK))
        _install(lock, tool, interpreter_of(target), exact=exact)
        return interpreter_of(target)
    try:
        report(f"making {target} with {base}")
        _run(tool.make_command(base, target), "making it")
        report(f"installing {len(lock.pins)} packages with {tool.name}")
        _install(lock, tool, interpreter_of(target), exact=True)
        _write_mark(lock, target)
    except BaseException:
        shutil.rmtree(target, ignore_errors=True)
        raise
    return interpreter_of(target)


def add(
    lock: Lock,
    python: str,
    *,
    remove: Sequence[str] = (),
    installer: str = "auto",
    progress: Progress | None = None,
) -> None:
    """Remove the distributions named `remove`, then install the files of a lock.

    Nothing else in the environment of the interpreter changes. Raises as `sync` does.
    """
    report = progress or _ignore
    tool = _find_installer(installer)
    if remove:
        report(f"removing {', '.join(remove)}")
        _run(tool.remove_command(python, remove), "removing packages")
    if lock.pins:
        report(f"installing {len(lock.pins)} packages with {tool.name}")
        _install(lock, tool, python, exact=False)


def check(
    lock: Lock, target: str, *, installer: str = "auto", python: str | None = None
) -> tuple[Installer, str | None]:
    """Check what can be checked before anything is written.

    Returns:
        The installer, and the interpreter that makes the environment; None if it exists.

    Raises:
        InputError: As `sync`.
    """
    tool, target = _find_installer(installer), os.path.abspath(target)
    if os.path.exists(target) and not os.path.isdir(target):
        raise InputError(f"--target {target}: is not a folder")
    if os.path.isdir(target) and os.listdir(target):
        _check_existing(lock, target)
        return tool, None
    if not os.path.isdir(os.path.dirname(target)):
        raise InputError(f"--target {target}: the folder above it does not exist")
    return tool, find_base_interpreter(lock, python, find_uv())


def check_installer(name: str) -> None:
    """Raise InputError if the installer of that name is not installed."""
    _find_installer(name)


def _ignore(line: str) -> None:
    """Report no progress."""


# ---- installers ---------------------------------------------------------------------------------


class Installer(Protocol):
    """The commands of one installer."""

    @property
    def name(self) -> str:
        """What messages call it."""

    def make_command(self, base: str, target: str) -> list[str]:
        """Make a virtual environment at `target` with the interpreter `base`."""

    def install_command(self, python: str, path: str, lock: Lock, *, exact: bool) -> list[str]:
        """Install the requirements file at `path`, and with `exact` remove all else if it can."""

    def remove_command(self, python: str, names: Sequence[str]) -> list[str]:
        """Remove distributions."""

    def extra_names(self, python: str, lock: Lock) -> list[str]:
        """Return what must be removed before an exact installation of the lock."""


class Uv(Value):
    """uv, by the path of its executable."""

    path: str
    name: str = "uv"

    def make_command(self, base: str, target: str) -> list[str]:
        """As Installer."""
        flags = ["--quiet", "--no-project", "--no-config"]
        return [self.path, "venv", *flags, "--python", base, target]

    def install_command(self, python: str, path: str, lock: Lock, *, exact: bool) -> list[str]:
        """As Installer: `uv pip sync` removes what the file does not name."""
        mode = ["install", "--no-deps", "--requirements"]
        if exact:
            mode = ["sync", "--allow-empty-requirements"]
        flags = ["--require-hashes", *_index_flags(lock), "--no-config", "--python", python]
        return [self.path, "pip", *mode, path, *flags]

    def remove_command(self, python: str, names: Sequence[str]) -> list[str]:
        """As Installer."""
        return [self.path, "pip", "uninstall", "--no-config", "--python", python, *names]

    def extra_names(self, python: str, lock: Lock) -> list[str]:
        """As Installer."""
        return []


class Pip(Value):
    """The pip beside gpuenv, which works on other interpreters by `--python`."""

    name: str = "pip"

    def _command(self, python: str) -> list[str]:
        return [sys.executable, "-m", "pip", "--python", python]

    def make_command(self, base: str, target: str) -> list[str]:
        """As Installer."""
        return [base, "-m", "venv", "--without-pip", target]

    def install_command(self, python: str, path: str, lock: Lock, *, exact: bool) -> list[str]:
        """As Installer."""
        flags = ["--no-deps", *_index_flags(lock), "--require-hashes", "--no-input"]
        if "--no-index" in flags:
            flags += ["--only-binary", ":all:"]
        flags += ["--disable-pip-version-check", "--no-warn-script-location"]
        return [*self._command(python), "install", *flags, "--requirement", path]

    def remove_command(self, python: str, names: Sequence[str]) -> list[str]:
        """As Installer."""
        return [*self._command(python), "uninstall", "--yes", *names]

    def extra_names(self, python: str, lock: Lock) -> list[str]:
        """As Installer: pip has no command that removes what a file does not name."""
        flags = ["--format", "json", "--disable-pip-version-check"]
        command = [*self._command(python), "list", *flags]
        process = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            names = [row["name"] for row in json.loads(process.stdout)]
        except (ValueError, KeyError, TypeError):
            detail = _error_line(process.stderr)
            raise InstallError(f"pip cannot list {python}: {detail}") from None
        locked = {pin.wheel.name for pin in lock.pins}
        return [name for name in names if normalize_name(name) not in locked]


def _find_installer(name: str) -> Installer:
    """Return the installer of that name; auto is uv, else pip. InputError without one."""
    if name != "pip":
        path = find_uv()
        if path is not None:
            return Uv(path=path)
        if name == "uv":
            raise InputError("uv is not installed", hint="install uv, or give --installer pip")
    if importlib.util.find_spec("pip") is None:
        message = "neither uv nor pip is installed beside gpuenv"
        raise InputError(message, hint="install one of them")
    return Pip()


def find_uv() -> str | None:
    """Return the path of uv: the one beside gpuenv, otherwise the one on PATH."""
    try:
        from uv import find_uv_bin

        return str(find_uv_bin())
    except (ImportError, FileNotFoundError):
        return shutil.which("uv")


def _index_flags(lock: Lock) -> list[str]:
    """Use no index, except for the build requirements of source distributions."""
    sdists = [pin.wheel for pin in lock.pins if not pin.wheel.filename.endswith(".whl")]
    if not sdists:
        return ["--no-index"]
    for sdist in sdists:
        if sdist.index.startswith(("https://", "http://")):
            return ["--index-url", sdist.index]
    return []


# ---- the target ----------------------------------------------------------------------------------


def _check_existing(lock: Lock, target: str) -> None:
    """Raise InputError for a folder that is no environment, or one of another Python."""
    config = os.path.join(target, "pyvenv.cfg")
    if not os.path.isfile(config) or find_interpreter(target) is None:
        raise InputError(f"--target {target}: has files in it and is no virtual environment")
    with open(config, encoding="utf-8") as file:
        pairs = [line.partition("=") for line in file]
    fields = {key.strip(): value.strip() for key, _, value in pairs}
    text = fields.get("version_info") or fields.get("version") or ""
    try:
        version = parse_pair(".".join(text.split(".")[:2]))
    except ValueError:
        raise InputError(f"{config}: does not say which Python it is for") from None
    if lock.needs.python is not None and version != lock.needs.python:
        have, need = show_pair(version), show_pair(lock.needs.python)
        message = f"--target {target}: is for Python {have}, and the lock is for Python {need}"
        raise InputError(message)


# ---- running an installer -----------------------------------------------------------------------


def _install(lock: Lock, tool: Installer, python: str, *, exact: bool) -> None:
    if exact:
        extra = tool.extra_names(python, lock)
        if extra:
            what = "removing what the lock does not name"
            _run(tool.remove_command(python, extra), what)
    with tempfile.TemporaryDirectory(prefix="gpuenv-") as folder:
        lock = with_ordinary_names(lock, folder)
        path = os.path.join(folder, "requirements.txt")
        with open(path, "w", encoding="utf-8") as file:
            for pin in lock.pins:
                wheel = pin.wheel
                file.write(f"{wheel.name} @ {wheel.url} --hash=sha256:{wheel.sha256}\n")
        _run(tool.install_command(python, path, lock, exact=exact), "installing", lock)


def _run(command: list[str], action: str, lock: Lock | None = None) -> None:
    """Run an installer. InstallError says what failed, and of which file.

    On a terminal the installer shows its progress; otherwise its output is kept for the message.
    """
    stdout: int | None = subprocess.PIPE
    stderr: int | None = subprocess.STDOUT
    if sys.stderr.isatty():
        stdout = stderr = None  # inherited
    variables = os.environ.items()
    environment = {key: value for key, value in variables if key not in _DROPPED_VARIABLES}
    with subprocess.Popen(
        command, stdout=stdout, stderr=stderr, text=True, errors="replace", env=environment
    ) as child:
        try:
            output = child.communicate()[0] or "its output is above"
        except BaseException:
            child.kill()
            raise
    if child.returncode:
        wrong_hash = _wrong_hash(output, lock)
        if wrong_hash is not None:
            raise InstallError(wrong_hash)
        tool, detail = os.path.basename(command[0]), _error_line(output)
        raise InstallError(f"{action} failed ({tool}, status {child.returncode}): {detail}")


def _wrong_hash(output: str, lock: Lock | None) -> str | None:
    """Return which file has a wrong hash, by an installer's output; None if none has."""
    if not any(text in output for text in _WRONG_HASH):
        return None
    pins = () if lock is None else lock.pins
    for pin in pins:
        locked = pin.wheel.sha256
        if locked and locked in output:
            have = _other_digest(output, locked)
            name = pin.wheel.filename
            return f"{name} has the wrong hash: the lock says sha256 {locked}, the file has {have}"
    return f"a file has the wrong hash: {_error_line(output)}"


def _other_digest(output: str, locked: str) -> str:
    for word in output.replace(":", " ").split():
        if len(word) == len(locked) and word != locked and set(word) <= set("0123456789abcdef"):
            return word
    return "another one"


def _error_line(output: str) -> str:
    """Return the last line that names an error, with the cause that uv writes last."""
    # uv draws a frame around its errors.
    frame = " \u2570\u251c\u2500\u25b6\xd7"
    lines = [line.strip(frame) for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "failed"))]
    causes = [line for line in lines if line.lower().startswith(("cause", "caused by"))]
    parts = [*errors[-1:], *causes[-1:]] or lines[-1:] or ["there was no output"]
    return ": ".join(part.partition(": ")[2] or part for part in parts)[:_MESSAGE_LENGTH]


def _write_mark(lock: Lock, target: str) -> None:
    text = json.dumps({"made_by": "gpuenv", "digest": lock.digest})
    write_whole(os.path.join(target, MARK), text.encode())
