"""The smallest changes of a request or a host that make it solvable.

Each change is solved before it is offered.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice

from ..compat import what_if
from ..compat.data import CompatibilityData
from ..errors import Change, Reason
from ..model import EVERY_FRAMEWORK, Framework, Host, Plan, Request, Value
from ..requirements.target import normalize_name, parse_requirement, version_key
from .candidates import is_single_distribution
from .conflicts import Roots, Trials
from .graph import (
    FrameworkId,
    Identifier,
    NodeRequirement,
    PackageId,
    Token,
    without_extras,
)
from .requested import framework_names, framework_of

MAX_CHANGES = 6
MAX_GPUS = 6  # compute capabilities that are tried
MAX_PYTHONS = 4
MAX_EDITS = 3  # of the request in one change
MAX_NAMED = 5  # packages that a change gives
_LIKE = 0.8  # how alike a misspelled name and the right one are, as difflib counts

# Reasons that only a change of the request can remove.
_REQUEST_CODES = frozenset({"no-version", "no-offline-file", "not-in-index", "yanked", "hash"})
_DRIVER_CODES = frozenset({
    "driver-cuda", "driver-floor", "driver-floor-unknown", "gpu-dropped-by-driver",
    "gpu-needs-newer-driver", "ptx-needs-newer-driver",
})  # fmt: skip
_DEVICE_CODES = _DRIVER_CODES | {
    "no-code-for-device", "code-unknown", "cpu-build", "needs-gpu", "known-broken",
}  # fmt: skip
_PYTHON_CODES = frozenset(
    {"no-wheel-for-target", "no-wheel", "requires-python", "only-sdist", "conflict", "cuda-variant"}
)

_PLATFORM_CODES = frozenset({"platform", "no-wheel-for-target", "no-wheel"})

Place = tuple[str, int]  # "frameworks" or "requirements", and which of them


class Edit(Value):
    """A change of one text of the request: the text is removed, or its range is replaced."""

    place: Place
    removes: bool
    specifier: str = ""  # the new range


Edits = tuple[Edit, ...]


class Alternatives:
    """A request on a host, and how changed ones are solved.

    Attributes:
        parts: groups of requirements that fail together, as requests of their own. A host on
            which one of them has no plan has none for the whole request either.
    """

    def __init__(
        self,
        request: Request,
        host: Host,
        data: CompatibilityData,
        requirements_of: Callable[[Request], Sequence[NodeRequirement]],
        solve: Callable[[Request, Host], Plan | None],
    ) -> None:
        self.request = request
        self.host = host
        self.data = data
        self.requirements_of = requirements_of
        self.parts: Sequence[Request] = ()
        self._solve = solve

    def plan_for(self, request: Request) -> Plan | None:
        """Return the plan for another request on the host."""
        return self._solve(request, self.host)

    def plan_on(self, host: Host) -> Plan | None:
        """Return the plan for the request on another host."""
        for part in self.parts:
            if self._solve(part, host) is None:
                return None
        return self._solve(self.request, host)


def smallest_changes(
    alternatives: Alternatives,
    trials: Trials,
    groups: Sequence[Roots],
    reasons: Iterable[Reason],
) -> Iterator[Change]:
    """Yield at most MAX_CHANGES changes; each of them alone is enough.

    Edits of the request come first, then the interpreter, the driver, the platform and the GPU.

    Args:
        alternatives: the request.
        trials: solves parts of the request.
        groups: the requirements that have no solution together. An edit of the request must
            touch each group.
        reasons: why the request fails. Some say that no change of the host can help.
    """
    return islice(_all_changes(alternatives, trials, groups, list(reasons)), MAX_CHANGES)


def _all_changes(
    alternatives: Alternatives, trials: Trials, groups: Sequence[Roots], reasons: Sequence[Reason]
) -> Iterator[Change]:
    request = alternatives.request
    codes = {reason.code for reason in reasons}
    places = _places_of_groups(alternatives, groups)
    alternatives.parts = _parts(request, places)
    if request.default_index_only:
        changed = request.replace(default_index_only=False)
        yield from _offer(alternatives, "leave out --default-index-only", changed)
    yield from _other_builds(alternatives)
    yield from _other_names(alternatives, reasons)
    if any(reason.code == "only-sdist" for reason in reasons):
        yield from _offer(alternatives, "leave out --no-build", request.replace(no_build=()))
    edits = _helpful_edits(alternatives, trials, places)
    edits.sort(key=lambda chosen: _steps_back(request, chosen))
    yield from _edited(alternatives, [chosen for chosen in edits if not _removes_text(chosen)])
    for text in request.constraints[:MAX_CHANGES]:
        constraints = tuple(other for other in request.constraints if other != text)
        changed = request.replace(constraints=constraints)
        yield from _offer(alternatives, f"without the constraint {text}", changed)
    host_may_help = not codes & _REQUEST_CODES
    if host_may_help:
        yield from _other_python(alternatives, codes)
        yield from _other_driver(alternatives, codes)
        if codes & _PLATFORM_CODES:
            yield from _first(alternatives, what_if.linux_on_windows(alternatives.host))
    yield from _edited(alternatives, [chosen for chosen in edits if _removes_text(chosen)])
    if host_may_help and codes & _DEVICE_CODES:
        yield from _other_gpu(alternatives)


# ---- changes of the host ------------------------------------------------------------------------


def _other_python(alternatives: Alternatives, codes: set[str]) -> Iterator[Change]:
    if codes & _PYTHON_CODES:
        hosts = islice(what_if.pythons(alternatives.host), MAX_PYTHONS)
        yield from _first(alternatives, hosts)


def _other_driver(alternatives: Alternatives, codes: set[str]) -> Iterator[Change]:
    """Yield the oldest newer driver that helps.

    Each driver allows what an older one does. So the newest tells whether any helps, and
    bisection finds the oldest.
    """
    if not codes & _DRIVER_CODES:
        return
    newer = what_if.drivers(alternatives.host, alternatives.data)
    if not newer or alternatives.plan_on(newer[-1].host) is None:
        return
    low, high = 0, len(newer) - 1
    while low < high:
        middle = (low + high) // 2
        if alternatives.plan_on(newer[middle].host) is not None:
            high = middle
        else:
            low = middle + 1
    yield from _on_host(alternatives, newer[low])


def _other_gpu(alternatives: Alternatives) -> Iterator[Change]:
    host = alternatives.host
    fewer: list[Change] = []
    for changed in what_if.fewer_gpus(host):
        fewer += _on_host(alternatives, changed)
    if fewer:
        yield from fewer
    else:
        others = islice(what_if.gpus(host, alternatives.data), MAX_GPUS)
        yield from _first(alternatives, others)
    if not host.gpus:
        return
    without = what_if.without_gpu(host)
    plan = alternatives.plan_on(without.host)
    # A plan with CUDA builds would run there, too, but to no purpose.
    if plan is not None and plan.choices and all(choice.cuda is None for choice in plan.choices):
        yield Change(change=without.change, gives=result_text(plan))


def _first(alternatives: Alternatives, hosts: Iterable[what_if.ChangedHost]) -> Iterator[Change]:
    """Yield the change to the first host that has a plan."""
    for changed in hosts:
        changes = list(_on_host(alternatives, changed))
        if changes:
            yield from changes
            return


def _on_host(alternatives: Alternatives, changed: what_if.ChangedHost) -> Iterator[Change]:
    plan = alternatives.plan_on(changed.host)
    if plan is not None:
        yield Change(change=changed.change, gives=result_text(plan))


# ---- changes of the request ---------------------------------------------------------------------


def _offer(alternatives: Alternatives, text: str, request: Request) -> Iterator[Change]:
    plan = alternatives.plan_for(request)
    if plan is not None:
        yield Change(change=text, gives=result_text(plan))


def _other_builds(alternatives: Alternatives) -> Iterator[Change]:
    """Yield that a build which was chosen by hand is too much, for each such choice."""
    request = alternatives.request
    for chosen in request.builds:
        framework, build = chosen
        text = f"any build instead of {framework}+{build}"
        others = tuple(other for other in request.builds if other != chosen)
        if framework == EVERY_FRAMEWORK:
            text = f"leave out --cuda {build}"
            yield from _same_cuda_major(alternatives, build, others)
        yield from _offer(alternatives, text, request.replace(builds=others))


def _same_cuda_major(
    alternatives: Alternatives, build: str, others: tuple[tuple[str, str], ...]
) -> Iterator[Change]:
    """Yield another CUDA version of the same major as the one that was chosen by hand."""
    major, dot, _minor = build.partition(".")
    if dot:
        request = alternatives.request.replace(builds=(*others, (EVERY_FRAMEWORK, major)))
        yield from _offer(alternatives, f"--cuda {major} instead of --cuda {build}", request)


def _other_names(alternatives: Alternatives, reasons: Sequence[Reason]) -> Iterator[Change]:
    """Yield the framework or library whose name is like that of a package that no index has."""
    from difflib import get_close_matches

    request = alternatives.request
    known = [*alternatives.data.frameworks(), *alternatives.data.libraries()]
    for reason in reasons:
        if reason.code != "not-in-index":
            continue
        for name in get_close_matches(reason.subject, known, n=1, cutoff=_LIKE):
            renamed = [_renamed(text, reason.subject, name) for text in request.requirements]
            changed = request.replace(requirements=tuple(renamed))
            if changed != request:
                yield from _offer(alternatives, f"{name} instead of {reason.subject}", changed)


def _renamed(requirement: str, name: str, other: str) -> str:
    """Return a requirement of the package `other` if it is one of the package `name`."""
    if parse_requirement(requirement).name != name:
        return requirement
    return other + requirement[len(name) :]


def _helpful_edits(
    alternatives: Alternatives, trials: Trials, places_of_groups: Sequence[frozenset[Place]]
) -> list[Edits]:
    """Return the sets of edits that help: the fewest edits first, wider ranges before removals.

    No set contains another one.
    """
    request = alternatives.request
    single = _single_edits(request, frozenset().union(*places_of_groups))
    count = len(_texts(request))
    helpful: list[Edits] = []
    for size in range(1, min(len(places_of_groups), MAX_EDITS) + 1):
        for edits in combinations(single, size):
            places = {edit.place for edit in edits}
            removes_all = len(places) == count and all(edit.removes for edit in edits)
            if len(places) < size or removes_all:
                continue
            if not all(places & group for group in places_of_groups):
                continue
            if any(_covers(edits, other) for other in helpful):
                continue
            solved = _solved(alternatives, trials, edits)
            if solved:
                helpful.append(solved)
    return helpful


def _solved(alternatives: Alternatives, trials: Trials, edits: Edits) -> Edits:
    """Return edits with the versions of a solution as the new ranges; () if there is none.

    A package can have a thousand releases. So the newest of each minor series are tried first.
    """
    request = alternatives.request
    requirements = alternatives.requirements_of(_changed(request, edits))
    if not requirements:
        return ()
    packages = _widened_packages(alternatives, edits)
    sparse = set(packages.values())
    nodes = trials.nodes(requirements, sparse) or trials.nodes(requirements)
    if not nodes:
        return ()
    ranges: dict[Identifier | None, str] = {}
    for node in nodes:
        if not isinstance(node, Token):
            ranges[node.identifier] = f"=={node.version}"
    return tuple(edit.replace(specifier=ranges.get(packages.get(edit.place), "")) for edit in edits)


def _steps_back(request: Request, edits: Edits) -> int:
    """Return 2 if edits take an older major version than the request names, 1 for an older one."""
    texts = dict(_texts(request))
    step = 0
    for edit in edits:
        named = re.findall(r"\d+(?:\.\d+)*", parse_requirement(texts[edit.place]).specifier)
        taken = edit.specifier.removeprefix("==")
        if not named or not taken:
            continue
        newest = max(named, key=version_key)
        if version_key(taken) < version_key(newest):
            is_major = int(taken.partition(".")[0]) < int(newest.partition(".")[0])
            step = max(step, 2 if is_major else 1)
    return step


def _widened_packages(alternatives: Alternatives, edits: Edits) -> dict[Place, PackageId]:
    """Return the packages whose ranges edits remove. The data has the releases of the others."""
    texts = dict(_texts(alternatives.request))
    packages: dict[Place, PackageId] = {}
    for edit in edits:
        name = parse_requirement(texts[edit.place]).name
        if not edit.removes and not alternatives.data.covers(name):
            packages[edit.place] = PackageId.of(name)
    return packages


def _single_edits(request: Request, touched: frozenset[Place]) -> list[Edit]:
    """Return every edit of the touched texts: wider ranges, then removals."""
    texts = [(place, text) for place, text in _texts(request) if place in touched]
    edits = []
    for place, text in texts:
        if parse_requirement(text).specifier:
            edits.append(Edit(place=place, removes=False))
    if len(_texts(request)) > 1:
        for place, _ in texts:
            edits.append(Edit(place=place, removes=True))
    return edits


def _texts(request: Request) -> list[tuple[Place, str]]:
    """Return every framework and requirement of a request with its place."""
    texts: list[tuple[Place, str]] = []
    for number, text in enumerate(request.frameworks):
        texts.append((("frameworks", number), text))
    for number, text in enumerate(request.requirements):
        texts.append((("requirements", number), text))
    return texts


def _places_of_groups(
    alternatives: Alternatives, groups: Sequence[Roots]
) -> list[frozenset[Place]]:
    """Return the texts of the request that each group comes from."""
    names = framework_names(alternatives.data)
    places: dict[Identifier, set[Place]] = {}
    for place, text in _texts(alternatives.request):
        places.setdefault(_identifier(text, names), set()).add(place)
    return [
        frozenset().union(*(places.get(without_extras(root.identifier), ()) for root in group))
        for group in groups
    ]


def _identifier(text: str, names: Mapping[str, Framework]) -> Identifier:
    """Return the node of a text of the request."""
    parsed = parse_requirement(text)
    framework = framework_of(parsed, names)
    if framework is None:
        return PackageId.of(parsed.name)
    if is_single_distribution(framework):
        return PackageId.of(normalize_name(framework.distribution))
    return FrameworkId.of(framework.name)


def _parts(request: Request, places_of_groups: Sequence[frozenset[Place]]) -> list[Request]:
    """Return the groups that are less than the whole request as requests: they fail sooner."""
    parts = []
    for places in places_of_groups:
        others = [place for place, _ in _texts(request) if place not in places]
        if places and others:
            edits = tuple(Edit(place=place, removes=True) for place in others)
            parts.append(_changed(request, edits))
    return parts


def _removes_text(edits: Edits) -> bool:
    return any(edit.removes for edit in edits)


def _covers(edits: Edits, other: Edits) -> bool:
    """Return whether edits change everything that other edits change.

    To remove a text is more than to widen its range.
    """
    removes = {edit.place: edit.removes for edit in edits}
    for edit in other:
        if edit.place not in removes or (edit.removes and not removes[edit.place]):
            return False
    return True


def _changed(request: Request, edits: Edits) -> Request:
    """Return the request with edits applied."""
    by_place = {edit.place: edit for edit in edits}
    texts: dict[str, list[str]] = {"frameworks": [], "requirements": []}
    for place, text in _texts(request):
        edit = by_place.get(place)
        if edit is None:
            texts[place[0]].append(text)
        elif not edit.removes:
            texts[place[0]].append(str(parse_requirement(text).replace(specifier=edit.specifier)))
    return request.replace(**{field: tuple(kept) for field, kept in texts.items()})


def _edited(alternatives: Alternatives, sets_of_edits: Iterable[Edits]) -> Iterator[Change]:
    request = alternatives.request
    for edits in sets_of_edits:
        plan = alternatives.plan_for(_changed(request, edits))
        if plan is not None:
            text = " and ".join(_edit_text(request, edit, plan) for edit in edits)
            yield Change(change=text, gives=result_text(plan))


def _edit_text(request: Request, edit: Edit, plan: Plan) -> str:
    """Return "torch 2.13.0 instead of torch==2.15.0", or "without numpy<1"."""
    text = dict(_texts(request))[edit.place].partition(";")[0].rstrip()
    if edit.removes:
        return f"without {text}"
    name = parse_requirement(text).name
    versions = {pin.wheel.name: pin.wheel.version for pin in plan.pins}
    versions |= {choice.framework: choice.version for choice in plan.choices}
    if name not in versions:
        return f"any version of {name}"
    return f"{name} {versions[name]} instead of {text}"


def result_text(plan: Plan) -> str:
    """Return what a plan has: "torch 2.13.0 (cu126), tensorflow 2.21.0 (cuda)"."""
    texts = [f"{choice.framework} {choice.version} ({choice.variant})" for choice in plan.choices]
    if not texts:
        names = {parse_requirement(text).name for text in plan.request.requirements}
        wheels = [pin.wheel for pin in plan.pins if pin.wheel.name in names]
        texts = [f"{wheel.name} {wheel.version}" for wheel in wheels]
        if texts[MAX_NAMED:]:
            texts = [*texts[:MAX_NAMED], f"{len(texts) - MAX_NAMED} more"]
    return ", ".join(texts) or f"{len(plan.pins)} packages"
