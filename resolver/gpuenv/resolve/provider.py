"""The resolvelib provider: requirements, host facts and topics become nodes of one graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..compat.evaluate import is_doubt
from ..errors import Reason, UnusableFileError
from ..model import Requirement
from .candidates import Candidate, Shelf, Token, Variant, is_exact
from .needs import AgreeNeed, DistNeed, ExactNeed, FactNeed, FrameworkNeed, Need
from .selection import Limits, Widening, admitted, is_pinned

Node = Candidate | Token | Variant


_OFTEN = 5  # conflicts after which a name is decided before others, as in pip


class Provider:
    """One resolution, with the methods of resolvelib's AbstractProvider (which costs an import to inherit from).
 `lenient` lets doubts pass, which a first, strict resolution refuses.

    Frameworks are decided first, in the `order` given, so that backtracking gives up the later ones first. All else is
    decided as pip does it, but for the order of the user's requirements, which says nothing: by name.
    """

    def __init__(self, shelf: Shelf, order: Sequence[str], limits: Limits, widening: Widening, *, lenient: bool):
        self.shelf, self.lenient = shelf, lenient
        self.order = {name: place for place, name in enumerate(order)}
        self.limits, self.widening = limits, widening
        self.contains = shelf.environment.contains
        self.within: Mapping[str, frozenset[int]] = {}  # what narrowing.py left of a name, by id
        self.causes: list[Any] = []  # of the last conflict
        self._conflicts: dict[str, int] = {}
        self._verdicts: dict[Candidate | Variant, bool] = {}
        self._needed: dict[int, tuple[Need, ...]] = {}  # by id: candidates live as long as their shelf
        self._extra_nodes: dict[tuple[str, str, str], Candidate] = {}

    def again(self) -> Provider:
        """A provider of the same question that has not been asked anything."""
        return Provider(self.shelf, list(self.order), self.limits, self.widening, lenient=self.lenient)

    # -- what resolvelib asks --

    def identify(self, requirement_or_candidate: Need | Node) -> str:
        return requirement_or_candidate.ident

    def narrow_requirement_selection(
        self, identifiers: Iterable[str], resolutions: Any, candidates: Any, information: Any, backtrack_causes: Any
    ) -> Iterable[str]:
        """Host facts and topics first: they fail at once or cost nothing. Then frameworks; then, as in pip, what the
        last conflict was about, and what conflicts were often about before it was chosen."""
        names = list(identifiers)
        for name in names:
            if name[0] in "_=":
                return (name,)
        self.causes = list(backtrack_causes) or self.causes
        causes = {cause.requirement.ident for cause in backtrack_causes}
        causes |= {cause.parent.ident for cause in backtrack_causes if cause.parent is not None}
        for name in sorted(causes):
            if name not in resolutions:
                self._conflicts[name] = self._conflicts.get(name, 0) + 1
        if any(name in self.order for name in names):
            return names
        # A release without what its extras ask for says little: name[extra] decides for both.
        waiting = {name.partition("[")[0] for name in names if name[-1] == "]"}
        names = [name for name in names if name not in waiting] if waiting else names
        often = [name for name in names if self._conflicts.get(name, 0) >= _OFTEN]
        return [name for name in names if name in causes] or often or names

    def get_preference(
        self,
        identifier: str,
        resolutions: Mapping[str, Node],
        candidates: Mapping[str, Iterator[Node]],
        information: Mapping[str, Iterator[Any]],
        backtrack_causes: Sequence[Any],
    ) -> tuple[int | bool | str, ...]:
        needs = [info.requirement for info in information[identifier]]
        ranges = [need.specifier for need in needs if isinstance(need, DistNeed)]
        return (
            self.order.get(identifier, len(self.order)),
            self._conflicts.get(identifier, 0) < _OFTEN,
            not any(isinstance(need, ExactNeed) or (isinstance(need, DistNeed) and need.url) for need in needs),
            not any(map(is_pinned, ranges)),
            not any(clause[:1] in "<~=" for one in ranges for clause in one.split(",") if clause),
            all(info.parent is not None for info in information[identifier]),
            not any(ranges),
            identifier,
        )

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
            return () if given_up or any(self.blocked(need) for need in needs) else (Token(identifier, "host"),)
        if identifier[0] == "=":
            values = {need.value for need in needs if isinstance(need, AgreeNeed)}
            excluded = {token.value for token in incompatibilities[identifier] if isinstance(token, Token)}
            return (Token(identifier, values.pop()),) if len(values) == 1 and not values & excluded else ()
        if identifier[0] == "@":
            return self._variants([need for need in needs if isinstance(need, FrameworkNeed)], incompatibilities)
        name = identifier.partition("[")[0]
        if identifier != name:
            needs += requirements.get(name, ())  # what is asked of a name holds for name[extra]
        # resolvelib names the same one thousands of times where it goes back often: each is looked at once.
        barred = {id(node.wheel) for node in set(incompatibilities[identifier]) if isinstance(node, Candidate)}
        releases = self._releases(name, needs, base=identifier == name)
        found = [candidate for candidate in releases if id(candidate.wheel) not in barred]
        if name in self.within:
            found = [candidate for candidate in found if id(candidate.wheel) in self.within[name]]
        if identifier == name:
            return lambda: (candidate for candidate in found if not self.refused(candidate))
        extras = tuple(identifier[len(name) + 1 : -1].split(","))
        return lambda: (self.with_extras(one, extras) for one in found if not self.refused(one))

    def refused(self, node: Candidate | Variant) -> bool:
        """Whether the host or the data speak against a release; it is then no candidate at all.

        As candidates that fail on a host fact they would lead the resolver back through everything else first.
        """
        verdict = self._verdicts.get(node)
        if verdict is None:
            facts = self.shelf.variant_facts(node) if isinstance(node, Variant) else self.shelf.facts(node)
            verdict = self._verdicts[node] = any(
                not (self.lenient and is_doubt(reason)) for reasons in facts.values() for reason in reasons
            )
        return verdict

    def _releases(self, name: str, needs: Sequence[Need], *, base: bool) -> list[Candidate]:
        """The releases of a name that all needs admit together, best first.

        For name[extra] those that only the name itself may rule out come last: what is asked of it may change.
        """
        asked = [need for need in needs if isinstance(need, DistNeed)]
        ranges = [need.specifier for need in asked if need.specifier] + self.limits.ranges.get(name, [])
        urls = [need.url for need in asked if need.url] + self.limits.urls.get(name, [])
        if not urls:
            self.widening.try_prereleases(name, ranges)
        pool = self.shelf.direct(name, urls[0]) if urls else self.shelf.candidates(name)
        found = [
            candidate
            for candidate in pool
            if all(self.contains(one, candidate.version, True) for one in ranges)
            and all(self._is_at(url, candidate) for url in urls)
        ]
        if not found and not urls:
            self.widening.try_for(name, ranges)
        elif not urls and found[0] is not pool[0]:
            self.widening.try_newer(name, ranges, found, pool)
        if not urls:
            request, environment = self.shelf.request, self.shelf.environment
            best = admitted(found, ranges, environment.is_prerelease, pre=request.pre)
            found = best if base or len(best) == len(found) else best + [one for one in found if one not in best]
        exact = [need.wheel for need in needs if isinstance(need, ExactNeed)]
        return [one for one in found if all(one.wheel is wheel for wheel in exact)] if exact else found

    def _is_at(self, url: str, candidate: Candidate) -> bool:
        return any(candidate.wheel is other.wheel for other in self.shelf.direct(candidate.name, url))

    def _variants(
        self, needs: Sequence[FrameworkNeed], incompatibilities: Mapping[str, Iterator[Node]]
    ) -> Callable[[], Iterator[Node]]:
        excluded = {id(node) for node in incompatibilities[needs[0].ident]}
        variants = self.shelf.variants(needs[0].framework)
        found = [variant for variant in variants if all(self._admits(need, variant) for need in needs)]
        ranges = [need.specifier for need in needs if need.specifier]
        ranges += self.limits.ranges.get(needs[0].framework.distribution, [])
        request, environment = self.shelf.request, self.shelf.environment
        found = admitted(found, ranges, environment.is_prerelease, pre=request.pre)
        if needs[0].ident in self.within:
            found = [variant for variant in found if id(variant) in self.within[needs[0].ident]]
        return lambda: (one for one in found if id(one) not in excluded and not self.refused(one))

    def _admits(self, need: FrameworkNeed, variant: Variant) -> bool:
        return not need.specifier or self.contains(need.specifier, variant.version, True)

    def is_satisfied_by(self, requirement: Need, candidate: Node) -> bool:
        if isinstance(requirement, FactNeed):
            return not self.blocked(requirement)
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

    def blocked(self, need: Need) -> bool:
        reasons = need.reasons if isinstance(need, FactNeed) else ()
        return any(not (self.lenient and is_doubt(reason)) for reason in reasons)

    def _meets(self, need: Need, candidate: Candidate) -> bool:
        if isinstance(need, ExactNeed):
            return candidate.wheel is need.wheel
        if not isinstance(need, DistNeed):
            return False
        if need.url is not None and not self._is_at(need.url, candidate):
            return False
        return not need.specifier or self.contains(need.specifier, candidate.version, True)

    def with_extras(self, candidate: Candidate, extras: tuple[str, ...]) -> Candidate:
        key = (candidate.wheel.index, candidate.wheel.filename, ",".join(extras))
        node = self._extra_nodes.get(key)
        if node is None:
            node = self._extra_nodes[key] = candidate.extended(extras)
        return node

    def _needs(self, candidate: Candidate) -> Iterator[Need]:
        if candidate.extras:
            yield ExactNeed(candidate.wheel)
        else:
            for need in self.shelf.build_needs(candidate):
                yield need
                if isinstance(need, FactNeed) and self.blocked(need):
                    return  # the build cannot be chosen: its dependencies need not be fetched
        try:
            requirements = self.shelf.index.dependencies(candidate.wheel)
        except UnusableFileError as error:
            yield FactNeed("__file", (error.reason,))
            return
        if not candidate.extras:
            yield from self._python_need(candidate)
        marker = self.shelf.environment.marker
        for requirement in requirements:
            text = requirement.marker
            if candidate.extras:
                if text is None or "extra" not in text or marker(text, ()) or not marker(text, candidate.extras):
                    continue
            elif text is not None and not marker(text, ()):
                continue
            specifier = self._specifier(candidate, requirement)
            need = DistNeed(requirement.name, requirement.extras, specifier, requirement.url)
            yield from need.with_base() if need.name != candidate.name else self._of_itself(need, candidate)

    def _of_itself(self, need: DistNeed, candidate: Candidate) -> Iterator[Need]:
        """What a release asks of its own package: it meets that, or it can never be chosen; extras are left over.

        As a need like others it would have a release hold itself in place, or make resolvelib walk in a circle.
        """
        if not self._meets(need, candidate):
            subject = f"{candidate.ident} {candidate.version}"
            reason = Reason(code="conflict", subject=subject, need=str(need), have=f"{candidate.version} itself")
            yield FactNeed("__file", (reason,))
        elif need.extras and need.extras != candidate.extras:
            yield DistNeed(need.name, need.extras, "")

    def _python_need(self, candidate: Candidate) -> Iterator[Need]:
        """What the metadata of a file says of Python, which its page may not say."""
        python = self.shelf.index.requires_python(candidate.wheel)
        if python and not self.shelf.environment.accepts_python(python):
            target = self.shelf.host.python
            have = f"Python {target.full_version or f'{target.version[0]}.{target.version[1]}'}"
            subject = f"{candidate.name} {candidate.version}"
            yield FactNeed("__python", (Reason(code="requires-python", subject=subject, need=python, have=have),))

    @staticmethod
    def _specifier(candidate: Candidate, requirement: Requirement) -> str:
        """R4: a cuDNN range is narrowed to releases that fit the build: same major, minor not older."""
        built, specifier = candidate.build or candidate.library, requirement.specifier
        ours = requirement.name.startswith("nvidia-cudnn-") and not is_exact(specifier)
        if not ours or built is None or built.cudnn is None:
            return specifier
        major, minor = (*built.cudnn.split("."), "0")[:2]
        return ",".join(filter(None, (specifier, f">={major}.{minor}", f"<{int(major) + 1}")))
