"""The fix explains numbers and symbols, and names the command of the new solve."""

import io
import json
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest

import gpuenv
from gpuenv import doctor
from gpuenv.doctor.catalog import causes, cuda_of_ptx, driver_floor, library_owner, toolkit_driver
from gpuenv.doctor.diagnosis import Examination
from gpuenv.doctor.log_reader import read_log
from gpuenv.doctor.origin import find_origin
from gpuenv.render import doctor as render
from test_doctor_origin import NO_GPU

ROOT = Path(__file__).resolve().parents[1]
CASES: dict[str, list[dict[str, Any]]] = tomllib.loads(
    (Path(__file__).parent / "data" / "doctor_advice.toml").read_text()
)
SCANS = sorted((ROOT / "matrix_data" / "scans").glob("nvidia-*.json"))


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


def test_the_owners_of_libraries_are_those_of_the_scanned_wheels() -> None:
    compared = 0
    for path in SCANS:
        document = json.loads(path.read_text())
        package = document["distribution"]
        files = {owned.rpartition("/")[2] for scan in document["scans"] for owned in scan["owns"]}
        for file in files:
            owner = library_owner(file)
            if owner is not None:
                compared += 1
                assert package in owner.packages, (file, package, owner)
    assert compared > 20


def test_numbers_have_names() -> None:
    assert library_owner("libcufft.so.12") is not None
    assert library_owner("libcufft.so.99") is None
    assert library_owner("libz.so.1") is None
    assert cuda_of_ptx("8.5") == "12.5"
    assert cuda_of_ptx("99.9") == ""
    assert re.match(r"555\.", toolkit_driver("12.5"))
    assert toolkit_driver("99.9") == ""
    assert (driver_floor("12"), driver_floor("99")) == ("525.60.13", "")
