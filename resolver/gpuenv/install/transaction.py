"""Transactions: an environment is built beside the old one, and then takes its place at once.

Beside the target DIR/NAME there is a folder DIR/.NAME.gpuenv with

    lock            who changes the target now (target_lock.py)
    new-TOKEN       the environment that is being built
    old-TOKEN       the environment that new-TOKEN has replaced, until it is named `previous`
    previous        the environment before the last change, for `gpuenv rollback`
    work            temporary files of the installer
    trash-TOKEN     what is being removed

The target is exchanged with new-TOKEN by one call of the kernel, which no process can see half
done. Where a file system has no such call (NFS), the target is renamed to old-TOKEN and new-TOKEN
to the target. TOKEN is in `gpuenv.json` of the new environment, too. So whoever holds the lock next
knows what an interrupted run had done, and completes it (`_recover`).

The target stays a real folder at its path. The scripts of the new environment have this path in
them before it is there.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import sys
from collections.abc import Callable, Iterator

from ..errors import InputError, InstallError
from ..model import Value
from .environment_files import read_build
from .target_lock import LOCK, WORK, hold, remove

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of linux/fcntl.h and linux/fs.h
# What renameat2 fails with where the kernel or the file system cannot exchange.
_NO_EXCHANGE = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)
_PREVIOUS = "previous"


class ImmovableError(InstallError):
    """The system cannot rename the environment: it is in a lower layer of a container's image."""


class Transaction(Value):
    """The right to change a target, the folder beside it, and one for temporary files."""

    target: str
    folder: str
    work: str
    token: str

    @property
    def stage(self) -> str:
        """The folder of the new environment. No other run ever has the same one."""
        return os.path.join(self.folder, f"new-{self.token}")

    def final_path(self) -> tuple[re.Pattern[bytes], bytes]:
        """Return how the path of `stage` in a script becomes that of the target.

        The shells quote the characters of the folders above in different ways.
        """
        name = re.escape(f".gpuenv/new-{self.token}".encode())
        return re.compile(rb"/\.([^/\n]*)" + name), rb"/\1"

    def commit(self) -> None:
        """Put the new environment at the target. The old one becomes the previous one."""
        old = os.path.join(self.folder, f"old-{self.token}")
        try:
            if not os.path.isdir(self.target) or not os.listdir(self.target):
                os.rename(self.stage, self.target)  # replaces an empty folder
                return
            if _exchange(self.stage, self.target):
                os.rename(self.stage, old)
            else:
                os.rename(self.target, old)
                os.rename(self.stage, self.target)
        except OSError as error:
            message = f"{self.target} cannot be replaced: {error.strerror}"
            if error.errno == errno.EXDEV:
                hint = "a folder of an image layer cannot be renamed: give a new --target"
                raise ImmovableError(message, hint=hint) from None
            raise InstallError(message) from None
        _keep_as_previous(self.folder, old)


def place_of(target: str) -> str:
    """Return the folder that a target names: of a link, the folder that it leads to."""
    path = os.path.abspath(target)  # without a slash at its end, which follows a link
    return os.path.realpath(path) if os.path.islink(path) else path


def check_place(target: str) -> None:
    """Raise InputError for a path at which there can be no environment."""
    if os.path.exists(target) and not os.path.isdir(target):
        raise InputError(f"--target {target}: is not a folder")
    if os.path.ismount(target):
        message = f"--target {target}: is a mount point, which cannot be replaced"
        raise InputError(message, hint="give a folder in it")
    if not os.path.isdir(os.path.dirname(target)):
        message = f"--target {target}: the folder above it does not exist"
        raise InputError(message, hint="make it, or give another target")


@contextlib.contextmanager
def change(target: str, *, wait: float, report: Callable[[str], None]) -> Iterator[Transaction]:
    """Hold the lock of a target, complete what an interrupted run left, and clean up at the end.

    Args:
        target: The environment; it need not exist.
        wait: Seconds to wait for another run.
        report: Called with a line if another run is waited for.

    Raises:
        InputError: There can be no environment, or the folder above the target cannot be written.
        TargetBusyError: Another run holds the lock.
    """
    check_place(target)
    above, name = os.path.split(target)
    folder = os.path.join(above, f".{name}.gpuenv")
    with hold(folder, target, wait, report) as work:
        _recover(folder, target)
        token = os.urandom(8).hex()
        transaction = Transaction(target=target, folder=folder, work=work, token=token)
        try:
            yield transaction
        finally:
            if os.path.lexists(transaction.stage):
                remove(transaction.stage)


def roll_back(target: str, *, wait: float, report: Callable[[str], None]) -> None:
    """Exchange an environment and the previous one. InputError without a previous one."""
    target = place_of(target)
    with change(target, wait=wait, report=report) as transaction:
        previous = os.path.join(transaction.folder, _PREVIOUS)
        if not os.path.isdir(previous):
            message = f"--target {target}: there is no environment before this one"
            raise InputError(message, hint="a sync that changes it keeps the old one")
        if _exchange(previous, target):
            return
        old = os.path.join(transaction.folder, f"old-{transaction.token}")
        os.rename(target, old)
        os.rename(previous, target)
        os.rename(old, previous)


# ---- after an interrupted run -------------------------------------------------------------------


def _recover(folder: str, target: str) -> None:
    """Complete or undo what an interrupted run left. The caller holds the lock."""
    names = [name for name in os.listdir(folder) if name not in (LOCK, WORK, _PREVIOUS)]
    # First what decides which environment is at the target.
    for name in sorted(names, key=lambda name: not name.startswith("old-")):
        path = os.path.join(folder, name)
        kind, _, token = name.partition("-")
        if kind == "old":
            # Of the two renames of a replacement, the second may be missing.
            if not os.path.lexists(target):
                new = os.path.join(folder, f"new-{token}")
                os.rename(new if os.path.isdir(new) else path, target)
            if os.path.lexists(path):
                _keep_as_previous(folder, path)
        elif kind == "new" and os.path.lexists(path):
            build = read_build(target)
            if build is not None and build.token == token:
                _keep_as_previous(folder, path)
        if os.path.lexists(path):
            remove(path)


def _keep_as_previous(folder: str, old: str) -> None:
    previous = os.path.join(folder, _PREVIOUS)
    trash = os.path.join(folder, f"trash-{os.urandom(8).hex()}")
    if os.path.lexists(previous):
        os.rename(previous, trash)
    os.rename(old, previous)
    if os.path.lexists(trash):
        remove(trash)


# ---- the exchange -------------------------------------------------------------------------------


def _exchange(first: str, second: str) -> bool:
    """Exchange two folders by one call. Return False if this system or file system cannot."""
    if sys.platform != "linux":
        return False
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:  # glibc before 2.28
        return False
    paths = os.fsencode(first), os.fsencode(second)
    if renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in _NO_EXCHANGE:
        return False
    raise OSError(number, os.strerror(number), second)
