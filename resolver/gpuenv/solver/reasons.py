"""Why builds were passed over, why nothing fits, and what would: data, not sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..environment import parse_requirement, version_key
from ..errors import Change, Explanation, GpuEnvError, Reason, UnusableFileError
from ..model import Host, Plan, Python, Rejection, Request, parse_release
from .candidates import Candidate, DistNeed, FactNeed, FrameworkNeed, Need, Shelf, Variant, is_exact
from .lacking import lacking
from .releases import Limits

PYTHONS = ((3, 9), (3, 10), (3, 11), (3, 12), (3, 13), (3, 14), (3, 15))
Retry = Callable[[Request, Host], Plan]


def reasons_against(shelf: Shelf, candidate: Candidate | Variant) -> tuple[Reason, ...]:
    """Every host fact against a build and against the CUDA libraries that it pins exactly."""
    facts = shelf.variant_facts(candidate) if isinstance(candidate, Variant) else shelf.facts(candidate)
    found = [reason for reasons in facts.values() for reason in reasons]
    try:
        requirements = shelf.index.dependencies(candidate.wheel)
    except UnusableFileError as error:
        return (*found, error.reason)
    for requirement in requirements:
        if not (is_exact(requirement.specifier) and shelf.matrix.is_library(requirement.name)):
            continue
        if requirement.marker and not shelf.environment.marker(requirement.marker, ()):
            continue
        for library in shelf.candidates(requirement.name):
            if shelf.environment.contains(requirement.specifier, library.version, True):
                found += [r for reasons in shelf.facts(library).values() for r in reasons if r not in found]
                break
    return tuple(found)


def passed_over(shelf: Shelf, root: DistNeed, chosen: Candidate) -> Iterator[Rejection]:
    """The builds of a framework that the user's range admits and that would have been better, with reasons."""
    contains = shelf.environment.contains
    for candidate in shelf.candidates(root.name):
        if candidate.wheel is chosen.wheel:
            break
        if candidate.wheel.yanked is None and contains(root.specifier, candidate.version, True):
            reasons = reasons_against(shelf, candidate) or (_conflict(f"{candidate.name} {_label(candidate)}"),)
            yield Rejection(name=candidate.name, version=_label(candidate), reasons=reasons)
    yield from _without_wheel(shelf, root, chosen)


def variants_passed_over(shelf: Shelf, root: FrameworkNeed, chosen: Variant) -> Iterator[Rejection]:
    """As `passed_over`, for the releases of a framework that is installed in several ways."""
    contains = shelf.environment.contains
    for variant in shelf.variants(root.framework):
        if variant is chosen:
            break
        if variant.wheel.yanked is None and contains(root.specifier, variant.version, False):
            reasons = reasons_against(shelf, variant) or (_conflict(f"{root.framework.name} {variant.label}"),)
            yield Rejection(name=root.framework.name, version=variant.label, reasons=reasons)


def _conflict(subject: str) -> Reason:
    need = "dependencies that fit the other requirements"
    return Reason(code="conflict", subject=subject, need=need, have="none do")


def _without_wheel(shelf: Shelf, root: DistNeed, chosen: Candidate) -> Iterator[Rejection]:
    """Newer builds that the data knows and that would run here, but of which the index has no wheel that fits."""
    if chosen.build is None:
        return
    newest = version_key(chosen.build.version)
    have = {(one.build.version, one.build.variant) for one in shelf.candidates(root.name) if one.build}
    python, platform = shelf.host.python, shelf.host.platform
    need = f"a wheel for cp{python.version[0]}{python.version[1]}{'t' * python.free_threaded} on {platform}"
    for build in shelf.matrix.builds(root.name, platform):
        if (build.version, build.variant) in have or version_key(build.version) <= newest:
            continue
        foreign = shelf.request.default_index_only and build.index != "default"
        foreign = foreign or (not shelf.host.gpus and build.cuda is not None)
        if foreign or not shelf.environment.contains(root.specifier, build.version, True):
            continue
        if any(reasons for reasons in shelf.build_facts(build).values()):
            continue
        have.add((build.version, build.variant))
        subject, source = f"{root.name} {build.local}", build.code.source
        reason = Reason(code="no-wheel", subject=subject, need=need, have="none in the index data", source=source)
        yield Rejection(name=root.name, version=build.local, reasons=(reason,))


def _label(candidate: Candidate) -> str:
    return candidate.build.local if candidate.build else candidate.version


