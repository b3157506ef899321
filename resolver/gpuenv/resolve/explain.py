"""Why a request is impossible, as data: the requirements that fail alone or together, and why.

missing_releases has the reasons about files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import combinations, permutations, product

from ..compat import evaluate
from ..compat.evaluate import disagreement_reason
from ..errors import GpuEnvError, PackageIndexError, Reason, deciding_first, is_doubt
from ..model import Framework
from ..requirements.target import version_key
from .candidates import CandidateStore
from .graph import (
    AgreementRequirement,
    Candidate,
    Cause,
    FrameworkRequirement,
    Identifier,
    Node,
    NodeRequirement,
    PackageId,
    PackageRequirement,
    Release,
    Token,
    UnmetRequirement,
    Variant,
)
from .missing_releases import NO_CANDIDATE, missing_build_reasons, missing_release_reason
from .release_facts import ReleaseFacts
from .resolution import ImpossibleError

Roots = tuple[NodeRequirement, ...]
# requirements, packages of which few releases are looked at -> the candidates of a solution; raises
# ImpossibleError
Attempt = Callable[[Sequence[NodeRequirement], Collection[str]], list[Node]]

REQUEST = "the request"
ALL_PAIRS_UP_TO = 6  # requirements; of more only pairs with a framework are tried


def explain(
    facts: ReleaseFacts, roots: Sequence[NodeRequirement], trials: Trials
) -> tuple[list[Reason], list[Roots]]:
    """Explain why a request has no solution.

    Args:
        facts: the releases on the host.
        roots: the requirements of the request.
        trials: solves parts of the request. It is noted that the whole has no solution.

    Returns:
        Every reason, the deciding one of each group first, and the requirements that fail alone or
        together.
    """
    groups = conflicting_groups(trials, roots)
    all_reasons: list[Reason] = []
    for group in groups:
        reasons: Sequence[Reason]
        if len(group) == 1:
            reasons = deciding_first(_requirement_reasons(facts, group[0]))
        else:
            reasons = group_conflicts(facts, trials, group)
        if not reasons:
            result = trials.solve(group)
            if isinstance(result, ImpossibleError):
                reasons = deciding_first(_cause_reasons(facts, result.causes))
                reasons = [_for_root(reason, group) for reason in reasons]
        all_reasons += reasons
    return list(dict.fromkeys(all_reasons)), groups


def _for_root(reason: Reason, group: Roots) -> Reason:
    """Return why a dependency cannot be built with the requirement that needs it, if it is one."""
    root, name = group[0], reason.subject.partition(" ")[0]
    is_other = isinstance(root, PackageRequirement) and name != root.name
    if reason.code != "build-failed" or len(group) > 1 or not is_other:
        return reason
    return reason.replace(dependent=str(root))


# ---- reasons against one requirement ------------------------------------------------------------


def _requirement_reasons(facts: ReleaseFacts, root: NodeRequirement) -> Iterator[Reason]:
    """Yield why a requirement of the request is impossible alone."""
    if isinstance(root, PackageRequirement):
        yield from _package_reasons(facts, root)
    if not isinstance(root, FrameworkRequirement):
        return
    in_range = facts.store.in_ranges(facts.store.variants(root.framework), [root.specifier])
    yield from _cuda_platform_reasons(facts.store, root.framework, in_range)
    yield from _reasons_against_all(facts.reasons_with_libraries, in_range)
    if not in_range:
        for way in root.framework.ways:
            name = way.distribution
            yield from _package_reasons(facts, PackageRequirement(name, (), root.specifier))


def _cuda_platform_reasons(
    store: CandidateStore, framework: Framework, releases: Sequence[Variant]
) -> Iterator[Reason]:
    """Yield that the CUDA builds of a framework are for other platforms if no release has one."""
    if not store.host.gpus or any(variant.way.carriers for variant in releases):
        return
    platforms = dict.fromkeys(platform for way in framework.ways for platform in way.platforms)
    platform = store.host.platform
    if not platforms or platform in platforms:
        return
    yield Reason(
        "platform",
        f"{framework.name} for CUDA",
        " or ".join(platforms),
        platform,
        source=framework.source,
    )
    for row in store.data.rule_rows("system_cuda"):
        if framework.distribution in row.distributions and platform in row.platforms:
            yield Reason(
                "cuda-libraries",
                f"{framework.name} {row.versions}, for CUDA on {platform},",
                f"{row.value} installed separately",
                "no wheel that requires them",
                source=row.source,
            )


def _package_reasons(facts: ReleaseFacts, root: PackageRequirement) -> Iterator[Reason]:
    store = facts.store
    missing = missing_release_reason(store, root)
    if missing is not None:
        yield missing
        if store.data.covers(root.name) or store.data.framework_of(root.name) is not None:
            # A Jetson needs other wheels, whatever is missing here.
            yield from evaluate.jetson_reasons(root.name, store.host)
    if root.url is not None:
        releases = store.at_url(root.name, root.url)
        yield from _reasons_against_all(facts.reasons_with_libraries, releases)
        return
    in_range = _in_range(store, root)
    against = list(_reasons_against_all(facts.reasons_with_libraries, in_range))
    if against:
        yield from missing_build_reasons(facts, root)
    yield from against


def _reasons_against_all(
    judge: Callable[[Release], Sequence[Reason]], releases: Iterable[Release]
) -> Iterator[Reason]:
    """Yield the reasons against releases if there is one against each of them.

    If one release has nothing against it, the host is not what prevents the solution. Doubts
    prevent nothing.
    """
    reasons: list[Reason] = []
    for release in releases:
        against = judge(release)
        if not against:
            return
        reasons += [reason for reason in against if not is_doubt(reason)]
    yield from reasons


# ---- the causes of a resolution -----------------------------------------------------------------


def _cause_reasons(facts: ReleaseFacts, causes: Collection[Cause]) -> list[Reason]:
    """Return the requirements on one package that no release meets together, and unusable files.

    Of the packages that have them, other releases may only lack a wheel.
    """
    causes = _without_bystanders(facts.store, causes)
    # requirement: the packages and versions that have it. There may be hundreds of releases.
    owners: dict[tuple[Identifier, str], set[tuple[str, str]]] = {}
    for cause in causes:
        key = (cause.requirement.identifier, str(cause.requirement))
        owners.setdefault(key, set()).add(_owner(cause))
    reasons: list[Reason] = []
    unusable: list[Reason] = []
    for cause in causes:
        if isinstance(cause.requirement, UnmetRequirement):
            unusable.append(cause.requirement.reason)
        else:
            reasons += [_conflict_reason(facts, cause, owners), *_missing(facts, cause)]
    for name in dict.fromkeys(_owner(cause)[0] for cause in causes):
        if name and not facts.store.request.may_build(name):
            for release in facts.store.candidates(name):
                unusable += facts.reasons(release) if release.needs_build else ()
    for release, limit in facts.limits.on({one.subject.partition(" ")[0] for one in unusable}):
        reasons.append(Reason("no-candidate", release.label, str(limit), NO_CANDIDATE))
    return [*reasons, *unusable]


def _without_bystanders(store: CandidateStore, causes: Collection[Cause]) -> list[Cause]:
    """Return the causes that exclude another on their package; all of a package without such."""
    met: dict[Cause, set[str]] = {}  # the releases that meet the requirement
    for cause in causes:
        requirement = cause.requirement
        if isinstance(requirement, PackageRequirement) and requirement.url is None:
            ranges = [requirement.specifier]
            found = store.in_ranges(store.candidates(requirement.name), ranges)
            met[cause] = {candidate.version for candidate in found}
    excluding: set[Cause] = set()
    for one, other in combinations(met, 2):
        is_same = one.requirement.identifier == other.requirement.identifier
        if is_same and met[one].isdisjoint(met[other]):
            excluding |= {one, other}
    nodes = {cause.requirement.identifier for cause in excluding}
    return [
        cause
        for cause in causes
        if cause in excluding or cause not in met or cause.requirement.identifier not in nodes
    ]


def _owner(cause: Cause) -> tuple[str, str]:
    """Return the package and version that have a requirement; ("", "") is the request."""
    parent = cause.parent
    return (parent.name, parent.version) if isinstance(parent, Candidate) else ("", "")


def _missing(facts: ReleaseFacts, cause: Cause) -> list[Reason]:
    """Return why no release can be chosen for the requirement of a cause, if one reason is enough.

    The compatibility data tells it of its packages. For others, it would take the dependencies of
    every release; of companions and other libraries, the data has the device code or the toolkit.
    """
    requirement, store = cause.requirement, facts.store
    dependent = " ".join(_owner(cause)).strip()
    if isinstance(requirement, FrameworkRequirement) and dependent:
        reasons = _requirement_reasons(facts, requirement)
        return [reason.replace(dependent=dependent) for reason in reasons]
    if not isinstance(requirement, PackageRequirement):
        return []
    name = requirement.name
    constraints = store.constraints.ranges.get(name, ())
    missing = missing_release_reason(store, requirement, constraints)
    if missing is not None:
        return [missing.replace(dependent=dependent)]
    data = store.data
    has_facts = data.covers(name) or not store.request.may_build(name)
    is_judged = has_facts or data.is_extension(name) or data.other_library_major(name)
    if requirement.url is not None or not is_judged:
        return []
    judge = facts.reasons_with_libraries if has_facts else facts.reasons
    against = list(_reasons_against_all(judge, _in_range(store, requirement)))
    return [*(missing_build_reasons(facts, requirement) if against else ()), *against]


def _in_range(store: CandidateStore, requirement: PackageRequirement) -> list[Candidate]:
    name, ranges = requirement.name, [requirement.specifier]
    return store.admitted(name, store.in_ranges(store.candidates(name), ranges), ranges)


def _conflict_reason(
    facts: ReleaseFacts, cause: Cause, owners: Mapping[tuple[Identifier, str], set[tuple[str, str]]]
) -> Reason:
    """Return a requirement with the others on the same node, constraints included.

    Another release of the package that has the requirement excludes nothing.
    """
    requirement, own = cause.requirement, _owner(cause)
    need = str(requirement)
    others = set()
    for (node, text), releases in owners.items():
        excludes = any(
            package != own[0] or (package, version) == own for package, version in releases
        )
        if node == requirement.identifier and excludes:
            others.add(text)
    name = ""
    if isinstance(requirement, PackageRequirement):
        name = requirement.name
    elif isinstance(requirement, FrameworkRequirement):
        name = requirement.framework.distribution
    others.update(f"the constraint {text}" for text in facts.store.constraints.texts(name))
    others.discard(need)
    subject = " ".join(own).strip() or REQUEST
    agreement = requirement.agreement if isinstance(requirement, AgreementRequirement) else None
    if agreement is not None and agreement.code.endswith("-pair"):
        # Both sides of a pair have the same text.
        beside = [owner for owner in owners[requirement.identifier, need] if owner[0] != own[0]]
        newest = max(beside, key=lambda owner: version_key(owner[1]), default=("others", ""))
        other_subject = " ".join(newest).strip()
        return disagreement_reason(subject, agreement, other_subject, agreement)
    if not others:
        return Reason("no-candidate", subject, need, NO_CANDIDATE)
    return Reason("conflict", subject, need, ", ".join(sorted(others)))


# ---- which requirements fail together ------------------------------------------------------------


class Trials:
    """Solves parts of a request, each part once. After `max_trials` no further part is tried."""

    def __init__(self, attempt: Attempt, max_trials: int) -> None:
        self._attempt = attempt
        self._trials_left = max_trials
        self._results: dict[tuple[object, ...], list[Node] | ImpossibleError | None] = {}

    def allow(self, further_trials: int) -> None:
        """Allow further trials."""
        self._trials_left += further_trials

    def note(self, roots: Sequence[NodeRequirement], result: ImpossibleError) -> None:
        """Note that requirements have no solution."""
        self._results[_key(roots)] = result

    def solve(
        self, roots: Sequence[NodeRequirement], sparse: Collection[str] = ()
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
                result = self._attempt(roots, sparse)
            except ImpossibleError as error:
                result = error.with_traceback(None)
            except GpuEnvError:  # an index did not answer, or too many conflicts
                pass
        self._results[key] = result
        return result

    def fails(self, roots: Sequence[NodeRequirement]) -> bool:
        """Return whether it is known that requirements have no solution together."""
        return isinstance(self.solve(roots), ImpossibleError)

    def nodes(self, roots: Sequence[NodeRequirement], sparse: Collection[str] = ()) -> list[Node]:
        """Return the candidates of a solution (see `solve`); [] if there is none."""
        result = self.solve(roots, sparse)
        return result if isinstance(result, list) else []


def _key(roots: Sequence[NodeRequirement], sparse: Collection[str] = ()) -> tuple[object, ...]:
    return (*sorted(map(str, roots)), frozenset(sparse))


def conflicting_groups(trials: Trials, roots: Sequence[NodeRequirement]) -> list[Roots]:
    """Return the smallest groups of requirements that have no solution together.

    These are single requirements and pairs, or else one larger group.
    """
    groups: list[Roots] = [(root,) for root in roots if trials.fails((root,))]
    possible = [root for root in roots if (root,) not in groups]
    for pair in combinations(possible, 2):
        has_framework = any(isinstance(root, FrameworkRequirement) for root in pair)
        if (len(possible) <= ALL_PAIRS_UP_TO or has_framework) and trials.fails(pair):
            groups.append(pair)
    if groups:
        return groups
    core = list(roots)
    for root in roots:
        smaller = [other for other in core if other is not root]
        if trials.fails(smaller):
            core = smaller
    return [tuple(core)]


def group_conflicts(facts: ReleaseFacts, trials: Trials, group: Roots) -> tuple[Reason, ...]:
    """Return on what the members of a group conflict.

    First the newest release of each member against those of the others, then what the members'
    further releases say about the same topics. Codes: cuda-major, cuda-variant, two-owners,
    bad-pair, conflict (ranges of one package that no release meets).
    """
    members = [_Member(facts, root, trials.nodes((root,))) for root in group]
    direct: list[Reason] = []
    disagreements: list[Reason] = []
    indirect: list[Reason] = []
    for member, other in combinations(members, 2):
        found = list(_disagreements(member, other))
        pairs = [reason for reason in found if reason.code.endswith("-pair")]
        if pairs:  # in what else the members differ follows from it
            disagreements += pairs
            continue
        own, brought = _range_conflicts(facts.store, member, other)
        direct += own
        indirect += [] if own else brought
        if any(reason.code == "cuda-variant" for reason in found):  # it says the same
            found = [one for one in found if one.code != "cuda-major"]
        disagreements += found
    # What the members themselves require, then CUDA, then packages that they bring.
    reasons = [*direct, *disagreements, *indirect]
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
        releases = [node for node in nodes if not isinstance(node, Token)]
        self.root = root
        self.ranges: dict[Identifier, list[tuple[str, PackageRequirement]]] = {}
        self.agreements: dict[Identifier, list[tuple[str, AgreementRequirement]]] = {}
        self._add(REQUEST, root)
        own = [node for node in releases if node.identifier == root.identifier]
        self.label = own[0].label if own else str(root)
        required: dict[Node, Sequence[NodeRequirement]] = {}
        by_identifier: dict[Identifier, Release] = {node.identifier: node for node in releases}
        reached = own[:]
        for node in reached:  # grows
            with suppress(PackageIndexError):
                required[node] = facts.requirements_of(node)
            for requirement in required.get(node, ()):
                # What a framework of the request requires is a matter of that framework.
                other = by_identifier.get(requirement.identifier)
                is_framework = isinstance(requirement, FrameworkRequirement)
                if other is not None and other not in reached and not is_framework:
                    reached.append(other)
        for node in (*own, *(node for node in releases if node not in own)):
            # jax 0.12.0 is the distribution of jax 0.12.0 (cuda12).
            is_own_file = any(node.wheel is release.wheel for release in own)
            parent = self.label if is_own_file else f"{node.label} (for {self.label})"
            for requirement in required.get(node, ()):
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


def _range_conflicts(
    store: CandidateStore, member: _Member, other: _Member
) -> tuple[list[Reason], list[Reason]]:
    """Return ranges of two members on one package that no release meets together.

    Returns:
        Those of the members' own requirements, and those of packages that they bring.
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
            reason = range_conflict(parent, requirement, other_parent, opposite)
            (direct if is_direct else indirect).append(reason)
    return direct, indirect


