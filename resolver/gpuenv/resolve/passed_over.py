"""Why builds were passed over: data, not sentences."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import Reason, UnusableFileError
from ..model import Rejection
from .candidates import Candidate, Shelf, Variant, is_exact
from .needs import DistNeed, FrameworkNeed


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
    newest = chosen.build.version
    have = {(one.build.version, one.build.variant) for one in shelf.candidates(root.name) if one.build}
    python, platform = shelf.host.python, shelf.host.platform
    need = f"a wheel for cp{python.version[0]}{python.version[1]}{'t' * python.free_threaded} on {platform}"
    for build in shelf.matrix.builds(root.name, platform, newest):
        if (build.version, build.variant) in have:
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
