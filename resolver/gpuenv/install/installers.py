"""uv and pip: the commands that make and fill virtual environments.

Both get files by their URLs with their sha256s, without resolution of dependencies and without an
index. uv gets a pylock.toml. pip gets a page of links and requirements "name==version". So the
installed packages look as if they came from an index, and nothing in a URL is expanded or split.
Only a file that the user named by its URL is installed by its URL. Wheels of source distributions
are built before (built_wheels).

An installer is killed when gpuenv ends, however it ends.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from ..errors import InputError, InstallError
from ..interpreters import find_pip, find_uv
from ..lock import pylock
from ..model import IndexOptions, Lock, Pin, Value, Wheel
from .built_wheels import with_built_wheels
from .bundle import unpack_bundled
from .variant_files import with_ordinary_names

# What pip and uv write where a file does not have the hash that it should have.
_WRONG_HASH = ("DO NOT MATCH THE HASHES", "Hash mismatch")
# What pip and uv write where a server cannot be reached.
_NO_CONNECTION = re.compile("connect|resolve|lookup|timed out|dns error", re.IGNORECASE)
_LOCAL_FILES = "name a folder that has the file: --find-links DIR"
# Settings of pip that would send the files elsewhere.
_DROPPED_VARIABLES = ("PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_REQUIRE_VIRTUALENV")
_MESSAGE_LENGTH = 400
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


class Installer(Protocol):
    """The commands of one installer."""

    @property
    def name(self) -> str:
        """Return the name of the installer in messages."""

    def make_command(self, base: str, folder: str, prompt: str) -> list[str]:
        """Make a virtual environment in `folder` with the interpreter `base`."""

    def install_command(self, python: str, lock: Lock, folder: str) -> list[str]:
        """Install the files of a lock. The command reads files that are written to `folder`."""

    def remove_command(self, python: str, names: Sequence[str]) -> list[str]:
        """Remove distributions."""


class Uv(Value):
    """uv, by the path of its executable."""

    path: str
    name: str = "uv"

    def make_command(self, base: str, folder: str, prompt: str) -> list[str]:
        """As Installer."""
        flags = ["--quiet", "--no-project", "--no-config", "--prompt", prompt]
        return [self.path, "venv", *flags, "--python", base, folder]

    def install_command(self, python: str, lock: Lock, folder: str) -> list[str]:
        """As Installer."""
        path = os.path.join(folder, "pylock.toml")
        _write(path, pylock.installer_text(lock))
        flags = ["--no-deps", "--require-hashes", *_cache_flags(lock), "--no-config"]
        flags += ["--preview-features", "pylock", "--python", python]
        return [self.path, "pip", "install", *flags, "--requirements", path]

    def remove_command(self, python: str, names: Sequence[str]) -> list[str]:
        """As Installer."""
        return [self.path, "pip", "uninstall", "--no-config", "--python", python, *names]


class Pip(Value):
    """The pip beside gpuenv, by the path of its program (interpreters.find_pip)."""

    path: str
    name: str = "pip"

    def _command(self, python: str, name: str) -> list[str]:
        return [python, "-I", self.path, name]

    def make_command(self, base: str, folder: str, prompt: str) -> list[str]:
        """As Installer."""
        return [base, "-m", "venv", "--without-pip", "--prompt", prompt, folder]

    def install_command(self, python: str, lock: Lock, folder: str) -> list[str]:
        """As Installer."""
        links, path = os.path.join(folder, "links.html"), os.path.join(folder, "requirements.txt")
        _write(links, "".join(map(_link, lock.pins)))
        _write(path, "".join(map(_requirement, lock.pins)))
        flags = ["--no-deps", "--no-index", "--require-hashes", "--no-input"]
        flags += ["--only-binary", ":all:"]
        # Bytecode would have the paths of the folder in which the environment is built.
        flags += ["--no-compile", "--disable-pip-version-check", "--no-warn-script-location"]
        command = self._command(python, "install")
        return [*command, *flags, "--find-links", links, "--requirement", path]

    def remove_command(self, python: str, names: Sequence[str]) -> list[str]:
        """As Installer."""
        return [*self._command(python, "uninstall"), "--yes", *names]


def _link(pin: Pin) -> str:
    """Return a link to a file, as on the page of an index."""
    import html

    wheel = pin.wheel
    url = html.escape(f"{wheel.url}#sha256={wheel.sha256}")
    return f'<a href="{url}">{html.escape(wheel.filename)}</a>\n'


def _requirement(pin: Pin) -> str:
    wheel = pin.wheel
    source = f"=={wheel.version}"
    if wheel.index == pylock.DIRECT:
        source = f" @ {wheel.url}"
    return f"{wheel.name}{source} --hash=sha256:{wheel.sha256}\n"


def _cache_flags(lock: Lock) -> list[str]:
    """Name the indexes of a lock, which uv does not ask: it keeps its cached files by index."""
    remote = ("https://", "http://")
    urls = {pin.wheel.index: None for pin in lock.pins if pin.wheel.index.startswith(remote)}
    if not urls:
        return ["--no-index"]
    first, *others = urls
    flags = ["--index-url", first]
    for url in others:
        flags += ["--extra-index-url", url]
    return flags


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def find_installer(name: str) -> Installer:
    """Return the installer of that name; auto is uv, else pip. InputError without one."""
    if name != "pip":
        path = find_uv()
        if path is not None:
            return Uv(path=path)
        if name == "uv":
            raise InputError("uv is not installed", hint="install uv, or give --installer pip")
    pip = find_pip()
    if pip is None:
        message = "neither uv nor pip is installed beside gpuenv"
        raise InputError(message, hint="install one of them")
    return Pip(path=pip)


# ---- running an installer -----------------------------------------------------------------------


def install(lock: Lock, tool: Installer, python: str, folder: str, builds: IndexOptions) -> None:
    """Install the files of a lock into the environment of an interpreter.

    Args:
        lock: The files.
        tool: The installer.
        python: The interpreter.
        folder: A folder for temporary files.
        builds: Where the build requirements of source distributions come from.

    Raises:
        InstallError: The installer or a build failed.
    """
    lock = with_built_wheels(unpack_bundled(lock, folder), python, folder, builds)
    lock = with_ordinary_names(lock, folder)
    run(tool.install_command(python, lock, folder), "installing", lock, temporary=folder)


def run(
    command: list[str], action: str, lock: Lock | None = None, *, temporary: str | None = None
) -> None:
    """Run an installer with temporary files in a folder.

    InstallError says what failed, and of which file.

    On a terminal the installer shows its progress; otherwise its output is kept for the message.
    """
    stdout: int | None = subprocess.PIPE
    stderr: int | None = subprocess.STDOUT
    if sys.stderr.isatty():
        stdout = stderr = None  # inherited
    tool = "pip" if any("__pip-runner__" in word for word in command) else command[0]
    variables = os.environ.items()
    environment = {key: value for key, value in variables if key not in _DROPPED_VARIABLES}
    if temporary is not None:
        environment["TMPDIR"] = temporary
    with subprocess.Popen(
        command,
        stdout=stdout,
        stderr=stderr,
        text=True,
        errors="replace",
        env=environment,
        preexec_fn=_end_with_parent(),  # noqa: PLW1509  it calls C functions only
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
        file, detail = _failed_file(output, lock), _error_line(output)
        place = "" if file is None else f"{file.name} {file.version} from {file.url}: "
        status = f"{os.path.basename(tool)}, status {child.returncode}"
        message = f"{action} failed ({status}): {place}{detail}"
        raise InstallError(message, hint=_connection_hint(file, detail))


def _end_with_parent() -> Callable[[], None] | None:
    """Return what a child calls before it becomes the installer, None if nothing.

    The kernel then kills the installer when gpuenv ends. The setting survives exec(2).
    """
    if sys.platform != "linux":
        return None
    parent, prctl = os.getpid(), ctypes.CDLL(None).prctl

    def set_signal() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # it ended before the setting
            os._exit(1)

    return set_signal


def _connection_hint(file: Wheel | None, detail: str) -> str:
    """Return what helps if a file cannot be downloaded, otherwise ""."""
    if not _NO_CONNECTION.search(detail):
        return ""
    if file is not None and "+" in file.version:  # never on the default index
        return f"{_LOCAL_FILES}, or solve with --default-index-only to leave this index out"
    return _LOCAL_FILES


def _failed_file(output: str, lock: Lock | None) -> Wheel | None:
    """Return the file that an installer's output names last; None if it names none."""
    last_place, file = -1, None
    for pin in () if lock is None else lock.pins:
        wheel = pin.wheel
        names = (wheel.url, wheel.filename, f"`{wheel.name}=={wheel.version}`")
        # pip names every file that it downloads: the last one is the one that failed.
        place = max(map(output.rfind, names))
        if place > last_place:
            last_place, file = place, wheel
    return file


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
