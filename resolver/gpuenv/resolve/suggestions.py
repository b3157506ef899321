"""The smallest changes of a request or a host that make it solvable.

Each change is solved before it is offered.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import combinations, islice

from ..compat import what_if
from ..errors import Change, Reason
from ..model import EVERY_FRAMEWORK, Host, Plan, Request, quantity_text, show_pair
from ..requirements.target import parse_requirement, version_key
from ..requirements.versions import public
from .candidates import CandidateStore
from .explain import Roots, Trials
from .graph import (
    Identifier,
    Node,
    Token,
    without_extras,
)
from .requested import requirements_of

MAX_CHANGES = 6
MAX_EDIT_TRIALS = 40  # of changed requests
MAX_EDITS = 3  # of the request in one change
MAX_NAMED = 5  # packages that a change gives
_LIKE = 0.8  # how alike a misspelled name and the right one are, as difflib counts

# Reasons that only a change of the request can remove.
_REQUEST_CODES = frozenset({"no-version", "not-in-index", "yanked", "hash"})
_DRIVER_CODES = frozenset({
    "driver-cuda", "driver-floor", "driver-floor-unknown", "gpu-dropped-by-driver",
    "gpu-needs-newer-driver", "ptx-needs-newer-driver",
})  # fmt: skip
_DEVICE_CODES = _DRIVER_CODES | {
    "jetson-wheel", "known-unsupported", "no-code-for-device", "code-unknown", "cpu-build",
    "needs-gpu", "known-broken",
}  # fmt: skip
_PYTHON_CODES = frozenset({
    "no-wheel-for-target", "no-wheel", "no-offline-file", "requires-python", "only-sdist",
    "build-failed", "conflict", "cuda-variant", "known-broken",
})  # fmt: skip

_PLATFORM_CODES = frozenset({"platform", "no-wheel-for-target", "no-wheel"})

_NAMES_CUDA = re.compile(r"(?:^|-)cu(?:da)?\d+x?(?:$|-)")

Place = tuple[str, int]  # "frameworks" or "requirements", and which of them
# The texts of a request to change: the new range of each, or None if it is left out.
Edits = Mapping[Place, str | None]


class Alternatives:
    """A request on a host, and how changed ones are solved.

    Attributes:
        texts: every framework and requirement of the request.
        parts: groups of requirements that fail together, as requests of their own. A host on
            which one of them has no plan has none for the whole request either.
    """

    def __init__(
        self, store: CandidateStore, solve: Callable[[Request, Host], Plan | None]
    ) -> None:
        self.request, self.host, self.data = store.request, store.host, store.data
        self.store = store
        self._solve = solve
        self.parts: Sequence[Request] = ()
        self.texts: dict[Place, str] = {}
        for field in ("frameworks", "requirements"):
            for number, text in enumerate(getattr(self.request, field)):
                self.texts[field, number] = text

    def nodes_of(self, place: Place) -> list[Identifier]:
        """Return what a text of the request asks for."""
        fields = {"frameworks": (), "requirements": (), place[0]: (self.texts[place],)}
        roots = requirements_of(self.request.replace(**fields), self.store)
        return [without_extras(root.identifier) for root in roots]

    def plan_on(self, host: Host) -> Plan | None:
        """Return the plan for the request on another host."""
        for part in self.parts:
            if self._solve(part, host) is None:
                return None
        return self._solve(self.request, host)

    def on_host(self, changed: what_if.ChangedHost) -> Iterator[Change]:
        """Yield the change to another host if the request has a plan there."""
        plan = self.plan_on(changed.host)
        if plan is not None:
            yield Change(change=changed.change, gives=result_text(plan))

    def on_first(self, hosts: Iterable[what_if.ChangedHost]) -> Iterator[Change]:
        """Yield the change to the first host on which the request has a plan."""
        yield from islice((change for host in hosts for change in self.on_host(host)), 1)

    def changed(
        self, text: str, edits: Iterable[tuple[str, str]] = (), /, **fields: object
    ) -> Iterator[Change]:
        """Yield a change of the request, described by a text, if it has a plan."""
        plan = self._solve(self.request.replace(**fields), self.host)
        if plan is not None:
            yield Change(change=text, gives=result_text(plan), edits=tuple(edits))

    def fields_with(self, edits: Edits) -> dict[str, tuple[str, ...]]:
        """Return the frameworks and the requirements of the request with edits applied."""
        fields: dict[str, tuple[str, ...]] = {"frameworks": (), "requirements": ()}
        for place, text in self.texts.items():
            kept: tuple[str, ...] = (text,)
            if place in edits:
                specifier = edits[place]
                kept = ()
                if specifier is not None:
                    kept = (str(parse_requirement(text).replace(specifier=specifier)),)
            fields[place[0]] += kept
        return fields

    def edited(self, sets_of_edits: Iterable[Edits]) -> Iterator[Change]:
        """Yield each set of edits with which the request has a plan.

        Such as "torch 2.13.0 instead of torch==2.15.0 and without numpy<1".
        """
        for edits in sets_of_edits:
            plan = self._solve(self.request.replace(**self.fields_with(edits)), self.host)
            if plan is None:
                continue
            versions = plan.versions
            versions |= {choice.framework: choice.version for choice in plan.choices}
            changes: list[str] = []
            replaced: list[tuple[str, str]] = []
            for place, specifier in edits.items():
                text = self.texts[place].partition(";")[0].rstrip()
                requirement = parse_requirement(self.texts[place])
                name, new = requirement.name, ""
                if specifier is None:
                    changes.append(f"without {text}")
                elif name in versions:
                    changes.append(f"{name} {versions[name]} instead of {text}")
                    new = str(requirement.replace(specifier=f"=={versions[name]}"))
                else:
                    changes.append(f"any version of {name}")
                    new = str(requirement.replace(specifier=""))
                replaced.append((self.texts[place], new))
            change = " and ".join(dict.fromkeys(changes))
            yield Change(change=change, gives=result_text(plan), edits=tuple(replaced))


def smallest_changes(
    alternatives: Alternatives,
    trials: Trials,
    groups: Sequence[Roots],
    reasons: Sequence[Reason],
) -> Iterator[Change]:
    """Yield changes; each of them alone is enough.

    First come other versions of what the request names, then the interpreter, the driver and the
    platform, then what could be left out, and then fewer GPUs or none.

    Args:
        alternatives: the request.
        trials: solves parts of the request.
        groups: the requirements that have no solution together. An edit of the request must
            touch each group.
        reasons: why the request fails. Some say that no change of the host can help.
    """
    trials.allow(MAX_EDIT_TRIALS)
    request, host = alternatives.request, alternatives.host
    codes = {reason.code for reason in reasons}
    places = _places_of_groups(alternatives, groups)
    # The groups that are less than the whole request fail sooner than it does.
    rests = [alternatives.texts.keys() - group for group in places if group]
    alternatives.parts = [
        request.replace(**alternatives.fields_with(dict.fromkeys(rest))) for rest in rests if rest
    ]
    if codes & {"jetson-wheel", "known-unsupported", "no-code-for-device"}:
        yield from _elsewhere(alternatives, reasons)
    if request.default_index_only:
        text = "leave out --default-index-only"
        yield from alternatives.changed(text, default_index_only=False)
    yield from _other_builds(alternatives)
    yield from _any_cuda(alternatives)
    yield from _other_names(alternatives, reasons)
    if "only-sdist" in codes:
        yield from alternatives.changed("leave out --no-build", no_build=())
    edits = _helpful_edits(alternatives, trials, places)
    edits.sort(key=lambda chosen: _steps_back(alternatives.texts, chosen))
    yield from alternatives.edited(chosen for chosen in edits if None not in chosen.values())
    yield from _fewer_limits(alternatives)
    # What a dependency lacks, another release of the request's packages may not need.
    host_may_help = not {one.code for one in reasons if not one.dependent} & _REQUEST_CODES
    if host_may_help:
        if codes & _PYTHON_CODES:
            yield from alternatives.on_first(what_if.pythons(host))
        if codes & _DRIVER_CODES:
            yield from _other_driver(alternatives)
        if codes & _PLATFORM_CODES:
            yield from alternatives.on_first(what_if.linux_on_windows(host))
    yield from _on_the_cpu(alternatives)
    yield from alternatives.edited(chosen for chosen in edits if None in chosen.values())
    if host_may_help and codes & _DEVICE_CODES and "no-offline-file" not in codes:
        yield from _fewer_gpus(alternatives)


def _fewer_limits(alternatives: Alternatives) -> Iterator[Change]:
    """Yield the request without one of its constraints or overrides."""
    request = alternatives.request
    for kind, texts in (("constraint", request.constraints), ("override", request.overrides)):
        for text in texts[:MAX_CHANGES]:
            others = tuple(other for other in texts if other != text)
            changes = {f"{kind}s": others}
            yield from alternatives.changed(f"without the {kind} {text}", **changes)


# ---- changes of the host ------------------------------------------------------------------------


def _other_driver(alternatives: Alternatives) -> Iterator[Change]:
    """Yield the oldest newer driver that helps.

    Each driver allows what an older one does. So the newest tells whether any helps, and
    bisection finds the oldest.
    """

    def helps(changed: what_if.ChangedHost) -> bool:
        return alternatives.plan_on(changed.host) is not None

    newer = what_if.drivers(alternatives.host, alternatives.data)
    if newer and helps(newer[-1]):
        oldest = bisect_left(newer, True, hi=len(newer) - 1, key=helps)
        yield from alternatives.on_host(newer[oldest])


def _fewer_gpus(alternatives: Alternatives) -> Iterator[Change]:
    host = alternatives.host
    for changed in what_if.fewer_gpus(host):
        yield from alternatives.on_host(changed)
    if not host.gpus:
        return
    without = what_if.without_gpu(host)
    plan = alternatives.plan_on(without.host)
    if plan is None or not plan.choices:
        return
    # What needs a GPU would be installed there, too, but to no purpose.
    has_device_code = any(alternatives.data.is_extension(pin.wheel.name) for pin in plan.pins)
    if not has_device_code and all(choice.cuda is None for choice in plan.choices):
        yield Change(change=without.change, gives=result_text(plan))


def _elsewhere(alternatives: Alternatives, reasons: Sequence[Reason]) -> Iterator[Change]:
    """Yield what serves a GPU for which no known index has code, as the data says it."""
    capabilities = {show_pair(gpu.compute_capability) for gpu in alternatives.host.gpus}
    requested = [parse_requirement(text).name for text in alternatives.texts.values()]
    needs = [reason.need for reason in reasons if reason.code == "no-candidate"]
    needed = dict.fromkeys(re.split(r"[^\w.-]", need, maxsplit=1)[0] for need in needs)
    for row in alternatives.data.rule_rows("elsewhere"):
        names = [name for name in requested if name in row.distributions]
        names = names or [name for name in needed if name in row.distributions]
        if names and capabilities & set(row.capabilities):
            change = str(row.value).format(names=" ".join(names))
            yield Change(change=change, gives=row.gives)


# ---- changes of the request ---------------------------------------------------------------------


def _other_builds(alternatives: Alternatives) -> Iterator[Change]:
    """Yield that a build which was chosen by hand is too much, for each such choice."""
    builds = alternatives.request.builds
    for framework, build in builds:
        text = f"any build instead of {framework}+{build}"
        others = tuple(other for other in builds if other != (framework, build))
        if framework == EVERY_FRAMEWORK:
            text = f"leave out --cuda {build}"
            major, dot, _ = build.partition(".")
            if dot:
                same_major = (*others, (EVERY_FRAMEWORK, major))
                instead = f"--cuda {major} instead of --cuda {build}"
                yield from alternatives.changed(instead, builds=same_major)
        yield from alternatives.changed(text, builds=others)


def _any_cuda(alternatives: Alternatives) -> Iterator[Change]:
    """Yield that a framework is asked for by its name, where a text names its CUDA, too.

    Such as "cupy instead of cupy-cuda13x" and "jax instead of jax[cuda13]".
    """
    data = alternatives.data
    for place, text in alternatives.texts.items():
        requirement = parse_requirement(text)
        extras = tuple(extra for extra in requirement.extras if not _NAMES_CUDA.search(extra))
        names_cuda = _NAMES_CUDA.search(requirement.name) or extras != tuple(requirement.extras)
        name = requirement.name
        framework = data.framework(name) or data.installers.get(name)
        if framework is None or not names_cuda:
            continue
        new = str(requirement.replace(name=framework.name, extras=extras))
        fields = alternatives.fields_with({place: None})
        fields["frameworks"] += (new,)
        yield from alternatives.changed(f"{new} instead of {text}", [(text, new)], **fields)


def _on_the_cpu(alternatives: Alternatives) -> Iterator[Change]:
    """Yield requests for the CPU build of a framework beside others; it conflicts less.

    Such as "tensorflow-cpu==2.15.0 instead of tensorflow==2.15.0", of which TensorBoard is used.
    """
    for row in alternatives.data.rule_rows("cpu_names") if len(alternatives.texts) > 1 else ():
        for place, text in alternatives.texts.items():
            requirement = parse_requirement(text)
            if requirement.name in row.distributions and not requirement.extras:
                new = str(requirement.replace(name=str(row.value)))
                fields = alternatives.fields_with({place: None})
                fields["requirements"] += (new,)
                yield from alternatives.changed(f"{new} instead of {text}", [(text, new)], **fields)


def _other_names(alternatives: Alternatives, reasons: Sequence[Reason]) -> Iterator[Change]:
    """Yield what is meant by the names that no index has, and by those of modules: cv2."""
    data, requirements = alternatives.data, alternatives.request.requirements
    meant = {row.distributions[0]: str(row.value) for row in data.rule_rows("module_names")}
    unknown = {reason.subject for reason in reasons if reason.code == "not-in-index"}
    edits: dict[str, str] = {}
    for text in requirements:
        wrong = parse_requirement(text).name
        right = meant.get(wrong, "")
        if wrong in unknown and not right:
            right = next(iter(get_close_matches(wrong, data.names(), n=1, cutoff=_LIKE)), "")
        if right:
            edits[text] = right + text[len(wrong) :]
    if edits:
        change = " and ".join(f"{new} instead of {text}" for text, new in edits.items())
        renamed = tuple(edits.get(text, text) for text in requirements)
        yield from alternatives.changed(change, edits.items(), requirements=renamed)


def _helpful_edits(
    alternatives: Alternatives, trials: Trials, places_of_groups: Sequence[frozenset[Place]]
) -> list[Edits]:
    """Return the sets of edits that help: the fewest edits first, wider ranges before removals.

    No set contains another one.
    """
    texts = alternatives.texts
    touched = [place for place in texts if any(place in group for group in places_of_groups)]
    single: list[tuple[Place, str | None]] = []
    single += [(place, "") for place in touched if parse_requirement(texts[place]).specifier]
    if len(texts) > 1:
        single += [(place, None) for place in touched]
    helpful: list[Edits] = []
    for size in range(1, min(len(places_of_groups), MAX_EDITS) + 1):
        for chosen in combinations(single, size):
            edits = dict(chosen)
            removes_all = edits.keys() == texts.keys() and set(edits.values()) == {None}
            if len(edits) < size or removes_all:
                continue
            if not all(edits.keys() & group for group in places_of_groups):
                continue
            if any(_covers(edits, other) for other in helpful):
                continue
            solved = _solved(alternatives, trials, edits)
            if not solved:
                continue
            for place, specifier in chosen:  # the smallest change first
                asked = parse_requirement(texts[place]).specifier
                for nearer in _nearer(asked) if specifier is not None else ():
                    found = _solved(alternatives, trials, {**edits, place: nearer})
                    if found:
                        solved, edits[place] = found, nearer
                        break
            helpful.append(solved)
    return helpful


def _nearer(specifier: str) -> Iterator[str]:
    """Yield the ranges around the newest version that a specifier names, narrow ones first.

    Such as ==2.6.0, ==2.6.* and ==2.* for ==2.6.0+cu121.
    """
    plain = re.sub(r"\+[a-z0-9.]+", "", specifier)
    newest = _newest_named(plain)
    if not newest or "!" in plain.replace("!=", ""):  # an epoch
        return
    if plain != specifier:
        yield f"=={newest}"
    major, *rest = newest.split(".")
    if rest:
        yield f"=={major}.{rest[0]}.*"
    yield f"=={major}.*"


def _newest_named(specifier: str) -> str:
    """Return the newest version that a specifier names; "" if it names none."""
    return max(re.findall(r"\d+(?:\.\d+)*", specifier), key=version_key, default="")


def _covers(edits: Edits, other: Edits) -> bool:
    """Return whether edits change all that other ones do. A removal is more than a wider range."""
    return all(
        place in edits and (edits[place] is None or specifier is not None)
        for place, specifier in other.items()
    )


def _solved(alternatives: Alternatives, trials: Trials, edits: Edits) -> Edits:
    """Return edits with the versions of a solution as the new ranges; {} if there is none.

    A package can have a thousand releases. So the newest of each minor series are tried first. The
    data has the releases of the others.
    """
    request = alternatives.request.replace(**alternatives.fields_with(edits))
    requirements = requirements_of(request, alternatives.store)
    kept = [place for place, specifier in edits.items() if specifier is not None]
    names = {parse_requirement(alternatives.texts[place]).name for place in kept}
    sparse = {name for name in names if not alternatives.data.covers(name)}
    nodes: Sequence[Node] = ()
    if requirements:
        nodes = trials.nodes(requirements, sparse) or trials.nodes(requirements)
    if not nodes:
        return {}
    versions = {
        without_extras(node.identifier): public(node.version)
        for node in nodes
        if not isinstance(node, Token)
    }
    solved = dict(edits)
    for place in kept:
        for node in alternatives.nodes_of(place):
            if node in versions:
                solved[place] = f"=={versions[node]}"
    return solved


def _steps_back(texts: Mapping[Place, str], edits: Edits) -> int:
    """Return 2 if edits take an older major version than the request names, 1 for an older one."""
    step = 0
    for place, specifier in edits.items():
        newest = _newest_named(parse_requirement(texts[place]).specifier)
        taken = (specifier or "").removeprefix("==")
        if not newest or not taken:
            continue
        if version_key(taken) < version_key(newest):
            is_major = int(taken.partition(".")[0]) < int(newest.partition(".")[0])
            step = max(step, 2 if is_major else 1)
    return step


def _places_of_groups(
    alternatives: Alternatives, groups: Sequence[Roots]
) -> list[frozenset[Place]]:
    """Return the texts of the request that each group comes from."""
    places: dict[Identifier, set[Place]] = {}
    for place in alternatives.texts:
        for node in alternatives.nodes_of(place):
            places.setdefault(node, set()).add(place)
    return [
        frozenset().union(*(places.get(without_extras(root.identifier), ()) for root in group))
        for group in groups
    ]


def result_text(plan: Plan) -> str:
    """Return what a plan has: "torch 2.13.0 (cu126), tensorflow 2.21.0 (cuda)"."""
    texts = [f"{choice.framework} {choice.version} ({choice.variant})" for choice in plan.choices]
    if not texts:
        names = {parse_requirement(text).name for text in plan.request.requirements}
        wheels = [pin.wheel for pin in plan.pins if pin.wheel.name in names]
        texts = [f"{wheel.name} {wheel.version}" for wheel in wheels]
        if texts[MAX_NAMED:]:
            texts = [*texts[:MAX_NAMED], f"{len(texts) - MAX_NAMED} more"]
    text = ", ".join(texts) or quantity_text(len(plan.pins), "package")
    compiled = [warning.subject for warning in plan.warnings if warning.code == "compiled"]
    return text + (f"; sync compiles {', '.join(compiled[:MAX_NAMED])}" if compiled else "")
