"""Names, versions, specifiers and requirements (PEP 503, 440, 508), as `packaging` reads them.

Each version, specifier and requirement is read once, and compared once with a version. Without
that a solve of torch from the snapshot takes a third longer (80 instead of 60 ms beside the
imports), and one of 300 packages nearly half longer (pages.Page has the figures of real sets).
"""

from __future__ import annotations

import re
from functools import cache

from packaging.requirements import Requirement as ParsedRequirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from ..errors import InputError
from ..model import Requirement

LONGEST_REQUIREMENT = 10_000  # characters
_LONGEST_VERSION = 500

_EXCLUDING = ("<", "!=")  # operators of clauses that ask for no version


def normalize_name(name: str) -> str:
    """Return the PEP 503 form of a name: lower case, each run of -, _ and . one dash."""
    return canonicalize_name(name)


@cache
def version_key(text: str) -> Version:
    """Return a version. Versions are ordered as PEP 440 orders them.

    Raises:
        InputError: the text is not a version.
    """
    if len(text) > _LONGEST_VERSION:
        raise InputError(f"a version has more than {_LONGEST_VERSION} characters")
    try:
        return Version(text)
    except ValueError:
        raise InputError(
            f"{text!r} is not a version: write it as PEP 440 does, for example 2.15.0"
        ) from None


def public(version: str) -> str:
    """Return a version without its local part."""
    return version.partition("+")[0]


def same_version(first: str, second: str) -> bool:
    """Return whether two versions are equal, by PEP 440 or as texts: 1.0 and 1.0.0."""
    try:
        return first == second or version_key(first) == version_key(second)
    except InputError:
        return False


def is_prerelease(version: str) -> bool:
    """Return whether PEP 440 calls a version an alpha, beta, candidate or development release."""
    return version_key(version).is_prerelease


@cache  # a request for boto3 asks some four million times, mostly the same
def contains(specifier: str, version: str, pre: bool = True) -> bool:
    """Return whether a PEP 440 specifier set admits a version.

    A local part of the version counts only if the specifier has one.

    Args:
        specifier: clauses, separated by commas; "" admits every version.
        version: the version.
        pre: whether pre-releases are admitted.

    Raises:
        InputError: the specifier or the version is not valid.
    """
    parsed = version_key(version)
    specifiers = _specifiers(specifier)
    return (pre or not parsed.is_prerelease) and specifiers.contains(parsed, prereleases=True)


def names_prerelease(specifier: str) -> bool:
    """Return whether a specifier set asks for a pre-release, which admits pre-releases (PEP 440).

    A clause that excludes one does not: `<1.0a1` keeps all releases of 1.0 out.

    Raises:
        InputError: the specifier is not valid.
    """
    return any(
        clause.prereleases and clause.operator not in _EXCLUDING
        for clause in _specifiers(specifier)
    )


@cache
def _specifiers(text: str) -> SpecifierSet:
    try:
        # packaging converts a number when it first compares, and Python refuses very long ones.
        if max(map(len, text.split(","))) > _LONGEST_VERSION:
            raise ValueError
        return SpecifierSet(text)
    except ValueError:
        shown = repr(text[:_LONGEST_VERSION])
        raise InputError(f"{shown} is not a version specifier such as '>=2.5,<3'") from None


def corrected_requirement(text: str) -> str:
    """Return "torch==2.9" for "torch=2.9", "torch 2.9", "torch@2.9" and "torch:2.9", else ""."""
    mistaken = re.fullmatch(r"([\w.\[\],-]+)(?:\s*=\s*([\w.]+)|\s*[\s@:]\s*v?(\d[\w.]*))", text)
    return f"{mistaken[1]}=={mistaken[2] or mistaken[3]}" if mistaken else ""


def poetry_specifier(part: str) -> str:
    """Return a constraint of Poetry without || as a PEP 440 specifier."""
    clauses = []
    for clause in re.split(r"\s*,\s*|\s+(?=[<>=!~^])", part.strip()):
        match = re.fullmatch(r"([\^~])\s*(\d+(?:\.\d+)*)([^+=]*)(?:\+.*)?", clause)
        if match is not None:
            numbers = [int(number) for number in match[2].split(".")]
            place = min(1, len(numbers) - 1)
            if match[1] == "^":
                place = next((at for at, number in enumerate(numbers) if number), len(numbers) - 1)
            upper = [*numbers[:place], numbers[place] + 1]
            clauses.append(f">={match[2]}{match[3]},<{'.'.join(map(str, upper))}")
        elif clause not in ("*", ""):
            clauses.append(clause if clause[0] in "<>=!~" else f"=={clause}")
    return ",".join(clauses)


@cache
def parse_requirement(text: str) -> Requirement:
    """Return a PEP 508 text as a Requirement.

    The name and the extras are normalized; the marker is written as packaging writes it.

    Raises:
        InputError: the text is not a requirement.
    """
    if len(text) > LONGEST_REQUIREMENT:
        raise InputError(f"a requirement has more than {LONGEST_REQUIREMENT} characters")
    try:
        parsed = ParsedRequirement(text)
        if parsed.url and corrected_requirement(text):
            raise ValueError("a version is no URL")
    except (ValueError, RecursionError) as error:
        detail = (str(error) or "not a requirement").splitlines()[0]
        message = f"{text!r} is not a requirement such as 'torch>=2.5': {detail}"
        corrected = corrected_requirement(text)
        hint = f"write {corrected}" if corrected else ""
        raise InputError(message, hint=hint) from None
    return Requirement(
        name=normalize_name(parsed.name),
        extras=tuple(sorted(set(map(normalize_name, parsed.extras)))),
        specifier=str(parsed.specifier),
        marker=None if parsed.marker is None else str(parsed.marker),
        url=parsed.url,
    )
