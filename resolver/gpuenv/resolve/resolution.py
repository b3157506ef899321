"""One resolution: the releases that resolvelib chooses for a set of requirements.

resolvelib makes every choice. Requests with many conflicts need too many rounds of it, so these
steps follow one another until one of them has an answer:

1. Several frameworks: shallow propagation finds the best combination of their releases that is not
   excluded, then resolvelib resolves within it (FEW_ROUNDS).
2. resolvelib resolves the whole request (FEW_ROUNDS).
3. Full propagation finds the combinations of framework releases, best first. resolvelib resolves
   within one after the other (SOME_ROUNDS each).
4. resolvelib resolves the whole request (MANY_ROUNDS).

When the index turns out to have more releases of a name, the resolution begins again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from resolvelib import BaseReporter, ResolutionImpossible, ResolutionTooDeep, Resolver

from ..errors import InputError
from .graph import Cause, Identifier, Node, NodeRequirement, PackageRequirement
from .propagation import TooManyTrialsError, combinations
from .provider import Provider
from .widening import MoreReleasesError

if TYPE_CHECKING:
    from resolvelib.structs import State  # exists for type checkers only

FEW_ROUNDS = 300
SOME_ROUNDS = 2_000
MANY_ROUNDS = 20_000
MAX_TRIALS = 20_000  # of releases, in one propagation
MAX_COMBINATIONS = 50  # of frameworks that resolvelib is given in step 3


class ImpossibleError(Exception):
    """Resolution is impossible. `causes` are those of resolvelib."""

    def __init__(self, causes: Sequence[Cause]) -> None:
        super().__init__(causes)
        self.causes = causes


def resolve(provider: Provider, requirements: Sequence[NodeRequirement]) -> list[Node]:
    """Return one candidate for every node that the requirements reach.

    Raises:
        ImpossibleError: no set of releases meets the requirements.
        InputError: no answer within MANY_ROUNDS.
        PackageIndexError: an index failed.
    """
    roots: list[NodeRequirement] = []
    for requirement in requirements:
        if isinstance(requirement, PackageRequirement):
            roots += requirement.with_base()
        else:
            roots.append(requirement)
    while True:
        try:
            return _resolve_in_steps(provider, roots)
        except MoreReleasesError:
            provider = provider.renewed()


def _resolve_in_steps(provider: Provider, roots: Sequence[NodeRequirement]) -> list[Node]:
    nodes = None
    if len(provider.order) > 1:
        nodes = _resolve_best_combination(provider, roots)
    if nodes is None:
        nodes = _run_resolvelib(provider, roots, FEW_ROUNDS)
    if nodes is None:
        nodes = _resolve_combinations(provider, roots)
    if nodes is None:
        nodes = _run_resolvelib(provider.renewed(), roots, MANY_ROUNDS)
    if nodes is None:
        names = ", ".join(map(str, roots))
        raise InputError(f"no solution found in {MANY_ROUNDS} steps: narrow one of {names}")
    return nodes


def _resolve_best_combination(
    provider: Provider, roots: Sequence[NodeRequirement]
) -> list[Node] | None:
    """Step 1. Return None if it has no answer.

    Raises:
        ImpossibleError: no combination is possible, in a strict resolution. It has no causes: the
            lenient resolution that follows has them.
    """
    remaining = combinations(provider.renewed(), roots, MAX_TRIALS, shallow=True)
    try:
        best = next(remaining, None)
        if best is not None:
            return _run_resolvelib(provider.renewed(best), roots, FEW_ROUNDS)
    except (TooManyTrialsError, ImpossibleError):
        return None
    if not provider.lenient:
        raise ImpossibleError(())
    return None


def _resolve_combinations(
    provider: Provider, roots: Sequence[NodeRequirement]
) -> list[Node] | None:
    """Step 3. Return None if it has no answer.

    Raises:
        ImpossibleError: full propagation excludes every combination.
    """
    remaining = combinations(provider.renewed(), roots, MAX_TRIALS)
    try:
        for _ in range(MAX_COMBINATIONS):
            combination = next(remaining, None)
            if combination is None:
                raise ImpossibleError(provider.causes)
            asked = len(provider.widening.asked)
            try:
                return _run_resolvelib(provider.renewed(combination), roots, SOME_ROUNDS)
            except ImpossibleError:
                # Something that propagation does not see excludes the combination. A name that the
                # live index was asked for now counts: it may exclude further combinations.
                if len(provider.widening.asked) > asked:
                    remaining = combinations(provider.renewed(), roots, MAX_TRIALS)
    except TooManyTrialsError:
        pass
    return None


def _run_resolvelib(
    provider: Provider, roots: Sequence[NodeRequirement], max_rounds: int
) -> list[Node] | None:
    """Return what resolvelib chooses; None if it takes more rounds than `max_rounds`.

    Raises:
        ImpossibleError: resolvelib finds no solution.
    """
    reporter = _LastState()
    try:
        result = Resolver(provider, reporter).resolve(roots, max_rounds=max_rounds)
    except RecursionError:
        # resolvelib 1.2 recurses without end in a circle of packages that it gave up, as pip does.
        return _reachable(provider, roots, reporter.mapping)
    except ResolutionImpossible as error:
        raise ImpossibleError(list(error.causes)) from None
    except ResolutionTooDeep:
        return None
    return list(result.mapping.values())


class _LastState(BaseReporter[NodeRequirement, Node, Identifier]):
    """Keeps the candidates that resolvelib chose in the end."""

    mapping: Mapping[Identifier, Node]

    def ending(self, state: State[NodeRequirement, Node, Identifier]) -> None:
        """Keep the candidates."""
        self.mapping = state.mapping


def _reachable(
    provider: Provider, roots: Iterable[NodeRequirement], chosen: Mapping[Identifier, Node]
) -> list[Node]:
    """Drop candidates that no requirement reaches."""
    reached: set[Identifier] = set()
    waiting = [requirement.identifier for requirement in roots]
    while waiting:
        node = waiting.pop()
        if node in reached:
            continue
        reached.add(node)
        dependencies = provider.get_dependencies(chosen[node])
        waiting.extend(requirement.identifier for requirement in dependencies)
    return [candidate for node, candidate in chosen.items() if node in reached]
