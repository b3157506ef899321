"""Compare gpuenv with uv on requirement sets of real projects (tests/data/requirement_sets.toml).

    python scripts/bench_sets.py [--sets NAME,...] [--record FILE.json] [--metadata DIR]
    python scripts/bench_sets.py --show FILE.json

Each set runs in turn as `gpuenv solve` and `uv pip compile`, first online with empty caches, then
three times offline with the caches of the first runs, of which the medians count. Both ask the
default index that gpuenv finds, take wheels only, and solve for CPython on Linux with glibc 2.35;
gpuenv also for an H100. Every lock is checked against the METADATA of its wheels (check_lock.py).
--record replaces the rows of the sets that ran.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Sequence
from typing import Any

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import check_lock
from bench_solve import Bench, _ended, install

SETS = os.path.join(check_lock.ROOT, "tests", "data", "requirement_sets.toml")
HOST = ["--gpu", "H100", "--driver", "580.65.06", "--platform", "linux-x86_64", "--glibc", "2.35"]
TIMEOUT = 120.0  # seconds
WARM_RUNS = 3  # of each tool in turn; the one with the median time counts
# Limits of one set: a cold solve takes at most the larger of these.
MAX_FACTOR, MAX_SECONDS = 3.0, 10.0
# Limits of the medians of gpuenv's time by uv's, and of gpuenv's memory.
MAX_COLD, MAX_WARM, MAX_MIB = 2.0, 4.0, 200.0
GPUENV_VERDICTS = {0: "solved", 3: "impossible"}
Row = dict[str, Any]


class Runner:
    """Runs one set with both tools, with caches of its own."""

    def __init__(self, folder: str, scripts: str, requirement_set: Row) -> None:
        self.bench = Bench(folder, 1, scripts)
        self.requirements: list[str] = requirement_set["requirements"]
        self.python: str = requirement_set["python"]
        self.lock = self.bench.path("pylock.toml")
        self.pins = self.bench.path("uv.txt")

    def run(self) -> Row:
        """Return the times, verdicts and pins of all four runs."""
        self.bench.fresh("warm")()
        os.unlink(self.lock)  # of the solve that found the default index
        cold, uv_cold = self._gpuenv(), self._uv()
        warm = [(self._gpuenv("--offline"), self._uv("--offline")) for _ in range(WARM_RUNS)]
        ours, theirs = zip(*warm, strict=True)
        return {
            "gpuenv": {"cold": cold, "warm": _median(ours)},
            "uv": {"cold": uv_cold, "warm": _median(theirs)},
            "older": self._older(),
        }

    def _gpuenv(self, *flags: str) -> Row:
        words = [self.bench.gpuenv, "solve", *self.requirements, *HOST]
        words += ["--python", self.python, "-o", self.lock, *flags]
        row = self._measure(words, self.bench.of_ours("warm", offline="--offline" in flags))
        row["verdict"] = GPUENV_VERDICTS.get(row["exit"], row["verdict"])
        if row["exit"] == 0:
            row["packages"] = len(check_lock.versions(self.lock))
        return row

    def _uv(self, *flags: str) -> Row:
        if os.path.exists(self.pins):
            os.unlink(self.pins)  # uv prefers the versions of an existing output
        words = self.bench.of_uv("set", self.requirements, "--python-version", self.python)
        words += ["--python-platform", "x86_64-manylinux_2_35", "--only-binary", ":all:"]
        words += ["--cache-dir", self.bench.caches["uv-warm"], *flags]
        row = self._measure(words, self.bench.environment)
        if "No solution found" in row["message"]:
            row["verdict"] = "impossible"
        if row["exit"] == 0:
            row["verdict"] = "solved"
            row["packages"] = len(self._uv_versions())
        return row

    def _measure(self, words: list[str], environment: dict[str, str]) -> Row:
        with open(self.bench.path("log"), "w+b") as log:
            start = time.perf_counter()
            child = subprocess.Popen(
                words, cwd=self.bench.folder, env=environment, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log,
            )  # fmt: skip
            status, usage = _ended(child.pid, start, TIMEOUT)
            seconds = time.perf_counter() - start
            child.returncode = os.waitstatus_to_exitcode(status)
            log.seek(0)
            message = log.read().decode()
        row: Row = {"seconds": round(seconds, 3), "mib": round(usage.ru_maxrss / 1024, 1)}
        row["cpu"] = round(usage.ru_utime + usage.ru_stime, 3)
        row |= {"exit": child.returncode, "verdict": "error", "message": ""}
        if child.returncode < 0:
            row["verdict"] = "timeout"
        elif child.returncode > 0:
            row["message"] = message[:1500]
        return row

    def _uv_versions(self) -> dict[str, str]:
        with open(self.pins, encoding="utf-8") as file:
            lines = [line.partition(";")[0].split() for line in file if "==" in line]
        return dict(line[0].split("==") for line in lines if line[0] != "#")

    def _older(self) -> list[str]:
        """Return the named packages of which gpuenv has an older release than uv."""
        if not os.path.exists(self.lock) or not os.path.exists(self.pins):
            return []
        ours, theirs = check_lock.versions(self.lock), self._uv_versions()
        older = []
        for name in sorted({canonicalize_name(Requirement(x).name) for x in self.requirements}):
            if name in ours and name in theirs:
                mine, other = Version(ours[name]), Version(theirs[name])
                if Version(mine.public) < Version(other.public):
                    older.append(f"{name} {mine}, uv has {other}")
        return older


def _median(rows: Sequence[Row]) -> Row:
    """Return the row with the median time."""
    return sorted(rows, key=lambda row: row["seconds"])[len(rows) // 2]


def run_set(requirement_set: Row, metadata: str, scripts: str) -> Row:
    """Run a set, and check the lock that gpuenv wrote."""
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(folder, scripts, requirement_set)
        row = runner.run()
        row["violations"] = []
        if os.path.exists(runner.lock):
            row["violations"] = check_lock.violations(
                runner.lock, runner.requirements, runner.python, metadata
            )
    row["load"] = round(os.getloadavg()[0], 1)
    return row


# ---- what the record says ----------------------------------------------------------------------


def faults(name: str, row: Row, reason: str) -> list[str]:
    """Return which targets a set does not meet."""
    missed = [f"{name}: {line}" for line in row["violations"]]
    ours, theirs = row["gpuenv"], row["uv"]
    if ours["cold"]["verdict"] != theirs["cold"]["verdict"] and not reason:
        verdicts = f"{ours['cold']['verdict']}, uv: {theirs['cold']['verdict']}"
        missed.append(f"{name}: {verdicts}, without a known reason")
    if ours["warm"]["verdict"] != ours["cold"]["verdict"]:
        missed.append(f"{name}: offline it is {ours['warm']['verdict']}")
    limit = max(MAX_SECONDS, MAX_FACTOR * theirs["cold"]["seconds"])
    if ours["cold"]["seconds"] > limit:
        missed.append(f"{name}: {ours['cold']['seconds']:.1f} s, limit {limit:.1f} s")
    mib = max(ours["cold"]["mib"], ours["warm"]["mib"])
    if mib > MAX_MIB:
        missed.append(f"{name}: {mib:.0f} MiB, limit {MAX_MIB:.0f} MiB")
    return missed


def ratios(rows: Sequence[Row], state: str) -> list[float]:
    """Return gpuenv's time by uv's of the sets that have the same verdict."""
    factors = []
    for row in rows:
        ours, theirs = row["gpuenv"][state], row["uv"][state]
        if ours["verdict"] == theirs["verdict"] and ours["verdict"] in GPUENV_VERDICTS.values():
            factors.append(ours["seconds"] / theirs["seconds"])
    return factors


def show(record: Row, sets: Sequence[Row]) -> bool:
    """Print a record; return whether all targets are met."""
    rows: dict[str, Row] = record["sets"]
    missed: list[str] = []
    print(f"{'set':<30} {'gpuenv':>10} cold/warm s {'uv':>10} cold/warm s   MiB packages")
    for requirement_set in sets:
        name = requirement_set["name"]
        if name in rows:
            print(_line(name, rows[name]))
            missed += faults(name, rows[name], requirement_set.get("differs", ""))
    for state, limit in (("cold", MAX_COLD), ("warm", MAX_WARM)):
        for tool in ("gpuenv", "uv"):
            seconds = sorted(row[tool][state]["seconds"] for row in rows.values())
            print(
                f"{tool} {state}: median {statistics.median(seconds):.2f} s, "
                f"{seconds[0]:.2f} to {seconds[-1]:.2f} s"
            )
        factors = ratios(list(rows.values()), state)
        ratio = statistics.median(factors)
        print(
            f"gpuenv / uv, {state}: median {ratio:.2f}, {min(factors):.2f} to {max(factors):.2f}, "
            f"of {len(factors)} sets"
        )
        if ratio > limit:
            missed.append(f"gpuenv / uv, {state}: median {ratio:.2f}, limit {limit:g}")
    print("\n".join(["", *missed]) if missed else "all targets are met")
    return not missed


def _line(name: str, row: Row) -> str:
    cells = [f"{name:<30}"]
    for tool in ("gpuenv", "uv"):
        cold, warm = row[tool]["cold"], row[tool]["warm"]
        cells.append(f"{cold['verdict']:>10} {cold['seconds']:6.1f} {warm['seconds']:6.2f}")
    mib = max(row["gpuenv"][state]["mib"] for state in ("cold", "warm"))
    cells.append(f"{mib:6.0f} {row['gpuenv']['cold'].get('packages', 0):4}")
    cells += row["older"]
    return " ".join(cells)


def conditions() -> Row:
    """Return what the times depend on."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "uv": importlib.metadata.version("uv"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def main() -> None:
    """Run the sets or show a record; 1 if a target is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", metavar="NAME,...", help="these sets only")
    parser.add_argument("--record", metavar="FILE", help="write the rows to this JSON file")
    parser.add_argument("--show", metavar="FILE", help="run nothing, and show this record")
    parser.add_argument("--metadata", metavar="DIR", help="keep the METADATA of wheels here")
    arguments = parser.parse_args()
    with open(SETS, "rb") as file:
        sets = tomllib.load(file)["sets"]
    if arguments.show:
        with open(arguments.show, encoding="utf-8") as file:
            sys.exit(not show(json.load(file), sets))
    names = arguments.sets.split(",") if arguments.sets else [row["name"] for row in sets]
    if unknown := set(names) - {row["name"] for row in sets}:
        parser.error(f"--sets: there is no set {', '.join(sorted(unknown))}")
    record: Row = {"sets": {}}
    if arguments.record and os.path.exists(arguments.record):
        with open(arguments.record, encoding="utf-8") as file:
            record = json.load(file)
    record["conditions"] = conditions()
    with tempfile.TemporaryDirectory() as scratch:
        metadata = arguments.metadata or scratch
        os.makedirs(metadata, exist_ok=True)
        scripts = install(scratch)
        for requirement_set in sets:
            name = requirement_set["name"]
            if name not in names:
                continue
            record["sets"][name] = run_set(requirement_set, metadata, scripts)
            print(_line(name, record["sets"][name]), file=sys.stderr, flush=True)
            if arguments.record:
                with open(arguments.record, "w", encoding="utf-8") as file:
                    json.dump(record, file, indent=1, sort_keys=True)
                    file.write("\n")
    sys.exit(not show(record, sets))


if __name__ == "__main__":
    main()
