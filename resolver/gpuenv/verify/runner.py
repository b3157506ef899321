"""Run probes in the target's interpreter, each in a child process.

A crash or a hang is a result, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from typing import IO, Any, Self

from .. import activity
from ..model import Value

ANSWER, STEP = "gpuenv-probe: ", "gpuenv-step: "
PROBES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "probes")
LAUNCHER = os.path.join(PROBES, "_run.py")
MAX_OUTPUT = 4 << 20  # bytes that are read from the end of a child's stream
MAX_NOISE = 20  # lines of a child's stderr, steps excluded, that are kept


class Outcome(Value):
    """The answer of a probe, or why there is none.

    `failure`: "killed by SIGSEGV while it was at: open libcudnn...".
    `answer` is JSON; gpuenv.probes.answers has its types. `ended` is "" with an answer, else "hang"
    (killed at the deadline), "crash" (ended by a signal), "late" (not started) or "failed"
    (anything else). `step` is the last step that the probe announced, `noise` the last other lines
    of its stderr.
    """

    answer: Any = None
    failure: str = ""
    seconds: float = 0.0
    ended: str = ""
    step: str = ""
    noise: tuple[str, ...] = ()


RunProbe = Callable[..., Outcome]  # Children.run


class Children:
    """Runs probes in the interpreter `python`.

    `deadline` (time.monotonic) bounds all of them. `probes` is the folder of the probes. With
    `turns`, those that use a device run one after another. Leaving the `with` block kills the
    children that still run, also when the user interrupts while threads wait for them.
    """

    def __init__(
        self,
        python: str,
        env: Mapping[str, str],
        deadline: float,
        probes: str = PROBES,
        *,
        turns: bool = False,
    ) -> None:
        self._python, self._env, self._deadline, self._probes = python, dict(env), deadline, probes
        self.isolated = True
        self._turn = threading.Lock() if turns else contextlib.nullcontext()
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closed = True
            for child in self._running:
                _kill_group(child.pid)

    def run(
        self,
        probe: str,
        options: Mapping[str, object],
        more: Mapping[str, str] | None = None,
        limit: float = float("inf"),
    ) -> Outcome:
        """Run a probe and wait for it, until the deadline or for `limit` seconds at most.

        Then its process group is killed.

        The interpreter writes no bytecode. It runs isolated (no PYTHONPATH, no user site, no
        script folder on sys.path), unless `isolated` is set to false. The loader variables are the
        user's.

        Args:
            more: environment variables in addition to those of this object.
            limit: seconds.
        """
        script = os.path.join(self._probes, f"{probe}.py")
        launcher = [LAUNCHER, f"--parent={os.getpid()}"]
        flags = ["-B", "-I"] if self.isolated else ["-B"]
        command = [self._python, *flags, *launcher, script, json.dumps(options)]
        # Files instead of pipes: a grandchild that keeps them open delays nothing.
        with (
            self._turn if options.get("device") else contextlib.nullcontext(),
            activity.current.part(probe),
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            begin = time.monotonic()
            with self._lock:
                if self._closed or begin >= self._deadline:
                    failure = "not started: the time limit for all checks was reached"
                    return Outcome(failure=failure, ended="late")
                try:
                    child = subprocess.Popen(
                        command,
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=err,
                        env={**self._env, **(more or {})},
                        start_new_session=True,
                    )
                except OSError as error:
                    failure = f"{self._python} cannot be run: {error.strerror}"
                    return Outcome(failure=failure, ended="failed")
                self._running.add(child)
            try:
                in_time = _wait(child.pid, min(self._deadline, begin + limit))
            finally:
                code = self._reap(child)
            seconds = time.monotonic() - begin
            output, noise = _tail(out), _tail(err)
        return _outcome(output, noise, code if in_time else None, seconds)

    def _reap(self, child: subprocess.Popen[bytes]) -> int:
        """Kill the rest of the group.

        The leader was not waited for, so its number is still its own.
        """
        with self._lock:
            _kill_group(child.pid)
            self._running.discard(child)  # from here on nothing else kills by its number
        try:
            # Outside of the lock: several stuck children cost one second together, not one each.
            return child.wait(1)
        except subprocess.TimeoutExpired:  # stuck in the kernel, where no signal reaches it
            child.returncode = -signal.SIGKILL
            return child.returncode


def _kill_group(number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(number, signal.SIGKILL)


def _wait(number: int, deadline: float) -> bool:
    """Return whether the process ends before the deadline.

    It stays a zombie, so that its group can be killed safely.
    """
    pause = 0.001
    while os.waitid(os.P_PID, number, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None:
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause)
        pause = min(pause * 1.5, 0.05)
    return True


def _tail(stream: IO[bytes]) -> str:
    """Return the end of what a child wrote.

    A child that fills the disk must not fill the memory, too.
    """
    size = stream.seek(0, os.SEEK_END)
    stream.seek(max(0, size - MAX_OUTPUT))
    return stream.read().decode(errors="replace")


def _outcome(output: str, stderr: str, code: int | None, seconds: float) -> Outcome:
    """Return what a child's output and status mean.

    `code` None is a child that was killed at the deadline.
    """
    lines = [line.strip() for line in stderr.splitlines() if line.strip()]
    steps = [line.removeprefix(STEP) for line in lines if line.startswith(STEP)]
    noise = [line for line in lines if not line.startswith(STEP)]
    step = steps[-1] if steps else ""
    outcome = Outcome(seconds=round(seconds, 3), step=step, noise=tuple(noise[-MAX_NOISE:]))
    during = f" while it was at: {step}" if step else ""
    last = f": {noise[-1][:300]}" if noise else ""
    if code is None:
        return outcome.replace(
            failure=f"no answer in {seconds:.0f} s{during}; killed", ended="hang"
        )
    if code < 0:
        name = f"signal {-code}"
        if -code == signal.SIGKILL:  # gpuenv sends it at the deadline only
            name = "SIGKILL (by the kernel because host memory ran out, or by another process)"
        elif -code in set(signal.Signals):
            name = signal.Signals(-code).name
        return outcome.replace(failure=f"killed by {name}{during}{last}", ended="crash")
    answers = [line for line in output.splitlines() if line.startswith(ANSWER)]
    if not answers:
        failure = f"ended with status {code} and no answer{during}{last}"
        return outcome.replace(failure=failure, ended="failed")
    answer = json.loads(answers[-1].removeprefix(ANSWER))
    if "failure" in answer:
        return outcome.replace(failure=str(answer["failure"]), ended="failed")
    return outcome.replace(answer=answer)
