"""R5 in a resolution: distributions that install the same paths.

The members of a family agree on one of them, unless the family is tolerated.

A dependency on a replaceable member (onnxruntime) becomes one on the member that the environment
gets anyway (onnxruntime-gpu). The request tells which that is, or what a resolution has chosen:
then the resolution is repeated with `Owners.replacing`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..compat.data import CompatibilityData
from ..compat.evaluate import owner_agreements
from ..compat.rows import Family
from ..model import Framework
from .candidates import CandidateStore
from .graph import (
    AgreementRequirement,
    Candidate,
    FrameworkRequirement,
    Node,
    NodeRequirement,
    PackageRequirement,
)


@dataclass(frozen=True)
class Owners:
    """How a resolution treats the members of families.

    Attributes:
        data: the families.
        named: the distributions that the request names.
        places: replaced distribution -> the distribution, or the framework of the request, that
            takes its place.
    """

    data: CompatibilityData
    named: frozenset[str] = frozenset()
    places: Mapping[str, str | Framework] = field(default_factory=dict)

    @classmethod
    def of(cls, roots: Iterable[NodeRequirement], data: CompatibilityData) -> Owners:
        """Return the owners for the requirements of a request."""
        named: set[str] = set()
        places: dict[str, str | Framework] = {}
        for root in roots:
            names: set[str] = set()
            place: str | Framework = ""
            if isinstance(root, FrameworkRequirement):
                place, names = root.framework, {way.distribution for way in root.framework.ways}
            elif isinstance(root, PackageRequirement):
                place, names = root.name, {root.name}
            named |= names
            for family in filter(None, map(data.family, names)):
                places |= {name: place for name in family.replaceable if names != {name}}
        return cls(data, frozenset(named), places)

    def in_place(self, requirement: PackageRequirement) -> NodeRequirement:
        """Return what a dependency requires in place of a replaced distribution."""
        place = self.places.get(requirement.name)
        if place is None or requirement.url:
            return requirement
        specifier, replaced = requirement.specifier, requirement.name
        if isinstance(place, Framework):
            return FrameworkRequirement(place, specifier, str(requirement), replaced)
        return PackageRequirement(place, requirement.extras, specifier, None, replaced)

    def is_decided(self, name: str) -> bool:
        """Return whether a distribution is there, if it is required, and no other in its place.

        Until this is known of a member, it agrees on nothing with the others of its family.
        """
        family = self.data.family(name)
        is_replaceable = family is not None and name in family.replaceable
        return not is_replaceable or name in self.named or name in self.places

    def agreements(self, root: PackageRequirement) -> Iterator[AgreementRequirement]:
        """Yield what a requirement of the request and all others must agree on."""
        return map(AgreementRequirement, owner_agreements(root.name, self.data))

    def replacing(self, chosen: Collection[str]) -> Owners | None:
        """Return the owners if one of some chosen distributions takes the place of another one.

        None if nothing is left to be replaced: what the request names is not.
        """
        for family, members in self.families(chosen):
            for name in family.replaceable:
                if name in members and name not in self.named and name not in self.places:
                    others = [other for other in members if other != name]
                    others.sort(key=lambda other: other not in self.named)
                    return replace(self, places={**self.places, name: others[0]})
        return None

    def families(self, chosen: Collection[str]) -> Iterator[tuple[Family, Sequence[str]]]:
        """Yield the families of which several members are chosen, with these members."""
        for family in filter(None, dict.fromkeys(map(self.data.family, sorted(chosen)))):
            members = [name for name in family.distributions if name in chosen]
            if len(members) > 1:
                yield family, members

    def one_release(
        self,
        store: CandidateStore,
        nodes: Iterable[Node],
        requirements: Iterable[NodeRequirement],
    ) -> dict[str, str]:
        """Return the newest common release of tolerated members that have different ones.

        It is {member: version}. What had a wheel gets one.

        Args:
            store: the candidates.
            nodes: a solution.
            requirements: those of the request and of the solution, which admit the release.
        """
        chosen = {node.name: node for node in nodes if isinstance(node, Candidate)}
        ranges: dict[str, list[str]] = {}
        for requirement in requirements:
            if isinstance(requirement, PackageRequirement):
                ranges.setdefault(requirement.name, []).append(requirement.specifier)
        same: dict[str, str] = {}
        for family, members in self.families(chosen):
            if not family.tolerated or len({chosen[name].version for name in members}) == 1:
                continue
            releases = []
            for name in members:
                matches = store.in_ranges(store.candidates(name), ranges.get(name, ()))
                may_build = chosen[name].needs_build
                releases.append([one.version for one in matches if may_build >= one.needs_build])
            for version in releases[0]:
                if all(version in others for others in releases):
                    same |= dict.fromkeys(members, version)
                    break
        return same
