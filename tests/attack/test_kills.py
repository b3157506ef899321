"""Kills of `gpuenv sync` at a few random points. `tools.py prove disturbed` does much more."""

from pathlib import Path

import pytest

from processes import run_program
from script_modules import load_script, tool
from tables import read_data

disturbed = load_script("prove.disturbed")
RECORDS = Path(__file__).parents[2] / "docs" / "records"


def test_sync_is_killed():
    kills = tool("prove", "disturbed", "kills", "--command", "sync", "--points", "4")
    assert "'points': 4" in run_program(kills).stdout


@pytest.mark.parametrize("name", ["kill-commands", "full-disk"])
def test_the_records_show_no_fault(name):
    rows = read_data(RECORDS / f"{name}.json")["commands"].values()
    assert sum(row["points"] for row in rows) >= 100
    usual = {*disturbed.USUAL, "old states", "new states"}
    assert not {name for row in rows for name, count in row.items() if count} - usual
