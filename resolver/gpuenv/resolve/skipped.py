"""Why better releases were not chosen: the builds that a plan skips, and the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ..errors import OfflineError, Reason, UnusableFileError
from ..index.protocol import DIRECT_URL
from ..model import Build, Rejection
from ..requirements.target import interpreter_tag
from .candidates import CandidateStore
from .graph import (
    AgreementRequirement,
    Candidate,
    FrameworkRequirement,
    HostRequirement,
    Node,
    NodeRequirement,
    PackageRequirement,
    Release,
    Variant,
)
from .release_facts import ReleaseFacts, not_cached
from .resolution import LearningResolver
from .selection import is_exact, is_placeholder

# Reasons against a file. For these, other tools choose an older release and do not say so.
_STEP_BACK = frozenset({"only-sdist", "build-failed", "needs-build", "bad-metadata"})


def reasons_against(
    store: CandidateStore, facts: ReleaseFacts, release: Release
) -> tuple[Reason, ...]:
    """Return every reason against a release and against the CUDA libraries that it pins.

    If the user chose another build by hand, that is the only reason.
    """
    reasons = facts.reasons(release)
    if any(reason.code == "other-build" for reason in reasons):
        return tuple(reasons)
    try:
        libraries = pinned_libraries(store, release)
    except UnusableFileError as error:
        return (*reasons, error.reason)
    except OfflineError:
        return (*reasons, not_cached(release.wheel))
    for library in libraries:
        for reason in facts.reasons_of_pinned(library):
            if reason not in reasons:
                reasons.append(reason)
    return tuple(reasons)


def pinned_libraries(store: CandidateStore, release: Release) -> list[Candidate]:
    """Return the CUDA libraries that a release pins.

    Raises:
        PackageIndexError: see Index.dependencies.
    """
    libraries: list[Candidate] = []
    environment = store.environment
    for dependency in store.dependencies(release.wheel):
        if not is_exact(dependency.specifier) or not store.data.is_library(dependency.name):
            continue
        if dependency.marker and not environment.marker(dependency.marker, ()):
            continue
        pinned = store.in_ranges(dependency.name, [dependency.specifier])
        libraries += pinned[:1]
    return libraries


class Skipped:
    """Finds the releases that are better than the chosen ones, and the reasons against them.

    Args:
        resolver: the resolution, with what it has learned.
        roots: the requirements of the request.
        nodes: the chosen candidates and variants.
    """

    def __init__(
        self,
        resolver: LearningResolver,
        roots: Iterable[NodeRequirement],
        nodes: Iterable[Release],
    ) -> None:
        self._resolver, self._provider = resolver, resolver.provider
        self._store, self._facts = self._provider.store, self._provider.facts
        self._file_reasons: dict[Candidate, tuple[Reason | None, Candidate]] = {}
        # By package or topic: (name of the package that requires it, its label, the requirement)
        self._requirements: dict[str, list[tuple[str, str, NodeRequirement]]] = {}
        for root in roots:
            self._note("", "the request", root)
        for node in nodes:
            if isinstance(node, Candidate):
                self._file_reasons[node] = None, node
            is_framework = isinstance(node, Variant) or self._store.on_path(node.name)
            for requirement in self._facts.requirements_of(node):
                # The CUDA libraries follow the frameworks, and not the other way round.
                if is_framework or not isinstance(requirement, AgreementRequirement):
                    self._note(node.wheel.name, node.label, requirement)

    def _note(self, name: str, label: str, requirement: NodeRequirement) -> None:
        key = _key(requirement)
        self._requirements.setdefault(key, []).append((name, label, requirement))

    def of_package(self, root: PackageRequirement, chosen: Candidate) -> Iterator[Rejection]:
        """Yield the better releases of a package in the range of the request."""
        store = self._store
        if chosen.wheel.index == DIRECT_URL:
            return  # no index is asked for its name
        if not store.on_path(root.name):
            for candidate in self._provider.admitted(root):
                if candidate.wheel is chosen.wheel:
                    break
                yield self._rejection(candidate, candidate.name, self._facts.reasons(candidate))
            return
        for candidate in store.candidates(root.name):
            if candidate.wheel is chosen.wheel:
                break
            if candidate.is_yanked:
                continue
            if store.environment.contains(root.specifier, candidate.version, True):
                reasons = reasons_against(store, self._facts, candidate)
                yield self._rejection(candidate, candidate.name, reasons)
        yield from _builds_without_wheel(store, self._facts, root, chosen)

    def of_framework(self, root: FrameworkRequirement, chosen: Variant) -> Iterator[Rejection]:
        """Yield the better releases of a framework with several ways."""
        store = self._store
        for variant in store.variants(root.framework):
            if variant is chosen:
                break
            if variant.is_yanked:
                continue
            if store.environment.contains(root.specifier, variant.version, False):
                reasons = reasons_against(store, self._facts, variant)
                yield self._rejection(variant, root.framework.name, reasons)

    def of_variant(self, chosen: Candidate) -> Iterator[Rejection]:
        """Yield the other variants of a release that was chosen as a variant wheel.

        The reason against a variant that suits the host and comes after the chosen one is its place
        in the order (variant-order). What excludes one that comes before it is a conflict.
        """
        is_after = False
        for candidate in self._store.candidates(chosen.name):
            same_release = candidate.version == chosen.version
            same_index = candidate.wheel.index == chosen.wheel.index
            if candidate.wheel is chosen.wheel:
                is_after = True
            elif same_release and same_index:
                reasons = self._facts.reasons(candidate)
                if reasons or not is_after:
                    rejection = self._rejection(candidate, chosen.name, reasons)
                    is_better = self._store.precedes(candidate, chosen)
                    yield rejection.replace(is_later=is_after and not is_better)
                else:
                    yield self._later_variant(candidate, chosen)

    def _later_variant(self, candidate: Candidate, chosen: Candidate) -> Rejection:
        """Return the place of a variant that suits the host as the reason against it."""
        reasons = [self._store.variant_order_reason(candidate, chosen)]
        judged = self._store.judged_variant(candidate)
        if judged is not None:
            reasons += judged.warnings
        version = candidate.local_version
        return Rejection(name=chosen.name, version=version, reasons=tuple(reasons), is_later=True)

    def step_backs(self, candidates: Iterable[Candidate]) -> Iterator[Reason]:
        """Yield why chosen releases are older than the newest ones that the requirements admit.

        That is: the newer one, or what it requires, cannot be built, is a pre-release, yanked or a
        placeholder (R12). If something else excludes a release between the two, that it is newer
        counts only if it cannot be built. Packages of the compatibility data have reasons of their
        own (`of_package`).
        """
        environment = self._store.environment
        for candidate in candidates:
            if self._store.is_in_data(candidate.name) or candidate.wheel.index == DIRECT_URL:
                continue
            ranges = [*self._provider.constraints.ranges.get(candidate.name, ())]
            for _, _, requirement in self._requirements.get(candidate.name, ()):
                if isinstance(requirement, PackageRequirement) and requirement.specifier:
                    ranges.append(requirement.specifier)
            reasons: list[Reason] = []
            is_excluded = False
            for release in self._store.candidates(candidate.name):
                version = release.version
                if version == candidate.version:
                    break
                if not all(environment.contains(text, version, True) for text in ranges):
                    continue
                if release.is_yanked and environment.is_prerelease(version):
                    continue
                code, have = self._step_back(release)
                is_excluded = is_excluded or not code
                reasons.append(Reason(code=code, subject=candidate.label, need=version, have=have))
            not_built = [reason for reason in reasons if reason.code == "newer-not-built"]
            if not_built or not is_excluded:
                yield from (not_built or reasons)[:1]

    def _step_back(self, release: Candidate) -> tuple[str, str]:
        """Return the code and the text of why a newer release was not taken; ("", "") for others.

        Nothing is read for it that the resolution has not read.
        """
        is_prerelease = self._store.environment.is_prerelease(release.version)
        if is_prerelease and not self._store.request.pre:
            return "newer-prerelease", "is a pre-release"
        if release.is_yanked:
            return "newer-yanked", "is yanked"
        if is_placeholder(release.version):
            return "newer-placeholder", "is a placeholder"
        reason, owner = self._file_reason(release)
        if reason is None:
            return "", ""
        text = f"needs {reason.need}; found {reason.have}"
        return "newer-not-built", text if owner is release else f"requires {owner!r}, which {text}"

    def _file_reason(self, release: Candidate) -> tuple[Reason | None, Candidate]:
        """Return why a release has no usable file, or why one that it requires has none; and which.

        None for a release that was chosen, or of which this is not known.
        """
        if release not in self._file_reasons:
            self._file_reasons[release] = None, release  # for a circle of requirements
            self._file_reasons[release] = self._find_file_reason(release)
        return self._file_reasons[release]

    def _find_file_reason(self, release: Candidate) -> tuple[Reason | None, Candidate]:
        requirements = self._facts.known_requirements(release)
        reasons = [*self._facts.reasons(release)]
        for requirement in requirements:
            if isinstance(requirement, HostRequirement):
                reasons += requirement.reasons
        for reason in reasons:
            if reason.code in _STEP_BACK:
                return reason, release
        for requirement in requirements:
            if not isinstance(requirement, PackageRequirement):
                continue
            if not self._store.is_read(requirement.name):
                continue
            matches = self._provider.admitted(requirement)
            if matches and all(self._file_reason(match)[0] is not None for match in matches):
                return self._file_reason(matches[0])
        return None, release

    def _rejection(self, release: Release, name: str, reasons: Sequence[Reason]) -> Rejection:
        known_reasons = tuple(reasons) or tuple(self._conflicts(release))
        if not known_reasons:
            known_reasons = (no_dependencies_reason(release.label),)
        return Rejection(name=name, version=release.local_version, reasons=known_reasons)

    def _conflicts(self, release: Release) -> Iterator[Reason]:
        """Yield the first requirement that excludes a release: on it, or its own."""
        contains = self._store.environment.contains
        own_name = release.wheel.name
        for name, label, requirement in self._requirements.get(own_name, ()):
            if name == own_name or not isinstance(requirement, PackageRequirement):
                continue
            if not contains(requirement.specifier, release.version, True):
                have = f"{own_name} {release.version}"
                yield Reason(code="conflict", subject=label, need=str(requirement), have=have)
                return
        for needed in self._facts.requirements_of(release):
            if isinstance(needed, HostRequirement) and self._provider.is_blocked(needed):
                yield from needed.reasons
                return
            if isinstance(needed, PackageRequirement) and not self._provider.admitted(needed):
                yield self._missing(release, needed, release)
                return
            for name, label, requirement in self._requirements.get(_key(needed), ()):
                if name != own_name and self._exclude(needed, requirement):
                    have = f"{requirement}, which {label} needs"
                    subject, need = release.label, str(needed)
                    yield Reason(code="conflict", subject=subject, need=need, have=have)
                    return
        yield from self._missing_dependencies(release)

    def _missing_dependencies(self, release: Release) -> Iterator[Reason]:
        """Yield the need of a dependency that excludes a release whatever else is chosen."""
        from .missing_releases import NO_CANDIDATE  # few releases miss a dependency

        first: Reason | None = None
        for cause in self._resolver.proof(self._resolver.why_excluded(release)):
            if cause.parent is None or not isinstance(cause.requirement, PackageRequirement):
                continue
            reason = self._missing(release, cause.requirement, cause.parent)
            if reason.have != NO_CANDIDATE:
                yield reason
                return
            first = first or reason
        if first is not None:
            yield first

    def _missing(
        self, release: Release, requirement: PackageRequirement, parent: Node | None
    ) -> Reason:
        """Return that nothing can be chosen for a requirement, and why if the index tells."""
        from .missing_releases import missing_dependency_reason

        reason = missing_dependency_reason(self._store, release.label, requirement)
        need = reason.need
        if isinstance(parent, Candidate) and parent.name != release.wheel.name:
            need += f", for {parent.name} {parent.version}"
        return reason.replace(need=need)

    def _exclude(self, needed: NodeRequirement, other: NodeRequirement) -> bool:
        """Return whether no candidate of a node meets both of two requirements."""
        if isinstance(needed, AgreementRequirement) and isinstance(other, AgreementRequirement):
            return not needed.agrees_with(other)
        if isinstance(needed, PackageRequirement) and isinstance(other, PackageRequirement):
            return not self._provider.admitted(needed, other)
        return False


def _key(requirement: NodeRequirement) -> str:
    """Return the name of a package without extras, or the node."""
    if isinstance(requirement, PackageRequirement):
        return requirement.name
    return requirement.identifier


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
        reason = no_wheel_reason(f"{root.name} {build.local}", tag, platform, build.code.source)
        yield Rejection(name=root.name, version=build.local, reasons=(reason,))


def no_dependencies_reason(label: str) -> Reason:
    """Return that no dependencies of a release fit, if nothing more exact is known."""
    need = "dependencies that fit the other requirements"
    return Reason(code="conflict", subject=label, need=need, have="none do")


def no_wheel_reason(subject: str, tag: str, platform: str, source: str) -> Reason:
    """Return that a release has no wheel for an interpreter on a platform."""
    need = f"a wheel for {tag} on {platform}"
    have = "none in the index data"
    return Reason(code="no-wheel", subject=subject, need=need, have=have, source=source)


def _is_requested(store: CandidateStore, root: PackageRequirement, build: Build) -> bool:
    """Return whether the request admits a build of the compatibility data."""
    if store.request.default_index_only and build.index != "default":
        return False
    if not store.host.gpus and build.cuda is not None:
        return False
    return store.environment.contains(root.specifier, build.version, True)
