"""What a resolution has chosen, and what the resolutions before it learned from conflicts.

A conflict is a node of which no candidate can be chosen. It proves that the pins that are to blame
cannot be chosen together: a nogood, as in PubGrub and in SAT solvers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .graph import Cause, Identifier, Node, NogoodRequirement

# How often a pin may give way to a requirement that comes later. Further ones are conflicts, or two
# packages that exclude each other's releases could replace each other for ever.
_MAX_REPLACEMENTS = 3


class ConflictError(Exception):
    """No candidate of a node can be chosen.

    Attributes:
        node: the node.
        releases: the chosen releases that are to blame.
        impossible: the candidates of the node that cannot be chosen whatever else is chosen, each
            with the requirements that nothing meets.
        causes: the requirements that exclude each other.
    """

    def __init__(
        self,
        node: Identifier,
        releases: frozenset[Node],
        impossible: Mapping[Node, Sequence[Cause]],
        causes: Sequence[Cause],
    ) -> None:
        super().__init__(node)
        self.node = node
        self.releases = releases
        self.impossible = impossible
        self.causes = causes


class Nogoods:
    """What has been learned: sets of releases that cannot be chosen together."""

    def __init__(self) -> None:
        self._alone: dict[Node, Sequence[Cause]] = {}
        self._together: dict[Node, list[NogoodRequirement]] = {}

    def add(self, conflict: ConflictError) -> None:
        """Add the releases of a conflict."""
        self._alone.update(conflict.impossible)
        if len(conflict.releases) == 1:
            self._alone.update(dict.fromkeys(conflict.releases, conflict.causes))
            return
        nogood = NogoodRequirement(conflict.releases, conflict.causes)
        for release in conflict.releases:
            self._together.setdefault(release, []).append(nogood)

    def exclude(self, release: Node) -> bool:
        """Return whether a release cannot be chosen at all."""
        return release in self._alone

    def why(self, release: Node) -> Sequence[Cause]:
        """Return the requirements because of which a release is excluded, () if it is not."""
        return self._alone.get(release, ())

    def violated(self, release: Node, pins: Mapping[Identifier, Node]) -> NogoodRequirement | None:
        """Return a nogood that a release and the pins would violate; None if there is none."""
        for nogood in self._together.get(release, ()):
            others = (other for other in nogood.releases if other is not release)
            if all(pins.get(other.identifier) is other for other in others):
                return nogood
        return None


class Pins:
    """The candidates that a resolution has chosen and that meet all requirements so far.

    Attributes:
        chosen: the candidates, in the order of the decisions.
    """

    def __init__(self, chosen: Mapping[Identifier, Node] | None = None) -> None:
        self.chosen: dict[Identifier, Node] = dict(chosen or {})
        self._replacements: dict[Identifier, int] = {}

    def replace(self, node: Identifier) -> Node:
        """Remove a pin that a later requirement excludes, and return it."""
        self._replacements[node] = self._replacements.get(node, 0) + 1
        return self.chosen.pop(node)

    def may_replace(self, node: Identifier) -> bool:
        """Return whether the pin of a node may give way to a requirement that it does not meet."""
        return self._replacements.get(node, 0) < _MAX_REPLACEMENTS
