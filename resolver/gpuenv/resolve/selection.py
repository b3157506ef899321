"""Which releases of a name a set of needs admits, as pip has it: PEP 440 versions and pre-releases, PEP 592 yanks.

What the whole set admits decides, not each need by itself: a pre-release is taken if one of them names one or if no
final release will do; a yanked release if they pin it and nothing else is left.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import TypeVar

from ..errors import InputError, PackageIndexError, Reason
from ..model import Requirement
from ..requirements.target import TargetEnvironment, normalize_name, version_key
from .candidates import Candidate, Shelf, Variant

_Released = TypeVar("_Released", Candidate, Variant)

Contains = Callable[[str, str, bool], bool]



class Limits:
    """The user's constraints by name: ranges, and URLs that take the place of every index."""

    def __init__(self, texts: Sequence[Requirement], environment: TargetEnvironment) -> None:
        self.ranges: dict[str, list[str]] = {}
        self.urls: dict[str, list[str]] = {}
        for one in texts:
            if one.extras:
                raise InputError(f"the constraint {one} has extras, which a constraint cannot have")
            if one.marker is not None and not environment.marker(one.marker, ()):
                continue
            self.ranges.setdefault(one.name, []).extend([one.specifier] if one.specifier else [])
            self.urls.setdefault(one.name, []).extend([one.url] if one.url else [])

    def texts(self, name: str) -> Iterator[str]:
        """What the constraints say of a name, as a person would write it."""
        yield from (f"{name}{limit}" for limit in self.ranges.get(name, ()))
        yield from (f"{name} @ {url.partition('#')[0]}" for url in self.urls.get(name, ()))


def is_pinned(specifier: str) -> bool:
    """Whether a specifier set names one version: ==2.15.0 and ===x do, ==2.15.* does not."""
    clauses = [clause.strip() for clause in specifier.split(",")]
    return any(clause.startswith("==") and not clause.endswith(".*") for clause in clauses)


def names_prerelease(specifier: str) -> bool:
    """Whether a specifier set asks for pre-releases by naming one (PEP 440)."""
    if not any(letter in specifier.lower() for letter in "abcdp"):  # a, b, c, rc, dev, pre: cheaper than parsing
        return False
    from packaging.specifiers import SpecifierSet

    return bool(SpecifierSet(specifier).prereleases)


def admitted(
    found: list[_Released], specifiers: Sequence[str], is_prerelease: Callable[[str], bool], *, pre: bool
) -> list[_Released]:
    """Of releases that the specifiers contain those that may be taken, in the same order."""
    if not (pre or any(map(names_prerelease, specifiers))):
        found = [one for one in found if not is_prerelease(one.version)] or found
    kept = [one for one in found if one.wheel.yanked is None]
    return kept or (found if any(map(is_pinned, specifiers)) else kept)


def unknown_extras(shelf: Shelf, nodes: Iterable[Candidate], asked: Container[str]) -> Iterator[Reason]:
    """A doubt for each extra of the user's own requirements that the chosen release does not have; pip warns of it.

    An extra that asks for nothing looks the same.
    """
    for node in nodes:
        if not node.extras or node.name not in asked:
            continue
        from re import findall

        texts = [one.marker for one in shelf.index.dependencies(node.wheel) if one.marker and "extra" in one.marker]
        pairs = [pair for text in texts for pair in findall(r'extra [=!]= "([^"]+)"|"([^"]+)" [=!]= extra', text)]
        known = sorted({normalize_name(left or right) for left, right in pairs})
        for extra in (extra for extra in node.extras if extra not in known):
            subject, have = f"{node.name} {node.version}", ", ".join(known) or "none"
            yield Reason(code="extra-unknown", subject=subject, need=f"the extra {extra}", have=have)


def can_be(specifiers: Sequence[str], contains: Contains) -> bool:
    """Whether some version may satisfy all specifiers, known or not.

    Ranges change at the versions that they name only, so these and ones just above them stand for all.
    """
    bounds = {"0"}
    for clause in (clause.strip() for specifier in specifiers for clause in specifier.split(",")):
        bound = clause.lstrip("=<>!~ ").removesuffix(".*")
        bounds |= {bound, f"{bound}.0.0.0.1", f"{bound}.post1"} if bound else set()
    for bound in bounds:
        try:
            if all(contains(specifier, bound, True) for specifier in specifiers):
                return True
        except InputError:  # 1.0rc1.0.0.0.1 is no version
            continue
    return False


