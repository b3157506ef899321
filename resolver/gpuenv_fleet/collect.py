"""Run one process on each node with a launcher, and read the answers as they come.

A node answers with one JSON document. Launchers label the lines of many nodes, and some split long
lines (srun after 1024 characters). So the pieces of a node are joined without line ends: between
the tokens of JSON a line end means nothing, and inside a text there is none.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from gpuenv import InputError

from .documents import Collection, Document
from .launchers import GREETING, Launch

FANOUT = 64  # processes at a time, for a launcher that needs one for each node
END_GRACE = 2.0  # seconds between the signals that end a launcher
_STEP = 0.2  # seconds between two looks at the answers
_MOST_ERRORS = 50_000  # lines of stderr that are kept
_LONGEST_LINE = 64 << 20  # bytes

OnAnswer = Callable[[str, Document], None]
OnProgress = Callable[[int, int, Sequence[str]], None]


class _Run:
    """One run of a launcher."""

    def __init__(self, launch: Launch, on_answer: OnAnswer) -> None:
        self.launch, self.on_answer = launch, on_answer
        self.answers: dict[str, Document] = {}
        # A node may call itself gpu1.cluster.example where the launcher says gpu1.
        self._names = {name.partition(".")[0]: name for name in launch.nodes}
        self._names |= {name: name for name in launch.nodes}
        self._children: list[asyncio.subprocess.Process] = []
        self._pieces: defaultdict[str, list[str]] = defaultdict(list)  # of a document, by label
        self._greeted: dict[str, str] = {}  # {rank: the name that its process said}
        # (node or "", line of stderr)
        self._errors: deque[tuple[str, str]] = deque(maxlen=_MOST_ERRORS)
        self._slots = asyncio.Semaphore(FANOUT)

    async def start(self, node: str, command: Sequence[str]) -> None:
        """Start a process as soon as fewer than FANOUT run, and read its output to the end."""
        async with self._slots:
            try:
                child = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=DEVNULL,
                    stdout=PIPE,
                    stderr=PIPE,
                    start_new_session=True,
                    limit=_LONGEST_LINE,
                )
            except FileNotFoundError:
                raise InputError(f"{command[0]}: is not installed") from None
            self._children.append(child)
            await asyncio.gather(
                _read_lines(child.stdout, lambda line: self._read_output(node, line)),
                _read_lines(child.stderr, lambda line: self._errors.append((node, line))),
            )
            await child.wait()

    def _read_output(self, node: str, line: str) -> None:
        """Read a line of stdout: each of its parts belongs to the node of its label."""
        if self.launch.label is None:
            self._read_piece(node, line)
            return
        matches = list(self.launch.label.finditer(line))
        ends = [*(match.start() for match in matches[1:]), len(line)]
        for match, end in zip(matches, ends, strict=True):
            self._read_piece(match["label"], line[match.end() : end])

    def _read_piece(self, label: str, piece: str) -> None:
        """Join the pieces of a node until they are a document."""
        if piece.startswith(GREETING):
            self._greeted[label] = piece.removeprefix(GREETING).strip()
        # What comes before the document (a message of the day) is not part of it.
        elif self._pieces[label] or piece.startswith("{"):
            self._pieces[label].append(piece)
            if not piece.endswith("}") or piece.startswith(" "):
                return  # it does not end the document, or only a part of it
            with suppress(ValueError, RecursionError):
                document = json.loads("".join(self._pieces[label]))
                node = self._node_of(label)
                if node and node not in self.answers:
                    document.pop("node", None)
                    self.answers[node] = document
                    self.on_answer(node, document)

    def _node_of(self, label: str) -> str:
        """Return which of the expected nodes has a label; "" if none has."""
        nodes, ranked = self.launch.nodes, self.launch.ranked
        name = self._greeted.get(label, "") if ranked else label
        known = self._names.get(name) or self._names.get(name.partition(".")[0], "")
        if not known and ranked and int(label) < len(nodes):
            return nodes[int(label)]
        return known

    async def end(self) -> None:
        """End the processes that still run."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            running = [child for child in self._children if child.returncode is None]
            for child in running:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.pid, number)
            if running:
                ends = [asyncio.ensure_future(child.wait()) for child in running]
                await asyncio.wait(ends, timeout=END_GRACE)

    def unanswered(self) -> list[str]:
        """Return the nodes that are still expected to answer."""
        known = self.answers.keys() | self.launch.silent.keys()
        return [node for node in self.launch.nodes if node not in known]

    def reason(self, node: str) -> str:
        """Return what the launcher said of a node without an answer."""
        named = re.compile(rf"(?<![\w-]){re.escape(node)}(?![\w-])")
        said = [line for name, line in self._errors if name == node or named.search(line)]
        for rank, name in self._greeted.items():
            if name == node:
                said += [line for _, line in self._errors if line.startswith(f"{rank}: ")]
        return said[-1] if said else ""


async def _read_lines(stream: asyncio.StreamReader | None, handle: Callable[[str], object]) -> None:
    """Call a function with each line that is not empty."""
    while stream is not None and (line := await stream.readline()):
        text = line.decode(errors="replace").rstrip("\r\n")
        if text.strip():
            handle(text)


async def collect(
    launch: Launch, limit: float, on_answer: OnAnswer, on_progress: OnProgress
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
    end, next_report = begin + limit, begin + 1.0
    starts = [run.start(node, command) for node, command in launch.commands.items()]
    reading = asyncio.gather(*starts)
    try:
        while not reading.done() and time.monotonic() < end:
            await asyncio.wait([reading], timeout=_STEP)
            waiting = run.unanswered()
            if not waiting:  # all have answered: their processes end by themselves
                await asyncio.wait([reading], timeout=END_GRACE)
                break
            if time.monotonic() >= next_report:
                next_report = time.monotonic() + 1.0
                on_progress(len(run.answers), len(launch.nodes), waiting)
        late = not reading.done()
        if not late:
            reading.result()  # raises what a process could not be started for
    finally:
        await run.end()
        reading.cancel()
    usual = f"no answer in {limit:g} s" if late else "its process ended without an answer"
    return Collection(
        answers=[(node, run.answers[node]) for node in launch.nodes if node in run.answers],
        silent={**launch.silent, **{node: run.reason(node) or usual for node in run.unanswered()}},
        seconds=round(time.monotonic() - begin, 3),
    )
