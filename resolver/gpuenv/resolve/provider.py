"""The provider: resolvelib's questions about the graph, answered from a candidate store."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

from resolvelib import AbstractProvider, BaseReporter
from resolvelib.structs import State

from .. import activity
from ..compat.extensions import release_of
from ..errors import is_doubt
from ..index.protocol import Index
from ..requirements.versions import contains
from .candidates import is_pinned
from .graph import (
    UNMET,
    AgreementId,
    AgreementRequirement,
    Candidate,
    Cause,
    FrameworkId,
    FrameworkRequirement,
    Identifier,
    Node,
    NodeRequirement,
    PackageId,
    PackageRequirement,
    Release,
    SameFileRequirement,
    Token,
    Variant,
    without_extras,
)
from .release_facts import ReleaseFacts
from .widening import Widening

# When a candidate at one of these places is tried, as so many better ones were not chosen, the
# dependencies of those up to the other place are requested at once.
_BATCHES = {1: 4, 4: 16, 16: 64, 64: 256, 256: 1024}
_OFTEN = 5  # conflicts after which a name is decided before others, as in pip

# How narrow the requirements on a node are, the narrowest first. Sums compare as the criteria of
# pip do.
_ONE_FILE, _ONE_VERSION, _UPPER_BOUND, _OF_USER, _ANY_RANGE = 16, 8, 4, 2, 1


class Provider(AbstractProvider[NodeRequirement, Node, Identifier]):
    """One resolution: candidates, their requirements, and the order of decisions.

    Order of decisions: agreements (they fail at once or cost nothing); the user's packages that
    require a framework; frameworks in the order of the request, so that the later ones give way
    first; frameworks that only dependencies name, once the user's packages are decided; then as in
    pip, except that the order of the user's requirements does not count: ties go by name.

    A strict provider refuses releases with doubts; a lenient one lets doubts pass. Of the packages
    in `sparse`, only the newest release of each minor series is a candidate.

    Raises:
        MoreReleasesError: the live index has more releases than the candidate store has read. It
            reads them again for the next provider.
        PackageIndexError: an index failed.
    """

    def __init__(
        self,
        facts: ReleaseFacts,
        roots: Sequence[NodeRequirement],
        frameworks: Sequence[Identifier],
        *,
        widening: Widening,
        lenient: bool,
        sparse: Container[str] = (),
    ) -> None:
        self.store, self.facts = facts.store, facts
        self.widening = widening
        self.lenient = lenient
        self._sparse = sparse
        self._conflict_counts: Counter[Identifier] = Counter()
        self._requested: set[Release] = set()  # see _BATCHES
        self._matches: dict[tuple[object, ...], Sequence[Candidate]] = {}
        self._named = {root.identifier for root in roots}
        self._requested_ranges: dict[str, list[str]] = {}
        for root in roots:
            if isinstance(root, PackageRequirement) and root.specifier:
                self._requested_ranges.setdefault(root.name, []).append(root.specifier)
        self._roots, self._frameworks = roots, frameworks

    @cached_property
    def order(self) -> Mapping[Identifier, int]:
        """The nodes that are decided first, with their places."""
        # A project and a file may name the same package.
        nodes = dict.fromkeys([*self._dependents(), *self._frameworks])
        return {identifier: place for place, identifier in enumerate(nodes)}

    def _dependents(self) -> list[Identifier]:
        """Return the user's packages whose best release requires a framework of the request.

        That is the best one that the host does not refuse.

        vLLM is built for one release of torch. Decided first, it is the newest one that runs here,
        and torch follows it. Decided later, it is an old one that does not limit torch.
        """
        names: set[str] = set()
        packages: list[PackageRequirement] = []
        for root in self._roots:
            if isinstance(root, FrameworkRequirement):
                ways = root.framework.ways
                names |= {root.identifier, *(way.distribution for way in ways)}
            elif isinstance(root, PackageRequirement):
                if root.identifier in self._frameworks:
                    names.add(root.name)
                elif self.store.data.framework_of(root.name) is None:
                    packages.append(root)  # a companion (torchvision) follows its framework
        dependents: list[Identifier] = []
        for root in packages if names else ():
            possible = (one for one in self.admitted(root) if not self.is_refused(one))
            best = next(possible, None)
            required = () if best is None else self.facts.requirements_of(best)
            nodes = [requirement.identifier for requirement in required]
            if not names.isdisjoint(map(without_extras, nodes)):
                dependents.append(root.identifier)
        return dependents

    # ---- resolvelib: identity and order

    def identify(self, requirement_or_candidate: NodeRequirement | Node) -> Identifier:
        """Return the identifier of the node of a requirement or candidate."""
        return requirement_or_candidate.identifier

    def narrow_requirement_selection(
        self,
        identifiers: Iterable[Identifier],
        resolutions: Mapping[Identifier, Node],
        candidates: Mapping[Identifier, Iterator[Node]],
        information: Mapping[Identifier, Iterator[Cause]],
        backtrack_causes: Sequence[Cause],
    ) -> Iterable[Identifier]:
        """Return the nodes that may be decided next.

        These are the first that exist of: one agreement; all nodes, if a framework of the request
        is open; the frameworks that dependencies name, if no package of the request is open; the
        nodes with many conflicts; all nodes. A package waits for its own node with extras, because
        the extras may exclude its releases.
        """
        open_nodes = list(identifiers)
        for identifier in open_nodes:
            if isinstance(identifier, AgreementId):
                return (identifier,)
        if not self.order.keys().isdisjoint(open_nodes):
            return open_nodes
        waiting = {without_extras(node) for node in open_nodes if without_extras(node) != node}
        open_nodes = [node for node in open_nodes if node not in waiting]
        if self._named.isdisjoint(open_nodes):
            frameworks = [node for node in open_nodes if self._is_framework(node)]
            if frameworks:
                return frameworks
        in_conflict = list(filter(self._is_often_in_conflict, open_nodes))
        return in_conflict or open_nodes

    def get_preference(
        self,
        identifier: Identifier,
        resolutions: Mapping[Identifier, Node],
        candidates: Mapping[Identifier, Iterator[Node]],
        information: Mapping[Identifier, Iterator[Cause]],
        backtrack_causes: Sequence[Cause],
    ) -> tuple[int | bool | str, ...]:
        """Return the sort key of a node; the smallest is decided first.

        The criteria: the order of the frameworks; many conflicts, those of the user's packages
        first; how narrow the requirements are together (see _ONE_FILE); the name.
        """
        narrowness = 0
        for cause in information[identifier]:
            narrowness |= _narrowness(cause.requirement)
            if cause.parent is None:
                narrowness |= _OF_USER
        is_often_in_conflict = self._is_often_in_conflict(identifier)
        return (
            self.order.get(identifier, len(self.order)),
            not is_often_in_conflict,
            is_often_in_conflict and not narrowness & _OF_USER,
            -narrowness,
            identifier,
        )

    def note_conflict(self, nodes: Iterable[Identifier]) -> bool:
        """Count a conflict of nodes: those with many are decided earlier.

        Returns:
            Whether one of the nodes has many conflicts from now on.
        """
        self._conflict_counts.update(nodes)
        return any(self._conflict_counts[node] == _OFTEN for node in nodes)

    def _is_often_in_conflict(self, node: Identifier) -> bool:
        return self._conflict_counts[node] >= _OFTEN

    def may_give_way(self, node: Identifier, later: Identifier) -> bool:
        """Return whether the pin of a node may give way to the requirement of a later one.

        The node of a framework of the request does not: a later package could cost it its newest
        release. A framework that the request does not name gives way to packages that the request
        names.
        """
        if node in self.order:
            return False
        return later in self._named or not self._is_framework(node)

    def _is_framework(self, identifier: Identifier) -> bool:
        return isinstance(identifier, PackageId) and self.store.on_path(without_extras(identifier))

    # ---- resolvelib: candidates

    def find_matches(
        self,
        identifier: Identifier,
        requirements: Mapping[Identifier, Iterator[NodeRequirement]],
        incompatibilities: Mapping[Identifier, Iterator[Node]],
    ) -> Sequence[Node] | Callable[[], Iterator[Node]]:
        """Return the candidates of a node that meet all of its requirements, best first.

        The incompatibilities are those of the node and, for a node with extras, of its package.

        Releases that the host or the data refuse are no candidates: as candidates that fail on
        a host fact they would make the resolution try everything else first.
        """
        on_node = list(requirements[identifier])
        if isinstance(identifier, AgreementId):
            return _agreed(identifier, on_node)
        if identifier == UNMET:
            return ()
        if isinstance(identifier, FrameworkId):
            variants = self._variants(on_node)
            return lambda: self._possible(identifier, variants, incompatibilities)
        package = without_extras(identifier)
        if package != identifier:  # requirements on the package hold for package[extra]
            on_node += requirements.get(package, ())
        matches = self._matching(package, on_node, keep_all=package != identifier)
        return lambda: self._possible(identifier, matches, incompatibilities)

    def admitted(self, *requirements: PackageRequirement) -> Sequence[Candidate]:
        """Return the candidates that requirements on one package admit together, best first."""
        return self._matching(requirements[0].name, requirements, keep_all=False)

    def _possible(
        self,
        identifier: Identifier,
        matches: Sequence[Release],
        incompatibilities: Mapping[Identifier, Iterator[Node]],
    ) -> Iterator[Release]:
        """Yield the candidates that may be chosen, as nodes with extras."""
        package = without_extras(identifier)
        extras = identifier.extras if isinstance(identifier, PackageId) else ()
        excluded = {*incompatibilities.get(identifier, ()), *incompatibilities.get(package, ())}
        for place, match in enumerate(matches):
            node = match
            if isinstance(match, Candidate):
                node = match.with_extras(extras)
                if place in _BATCHES and match not in self._requested:
                    following = matches[place : _BATCHES[place]]
                    self._requested.update(following)
                    wheels = [release.wheel for release in following]
                    self.store.index.request_dependencies(wheels)
            if excluded.isdisjoint((match, node)) and not self.is_refused(match):
                yield node

    def _matching(
        self, name: str, requirements: Sequence[NodeRequirement], *, keep_all: bool
    ) -> Sequence[Candidate]:
        """Return the candidates of a name that meet requirements and constraints, best first.

        With `keep_all`, candidates that only the rules for pre-releases and yanked releases
        exclude come last: they depend on requirements of the package itself, which may change.
        """
        ranges, urls, files = [], [], []
        for requirement in requirements:
            if isinstance(requirement, SameFileRequirement):
                files.append(requirement.wheel)
            elif isinstance(requirement, PackageRequirement):
                if requirement.specifier:
                    ranges.append(requirement.specifier)
                if requirement.url:
                    urls.append(requirement.url)
        ranges += self.store.constraints.ranges.get(name, [])
        urls += self.store.constraints.urls.get(name, [])
        matches: Sequence[Candidate]
        if urls:
            matches = self.store.in_ranges(self.store.at_url(name, urls[0]), ranges)
            matches = [match for match in matches if all(self._is_at(url, match) for url in urls)]
        else:
            key = (name, keep_all, frozenset(ranges))
            if key not in self._matches:
                self._matches[key] = self._from_indexes(name, ranges, keep_all=keep_all)
            matches = self._matches[key]
        if not files:
            return matches
        return [match for match in matches if all(match.wheel is file for file in files)]

    def _from_indexes(
        self, name: str, ranges: Sequence[str], *, keep_all: bool
    ) -> Sequence[Candidate]:
        self.widening.try_prereleases(name, ranges)
        candidates = self.store.candidates(name)
        matches = self.store.in_ranges(candidates, ranges)
        if not matches:
            self.widening.try_for(name, ranges)
        elif matches[0] is not candidates[0]:
            self.widening.try_newer(name, ranges, matches, candidates)
        # The requirements of the request are added one by one. All of them hold, so together they
        # decide from the beginning which pre-releases and yanked releases are admitted.
        requested = self._requested_ranges.get(name, ())
        matches = self.store.in_ranges(matches, requested) or matches
        best = self.store.admitted(name, matches, [*ranges, *requested])
        if name in self._sparse:
            newest: dict[str, str] = {}  # minor series -> version
            for match in best:  # boto3 has more than a thousand releases in 45 minor series
                newest.setdefault(release_of(match.version), match.version)
            return [match for match in best if match.version in newest.values()]
        if keep_all:
            taken = set(best)
            best += [match for match in matches if match not in taken]
        return best

    def _variants(self, requirements: Sequence[NodeRequirement]) -> Sequence[Variant]:
        on_framework = [
            requirement
            for requirement in requirements
            if isinstance(requirement, FrameworkRequirement)
        ]
        framework = on_framework[0].framework
        ranges = [requirement.specifier for requirement in on_framework if requirement.specifier]
        ranges += self.store.constraints.ranges.get(framework.distribution, [])
        matches = self.store.in_ranges(self.store.variants(framework), ranges)
        if not matches:
            for way in framework.ways:
                self.widening.try_for(way.distribution, ranges)
        return self.store.admitted(framework.distribution, matches, ranges)

    def must_build(self, candidates: Iterable[Node]) -> bool:
        """Return whether all candidates of a node are source distributions."""
        return all(isinstance(one, Candidate) and one.needs_build for one in candidates)

    def is_refused(self, release: Release) -> bool:
        """Return whether the host or the data refuse a release."""
        reasons = self.facts.reasons(release)
        if self.lenient:
            return not all(map(is_doubt, reasons))
        return bool(reasons)

    # ---- resolvelib: requirements

    def is_satisfied_by(self, requirement: NodeRequirement, candidate: Node) -> bool:
        """Return whether a candidate of the requirement's node meets the requirement."""
        if isinstance(requirement, AgreementRequirement) and isinstance(candidate, Token):
            return candidate.value in requirement.agreement.values
        if isinstance(candidate, Token):
            return False
        if isinstance(requirement, SameFileRequirement):
            return candidate.wheel is requirement.wheel
        if not isinstance(requirement, (PackageRequirement, FrameworkRequirement)):
            return False
        url = requirement.url if isinstance(requirement, PackageRequirement) else None
        is_at_url = url is None or self._is_at(url, candidate)
        return is_at_url and contains(requirement.specifier, candidate.version)

    def _is_at(self, url: str, release: Release) -> bool:
        at_url = self.store.at_url(release.wheel.name, url)
        return any(release.wheel is other.wheel for other in at_url)

    def get_dependencies(self, candidate: Node) -> Sequence[NodeRequirement]:
        """Return the requirements of a candidate on this host (see ReleaseFacts)."""
        return self.facts.requirements_of(candidate)


