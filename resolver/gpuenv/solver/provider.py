"""The resolvelib provider: requirements, host facts and topics become nodes of one graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from resolvelib.providers import AbstractProvider

from ..errors import PackageIndexError, Reason
from ..model import Requirement
from .candidates import (
    AgreeNeed,
    Candidate,
    DistNeed,
    ExactNeed,
    FactNeed,
    FrameworkNeed,
    Need,
    Shelf,
    Token,
    Variant,
    is_exact,
)

Node = Candidate | Token | Variant
_Released = TypeVar("_Released", Candidate, Variant)


def tolerable(reason: Reason) -> bool:
    """Whether a reason is a doubt (unknown, or a release to avoid) rather than a contradiction."""
    return reason.code.endswith("-unknown") or reason.code == "known-avoid"


class Provider(AbstractProvider[Need, Node, str]):
    """One resolution. `lenient` lets doubts pass, which a first, strict resolution refuses.

    Requirements of the user come with their order: frameworks are decided first, in the order given, so that
    backtracking gives up the later ones first.
    """

    def __init__(self, shelf: Shelf, order: Sequence[str], constraints: Sequence[Requirement], *, lenient: bool):
        self.shelf, self.lenient = shelf, lenient
        self.order = {name: place for place, name in enumerate(order)}
        self.constraints: dict[str, list[str]] = {}
        for constraint in constraints:
            self.constraints.setdefault(constraint.name, []).append(constraint.specifier)
        self.contains = shelf.environment.contains
        self._needed: dict[int, tuple[Need, ...]] = {}  # by id: candidates live as long as their shelf
        self._extra_nodes: dict[tuple[str, str, str], Candidate] = {}

    # -- what resolvelib asks --

    def identify(self, requirement_or_candidate: Need | Node) -> str:
        return requirement_or_candidate.ident

    def narrow_requirement_selection(
        self, identifiers: Iterable[str], resolutions: Any, candidates: Any, information: Any, backtrack_causes: Any
    ) -> Iterable[str]:
        """Host facts and topics first: they fail at once or cost nothing."""
        names = list(identifiers)
        for name in names:
            if name[0] in "_=":
                return (name,)
        return names

    def get_preference(
        self,
        identifier: str,
        resolutions: Mapping[str, Node],
        candidates: Mapping[str, Iterator[Node]],
        information: Mapping[str, Iterator[Any]],
        backtrack_causes: Sequence[Any],
    ) -> tuple[int, bool, str]:
        pinned = any(
            isinstance(info.requirement, ExactNeed)
            or (isinstance(info.requirement, DistNeed) and info.requirement.specifier.startswith("=="))
            for info in information[identifier]
        )
        return (self.order.get(identifier, len(self.order)), not pinned, identifier)

    def find_matches(
        self,
        identifier: str,
        requirements: Mapping[str, Iterator[Need]],
        incompatibilities: Mapping[str, Iterator[Node]],
    ) -> Sequence[Node] | Callable[[], Iterator[Node]]:
        needs = list(requirements[identifier])
        if identifier[0] == "_":
            # A token that resolvelib gave up is no choice any more, or it would be chosen for ever.
            given_up = next(iter(incompatibilities[identifier]), None) is not None
            return () if given_up or any(self._blocked(need) for need in needs) else (Token(identifier, "host"),)
        if identifier[0] == "=":
            values = {need.value for need in needs if isinstance(need, AgreeNeed)}
            excluded = {token.value for token in incompatibilities[identifier] if isinstance(token, Token)}
            return (Token(identifier, values.pop()),) if len(values) == 1 and not values & excluded else ()
        if identifier[0] == "@":
            return self._variants([need for need in needs if isinstance(need, FrameworkNeed)], incompatibilities)
        name = identifier.partition("[")[0]
        excluded_wheels = {id(node.wheel) for node in incompatibilities[identifier] if isinstance(node, Candidate)}
        found = [
            candidate
            for candidate in self.shelf.candidates(name)
            if id(candidate.wheel) not in excluded_wheels and all(self._meets(need, candidate) for need in needs)
        ]
        found = self._final_releases(name, found, needs)
        if identifier == name:
            return found
        extras = tuple(identifier[len(name) + 1 : -1].split(","))
        return [self._with_extras(candidate, extras) for candidate in found]

    def _variants(
        self, needs: Sequence[FrameworkNeed], incompatibilities: Mapping[str, Iterator[Node]]
    ) -> Sequence[Node]:
        excluded = {id(node) for node in incompatibilities[needs[0].ident]}
        found = [
            variant
            for variant in self.shelf.variants(needs[0].framework)
            if id(variant) not in excluded and all(self._admits(need, variant) for need in needs)
        ]
        return self._final_releases(needs[0].framework.distribution, found, needs)

    def _admits(self, need: FrameworkNeed, variant: Variant) -> bool:
        if variant.wheel.yanked is not None and not is_exact(need.specifier):
            return False
        return not need.specifier or self.contains(need.specifier, variant.version, True)

    def is_satisfied_by(self, requirement: Need, candidate: Node) -> bool:
        if isinstance(requirement, FactNeed):
            return not self._blocked(requirement)
        if isinstance(requirement, AgreeNeed):
            return isinstance(candidate, Token) and candidate.value == requirement.value
        if isinstance(requirement, FrameworkNeed):
            return isinstance(candidate, Variant) and self._admits(requirement, candidate)
        return isinstance(candidate, Candidate) and self._meets(requirement, candidate)

    def get_dependencies(self, candidate: Node) -> Iterable[Need]:
        if isinstance(candidate, Token):
            return ()
        if isinstance(candidate, Variant):
            return self.shelf.variant_needs(candidate)
        return self.needs(candidate)

    def needs(self, candidate: Candidate) -> tuple[Need, ...]:
        """What a candidate asks for on this host, its extras counted in."""
        key = id(candidate)
        if key not in self._needed:
            self._needed[key] = tuple(self._needs(candidate))
        return self._needed[key]

    # -- how it is answered --

    def _blocked(self, need: Need) -> bool:
        reasons = need.reasons if isinstance(need, FactNeed) else ()
        return any(not (self.lenient and tolerable(reason)) for reason in reasons)

    def _meets(self, need: Need, candidate: Candidate) -> bool:
        if isinstance(need, ExactNeed):
            return candidate.wheel is need.wheel
        if not isinstance(need, DistNeed):
            return False
        version = candidate.version
        yanked = candidate.wheel.yanked is not None
        if yanked and not is_exact(need.specifier):
            return False
        if need.specifier and not self.contains(need.specifier, version, True):
            return False
        return all(self.contains(limit, version, True) for limit in self.constraints.get(candidate.name, ()))

    def _final_releases(self, name: str, found: list[_Released], needs: Sequence[Need]) -> list[_Released]:
        """PEP 440: pre-releases only where asked for, or where nothing else fits."""
        if self.shelf.request.pre:
            return found
        ranges = [need.specifier for need in needs if isinstance(need, DistNeed | FrameworkNeed)]
        named = any(map(_names_prerelease, ranges))
        if named or any(_names_prerelease(limit) for limit in self.constraints.get(name, ())):
            return found
        is_pre = self.shelf.environment.is_prerelease
        return [candidate for candidate in found if not is_pre(candidate.version)] or found

    def _with_extras(self, candidate: Candidate, extras: tuple[str, ...]) -> Candidate:
        key = (candidate.wheel.index, candidate.wheel.filename, ",".join(extras))
        node = self._extra_nodes.get(key)
        if node is None:
            node = self._extra_nodes[key] = Candidate(candidate.wheel, candidate.build, candidate.library, extras)
        return node

    def _needs(self, candidate: Candidate) -> Iterator[Need]:
        if candidate.extras:
            yield ExactNeed(candidate.wheel)
        else:
            for need in self.shelf.build_needs(candidate):
                yield need
                if isinstance(need, FactNeed) and self._blocked(need):
                    return  # the build cannot be chosen: its dependencies need not be fetched
        marker = self.shelf.environment.marker
        for requirement in self.shelf.index.dependencies(candidate.wheel):
            text = requirement.marker
            if candidate.extras:
                if text is None or "extra" not in text or marker(text, ()) or not marker(text, candidate.extras):
                    continue
            elif text is not None and not marker(text, ()):
                continue
            if requirement.url is not None:
                raise PackageIndexError(
                    f"{candidate.name} {candidate.version} depends on {requirement.name} at a URL, which no lock of an"
                    " index can hold"
                )
            yield DistNeed(requirement.name, requirement.extras, self._specifier(candidate, requirement))

    @staticmethod
    def _specifier(candidate: Candidate, requirement: Requirement) -> str:
        """R4: a cuDNN range is narrowed to releases that fit the build: same major, minor not older."""
        built, specifier = candidate.build or candidate.library, requirement.specifier
        ours = requirement.name.startswith("nvidia-cudnn-") and not is_exact(specifier)
        if not ours or built is None or built.cudnn is None:
            return specifier
        major, minor = (*built.cudnn.split("."), "0")[:2]
        return ",".join(filter(None, (specifier, f">={major}.{minor}", f"<{int(major) + 1}")))


def _names_prerelease(specifier: str) -> bool:
    if not any(letter in specifier for letter in "abrd"):  # a, b, rc, dev: cheaper than parsing each specifier
        return False
    from packaging.specifiers import SpecifierSet

    return bool(SpecifierSet(specifier).prereleases)
