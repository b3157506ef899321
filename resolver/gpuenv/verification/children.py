"""Probes run in the target's interpreter, each in a child of its own: a crash or a hang is an answer, too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any, Self

from ..model import Value

if TYPE_CHECKING:
    import subprocess

ANSWER, STEP = "gpuenv-probe: ", "gpuenv-step: "
PROBES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "probes")


class Outcome(Value):
    """What came of a probe: its answer, or why there is none ("killed by SIGSEGV while open libcudnn_ops.so.9")."""

    answer: Any = None
    failure: str = ""
    seconds: float = 0.0


def has_probe(name: str) -> bool:
    """Whether there is a probe script of that name."""
    return os.path.isfile(os.path.join(PROBES, f"{name}.py"))


class Children:
    """The probes of one verification, in the interpreter `python`; `deadline` (time.monotonic) bounds them all.

    Leaving the block ends those that still run, also when the user interrupts while threads wait for them.
    """

    def __init__(self, python: str, env: Mapping[str, str], deadline: float) -> None:
        import threading

        self._python, self._env, self._deadline = python, dict(env), deadline
        self._lock, self._running, self._closed = threading.Lock(), set[Any](), False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            for child in self._running:
                _kill_group(child.pid)

    def run(self, probe: str, options: Mapping[str, Any]) -> Outcome:
        """Runs a probe and waits for it, until the deadline at most; then its whole process group is killed.

        The interpreter runs isolated (no PYTHONPATH, no user site, no script folder on sys.path) and writes no
        bytecode; the loader's variables are the user's.
        """
        import json
        import tempfile
        import time

        command = [self._python, "-B", "-I", os.path.join(PROBES, f"{probe}.py"), json.dumps(options)]
        begin = time.monotonic()
        # Files, not pipes: what a grandchild keeps open holds up nobody.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = self._start(command, out, err)
            if isinstance(child, Outcome):
                return child
            try:
                ended = _wait(child.pid, self._deadline)
            finally:
                code = self._reap(child)
            seconds = time.monotonic() - begin
            out.seek(0)
            err.seek(0)
            texts = [stream.read().decode(errors="replace") for stream in (out, err)]
        return _outcome(texts[0], texts[1], code if ended else None, seconds)

    def _start(self, command: list[str], out: IO[bytes], err: IO[bytes]) -> subprocess.Popen[bytes] | Outcome:
        import subprocess
        import time

        with self._lock:
            if self._closed or time.monotonic() >= self._deadline:
                return Outcome(failure="not started: the time for all checks was over")
            try:
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env=self._env,
                    start_new_session=True,
                )
            except OSError as error:
                return Outcome(failure=f"{self._python} cannot be run: {error.strerror}")
            self._running.add(child)
            return child

    def _reap(self, child: subprocess.Popen[bytes]) -> int:
        """Ends what is left of the group. The leader was not waited for, so its number is still its own."""
        import subprocess

        with self._lock:
            _kill_group(child.pid)
            self._running.discard(child)
            try:
                return child.wait(1)
            except subprocess.TimeoutExpired:  # it is stuck in the kernel, where no signal reaches it
                child.returncode = -9
                return -9


def _kill_group(number: int) -> None:
    import contextlib
    import signal

    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(number, signal.SIGKILL)


def _wait(number: int, deadline: float) -> bool:
    """True once the process has ended by itself; it stays a zombie, so that its group can be killed safely."""
    import time

    pause = 0.001
    while os.waitid(os.P_PID, number, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    return True


def _outcome(output: str, noise: str, code: int | None, seconds: float) -> Outcome:
    """What a child's texts and status say; `code` None is one that was killed at the deadline."""
    import json
    import signal

    steps = [line[len(STEP) :] for line in noise.splitlines() if line.startswith(STEP)]
    during = f" while it was at: {steps[-1]}" if steps else ""
    if code is None:
        return Outcome(failure=f"no answer in {seconds:.0f} s{during}; killed", seconds=seconds)
    if code < 0:
        name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
        return Outcome(failure=f"killed by {name}{during}", seconds=seconds)
    answers = [line[len(ANSWER) :] for line in output.splitlines() if line.startswith(ANSWER)]
    if not answers:
        said = [line for line in noise.splitlines() if line.strip() and not line.startswith(STEP)]
        last = f": {said[-1][:300]}" if said else ""
        return Outcome(failure=f"ended with status {code} and no answer{during}{last}", seconds=seconds)
    answer = json.loads(answers[-1])
    failure = str(answer["failure"]) if "failure" in answer else ""
    return Outcome(answer=None if failure else answer, failure=failure, seconds=seconds)
