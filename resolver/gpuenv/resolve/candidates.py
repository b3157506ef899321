"""What the resolver chooses among: builds of distributions, facts of the host, and topics to agree on."""

from __future__ import annotations

from collections.abc import Callable

from ..compat import evaluate
from ..compat.data import CompatibilityData
from ..compat.evaluate import Facts
from ..errors import Reason
from ..index.protocol import Index
from ..model import Build, CudaVersion, Framework, Host, Library, Request, Way, Wheel
from ..requirements.target import TargetEnvironment, parse_requirement, version_key
from .needs import AgreeNeed, DistNeed, FactNeed, Need, SideNeed, with_extras


class Candidate:
    """One release of a distribution on one index with the wheel that fits best; `extras` for name[extra] nodes.

    `wheel` is never None; `build` and `library` are what the matrix knows of it. `ident` is the resolver's name.
    """

    __slots__ = ("_library", "build", "extras", "ident", "name", "version", "wheel")

    def __init__(
        self, wheel: Wheel, build: Build | None, library: Callable[[], Library | None], extras: tuple[str, ...] = ()
    ):
        self.name, self.version, self.wheel = wheel.name, wheel.version, wheel
        self.build, self._library, self.extras = build, library, extras
        self.ident = with_extras(wheel.name, extras)

    @property
    def library(self) -> Library | None:
        """Looked up when it is first asked for: of fifty releases of cuDNN a solve looks at one."""
        return self._library()

    def extended(self, extras: tuple[str, ...]) -> Candidate:
        """The node of the same release with extras."""
        return Candidate(self.wheel, self.build, self._library, extras)

    def __repr__(self) -> str:
        return f"{self.ident} {self.version}"


def _no_library() -> None:
    """A distribution about whose device code there are no facts."""


class Variant:
    """A release of a framework, installed one way: jax 0.12.0 as jax[cuda12].

    `wheel` is that of the first requirement's distribution; `build` what the matrix knows of the whole.
    """

    __slots__ = ("build", "framework", "ident", "version", "way", "wheel")

    def __init__(self, framework: Framework, way: Way, wheel: Wheel, build: Build | None):
        self.framework, self.way, self.wheel, self.version, self.build = framework, way, wheel, wheel.version, build
        self.ident = "@" + framework.name

    @property
    def label(self) -> str:
        """ "0.12.0 (cuda12)"."""
        return f"{self.version} ({self.way.variant})"

    def __repr__(self) -> str:
        return f"{self.framework.name} {self.label}"


class Token:
    """The one candidate of a host fact ("__driver") or of a topic ("=cuda major") with its agreed value."""

    __slots__ = ("ident", "value")

    def __init__(self, ident: str, value: str):
        self.ident, self.value = ident, value

    def __repr__(self) -> str:
        return f"{self.ident}={self.value}"


_AFTER_ALL = 1 << 62  # the rank of what fits, but after everything else




def is_plain(framework: Framework) -> bool:
    """Whether one distribution has every variant of the framework, told apart by its version."""
    return [way.variant for way in framework.ways] == ["*"]


def is_exact(specifier: str) -> bool:
    """Whether a specifier pins one version: ==2.15.0, not ==2.15.*."""
    return specifier.startswith("==") and "*" not in specifier


