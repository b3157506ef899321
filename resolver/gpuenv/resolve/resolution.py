"""The resolution: one candidate for each node, by a search that learns from its conflicts.

The search implements resolvelib's AbstractResolver. resolvelib's own Resolver is not used: it jumps
back over choices that still matter, and then calls a request impossible that has a solution.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter, methodcaller
from typing import Any, NamedTuple

from resolvelib import BaseReporter
from resolvelib.resolvers import (
    AbstractResolver,
    Criterion,
    ResolutionImpossible,
    Result,
)
from resolvelib.structs import DirectedGraph, IteratorMapping, State, build_iter_view

from ..errors import UnfinishedError
from .graph import Cause, Identifier, Node, NodeRequirement, PackageRequirement, without_extras
from .provider import Provider

_Criterion = Criterion[NodeRequirement, Node]
_State = State[NodeRequirement, Node, Identifier]
_Requirements = Mapping[Identifier, Iterator[NodeRequirement]]

MAX_CONFLICTS = 20_000
# The traits of a release are the meanings of its requirements, and itself. A nogood has for each
# node those that its releases share.
_Traits = AbstractSet[Hashable]
_Nogood = Mapping[Identifier, _Traits]
# How often a pin may give way to a requirement that comes later. Further ones are conflicts, or two
# packages that exclude each other's releases could replace each other for ever.
_MAX_REPLACEMENTS = 3


class ImpossibleError(ResolutionImpossible[NodeRequirement, Node]):
    """It is proven that no set of candidates meets the requirements.

    `causes` say why, down to requirements that nothing meets (see LearningResolver.proof).
    """


class _RejectedError(Exception):
    """A candidate cannot be pinned.

    Attributes:
        causes: the requirements because of which.
        blamed: the pins because of which, as a nogood that lacks the candidate. None: find out
            which of those with the requirements.
    """

    def __init__(self, causes: Sequence[Cause], blamed: _Nogood | None = None) -> None:
        super().__init__(causes)
        self.causes = causes
        self.blamed = blamed


class _Conflict(NamedTuple):
    """No candidate of a node can be pinned.

    Attributes:
        node: the node.
        nogood: the nodes of the pins that are to blame, and because of which of their traits.
            Releases with these traits cannot be chosen together.
        causes: the requirements that exclude each other.
        impossible: the candidates that cannot be chosen whatever else is chosen, and why.
    """

    node: Identifier
    nogood: _Nogood
    causes: Sequence[Cause]
    impossible: Mapping[Node, Sequence[Cause]]


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
    - Learning: what the pins that remain require is a nogood (an incompatibility in PubGrub):
      releases that require the same are never chosen together again. A nogood of one node excludes
      its releases. A nogood has no ranges: what a release requires is not known before it is read.
    - Backjump: the search goes back to the state before the last pin of the nogood.
    - Every conflict yields a new nogood, so the search ends: with a solution, or with an empty
      nogood, which proves that there is none.

    The proof does not cover pre-releases, yanked releases and URLs that only the requirement of a
    release would admit: as in pip, they are candidates only if that release is decided first.

    One rule is not PubGrub's. A pin can give way to a requirement that comes later, with all that
    only it required; its node is then decided again. So a release of a dependency that was decided
    early does not cost a newer release of what the user asked for.
    """

    provider: Provider

    def __init__(
        self, provider: Provider, reporter: BaseReporter[NodeRequirement, Node, Identifier]
    ) -> None:
        super().__init__(provider, reporter)
        self._excluded: dict[Identifier, dict[Node, Sequence[Cause]]] = {}
        # Under each node of a nogood and one of its traits, so that few are tried for a release.
        self._nogoods: dict[tuple[Identifier, Hashable], list[_Conflict]] = {}
        self._known_traits: dict[Node, _Traits] = {}
        self._is_new_order = False

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
            PackageIndexError, MoreReleasesError: see Provider.
        """
        roots = list(requirements)
        begin: _State = State({}, {}, [])
        for root in roots:
            try:
                self._add(begin.criteria, root, None)
            except _RejectedError as error:
                raise ImpossibleError(self.proof(error.causes)) from None
        self._require_builds(begin)
        trail = [begin]
        conflicts = 0
        replacements: Counter[Identifier] = Counter()
        while True:
            if self._is_new_order:
                del trail[1:]
                replacements.clear()
                self._is_new_order = False
            open_nodes = [node for node in trail[-1].criteria if node not in trail[-1].mapping]
            if not open_nodes:
                return _result(trail[-1])
            candidates = IteratorMapping(trail[-1].criteria, attrgetter("candidates"))
            information = IteratorMapping(trail[-1].criteria, attrgetter("information"))
            rest = (trail[-1].mapping, candidates, information, ())
            narrowed = self.provider.narrow_requirement_selection(open_nodes, *rest)
            node = min(narrowed, key=lambda node: self.provider.get_preference(node, *rest))
            step = self._decide(node, trail[-1], replacements)
            if not isinstance(step, _Conflict):
                trail.append(step)
                self.reporter.ending_round(len(trail), step)
                continue
            if not step.nogood:
                raise ImpossibleError(self.proof(step.causes))
            conflicts += 1
            self.reporter.resolving_conflicts(step.causes)
            if conflicts == max_conflicts:
                raise UnfinishedError(
                    f"no answer after {conflicts} conflicts for {', '.join(map(str, roots))}",
                    hint="limit the versions of one of them, such as NAME>=VERSION, and solve "
                    "again",
                )
            self._learn(step, trail[-1].mapping)
            del trail[_count_unaffected(trail, step.nogood) :]
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

    def _require_builds(self, begin: _State) -> None:
        """Raise ImpossibleError if a package of the request must be built and cannot be.

        The search would find it after the frameworks, whose older releases may have to be built.
        """
        for node, criterion in begin.criteria.items():
            if self.provider.must_build(criterion.candidates):
                step = self._decide(node, begin, Counter())
                if isinstance(step, _Conflict):
                    raise ImpossibleError(self.proof(step.causes))

    # ---- decisions and propagation

    def _decide(
        self, node: Identifier, state: _State, replacements: Counter[Identifier]
    ) -> _State | _Conflict:
        """Return the state with the first candidate of a node that can be pinned."""
        rejected: dict[Node, _RejectedError] = {}
        for candidate in state.criteria[node].candidates:
            try:
                return self._pin(candidate, state, replacements)
            except _RejectedError as error:
                rejected[candidate] = error
        nogoods = [self._blamed(node, _limits(node, state), rejected.keys(), state)]
        impossible: dict[Node, Sequence[Cause]] = {}
        causes: dict[Cause, None] = {}  # in order, each once
        for candidate, rejection in rejected.items():
            causes.update(dict.fromkeys(rejection.causes))
            blamed = rejection.blamed
            if blamed is None:
                empty = rejection.causes[0].requirement.identifier
                package = without_extras(empty)
                limits = _limits(package, state) if package != empty else []
                limits = [*rejection.causes, *limits]
                found = self._blamed(empty, limits, frozenset(), state)
                blamed = {other: found[other] for other in found if other != node}
            if not blamed:
                impossible[candidate] = rejection.causes
            nogoods.append(blamed)
        nogood = _together(nogoods)
        return _Conflict(node=node, nogood=nogood, causes=list(causes), impossible=impossible)

    def _pin(self, candidate: Node, state: _State, replacements: Counter[Identifier]) -> _State:
        """Return the state with a candidate, without the pins that give way to its requirements.

        Raises:
            _RejectedError: it cannot be chosen with the pins.
        """
        if self.why_excluded(candidate):  # learned since the candidates of its node were found
            raise _RejectedError(self.why_excluded(candidate), {})
        self._reject_learned(candidate, state.mapping)
        pins, criteria = {**state.mapping}, {**state.criteria}
        replaced: dict[Identifier, Node] = {}
        requirements = self.provider.get_dependencies(candidate)
        for requirement in requirements:
            node = requirement.identifier
            pin = pins.get(node)
            if pin is None or self.provider.is_satisfied_by(requirement, pin):
                continue
            may_give_way = self.provider.may_give_way(node, candidate.identifier)
            if not may_give_way or replacements[node] == _MAX_REPLACEMENTS:
                known: Iterable[Cause] = criteria[node].information
                raise _RejectedError([Cause(requirement, candidate), *known], {node: {pin}})
            replaced[node] = pin
        for node in replaced:
            del pins[node]
        pins[candidate.identifier] = candidate
        pinned: _State = State(pins, criteria, [])
        if replaced:
            self._take_back(list(replaced.values()), pinned, candidate)
        if candidate.identifier in pins:  # a removed pin may have ruled out a better one
            for requirement in requirements:
                self._add(criteria, requirement, candidate)
            self.reporter.pinning(candidate)
        replacements.update(replaced.keys())
        return pinned

    def _reject_learned(self, candidate: Node, pins: Mapping[Identifier, Node]) -> None:
        """Raise _RejectedError if a candidate would violate a nogood with some pins."""
        place = candidate.identifier
        for trait in self._traits(candidate):
            for conflict in self._nogoods.get((place, trait), ()):
                nogood, causes = conflict.nogood, conflict.causes
                if not self._is_violated(nogood, candidate, pins):
                    continue
                if len(nogood) == 1:
                    causes = [self._of(candidate, cause) for cause in causes]
                    self._excluded.setdefault(place, {})[candidate] = causes
                others = {node: nogood[node] for node in nogood if node != place}
                raise _RejectedError(causes, others)

    def _is_violated(
        self, nogood: _Nogood, candidate: Node, pins: Mapping[Identifier, Node]
    ) -> bool:
        """Return whether a candidate and some pins have all traits of a nogood."""
        for node, traits in nogood.items():
            release = candidate if node == candidate.identifier else pins.get(node)
            if release is None or not traits <= self._traits(release):
                return False
        return True

    def _add(
        self,
        criteria: dict[Identifier, _Criterion],
        requirement: NodeRequirement,
        parent: Node | None,
    ) -> None:
        """Add a requirement to the criterion of its node.

        Raises:
            _RejectedError: the node has no candidates then.
        """
        self.reporter.adding_requirement(requirement, parent)
        node = requirement.identifier
        known: Iterable[Cause] = criteria[node].information if node in criteria else ()
        requirements = IteratorMapping(
            criteria, methodcaller("iter_requirement"), {node: [requirement]}
        )
        candidates = self._candidates(node, requirements)
        causes: list[Cause] = [*known, Cause(requirement, parent)]
        if not candidates:
            raise _RejectedError(causes)
        criteria[node] = _Criterion(candidates, causes, ())

    def _candidates(self, node: Identifier, requirements: _Requirements) -> Iterable[Node]:
        excluded = IteratorMapping(self._excluded, iter)
        return build_iter_view(self.provider.find_matches(node, requirements, excluded))

    # ---- pins that give way

    def _take_back(self, removed: list[Node], state: _State, last: Node) -> None:
        """Take back what only removed pins required, and what they ruled out.

        Pins that were the best only because of what they ruled out are removed, too: their nodes
        are decided again. The requirements of the last pin are not in the criteria yet.

        Raises:
            _RejectedError: a node has no candidate any more: a removed pin had admitted a yanked
                release.
        """
        pins, criteria = state.mapping, state.criteria
        while removed:
            reached = self._reached(state, last)
            for node in [node for node in criteria if node not in reached]:
                del criteria[node]
                if node in pins:
                    removed.append(pins.pop(node))
            limited: set[Identifier] = set()
            for pin in removed:
                requirements = self.provider.get_dependencies(pin)
                limited.update(requirement.identifier for requirement in requirements)
            removed = []
            for node in criteria:
                if limited.isdisjoint((node, without_extras(node))):
                    continue
                limits = _limits(node, state)
                if not limits:  # the pins that required it were removed in this turn
                    continue
                candidates = self._candidates(
                    node, {node: iter([limit.requirement for limit in limits])}
                )
                if not candidates:
                    raise _RejectedError(limits)
                causes = [cause for cause in limits if cause.requirement.identifier == node]
                criteria[node] = Criterion(candidates, causes, ())
                if node in pins and next(iter(candidates)) is not pins[node]:
                    removed.append(pins.pop(node))

    def _reached(self, state: _State, last: Node) -> set[Identifier]:
        """Return the nodes that the request requires, and the pins that are reached from it.

        The requirements of the last pin do not count.
        """
        waiting = [node for node in state.criteria if None in state.criteria[node].iter_parent()]
        reached: set[Identifier] = set()
        while waiting:
            node = waiting.pop()
            pin = state.mapping.get(node)
            if node not in reached and pin is not None and pin is not last:
                requirements = self.provider.get_dependencies(pin)
                waiting += [requirement.identifier for requirement in requirements]
            reached.add(node)
        return reached

    # ---- conflicts

    def _blamed(
        self,
        node: Identifier,
        causes: Sequence[Cause],
        rejected: AbstractSet[Node],
        state: _State,
    ) -> _Nogood:
        """Return the nodes of pins whose requirements leave a node with rejected candidates only.

        They come with the meanings of these requirements.

        Later pins are left out first, so that the earliest pins remain that are to blame. One
        requirement on the node itself remains: without it, nothing needs the node.
        """
        parents = {cause.parent for cause in causes}
        for pin in reversed(state.mapping.values()):
            if pin in parents:
                fewer = [cause for cause in causes if cause.parent is not pin]
                requirements = [cause.requirement for cause in fewer]
                if any(requirement.identifier == node for requirement in requirements):
                    candidates = self._candidates(node, {node: iter(requirements)})
                    if all(candidate in rejected for candidate in candidates):
                        causes = fewer
        return _together(
            {cause.parent.identifier: {cause.requirement.meaning}}
            for cause in causes
            if cause.parent is not None
        )

    def _traits(self, release: Node) -> _Traits:
        """Return the traits of a release."""
        if release not in self._known_traits:
            requirements = self.provider.get_dependencies(release)
            traits = [release, *[requirement.meaning for requirement in requirements]]
            self._known_traits[release] = dict.fromkeys(traits).keys()  # in order
        return self._known_traits[release]

    def _of(self, release: Node, cause: Cause) -> Cause:
        """Return a cause of another release of a node as one of this, if it has the requirement."""
        parent, requirement = cause.parent, cause.requirement
        is_of_node = parent is not None and parent.identifier == release.identifier
        if is_of_node and requirement.meaning in self._traits(release):
            return Cause(requirement, release)
        return cause

    def _learn(self, conflict: _Conflict, pins: Mapping[Identifier, Node]) -> None:
        """Remember the nogood of a conflict with some pins, and count it for its nodes."""
        excluded = dict(conflict.impossible)
        for node, traits in conflict.nogood.items():
            trait = next(trait for trait in self._traits(pins[node]) if trait in traits)
            self._nogoods.setdefault((node, trait), []).append(conflict)
            if len(conflict.nogood) == 1:
                excluded[pins[node]] = conflict.causes
        for release, causes in excluded.items():
            self._excluded.setdefault(release.identifier, {})[release] = causes
        nodes = conflict.nogood.keys() | {conflict.node}
        self._is_new_order |= self.provider.note_conflict(nodes)


def _together(nogoods: Iterable[_Nogood]) -> _Nogood:
    """Return one nogood that has all traits of some nogoods."""
    nodes: dict[Identifier, _Traits] = {}
    for nogood in nogoods:
        for node, traits in nogood.items():
            nodes[node] = nodes.get(node, frozenset()) | traits
    return nodes


def _limits(node: Identifier, state: _State) -> list[Cause]:
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


def _count_unaffected(trail: Sequence[_State], nogood: Iterable[Identifier]) -> int:
    """Return how many states of a trail a nogood does not change.

    Those are the states before its last pin and before every pin that replaced others: how often
    pins were replaced is counted from there on.
    """
    return next(
        number
        for number, state in enumerate(trail[1:], 1)
        if len(state.mapping) < number  # it is after a replacement
        or all(state.mapping.get(node) is trail[-1].mapping[node] for node in nogood)
    )


def _result(state: _State) -> Result[NodeRequirement, Node, Identifier]:
    """Return resolvelib's form of a solution. The edges of its graph are the requirements."""
    graph: DirectedGraph[Identifier | None] = DirectedGraph()
    for node in (None, *state.mapping):
        graph.add(node)
    for node, criterion in state.criteria.items():
        for parent in criterion.iter_parent():
            graph.connect(None if parent is None else parent.identifier, node)
    return Result(state.mapping, graph, state.criteria)
