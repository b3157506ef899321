"""The candidates of a resolution: releases of distributions and of frameworks, best first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy

from ..compat import evaluate
from ..compat.data import CompatibilityData
from ..errors import Reason
from ..index.protocol import Index
from ..model import (
    Build,
    Code,
    CudaVersion,
    Framework,
    Host,
    Library,
    Request,
    Requirement,
    Wheel,
)
from ..requirements.target import (
    SDIST_RANK,
    TargetEnvironment,
    parse_requirement,
    split_label,
    version_key,
)
from .graph import Candidate, Release, Variant
from .selection import ReleaseT, admitted
from .wheel_variants import JudgedVariant, VariantChooser


class CandidateStore:
    """All candidates of a request on a host, read from the index when first asked for.

    Order of the candidates of a distribution (policy):

    1. Releases that the request prefers (`Request.preferences`).
    2. On a host without a GPU: CPU builds before CUDA builds. With a GPU: the opposite.
    3. The newest version.
    4. A build with SASS for every device, then with PTX.
    5. The toolkit closest to the CUDA version of the driver.
    6. A scanned build before a documented one, the default index before others.
    7. The order of the index.

    The variant wheels of a release (PEP 825) are candidates of their own, in the order of the PEP
    (`VariantChooser.sort`).

    Only files that fit the target's interpreter and platform become candidates. A source
    distribution stands for its release if no wheel fits, also where no build is allowed: the facts
    of the release refuse it then (ReleaseFacts).
    """

    def __init__(
        self,
        request: Request,
        host: Host,
        data: CompatibilityData,
        index: Index,
        environment: TargetEnvironment,
    ) -> None:
        self.request = request
        self.host = host
        self.data = data
        self.index = index
        self.environment = environment
        self._candidates: dict[str, tuple[Candidate, ...]] = {}
        self._variants: dict[Framework, tuple[Variant, ...]] = {}
        self._at_url: dict[tuple[str, str], tuple[Candidate, ...]] = {}
        self._chooser = VariantChooser(host, data, index)
        self._preferred_versions = dict(request.preferences)
        self._allowed_hashes = {name: frozenset(hashes) for name, hashes in request.hashes}
        self._framework_of = _frameworks_by_distribution(data)

    # ---- frameworks

    def framework_of(self, name: str) -> Framework | None:
        """Return the framework whose builds are versions of a distribution.

        That is the framework's own distribution or a companion. None for distributions of
        frameworks that install in several ways; these are candidates as variants.
        """
        return self._framework_of.get(name)

    def on_path(self, name: str) -> bool:
        """Return whether the code of a distribution runs in a convolution.

        True for the framework itself. Companions (torchvision) carry code for their own
        operators, which the compatibility data does not hold.
        """
        framework = self._framework_of.get(name)
        return framework is not None and framework.distribution == name

    def is_in_data(self, name: str) -> bool:
        """Return whether the compatibility data has every release of a distribution."""
        return self.data.covers(name)

    # ---- releases of distributions

    def candidates(self, name: str) -> tuple[Candidate, ...]:
        """Return all candidates of a normalized name, best first."""
        candidates = self._candidates.get(name)
        if candidates is None:
            candidates = self._candidates[name] = self._read_candidates(name)
        return candidates

    def is_read(self, name: str) -> bool:
        """Return whether the candidates of a name were asked for before."""
        return name in self._candidates

    def in_ranges(self, name: str, specifiers: Sequence[str]) -> Sequence[Candidate]:
        """Return the candidates of a name that all of some specifiers contain, best first."""
        contains = self.environment.contains
        return [
            candidate
            for candidate in self.candidates(name)
            if all(contains(specifier, candidate.version, True) for specifier in specifiers)
        ]

    def listed_versions(self, name: str) -> set[str]:
        """Return all versions of a name that its index lists, also those without a fitting file."""
        files = (*self.index.wheels(name), *self.index.sdists(name))
        return {file.version for file in files}

    def admitted(
        self, name: str, releases: Sequence[ReleaseT], specifiers: Sequence[str]
    ) -> list[ReleaseT]:
        """Return the releases of a name that may be taken, in the same order (see selection)."""
        return admitted(
            releases,
            specifiers,
            self.environment,
            pre=self.request.pre,
            listed=lambda: self.listed_versions(name),
        )

    def at_url(self, name: str, url: str) -> tuple[Candidate, ...]:
        """Return the candidate at the URL of a requirement; () if its file does not fit.

        Two URLs of the same file (same address and hash) give the same candidate.
        """
        key = (name, url)
        if key not in self._at_url:
            wheel = self.index.direct(name, url)
            candidate = self._known_at_url(wheel)
            if candidate is not None:
                self._at_url[key] = (candidate,)
            elif self._rank(wheel) is not None:
                self._at_url[key] = (self._candidate(wheel),)
            else:
                self._at_url[key] = ()
        return self._at_url[key]

    def on_host(self, host: Host) -> CandidateStore:
        """Return a store of the same files for another host of the platform and interpreter.

        The orders of the releases that were read already stay those of this store's host.
        """
        store = copy(self)
        store.host = host
        return store

    def for_request(self, request: Request) -> CandidateStore:
        """Return a store of the same candidates for a request with the same options."""
        store = copy(self)
        store.request = request
        return store

    def forget(self, name: str) -> None:
        """Read the candidates of a name from the index again when they are next asked for."""
        self._candidates.pop(name, None)
        self._variants.clear()

    def _known_at_url(self, wheel: Wheel) -> Candidate | None:
        for candidates in self._at_url.values():
            for candidate in candidates:
                known = candidate.wheel
                if (known.name, known.url, known.sha256) == (wheel.name, wheel.url, wheel.sha256):
                    return candidate
        return None

    def _read_candidates(self, name: str) -> tuple[Candidate, ...]:
        sdists = self.index.sdists(name)
        wheels = self.index.wheels(name, self.environment)
        best = self._with_sorted_variants(self._best_files(name, (*wheels, *sdists)))
        candidates = [self._candidate(wheel) for wheel in best]
        if sdists:  # they do not stand at the place of their version yet
            candidates.sort(key=lambda candidate: version_key(candidate.version), reverse=True)
        if name in self._framework_of:
            self.sort_builds(candidates)
        if name in self._preferred_versions:
            candidates.sort(key=lambda candidate: not self._is_preferred(candidate))
        return tuple(candidates)

    def _best_files(self, name: str, files: Iterable[Wheel]) -> list[Wheel]:
        """Return the best fitting file of each release on each index, in the order of the index.

        That is one file of each variant. A yanked file comes after all other files of its release.
        """
        excluded = self._excluded_indexes(name)
        best: dict[tuple[str, str, str], tuple[tuple[bool, int], Wheel]] = {}
        for wheel in files:
            if excluded and wheel.index.startswith(excluded):
                continue
            rank = self._rank(wheel)
            if rank is None:
                continue
            release = (wheel.version, wheel.index, split_label(wheel.filename)[1])
            order = (wheel.yanked is not None, rank)
            if release not in best or order < best[release][0]:
                best[release] = (order, wheel)
        return [wheel for _, wheel in best.values()]

    def _excluded_indexes(self, name: str) -> tuple[str, ...]:
        """Return the prefixes of the indexes that --default-index-only excludes for a name."""
        framework = self._framework_of.get(name)
        if framework is None or not self.request.default_index_only:
            return ()
        return tuple(url.partition("{")[0] for url in framework.indexes)

    def _rank(self, wheel: Wheel) -> int | None:
        """Return how well a file fits the target (smaller is better); None if it does not fit."""
        hashes = self._allowed_hashes.get(wheel.name)
        if hashes is not None and wheel.sha256 not in hashes:
            return None
        if not self.environment.accepts_python(wheel.requires_python):
            return None
        if not wheel.filename.endswith(".whl"):
            return SDIST_RANK
        if not self.request.takes_wheels(wheel.name):
            return None
        return self.environment.rank(wheel.filename)

    def _candidate(self, wheel: Wheel) -> Candidate:
        judged, build, platform = self._chooser.judged(wheel), None, self.host.platform
        if wheel.name in self._framework_of:
            if judged is None:
                build = self.data.build(wheel.name, wheel.version, platform)
            else:
                build = _build_of_variant(wheel, judged, platform)
        library = self._library(wheel.name, wheel.version)
        return Candidate(wheel, build, library, judged.variant if judged else None)

    # ---- variant wheels

    def judged_variant(self, candidate: Candidate) -> JudgedVariant | None:
        """Return what is known about the variant of a candidate; None if it is no variant."""
        if candidate.variant is None:
            return None
        return self._chooser.judged(candidate.wheel)

    def variant_metadata(self, candidate: Candidate) -> str:
        """Return the metadata of the variant of a candidate that was chosen, as JSON text."""
        return self._chooser.metadata(candidate.wheel)

    def variant_order_reason(self, candidate: Candidate, better: Candidate) -> Reason:
        """Return why another variant of a release comes before a candidate."""
        return self._chooser.order_reason(candidate.wheel, better.wheel)

    def precedes(self, candidate: Candidate, other: Candidate) -> bool:
        """Return whether a variant of a release precedes another where both suit the host."""
        return self._chooser.precedes(candidate.wheel, other.wheel)

    def dependencies(self, wheel: Wheel) -> Sequence[Requirement]:
        """Return the requirements of a file; markers about its variant are evaluated.

        Raises:
            PackageIndexError: see Index.dependencies.
        """
        dependencies = self.index.dependencies(wheel)
        for dependency in dependencies:
            if dependency.marker is not None and "variant_" in dependency.marker:
                return self._chooser.applicable(wheel, dependencies)
        return dependencies

    def _with_sorted_variants(self, files: list[Wheel]) -> list[Wheel]:
        """Sort the files of each release that has variant wheels."""
        if not any(split_label(file.filename)[1] for file in files):
            return files
        releases: dict[tuple[str, str], list[Wheel]] = {}
        for file in files:
            releases.setdefault((file.version, file.index), []).append(file)
        self._chooser.read_ahead(releases.values())
        ordered: list[Wheel] = []
        for release in releases.values():
            ordered += self._chooser.sort(release)
        return ordered

    def _library(self, name: str, version: str) -> Library | None:
        """Return the row of a CUDA library on the path; None for any other distribution."""
        if self.data.is_extension(name):
            return self.data.extension(name, version, self.host.platform)
        if not self.data.is_library(name):
            return None
        return self.data.library(name, version, self.host.platform)

    # ---- releases of frameworks with several ways

    def variants(self, framework: Framework) -> tuple[Variant, ...]:
        """Return every release of a framework in every way that the platform has, best first.

        Order (policy): preferred releases; CUDA variants, or CPU variants on a host without a
        GPU; the newest version; SASS for every device, then PTX; the toolkit closest to the
        driver's CUDA version; the order of the data file.
        """
        if framework not in self._variants:
            self._variants[framework] = self._read_variants(framework)
        return self._variants[framework]

    def _read_variants(self, framework: Framework) -> tuple[Variant, ...]:
        variants: list[Variant] = []
        platform = self.host.platform
        for way in framework.ways:
            if way.platforms and platform not in way.platforms:
                continue
            for candidate in self.candidates(parse_requirement(way.requires[0]).name):
                build = self.data.variant(framework, way, candidate.version, platform)
                if build is None and way.local:
                    continue  # the data has every build of this kind
                variants.append(Variant(framework, way, candidate.wheel, build))
        self.sort_variants(variants)
        return tuple(variants)

    def build_of_extras(self, candidate: Candidate) -> Build | None:
        """Return the build of a framework that the extras of a candidate bring (jax[cuda12])."""
        for framework in self.data.all_frameworks():
            for way in framework.ways:
                asked = parse_requirement(way.requires[0])
                if asked.name == candidate.name and set(asked.extras) & set(candidate.extras):
                    version, platform = candidate.version, self.host.platform
                    return self.data.variant(framework, way, version, platform)
        return None

    # ---- order

    def sort_variants(self, variants: list[Variant]) -> None:
        """Sort releases of one framework. `variants` come in the order of its ways."""
        variants.sort(key=lambda variant: self._code_order(variant.build))
        # Stable sorts, the most important key last. Versions of one framework may come from
        # several distributions, so the order of the index does not give them.
        variants.sort(key=lambda variant: version_key(variant.version), reverse=True)
        if self.host.gpus:
            variants.sort(key=lambda variant: not variant.way.carriers)
        else:
            variants.sort(key=lambda variant: bool(variant.way.carriers))
        variants.sort(key=lambda variant: not self._is_preferred(variant))

    def _is_preferred(self, release: Release) -> bool:
        """Return whether the request prefers a release; a variant with all of its carriers."""
        names = [release.wheel.name]
        if isinstance(release, Variant):
            names += release.way.carriers
        if any(name not in self._preferred_versions for name in names):
            return False
        return self._preferred_versions[release.wheel.name] == release.version

    def sort_builds(self, candidates: list[Candidate]) -> None:
        """Sort builds of a framework or companion. `candidates` come newest version first."""
        places: dict[str, int] = {}
        oldest_known = len(candidates)
        for candidate in candidates:
            place = places.setdefault(_public(candidate.version), len(places))
            if candidate.build is not None:
                oldest_known = place

        def order(candidate: Candidate) -> tuple[object, ...]:
            place = places[_public(candidate.version)]
            return self._build_order(candidate, place, is_old=place > oldest_known)

        candidates.sort(key=order)

    def _build_order(self, candidate: Candidate, place: int, *, is_old: bool) -> tuple[object, ...]:
        build = candidate.build
        if candidate.variant is not None:
            return (0, place)  # before other files of the release; PEP 825 orders them
        if build is None:  # an old one may be for CUDA, like those in the data
            return (is_old and not self.host.gpus, place, 3, (0, 0), (True, True))
        evidence = (build.code.evidence != "scanned", build.index != "default")
        if not self.host.gpus:
            return (build.cuda is not None, place, 0, (0, 0), evidence)
        if build.cuda is None:
            return (1, place, evidence)  # compared with other CPU builds only
        return (0, place, *self._code_order(build), evidence)

    def _code_order(self, build: Build | None) -> tuple[int, tuple[int, int]]:
        """Return how well a CUDA build serves the devices and the driver (smaller is better)."""
        if not self.host.gpus or build is None or build.cuda is None:
            return 3, (0, 0)
        tier = evaluate.device_tier(build.code, self.host)
        return tier, _toolkit_distance(build.cuda, self.host.driver_cuda)


def is_single_distribution(framework: Framework) -> bool:
    """Return whether one distribution has every variant, told apart by its version (torch)."""
    return [way.variant for way in framework.ways] == ["*"]


def _frameworks_by_distribution(data: CompatibilityData) -> dict[str, Framework]:
    """Map the distributions whose versions name builds to their framework."""
    frameworks: dict[str, Framework] = {}
    for framework_name in data.frameworks():
        framework = data.framework(framework_name)
        if framework is None or not is_single_distribution(framework):
            continue
        for name in framework.distributions:
            frameworks[name] = framework
    return frameworks


def _build_of_variant(wheel: Wheel, judged: JudgedVariant, platform: str) -> Build:
    """Return the build of a framework that a variant wheel is, by its properties."""
    cuda, code, claims = None, Code(sass=()), judged.claims
    if claims is not None:
        cuda = min(claims.lower) if claims.lower else None
        code = claims.code or Code(sass=None)
    return Build(
        name=wheel.name,
        version=wheel.version,
        local=wheel.version,
        variant=judged.variant.label,
        index=wheel.index,
        platform=platform,
        cuda=cuda,
        code=code,
    )


def _public(version: str) -> str:
    """Return a version without its local part."""
    return version.partition("+")[0]


def _toolkit_distance(toolkit: CudaVersion, driver: CudaVersion | None) -> tuple[int, int]:
    """Return how far a toolkit is from the driver's CUDA version.

    At the same distance the older toolkit comes first. Without a known driver the newest does.
    """
    if driver is None:
        return (-toolkit[0], -toolkit[1])
    gap = (toolkit[0] - driver[0]) * 100 + toolkit[1] - driver[1]
    return (abs(gap), gap)
