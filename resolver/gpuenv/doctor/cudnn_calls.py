"""Follows cuDNN handles through cuDNN's log of calls, to find their misuse.

The log is written with CUDNN_LOGLEVEL_DBG=3, or CUDNN_LOGINFO_DBG in cuDNN 8. A block of it names a
function, its parameters, and at the end the caller:

    I! CuDNN (v91900 56) function cudnnConvolutionForward() called:
    i!     handle: type=cudnnHandle_t:
    i! Process=763; Thread=763; GPU=0; Handle=0x6fda650; StreamId=(nil) (defaultStream).

It shows what no status shows: a handle of another process (created before a fork), a handle that
was destroyed or never created, and a handle that two threads use at the same time. In the last
case, a call of the second thread is between a call of the first and the call that cuDNN makes
inside it (cudnnBackendExecuteInternal). Using a handle in turns is allowed, and XLA does that.
Observed in logs of 9.14 and 9.19 on an H200 (tests/data/cudnn_handles).
"""

from __future__ import annotations

import re

from ..model import Value
from .model import Fact

_MAX_REST = 1 << 16  # bytes of an unfinished block that are kept
_MAX_KNOWN = 1024  # processes, and handles, that are followed
_MAX_THREADS = 64  # threads that are followed for each handle
# Handles of a process that created its first one before the log begins: an unknown number.
_UNKNOWN_COUNT = 1 << 30
_NULL_HANDLE = b" handle: type=cudnnHandle_t; val=NULL"
_HEAD = re.compile(rb"function (\w{1,80})\(\) called:")
_FOOT = re.compile(
    rb"Process=(\d{1,20}); Thread=(\d{1,20}); GPU=\w{1,20}; Handle=(\w{1,20}); "
    rb"StreamId=[^\n.;]{1,80}"
)


class _Call(Value):
    """A call of cuDNN: the text of its block, what the block says, and the line of the caller."""

    name: str  # of the function
    caller: str
    process: bytes
    thread: bytes
    handle: bytes
    block: bytes
    line: int


class HandleTracker:
    """Follows the handles in a log that is read block by block.

    Attributes:
        facts: the first fact of each misuse (null, destroyed, forked, raced).
    """

    def __init__(self) -> None:
        self.facts: dict[str, Fact] = {}
        self._rest = b""
        self._alive: dict[bytes, int] = {}  # process -> handles created minus handles destroyed
        # Processes in which cudnnCreate failed: that is the fault, not what follows.
        self._failed: set[bytes] = set()
        self._owner: dict[bytes, bytes] = {}  # handle -> the process that used it first
        # (process, handle) -> thread -> whether another thread used the handle since the last call
        self._in_call: dict[tuple[bytes, bytes], dict[bytes, bool]] = {}

    def read(self, block: bytes, line: int) -> None:
        """Read whole lines of the log; the first has the number `line`. Takes linear time."""
        if not self._rest and b"() called:" not in block:
            return
        text = self._rest + block
        heads = list(_HEAD.finditer(text))
        starts = [head.start() for head in heads]
        number, counted = line - self._rest.count(b"\n"), 0
        for head, end in zip(heads, [*starts[1:], len(text)], strict=False):
            foot = _FOOT.search(text, head.end(), end)
            if foot is None:
                continue
            number += text.count(b"\n", counted, foot.end())
            counted = foot.end()
            process, thread, handle = foot.groups()
            call = _Call(
                name=head[1].decode(),
                caller=foot[0].decode("ascii", "replace"),
                process=process,
                thread=thread,
                handle=handle,
                block=text[head.start() : foot.end()],
                line=number,
            )
            self._note(call)
        rest = text[starts[-1] :] if heads else b""
        is_finished = len(rest) > _MAX_REST or _FOOT.search(rest) is not None
        self._rest = b"" if is_finished else rest

    def _note(self, call: _Call) -> None:
        process = call.process
        # cudnnCreate is logged twice: with the handle's address, then with its GPU.
        if call.name == "cudnnDestroy" and process in self._alive:
            self._alive[process] -= 1
        elif call.name == "cudnnCreate" and (
            process in self._alive or len(self._alive) < _MAX_KNOWN
        ):
            if b"Error: CUDNN_STATUS_" in call.block:
                self._failed.add(process)
            elif b" handle: " in call.block:
                self._alive[process] = self._alive.get(process, 0) + 1
        may_have_handle = call.name != "cudnnDestroy" and process not in self._failed
        if may_have_handle and _NULL_HANDLE in call.block:
            self._keep("null", call)
        has_room = max(len(self._owner), len(self._alive)) < _MAX_KNOWN
        is_followed = call.handle in self._owner and process in self._alive
        if call.handle == b"NULL" or not (is_followed or has_room):
            return
        owner = self._owner.setdefault(call.handle, process)
        alive = self._alive.setdefault(process, _UNKNOWN_COUNT)
        owner_is_known = self._alive[owner] < _UNKNOWN_COUNT
        if owner != process and alive >= _UNKNOWN_COUNT and owner_is_known:
            self._keep("forked", call)
        elif alive <= 0:
            self._keep("destroyed", call)
        if self._is_raced(call):
            self._keep("raced", call)

    def _is_raced(self, call: _Call) -> bool:
        """Whether another thread used the handle between a thread's call and the inner call."""
        in_call = self._in_call.setdefault((call.process, call.handle), {})
        raced = False
        if call.name.endswith("Internal"):
            raced = in_call.pop(call.thread, False)
        elif call.thread in in_call or len(in_call) < _MAX_THREADS:
            in_call[call.thread] = False
        for thread in in_call:
            if thread != call.thread:
                in_call[thread] = True
        return raced

    def _keep(self, kind: str, call: _Call) -> None:
        where, text = f"log line {call.line}", f"{call.name}(): {call.caller}"
        fact = Fact(kind="handle", subject=kind, value=call.name, where=where, text=text)
        self.facts.setdefault(kind, fact)
