"""Measure how the time of a solve grows with the requirements, the versions and the backtracking.

    python scripts/tools.py bench growth [--runs 5] [--record docs/records/growth.json]

The packages are generated in memory, so that only the resolver is measured: no start of Python, no
files, no network. A point is [size, packages chosen, median ms, minimum ms].
"""

from __future__ import annotations

import argparse
import statistics
import time
from datetime import date

import gpuenv
from common import write_record
from gpuenv import api
from gpuenv.model import Host, Request
from gpuenv.requirements.target import TargetEnvironment
from gpuenv.resolve import solver
from universe import Universe

Needs = dict[str, dict[str, list[str]]]  # name -> version -> requirements
SIZES = (1, 2, 4, 8, 16, 32, 64)


def releases(count: int, *needs: str) -> dict[str, list[str]]:
    """Return releases 1.0, 2.0 and so on, which need the same; {} stands for the number."""
    return {f"{n}.0": [text.format(n) for text in needs] for n in range(1, count + 1)}


def many(count: int) -> tuple[Needs, list[str]]:
    """Requirements with 20 releases each, which depend on ranges of two shared packages."""
    packages = {f"base{place}": releases(20) for place in range(7)}
    for place in range(count):
        packages[f"top{place}"] = releases(20, f"base{place % 7}>=3", f"base{place % 5}<19")
    return packages, [f"top{place}>=2" for place in range(count)]


def long(count: int) -> tuple[Needs, list[str]]:
    """A package with many versions, and another that excludes the newer half of them."""
    return {"long": releases(count), "picky": releases(1, f"long<={count // 2}")}, ["long", "picky"]


def deep(count: int) -> tuple[Needs, list[str]]:
    """A chain of packages with three versions each; only the oldest ones fit the request.

    Only the end of the chain shows this, so the resolver backtracks over the whole chain, twice.
    """
    packages = {f"link{place}": releases(3, f"link{place + 1}=={{}}.0") for place in range(count)}
    packages[f"link{count}"] = releases(3, "end=={}.0")
    return {**packages, "end": releases(3)}, ["link0", "end<2"]


def knots(count: int) -> tuple[Needs, list[str]]:
    """Groups of three packages with four versions each; only the oldest ones fit together.

    A wrong choice shows two packages later. The resolver backtracks within each group.
    """
    packages: Needs = {}
    for place in range(count):
        packages[f"a{place}"] = releases(4, f"b{place}=={{}}.0")
        packages[f"b{place}"] = releases(4, f"c{place}=={{}}.0")
        packages[f"c{place}"] = {f"{n}.0": [f"a{place}<{max(2, n)}"] for n in range(1, 5)}
    return packages, [f"a{place}" for place in range(count)]


def hopeless(count: int) -> tuple[Needs, list[str]]:
    """The chain of `deep`, but no version fits the request: the time of the refusal."""
    packages, _ = deep(count)
    return packages, ["link0", "end<1"]


SERIES = {
    "Requirements": (many, SIZES),
    "Versions of a package": (long, (10, 30, 100, 300, 1000)),
    "Deep backtracking": (deep, SIZES),
    "Frequent backtracking": (knots, SIZES),
    "No solution": (hopeless, SIZES),
}


def measure(needs: Needs, asked: list[str], host: Host, runs: int) -> list[float]:
    """Return the packages that a solve chooses, and the median and the minimum of its ms."""
    data, request = api.compatibility_data(), Request(requirements=tuple(asked))
    packages = {
        name: {version: {"requires": texts} for version, texts in versions.items()}
        for name, versions in needs.items()
    }
    times: list[float] = []
    pins = 0
    for _ in range(runs + 1):  # the first one reads the compatibility data
        index = Universe(packages)
        start = time.perf_counter()
        try:
            pins = len(solver.solve(request, host, data, index, TargetEnvironment).pins)
        except gpuenv.NoSolutionError:
            pins = 0
        times.append((time.perf_counter() - start) * 1e3)
    return [pins, round(statistics.median(times[1:]), 2), round(min(times[1:]), 2)]


def main(words: list[str]) -> int:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--record", metavar="FILE")
    options = parser.parse_args(words)
    host = gpuenv.describe(gpus=("H100",), driver="580.65.06", python="3.12")
    series = {
        title: {
            "what": (make.__doc__ or "").partition("\n")[0],
            "points": [[size, *measure(*make(size), host, options.runs)] for size in sizes],
        }
        for title, (make, sizes) in SERIES.items()
    }
    record = {"date": date.today().isoformat(), "runs": options.runs, "series": series}
    write_record(record, options.record)
    return 0
