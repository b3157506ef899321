"""Time gpuenv beside another program: whole processes in turn, so that load meets both alike.

A program passes a generator of cases to `time_cases`.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from common import ROOT
from gpuenv.index.default_index import default_index
from gpuenv.interpreters import find_uv

MAX_SECONDS = 600.0  # of a process
MAX_MIB = 200.0  # of gpuenv
Row = dict[str, Any]


class Command(NamedTuple):
    """A process to time.

    Attributes:
        empty: a folder that is removed before each run, such as a cache.
    """

    words: Sequence[str]
    environment: Mapping[str, str]
    empty: Path | None = None


class Run(NamedTuple):
    """How a process ended. `mib` is the peak memory of it and of its children."""

    status: int
    seconds: float
    mib: float
    errors: str  # what it printed on stderr


def failures(*runs: Run) -> list[str]:
    """Return what the runs that failed have printed."""
    return [f"exit status {run.status}: {run.errors}" for run in runs if run.status]


class Case(NamedTuple):
    """Two commands for the same task.

    Attributes:
        allowed: the seconds that gpuenv may take, by those of the other.
        group: the cases whose median ratio has a limit of its own.
        prepare: runs once before the pairs, and may fill the caches.
        runs: how many pairs run; None: as many as --runs names.
        check: returns what is wrong with the last two runs; both must succeed.
    """

    name: str
    gpuenv: Command
    other: Command
    allowed: Callable[[float], float] = lambda _: float("inf")
    group: str = ""
    prepare: Callable[[], object] = lambda: None
    runs: int | None = None
    check: Callable[[Run, Run], Sequence[str]] = failures


class Tools:
    """gpuenv in a new environment, as users have it, beside uv.

    The environment of the tests has many packages, some of which run code when Python starts.

    Attributes:
        folder: where the commands run.
        variables: the environment variables of both: the default index that gpuenv finds.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.uv = find_uv() or sys.exit("uv is not installed")
        index = default_index()
        left_out = ("PYTHONDONTWRITEBYTECODE", "PYTHONPATH", "PIP_FIND_LINKS", "VIRTUAL_ENV")
        left_out += ("PIP_EXTRA_INDEX_URL", "GPUENV_CACHE_DIR")
        self.variables = {key: text for key, text in os.environ.items() if key not in left_out}
        self.variables |= {"PIP_CONFIG_FILE": os.devnull, "UV_NO_CONFIG": "1"}
        if not index.builtin:
            self.variables |= {"UV_DEFAULT_INDEX": index.url}
        if index.cert:
            self.variables |= {"PIP_CERT": index.cert, "SSL_CERT_FILE": index.cert}
        environment = folder / "environment"
        venv.create(environment, symlinks=True)
        self.python, self.gpuenv = (
            str(environment / "bin" / name) for name in ("python", "gpuenv")
        )
        os.symlink(self.uv, environment / "bin" / "uv")
        install = [self.uv, "pip", "install", "--quiet", "--compile-bytecode"]
        install += ["--python", self.python, f"{ROOT}[conda]"]
        subprocess.run(install, check=True, env=self.variables)

    def command(
        self, words: Sequence[str], cache: str, *, empty: str = "", **variables: str
    ) -> Command:
        """Return a command with the caches of both tools in a folder; `empty` names another one."""
        folder = self.folder / cache
        caches = {"GPUENV_CACHE_DIR": str(folder), "UV_CACHE_DIR": str(folder / "uv")}
        removed = self.folder / empty if empty else None
        return Command(words, {**self.variables, **caches, **variables}, removed)


def run(command: Command, folder: Path) -> Run:
    """Run a command in a folder."""
    if command.empty:
        shutil.rmtree(command.empty, ignore_errors=True)
    with tempfile.TemporaryFile("w+") as errors:
        begin = time.perf_counter()
        child = subprocess.Popen(
            command.words, cwd=folder, env=command.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=errors, process_group=0,
        )  # fmt: skip
        timer = threading.Timer(MAX_SECONDS, os.killpg, (child.pid, signal.SIGKILL))
        timer.start()
        _, status, used = os.wait4(child.pid, 0)
        seconds = time.perf_counter() - begin
        timer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        return Run(child.returncode, seconds, used.ru_maxrss / 1024, errors.read())


def compare(case: Case, folder: Path, runs: int) -> Row:
    """Run both commands in turn. Return medians, their ratio, and what is wrong."""
    case.prepare()
    pairs = [(run(case.gpuenv, folder), run(case.other, folder)) for _ in range(case.runs or runs)]
    row: Row = {}
    for side, its_runs in zip(("gpuenv", "other"), zip(*pairs, strict=True), strict=True):
        row[side] = {
            "status": its_runs[-1].status,
            "seconds": round(statistics.median(one.seconds for one in its_runs), 3),
            "mib": round(max(one.mib for one in its_runs), 1),
        }
    seconds, mib, other = row["gpuenv"]["seconds"], row["gpuenv"]["mib"], row["other"]["seconds"]
    faults = list(case.check(*pairs[-1]))
    if seconds > case.allowed(other):
        faults.append(f"{seconds} s, limit {case.allowed(other):.2f} s")
    if mib > MAX_MIB:
        faults.append(f"{mib} MiB, limit {MAX_MIB} MiB")
    return {**row, "ratio": round(seconds / other, 2), "faults": faults}


# The arguments of a program that times cases.
TIMING = {
    "--runs": {"type": int, "default": 5, "help": "pairs of runs of each case"},
    "names": {"nargs": "*", "metavar": "CASE", "help": "these cases only"},
}


def time_cases(
    cases: Callable[[Tools], Iterable[Case]], limits: Mapping[str, float], options: Namespace
) -> tuple[dict[str, Any], list[str]]:
    """Run the cases, and print a line for each. Return the rows, and what is wrong.

    Args:
        limits: of the median ratio of the cases of a group.
    """
    rows: dict[str, Row] = {}
    ratios: dict[str, list[float]] = {}
    faults = []
    with tempfile.TemporaryDirectory() as name:
        tools = Tools(Path(name))
        for case in cases(tools):
            if options.names and case.name not in options.names:
                continue
            title = f"{case.name}, {case.group}" if case.group else case.name
            row = rows[title] = compare(case, tools.folder, options.runs)
            faults += [f"{title}: {fault}" for fault in row["faults"]]
            if bool(row["gpuenv"]["status"]) == bool(row["other"]["status"]):
                ratios.setdefault(case.group, []).append(row["ratio"])
            seconds = f"{row['gpuenv']['seconds']:9.3f} s {row['other']['seconds']:9.3f} s"
            print(f"{title:40} {seconds} {row['ratio']:6.2f}", *row["faults"], sep="  ", flush=True)
    for group, limit in limits.items():
        ratio = statistics.median(ratios.get(group, [0]))
        if ratio > limit:
            faults.append(f"{group}: the median ratio is {ratio:.2f}, the limit {limit}")
    return {"load": round(os.getloadavg()[0], 1), **rows}, faults
