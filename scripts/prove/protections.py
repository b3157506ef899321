"""Take each protection of installs out of the code, and check that its test fails then.

    python scripts/tools.py prove protections [--again FILE] [--record FILE]

tests/data/protections.toml has the protections. Each test must pass with the present code, and fail
in a copy of the checkout in which one protection is missing. A test that takes longer than LIMIT
or more than MEMORY fails, too. A test that is skipped proves nothing: PYTHONPATH can name a folder
with pypi-attestations. `--again FILE` runs only what no test has noticed in a record.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from pathlib import Path

from common import ROOT, write_record

DATA = ROOT / "tests" / "data" / "protections.toml"
PACKAGE = Path("resolver", "gpuenv")
LIMIT = 120  # seconds of a test
MEMORY = 4 << 30  # bytes of address space
LIBRARIES = list(filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
PASSED, FAILED = 0, 1  # statuses of pytest
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", ".*_cache")


def run_test(checkout: Path, test: str) -> str:
    """Return "passed", "failed", "skipped", or what else became of a test."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    variables = {
        "PYTHONPATH": os.pathsep.join([str(checkout / "resolver"), *LIBRARIES]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "GPUENV_CACHE_DIR": str(checkout / "cache"),
        "GPUENV_TEST_SAMPLE": "0",
    }
    with subprocess.Popen(
        command,
        cwd=checkout,
        env={**os.environ, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        preexec_fn=limit_memory,  # noqa: PLW1509  this program has one thread
    ) as child:
        try:
            output = child.communicate(timeout=LIMIT)[0]
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            return "failed"
    if child.returncode == PASSED:
        return "passed" if " passed" in output else "skipped"
    if child.returncode == FAILED:
        return "failed"
    return f"status {child.returncode}: {output[-300:]}"


def limit_memory() -> None:
    """Limit the address space of a test: some protections are limits of memory."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def without(checkout: Path, protection: dict[str, str]) -> str:
    """Run the test of a protection in a copy without the protection. Return the outcome."""
    path = checkout / PACKAGE / protection["file"]
    text = path.read_text()
    if text.count(protection["old"]) != 1:
        return "the code has changed"
    path.write_text(text.replace(protection["old"], protection["new"]))
    try:
        return run_test(checkout, protection["test"])
    finally:
        path.write_text(text)


def main(words: list[str]) -> int:
    """Take the protections out. Return 1 if a test does not notice it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--again", metavar="FILE", type=Path)
    parser.add_argument("--record", metavar="FILE", type=Path)
    arguments = parser.parse_args(words)
    begin, known = time.monotonic(), list[dict[str, str]]()
    if arguments.again:
        known = json.loads(arguments.again.read_text())["protections"]
    rows, present = [], dict[str, str]()
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        shutil.copytree(ROOT, checkout, ignore=LEFT_OUT, symlinks=True)
        for protection in tomllib.loads(DATA.read_text())["protection"]:
            row = {key: protection[key] for key in ("subject", "name", "test")}
            rows.append(row)
            if {**row, "outcome": "noticed"} in known:
                row["outcome"] = "noticed"
                continue
            test = row["test"]
            if test not in present:
                present[test] = run_test(checkout, test)
            outcome = present[test]
            if outcome == "passed":
                outcome = without(checkout, protection)
                outcome = {"failed": "noticed", "passed": "not noticed"}.get(outcome, outcome)
            row["outcome"] = outcome
            print(f"{outcome}: {protection['subject']}: {protection['name']}", flush=True)
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "host": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"{platform.python_implementation()} {platform.python_version()}",
        "seconds": round(time.monotonic() - begin),
        "outcomes": Counter(row["outcome"] for row in rows),
        "protections": rows,
    }
    write_record(record, arguments.record)
    return int(any(row["outcome"] != "noticed" for row in rows))
