"""Measure how the time of a solve grows with the requirements, the versions and the backtracking.

    python scripts/tools.py bench growth [--runs 5] [--record docs/records/growth.json]

The packages are generated in memory, so that only the resolver is measured: no start of Python, no
files, no network.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import gpuenv
from common import write_record
from gpuenv import api
from gpuenv.index.protocol import Index, Metadata
from gpuenv.model import Host, Request, Wheel
from gpuenv.requirements.target import TargetEnvironment, parse_requirement, version_key
from gpuenv.resolve import solver

Packages = dict[str, dict[str, list[str]]]  # name -> version -> requirements
SIZES = (1, 2, 4, 8, 16, 32, 64)
VERSIONS = (10, 30, 100, 300, 1000)


class Made(Index):
    """An index of generated packages."""

    def __init__(self, packages: Packages) -> None:
        self.packages = packages

    def files(self, name: str, environment: TargetEnvironment | None = None) -> Sequence[Wheel]:
        """Return one pure wheel for each version, the newest first."""
        versions = sorted(self.packages.get(name, ()), key=version_key, reverse=True)
        files = (
            (version, f"{name.replace('-', '_')}-{version}-py3-none-any.whl")
            for version in versions
        )
        return [
            Wheel(
                name=name,
                version=version,
                filename=file,
                url=f"https://made.test/{file}",
                sha256="0" * 64,
                size=1,
            )
            for version, file in files
        ]

    def metadata(self, wheel: Wheel) -> Metadata:
        """Return the requirements of the generated release."""
        requires = self.packages[wheel.name][wheel.version]
        return Metadata(dependencies=tuple(map(parse_requirement, requires)))


def many(count: int) -> tuple[Packages, list[str]]:
    """Return requirements with 20 releases each, which depend on ranges of two shared packages."""
    packages: Packages = {}
    for place in range(count):
        needs = [f"base{place % 7}>=3", f"base{place % 5}<19"]
        packages[f"top{place}"] = {f"{number}.0": needs for number in range(1, 21)}
    for place in range(7):
        packages[f"base{place}"] = {f"{number}.0": [] for number in range(1, 21)}
    return packages, [f"top{place}>=2" for place in range(count)]


def long(count: int) -> tuple[Packages, list[str]]:
    """Return a package with many versions, and another that excludes the newer half of them."""
    packages: Packages = {"long": {f"{number}.0": [] for number in range(1, count + 1)}}
    packages["picky"] = {"1.0": [f"long<={count // 2}"]}
    return packages, ["long", "picky"]


def deep(count: int) -> tuple[Packages, list[str]]:
    """Return a chain of packages with three versions each. Only the oldest ones fit the request.

    Only the end of the chain shows this, so the resolver backtracks over the whole chain, twice.
    """
    packages: Packages = {
        f"link{place:02}": {
            f"{number}.0": [f"link{place + 1:02}=={number}.0"] for number in (1, 2, 3)
        }
        for place in range(count)
    }
    packages[f"link{count:02}"] = {f"{number}.0": [f"end=={number}.0"] for number in (1, 2, 3)}
    packages["end"] = {f"{number}.0": [] for number in (1, 2, 3)}
    return packages, ["link00", "end<2"]


def knots(count: int) -> tuple[Packages, list[str]]:
    """Return groups of three packages with four versions each. Only the oldest ones fit together.

    A wrong choice shows two packages later. The resolver backtracks within each group.
    """
    packages: Packages = {}
    for place in range(count):
        first, second, third = f"a{place:02}", f"b{place:02}", f"c{place:02}"
        packages[first] = {f"{number}.0": [f"{second}=={number}.0"] for number in range(1, 5)}
        packages[second] = {f"{number}.0": [f"{third}=={number}.0"] for number in range(1, 5)}
        packages[third] = {f"{number}.0": [f"{first}<{max(2, number)}"] for number in range(1, 5)}
    return packages, [f"a{place:02}" for place in range(count)]


def hopeless(count: int) -> tuple[Packages, list[str]]:
    """Return the chain of `deep` with a request that no version fits: measure the explanation."""
    packages, asked = deep(count)
    return packages, [asked[0], "end<1"]


class Series(NamedTuple):
    """Generated requests of growing size."""

    title: str
    description: str
    unit: str
    sizes: Sequence[int]
    make: Callable[[int], tuple[Packages, list[str]]]


SERIES = [
    Series(
        title="Requirements",
        description="Requirements with 20 releases each. Each depends on two shared packages, "
        "with a range of versions.",
        unit="requirements",
        sizes=SIZES,
        make=many,
    ),
    Series(
        title="Versions of a package",
        description="A package with many versions, and another package that excludes the newer "
        "half of them.",
        unit="versions",
        sizes=VERSIONS,
        make=long,
    ),
    Series(
        title="Deep backtracking",
        description="A chain of packages with three versions each. Only the oldest versions fit "
        "the request.",
        unit="packages in the chain",
        sizes=SIZES,
        make=deep,
    ),
    Series(
        title="Frequent backtracking",
        description="Groups of three packages with four versions each. Only the oldest versions "
        "of a group fit together.",
        unit="groups",
        sizes=SIZES,
        make=knots,
    ),
    Series(
        title="No solution",
        description="The same chain, but no version fits the request. The time is that of the "
        "refusal with its reasons.",
        unit="packages in the chain",
        sizes=SIZES,
        make=hopeless,
    ),
]


def measure(
    packages: Packages, asked: list[str], host: Host, runs: int
) -> tuple[float, float, int]:
    """Return the median and the minimum of the seconds of a solve, and its number of packages."""
    matrix = api.compatibility_data()
    times: list[float] = []
    pins = 0
    for _ in range(runs + 1):  # the first one reads the compatibility data
        index, request = Made(packages), Request(requirements=tuple(asked))
        start = time.perf_counter()
        try:
            pins = len(solver.solve(request, host, matrix, index, TargetEnvironment).pins)
        except gpuenv.NoSolutionError:
            pins = 0
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:]), min(times[1:]), pins


def main(words: list[str]) -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--record", metavar="FILE")
    arguments = parser.parse_args(words)
    host = gpuenv.describe(gpus=("H100",), driver="580.65.06", python="3.12")
    series: dict[str, object] = {}
    for kind in SERIES:
        points = []
        for size in kind.sizes:
            median, least, pins = measure(*kind.make(size), host, arguments.runs)
            points.append([size, pins, round(median * 1e3, 2), round(least * 1e3, 2)])
        series[kind.title] = {"what": kind.description, "size": kind.unit, "points": points}
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "runs": arguments.runs,
        "points": "size, packages chosen, median ms, minimum ms",
        "series": series,
    }
    write_record(record, arguments.record)
