"""Whole processes: gpuenv's solve of torch from its snapshot against `uv pip compile` of the same requirement.

    python scripts/bench_solve.py [--runs 9]

Three commands run in turn, one after the other, so that a drift of the machine meets all alike: gpuenv with no
network, uv with a warm cache and --offline, uv online with an empty cache. Prints medians, ratios and peak memory.
uv is given its interpreter, or it spends half a second looking for one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time


def measure(command: list[str], folder: str, environment: dict[str, str]) -> tuple[float, float]:
    """(wall seconds, peak MiB) of one run that must succeed."""
    start = time.perf_counter()
    with open(os.path.join(folder, "log"), "w+b") as log:
        child = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - start
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            log.seek(0)
            sys.exit(f"{' '.join(command)} ended with {child.returncode}:\n{log.read().decode()}")
    return wall, usage.ru_maxrss / 1024


def main() -> None:
    """Runs the comparison and prints it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    gpuenv = os.path.join(os.path.dirname(sys.executable), "gpuenv")
    uv = os.path.join(os.path.dirname(sys.executable), "uv")
    uv = uv if os.path.exists(uv) else shutil.which("uv") or sys.exit("uv is not installed")
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "requirements.in"), "w", encoding="ascii") as file:
            file.write("torch\n")
        # A proxy that is not there: any request would fail.
        dead = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9"}
        plain = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        cold = os.path.join(folder, "cold")
        compile_ = [uv, "pip", "compile", "--quiet", "--python", sys.executable, "requirements.in", "-o", "uv.txt"]
        ours = [gpuenv, "solve", "--framework", "torch", "--gpu", "H100", "--driver", "580.65.06"]
        commands = {
            "gpuenv, no network": (ours, {**plain, **dead}),
            "uv, warm and offline": ([*compile_, "--offline"], plain),
            "uv, online and cold": ([*compile_, "--cache-dir", cold], plain),
        }
        measure(compile_, folder, plain)  # fills uv's cache
        measure(ours, folder, plain)  # writes the bytecode
        walls: dict[str, list[float]] = {name: [] for name in commands}
        peaks = dict.fromkeys(commands, 0.0)
        for _ in range(arguments.runs):
            for name, (command, environment) in commands.items():
                shutil.rmtree(cold, ignore_errors=True)
                wall, peak = measure(command, folder, environment)
                walls[name].append(wall)
                peaks[name] = max(peaks[name], peak)
    medians = {name: statistics.median(times) for name, times in walls.items()}
    mine, warm, empty = medians.values()
    if arguments.json:
        print(json.dumps({"medians_s": medians, "peaks_mib": peaks, "of_warm": mine / warm, "of_cold": mine / empty}))
        return
    for name, median in medians.items():
        low, high = min(walls[name]), max(walls[name])
        print(f"{name:<22} {median * 1e3:7.1f} ms  ({low * 1e3:.1f} to {high * 1e3:.1f})  {peaks[name]:6.1f} MiB")
    print(f"gpuenv / uv offline warm = {mine / warm:.2f}   gpuenv / uv online cold = {mine / empty:.2f}")


if __name__ == "__main__":
    main()
