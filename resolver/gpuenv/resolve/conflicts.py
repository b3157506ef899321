"""Which of the things asked for cannot be had, or not together, and on what they part: data, not sentences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, permutations
from typing import Any

from ..compat.evaluate import is_doubt
from ..errors import GpuEnvError, PackageIndexError, Reason
from .candidates import Candidate, Shelf, Token, Variant
from .needs import AgreeNeed, DistNeed, FrameworkNeed, Need, SideNeed

Node = Candidate | Token | Variant
Roots = tuple[Need, ...]
# (needs, lenient) -> the nodes of a solution, or what stood against it
Attempt = Callable[[Sequence[Need], bool], "list[Node] | Failure"]

ASKED = "the request"
MOST_PAIRS = 6  # things asked for, up to which every two of them are tried
CODES = {"CUDA major": "cuda-major", "CUDA build": "cuda-variant", "owner of": "two-owners", "side of": "bad-pair"}


class Failure:
    """That no set of releases does; `causes` are resolvelib's."""

    def __init__(self, causes: Sequence[Any]) -> None:
        self.causes = causes


class Trials:
    """Solves parts of a request on the same shelf, each part once. After `most` of them nothing is known any more."""

    def __init__(self, attempt: Attempt, most: int) -> None:
        self._attempt, self.left = attempt, most
        self._done: dict[tuple[str, ...], list[Node] | Failure | None] = {}

    def solve(self, roots: Sequence[Need]) -> list[Node] | Failure | None:
        """The nodes, doubts let pass if they must; None if it is not known."""
        key = tuple(sorted(map(str, roots)))
        if key not in self._done:
            self._done[key] = self._solve(roots)
        return self._done[key]

    def _solve(self, roots: Sequence[Need]) -> list[Node] | Failure | None:
        found: list[Node] | Failure | None = None
        for lenient in (False, True):
            if self.left <= 0:
                return None
            self.left -= 1
            try:
                found = self._attempt(roots, lenient)
            except GpuEnvError:  # an index did not answer, or too many steps
                return None
            if not isinstance(found, Failure):
                return found
        return found

    def fails(self, roots: Sequence[Need]) -> bool:
        """Whether it is known that these have no solution together."""
        return isinstance(self.solve(roots), Failure)

    def nodes(self, roots: Sequence[Need]) -> list[Node]:
        """Those of a solution, [] if there is none."""
        found = self.solve(roots)
        return found if isinstance(found, list) else []


def conflicts(trials: Trials, roots: Sequence[Need]) -> list[Roots]:
    """The smallest groups of needs that have no solution: single ones, pairs, else one larger group.

    Of more than MOST_PAIRS needs only pairs with a framework are tried. () if too little is known.
    """
    found: list[Roots] = [(root,) for root in roots if trials.fails((root,))]
    rest = [root for root in roots if (root,) not in found]
    every = len(rest) <= MOST_PAIRS
    pairs = [pair for pair in combinations(rest, 2) if every or any(isinstance(root, FrameworkNeed) for root in pair)]
    found += [pair for pair in pairs if trials.fails(pair)]
    if found or len(roots) == 1:
        return found
    core = list(roots)
    for root in roots:
        smaller = [one for one in core if one is not root]
        if trials.fails(smaller):
            core = smaller
    return [tuple(core)] if len(core) < len(roots) or trials.fails(core) else []


def clashes(
    shelf: Shelf, trials: Trials, group: Roots, needs_of: Callable[[Any], Sequence[Need]]
) -> tuple[Reason, ...]:
    """On what the members of a group part, newest release with newest; then what their other releases say of it.

    Codes: cuda-major, cuda-variant, two-owners, bad-pair, conflict (ranges of one package that no release suits).
    """
    sides = [_Side(shelf, root, trials.nodes((root,)), needs_of) for root in group]
    found: list[Reason] = []
    for one, other in combinations(sides, 2):
        found += [reason for reason in one.against(other) if reason not in found]
    if any(reason.code in ("cuda-major", "cuda-variant") for reason in found):
        for one, other in permutations(sides, 2):
            found += [reason for reason in one.older(other) if reason not in found]
    return tuple(found)


