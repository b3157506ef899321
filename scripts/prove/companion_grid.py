"""Solve companions beside frameworks, and compare each lock with what its wheels say.

    python scripts/tools.py prove companion-grid [--jobs N] [--only NAME ...] [--record FILE]

tests/data/companion_grid.toml has the companions, the releases of their frameworks and the hosts.
They are solved with the default index of this machine. The judge reads the wheels of the companions
in each lock and does not know the rows of the data: what they require, the CUDA, cuDNN and NumPy
that they link, and the releases of torch and TensorFlow that have all their symbols must be in the
lock. The record names the wheels that were not read, as their index cannot be reached.
"""

from __future__ import annotations

import os
import re
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import gpuenv
from common import read_toml
from data.companion_rows import FRAMEWORKS, line_of
from data.compile import DATA
from data.index import UNREADABLE
from data.scan_companions import Scanner
from gpuenv.errors import GpuEnvError
from gpuenv.model import EVERY_PACKAGE, Host, IndexOptions, Request, Wheel
from gpuenv.requirements.target import TargetEnvironment

GRID = read_toml("tests/data/companion_grid.toml")
NVIDIA = re.compile(r"nvidia-[\w-]+-cu(\d\d)|cuda-toolkit|nvidia-(?:cuda-runtime|cublas)")
Case = tuple[str, str, str, str]  # companion, framework, its release, host
Pins = Mapping[str, Wheel]


def cases(only: Sequence[str] | None) -> Iterator[Case]:
    """Yield the cases of all companions, or of some."""
    for framework, row in GRID["frameworks"].items():
        for companion in row["companions"].split():
            if companion in (only or companion):
                for release in row["releases"].split():
                    for host in GRID["hosts"]:
                        yield companion, framework, release, host


def host_of(name: str, framework: str) -> Host:
    """Return a host of the grid, with a Python that the releases of a framework have."""
    gpu, driver = GRID["hosts"][name]
    python = GRID["frameworks"][framework]["python"]
    return gpuenv.describe(
        gpus=(gpu,), driver=driver, platform="linux-x86_64", python=python, glibc="2.39"
    )


def solved(case: Case) -> tuple[str, dict[str, Wheel]]:
    """Return "locked" and the pins, or the code of the refusal. It runs in its own process."""
    companion, framework, release, host = case
    requirements = (companion, f"{framework}=={release}")
    request = Request(requirements=requirements, no_build=(EVERY_PACKAGE,))
    try:
        plan = gpuenv.solve(request, host_of(host, framework), IndexOptions(), changes=False)
    except GpuEnvError as error:
        return error.code, {}
    return "locked", {pin.wheel.name: pin.wheel for pin in plan.pins}


def contradictions(line: Mapping[str, Any], pins: Pins, target: TargetEnvironment) -> Iterator[str]:
    """Yield what a companion's wheel needs and a lock does not have.

    Args:
        line: what was read in the wheel (`Scanner.scan`).
    """
    for text in line["requires"]:
        need = Requirement(text)
        if need.marker is None or target.marker(str(need.marker), ()):
            pin = pins.get(canonicalize_name(need.name))
            if pin is None or not need.specifier.contains(pin.version, prereleases=True):
                yield f"requires {text}, the lock has {pin.version if pin else 'none'}"
    for framework in FRAMEWORKS:
        if framework in pins and framework in line:
            minor = Version(line_of(pins[framework].version))
            fitting = list(map(Version, line[framework]))
            if not fitting or not fitting[0] <= minor <= fitting[-1]:
                yield f"has symbols of {framework} {line[framework]}, the lock has {minor}"
    have: dict[str, set[int]] = {"cuda": set(), "cudnn": set(), "numpy": {1, 2}}
    for name, pin in pins.items():
        major = Version(pin.version).major
        if match := NVIDIA.fullmatch(name):
            have["cuda"].add(int(match[1] or major))
        if name.startswith("nvidia-cudnn-cu"):
            have["cudnn"].add(major)
        if name == "numpy":
            have["numpy"] = {major, 2}  # NumPy 1 runs what has the headers of NumPy 2
    needs = {**line, "numpy": [line["numpy"]] if "numpy" in line else []}
    for what, majors in have.items():
        if needs.get(what) and not majors & {*needs[what]}:
            yield f"needs {what} {needs[what]}, the lock has {sorted(majors)}"


ARGUMENTS = {
    "--jobs": {"type": int, "default": os.cpu_count() or 1},
    "--only": {"nargs": "+", "metavar": "NAME", "help": "companions; default: all"},
}


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Solve the grid, and judge each different lock once."""
    scanner = Scanner(DATA)
    unread: set[str] = set()
    scan = cache(scanner.scan)
    companions = " ".join(row["companions"] for row in GRID["frameworks"].values()).split()
    outcomes: dict[str, Counter[str]] = {}
    judged: dict[tuple[Wheel, ...], Case] = {}
    faults: list[str] = []
    grid = list(cases(arguments.only))
    with ProcessPoolExecutor(arguments.jobs) as pool:
        for case, (outcome, pins) in zip(grid, pool.map(solved, grid), strict=True):
            companion, framework, _, host = case
            outcomes.setdefault(companion, Counter())[outcome] += 1
            wheels = tuple(pins.values())
            if pins and wheels not in judged:
                judged[wheels] = case
                target = TargetEnvironment(host_of(host, framework))
                for name in sorted({*companions} & {*pins}):
                    try:
                        found = [*contradictions(scan(pins[name]), pins, target)]
                    except UNREADABLE:
                        unread.add(pins[name].filename)
                    else:
                        wheel = pins[name].filename
                        faults += [f"{' '.join(case)}: {wheel}: {text}" for text in found]
    record = {
        "cases": len(grid),
        "outcomes": sum(outcomes.values(), Counter()),
        "outcomes_by_companion": outcomes,
        "different_locks": len(judged),
        "wheels_not_read": sorted(unread),
        "contradictions": faults,
    }
    return record, faults
