"""Time `gpuenv fleet solve` for large fleets beside a fleet of 40 hosts, each of its own class.

    python scripts/tools.py bench fleet [--runs N] [--record FILE] [CASE ...]

The fleets are simulated. Each class costs a solve; each host costs only the reading of its
document. A case is HOSTS-CLASSES.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gpuenv
from bench.pairs import Case, Tools, bench
from gpuenv.serialize import to_plain

FLEETS = ((1_000, 40), (10_000, 40), (100_000, 40), (10_000, 20), (10_000, 10), (10_000, 1))
GPUS = ("H100", "A100", "V100", "B200", "L40S", "T4")
DRIVERS = ("525.60.13", "535.104.05", "550.54.14", "570.86.15", "580.65.06", "595.45.04")


def classes() -> list[dict[str, Any]]:
    """Return hosts of different classes, in an order that is the same in each run."""
    facts = [
        (gpu, driver, glibc, python)
        for gpu, driver, glibc, python in itertools.product(
            GPUS, DRIVERS, ("2.28", "2.35"), ("3.11", "3.12")
        )
        if not (gpu == "B200" and driver < "570") and not (gpu == "V100" and driver > "590")
    ]
    random.Random(5).shuffle(facts)  # noqa: S311  not for secrets
    hosts = (
        gpuenv.describe(
            gpus=[gpu] * 8, driver=driver, glibc=glibc, python=python, platform="linux-x86_64"
        )
        for gpu, driver, glibc, python in facts
    )
    return [to_plain(host) for host in hosts]


def write_fleet(path: Path, count: int, kinds: list[dict[str, Any]]) -> None:
    """Write NDJSON in which each host has its own UUIDs and free memory."""
    with path.open("w") as stream:
        for number in range(count):
            host = kinds[number % len(kinds)]
            gpus = [
                {**gpu, "uuid": f"GPU-{number:08}-{index}", "memory_free": number * 4096}
                for index, gpu in enumerate(host["gpus"])
            ]
            stream.write(json.dumps({"node": f"n{number:06}", **host, "gpus": gpus}) + "\n")


def cases(tools: Tools) -> Iterator[Case]:
    """Yield the fleets."""
    kinds = classes()
    write_fleet(tools.folder / "small.ndjson", 40, kinds[:40])
    solve = [tools.gpuenv, "fleet", "solve", "--framework", "torch", "--offline", "--json"]
    for hosts, count in FLEETS:
        yield Case(
            f"{hosts}-{count}",
            tools.command([*solve, "--from", "large.ndjson"], "cache"),
            tools.command([*solve, "--from", "small.ndjson"], "cache"),
            prepare=partial(write_fleet, tools.folder / "large.ndjson", hosts, kinds[:count]),
        )


def main(words: list[str]) -> int:
    """Run the benchmark."""
    return bench(__doc__ or "", cases, words)
