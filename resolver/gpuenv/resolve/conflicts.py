"""Which parts of a request are impossible alone or together, and on what they conflict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import combinations, permutations

from ..errors import GpuEnvError, PackageIndexError, Reason, is_doubt
from .candidates import CandidateStore
from .graph import (
    AgreementId,
    AgreementRequirement,
    BadPairRequirement,
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
from .release_facts import CUDA_BUILD, CUDA_MAJOR, OWNER, TORCH_ABI, ReleaseFacts
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
        result = self._solve(roots, sparse, max_conflicts)
        if result is not None or max_conflicts == MAX_TRIAL_CONFLICTS:
            self._results[key] = result
        return result

    def _solve(
        self, roots: Sequence[NodeRequirement], sparse: Collection[str], max_conflicts: int
    ) -> list[Node] | ImpossibleError | None:
        if self._trials_left <= 0:
            return None
        self._trials_left -= 1
        try:
            nodes = self._attempt(roots, sparse, max_conflicts)
        except ImpossibleError as error:
            return error.with_traceback(None)
        except GpuEnvError:  # an index did not answer, or too many conflicts
            return None
        self._solved.append(frozenset(map(str, roots)))
        return nodes

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
        if isinstance(result, list):
            return result
        return []


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


def group_conflicts(
    store: CandidateStore,
    facts: ReleaseFacts,
    trials: Trials,
    group: Roots,
) -> tuple[Reason, ...]:
    """Return on what the members of a group conflict.

    First the newest release of each member against those of the others, then what the members'
    further releases say about the same topics. Codes: cuda-major, cuda-variant, two-owners,
    bad-pair, conflict (ranges of one package that no release meets).
    """
    members = [_Member(store, facts, root, trials.nodes((root,))) for root in group]
    reasons: dict[Reason, None] = {}  # in order, each once
    for member, other in combinations(members, 2):
        reasons.update(dict.fromkeys(member.conflicts_with(other)))
    if any(reason.code in ("cuda-major", "cuda-variant") for reason in reasons):
        for member, other in permutations(members, 2):
            reasons.update(dict.fromkeys(member.further_conflicts_with(other)))
    return tuple(reasons)


class _Member:
    """One requirement of the request, with everything that its newest solution requires.

    Attributes:
        label: the newest release, or the requirement if it has no solution.
        required: node -> (who requires it, the requirement).
    """

    def __init__(
        self,
        store: CandidateStore,
        facts: ReleaseFacts,
        root: NodeRequirement,
        nodes: Sequence[Node],
    ) -> None:
        self._store = store
        self._facts = facts
        self._root = root
        self.required: dict[Identifier, list[tuple[str, NodeRequirement]]] = {
            root.identifier: [(REQUEST, root)]
        }
        own = [node for node in nodes if node.identifier == root.identifier]
        others = [node for node in nodes if node.identifier != root.identifier]
        self.label = _label(own[0]) if own else str(root)
        for node in (*own, *others):
            try:
                requirements = facts.requirements_of(node)
            except PackageIndexError:
                continue
            parent = self.label
            if node not in own and not _is_file_of(node, own):
                parent = f"{_label(node)} (for {self.label})"
            for requirement in requirements:
                self.required.setdefault(requirement.identifier, []).append((parent, requirement))

    def conflicts_with(self, other: _Member) -> Iterator[Reason]:
        """Yield a reason for each name that no release suits, and each topic without agreement.

        Ranges of the members' own requirements hide those of packages that they bring.
        """
        shared = [node for node in self.required if node in other.required]
        direct: list[Reason] = []
        indirect: list[Reason] = []
        for node in shared:
            if not isinstance(node, PackageId):
                continue
            for is_direct, reason in self._range_conflicts(node, other):
                if is_direct:
                    direct.append(reason)
                else:
                    indirect.append(reason)
        yield from direct or indirect
        for node in shared:
            if isinstance(node, AgreementId):
                yield from self._disagreements(node, other)

    def further_conflicts_with(self, other: _Member) -> Iterator[Reason]:
        """Yield what the further releases of this member say about the topics of the other.

        If the host refuses a release, the reasons of the host.
        """
        for release in self._releases():
            refusals = [reason for reason in self._facts.reasons(release) if not is_doubt(reason)]
            yield from refusals
            if refusals or release.label == self.label:
                continue
            for agreement in self._facts.agreements(release):
                opposite = other._opposite(agreement)
                if opposite is not None:
                    code, need = _code(agreement), _topic_text(agreement)
                    have = _with_owner(*opposite)
                    yield Reason(code=code, subject=release.label, need=need, have=have)

    def _agreements(self, node: AgreementId) -> list[tuple[str, AgreementRequirement]]:
        agreements = []
        for parent, requirement in self.required.get(node, ()):
            if isinstance(requirement, AgreementRequirement):
                agreements.append((parent, requirement))
        return agreements

    def _opposite(self, agreement: AgreementRequirement) -> tuple[str, AgreementRequirement] | None:
        """Return who requires another value of the same topic first, and the requirement."""
        for parent, own in self._agreements(agreement.identifier):
            if not own.agrees_with(agreement):
                return parent, own
        return None

    def _disagreements(self, node: AgreementId, other: _Member) -> Iterator[Reason]:
        """Yield the first two requirements of a topic that have no common value."""
        for parent, requirement in self._agreements(node):
            opposite = other._opposite(requirement)
            if opposite is not None:
                yield self._disagreement(parent, requirement, other, *opposite)
                return

    def _disagreement(
        self,
        parent: str,
        requirement: AgreementRequirement,
        other: _Member,
        other_parent: str,
        opposite: AgreementRequirement,
    ) -> Reason:
        code = _code(requirement)
        if code == "two-owners":
            folder = requirement.topic.removeprefix(OWNER)
            owner = self._owner_text(requirement.value)
            other_owner = other._owner_text(opposite.value)
            have = f"{owner} and {other_owner}"
            return Reason(code=code, subject=folder, need="one owner", have=have)
        if isinstance(requirement, BadPairRequirement):
            need = f"only one {requirement.pair}: {requirement.text}"
            return Reason(code=code, subject=parent, need=need, have=other_parent)
        have = _with_owner(other_parent, opposite)
        return Reason(code=code, subject=parent, need=_topic_text(requirement), have=have)

    def _owner_text(self, name: str) -> str:
        """Return "nvidia-cudnn-cu13==9.26.0.51 of torch 2.15.0"."""
        texts = []
        for _, requirement in self.required.get(PackageId(name), ()):
            if isinstance(requirement, PackageRequirement):
                texts.append(str(requirement))
        return f"{max(texts, key=len, default=name)} of {self.label}"

    def _range_conflicts(self, node: PackageId, other: _Member) -> Iterator[tuple[bool, Reason]]:
        """Yield ranges of one package that no release meets together.

        The flag says whether both members have the requirement themselves.
        """
        own_labels, other_labels = (self.label, REQUEST), (other.label, REQUEST)
        compared = set()
        for parent, requirement in self.required[node]:
            for other_parent, opposite in other.required[node]:
                if not isinstance(requirement, PackageRequirement):
                    continue
                if not isinstance(opposite, PackageRequirement):
                    continue
                texts = (str(requirement), str(opposite))
                if texts in compared:
                    continue
                compared.add(texts)
                if not self._meet(requirement, opposite):
                    is_direct = parent in own_labels and other_parent in other_labels
                    yield is_direct, _range_reason(parent, requirement, other_parent, opposite)

    def _meet(self, requirement: PackageRequirement, opposite: PackageRequirement) -> bool:
        """Return whether some release meets two requirements on one package."""
        if requirement.url or opposite.url:
            return requirement.url == opposite.url or not (requirement.url and opposite.url)
        specifiers = (requirement.specifier, opposite.specifier)
        ranges = [specifier for specifier in specifiers if specifier]
        contains = self._store.environment.contains
        for candidate in self._store.candidates(requirement.name):
            if all(contains(specifier, candidate.version, True) for specifier in ranges):
                return True
        return False

    def _releases(self) -> Iterator[Release]:
        """Yield the releases in the range of the requirement that a host like this may use."""
        root, store = self._root, self._store
        releases: Sequence[Release] = ()
        specifier = ""
        if isinstance(root, FrameworkRequirement):
            releases, specifier = store.variants(root.framework), root.specifier
        elif isinstance(root, PackageRequirement) and root.url is None:
            specifier = root.specifier
            if store.framework_of(root.name) is not None:
                releases = store.candidates(root.name)
        for release in releases:
            # On a host with a GPU, CPU builds are no alternatives.
            is_cpu = release.build is not None and release.build.cuda is None
            if release.is_yanked or (is_cpu and store.host.gpus):
                continue
            if store.environment.contains(specifier, release.version, True):
                yield release


def _is_file_of(node: Node, own: Sequence[Node]) -> bool:
    """Return whether a node is the distribution of a variant: jax 0.12.0 of jax 0.12.0 (cuda12)."""
    if isinstance(node, Token):
        return False
    return any(not isinstance(other, Token) and node.wheel is other.wheel for other in own)


def _label(node: Node) -> str:
    return str(node) if isinstance(node, Token) else node.label


def _code(agreement: AgreementRequirement) -> str:
    topic = agreement.topic
    if topic.startswith(CUDA_MAJOR):
        return "cuda-major"
    if topic.startswith(CUDA_BUILD):
        return "cuda-variant"
    if topic.startswith(OWNER):
        return "two-owners"
    if topic.startswith(TORCH_ABI):
        return "extension-abi"
    return "bad-pair"


def _topic_text(agreement: AgreementRequirement) -> str:
    """Return "CUDA 13", or "torch built for cu132"."""
    topic = agreement.topic
    if topic == CUDA_MAJOR:
        return f"CUDA {agreement.value}"
    if topic.startswith(CUDA_BUILD):
        return f"{topic.removeprefix(CUDA_BUILD)} built for {agreement.value}"
    return f"{topic} {agreement.value}"


def _with_owner(parent: str, agreement: AgreementRequirement) -> str:
    return f"{parent}, which needs {_topic_text(agreement)}"


def _range_reason(
    parent: str,
    requirement: PackageRequirement,
    other_parent: str,
    opposite: PackageRequirement,
) -> Reason:
    if parent == REQUEST:
        parent, other_parent = other_parent, parent
        requirement, opposite = opposite, requirement
    origin = f"which {other_parent} needs"
    if other_parent == REQUEST:
        origin = "as requested"
    have = f"{opposite}, {origin}"
    return Reason(code="conflict", subject=parent, need=str(requirement), have=have)