class Shelf:
    """All candidates of a distribution, best first, with what the matrix knows and what the host says of them.

    Order (stated policy): the newest version; within it the build with SASS for every device, then PTX; then the
    toolkit closest to the driver's CUDA; then a scanned build before a documented one; then the index's own order.
    A host without a GPU takes CPU builds before all others.
    """

    def __init__(
        self, request: Request, host: Host, matrix: CompatibilityData, index: Index, environment: TargetEnvironment
    ):
        self.request, self.host, self.matrix, self.index, self.environment = request, host, matrix, index, environment
        self._shelves: dict[str, tuple[Candidate, ...]] = {}
        self._variants: dict[str, tuple[Variant, ...]] = {}
        self._keep = dict(request.preferences)
        self._hashes = {name: frozenset(hashes) for name, hashes in request.hashes}
        self._direct: dict[tuple[str, str], tuple[Candidate, ...]] = {}
        frameworks = [one for one in map(matrix.framework, matrix.frameworks()) if one is not None]
        # Distributions whose versions name builds; frameworks of several ways are chosen as variants.
        self._known = {
            name: framework
            for framework in frameworks
            if is_plain(framework)
            for name in (framework.distribution, *framework.companions)
        }
        found = evaluate.host_reasons(host, matrix) if host.gpus else ()
        # A driver newer than the data is a doubt about the data, not about a build: it never decides.
        self.host_reasons = tuple(reason for reason in found if not reason.code.endswith("-unknown"))
        self.host_doubts = tuple(reason for reason in found if reason.code.endswith("-unknown"))

    def framework_of(self, name: str) -> str | None:
        """The framework that a distribution belongs to, itself or as a companion."""
        framework = self._known.get(name)
        return framework.name if framework else None

    def on_path(self, name: str) -> bool:
        """Whether the distribution's own code runs in a convolution: the framework itself, not a companion.

        Companions (torchvision) carry code for their own operators, which the data does not hold.
        """
        framework = self._known.get(name)
        return framework is not None and framework.distribution == name

    def candidates(self, name: str) -> tuple[Candidate, ...]:
        """All that fit the target interpreter and platform, best first."""
        shelf = self._shelves.get(name)
        if shelf is None:
            shelf = self._shelves[name] = tuple(self._arrange(name))
        return shelf

    def direct(self, name: str, url: str) -> tuple[Candidate, ...]:
        """The one candidate at a URL that a requirement names; () if its file does not fit the target."""
        if (name, url) not in self._direct:
            wheel = self.index.direct(name, url)
            known = [one for (other, _), found in self._direct.items() if other == name for one in found]
            same = [one for one in known if (one.wheel.url, one.wheel.sha256) == (wheel.url, wheel.sha256)]
            fits = self._rank(wheel) is not None
            self._direct[name, url] = tuple(same[:1] or ([self._candidate(wheel)] if fits else []))
        return self._direct[name, url]

    def _rank(self, wheel: Wheel) -> int | None:
        """How well a file fits the target and the request; None if it does not. An sdist comes after every wheel."""
        if wheel.name in self._hashes and wheel.sha256 not in self._hashes[wheel.name]:
            return None
        if not self.environment.accepts_python(wheel.requires_python):
            return None
        if wheel.filename.endswith(".whl"):
            return self.environment.rank(wheel.filename)
        return _AFTER_ALL if wheel.name in self.request.allow_sdist else None

    def _candidate(self, wheel: Wheel) -> Candidate:
        name, version, platform = wheel.name, wheel.version, self.host.platform
        build = self.matrix.build(name, version, platform) if name in self._known else None
        if not self.matrix.is_library(name):
            return Candidate(wheel, build, _no_library)
        return Candidate(wheel, build, lambda: self.matrix.library(name, version, platform))

    def variants(self, framework: Framework) -> tuple[Variant, ...]:
        """Every release of a framework on the index in every way that the platform has, best first.

        Order (stated policy): without a GPU CPU variants first; then the newest version; within it the variant with
        SASS for every device, then PTX; then the toolkit closest to the driver's CUDA; then the data file's order.
        """
        if framework.name not in self._variants:
            found: list[tuple[tuple[object, ...], Variant]] = []
            for place, way in enumerate(framework.ways):
                if way.platforms and self.host.platform not in way.platforms:
                    continue
                for candidate in self.candidates(parse_requirement(way.requires[0]).name):
                    build = self.matrix.variant(framework, way, candidate.version, self.host.platform)
                    variant = Variant(framework, way, candidate.wheel, build)
                    found.append((self._variant_preference(variant, place), variant))
            # Versions of one framework may come from several distributions: order by version, stably.
            found.sort(key=lambda row: row[0])
            found.sort(key=lambda row: version_key(row[1].version), reverse=True)
            found.sort(key=lambda row: bool(row[1].way.carriers) if not self.host.gpus else not row[1].way.carriers)
            found.sort(key=lambda row: not self._preferred(row[1]))
            self._variants[framework.name] = tuple(variant for _, variant in found)
        return self._variants[framework.name]

    def _variant_preference(self, variant: Variant, place: int) -> tuple[object, ...]:
        build, host = variant.build, self.host
        if not host.gpus or build is None or build.cuda is None:
            return (3, (0, 0), place)
        return (self._tier(build), distance(build.cuda, host.driver_cuda), place)

    def _preferred(self, node: Candidate | Variant) -> bool:
        """Whether the request says that this release is to be kept where it still fits; a variant with all it is of."""
        names = [node.wheel.name, *(node.way.carriers if isinstance(node, Variant) else ())]
        if any(name not in self._keep for name in names):
            return False
        return self._keep[node.wheel.name] == node.version

    def _tier(self, build: Build) -> int:
        """0 if every device has SASS, 1 if SASS or PTX, 2 otherwise."""
        return evaluate.device_tier(build.code, self.host)

    def forget(self, name: str) -> None:
        """Ask the index again when the name is next needed."""
        self._shelves.pop(name, None)
        self._variants.clear()

    def _arrange(self, name: str) -> list[Candidate]:
        best: dict[tuple[str, str], tuple[tuple[bool, int], Wheel]] = {}
        framework = self._known.get(name)
        own = tuple(url.partition("{")[0] for url in framework.indexes) if framework else ()
        sdists = self.index.sdists(name) if name in self.request.allow_sdist else ()
        for wheel in (*self.index.wheels(name, self.environment), *sdists):
            if self.request.default_index_only and own and wheel.index.startswith(own):
                continue
            rank = self._rank(wheel)
            if rank is None:
                continue
            key = (wheel.version, wheel.index)
            place = (wheel.yanked is not None, rank)  # a file that was taken back goes after all others of its release
            if key not in best or place < best[key][0]:
                best[key] = (place, wheel)
        known = framework is not None
        shelf = [self._candidate(wheel) for _, wheel in best.values()]
        if sdists:
            shelf.sort(key=lambda candidate: version_key(candidate.version), reverse=True)
        if known:
            position: dict[str, int] = {}
            for candidate in shelf:
                position.setdefault(candidate.version.partition("+")[0], len(position))
            shelf.sort(key=lambda c: self._preference(c, position[c.version.partition("+")[0]]))
        if name in self._keep:
            shelf.sort(key=lambda candidate: not self._preferred(candidate))
        return shelf

    def _preference(self, candidate: Candidate, position: int) -> tuple[object, ...]:
        build, host = candidate.build, self.host
        if build is None:
            return (0, position, 3, (0, 0), (True, True))
        documented = (build.code.evidence != "scanned", build.index != "default")
        if not host.gpus:
            return (build.cuda is not None, position, 0, (0, 0), documented)
        if build.cuda is None:
            return (1, position, 0, (0, 0), documented)
        return (0, position, self._tier(build), distance(build.cuda, host.driver_cuda), documented)

    def variant_needs(self, variant: Variant) -> list[Need]:
        """What a variant asks for: host facts, one CUDA major, its requirements at its version."""
        needs: list[Need] = [FactNeed(ident, reasons) for ident, reasons in self.variant_facts(variant).items()]
        if variant.build is not None and variant.build.cuda is not None:
            needs.append(AgreeNeed("CUDA major", str(variant.build.cuda[0])))
        for place, text in enumerate(variant.way.requires):
            requirement = parse_requirement(text)
            pinned = f"=={variant.version}" if place == 0 else requirement.specifier
            needs.append(DistNeed(requirement.name, (), pinned))
            if requirement.extras:
                needs.append(DistNeed(requirement.name, requirement.extras, pinned))
        return needs

    def variant_facts(self, variant: Variant) -> Facts:
        """As `facts`, for a variant of a framework: every reason against each of its carriers."""
        host, subject = self.host, f"{variant.framework.name} {variant.label}"
        if not host.gpus:
            if all(way.carriers for way in variant.framework.ways):
                reason = Reason(code="needs-gpu", subject=subject, need="a GPU", have="a host without one")
                return {"__sm": (reason,)}
            return {}
        build = variant.build
        who = subject if build is not None else f"{subject}: {' and '.join(variant.way.carriers)}"
        found = evaluate.build_reasons(who, build, host, self.matrix, on_path=True)
        if build is not None and build.cuda is None:
            return found
        if build is not None:
            found["__sm"] = self.host_reasons + found["__sm"]
        return found | {"__extra": reasons} if (reasons := self._without_extra(subject, variant)) else found

    def _without_extra(self, subject: str, variant: Variant) -> tuple[Reason, ...]:
        """A release without the extra that brings the CUDA libraries; pip would only warn and install without them.

        Where the device code is in the distribution itself it works with libraries from elsewhere: a doubt. Where the
        extra brings the device code, too (JAX), the release has no such variant.
        """
        asked, marker = parse_requirement(variant.way.requires[0]), self.environment.marker
        texts = [one.marker for one in self.index.dependencies(variant.wheel) if one.marker and "extra" in one.marker]
        missing = [extra for extra in asked.extras if not any(marker(text, (extra,)) for text in texts)]
        if not missing:
            return ()
        code = "cuda-libraries-unknown" if asked.name in variant.way.carriers else "no-such-extra"
        need = f"the extra {' and '.join(missing)}, which brings its CUDA libraries"
        return (Reason(code=code, subject=subject, need=need, have="a release without it"),)

    def build_needs(self, candidate: Candidate) -> list[Need]:
        """The host facts and topics that a framework's build or a CUDA library asks for."""
        needs: list[Need] = []
        build, library = candidate.build, candidate.library
        framework = self._known.get(candidate.name)
        needs += [FactNeed(ident, reasons) for ident, reasons in self.facts(candidate).items()]
        if framework is not None and build is not None:
            # A companion that goes with several releases of its framework links the CUDA runtime only.
            if framework.companions and (self.on_path(candidate.name) or len(build.companions) == 1):
                needs.append(AgreeNeed(f"CUDA build of {framework.name}", build.variant))
            if build.cuda is not None:
                needs.append(AgreeNeed("CUDA major", str(build.cuda[0])))
        elif library is not None:
            needs.append(AgreeNeed("CUDA major", str(library.cuda_major)))
        needs += [AgreeNeed(f"owner of {folder}", candidate.name) for folder in self.matrix.slots(candidate.name)]
        for pair, side, several_gpus, text, _, _ in self.matrix.bad_pairs(candidate.name, candidate.version):
            if evaluate.pair_counts(self.host, several_gpus=several_gpus):
                needs.append(SideNeed(pair, side, text))
        return needs

    def facts(self, candidate: Candidate) -> Facts:
        """Every host fact that the candidate asks for, with all reasons against it; complete, never just the first."""
        found = self._own_facts(candidate)
        bad = evaluate.known_bad_reasons(candidate.name, candidate.version, self.host, self.matrix)
        return found | {"__data": found.get("__data", ()) + bad} if bad else found

    def _own_facts(self, candidate: Candidate) -> Facts:
        name = candidate.name
        if candidate.build is not None:
            return self.build_facts(candidate.build)
        if name not in self._known and candidate.library is None and not self.matrix.is_library(name):
            return {}
        subject = f"{name} {candidate.version}"
        if name in self._known:
            return evaluate.build_reasons(subject, None, self.host, self.matrix, on_path=self.on_path(name))
        if candidate.library is not None or self.host.gpus:
            return evaluate.library_reasons(subject, candidate.library, self.host, self.matrix)
        return {}

    def build_facts(self, build: Build) -> Facts:
        """As `facts`, for a build of a framework or companion, whether or not the index has a wheel of it."""
        subject, on_path = f"{build.name} {build.local}", self.on_path(build.name)
        found = evaluate.build_reasons(subject, build, self.host, self.matrix, on_path=on_path)
        return found | {"__sm": self.host_reasons + found["__sm"]} if "__driver" in found else found


def distance(toolkit: CudaVersion, driver: CudaVersion | None) -> tuple[int, int]:
    """How far a toolkit is from the driver's CUDA version; at the same distance the older toolkit comes first."""
    if driver is None:
        return (-(toolkit[0] * 100 + toolkit[1]), 0)
    gap = (toolkit[0] - driver[0]) * 100 + toolkit[1] - driver[1]
    return (abs(gap), gap)
