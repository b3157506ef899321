"""Why a request is impossible: reasons as data.

missing_releases has the reasons about files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from ..errors import Change, Explanation, Reason
from ..model import Framework
from .candidates import CandidateStore
from .conflicts import REQUEST, Trials, conflicting_groups, group_conflicts
from .graph import (
    Candidate,
    Cause,
    FrameworkRequirement,
    HostRequirement,
    Identifier,
    NodeRequirement,
    PackageRequirement,
    Release,
    Variant,
)
from .missing_releases import NO_CANDIDATE, missing_build_reasons, missing_release_reason
from .release_facts import ReleaseFacts
from .resolution import ImpossibleError
from .skipped import reasons_against
from .suggestions import Alternatives, smallest_changes

MAX_EDIT_TRIALS = 40
SUBJECTS = 5  # requirements that name a request


def explain(
    facts: ReleaseFacts,
    roots: Sequence[NodeRequirement],
    failure: ImpossibleError,
    trials: Trials,
    alternatives: Alternatives | None,
) -> Explanation:
    """Explain why a request has no solution.

    Args:
        facts: the releases on the host.
        roots: the requirements of the request.
        failure: why they are impossible together.
        trials: solves parts of the request.
        alternatives: solves changed requests. None: look for no changes.

    Returns:
        Every reason, by the requirements that fail alone or together, and the smallest changes
        that help.
    """
    groups = conflicting_groups(trials, roots)
    all_reasons: list[Reason] = []
    for group in groups:
        reasons: Sequence[Reason]
        if len(group) == 1:
            reasons = list(_requirement_reasons(facts, group[0]))
        else:
            reasons = group_conflicts(facts, trials, group)
        if not reasons:
            result = trials.solve(group)
            if isinstance(result, ImpossibleError):
                reasons = _cause_reasons(facts, result.causes)
        all_reasons += reasons
    if not groups:
        for root in roots:
            all_reasons += _requirement_reasons(facts, root)
        all_reasons += _cause_reasons(facts, failure.causes)
    all_reasons = list(dict.fromkeys(all_reasons))
    changes: tuple[Change, ...] = ()
    if alternatives is not None:
        trials.allow(MAX_EDIT_TRIALS)
        changes = tuple(
            smallest_changes(alternatives, trials, groups or [tuple(roots)], all_reasons)
        )
    names = [str(root) for root in roots[:SUBJECTS]]
    if roots[SUBJECTS:]:
        names.append(f"{len(roots) - SUBJECTS} more")
    return Explanation(subject=" and ".join(names), reasons=tuple(all_reasons), changes=changes)


# ---- reasons against one requirement ------------------------------------------------------------


def _requirement_reasons(facts: ReleaseFacts, root: NodeRequirement) -> Iterator[Reason]:
    """Yield why a requirement of the request is impossible alone."""
    if isinstance(root, PackageRequirement):
        yield from _package_reasons(facts, root)
    if not isinstance(root, FrameworkRequirement):
        return
    in_range = facts.store.in_ranges(facts.store.variants(root.framework), [root.specifier])
    yield from _cuda_platform_reasons(facts.store, root.framework, in_range)
    yield from _reasons_against_all(facts, in_range)
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
        code="platform",
        subject=f"{framework.name} for CUDA",
        need=" or ".join(platforms),
        have=platform,
        source=framework.source,
    )
    for row in store.data.rule_rows("system_cuda"):
        if framework.distribution in row.distributions and platform in row.platforms:
            yield Reason(
                code="cuda-libraries",
                subject=f"{framework.name} {row.versions}, for CUDA on {platform},",
                need=f"{row.value} installed separately",
                have="no wheel that requires them",
                source=row.source,
            )


def _package_reasons(facts: ReleaseFacts, root: PackageRequirement) -> Iterator[Reason]:
    missing = missing_release_reason(facts.store, root)
    if missing is not None:
        yield missing
    if root.url is not None:
        yield from _reasons_against_all(facts, facts.store.at_url(root.name, root.url))
        return
    against = list(_reasons_against_all(facts, _in_range(facts.store, root)))
    if against:
        yield from missing_build_reasons(facts.store, facts, root)
    yield from against


def _reasons_against_all(facts: ReleaseFacts, releases: Iterable[Release]) -> Iterator[Reason]:
    """Yield the reasons against releases if there is one against each of them.

    If one release has nothing against it, the host is not what prevents the solution.
    """
    reasons: list[Reason] = []
    for release in releases:
        against = reasons_against(facts.store, facts, release)
        if not against:
            return
        reasons += against
    yield from reasons


# ---- the causes of a resolution -----------------------------------------------------------------


def _cause_reasons(facts: ReleaseFacts, causes: Sequence[Cause]) -> list[Reason]:
    """Return the requirements on one package that no release meets together, and unusable files."""
    # requirement: the packages and versions that have it. There may be hundreds of releases.
    owners: dict[tuple[Identifier, str], set[tuple[str, str]]] = {}
    for cause in causes:
        key = (cause.requirement.identifier, str(cause.requirement))
        owners.setdefault(key, set()).add(_owner(cause))
    reasons: list[Reason] = []
    vague: list[Reason] = []
    details: list[Reason] = []
    for cause in causes:
        if isinstance(cause.requirement, HostRequirement):
            continue
        conflict, missing = _conflict_reason(facts, cause, owners), _missing(facts, cause)
        if (conflict.subject, conflict.code) == (REQUEST, "no-candidate"):
            vague.append(conflict)
        reasons += [conflict, *missing]
        details += missing
    for cause in causes:
        if isinstance(cause.requirement, HostRequirement):
            details += cause.requirement.reasons
            reasons += cause.requirement.reasons
    # That no release fits what was requested says nothing if another reason says why.
    return [reason for reason in reasons if not details or reason not in vague]


def _owner(cause: Cause) -> tuple[str, str]:
    """Return the package and version that have a requirement; ("", "") is the request."""
    parent = cause.parent
    return (parent.name, parent.version) if isinstance(parent, Candidate) else ("", "")


def _missing(facts: ReleaseFacts, cause: Cause) -> list[Reason]:
    """Return why no release can be chosen for the requirement of a cause, if one reason is enough.

    The compatibility data tells it of its packages. For others, it would take the dependencies of
    every release.
    """
    requirement, store = cause.requirement, facts.store
    if not isinstance(requirement, PackageRequirement):
        return []
    name = requirement.name
    constraints = store.constraints.ranges.get(name, ())
    missing = missing_release_reason(store, requirement, constraints)
    if missing is not None:
        return [missing.replace(dependent=" ".join(_owner(cause)).strip())]
    has_facts = store.is_in_data(name) or not store.request.may_build(name)
    if requirement.url is not None or not has_facts:
        return []
    return list(_reasons_against_all(facts, _in_range(store, requirement)))


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
    if not others:
        return Reason(code="no-candidate", subject=subject, need=need, have=NO_CANDIDATE)
    return Reason(code="conflict", subject=subject, need=need, have=", ".join(sorted(others)))
