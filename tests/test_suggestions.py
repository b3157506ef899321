"""The smallest edits of requests that have no solution, in a small universe."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

import gpuenv
from gpuenv.errors import NoSolutionError
from gpuenv.model import Request
from gpuenv.requirements.target import TargetEnvironment
from gpuenv.resolve.solver import solve
from test_resolution import DATA
from universe import Universe

EDITED = tomllib.loads((Path(__file__).parent / "data" / "suggestions.toml").read_text())
NO_GPU = gpuenv.describe(gpus=["none"], python="3.12", platform="linux-x86_64", glibc="2.35")


@pytest.mark.parametrize("case", EDITED["edit"], ids=lambda case: str(case["request"]))
def test_the_smallest_edits_of_a_request(case: dict[str, Any]) -> None:
    request = Request(**{field: tuple(texts) for field, texts in case["request"].items()})
    with pytest.raises(NoSolutionError) as refusal:
        solve(request, NO_GPU, DATA, Universe(EDITED["packages"]), TargetEnvironment)
    found = [[one.change, one.gives] for one in refusal.value.explanation.changes]
    assert found == case["changes"]
