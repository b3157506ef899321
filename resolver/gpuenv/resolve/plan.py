"""The plan of a solution: pins, chosen builds, needs of the host, skipped builds, warnings."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from typing import TYPE_CHECKING

from ..compat.evaluate import needs_of_gpus
from ..compat.user_rows import SOURCE
from ..digest import text_digest
from ..errors import Reason, is_doubt
from ..model import (
    Build,
    Choice,
    Code,
    CudaVersion,
    Framework,
    Host,
    Needs,
    Pin,
    Plan,
    Rejection,
    Request,
    Way,
    WheelVariant,
)
from ..requirements.target import normalize_name, parse_requirement
from ..serialize import canonical_json
from .candidates import CandidateStore, is_single_distribution
from .graph import (
    Candidate,
    FrameworkId,
    FrameworkRequirement,
    Identifier,
    Node,
    NodeRequirement,
    PackageRequirement,
    Release,
    Variant,
)
from .release_facts import extra_markers
from .resolution import LearningResolver
from .skipped import Skipped

if TYPE_CHECKING:  # few packages have variant wheels
    from ..compat.variants import NvidiaClaims

# The fields of Request that `digest` has in another place, and those that do not count.
_NOT_OTHERS = frozenset({
    "frameworks", "requirements", "constraints", "default_index_only", "pre", "exclude_newer",
    "hashes", "require_hashes", "preferences", "conda",
})  # fmt: skip


class Solution:
    """The candidates that a resolution chose, by kind.

    Attributes:
        candidates: every chosen node of a distribution, nodes with extras included.
        pinned: the node without extras of each distribution, sorted by name.
        variants: the chosen variant of each framework with several ways.
    """

    def __init__(
        self, resolver: LearningResolver, roots: Sequence[NodeRequirement], nodes: Sequence[Node]
    ) -> None:
        self.resolver = resolver
        self.provider = resolver.provider
        self.store: CandidateStore = self.provider.store
        self.roots = roots
        self.candidates = [node for node in nodes if isinstance(node, Candidate)]
        self.pinned: dict[str, Candidate] = {}
        for candidate in sorted(self.candidates, key=lambda candidate: candidate.name):
            if not candidate.extras:
                self.pinned[candidate.name] = candidate
        self.variants: dict[Identifier, Variant] = {}
        for node in nodes:
            if isinstance(node, Variant):
                self.variants[node.identifier] = node


def build_plan(solution: Solution, data_version: str) -> Plan:
    """Return the plan of a solution; `data_version` names the version of all data."""
    store = solution.store
    requested = _requested_choices(solution)
    pins = _pins(solution)
    nodes: list[Release] = [*solution.variants.values(), *solution.candidates]
    finder = Skipped(solution.resolver, solution.roots, nodes)
    plan = Plan(
        request=store.request,
        host=store.host,
        pins=pins,
        choices=(*requested.values(), *_dependency_choices(solution, requested)),
        needs=_needs(solution),
        skipped=_skipped(solution, finder),
        warnings=(*_warnings(solution, finder), *_cpu_warnings(solution, pins)),
        data=data_version,
        variants=_variants(solution),
        variant_metadata=_variant_metadata(solution),
    )
    return plan.replace(digest=digest(plan))


def digest(plan: Plan) -> str:
    """Return the sha256 of a plan's inputs: the request, the host's facts, the data."""
    request, host = plan.request, plan.host
    inputs: dict[str, object] = {
        "frameworks": request.frameworks,
        "requirements": request.requirements,
        "constraints": request.constraints,
        "options": [request.default_index_only, request.pre, request.exclude_newer],
        "host": _host_facts(host),
        "data": plan.data,
    }
    files = _file_options(request)
    if any(files):
        inputs["files"] = files
    others = _other_options(request)
    if others:
        inputs["others"] = others
    return text_digest(canonical_json(inputs))


def _host_facts(host: Host) -> list[object]:
    """Return the facts that rules look at."""
    return [
        host.platform,
        host.glibc,
        [host.python.version, host.python.free_threaded],
        [gpu.compute_capability for gpu in host.gpus],
        [host.driver, host.driver_cuda],
    ]


def _file_options(request: Request) -> list[object]:
    return [request.hashes, request.require_hashes]


def _other_options(request: Request) -> dict[str, object]:
    """Return the other fields that do not have their default.

    A new field of Request leaves the digests of requests without it as they are.
    """
    return {
        name: value for name, value in request.non_defaults().items() if name not in _NOT_OTHERS
    }


def _pins(solution: Solution) -> tuple[Pin, ...]:
    dependencies: dict[str, set[str]] = {name: set() for name in solution.pinned}
    for candidate in solution.candidates:
        for requirement in solution.provider.get_dependencies(candidate):
            if isinstance(requirement, PackageRequirement) and requirement.name != candidate.name:
                dependencies[candidate.name].add(requirement.name)
    pins = []
    for name, candidate in solution.pinned.items():
        pins.append(Pin(wheel=candidate.wheel, dependencies=tuple(sorted(dependencies[name]))))
    return tuple(pins)


def _variants(solution: Solution) -> tuple[WheelVariant, ...]:
    variants = (candidate.variant for candidate in solution.pinned.values())
    return tuple(variant for variant in variants if variant is not None)


def _variant_metadata(solution: Solution) -> tuple[tuple[str, str], ...]:
    metadata = []
    for name, candidate in solution.pinned.items():
        if candidate.variant is not None:
            metadata.append((name, solution.store.variant_metadata(candidate)))
    return tuple(metadata)


# ---- choices ------------------------------------------------------------------------------------


def _requested_choices(solution: Solution) -> dict[str, Choice]:
    """Return the builds of the frameworks that the request names, by name, in its order."""
    store = solution.store
    choices: dict[str, Choice] = {}
    for root in solution.roots:
        if isinstance(root, FrameworkRequirement):
            name, variant = root.framework.name, solution.variants[root.identifier]
            choices[name] = _choice(
                solution, name, variant.version, variant.build, variant.way.variant
            )
        elif isinstance(root, PackageRequirement) and store.on_path(root.name) and not root.extras:
            framework = store.framework_of(root.name)
            name = root.name if framework is None else framework.name
            if name not in choices:
                candidate = solution.pinned[root.name]
                choices[name] = _choice(
                    solution, name, candidate.version, candidate.build, "unknown"
                )
    return choices


def _dependency_choices(solution: Solution, requested: Container[str]) -> Iterator[Choice]:
    """Yield the builds of the frameworks that are dependencies only, by name."""
    data = solution.store.data
    for name in data.frameworks():
        framework = data.framework(name)
        if framework is None or name in requested:
            continue
        way = _installed_way(framework, solution)
        if way is None:
            continue
        candidate = solution.pinned[_distribution(way)]
        build = candidate.build
        if build is None and not is_single_distribution(framework):
            platform = solution.store.host.platform
            build = data.variant(framework, way, candidate.version, platform)
        yield _choice(solution, name, candidate.version, build, way.variant)


def _installed_way(framework: Framework, solution: Solution) -> Way | None:
    """Return the way whose carriers are pinned. A CPU way has no carriers and comes last."""
    versions = {name: candidate.version for name, candidate in solution.pinned.items()}
    for way in sorted(framework.ways, key=lambda way: -len(way.carriers)):
        if _distribution(way) in versions and way.has_carriers(versions):
            return way
    return None


def _distribution(way: Way) -> str:
    return parse_requirement(way.requires[0]).name


def _choice(
    solution: Solution, framework: str, version: str, build: Build | None, variant: str
) -> Choice:
    cudnn = None
    for name in solution.pinned:  # sorted
        if name.startswith("nvidia-cudnn-"):
            cudnn = solution.pinned[name].version
            break
    if build is None:
        variant = variant.strip("*") or "unknown"
        return Choice(framework=framework, version=version, variant=variant, cuda=None, cudnn=cudnn)
    if build.cuda is None:
        cudnn = None
    elif cudnn is None:
        cudnn = build.cudnn
    return Choice(
        framework=framework,
        version=build.version,
        variant=build.variant,
        cuda=build.cuda,
        cudnn=cudnn,
        sass=build.code.sass or (),
        ptx=build.code.ptx or (),
        evidence=build.code.evidence,
        source=build.code.source,
    )


# ---- needs --------------------------------------------------------------------------------------


def _needs(solution: Solution) -> Needs:
    """Return what the plan needs of a host.

    That is the driver floor of its newest toolkit, and the devices that every library serves.
    """
    store, host = solution.store, solution.store.host
    glibcs = []
    for candidate in solution.pinned.values():
        glibc = store.environment.least_glibc(candidate.wheel.filename)
        if glibc is not None:
            glibcs.append(glibc)
    needs = Needs(
        glibc=max(glibcs, default=None), python=host.python.version, platform=host.platform
    )
    toolkits = _toolkits(solution)
    if not host.gpus or not toolkits:
        return needs
    codes = _codes(solution, toolkits)
    return needs_of_gpus(needs, toolkits, codes, host, store.data)


def _toolkits(solution: Solution) -> list[CudaVersion]:
    """Return the toolkits of the builds; of the libraries' CUDA majors if no build has one."""
    toolkits: list[CudaVersion] = []
    majors: list[CudaVersion] = []
    for candidate in solution.pinned.values():
        build, library = candidate.build, candidate.library
        if build is not None and build.cuda is not None:
            toolkits.append(build.cuda)
        if library is not None and library.cuda is not None:
            toolkits.append(library.cuda)
        if library is not None and library.cuda_major:
            majors.append((library.cuda_major, 0))
    toolkits += [min(claims.lower) for claims in _variant_claims(solution) if claims.lower]
    return toolkits or majors


