"""Which parts of a request are impossible alone or together, and on what they conflict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import combinations, permutations, product

from ..errors import GpuEnvError, PackageIndexError, Reason, is_doubt
from .candidates import CandidateStore
from .graph import (
    AgreementRequirement,
    FrameworkRequirement,
    Identifier,
    Node,
    NodeRequirement,
    PackageId,
    PackageRequirement,
    Release,
    Token,
    without_extras,
)
from .release_facts import ReleaseFacts
from .resolution import ImpossibleError

Roots = tuple[NodeRequirement, ...]
# requirements, packages of which few releases are looked at, the number of conflicts after which
# there is no answer -> the candidates of a solution; raises ImpossibleError
Attempt = Callable[[Sequence[NodeRequirement], Collection[str], int], list[Node]]

MAX_TRIAL_CONFLICTS = 300  # of a part of a request: each can need the metadata of another release
REQUEST = "the request"
# Trials that only save other trials: how many, and the conflicts after which one ends.
MAX_RESTS, FEW_CONFLICTS = 3, 20
ALL_PAIRS_UP_TO = 6  # requirements; of more only pairs with a framework are tried


class Trials:
    """Solves parts of a request, each part once. After `max_trials` no further part is tried."""

    def __init__(self, attempt: Attempt, max_trials: int) -> None:
        self._attempt = attempt
        self._trials_left = max_trials
        self._results: dict[tuple[object, ...], list[Node] | ImpossibleError | None] = {}
        self._solved: list[frozenset[str]] = []  # requirements that have a solution together

    def allow(self, further_trials: int) -> None:
        """Allow further trials."""
        self._trials_left += further_trials

    def note(self, roots: Sequence[NodeRequirement], result: ImpossibleError) -> None:
        """Note that requirements have no solution."""
        self._results[_key(roots)] = result

    def solve(
        self,
        roots: Sequence[NodeRequirement],
        sparse: Collection[str] = (),
        max_conflicts: int = MAX_TRIAL_CONFLICTS,
    ) -> list[Node] | ImpossibleError | None:
        """Return a solution, which may have doubts; None if the answer is not known.

        Of the packages in `sparse`, only the newest release of each minor series is looked at.
        """
        key = _key(roots, sparse)
        if key in self._results:
            return self._results[key]
        result: list[Node] | ImpossibleError | None = None
        if self._trials_left > 0:
            self._trials_left -= 1
            try:
                result = self._attempt(roots, sparse, max_conflicts)
                self._solved.append(frozenset(map(str, roots)))
            except ImpossibleError as error:
                result = error.with_traceback(None)
            except GpuEnvError:  # an index did not answer, or too many conflicts
                pass
        if result is not None or max_conflicts == MAX_TRIAL_CONFLICTS:
            self._results[key] = result
        return result

    def fails(self, roots: Sequence[NodeRequirement]) -> bool:
        """Return whether it is known that requirements have no solution together.

        A part of requirements that have one is not tried.
        """
        texts = frozenset(map(str, roots))
        if any(texts <= solved for solved in self._solved):
            return False
        return isinstance(self.solve(roots), ImpossibleError)

    def nodes(self, roots: Sequence[NodeRequirement], sparse: Collection[str] = ()) -> list[Node]:
        """Return the candidates of a solution (see `solve`); [] if there is none."""
        result = self.solve(roots, sparse)
        return result if isinstance(result, list) else []


def _key(roots: Sequence[NodeRequirement], sparse: Collection[str] = ()) -> tuple[object, ...]:
    return (*sorted(map(str, roots)), frozenset(sparse))


def conflicting_groups(trials: Trials, roots: Sequence[NodeRequirement]) -> list[Roots]:
    """Return the smallest groups of requirements that have no solution together.

    These are single requirements and pairs, or else one larger group. The result is empty if too
    little is known.
    """
    blamed = _blamed(trials, roots)
    groups: list[Roots] = [(root,) for root in roots if trials.fails((root,))]
    possible = [root for root in roots if (root,) not in groups]
    for pair in combinations(possible, 2):
        has_framework = any(isinstance(root, FrameworkRequirement) for root in pair)
        if (len(possible) <= ALL_PAIRS_UP_TO or has_framework) and trials.fails(pair):
            groups.append(pair)
    if groups or len(roots) == 1:
        return groups
    if trials.fails(blamed):
        return _larger_group(trials, blamed)
    return _larger_group(trials, roots)


def _blamed(trials: Trials, roots: Sequence[NodeRequirement]) -> list[NodeRequirement]:
    """Return the requirements that the proof of the refusal blames, and those that block the rest.

    If the rest has a solution, each of its requirements is possible alone. If there are many to
    blame, or many conflicts, trials of single requirements take less time.
    """
    rest, blamed = list(roots), []
    result = trials.solve(rest)
    for _ in range(MAX_RESTS):
        if not isinstance(result, ImpossibleError):
            break
        nodes = {without_extras(result.node)}
        for cause in result.causes:
            nodes.add(without_extras((cause.parent or cause.requirement).identifier))
        blamed += [root for root in rest if without_extras(root.identifier) in nodes]
        rest = [root for root in rest if root not in blamed]
        result = trials.solve(rest, max_conflicts=FEW_CONFLICTS)
    return blamed


def _larger_group(trials: Trials, roots: Sequence[NodeRequirement]) -> list[Roots]:
    """Return one group of which every requirement counts; [] if too little is known."""
    core = list(roots)
    for root in roots:
        smaller = [other for other in core if other is not root]
        if trials.fails(smaller):
            core = smaller
    if len(core) < len(roots) or trials.fails(core):
        return [tuple(core)]
    return []


def group_conflicts(facts: ReleaseFacts, trials: Trials, group: Roots) -> tuple[Reason, ...]:
    """Return on what the members of a group conflict.

    First the newest release of each member against those of the others, then what the members'
    further releases say about the same topics. Codes: cuda-major, cuda-variant, two-owners,
    bad-pair, conflict (ranges of one package that no release meets).
    """
    members = [_Member(facts, root, trials.nodes((root,))) for root in group]
    reasons: list[Reason] = []
    for member, other in combinations(members, 2):
        reasons += _range_conflicts(facts.store, member, other)
        reasons += _disagreements(member, other)
    if any(reason.code in ("cuda-major", "cuda-variant") for reason in reasons):
        for member, other in permutations(members, 2):
            reasons += _further_conflicts(facts, member, other)
    return tuple(dict.fromkeys(reasons))


class _Member:
    """One requirement of the request, with everything that its newest solution requires.

    Attributes:
        root: the requirement.
        label: the newest release, or the requirement if it has no solution.
        ranges: package -> (who requires it, the requirement).
        agreements: topic -> (who requires a value, the requirement).
    """

    def __init__(self, facts: ReleaseFacts, root: NodeRequirement, nodes: Sequence[Node]) -> None:
        self.root = root
        self.ranges: dict[Identifier, list[tuple[str, PackageRequirement]]] = {}
        self.agreements: dict[Identifier, list[tuple[str, AgreementRequirement]]] = {}
        self._add(REQUEST, root)
        own = [node for node in nodes if node.identifier == root.identifier]
        self.label = _label(own[0]) if own else str(root)
        files = [node.wheel for node in own if not isinstance(node, Token)]
        for node in (*own, *(node for node in nodes if node not in own)):
            try:
                requirements = facts.requirements_of(node)
            except PackageIndexError:
                continue
            parent = self.label
            # jax 0.12.0 is the distribution of jax 0.12.0 (cuda12).
            is_own_file = not isinstance(node, Token) and any(node.wheel is file for file in files)
            if node not in own and not is_own_file:
                parent = f"{_label(node)} (for {self.label})"
            for requirement in requirements:
                self._add(parent, requirement)

    def _add(self, parent: str, requirement: NodeRequirement) -> None:
        if isinstance(requirement, PackageRequirement):
            self.ranges.setdefault(requirement.identifier, []).append((parent, requirement))
        elif isinstance(requirement, AgreementRequirement):
            self.agreements.setdefault(requirement.identifier, []).append((parent, requirement))

    def owner_text(self, name: str) -> str:
        """Return "nvidia-cudnn-cu13==9.26.0.51 of torch 2.15.0"."""
        texts = [str(requirement) for _, requirement in self.ranges.get(PackageId(name), ())]
        return f"{max(texts, key=len, default=name)} of {self.label}"


def _range_conflicts(store: CandidateStore, member: _Member, other: _Member) -> list[Reason]:
    """Return ranges of two members on one package that no release meets together.

    Ranges of the members' own requirements hide those of packages that they bring.
    """
    own_labels = (member.label, REQUEST, other.label)
    direct: list[Reason] = []
    indirect: list[Reason] = []
    for node in member.ranges:
        compared = set()
        for pair in product(member.ranges[node], other.ranges.get(node, ())):
            (parent, requirement), (other_parent, opposite) = pair
            texts = (str(requirement), str(opposite))
            if texts in compared or _meet(store, requirement, opposite):
                continue
            compared.add(texts)
            is_direct = parent in own_labels[:2] and other_parent in own_labels[1:]
            if parent == REQUEST:
                (parent, requirement), (other_parent, opposite) = reversed(pair)
            origin = f"which {other_parent} needs"
            if other_parent == REQUEST:
                origin = "as requested"
            need, have = str(requirement), f"{opposite}, {origin}"
            reason = Reason(code="conflict", subject=parent, need=need, have=have)
            (direct if is_direct else indirect).append(reason)
    return direct or indirect


def _meet(
    store: CandidateStore, requirement: PackageRequirement, opposite: PackageRequirement
) -> bool:
    """Return whether some release meets two requirements on one package."""
    if requirement.url or opposite.url:
        return requirement.url == opposite.url or not (requirement.url and opposite.url)
    candidates = store.candidates(requirement.name)
    return bool(store.in_ranges(candidates, [requirement.specifier, opposite.specifier]))


def _disagreements(member: _Member, other: _Member) -> Iterator[Reason]:
    """Yield the first two requirements of each topic that have no common value."""
    for node in member.agreements:
        for parent, requirement in member.agreements[node]:
            opposite = _opposite(other, requirement)
            if opposite is None:
                continue
            other_parent, agreement = opposite
            subject, need = parent, str(requirement)
            have = f"{other_parent}, which needs {agreement}"
            if requirement.code == "two-owners":
                subject, need = requirement.topic, "one owner"
                owners = requirement.values[0], agreement.values[0]
                have = f"{member.owner_text(owners[0])} and {other.owner_text(owners[1])}"
            elif requirement.code == "bad-pair":
                have = other_parent
            yield Reason(code=requirement.code, subject=subject, need=need, have=have)
            break


def _opposite(
    member: _Member, agreement: AgreementRequirement
) -> tuple[str, AgreementRequirement] | None:
    """Return who requires another value of the same topic first, and the requirement."""
    for parent, requirement in member.agreements.get(agreement.identifier, ()):
        if not requirement.agrees_with(agreement):
            return parent, requirement
    return None


def _further_conflicts(facts: ReleaseFacts, member: _Member, other: _Member) -> Iterator[Reason]:
    """Yield what the further releases of a member say about the topics of another one.

    If the host refuses a release, the reasons of the host.
    """
    root, store = member.root, facts.store
    releases: Sequence[Release] = ()
    if isinstance(root, FrameworkRequirement):
        releases = store.in_ranges(store.variants(root.framework), [root.specifier])
    elif isinstance(root, PackageRequirement) and root.url is None:
        is_build = store.framework_of(root.name) is not None
        candidates = store.candidates(root.name) if is_build else ()
        releases = store.in_ranges(candidates, [root.specifier])
    for release in releases:
        # On a host with a GPU, CPU builds are no alternatives.
        is_cpu = release.build is not None and release.build.cuda is None
        if release.is_yanked or (is_cpu and store.host.gpus):
            continue
        refusals = [reason for reason in facts.reasons(release) if not is_doubt(reason)]
        yield from refusals
        if refusals or release.label == member.label:
            continue
        for agreement in facts.agreements(release):
            opposite = _opposite(other, agreement)
            if opposite is not None:
                code, need = agreement.code, str(agreement)
                have = f"{opposite[0]}, which needs {opposite[1]}"
                yield Reason(code=code, subject=release.label, need=need, have=have)


def _label(node: Node) -> str:
    return str(node) if isinstance(node, Token) else node.label
