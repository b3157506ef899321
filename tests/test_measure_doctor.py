"""scripts/measure_doctor.py judges answers, and alters reports as people do."""

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "docs" / "records" / "doctor.json"
RESULTS = ("right", "wrong", "abstained", "all-clear")


@pytest.fixture(scope="module")
def measure_doctor() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        return importlib.import_module("measure_doctor")


def test_the_altered_forms(measure_doctor: ModuleType) -> None:
    forms = {form: change("a 'b' c\nd" * 20) for form, change in measure_doctor.FORMS.items()}
    unbroken = [form for form in forms if forms[form] == forms["as it is"]]
    assert len(unbroken) == 5  # no line is longer than 80 columns
    assert len(set(forms.values())) == len(forms) - 4
    assert (
        max(map(len, measure_doctor.FORMS["terminal of 80 columns"]("x" * 300).split("\n"))) == 80
    )
    assert forms["8 ranks"].count("\n") == 8 * forms["as it is"].count("\n") + 7
    assert forms["noise"].count("\n") == 3000 + forms["as it is"].count("\n")


def test_the_record_holds_what_the_script_measures(measure_doctor: ModuleType) -> None:
    for measured in json.loads(RECORD.read_text())["sets"].values():
        assert measured["forms"].keys() == measure_doctor.FORMS.keys()
        for counts in measured["forms"].values():
            assert sum(counts[result] for result in RESULTS) == measured["reports"]
