"""One resolution: the releases that resolvelib chooses for a set of requirements.

resolvelib stops at the first conflict. The next run begins again and avoids the nogood that the
conflict taught. Every conflict yields a new one, so this ends: with a solution, or with a nogood
without releases, which proves that there is none. The proof does not cover pre-releases, yanked
releases and URLs that only the requirement of a release would admit: as in pip, they are candidates
only if that release is decided first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from resolvelib import ResolutionImpossible
from resolvelib.resolvers import Resolution

from .. import activity
from ..errors import UnfinishedError
from .graph import Cause, Identifier, Node, NodeRequirement, PackageRequirement
from .learning import ConflictError, Pins
from .provider import Provider
from .reporter import ConflictReporter
from .widening import MoreReleasesError

if TYPE_CHECKING:
    from resolvelib.providers import Preference
    from resolvelib.resolvers.criterion import Criterion

    _Criterion = Criterion[NodeRequirement, Node]

MAX_CONFLICTS = 20_000
PATIENCE = 50  # conflicts after which each requirement of the request is tried alone
_MAX_ROUNDS = 1_000_000  # resolvelib requires a limit; conflicts end a resolution long before


class _Resolution(Resolution[NodeRequirement, Node, Identifier]):
    """A resolution that looks at a node again only if the requirements on it have changed.

    resolvelib checks every pin twice in every round, and sorts all open nodes in every round. Each
    change of the requirements on a node makes a new criterion. The answers are those of resolvelib:
    a release of resolvelib without these methods needs more time and finds the same.
    """

    def __init__(self, provider: Provider, reporter: ConflictReporter) -> None:
        super().__init__(provider, reporter)
        self._satisfied: dict[_Criterion, Node] = {}
        self._preferences: dict[_Criterion, Preference] = {}

    def _is_current_pin_satisfying(self, name: Identifier, criterion: _Criterion) -> bool:
        pin = self.state.mapping.get(name)
        if pin is None:
            return False
        if self._satisfied.get(criterion) is pin:
            return True
        if not super()._is_current_pin_satisfying(name, criterion):
            return False
        self._satisfied[criterion] = pin
        return True

    def _get_preference(self, name: Identifier) -> Preference:
        criterion = self.state.criteria[name]
        if criterion not in self._preferences:
            self._preferences[criterion] = super()._get_preference(name)
        return self._preferences[criterion]


class ImpossibleError(Exception):
    """Resolution is impossible. `causes` are those of resolvelib."""

    def __init__(self, causes: Sequence[Cause]) -> None:
        super().__init__(causes)
        self.causes = causes


def resolve(provider: Provider, requirements: Sequence[NodeRequirement]) -> list[Node]:
    """Return one candidate for every node that the requirements reach.

    When the index turns out to have more releases of a name, the resolution begins again.

    Raises:
        ImpossibleError: it is proven that no set of releases meets the requirements.
        UnfinishedError: no answer after MAX_CONFLICTS.
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
            return _resolve(provider, roots)
        except MoreReleasesError:
            provider.start_over()


def _resolve(provider: Provider, roots: Sequence[NodeRequirement]) -> list[Node]:
    """Run resolvelib again after every conflict, with what the conflict taught."""
    provider.note_request(roots)
    for conflicts in range(MAX_CONFLICTS):
        activity.current.conflicts = conflicts
        if conflicts == PATIENCE:
            _try_each_alone(provider, roots)
        try:
            return _run_resolvelib(provider, roots)
        except ConflictError as conflict:
            if not conflict.releases:
                raise ImpossibleError(provider.full_causes(conflict.causes)) from None
            provider.learn(conflict)
    names = ", ".join(map(str, roots))
    raise UnfinishedError(
        f"no answer after {MAX_CONFLICTS} conflicts for {names}",
        hint="limit the versions of one of them, such as NAME>=VERSION, and solve again",
    )


def _try_each_alone(provider: Provider, roots: Sequence[NodeRequirement]) -> None:
    """Try each requirement alone: one that is impossible alone makes the request impossible.

    Together with others, its conflict is met again and again, with each release that they choose.
    What a requirement teaches alone holds for the request, too.

    Raises:
        ImpossibleError: a requirement is impossible alone.
    """
    for root in roots:
        for _ in range(PATIENCE):
            try:
                _run_resolvelib(provider, [root])
                break
            except ConflictError as conflict:
                if not conflict.releases:
                    raise ImpossibleError(provider.full_causes(conflict.causes)) from None
                provider.learn(conflict)


def _run_resolvelib(provider: Provider, roots: Sequence[NodeRequirement]) -> list[Node]:
    """Return what resolvelib chooses without a conflict.

    resolvelib's Resolver would go on to build a graph of the result, by a recursion that does not
    end for some circles of packages.

    Raises:
        ConflictError: the first conflict.
        ImpossibleError: the requirements themselves exclude each other.
    """
    provider.pins = Pins()
    try:
        _Resolution(provider, ConflictReporter(provider)).resolve(roots, max_rounds=_MAX_ROUNDS)
    except ResolutionImpossible as error:
        raise ImpossibleError(provider.full_causes(list(error.causes))) from None
    return list(provider.pins.chosen.values())
