"""The candidates of a resolution: releases of distributions and of frameworks, best first.

The whole set of requirements on a name decides which of its releases may be taken (PEP 440, PEP
592). A pre-release is taken if one of them names a pre-release or if there is no final release. A
yanked release is taken if they pin it and nothing else is left. A placeholder, which only reserves
the name, is taken if they pin it or if there is no other release.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from packaging.version import Version

from ..compat import evaluate
from ..compat.data import CompatibilityData
from ..compat.extensions import shown_release
from ..errors import InputError
from ..index.protocol import Index
from ..model import (
    Build,
    Code,
    Framework,
    Host,
    Request,
    Requirement,
    Wheel,
)
from ..requirements.overrides import Overrides
from ..requirements.target import (
    SDIST_RANK,
    TargetEnvironment,
    parse_requirement,
    split_label,
    version_key,
)
from ..requirements.versions import contains, is_prerelease, names_prerelease, public
from .graph import Candidate, Release, Variant
from .wheel_variants import JudgedVariant, VariantChooser

_PLACEHOLDER = re.compile(r"0+(\.0+)*(\.?(a|b|rc|dev|post)\d+)*")
ReleaseT = TypeVar("ReleaseT", Candidate, Variant)


class Constraints:
    """The user's constraints that hold on the target.

    Attributes:
        ranges: specifiers by name.
        urls: URLs by name. They replace every index.
    """

    def __init__(self, request: Request, environment: TargetEnvironment) -> None:
        self.ranges: dict[str, list[str]] = {}
        self.urls: dict[str, list[str]] = {}
        for constraint in map(parse_requirement, request.constraints):
            if constraint.extras:
                raise InputError(
                    f"the constraint {constraint} has extras, which a constraint cannot have"
                )
            marker = constraint.marker
            if marker is not None and not environment.marker(marker, ()):
                continue
            if constraint.specifier:
                self.ranges.setdefault(constraint.name, []).append(constraint.specifier)
            if constraint.url:
                self.urls.setdefault(constraint.name, []).append(constraint.url)

    def texts(self, name: str) -> Iterator[str]:
        """Yield the constraints on a name as a user writes them."""
        for specifier in self.ranges.get(name, ()):
            yield f"{name}{specifier}"
        for url in self.urls.get(name, ()):
            yield f"{name} @ {url.partition('#')[0]}"


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

    Attributes:
        constraints: those of the request.
        overrides: those of the request.
        chooser: judges and orders variant wheels.
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
        self.constraints = Constraints(request, environment)
        self.overrides = Overrides(request.overrides)
        self.chooser = VariantChooser(host, data, index)
        self._candidates: dict[str, tuple[Candidate, ...]] = {}
        self._variants: dict[Framework, tuple[Variant, ...]] = {}
        self._at_url: dict[tuple[str | None, ...], tuple[Candidate, ...]] = {}
        self._preferred_versions = dict(request.preferences)
        self._allowed_hashes = {name: frozenset(hashes) for name, hashes in request.hashes}

    # ---- frameworks

    def on_path(self, name: str) -> bool:
        """Return whether the code of a distribution runs in a convolution.

        True for the framework itself. Companions (torchvision) carry code for their own
        operators, which the compatibility data does not hold.
        """
        framework = self.data.framework_of(name)
        return framework is not None and framework.distribution == name

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

    def in_ranges(
        self, releases: Sequence[ReleaseT], specifiers: Sequence[str]
    ) -> Sequence[ReleaseT]:
        """Return the releases that all of some specifiers contain, in the same order."""
        for specifier in specifiers:
            releases = [release for release in releases if contains(specifier, release.version)]
        return releases

    def admitted(
        self, name: str, releases: Sequence[ReleaseT], specifiers: Sequence[str]
    ) -> list[ReleaseT]:
        """Return the releases of a name that may be taken, in the same order (see the module).

        Args:
            name: the name.
            releases: releases that the specifiers contain.
            specifiers: every specifier set on the name.
        """
        admissible = list(releases)

        def without(is_lesser: Callable[[str], bool]) -> list[ReleaseT]:
            better = [release for release in admissible if not is_lesser(release.version)]
            if better or not admissible:
                return better
            # A better version may be listed that has no fitting file.
            for file in self.index.files(name):
                in_ranges = all(contains(text, file.version) for text in specifiers)
                if in_ranges and not is_lesser(file.version):
                    return []
            return admissible

        pinned = any(map(is_pinned, specifiers))
        if not pinned:
            admissible = without(is_placeholder)
        if not (self.request.pre or any(map(names_prerelease, specifiers))):
            admissible = without(is_prerelease)
        not_yanked = [release for release in admissible if not release.is_yanked]
        return not_yanked if not_yanked or not pinned else admissible

    def at_url(self, name: str, url: str) -> tuple[Candidate, ...]:
        """Return the candidate at the URL of a requirement; () if its file does not fit.

        Two URLs of the same file (same address and hash) give the same candidate.
        """
        if (name, url) not in self._at_url:
            wheel = self.index.direct(name, url)
            file = (wheel.name, wheel.url, wheel.sha256)
            if file not in self._at_url:
                fits = self._rank(wheel) is not None
                self._at_url[file] = (self._candidate(wheel),) if fits else ()
            self._at_url[name, url] = self._at_url[file]
        return self._at_url[name, url]

    def forget(self, name: str) -> None:
        """Read the candidates of a name from the index again when they are next asked for."""
        self._candidates.pop(name, None)
        self._variants.clear()

    def _read_candidates(self, name: str) -> tuple[Candidate, ...]:
        best = self._best_files(self.index.files(name, self.environment), name)
        candidates = [self._candidate(wheel) for wheel in self.chooser.sort(best)]
        if self.data.framework_of(name) is not None:
            self._sort_builds(candidates)
        elif self.data.indexes(name):
            self._sort_companions(candidates)
        if name in self._preferred_versions:
            candidates.sort(key=lambda candidate: not self._is_preferred(candidate))
        return tuple(candidates)

    def _best_files(self, files: Iterable[Wheel], name: str) -> list[Wheel]:
        """Return the best fitting file of each release on each index, in the order of the index.

        That is one file of each variant. A yanked file comes after all other files of its release.
        """
        own = tuple(row.url.partition("{")[0] for row in self.data.indexes(name))
        excluded = own if self.request.default_index_only else ()
        best: dict[tuple[str, str, str], tuple[tuple[bool, int], Wheel]] = {}
        for wheel in files:
            rank = self._rank(wheel)
            if rank is None or wheel.index.startswith(excluded):
                continue
            # A page of files is no index. Its folders tell builds of the same version apart.
            place = wheel.index or (wheel.url.rpartition("/")[0] if own else "")
            release = (wheel.version, place, split_label(wheel.filename)[1])
            order = (wheel.yanked is not None, rank)
            if release not in best or order < best[release][0]:
                best[release] = (order, wheel)
        return [wheel for _, wheel in best.values()]

    def _rank(self, wheel: Wheel) -> int | None:
        """Return how well a file fits the target (smaller is better); None if it does not fit."""
        hashes = self._allowed_hashes.get(wheel.name)
        if hashes is not None and wheel.sha256 not in hashes:
            return None
        if not self.environment.accepts_python(wheel.requires_python):
            return None
        if wheel.is_sdist:
            return SDIST_RANK
        if not self.request.takes_wheels(wheel.name):
            return None
        return self.environment.rank(wheel.filename)

    def _candidate(self, wheel: Wheel) -> Candidate:
        name, version, platform = wheel.name, wheel.version, self.host.platform
        judged, build, library = self.chooser.judged(wheel), None, None
        framework = self.data.framework_of(name)
        if framework is not None:
            if judged is None:
                build = self.data.build(name, version, platform)
            else:
                build = _build_of_variant(wheel, judged, platform)
        if self.data.is_extension(name) or self.data.is_library(name):
            library = self.data.library(name, version, platform)
        return Candidate(wheel, framework, build, library, judged)

    def dependencies(self, wheel: Wheel) -> Sequence[Requirement]:
        """Return the requirements of a file, as overrides have them.

        Markers about its variant are evaluated.

        Raises:
            PackageIndexError: see Index.dependencies.
        """
        dependencies = self.chooser.applicable(wheel, self.index.metadata(wheel).dependencies)
        return tuple(self.overrides.apply(dependencies)) if self.overrides.names else dependencies

    # ---- releases of frameworks with several ways

    def variants(self, framework: Framework) -> tuple[Variant, ...]:
        """Return every release of a framework in every way that the platform has, best first.

        Order (policy): preferred releases; CUDA variants, or CPU variants on a host without a
        GPU; the newest version; SASS for every device, then PTX; the toolkit closest to the
        driver's CUDA version; the order of the data file.
        """
        if framework not in self._variants:
            variants: list[Variant] = []
            platform = self.host.platform
            for way in framework.ways:
                if way.platforms and platform not in way.platforms:
                    continue
                for candidate in self.candidates(way.distribution):
                    build = self.data.variant(framework, way, candidate.version, platform)
                    own = self.data.own_links(candidate.name, candidate.wheel.url)
                    if build is not None and own is not None:
                        # The same release for another CUDA.
                        code = build.code.replace(evidence="documented")
                        cuda = (own.cuda[0], 0) if own.cuda else None
                        build = build.replace(cuda=cuda, cudnn=None, code=code)
                    if build is not None or not way.local:  # the data has every build of this kind
                        variants.append(Variant(framework, way, candidate.wheel, build))
            # Stable sorts, the most important key last. Versions of one framework may come from
            # several distributions, so the order of the index does not give them.
            variants.sort(key=lambda variant: self.code_order(variant.build))
            variants.sort(key=lambda variant: version_key(variant.version), reverse=True)
            variants.sort(key=lambda variant: bool(variant.way.carriers) != bool(self.host.gpus))
            variants.sort(key=lambda variant: not self._is_preferred(variant))
            self._variants[framework] = tuple(variants)
        return self._variants[framework]

    # ---- order

    def _sort_companions(self, candidates: list[Candidate]) -> None:
        """Sort the builds of a companion: of one release, those for the newest torch come first.

        A build of an older release comes before a source distribution that is compiled against
        torch.
        """

        def order(candidate: Candidate) -> tuple[bool, Version, Version]:
            wheel = candidate.wheel
            links = self.data.links(wheel.name, wheel.version, self.host.platform, wheel.url)
            exact = [range_ for _, range_ in links.frameworks if "==" in range_] if links else []
            row = self.data.compiled_against(wheel.name, wheel.version)
            is_source = candidate.needs_build and row is not None
            torch = shown_release(exact[0]) if exact else "0"
            return not is_source, version_key(public(wheel.version)), version_key(torch)

        candidates.sort(key=order, reverse=True)

    def _is_preferred(self, release: Release) -> bool:
        """Return whether the request prefers a release; a variant with all of its carriers."""
        names = [release.wheel.name]
        if isinstance(release, Variant):
            names += release.way.carriers
        if any(name not in self._preferred_versions for name in names):
            return False
        return self._preferred_versions[release.wheel.name] == release.version

    def _sort_builds(self, candidates: list[Candidate]) -> None:
        """Sort builds of a framework or companion. `candidates` come newest version first."""
        places: dict[str, int] = {}
        oldest_known = len(candidates)
        for candidate in candidates:
            place = places.setdefault(public(candidate.version), len(places))
            if candidate.build is not None:
                oldest_known = place

        def order(candidate: Candidate) -> tuple[object, ...]:
            place, build = places[public(candidate.version)], candidate.build
            if candidate.variant is not None:
                return (0, place)  # before other files of the release; PEP 825 orders them
            if build is None:  # an old one may be for CUDA, like those in the data
                is_old_on_cpu = place > oldest_known and not self.host.gpus
                return (is_old_on_cpu, place, 3, (0, 0), (True, True))
            evidence = (build.code.evidence != "scanned", build.index != "default")
            if not self.host.gpus:
                return (build.cuda is not None, place, 0, (0, 0), evidence)
            if build.cuda is None:
                return (1, place, evidence)  # compared with other CPU builds only
            return (0, place, *self.code_order(build), evidence)

        candidates.sort(key=order)

    def code_order(self, build: Build | None) -> tuple[int, tuple[int, int]]:
        """Return how well a CUDA build serves the devices and the driver (smaller is better)."""
        if not self.host.gpus or build is None or build.cuda is None:
            return 3, (0, 0)
        tier = evaluate.device_tier(build.code, self.host)
        return tier, evaluate.toolkit_distance(build.cuda, self.host.driver_cuda)


def _build_of_variant(wheel: Wheel, judged: JudgedVariant, platform: str) -> Build:
    """Return the build of a framework that a variant wheel is, by its properties."""
    cuda, code, claims = None, Code(sass=()), judged.claims
    if claims is not None:
        cuda = claims.lower
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


def is_exact(specifier: str) -> bool:
    """Return whether a specifier is a single == clause: ==2.15.0, not ==2.15.*."""
    return specifier.startswith("==") and "*" not in specifier and "," not in specifier


def is_pinned(specifier: str) -> bool:
    """Return whether a specifier set has a clause for one version: ==2.15.0 or ===x."""
    clauses = [clause.strip() for clause in specifier.split(",")]
    return any(clause.startswith("==") and not clause.endswith(".*") for clause in clauses)


def is_placeholder(version: str) -> bool:
    """Return whether a version is that of a placeholder: 0, 0.0.0, 0.0.0.dev1, ..."""
    return _PLACEHOLDER.fullmatch(version) is not None
