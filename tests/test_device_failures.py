"""Programs that failed, most on a real GPU: what doctor said there, and what it says elsewhere."""

from script_modules import load_script
from tables import ROOT, each, read_data

FOLDER = ROOT / "tests" / "data" / "device_failures"
PROGRAMS = read_data(FOLDER / "programs.toml")["program"]
RECORD = read_data(FOLDER / "record.json")


KNOWN = read_data(ROOT / "docs" / "records" / "doctor.json")["situations"]


def test_every_program_was_run_on_a_device():
    assert RECORD["programs"].keys() == {program["name"] for program in PROGRAMS}
    assert RECORD["host"]["gpus"] and RECORD["host"]["driver"] and RECORD["date"]


def test_logs_are_understood_on_another_machine():
    measured = load_script("prove.doctor")
    results = {report.name: measured.judge(report)[0] for report in measured.situations()}
    wrong = {name for name, result in results.items() if result != "right"}
    assert wrong <= KNOWN["wrong"].keys()


@each("program", PROGRAMS, ids=[program["name"] for program in PROGRAMS])
def test_the_answer_on_the_device_was_right(program):
    assert RECORD["programs"][program["name"]]["here"] in program["here"]


def test_verify_names_code_of_another_architecture_without_a_log():
    verified = {row["step"]: row["document"] for row in RECORD["steps"]}
    assert verified.keys() == {row["name"] for row in PROGRAMS if "verify" in row}
    for document in verified.values():
        [check] = [check for check in document["checks"] if check["status"] == "fail"]
        assert check["name"] == "device code" and "has sm_80" in check["evidence"]
