"""Who requires whom in a lock."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Mapping, Sequence

from ..errors import InputError
from ..model import Lock, Pin
from ..requirements.versions import normalize_name

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class Tree:
    """The packages of a lock by name, and which of them the user asked for.

    Attributes:
        pins: the packages by name.
        roots: the names that were asked for, then those that no package requires.
        asked: the names that were asked for.
    """

    def __init__(self, lock: Lock) -> None:
        beside = () if lock.wheels is None else lock.wheels.pins  # wheels beside conda packages
        self.pins: Mapping[str, Pin] = {pin.wheel.name: pin for pin in (*lock.pins, *beside)}
        self.asked = _asked(lock, self.pins)
        required = {name for pin in self.pins.values() for name in pin.dependencies}
        loose = [name for name in self.pins if name not in required and name not in self.asked]
        self.roots: Sequence[str] = (*self.asked, *loose)

    def dependencies(self, name: str) -> list[str]:
        """Return the locked packages that a package requires."""
        return [other for other in self.pins[name].dependencies if other in self.pins]

    def dependents(self, name: str) -> list[str]:
        """Return the locked packages that require a package."""
        return [other for other, pin in self.pins.items() if name in pin.dependencies]

    def with_dependents(self, names: Collection[str]) -> set[str]:
        """Return some packages, and the locked ones that require them, however far away."""
        found, waiting = set(names), list(names)
        while waiting:
            others = set(self.dependents(waiting.pop())) - found
            found |= others
            waiting += others
        return found

    def paths_to(self, name: str) -> list[tuple[str, ...]]:
        """Return the shortest path from each root to a package.

        Raises:
            InputError: the lock does not have the package.
        """
        normal = normalize_name(name)
        if normal not in self.pins:
            similar = [known for known in self.pins if normal in known][:3]
            hint = "gpuenv tree lists the packages"
            if similar:
                hint = f"did you mean {' or '.join(similar)}?"
            raise InputError(f"{name}: is not in the lock", hint=hint)
        paths = [self._shortest(root, normal) for root in self.roots]
        return [path for path in paths if path]

    def _shortest(self, root: str, goal: str) -> tuple[str, ...]:
        """Return a shortest path, () without one."""
        paths: dict[str, tuple[str, ...]] = {root: (root,)}
        waiting = deque([root])
        while waiting:
            name = waiting.popleft()
            for dependency in self.dependencies(name):
                if dependency not in paths:
                    paths[dependency] = (*paths[name], dependency)
                    waiting.append(dependency)
        return paths.get(goal, ())


def _asked(lock: Lock, pins: Mapping[str, Pin]) -> Sequence[str]:
    """Return the locked names that the lock's frameworks and requirements name."""
    names: dict[str, None] = {}
    for text in (*lock.frameworks, *lock.requirements):
        match = _NAME.match(text)
        if match is None:
            continue
        name = normalize_name(match[0])
        if name in pins:
            names[name] = None
        else:  # cupy has a distribution for each CUDA major: cupy-cuda13x
            names.update(dict.fromkeys(pin for pin in pins if pin.startswith(f"{name}-")))
    return tuple(names)
