"""The lock on a target: one process at a time changes an environment, also on a shared folder.

The lock is a file that names its holder. A process writes its own name into a file of its own and
links it to the name of the lock: of several processes one succeeds, on local disks and on NFS, and
nobody ever sees a lock without a name in it. A holder that has ended on this machine loses the
lock. Of a holder on another machine nobody here can know whether it has ended.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator

from ..errors import InputError, TargetBusyError
from ..model import Value
from ..process_identity import ProcessIdentity, has_ended, this_process
from ..serialize import to_plain

LOCK = "lock"
_CLAIM = "claim-"  # the beginning of the names of the files that are linked to the lock
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.02, 1.0  # seconds between two attempts


class _Holder(Value):
    """Who holds a lock. `token` is different for each lock; a lock of no known form has None."""

    token: str = ""
    process: ProcessIdentity | None = None


@contextlib.contextmanager
def hold(folder: str, target: str, wait: float, report: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of a target. The folder of the lock is made, and removed if it is empty.

    Args:
        folder: The folder of the lock, beside the target.
        target: What the messages name.
        wait: Seconds to wait for another holder.
        report: Called once with a line about another holder.

    Raises:
        InputError: The folder cannot be written.
        TargetBusyError: Another process held the lock all the time.
    """
    token = os.urandom(8).hex()
    _acquire(folder, token, target, wait, report)
    path = os.path.join(folder, LOCK)
    try:
        _remove_claims(folder)
        yield
    finally:
        with contextlib.suppress(OSError):
            if _read_holder(path).token == token:
                os.unlink(path)
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def _acquire(
    folder: str, token: str, target: str, wait: float, report: Callable[[str], None]
) -> None:
    path, end, pause = os.path.join(folder, LOCK), time.monotonic() + wait, _SHORTEST_PAUSE
    reported = False
    while True:
        try:
            if not os.path.exists(path) and _claim(folder, token, target):
                return
            holder = _read_holder(path)
        except FileNotFoundError:  # the holder has just removed the lock, or the folder
            continue
        if holder.process is not None and has_ended(holder.process):
            _break_lock(path, holder)
            continue
        if time.monotonic() >= end:
            raise _busy(path, holder, target)
        if not reported:
            report(f"waiting: {_busy_text(holder, target)}")
            reported = True
        import random  # slow, and few runs wait

        # At random, so that a hundred waiting processes do not ask at the same moments.
        share = random.uniform(0.5, 1.0)  # noqa: S311  no secret
        time.sleep(min(pause, max(0.0, end - time.monotonic())) * share)
        pause = min(pause * 1.5, _LONGEST_PAUSE)


def _claim(folder: str, token: str, target: str) -> bool:
    """Try to get a lock that nobody holds. Return whether it is ours now."""
    try:
        os.mkdir(folder)
    except FileExistsError:
        pass
    except OSError as error:
        message = f"--target {target}: the folder above it cannot be written: {error.strerror}"
        raise InputError(message, hint="give a folder in one that you can write") from None
    fields = {"token": token, **to_plain(this_process())}
    claim = os.path.join(folder, f"{_CLAIM}{os.urandom(8).hex()}")
    try:
        with open(claim, "x", encoding="utf-8") as file:
            json.dump(fields, file)
        with contextlib.suppress(FileExistsError):
            os.link(claim, os.path.join(folder, LOCK))
        # On NFS the answer of a link that was made can get lost.
        return os.stat(claim).st_nlink == 2
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(claim)


def _remove_claims(folder: str) -> None:
    """Remove the claims that killed processes have left. The caller holds the lock.

    A running process whose claim is removed cannot link it, and tries again.
    """
    for name in os.listdir(folder):
        if name.startswith(_CLAIM):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(folder, name))


def _read_holder(path: str) -> _Holder:
    """Return the holder of a lock. FileNotFoundError without a lock."""
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    try:
        fields = json.loads(text)
        token = str(fields.pop("token"))
        return _Holder(token=token, process=ProcessIdentity(**fields))
    except (ValueError, KeyError, TypeError, AttributeError):
        return _Holder()


def _break_lock(path: str, holder: _Holder) -> None:
    """Remove the lock of a holder that has ended.

    All processes that may do so are on this machine, so `flock` keeps them apart on a shared
    folder, too. Whoever comes later finds another lock, or none, and leaves it alone.
    """
    import fcntl

    with contextlib.suppress(FileNotFoundError), open(path, "r+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        is_same_file = os.path.samestat(os.fstat(file.fileno()), os.stat(path))
        if is_same_file and _read_holder(path) == holder:
            os.unlink(path)


def _busy(path: str, holder: _Holder, target: str) -> TargetBusyError:
    hint = f"wait for it; if it no longer runs, remove {path}"
    return TargetBusyError(_busy_text(holder, target), hint=hint)


def _busy_text(holder: _Holder, target: str) -> str:
    if holder.process is None:
        return f"another process changes {target}"
    return f"process {holder.process.pid} on {holder.process.host} changes {target}"
