"""Why nothing fits, whole, and what would: data, not sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from ..errors import Change, Explanation, Reason
from ..requirements.target import parse_requirement
from .candidates import Candidate, Shelf
from .conflicts import ASKED, Failure, Trials, clashes, conflicts
from .needs import DistNeed, FactNeed, FrameworkNeed, Need
from .not_found import lacking
from .passed_over import reasons_against
from .selection import Limits
from .suggestions import Asked, smallest_changes

NOTHING = "no release that fits"


class Question(Protocol):
    """What is to be explained: a request that was tried on a host, and what stood against it."""

    shelf: Shelf
    roots: Sequence[Need]
    failure: Any

    def needs_of(self, node: Any) -> Sequence[Need]:
        """What a node asks for."""


def explain(question: Question, trials: Trials, asked: Asked | None) -> Explanation:
    """The whole refusal: which of the needs fail alone or together, every fact against each build, what would help.

    Without `asked` no changes are looked for.
    """
    shelf, roots = question.shelf, question.roots
    names = [root for root in roots if isinstance(root, DistNeed | FrameworkNeed)]
    groups = conflicts(trials, roots)
    reasons: list[Reason] = []
    for group in groups:
        found = list(_alone(shelf, group[0]) if len(group) == 1 else clashes(shelf, trials, group, question.needs_of))
        against = trials.solve(group)
        if not found and isinstance(against, Failure):
            found = _conflict_reasons(shelf, against)
        reasons += found
    if not groups:
        reasons += [reason for root in names for reason in _alone(shelf, root)]
        reasons += _conflict_reasons(shelf, question.failure)
    reasons = list(dict.fromkeys(reasons))
    changes: tuple[Change, ...] = ()
    if asked is not None:
        changes = tuple(smallest_changes(asked, trials, groups or [tuple(roots)], reasons))
    return Explanation(subject=" and ".join(map(str, names)), reasons=tuple(reasons), changes=changes)


def _alone(shelf: Shelf, root: Need) -> Iterator[Reason]:
    if isinstance(root, FrameworkNeed):
        yield from _framework_reasons(shelf, root)
    elif isinstance(root, DistNeed):
        yield from _root_reasons(shelf, root)


def _framework_reasons(shelf: Shelf, root: FrameworkNeed) -> Iterator[Reason]:
    """As `_root_reasons`, over every way to install a framework."""
    variants = shelf.variants(root.framework)
    fitting = [one for one in variants if shelf.environment.contains(root.specifier, one.version, True)]
    if not fitting:
        for way in root.framework.ways:
            name = parse_requirement(way.requires[0]).name
            yield from _root_reasons(shelf, DistNeed(name, (), root.specifier))
        return
    against = [reasons_against(shelf, variant) for variant in fitting]
    if all(against):
        for reasons in against:
            yield from reasons


def _root_reasons(shelf: Shelf, root: DistNeed) -> Iterator[Reason]:
    yield from lacking(shelf, root)
    if root.url is not None:
        return
    contains = shelf.environment.contains
    fitting = [one for one in shelf.candidates(root.name) if contains(root.specifier, one.version, True)]
    against = [reasons_against(shelf, candidate) for candidate in fitting]
    # Where one of the builds has nothing against it, the host is not what stands in the way.
    if all(against):
        for reasons in against:
            yield from reasons


def _conflict_reasons(shelf: Shelf, failure: Any) -> list[Reason]:
    """What resolvelib names: requirements on one package that no release satisfies together, constraints included."""
    limits = Limits([parse_requirement(text) for text in shelf.request.constraints], shelf.environment)
    rows: list[tuple[Reason, list[Reason]]] = []
    causes = [cause for cause in failure.causes if not isinstance(cause.requirement, FactNeed)]
    for cause in causes:
        need, parent = cause.requirement, cause.parent
        others = {str(other.requirement) for other in causes if other.requirement.ident == need.ident}
        found: list[Reason] = []
        by = f"{parent.name} {parent.version}" if isinstance(parent, Candidate) else ""
        if isinstance(need, DistNeed):
            others |= {f"the constraint {text}" for text in limits.texts(need.name)}
            found += lacking(shelf, need, limits.ranges.get(need.name, ()), by)
        have = ", ".join(sorted(others - {str(need)})) or NOTHING
        subject = by or "the request"
        rows.append((Reason(code="conflict", subject=subject, need=str(need), have=have), found))
    facts = [
        reason
        for cause in failure.causes
        if isinstance(cause.requirement, FactNeed) and cause.requirement.ident in ("__file", "__python")
        for reason in cause.requirement.reasons
    ]
    # That nothing fits what was asked for says nothing more where it is said why.
    why = any(found for _, found in rows) or bool(facts)
    heads = [[] if why and (head.subject, head.have) == (ASKED, NOTHING) else [head] for head, _ in rows]
    return [reason for head, (_, found) in zip(heads, rows, strict=True) for reason in (*head, *found)] + facts
