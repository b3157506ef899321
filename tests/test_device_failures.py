"""Programs that failed, most on a real GPU: what doctor said there, and what it says elsewhere."""

import json
import tomllib
from typing import Any

import pytest

from script_modules import load_script
from tables import ROOT

FOLDER = ROOT / "tests" / "data" / "device_failures"
PROGRAMS = tomllib.loads((FOLDER / "programs.toml").read_text())["program"]
RECORD = json.loads((FOLDER / "record.json").read_text())


SITUATIONS = json.loads((ROOT / "docs" / "records" / "situations.json").read_text())


def test_every_program_was_run_on_a_device() -> None:
    assert RECORD["programs"].keys() == {program["name"] for program in PROGRAMS}
    assert RECORD["gpus"] and RECORD["driver"] and RECORD["date"]


def test_logs_are_understood_on_another_machine() -> None:
    measured = load_script("prove.situations")
    wrong = {
        name
        for name, (causes, log) in measured.situations().items()
        if measured.answer(measured.read(log)) not in causes
    }
    assert wrong <= SITUATIONS["now"]["situations"]["wrong"].keys()


@pytest.mark.parametrize("program", PROGRAMS, ids=[program["name"] for program in PROGRAMS])
def test_the_answer_on_the_device_was_right(program: dict[str, Any]) -> None:
    assert RECORD["programs"][program["name"]]["here"] in program["here"]


def test_verify_names_code_of_another_architecture_without_a_log() -> None:
    for program in PROGRAMS:
        if "install" in program:
            [check] = RECORD["programs"][program["name"]]["verify"]
            assert check["name"] == "device code"
            assert program["install"] in check["evidence"]
            assert "has sm_80" in check["evidence"]
