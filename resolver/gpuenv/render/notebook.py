"""HTML of values for notebooks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from ..doctor.diagnosis import Examination
from ..model import Checks, Plan
from .checks import summary_lines
from .doctor import doctor_lines
from .plans import plan_lines, summary_text
from .text import Line, Meaning

STYLES: Mapping[Meaning, str] = {
    "headline": "font-weight: bold",
    "good": "color: green",
    "bad": "color: firebrick; font-weight: bold",
    "doubt": "color: darkgoldenrod",
}


def to_html(value: object) -> str | None:
    """Return the HTML of a plan, of checks or of an examination; None for any other value."""
    if isinstance(value, Plan):
        headline = Line(summary_text(value), "headline")
        return _html([headline, *plan_lines(value, None)[1:]])
    if isinstance(value, Checks):
        return _html(summary_lines(value))
    if isinstance(value, Examination):
        name = "" if value.origin is None else "the log"
        return _html(doctor_lines(value, name))
    return None


def _html(lines: Sequence[str]) -> str:
    return f"<pre>{'<br>'.join(map(_line_html, lines))}</pre>"


def _line_html(line: str) -> str:
    style = STYLES.get(line.meaning) if isinstance(line, Line) else None
    if style is None or not isinstance(line, Line):
        return escape(line)
    marked, rest = line[: line.marked], line[line.marked :]
    return f'<span style="{style}">{escape(marked)}</span>{escape(rest)}'