def _codes(solution: Solution, toolkits: Sequence[CudaVersion]) -> list[Code]:
    """Return the device code of the frameworks and of the CUDA libraries."""
    codes = []
    for candidate in solution.pinned.values():
        if candidate.build is not None and solution.store.on_path(candidate.name):
            codes.append(candidate.build.code)
        library = candidate.library
        if library is not None and library.by_cuda:
            library = next(filter(None, map(library.of_cuda, toolkits)), None)
        if library is not None:
            codes.append(library.code)
    codes += [claims.code for claims in _variant_claims(solution) if claims.code is not None]
    return codes


def _variant_claims(solution: Solution) -> Iterator[NvidiaClaims]:
    """Yield what the variant wheels need of the driver and the devices.

    The build of a framework has that of its own variant.
    """
    for candidate in solution.pinned.values():
        judged = solution.store.judged_variant(candidate)
        if judged is not None and judged.claims is not None and candidate.build is None:
            yield judged.claims


# ---- what was skipped, and warnings -------------------------------------------------------------


def _skipped(solution: Solution, finder: Skipped) -> tuple[Rejection, ...]:
    """Return the better releases of what the request names, with the reasons against them."""
    skipped: list[Rejection] = []
    for root in solution.roots:
        if isinstance(root, FrameworkRequirement):
            skipped += finder.of_framework(root, solution.variants[root.identifier])
        elif isinstance(root, PackageRequirement):
            skipped += finder.of_package(root, solution.pinned[root.name])
    named = {root.name for root in solution.roots if isinstance(root, PackageRequirement)}
    for name, candidate in solution.pinned.items():
        if solution.store.on_path(name) and name not in named:
            skipped += finder.of_package(PackageRequirement(name, (), ""), candidate)
    for candidate in solution.pinned.values():
        if candidate.variant is not None:
            skipped += finder.of_variant(candidate)
    return tuple(dict.fromkeys(skipped))


