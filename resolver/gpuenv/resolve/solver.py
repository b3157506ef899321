"""Request, host, compatibility data and an index in; one consistent plan out. Pure: no hardware, no clock, no files.

resolvelib finds the set (straight.py where it need not go back). What the host refuses is no candidate; topics (one
CUDA major, one owner for a folder) are nodes of the graph, so that a conflict about them is found like any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..compat.data import CompatibilityData
from ..compat.evaluate import is_doubt, needs_of_gpus
from ..errors import GpuEnvError, InputError, NoSolutionError
from ..index.protocol import Index
from ..model import (
    Build,
    Choice,
    Framework,
    Host,
    Needs,
    Pin,
    Plan,
    Rejection,
    Request,
    Requirement,
)
from ..requirements.target import TargetEnvironment, normalize_name, parse_requirement
from ..serialize import canonical_json
from .candidates import Candidate, Shelf, Variant, is_plain
from .conflicts import Failure
from .needs import DistNeed, FrameworkNeed, Need
from .passed_over import passed_over, variants_passed_over
from .provider import Node, Provider
from .resolution import Impossible, resolved
from .selection import Limits, Widening, unknown_extras

MAX_TRIALS = 60  # of parts of a request that has no solution

__all__ = ["read_request", "solve"]


def read_request(
    request: Request, matrix: CompatibilityData
) -> tuple[tuple[tuple[Framework, Requirement], ...], tuple[Requirement, ...]]:
    """The request's frameworks, each with what was asked of it, and its other requirements, parsed.

    InputError for an unknown framework, a bad specifier or a framework given twice.
    """
    frameworks: list[tuple[Framework, Requirement]] = []
    for text in request.frameworks:
        parsed = parse_requirement(text)
        framework = matrix.framework(parsed.name)
        if framework is None:
            known = ", ".join(sorted(matrix.frameworks()))
            raise InputError(f"--framework {text}: no framework of that name; known: {known}")
        if parsed.marker or parsed.url:
            raise InputError(f"--framework {text}: takes NAME or NAME with a version range, such as torch>=2.9")
        if any(framework.name == other.name for other, _ in frameworks):
            raise InputError(f"--framework {text}: given twice")
        frameworks.append((framework, parsed))
    return tuple(frameworks), tuple(parse_requirement(text) for text in request.requirements)


def _roots(frameworks: Sequence[tuple[Framework, Requirement]]) -> Iterator[Need]:
    for framework, asked in frameworks:
        if is_plain(framework):
            yield DistNeed(normalize_name(framework.distribution), asked.extras, asked.specifier)
            continue
        yield FrameworkNeed(framework, asked.specifier)
        brought = {extra for way in framework.ways for extra in parse_requirement(way.requires[0]).extras}
        more = tuple(extra for extra in asked.extras if extra not in brought)
        names = {parse_requirement(way.requires[0]).name for way in framework.ways}
        if more and len(names) > 1:
            raise InputError(f"--framework {asked}: {framework.name} takes no extras here, name them as a requirement")
        if more:
            yield DistNeed(names.pop(), more, "")


def solve(
    request: Request,
    host: Host,
    matrix: CompatibilityData,
    index: Index,
    environment_for: Callable[[Host], TargetEnvironment],
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
    question = _Question(request, host, matrix, index, environment_for, data=data)
    plan = question.plan(widen)
    if plan is not None:
        return plan
    # Imported here: a refusal needs it alone.
    from .conflicts import Trials
    from .explain import explain
    from .suggestions import Asked

    def retry(changed: Request, elsewhere: Host) -> Plan | None:
        try:
            return _Question(changed, elsewhere, matrix, index, environment_for, data=data).plan(None)
        except GpuEnvError:
            return None

    def needs(changed: Request) -> Sequence[Need]:
        return question.needs(changed)[0]

    trials = Trials(question.attempt, MAX_TRIALS)
    asked = Asked(request, host, matrix, needs, retry) if changes else None
    raise NoSolutionError(explain(question, trials, asked))


class _Question:
    """A request on a host, ready to be solved: whole, or some of its needs."""

    def __init__(
        self,
        request: Request,
        host: Host,
        matrix: CompatibilityData,
        index: Index,
        environment_for: Callable[[Host], TargetEnvironment],
        *,
        data: str,
    ) -> None:
        self.environment = environment_for(host)
        self.shelf = Shelf(request, host, matrix, index, self.environment)
        self.limits = Limits([parse_requirement(text) for text in request.constraints], self.environment)
        self.roots: Sequence[Need]
        self.roots, self.order, self.own = self.needs(request)
        self.data = data or matrix.version
        self.failure: Any = None

    def needs(self, request: Request) -> tuple[list[Need], list[str], frozenset[str]]:
        """What a request asks for, the frameworks' nodes in their order, the names of its other requirements."""
        frameworks, others = read_request(request, self.shelf.matrix)
        if not frameworks and not others:
            raise InputError("nothing to solve: name a framework (--framework torch) or a requirement")
        roots: list[Need] = [*_roots(frameworks)]
        order = [need.ident for need in roots]
        roots += [
            DistNeed(requirement.name, requirement.extras, requirement.specifier, requirement.url)
            for requirement in others
            if requirement.marker is None or self.environment.marker(requirement.marker, ())
        ]
        return roots, order, frozenset(requirement.name for requirement in others)

    def plan(self, widen: Callable[[str], bool] | None) -> Plan | None:
        """None if there is no solution; `failure` is what stood against it."""
        widening = Widening(widen, self.shelf, self.own)
        for lenient in (False, True):
            provider = Provider(self.shelf, self.order, self.limits, widening, lenient=lenient)
            try:
                nodes = resolved(provider, self.roots)
            except Impossible as impossible:
                self.failure = impossible
                continue
            plan = _plan(provider, self.roots, nodes, self.data)
            _check_hashes(plan)
            return plan
        for error in widening.failures.values():
            raise error  # releases that could not be looked at may be the solution
        return None

    def attempt(self, needs: Sequence[Need], lenient: bool) -> list[Node] | Failure:
        """A solution of these needs on the same shelf; no index is asked for more releases."""
        from .conflicts import Failure

        try:
            return resolved(self._provider(lenient), needs)
        except Impossible as impossible:
            return Failure(impossible.causes)

    def needs_of(self, node: Candidate | Variant) -> Sequence[Need]:
        """What a node asks for."""
        return tuple(self._provider(True).get_dependencies(node))

    def _provider(self, lenient: bool) -> Provider:
        widening = Widening(None, self.shelf, frozenset())
        return Provider(self.shelf, self.order, self.limits, widening, lenient=lenient)


