"""Request, host, compatibility data and an index in; one consistent plan out. Pure: no hardware, no clock, no files.

resolvelib finds the set; host facts (driver, devices) and topics (one CUDA major, one owner for a folder) are nodes
of its graph, so that a conflict with the host is found and named like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import sha256
from json import dumps

from resolvelib.reporters import BaseReporter
from resolvelib.resolvers import ResolutionImpossible, ResolutionTooDeep, Resolver

from .. import rules
from ..environment import normalize_name, parse_requirement
from ..errors import InputError, NoSolutionError
from ..model import (
    Choice,
    Environment,
    Host,
    Index,
    Matrix,
    Needs,
    Pin,
    Plan,
    Rejection,
    Request,
    Requirement,
    parse_release,
)
from .candidates import Candidate, DistNeed, Need, Shelf
from .provider import Provider, tolerable
from .reasons import explain, passed_over

MAX_ROUNDS = 20_000

__all__ = ["distributions", "solve"]


def distributions(request: Request, matrix: Matrix) -> tuple[tuple[Requirement, ...], tuple[Requirement, ...]]:
    """The request's frameworks, with the names of their distributions, and its other requirements, both parsed.

    InputError for an unknown framework, a bad specifier or a framework given twice.
    """
    frameworks: list[Requirement] = []
    for text in request.frameworks:
        parsed = parse_requirement(text)
        framework = matrix.framework(parsed.name)
        if framework is None:
            known = ", ".join(sorted(matrix.frameworks()))
            raise InputError(f"--framework {text}: no framework of that name; known: {known}")
        if parsed.marker or parsed.url:
            raise InputError(f"--framework {text}: takes NAME or NAME with a version range, such as torch>=2.9")
        name = normalize_name(framework.distribution)
        if any(name == other.name for other in frameworks):
            raise InputError(f"--framework {text}: given twice")
        frameworks.append(parsed.replace(name=name))
    others = tuple(parse_requirement(text) for text in request.requirements)
    return tuple(frameworks), others


def solve(
    request: Request,
    host: Host,
    matrix: Matrix,
    index: Index,
    environment_for: Callable[[Host], Environment],
    *,
    widen: Callable[[str], bool] | None = None,
    changes: bool = True,
    data: str = "",
) -> Plan:
    """The plan for a request on a host: the newest framework that works there (see candidates.Shelf for the order).

    A first, strict resolution refuses every doubt (code of unknown architectures, releases to avoid); only if it
    finds nothing does a second one let doubts pass, and its plan carries them as warnings. `environment_for` gives
    the target's tags and markers; `widen(name)` asks for releases that the index left out so far, and is called for the
    user's own requirements that none of the releases fulfils. `data` names the version of all data for the lock.
    NoSolutionError carries every reason and, unless `changes` is false, the smallest changes that help. InputError for
    a request that cannot be read.
    """
    frameworks, others = distributions(request, matrix)
    if not frameworks and not others:
        raise InputError("nothing to solve: name a framework (--framework torch) or a requirement")
    environment = environment_for(host)
    shelf = Shelf(request, host, matrix, index, environment)
    constraints = [parse_requirement(text) for text in request.constraints]
    roots: list[Need] = [
        DistNeed(requirement.name, requirement.extras, requirement.specifier)
        for requirement in (*frameworks, *others)
        if requirement.marker is None or environment.marker(requirement.marker, ())
    ]
    for requirement in (*others, *constraints):
        if requirement.url is not None:
            raise InputError(f"{requirement}: a requirement at a URL cannot be locked to an index yet")
    if widen is not None:
        for requirement in others:
            versions = [candidate.version for candidate in shelf.candidates(requirement.name)]
            fits = any(environment.contains(requirement.specifier, version, True) for version in versions)
            if not fits and widen(requirement.name):
                shelf.forget(requirement.name)
    failure: ResolutionImpossible[Need, object] | None = None
    for lenient in (False, True):
        provider = Provider(shelf, [need.ident for need in roots], constraints, lenient=lenient)
        try:
            result = Resolver(provider, BaseReporter()).resolve(roots, max_rounds=MAX_ROUNDS)
        except ResolutionImpossible as impossible:
            failure = impossible
            continue
        except ResolutionTooDeep:
            names = ", ".join(map(str, roots))
            raise InputError(f"no solution found in {MAX_ROUNDS} steps: narrow one of {names}") from None
        chosen = [node for node in result.mapping.values() if isinstance(node, Candidate)]
        return _plan(provider, frameworks, chosen, data or matrix.version)

    def retry(changed: Request, elsewhere: Host) -> Plan:
        return solve(changed, elsewhere, matrix, index, environment_for, widen=None, changes=False)

    raise NoSolutionError(explain(shelf, roots, failure, retry if changes else None)) from None


def _plan(provider: Provider, frameworks: Sequence[Requirement], chosen: list[Candidate], data: str) -> Plan:
    shelf = provider.shelf
    pinned = {node.name: node for node in sorted(chosen, key=lambda node: node.name) if not node.extras}
    depends: dict[str, set[str]] = {name: set() for name in pinned}
    for node in chosen:
        needs = provider.needs(node)
        depends[node.name] |= {need.name for need in needs if isinstance(need, DistNeed) and need.name != node.name}
    named = [framework.name for framework in frameworks]
    others = [name for name in pinned if shelf.on_path(name) and name not in named]
    warnings = list(shelf.host_doubts)
    for node in pinned.values():
        for reasons in shelf.facts(node).values():
            warnings += [reason for reason in reasons if tolerable(reason) and reason not in warnings]
    skipped: list[Rejection] = []
    for framework in frameworks:
        skipped += passed_over(shelf, DistNeed(framework.name, (), framework.specifier), pinned[framework.name])
    plan = Plan(
        request=shelf.request,
        host=shelf.host,
        pins=tuple(Pin(wheel=node.wheel, dependencies=tuple(sorted(depends[name]))) for name, node in pinned.items()),
        choices=tuple(_choice(shelf.framework_of(name) or name, pinned[name], pinned) for name in (*named, *others)),
        needs=_needs(shelf, pinned),
        skipped=tuple(skipped),
        warnings=tuple(warnings),
        data=data,
    )
    return plan.replace(digest=digest(plan))


def _choice(framework: str, node: Candidate, pinned: dict[str, Candidate]) -> Choice:
    build = node.build
    cudnn = next((pinned[name].version for name in sorted(pinned) if name.startswith("nvidia-cudnn-")), None)
    if build is None:
        return Choice(framework=framework, version=node.version, variant="unknown", cuda=None, cudnn=cudnn)
    return Choice(
        framework=framework,
        version=build.version,
        variant=build.variant,
        cuda=build.cuda,
        cudnn=cudnn or build.cudnn,
        sass=build.code.sass or (),
        ptx=build.code.ptx or (),
        evidence=build.code.evidence,
        source=build.code.source,
    )


def _needs(shelf: Shelf, pinned: dict[str, Candidate]) -> Needs:
    """What the plan asks of a host: the driver floor of its newest toolkit, the devices that every library serves."""
    host, matrix = shelf.host, shelf.matrix
    glibcs = [glibc for node in pinned.values() if (glibc := shelf.environment.least_glibc(node.wheel.filename))]
    needs = Needs(glibc=max(glibcs, default=None), python=host.python.version, platform=host.platform)
    toolkits = [node.build.cuda for node in pinned.values() if node.build is not None and node.build.cuda is not None]
    if not host.gpus or not toolkits:
        return needs
    codes = [node.build.code for node in pinned.values() if node.build is not None and shelf.on_path(node.name)]
    codes += [node.library.code for node in pinned.values() if node.library is not None]
    rows = [matrix.driver_floor(cuda, host.os) for cuda in toolkits]
    floors = [row[0] for row in rows if row is not None]
    # A lock may go to any host with a driver of the floor: PTX counts only where a device here lives by it, and then
    # the driver that compiles it here becomes the floor.
    mine = [gpu.compute_capability for gpu in host.gpus if gpu.compute_capability is not None]
    by_ptx = any(rules.serves_all(codes, one, host.driver_cuda) == "ptx" for one in mine)
    good = ("sass", "ptx") if by_ptx else ("sass",)
    if by_ptx and host.driver is not None:
        floors.append(host.driver)
    served = [one for one in matrix.capabilities() if rules.serves_all(codes, one, host.driver_cuda) in good]
    # Devices that were let pass with a warning, their code being unknown, are what the lock was made for.
    served += [one for one in mine if one not in served]
    return needs.replace(
        driver=max(floors, key=parse_release, default=None),
        compute_capabilities=tuple(sorted(set(served))),
        cuda=max(toolkits),
    )


def digest(plan: Plan) -> str:
    """sha256 of what the plan was made from: the request, the host's facts that rules look at, the data."""
    request, host = plan.request, plan.host
    inputs = {
        "frameworks": request.frameworks,
        "requirements": request.requirements,
        "constraints": request.constraints,
        "options": [request.default_index_only, request.pre, request.exclude_newer],
        "host": [
            host.platform,
            host.glibc,
            [host.python.version, host.python.free_threaded],
            [gpu.compute_capability for gpu in host.gpus],
            [host.driver, host.driver_cuda],
        ],
        "data": plan.data,
    }
    return sha256(dumps(inputs, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

