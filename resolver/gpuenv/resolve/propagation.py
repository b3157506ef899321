"""Which releases can go together at all: the search for requests that resolvelib loses its way in.

resolvelib sees a conflict when it has chosen both sides, and tries all that it chose in between again and again: five
frameworks on an old GPU take it more than the steps that it is given. Here every name has the set of its releases that
are still possible. What all of a name's releases ask of another narrows that one's set, and a release goes that asks
for what is not left, until nothing changes (arc consistency); then a framework is chosen and the same is done again.

Looking at every release of every name takes a while, and the frameworks' own conflicts (one CUDA major, one cuDNN) show
without it: `shallow` follows only what names with one release left ask for (unit propagation).

It only rules out: names about which the network would have to be asked, and files at URLs, may be anything. What is
left is for resolvelib, which then hardly meets a conflict.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from .candidates import Candidate, Variant
from .needs import AgreeNeed, DistNeed, ExactNeed, FactNeed, FrameworkNeed, Need
from .provider import Node, Provider

Sets = dict[str, int]  # name -> its releases that are possible, as bits: the best is bit 0
Within = dict[str, frozenset[int]]  # name -> the id of each wheel, or variant of a framework, that is possible


class LostError(Exception):
    """The search took more than it may."""


def combinations(provider: Provider, roots: Sequence[Need], most: int, *, shallow: bool = False) -> Iterator[Within]:
    """What is possible beside each combination of frameworks, the best first; none if nothing is.

    The first framework of the provider's order is as good as can be in the first of them, then the second, and so on.
    LostError after `most` trials.
    """
    narrowing = _Narrowing(provider, most, shallow=shallow)
    start: Sets = {}
    for root in roots:
        mask = narrowing.mask(root)
        if mask is not None:
            start[root.ident] = start.get(root.ident, narrowing.all(root.ident)) & mask
    names = sorted((name for name in start if name in provider.order), key=provider.order.__getitem__)
    for sets in narrowing.choices(narrowing.narrowed(start, set(start)), names):
        yield narrowing.within(sets)


class _Narrowing:
    """Sets of releases, and what each release asks for as sets."""

    def __init__(self, provider: Provider, most: int, *, shallow: bool) -> None:
        self._provider, self._left, self._shallow = provider, most, shallow
        self._at_hand = provider.shelf.index.at_hand
        self._pools: dict[str, Sequence[Node]] = {}
        self._values: dict[str, dict[str, int]] = {}
        self._all: Sets = {}
        self._masks: dict[tuple[str, str], int] = {}
        self._asks: dict[tuple[str, int], Sets | None] = {}
        self._users: dict[str, set[str]] = {}

    def all(self, name: str) -> int:
        """Every release of a name that `mask` was asked about; of a topic every value."""
        return self._all.get(name, -1)

    def mask(self, need: Need) -> int | None:
        """The releases of its name that a need admits; None if it may be anything."""
        name = need.ident
        if isinstance(need, AgreeNeed):
            values = self._values.setdefault(name, {})
            return 1 << values.setdefault(need.value, len(values))
        if isinstance(need, FactNeed):
            return 0 if self._provider.blocked(need) else None
        if isinstance(need, FrameworkNeed):
            known = all(self._known(way.requires[0].partition("[")[0]) for way in need.framework.ways)
        else:
            known = not isinstance(need, DistNeed) or (not need.url and self._known(need.name))
        if not known:
            return None
        key = (name, str(need)) if not isinstance(need, ExactNeed) else (name, need.wheel.filename)
        if key not in self._masks:
            pool = self._pool(need)
            met = self._provider.is_satisfied_by
            self._masks[key] = sum(1 << i for i, node in enumerate(pool) if met(need, node))
        if not self._masks[key] and isinstance(need, DistNeed):
            ranges = [need.specifier, *self._provider.limits.ranges.get(need.name, ())]
            return None if self._provider.widening.may_help(need.name, ranges) else 0
        return self._masks[key]

    def _known(self, name: str) -> bool:
        return self._at_hand(name) and name not in self._provider.shelf.request.allow_sdist and not (
            self._provider.limits.urls.get(name)
        )  # fmt: skip

    def _pool(self, need: Need) -> Sequence[Node]:
        """Every release of a need's name that the host and the constraints admit, best first."""
        name = need.ident
        if name not in self._pools:
            provider, base = self._provider, name.partition("[")[0]
            limits = provider.limits.ranges.get(base, [])
            found: Sequence[Node]
            if isinstance(need, FrameworkNeed):
                found = provider.shelf.variants(need.framework)  # whether one is refused is asked when it is tried
            else:
                found = [
                    one
                    for one in provider.shelf.candidates(base)
                    if not provider.refused(one) and all(provider.contains(text, one.version, True) for text in limits)
                ]
                if name != base:
                    extras = tuple(name[len(base) + 1 : -1].split(","))
                    found = [provider.with_extras(one, extras) for one in found if isinstance(one, Candidate)]
            self._pools[name] = found
            self._all[name] = (1 << len(found)) - 1
        return self._pools[name]

    def _asked_by(self, name: str, number: int) -> Sets | None:
        """What a release asks for; None if it cannot be had here."""
        key = name, number
        if key not in self._asks:
            found: Sets | None = {}
            node = self._pools[name][number] if name in self._pools else None
            if isinstance(node, Variant) and self._provider.refused(node):
                found = None
            for need in self._provider.get_dependencies(node) if node is not None and found is not None else ():
                mask = self.mask(need)
                if mask is not None and found is not None:
                    self._users.setdefault(need.ident, set()).add(name)
                    found[need.ident] = found.get(need.ident, -1) & mask
                    found = found if mask else None
            self._asks[key] = found
        return self._asks[key]

    def narrowed(self, sets: Sets, changed: set[str]) -> Sets | None:
        """The sets without what cannot be, given that those of `changed` became smaller; None if one is empty."""
        sets, queue = dict(sets), set(changed)
        while queue:
            name = queue.pop()
            if self._shallow and sets[name] & (sets[name] - 1):
                continue
            kept, common = self._kept(sets, name)
            if not kept:
                return None
            if kept != sets[name]:
                sets[name] = kept
                queue |= self._users.get(name, set()) & sets.keys()
            for other, mask in common.items():
                left = sets.get(other, self.all(other)) & mask
                if sets.get(other) != left:
                    sets[other] = left
                    queue |= {other} | (self._users.get(other, set()) & sets.keys())
        return sets

    def _kept(self, sets: Sets, name: str) -> tuple[int, Sets]:
        """The releases of a name that ask for nothing that is gone, and what all of these ask for."""
        kept, common = 0, None
        for number in _bits(sets[name]):
            asks = self._asked_by(name, number)
            if asks is None or not all(sets.get(other, self.all(other)) & mask for other, mask in asks.items()):
                continue
            kept |= 1 << number
            if common is None:
                common = dict(asks)
            else:
                common = {other: mask | asks[other] for other, mask in common.items() if other in asks}
        return kept, common or {}

    def choices(self, sets: Sets | None, names: Sequence[str]) -> Iterator[Sets]:
        """The sets beside each choice of one release for all of `names`, in the order of these."""
        if sets is None or not (self._shallow or self._possible(sets)):
            return
        if not names:
            yield sets
            return
        name = names[0]
        for number in _bits(sets[name]):
            self._try(name)
            asks = self._asked_by(name, number)
            if asks is not None and all(sets.get(other, self.all(other)) & mask for other, mask in asks.items()):
                smaller = self.narrowed({**sets, name: 1 << number}, self._touched(name, sets))
                yield from self.choices(smaller, names[1:])

    def _try(self, name: str) -> None:
        self._left -= 1
        if self._left < 0:
            raise LostError(name)

    def _possible(self, sets: Sets) -> bool:
        """Whether there is a choice for every name."""
        open_names = [name for name, mask in sets.items() if mask & (mask - 1)]
        if not open_names:
            return True
        name = min(open_names, key=lambda one: (sets[one].bit_count(), one))
        for number in _bits(sets[name]):
            self._try(name)
            smaller = self.narrowed({**sets, name: 1 << number}, self._touched(name, sets))
            if smaller is not None and self._possible(smaller):
                return True
        return False

    def _touched(self, name: str, sets: Sets) -> set[str]:
        if self._shallow:
            return {name}
        return {name} | (self._users.get(name, set()) & sets.keys())

    def within(self, sets: Sets) -> Within:
        """The sets for the provider."""
        found: Within = {}
        for name, mask in sets.items():
            if name in self._pools and "[" not in name:
                nodes = [self._pools[name][number] for number in _bits(mask)]
                found[name] = frozenset(
                    id(node.wheel) if isinstance(node, Candidate) else id(node) for node in nodes
                )  # fmt: skip
        return found



def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
