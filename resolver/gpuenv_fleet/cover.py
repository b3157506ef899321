"""Find the fewest groups for items where a question decides which items may share a group.

A set of items is a bit mask. What one group can hold, a part of it can hold too.
"""

from __future__ import annotations

import itertools
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
    first: list[int] = []  # each item in the first group that can hold it
    for item in items:
        for number, group in enumerate(first):
            if family.holds(group | 1 << item):
                first[number] |= 1 << item
                break
        else:
            first.append(1 << item)
    rivals = [next(members(group)) for group in first]
    if not any(family.holds(1 << a | 1 << b) for a, b in itertools.combinations(rivals, 2)):
        return Grouping(groups=tuple(first))  # no two of them share a group: each needs its own

    def conflicts(item: int) -> int:
        return sum(not family.holds(1 << item | 1 << other) for other in items if other != item)

    ordered = sorted(items, key=conflicts, reverse=True)
    best, steps = first, 0

    def place(number: int, groups: list[int]) -> None:
        """Branch and bound: an item joins a group that can hold it, or begins one."""
        nonlocal best, steps
        steps += 1
        if steps >= budget or len(groups) >= len(best):
            return
        if number == len(ordered):
            best = groups
            return
        item = 1 << ordered[number]
        for index, group in enumerate(groups):
            if family.holds(group | item):
                place(number + 1, [*groups[:index], group | item, *groups[index + 1 :]])
        place(number + 1, [*groups, item])

    place(0, [])
    return Grouping(groups=tuple(best), proved=steps < budget)
