"""Measure the tests: change the code in many small ways and count the changes that a test notices.

    python scripts/mutate.py [--count 200] [--seed 1] [--only GLOB] [--jobs 1]
                             [--map FILE] [--record FILE] [--again FILE]

The sample is deterministic: files get mutants in proportion to their lines of code, and the seed
chooses among the mutants of a file. A mutant is applied to a temporary copy of the checkout. The
tests that run the changed function go first, the fastest test file before the slower ones, then
the other tests of these files, until BUDGET is spent. A failure or a timeout kills the mutant.

Which functions a test calls is recorded once (mutate_plugin.py), in one run of each file of TESTS;
`--map FILE` keeps that; only test files that changed, or whose data changed, are recorded again,
or all if the names of functions changed. The tests of SLOW_TESTS have to pass before any change.
Calls in child processes are not recorded: SLOW_TESTS run last for their packages.

`--again FILE` runs only the survivors of a record, and counts them anew. Equivalent mutants are in
tests/data/mutation_equivalent.toml, with the reason for each. They are printed, but not run and
not in the ratio.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib.util import cache_from_source
from pathlib import Path
from queue import SimpleQueue
from typing import TypedDict

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from code_metrics import code_lines
from mutants import Mutant, mutants, sample

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("resolver", "gpuenv")
TARGETS = (
    "compat/*.py", "resolve/*.py", "lock/*.py", "verify/linkage.py", "doctor/facts.py",
    "doctor/host_facts.py", "doctor/check_facts.py", "doctor/log_reader.py",
    "doctor/case_versions.py", "doctor/*rules.py",
)  # fmt: skip
# The test files that call these modules, except those whose single tests take longer than BUDGET.
TESTS = (
    "api", "asking", "causes", "check_lock", "closure", "collect_builds", "command_rules",
    "commands", "companion_rows", "compat_facts", "conda", "conda_answers", "conda_environments",
    "conda_failures", "conda_foreign", "conda_mixed", "conda_prefixes", "detection",
    "doctor_advice", "doctor_handles", "doctor_host", "doctor_logs",
    "doctor_origin", "doctor_pasted", "doctor_reading", "doctor_reports", "doctor_rules",
    "documented_commands", "environment", "explain", "explorer", "fleet_solve", "formats",
    "framework_names", "grid", "host_conditions", "host_fit", "hosts", "installed", "lock_format",
    "lock_tables", "matrix", "matrix_show", "matrix_update", "messages",
    "other_locks", "project", "refusals", "requested", "requirements",
    "resolution", "resolution_families", "resolution_laws", "rule_cases", "rules", "section7",
    "shared_versions", "small_plans", "snapshot", "solve", "solver", "tables",
    "target_lock", "tool_settings", "value", "variant_grid", "variant_provider",
    "variants", "verification", "widening", "wrong_inputs",
)  # fmt: skip
# Tests that run the code in child processes, by the package of the mutant.
CORPUS = "tests/test_corpus.py::test_a_sample_gives_the_recorded_results"
SLOW_TESTS = {"compat": [CORPUS], "resolve": [CORPUS], "lock": [CORPUS]}
DATA = ROOT / "tests" / "data"
EQUIVALENT = DATA / "mutation_equivalent.toml"
BUDGET = 15.0  # seconds of the tests that run for one mutant, recorded while calls are traced
PATIENCE = 60.0  # a run of the tests times out after this and five times the recorded seconds

Key = tuple[str, str, str]


class RecordedTest(TypedDict):
    """What the map stores for a test: its seconds, and (module, function) of each call."""

    seconds: float
    calls: list[tuple[str, str]]


class RecordedFile(TypedDict):
    """What the map stores for a test file."""

    digest: str
    tests: dict[str, RecordedTest]


class Counts(TypedDict):
    """The result of a group of mutants."""

    mutants: int
    killed: int
    percent: float


class Record(TypedDict):
    """The result of a run: no line numbers, no paths of this machine."""

    date: str
    python: str
    seed: int
    all: Counts
    packages: dict[str, Counts]
    first: Counts  # in the first run of the sample
    survivors: list[dict[str, str]]
    equivalent: list[dict[str, str]]


@dataclass(frozen=True)
class Test:
    """A recorded test."""

    id: str
    seconds: float
    calls: frozenset[tuple[str, str]]  # (module below the package, outermost function)

    @property
    def file(self) -> str:
        """Return the file of the test."""
        return self.id.split("::")[0]


@dataclass(frozen=True)
class Outcome:
    """What became of a mutant."""

    mutant: Mutant
    killed: bool
    reason: str  # the first failed test, "timeout", or why the mutant is equivalent


class Checkout:
    """A temporary copy of the checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        files = subprocess.run(listing, cwd=ROOT, text=True, stdout=subprocess.PIPE, check=True)
        for name in filter(None, files.stdout.split("\0")):
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)

    def write(self, mutant: Mutant, text: str) -> None:
        """Write a module, and remove its bytecode, which may look fresh to the interpreter."""
        path = self.folder / PACKAGE / mutant.file
        path.write_text(text, encoding="utf-8")
        Path(cache_from_source(str(path))).unlink(missing_ok=True)

    def run_tests(
        self, arguments: Iterable[str], limit: float, **environment: str
    ) -> tuple[int | None, str]:
        """Run pytest in this copy and return its exit status (None: timeout) and its output."""
        paths = [str(self.folder / name) for name in ("resolver", "scripts")]
        environment = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(paths)}
        command = [
            sys.executable, "-m", "pytest", "-q", "-p", "mutate_plugin", "-p", "no:cacheprovider",
            f"--basetemp={self.folder / 'tmp'}", *arguments,
        ]  # fmt: skip
        with subprocess.Popen(
            command, cwd=self.folder, env=environment, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            try:
                output, _ = process.communicate(timeout=limit)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return None, ""
        return process.returncode, output


class Map:
    """The tests of each test file, with what they call."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.recorded: dict[str, RecordedFile] = {}
        if file is not None and file.exists():
            self.recorded = json.loads(file.read_text(encoding="utf-8"))

    def tests(self, checkout: Checkout) -> list[Test]:
        """Return the tests of TESTS; record the files that changed since the map was written.

        If a function has a new name, all files are recorded: the map has calls by names.
        """
        tests = []
        functions = digest_of_functions()
        for name in TESTS:
            file = f"tests/test_{name}.py"
            digest = digest_of(ROOT / file) + functions
            if file not in self.recorded or self.recorded[file]["digest"] != digest:
                print(f"recording {file}", flush=True)
                self.recorded[file] = {"digest": digest, "tests": record_file(checkout, file)}
                self.save()
            tests += read_tests(self.recorded[file]["tests"])
        return tests

    def save(self) -> None:
        """Keep the map for the next run."""
        if self.file is not None:
            self.file.write_text(json.dumps(self.recorded), encoding="utf-8")


def digest_of(test_file: Path) -> str:
    """Return a hash of a test file and of the files and folders of tests/data that it names."""
    text = test_file.read_bytes()
    digest = hashlib.sha256(text)
    for path in sorted(DATA.iterdir()):
        if f'"{path.name}"'.encode() in text:
            for file in [path, *sorted(path.rglob("*"))]:
                digest.update(file.read_bytes() if file.is_file() else file.name.encode())
    return digest.hexdigest()


def digest_of_functions() -> str:
    """Return a hash of the names of all modules and functions of the package."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        names = re.findall(
            r"^ *(?:def|class) (\w+)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
        digest.update(f"{path.relative_to(ROOT)} {names}\n".encode())
    return digest.hexdigest()


def record_file(checkout: Checkout, file: str) -> dict[str, RecordedTest]:
    """Run a test file and return the seconds and the calls of each test that passed."""
    record = checkout.folder / "record.jsonl"
    record.unlink(missing_ok=True)
    checkout.run_tests([file], 1200.0, MUTATE_RECORD=str(record))
    seconds: dict[str, float] = defaultdict(float)
    calls: dict[str, list[tuple[str, str]]] = defaultdict(list)
    bad = set()
    for line in record.read_text(encoding="utf-8").splitlines():
        kind, test, first, second = json.loads(line)
        if kind == "call":
            calls[test].append((first, second))
        elif second == "passed":
            seconds[test] += first
        else:
            bad.add(test)
    if bad:
        print(f"{file}: {len(bad)} tests do not pass and are left out", flush=True)
    return {
        test: {"seconds": round(seconds[test], 4), "calls": calls[test]}
        for test in seconds
        if test not in bad
    }


def read_tests(recorded: dict[str, RecordedTest]) -> list[Test]:
    """Return the tests of one file of the map; JSON has lists instead of tuples."""
    tests = []
    for test, entry in recorded.items():
        calls = frozenset((module, function) for module, function in entry["calls"])
        tests.append(Test(test, entry["seconds"], calls))
    return tests


def within_budget(tests: Iterable[Test], seconds: float) -> list[Test]:
    """Return the fastest tests that fit into the seconds, grouped by file, fastest file first."""
    by_file: dict[str, list[Test]] = defaultdict(list)
    for test in sorted(tests, key=lambda test: (test.seconds, test.id)):
        seconds -= test.seconds
        if seconds < 0:
            break
        by_file[test.file].append(test)
    files = sorted(by_file.values(), key=lambda group: sum(test.seconds for test in group))
    return [test for group in files for test in group]


def tests_of(mutant: Mutant, tests: list[Test]) -> list[Test]:
    """Return the tests to run for a mutant, in their order.

    A value that an earlier test cached hides a call: the other tests of the files come second.
    """
    calls = (mutant.file, mutant.function)
    direct = [test for test in tests if calls in test.calls]
    if mutant.function is None:
        direct = [test for test in tests if any(file == mutant.file for file, _ in test.calls)]
    chosen = within_budget(direct, BUDGET)
    rest = BUDGET - sum(test.seconds for test in chosen)
    files = {test.file for test in direct}
    known = set(chosen)
    others = [test for test in tests if test.file in files and test not in known]
    return chosen + within_budget(others, rest)


def in_groups(tests: list[Test]) -> list[list[Test]]:
    """Divide tests into runs of 1, 2, 4 and so on test files: to import a file takes long, too."""
    by_file: dict[str, list[Test]] = defaultdict(list)
    for test in tests:
        by_file[test.file].append(test)
    waiting, groups = list(by_file.values()), []
    while waiting:
        size = 1 << len(groups)
        groups.append([test for of_file in waiting[:size] for test in of_file])
        del waiting[:size]
    return groups


def try_mutant(mutant: Mutant, checkout: Checkout, tests: list[Test]) -> Outcome:
    """Run the tests of a mutant until one fails."""
    original = (checkout.folder / PACKAGE / mutant.file).read_text(encoding="utf-8")
    checkout.write(mutant, mutant.applied(original))
    try:
        for group in in_groups(tests_of(mutant, tests)):
            seconds = sum(test.seconds for test in group)
            reason = failure(checkout, [test.id for test in group], seconds)
            if reason:
                return Outcome(mutant, True, reason)
        slow = SLOW_TESTS.get(package_of(key_of(mutant)))
        reason = failure(checkout, slow, BUDGET) if slow else ""
        return Outcome(mutant, bool(reason), reason)
    finally:
        checkout.write(mutant, original)


def failure(checkout: Checkout, tests: list[str], seconds: float) -> str:
    """Run tests and return the first that fails, "timeout", or "" if all pass."""
    chosen = checkout.folder / "chosen.txt"
    chosen.write_text("".join(json.dumps(test) + "\n" for test in tests), encoding="utf-8")
    files = dict.fromkeys(test.split("::")[0] for test in tests)
    status, output = checkout.run_tests(
        ["-x", *files], PATIENCE + 5 * seconds, MUTATE_SELECT=str(chosen)
    )
    if status is None:
        return "timeout"
    if status == 0:
        return ""
    for line in output.splitlines():
        if line.startswith(("FAILED ", "ERROR ")):
            return line.split(" ", 1)[1].partition(" - ")[0]
    return f"pytest ended with {status}"


def equivalents() -> dict[Key, str]:
    """Return the reasons of the mutants that change nothing."""
    rows = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8")).get("mutant", [])
    return dict(zip(keys_of(rows), (row["why"] for row in rows), strict=True))


def key_of(mutant: Mutant) -> Key:
    """Return what names a mutant independently of line numbers."""
    return mutant.file, mutant.function or "", mutant.change


def chosen_mutants(package: Path, options: argparse.Namespace) -> list[Mutant]:
    """Return the mutants of this run. They are of a copy, because the checkout may change."""
    texts = {}
    for pattern in TARGETS:
        for path in sorted(package.glob(pattern)):
            file = path.relative_to(package).as_posix()
            if fnmatch(file, options.only) and path.name != "__init__.py":
                texts[file] = path.read_text(encoding="utf-8")
    by_file = {file: mutants(file, text) for file, text in texts.items()}
    if options.again is not None:
        keys = set(keys_of(read_record(options.again)["survivors"]))
        every = [mutant for group in by_file.values() for mutant in group]
        return list({key_of(mutant): mutant for mutant in every if key_of(mutant) in keys}.values())
    lines = {file: code_lines(text) for file, text in texts.items()}
    return list(sample(by_file, lines, options.count, options.seed))


def measure(options: argparse.Namespace) -> list[Outcome]:
    """Run the tests of all chosen mutants and return the outcomes in order."""
    known = equivalents()
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        checkouts: SimpleQueue[Checkout] = SimpleQueue()
        for number in range(options.jobs):
            checkouts.put(Checkout(Path(folder, str(number))))
        checkout = checkouts.get()
        chosen = chosen_mutants(checkout.folder / PACKAGE, options)
        tests = Map(options.map).tests(checkout)
        check_slow_tests(checkout)
        checkouts.put(checkout)

        def outcome(mutant: Mutant) -> Outcome:
            if key_of(mutant) in known:
                return Outcome(mutant, False, known[key_of(mutant)])
            checkout = checkouts.get()
            try:
                tried = try_mutant(mutant, checkout, tests)
            finally:
                checkouts.put(checkout)
            result = f"killed by {tried.reason}" if tried.killed else "SURVIVED"
            print(f"{described(mutant)}: {result}", flush=True)
            return tried

        with ThreadPoolExecutor(options.jobs) as pool:
            return list(pool.map(outcome, chosen))


def check_slow_tests(checkout: Checkout) -> None:
    """End the script if a test of SLOW_TESTS fails without a change: it would kill every mutant."""
    for tests in {tuple(tests) for tests in SLOW_TESTS.values()}:
        reason = failure(checkout, list(tests), BUDGET)
        if reason:
            sys.exit(f"{reason} fails without a change: correct it first")


def described(mutant: Mutant) -> str:
    """Return a mutant in one line."""
    return f"{PACKAGE.as_posix()}/{mutant.file}:{mutant.line}: {mutant.change}"


def row_of(tried: int, killed: int) -> Counts:
    """Return a row of the table."""
    percent = round(100 * killed / tried, 1) if tried else 0.0
    return {"mutants": tried, "killed": killed, "percent": percent}


def total(packages: Mapping[str, Counts]) -> Counts:
    """Return the row of all packages."""
    rows = packages.values()
    return row_of(sum(row["mutants"] for row in rows), sum(row["killed"] for row in rows))


def summary(outcomes: list[Outcome], known: Mapping[Key, str], seed: int) -> Record:
    """Return the record of the first run of a sample."""
    killed_by_package: dict[str, list[bool]] = defaultdict(list)
    survivors: list[Key] = []
    equivalent: list[Key] = []
    for outcome in outcomes:
        key = key_of(outcome.mutant)
        if key in known:
            equivalent.append(key)
            continue
        killed_by_package[package_of(key)].append(outcome.killed)
        if not outcome.killed:
            survivors.append(key)
    packages = {
        name: row_of(len(killed), sum(killed)) for name, killed in sorted(killed_by_package.items())
    }
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "seed": seed,
        "first": total(packages),
        "all": total(packages),
        "packages": packages,
        "survivors": rows_of(survivors),
        "equivalent": rows_of(equivalent),
    }


