"""Measure `gpuenv sync` beside `uv venv` and `uv pip sync`, with the files in uv's cache.

    python scripts/tools.py bench sync LOCK CHANGED_LOCK [--rounds N] [--copies N] [--record FILE]
                                 [HOST_FLAG ...]

CHANGED_LOCK has another release of one small package. The commands take turns, so that load from
elsewhere meets all of them. Each figure is a median: seconds of the clock, and of the processor
with all children. gpuenv runs as users have it: its wheel is installed into a new environment, with
uv beside it. The first round is not counted: it fills uv's cache. uv links the files from its
cache. In the last rounds (--copies) it copies them, as it does where the cache is on another file
system.

    uv              uv venv, then uv pip sync, into a new folder
    floor           what every Python program has to do that reads the lock and starts uv
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
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from uv import find_uv_bin

from bench.solve import install

FLOOR = """\
import argparse, hashlib, json, subprocess, sys, tomllib, urllib.parse
with open(sys.argv[1], "rb") as file:
    json.dumps(tomllib.load(file))
subprocess.run([sys.argv[2], "--version"], check=True)
"""


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


class Bench:
    """The commands, in new folders."""

    def __init__(
        self, folder: Path, programs: str, lock: str, changed: str, host: Sequence[str]
    ) -> None:
        self._folder, self._lock, self._changed = folder, lock, changed
        self._python, self._gpuenv = f"{programs}/python", f"{programs}/gpuenv"
        self._target = str(folder / "env")
        self._flags = ["--target", self._target, "--installer", "uv", *host]

    def new_environments(self, number: int) -> dict[str, tuple[float, float]]:
        """Make an environment with uv and one with gpuenv. uv is first in rounds of even number.

        The second one waits for the disk until the writes of the first one have ended.
        """
        commands = {"uv": self._make_with_uv, "new": self._make}
        names = sorted(commands, reverse=number % 2 == 0)
        row = {name: commands[name]() for name in names}
        row["floor"] = measure([self._python, "-c", FLOOR, self._lock, find_uv_bin()])
        return row

    def changes(self) -> dict[str, tuple[float, float]]:
        """Change the environment, and make a verified one."""
        row = {"one package": self._sync(self._changed, "--no-verify", "--yes")}
        row["bytes of one package"] = (written(Path(self._target)), 0)
        row["rollback"] = measure([self._gpuenv, "rollback", "--target", self._target])
        self.clean()
        row["new, verified"] = self._sync(self._lock)
        return row

    def clean(self) -> None:
        """Remove the environments."""
        for name in os.listdir(self._folder):
            shutil.rmtree(self._folder / name)

    def _make(self) -> tuple[float, float]:
        return self._sync(self._lock, "--no-verify")

    def _make_with_uv(self) -> tuple[float, float]:
        plain, uv = str(self._folder / "plain"), find_uv_bin()
        make = [uv, "venv", "--quiet", "--python", self._python, plain]
        install = [uv, "pip", "sync", "--quiet", "--offline", "--preview-features", "pylock"]
        figures = measure(make, [*install, "--python", f"{plain}/bin/python", self._lock])
        shutil.rmtree(plain)
        return figures

    def _sync(self, lock: str, *flags: str) -> tuple[float, float]:
        return measure([self._gpuenv, "sync", lock, *self._flags, *flags])


def medians_of(rows: Sequence[dict[str, tuple[float, float]]]) -> dict[str, dict[str, float]]:
    """Return the median seconds of the clock and of the processor of each command."""
    medians = {}
    for what in rows[0]:
        clock, processor = zip(*(row[what] for row in rows), strict=True)
        medians[what] = {
            "seconds": round(statistics.median(clock), 3),
            "processor": round(statistics.median(processor), 3),
        }
    return medians


def ratios(medians: dict[str, dict[str, float]]) -> dict[str, float]:
    """Return the time of gpuenv divided by that of uv."""
    new, uv = medians["new"], medians["uv"]
    return {what: round(new[what] / uv[what], 2) for what in new}


def run_rounds(bench: Bench, rounds: int, copies: int) -> dict[str, object]:
    """Run the rounds. Return the medians."""
    linked, copied = [], []
    for number in range(rounds + 1):
        row = bench.new_environments(number)
        if number:
            linked.append(row | bench.changes())
        bench.clean()
    os.environ["UV_LINK_MODE"] = "copy"
    for number in range(copies):
        copied.append(bench.new_environments(number))
        bench.clean()
    medians = medians_of(linked)
    size = medians.pop("bytes of one package")["seconds"]
    record: dict[str, object] = {
        "medians": medians,
        "megabytes of one package": round(size / 1e6, 1),
        "new / uv": ratios(medians),
    }
    if copied:
        record["with copies"] = medians_of(copied)
        record["new / uv with copies"] = ratios(medians_of(copied))
    return record


def main(words: list[str]) -> int:
    """Run the rounds, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("lock")
    parser.add_argument("changed")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--copies", type=int, default=0)
    parser.add_argument("--record", metavar="FILE", type=Path)
    arguments, host = parser.parse_known_args(words)
    for variable in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE"):
        os.environ.pop(variable, None)
    locks = [os.path.abspath(path) for path in (arguments.lock, arguments.changed)]
    with tempfile.TemporaryDirectory(dir=".") as name, tempfile.TemporaryDirectory() as own:
        programs = install(own)
        os.symlink(find_uv_bin(), f"{programs}/uv")
        bench = Bench(Path(name).resolve(), programs, *locks, host)
        figures = run_rounds(bench, arguments.rounds, arguments.copies)
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "host": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "load": [round(value, 1) for value in os.getloadavg()],
        "rounds": arguments.rounds,
        **figures,
    }
    text = json.dumps(record, indent=2)
    print(text)
    if arguments.record:
        arguments.record.write_text(text + "\n")
    return 0