def _warnings(solution: Solution, finder: Skipped) -> tuple[Reason, ...]:
    """Return the doubts about the host, the index, extras and the chosen releases."""
    provider = solution.provider
    warnings = [*provider.facts.host_doubts, *provider.widening.doubts()]
    warnings += _unknown_extras(solution)
    warnings += _same_builds(solution)
    warnings += _user_rows(solution)
    warnings += finder.step_backs(solution.pinned.values())
    releases: list[Release] = [*solution.pinned.values(), *solution.variants.values()]
    for release in releases:
        for reason in provider.facts.reasons(release):
            if is_doubt(reason) and reason not in warnings:
                warnings.append(reason)
    for candidate in solution.pinned.values():
        judged = solution.store.judged_variant(candidate)
        if judged is not None:
            warnings += judged.warnings
    return tuple(warnings)


def _same_builds(solution: Solution) -> Iterator[Reason]:
    """Yield the builds that the default index has under another version than was asked for."""
    for root in solution.roots:
        if not isinstance(root, PackageRequirement) or not root.specifier.startswith("==="):
            continue
        build = solution.pinned[root.name].build
        if build is not None and build.index == "default":
            subject = f"{root.name}=={build.version}+{build.variant}"
            have = f"{root.name} {build.version} of the default index is this build"
            yield Reason(code="same-build", subject=subject, need="", have=have)