def updated(record: Record, outcomes: list[Outcome], known: Mapping[Key, str]) -> Record:
    """Return a record after another run of its survivors. Those of deleted code do not count."""
    tried = {key_of(outcome.mutant): outcome.killed for outcome in outcomes}
    packages = dict(record["packages"])
    survivors, equivalent = [], keys_of(record["equivalent"])
    for key in keys_of(record["survivors"]):
        row = packages[package_of(key)]
        if key in known:
            equivalent.append(key)
        elif tried.get(key) is False:
            survivors.append(key)
        is_counted = key in tried and key not in known
        packages[package_of(key)] = row_of(
            row["mutants"] - (not is_counted), row["killed"] + (is_counted and tried[key])
        )
    return {
        **record,
        "all": total(packages),
        "packages": packages,
        "survivors": rows_of(survivors),
        "equivalent": rows_of(equivalent),
    }


def read_record(file: Path) -> Record:
    """Return a record that an earlier run wrote."""
    record: Record = json.loads(file.read_text(encoding="utf-8"))
    return record


def package_of(key: Key) -> str:
    """Return the package of a mutant."""
    return key[0].split("/")[0]


def rows_of(keys: Iterable[Key]) -> list[dict[str, str]]:
    """Return mutants as the record has them."""
    return [dict(zip(("file", "function", "change"), key, strict=True)) for key in sorted(keys)]


