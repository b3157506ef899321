"""Why a request is impossible: reasons as data.

Codes of reasons about files: not-in-index, no-version, conflict (with a constraint), only-sdist,
no-wheel-for-target, requires-python, hash, yanked, no-wheel, no-candidate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from ..errors import Change, Explanation, Reason
from ..model import Framework, Wheel
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
    Node,
    NodeRequirement,
    PackageRequirement,
    Release,
    Variant,
)
from .release_facts import ReleaseFacts, python_text
from .resolution import ImpossibleError
from .selection import Constraints, admitted
from .skipped import reasons_against
from .suggestions import Alternatives, smallest_changes

SHOWN = 6  # versions or tags in one reason


class Question(Protocol):
    """A request that was tried on a host, and the causes of its failure."""

    store: CandidateStore
    facts: ReleaseFacts
    roots: Sequence[NodeRequirement]
    constraints: Constraints
    causes: Sequence[Cause]

    def requirements_of(self, node: Node) -> Sequence[NodeRequirement]:
        """Return what a candidate requires."""


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
        reasons += _cause_reasons(question, question.causes)
    reasons = list(dict.fromkeys(reasons))
    changes: tuple[Change, ...] = ()
    if alternatives is not None:
        changes = tuple(smallest_changes(alternatives, trials, groups or [tuple(roots)], reasons))
    subject = " and ".join(map(str, roots))
    return Explanation(subject=subject, reasons=tuple(reasons), changes=changes)


def _group_reasons(
    question: Question, trials: Trials, group: tuple[NodeRequirement, ...]
) -> list[Reason]:
    if len(group) == 1:
        reasons = list(_requirement_reasons(question, group[0]))
    else:
        reasons = list(
            group_conflicts(question.store, question.facts, trials, group, question.requirements_of)
        )
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
    in_range = [one for one in variants if contains(root.specifier, one.version, True)]
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
    if platforms and store.host.platform not in platforms:
        yield Reason(
            code="platform",
            subject=f"{framework.name} for CUDA",
            need=" or ".join(platforms),
            have=store.host.platform,
            source=framework.source,
        )


def _package_reasons(question: Question, root: PackageRequirement) -> Iterator[Reason]:
    yield from missing_release_reasons(question.store, root)
    if root.url is not None:
        return
    contains = question.store.environment.contains
    candidates = question.store.candidates(root.name)
    in_range = [one for one in candidates if contains(root.specifier, one.version, True)]
    yield from _reasons_against_all(question, in_range)


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


def missing_release_reasons(
    store: CandidateStore,
    requirement: PackageRequirement,
    constraints: Sequence[str] = (),
    dependent: str = "",
) -> Iterator[Reason]:
    """Yield why no file of a package is a candidate for a requirement; nothing if one is.

    Args:
        store: the candidates.
        requirement: the requirement.
        constraints: further ranges, those of the user's constraints.
        dependent: the release that has the requirement; "" is the request.
    """
    reasons = _missing_release_reasons(store, requirement, constraints)
    if not dependent:
        yield from reasons
    else:
        for reason in reasons:
            yield reason.replace(need=f"{reason.need}, for {dependent}")


def _missing_release_reasons(
    store: CandidateStore, requirement: PackageRequirement, constraints: Sequence[str]
) -> Iterator[Reason]:
    name = requirement.name
    if requirement.url is not None:
        if not store.at_url(name, requirement.url):
            file = store.index.direct(name, requirement.url)
            yield from _unfit_file_reasons(store, requirement, [file])
        return
    files = [*store.index.wheels(name), *store.index.sdists(name)]
    if not files:
        have = "not found on any index"
        yield Reason(code="not-in-index", subject=name, need="a wheel", have=have)
        return
    ranges = [text for text in (requirement.specifier, *constraints) if text]
    contains = store.environment.contains

    def in_ranges(version: str) -> bool:
        return all(contains(specifier, version, True) for specifier in ranges)

    files_in_ranges = [file for file in files if in_ranges(file.version)]
    if not files_in_ranges:
        yield _no_version_reason(store, requirement, constraints, files)
        return
    fitting = [one for one in store.candidates(name) if in_ranges(one.version)]
    if not fitting:
        yield from _unfit_file_reasons(store, requirement, files_in_ranges)
    elif not admitted(fitting, ranges, store.environment.is_prerelease, pre=store.request.pre):
        yanked = [one.version for one in fitting if one.wheel.yanked is not None]
        yield Reason(
            code="yanked",
            subject=str(requirement),
            need="a release that is not yanked, or one that == names",
            have=f"yanked: {_first(yanked)}",
            source="PEP 592",
        )


def _no_version_reason(
    store: CandidateStore,
    requirement: PackageRequirement,
    constraints: Sequence[str],
    files: Sequence[Wheel],
) -> Reason:
    """Return that no version is in the ranges. `files` are those of all versions."""
    name, specifier = requirement.name, requirement.specifier
    wheels = [file for file in files if _is_wheel(file)]
    versions = list(dict.fromkeys(file.version for file in wheels or files))
    have = versions[0]
    if len(versions) > 1:
        have = f"{versions[-1]} to {versions[0]}"
    needs = [f"{name}{specifier}"]
    needs += [f"the constraint {name}{constraint}" for constraint in constraints]
    code = "no-version"
    contains = store.environment.contains
    has_version = not specifier or any(contains(specifier, one, True) for one in versions)
    if constraints and has_version:
        code = "conflict"  # with the constraints
    return Reason(code=code, subject=name, need=" and ".join(needs), have=have)


def _unfit_file_reasons(
    store: CandidateStore, requirement: PackageRequirement, files: Sequence[Wheel]
) -> Iterator[Reason]:
    """Yield why none of some files fits the target and the request."""
    environment, name, subject = store.environment, requirement.name, str(requirement)
    allows_sdist = name in store.request.allow_sdist
    wheels = [file for file in files if _is_wheel(file)]
    sdists = [file for file in files if not _is_wheel(file)]
    tag_fits = [wheel for wheel in wheels if environment.rank(wheel.filename) is not None]
    if allows_sdist:
        tag_fits += sdists
    python_fits = [file for file in tag_fits if environment.accepts_python(file.requires_python)]
    hashes = dict(store.request.hashes).get(name)
    if python_fits and hashes is not None:
        yield _hash_reason(subject, hashes, python_fits)
        return
    if tag_fits:
        pythons = _first([file.requires_python or "any" for file in tag_fits])
        have = python_text(store.host)
        yield Reason(code="requires-python", subject=subject, need=f"Python {pythons}", have=have)
    elif wheels:
        yield _no_wheel_reason(store, subject, wheels)
    if sdists and not allows_sdist:
        yield Reason(
            code="only-sdist",
            subject=subject,
            need=f"a wheel, or --allow-sdist {name}",
            have=f"only source distributions: {_first([sdist.version for sdist in sdists])}",
        )


def _hash_reason(subject: str, hashes: Sequence[str], files: Sequence[Wheel]) -> Reason:
    allowed = _first([f"sha256 {sha256}" for sha256 in hashes], 2)
    have = _first([f"{file.filename} with sha256 {file.sha256}" for file in files], 2)
    return Reason(code="hash", subject=subject, need=f"a file with {allowed}", have=have)


def _no_wheel_reason(store: CandidateStore, subject: str, wheels: Sequence[Wheel]) -> Reason:
    host = store.host
    python = f"{host.python.version[0]}.{host.python.version[1]}"
    if host.python.free_threaded:
        python += "t"
    need = f"a wheel for CPython {python} on {host.platform}"
    if host.glibc:
        need += f" with glibc {host.glibc[0]}.{host.glibc[1]}"
    tags = {"-".join(wheel.filename.removesuffix(".whl").split("-")[-3:]) for wheel in wheels}
    have = ", ".join(sorted(tags)[:SHOWN])
    return Reason(code="no-wheel-for-target", subject=subject, need=need, have=have)


def _is_wheel(file: Wheel) -> bool:
    return file.filename.endswith(".whl")


def _first(texts: Sequence[str], shown: int = SHOWN) -> str:
    """Return the first different texts, and how many more there are."""
    different = list(dict.fromkeys(texts))
    text = ", ".join(different[:shown])
    if len(different) > shown:
        text += f" and {len(different) - shown} more"
    return text


# ---- the causes that resolvelib names -----------------------------------------------------------


def _cause_reasons(question: Question, causes: Sequence[Cause]) -> list[Reason]:
    """Return the requirements on one package that no release meets together, and unusable files."""
    ranges = [cause for cause in causes if not isinstance(cause.requirement, HostRequirement)]
    conflicts: list[Reason] = []
    details: list[Reason] = []
    reasons: list[Reason] = []
    for cause in ranges:
        missing = _missing_for_cause(question, cause)
        conflict = _conflict_reason(question, cause, ranges)
        conflicts.append(conflict)
        details += missing
        reasons += [conflict, *missing]
    fact_reasons = _file_reasons(causes)
    reasons += fact_reasons
    if not details and not fact_reasons:
        return reasons
    # That no release fits what was requested says nothing if another reason says why.
    empty = [one for one in conflicts if (one.subject, one.code) == (REQUEST, "no-candidate")]
    return [reason for reason in reasons if not any(reason is one for one in empty)]


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
    requirement = cause.requirement
    if not isinstance(requirement, PackageRequirement):
        return []
    constraints = question.constraints.ranges.get(requirement.name, ())
    return list(
        missing_release_reasons(question.store, requirement, constraints, _dependent(cause))
    )


def _conflict_reason(question: Question, cause: Cause, causes: Sequence[Cause]) -> Reason:
    """Return a requirement with the others on the same node, constraints included.

    Another release of the package that has the requirement excludes nothing.
    """
    requirement = cause.requirement
    others = set()
    for other in causes:
        is_same_node = other.requirement.identifier == requirement.identifier
        if is_same_node and not _are_alternatives(cause.parent, other.parent):
            others.add(str(other.requirement))
    name = ""
    if isinstance(requirement, PackageRequirement):
        name = requirement.name
    elif isinstance(requirement, FrameworkRequirement):
        name = requirement.framework.distribution
    for text in question.constraints.texts(name):
        others.add(f"the constraint {text}")
    others.discard(str(requirement))
    subject, need = _dependent(cause) or REQUEST, str(requirement)
    if not others:
        have = "no release of it can be chosen"
        return Reason(code="no-candidate", subject=subject, need=need, have=have)
    return Reason(code="conflict", subject=subject, need=need, have=", ".join(sorted(others)))


def _are_alternatives(node: Node | None, other: Node | None) -> bool:
    """Return whether two nodes are different releases of one package."""
    if not isinstance(node, Candidate) or not isinstance(other, Candidate):
        return False
    return node.name == other.name and node.version != other.version
