"""The resolution: one candidate for each node, by a search that learns from its conflicts.

The search implements resolvelib's AbstractResolver. resolvelib's own Resolver is not used: it jumps
back over choices that still matter, and then calls a request impossible that has a solution.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter, methodcaller
from typing import Any

from resolvelib import BaseReporter
from resolvelib.resolvers import (
    AbstractResolver,
    Criterion,
    RequirementsConflicted,
    ResolutionImpossible,
    Result,
)
from resolvelib.structs import DirectedGraph, IteratorMapping, State, build_iter_view

from ..errors import UnfinishedError
from .graph import Cause, Identifier, Node, NodeRequirement, PackageRequirement, without_extras
from .provider import Provider

_Criterion = Criterion[NodeRequirement, Node]
_Criteria = dict[Identifier, _Criterion]
_State = State[NodeRequirement, Node, Identifier]
Reporter = BaseReporter[NodeRequirement, Node, Identifier]

MAX_CONFLICTS = 20_000
PATIENCE = 50  # conflicts after which each requirement of the request is tried alone
# How often a pin may give way to a requirement that comes later. Further ones are conflicts, or two
# packages that exclude each other's releases could replace each other for ever.
_MAX_REPLACEMENTS = 3


class ImpossibleError(ResolutionImpossible[NodeRequirement, Node]):
    """It is proven that no set of candidates meets the requirements.

    Attributes:
        node: the node of a requirement of the request, of which no candidate can be chosen.
        causes: why, down to requirements that nothing meets (see LearningResolver.proof).
    """

    def __init__(self, node: Identifier, causes: Sequence[Cause]) -> None:
        super().__init__(causes)
        self.causes: Sequence[Cause] = causes
        self.node = node


class _RejectedError(Exception):
    """A candidate cannot be pinned.

    Attributes:
        causes: the requirements because of which.
        blamed: the pins because of which. None: those that have the requirements.
    """

    def __init__(self, causes: Sequence[Cause], blamed: AbstractSet[Node] | None = None) -> None:
        super().__init__(causes)
        self.causes = causes
        self.blamed = blamed


class _ConflictError(Exception):
    """No candidate of a node can be pinned.

    Attributes:
        node: the node.
        nogood: the pins that are to blame: they cannot be chosen together.
        causes: the requirements that exclude each other.
        impossible: the candidates that cannot be chosen whatever else is chosen, and why.
    """

    def __init__(
        self,
        node: Identifier,
        nogood: AbstractSet[Node],
        causes: Sequence[Cause],
        impossible: Mapping[Node, Sequence[Cause]],
    ) -> None:
        super().__init__(node)
        self.node = node
        self.nogood = nogood
        self.causes = causes
        self.impossible = impossible


class LearningResolver(AbstractResolver[NodeRequirement, Node, Identifier]):
    """Conflict-driven search with nogoods, for those who know PubGrub or a SAT solver.

    - A decision is a pin: the best candidate of the open node that the provider prefers. The trail
      has the state after each pin: the pins, and for each node its criterion, that is the
      requirements on it and the candidates that meet them.
    - Propagation: a pin adds its requirements to the criteria. A candidate is rejected if a
      criterion has no candidates then, or if a nogood would be violated.
    - A conflict is an open node of which all candidates are rejected.
    - Analysis: the pins whose requirements led to the rejections are to blame. Pins are left out of
      this set, the latest first, as long as the rest explains the conflict.
    - Learning: the pins that remain are a nogood (an incompatibility in PubGrub): they are never
      chosen together again. It names releases, not ranges. A nogood of one release excludes it.
    - Backjump: the search goes back to the state before the last pin of the nogood.
    - Every conflict yields a new nogood, so the search ends: with a solution, or with an empty
      nogood, which proves that there is none.

    The proof does not cover pre-releases, yanked releases and URLs that only the requirement of a
    release would admit: as in pip, they are candidates only if that release is decided first.

    One rule is not PubGrub's. A pin can give way to a requirement that comes later, with all that
    only it required; its node is then decided again. So the newest release of a dependency is not
    chosen at the cost of a newer release of what the user asked for.
    """

    provider: Provider

    def __init__(self, provider: Provider, reporter: Reporter) -> None:
        super().__init__(provider, reporter)
        self._excluded: dict[Identifier, dict[Node, Sequence[Cause]]] = {}
        self._nogoods: dict[Node, list[tuple[AbstractSet[Node], Sequence[Cause]]]] = {}
        self._unmet: set[str] = set()  # packages and ranges: no release can be chosen

    def resolve(
        self,
        requirements: Iterable[NodeRequirement],
        max_conflicts: int = MAX_CONFLICTS,
        **_options: Any,
    ) -> Result[NodeRequirement, Node, Identifier]:
        """Return one candidate for every node that the requirements reach.

        Raises:
            ImpossibleError: it is proven that no set of releases meets the requirements.
            UnfinishedError: no answer after `max_conflicts`.
            PackageIndexError, MoreReleasesError: see Provider.find_matches.
        """
        roots = list(requirements)
        trail = [self._request(roots)]
        conflicts = 0
        replacements: Counter[Identifier] = Counter()
        while True:
            state = trail[-1]
            open_nodes = [node for node in state.criteria if node not in state.mapping]
            if not open_nodes:
                return _result(state)
            try:
                node = self._preferred(open_nodes, state)
                trail.append(self._decide(node, state, replacements))
                self.reporter.ending_round(len(trail), trail[-1])
                continue
            except _ConflictError as error:
                conflict = error
            if not conflict.nogood:
                raise ImpossibleError(conflict.node, self.proof(conflict.causes))
            conflicts += 1
            self.reporter.resolving_conflicts(conflict.causes)
            if conflicts == max_conflicts:
                names = ", ".join(map(str, roots))
                raise UnfinishedError(
                    f"no answer after {conflicts} conflicts for {names}",
                    hint="limit the versions of one of them, such as NAME>=VERSION, and solve "
                    "again",
                )
            is_new_order = self._learn(conflict)
            if conflicts == PATIENCE:
                self._try_each_alone(roots)
                is_new_order = True
            kept = 1 if is_new_order else _count_unaffected(trail, conflict.nogood)
            del trail[kept:]
            replacements.clear()

    def why_excluded(self, release: Node) -> Sequence[Cause]:
        """Return the requirements because of which a release can never be chosen; () if it can."""
        return self._excluded.get(release.identifier, {}).get(release, ())

    def proof(self, causes: Sequence[Cause]) -> list[Cause]:
        """Return the causes of a conflict, preceded by why its best candidate is impossible.

        That is: the requirement of the best candidate, why the best release for it is excluded, and
        so on, down to a requirement that no release meets.
        """
        chain: list[Cause] = []
        step = causes[:1]
        while step and step[0] not in chain:
            chain += step
            requirement = step[0].requirement
            step = ()
            if isinstance(requirement, PackageRequirement):
                matches = self.provider.admitted(requirement)
                step = self.why_excluded(matches[0]) if matches else ()
        return [*chain, *(cause for cause in causes if cause not in chain)]

    # ---- decisions and propagation

    def _request(self, roots: Sequence[NodeRequirement]) -> _State:
        """Return the state before the first decision."""
        state: _State = State({}, {}, [])
        for root in roots:
            try:
                self._add(state.criteria, root, None)
            except RequirementsConflicted as error:
                causes = list(error.criterion.information)
                raise ImpossibleError(root.identifier, self.proof(causes)) from None
        return state

    def _preferred(self, open_nodes: Sequence[Identifier], state: _State) -> Identifier:
        """Return the node to decide next."""
        candidates = IteratorMapping(state.criteria, attrgetter("candidates"))
        information = IteratorMapping(state.criteria, attrgetter("information"))
        narrowed = self.provider.narrow_requirement_selection(
            open_nodes, state.mapping, candidates, information, ()
        )
        return min(
            narrowed,
            key=lambda node: self.provider.get_preference(
                node, state.mapping, candidates, information, ()
            ),
        )

    def _decide(self, node: Identifier, state: _State, replacements: Counter[Identifier]) -> _State:
        """Return the state with the first candidate of a node that can be pinned.

        Raises:
            _ConflictError: there is none.
        """
        rejected: dict[Node, _RejectedError] = {}
        for candidate in state.criteria[node].candidates:
            try:
                return self._pin(candidate, state, replacements)
            except _RejectedError as error:
                rejected[candidate] = error
        nogood = self._blamed(node, self._limits(node, state), rejected.keys(), state)
        impossible: dict[Node, Sequence[Cause]] = {}
        causes: dict[Cause, None] = {}  # in order, each once
        for candidate, rejection in rejected.items():
            causes.update(dict.fromkeys(rejection.causes))
            blamed = rejection.blamed
            if blamed is None:
                empty = rejection.causes[0].requirement.identifier
                limits = [*rejection.causes]
                if without_extras(empty) != empty:
                    limits += self._limits(without_extras(empty), state)
                blamed = self._blamed(empty, limits, frozenset(), state) - {candidate}
            if not blamed:
                impossible[candidate] = rejection.causes
            nogood |= blamed
        raise _ConflictError(node, nogood, list(causes), impossible)

    def _pin(self, candidate: Node, state: _State, replacements: Counter[Identifier]) -> _State:
        """Return the state with a candidate.

        Raises:
            _RejectedError: it cannot be chosen with the pins.
            _ConflictError: see _take_back.
        """
        self._check(candidate, state, replacements)
        requirements = self.provider.get_dependencies(candidate)
        criteria = dict(state.criteria)
        for requirement in requirements:
            try:
                self._add(criteria, requirement, candidate)
            except RequirementsConflicted as error:
                causes = list(error.criterion.information)
                if len(causes) == 1 and _is_range(requirement):
                    self._unmet.add(str(requirement))
                raise _RejectedError(causes) from None
        pinned = _State({**state.mapping, candidate.identifier: candidate}, criteria, [])
        self.reporter.pinning(candidate)
        replaced = []
        for requirement in requirements:
            pin = pinned.mapping.get(requirement.identifier)
            if pin is not None and not self.provider.is_satisfied_by(requirement, pin):
                replacements[requirement.identifier] += 1
                replaced.append(pinned.mapping.pop(requirement.identifier))
        if replaced:
            self._take_back(replaced, pinned)
        return pinned

    def _check(
        self, candidate: Node, state: _State, replacements: Mapping[Identifier, int]
    ) -> None:
        """Compare a candidate with what was learned, and its requirements with the pins.

        Raises:
            _RejectedError: it cannot be chosen with the pins.
        """
        pins = state.mapping
        if self.why_excluded(candidate):  # learned since the candidates of its node were found
            raise _RejectedError(self.why_excluded(candidate), frozenset())
        for nogood, causes in self._nogoods.get(candidate, ()):
            others = nogood - {candidate}
            if all(pins.get(other.identifier) is other for other in others):
                raise _RejectedError(causes, others)
        for requirement in self.provider.get_dependencies(candidate):
            if str(requirement) in self._unmet:
                raise _RejectedError([Cause(requirement, candidate)], frozenset())
            node = requirement.identifier
            pin = pins.get(node)
            if pin is None or self.provider.is_satisfied_by(requirement, pin):
                continue
            may_give_way = self.provider.may_give_way(node, candidate.identifier)
            if not may_give_way or replacements[node] == _MAX_REPLACEMENTS:
                raise _RejectedError([Cause(requirement, candidate)], {pin})

    def _add(self, criteria: _Criteria, requirement: NodeRequirement, parent: Node | None) -> None:
        """Add a requirement to the criterion of its node.

        Raises:
            RequirementsConflicted: the node has no candidates then.
        """
        self.reporter.adding_requirement(requirement, parent)
        node = requirement.identifier
        known = criteria[node].information if node in criteria else ()
        requirements = IteratorMapping(
            criteria, methodcaller("iter_requirement"), {node: [requirement]}
        )
        candidates = self._candidates(node, requirements)
        criterion = _Criterion(candidates, [*known, Cause(requirement, parent)], ())
        if not candidates:
            raise RequirementsConflicted(criterion)
        criteria[node] = criterion

    def _candidates(
        self, node: Identifier, requirements: Mapping[Identifier, Iterator[NodeRequirement]]
    ) -> Iterable[Node]:
        excluded = IteratorMapping(self._excluded, iter)
        return build_iter_view(self.provider.find_matches(node, requirements, excluded))

    # ---- pins that give way

    def _take_back(self, removed: list[Node], state: _State) -> None:
        """Take back all that depends on removed pins, and what they ruled out.

        These are the nodes that nothing requires any more, and pins that were the best only because
        of the requirements of such nodes. The latter are decided again.

        Raises:
            _ConflictError: a node has no candidate any more: a removed pin had admitted a yanked
                release.
        """
        mapping, criteria = state.mapping, state.criteria
        while removed:
            reached = self._reached(state)
            for node in [node for node in criteria if node not in reached]:
                del criteria[node]
                if node in mapping:
                    removed.append(mapping.pop(node))
            limited = set()
            for pin in removed:
                for requirement in self.provider.get_dependencies(pin):
                    limited.add(requirement.identifier)
            removed = []
            for node in criteria:
                if limited.isdisjoint((node, without_extras(node))):
                    continue
                limits = self._limits(node, state)
                candidates = self._candidates(
                    node, {node: iter([limit.requirement for limit in limits])}
                )
                if not candidates:
                    nogood = self._blamed(node, limits, frozenset(), state)
                    raise _ConflictError(node, nogood, limits, {})
                kept = [cause for cause in limits if cause.requirement.identifier == node]
                criteria[node] = _Criterion(candidates, kept, ())
                if node in mapping and next(iter(candidates)) is not mapping[node]:
                    removed.append(mapping.pop(node))

    def _reached(self, state: _State) -> set[Identifier]:
        """Return the nodes that the request and the pins that it reaches require."""
        waiting = []
        for node, criterion in state.criteria.items():
            if None in criterion.iter_parent():
                waiting.append(node)
        reached: set[Identifier] = set()
        while waiting:
            node = waiting.pop()
            if node in reached:
                continue
            reached.add(node)
            if node in state.mapping:
                requirements = self.provider.get_dependencies(state.mapping[node])
                waiting += [requirement.identifier for requirement in requirements]
        return reached

    # ---- conflicts

    def _limits(self, node: Identifier, state: _State) -> list[Cause]:
        """Return the requirements of present pins that limit the candidates of a node.

        Those on the package of a node with extras do, too.
        """
        limits = []
        for limited in dict.fromkeys((node, without_extras(node))):
            if limited in state.criteria:
                for cause in state.criteria[limited].information:
                    parent = cause.parent
                    if parent is None or state.mapping.get(parent.identifier) is parent:
                        limits.append(cause)
        return limits

    def _blamed(
        self,
        node: Identifier,
        causes: Sequence[Cause],
        rejected: AbstractSet[Node],
        state: _State,
    ) -> set[Node]:
        """Return pins whose requirements leave a node with rejected candidates only.

        Later pins are left out first, so that the earliest pins remain that are to blame. One
        requirement on the node itself remains: without it, nothing needs the node.
        """
        parents = {cause.parent for cause in causes}
        for pin in reversed(state.mapping.values()):
            if pin not in parents:
                continue
            fewer = [cause for cause in causes if cause.parent is not pin]
            requirements = [cause.requirement for cause in fewer]
            is_required = any(requirement.identifier == node for requirement in requirements)
            if not is_required:
                continue
            candidates = self._candidates(node, {node: iter(requirements)})
            if all(candidate in rejected for candidate in candidates):
                causes = fewer
        return {cause.parent for cause in causes if cause.parent is not None}

    def _learn(self, conflict: _ConflictError) -> bool:
        """Remember a nogood. Return whether the order of decisions changes."""
        excluded = dict(conflict.impossible)
        if len(conflict.nogood) == 1:
            excluded.update(dict.fromkeys(conflict.nogood, conflict.causes))
        else:
            for release in conflict.nogood:
                self._nogoods.setdefault(release, []).append((conflict.nogood, conflict.causes))
        for release, causes in excluded.items():
            self._excluded.setdefault(release.identifier, {})[release] = causes
        nodes = {release.identifier for release in conflict.nogood}
        return self.provider.note_conflict(nodes | {conflict.node})

    def _try_each_alone(self, roots: Sequence[NodeRequirement]) -> None:
        """Try each requirement alone: one that is impossible alone makes the request impossible.

        Together with others, its conflict is met again and again, with each release that they
        choose. What a requirement teaches alone holds for the request, too.

        Raises:
            ImpossibleError: a requirement is impossible alone.
        """
        for root in roots:
            try:
                self.resolve([root], PATIENCE)
            except UnfinishedError:
                continue


def _is_range(requirement: NodeRequirement) -> bool:
    """Return whether nothing but a requirement and its node decides which candidates meet it.

    Requirements on the package limit a node with extras, too.
    """
    if not isinstance(requirement, PackageRequirement):
        return False
    return not requirement.extras and requirement.url is None


def _count_unaffected(trail: Sequence[_State], nogood: AbstractSet[Node]) -> int:
    """Return how many states of a trail a nogood does not change.

    Those are the states before its last pin and before every pin that replaced others: how often
    pins were replaced is counted from there on.
    """
    for number, state in enumerate(trail[1:], 1):
        is_after_replacement = len(state.mapping) < number
        if is_after_replacement or all(
            state.mapping.get(release.identifier) is release for release in nogood
        ):
            return number
    return len(trail)


def _result(state: _State) -> Result[NodeRequirement, Node, Identifier]:
    """Return resolvelib's form of a solution. The edges of its graph are the requirements."""
    graph: DirectedGraph[Identifier | None] = DirectedGraph()
    for node in (None, *state.mapping):
        graph.add(node)
    for node, criterion in state.criteria.items():
        for parent in criterion.iter_parent():
            graph.connect(None if parent is None else parent.identifier, node)
    return Result(state.mapping, graph, state.criteria)
