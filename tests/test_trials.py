"""Trials of parts of a request: how many, which are remembered, and the groups that they show."""

from collections.abc import Collection, Sequence

import pytest

from gpuenv.errors import PackageIndexError
from gpuenv.resolve.conflicts import MAX_TRIAL_CONFLICTS, Trials, conflicting_groups
from gpuenv.resolve.graph import (
    Cause,
    FrameworkRequirement,
    Node,
    NodeRequirement,
    PackageId,
    PackageRequirement,
    Token,
)
from gpuenv.resolve.resolution import ImpossibleError
from test_provider import TORCH_ITSELF

PAIRS = ["a b", "a c", "a d", "a e", "b c", "b d", "b e", "c d", "c e", "d e"]
ASKED = {name: PackageRequirement(name, (), "") for name in "abcdefgh"}
ASKED["x"] = PackageRequirement("a", ("x",), "")
ASKED["torch"] = FrameworkRequirement(TORCH_ITSELF, "")


def asked(names: str) -> list[NodeRequirement]:
    return [ASKED[name] for name in names.split()]


def letters(roots: Sequence[NodeRequirement]) -> str:
    names = {str(requirement): name for name, requirement in ASKED.items()}
    return " ".join(names[str(root)] for root in roots)


class Solver:
    """Solves requirements without any of the conflicts; `tried` are the parts that it was asked.

    The proof of a refusal blames the first conflict. With `slow` conflicts or more there is an
    answer only if as many are allowed.
    """

    def __init__(self, *conflicts: str, slow: int = 0) -> None:
        self.conflicts, self.slow = conflicts, slow
        self.tried: list[str] = []

    def attempt(
        self, roots: Sequence[NodeRequirement], sparse: Collection[str], max_conflicts: int
    ) -> list[Node]:
        self.tried.append(letters(roots) + "".join(f" sparse {name}" for name in sparse))
        if max_conflicts < self.slow:
            raise PackageIndexError("no answer")
        for conflict in self.conflicts:
            if set(conflict.split()) <= set(letters(roots).split()):
                first, *others = asked(conflict)
                causes = [Cause(other, None) for other in others]
                raise ImpossibleError(first.identifier, causes)
        return [Token(root.identifier) for root in roots]


def test_each_part_is_tried_once() -> None:
    solver = Solver("a b")
    trials = Trials(solver.attempt, 9)
    for _ in range(2):
        assert isinstance(trials.solve(asked("a b")), ImpossibleError)
        assert isinstance(trials.solve(asked("b a")), ImpossibleError)
        assert [node.identifier for node in trials.nodes(asked("a"))] == [PackageId("a")]
        assert len(trials.nodes(asked("a"), ["lib"])) == 1
        assert trials.nodes(asked("a b")) == []
    assert solver.tried == ["a b", "a", "a sparse lib"]


def test_a_refusal_that_is_noted_is_not_tried() -> None:
    solver = Solver()
    trials = Trials(solver.attempt, 9)
    refusal = ImpossibleError(PackageId("a"), [])
    trials.note(asked("a b"), refusal)
    assert trials.solve(asked("b a")) is refusal and trials.fails(asked("a b"))
    assert solver.tried == []


def test_a_part_of_what_has_a_solution_is_not_tried() -> None:
    solver = Solver("b c")
    trials = Trials(solver.attempt, 9)
    assert not trials.fails(asked("a b")) and not trials.fails(asked("d"))
    assert not trials.fails(asked("a b")) and not trials.fails(asked("b"))
    assert trials.fails(asked("b c"))
    assert solver.tried == ["a b", "d", "b c"]


def test_the_number_of_trials_is_limited() -> None:
    solver = Solver("a", "b", "c", "d")
    trials = Trials(solver.attempt, 2)
    assert [trials.fails(asked(name)) for name in "abcd"] == [True, True, False, False]
    assert trials.solve(asked("d")) is None and trials.nodes(asked("d")) == []
    trials.allow(1)
    assert [trials.fails(asked(name)) for name in "ef"] == [False, False]
    assert solver.tried == ["a", "b", "e"]


