"""What is in tests/data, and tests that run once for each row of a table."""

import json
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "data"
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"  # the version of this Python


def data_file(name: str) -> Any:
    """Return the content of tests/data/NAME, which is TOML or JSON."""
    loads = json.loads if name.endswith(".json") else tomllib.loads
    return loads((DATA / name).read_text(encoding="utf-8"))


def cases(rows: Sequence[dict[str, Any]]) -> pytest.MarkDecorator:
    """Run a test once for each of these rows, which is its argument `case` and has a name."""
    return pytest.mark.parametrize("case", rows, ids=[row["name"] for row in rows])


def each(arguments: str, rows: Any) -> pytest.MarkDecorator:
    """Run a test with the values of each of these rows as these arguments.

    Args:
        arguments: Their names, with spaces between them.
        rows: A list of rows, or the names of the rows and the rows.
    """
    names = arguments.split()
    values = [*rows.values()] if isinstance(rows, dict) else rows
    ids = [*rows] if isinstance(rows, dict) else None
    return pytest.mark.parametrize(names if len(names) > 1 else names[0], values, ids=ids)
