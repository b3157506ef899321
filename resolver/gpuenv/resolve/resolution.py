"""One resolution: the releases that resolvelib chooses for a set of requirements.

A conflict teaches a nogood. The resolution goes back to the state before the last pin that is to
blame, and avoids the nogood from there on. Every conflict yields a new one, so this ends: with a
solution, or with a nogood without releases, which proves that there is none. The proof does not
cover pre-releases, yanked releases and URLs that only the requirement of a release would admit: as
in pip, they are candidates only if that release is decided first.

resolvelib's own backtracking is not used. It jumps over choices that still matter, and then calls a
request impossible that has a solution.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from resolvelib import BaseReporter, ResolutionImpossible
from resolvelib.resolvers import Resolution
from resolvelib.resolvers.criterion import Criterion
from resolvelib.structs import build_iter_view

from .. import activity
from ..errors import UnfinishedError
from .graph import (
    Candidate,
    Cause,
    Identifier,
    Node,
    NodeRequirement,
    NogoodRequirement,
    PackageId,
    PackageRequirement,
    Variant,
)
from .learning import ConflictError, Pins
from .provider import Provider
from .widening import MoreReleasesError

if TYPE_CHECKING:
    from resolvelib.providers import Preference
    from resolvelib.structs import RequirementInformation, State

_Criterion = Criterion[NodeRequirement, Node]

MAX_CONFLICTS = 20_000
MAX_TRIAL_CONFLICTS = 300  # of a part of a request: each can need the metadata of a further release
PATIENCE = 50  # conflicts after which each requirement of the request is tried alone
_MAX_ROUNDS = 1_000_000_000  # resolvelib requires a limit; MAX_CONFLICTS is met long before


class _Resolution(Resolution[NodeRequirement, Node, Identifier]):
    """A resolution that learns from conflicts (see the module).

    It checks and sorts a node again only if the requirements on it have changed; each change makes
    a new criterion. resolvelib checks every pin twice in every round, and sorts all open nodes in
    every round, with the same results.
    """

    def __init__(self, provider: Provider, lessons: _Lessons) -> None:
        self._reporter = ConflictReporter(provider)
        super().__init__(provider, self._reporter)
        self._provider, self._lessons = provider, lessons
        self._satisfied_by: dict[_Criterion, Node] = {}
        self._preferences: dict[Identifier, tuple[_Criterion, Preference]] = {}

    def _is_current_pin_satisfying(self, name: Identifier, criterion: _Criterion) -> bool:
        pin = self._states[-1].mapping.get(name)
        if pin is None:
            return False
        if self._satisfied_by.get(criterion) is pin:
            return True
        if not super()._is_current_pin_satisfying(name, criterion):
            return False
        self._satisfied_by[criterion] = pin
        return True

    def _get_preference(self, name: Identifier) -> Preference:
        criterion = self.state.criteria[name]
        known = self._preferences.get(name)
        if known is None or known[0] is not criterion:
            known = self._preferences[name] = criterion, super()._get_preference(name)
        return known[1]

    def _backjump(self, causes: list[RequirementInformation[NodeRequirement, Node]]) -> bool:
        """Learn from the conflict that the reporter has noted, and go back."""
        conflict = self._reporter.conflict
        if self._lessons.learn(conflict):
            self._preferences.clear()
            kept = 1
        else:
            kept = self._count_unaffected(conflict.releases)
        del self._states[kept:]
        self._push_new_state()
        self._provider.pins = Pins(self.state.mapping)
        return True

    def _count_unaffected(self, nogood: Collection[Node]) -> int:
        """Return how many states a nogood does not change.

        The states are: that of the request, one after each pin, and the present one. Those remain
        that precede the last pin of the nogood. They also precede every pin that replaced others:
        the number of replacements begins at zero again.
        """
        for number, state in enumerate(self._states[1:-1], 1):
            if len(state.mapping) < number:
                return number - 1
            if all(state.mapping.get(release.identifier) is release for release in nogood):
                return number
        return max(1, len(self._states) - 2)


class ImpossibleError(Exception):
    """Resolution is impossible.

    Attributes:
        node: the node of a requirement of the request, of which no candidate can be chosen.
        causes: why, as the causes of resolvelib (see Provider.full_causes).
    """

    def __init__(self, node: Identifier, causes: Sequence[Cause]) -> None:
        super().__init__(node, causes)
        self.node = node
        self.causes = causes


def resolve(
    provider: Provider, requirements: Sequence[NodeRequirement], max_conflicts: int = MAX_CONFLICTS
) -> list[Node]:
    """Return one candidate for every node that the requirements reach.

    When the index turns out to have more releases of a name, the resolution begins again.

    Raises:
        ImpossibleError: it is proven that no set of releases meets the requirements.
        UnfinishedError: no answer after `max_conflicts`.
        PackageIndexError: an index failed.
    """
    roots: list[NodeRequirement] = []
    for requirement in requirements:
        if isinstance(requirement, PackageRequirement):
            roots += requirement.with_base()
        else:
            roots.append(requirement)
    activity.current.conflicts = 0
    while True:
        try:
            provider.note_request(roots)
            return _resolve(provider, roots, max_conflicts)
        except MoreReleasesError:
            provider.start_over()


def _resolve(
    provider: Provider, roots: Sequence[NodeRequirement], max_conflicts: int
) -> list[Node]:
    """Return what resolvelib chooses, in the order of the decisions.

    resolvelib's Resolver would go on to build a graph of the result, by a recursion that does not
    end for some circles of packages.

    Raises:
        ImpossibleError, UnfinishedError, PackageIndexError: see `resolve`.
    """
    lessons = _Lessons(provider, roots, max_conflicts)
    while True:
        provider.pins = Pins()
        try:
            _Resolution(provider, lessons).resolve(roots, max_rounds=_MAX_ROUNDS)
            return list(provider.pins.chosen.values())
        except ResolutionImpossible as error:  # the requirements themselves exclude each other
            causes = list(error.causes)
            node = causes[0].requirement.identifier
            raise ImpossibleError(node, provider.full_causes(causes)) from None
        except ConflictError as conflict:  # see ConflictReporter.ending_round
            lessons.learn(conflict)


class _Lessons:
    """Counts the conflicts of one resolution. The provider learns from each of them."""

    def __init__(
        self, provider: Provider, roots: Sequence[NodeRequirement], max_conflicts: int
    ) -> None:
        self._provider, self._roots, self._max_conflicts = provider, roots, max_conflicts
        self._conflicts = 0

    def learn(self, conflict: ConflictError) -> bool:
        """Learn from a conflict. Return whether the order of decisions changes.

        Raises:
            ImpossibleError: the conflict proves that there is no solution.
            UnfinishedError: there were too many conflicts.
        """
        if not conflict.releases:
            raise ImpossibleError(conflict.node, self._provider.full_causes(conflict.causes))
        self._conflicts += 1
        activity.current.conflicts = self._conflicts
        if self._conflicts == self._max_conflicts:
            names = ", ".join(map(str, self._roots))
            raise UnfinishedError(
                f"no answer after {self._conflicts} conflicts for {names}",
                hint="limit the versions of one of them, such as NAME>=VERSION, and solve again",
            )
        has_new_order = self._provider.learn(conflict)
        if self._conflicts == PATIENCE:
            self._try_each_alone()
            has_new_order = True
        return has_new_order

    def _try_each_alone(self) -> None:
        """Try each requirement alone: one that is impossible alone makes the request impossible.

        Together with others, its conflict is met again and again, with each release that they
        choose. What a requirement teaches alone holds for the request, too.

        Raises:
            ImpossibleError: a requirement is impossible alone.
        """
        for root in self._roots:
            try:
                _resolve(self._provider, [root], PATIENCE)
            except UnfinishedError:
                continue


# ---- what is to blame for a conflict -------------------------------------------------------------


class ConflictReporter(BaseReporter[NodeRequirement, Node, Identifier]):
    """Follows one resolution and finds out what is to blame for its conflicts.

    Attributes:
        conflict: the last conflict.
    """

    conflict: ConflictError

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._criteria: dict[Identifier, _Criterion] = {}
        self._rejected: list[tuple[Node, _Criterion]] = []
        self._replaced: list[Node] = []

    @property
    def _pins(self) -> Pins:
        return self._provider.pins

    # ---- resolvelib

    def starting_round(self, index: int) -> None:
        """Forget the rejections of the last round."""
        self._rejected.clear()

    def rejecting_candidate(self, criterion: _Criterion, candidate: Node) -> None:
        """Note the node that a candidate leaves without a candidate."""
        self._rejected.append((candidate, criterion))
        causes = list(criterion.information)
        if len(causes) == 1:
            self._provider.note_unmet(causes[0].requirement)

    def resolving_conflicts(
        self, causes: Collection[RequirementInformation[NodeRequirement, Node]]
    ) -> None:
        """Note a conflict: every candidate of a node was rejected."""
        rejected = {candidate for candidate, _ in self._rejected}
        node = self._rejected[0][0].identifier
        releases = self._blamed(node, list(self._causes(node)), rejected)
        impossible: dict[Node, Sequence[Cause]] = {}
        for candidate, criterion in self._rejected:
            blamed = self._blamed_for(candidate, criterion)
            releases |= blamed
            if not blamed:
                impossible[candidate] = _original(criterion.information)
        self.conflict = ConflictError(node, frozenset(releases), impossible, _original(causes))

    def pinning(self, candidate: Node) -> None:
        """Note a pin, and the pins that its requirements replace."""
        self._pins.chosen[candidate.identifier] = candidate
        activity.current.decided = len(self._pins.chosen)
        for requirement in self._provider.requirements_of(candidate):
            pin = self._pins.chosen.get(requirement.identifier)
            if pin is not None and not self._provider.is_satisfied_by(requirement, pin):
                self._replaced.append(self._pins.replace(requirement.identifier))

    def ending_round(self, index: int, state: State[NodeRequirement, Node, Identifier]) -> None:
        """Remove what only replaced pins required.

        Raises:
            ConflictError: a node has no candidate without the replaced pins.
        """
        self._criteria = state.criteria
        if self._replaced:
            self._forget_replaced(state)

    # ---- conflicts

    def _causes(self, node: Identifier) -> Iterator[Cause]:
        """Yield the requirements that limit the candidates of a node (see find_matches)."""
        for limited in _with_base(node):
            if limited in self._criteria:
                yield from filter(self._is_present, self._criteria[limited].information)

    def _blamed_for(self, candidate: Node, criterion: _Criterion) -> set[Node]:
        """Return the pins because of which a candidate was rejected."""
        causes: list[Cause] = [*criterion.information]
        requirement = causes[0].requirement
        if isinstance(requirement, NogoodRequirement):
            return set(requirement.releases - {candidate})
        if isinstance(requirement.identifier, PackageId) and requirement.identifier.extras:
            causes += self._causes(PackageId.of(requirement.identifier.name))
        return self._blamed(requirement.identifier, causes, set()) - {candidate}

    def _blamed(self, node: Identifier, causes: list[Cause], rejected: set[Node]) -> set[Node]:
        """Return pins whose requirements leave a node with rejected candidates only.

        Later pins are left out first, so that the earliest pins remain that are to blame. One
        requirement on the node itself remains: without it, nothing needs the node.
        """
        parents = _parents(causes)
        for parent in reversed(self._pins.chosen.values()):
            if parent not in parents:
                continue
            fewer = [cause for cause in causes if cause.parent is not parent]
            is_required = any(cause.requirement.identifier == node for cause in fewer)
            if is_required and rejected.issuperset(self._candidates(node, fewer)):
                causes = fewer
        return _parents(causes)

    def _candidates(self, node: Identifier, causes: Sequence[Cause]) -> Iterator[Node]:
        """Yield the candidates of a node that meet some requirements on it."""
        requirements: dict[Identifier, Iterator[NodeRequirement]] = {
            node: iter([cause.requirement for cause in causes])
        }
        matches = self._provider.find_matches(node, requirements, {})
        yield from matches() if callable(matches) else matches

    # ---- replaced pins

    def _forget_replaced(self, state: State[NodeRequirement, Node, Identifier]) -> None:
        """Remove the nodes that only replaced pins required, and what these pins ruled out.

        resolvelib 1.2 drops the requirements of a replaced pin. But it keeps the candidates that
        they had narrowed, and it chooses packages that nothing requires any more. Pins that were
        the best only because of these requirements are removed, too, and decided again.
        """
        while self._replaced:
            removed = self._replaced
            self._replaced = []
            for pin in removed:
                del state.mapping[pin.identifier]
            removed += self._remove_unreached(state)
            for node in self._limited_nodes(removed, state.criteria):
                self._find_candidates_again(state.criteria, node)
                best = next(iter(state.criteria[node].candidates))
                if self._pins.chosen.get(node, best) is not best:
                    self._replaced.append(self._pins.chosen.pop(node))

    def _remove_unreached(self, state: State[NodeRequirement, Node, Identifier]) -> list[Node]:
        """Remove the nodes that nothing requires any more, and return their pins."""
        reached = self._reached(state.criteria)
        removed = []
        for node in list(state.criteria):
            if node in reached:
                continue
            del state.criteria[node]
            state.mapping.pop(node, None)
            if node in self._pins.chosen:
                removed.append(self._pins.chosen.pop(node))
        return removed

    def _limited_nodes(
        self, pins: Iterable[Node], criteria: Mapping[Identifier, _Criterion]
    ) -> list[Identifier]:
        """Return the nodes whose candidates some pins have limited, those with extras included."""
        required: set[Identifier] = set()
        for pin in pins:
            required |= self._required_nodes(pin)
        return [node for node in criteria if required.intersection(_with_base(node))]

    def _required_nodes(self, pin: Node) -> set[Identifier]:
        requirements = self._provider.requirements_of(pin)
        return {requirement.identifier for requirement in requirements}

    def _reached(self, criteria: Mapping[Identifier, _Criterion]) -> set[Identifier]:
        """Return the nodes that the request and the pins that it reaches require."""
        waiting = []
        for node, criterion in criteria.items():
            if any(cause.parent is None for cause in criterion.information):
                waiting.append(node)
        reached: set[Identifier] = set()
        while waiting:
            node = waiting.pop()
            if node in reached:
                continue
            reached.add(node)
            if node in self._pins.chosen:
                waiting.extend(self._required_nodes(self._pins.chosen[node]))
        return reached

    def _find_candidates_again(
        self, criteria: dict[Identifier, _Criterion], node: Identifier
    ) -> None:
        """Find the candidates of a node by the requirements of present pins alone.

        Raises:
            ConflictError: there is none. A replaced pin had admitted a yanked release.
        """
        causes = list(self._causes(node))
        candidates = build_iter_view(lambda: self._candidates(node, causes))
        if not candidates:
            raise ConflictError(node, frozenset(self._blamed(node, causes, set())), {}, causes)
        information = [cause for cause in criteria[node].information if self._is_present(cause)]
        criteria[node] = Criterion(candidates, information, [])

    def _is_present(self, cause: Cause) -> bool:
        parent = cause.parent
        return parent is None or self._pins.chosen.get(parent.identifier) is parent


def _with_base(node: Identifier) -> Sequence[Identifier]:
    """Return the nodes whose requirements limit a node: itself, and the package of its extras."""
    if isinstance(node, PackageId) and node.extras:
        return node, PackageId.of(node.name)
    return (node,)


def _original(causes: Iterable[Cause]) -> list[Cause]:
    """Return causes with those of a nogood in its place: it is no requirement of a release."""
    original: dict[Cause, None] = {}
    for cause in causes:
        if isinstance(cause.requirement, NogoodRequirement):
            original.update(dict.fromkeys(cause.requirement.causes))
        else:
            original[cause] = None
    return list(original)


def _parents(causes: Iterable[Cause]) -> set[Node]:
    """Return the releases that have these requirements."""
    parents = {cause.parent for cause in causes}
    return {parent for parent in parents if isinstance(parent, (Candidate, Variant))}
