"""Measure `gpuenv sync` beside `uv venv` and `uv pip sync`, with the files in uv's cache.

    python scripts/bench_sync.py LOCK CHANGED_LOCK [--rounds N] [--record FILE] [HOST_FLAG ...]

CHANGED_LOCK has another release of one small package. The commands take turns, so that load from
elsewhere meets all of them. Each figure is a median: seconds of the clock, and of the processor
with all children.

    uv              uv venv, then uv pip sync, into a new folder
    new             gpuenv sync --no-verify into a new folder
    new, verified   gpuenv sync into a new folder; it reads all bytes of the environment
    one package     gpuenv sync --no-verify of CHANGED_LOCK into that environment
    rollback        gpuenv rollback
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GPUENV = [sys.executable, "-m", "gpuenv"]


def processor_seconds() -> float:
    """Return the processor time of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(*commands: Sequence[str]) -> tuple[float, float]:
    """Run commands. Return the seconds of the clock and of the processor."""
    begin, used = time.monotonic(), processor_seconds()
    for command in commands:
        subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - begin, processor_seconds() - used


def written(folder: Path) -> int:
    """Return the bytes of an environment that no other environment and no cache has."""
    used = 0
    for path in folder.rglob("*"):
        status = path.lstat()
        if path.is_dir() or status.st_nlink == 1:
            used += status.st_blocks * 512
    return used


def one_round(
    folder: Path, lock: str, changed: str, host: Sequence[str], uv: str
) -> dict[str, tuple[float, float]]:
    """Run each command once, in new folders."""
    plain, target = str(folder / "plain"), str(folder / "env")
    flags = ["--target", target, "--installer", "uv", *host]
    python = f"{plain}/bin/python"
    install = [uv, "pip", "sync", "--quiet", "--offline", "--preview-features", "pylock"]
    row = {
        "uv": measure(
            [uv, "venv", "--quiet", "--python", sys.executable, plain],
            [*install, "--python", python, lock],
        )
    }
    row["new, verified"] = measure([*GPUENV, "sync", lock, *flags])
    shutil.rmtree(target)
    flags += ["--no-verify", "--yes"]
    row["new"] = measure([*GPUENV, "sync", lock, *flags])
    row["one package"] = measure([*GPUENV, "sync", changed, *flags])
    row["bytes of one package"] = (written(Path(target)), 0)
    row["rollback"] = measure([*GPUENV, "rollback", "--target", target])
    for name in os.listdir(folder):
        shutil.rmtree(folder / name)
    return row


def main() -> int:
    """Run the rounds, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lock")
    parser.add_argument("changed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", metavar="FILE", type=Path)
    arguments, host = parser.parse_known_args()
    from uv import find_uv_bin

    os.environ["PYTHONPATH"] = str(ROOT / "resolver")
    locks = [os.path.abspath(path) for path in (arguments.lock, arguments.changed)]
    with tempfile.TemporaryDirectory(dir=".") as name:
        rows = [
            one_round(Path(name).resolve(), *locks, host, find_uv_bin())
            for _ in range(arguments.rounds)
        ]
    medians = {}
    for what in rows[0]:
        clock, processor = zip(*(row[what] for row in rows), strict=True)
        medians[what] = {
            "seconds": round(statistics.median(clock), 2),
            "processor": round(statistics.median(processor), 2),
        }
    size = medians.pop("bytes of one package")["seconds"]
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "host": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "load": [round(value, 1) for value in os.getloadavg()],
        "rounds": arguments.rounds,
        "medians": medians,
        "megabytes of one package": round(size / 1e6, 1),
        "new / uv": round(medians["new"]["seconds"] / medians["uv"]["seconds"], 2),
    }
    text = json.dumps(record, indent=2)
    print(text)
    if arguments.record:
        arguments.record.write_text(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
