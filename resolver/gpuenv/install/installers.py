"""uv and pip: the commands that make and fill virtual environments.

Both get files by their URLs with their sha256s, without resolution of dependencies and without an
index. uv gets a pylock.toml. pip gets a page of links and requirements "name==version". So the
installed packages look as if they came from an index, and nothing in a URL is expanded or split.
Only a file that the user named by its URL, and for pip one that is named for a build of torch, is
installed by its URL. Wheels of source distributions are built before (lock_files).

An installer is killed when gpuenv ends, however it ends.
"""

from __future__ import annotations

import ctypes
import html
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

from ..atomic_write import write_all, write_whole
from ..compat.extensions import of_version
from ..errors import InputError, InstallError
from ..index.protocol import DIRECT_URL
from ..index.source_builds import NO_CONNECTION
from ..interpreters import find_pip, find_uv, venv_command
from ..lock import pylock
from ..model import IndexOptions, Lock, Value, Wheel
from .lock_files import installable, missing_offline

# What pip and uv write where a file does not have the hash that it should have.
_WRONG_HASH = ("DO NOT MATCH THE HASHES", "Hash mismatch")
# Settings of pip that would send the files elsewhere.
_DROPPED_VARIABLES = ("PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_REQUIRE_VIRTUALENV")
_MESSAGE_LENGTH = 400
_PR_SET_PDEATHSIG = 1  # of linux/prctl.h


class Installer(Value):
    """uv, by the path of its executable, or the pip beside gpuenv, by that of its program."""

    name: str
    path: str

    def make(self, base: str, folder: str, prompt: str) -> None:
        """Make a virtual environment in `folder` with the interpreter `base`."""
        uv = self.path if self.name == "uv" else None
        self._run(venv_command(base, folder, uv=uv, prompt=prompt), "making it")

    def install(self, lock: Lock, python: str, folder: str, builds: IndexOptions) -> None:
        """Install the files of a lock into the environment of an interpreter.

        Args:
            lock: The files.
            python: The interpreter.
            folder: A folder for temporary files.
            builds: Where the build requirements of source distributions come from. With `offline`,
                uv takes files of its cache; pip has no such mode.

        Raises:
            InstallError: The installer or a build failed, or a file is missing offline.
        """
        lock = installable(lock, python, folder, builds)
        if self.name == "uv":
            path = os.path.join(folder, "pylock.toml")
            write_whole(path, pylock.installer_text(lock).encode())
            flags = ["--no-deps", "--require-hashes", *_cache_flags(lock), "--no-config"]
            flags += ["--preview-features", "pylock", "--python", python]
            flags += ["--offline"] * builds.offline
            command = [self.path, "pip", "install", *flags, "--requirements", path]
        else:
            page, requirements = "", ""
            for wheel in (pin.wheel for pin in lock.pins):
                if builds.offline and not wheel.is_local:
                    raise missing_offline(wheel)
                url = html.escape(f"{wheel.url}#sha256={wheel.sha256}")
                page += f'<a href="{url}">{html.escape(wheel.filename)}</a>\n'
                # On a page, pip refuses a wheel whose METADATA lacks a part of its named version.
                by_url = wheel.index == DIRECT_URL or of_version(wheel.version) is not None
                source = f" @ {wheel.url}" if by_url else f"=={wheel.version}"
                requirements += f"{wheel.name}{source} --hash=sha256:{wheel.sha256}\n"
            links = os.path.join(folder, "links.html")
            path = os.path.join(folder, "requirements.txt")
            write_all({links: page.encode(), path: requirements.encode()})
            flags = ["--no-deps", "--no-index", "--require-hashes", "--no-input"]
            flags += ["--only-binary", ":all:"]
            # Bytecode would have the paths of the folder in which the environment is built.
            flags += ["--no-compile", "--disable-pip-version-check", "--no-warn-script-location"]
            flags += ["--find-links", links, "--requirement", path]
            command = [python, "-I", self.path, "install", *flags]
        self._run(command, "installing", lock, temporary=folder)

    def remove(self, python: str, names: Sequence[str]) -> None:
        """Remove distributions from the environment of an interpreter. InstallError if it fails."""
        command = [python, "-I", self.path, "uninstall", "--yes", *names]
        if self.name == "uv":
            command = [self.path, "pip", "uninstall", "--no-config", "--python", python, *names]
        self._run(command, "removing packages")

    def _run(
        self,
        command: list[str],
        action: str,
        lock: Lock | None = None,
        *,
        temporary: str | None = None,
    ) -> None:
        """Run a command with temporary files in a folder.

        InstallError says what failed, and of which file.

        On a terminal the installer shows its progress; otherwise its output is kept for the
        message.
        """
        stdout: int | None = subprocess.PIPE
        stderr: int | None = subprocess.STDOUT
        if sys.stderr.isatty():
            stdout = stderr = None  # inherited
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
            tool = self.name if self.path in command else os.path.basename(command[0])
            raise _failure(f"{action} failed ({tool}, status {child.returncode})", output, lock)


def find_installer(name: str) -> Installer:
    """Return the installer of that name; auto is uv, else pip. InputError without one."""
    uv = find_uv() if name != "pip" else None
    if uv is not None:
        return Installer(name="uv", path=uv)
    if name == "uv":
        raise InputError("uv is not installed", hint="install uv, or give --installer pip")
    pip = find_pip()
    if pip is None:
        message = "neither uv nor pip is installed beside gpuenv"
        raise InputError(message, hint="install one of them")
    return Installer(name="pip", path=pip)


# ---- what an installer reads ---------------------------------------------------------------------


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


# ---- why an installer failed ---------------------------------------------------------------------


def _failure(what: str, output: str, lock: Lock | None) -> InstallError:
    """Return why an installer failed, by its output."""

    def last_place(wheel: Wheel) -> int:
        """Return where the output names a file last; -1 if it does not."""
        names = (wheel.url, wheel.filename, f"`{wheel.name}=={wheel.version}`", wheel.sha256)
        return max(output.rfind(name) for name in names if name)

    detail, place, hint = _error_line(output), "", ""
    # pip names every file that it downloads: the last one is the one that failed.
    file = max((pin.wheel for pin in lock.pins) if lock else (), key=last_place, default=None)
    if file is not None and last_place(file) >= 0:
        if any(text in output for text in _WRONG_HASH):
            digests = re.findall(r"\b[0-9a-f]{64}\b", output)
            have = next((digest for digest in digests if digest != file.sha256), "another one")
            message = f"{file.filename} has the wrong hash: the lock says sha256 {file.sha256}"
            return InstallError(f"{message}, the file has {have}")
        place = f"{file.name} {file.version} from {file.url}: "
    if NO_CONNECTION.search(detail):
        hint = "name a folder that has the file: --find-links DIR"
        if place and file is not None and "+" in file.version:  # never on the default index
            hint += ", or solve with --default-index-only to leave this index out"
    return InstallError(f"{what}: {place}{detail}", hint=hint)


def _error_line(output: str) -> str:
    """Return the last line that names an error, with the cause that uv writes last."""
    # uv draws a frame around its errors.
    frame = " \u2570\u251c\u2500\u25b6\xd7"
    lines = [line.strip(frame) for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith(("error", "failed"))]
    causes = [line for line in lines if line.lower().startswith(("cause", "caused by"))]
    parts = [*errors[-1:], *causes[-1:]] or lines[-1:] or ["there was no output"]
    return ": ".join(part.partition(": ")[2] or part for part in parts)[:_MESSAGE_LENGTH]