def test_an_answer_that_few_conflicts_do_not_give_is_asked_for_again() -> None:
    solver = Solver("a", slow=30)
    trials = Trials(solver.attempt, 9)
    assert trials.solve(asked("a"), max_conflicts=20) is None
    assert trials.fails(asked("a"))
    solver.slow = MAX_TRIAL_CONFLICTS + 1
    assert trials.solve(asked("b")) is None and trials.solve(asked("b")) is None
    assert solver.tried == ["a", "a", "b"]


@pytest.mark.parametrize(
    ("request_text", "conflicts", "groups", "tried"),
    [
        # One requirement alone: nothing else is tried.
        ("a", ["a"], ["a"], []),
        # The pair that is to blame; without it the rest has a solution.
        ("a b c d", ["b d"], ["b d"], ["a c", "b", "d", "a b", "a d", "b c", "b d", "c d"]),
        # Two pairs: the rest without the first one is impossible, too.
        (
            "a b c d e",
            ["b d", "a c"],
            ["a c", "b d"],
            ["a c e", "e", *"abcd", *PAIRS],
        ),
        # Three that no pair explains: each of them counts, the others do not.
        ("a b c d", ["a b c"], ["a b c"], None),
        ("a b c", ["a b c"], ["a b c"], None),
        ("d a e b f c g", ["a b c"], ["a b c"], None),
        # Requirements that fail alone are in no pair.
        ("a b c", ["a", "b c"], ["a", "b c"], None),
        ("a b c", ["a", "a b"], ["a"], None),
        # The extras of a package and the package are one node.
        ("b x c", ["x c"], ["x c"], None),
        # Of more than six possible requirements only pairs with a framework are tried.
        ("a b c d e f", ["a b", "c d"], ["a b", "c d"], None),
        ("a b c d e f g", ["a b", "c d"], ["c d"], None),
        ("a b c d e f torch", ["a torch", "c d"], ["a torch"], None),
        ("a b c d e f g h", ["h", "a b", "c d"], ["h"], None),
        ("a b c d e f g", ["g", "a b", "c d"], ["a b", "c d", "g"], None),
    ],
)
def test_the_smallest_groups(
    request_text: str, conflicts: list[str], groups: list[str], tried: list[str] | None
) -> None:
    solver = Solver(*conflicts)
    trials, roots = Trials(solver.attempt, 60), asked(request_text)
    refusal = trials.solve(roots)
    assert isinstance(refusal, ImpossibleError)
    solver.tried.clear()
    found = conflicting_groups(trials, roots)
    assert sorted(letters(group) for group in found) == groups
    if tried is not None:
        assert [part for part in solver.tried if part] == tried


@pytest.mark.parametrize("allowed", [0, 1, 2])
def test_too_few_trials_show_no_group(allowed: int) -> None:
    """What is not known is no conflict."""
    solver = Solver("a b c")
    trials, roots = Trials(solver.attempt, allowed), asked("a b c")
    assert conflicting_groups(trials, roots) == ([tuple(roots)] if allowed else [])


def test_one_requirement_without_an_answer_is_no_group() -> None:
    solver = Solver(slow=MAX_TRIAL_CONFLICTS + 1)
    assert conflicting_groups(Trials(solver.attempt, 9), asked("a")) == []
    assert solver.tried == ["a"]


class PartlyBlaming(Solver):
    """A solver whose proofs name only the first two members of a conflict."""

    def attempt(
        self, roots: Sequence[NodeRequirement], sparse: Collection[str], max_conflicts: int
    ) -> list[Node]:
        try:
            return super().attempt(roots, sparse, max_conflicts)
        except ImpossibleError as error:
            raise ImpossibleError(error.node, list(error.causes)[:1]) from None


@pytest.mark.parametrize(
    ("request_text", "conflict"), [("a b c d", "a b c"), ("d c b a", "a c d"), ("a b c", "a b c")]
)
def test_a_group_is_found_although_the_proof_blames_a_part_of_it(
    request_text: str, conflict: str
) -> None:
    trials = Trials(PartlyBlaming(conflict).attempt, 30)
    [group] = conflicting_groups(trials, asked(request_text))
    assert set(letters(group).split()) == set(conflict.split())
