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
from ..model import Choice, Code, Environment, Host, Index, Matrix, Needs, Pin, Plan, Request, Requirement, parse_release
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
        if any(framework.distribution == other.name for other in frameworks):
            raise InputError(f"--framework {text}: given twice")
        frameworks.append(parsed.replace(name=normalize_name(framework.distribution)))
    others = tuple(parse_requirement(text) for text in request.requirements)
    return tuple(frameworks), others


def solve(
    request: Request,
    host: Host,
    matrix: Matrix,
    index: Index,
    environment_for: Callable[[Host], Environment],
    *,
    changes: bool = True,
) -> Plan:
    """The plan for a request on a host: the newest framework that works there (see candidates.Shelf for the order).

    A first, strict resolution refuses every doubt (code of unknown architectures, releases to avoid); only if it
    finds nothing does a second one let doubts pass, and its plan carries them as warnings. `environment_for` gives
    the target's tags and markers. NoSolutionError carries every reason and, unless `changes` is false, the smallest
    changes that help. InputError for a request that cannot be read.
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
    failure: ResolutionImpossible[Need, object] | None = None
    for lenient in (False, True):
        provider = Provider(shelf, [need.ident for need in roots], constraints, lenient=lenient)
        try:
            result = Resolver(provider, BaseReporter()).resolve(roots, max_rounds=MAX_ROUNDS)
        except ResolutionImpossible as impossible:
            failure = impossible
            continue
        except ResolutionTooDeep:
            raise InputError(
                f"no solution found in {MAX_ROUNDS} steps: narrow a requirement, e.g. {frameworks or others}"
            ) from None
        chosen = [node for node in result.mapping.values() if isinstance(node, Candidate)]
        return _plan(request, shelf, frameworks, [need for need in roots if isinstance(need, DistNeed)], chosen)
    assert failure is not None
    retry = (lambda r, h: solve(r, h, matrix, index, environment_for, changes=False)) if changes else None
    raise NoSolutionError(explain(request, host, shelf, roots, failure, retry)) from None


def _plan(
    request: Request, shelf: Shelf, frameworks: Sequence[Requirement], roots: Sequence[DistNeed], chosen: list[Candidate]
) -> Plan:
    host, matrix = shelf.host, shelf.matrix
    pinned = {node.name: node for node in chosen if not node.extras}
    depends: dict[str, set[str]] = {name: set() for name in pinned}
    for node in chosen:
        for need in node.needs or ():
            if isinstance(need, DistNeed) and need.name != node.name:
                depends[node.name].add(need.name)
    pins = tuple(Pin(wheel=pinned[name].wheel, dependencies=tuple(sorted(depends[name]))) for name in sorted(pinned))
    names = [framework.name for framework in frameworks]
    named = [name for name in pinned if shelf.framework_of(name) and name not in names]
    choices = tuple(_choice(pinned[name], pinned) for name in (*names, *sorted(named)))
    warnings = [reason for reason in shelf.host_doubts if host.gpus]
    for name in sorted(pinned):
        for reasons in shelf.facts(pinned[name]).values():
            warnings += [reason for reason in reasons if tolerable(reason) and reason not in warnings]
    plan = Plan(
        request=request,
        host=host,
        pins=pins,
        choices=choices,
        needs=_needs(shelf, pinned),
        skipped=tuple(
            rejection for root in roots if root.name in names for rejection in passed_over(shelf, root, pinned[root.name])
        ),
        warnings=tuple(warnings),
        data=matrix.version,
    )
    return plan.replace(digest=digest(plan))


def _choice(node: Candidate, pinned: dict[str, Candidate]) -> Choice:
    build = node.build
    cudnn = next((pinned[name].version for name in sorted(pinned) if name.startswith("nvidia-cudnn-")), None)
    if build is None:
        return Choice(framework=node.name, version=node.version, variant="unknown", cuda=None, cudnn=cudnn)
    return Choice(
        framework=node.name,
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
    host, matrix = shelf.host, shelf.matrix
    codes: list[Code] = []
    floor: str | None = None
    cuda = None
    for node in pinned.values():
        if node.build is not None and node.build.cuda is not None:
            cuda = max(cuda or node.build.cuda, node.build.cuda)
            row = matrix.driver_floor(node.build.cuda, host.os)
            if row is not None and (floor is None or parse_release(row[0]) > parse_release(floor)):
                floor = row[0]
            framework = shelf.framework_of(node.name)
            if framework is not None and shelf.on_path(node.name):
                codes.append(node.build.code)
        if node.library is not None:
            codes.append(node.library.code)
    served = ()
    if codes:
        known = sorted({capability for capability in matrix.capabilities()})
        served = tuple(one for one in known if rules.serves_all(codes, one, host.driver_cuda) in ("sass", "ptx"))
    return Needs(
        driver=floor if host.gpus else None,
        compute_capabilities=served if host.gpus else (),
        cuda=cuda if host.gpus else None,
        glibc=_glibc([node.wheel.filename for node in pinned.values()]),
        python=host.python.version,
        platform=host.platform,
    )


_LEGACY = {"manylinux1": 5, "manylinux2010": 12, "manylinux2014": 17}


def _glibc(filenames: Sequence[str]) -> tuple[int, int] | None:
    """The glibc that the wheels need: the least tag of each (PEP 600), the greatest of all."""
    need = 0
    for filename in filenames:
        minors = []
        for tag in filename[:-4].rpartition("-")[2].split("."):
            policy = tag.removesuffix("_x86_64").removesuffix("_aarch64")
            if policy in _LEGACY:
                minors.append(_LEGACY[policy])
            elif policy.startswith("manylinux_2_") and policy[12:].isdigit():
                minors.append(int(policy[12:]))
        need = max(need, min(minors, default=0))
    return (2, need) if need else None


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