def range_conflict(
    parent: str, requirement: PackageRequirement, other_parent: str, opposite: PackageRequirement
) -> Reason:
    """Return that what a release requires excludes what another one, or the request, requires."""
    origin = "as requested" if other_parent == REQUEST else f"which {other_parent} needs"
    have = f"{opposite}, {origin}"
    return Reason("conflict", parent, str(requirement), have)


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
            subject, other_subject = parent, opposite[0]
            agreement, others = requirement.agreement, opposite[1].agreement
            if agreement.code == "two-owners":
                subject = member.owner_text(agreement.values[0])
                other_subject = other.owner_text(others.values[0])
            yield disagreement_reason(subject, agreement, other_subject, others)
            break


def _opposite(
    member: _Member, agreement: AgreementRequirement
) -> tuple[str, AgreementRequirement] | None:
    """Return who requires another value of the same topic first, and the requirement.

    What two builds of torch say about extensions is left out: cuda-variant says the same of them.
    Two releases of cuDNN say of their minors what their versions say.
    """
    own = agreement.agreement
    for parent, requirement in member.agreements.get(agreement.identifier, ()):
        others = requirement.agreement
        is_of_versions = own.code in ("extension-cuda", "cudnn-version")
        is_said = is_of_versions and own.is_topic and others.is_topic
        if not is_said and not others.agrees_with(own):
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
        is_build = store.data.framework_of(root.name) is not None
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
        for requirement in facts.agreements(release):
            opposite = _opposite(other, requirement)
            if opposite is not None:
                label, needed = opposite[0], opposite[1].agreement
                yield disagreement_reason(release.label, requirement.agreement, label, needed)
