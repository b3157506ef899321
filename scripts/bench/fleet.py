"""Measure how the time of `gpuenv fleet solve` grows with the host classes and with the hosts.

    python scripts/tools.py bench fleet [--record docs/records/fleet.json]

The fleets are simulated. Each class costs a solve; each host costs only the reading of its
document. The output has a line for each process: wall time, processor time and peak memory.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gpuenv import api
from gpuenv.serialize import to_plain

HOSTS = (10, 100, 1_000, 10_000, 100_000)
CLASSES = (1, 5, 10, 20, 40)
GPUS = ("H100", "A100", "V100", "B200", "L40S", "T4")
DRIVERS = ("525.60.13", "535.104.05", "550.54.14", "570.86.15", "580.65.06", "595.45.04")
GLIBCS = ("2.28", "2.35")
PYTHONS = ("3.11", "3.12")


def classes(count: int) -> list[dict[str, Any]]:
    """Return hosts of different classes, in an order that does not depend on their number."""
    facts = [
        (gpu, driver, glibc, python)
        for gpu, driver, glibc, python in itertools.product(GPUS, DRIVERS, GLIBCS, PYTHONS)
        if not (gpu == "B200" and driver < "570") and not (gpu == "V100" and driver > "590")
    ]
    random.Random(5).shuffle(facts)  # noqa: S311  the same fleet in each run
    return [
        to_plain(
            api.describe(
                gpus=[gpu] * 8, driver=driver, glibc=glibc, python=python, platform="linux-x86_64"
            )
        )
        for gpu, driver, glibc, python in facts[:count]
    ]


def write_fleet(path: Path, hosts: int, kinds: list[dict[str, Any]]) -> None:
    """Write NDJSON in which each host has its own UUIDs and free memory."""
    with path.open("w") as stream:
        for number in range(hosts):
            host = kinds[number % len(kinds)]
            gpus = [
                {**gpu, "uuid": f"GPU-{number:08}-{index}", "memory_free": number * 4096}
                for index, gpu in enumerate(host["gpus"])
            ]
            stream.write(json.dumps({"node": f"n{number:06}", **host, "gpus": gpus}) + "\n")


def measure(hosts: int, count: int) -> dict[str, Any]:
    """Solve for a fleet in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fleet.ndjson"
        write_fleet(path, hosts, classes(count))
        command = [sys.executable, "-m", "gpuenv", "fleet", "solve", "--from", str(path)]
        command += ["--framework", "torch", "--offline", "--json"]
        begin = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        output = process.stdout.read() if process.stdout else b""
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begin
    document = json.loads(output)
    return {
        "hosts": hosts,
        "classes": len(document["classes"]),
        "seconds": round(seconds, 2),
        "processor_seconds": round(usage.ru_utime + usage.ru_stime, 2),
        "memory_mib": usage.ru_maxrss // 1024,
        "solves": document["solves"],
        "locks": document["locks"],
        "proved": document["proved"],
        "status": os.waitstatus_to_exitcode(status),
    }


def main(words: list[str]) -> None:
    """Print a line for each fleet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args(words)
    fleets = [(hosts, min(40, hosts)) for hosts in HOSTS] + [
        (10_000, count) for count in CLASSES[:-1]
    ]
    rows = []
    for hosts, count in fleets:
        rows.append(measure(hosts, count))
        print(json.dumps(rows[-1]), flush=True)
    if arguments.record:
        record = {"request": "torch", "load": os.getloadavg()[0], "runs": rows}
        arguments.record.write_text(json.dumps(record, indent=1) + "\n")
