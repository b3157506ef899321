"""Probes run in the target's interpreter, each in a child of its own: a crash or a hang is an answer, too."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from typing import IO, Any, Self

from ..model import Value

ANSWER, STEP = "gpuenv-probe: ", "gpuenv-step: "
PROBES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "probes")
KEPT = 4 << 20  # bytes of a child's stream that are read, from its end
HEARD = 20  # lines of what a child said besides its steps that are kept


class Outcome(Value):
    """What came of a probe: its answer, or why there is none ("killed by SIGSEGV while it was at: open libcudnn...").

    `ended` tells the kinds of failure apart: "hang" (killed at the deadline), "crash" (by a signal), "late" (never
    started), "failed" (all others). `step` is what it was at, and `noise` what it said on stderr besides, at last.
    """

    answer: Any = None
    failure: str = ""
    seconds: float = 0.0
    ended: str = ""
    step: str = ""
    noise: tuple[str, ...] = ()


def has_probe(name: str, folder: str = PROBES) -> bool:
    """Whether there is a probe script of that name."""
    return os.path.isfile(os.path.join(folder, f"{name}.py"))


class Children:
    """The probes of one verification, in the interpreter `python`; `deadline` (time.monotonic) bounds them all.

    `probes` is the folder of the scripts. Leaving the block ends those that still run, also when the user interrupts
    while threads wait for them.
    """

    def __init__(self, python: str, env: Mapping[str, str], deadline: float, probes: str = PROBES) -> None:
        import threading

        self._python, self._env, self._deadline, self._probes = python, dict(env), deadline, probes
        self._lock, self._running, self._closed = threading.Lock(), set[Any](), False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            for child in self._running:
                _kill_group(child.pid)

    def run(self, probe: str, options: Mapping[str, Any], more: Mapping[str, str] | None = None) -> Outcome:
        """Runs a probe and waits for it, until the deadline at most; then its whole process group is killed.

        The interpreter runs isolated (no PYTHONPATH, no user site, no script folder on sys.path) and writes no
        bytecode; the loader's variables are the user's. `more` are variables beside them.
        """
        import json
        import tempfile
        import time

        command = [self._python, "-B", "-I", os.path.join(self._probes, f"{probe}.py"), json.dumps(options)]
        begin = time.monotonic()
        # Files, not pipes: what a grandchild keeps open holds up nobody.
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = self._start(command, {**self._env, **(more or {})}, out, err)
            if isinstance(child, Outcome):
                return child
            try:
                ended = _wait(child.pid, self._deadline)
            finally:
                code = self._reap(child)
            seconds = time.monotonic() - begin
            texts = [_tail(stream) for stream in (out, err)]
        return _outcome(texts[0], texts[1], code if ended else None, seconds)

    def _start(
        self, command: list[str], env: dict[str, str], out: IO[bytes], err: IO[bytes]
    ) -> subprocess.Popen[bytes] | Outcome:
        import subprocess
        import time

        with self._lock:
            if self._closed or time.monotonic() >= self._deadline:
                return Outcome(failure="not started: the time for all checks was over", ended="late")
            try:
                child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    env=env,
                    start_new_session=True,
                )
            except OSError as error:
                return Outcome(failure=f"{self._python} cannot be run: {error.strerror}", ended="failed")
            self._running.add(child)
            return child

    def _reap(self, child: subprocess.Popen[bytes]) -> int:
        """Ends what is left of the group. The leader was not waited for, so its number is still its own."""
        import subprocess

        with self._lock:
            _kill_group(child.pid)
            self._running.discard(child)  # from here on nobody else kills by its number
        try:
            return child.wait(1)  # outside of the lock: many that are stuck cost one second, not one each
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


def _tail(stream: IO[bytes]) -> str:
    """The end of what a child wrote; one that fills the disk must not fill the memory, too."""
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - KEPT))
    return stream.read().decode(errors="replace")


def _outcome(output: str, noise: str, code: int | None, seconds: float) -> Outcome:
    """What a child's texts and status say; `code` None is one that was killed at the deadline."""
    import json

    steps = [line[len(STEP) :] for line in noise.splitlines() if line.startswith(STEP)]
    heard = [line.strip() for line in noise.splitlines() if line.strip() and not line.startswith(STEP)]
    step = steps[-1] if steps else ""
    told = Outcome(seconds=seconds, step=step, noise=tuple(heard[-HEARD:]))
    during = f" while it was at: {step}" if steps else ""
    last = f": {heard[-1][:300]}" if heard else ""
    if code is None:
        return told.replace(failure=f"no answer in {seconds:.0f} s{during}; killed", ended="hang")
    if code < 0:
        return told.replace(failure=f"killed by {_signal(-code)}{during}{last}", ended="crash")
    answers = [line[len(ANSWER) :] for line in output.splitlines() if line.startswith(ANSWER)]
    if not answers:
        return told.replace(failure=f"ended with status {code} and no answer{during}{last}", ended="failed")
    answer = json.loads(answers[-1])
    if "failure" in answer:
        return told.replace(failure=str(answer["failure"]), ended="failed")
    return told.replace(answer=answer)


def _signal(number: int) -> str:
    import signal

    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    # Nothing of ours sends this one before the deadline.
    return f"{name} (by the kernel for want of host memory, or by somebody else)" if name == "SIGKILL" else name
