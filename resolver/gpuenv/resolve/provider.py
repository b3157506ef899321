"""The provider: resolvelib's questions about the graph, answered from a candidate store."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import cache

from resolvelib import AbstractProvider
from resolvelib.structs import RequirementInformation

from ..errors import OfflineError, Reason, UnusableFileError
from ..model import Build, Library, Requirement
from ..requirements.target import parse_requirement
from .candidates import CandidateStore
from .graph import (
    FILE_FACT,
    PYTHON_FACT,
    AgreementId,
    AgreementRequirement,
    Candidate,
    Cause,
    FrameworkId,
    FrameworkRequirement,
    HostFactId,
    HostRequirement,
    Identifier,
    Node,
    NodeRequirement,
    NogoodId,
    NogoodRequirement,
    PackageId,
    PackageRequirement,
    Release,
    SameFileRequirement,
    Token,
    Variant,
)
from .learning import ConflictError, Nogoods, Pins
from .release_facts import ReleaseFacts, is_refused, not_cached, python_text
from .selection import Constraints, ReleaseT, is_exact, is_pinned, newest_of_series
from .widening import Widening

# When a candidate at one of these places is tried, as so many better ones were not chosen, the
# dependencies of those up to the other place are requested at once.
_BATCHES = {1: 4, 4: 16, 16: 64, 64: 256, 256: 1024}
_OFTEN = 5  # conflicts after which a name is decided before others, as in pip

# How narrow the requirements on a node are, the narrowest first. Sums compare as the criteria of
# pip do.
_ONE_FILE, _ONE_VERSION, _UPPER_BOUND, _OF_USER, _ANY_RANGE = 16, 8, 4, 2, 1


class KnownRequirements:
    """The requirements of candidates, for all resolutions that read the same candidates.

    Attributes:
        of_node: the requirements of each node.
        with_extras: the node of each candidate with extras.
    """

    def __init__(self) -> None:
        self.of_node: dict[Node, Sequence[NodeRequirement]] = {}
        self.with_extras: dict[tuple[Candidate, tuple[str, ...]], Candidate] = {}


class Provider(AbstractProvider[NodeRequirement, Node, Identifier]):
    """One resolution: candidates, their requirements, and the order of decisions.

    Order of decisions: host facts and agreements (they fail at once or cost nothing); the user's
    packages that require a framework; frameworks in the order of the request, so that the later
    ones give way first; frameworks that only dependencies name, once the user's packages are
    decided; then as in pip, except that the order of the user's requirements does not count: ties
    go by name.

    A strict provider refuses releases with doubts; a lenient one lets doubts pass. Providers that
    are alike in this may share `known`. Of the packages in `sparse`, only the newest release of
    each minor series is a candidate.

    Attributes:
        pins: what the running resolution has chosen.
    """

    def __init__(
        self,
        store: CandidateStore,
        facts: ReleaseFacts,
        order: Sequence[Identifier],
        constraints: Constraints,
        widening: Widening,
        *,
        lenient: bool,
        known: KnownRequirements | None = None,
        sparse: Container[str] = (),
    ) -> None:
        self.store = store
        self._sparse = sparse
        self._known = KnownRequirements() if known is None else known
        self.facts = facts
        self.constraints = constraints
        self.widening = widening
        self.lenient = lenient
        self._contains = store.environment.contains
        self._framework_order = order
        self.start_over()

    def start_over(self) -> None:
        """Forget what was read and learned: the index has more releases than before."""
        self.order = {identifier: place for place, identifier in enumerate(self._framework_order)}
        self.pins = Pins()
        self._requested_ranges: dict[str, list[str]] = {}
        self._named: set[Identifier] = set()
        self._nogoods = Nogoods()
        self._conflict_counts: dict[Identifier, int] = {}
        self._refused: dict[Release, bool] = {}
        self._satisfied: dict[tuple[NodeRequirement, Node], bool] = {}
        self._unmet: set[tuple[str, str]] = set()  # packages and ranges: no release can be chosen
        self._followed: set[Candidate] = set()
        self._requested: set[Candidate] = set()  # see _BATCHES
        self._matches: dict[tuple[object, ...], Sequence[Candidate]] = {}

    def note_request(self, roots: Sequence[NodeRequirement]) -> None:
        """Note what the request requires, before anything is decided."""
        self._named = {root.identifier for root in roots}
        for root in roots:
            if isinstance(root, PackageRequirement) and root.specifier:
                self._requested_ranges.setdefault(root.name, []).append(root.specifier)
        self._decide_dependents_first(roots)

    def _decide_dependents_first(self, roots: Sequence[NodeRequirement]) -> None:
        """Decide the user's packages that require a framework before the framework.

        vLLM is built for one release of torch. Decided first, it is the newest one that runs here,
        and torch follows it. Decided later, it is an old one that does not limit torch.
        """
        frameworks: set[str] = set()
        packages: list[PackageRequirement] = []
        for root in roots:
            if isinstance(root, FrameworkRequirement):
                ways = root.framework.ways
                frameworks.update(parse_requirement(way.requires[0]).name for way in ways)
            elif isinstance(root, PackageRequirement):
                if root.identifier in self.order:
                    frameworks.add(root.name)
                elif self.store.framework_of(root.name) is None:
                    packages.append(root)  # a companion (torchvision) follows its framework
        if not frameworks:
            return
        dependents = [root.identifier for root in packages if self._requires_any(root, frameworks)]
        nodes = [*dependents, *self.order]
        self.order = {identifier: place for place, identifier in enumerate(nodes)}

    def _requires_any(self, root: PackageRequirement, names: Container[str]) -> bool:
        """Return whether the best release for a requirement requires one of some packages."""
        matches = self.admitted(root)
        if not matches:
            return False
        for requirement in self.requirements_of(matches[0]):
            if isinstance(requirement, PackageRequirement) and requirement.name in names:
                return True
        return False

    def learn(self, conflict: ConflictError) -> bool:
        """Avoid the releases of a conflict together, and decide nodes with many conflicts earlier.

        Returns:
            Whether one of the nodes has many conflicts from now on.
        """
        self._nogoods.add(conflict)
        nodes = {release.identifier for release in conflict.releases} | {conflict.node}
        for node in nodes:
            self._conflict_counts[node] = self._conflict_counts.get(node, 0) + 1
        return any(self._conflict_counts[node] == _OFTEN for node in nodes)

    def note_unmet(self, requirement: NodeRequirement) -> None:
        """Note that no candidate meets a requirement, whatever else is chosen."""
        own_range = _own_range(requirement)
        if own_range is not None:
            self._unmet.add(own_range)

    def full_causes(self, conflict_causes: Sequence[Cause]) -> list[Cause]:
        """Return the causes of a conflict, preceded by why its best candidate is impossible.

        That is: the requirement of the best candidate, why the best release for it is excluded, and
        so on, down to a requirement that no release meets.
        """
        chain: list[Cause] = []
        causes = conflict_causes[:1]
        while causes and causes[0] not in chain:
            chain += causes
            requirement = causes[0].requirement
            matches: Sequence[Candidate] = ()
            if isinstance(requirement, PackageRequirement):
                matches = self._matching(requirement.name, [requirement], keep_all=False)
            causes = self._nogoods.why(matches[0]) if matches else ()
        return [*chain, *(cause for cause in conflict_causes if cause not in chain)]

    def why_excluded(self, release: Release) -> Sequence[Cause]:
        """Return the requirements because of which a release cannot be chosen at all."""
        return self._nogoods.why(release)

    def admitted(self, *requirements: PackageRequirement) -> Sequence[Candidate]:
        """Return the candidates that requirements on one package admit together, best first."""
        return self._matching(requirements[0].name, requirements, keep_all=False)

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

        These are the first that exist of: one host fact or agreement; all nodes, if a framework of
        the request is open; the frameworks that dependencies name, if no package of the request is
        open; the nodes with many conflicts; all nodes. A package waits for its own node with
        extras, because the extras may exclude its releases.
        """
        open_nodes = list(identifiers)
        for identifier in open_nodes:
            if isinstance(identifier, (HostFactId, AgreementId)):
                return (identifier,)
        if not self.order.keys().isdisjoint(open_nodes):
            return open_nodes
        open_nodes = _without_waiting(open_nodes)
        if self._named.isdisjoint(open_nodes):
            frameworks = [node for node in open_nodes if self._is_framework(node)]
            if frameworks:
                return frameworks
        in_conflict = [node for node in open_nodes if self._conflicts_often(node)]
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

        The criteria: the order of the frameworks; many conflicts; how narrow the requirements are
        together (see _ONE_FILE); the name.
        """
        narrowness = 0
        for cause in information[identifier]:
            narrowness |= _narrowness(cause.requirement)
            if cause.parent is None:
                narrowness |= _OF_USER
        return (
            self.order.get(identifier, len(self.order)),
            not self._conflicts_often(identifier),
            -narrowness,
            identifier,
        )

    def _is_framework(self, identifier: Identifier) -> bool:
        return isinstance(identifier, PackageId) and self.store.on_path(identifier.name)

    def _conflicts_often(self, identifier: Identifier) -> bool:
        return self._conflict_counts.get(identifier, 0) >= _OFTEN

    # ---- resolvelib: candidates

    def find_matches(
        self,
        identifier: Identifier,
        requirements: Mapping[Identifier, Iterator[NodeRequirement]],
        incompatibilities: Mapping[Identifier, Iterator[Node]],
    ) -> Sequence[Node] | Callable[[], Iterator[Node]]:
        """Return the candidates of a node that meet all of its requirements, best first.

        There are no incompatibilities: resolvelib marks them when it backtracks, and a resolution
        ends at its first conflict.

        Releases that the host or the data refuse are no candidates: as candidates that fail on
        a host fact they would make resolvelib try everything else first.

        Raises:
            MoreReleasesError: the live index has more releases of the package.
            PackageIndexError: an index failed.
        """
        of_node = list(requirements[identifier])
        if isinstance(identifier, PackageId):
            if identifier.extras:  # requirements on the package hold for package[extra]
                of_node += requirements.get(PackageId.of(identifier.name), ())
            return self._find_candidates(identifier, of_node)
        if isinstance(identifier, FrameworkId):
            return self._find_variants(of_node)
        if isinstance(identifier, AgreementId):
            return _find_agreement(identifier, of_node)
        # A host fact or a nogood.
        if isinstance(identifier, NogoodId) or any(map(self.is_blocked, of_node)):
            return ()
        return (Token(identifier),)

    def _find_candidates(
        self, identifier: PackageId, requirements: Sequence[NodeRequirement]
    ) -> Callable[[], Iterator[Node]]:
        name, extras = identifier.name, identifier.extras
        matches = self._matching(name, requirements, keep_all=bool(extras))
        return lambda: self._possible(matches, extras)

    def _possible(
        self, matches: Sequence[Candidate], extras: tuple[str, ...]
    ) -> Iterator[Candidate]:
        """Yield the candidates that may be chosen, as nodes with extras."""
        for place, match in enumerate(matches):
            if place in _BATCHES and match not in self._requested:
                following = matches[place : _BATCHES[place]]
                self._requested.update(following)
                self.store.index.request_dependencies([candidate.wheel for candidate in following])
            if self._is_possible(match):
                node = self.with_extras(match, extras) if extras else match
                if not self._nogoods.exclude(node):
                    yield node

    def _is_possible(self, release: Release) -> bool:
        return not self.is_refused(release) and not self._nogoods.exclude(release)

    def _matching(
        self, name: str, requirements: Sequence[NodeRequirement], *, keep_all: bool
    ) -> Sequence[Candidate]:
        """Return the candidates of a name that meet requirements and constraints, best first.

        With `keep_all`, candidates that only the rules for pre-releases and yanked releases
        exclude come last: they depend on requirements of the package itself, which may change.
        """
        on_package = [
            requirement
            for requirement in requirements
            if isinstance(requirement, PackageRequirement)
        ]
        ranges = [requirement.specifier for requirement in on_package if requirement.specifier]
        ranges += self.constraints.ranges.get(name, [])
        urls = [requirement.url for requirement in on_package if requirement.url]
        urls += self.constraints.urls.get(name, [])
        matches: Sequence[Candidate]
        if urls:
            matches = self._in_ranges(self.store.at_url(name, urls[0]), ranges)
            matches = [match for match in matches if all(self._is_at(url, match) for url in urls)]
        else:
            matches = self._from_indexes(name, ranges, keep_all=keep_all)
        for requirement in requirements:
            if isinstance(requirement, SameFileRequirement):
                matches = [match for match in matches if requirement.is_file_of(match)]
        return matches

    def _from_indexes(
        self, name: str, ranges: Sequence[str], *, keep_all: bool
    ) -> Sequence[Candidate]:
        key = (name, keep_all, frozenset(ranges))
        if key not in self._matches:
            self._matches[key] = self._read_matches(name, ranges, keep_all=keep_all)
        return self._matches[key]

    def _read_matches(
        self, name: str, ranges: Sequence[str], *, keep_all: bool
    ) -> Sequence[Candidate]:
        self.widening.try_prereleases(name, ranges)
        candidates = self.store.candidates(name)
        matches = self.store.in_ranges(name, ranges)
        if not matches:
            self.widening.try_for(name, ranges)
        elif matches[0] is not candidates[0]:
            self.widening.try_newer(name, ranges, matches, candidates)
        # resolvelib adds the requirements of the request one by one. All of them hold, so together
        # they decide from the beginning which pre-releases and yanked releases are admitted.
        requested = self._requested_ranges.get(name, ())
        matches = self._in_ranges(matches, requested) or matches
        best = self.store.admitted(name, matches, [*ranges, *requested])
        if name in self._sparse:
            return newest_of_series(best)
        if keep_all and len(best) < len(matches):
            admitted_ones = set(best)
            best += [match for match in matches if match not in admitted_ones]
        return best

    def _find_variants(
        self, requirements: Sequence[NodeRequirement]
    ) -> Callable[[], Iterator[Node]]:
        on_framework = [
            requirement
            for requirement in requirements
            if isinstance(requirement, FrameworkRequirement)
        ]
        framework = on_framework[0].framework
        ranges = [requirement.specifier for requirement in on_framework if requirement.specifier]
        ranges += self.constraints.ranges.get(framework.distribution, [])
        matches = self._in_ranges(self.store.variants(framework), ranges)
        if not matches:
            for way in framework.ways:
                self.widening.try_for(parse_requirement(way.requires[0]).name, ranges)
        matches = self.store.admitted(framework.distribution, matches, ranges)
        return lambda: (match for match in matches if self._is_possible(match))

    def _in_ranges(self, releases: Sequence[ReleaseT], ranges: Sequence[str]) -> Sequence[ReleaseT]:
        if not ranges:
            return releases
        contains = self._contains
        return [
            release
            for release in releases
            if all(contains(specifier, release.version, True) for specifier in ranges)
        ]

    def _is_at(self, url: str, candidate: Candidate) -> bool:
        at_url = self.store.at_url(candidate.name, url)
        return any(candidate.wheel is other.wheel for other in at_url)

    def with_extras(self, candidate: Candidate, extras: tuple[str, ...]) -> Candidate:
        """Return the node of a candidate with extras, always the same object."""
        key = (candidate, extras)
        node = self._known.with_extras.get(key)
        if node is None:
            node = self._known.with_extras[key] = candidate.with_extras(extras)
        return node

    # ---- resolvelib: requirements

    def is_satisfied_by(self, requirement: NodeRequirement, candidate: Node) -> bool:
        """Return whether a candidate of the requirement's node meets the requirement."""
        key = (requirement, candidate)
        answer = self._satisfied.get(key)
        if answer is None:  # resolvelib asks again for every pin in every round
            answer = self._satisfied[key] = self._satisfies(requirement, candidate)
        return answer

    def _satisfies(self, requirement: NodeRequirement, candidate: Node) -> bool:
        if isinstance(requirement, PackageRequirement):
            return isinstance(candidate, Candidate) and self._meets(requirement, candidate)
        if isinstance(requirement, HostRequirement):
            return not self.is_blocked(requirement)
        if isinstance(requirement, AgreementRequirement):
            return isinstance(candidate, Token) and candidate.value in requirement.values
        if isinstance(requirement, FrameworkRequirement):
            return isinstance(candidate, Variant) and self._is_in(requirement.specifier, candidate)
        if isinstance(requirement, SameFileRequirement):
            return isinstance(candidate, Candidate) and requirement.is_file_of(candidate)
        return False

    def get_dependencies(self, candidate: Node) -> Sequence[NodeRequirement]:
        """Return the requirements of a candidate, or a nogood if it cannot be chosen with the pins.

        Raises:
            PackageIndexError: see requirements_of.
        """
        chosen = self.pins.chosen
        if self._nogoods.exclude(candidate):  # learned since the candidates of its node were found
            return (NogoodRequirement(frozenset((candidate,)), self._nogoods.why(candidate)),)
        nogood = self._nogoods.violated(candidate, chosen)
        if nogood is not None:
            return (nogood,)
        requirements = self.requirements_of(candidate)
        for requirement in requirements:
            if _own_range(requirement) in self._unmet:
                return (_exclude((candidate,), requirement, candidate),)
            pin = chosen.get(requirement.identifier)
            if pin is None or self.is_satisfied_by(requirement, pin):
                continue
            if not self._may_replace(requirement.identifier, candidate.identifier):
                return (_exclude((pin, candidate), requirement, candidate),)
        if isinstance(candidate, Candidate) and candidate not in self._followed:
            self._followed.add(candidate)
            self.store.index.request_needs(candidate.wheel, candidate.extras)
        return requirements

    def _may_replace(self, node: Identifier, later: Identifier) -> bool:
        """Return whether the pin of a node may give way to the requirement of a later one.

        The node of a framework of the request does not: a later package could cost it its newest
        release. A framework that the request does not name gives way to packages that the request
        names.
        """
        if node in self.order:
            return False
        if self._is_framework(node) and later not in self._named:
            return False
        return self.pins.may_replace(node)

    def requirements_of(self, candidate: Node) -> Sequence[NodeRequirement]:
        """Return the requirements of a candidate on this host.

        Raises:
            PackageIndexError: an index failed. A file that cannot be used (UnusableFileError)
                or that is not in the cache (OfflineError) gives a requirement that nothing fulfils
                instead.
        """
        known = self._known.of_node
        if candidate not in known:
            if isinstance(candidate, Candidate):
                known[candidate] = tuple(self._read(candidate))
            elif isinstance(candidate, Variant):
                known[candidate] = self.facts.requirements(candidate)
            else:
                known[candidate] = ()
        return known[candidate]

    def known_requirements(self, candidate: Node) -> Sequence[NodeRequirement]:
        """Return what a candidate requires if that was read before, otherwise ()."""
        return self._known.of_node.get(candidate, ())

    def is_refused(self, release: Release) -> bool:
        """Return whether the host or the data refuse a release."""
        refused = self._refused.get(release)
        if refused is None:
            refused = is_refused(self.facts.reasons(release), lenient=self.lenient)
            self._refused[release] = refused
        return refused

    def is_blocked(self, requirement: NodeRequirement) -> bool:
        """Return whether a requirement is a host fact that the host does not fulfil."""
        if not isinstance(requirement, HostRequirement):
            return False
        return is_refused(requirement.reasons, lenient=self.lenient)

    def _is_in(self, specifier: str, release: Release) -> bool:
        return not specifier or self._contains(specifier, release.version, True)

    def _meets(self, requirement: PackageRequirement, candidate: Candidate) -> bool:
        if requirement.url is not None and not self._is_at(requirement.url, candidate):
            return False
        return self._is_in(requirement.specifier, candidate)

    def _read(self, candidate: Candidate) -> Iterator[NodeRequirement]:
        """Yield the requirements of a candidate. It stops at one that the host does not fulfil.

        Such a build cannot be chosen, so its dependencies need not be fetched.
        """
        if candidate.extras:
            yield SameFileRequirement(candidate.wheel)
        else:
            for requirement in self.facts.requirements(candidate):
                yield requirement
                if self.is_blocked(requirement):
                    return
        try:
            dependencies = self.store.dependencies(candidate.wheel)
        except UnusableFileError as error:
            yield HostRequirement(FILE_FACT, (error.reason,))
            return
        except OfflineError as error:
            self.widening.offline.append(error)
            yield HostRequirement(FILE_FACT, (not_cached(candidate.wheel),))
            return
        if not candidate.extras:
            yield from self._python_requirement(candidate)
        # A node with extras has the dependencies of its package, too: a release that cannot be
        # chosen is then no candidate of either node.
        matches = self.store.environment.marker
        for dependency in dependencies:
            marker = dependency.marker
            if marker is None or matches(marker, candidate.extras):
                yield from self._package_requirements(candidate, dependency)

    def _package_requirements(
        self, candidate: Candidate, dependency: Requirement
    ) -> Iterator[NodeRequirement]:
        built = candidate.build or candidate.library
        if built is None and candidate.extras:
            built = self.store.build_of_extras(candidate)
        specifier = _with_cudnn_range(built, dependency)
        requirement = PackageRequirement(
            dependency.name, dependency.extras, specifier, dependency.url
        )
        if requirement.name != candidate.name:
            yield from requirement.with_base()
            return
        # A requirement of a release on its own package. As an ordinary requirement it would pin
        # the release to itself, or make resolvelib walk in a circle.
        if not self._meets(requirement, candidate):
            subject = f"{candidate.identifier} {candidate.version}"
            have = f"{candidate.version} itself"
            reason = Reason(code="conflict", subject=subject, need=str(requirement), have=have)
            yield HostRequirement(FILE_FACT, (reason,))
        elif requirement.extras and requirement.extras != candidate.extras:
            yield PackageRequirement(requirement.name, requirement.extras, "")

    def _python_requirement(self, candidate: Candidate) -> Iterator[HostRequirement]:
        """Yield the Requires-Python of a file's metadata if the target's Python violates it."""
        requires_python = self.store.index.requires_python(candidate.wheel)
        if not requires_python or self.store.environment.accepts_python(requires_python):
            return
        reason = Reason(
            code="requires-python",
            subject=f"{candidate.name} {candidate.version}",
            need=requires_python,
            have=python_text(self.store.host),
        )
        yield HostRequirement(PYTHON_FACT, (reason,))


