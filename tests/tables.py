"""What is in tests/data, and tests that run once for each row of a table."""

import json
import os
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "data"
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"  # the version of this Python

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="glibc's loader, and /proc")
on_x86_64 = pytest.mark.skipif(
    sys.platform != "linux" or os.uname().machine != "x86_64",
    reason="wheels and code of Linux x86_64",
)


def data_file(name):
    """Return the content of tests/data/NAME."""
    return read_data(DATA / name)


def read_data(path):
    """Return the content of a file, which is JSON by its name, or TOML."""
    loads = json.loads if path.suffix == ".json" else tomllib.loads
    return loads(path.read_text(encoding="utf-8"))


def cases(rows):
    """Run a test once for each of these rows, which is its argument `case` and has a name."""
    return pytest.mark.parametrize("case", rows, ids=[row["name"] for row in rows])


def each(arguments, rows, ids=None):
    """Run a test with the values of each of these rows as these arguments.

    Args:
        arguments: Their names, with spaces between them.
        rows: A list of rows, or the names of the rows and the rows.
        ids: The names of the rows, or a function that names one.
    """
    names = arguments.split()
    if isinstance(rows, dict):
        ids, rows = [*rows], [*rows.values()]
    return pytest.mark.parametrize(names if len(names) > 1 else names[0], rows, ids=ids)


def together(rows, *, sampled=False):
    """Run a test once for each of these rows, but report all of them as one test.

    For rows of a few milliseconds: pytest takes as long for a test as these for themselves.

    Args:
        rows: The values of the test's argument. A generator makes them when the test runs.
        sampled: Take every third row with GPUENV_TEST_SAMPLE=1.
    """

    def decorate(test):
        def run_all():
            taken = list(rows)
            if sampled and os.environ.get("GPUENV_TEST_SAMPLE") == "1":
                taken = taken[::3]
            failures = []
            for row in taken:
                try:
                    test(row)
                except Exception as error:
                    error.add_note(f"row: {row!r}"[:1000])
                    failures.append(error)
            if failures:
                raise ExceptionGroup(f"{len(failures)} of {len(taken)} rows fail", failures)

        return run_all

    return decorate