def explain(shelf: Shelf, roots: Sequence[Need], failure: Any, retry: Retry | None) -> Explanation:
    """The whole refusal: what the resolver ran into, then every fact against every build that was asked for."""
    reasons: list[Reason] = []
    names = [root for root in roots if isinstance(root, DistNeed | FrameworkNeed)]
    for root in names:
        found = _framework_reasons(shelf, root) if isinstance(root, FrameworkNeed) else _root_reasons(shelf, root)
        reasons += [reason for reason in found if reason not in reasons]
    reasons += [reason for reason in _conflict_reasons(shelf, failure) if reason not in reasons]
    subject = " and ".join(map(str, names))
    changes = tuple(smallest_changes(shelf, retry)) if retry is not None else ()
    return Explanation(subject=subject, reasons=tuple(reasons), changes=changes)


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


def _conflict_reasons(shelf: Shelf, failure: Any) -> Iterator[Reason]:
    """What resolvelib names: requirements on one package that no release satisfies together, constraints included."""
    limits = Limits([parse_requirement(text) for text in shelf.request.constraints], shelf.environment)
    causes = [cause for cause in failure.causes if not isinstance(cause.requirement, FactNeed)]
    for cause in causes:
        need, parent = cause.requirement, cause.parent
        others = {str(other.requirement) for other in causes if other.requirement.ident == need.ident}
        found: list[Reason] = []
        if isinstance(need, DistNeed):
            others |= {f"the constraint {text}" for text in limits.texts(need.name)}
            found += lacking(shelf, need, limits.ranges.get(need.name, ()))
        have = ", ".join(sorted(others - {str(need)})) or "no release that fits"
        subject = f"{parent.name} {parent.version}" if isinstance(parent, Candidate) else "the request"
        yield Reason(code="conflict", subject=subject, need=str(need), have=have)
        yield from found
    for cause in failure.causes:
        if isinstance(cause.requirement, FactNeed) and cause.requirement.ident in ("__file", "__python"):
            yield from cause.requirement.reasons


def smallest_changes(shelf: Shelf, retry: Retry) -> Iterator[Change]:
    """Single changes that were solved and work: a newer driver, a wider range, another index, another Python."""
    done: set[str] = set()  # of each kind only the smallest
    for kind, text, changed_request, changed_host in _single_changes(shelf.request, shelf.host, shelf):
        if kind in done:
            continue
        try:
            plan = retry(changed_request, changed_host)
        except GpuEnvError:
            continue
        done.add(kind)
        chosen = [f"{choice.framework} {choice.version} ({choice.variant})" for choice in plan.choices]
        gives = ", ".join(chosen) or f"{len(plan.pins)} packages"
        yield Change(change=text, gives=gives)


def _single_changes(request: Request, host: Host, shelf: Shelf) -> Iterator[tuple[str, str, Request, Host]]:
    """(kind, text, request, host), within a kind the smallest change first."""
    if host.gpus and host.driver is not None:
        yield from _driver_changes(request, host, shelf)
    for place, text in enumerate(request.frameworks):
        parsed = parse_requirement(text)
        if parsed.specifier:
            wider = (*request.frameworks[:place], parsed.replace(specifier=""), *request.frameworks[place + 1 :])
            changed = request.replace(frameworks=tuple(map(str, wider)))
            yield f"version of {parsed.name}", f"any version of {parsed.name}", changed, host
    if request.default_index_only:
        changed = request.replace(default_index_only=False)
        yield "index", "leave out --default-index-only", changed, host
    mine = host.python.version
    for version in sorted(PYTHONS, key=lambda version: (abs(version[1] - mine[1]), version)):
        if version != mine:
            changed_host = host.replace(python=Python(version=version))
            yield "python", f"Python {version[0]}.{version[1]}", request, changed_host


def _driver_changes(request: Request, host: Host, shelf: Shelf) -> Iterator[tuple[str, str, Request, Host]]:
    matrix, driver = shelf.matrix, parse_release(host.driver or "0.0")
    rows = [matrix.driver_floor((major, 0), host.os) for major in (11, 12, 13)]
    ordered = sorted((row[0] for row in rows if row is not None), key=parse_release)
    for release in ordered:
        if parse_release(release) > driver:
            newer = host.replace(driver=release, driver_cuda=matrix.driver_cuda(release))
            yield "driver", f"driver {release} or newer", request, newer
    capabilities = [gpu.compute_capability for gpu in host.gpus if gpu.compute_capability is not None]
    drops = [matrix.last_branch(one) for one in capabilities]
    for branch in sorted({drop[0] for drop in drops if drop is not None}):
        known = [one for one in ordered if parse_release(one)[0] <= branch]
        if driver[0] > branch and known:
            older = host.replace(driver=known[-1], driver_cuda=matrix.driver_cuda(known[-1]))
            yield "driver", f"a driver of branch R{branch}, the last one for this GPU", request, older
