"""Why a request is impossible: reasons as data.

missing_releases has the reasons about files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from ..errors import Change, Explanation, Reason
from ..model import Framework
from ..requirements.target import parse_requirement
from .candidates import CandidateStore
from .conflicts import REQUEST, Trials, conflicting_groups, group_conflicts
from .graph import (
    FILE_FACT,
    PYTHON_FACT,
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


class Question(Protocol):
    """A request that was tried on a host, and why it is impossible."""

    store: CandidateStore
    facts: ReleaseFacts
    roots: Sequence[NodeRequirement]
    failure: ImpossibleError


def explain(question: Question, trials: Trials, alternatives: Alternatives | None) -> Explanation:
    """Explain why a request has no solution.

    Args:
        question: the request.
        trials: solves parts of the request.
        alternatives: solves changed requests. None: look for no changes.

    Returns:
        Every reason, by the requirements that fail alone or together, and the smallest changes
        that help.
    """
    roots = question.roots
    groups = conflicting_groups(trials, roots)
    reasons: list[Reason] = []
    for group in groups:
        reasons += _group_reasons(question, trials, group)
    if not groups:
        for root in roots:
            reasons += _requirement_reasons(question, root)
        reasons += _cause_reasons(question, question.failure.causes)
    reasons = list(dict.fromkeys(reasons))
    changes: tuple[Change, ...] = ()
    if alternatives is not None:
        trials.allow(MAX_EDIT_TRIALS)
        changes = tuple(smallest_changes(alternatives, trials, groups or [tuple(roots)], reasons))
    return Explanation(subject=_subject(roots), reasons=tuple(reasons), changes=changes)


def _subject(roots: Sequence[NodeRequirement]) -> str:
    """Name a request: "torch and jax", "torch and jax and numpy and 12 more"."""
    names = [str(root) for root in roots[:SUBJECTS]]
    if roots[SUBJECTS:]:
        names.append(f"{len(roots) - SUBJECTS} more")
    return " and ".join(names)


def _group_reasons(
    question: Question, trials: Trials, group: tuple[NodeRequirement, ...]
) -> list[Reason]:
    if len(group) == 1:
        reasons = list(_requirement_reasons(question, group[0]))
    else:
        reasons = list(group_conflicts(question.store, question.facts, trials, group))
    if not reasons:
        result = trials.solve(group)
        if isinstance(result, ImpossibleError):
            reasons = _cause_reasons(question, result.causes)
    return reasons


# ---- reasons against one requirement ------------------------------------------------------------


def _requirement_reasons(question: Question, root: NodeRequirement) -> Iterator[Reason]:
    """Yield why a requirement of the request is impossible alone."""
    if isinstance(root, FrameworkRequirement):
        yield from _framework_reasons(question, root)
    elif isinstance(root, PackageRequirement):
        yield from _package_reasons(question, root)


def _framework_reasons(question: Question, root: FrameworkRequirement) -> Iterator[Reason]:
    variants = question.store.variants(root.framework)
    contains = question.store.environment.contains
    in_range = [variant for variant in variants if contains(root.specifier, variant.version, True)]
    yield from _cuda_platform_reasons(question.store, root.framework, in_range)
    if in_range:
        yield from _reasons_against_all(question, in_range)
        return
    for way in root.framework.ways:
        name = parse_requirement(way.requires[0]).name
        yield from _package_reasons(question, PackageRequirement(name, (), root.specifier))


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


def _package_reasons(question: Question, root: PackageRequirement) -> Iterator[Reason]:
    missing = missing_release_reason(question.store, root)
    if missing is not None:
        yield missing
    if root.url is not None:
        yield from _reasons_against_all(question, question.store.at_url(root.name, root.url))
        return
    against = list(_reasons_against_all(question, _in_range(question, root)))
    if against:
        yield from missing_build_reasons(question.store, question.facts, root)
    yield from against


def _reasons_against_all(question: Question, releases: Iterable[Release]) -> Iterator[Reason]:
    """Yield the reasons against releases if there is one against each of them.

    If one release has nothing against it, the host is not what prevents the solution.
    """
    reasons: list[Reason] = []
    for release in releases:
        against = reasons_against(question.store, question.facts, release)
        if not against:
            return
        reasons += against
    yield from reasons


# ---- the causes that resolvelib names -----------------------------------------------------------


def _cause_reasons(question: Question, causes: Sequence[Cause]) -> list[Reason]:
    """Return the requirements on one package that no release meets together, and unusable files."""
    ranges = [cause for cause in causes if not isinstance(cause.requirement, HostRequirement)]
    owners = _owners(ranges)
    conflicts: list[Reason] = []
    details: list[Reason] = []
    reasons: list[Reason] = []
    for cause in ranges:
        missing = _missing_for_cause(question, cause)
        conflict = _conflict_reason(question, cause, owners[cause.requirement.identifier])
        conflicts.append(conflict)
        details += missing
        reasons += [conflict, *missing]
    fact_reasons = _file_reasons(causes)
    reasons += fact_reasons
    if not details and not fact_reasons:
        return reasons
    # That no release fits what was requested says nothing if another reason says why.
    empty = [
        conflict
        for conflict in conflicts
        if (conflict.subject, conflict.code) == (REQUEST, "no-candidate")
    ]
    return [reason for reason in reasons if not any(reason is conflict for conflict in empty)]


def _file_reasons(causes: Sequence[Cause]) -> list[Reason]:
    """Return the reasons of files that cannot be used."""
    reasons: list[Reason] = []
    for cause in causes:
        requirement = cause.requirement
        if not isinstance(requirement, HostRequirement):
            continue
        if requirement.identifier in (FILE_FACT, PYTHON_FACT):
            reasons += requirement.reasons
    return reasons


def _dependent(cause: Cause) -> str:
    """Return the release that has the requirement of a cause; "" is the request."""
    if isinstance(cause.parent, Candidate):
        return f"{cause.parent.name} {cause.parent.version}"
    return ""


def _missing_for_cause(question: Question, cause: Cause) -> list[Reason]:
    """Return why no release can be chosen for the requirement of a cause, if one reason is enough.

    The compatibility data tells it of its packages. For others, it would take the dependencies of
    every release.
    """
    requirement, store = cause.requirement, question.store
    if not isinstance(requirement, PackageRequirement):
        return []
    constraints = question.store.constraints.ranges.get(requirement.name, ())
    missing = missing_release_reason(store, requirement, constraints)
    reasons = [] if missing is None else [missing.replace(dependent=_dependent(cause))]
    name = requirement.name
    has_facts = store.is_in_data(name) or not store.request.may_build(name)
    if not reasons and requirement.url is None and has_facts:
        reasons += _reasons_against_all(question, _in_range(question, requirement))
    return reasons


def _in_range(question: Question, requirement: PackageRequirement) -> list[Candidate]:
    store, specifier = question.store, requirement.specifier
    candidates = store.candidates(requirement.name)
    contains = store.environment.contains
    in_range = [
        candidate for candidate in candidates if contains(specifier, candidate.version, True)
    ]
    return store.admitted(requirement.name, in_range, (specifier,))


# {requirement on a node: {package that has it: its releases}}. The request is the package "".
_Owners = dict[str, dict[str, set[str]]]


def _owners(causes: Sequence[Cause]) -> dict[Identifier, _Owners]:
    """Return who has the requirements on each node. There may be hundreds of releases."""
    owners: dict[Identifier, _Owners] = {}
    for cause in causes:
        package, version = _package_and_version(cause)
        on_node = owners.setdefault(cause.requirement.identifier, {})
        releases = on_node.setdefault(str(cause.requirement), {})
        releases.setdefault(package, set()).add(version)
    return owners


def _package_and_version(cause: Cause) -> tuple[str, str]:
    parent = cause.parent
    return (parent.name, parent.version) if isinstance(parent, Candidate) else ("", "")


def _conflict_reason(question: Question, cause: Cause, owners: _Owners) -> Reason:
    """Return a requirement with the others on the same node, constraints included.

    Another release of the package that has the requirement excludes nothing.
    """
    requirement = cause.requirement
    package, version = _package_and_version(cause)
    others = set()
    for text, releases in owners.items():
        has_other_package = bool(releases.keys() - {package})
        if has_other_package or version in releases[package]:
            others.add(text)
    name = ""
    if isinstance(requirement, PackageRequirement):
        name = requirement.name
    elif isinstance(requirement, FrameworkRequirement):
        name = requirement.framework.distribution
    for text in question.store.constraints.texts(name):
        others.add(f"the constraint {text}")
    others.discard(str(requirement))
    subject, need = _dependent(cause) or REQUEST, str(requirement)
    if not others:
        return Reason(code="no-candidate", subject=subject, need=need, have=NO_CANDIDATE)
    return Reason(code="conflict", subject=subject, need=need, have=", ".join(sorted(others)))
