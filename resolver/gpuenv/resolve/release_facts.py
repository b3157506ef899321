"""What a release requires of the host and of other builds, and what the host says about it.

The rules are evaluated in compat; here their answers become requirements of the graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

from ..compat import evaluate
from ..compat.data import RuleRow
from ..compat.evaluate import Package
from ..errors import OfflineError, Reason, UnusableFileError, deciding_first
from ..model import Build, Host, Library, Requirement, show_pair
from ..requirements.target import parse_requirement
from ..requirements.versions import contains
from .candidates import CandidateStore, is_exact
from .graph import (
    AgreementRequirement,
    Candidate,
    Node,
    NodeRequirement,
    PackageRequirement,
    Release,
    SameFileRequirement,
    UnmetRequirement,
    Variant,
)
from .import_limits import ImportLimits
from .owners import Owners
from .wheel_variants import not_cached


class ReleaseFacts:
    """Answers about releases on the host of a candidate store.

    Attributes:
        store: the candidates.
        owners: how distributions that install the same paths are treated.
        undeclared: the rows about requirements that the metadata of chosen releases lack.
        limits: what chosen releases need because of what they import.
        host_doubts: doubts about the host itself.
        offline: what was not in the cache. A solution may exist without.
    """

    def __init__(
        self,
        store: CandidateStore,
        owners: Owners,
        limits: ImportLimits,
        undeclared: Sequence[RuleRow] = (),
    ) -> None:
        self.store = store
        self.owners = owners
        self.limits = limits
        self.undeclared = undeclared
        self._host = store.host
        self._data = store.data
        self._reasons: dict[Release, tuple[Reason, ...]] = {}
        self._requirements: dict[Node, Sequence[NodeRequirement]] = {}
        self.offline: list[OfflineError] = []
        reasons: Sequence[Reason] = ()
        if self._host.gpus:
            reasons = evaluate.host_reasons(self._host, self._data)
        # A driver newer than the data is a doubt about the data. It must not refuse a build.
        unknown = [reason for reason in reasons if reason.code.endswith("-unknown")]
        self.host_doubts: tuple[Reason, ...] = tuple(unknown)
        self._host_reasons = tuple(reason for reason in reasons if reason not in unknown)

    # ---- reasons against a release

    def reasons(self, release: Release) -> tuple[Reason, ...]:
        """Return every reason of the host and the data against a release, the deciding first."""
        if release not in self._reasons:
            self._reasons[release] = deciding_first(self._find_reasons(release))
        return self._reasons[release]

    def build_reasons(self, build: Build) -> tuple[Reason, ...]:
        """Return every reason against a build and its cuDNN, whether or not an index has them."""
        reasons = self._reasons_of_build(build)
        if build.cuda is not None and build.cudnn is not None:
            name = f"nvidia-cudnn-cu{build.cuda[0]}"
            library = self._data.library(name, build.cudnn, self._host.platform)
            if library is not None:
                subject = f"{name} {build.cudnn}"
                reasons += evaluate.library_reasons(subject, library, self._host, self._data)
        return reasons

    def reasons_with_libraries(self, release: Release) -> tuple[Reason, ...]:
        """Return every reason against a release and against the CUDA libraries that it pins.

        If the user chose another build by hand, that is the only reason. The toolkit of the build
        decides which driver its libraries need. What a source distribution pins is not asked: that
        could take a build. If one was tried and failed, that is a reason.
        """
        store, reasons = self.store, self.reasons(release)
        if isinstance(release, Candidate) and release.needs_build:
            read = self.known_requirements(release)
            failures = [need.reason for need in read if isinstance(need, UnmetRequirement)]
            return (*reasons, *failures)
        if any(reason.code == "other-build" for reason in reasons):
            return reasons
        try:
            dependencies = store.dependencies(release.wheel)
        except UnusableFileError as error:
            return (*reasons, error.reason)
        except OfflineError:
            return (*reasons, not_cached(release.wheel, "its dependencies"))
        extras: Sequence[str] = ()
        own: Sequence[str] = ()  # the release's own files are judged with it
        if isinstance(release, Variant):
            extras, own = parse_requirement(release.way.requires[0]).extras, release.way.carriers
        for dependency in dependencies:
            name, marker = dependency.name, dependency.marker
            if not is_exact(dependency.specifier) or not store.data.is_library(name):
                continue
            if name in own:
                continue
            if marker and not store.environment.marker(marker, extras):
                continue
            for library in store.in_ranges(store.candidates(name), [dependency.specifier])[:1]:
                reasons += tuple(
                    reason
                    for reason in self.reasons(library)
                    if reason.code not in evaluate.TOOLKIT_CODES
                )
        return deciding_first(dict.fromkeys(reasons))

    def _find_reasons(self, release: Release) -> tuple[Reason, ...]:
        other_build = self._other_build(release)
        if other_build is not None:
            return (other_build,)
        if isinstance(release, Variant):
            try:
                reasons = self._reasons_of_variant(release)
            except UnusableFileError as error:
                return (error.reason,)
            names: Sequence[str] = release.way.carriers
        elif release.needs_build and not self.store.request.may_build(release.name):
            have = "only a source distribution, and --no-build"
            subject = f"{release.name} {release.version}"
            reason = Reason("only-sdist", subject, "a wheel", have)
            return (reason,)
        elif release.needs_build and not release.on_path:
            name = release.name
            reasons = evaluate.source_reasons(name, release.version, self._host, self._data)
            names = (name,)
        else:
            reasons, names = self._reasons_of_candidate(release), (release.name,)
            if release.judged is not None:
                reasons += release.judged.reasons
        for name in names:
            reasons += evaluate.known_bad_reasons(name, release.version, self._host, self._data)
        return reasons

    def _other_build(self, release: Release) -> Reason | None:
        """Return the reason against a build that is not the one that the user chose by hand."""
        if isinstance(release, Variant):
            framework, build, tag = release.framework.name, release.build, release.way.variant
            subject = release.label
        elif release.on_path:
            framework, build = release.name, release.build
            tag = "" if build is None else build.variant
            subject = f"{release.name} {release.version}"
        else:
            return None
        chosen = dict(self.store.request.builds)
        cuda = None if build is None else build.cuda
        return evaluate.other_build_reason(chosen, framework, subject, (tag,), cuda)

    def _reasons_of_candidate(self, candidate: Candidate) -> tuple[Reason, ...]:
        if candidate.variant is not None and candidate.build is not None and candidate.build.cuda:
            return ()  # the properties of the variant say what it needs
        if candidate.build is not None:
            return self._reasons_of_build(candidate.build)
        host, data, name = self._host, self._data, candidate.name
        subject, on_path = f"{name} {candidate.version}", candidate.on_path
        if candidate.framework is not None:
            return evaluate.build_reasons(subject, None, host, data, on_path=on_path)
        library = candidate.library
        if library is None and not (data.is_library(name) and host.gpus):
            if data.is_extension(name):
                return evaluate.jetson_reasons(subject, host)
            major = data.other_library_major(name) if host.gpus else 0
            return evaluate.driver_reasons(subject, (major, 0), host, data) if major else ()
        reasons = evaluate.requested_library_reasons(subject, library, host, data)
        needs_driver = library is not None and (library.cuda_majors() or library.code.sass)
        return reasons + self._host_reasons if needs_driver else reasons

    def _reasons_of_build(self, build: Build) -> tuple[Reason, ...]:
        subject, on_path = f"{build.name} {build.local}", self.store.on_path(build.name)
        reasons = evaluate.build_reasons(subject, build, self._host, self._data, on_path=on_path)
        return reasons if build.cuda is None else reasons + self._host_reasons

    def _reasons_of_variant(self, variant: Variant) -> tuple[Reason, ...]:
        subject, build, framework = variant.label, variant.build, variant.framework
        has_carriers = [bool(way.carriers) for way in framework.ways]
        if not self._host.gpus:
            is_limited = framework != self._data.framework(framework.name)
            if is_limited or not all(has_carriers):
                return ()  # the user asks for a CUDA build, or there is a CPU variant
            return (evaluate.gpu_reason(subject),)
        if not any(has_carriers):
            return ()  # the user asks for the CPU build; the plan has a warning
        if build is None:
            subject += f": {' and '.join(variant.way.carriers)}"
        reasons = evaluate.build_reasons(subject, build, self._host, self._data, on_path=True)
        if build is not None:
            if build.cuda is None:
                return reasons
            reasons += self._host_reasons
        return reasons + self._missing_libraries(variant)

    def _missing_libraries(self, variant: Variant) -> tuple[Reason, ...]:
        """Return the reason against a release that brings no CUDA libraries.

        If the data says that it uses those of the system, this is a doubt. Otherwise an extra
        should bring them; pip would only warn if the release has no such extra. If the
        distribution itself has the device code, it works with CUDA libraries from elsewhere: a
        doubt. If the extra brings the device code, too (JAX), the release has no such variant.
        """
        requirement = parse_requirement(variant.way.requires[0])
        markers = extra_markers(self.store, variant)
        matches = self.store.environment.marker
        missing = [
            extra
            for extra in requirement.extras
            if not any(matches(marker, (extra,)) for marker in markers)
        ]
        code = "cuda-libraries-unknown"
        if missing and requirement.name not in variant.way.carriers:
            code = "no-such-extra"
        platform = self._host.platform
        row = self._data.system_cuda(variant.way.carriers[0], variant.version, platform)
        if row is not None and code != "no-such-extra":
            need = f"{row.value} of the system: {', '.join(row.libraries)}"
            have, source = "no package that brings them", row.source
        elif missing and code == "no-such-extra":
            need = f"the extra {' and '.join(missing)}, which brings its CUDA libraries"
            have, source = "a release without it", ""
        elif missing:
            build = variant.build
            cuda = f"CUDA {build.cuda[0]}" if build is not None and build.cuda else "CUDA"
            has_cudnn = "cudnn" in missing or (build is not None and build.cudnn)
            need = f"{cuda}{' and cuDNN' if has_cudnn else ''} of the system"
            have, source = "no extra that brings it", ""
        else:
            return ()
        reason = Reason(code, variant.label, need, have, source=source)
        if row is None or variant.build is None:
            return (reason,)
        return (reason, *self._reasons_against_every_cudnn(variant.build))

    def _reasons_against_every_cudnn(self, build: Build) -> tuple[Reason, ...]:
        """Return why no cuDNN that the system can have for a build serves the devices (R3).

        That is a release of the build's cuDNN major for its CUDA major. The reasons are those
        against the newest one; () if one of them serves the devices.
        """
        reasons: tuple[Reason, ...] = ()
        cuda = build.cuda[0] if build.cuda else 0
        major = (build.cudnn or "").partition(".")[0]
        for library in self._data.releases(f"nvidia-cudnn-cu{cuda}", self._host.platform):
            if library.version.partition(".")[0] == major:
                subject = f"cuDNN {library.version} for CUDA {cuda}"
                reasons = evaluate.library_reasons(subject, library, self._host, self._data)
                reasons += evaluate.known_bad_reasons(
                    library.name, library.version, self._host, self._data, subject
                )
                if not reasons:
                    return ()
        return reasons

    # ---- requirements

    def requirements_of(self, node: Node) -> Sequence[NodeRequirement]:
        """Return the requirements of a candidate on this host, always the same objects.

        A release that the host refuses is no candidate, so its needs of the host are not among
        them. A file that cannot be used (UnusableFileError) or that is not in the cache
        (OfflineError) has a requirement that nothing fulfils.

        Raises:
            PackageIndexError: an index failed.
        """
        if node not in self._requirements:
            requirements: Iterator[NodeRequirement] = iter(())
            if isinstance(node, Candidate):
                requirements = self._requirements_of_candidate(node)
            elif isinstance(node, Variant):
                requirements = self._requirements_of_variant(node)
            self._requirements[node] = tuple(requirements)
        return self._requirements[node]

    def required_names(self) -> set[str]:
        """Return the distributions that the releases require of which that was read before."""
        every = chain.from_iterable(self._requirements.values())
        return {one.name for one in every if isinstance(one, PackageRequirement)}

    def known_requirements(self, release: Release) -> Sequence[NodeRequirement]:
        """Return what a release requires if that was read before, otherwise ()."""
        return self._requirements.get(release, ())

    def _requirements_of_variant(self, variant: Variant) -> Iterator[NodeRequirement]:
        """Yield the agreements and packages of a variant, the first one at its version."""
        yield from self.agreements(variant)
        for place, text in enumerate(variant.way.requires):
            requirement = parse_requirement(text)
            specifier = requirement.specifier if place else f"=={variant.version}"
            yield PackageRequirement(requirement.name, (), specifier)
            if requirement.extras:
                yield PackageRequirement(requirement.name, requirement.extras, specifier)

    def _requirements_of_candidate(self, candidate: Candidate) -> Iterator[NodeRequirement]:
        """Yield the requirements of a release and of its file.

        A node with extras has the dependencies of its package, too: a release that cannot be chosen
        is then no candidate of either node.
        """
        platform, url = self._host.platform, candidate.wheel.url
        links = self._data.links(candidate.name, candidate.version, platform, url)
        if candidate.extras:
            yield SameFileRequirement(candidate.wheel)
        else:
            yield from self.agreements(candidate)
            for framework, specifier in links.frameworks if links else ():  # R10
                if specifier:
                    name = self.store.index.name_of(framework)
                    yield self.owners.in_place(PackageRequirement(name, (), specifier))
            yield from self.limits.requirements(candidate)
        try:
            dependencies = self.store.dependencies(candidate.wheel)
        except UnusableFileError as error:
            yield UnmetRequirement(error.reason)
            return
        except OfflineError as error:
            self.offline.append(error)
            yield UnmetRequirement(not_cached(candidate.wheel, "its dependencies"))
            return
        environment = self.store.environment
        python = self.store.index.metadata(candidate.wheel).requires_python
        if python and not candidate.extras and not environment.accepts_python(python):
            reason = Reason(
                "requires-python",
                f"{candidate.name} {candidate.version}",
                python,
                python_text(self._host),
            )
            yield UnmetRequirement(reason)
        built = candidate.build or candidate.library
        if built is None and candidate.extras:
            built = self._build_of_extras(candidate)
        rows = [row for row in self.undeclared if row.is_about(candidate.name, candidate.version)]
        undeclared = [parse_requirement(name) for row in rows for name in row.requires]
        for dependency in chain(dependencies, self.store.overrides.apply(undeclared)):
            marker = dependency.marker
            if marker is None or environment.marker(marker, candidate.extras):
                shared = evaluate.agreements_of_requirement(candidate.wheel, dependency, links)
                yield from map(AgreementRequirement, shared)
                requirement = PackageRequirement(
                    dependency.name,
                    dependency.extras,
                    with_cudnn_range(built, dependency),
                    dependency.url,
                )
                required = self.owners.in_place(requirement)
                if isinstance(required, PackageRequirement) and required.name == candidate.name:
                    yield from self._requirement_on_itself(required, candidate)
                else:
                    yield from required.with_base()

    def _build_of_extras(self, candidate: Candidate) -> Build | None:
        """Return the build of a framework that the extras of a candidate bring (jax[cuda12])."""
        for framework in self._data.all_frameworks():
            for way in framework.ways:
                asked = parse_requirement(way.requires[0])
                if asked.name == candidate.name and set(asked.extras) & set(candidate.extras):
                    version, platform = candidate.version, self._host.platform
                    return self._data.variant(framework, way, version, platform)
        return None

    def _requirement_on_itself(
        self, requirement: PackageRequirement, candidate: Candidate
    ) -> Iterator[NodeRequirement]:
        """Yield what a requirement of a release on its own package asks for: nothing, or extras.

        As an ordinary requirement it would pin the release to itself.
        """
        url, store = requirement.url, self.store
        at_url = (candidate,) if url is None else store.at_url(candidate.name, url)
        is_same_file = any(candidate.wheel is other.wheel for other in at_url)
        if not is_same_file or not contains(requirement.specifier, candidate.version):
            subject = f"{candidate.identifier} {candidate.version}"
            have = f"{candidate.version} itself"
            reason = Reason("conflict", subject, str(requirement), have)
            yield UnmetRequirement(reason)
        elif requirement.extras and requirement.extras != candidate.extras:
            yield PackageRequirement(requirement.name, requirement.extras, "")

    def agreements(self, release: Release) -> Iterator[AgreementRequirement]:
        """Yield what a release and all other packages of a plan must agree on."""
        name, version = release.wheel.name, release.version
        if isinstance(release, Variant):
            package = Package(
                name=name,
                version=version,
                distribution="",  # its distribution is a package of the plan, too
                framework=release.framework.name,
                build=release.build,
                on_path=True,
            )
        else:
            package = Package(
                name=name,
                version=version,
                distribution=name,
                links=self._data.links(name, version, self._host.platform, release.wheel.url),
                framework="" if release.framework is None else release.framework.name,
                build=release.build,
                on_path=release.on_path,
                library=release.library,
            )
        for agreement in evaluate.agreements(package, self._host, self._data):
            if agreement.code != "two-owners" or self.owners.is_decided(name):
                yield AgreementRequirement(agreement)


def extra_markers(store: CandidateStore, release: Release) -> list[str]:
    """Return the markers of a release's dependencies that name an extra."""
    markers = [dependency.marker for dependency in store.dependencies(release.wheel)]
    return [marker for marker in markers if marker and "extra" in marker]


def python_text(host: Host) -> str:
    """Return "Python 3.12.3", or "Python 3.12" if the host does not tell the full version."""
    return f"Python {host.python.full_version or show_pair(host.python.version)}"


def with_cudnn_range(built: Build | Library | None, dependency: Requirement) -> str:
    """Return the specifier of a dependency; R4 narrows a cuDNN range to what fits the build.

    That is the major version that the build was made with, and no older minor version.
    """
    specifier = dependency.specifier
    if not dependency.name.startswith("nvidia-cudnn-") or is_exact(specifier):
        return specifier
    if built is None or built.cudnn is None:
        return specifier
    major, minor = (*built.cudnn.split("."), "0")[:2]
    clauses = [f">={major}.{minor}", f"<{int(major) + 1}"]
    if specifier:
        clauses.insert(0, specifier)
    return ",".join(clauses)