class Progress(BaseReporter[NodeRequirement, Node, Identifier]):
    """Counts what a resolution does, and reads ahead what its candidates require."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._followed: set[Candidate] = set()
        activity.current.conflicts = 0

    def adding_requirement(self, requirement: NodeRequirement, parent: Node | None) -> None:
        """Request what a candidate requires."""
        if isinstance(parent, Candidate) and parent not in self._followed:
            self._followed.add(parent)
            self._index.request_needs(parent.wheel, parent.extras)

    def ending_round(self, index: int, state: State[NodeRequirement, Node, Identifier]) -> None:
        """Count the decisions."""
        activity.current.decided = len(state.mapping)

    def resolving_conflicts(self, causes: Collection[Cause]) -> None:
        """Count a conflict."""
        activity.current.conflicts += 1


def _agreed(identifier: AgreementId, requirements: Sequence[NodeRequirement]) -> list[Token]:
    """Return a token for each value that all requirements name, the greatest first."""
    common: set[str] | None = None
    for requirement in requirements:
        if isinstance(requirement, AgreementRequirement):
            values = set(requirement.agreement.values)
            common = values if common is None else common & values
    return [Token(identifier, value) for value in sorted(common or (), reverse=True)]


def _narrowness(requirement: NodeRequirement) -> int:
    """Return how narrow a requirement is: a sum of the numbers from _ONE_FILE to _ANY_RANGE."""
    if isinstance(requirement, SameFileRequirement):
        return _ONE_FILE
    if not isinstance(requirement, PackageRequirement):
        return 0
    narrowness = _ONE_FILE if requirement.url else 0
    if requirement.specifier:
        narrowness |= _ANY_RANGE
        if is_pinned(requirement.specifier):
            narrowness |= _ONE_VERSION
        if any(clause[:1] in "<~=" for clause in requirement.specifier.split(",") if clause):
            narrowness |= _UPPER_BOUND
    return narrowness
