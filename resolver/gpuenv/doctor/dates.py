"""Finds the years that the head of a log states, and those since which its texts exist.

A GPU that is new in the year of a log is mostly newer than a build without code for it. Later, it
is mostly older.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime

from .catalog import dated_forms
from .model import MAX_TEXT, Fact

_MAX_HEAD = 1 << 15  # bytes in which a log shows its year


def year_facts(head: bytes) -> tuple[Fact, ...]:
    """Return for each form of releases.toml the first place in the head of a log that has it."""
    text = head[:_MAX_HEAD].decode("utf-8", "replace")
    return tuple(_years(text))


def _years(text: str) -> Iterator[Fact]:
    for form in dated_forms():
        if not any(needle in text for needle in form.needles):
            continue
        match = re.search(form.pattern, text)
        if match is None:
            continue
        begin = text.rfind("\n", 0, match.start()) + 1
        line = text[begin:].partition("\n")[0].strip()
        yield Fact(
            kind="year",
            value=str(form.year or _year(match[1])),
            where=f"log line {text.count(chr(10), 0, begin) + 1}",
            text=line[:MAX_TEXT],
        )


def _year(number: str) -> int:
    """Return the year of two or four digits, or of a time in seconds since 1970."""
    if len(number) == len("25"):
        return 2000 + int(number)
    if len(number) == len("2025"):
        return int(number)
    return datetime.fromtimestamp(int(number), tz=UTC).year
