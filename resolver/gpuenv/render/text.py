"""Lines with a meaning, and tables. A line is a str, so that it is its text wherever it goes."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from typing import Literal, Self

Meaning = Literal["", "headline", "good", "bad", "doubt", "command"]
_GAP = "  "
_LONGEST = 10_000  # characters of a line
_columns = 100


def columns() -> int:
    """Return the width for lines that are wrapped when they are made."""
    return _columns


def set_columns(count: int) -> None:
    """Set the width, to that of a terminal."""
    global _columns  # noqa: PLW0603  a process has one terminal
    _columns = count


class Line(str):
    """A line of text that a terminal may color and wrap.

    Attributes:
        meaning: what the color shows; "" is none. A "command" is not colored and never wrapped.
        marked: how many characters from the beginning have the color.
        hang: the column at which the line goes on after it was wrapped.
    """

    meaning: Meaning
    marked: int
    hang: int

    def __new__(
        cls, text: str, meaning: Meaning = "", *, marked: int | None = None, hang: int = 0
    ) -> Self:
        line = super().__new__(cls, text)
        line.meaning = meaning
        line.marked = len(text) if marked is None else marked
        line.hang = hang
        return line


def visible(line: str) -> str:
    """Escape the control characters of a line, and cut a line that is too long.

    Locks, logs and package data can contain control characters, which a terminal would execute.
    """
    if len(line) <= _LONGEST and line.isprintable():
        return line
    text = "".join(
        character
        if character.isprintable() or character == "\t"
        else character.encode("unicode_escape").decode()
        for character in line[:_LONGEST]
    )
    if len(line) > _LONGEST:
        text += "..."
    if isinstance(line, Line):
        return Line(text, line.meaning, marked=line.marked, hang=line.hang)
    return text


def wrap(text: str, width: int) -> list[str]:
    """Return the lines of a text on a terminal of some width.

    Words stay whole, also those that are longer than the width. Later lines are indented.
    """
    if len(text) <= width or (isinstance(text, Line) and text.meaning == "command"):
        return [text]
    indent = text[: len(text) - len(text.lstrip())]
    hang, shown = len(indent) + len(_GAP), str(text)
    if isinstance(text, Line) and text.hang:
        hang = text.hang
        if hang > width // 2:  # a row of a table that is too wide for the terminal
            cells = re.split(rf"{_GAP}+", text.strip())
            hang, shown = len(indent) + 2 * len(_GAP), indent + _GAP.join(cells)
    first, *rest = textwrap.wrap(
        shown,
        width,
        subsequent_indent=" " * hang,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )
    if isinstance(text, Line):
        first = Line(first, text.meaning, marked=text.marked)
    return [first, *rest]


def table_lines(rows: Sequence[Sequence[str]], indent: str = _GAP) -> list[str]:
    """Return the lines of a table. The first row has the titles; the last column may be wrapped.

    An empty cell is shown as "-".
    """
    rows = [[cell or "-" for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    hang = len(indent) + sum(width + len(_GAP) for width in widths)
    lines: list[str] = []
    for row in rows:
        cells = map(str.ljust, row, [*widths, 0])
        lines.append(Line((indent + _GAP.join(cells)).rstrip(), hang=hang))
    return lines
