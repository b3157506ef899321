"""Constraint propagation: which releases can go together at all.

resolvelib sees a conflict only after it has chosen both sides, and then retries everything that it
chose in between. With five frameworks on an old GPU this exceeds any sensible number of rounds.

Here every node has the set of its possible releases, as bits of an integer (bit 0 is the best
release). Propagation removes releases until nothing changes (arc consistency):

- A release goes if it requires something that no possible release fulfils.
- What all possible releases of a node require limits the sets of other nodes.

Then the next framework is fixed to its best possible release, and propagation runs again.

Full propagation reads every release of every node, which takes a while. Shallow propagation (unit
propagation) follows only nodes with one release left. The usual conflicts of frameworks, one CUDA
major and one cuDNN, already show there.

Propagation only excludes. A name that the network would have to be asked about, and a file at a
URL, may be anything. resolvelib decides about what is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from .graph import (
    AgreementRequirement,
    Candidate,
    FrameworkRequirement,
    HostRequirement,
    Identifier,
    Node,
    NodeRequirement,
    PackageId,
    PackageRequirement,
    SameFileRequirement,
    Variant,
)
from .provider import Provider

Sets = dict[Identifier, int]  # node -> its possible releases as bits
Allowed = dict[str, frozenset[int]]  # see Provider.allowed

_ANYTHING = -1  # all bits


class TooManyTrialsError(Exception):
    """The search took more trials than it may."""


def combinations(
    provider: Provider, roots: Sequence[NodeRequirement], max_trials: int, *, shallow: bool = False
) -> Iterator[Allowed]:
    """Yield what is possible for each combination of framework releases, the best first.

    In the first combination the first framework of the provider's order is as new as possible,
    then the second one, and so on. Without any combination nothing is possible.

    Raises:
        TooManyTrialsError: after `max_trials` releases were tried.
    """
    propagation = _Propagation(provider, max_trials, shallow=shallow)
    sets: Sets = {}
    for root in roots:
        mask = propagation.mask(root)
        if mask is not None:
            node = root.identifier
            sets[node] = sets.get(node, propagation.all(node)) & mask
    frameworks = [node for node in sets if node in provider.order]
    frameworks.sort(key=provider.order.__getitem__)
    for combination in propagation.choices(propagation.propagated(sets, set(sets)), frameworks):
        yield propagation.allowed(combination)


class _Propagation:
    """Sets of releases, and what each release requires as sets."""

    def __init__(self, provider: Provider, max_trials: int, *, shallow: bool) -> None:
        self._provider = provider
        self._trials_left = max_trials
        self._shallow = shallow
        self._releases: dict[Identifier, Sequence[Node]] = {}
        self._values: dict[Identifier, dict[str, int]] = {}  # agreement -> value -> its bit
        self._masks: dict[tuple[Identifier, str], int] = {}
        self._required: dict[tuple[Identifier, int], Sets | None] = {}
        self._dependents: dict[Identifier, set[Identifier]] = {}

    # ---- requirements as sets

    def all(self, node: Identifier) -> int:
        """Return every known release of a node as bits; of an agreement every value."""
        if node not in self._releases:
            return _ANYTHING
        return (1 << len(self._releases[node])) - 1

    def mask(self, requirement: NodeRequirement) -> int | None:
        """Return the releases of its node that a requirement admits; None if it may be anything."""
        if isinstance(requirement, AgreementRequirement):
            values = self._values.setdefault(requirement.identifier, {})
            return 1 << values.setdefault(requirement.value, len(values))
        if isinstance(requirement, HostRequirement):
            return 0 if self._provider.is_blocked(requirement) else None
        if not self._is_known(requirement):
            return None
        mask = self._mask_of_releases(requirement)
        if not mask and isinstance(requirement, PackageRequirement):
            ranges = [
                requirement.specifier,
                *self._provider.constraints.ranges.get(requirement.name, ()),
            ]
            if self._provider.widening.may_help(requirement.name, ranges):
                return None
        return mask

    def _is_known(self, requirement: NodeRequirement) -> bool:
        """Return whether all releases of a requirement's node are known without the network."""
        if isinstance(requirement, FrameworkRequirement):
            names = [way.requires[0].partition("[")[0] for way in requirement.framework.ways]
            return all(map(self._is_name_known, names))
        if isinstance(requirement, PackageRequirement):
            return not requirement.url and self._is_name_known(requirement.name)
        return True

    def _is_name_known(self, name: str) -> bool:
        store = self._provider.store
        return (
            store.index.at_hand(name)
            and name not in store.request.allow_sdist
            and not self._provider.constraints.urls.get(name)
        )

    def _mask_of_releases(self, requirement: NodeRequirement) -> int:
        text = str(requirement)
        if isinstance(requirement, SameFileRequirement):
            text = requirement.wheel.filename
        key = (requirement.identifier, text)
        mask = self._masks.get(key)
        if mask is None:
            mask = 0
            for number, release in enumerate(self._releases_of(requirement)):
                if self._provider.is_satisfied_by(requirement, release):
                    mask |= 1 << number
            self._masks[key] = mask
        return mask

    def _releases_of(self, requirement: NodeRequirement) -> Sequence[Node]:
        """Return every release of a node that the host and the constraints admit, best first.

        Whether a variant of a framework is refused is looked at when it is tried.
        """
        node = requirement.identifier
        if node not in self._releases:
            if isinstance(node, PackageId):
                self._releases[node] = self._candidates(node)
            elif isinstance(requirement, FrameworkRequirement):
                self._releases[node] = self._provider.store.variants(requirement.framework)
        return self._releases[node]

    def _candidates(self, node: PackageId) -> list[Candidate]:
        provider, name, extras = self._provider, node.name, node.extras
        contains = provider.store.environment.contains
        ranges = provider.constraints.ranges.get(name, [])
        candidates = []
        for candidate in provider.store.candidates(name):
            if provider.is_refused(candidate):
                continue
            if all(contains(specifier, candidate.version, True) for specifier in ranges):
                candidates.append(candidate)
        if extras:
            candidates = [provider.with_extras(candidate, extras) for candidate in candidates]
        return candidates

    def _required_by(self, node: Identifier, number: int) -> Sets | None:
        """Return what a release requires of other nodes; None if the release is impossible."""
        key = (node, number)
        if key not in self._required:
            self._required[key] = self._read_required(node, number)
        return self._required[key]

    def _read_required(self, node: Identifier, number: int) -> Sets | None:
        required: Sets = {}
        if node not in self._releases:
            return required  # an agreement requires nothing
        release = self._releases[node][number]
        if isinstance(release, Variant) and self._provider.is_refused(release):
            return None
        for requirement in self._provider.get_dependencies(release):
            mask = self.mask(requirement)
            if mask is None:
                continue
            target = requirement.identifier
            self._dependents.setdefault(target, set()).add(node)
            if not mask:
                return None
            required[target] = required.get(target, _ANYTHING) & mask
        return required

    # ---- propagation

    def propagated(self, sets: Sets, changed: set[Identifier]) -> Sets | None:
        """Return the sets without impossible releases; None if a node has no release left.

        Args:
            sets: the possible releases of every node that is required so far.
            changed: the nodes whose set, or the set of one of their requirements, became smaller.
        """
        sets, queue = dict(sets), set(changed)
        while queue:
            node = queue.pop()
            if self._shallow and _several(sets[node]):
                continue
            possible, common = self._possible_releases(sets, node)
            if not possible:
                return None
            if possible != sets[node]:
                sets[node] = possible
                queue |= self._dependents_in(node, sets)
            for other, mask in common.items():
                left = sets.get(other, self.all(other)) & mask
                if sets.get(other) != left:
                    sets[other] = left
                    queue |= {other} | self._dependents_in(other, sets)
        return sets

    def _possible_releases(self, sets: Sets, node: Identifier) -> tuple[int, Sets]:
        """Return the releases of a node that are possible, and what all of these require."""
        possible = 0
        common: Sets | None = None
        for number in _bits(sets[node]):
            required = self._required_by(node, number)
            if required is None or not self._fulfils(sets, required):
                continue
            possible |= 1 << number
            common = _either(required, common)
        return possible, common or {}

    def _fulfils(self, sets: Sets, required: Mapping[Identifier, int]) -> bool:
        """Return whether the sets leave something of everything that is required."""
        return all(sets.get(node, self.all(node)) & mask for node, mask in required.items())

    def _dependents_in(self, node: Identifier, sets: Sets) -> set[Identifier]:
        return self._dependents.get(node, set()) & sets.keys()

    # ---- search

    def choices(self, sets: Sets | None, frameworks: Sequence[Identifier]) -> Iterator[Sets]:
        """Yield the sets for each choice of one release for every framework, best first."""
        if sets is None or not (self._shallow or self._has_solution(sets)):
            return
        if not frameworks:
            yield sets
            return
        framework, *others = frameworks
        for number in _bits(sets[framework]):
            self._count_trial()
            required = self._required_by(framework, number)
            if required is not None and self._fulfils(sets, required):
                yield from self.choices(self._fixed(sets, framework, number), others)

    def _has_solution(self, sets: Sets) -> bool:
        """Return whether one release can be chosen for every node."""
        undecided = [node for node, mask in sets.items() if _several(mask)]
        if not undecided:
            return True
        node = min(undecided, key=lambda node: (sets[node].bit_count(), node))
        for number in _bits(sets[node]):
            self._count_trial()
            fixed = self._fixed(sets, node, number)
            if fixed is not None and self._has_solution(fixed):
                return True
        return False

    def _fixed(self, sets: Sets, node: Identifier, number: int) -> Sets | None:
        """Return the sets with one release chosen for a node."""
        changed = {node}
        if not self._shallow:
            changed |= self._dependents_in(node, sets)
        return self.propagated({**sets, node: 1 << number}, changed)

    def _count_trial(self) -> None:
        self._trials_left -= 1
        if self._trials_left < 0:
            raise TooManyTrialsError

    def allowed(self, sets: Sets) -> Allowed:
        """Return the sets as the provider takes them."""
        allowed: Allowed = {}
        for node, mask in sets.items():
            if node not in self._releases or (isinstance(node, PackageId) and node.extras):
                continue
            ids = set()
            for number in _bits(mask):
                release = self._releases[node][number]
                # A wheel stands for the nodes of all extras.
                ids.add(id(release.wheel) if isinstance(release, Candidate) else id(release))
            allowed[node] = frozenset(ids)
        return allowed


def _either(required: Sets, common: Sets | None) -> Sets:
    """Return what a release and all releases before it require: by shared node the union."""
    if common is None:
        return dict(required)
    return {node: mask | required[node] for node, mask in common.items() if node in required}


def _several(mask: int) -> bool:
    """Return whether a mask has more than one bit."""
    return bool(mask & (mask - 1))


def _bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits of a mask, the lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
