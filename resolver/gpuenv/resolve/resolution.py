"""The resolution itself: straight where nothing conflicts, by resolvelib where something does, narrowed where it would
lose its way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import InputError
from .needs import DistNeed, Need
from .provider import Node, Provider
from .selection import WiderError

SOON = 300  # steps of resolvelib after which the request is narrowed first
MAX_TRIED = 20_000  # releases tried while narrowing
MAX_COMBINATIONS = 50  # of frameworks that resolvelib is given
MAX_ROUNDS = 20_000


class Impossible(Exception):  # noqa: N818  it is an answer
    """No set of releases does. `causes` have a `requirement` and a `parent`, as resolvelib names them."""

    def __init__(self, causes: Sequence[Any]) -> None:
        super().__init__(causes)
        self.causes = causes


def resolved(provider: Provider, roots: Sequence[Need]) -> list[Node]:
    """What resolvelib chooses. A name that turns out to have more releases than were known makes it begin again."""
    spread = [part for need in roots for part in (need.with_base() if isinstance(need, DistNeed) else (need,))]
    several = len(provider.order) > 1  # frameworks
    while True:
        try:
            if several and (found := _frameworks_first(provider, spread)):
                return found
            return _with_conflicts(provider, spread)
        except WiderError:
            provider = provider.again()


def _frameworks_first(provider: Provider, needs: Sequence[Need]) -> list[Node] | None:
    """The best combination of frameworks, and straight on with it; None if that is not to be seen at once.

    Several frameworks nearly always conflict, about the CUDA major or cuDNN, and what they pin shows it. Impossible if
    there is no combination and a second, lenient resolution will look again: only of the last one are the causes told.
    """
    from .propagation import LostError, combinations

    try:
        for within in combinations(_fresh(provider), needs, MAX_TRIED, shallow=True):
            return _tried(_fresh(provider, within), needs, SOON)
    except (LostError, Impossible):
        return None
    if not provider.lenient:
        raise Impossible(())
    return None


def _with_conflicts(provider: Provider, needs: Sequence[Need]) -> list[Node]:
    """resolvelib for a few steps, which most conflicts take; then what narrowing.py leaves of the request."""
    found = _tried(provider, needs, SOON)
    if found is not None:
        return found
    from .propagation import LostError

    try:
        found = _narrowed(provider, needs)
    except LostError:
        found = _tried(_fresh(provider), needs, MAX_ROUNDS)
    if found is None:
        names = ", ".join(map(str, needs))
        raise InputError(f"no solution found in {MAX_ROUNDS} steps: narrow one of {names}")
    return found


def _narrowed(provider: Provider, needs: Sequence[Need]) -> list[Node] | None:
    """What resolvelib chooses of the best combination of frameworks that leaves it something; LostError, Impossible."""
    from .propagation import LostError, combinations

    left = combinations(_fresh(provider), needs, MAX_TRIED)
    for _ in range(MAX_COMBINATIONS):
        within = next(left, None)
        if within is None:
            raise Impossible(provider.causes)
        asked = len(provider.widening.asked)
        try:
            found = _tried(_fresh(provider, within), needs, MAX_ROUNDS // 10)
        except Impossible:  # what was left out of account stands against it
            if len(provider.widening.asked) > asked:  # and is now known to be nothing
                left = combinations(_fresh(provider), needs, MAX_TRIED)
            continue
        if found is None:
            break
        return found
    raise LostError


def _fresh(provider: Provider, within: Mapping[str, frozenset[int]] | None = None) -> Provider:
    """A provider of the same question that has seen no conflict yet."""
    fresh = provider.again()
    fresh.within = within or {}
    return fresh


def _tried(provider: Provider, needs: Sequence[Need], steps: int) -> list[Node] | None:
    """What resolvelib chooses in so many steps, None if they are too few; Impossible if there is nothing to choose."""
    # Imported here: most solves do without it, and it is a good part of their time.
    from resolvelib.reporters import BaseReporter
    from resolvelib.resolvers import ResolutionImpossible, ResolutionTooDeep, Resolver

    class Last(BaseReporter[Need, Node, str]):
        """Keeps what was chosen in the end."""

        def ending(self, state: Any) -> None:
            self.chosen: Mapping[str, Node] = state.mapping

    asked: Any = provider
    last = Last()
    try:
        return list(Resolver(asked, last).resolve(needs, max_rounds=steps).mapping.values())
    except RecursionError:  # resolvelib 1.2 walks for ever in a circle of packages that it gave up; so does pip
        return _reached(provider, needs, last.chosen)
    except ResolutionImpossible as impossible:
        raise Impossible(list(impossible.causes)) from None
    except ResolutionTooDeep:
        return None


def _reached(provider: Provider, needs: Sequence[Need], chosen: Mapping[str, Node]) -> list[Node]:
    """Of what was chosen all that somebody asked for."""
    names, waiting = set[str](), [need.ident for need in needs]
    while waiting:
        name = waiting.pop()
        if name not in names:
            names.add(name)
            waiting += [need.ident for need in provider.get_dependencies(chosen[name])]
    return [node for name, node in chosen.items() if name in names]