def _own_range(requirement: NodeRequirement) -> tuple[str, str] | None:
    """Return the package and the range of a requirement.

    None for a requirement whose candidates other requirements can limit (extras), and for a URL.
    """
    if not isinstance(requirement, PackageRequirement) or requirement.extras or requirement.url:
        return None
    return requirement.name, requirement.specifier


def _exclude(
    releases: tuple[Node, ...], requirement: NodeRequirement, parent: Node
) -> NogoodRequirement:
    """Return the nogood of releases that a requirement of one of them excludes."""
    cause: Cause = RequirementInformation[NodeRequirement, Node](requirement, parent)
    return NogoodRequirement(frozenset(releases), (cause,))


def _without_waiting(identifiers: list[Identifier]) -> list[Identifier]:
    """Leave out packages whose node with extras is open, too."""
    waiting = set()
    for identifier in identifiers:
        if isinstance(identifier, PackageId) and identifier.extras:
            waiting.add(identifier.name)
    if not waiting:
        return identifiers
    return [identifier for identifier in identifiers if identifier not in waiting]


def _narrowness(requirement: NodeRequirement) -> int:
    """Return how narrow a requirement is: a sum of the numbers from _ONE_FILE to _ANY_RANGE."""
    if isinstance(requirement, PackageRequirement):
        narrowness = _narrowness_of_range(requirement.specifier)
        return narrowness | _ONE_FILE if requirement.url else narrowness
    return _ONE_FILE if isinstance(requirement, SameFileRequirement) else 0


