"""The fix explains numbers and symbols, and names the command of the new solve."""

import io
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

import gpuenv
from gpuenv import doctor
from gpuenv.doctor.catalog import causes
from gpuenv.doctor.diagnosis import Examination
from gpuenv.doctor.log_reader import read_log
from gpuenv.doctor.origin import find_origin
from gpuenv.render import doctor as render
from test_doctor_origin import NO_GPU

CASES: dict[str, list[dict[str, Any]]] = tomllib.loads(
    (Path(__file__).parent / "data" / "doctor_advice.toml").read_text()
)


def examined(log: str) -> Examination:
    return gpuenv.examine(io.BytesIO(log.encode()), NO_GPU)


@pytest.mark.parametrize("case", CASES["case"], ids=lambda case: case["name"])
def test_the_fix_says_what_the_facts_mean(case: dict[str, Any]) -> None:
    found = examined(case["log"])
    fix = render.doctor_json(found, causes())["verdicts"][0]["fix"]
    for part in case.get("says", ()):
        assert part in fix
    for part in case.get("never", ()):
        assert part not in fix
    if "command" in case:
        command = shlex.join(found.remedy.command) if found.remedy else ""
        assert command == case["command"]
        assert command in fix


@pytest.mark.parametrize("case", CASES["case"], ids=lambda case: case["name"])
def test_the_answer_is_short(case: dict[str, Any]) -> None:
    found = examined(case["log"])
    short = render.doctor_lines(found, causes(), doctor.TESTS, "the log")
    whole = render.doctor_lines(found, causes(), doctor.TESTS, "the log", verbose=True)
    assert len(short) < len(whole)
    assert short[0] == whole[0]
    assert short[1].startswith("  log line")
    assert any("read on a machine without a GPU" in line for line in short)
    for verdict in found.diagnosis.verdicts[:1]:
        for line in verdict.evidence:  # a long line is cut
            assert any(line[:100] in shown for shown in whole)


@pytest.mark.parametrize("case", CASES["mention"], ids=lambda case: case["line"])
def test_a_gpu_that_is_only_mentioned_is_not_of_the_machine(case: dict[str, Any]) -> None:
    facts = read_log([case["line"]])
    assert [fact for fact in facts if fact.kind == "gpu"]
    assert find_origin(facts, NO_GPU).place == "unknown"