def _check_hashes(plan: Plan) -> None:
    """pip's hash-checking mode: InputError for a package of which the user gives no hash."""
    known = {name for name, _ in plan.request.hashes}
    for pin in plan.pins if plan.request.require_hashes else ():
        # A URL with its hash says it itself.
        wheel = pin.wheel
        if wheel.name not in known and not any(f"sha256={wheel.sha256}" in one for one in plan.request.requirements):
            what = f"hash-checking mode: the requirements have no hash of {wheel.name} {wheel.version}"
            needed = f"{wheel.name}=={wheel.version} --hash=sha256:{wheel.sha256}"
            raise InputError(what, hint=f"if it is to be trusted, add {needed}")


def _plan(provider: Provider, roots: Sequence[Need], nodes: list[Node], data: str) -> Plan:
    shelf = provider.shelf
    chosen = [node for node in nodes if isinstance(node, Candidate)]
    variants = {node.ident: node for node in nodes if isinstance(node, Variant)}
    pinned = {node.name: node for node in sorted(chosen, key=lambda node: node.name) if not node.extras}
    depends: dict[str, set[str]] = {name: set() for name in pinned}
    for node in chosen:
        needs = provider.needs(node)
        depends[node.name] |= {need.name for need in needs if isinstance(need, DistNeed) and need.name != node.name}
    warnings = [*shelf.host_doubts, *provider.widening.doubts()]
    asked = {root.name for root in roots if isinstance(root, DistNeed)}
    warnings += unknown_extras(shelf, chosen, asked)
    facts = [shelf.facts(node) for node in pinned.values()] + [shelf.variant_facts(one) for one in variants.values()]
    for reasons in (reasons for one in facts for reasons in one.values()):
        warnings += [reason for reason in reasons if is_doubt(reason) and reason not in warnings]
    skipped: list[Rejection] = []
    for root in roots:
        if isinstance(root, FrameworkNeed):
            skipped += variants_passed_over(shelf, root, variants[root.ident])
        elif isinstance(root, DistNeed) and shelf.on_path(root.name):
            skipped += [one for one in passed_over(shelf, root, pinned[root.name]) if one not in skipped]
    plan = Plan(
        request=shelf.request,
        host=shelf.host,
        pins=tuple(Pin(wheel=node.wheel, dependencies=tuple(sorted(depends[name]))) for name, node in pinned.items()),
        choices=tuple(_choices(shelf, roots, pinned, variants)),
        needs=_needs(shelf, pinned),
        skipped=tuple(skipped),
        warnings=tuple(warnings),
        data=data,
    )
    return plan.replace(digest=digest(plan))


