"""Where the time of `gpuenv solve --framework torch` goes, for `bench_solve.py --where`.

Whole processes are measured from outside: an interpreter that does nothing, one without site-packages, one that only
imports what a solve imports, the solve itself. The phases are measured in a child that runs them through the
public interface, each on a fresh process; what importing costs was taken out of them before.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

# Run in a child: it prints seconds by phase. Modules are imported first, so that phases are what they do themselves.
PHASES = """
import gc, json, sys, time
gc.disable()  # as the command does
clock = time.perf_counter
start = clock()
import gpuenv
from gpuenv import lockfile, model, solver, writing
from gpuenv import environment, index, matrix, detection
from gpuenv.index import combined, defaults, snapshot
imported = clock()
host = gpuenv.describe(gpus=("H100",), driver="580.65.06")
described = clock()
request = model.Request(frameworks=("torch",))
plan = gpuenv.solve(request, host)
solved = clock()
again = gpuenv.solve(request, host)
repeated = clock()
text = lockfile.dumps(gpuenv.lock(plan))
with open(sys.argv[1], "w", encoding="utf-8") as file:
    file.write(text)
written = clock()
print(json.dumps({
    "imports": imported - start,
    "data of hosts and drivers": described - imported,
    "snapshot and solve": solved - described,
    "of that, the first reading of files": (solved - described) - (repeated - solved),
    "the lock's text": written - repeated,
}))
"""
IMPORTS = "import gpuenv.cli, gpuenv.resolve.solver, gpuenv.lock.pylock, gpuenv.index.multi_index, gpuenv.index.snapshot"


def _wall(words: list[str], environment: dict[str, str], folder: str) -> float:
    start = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment, cwd=folder)
    return time.perf_counter() - start


def _phases(environment: dict[str, str], folder: str) -> dict[str, float]:
    words = [sys.executable, "-c", PHASES, os.path.join(folder, "phases.toml")]
    told = subprocess.run(words, check=True, capture_output=True, env=environment, cwd=folder, text=True)
    found: dict[str, float] = json.loads(told.stdout)
    return found


def where(runs: int, *, as_json: bool = False) -> None:
    """Prints medians and minima in milliseconds, of whole processes and of phases."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "GPUENV_CACHE_DIR": os.path.join(folder, "cache")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        python, gpuenv = sys.executable, os.path.join(os.path.dirname(sys.executable), "gpuenv")
        solve = [gpuenv, "solve", "--framework", "torch", "--gpu", "H100", "--driver", "580.65.06"]
        anew = {**environment, "GPUENV_NO_MEMO": "1"}
        processes = {
            "the floor: python -I -S -c pass": ([python, "-I", "-S", "-c", "pass"], anew),
            "python -c pass": ([python, "-c", "pass"], anew),
            "python, with what a solve imports": ([python, "-c", IMPORTS], anew),
            "gpuenv solve": (solve, anew),
            "gpuenv solve, the same again": (solve, environment),
        }
        _wall(solve, environment, folder)
        times: dict[str, list[float]] = {}
        for _ in range(runs):
            for name, (words, variables) in processes.items():
                times.setdefault(name, []).append(_wall(words, variables, folder))
            for name, seconds in _phases(anew, folder).items():
                times.setdefault(f"phase: {name}", []).append(seconds)
    if as_json:
        print(
            json.dumps({name: {"median_s": statistics.median(row), "min_s": min(row)} for name, row in times.items()})
        )
        return
    for name, row in times.items():
        print(f"{name:<44} {statistics.median(row) * 1e3:7.1f} ms  (least {min(row) * 1e3:.1f})")
