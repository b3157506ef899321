"""Run one process on each node with a launcher, and read the answers as they come.

A node answers with one JSON document. Launchers label the lines of many nodes, and some split long
lines (srun after 1024 characters). So the pieces of a node are joined without line ends: between
the tokens of JSON a line end means nothing, and inside a text there is none.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

from gpuenv import InputError

from .documents import Answer, Collection, Silence
from .launchers import GREETING, Launch, Process

FANOUT = 64  # processes at a time, for a launcher that needs one for each node
END_GRACE = 2.0  # seconds between the signals that end a launcher
_CHUNK = 1 << 16
_MOST_ERRORS = 50_000  # lines of stderr that are kept
_MOST_TEXT = 64 << 20  # characters of one node

OnAnswer = Callable[[Answer], None]
OnProgress = Callable[[int, int, Sequence[str]], None]


class _Reader:
    """Joins the pieces of one node until they are a document."""

    def __init__(self) -> None:
        self.name = ""
        self.document: dict[str, Any] | None = None
        self._pieces: list[str] = []
        self._size = 0

    def add(self, piece: str) -> None:
        """Add a piece of output: a line, or a part of one."""
        if piece.startswith(GREETING):
            self.name = piece.removeprefix(GREETING).strip()
            return
        # What comes before the document (a message of the day) is not part of it.
        if self.document is not None or (not self._pieces and not piece.startswith("{")):
            return
        self._size += len(piece)
        if self._size > _MOST_TEXT:
            self._pieces = []
            return
        self._pieces.append(piece)
        if piece.endswith("}") and (piece == "}" or len(self._pieces) == 1):
            self._parse()

    def finish(self) -> None:
        """Try to read what has come so far."""
        if self.document is None and self._pieces:
            self._parse()

    def _parse(self) -> None:
        try:
            document = json.loads("".join(self._pieces))
        except (ValueError, RecursionError):
            return
        if isinstance(document, dict):
            self.document = document


class _Stream:
    """The output of one process of the launcher, line by line."""

    def __init__(self, process: Process, child: subprocess.Popen[bytes], pipe: IO[bytes]) -> None:
        self.process, self.child, self.pipe = process, child, pipe
        self.rest = b""

    def read(self) -> tuple[list[str], bool]:
        """Return the whole lines that have come, and whether this is the end of the stream."""
        data = os.read(self.pipe.fileno(), _CHUNK)
        *lines, self.rest = (self.rest + data).split(b"\n")
        if not data and self.rest:
            lines, self.rest = [*lines, self.rest], b""
        return [line.decode(errors="replace").rstrip("\r") for line in lines], not data


class _Run:
    """One run of a launcher."""

    def __init__(self, launch: Launch, on_answer: OnAnswer) -> None:
        self.launch, self.on_answer = launch, on_answer
        self.waiting = list(reversed(launch.processes))
        self.children: list[subprocess.Popen[bytes]] = []
        self.open: dict[int, int] = {}  # process id -> its open streams
        self.readers: dict[str, _Reader] = {}
        self.errors: list[tuple[str, str]] = []  # (node or "", line of stderr)
        self.answers: dict[str, Answer] = {}
        self.selector = selectors.DefaultSelector()
        self.expected = frozenset(launch.nodes)
        self.short_names = {name.partition(".")[0]: name for name in launch.nodes}

    def start_more(self) -> None:
        """Start processes until FANOUT run."""
        while self.waiting and len(self.open) < FANOUT:
            process = self.waiting.pop()
            try:
                child = subprocess.Popen(
                    process.command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except FileNotFoundError:
                raise InputError(f"{process.command[0]}: is not installed") from None
            self.children.append(child)
            self.open[child.pid] = 2
            for pipe, handle in ((child.stdout, self._output), (child.stderr, self._error)):
                if pipe is not None:
                    stream = _Stream(process, child, pipe)
                    self.selector.register(pipe, selectors.EVENT_READ, (stream, handle))

    def step(self, seconds: float) -> None:
        """Handle what comes within some seconds."""
        for key, _ in self.selector.select(seconds):
            stream, handle = key.data
            lines, ended = stream.read()
            for line in lines:
                handle(stream.process, line)
            if ended:
                self._close(stream)

    def _close(self, stream: _Stream) -> None:
        self.selector.unregister(stream.pipe)
        stream.pipe.close()
        self.open[stream.child.pid] -= 1
        if not self.open[stream.child.pid]:
            del self.open[stream.child.pid]
            stream.child.wait()
            self.start_more()

    def _output(self, process: Process, line: str) -> None:
        for label, piece in self._pieces(process, line):
            reader = self.readers.setdefault(label, _Reader())
            before = reader.document
            reader.add(piece)
            if before is None and reader.document is not None:
                self._answer(label, reader)

    def _pieces(self, process: Process, line: str) -> list[tuple[str, str]]:
        """Return (label, text) of the parts of a line."""
        pattern = self.launch.label
        if pattern is None:
            return [(process.node, line)]
        if not self.launch.anywhere:
            match = pattern.match(line)
            return [(match["label"], line[match.end() :])] if match else []
        matches = list(pattern.finditer(line))
        ends = [match.start() for match in matches[1:]] + [len(line)]
        return [
            (match["label"], line[match.end() : end])
            for match, end in zip(matches, ends, strict=True)
        ]

    def _answer(self, label: str, reader: _Reader) -> None:
        node = self._node(label, reader)
        if not node or node in self.answers:
            return
        document = {key: value for key, value in (reader.document or {}).items() if key != "node"}
        self.answers[node] = Answer(node=node, document=document)
        reader.document = {}
        self.on_answer(self.answers[node])

    def _node(self, label: str, reader: _Reader) -> str:
        """Return which of the expected nodes has a label; "" if none has."""
        name = reader.name if self.launch.ranked else label
        if name in self.expected:
            return name
        # A node may call itself gpu1.cluster.example where the launcher says gpu1.
        short = self.short_names.get(name.partition(".")[0])
        if short is None and self.launch.ranked and int(label) < len(self.launch.nodes):
            return self.launch.nodes[int(label)]
        return short or ""

    def _error(self, process: Process, line: str) -> None:
        if line.strip() and len(self.errors) < _MOST_ERRORS:
            self.errors.append((process.node, line.strip()))

    def end(self) -> None:
        """Read what is left, and end the processes that still run."""
        for label, reader in self.readers.items():
            before = reader.document
            reader.finish()
            if before is None and reader.document is not None:
                self._answer(label, reader)
        running = [child for child in self.children if child.poll() is None]
        for number in (signal.SIGTERM, signal.SIGKILL):
            for child in running:
                _signal_group(child, number)
            deadline = time.monotonic() + END_GRACE
            while running and time.monotonic() < deadline:
                running = [child for child in running if child.poll() is None]
                time.sleep(0.02)
        self.selector.close()
        for child in self.children:
            for pipe in (child.stdout, child.stderr):
                if pipe is not None:
                    pipe.close()

    def unanswered(self) -> list[str]:
        """Return the nodes that are still expected to answer."""
        silent = {silence.node for silence in self.launch.silent}
        return [
            name for name in self.launch.nodes if name not in self.answers and name not in silent
        ]

    def reason(self, node: str) -> str:
        """Return what the launcher said of a node without an answer."""
        rank = next((rank for rank, reader in self.readers.items() if reader.name == node), None)
        said = [line for name, line in self.errors if name == node or _names(line, node)]
        if rank is not None:
            said += [line for _, line in self.errors if line.startswith(f"{rank}: ")]
        return said[-1] if said else ""


def _names(line: str, node: str) -> bool:
    """Return whether a line of a launcher is about a node."""
    start = line.find(node)
    if start < 0:
        return False
    around = line[max(0, start - 1) : start] + line[start + len(node) : start + len(node) + 1]
    return not any(character.isalnum() or character in "-_" for character in around)


def _signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):
        return


def collect(
    launch: Launch,
    limit: float,
    on_answer: OnAnswer,
    on_progress: OnProgress | None = None,
) -> Collection:
    """Run a launch, and return what the nodes answered.

    Args:
        launch: what to start.
        limit: seconds to wait for all nodes.
        on_answer: is called with each answer as soon as it is complete.
        on_progress: is called once a second with the number of answers, the number of nodes and
            the nodes that have not answered.

    Returns:
        The answers in the order of the nodes, and the nodes without one.

    Raises:
        InputError: the launcher is not installed.
    """
    begin = time.monotonic()
    run = _Run(launch, on_answer)
    next_report = begin + 1.0
    late = False
    try:
        run.start_more()
        while run.open and run.unanswered():
            remaining = begin + limit - time.monotonic()
            if remaining <= 0:
                late = True
                break
            run.step(min(remaining, 0.5))
            waiting = run.unanswered()
            if on_progress is not None and waiting and time.monotonic() >= next_report:
                next_report = time.monotonic() + 1.0
                on_progress(len(run.answers), len(launch.nodes), waiting)
        # All have answered: their processes end by themselves.
        grace = time.monotonic() + END_GRACE
        while run.open and not late and time.monotonic() < grace:
            run.step(0.1)
    finally:
        run.end()
    return Collection(
        answers=tuple(run.answers[name] for name in launch.nodes if name in run.answers),
        silent=(*launch.silent, *_silent(run, limit, late=late)),
        seconds=round(time.monotonic() - begin, 3),
    )


def _silent(run: _Run, limit: float, *, late: bool) -> list[Silence]:
    """Return the nodes without an answer, and why."""
    silent = []
    for node in run.unanswered():
        reason = run.reason(node)
        if not reason:
            reason = f"no answer in {limit:g} s" if late else "its process ended without an answer"
        silent.append(Silence(node=node, reason=reason))
    return silent
