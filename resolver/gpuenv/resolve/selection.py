"""Which releases the requirements on one name admit: PEP 440 and PEP 592.

The whole set of requirements decides. A pre-release is taken if one of them names a pre-release or
if there is no final release. A yanked release is taken if they pin it and nothing else is left. A
placeholder, which only reserves the name, is taken if they pin it or if there is no other release.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from ..errors import InputError
from ..model import Requirement
from ..requirements.target import TargetEnvironment
from ..requirements.versions import names_prerelease
from .graph import Candidate, Variant

_PLACEHOLDER = re.compile(r"0+(\.0+)*(\.?(a|b|rc|dev|post)\d+)*")
ReleaseT = TypeVar("ReleaseT", Candidate, Variant)
Contains = Callable[[str, str, bool], bool]  # TargetEnvironment.contains


class Constraints:
    """The user's constraints that hold on the target.

    Attributes:
        ranges: specifiers by name.
        urls: URLs by name. They replace every index.
    """

    def __init__(self, constraints: Sequence[Requirement], environment: TargetEnvironment) -> None:
        self.ranges: dict[str, list[str]] = {}
        self.urls: dict[str, list[str]] = {}
        for constraint in constraints:
            if constraint.extras:
                raise InputError(
                    f"the constraint {constraint} has extras, which a constraint cannot have"
                )
            marker = constraint.marker
            if marker is not None and not environment.marker(marker, ()):
                continue
            if constraint.specifier:
                self.ranges.setdefault(constraint.name, []).append(constraint.specifier)
            if constraint.url:
                self.urls.setdefault(constraint.name, []).append(constraint.url)

    def texts(self, name: str) -> Iterator[str]:
        """Yield the constraints on a name as a user writes them."""
        for specifier in self.ranges.get(name, ()):
            yield f"{name}{specifier}"
        for url in self.urls.get(name, ()):
            yield f"{name} @ {url.partition('#')[0]}"


def is_exact(specifier: str) -> bool:
    """Return whether a specifier is a single == clause: ==2.15.0, not ==2.15.*."""
    return specifier.startswith("==") and "*" not in specifier


def is_pinned(specifier: str) -> bool:
    """Return whether a specifier set has a clause for one version: ==2.15.0 or ===x."""
    for clause in specifier.split(","):
        text = clause.strip()
        if text.startswith("==") and not text.endswith(".*"):
            return True
    return False


def is_placeholder(version: str) -> bool:
    """Return whether a version is that of a placeholder: 0, 0.0.0, 0.0.0.dev1, ..."""
    return _PLACEHOLDER.fullmatch(version) is not None


def admitted(
    releases: Sequence[ReleaseT],
    specifiers: Sequence[str],
    environment: TargetEnvironment,
    *,
    pre: bool,
    listed: Callable[[], Iterable[str]],
) -> list[ReleaseT]:
    """Return the releases that may be taken, in the same order.

    Args:
        releases: releases that the specifiers contain.
        specifiers: every specifier set on the name.
        environment: the target.
        pre: whether the request admits pre-releases.
        listed: returns all versions that the index lists, also those without a fitting file. It is
            asked only if a placeholder or a pre-release would be taken.
    """

    def listed_in_ranges() -> Iterator[str]:
        for version in listed():
            if all(environment.contains(specifier, version, True) for specifier in specifiers):
                yield version

    admissible = list(releases)
    pinned = any(map(is_pinned, specifiers))
    if not pinned:
        admissible = _without(is_placeholder, admissible, listed_in_ranges)
    if not (pre or any(map(names_prerelease, specifiers))):
        admissible = _without(environment.is_prerelease, admissible, listed_in_ranges)
    not_yanked = [release for release in admissible if not release.is_yanked]
    if not_yanked or not pinned:
        return not_yanked
    return admissible


def _without(
    is_lesser: Callable[[str], bool],
    releases: list[ReleaseT],
    listed: Callable[[], Iterable[str]],
) -> list[ReleaseT]:
    """Return the releases without lesser ones; all of them if no better version is listed."""
    better = [release for release in releases if not is_lesser(release.version)]
    if better or not releases or any(not is_lesser(version) for version in listed()):
        return better
    return releases


def newest_of_series(releases: Sequence[ReleaseT]) -> list[ReleaseT]:
    """Return the files of the first version of each minor series: of 1.34.2 and 1.34.1, the first.

    boto3 has more than a thousand releases in 45 minor series.
    """
    first: dict[str, str] = {}  # series -> version
    for release in releases:
        first.setdefault(_minor_series(release.version), release.version)
    versions = set(first.values())
    return [release for release in releases if release.version in versions]


def _minor_series(version: str) -> str:
    return ".".join(version.split(".")[:2])


def can_be(specifiers: Sequence[str], contains: Contains) -> bool:
    """Return whether some version can satisfy all specifier sets, whether or not it is known.

    Ranges change only at the versions that they name. So these versions and ones just above
    them stand for all versions.
    """
    bounds = {"0"}
    for specifier in specifiers:
        for clause in specifier.split(","):
            bound = clause.strip().lstrip("=<>!~ ").removesuffix(".*")
            if bound:
                bounds |= {bound, f"{bound}.0.0.0.1", f"{bound}.post1"}
    for bound in bounds:
        try:
            if all(contains(specifier, bound, True) for specifier in specifiers):
                return True
        except InputError:  # 1.0rc1.0.0.0.1 is not a version
            continue
    return False
