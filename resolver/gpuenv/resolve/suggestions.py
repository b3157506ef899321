"""The smallest changes of a request or a host that make it solvable; each was solved before it is offered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, islice

from ..compat import what_if
from ..compat.data import CompatibilityData
from ..errors import Change, Reason
from ..model import Host, Plan, Request
from ..requirements.target import normalize_name, parse_requirement
from .conflicts import Roots, Trials
from .needs import Need

MOST = 6
TRIED_GPUS = 6  # compute capabilities of which one may help
TRIED_PYTHONS = 4
# What nothing but the request can change.
_ASKED = frozenset({"no-version", "not-in-index", "yanked", "hash"})
_DRIVER = frozenset({"driver-floor", "driver-floor-unknown", "ptx-needs-newer-driver", "gpu-dropped-by-driver"})
_DEVICE = frozenset({"no-code-for-device", "code-unknown", "cpu-build", "needs-gpu", "known-broken"}) | _DRIVER
_PYTHON = frozenset({"no-wheel-for-target", "no-wheel", "requires-python", "only-sdist", "conflict", "cuda-variant"})

Edit = tuple[str, int, bool]  # "frameworks" or "requirements", which of them, whether it is left out or only widened
Retry = Callable[[Request, Host], Plan | None]


class Asked:
    """What is to be changed: the request on the host, how a changed one becomes needs, and how it is solved."""

    def __init__(
        self,
        request: Request,
        host: Host,
        matrix: CompatibilityData,
        needs: Callable[[Request], Sequence[Need]],
        retry: Retry,
    ) -> None:
        self.request, self.host, self.matrix, self.needs, self.retry = request, host, matrix, needs, retry
        self.parts: Sequence[Request] = ()

    def there(self, host: Host) -> Plan | None:
        """The plan for the request on another host; None as soon as a part of it has none there."""
        if any(self.retry(part, host) is None for part in self.parts):
            return None
        return self.retry(self.request, host)


def smallest_changes(
    asked: Asked, trials: Trials, groups: Sequence[Roots], reasons: Iterable[Reason]
) -> Iterator[Change]:
    """At most MOST changes, each alone enough: first of what is asked, then of the interpreter, the driver, the GPU.

    `groups` are the needs that have no solution together; an edit of the request must touch each of them. What the
    host is does not matter where a group fails for what was asked alone (`reasons` tell).
    """
    return islice(_all(asked, trials, groups, {reason.code for reason in reasons}), MOST)


def _all(asked: Asked, trials: Trials, groups: Sequence[Roots], codes: set[str]) -> Iterator[Change]:
    request, host = asked.request, asked.host
    asked.parts = _parts(asked, groups)
    if request.default_index_only:
        changed = request.replace(default_index_only=False)
        yield from _offer(asked, "leave out --default-index-only", changed, host)
    edits = _edits(asked, trials, groups)
    yield from _edited(asked, [one for one in edits if not any(out for _, _, out in one)])
    for text in request.constraints[:MOST]:
        rest = tuple(one for one in request.constraints if one != text)
        yield from _offer(asked, f"without the constraint {text}", request.replace(constraints=rest), host)
    if not codes & _ASKED:
        yield from _of_host(asked, codes)
    yield from _edited(asked, [one for one in edits if any(out for _, _, out in one)])
    if not codes & _ASKED and codes & _DEVICE:
        yield from _of_gpu(asked)


def _of_host(asked: Asked, codes: set[str]) -> Iterator[Change]:
    host = asked.host
    if codes & _PYTHON:
        yield from _first(asked, list(what_if.pythons(host))[:TRIED_PYTHONS])
    if codes & _DRIVER:
        newer = what_if.drivers(host, asked.matrix)
        # Each driver allows what an older one does: the newest tells whether any helps, halving finds the oldest.
        if newer and asked.there(newer[-1].host) is not None:
            low, high = 0, len(newer) - 1
            while low < high:
                middle = (low + high) // 2
                if asked.there(newer[middle].host) is not None:
                    high = middle
                else:
                    low = middle + 1
            yield from _first(asked, newer[low : low + 1])


def _of_gpu(asked: Asked) -> Iterator[Change]:
    host = asked.host
    fewer = what_if.fewer_gpus(host)
    some = [change for one in fewer for change in _there(asked, one)]
    yield from some or _first(asked, list(what_if.gpus(host, asked.matrix))[:TRIED_GPUS])
    plan = asked.there(what_if.without_gpu(host).host) if host.gpus else None
    # A CUDA build would run there, too, for nothing.
    if plan is not None and plan.choices and all(choice.cuda is None for choice in plan.choices):
        yield Change(change=what_if.without_gpu(host).change, gives=gives(plan))


def _first(asked: Asked, candidates: Iterable[what_if.ChangedHost]) -> Iterator[Change]:
    for one in candidates:
        offers = list(_there(asked, one))
        if offers:
            yield from offers
            return


def _there(asked: Asked, one: what_if.ChangedHost) -> Iterator[Change]:
    plan = asked.there(one.host)
    if plan is not None:
        yield Change(change=one.change, gives=gives(plan))


def _offer(asked: Asked, text: str, request: Request, host: Host) -> Iterator[Change]:
    plan = asked.retry(request, host)
    if plan is not None:
        yield Change(change=text, gives=gives(plan))


def gives(plan: Plan) -> str:
    """ "torch 2.13.0 (cu126), tensorflow 2.21.0 (cuda)"."""
    chosen = [f"{choice.framework} {choice.version} ({choice.variant})" for choice in plan.choices]
    return ", ".join(chosen) or ", ".join(_asked_pins(plan)) or f"{len(plan.pins)} packages"


def _asked_pins(plan: Plan) -> list[str]:
    names = {parse_requirement(text).name for text in plan.request.requirements}
    return [f"{pin.wheel.name} {pin.wheel.version}" for pin in plan.pins if pin.wheel.name in names]


# ---- edits of the request -----------------------------------------------------------------------------------------


def _edits(asked: Asked, trials: Trials, groups: Sequence[Roots]) -> list[tuple[Edit, ...]]:
    """The sets of edits that help, fewest first, widening before leaving out; none contains another."""
    texts, involved = _texts(asked.request), _involved(asked, groups)
    wide: list[Edit] = [(field, i, False) for field, i, text in texts if parse_requirement(text).specifier]
    out: list[Edit] = [(field, i, True) for field, i, _ in texts] if len(texts) > 1 else []
    touched = frozenset().union(*involved)
    single = [edit for edit in (*wide, *out) if edit[:2] in touched]
    good: list[tuple[Edit, ...]] = []
    for size in range(1, min(len(involved), 3) + 1):
        for chosen in combinations(single, size):
            places = {edit[:2] for edit in chosen}
            if len(places) < size or (len(places) == len(texts) and all(edit[2] for edit in chosen)):
                continue
            if any(_covers(chosen, other) for other in good) or not all(places & group for group in involved):
                continue
            needs = asked.needs(_changed(asked.request, chosen))
            if needs and trials.nodes(needs):
                good.append(chosen)
    return good


def _texts(request: Request) -> list[tuple[str, int, str]]:
    texts = [("frameworks", i, text) for i, text in enumerate(request.frameworks)]
    return texts + [("requirements", i, text) for i, text in enumerate(request.requirements)]


def _involved(asked: Asked, groups: Sequence[Roots]) -> list[frozenset[tuple[str, int]]]:
    """Which texts of the request each group comes from."""
    names = {_ident(asked, field, text): (field, i) for field, i, text in _texts(asked.request)}
    return [frozenset(names[key] for root in group if (key := root.ident.lstrip("@")) in names) for group in groups]


def _parts(asked: Asked, groups: Sequence[Roots]) -> list[Request]:
    """The groups as requests of their own, where they are less than the whole: what they lack fails sooner."""
    everything = _texts(asked.request)
    parts = []
    for places in _involved(asked, groups):
        rest = [(field, i, True) for field, i, _ in everything if (field, i) not in places]
        if places and rest:
            parts.append(_changed(asked.request, rest))
    return parts


def _covers(chosen: Sequence[Edit], other: Sequence[Edit]) -> bool:
    """Whether a set of edits changes all that another one does, and more; to leave out is more than to widen."""
    mine = {edit[:2]: edit[2] for edit in chosen}
    return all(edit[:2] in mine and (mine[edit[:2]] or not edit[2]) for edit in other)


def _ident(asked: Asked, field: str, text: str) -> str:
    """What the needs of a text are called."""
    parsed = parse_requirement(text)
    framework = asked.matrix.framework(parsed.name) if field == "frameworks" else None
    several = framework is not None and [way.variant for way in framework.ways] != ["*"]
    return parsed.name if framework is None or several else normalize_name(framework.distribution)


def _changed(request: Request, edits: Iterable[Edit]) -> Request:
    rows: dict[str, list[str | None]] = {
        "frameworks": [*request.frameworks],
        "requirements": [*request.requirements],
    }
    for field, place, out in edits:
        text = rows[field][place] or ""
        rows[field][place] = None if out else str(parse_requirement(text).replace(specifier=""))
    kept = {field: tuple(text for text in texts if text is not None) for field, texts in rows.items()}
    return request.replace(**kept)


def _edited(asked: Asked, found: Sequence[tuple[Edit, ...]]) -> Iterator[Change]:
    for edits in found:
        plan = asked.retry(_changed(asked.request, edits), asked.host)
        if plan is not None:
            text = " and ".join(_said(asked.request, edit, plan) for edit in edits)
            yield Change(change=text, gives=gives(plan))


def _said(request: Request, edit: Edit, plan: Plan) -> str:
    """ "torch 2.13.0 instead of torch==2.15.0"; "without numpy<1"."""
    field, place, out = edit
    text = (request.frameworks if field == "frameworks" else request.requirements)[place]
    if out:
        return f"without {text}"
    name = parse_requirement(text).name
    versions = {choice.framework: choice.version for choice in plan.choices} if field == "frameworks" else {}
    versions = {pin.wheel.name: pin.wheel.version for pin in plan.pins} | versions
    return f"{name} {versions[name]} instead of {text}" if name in versions else f"any version of {name}"
