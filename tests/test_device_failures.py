"""Programs that failed on a real GPU: what doctor said there, and what it says elsewhere."""

import importlib
import json
import sys
import tomllib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpuenv.cli import main
from tables import ROOT

FOLDER = ROOT / "tests" / "data" / "device_failures"
PROGRAMS = tomllib.loads((FOLDER / "programs.toml").read_text())["program"]
RECORD = json.loads((FOLDER / "record.json").read_text())


@pytest.fixture(scope="module")
def answer() -> Iterator[Callable[[dict[str, Any]], str]]:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        yield importlib.import_module("prove_doctor").answer
    finally:
        sys.path.remove(str(ROOT / "scripts"))


def test_every_program_was_run_on_a_device() -> None:
    assert RECORD["programs"].keys() == {program["name"] for program in PROGRAMS}
    assert RECORD["gpus"] and RECORD["driver"] and RECORD["date"]


@pytest.mark.parametrize("program", PROGRAMS, ids=[program["name"] for program in PROGRAMS])
def test_the_log_is_understood_on_another_machine(
    answer: Callable[[dict[str, Any]], str],
    program: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["doctor", str(FOLDER / f"{program['name']}.log"), "--elsewhere", "--json"])
    assert answer(json.loads(capsys.readouterr().out)) in program["elsewhere"]


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
