"""Overrides: requirements that replace every other one on their names, as in uv."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from ..model import Requirement
from .versions import parse_requirement

_EXTRA = re.compile(r'extra == "[^"]*"')


class Overrides:
    """The overrides of a request.

    One that a marker excludes removes the requirements on its name. Constraints still hold.

    Attributes:
        names: the packages that have an override.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self._by_name: dict[str, list[Requirement]] = {}
        for override in map(parse_requirement, texts):
            self._by_name.setdefault(override.name, []).append(override)
        self.names = frozenset(self._by_name)

    def apply(self, requirements: Iterable[Requirement]) -> Iterator[Requirement]:
        """Yield requirements as the overrides have them.

        An override has its own extras and marker. In place of a requirement of an extra it belongs
        to that extra, too.
        """
        for requirement in requirements:
            own = _EXTRA.findall(requirement.marker or "")
            for override in self._by_name.get(requirement.name, (requirement,)):
                if not own or override is requirement:
                    yield override
                    continue
                marker = " or ".join(own)
                if override.marker is not None:
                    marker = f"({marker}) and ({override.marker})"
                yield override.replace(marker=marker)
