"""What cuDNN's log of calls (CUDNN_LOGLEVEL_DBG=3; CUDNN_LOGINFO_DBG of cuDNN 8) tells of its handles.

A block of that log names a function, its parameters, and at its end who called it:

    I! CuDNN (v91900 56) function cudnnConvolutionForward() called:
    i!     handle: type=cudnnHandle_t:
    i! Process=763; Thread=763; GPU=0; Handle=0x6fda650; StreamId=(nil) (defaultStream).

So it shows what no status says: a handle of another process (made before a fork), one that was destroyed or never made,
and one that two threads use at the same time: the second comes between a call and what that call does within itself
(cudnnBackendExecuteInternal). To use one by turns is allowed, and XLA does. Seen in logs of 9.14 and 9.19 on an H200
(tests/data/cudnn_handles).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .model import Fact

KEPT = 1 << 16  # characters of an unfinished block
MOST = 4096  # handles that are remembered
UNSEEN = 1 << 30  # of a process whose first handle was made before the log begins: there may be any number of them
_HEAD, _FOOT, _NULL = b"function ", b"StreamId=", b" handle: type=cudnnHandle_t; val=NULL"
_MARKS = (  # where a block stands that says something of handles; few do
    b"; Handle=0x", b"function cudnnCreate()", b"function cudnnDestroy()", _NULL,
)  # fmt: skip
_BLOCK = re.compile(
    rb"function (\w+)\(\) called:.{0,65536}?Process=(\d+); Thread=(\d+); GPU=\w+; Handle=(\w+); StreamId=[^\n.;]+",
    re.DOTALL,
)


class Handles:
    """Follows the handles through a log that is fed block by block; keeps the first fact of each kind."""

    def __init__(self) -> None:
        self.found: dict[str, Fact] = {}
        self._rest = b""
        self._alive: dict[bytes, int] = {}  # by process: handles made less handles destroyed
        self._failed: set[bytes] = set()  # processes in which none could be made: that is the fault, not what follows
        self._owner: dict[bytes, bytes] = {}  # handle -> the process that used it first
        # (process, handle) -> thread -> whether another one used the handle since this one's last call began
        self._within: dict[tuple[bytes, bytes], dict[bytes, bool]] = {}

    def read(self, block: bytes, line: int) -> None:
        """Whole lines of the log, of which the first has that number."""
        if not self._rest and b"() called:" not in block:
            return
        text = self._rest + block
        first = line - self._rest.count(b"\n")
        for start in sorted(set(_starts(text))):
            part = _BLOCK.match(text, start)
            if part is not None:
                self._call(part, first)
        begin = text.rfind(_HEAD)
        self._rest = text[begin:][:KEPT] if begin >= 0 and text.find(_FOOT, begin) < 0 else b""

    def _call(self, part: re.Match[bytes], first: int) -> None:
        name, process, _, handle = part.groups()
        self._count(name, process, part[0])
        if name != b"cudnnDestroy" and process not in self._failed and _NULL in part[0]:
            self._keep("null", part, first)
        if handle == b"NULL" or (handle not in self._owner and len(self._owner) >= MOST):
            return
        owner = self._owner.setdefault(handle, process)
        alive = self._alive.setdefault(process, UNSEEN)
        if owner != process and alive >= UNSEEN > self._alive[owner]:
            self._keep("forked", part, first)
        elif alive <= 0:
            self._keep("destroyed", part, first)
        if self._is_raced(part):
            self._keep("raced", part, first)

    def _count(self, name: bytes, process: bytes, block: bytes) -> None:
        """Handles made and destroyed. That one is being made is logged twice: with its address, then with its GPU."""
        if name == b"cudnnCreate":
            if b"Error: CUDNN_STATUS_" in block:
                self._failed.add(process)
            elif b" handle: " in block:
                self._alive[process] = self._alive.get(process, 0) + 1
        elif name == b"cudnnDestroy" and process in self._alive:
            self._alive[process] -= 1

    def _is_raced(self, part: re.Match[bytes]) -> bool:
        """Whether another thread used the handle between this thread's call and what that does within itself."""
        name, process, thread, handle = part.groups()
        within = self._within.setdefault((process, handle), {})
        raced = False
        if name.endswith(b"Internal"):
            raced = within.pop(thread, False)
        elif thread in within or len(within) < MOST:
            within[thread] = False
        for other in within:
            if other != thread:
                within[other] = True
        return raced

    def _keep(self, kind: str, part: re.Match[bytes], first: int) -> None:
        if kind not in self.found:
            name = part[1].decode("ascii", "replace")
            foot = part[0][part[0].rfind(b"Process=") :].decode("ascii", "replace")
            number = first + part.string.count(b"\n", 0, part.end())
            text = f"{name}(): {foot}"
            self.found[kind] = Fact(kind="handle", subject=kind, value=name, where=f"log line {number}", text=text)


def _starts(text: bytes) -> Iterator[int]:
    """Where the blocks begin that say something of handles."""
    for mark in _MARKS:
        at = text.find(mark)
        while at >= 0:
            start = text.rfind(_HEAD, 0, at + len(_HEAD))
            if start >= 0:
                yield start
            at = text.find(mark, at + 1)
