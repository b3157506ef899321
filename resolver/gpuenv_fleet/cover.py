"""Find the fewest groups for items where a question decides which items may share a group.

A set of items is a bit mask. What one group can hold, a part of it can hold too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

# Returns all items that the group found for a set can hold (at least the set); None if there is no
# such group.
Find = Callable[[int], int | None]

BUDGET = 200_000  # steps of the search for a proof


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """Groups of items as bit masks. `proved` is whether there cannot be fewer."""

    groups: tuple[int, ...]
    proved: bool = True


class Family:
    """The sets that one group can hold. Each question is asked once."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._held: list[int] = []
        self._refused: list[int] = []

    def holds(self, items: int) -> bool:
        """Return whether one group can hold these items."""
        if any(items & held == items for held in self._held):
            return True
        if any(items & refused == refused for refused in self._refused):
            return False
        held = self._find(items)
        if held is None:
            self._refused.append(items)
            return False
        self._held.append(held | items)
        return True


def members(items: int) -> Iterator[int]:
    """Yield the numbers of the items in a bit mask."""
    while items:
        lowest = items & -items
        yield lowest.bit_length() - 1
        items ^= lowest


def fewest_groups(items: Sequence[int], family: Family, budget: int = BUDGET) -> Grouping:
    """Return the fewest groups that hold all items.

    Args:
        items: the numbers of the items; each fits into a group of its own.
        family: which items may share a group.
        budget: the steps after which the search ends without a proof.
    """
    groups = _first_fit(items, family)
    rivals = [next(members(group)) for group in groups]
    if _all_conflict(rivals, family):
        return Grouping(groups=tuple(groups))
    search = _Search(_most_conflicts_first(items, family), family, groups, budget)
    search.run()
    return Grouping(groups=tuple(search.best), proved=search.steps < budget)


def _first_fit(items: Sequence[int], family: Family) -> list[int]:
    """Put each item into the first group that can hold it."""
    groups: list[int] = []
    for item in items:
        for number, group in enumerate(groups):
            if family.holds(group | 1 << item):
                groups[number] |= 1 << item
                break
        else:
            groups.append(1 << item)
    return groups


def _all_conflict(items: Sequence[int], family: Family) -> bool:
    """Return whether no two items can share a group: then each needs its own."""
    for number, item in enumerate(items):
        if any(family.holds(1 << item | 1 << other) for other in items[:number]):
            return False
    return True


def _most_conflicts_first(items: Sequence[int], family: Family) -> list[int]:
    def conflicts(item: int) -> int:
        pairs = (1 << item | 1 << other for other in items if other != item)
        return sum(not family.holds(pair) for pair in pairs)

    return sorted(items, key=lambda item: -conflicts(item))


class _Search:
    """Branch and bound: an item joins a group that can hold it, or begins one."""

    def __init__(
        self, items: Sequence[int], family: Family, groups: Sequence[int], budget: int
    ) -> None:
        self.items, self.family, self.budget = items, family, budget
        self.best = list(groups)
        self.steps = 0

    def run(self) -> None:
        """Search until it is proved that there are no fewer groups, or the budget is spent."""
        self._place(0, [])

    def _place(self, number: int, groups: list[int]) -> None:
        self.steps += 1
        if self.steps >= self.budget or len(groups) >= len(self.best):
            return
        if number == len(self.items):
            self.best = list(groups)
            return
        item = 1 << self.items[number]
        for index, group in enumerate(groups):
            if self.family.holds(group | item):
                groups[index] = group | item
                self._place(number + 1, groups)
                groups[index] = group
        groups.append(item)
        self._place(number + 1, groups)
        groups.pop()