def _user_rows(solution: Solution) -> Iterator[Reason]:
    """Yield the releases that only the user's own rows of the compatibility data know."""
    for candidate in solution.pinned.values():
        known = candidate.build or candidate.library
        if known is not None and known.code.source.startswith(SOURCE):
            have = f"known by the rows of `{SOURCE}` only"
            subject = f"{candidate.name} {candidate.version}"
            yield Reason(code="user-row", subject=subject, need="", have=have)


def _cpu_warnings(solution: Solution, pins: Sequence[Pin]) -> Iterator[Reason]:
    """Yield a warning for each framework that will not use the GPU of the host.

    Codes: gpu-unused (the user asks for the CPU build), cpu-dependency (the framework is only a
    dependency, so nothing asks for its CUDA libraries).
    """
    if not solution.store.host.gpus:
        return
    for variant in solution.variants.values():
        if not variant.way.carriers:
            have = "one, which stays unused"
            yield Reason(code="gpu-unused", subject=variant.label, need="no GPU", have=have)
    has_cuda_libraries = any(name.startswith("nvidia-") for name in solution.pinned)
    for framework in solution.store.data.all_frameworks():
        if is_single_distribution(framework) or FrameworkId.of(framework.name) in solution.variants:
            continue
        way = _installed_way(framework, solution)
        if way is None or (way.carriers and has_cuda_libraries):
            continue
        name = _distribution(way)
        build = "a build without its CUDA libraries"
        if not way.carriers:
            build = "a CPU build"
        dependents = [pin.wheel.name for pin in pins if name in pin.dependencies]
        yield Reason(
            code="cpu-dependency",
            subject=f"{name} {solution.pinned[name].version}",
            need=f"--framework {framework.name}",
            have=f"{build}, required by {' and '.join(dependents)}",
        )


def _unknown_extras(solution: Solution) -> Iterator[Reason]:
    """Yield a doubt for each extra of a user's requirement that the release does not have.

    pip warns about these. An extra without dependencies looks the same.
    """
    requested = {root.name for root in solution.roots if isinstance(root, PackageRequirement)}
    for variant in solution.variants.values():
        # The first one has the extras of the way itself; the others are the user's.
        requested.update(parse_requirement(text).name for text in variant.way.requires[1:])
    for candidate in solution.candidates:
        if not candidate.extras or candidate.name not in requested:
            continue
        known = _extras_of(solution.store, candidate)
        for extra in candidate.extras:
            if extra not in known:
                yield Reason(
                    code="extra-unknown",
                    subject=f"{candidate.name} {candidate.version}",
                    need=f"the extra {extra}",
                    have=", ".join(known) or "none",
                )


def _extras_of(store: CandidateStore, candidate: Candidate) -> list[str]:
    """Return the extras that the markers of a release's dependencies name, sorted."""
    extras = set()
    for marker in extra_markers(store, candidate):
        for left, right in re.findall(r'extra [=!]= "([^"]+)"|"([^"]+)" [=!]= extra', marker):
            extras.add(normalize_name(left or right))
    return sorted(extras)
