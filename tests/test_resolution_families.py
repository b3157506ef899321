"""Resolution of generated requirement sets (GPUENV_TEST_EXAMPLES=1000 tries many)."""

import random

import pytest

from complete_search import Search, UndecidedError
from examples import examples
from families import FAMILIES, RequirementSet, requirement_set
from gpuenv.errors import NoSolutionError, UnfinishedError
from gpuenv.model import Request
from gpuenv.requirements.target import TargetEnvironment
from gpuenv.resolve import solver
from gpuenv.resolve.resolution import LearningResolver
from tables import each
from test_resolution import DATA
from test_resolution_laws import HOST
from universe import Universe

SEED = 5
SETS = examples(2)  # of each family
STEPS = 5_000


def solve(made, *, shuffled=False):
    requires, constraints = list(made.requires), list(made.constraints)
    if shuffled:
        chance = random.Random(SEED)  # noqa: S311  no secret
        chance.shuffle(requires)
        chance.shuffle(constraints)
    request = Request(requirements=tuple(requires), constraints=tuple(constraints))
    try:
        return solver.solve(
            request, HOST, DATA, Universe(made.packages), TargetEnvironment, changes=False
        )
    except NoSolutionError as error:
        reasons = error.explanation.reasons
        assert reasons, "a refusal has a reason"
        assert not any("not together" in reason.need + reason.have for reason in reasons)
        return None


def is_possible(made):
    """Return whether a solution is known, or found without unusual releases in a few steps."""
    if made.solution is not None:
        return True
    search = Search(made.packages, made.requires, made.constraints)
    try:
        return search.without_exceptions().is_possible(STEPS)
    except UndecidedError:
        return False


@each("family", [*FAMILIES])
def test_answers_are_right_and_do_not_depend_on_the_order(family):
    for number in range(SETS):
        made = requirement_set(family, SEED, number)
        plan, other = solve(made), solve(made, shuffled=True)
        if plan is None or other is None:
            assert plan is other
            assert not is_possible(made), f"set {number} has a solution"
            continue
        assert plan.pins == other.pins, f"set {number}"
        faults = Search(made.packages, made.requires, made.constraints).faults(plan.versions)
        assert faults == [], f"set {number}"


def test_two_files_of_one_name_at_different_urls():
    file = "a-1.0-py3-none-any.whl"
    made = RequirementSet(
        packages={
            "a": {"1.0": {}},
            "p": {
                "1.0": {"requires": [f"a[x] @ https://one.test/{file}"]},
                "2.0": {"requires": [f"a[x] @ https://two.test/{file}", "q"]},
            },
            "q": {"1.0": {"requires": ["p<2"]}},
        },
        requires=["p"],
    )
    plan = solve(made)
    assert plan.versions == {"a": "1.0", "p": "1.0"}
    assert plan.pins[0].wheel.url == f"https://one.test/{file}"


def test_a_search_that_is_given_up_is_no_refusal(monkeypatch):
    whole = LearningResolver.resolve
    monkeypatch.setattr(LearningResolver, "resolve", lambda self, roots, _: whole(self, roots, 3))
    with pytest.raises(UnfinishedError, match="no answer after 3 conflicts"):
        solve(requirement_set("lockstep", SEED, 1))
