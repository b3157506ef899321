"""The text and the JSON document of the checks of an environment."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..model import Check
from .text import Line, Meaning

MARKS = {"pass": "ok  ", "fail": "FAIL", "unknown": "?   "}
MEANINGS: Mapping[str, Meaning] = {"pass": "good", "fail": "bad", "unknown": "doubt"}
CHECK_FIELDS = ("name", "subject", "status", "evidence", "seconds")
# The checks of one part, by their names. Any other name is a part of its own, such as torch.
PARTS = {
    "interpreter": "packages",
    "versions": "packages",
    "glibc": "packages",
    "rules": "packages",
    "build": "packages",
    "owners": "packages",
    "files": "packages",
    "closure": "libraries",
    "loader": "libraries",
    "cudnn": "libraries",
}


def summary_lines(checks: Sequence[Check], *, next_step: str = "") -> list[str]:
    """Return the verdict, then a line for each part, and every check that did not pass.

    Args:
        checks: the checks.
        next_step: what to type next if something is not verified.
    """
    parts: dict[str, list[Check]] = {}
    for check in checks:
        parts.setdefault(PARTS.get(check.name, check.name), []).append(check)
    width = max(map(len, _shown_names(parts)), default=0)
    lines: list[str] = [verdict_line(checks)]
    for part, members in parts.items():
        lines += _part_lines(part, members, width)
    if next_step and not ok(checks):
        lines.append(f"next: {next_step}")
    return lines


def _shown_names(parts: Mapping[str, Sequence[Check]]) -> Iterator[str]:
    for part, checks in parts.items():
        yield part
        if len(checks) > 1:
            yield from (_inner_name(check) for check in checks if check.status != "pass")


def _part_lines(part: str, checks: Sequence[Check], width: int) -> Iterator[str]:
    if len(checks) == 1:
        yield from _lines(checks[0], part, width)
        return
    counts = _counts(checks)
    status = next(status for status in ("fail", "unknown", "pass") if counts[status])
    if status == "pass":
        names = ", ".join(map(_short_name, checks))
        yield _line(status, part, width, f"{len(checks)} checks passed: {names}")
        return
    yield _line(status, part, width, f"{counts['pass']} of {len(checks)} checks passed")
    for check in checks:
        if check.status != "pass":
            yield from _lines(check, _inner_name(check), width)


def _short_name(check: Check) -> str:
    """Return the name of a check within its part."""
    if check.name in PARTS or not check.subject:
        return f"{check.name} {check.subject}".strip()
    return check.subject


def _inner_name(check: Check) -> str:
    return f"  {_short_name(check)}"


def check_lines(checks: Sequence[Check], *, next_step: str = "") -> list[str]:
    """Return a line for each check with its evidence, and then the verdict.

    Args:
        checks: the checks.
        next_step: what to type next if something is not verified.
    """
    names = [f"{check.name} {check.subject}".strip() for check in checks]
    width = max(map(len, names), default=0)
    lines: list[str] = []
    for check, name in zip(checks, names, strict=True):
        lines += _lines(check, name, width)
    lines.append(verdict_line(checks))
    if next_step and not ok(checks):
        lines.append(f"next: {next_step}")
    return lines


def _lines(check: Check, name: str, width: int) -> Iterator[str]:
    first, *rest = check.evidence.split(os.linesep)
    yield _line(check.status, name, width, first)
    for line in rest:
        yield Line(f"{'':{width + 5}} {line}", hang=width + 6)


def _line(status: str, name: str, width: int, text: str) -> Line:
    mark = MARKS[status]
    line = f"{mark} {name:<{width}} {text}".rstrip()
    return Line(line, MEANINGS[status], marked=len(mark), hang=width + 6)


def verdict_line(checks: Sequence[Check]) -> Line:
    """Return the line that says whether the environment is verified, with the totals."""
    counts = _counts(checks)
    totals = f"{counts['pass']} passed, {counts['fail']} failed, {counts['unknown']} unknown"
    if ok(checks):
        return Line(f"verified: {totals}", "good", marked=len("verified"))
    return Line(f"NOT verified: {totals}", "bad", marked=len("NOT verified"))


def _counts(checks: Sequence[Check]) -> Mapping[str, int]:
    counts = dict.fromkeys(MARKS, 0)
    for check in checks:
        counts[check.status] += 1
    return counts


def ok(checks: Sequence[Check]) -> bool:
    """Return whether there are checks, none failed, and every visible GPU was proved to work.

    An unknown result is neither proof nor failure. But a device that is full or busy shows nothing
    about the environment, so that an unknown result of a device is not enough.
    """
    for check in checks:
        unproved_device = check.name == "device" and check.subject and check.status == "unknown"
        if check.status == "fail" or unproved_device:
            return False
    return bool(checks)


def checks_json(checks: Sequence[Check]) -> dict[str, Any]:
    """Return the document of `verify --json`."""
    return {"ok": ok(checks), "checks": list(map(_check_json, checks))}


def _check_json(check: Check) -> dict[str, object]:
    return {field: getattr(check, field) for field in CHECK_FIELDS}