class _Side:
    """One thing asked for, with all that its newest solution asks for: topic or name -> [(who, need)]."""

    def __init__(self, shelf: Shelf, root: Need, nodes: Sequence[Node], needs_of: Callable[[Any], Sequence[Need]]):
        self.shelf, self.root = shelf, root
        self.needs: dict[str, list[tuple[str, Need]]] = {root.ident: [(ASKED, root)]}
        mine = [node for node in nodes if node.ident == root.ident]
        self.label = _label(mine[0]) if mine else str(root)
        for node in [*mine, *(node for node in nodes if node.ident != root.ident)]:
            try:
                asked = () if isinstance(node, Token) else needs_of(node)
            except PackageIndexError:
                continue
            who = self.label if node in mine or _same(node, mine) else f"{_label(node)} (for {self.label})"
            for need in asked:
                self.needs.setdefault(need.ident, []).append((who, need))

    def against(self, other: _Side) -> Iterator[Reason]:
        """A reason for each topic on which the sides differ, and each name of which no release suits both."""
        shared = [ident for ident in self.needs if ident in other.needs]
        ranges = [row for ident in shared if ident[0] not in "=_@" for row in self._ranges(ident, other)]
        direct = [reason for near, reason in ranges if near]
        yield from direct or [reason for _, reason in ranges]
        for ident in shared:
            if ident[0] == "=" and _values(self, ident) != _values(other, ident):
                (who, need), (whose, its) = self.needs[ident][0], other.needs[ident][0]
                if isinstance(need, AgreeNeed) and isinstance(its, AgreeNeed):
                    yield self._topic((who, need), (whose, its), other)

    def _topic(self, mine: tuple[str, AgreeNeed], its: tuple[str, AgreeNeed], other: _Side) -> Reason:
        topic, code = mine[1].ident[1:], _code(mine[1])
        if code == "two-owners":
            have = f"{self._of(mine[1].value)} and {other._of(its[1].value)}"
            return Reason(code=code, subject=topic.removeprefix("owner of "), need="one owner", have=have)
        if isinstance(mine[1], SideNeed):
            need = f"only one {topic.removeprefix('side of ')}: {mine[1].text}"
            return Reason(code=code, subject=mine[0], need=need, have=its[0])
        return Reason(code=code, subject=mine[0], need=_said(mine[1]), have=f"{its[0]}, which needs {_said(its[1])}")

    def _of(self, name: str) -> str:
        """ "nvidia-cudnn-cu13==9.26.0.51 of torch 2.15.0"."""
        asked = [str(need) for _, need in self.needs.get(name, ()) if isinstance(need, DistNeed)]
        return f"{max(asked, key=len, default=name)} of {self.label}"

    def _ranges(self, ident: str, other: _Side) -> Iterator[tuple[bool, Reason]]:
        """Ranges that no release suits; whether both are asked for by the sides themselves, not by what they bring."""
        said = set()
        for who, need in self.needs[ident]:
            for whose, its in other.needs[ident]:
                if not isinstance(need, DistNeed) or not isinstance(its, DistNeed) or (str(need), str(its)) in said:
                    continue
                said.add((str(need), str(its)))
                if self._meet(need, its):
                    continue
                near = who in (self.label, ASKED) and whose in (other.label, ASKED)
                if who == ASKED:
                    yield near, Reason(code="conflict", subject=whose, need=str(its), have=f"{need}, as asked")
                else:
                    have = f"{its}, as asked" if whose == ASKED else f"{its}, which {whose} needs"
                    yield near, Reason(code="conflict", subject=who, need=str(need), have=have)

    def _meet(self, need: DistNeed, its: DistNeed) -> bool:
        if need.url or its.url:
            return need.url == its.url or not (need.url and its.url)
        ranges, contains = [one.specifier for one in (need, its) if one.specifier], self.shelf.environment.contains
        found = self.shelf.candidates(need.name)
        return any(all(contains(one, candidate.version, True) for one in ranges) for candidate in found)

    def older(self, other: _Side) -> Iterator[Reason]:
        """What the further releases of this side say on the topics of the other; of those that the host refuses why."""
        for release in self._releases():
            against = [reason for reason in _facts(self.shelf, release) if not is_doubt(reason)]
            yield from against
            if against or _label(release) == self.label:
                continue
            for need in _topics(self.shelf, release):
                rows = other.needs.get(need.ident, ())
                whose = [(who, its) for who, its in rows if isinstance(its, AgreeNeed) and its.value != need.value]
                if whose and _code(need) != "two-owners":
                    have = f"{whose[0][0]}, which needs {_said(whose[0][1])}"
                    yield Reason(code=_code(need), subject=_label(release), need=_said(need), have=have)

    def _releases(self) -> Iterator[Candidate | Variant]:
        root, contains = self.root, self.shelf.environment.contains
        found: Sequence[Candidate | Variant] = ()
        if isinstance(root, FrameworkNeed):
            found = self.shelf.variants(root.framework)
        elif isinstance(root, DistNeed) and root.url is None and self.shelf.framework_of(root.name):
            found = self.shelf.candidates(root.name)
        specifier = getattr(root, "specifier", "")
        for one in found:
            # A CPU build on a host with a GPU is no release that was passed over.
            cpu = one.build is not None and one.build.cuda is None and self.shelf.host.gpus
            if one.wheel.yanked is None and not cpu and contains(specifier, one.version, True):
                yield one


def _same(node: Node, mine: Sequence[Node]) -> bool:
    """Whether a node is the distribution of the framework itself: jax 0.12.0 of the variant jax 0.12.0 (cuda12)."""
    wheels = [one.wheel for one in mine if not isinstance(one, Token)]
    return not isinstance(node, Token) and any(node.wheel is wheel for wheel in wheels)


def _label(node: Node) -> str:
    if isinstance(node, Variant):
        return f"{node.framework.name} {node.label}"
    if isinstance(node, Candidate):
        return f"{node.name} {node.build.local if node.build else node.version}"
    return str(node)


def _code(need: AgreeNeed) -> str:
    return next((code for text, code in CODES.items() if need.ident[1:].startswith(text)), "conflict")


def _values(side: _Side, ident: str) -> set[str]:
    return {need.value for _, need in side.needs[ident] if isinstance(need, AgreeNeed)}


def _said(need: AgreeNeed) -> str:
    """ "CUDA 13"; "the CUDA build cu132 of torch"."""
    topic = need.ident[1:]
    if topic == "CUDA major":
        return f"CUDA {need.value}"
    if topic.startswith("CUDA build of "):
        return f"{topic.removeprefix('CUDA build of ')} built for {need.value}"
    return f"{topic} {need.value}"


def _facts(shelf: Shelf, release: Candidate | Variant) -> list[Reason]:
    facts = shelf.variant_facts(release) if isinstance(release, Variant) else shelf.facts(release)
    return [reason for reasons in facts.values() for reason in reasons]


def _topics(shelf: Shelf, release: Candidate | Variant) -> Iterator[AgreeNeed]:
    needs = shelf.variant_needs(release) if isinstance(release, Variant) else shelf.build_needs(release)
    for need in needs:
        if isinstance(need, AgreeNeed):
            yield need
