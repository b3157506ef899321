"""Releases, and pairs of releases, that are known to be bad, and which of them count on a host."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..model import ComputeCapability

# (severity, text, source). Severity "broken": never choose. "avoid": choose if nothing else fits.
Verdict = tuple[str, str, str]
# (pair, side, several_gpus, text, source, severity) for a release on side "a" or "b" of a pair.
# Releases of both sides must not meet; with `several_gpus` only on a host with several GPUs.
BadPair = tuple[str, str, bool, str, str, str]

# (distributions, versions, severity, text, source, capabilities); no capability means all.
BadRow = tuple[Sequence[str], str, str, str, str, Sequence[Sequence[int]]]
# The side of a pair: (distributions, versions).
Side = tuple[Sequence[str], str]
# (pair, side a, side b, several_gpus, severity, text, source)
BadPairRow = tuple[str, Side, Side, bool, str, str, str]

_COMPARISONS: dict[str, Callable[[list[int], list[int]], bool]] = {
    "==": list.__eq__,
    "<=": list.__le__,
    ">=": list.__ge__,
    "<": list.__lt__,
    ">": list.__gt__,
}


class KnownBad:
    """The tables `bad` and `bad_pairs` by distribution.

    Raises ValueError or TypeError for rows of another shape. Version ranges are parsed when they
    are needed.
    """

    def __init__(self, rows: Iterable[BadRow], pairs: Iterable[BadPairRow]) -> None:
        self._rows: dict[str, list[tuple[str, Verdict, frozenset[ComputeCapability]]]] = {}
        self._pairs: dict[str, list[tuple[str, BadPair]]] = {}
        for names, versions, severity, text, source, capabilities in rows:
            verdict = (severity, text, source)
            row = (versions, verdict, frozenset((major, minor) for major, minor in capabilities))
            for name in names:
                self._rows.setdefault(name, []).append(row)
        for pair, first, second, several_gpus, severity, text, source in pairs:
            for side, (names, versions) in (("a", first), ("b", second)):
                member = (pair, side, several_gpus, text, source, severity)
                for name in names:
                    self._pairs.setdefault(name, []).append((versions, member))

    def of(
        self, distribution: str, version: str, capabilities: Iterable[ComputeCapability] = ()
    ) -> Verdict | None:
        """Return the worst verdict on a release, of the rows that count on these devices."""
        rows = self._rows.get(distribution)
        if rows is None:
            return None
        devices = frozenset(capabilities)
        worst: Verdict | None = None
        for versions, verdict, only_on in rows:
            if only_on and not only_on & devices:
                continue
            worse = worst is None or (worst[0] == "avoid" and verdict[0] == "broken")
            if worse and within(version, versions):
                worst = verdict
        return worst

    def pairs(self, distribution: str, version: str) -> Sequence[BadPair]:
        """Return the bad pairs of which a release is a member."""
        rows = self._pairs.get(distribution)
        if rows is None:
            return ()
        return [member for versions, member in rows if within(version, versions)]


def within(version: str, versions: str) -> bool:
    """Return whether a version is one of `versions`: "9.10.0.*", ">=9.8,<9.10.1" or a version.

    Ranges compare dotted numbers, as PEP 440 does for final releases. What follows the numbers does
    not count.

    Raises:
        ValueError: the range has another form.
    """
    if versions.endswith(".*"):
        return f"{version}.".startswith(versions[:-1])
    if versions[:1] not in _COMPARISONS and versions[:2] not in _COMPARISONS:
        return version == versions
    release = _release(version)
    return all(_COMPARISONS[sign](release, _release(bound)) for sign, bound in clauses(versions))


def clauses(versions: str) -> list[tuple[str, str]]:
    """Split a range: ">=12.8,<13.2" -> [(">=", "12.8"), ("<", "13.2")].

    "13.4.0.1" and "9.10.0.*" give one clause with an empty sign.

    Raises:
        ValueError: the text is not a range, not a prefix and not a version.
    """
    pairs: list[tuple[str, str]] = []
    for clause in versions.split(","):
        sign = ""
        for candidate in (clause[:2], clause[:1]):
            if candidate in _COMPARISONS:
                sign = candidate
                break
        bound = clause[len(sign) :]
        numbers = bound if sign else bound.removesuffix(".*")
        numeric = all(part.isascii() and part.isdigit() for part in numbers.split("."))
        if not numeric or (not sign and clause != versions):
            raise ValueError(
                f"{versions!r} is not a range such as >=12.8,<13.2, not 9.10.0.* and not a version"
            )
        pairs.append((sign, bound))
    return pairs


def _release(version: str) -> list[int]:
    """Return the numbers of a version without zeros at the end: "13.2.0rc1" -> [13, 2]."""
    numbers: list[int] = []
    for part in version.split("."):
        digits = _leading_digits(part)
        if digits:
            numbers.append(int(digits))
        if digits != part:
            break
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers


def _leading_digits(text: str) -> str:
    for position, letter in enumerate(text):
        if not letter.isdigit():
            return text[:position]
    return text
