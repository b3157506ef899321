"""Kill sync, install, solve, lock, download and bundles at random points; record what is left.

    tools.py prove kill-commands [--points N] [--seed N] [--command NAME] [--record FILE]

Each point is a signal (SIGKILL, SIGTERM, SIGINT) to gpuenv alone or to its process group, at a
random moment of a run. Runs of sync change an environment or make a new one, with uv or with pip.
Afterwards the result (an environment, a lock, all locks of a project, each file of a folder) must
be the old or the new one, and no process may be left. The next run must complete the new result and
leave no other file. The points are shared among the commands.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import tempfile
import time
from pathlib import Path

import processes
from common import ROOT, write_record
from prove import kills


def main(words: list[str]) -> int:
    """Run the points. Return 1 if one of them left what it must not leave."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--command", action="append", choices=("sync", *kills.COMMANDS))
    parser.add_argument("--record", metavar="FILE", type=Path)
    arguments = parser.parse_args(words)
    os.environ["PYTHONPATH"] = str(ROOT / "resolver")
    # A shell may ignore it for programs in the background, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    processes.adopt_orphans()
    begin = time.monotonic()
    rows, names = {}, arguments.command or ["sync", *kills.COMMANDS]
    for number, name in enumerate(names):
        count = len(range(number, arguments.points, len(names)))
        rows[name] = _run(name, kills.random_points(count, arguments.seed + number))
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "host": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"{platform.python_implementation()} {platform.python_version()}",
        "signals": [number.name for number in kills.SIGNALS],
        "seed": arguments.seed,
        "seconds": round(time.monotonic() - begin),
        "total": {name: sum(row[name] for row in rows.values()) for name in kills.OUTCOMES},
        "commands": rows,
    }
    write_record(record, arguments.record)
    return int(any(row[name] for row in rows.values() for name in kills.BAD_OUTCOMES))


def _run(name: str, points: list[kills.Point]) -> dict[str, int]:
    """Run the points of one command. Return each observation with its count."""
    with tempfile.TemporaryDirectory() as folder:
        trials: kills.KillTrials | kills.CommandTrials
        if name == "sync":
            trials = kills.KillTrials(Path(folder))
        else:
            trials = kills.CommandTrials(Path(folder), name)
        for index, point in enumerate(points):
            trials.run(point)
            if index % 10 == 9:
                print(name, index + 1, dict(trials.counts), flush=True)
    return {outcome: trials.counts[outcome] for outcome in kills.OUTCOMES}
