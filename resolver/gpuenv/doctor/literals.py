"""What a message's pattern cannot match without: literal texts, as a formula of all and any.

A pattern is searched in a window of up to two thousand characters, whatever its case, which costs microseconds; whether
its literals stand there costs a tenth of that. The formulas are taken from the patterns themselves, so that neither can
be changed without the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

# A formula is a literal in small letters, (True for all or False for any, its parts), or None: nothing is needed.


def formula_of(pattern: str) -> Any:
    """The literals that a text must hold for a pattern to match it, in small letters.

    None where there are none, or where this Python does not show how it reads a pattern.
    """
    try:
        from re import _parser  # type: ignore[attr-defined]
    except ImportError:
        return None
    return _all_of(_parser.parse(pattern))


def _all_of(items: Iterable[tuple[Any, Any]]) -> Any:
    parts: list[Any] = []
    run = ""
    for operation, given in items:
        name = str(operation)
        if name == "LITERAL":
            run += chr(given).lower()
        elif name != "AT":  # a place has no width: what stands on both sides of it is together
            part = _one_of(name, given)
            parts += [some for some in (run or None, part) if some is not None]
            run = ""
    parts += [run] if run else []
    return _joined(True, parts)


def _one_of(name: str, given: Any) -> Any:
    if name == "SUBPATTERN":
        return _all_of(given[-1])
    if name == "ATOMIC_GROUP":
        return _all_of(given)
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT") and given[0] >= 1:
        return _all_of(given[2])
    if name == "BRANCH":
        parts = [_all_of(branch) for branch in given[1]]
        return None if None in parts else _joined(False, parts)
    return None


def _joined(every: bool, parts: list[Any]) -> Any:
    if len(parts) < 2:
        return parts[0] if parts else None
    return every, tuple(dict.fromkeys(parts))


def holds(formula: Any, test: Callable[[Any], bool]) -> bool:
    """Whether a formula is true, by a test of its literals (or of what stands for them)."""
    if formula is None:
        return True
    if not isinstance(formula, tuple):
        return test(formula)
    every, parts = formula
    for part in parts:  # a third faster than any() and all()
        if holds(part, test) is not every:
            return not every
    return bool(every)


def mapped(formula: Any, change: Callable[[str], Any]) -> Any:
    """A formula with something else for each literal."""
    if isinstance(formula, tuple):
        return formula[0], tuple(mapped(part, change) for part in formula[1])
    return None if formula is None else change(formula)
