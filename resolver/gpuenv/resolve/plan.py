"""The plan of a solution: pins, chosen builds, needs of the host, warnings."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from ..compat.evaluate import needs_of_gpus, shared_path_reasons
from ..compat.user_rows import SOURCE
from ..errors import Reason, is_doubt
from ..index.protocol import DIRECT_URL
from ..model import Build, Choice, Code, CudaVersion, Framework, Needs, Pin, Plan
from ..requirements.target import normalize_name, parse_requirement
from ..serialize import canonical_json, text_digest
from .graph import Candidate, FrameworkId, FrameworkRequirement, PackageRequirement, Release
from .release_facts import extra_markers
from .solution import Solution

# The fields of Request that `digest` has in another place, and those that do not count.
_NOT_OTHERS = frozenset({
    "frameworks", "requirements", "constraints", "default_index_only", "pre", "exclude_newer",
    "hashes", "require_hashes", "preferences", "earlier", "conda",
})  # fmt: skip


_CUDNN = "nvidia-cudnn-"


def build_plan(solution: Solution, data_version: str) -> Plan:
    """Return the plan of a solution; `data_version` names the version of all data."""
    store, pinned = solution.store, solution.pinned
    dependencies: dict[str, set[str]] = {name: set() for name in pinned}
    replaced: dict[tuple[str, str], set[str]] = {}
    for name, required, in_place_of in _dependencies(solution):
        dependencies[name].add(required)
        if in_place_of:
            replaced.setdefault((in_place_of, required), set()).add(name)
    owners = []
    for (name, other), dependents in sorted(replaced.items()):
        have = f"{pinned[other].label} takes its place, for {' and '.join(sorted(dependents))}"
        owners.append(Reason("replaced", name, "", have))
    owners += shared_path_reasons(solution.versions.items(), store.data)
    variants = [candidate for candidate in pinned.values() if candidate.variant is not None]
    plan = Plan(
        request=store.request,
        host=store.host,
        pins=tuple(
            Pin(
                wheel=candidate.wheel,
                dependencies=tuple(sorted(dependencies[name])),
                built_with=_built_with(solution, candidate),
            )
            for name, candidate in pinned.items()
        ),
        choices=_choices(solution),
        needs=_needs(solution),
        skipped=solution.skipped(),
        warnings=tuple(dict.fromkeys((*owners, *_warnings(solution, dependencies)))),
        data=data_version,
        variants=tuple(candidate.variant for candidate in variants if candidate.variant),
    )
    return plan.replace(digest=digest(plan))


def _built_with(solution: Solution, candidate: Candidate) -> str:
    """Return the package that a source distribution compiles code for; "" for other files."""
    if not candidate.needs_build:
        return ""
    return solution.store.index.metadata(candidate.wheel).built_with


def _dependencies(solution: Solution) -> Iterator[tuple[str, str, str]]:
    """Yield (package, what it depends on, the name that this takes the place of, "" for none)."""
    for candidate in solution.candidates:
        for requirement in solution.facts.requirements_of(candidate):
            if isinstance(requirement, FrameworkRequirement):
                name = solution.variants[requirement.identifier].way.distribution
            elif isinstance(requirement, PackageRequirement):
                name = requirement.name
            else:
                continue
            if name != candidate.name:
                replaced = requirement.replaced if requirement.replaced != name else ""
                yield candidate.name, name, replaced


def digest(plan: Plan) -> str:
    """Return the sha256 of a plan's inputs: the request, the facts that rules look at, the data.

    A new field of Request leaves the digests of requests without it as they are.
    """
    request, host = plan.request, plan.host
    inputs: dict[str, object] = {
        "frameworks": request.frameworks,
        "requirements": request.requirements,
        "constraints": request.constraints,
        "options": [request.default_index_only, request.pre, request.exclude_newer],
        "host": [
            host.platform,
            host.glibc,
            [host.python.version, host.python.free_threaded],
            host.capabilities,
            [host.driver, host.driver_cuda],
        ],
        "data": plan.data,
    }
    if request.hashes or request.require_hashes:
        inputs["files"] = [request.hashes, request.require_hashes]
    fields = request.non_defaults()
    others = {name: value for name, value in fields.items() if name not in _NOT_OTHERS}
    if others:
        inputs["others"] = others
    return text_digest(canonical_json(inputs))


# ---- choices ------------------------------------------------------------------------------------


def _choices(solution: Solution) -> tuple[Choice, ...]:
    """Return the builds of the frameworks: those of the request in its order, then by name."""
    store, data = solution.store, solution.store.data
    frameworks: dict[str, Framework] = {}
    for root in solution.roots:
        framework: Framework | None = None
        if isinstance(root, FrameworkRequirement):
            framework = root.framework
        elif isinstance(root, PackageRequirement) and store.on_path(root.name) and not root.extras:
            framework = data.framework_of(root.name)
        if framework is not None:
            frameworks[framework.name] = framework
    for framework in data.all_frameworks():
        frameworks.setdefault(framework.name, framework)
    choices = []
    for name, framework in frameworks.items():
        variant = solution.variants.get(FrameworkId.of(name))
        if variant is not None:
            way = variant.way.variant
            choices.append(_choice(solution, name, variant.version, variant.build, way))
            continue
        installed = framework.installed_way(solution.versions, store.host.platform)
        if installed is not None:
            pin = solution.pinned[installed.distribution]
            build = pin.build
            if build is None and not framework.is_single_distribution:
                build = data.variant(framework, installed, pin.version, store.host.platform)
            choices.append(_choice(solution, name, pin.version, build, installed.variant))
    return tuple(choices)


def _choice(
    solution: Solution, framework: str, version: str, build: Build | None, variant: str
) -> Choice:
    cudnns = [pin.version for name, pin in solution.pinned.items() if name.startswith(_CUDNN)]
    cudnn = cudnns[0] if cudnns else None  # they are sorted by name
    if build is None:
        variant = variant.strip("*") or "unknown"
        return Choice(framework=framework, version=version, variant=variant, cuda=None, cudnn=cudnn)
    return Choice.of_build(framework, build, cudnn)


# ---- needs --------------------------------------------------------------------------------------


def _needs(solution: Solution) -> Needs:
    """Return what the plan needs of a host.

    That is the driver floor of its newest toolkit, and the devices that every library serves. What
    variant wheels need counts as their metadata says. The build of a framework has that already.
    """
    store, host = solution.store, solution.store.host
    pinned = solution.pinned.values()
    glibcs = (store.environment.least_glibc(candidate.wheel.filename) for candidate in pinned)
    needs = Needs(
        glibc=max(filter(None, glibcs), default=None),
        python=host.python.version,
        platform=host.platform,
    )
    judged = [candidate.judged for candidate in pinned if candidate.build is None]
    claims = [one.claims for one in judged if one is not None and one.claims is not None]
    toolkits = _toolkits(pinned)
    toolkits += [claim.lower for claim in claims if claim.lower is not None]
    if not toolkits:
        majors = [candidate.library.cuda_major for candidate in pinned if candidate.library]
        majors += [store.data.other_library_major(candidate.name) for candidate in pinned]
        toolkits = [(major, 0) for major in majors if major]
    if not host.gpus or not toolkits:
        return needs
    codes = [code for candidate in pinned for code in _codes(candidate, toolkits)]
    codes += [claim.code for claim in claims if claim.code is not None]
    return needs_of_gpus(needs, toolkits, codes, host, store.data)


def _toolkits(candidates: Iterable[Candidate]) -> list[CudaVersion]:
    """Return the toolkits of builds and libraries."""
    known = (one for candidate in candidates for one in (candidate.build, candidate.library))
    return [one.cuda for one in known if one is not None and one.cuda is not None]


def _codes(candidate: Candidate, toolkits: Iterable[CudaVersion]) -> Iterator[Code]:
    """Yield the device code of a release that runs beside toolkits."""
    if candidate.build is not None and candidate.on_path:
        yield candidate.build.code
    library = candidate.library
    if library is not None and library.by_cuda:
        library = next(filter(None, map(library.of_cuda, toolkits)), None)
    if library is not None:
        yield library.code


# ---- warnings -----------------------------------------------------------------------------------


def _warnings(solution: Solution, dependencies: Mapping[str, Collection[str]]) -> Iterator[Reason]:
    """Yield the doubts about the host, the index, extras and the chosen releases.

    Args:
        solution: the solution.
        dependencies: the packages that each package requires.
    """
    facts = solution.facts
    yield from facts.host_doubts
    yield from solution.provider.widening.doubts()
    yield from _unknown_extras(solution)
    for root in solution.roots:
        # The default index has a build under another version than was asked for.
        if isinstance(root, PackageRequirement) and root.specifier.startswith("==="):
            build = solution.pinned[root.name].build
            if build is not None and build.index == "default":
                subject = f"{root.name}=={build.version}+{build.variant}"
                have = f"{root.name} {build.version} of the default index is this build"
                yield Reason("same-build", subject, "", have)
    for candidate in solution.pinned.values():
        known = candidate.build or candidate.library
        if known is not None and known.code.source.startswith(SOURCE):
            have = f"known by the rows of `{SOURCE}` only"
            subject = f"{candidate.name} {candidate.version}"
            yield Reason("user-row", subject, "", have)
    yield from solution.step_backs()
    releases: list[Release] = [*solution.pinned.values(), *solution.variants.values()]
    for release in releases:
        yield from filter(is_doubt, facts.reasons(release))
    for candidate in solution.pinned.values():
        yield from () if candidate.judged is None else candidate.judged.warnings
    yield from _compiled(solution)
    yield from _not_judged(solution, dependencies)
    yield from _cpu_warnings(solution, dependencies)


def _compiled(solution: Solution) -> Iterator[Reason]:
    """Yield what is needed for each package that `sync` compiles, as far as that is known.

    That is a package that compiles code for a framework, or has wheels for other targets.
    Code: compiled.
    """
    for candidate in solution.pinned.values():
        name = _built_with(solution, candidate)
        if candidate.needs_build and not name and candidate.wheel.index != DIRECT_URL:
            files = solution.store.index.files(candidate.name)
            same = [file.filename for file in files if file.version == candidate.version]
            if any(file.endswith(".whl") and not file.endswith("-none-any.whl") for file in same):
                yield Reason("compiled", candidate.label, "a compiler", "sync compiles it")
        if name:
            framework = solution.pinned[name]
            cuda = framework.build.cuda if framework.build is not None else None
            need = "a C++ compiler" + (f" and nvcc of CUDA {cuda[0]}" if cuda else "")
            have = f"sync compiles it for {framework.label}"
            yield Reason("compiled", candidate.label, need, have)


def _not_judged(
    solution: Solution, dependencies: Mapping[str, Collection[str]]
) -> Iterator[Reason]:
    """Yield a doubt for each package with native files that nothing is known about (R10).

    That is a companion whose release has no row, and a package that requires a framework, a CUDA
    library or a distribution whose builds go with a framework (dgl requires torchdata).
    Code: companion-unknown.
    """
    store, data = solution.store, solution.store.data
    members = {name for framework in data.all_frameworks() for name in framework.distributions}
    members |= data.installers.keys()
    for name, candidate in solution.pinned.items():
        required = [] if name.startswith("nvidia-") else dependencies[name]
        uses_cuda = any(other.startswith("nvidia-") for other in required)
        is_companion = data.needs_framework(name) or uses_cuda or not members.isdisjoint(required)
        is_known = candidate.build or candidate.library or data.covers(name)
        is_pure = candidate.wheel.filename.endswith("-any.whl")
        if not is_companion or is_pure or is_known:
            continue
        platform, url = store.host.platform, candidate.wheel.url
        if data.links(name, candidate.version, platform, url) is None:
            have = "not judged: the data has no row for its files"
            yield Reason("companion-unknown", candidate.label, "", have)


def _cpu_warnings(
    solution: Solution, dependencies: Mapping[str, Collection[str]]
) -> Iterator[Reason]:
    """Yield a warning for each framework and package that will not use the GPU of the host.

    Codes: gpu-unused (the user asks for the CPU build), cpu-dependency (the framework is only a
    dependency, so nothing asks for its CUDA libraries; or the default index has CPU builds only).
    """
    if not solution.store.host.gpus:
        return
    for row in solution.store.data.rule_rows("cpu_wheels"):
        for name in solution.pinned.keys() & row.distributions:
            pin = solution.pinned[name]
            # Builds of other indexes have a local version: dgl 2.4.0+cu124.
            is_of_cpu = row.is_about(name, pin.version) and "+" not in pin.version
            if is_of_cpu and solution.pinned.keys().isdisjoint(row.unless):
                yield Reason("cpu-dependency", pin.label, str(row.value), "a CPU build")
    for variant in solution.variants.values():
        if not variant.way.carriers:
            have = "one, which stays unused"
            yield Reason("gpu-unused", variant.label, "no GPU", have)
    has_cuda_libraries = any(name.startswith("nvidia-") for name in solution.pinned)
    for framework in solution.store.data.all_frameworks():
        if framework.is_single_distribution or FrameworkId.of(framework.name) in solution.variants:
            continue
        way = framework.installed_way(solution.versions, solution.store.host.platform)
        if way is None or (way.carriers and has_cuda_libraries):
            continue
        name = way.distribution
        build = "a build without its CUDA libraries" if way.carriers else "a CPU build"
        dependents = [other for other, names in dependencies.items() if name in names]
        yield Reason(
            "cpu-dependency",
            f"{name} {solution.pinned[name].version}",
            f"--framework {framework.name}",
            f"{build}, required by {' and '.join(dependents)}",
        )


def _unknown_extras(solution: Solution) -> Iterator[Reason]:
    """Yield a doubt for each extra of a user's requirement that the release does not have.

    pip warns about these. An extra without dependencies looks the same: the known ones are those
    that the markers of the release's dependencies name.
    """
    requested = {root.name for root in solution.roots if isinstance(root, PackageRequirement)}
    for variant in solution.variants.values():
        # The first one has the extras of the way itself; the others are the user's.
        requested.update(parse_requirement(text).name for text in variant.way.requires[1:])
    for candidate in solution.candidates:
        if not candidate.extras or candidate.name not in requested:
            continue
        known = set()
        for marker in extra_markers(solution.store, candidate):
            for left, right in re.findall(r'extra [=!]= "([^"]+)"|"([^"]+)" [=!]= extra', marker):
                known.add(normalize_name(left or right))
        for extra in candidate.extras:
            if extra not in known:
                yield Reason(
                    "extra-unknown",
                    f"{candidate.name} {candidate.version}",
                    f"the extra {extra}",
                    ", ".join(sorted(known)) or "none",
                )
