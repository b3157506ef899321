"""Take each protection of installs out of the code, and check that its test fails then.

    python scripts/tools.py prove protections [--only TEXT] [--record FILE]

tests/data/protections.toml has the protections. Each test must pass with the present code, and fail
in a copy of the checkout in which one protection is missing. A test that takes longer than LIMIT
or more than MEMORY fails, too. A test that is skipped proves nothing: PYTHONPATH can name a folder
with pypi-attestations.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from argparse import Namespace
from functools import cache
from pathlib import Path
from typing import Any

from common import ROOT, read_toml

LIMIT = "120"  # seconds of a test
MEMORY = 4 << 20  # KiB of address space: some protections are limits of memory
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", "build", "__pycache__", ".*_cache")


@cache
def present(checkout: Path, test: str) -> str:
    """Return the outcome of a test with the present code."""
    return run_test(checkout, test)


def run_test(checkout: Path, test: str) -> str:
    """Return "passed", "failed", "skipped", or what else became of a test."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    libraries = [str(checkout / "resolver"), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {
        "PYTHONPATH": os.pathsep.join(libraries),
        "PYTHONDONTWRITEBYTECODE": "1",
        "GPUENV_CACHE_DIR": str(checkout / "cache"),
        "GPUENV_TEST_SAMPLE": "0",
    }
    limited = ["sh", "-c", f'ulimit -v {MEMORY}; exec timeout -k 1 {LIMIT} "$@"', "sh", *pytest]
    done = subprocess.run(
        limited, cwd=checkout, env={**os.environ, **variables}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode == 0:
        return "passed" if " passed" in done.stdout else "skipped"
    if done.returncode in (1, 124, 137):  # a failure, or the time is over
        return "failed"
    return f"status {done.returncode}: {done.stdout[-300:]}"


def without(checkout: Path, protection: dict[str, str]) -> str:
    """Return "noticed" if the test fails only without the protection, or what else happened."""
    path = checkout / "resolver" / "gpuenv" / protection["file"]
    text = path.read_text(encoding="utf-8")
    if text.count(protection["old"]) != 1:
        return "the code has changed"
    outcome = present(checkout, protection["test"])
    if outcome != "passed":
        return outcome
    path.write_text(text.replace(protection["old"], protection["new"]), encoding="utf-8")
    outcome = run_test(checkout, protection["test"])
    path.write_text(text, encoding="utf-8")
    return {"failed": "noticed", "passed": "not noticed"}.get(outcome, outcome)


ARGUMENTS = {
    "--only": {"default": "", "metavar": "TEXT", "help": "with this in their names"},
}


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Take the protections out, one after the other."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        checkout = Path(folder) / "checkout"
        shutil.copytree(ROOT, checkout, ignore=LEFT_OUT, symlinks=True)
        for protection in read_toml("tests/data/protections.toml")["protection"]:
            row = {key: protection[key] for key in ("subject", "name", "test")}
            if arguments.only in f"{row['subject']}: {row['name']}":
                row["outcome"] = without(checkout, protection)
                rows.append(row)
                print(f"{row['outcome']}: {row['subject']}: {row['name']}", flush=True)
    faults = [f"{row['name']}: {row['outcome']}" for row in rows if row["outcome"] != "noticed"]
    return {"protections": rows}, faults