def _choices(
    shelf: Shelf, roots: Sequence[Need], pinned: dict[str, Candidate], variants: dict[str, Variant]
) -> Iterator[Choice]:
    """The frameworks asked for, in their order, then those that came as dependencies, by name."""
    named: list[str] = []
    for root in roots:
        if isinstance(root, FrameworkNeed):
            named.append(root.framework.name)
            variant = variants[root.ident]
            yield _choice(named[-1], variant.version, variant.build, variant.way.variant, pinned)
        elif isinstance(root, DistNeed) and shelf.on_path(root.name) and not root.extras:
            if shelf.framework_of(root.name) in named:  # asked for as a framework and as a requirement
                continue
            named.append(shelf.framework_of(root.name) or root.name)
            yield _choice(named[-1], pinned[root.name].version, pinned[root.name].build, "unknown", pinned)
    for name in shelf.matrix.frameworks():
        framework = shelf.matrix.framework(name)
        if framework is None or name in named:
            continue
        # The way whose carriers are there; a CPU way has none and comes last.
        for way in sorted(framework.ways, key=lambda way: -len(way.carriers)):
            node = pinned.get(parse_requirement(way.requires[0]).name)
            if node is not None and all(carrier in pinned for carrier in way.carriers):
                build = node.build
                if build is None and not is_plain(framework):
                    build = shelf.matrix.variant(framework, way, node.version, shelf.host.platform)
                yield _choice(name, node.version, build, way.variant, pinned)
                break


def _choice(framework: str, version: str, build: Build | None, variant: str, pinned: dict[str, Candidate]) -> Choice:
    cudnn = next((pinned[name].version for name in sorted(pinned) if name.startswith("nvidia-cudnn-")), None)
    if build is None:
        return Choice(
            framework=framework, version=version, variant=variant.strip("*") or "unknown", cuda=None, cudnn=cudnn
        )
    return Choice(
        framework=framework,
        version=build.version,
        variant=build.variant,
        cuda=build.cuda,
        cudnn=(cudnn or build.cudnn) if build.cuda is not None else None,
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
    built = [cuda for node in pinned.values() for one in (node.build, node.library) if one and (cuda := one.cuda)]
    toolkits = built or [(node.library.cuda_major, 0) for node in pinned.values() if node.library is not None]
    if not host.gpus or not toolkits:
        return needs
    codes = [node.build.code for node in pinned.values() if node.build is not None and shelf.on_path(node.name)]
    codes += [node.library.code for node in pinned.values() if node.library is not None]
    return needs_of_gpus(needs, toolkits, codes, host, matrix)


def digest(plan: Plan) -> str:
    """sha256 of what the plan was made from: the request, the host's facts that rules look at, the data."""
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
            [gpu.compute_capability for gpu in host.gpus],
            [host.driver, host.driver_cuda],
        ],
        "data": plan.data,
    }
    files = [request.hashes, request.require_hashes, sorted(request.allow_sdist)]
    if any(files):
        inputs["files"] = files
    return hashlib.sha256(canonical_json(inputs).encode()).hexdigest()
