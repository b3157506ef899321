"""Which process this is, so that other processes can tell later whether it has ended.

A process number is used again after its process has ended. It means nothing on another machine, in
another container (another PID namespace), and after a restart. An identity therefore has all of
these, and the time at which the process started.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys

from .model import Value

_STARTED = 19  # the index of `starttime` behind the name of the program, proc_pid_stat(5)
_ENDED_STATES = ("Z", "X")


class ProcessIdentity(Value):
    """A process. `machine` is /etc/machine-id, `boot` the number of the machine's last start.

    `namespace` is the PID namespace, and `started` the clock ticks from the boot to the start of
    the process. A text is "" where the system does not tell it.
    """

    host: str
    pid: int
    started: str = ""
    boot: str = ""
    namespace: str = ""
    machine: str = ""

    @property
    def place(self) -> tuple[str, str, str]:
        """Where the process number has a meaning."""
        return self.host, self.boot, self.namespace


def this_process() -> ProcessIdentity:
    """Return the identity of this process."""
    pid = os.getpid()
    return ProcessIdentity(
        host=platform.node(),
        pid=pid,
        started=_start_time(pid) or "",
        boot=_read("/proc/sys/kernel/random/boot_id"),
        namespace=_pid_namespace(),
        machine=_read("/etc/machine-id"),
    )


def has_ended(process: ProcessIdentity) -> bool:
    """Return whether a process is known to have ended. False if that cannot be known from here."""
    own = this_process()
    if process.place == own.place:
        started = _start_time(process.pid)
        return started is None or started not in ("", process.started)
    restarted = process.host == own.host and process.boot != own.boot
    return restarted and own.machine != "" and process.machine == own.machine


def tag_of(process: ProcessIdentity) -> str:
    """Return a short text that names a process of this machine, for the name of a file."""
    return f"{_place_digest(process)}-{process.pid}-{process.started}"


def read_tag(tag: str) -> ProcessIdentity | None:
    """Return the process of a tag. None if the tag is of another machine, or none."""
    place, _, rest = tag.partition("-")
    pid, _, started = rest.partition("-")
    own = this_process()
    if place != _place_digest(own) or not pid.isdigit():
        return None
    return own.replace(pid=int(pid), started=started)


def _place_digest(process: ProcessIdentity) -> str:
    return hashlib.sha256("\n".join(process.place).encode("utf-8", "surrogatepass")).hexdigest()[
        :12
    ]


def _start_time(pid: int) -> str | None:
    """Return when a process started, "" if /proc does not tell; None if there is no process."""
    # The name of the program stands in parentheses and may contain anything.
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    if len(fields) <= _STARTED:
        return "" if _may_run(pid) else None
    return None if fields[0] in _ENDED_STATES else fields[_STARTED]


def _may_run(pid: int) -> bool:
    if sys.platform == "win32":  # on Windows os.kill would end the process
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # it belongs to another user
        pass
    return True


def _pid_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
