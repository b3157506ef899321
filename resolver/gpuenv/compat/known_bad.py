"""Releases, and pairs of releases, that are known to be bad: which of them count on a host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ..model import ComputeCapability

_SIGNS: dict[str, Callable[[list[int], list[int]], bool]] = {
    "==": list.__eq__, "<=": list.__le__, ">=": list.__ge__, "<": list.__lt__, ">": list.__gt__
}  # fmt: skip


class KnownBad:
    """The tables `bad` and `bad_pairs`, rows of distributions, versions and the verdict."""

    def __init__(self, rows: Iterable[Sequence[Any]], pairs: Iterable[Sequence[Any]]) -> None:
        """ValueError and TypeError for rows of another shape; versions are looked at when they are asked for."""
        self._rows: dict[str, list[tuple[str, tuple[str, str, str], frozenset[ComputeCapability]]]] = {}
        self._pairs: dict[str, list[tuple[str, tuple[str, str, bool, str, str, str]]]] = {}
        for names, versions, severity, text, source, capabilities in rows:
            row = (versions, (severity, text, source), frozenset((x, y) for x, y in capabilities))
            for name in names:
                self._rows.setdefault(name, []).append(row)
        for pair, first, second, several_gpus, severity, text, source in pairs:
            for side, (names, versions) in (("a", first), ("b", second)):
                for name in names:
                    found = (pair, side, several_gpus, text, source, severity)
                    self._pairs.setdefault(name, []).append((versions, found))

    def of(
        self, distribution: str, version: str, capabilities: Iterable[ComputeCapability] = ()
    ) -> tuple[str, str, str] | None:
        """(severity, text, source), the worst one, of the rows that count on devices of these capabilities."""
        rows = self._rows.get(distribution)
        if rows is None:
            return None
        here = frozenset(capabilities)
        worst: tuple[str, str, str] | None = None
        for versions, verdict, only in rows:
            if (not only or only & here) and (worst is None or worst[0] == "avoid") and within(version, versions):
                worst = verdict if worst is None or verdict[0] == "broken" else worst
        return worst

    def pairs(self, distribution: str, version: str) -> Sequence[tuple[str, str, bool, str, str, str]]:
        """(pair, side, several_gpus, text, source, severity) of each bad pair that the release is one side of."""
        rows = self._pairs.get(distribution)
        return [found for versions, found in rows if within(version, versions)] if rows else ()


def within(version: str, versions: str) -> bool:
    """Whether "9.10.0.56" is meant by "9.10.0.*", by ">=9.8,<9.10.1" or by its own name.

    Ranges compare dotted numbers, as PEP 440 does for final releases; what follows the numbers is not looked at.
    ValueError for a range of another form.
    """
    if versions.endswith(".*"):
        return f"{version}.".startswith(versions[:-1])
    if versions[:1] not in _SIGNS and versions[:2] not in _SIGNS:
        return version == versions
    release = _release(version)
    return all(_SIGNS[sign](release, _release(bound)) for sign, bound in clauses(versions))


def clauses(versions: str) -> list[tuple[str, str]]:
    """">=12.8,<13.2" -> [(">=", "12.8"), ("<", "13.2")]; "13.4.0.1" and "9.10.0.*" -> one clause without a sign.

    ValueError for anything else.
    """
    found: list[tuple[str, str]] = []
    for clause in versions.split(","):
        sign = next((one for one in (clause[:2], clause[:1]) if one in _SIGNS), "")
        bound = clause[len(sign) :]
        numbers = (bound if sign else bound.removesuffix(".*")).split(".")
        if not all(part.isascii() and part.isdigit() for part in numbers) or (not sign and clause != versions):
            raise ValueError(f"{versions!r} is no range such as >=12.8,<13.2, no 9.10.0.* and no version")
        found.append((sign, bound))
    return found


def _release(version: str) -> list[int]:
    """"13.2.0rc1" -> [13, 2]: zeros at the end make no other release."""
    numbers: list[int] = []
    for part in version.split("."):
        digits = part[: next((place for place, letter in enumerate(part) if not letter.isdigit()), len(part))]
        if digits:
            numbers.append(int(digits))
        if digits != part:
            break
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers
