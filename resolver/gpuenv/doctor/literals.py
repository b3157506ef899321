"""What a message's pattern cannot match without: literal texts, as a formula of all and any.

A pattern is searched in a window of up to two thousand characters, whatever its case, which costs microseconds; whether
its literals stand there costs a tenth of that. The formulas are taken from the patterns themselves, so that neither can
be changed without the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes three milliseconds
    from typing import Any

# A literal in small letters, or (True for all or False for any, the parts); None: nothing is needed.
Formula = str | tuple[bool, tuple["Formula", ...]] | None  # type: ignore[operator,unused-ignore]

_PARTED = "\0"  # at an end of a literal: what stands beside it is no letter


def bare(literal: str) -> str:
    """A literal as it stands in a text; without the marks at its ends that no letter is beside it."""
    return literal.strip(_PARTED)


def formula_of(pattern: str) -> Any:
    """The literals that a text must hold for a pattern to match it, in small letters; see `bare`.

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
            parted = _parts(name, given)
            run += _PARTED if run and parted else ""
            parts += [run] if run.strip(_PARTED) else []
            run = _PARTED if parted else ""
            part = None if parted else _one_of(name, given)
            parts += [part] if part is not None else []
    parts += [run] if run.strip(_PARTED) else []
    return _joined(True, parts)


def _parts(name: str, given: Any) -> bool:
    """Whether an item is at least one character, and none of its characters is a letter."""
    if name == "SUBPATTERN":
        return len(given[-1]) == 1 and _parts(str(given[-1][0][0]), given[-1][0][1])
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return given[0] >= 1 and len(given[2]) == 1 and _parts(str(given[2][0][0]), given[2][0][1])
    if name == "IN":
        return all(_no_letter(str(kind), one) for kind, one in given)
    return name == "LITERAL" and not _lettered(given)


def _no_letter(kind: str, one: Any) -> bool:
    if kind == "CATEGORY":
        return str(one) in ("CATEGORY_DIGIT", "CATEGORY_SPACE")
    if kind == "RANGE":
        return not any(_lettered(code) for code in range(one[0], min(one[1], 128) + 1)) and one[1] < 128
    return kind == "LITERAL" and not _lettered(one)


def _lettered(code: int) -> bool:
    return code >= 128 or chr(code).isalpha() or code == 95


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
