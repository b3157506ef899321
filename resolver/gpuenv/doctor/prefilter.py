"""Where in a text messages may stand: many texts are looked for at once, by ahocorasick-rs.

A message is looked for by the texts of its that are the least common: its needles, or literals that its pattern cannot
match without. What of it stands around such a place is looked at afterwards. Digits are left out of the literals, so
that lines that differ in their digits only are judged alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from .catalog import Message
from .literals import formula_of, mapped

_PARTS = str.maketrans(dict.fromkeys("0123456789", "\0"))
# In small letters, and with a space for what is none: as a pattern takes a text.
_LOWERED = bytes(10 if c == 10 else 32 if c < 32 or c == 127 else c | 32 if 65 <= c <= 90 else c for c in range(256))
# Words that say less of a place than their letters would, each with its first letter or without: names and small words
# are in every line of some logs, those of a fault in fewer.
_NAMES = "cpu cuda cudnn cudnn_status device docker driver gpu nccl nvidia pytorch tensorflow torch"
_SMALL = (
    "a above alloc available build built but compiled date found higher image in include install installed is later"
    " manager memory newer none of on only or out runtime see source system than the to use version with"
)
_FAULTS = "error failed missing need not require"


def _words(some: str) -> re.Pattern[bytes]:
    return re.compile(rb"\b(?:" + "|".join(f"{one[0]}?{one[1:]}" for one in some.split()).encode() + rb")\b")


_COMMON, _COMMON_FAULTS = _words(f"{_NAMES} {_SMALL}"), _words(_FAULTS)


class Places:
    """Of some messages, which have numbers in their order. `exact`: by needles alone, which needs no preparation.

    `of` gives the messages of a place by its index, and `tests` by a message's number whether a lowered text has what
    its pattern cannot match without.
    """

    def __init__(self, messages: Sequence[Message], *, exact: bool) -> None:
        from ahocorasick_rs import BytesAhoCorasick

        self.exact = exact
        tests, anchors = [], dict[bytes, list[int]]()
        for number, message in enumerate(messages):
            # What the lines behind a needle's hold is not known when that line is judged.
            formula = None if exact or message.lines else mapped(formula_of(message.pattern), _undigited)
            tests.append(f"lambda text: {_expression(formula)}")
            for anchor in message.needles if exact else _anchors(message, formula):
                anchors.setdefault(anchor, []).append(number)
        # Compiled it takes a tenth of the time. It is made of nothing but reprs of bytes.
        self.tests: list[Callable[[bytes], bool]] = eval(f"[{', '.join(tests)}]")  # noqa: S307
        self.of = [tuple(dict.fromkeys(some)) for some in anchors.values()]
        self.anchors = list(anchors)
        self._search = BytesAhoCorasick(self.anchors).find_matches_as_indexes
        self.numbered = sorted({needle for message in messages for needle in message.numbered})
        self._search_numbered = BytesAhoCorasick(self.numbered).find_matches_as_indexes

    def lowered(self, text: bytes) -> bytes:
        """A text as `hits` and `tests` take it."""
        return text if self.exact else text.translate(_LOWERED)

    def hits(self, lowered: bytes) -> list[tuple[int, int, int]]:
        """The places: (index in `of`, begin, end), by their ends."""
        return self._search(lowered, overlapping=True)

    def needles(self, text: bytes) -> list[tuple[int, bytes]]:
        """The places of needles, if these are exact."""
        return [(at, self.anchors[index]) for index, at, _end in self._search(text, overlapping=True)]

    def numbered_in(self, text: bytes) -> set[bytes]:
        """Those of `numbered` that a text has."""
        return {self.numbered[index] for index, _begin, _end in self._search_numbered(text, overlapping=True)}


def _expression(formula: Any) -> str:
    """Python's, of a `text`."""
    if not isinstance(formula, tuple):
        return "True" if formula is None else f"{formula!r} in text"
    every, parts = formula
    return f"({(' and ' if every else ' or ').join(map(_expression, parts))})"


def _undigited(literal: str) -> Any:
    parts = [part.encode() for part in literal.translate(_PARTS).split("\0") if part.strip()]
    return (True, tuple(parts)) if len(parts) > 1 else parts[0] if parts else None


def _anchors(message: Message, formula: Any) -> list[bytes]:
    needles = [needle.lower() for needle in message.needles]
    literals = _rarest(formula)
    return literals if _rarity(literals) > _rarity(needles) else needles


def _rarest(formula: Any) -> list[bytes]:
    """Texts of which one is in all that a formula is true of; [] for none."""
    if not isinstance(formula, tuple):
        return [] if formula is None else [formula]
    every, parts = formula
    some = [_rarest(part) for part in parts]
    if every:
        return max(some, key=_rarity)
    return [text for texts in some for text in texts] if all(some) else []


def _rarity(texts: list[bytes]) -> int:
    """The least of some texts' lengths, in which common words count little."""
    return min((_length(text) for text in texts), default=0)


def _length(text: bytes) -> int:
    words = _COMMON.sub(b"", text)
    rare = [word for word in _COMMON_FAULTS.sub(b"", words).split() if len(word) > 3]
    return len(text) + len(words.replace(b" ", b"")) + 3 * len(b"".join(rare))
