"""Where the time of `gpuenv solve --framework torch` goes, for `bench_solve.py --where`.

The script measures whole processes: an interpreter that does nothing, one without site-packages,
one that imports what a solve imports, and the solve. It measures the phases in a child process.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time

# The script of a child process. It prints the seconds of each phase.
PHASES = """
import json, sys, time
clock = time.perf_counter
start = clock()
import gpuenv
from gpuenv import api
from gpuenv import cli
from gpuenv.resolve import solver
from gpuenv.lock import pylock
imported = clock()
host = gpuenv.describe(gpus=("H100",), driver="580.65.06")
described = clock()
request = gpuenv.Request(frameworks=("torch",))
plan = gpuenv.solve(request, host)
solved = clock()
plan = gpuenv.solve(request, host)
repeated = clock()
api.write_lock(gpuenv.lock(plan), sys.argv[1])
written = clock()
print(json.dumps({
    "imports": imported - start,
    "data of hosts and drivers": described - imported,
    "first solve": solved - described,
    "second solve in the process": repeated - solved,
    "writing the lock": written - repeated,
}))
"""
IMPORTS = "import gpuenv.cli, gpuenv.resolve.solver, gpuenv.lock.pylock, gpuenv.index.multi_index"


def _wall(words: list[str], environment: dict[str, str], folder: str) -> float:
    start = time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=environment, cwd=folder)
    return time.perf_counter() - start


def _phases(python: str, environment: dict[str, str], folder: str) -> dict[str, float]:
    words = [python, "-c", PHASES, os.path.join(folder, "phases.toml")]
    told = subprocess.run(
        words, check=True, capture_output=True, env=environment, cwd=folder, text=True
    )
    phases: dict[str, float] = json.loads(told.stdout)
    return phases


def where(scripts: str, runs: int, *, as_json: bool = False) -> None:
    """Print medians and minima in milliseconds, of whole processes and of phases.

    Args:
        scripts: the folder with the programs of gpuenv's environment.
        runs: how often each process runs.
        as_json: print JSON.
    """
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "GPUENV_CACHE_DIR": os.path.join(folder, "cache")}
        for name in ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH"):
            environment.pop(name, None)
        python, gpuenv = os.path.join(scripts, "python"), os.path.join(scripts, "gpuenv")
        solve = [gpuenv, "solve", "--framework", "torch", "--gpu", "H100", "--driver", "580.65.06"]
        processes = {
            "the floor: python -I -S -c pass": ([python, "-I", "-S", "-c", "pass"], environment),
            "python -c pass": ([python, "-c", "pass"], environment),
            "python, with what a solve imports": ([python, "-c", IMPORTS], environment),
            "gpuenv solve": (solve, environment),
        }
        _wall(solve, environment, folder)
        times: dict[str, list[float]] = {}
        for _ in range(runs):
            for name, (words, variables) in processes.items():
                times.setdefault(name, []).append(_wall(words, variables, folder))
            for name, seconds in _phases(python, environment, folder).items():
                times.setdefault(f"phase: {name}", []).append(seconds)
    if as_json:
        print(
            json.dumps(
                {
                    name: {"median_s": statistics.median(row), "min_s": min(row)}
                    for name, row in times.items()
                }
            )
        )
        return
    for name, row in times.items():
        print(f"{name:<44} {statistics.median(row) * 1e3:7.1f} ms  (least {min(row) * 1e3:.1f})")
