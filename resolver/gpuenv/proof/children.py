"""Probes run in the target's interpreter, each in a child of its own: a crash or a hang is an answer, too."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..model import Value

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


def run(python: str, probe: str, options: Mapping[str, Any], *, timeout: float, env: Mapping[str, str]) -> Outcome:
    """Runs a probe and waits for it, `timeout` seconds at most; then the child and its children are killed.

    The interpreter runs isolated (no PYTHONPATH, no user site, no script folder on sys.path) and writes no bytecode;
    the loader's variables are those of `env`.
    """
    import json
    import signal
    import subprocess
    import time

    script = os.path.join(PROBES, f"{probe}.py")
    begin = time.monotonic()
    if timeout <= 0:
        return Outcome(failure="not started: the time for all checks was over")
    try:
        child = subprocess.Popen(
            [python, "-B", "-I", script, json.dumps(options)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=dict(env),
            start_new_session=True,
        )
    except OSError as error:
        return Outcome(failure=f"{python} cannot be run: {error.strerror}")
    try:
        output, noise = child.communicate(timeout=timeout)
        hung = False
    except subprocess.TimeoutExpired:
        hung = True
        os.killpg(child.pid, signal.SIGKILL)
        try:
            output, noise = child.communicate(timeout=1)
        except subprocess.TimeoutExpired:  # it is stuck in the kernel, where no signal reaches it
            output, noise = "", ""
    except BaseException:
        os.killpg(child.pid, signal.SIGKILL)
        raise
    seconds = time.monotonic() - begin
    steps = [line[len(STEP) :] for line in noise.splitlines() if line.startswith(STEP)]
    during = f" while it was at: {steps[-1]}" if steps else ""
    if hung:
        return Outcome(failure=f"no answer in {timeout:.0f} s{during}; killed", seconds=seconds)
    answers = [line[len(ANSWER) :] for line in output.splitlines() if line.startswith(ANSWER)]
    if child.returncode < 0:
        name = signal.Signals(-child.returncode).name if -child.returncode in set(signal.Signals) else child.returncode
        return Outcome(failure=f"killed by {name}{during}", seconds=seconds)
    if not answers:
        said = [line for line in noise.splitlines() if line.strip() and not line.startswith(STEP)]
        last = f": {said[-1][:300]}" if said else ""
        return Outcome(failure=f"ended with status {child.returncode} and no answer{during}{last}", seconds=seconds)
    answer = json.loads(answers[-1])
    failure = str(answer["failure"]) if "failure" in answer else ""
    return Outcome(answer=None if failure else answer, failure=failure, seconds=seconds)
