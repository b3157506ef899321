"""Solve companions beside frameworks, and compare each lock with what its wheels say.

    python scripts/tools.py prove companion-grid [--jobs N] [--only NAME ...] [--record FILE]

tests/data/companion_grid.toml has the companions, the releases of their frameworks and the hosts.
They are solved with the default index of this machine. The judge does not know the compatibility
data. It reads the wheels of the companions in each lock:

- the libraries that they link or open (CUDA, cuDNN) must be those of the NVIDIA wheels in the lock;
- the symbols that they need of torch or TensorFlow must be exported by the release in the lock;
- an extension with the headers of NumPy 1 must not meet NumPy 2;
- Requires-Dist must hold.

The symbols of torch are those of the default index's build of the same release. The record names
the wheels that were not read, as their index cannot be reached. Of libraries over 80 MB,
compressed, nothing is read.
"""

from __future__ import annotations

import os
import re
import tomllib
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import gpuenv
from common import ROOT
from data.compile import DATA
from data.scan_companions import CUDA, CUDNN, LINKED, OPTIONAL, OWN, STANDARD, Scanner, majors
from gpuenv.errors import GpuEnvError
from gpuenv.model import EVERY_PACKAGE, Host, IndexOptions, Request, Wheel
from gpuenv.requirements.target import TargetEnvironment

GRID = tomllib.loads((ROOT / "tests/data/companion_grid.toml").read_text(encoding="utf-8"))
NVIDIA = re.compile(r"nvidia-[\w-]+-cu(\d\d)|cuda-toolkit|nvidia-(?:cuda-runtime|cublas)")
Case = tuple[str, str, str, str]  # companion, framework, its release, host
Pins = Mapping[str, Wheel]
Libraries = Mapping[str, Mapping[str, Any]]  # path: facts, as `Scanner.read` returns them


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


# ---- the judge -----------------------------------------------------------------------------------


def unmet_requirements(
    requires: Sequence[str], pins: Pins, target: TargetEnvironment
) -> Iterator[str]:
    """Yield each requirement of a wheel that the lock does not meet."""
    for text in requires:
        requirement = Requirement(text)
        if requirement.marker and not target.marker(str(requirement.marker), ()):
            continue
        pin = pins.get(canonicalize_name(requirement.name))
        if pin is None or not requirement.specifier.contains(pin.version, prereleases=True):
            yield f"requires {text}, the lock has {pin.version if pin else 'none'}"


def foreign_libraries(libraries: Libraries, pins: Pins) -> Iterator[str]:
    """Yield each library that needs another CUDA, cuDNN or NumPy than that of the lock."""
    provided, cudnn = set(), set()
    for name, pin in pins.items():
        major = Version(pin.version).major
        if match := NVIDIA.fullmatch(name):
            provided.add(int(match[1] or major))
        if name.startswith("nvidia-cudnn-cu"):
            cudnn.add(major)
    own = {path.rpartition("/")[2] for path in libraries}
    # One library for each CUDA version: the program loads one of them.
    alternatives = [path for path in libraries if re.search(r"_cuda\d{2,3}\.so$", path)]
    needs = [{*majors(CUDA, libraries[path]["needs"])} for path in alternatives]
    if alternatives and not any(need <= provided for need in needs):
        yield f"has no library for CUDA {sorted(provided)}"
    for path, facts in libraries.items():
        if path in alternatives or OPTIONAL.match(path):
            continue
        for what, pattern, have in (("CUDA", CUDA, provided), ("cuDNN", CUDNN, cudnn)):
            linked = majors(pattern, {*facts["needs"]} - own) or majors(pattern, facts["opens"])
            if linked and not {*linked} & have:
                yield f"{path} needs {what} {linked}, the lock has {sorted(have)}"
        numpy = pins["numpy"].version if "numpy" in pins else "1"
        if facts["numpy"] == 1 and Version(numpy).major > 1:
            yield f"{path} has the headers of NumPy 1, the lock has {numpy}"


def missing_symbols(libraries: Libraries, pins: Pins, scanner: Scanner) -> Iterator[str]:
    """Yield each library that needs a symbol which the framework of the lock does not export."""
    own = {symbol for facts in libraries.values() for symbol in facts["defined"]}
    for framework in {*LINKED} & {*pins}:
        linked = {
            path: facts
            for path, facts in libraries.items()
            if any(map(LINKED[framework].match, facts["needs"]))
        }
        if not linked:
            continue  # the exports are read from large wheels
        minor = ".".join(str(part) for part in Version(pins[framework].version).release[:2])
        exports = scanner.exports[framework]
        known = set().union(*exports.values())
        for path, facts in linked.items():
            lacking = [
                symbol
                for symbol in sorted({*facts["undefined"]} - own - exports.get(minor, known))
                if not STANDARD.match(symbol)
                and (symbol in known or (framework == "torch" and OWN.search(symbol)))
            ]
            if lacking and minor in exports:
                yield f"{path} needs {lacking[0]}, which {framework} {minor} does not export"


def contradictions(
    pins: Pins,
    read: Callable[[Wheel], tuple[Sequence[str], Libraries]],
    scanner: Scanner,
    target: TargetEnvironment,
) -> Iterator[str]:
    """Yield a sentence for each fact of a companion's wheel that does not hold in a lock.

    `read` returns the Requires-Dist of a wheel and its libraries.
    """
    judged = {name for row in GRID["frameworks"].values() for name in row["companions"].split()}
    for name in sorted(judged & {*pins}):
        requires, libraries = read(pins[name])
        for text in (
            *unmet_requirements(requires, pins, target),
            *foreign_libraries(libraries, pins),
            *missing_symbols(libraries, pins, scanner),
        ):
            yield f"{pins[name].filename}: {text}"


ARGUMENTS = {
    "--jobs": {"type": int, "default": os.cpu_count() or 1},
    "--only": {"nargs": "+", "metavar": "NAME", "help": "companions; default: all"},
}


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Solve the grid, and judge each different lock once."""
    scanner = Scanner(DATA)
    unread: set[str] = set()

    @cache
    def read(wheel: Wheel) -> tuple[Sequence[str], Libraries]:
        try:
            texts, libraries = scanner.read(wheel)
        except (GpuEnvError, OSError, ValueError):
            unread.add(wheel.filename)
            return [], {}
        return texts["requires"], libraries

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
                found = contradictions(pins, read, scanner, target)
                faults += [f"{' '.join(case)}: {text}" for text in found]
    record = {
        "cases": len(grid),
        "outcomes": sum(outcomes.values(), Counter()),
        "outcomes_by_companion": outcomes,
        "different_locks": len(judged),
        "wheels_not_read": sorted(unread),
        "contradictions": faults,
    }
    return record, faults
