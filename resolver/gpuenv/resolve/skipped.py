"""Why better releases were not chosen: the builds that a plan skips, and the reasons."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import Reason, UnusableFileError
from ..model import Build, Rejection
from ..requirements.target import interpreter_tag
from .candidates import CandidateStore
from .graph import Candidate, FrameworkRequirement, PackageRequirement, Release, Variant
from .release_facts import ReleaseFacts
from .selection import is_exact


def reasons_against(
    store: CandidateStore, facts: ReleaseFacts, release: Release
) -> tuple[Reason, ...]:
    """Return every reason against a release and against the CUDA libraries that it pins."""
    reasons = facts.reasons(release)
    try:
        dependencies = store.index.dependencies(release.wheel)
    except UnusableFileError as error:
        return (*reasons, error.reason)
    environment = store.environment
    for dependency in dependencies:
        if not is_exact(dependency.specifier) or not store.data.is_library(dependency.name):
            continue
        if dependency.marker and not environment.marker(dependency.marker, ()):
            continue
        for library in store.candidates(dependency.name):
            if environment.contains(dependency.specifier, library.version, True):
                for reason in facts.reasons(library):
                    if reason not in reasons:
                        reasons.append(reason)
                break
    return tuple(reasons)


def skipped_candidates(
    store: CandidateStore, facts: ReleaseFacts, root: PackageRequirement, chosen: Candidate
) -> Iterator[Rejection]:
    """Yield the builds of a framework in the user's range that are better than the chosen one."""
    for candidate in store.candidates(root.name):
        if candidate.wheel is chosen.wheel:
            break
        if candidate.wheel.yanked is not None:
            continue
        if store.environment.contains(root.specifier, candidate.version, True):
            yield _rejection(store, facts, candidate, candidate.name)
    yield from _builds_without_wheel(store, facts, root, chosen)


def skipped_variants(
    store: CandidateStore, facts: ReleaseFacts, root: FrameworkRequirement, chosen: Variant
) -> Iterator[Rejection]:
    """Yield the releases of a framework with several ways that are better than the chosen one."""
    for variant in store.variants(root.framework):
        if variant is chosen:
            break
        if variant.wheel.yanked is not None:
            continue
        if store.environment.contains(root.specifier, variant.version, False):
            yield _rejection(store, facts, variant, root.framework.name)


def _rejection(
    store: CandidateStore, facts: ReleaseFacts, release: Release, name: str
) -> Rejection:
    reasons = reasons_against(store, facts, release)
    if not reasons:
        need = "dependencies that fit the other requirements"
        reasons = (Reason(code="conflict", subject=release.label, need=need, have="none do"),)
    return Rejection(name=name, version=release.local_version, reasons=reasons)


def _builds_without_wheel(
    store: CandidateStore, facts: ReleaseFacts, root: PackageRequirement, chosen: Candidate
) -> Iterator[Rejection]:
    """Yield newer builds that would run here, but of which no index has a wheel that fits."""
    if chosen.build is None:
        return
    listed = set()
    for candidate in store.candidates(root.name):
        if candidate.build is not None:
            listed.add((candidate.build.version, candidate.build.variant))
    python, platform = store.host.python, store.host.platform
    tag = interpreter_tag(python.version, python.free_threaded)
    for build in store.data.builds(root.name, platform, chosen.build.version):
        key = (build.version, build.variant)
        if key in listed or not _is_requested(store, root, build) or facts.build_reasons(build):
            continue
        listed.add(key)
        reason = Reason(
            code="no-wheel",
            subject=f"{root.name} {build.local}",
            need=f"a wheel for {tag} on {platform}",
            have="none in the index data",
            source=build.code.source,
        )
        yield Rejection(name=root.name, version=build.local, reasons=(reason,))


def _is_requested(store: CandidateStore, root: PackageRequirement, build: Build) -> bool:
    """Return whether the request admits a build of the compatibility data."""
    if store.request.default_index_only and build.index != "default":
        return False
    if not store.host.gpus and build.cuda is not None:
        return False
    return store.environment.contains(root.specifier, build.version, True)
