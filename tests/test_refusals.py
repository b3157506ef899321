"""Every reason of a refusal, word for word: in a made-up universe and for real frameworks."""

import pytest

import gpuenv
from gpuenv.errors import NoSolutionError, Reason
from gpuenv.model import IndexOptions, Request
from gpuenv.render.refusals import reason_lines
from gpuenv.render.values import reasons_json
from tables import cases, data_file, each
from test_resolution import solved
from test_solve import host_of

TABLES = data_file("tables/refusals.json")

CONTENT = data_file("refusals.json")


def reasons_of(error):
    rows = reasons_json(error.explanation.reasons)
    return [[row["code"], row["subject"], row["need"], row["have"]] for row in rows]


@cases(CONTENT["cases"])
def test_a_refusal_has_all_reasons(case):
    with pytest.raises(NoSolutionError) as refusal:
        solved({"packages": CONTENT["packages"], "target": {"python": "3.12.4"}, **case})
    assert reasons_of(refusal.value) == case["reasons"]


@cases(CONTENT["frameworks"])
def test_a_refusal_of_frameworks_has_all_reasons(case):
    request = Request(frameworks=tuple(case["frameworks"]), requirements=tuple(case["requires"]))
    with pytest.raises(NoSolutionError) as refusal:
        gpuenv.solve(request, host_of(case), IndexOptions(offline=True), changes=False)
    assert reasons_of(refusal.value) == case["reasons"]


@each("versions have", TABLES["a_missing_version_is_told_with_those_that_exist"])
def test_a_missing_version_is_told_with_those_that_exist(versions, have):
    packages = {"a": {version: {} for version in versions}}
    with pytest.raises(NoSolutionError) as refused:
        solved({"packages": packages, "requires": ["a>9"]})
    [reason] = refused.value.explanation.reasons
    assert (reason.code, reason.need, reason.have) == ("no-version", "a>9", have)


def test_the_releases_that_have_one_requirement_are_named_together():
    need = "a wheel"
    dependents = ["a 3", "a 2", "a 1", "b 2", "b 1"]
    reasons = []
    for dependent in dependents:
        one = Reason(
            code="only-sdist", subject="c>1", need=need, have="only sdists", dependent=dependent
        )
        reasons.append(one)
    text = " ".join(" ".join(reason_lines(reasons, 25)).split())
    names = "a 3 and 2 others down to 1, b 2 and 1"
    assert text == f"c>1 needs {need}, for {names}; found only sdists"
