"""The way without conflicts: what resolvelib would choose as long as it need not go back, at a fraction of the cost.

Most requests run into no conflict at all. Then resolvelib's states, copies and repeated checks serve nothing, and its
import alone takes longer than all the choices. `walk` makes the same choices in the same order, by the same answers of
the provider, and gives up where resolvelib would take a choice back; tests/test_straight.py holds the two together.
"""

from __future__ import annotations

from .needs import Need
from .provider import Node, Provider

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes three milliseconds
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any


class Info:
    """Who asked for what; None is the user."""

    __slots__ = ("parent", "requirement")

    def __init__(self, requirement: Need, parent: Node | None):
        self.requirement, self.parent = requirement, parent


class _View:
    """What the provider may look at: a mapping whose values are made when they are asked for."""

    __slots__ = ("extra", "rows")

    def __init__(self, rows: Mapping[str, list[Info]], extra: Mapping[str, list[Need]]):
        self.rows, self.extra = rows, extra

    def __getitem__(self, name: str) -> Iterator[Need]:
        return iter([*(info.requirement for info in self.rows.get(name, ())), *self.extra.get(name, ())])

    def get(self, name: str, default: object = None) -> object:
        return self[name] if name in self.rows or name in self.extra else default


class _Nothing(dict[str, object]):
    """Nothing was excluded yet."""

    def __missing__(self, name: str) -> Iterator[Node]:
        return iter(())


def walk(provider: Provider, roots: Sequence[Need]) -> list[Node] | None:
    """The chosen nodes, in the order of choice; None if a choice would have to be taken back, or nothing fits."""
    asked: dict[str, Any] = {}  # name -> [Info]
    excluded: Any = _Nothing()
    matches: dict[str, Sequence[Node] | Callable[[], Iterator[Node]]] = {}
    pins: dict[str, Node] = {}
    ranks: dict[str, Any] = {}

    def add(needs: Sequence[Need], parent: Node | None) -> bool | None:
        """Adds what a node asks for; False if some of it cannot be had, None if a choice would be taken back."""
        new: dict[str, list[Need]] = {}
        found: dict[str, Sequence[Node] | Callable[[], Iterator[Node]]] = {}
        for need in needs:
            name = need.ident
            pin = pins.get(name)
            new.setdefault(name, []).append(need)
            if pin is not None and provider.is_satisfied_by(need, pin):
                continue
            view: Any = _View(asked, new)
            found[name] = one = provider.find_matches(name, view, excluded)
            if next(iter(one() if callable(one) else one), None) is None:
                return False
            if pin is not None:
                return None
        for name, more in new.items():
            asked.setdefault(name, []).extend(Info(need, parent) for need in more)
            ranks.pop(name, None)
        matches.update(found)
        return True

    def rank(name: str) -> Any:
        if name not in ranks:
            ranks[name] = provider.get_preference(name, pins, {}, asked, ())
        return ranks[name]

    for root in roots:
        if not add([root], None):
            return None
    while open_names := [name for name in asked if name not in pins]:
        if len(open_names) > 1:
            open_names = list(provider.narrow_requirement_selection(open_names, pins, {}, asked, ()))
        name = min(open_names, key=rank) if len(open_names) > 1 else open_names[0]
        one = matches[name]
        for node in one() if callable(one) else one:
            done = add(tuple(provider.get_dependencies(node)), node)
            if done is None:
                return None
            if done:
                pins[name] = node
                break
        else:
            return None
    return list(pins.values())