@cache  # the order of decisions depends on it in every round
def _narrowness_of_range(specifier: str) -> int:
    if not specifier:
        return 0
    narrowness = _ANY_RANGE
    if is_pinned(specifier):
        narrowness |= _ONE_VERSION
    if _has_bound(specifier):
        narrowness |= _UPPER_BOUND
    return narrowness


def _has_bound(specifier: str) -> bool:
    """Return whether a specifier set limits versions upwards: <, <=, ~= or ==."""
    return any(clause[:1] in "<~=" for clause in specifier.split(",") if clause)


def _find_agreement(
    identifier: AgreementId, requirements: Sequence[NodeRequirement]
) -> Sequence[Token]:
    """Return a token for each value that all requirements name, the greatest first."""
    common: set[str] | None = None
    for requirement in requirements:
        if isinstance(requirement, AgreementRequirement):
            values = set(requirement.values)
            common = values if common is None else common & values
    return [Token(identifier, value) for value in sorted(common or (), reverse=True)]


def _with_cudnn_range(built: Build | Library | None, dependency: Requirement) -> str:
    """Return the specifier of a dependency; R4 narrows a cuDNN range to what fits the build.

    That is the major version that the build was made with, and no older minor version.
    """
    specifier = dependency.specifier
    if not dependency.name.startswith("nvidia-cudnn-") or is_exact(specifier):
        return specifier
    if built is None or built.cudnn is None:
        return specifier
    major, minor = (*built.cudnn.split("."), "0")[:2]
    clauses = [f">={major}.{minor}", f"<{int(major) + 1}"]
    if specifier:
        clauses.insert(0, specifier)
    return ",".join(clauses)
