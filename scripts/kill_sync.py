"""Kill `gpuenv sync` at random points, and record what is left.

    python scripts/kill_sync.py [--points N] [--seed N] [--record FILE]

Each point is a signal (SIGKILL, SIGTERM, SIGINT) to gpuenv alone or to its process group, at a
random moment of a run that changes an environment or makes a new one, with uv or with pip. The
environment must be the old or the new one afterwards, no process may be left, and the next run must
verify the new one and leave no other file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "resolver"), str(ROOT / "tests")]

import kills  # noqa: E402  of tests/
import processes  # noqa: E402


def main() -> int:
    """Run the points. Return 1 if one of them left what it must not leave."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", metavar="FILE", type=Path)
    arguments = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT / "resolver")
    # A shell may ignore it for programs in the background, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    processes.adopt_orphans()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        trials = kills.KillTrials(Path(folder))
        for index, point in enumerate(kills.random_points(arguments.points, arguments.seed)):
            trials.run(point)
            if index % 10 == 9:
                print(index + 1, dict(trials.counts), flush=True)
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "host": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"{platform.python_implementation()} {platform.python_version()}",
        "command": "gpuenv sync",
        "signals": [number.name for number in kills.SIGNALS],
        "seed": arguments.seed,
        "seconds": round(time.monotonic() - begin),
        **{name: trials.counts[name] for name in kills.OUTCOMES},
    }
    text = json.dumps(record, indent=2)
    print(text)
    if arguments.record:
        arguments.record.write_text(text + "\n")
    return int(any(trials.counts[name] for name in kills.BAD_OUTCOMES))


if __name__ == "__main__":
    sys.exit(main())