class WiderError(Exception):
    """A name has more releases now than the resolution began with: begin again."""


class Widening:
    """Asks the live index for releases that the snapshot leaves out, where nothing that it has will do.

    `own` are the names of the user's own requirements: if the index cannot be asked for these, there is no answer. For
    any other name the solution may do without; `failures` keeps what stood in the way.
    """

    def __init__(self, widen: Callable[[str], bool] | None, shelf: Shelf, own: frozenset[str]) -> None:
        self._widen, self._shelf, self._own = widen, shelf, own
        self.asked: set[str] = set()
        self._looked: set[tuple[str, ...]] = set()
        self.failures: dict[str, PackageIndexError] = {}

    def try_for(self, name: str, specifiers: Sequence[str]) -> None:
        """WiderError if the index has more of `name` than was known, else nothing."""
        if self.may_help(name, specifiers):
            self._ask(name, needed=name in self._own)

    def try_newer(
        self, name: str, specifiers: Sequence[str], found: Sequence[Candidate], pool: Sequence[Candidate]
    ) -> None:
        """WiderError if the index has releases in these ranges that are newer than those found, and were left out.

        Only what the ranges leave out of the `pool` is looked beyond: that the newest release of all is not known, and
        what the target cannot run, is as the snapshot's date and its builder have it.
        """
        key = (name, *specifiers)
        left_out = self._shelf.index.left_out
        if self._widen is None or name in self.asked or key in self._looked:
            return
        self._looked.add(key)
        if self._shelf.framework_of(name) is not None or self._shelf.matrix.is_library(name):
            return  # the data knows each build of it
        best = max(version_key(one.version) for one in found)
        above = [place for one in pool if (place := version_key(one.version)) > best]
        contains = self._shelf.environment.contains
        if above and any(
            best < version_key(version) < min(above) and all(contains(one, version, True) for one in specifiers)
            for version in left_out(name)
        ):
            self._ask(name, needed=False)

    def try_prereleases(self, name: str, specifiers: Sequence[str]) -> None:
        """WiderError if pre-releases are asked for, of which the snapshot has none."""
        wanted = self._shelf.request.pre or any(map(names_prerelease, specifiers))
        if self._widen is None or not wanted or name in self.asked:
            return
        if self._shelf.framework_of(name) is None and not self._shelf.matrix.is_library(name):
            self._ask(name, needed=name in self._own)

    def _ask(self, name: str, *, needed: bool) -> None:
        self.asked.add(name)
        try:
            wider = self._widen is not None and self._widen(name)
        except PackageIndexError as error:
            if needed:
                raise
            self.failures[name] = error
            return
        if wider:
            self._shelf.forget(name)
            raise WiderError(name)

    def may_help(self, name: str, specifiers: Sequence[str]) -> bool:
        """Whether the index may have a release that these ranges admit and that nobody asked for yet."""
        return self._widen is not None and name not in self.asked and self._worth(name, specifiers)

    def _worth(self, name: str, specifiers: Sequence[str]) -> bool:
        shelf = self._shelf
        if name not in self._own and shelf.framework_of(name) is not None:
            return False  # the data knows each build of it
        contains = shelf.environment.contains
        if name not in shelf.request.allow_sdist:
            # A release that is known and has no wheel for the target will not have one live.
            for version in {wheel.version for wheel in shelf.index.wheels(name)}:
                if all(contains(specifier, version, True) for specifier in specifiers):
                    return False
        return can_be(specifiers, contains)

    def doubts(self) -> Iterator[Reason]:
        """A doubt for each name of which not all releases could be looked at."""
        for name, error in sorted(self.failures.items()):
            need = "releases that the index snapshot leaves out"
            yield Reason(code="index-unknown", subject=name, need=need, have=error.message)