def keys_of(rows: Iterable[Mapping[str, str]]) -> list[Key]:
    """Return the mutants that a record or the list of equivalent ones has."""
    return [(row["file"], row["function"], row["change"]) for row in rows]


def print_report(record: Record, outcomes: list[Outcome], known: Mapping[Key, str]) -> None:
    """Print the table of packages, the survivors and the equivalent mutants."""
    print(f"\n{'package':<10} {'mutants':>7} {'killed':>7} {'survived':>8} {'percent':>7}")
    for name, row in {**record["packages"], "all": record["all"]}.items():
        survived = row["mutants"] - row["killed"]
        print(
            f"{name:<10} {row['mutants']:>7} {row['killed']:>7} {survived:>8} {row['percent']:>7}"
        )
    for outcome in outcomes:
        if key_of(outcome.mutant) in known:
            print(f"equivalent {described(outcome.mutant)}: {outcome.reason}")
        elif not outcome.killed:
            print(f"survived {described(outcome.mutant)}")


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200, metavar="N", help="mutants to try")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="chooses the mutants")
    parser.add_argument("--only", default="*", metavar="GLOB", help="modules, such as 'lock/*'")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="mutants at a time")
    parser.add_argument("--map", type=Path, metavar="FILE", help="keep which test calls what")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the result as JSON")
    parser.add_argument("--again", type=Path, metavar="FILE", help="survivors of a record only")
    options = parser.parse_args()
    outcomes, known = measure(options), equivalents()
    if options.again is None:
        record = summary(outcomes, known, options.seed)
    else:
        record = updated(read_record(options.again), outcomes, known)
    print_report(record, outcomes, known)
    if options.record is not None:
        options.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
