"""The lock on a target: one process at a time changes an environment, also on a shared folder.

The lock is a file that names its holder. A process writes its own name into a file of its own and
links it to the name of the lock: of several processes one succeeds, on local disks and on NFS, and
nobody ever sees a lock without a name in it. A holder that has ended on this machine loses the
lock. Of a holder on another machine nobody here can know whether it has ended.

filelock 4.3 has no lock that does this. FileLock is flock(2), which does not reach other machines
on NFS mounted with local_lock or nolock. SoftFileLock takes the lock of a running process on
another machine of the same host name, and waits forever for the empty lock of a process that was
killed while it made it. StrictSoftFileLock never takes the lock of a killed process. SoftFileLease
takes the lock of a process that was suspended for longer than its lease.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import time
from collections.abc import Callable, Iterator

import msgspec

from ..errors import InputError, TargetBusyError
from ..process_identity import ProcessIdentity, has_ended, this_process

LOCK, WORK = "lock", "work"
_CLAIM = "claim-"  # the beginning of the names of the files that are linked to the lock
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0  # seconds between two attempts
_REMOVALS, _REMOVAL_PAUSE = 20, 0.1  # attempts, seconds


class _Holder(ProcessIdentity):
    """Who holds a lock. `token` is different for each lock."""

    token: str


@contextlib.contextmanager
def hold(folder: str, target: str, wait: float, report: Callable[[str], None]) -> Iterator[str]:
    """Hold the lock of a target. The folder of the lock is made, and removed if it is empty.

    Yields a new folder for temporary files. It is removed at the end, or by the next run.

    Args:
        folder: The folder of the lock, beside the target.
        target: What the messages name.
        wait: Seconds to wait for another holder.
        report: Called once with a line about another holder.

    Raises:
        InputError: The folder cannot be written.
        TargetBusyError: Another process held the lock all the time.
    """
    own = _Holder(token=os.urandom(8).hex(), **msgspec.structs.asdict(this_process()))
    path, work = os.path.join(folder, LOCK), os.path.join(folder, WORK)
    _acquire(folder, own, target, wait, report)
    try:
        # The claims of killed processes. A running one whose claim is removed tries again.
        for name in os.listdir(folder):
            if name.startswith(_CLAIM):
                with contextlib.suppress(OSError):
                    os.unlink(os.path.join(folder, name))
        remove(work)
        os.mkdir(work)
        yield work
    finally:
        remove(work)
        with contextlib.suppress(OSError):
            if _read_holder(path) == own:
                os.unlink(path)
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _acquire(
    folder: str, own: _Holder, target: str, wait: float, report: Callable[[str], None]
) -> None:
    path, end, pause = os.path.join(folder, LOCK), time.monotonic() + wait, _SHORTEST_PAUSE
    reported = False
    while True:
        try:
            if not os.path.exists(path) and _claim(folder, own, target):
                return
            holder = _read_holder(path)
        except FileNotFoundError:  # the holder has just removed the lock, or the folder
            continue
        if holder is not None and has_ended(holder):
            _break_lock(path, holder)
            continue
        name = f"process {holder.pid} on {holder.host}" if holder is not None else "another process"
        if time.monotonic() >= end:
            hint = f"wait for it; if it no longer runs, remove {path}"
            raise TargetBusyError(f"{name} changes {target}", hint=hint)
        if not reported:
            report(f"waiting: {name} changes {target}")
            reported = True
        # At random, so that a hundred waiting processes do not ask at the same moments.
        share = random.uniform(0.5, 1.0)  # noqa: S311  no secret
        time.sleep(min(pause, max(0.0, end - time.monotonic())) * share)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _claim(folder: str, own: _Holder, target: str) -> bool:
    """Try to get a lock that nobody holds. Return whether it is ours now."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        pass
    except OSError as error:
        message = f"--target {target}: the folder above it cannot be written: {error.strerror}"
        raise InputError(message, hint="give a folder in one that you can write") from None
    claim = os.path.join(folder, f"{_CLAIM}{os.urandom(8).hex()}")
    try:
        with open(claim, "xb") as file:
            file.write(msgspec.json.encode(own))
        with contextlib.suppress(FileExistsError):
            os.link(claim, os.path.join(folder, LOCK))
        # On NFS the answer of a link that was made can get lost.
        return os.stat(claim).st_nlink == 2
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(claim)


def _read_holder(path: str) -> _Holder | None:
    """Return the holder of a lock, None for a lock of no known form.

    FileNotFoundError without a lock.
    """
    with open(path, "rb") as file:
        try:
            return msgspec.json.decode(file.read(), type=_Holder)
        except msgspec.DecodeError:
            return None


def _break_lock(path: str, holder: _Holder) -> None:
    """Remove the lock of a holder that has ended.

    All processes that may do so are on this machine, so `flock` keeps them apart on a shared
    folder, too. Whoever comes later finds another lock, or none, and leaves it alone.
    """
    import fcntl  # Windows has none

    with contextlib.suppress(FileNotFoundError), open(path, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        is_same_file = os.path.samestat(os.fstat(file.fileno()), os.stat(path))
        if is_same_file and _read_holder(path) == holder:
            os.unlink(path)


def remove(path: str) -> None:
    """Remove a file or a folder. The next run removes what cannot be removed now.

    An installer that was just killed may write its last files meanwhile.
    """
    for _ in range(_REMOVALS):
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                os.unlink(path)
        if not os.path.lexists(path):
            return
        time.sleep(_REMOVAL_PAUSE)
