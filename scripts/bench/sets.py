"""Compare gpuenv with uv on requirement sets of real projects.

    python scripts/tools.py bench sets [--sets NAME,...] [--record FILE.json] [--metadata DIR]
    python scripts/tools.py bench sets --builds [--warm 0] [--tools uv] [--checkout DIR] ...
    python scripts/tools.py bench sets [--builds] --show FILE.json

Each set runs in turn as `gpuenv solve` and `uv pip compile`, first online with empty caches, then
three times offline with the caches of the first runs, of which the medians count. Both ask the
default index that gpuenv finds, and solve for CPython on Linux with glibc 2.35; gpuenv also for the
GPU of the set, or an H100. Every lock is checked against the METADATA of its wheels
(check_lock.py). --record replaces the rows of the sets that ran.

The sets of tests/data/requirement_sets.toml take wheels only. --builds runs those of
tests/data/gpu_projects.toml and lets both tools build source distributions, which executes code of
these packages with the interpreter of the set's Python version.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from bench.solve import Bench, _ended, install, uv_program
from prove import lock as check_lock

DATA = os.path.join(check_lock.ROOT, "tests", "data")
GPU, DRIVER = "H100", "580.65.06"  # of sets that name no driver
TOOLS = ("gpuenv", "uv")
TIMEOUT = 600.0  # seconds
# Limits of one set: a cold solve takes at most the larger of these.
MAX_FACTOR, MAX_SECONDS = 3.0, 10.0
# Limits of the medians of gpuenv's time by uv's, and of gpuenv's memory.
MAX_COLD, MAX_WARM, MAX_MIB = 1.5, 7.0, 200.0
GPUENV_VERDICTS = {0: "solved", 3: "impossible"}
# What gpuenv chooses for the host, so that its versions are not those of uv.
GPU_STACK = re.compile(
    r"(nvidia|cuda)-.*|torch(vision|audio|text|codec)?|triton|jax|jaxlib|jax-cuda.*"
)
Row = dict[str, Any]


class Runner:
    """Runs one set with both tools, with caches of its own."""

    def __init__(self, folder: str, scripts: str, requirement_set: Row, builds: bool) -> None:
        self.bench = Bench(folder, 1, scripts)
        self.requirements: list[str] = requirement_set["requirements"]
        self.python: str = requirement_set["python"]
        self.gpu, self.driver = GPU, DRIVER
        if "driver" in requirement_set:
            self.gpu, self.driver = requirement_set["gpu"], requirement_set["driver"]
        self.builds = builds
        self.lock = self.bench.path("pylock.toml")
        self.pins = self.bench.path("uv.txt")

    def run(self, tools: Sequence[str], warm_runs: int) -> Row:
        """Return the times, verdicts and pins of the runs of each tool."""
        self.bench.empty("warm")()
        runs = {"gpuenv": self._gpuenv, "uv": self._uv}
        rows: Row = {tool: {"cold": runs[tool]()} for tool in tools}
        warm = [{tool: runs[tool]("--offline") for tool in tools} for _ in range(warm_runs)]
        for tool in tools:
            if warm:
                rows[tool]["warm"] = _median([row[tool] for row in warm])
        return rows

    def _gpuenv(self, *flags: str) -> Row:
        words = [self.bench.gpuenv, "solve", *self.requirements, "--python", self.python]
        words += ["--gpu", self.gpu, "--driver", self.driver]
        words += ["--platform", "linux-x86_64", "--glibc", "2.35"]
        words += [] if self.builds else ["--no-build"]
        words += ["-o", self.lock, "--json", *flags]
        variables = self.bench.of_ours("warm", offline="--offline" in flags)
        # gpuenv builds with uv where uv is on PATH, whose cache must be as cold as gpuenv's.
        variables["UV_CACHE_DIR"] = os.path.join(variables["GPUENV_CACHE_DIR"], "uv")
        variables["PATH"] = os.pathsep.join((variables["PATH"], os.path.dirname(self.bench.uv)))
        row = self._measure(words, variables)
        row["verdict"] = GPUENV_VERDICTS.get(row["exit"], row["verdict"])
        if row["exit"] == 0:
            row["versions"] = check_lock.versions(self.lock)
            row["packages"] = len(row["versions"])
            with open(self.bench.path("out"), encoding="utf-8") as file:
                row["warnings"] = json.load(file)["warnings"]
        return row

    def _uv(self, *flags: str) -> Row:
        if os.path.exists(self.pins):
            os.unlink(self.pins)  # uv prefers the versions of an existing output
        python = _interpreter(self.python) if self.builds else sys.executable
        words = self.bench.of_uv("set", self.requirements, python=python)
        words += ["--python-version", self.python, "--python-platform", "x86_64-manylinux_2_35"]
        words += [] if self.builds else ["--only-binary", ":all:"]
        words += ["--cache-dir", self.bench.caches["uv-warm"], *flags]
        row = self._measure(words, self.bench.environment)
        if "No solution found" in row["message"]:
            row["verdict"] = "impossible"
        if row["exit"] == 0:
            with open(self.pins, encoding="utf-8") as file:
                lines = [line.partition(";")[0].split() for line in file if "==" in line]
            row["verdict"] = "solved"
            row["versions"] = dict(line[0].split("==") for line in lines if line[0] != "#")
            row["packages"] = len(row["versions"])
        return row

    def _measure(self, words: list[str], environment: dict[str, str]) -> Row:
        with open(self.bench.path("log"), "w+b") as log, open(self.bench.path("out"), "wb") as out:
            start = time.perf_counter()
            child = subprocess.Popen(
                words, cwd=self.bench.folder, env=environment, stdin=subprocess.DEVNULL,
                stdout=out, stderr=log, process_group=0,
            )  # fmt: skip
            status, usage = _ended(child.pid, start, TIMEOUT)
            seconds = time.perf_counter() - start
            child.returncode = os.waitstatus_to_exitcode(status)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # builds of a tool that was killed
            log.seek(0)
            message = log.read().decode().replace(self.bench.folder, "")
        row: Row = {"seconds": round(seconds, 3), "mib": round(usage.ru_maxrss / 1024, 1)}
        row["cpu"] = round(usage.ru_utime + usage.ru_stime, 3)
        row |= {"exit": child.returncode, "verdict": "error", "message": ""}
        if child.returncode < 0:
            row["verdict"] = "timeout"
        elif child.returncode > 0:
            row["message"] = message[:1500]
        return row


def _interpreter(python: str) -> str:
    """Return the interpreter of a Python version, with which uv builds, from PATH."""
    words = [uv_program(), "python", "find", "--no-project", "--no-python-downloads", python]
    found = subprocess.run(words, check=False, stdout=subprocess.PIPE, text=True)
    return found.stdout.strip() or sys.exit(f"the sets need Python {python}")


def _median(rows: Sequence[Row]) -> Row:
    """Return the row with the median time."""
    return sorted(rows, key=lambda row: row["seconds"])[len(rows) // 2]


def run_set(requirement_set: Row, arguments: argparse.Namespace, scripts: str, row: Row) -> Row:
    """Run a set, check the lock that gpuenv wrote, and compare. `row` is that of earlier runs."""
    tools = arguments.tools.split(",")
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(folder, scripts, requirement_set, arguments.builds)
        row = row | runner.run(tools, arguments.warm)
        if "gpuenv" in tools:
            row["violations"] = []
            if os.path.exists(runner.lock):
                row["violations"] = check_lock.violations(
                    runner.lock, runner.requirements, runner.python, arguments.metadata
                )
    row["load"] = round(os.getloadavg()[0], 1)
    return row | compare(row, [Requirement(text) for text in requirement_set["requirements"]])


def compare(row: Row, named: Sequence[Requirement]) -> Row:
    """Return in which versions outside the GPU stack the two tools differ.

    `older`: named packages of which gpuenv has an older release. `prereleases`: those of gpuenv
    that no requirement of the set asks for, of packages of which uv has none.
    """
    ours, theirs = (row.get(tool, {}).get("cold", {}).get("versions", {}) for tool in TOOLS)
    asked = {canonicalize_name(x.name) for x in named if x.specifier.prereleases}
    asked |= {name for name, version in theirs.items() if Version(version).is_prerelease}
    prereleases = [
        f"{name} {version}"
        for name, version in ours.items()
        if Version(version).is_prerelease and name not in asked
    ]
    older = []
    for name in sorted({canonicalize_name(x.name) for x in named} & ours.keys() & theirs.keys()):
        mine, other = Version(ours[name]), Version(theirs[name])
        if Version(mine.public) < Version(other.public):
            older.append(f"{name} {mine}, uv has {other}")
    names = sorted(ours.keys() | theirs.keys()) if ours and theirs else []
    pairs = {name: [ours.get(name), theirs.get(name)] for name in names}
    differ = {
        name: pair
        for name, pair in pairs.items()
        if pair[0] != pair[1] and not GPU_STACK.fullmatch(name)
    }
    return {"older": older, "prereleases": prereleases, "differ": differ}


# ---- what the record says ----------------------------------------------------------------------


def faults(name: str, row: Row, reason: str) -> list[str]:
    """Return which targets a set does not meet."""
    missed = [f"{name}: {line}" for line in row["violations"]]
    ours, theirs = row["gpuenv"], row["uv"]
    if ours["cold"]["verdict"] != theirs["cold"]["verdict"] and not reason:
        verdicts = f"{ours['cold']['verdict']}, uv: {theirs['cold']['verdict']}"
        missed.append(f"{name}: {verdicts}, without a known reason")
    if "warm" in ours and ours["warm"]["verdict"] != ours["cold"]["verdict"]:
        missed.append(f"{name}: offline it is {ours['warm']['verdict']}")
    limit = max(MAX_SECONDS, MAX_FACTOR * theirs["cold"]["seconds"])
    if ours["cold"]["seconds"] > limit:
        missed.append(f"{name}: {ours['cold']['seconds']:.1f} s, limit {limit:.1f} s")
    mib = max(run["mib"] for run in ours.values())
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
    missed: list[str] = []
    print(f"{'set':<30} {'gpuenv':>10} cold/warm s {'uv':>10} cold/warm s   MiB packages")
    for requirement_set in sets:
        name = requirement_set["name"]
        if row := record["sets"].get(name):
            print(_line(name, row), *_details(row), sep="\n    ")
            if all(tool in row for tool in TOOLS):
                missed += faults(name, row, requirement_set.get("differs", ""))
    rows = [row for row in record["sets"].values() if all(tool in row for tool in TOOLS)]
    verdicts = Counter(tuple(row[tool]["cold"]["verdict"] for tool in TOOLS) for row in rows)
    for (ours, theirs), count in verdicts.most_common():
        print(f"gpuenv {ours}, uv {theirs}: {count} sets")
    for state, limit in (("cold", MAX_COLD), ("warm", MAX_WARM)):
        measured = [row for row in rows if state in row["gpuenv"] and state in row["uv"]]
        factors = ratios(measured, state)
        if not factors:
            continue
        for tool in TOOLS:
            seconds = sorted(row[tool][state]["seconds"] for row in measured)
            print(
                f"{tool} {state}: median {statistics.median(seconds):.2f} s, "
                f"{seconds[0]:.2f} to {seconds[-1]:.2f} s"
            )
        ratio = statistics.median(factors)
        print(
            f"gpuenv / uv, {state}: median {ratio:.2f}, {min(factors):.2f} to {max(factors):.2f}, "
            f"of {len(factors)} sets"
        )
        if ratio > limit:
            missed.append(f"gpuenv / uv, {state}: median {ratio:.2f}, limit {limit:g}")
    if rows:
        print("\n".join(["", *missed]) if missed else "all targets are met")
    return not missed


def _line(name: str, row: Row) -> str:
    cells = [f"{name:<30}"]
    for tool in TOOLS:
        runs = row.get(tool, {})
        cells.append(f"{runs['cold']['verdict'] if runs else '-':>10}")
        for state, width in (("cold", "6.1f"), ("warm", "6.2f")):
            cells.append(f"{runs[state]['seconds']:{width}}" if state in runs else "     -")
    first = row.get("gpuenv") or row["uv"]
    cells.append(f"{max(run['mib'] for run in first.values()):6.0f}")
    cells.append(f"{first['cold'].get('packages', 0):4}")
    return " ".join([*cells, *row["older"]])


def _details(row: Row) -> Iterator[str]:
    """Yield what else differs in a set."""
    if differ := row.get("differ"):
        pairs = [f"{name} {ours} ({theirs})" for name, (ours, theirs) in differ.items()]
        yield f"gpuenv has (uv has): {', '.join(pairs)}"
    if prereleases := row.get("prereleases"):
        yield f"pre-releases that nobody asked for: {', '.join(prereleases)}"
    for warning in row.get("gpuenv", {}).get("cold", {}).get("warnings", ()):
        yield f"warning: {warning}"


def conditions() -> Row:
    """Return what the times depend on."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "uv": importlib.metadata.version("uv"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def main(words: list[str]) -> None:
    """Run the sets or show a record; 1 if a target is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", metavar="NAME,...", help="these sets or groups only")
    parser.add_argument("--builds", action="store_true", help="the sets that need builds")
    parser.add_argument("--tools", default="gpuenv,uv", help="which of them run")
    parser.add_argument("--warm", metavar="N", type=int, default=3, help="offline runs of each")
    parser.add_argument("--checkout", metavar="DIR", help="of gpuenv, instead of this one")
    parser.add_argument("--record", metavar="FILE", help="write the rows to this JSON file")
    parser.add_argument("--show", metavar="FILE", help="run nothing, and show this record")
    parser.add_argument("--metadata", metavar="DIR", help="keep the METADATA of wheels here")
    arguments = parser.parse_args(words)
    source = "gpu_projects.toml" if arguments.builds else "requirement_sets.toml"
    with open(os.path.join(DATA, source), "rb") as file:
        sets = tomllib.load(file)["sets"]
    if arguments.show:
        with open(arguments.show, encoding="utf-8") as file:
            sys.exit(not show(json.load(file), sets))
    if arguments.sets:
        known = {name for row in sets for name in (row["name"], row.get("group"))}
        names = set(arguments.sets.split(","))
        if unknown := names - known:
            parser.error(f"--sets: there is no set {', '.join(sorted(unknown))}")
        sets = [row for row in sets if {row["name"], row.get("group")} & names]
    record: Row = {"sets": {}}
    if arguments.record and os.path.exists(arguments.record):
        with open(arguments.record, encoding="utf-8") as file:
            record = json.load(file)
    record["conditions"] = conditions()
    with tempfile.TemporaryDirectory() as scratch:
        arguments.metadata = arguments.metadata or scratch
        os.makedirs(arguments.metadata, exist_ok=True)
        scripts = install(scratch, arguments.checkout)
        for requirement_set in sets:
            name = requirement_set["name"]
            earlier = record["sets"].get(name, {})
            record["sets"][name] = run_set(requirement_set, arguments, scripts, earlier)
            print(_line(name, record["sets"][name]), file=sys.stderr, flush=True)
            if arguments.record:
                with open(arguments.record, "w", encoding="utf-8") as file:
                    json.dump(record, file, indent=1, sort_keys=True)
                    file.write("\n")
    sys.exit(not show(record, sets))
