"""Finds quickly which lines of a text may hold a message.

Searching every pattern in every line is too slow. `literal_search` finds all literals of all
messages in one pass; only a line with a literal of a message is searched with its pattern.

The literals of a message are its needles, or literals that its pattern cannot match without,
whichever are rarer in logs. They are taken from the pattern itself, so that both stay consistent.
Digits are left out of them, so that lines that differ only in digits get the same answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cache, partial
from importlib import import_module
from typing import Any

from ..model import Value
from .catalog import Message

_DIGITS = re.compile("[0-9]")
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")


def _lowered_byte(byte: int) -> int:
    if ord("A") <= byte <= ord("Z"):
        return byte | 32
    is_control = byte < 32 or byte == 127
    if is_control and byte != ord("\n"):
        return ord(" ")
    return byte


# Small letters, and spaces for control characters, as patterns see a text.
_LOWERED = bytes(_lowered_byte(byte) for byte in range(256))

# Words that are common in logs, so that a literal with them is less rare than its length suggests.
# They match with or without their first letter. Some logs have a name or a small word in every
# line; words of failures are in fewer lines.
_NAMES = "cpu cuda cudnn cudnn_status device docker driver gpu nccl nvidia pytorch tensorflow torch"
_SMALL_WORDS = (
    "a above alloc available build built but compiled date found higher image in include install"
    " installed is later manager memory newer none of on only or out runtime see source system than"
    " the to use version with"
)
_FAILURES = "error failed missing need not require"


def _word_pattern(words: str) -> re.Pattern[bytes]:
    alternatives = "|".join(f"{word[0]}?{word[1:]}" for word in words.split())
    return re.compile(rb"\b(?:" + alternatives.encode() + rb")\b")


_COMMON_WORDS = _word_pattern(f"{_NAMES} {_SMALL_WORDS}")
_FAILURE_WORDS = _word_pattern(_FAILURES)


# ---- what a pattern needs -----------------------------------------------------------------------


class Literal(Value):
    """A text in small letters that must occur."""

    text: str


class AllOf(Value):
    """Every part must hold."""

    parts: tuple[Formula, ...]


class AnyOf(Value):
    """At least one part must hold."""

    parts: tuple[Formula, ...]


Formula = Literal | AllOf | AnyOf


def needed_literals(pattern: str) -> Formula | None:
    """Return the literals that a text must hold for a pattern to match, whatever its case.

    Returns:
        None if there are none, or if this Python does not offer its parser of patterns.
    """
    try:
        from re import _parser  # type: ignore[attr-defined]
    except ImportError:
        return None
    return _of_sequence(_parser.parse(pattern))


def _of_sequence(items: Iterable[tuple[object, Any]]) -> Formula | None:
    """Return what a parsed sequence needs. Its items are (operation, argument) pairs of `re`."""
    parts: list[Formula] = []
    run = ""
    for operation, argument in items:
        name = str(operation)
        if name == "LITERAL":
            run += chr(argument).lower()
        elif name != "AT":  # an anchor has no width: the characters around it are adjacent
            part = _of_item(name, argument)
            if run:
                parts.append(Literal(text=run))
                run = ""
            if part is not None:
                parts.append(part)
    if run:
        parts.append(Literal(text=run))
    return _all_of(parts)


def _of_item(name: str, argument: Any) -> Formula | None:
    if name == "SUBPATTERN":
        return _of_sequence(argument[-1])
    if name == "ATOMIC_GROUP":
        return _of_sequence(argument)
    if name in _REPEATS and argument[0] >= 1:
        return _of_sequence(argument[2])
    if name == "BRANCH":
        return _any_of([_of_sequence(branch) for branch in argument[1]])
    return None


def _all_of(parts: Sequence[Formula]) -> Formula | None:
    if not parts:
        return None
    if len(parts) == 1:
        return parts[0]
    return AllOf(parts=tuple(dict.fromkeys(parts)))


def _any_of(parts: Sequence[Formula | None]) -> Formula | None:
    needed = [part for part in parts if part is not None]
    if len(needed) < len(parts):
        return None  # one branch needs nothing
    if not needed:
        return None
    if len(needed) == 1:
        return needed[0]
    return AnyOf(parts=tuple(dict.fromkeys(needed)))


def _without_digits(formula: Formula | None) -> Formula | None:
    """Return the formula without digits: "cudnn64_8" becomes "cudnn" and "_"."""
    if isinstance(formula, Literal):
        texts = [text for text in _DIGITS.split(formula.text) if text.strip()]
        return _all_of([Literal(text=text) for text in texts])
    if isinstance(formula, AllOf):
        kept = [part for part in map(_without_digits, formula.parts) if part is not None]
        return _all_of(kept)
    if isinstance(formula, AnyOf):
        changed = [_without_digits(part) for part in formula.parts]
        return _any_of(changed)
    return None


def _expression(formula: Formula | None) -> str:
    """Return the formula as a Python expression about the bytes `text`.

    `find` takes half of the time of `in`, which raises an error inside for bytes.
    """
    if formula is None:
        return "True"
    if isinstance(formula, Literal):
        return f"text.find({formula.text.encode()!r}) >= 0"
    operator = " and " if isinstance(formula, AllOf) else " or "
    return f"({operator.join(map(_expression, formula.parts))})"


# ---- the search ---------------------------------------------------------------------------------


Places = list[tuple[int, int, int]]


def literal_search(literals: Sequence[bytes], *, prepared: bool) -> Callable[[bytes], Places]:
    """Return a function that finds all occurrences of literals in a text, overlapping ones too.

    It returns (index of the literal, begin, end), sorted by the ends.

    Args:
        literals: the texts to search for.
        prepared: whether to spend 40 ms on a search that is then three times as fast.
    """
    if not _has_automaton():
        return partial(find_each, literals)
    from ahocorasick_rs import BytesAhoCorasick, Implementation

    kind = Implementation.DFA if prepared else Implementation.NoncontiguousNFA
    automaton = BytesAhoCorasick(literals, implementation=kind)
    return partial(automaton.find_matches_as_indexes, overlapping=True)


@cache
def _has_automaton() -> bool:
    """Whether ahocorasick-rs can be imported. It has no wheel for every Python."""
    try:
        import_module("ahocorasick_rs")
    except ImportError:
        return False
    return True


def find_each(literals: Sequence[bytes], text: bytes) -> Places:
    """Return what `literal_search` finds. Read the text once for each literal."""
    places = []
    for index, literal in enumerate(literals):
        begin = text.find(literal)
        while begin >= 0:
            places.append((index, begin, begin + len(literal)))
            begin = text.find(literal, begin + 1)
    return sorted(places, key=lambda place: (place[2], place[1]))


class Prefilter:
    """Searches a text for the literals of messages, which are numbered by their order.

    Attributes:
        exact: the literals are the needles alone, which needs no preparation.
        messages_of: for each literal, by its index, the numbers of its messages.
        tests: for each message, a test whether a lowered text has all that its pattern needs.
    """

    def __init__(self, messages: Sequence[Message], *, exact: bool) -> None:
        """Prepare the search; without `exact`, this takes some milliseconds."""
        self.exact = exact
        expressions = []
        numbers_of: dict[bytes, list[int]] = {}
        for number, message in enumerate(messages):
            formula = None
            # A message of several lines is tested by its first line alone, so it has no formula.
            if not exact and not message.lines:
                formula = _without_digits(needed_literals(message.pattern))
            expressions.append(f"lambda text: {_expression(formula)}")
            for literal in message.needles if exact else _search_literals(message, formula):
                numbers_of.setdefault(literal, []).append(number)
        # Compiled expressions take a tenth of the time of a walk over the formulas. They consist
        # of reprs of bytes only.
        source = f"[{', '.join(expressions)}]"
        self.tests: list[Callable[[bytes], bool]] = eval(source)  # noqa: S307
        self.messages_of = [tuple(dict.fromkeys(numbers)) for numbers in numbers_of.values()]
        self._literals = list(numbers_of)
        self._search = literal_search(self._literals, prepared=not exact)
        self._numbered = sorted({needle for message in messages for needle in message.numbered})
        self._search_numbered = literal_search(self._numbered, prepared=False)

    def lowered(self, text: bytes) -> bytes:
        """Return a text in the form that `hits` and `tests` take."""
        return text if self.exact else text.translate(_LOWERED)

    def hits(self, lowered: bytes) -> Places:
        """Return the places of literals, ordered by their ends: (index, begin, end)."""
        return self._search(lowered)

    def needles(self, text: bytes, wanted: Collection[bytes]) -> list[tuple[int, bytes]]:
        """Return the places of wanted needles, in their order: (begin, needle). Needs `exact`."""
        if not _has_automaton():  # the time grows with the number of needles
            literals = list(wanted)
            return sorted((begin, literals[index]) for index, begin, _ in find_each(literals, text))
        places = [(begin, self._literals[index]) for index, begin, _end in self._search(text)]
        return sorted([place for place in places if place[1] in wanted])

    def numbered_in(self, text: bytes) -> set[bytes]:
        """Return the needles with digits that a text has."""
        return {self._numbered[index] for index, _begin, _end in self._search_numbered(text)}


def _search_literals(message: Message, formula: Formula | None) -> list[bytes]:
    """Return the literals to search for: of the needles and the pattern's literals, the rarer."""
    needles = [needle.lower() for needle in message.needles]
    literals = _rarest_literals(formula)
    return max(needles, literals, key=_rarity)


def _rarest_literals(formula: Formula | None) -> list[bytes]:
    """Return literals of which every matching text holds at least one; [] if there are none."""
    if formula is None:
        return []
    if isinstance(formula, Literal):
        return [formula.text.encode()]
    choices = [_rarest_literals(part) for part in formula.parts]
    if isinstance(formula, AllOf):
        return max(choices, key=_rarity)
    if not all(choices):
        return []
    return [literal for literals in choices for literal in literals]


def _rarity(literals: Iterable[bytes]) -> int:
    """Return the rarity of the most common of the literals; 0 for none."""
    return min(map(_rarity_of_literal, literals), default=0)


def _rarity_of_literal(literal: bytes) -> int:
    """Return a literal's length, in which common words count less and rare ones more."""
    words = _COMMON_WORDS.sub(b"", literal)
    rare = [word for word in _FAILURE_WORDS.sub(b"", words).split() if len(word) > 3]
    return len(literal) + len(words.replace(b" ", b"")) + 3 * len(b"".join(rare))
