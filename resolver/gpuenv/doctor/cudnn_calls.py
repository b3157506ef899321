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
from bisect import bisect_right
from collections.abc import Iterator

from ..model import Value
from .model import Fact

KEPT = 1 << 16  # characters of an unfinished block
MOST = 1024  # processes and handles that are followed
THREADS = 64  # of one handle
UNSEEN = 1 << 30  # of a process whose first handle was made before the log begins: there may be any number of them
_NULL = b" handle: type=cudnnHandle_t; val=NULL"
_MARKS = (b"; Handle=0x", b"function cudnnCreate()", b"function cudnnDestroy()", _NULL)  # few blocks have one
_HEAD = re.compile(rb"function (\w{1,80})\(\) called:")
_FOOT = re.compile(rb"Process=(\d{1,20}); Thread=(\d{1,20}); GPU=\w{1,20}; Handle=(\w{1,20}); StreamId=[^\n.;]{1,80}")


class _Call(Value):
    """A call of cuDNN: its function, who made it with which handle, its block's text, and what to show of it."""

    name: bytes
    process: bytes
    thread: bytes
    handle: bytes
    block: bytes
    line: int
    shown: str


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
        """Whole lines of the log, of which the first has that number. Takes no longer than the text is long."""
        if not self._rest and b"() called:" not in block:
            return
        text = self._rest + block
        heads = [head.start() for head in _HEAD.finditer(text)]
        number, counted = line - self._rest.count(b"\n"), 0
        for begin, end in _blocks(text, heads):
            foot = _FOOT.search(text, begin, end)
            if foot is not None:
                number, counted = number + text.count(b"\n", counted, foot.end()), foot.end()
                self._note(_call(text[begin : foot.end()], foot, number))
        rest = text[heads[-1] :] if heads else b""
        self._rest = b"" if len(rest) > KEPT or _FOOT.search(rest) else rest

    def _note(self, call: _Call) -> None:
        self._count(call)
        if call.name != b"cudnnDestroy" and call.process not in self._failed and _NULL in call.block:
            self._keep("null", call)
        known = call.handle in self._owner and call.process in self._alive
        if call.handle == b"NULL" or (not known and max(len(self._owner), len(self._alive)) >= MOST):
            return
        owner = self._owner.setdefault(call.handle, call.process)
        alive = self._alive.setdefault(call.process, UNSEEN)
        if owner != call.process and alive >= UNSEEN > self._alive[owner]:
            self._keep("forked", call)
        elif alive <= 0:
            self._keep("destroyed", call)
        if self._is_raced(call):
            self._keep("raced", call)

    def _count(self, call: _Call) -> None:
        """Handles made and destroyed. That one is being made is logged twice: with its address, then with its GPU."""
        process = call.process
        if call.name == b"cudnnDestroy" and process in self._alive:
            self._alive[process] -= 1
        elif call.name == b"cudnnCreate" and (process in self._alive or len(self._alive) < MOST):
            if b"Error: CUDNN_STATUS_" in call.block:
                self._failed.add(process)
            elif b" handle: " in call.block:
                self._alive[process] = self._alive.get(process, 0) + 1

    def _is_raced(self, call: _Call) -> bool:
        """Whether another thread used the handle between this thread's call and what that does within itself."""
        within = self._within.setdefault((call.process, call.handle), {})
        raced = False
        if call.name.endswith(b"Internal"):
            raced = within.pop(call.thread, False)
        elif call.thread in within or len(within) < THREADS:
            within[call.thread] = False
        for other in within:
            if other != call.thread:
                within[other] = True
        return raced

    def _keep(self, kind: str, call: _Call) -> None:
        value, where = call.name.decode("ascii", "replace"), f"log line {call.line}"
        self.found.setdefault(kind, Fact(kind="handle", subject=kind, value=value, where=where, text=call.shown))


def _blocks(text: bytes, heads: list[int]) -> Iterator[tuple[int, int]]:
    """Where the blocks that say something of handles begin and end, in their order."""
    ends = [*heads[1:], len(text)]
    places = (bisect_right(heads, at) - 1 for mark in _MARKS for at in _places(text, mark))
    for which in sorted({*places} - {-1}):
        yield heads[which], ends[which]


def _places(text: bytes, mark: bytes) -> Iterator[int]:
    at = text.find(mark)
    while at >= 0:
        yield at
        at = text.find(mark, at + len(mark))


def _call(block: bytes, foot: re.Match[bytes], line: int) -> _Call:
    head = _HEAD.match(block)
    name = head[1] if head else b""
    shown = f"{name.decode('ascii', 'replace')}(): {foot[0].decode('ascii', 'replace')}"
    process, thread, handle = foot.groups()
    return _Call.of(name, process, thread, handle, block, line, shown)
