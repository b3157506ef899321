"""Every reason of a refusal, word for word: the requests of data/refusals.json in one made universe."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuenv.errors import NoSolutionError
from test_resolution import solved

CONTENT = json.loads((Path(__file__).parent / "data" / "refusals.json").read_text())


@pytest.mark.parametrize("case", CONTENT["cases"], ids=lambda case: case["name"])
def test_a_refusal_has_all_reasons(case: dict[str, Any]) -> None:
    with pytest.raises(NoSolutionError) as refusal:
        solved({"packages": CONTENT["packages"], "target": {"python": "3.12.4"}, **case})
    reasons = refusal.value.explanation.reasons
    found = [[one.code, one.subject, one.need, one.have] for one in reasons]
    assert found == case["reasons"]
