"""What a resolution chose, and why it did not choose better releases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..compat.evaluate import disagreement_reason
from ..errors import Reason, deciding_first
from ..index.protocol import DIRECT_URL
from ..model import Build, Rejection, show_pair
from ..requirements.target import PYTHONS, interpreter_tag, version_key
from ..requirements.versions import contains, is_prerelease, public
from .candidates import is_placeholder
from .explain import REQUEST, range_conflict
from .graph import (
    AgreementRequirement,
    Candidate,
    FrameworkRequirement,
    Identifier,
    Node,
    NodeRequirement,
    PackageRequirement,
    Release,
    UnmetRequirement,
    Variant,
    without_extras,
)
from .missing_releases import (
    NO_CANDIDATE,
    missing_dependency_reason,
    missing_release_reason,
    no_file_reason,
)
from .resolution import LearningResolver

# Reasons against a file. For these, other tools choose an older release and do not say so.
_STEP_BACK = frozenset({"only-sdist", "build-failed", "needs-build", "bad-metadata"})

MAX_BETTER = 20  # newer releases of one package that are looked at; boto3 has a thousand


class Solution:
    """The candidates that a resolution chose, by kind, and the better ones that it skipped.

    Attributes:
        candidates: every chosen node of a distribution, nodes with extras included.
        pinned: the node without extras of each distribution, sorted by name.
        versions: the version of each distribution.
        variants: the chosen variant of each framework with several ways.
    """

    def __init__(
        self, resolver: LearningResolver, roots: Sequence[NodeRequirement], nodes: Sequence[Node]
    ) -> None:
        """Sort the nodes that a resolution chose for the requirements of the request.

        Args:
            resolver: the resolution, with what it has learned.
            roots: the requirements of the request.
            nodes: the chosen nodes.
        """
        self._resolver, self.provider = resolver, resolver.provider
        self.store, self.facts, self.roots = self.provider.store, self.provider.facts, roots
        self.candidates = [node for node in nodes if isinstance(node, Candidate)]
        self.pinned: dict[str, Candidate] = {}
        for candidate in sorted(self.candidates, key=lambda candidate: candidate.name):
            if not candidate.extras:
                self.pinned[candidate.name] = candidate
        self.versions = {name: candidate.version for name, candidate in self.pinned.items()}
        self.variants: dict[Identifier, Variant] = {}
        for node in nodes:
            if isinstance(node, Variant):
                self.variants[node.identifier] = node
        self._file_reasons: dict[Candidate, tuple[Reason | None, Candidate]] = {
            candidate: (None, candidate) for candidate in self.candidates
        }
        self._named = {root.name for root in roots if isinstance(root, PackageRequirement)}
        # By package or topic: (name of the package that requires it, its label, the requirement)
        self._requirements: dict[str, list[tuple[str, str, NodeRequirement]]] = {}
        for root in roots:
            self._requirements.setdefault(without_extras(root.identifier), []).append(
                ("", REQUEST, root)
            )
        releases: list[Release] = [*self.variants.values(), *self.candidates]
        for release in releases:
            is_library = isinstance(release, Candidate) and self.store.data.is_library(release.name)
            for requirement in self.facts.requirements_of(release):
                topic, agreement = without_extras(requirement.identifier), None
                if isinstance(requirement, AgreementRequirement):
                    agreement = requirement.agreement.code
                # The CUDA of libraries follows the frameworks, and not the other way round.
                if not is_library or agreement in (None, "numpy-abi"):
                    row = (release.wheel.name, release.label, requirement)
                    self._requirements.setdefault(topic, []).append(row)

    def skipped(self) -> tuple[Rejection, ...]:
        """Return the better releases of what the request names, with the reasons against them."""
        skipped: list[Rejection] = []
        for root in self.roots:
            if isinstance(root, FrameworkRequirement):
                name, variants = root.framework.name, self.store.variants(root.framework)
                chosen = self.variants[root.identifier]
                skipped += self._better(name, root.specifier, variants, chosen)
            elif isinstance(root, PackageRequirement):
                skipped += self._better_of_package(root, self.pinned[root.name])
        of_variants = {variant.wheel.name for variant in self.variants.values()}
        for name, candidate in self.pinned.items():
            is_framework = candidate.on_path or self.store.data.framework(name) is not None
            if is_framework and name not in self._named | of_variants:
                root = PackageRequirement(name, (), "")
                skipped += self._better_of_package(root, candidate)
        for candidate in self.pinned.values():
            if candidate.variant is not None:
                skipped += self._better_variants(candidate)
        return tuple(dict.fromkeys((*self._gone_back(), *skipped)))

    def _gone_back(self) -> Iterator[Rejection]:
        """Yield the releases of the earlier lock of which an older release is chosen now."""
        store = self.store
        for wheel in store.request.earlier:
            name, version, chosen = wheel.name, public(wheel.version), self.pinned.get(wheel.name)
            if chosen is None or version_key(public(chosen.version)) >= version_key(version):
                continue
            same = PackageRequirement(name, (), f"=={version}")
            reason = missing_release_reason(store, same, store.constraints.ranges.get(name, ()))
            reasons = (reason,) if reason is not None else ()
            if reason is None:
                release = store.in_ranges(store.candidates(name), [same.specifier])[0]
                reasons = self._rejection(release, name, self.facts.reasons(release)).reasons
                code, have = self._step_back(release)
                if code:
                    label = release.label
                    reasons = (Reason("not-kept", label, "", have),)
            yield Rejection(name=name, version=wheel.version, reasons=reasons)

    def _better(
        self, name: str, specifier: str, releases: Sequence[Release], chosen: Release
    ) -> Iterator[Rejection]:
        """Yield the releases of a framework in a range that are better than the chosen one."""
        for release in releases:
            if release is chosen:
                return
            pre = isinstance(release, Candidate)
            if not release.is_yanked and contains(specifier, release.version, pre):
                reasons = self.facts.reasons_with_libraries(release)
                yield self._rejection(release, name, reasons)

    def _better_of_package(
        self, root: PackageRequirement, chosen: Candidate
    ) -> Iterator[Rejection]:
        """Yield the better releases of a package, and newer builds that no index has a wheel of."""
        store, facts, name = self.store, self.facts, root.name
        if chosen.wheel.index == DIRECT_URL:
            return  # no index is asked for its name
        if not store.on_path(name):
            for candidate in self.provider.admitted(root)[:MAX_BETTER]:
                if candidate is chosen:
                    return
                release = candidate.with_extras(root.extras)
                yield self._rejection(release, name, facts.reasons(candidate))
            return
        candidates = store.candidates(name)
        yield from self._better(name, root.specifier, candidates, chosen)
        if chosen.build is not None and not store.index.is_bound(name):
            yield from self._builds_without_files(chosen, chosen.build.version)

    def _builds_without_files(self, chosen: Candidate, oldest: str) -> Iterator[Rejection]:
        """Yield builds since a version that would run here, and that no index has a wheel of."""
        store, facts, name = self.store, self.facts, chosen.name
        candidates = store.candidates(name)
        majors = self._majors_beside(chosen)
        builds = [candidate.build for candidate in candidates if candidate.build is not None]
        listed = {(build.version, build.variant) for build in builds}
        # What has files, and none for the target, has none on another index.
        elsewhere = {public(file.version) for file in store.index.files(name)}
        elsewhere -= {build.version for build in builds}
        python, platform = store.host.python, store.host.platform
        tag = interpreter_tag(python.version, python.free_threaded)
        for build in store.data.builds(name, platform, oldest):
            key = (build.version, build.variant)
            is_excluded = store.request.default_index_only and build.index != "default"
            is_of_host = bool(store.host.gpus) or build.cuda is None
            if key in listed or is_excluded or not is_of_host or not self._is_requested(build):
                continue
            if build.index != "default" and build.version in elsewhere:
                continue
            if majors and build.cuda is not None and majors != {build.cuda[0]}:
                continue
            if facts.build_reasons(build):
                continue
            listed.add(key)
            need = f"a wheel for {tag} on {platform}"
            reason = no_file_reason(build, need)
            if build.index == "default":
                have = "none in the index data"
                reason = reason.replace(code="no-wheel", have=have)
            yield Rejection(name=name, version=build.local, reasons=(reason,))

    def _majors_beside(self, chosen: Candidate) -> set[int]:
        """Return the CUDA majors of the other frameworks."""
        releases: list[Release] = [*self.variants.values(), *self.pinned.values()]
        return {
            release.build.cuda[0]
            for release in releases
            if release is not chosen and (isinstance(release, Variant) or release.on_path)
            if release.build is not None and release.build.cuda is not None
        }

    def _is_requested(self, build: Build) -> bool:
        """Return whether the request admits a build, its cuDNN and its companions.

        What other chosen packages require of the framework must admit it, too.
        """
        versions = {build.name: build.version, **dict(build.companions)}
        for name, _, required in self._requirements.get(build.name, ()):
            if name in versions or not isinstance(required, PackageRequirement):
                continue
            if not contains(required.specifier, build.version):
                return False
        if build.cuda is not None and build.cudnn is not None:
            versions[f"nvidia-cudnn-cu{build.cuda[0]}"] = build.cudnn
        for root in self.roots:
            if not isinstance(root, PackageRequirement):
                continue
            version = versions.get(root.name)
            if version is None and root.name.startswith("nvidia-cudnn-cu"):
                return False  # that of another CUDA major
            if version is not None and not contains(root.specifier, version):
                return False
        ranges = self.store.constraints.ranges
        return all(
            contains(text, version)
            for name, version in versions.items()
            for text in ranges.get(name, ())
        )

    def _better_variants(self, chosen: Candidate) -> Iterator[Rejection]:
        """Yield the variants of a release before the variant wheel that was chosen.

        The candidates have those that do not suit the host last.
        """
        store, name, is_after = self.store, chosen.name, False
        for candidate in store.candidates(name):
            if candidate.wheel is chosen.wheel:
                is_after = True
                continue
            same_index = candidate.wheel.index == chosen.wheel.index
            if candidate.version != chosen.version or not same_index:
                continue
            reasons = self.facts.reasons(candidate)
            is_refused = bool(reasons) and store.chooser.precedes(candidate.wheel, chosen.wheel)
            if not is_after or is_refused:
                yield self._rejection(candidate, name, reasons)

    def step_backs(self) -> Iterator[Reason]:
        """Yield why chosen releases are older than the newest ones that the requirements admit.

        That is: the newer one, or what it requires, cannot be built, is yanked or a placeholder
        (R12). Pre-releases that nobody asked for do not count. If something else excludes a release
        between the two, that it is newer counts only if it cannot be built. Packages of the
        compatibility data have reasons of their own (`skipped`).
        """
        for candidate in self.pinned.values():
            if self.store.data.covers(candidate.name) or candidate.wheel.index == DIRECT_URL:
                continue
            ranges = [*self.store.constraints.ranges.get(candidate.name, ())]
            for _, _, requirement in self._requirements.get(candidate.name, ()):
                if isinstance(requirement, PackageRequirement) and requirement.specifier:
                    ranges.append(requirement.specifier)
            reasons: list[Reason] = []
            is_excluded = False
            for release in self.store.candidates(candidate.name):
                version = release.version
                if version == candidate.version or len(reasons) == MAX_BETTER:
                    break
                if not all(contains(text, version) for text in ranges):
                    continue
                if is_prerelease(version) and (release.is_yanked or not self.store.request.pre):
                    continue
                code, have = self._step_back(release)
                is_excluded = is_excluded or not code
                reasons.append(Reason(code, candidate.label, version, have))
            not_built = [reason for reason in reasons if reason.code == "newer-not-built"]
            if not_built or not is_excluded:
                yield from (not_built or reasons or self._for_older_pythons(candidate, ranges))[:1]

    def _for_older_pythons(self, chosen: Candidate, ranges: Sequence[str]) -> list[Reason]:
        """Return that a newer release excludes the Python as too new.

        The chosen one is from before any did so, and may not run either.
        """
        store, newest = self.store, version_key(chosen.version)
        python = store.host.python.version

        def is_too_new(limit: str | None) -> bool:
            accepting = [pair for pair in PYTHONS if contains(str(limit), show_pair(pair))]
            return bool(accepting) and max(accepting) < python

        newer = [
            file
            for file in store.index.files(chosen.name)
            if version_key(file.version) > newest
            and not store.environment.accepts_python(file.requires_python)
            and is_too_new(file.requires_python)
            and not is_prerelease(file.version)
            and all(contains(text, file.version) for text in ranges)
        ]
        if not newer:
            return []
        file = max(newer, key=lambda file: version_key(file.version))
        code, have = "newer-for-older-python", f"needs Python {file.requires_python}"
        return [Reason(code=code, subject=chosen.label, need=file.version, have=have)]

    def _step_back(self, release: Candidate) -> tuple[str, str]:
        """Return the code and the text of why a newer release was not taken; ("", "") for others.

        Nothing is read for it that the resolution has not read.
        """
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
        known = self._file_reasons
        if release in known:
            return known[release]
        known[release] = None, release  # for a circle of requirements
        requirements = self.facts.known_requirements(release)
        reasons = self.facts.reasons(release)
        for requirement in requirements:
            if isinstance(requirement, UnmetRequirement):
                reasons += (requirement.reason,)
        for reason in reasons:
            if reason.code in _STEP_BACK:
                known[release] = reason, release
                return known[release]
        for requirement in requirements:
            if not isinstance(requirement, PackageRequirement):
                continue
            if not self.store.is_read(requirement.name):
                continue
            matches = self.provider.admitted(requirement)
            if matches and all(self._file_reason(match)[0] is not None for match in matches):
                known[release] = self._file_reason(matches[0])
                break
        return known[release]

    def _rejection(self, release: Release, name: str, reasons: tuple[Reason, ...]) -> Rejection:
        known = reasons or self._conflicts(release) or self._other_release(release)
        known = known or self._always_excluded(release) or self._other_choice(release)
        if not known:  # nothing more exact is known
            need = "dependencies that fit the other requirements"
            reason = Reason("conflict", release.label, need, "none do")
            known = (reason,)
        return Rejection(name=name, version=release.local_version, reasons=known)

    def _conflicts(self, release: Release) -> tuple[Reason, ...]:
        """Return the requirement that excludes a release: one on it, or the deciding of its own."""
        provider, own_name = self.provider, release.wheel.name
        for name, label, requirement in self._requirements.get(own_name, ()):
            if name == own_name or not isinstance(requirement, PackageRequirement):
                continue
            if not contains(requirement.specifier, release.version):
                have = f"{own_name} {release.version}"
                return (Reason("conflict", label, str(requirement), have),)
        reasons: list[Reason] = []
        # Of the packages, those that the request names come first.
        for needed in sorted(
            self.facts.requirements_of(release),
            key=lambda one: isinstance(one, PackageRequirement) and one.name not in self._named,
        ):
            if isinstance(needed, UnmetRequirement):
                reasons.append(needed.reason)
            if isinstance(needed, PackageRequirement):
                admitted = provider.admitted(needed)
                if not admitted:
                    reasons.append(missing_dependency_reason(self.store, release.label, needed))
                elif all(map(self._refusals, admitted)):
                    against = self._refusals(admitted[0])
                    reasons += [reason.replace(dependent=release.label) for reason in against]
            reasons += self._exclusions(release, needed)
        return deciding_first(reasons)[:1]

    def _other_release(self, release: Release) -> tuple[Reason, ...]:
        """Return the reason against a release if the others of its family have one release (R5)."""
        own_name = release.wheel.name
        for family, members in self.facts.owners.families(self.versions):
            versions = {self.versions[name] for name in members}
            if family.tolerated and own_name in members and len(versions) == 1:
                others = [name for name in members if name != own_name]
                need = f"the same release of {' and '.join(others)}"
                have = f"{others[0]} {self.versions[others[0]]}"
                return (Reason("conflict", release.label, need, have),)
        return ()

    def _always_excluded(self, release: Release) -> tuple[Reason, ...]:
        """Return what excludes a release whatever else is chosen.

        The first of these: a requirement that no file meets, with what the index says; a
        requirement that conflicts with one of the request or of another release; any requirement.
        """
        # Who has a requirement, the requirement, and who has it if that is another release.
        needs: list[tuple[str, PackageRequirement, str]] = []
        for cause in self._resolver.proof(self._resolver.why_excluded(release)):
            parent, requirement = cause.parent, cause.requirement
            if isinstance(requirement, PackageRequirement):
                owner = parent.label if isinstance(parent, Release) else REQUEST
                is_own = not isinstance(parent, Candidate) or parent.name == release.wheel.name
                needs.append((owner, requirement, "" if is_own else owner))
        needs.sort(key=lambda need: need[0] != REQUEST)
        reasons: list[Reason] = []
        for owner, requirement, dependent in needs:
            if owner == REQUEST:
                continue
            reason = missing_dependency_reason(self.store, release.label, requirement)
            if reason.have == NO_CANDIDATE:
                for other, opposite, _ in needs:
                    is_same = opposite.name == requirement.name
                    if is_same and not self.provider.admitted(requirement, opposite):
                        reason = range_conflict(release.label, requirement, other, opposite)
                        break
            reasons.append(reason.replace(dependent=dependent))
        reasons.sort(key=lambda reason: (reason.have == NO_CANDIDATE, reason.code == "conflict"))
        return tuple(reasons[:1])

    def _refusals(self, release: Candidate) -> tuple[Reason, ...]:
        """Return why a release can be no dependency: the host, or what chosen releases agree on."""
        reasons = self.facts.reasons(release)
        for needed in self.facts.known_requirements(release):
            if isinstance(needed, AgreementRequirement):
                reasons += tuple(self._exclusions(release, needed))
        return reasons

    def _exclusions(self, release: Release, needed: NodeRequirement) -> Iterator[Reason]:
        """Yield the requirements of chosen releases that exclude what a release requires."""
        for name, label, requirement in self._requirements.get(
            without_extras(needed.identifier), ()
        ):
            if name == release.wheel.name:
                continue
            if isinstance(needed, AgreementRequirement) and isinstance(
                requirement, AgreementRequirement
            ):
                own, other = needed.agreement, requirement.agreement
                if not own.agrees_with(other):
                    yield disagreement_reason(release.label, own, label, other)
            elif isinstance(needed, PackageRequirement):
                if not isinstance(requirement, PackageRequirement):
                    continue
                if not self.provider.admitted(needed, requirement):
                    reason = range_conflict(release.label, needed, label, requirement)
                    # jax==0.7.1 is the distribution of jax 0.7.1 (cuda12).
                    yield reason.replace(have=label) if name == requirement.name else reason

    def _other_choice(self, release: Release) -> tuple[Reason, ...]:
        """Return that another release of a dependency is chosen, if nothing says why."""
        for needed in self.facts.requirements_of(release):
            if isinstance(needed, PackageRequirement):
                chosen = self.versions.get(needed.name, "")
                if chosen and not contains(needed.specifier, chosen):
                    need, have = str(needed), f"{needed.name} {chosen}"
                    return (Reason("conflict", release.label, need, have),)
        return ()
