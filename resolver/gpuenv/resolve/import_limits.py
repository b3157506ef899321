"""R10 for the names that a package imports and that newer releases of other packages lack.

A package of 2022 may admit every SciPy and import scipy.integrate.simps, which SciPy 1.14 removed.
matrix_data/removed_names.json says which release removed a name. binaries/imports says which of
these names a package imports. After a solution is found, some of its files are read: those of
packages that the request names, and those that are older than a removal in a chosen dependency.

Names of Python and of setuptools count only for packages that the request names, and so do names
that are used in functions. A function may never run: such a limit is dropped if no wheel or no plan
is left (CompatibilityData.accepts_pairs), and the plan has a warning.

An older release that was not read gets the limits of the next newer release that was read.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter

import msgspec

from ..binaries.device_code import DamagedFileError
from ..binaries.imports import Deep, PythonFiles, TopLevel, needed_of
from ..compat.data import Removal
from ..errors import GpuEnvError, Reason
from ..index.cache import Cache
from ..index.http import MAX_THREADS
from ..index.metadata import NoRangesError
from ..model import Value, Wheel
from ..requirements.target import version_key
from ..requirements.versions import contains
from .candidates import CandidateStore
from .graph import Candidate, Node, NodeRequirement, PackageRequirement, UnmetRequirement

MAX_BYTES = 8 << 20  # of a file that is read
_KIND = "imports"  # of the cache
# Environments used to have it, so few packages require it.
_ALWAYS_THERE = "setuptools"
_PYTHON = "python"


class Needs(Value):
    """The removed names that a package needs, with the module that needs each: {name: module}.

    Attributes:
        imports: the names that its import needs.
        uses: further names, which its functions use.
    """

    imports: dict[str, str] = msgspec.field(default_factory=dict)
    uses: dict[str, str] = msgspec.field(default_factory=dict)


class Limit(Value):
    """A range of another package that a release needs, and the reason."""

    distribution: str
    removal: Removal
    name: str  # "scipy.integrate.simps"
    because: str  # "skopt.utils imports scipy.integrate.simps"
    is_use: bool

    @property
    def specifier(self) -> str:
        """The releases before the removal."""
        return f"<{self.removal.since}"


class ImportLimits:
    """The limits of the releases that were chosen so far."""

    def __init__(self, store: CandidateStore, named: Iterable[str]) -> None:
        """Take the candidates, and the distributions that the request names."""
        self._store, self._named = store, frozenset(named)
        self._cache = Cache()
        self._python = ".".join(map(str, store.host.python.version))
        self._read: dict[str, list[tuple[Candidate, Needs]]] = {}

    def read(self, nodes: Iterable[Node]) -> bool:
        """Read the files of chosen releases that may conflict with other chosen releases.

        Returns:
            Whether there is a conflict.
        """
        chosen = [node for node in nodes if isinstance(node, Candidate) and not node.extras]
        versions = {one.name: one.version for one in chosen}
        versions[_PYTHON] = self._python
        unread = [one for one in chosen if self._may_conflict(one, versions)]
        with ThreadPoolExecutor(MAX_THREADS) as pool:
            found = pool.map(self._find, [one.wheel for one in unread])
        for one, files in zip(unread, found, strict=True):
            needs = files if isinstance(files, Needs) else self._needs_of(files, one.wheel)
            self._read.setdefault(one.name, []).append((one, needs))
        return any(
            _is_missing(limit.removal, limit.distribution, versions)
            for one in unread
            for limit in filter(self._binds, self._limits(one))
        )

    def _may_conflict(self, candidate: Candidate, versions: Mapping[str, str]) -> bool:
        """Return whether a file must be read, because a chosen dependency has removed names."""
        wheel, store = candidate.wheel, self._store
        is_read = any(one is candidate for one, _ in self._read.get(wheel.name, ()))
        if is_read or store.index.at_hand(wheel.name) or (wheel.size or 0) > MAX_BYTES:
            return False
        links = store.data.links(wheel.name, wheel.version, store.host.platform, wheel.url)
        return links is None and any(
            _is_missing(removal, name, versions) for name, removal in self._removals(wheel)
        )

    def _removals(self, wheel: Wheel) -> Iterator[tuple[str, Removal]]:
        """Yield (distribution, removal) of the names that a file may import.

        A removal that is older than the file counts only for packages that the request names.
        """
        names, since = {need.name for need in self._store.dependencies(wheel)}, wheel.upload_time
        if wheel.name in self._named:
            names, since = names | {_PYTHON, _ALWAYS_THERE}, None
        for name in names:
            for removal in self._store.data.removals.get(name, ()):
                if removal.date > (since or ""):
                    yield name, removal

    def _find(self, wheel: Wheel) -> Needs | PythonFiles:
        """Return the needs of a file from the cache; otherwise its modules.

        A file that cannot be read has no needs.
        """
        needs = self._cache.get(_KIND, self._key(wheel), Needs) if wheel.sha256 else None
        if needs is not None:
            return needs
        try:
            file = self._store.index.open(wheel)
            if file is None:
                return Needs()
            with file:
                return PythonFiles(file, wheel.filename, wheel.name)
        except (DamagedFileError, GpuEnvError, NoRangesError, OSError):
            return Needs()

    def _key(self, wheel: Wheel) -> str:
        is_named = wheel.name in self._named
        return f"{wheel.sha256} {is_named} {self._store.data.version}"

    def _needs_of(self, files: PythonFiles, wheel: Wheel) -> Needs:
        """Return the needs of a file.

        A name that a function uses counts if it was removed at most a year before the upload:
        otherwise somebody would have noticed.
        """
        rows = list(self._removals(wheel))
        names = {name for _, removal in rows for name in removal.names}
        needs = Needs(imports=needed_of(files, names, TopLevel))
        if wheel.name in self._named:
            uploaded = wheel.upload_time
            since = f"{int(uploaded[:4]) - 1}{uploaded[4:]}" if uploaded else ""
            names = {name for _, one in rows if one.date > since for name in one.names}
            uses = needed_of(files, names - needs.imports.keys(), Deep)
            needs = needs.replace(uses=uses)
        if wheel.sha256:
            self._cache.put(_KIND, self._key(wheel), needs)
        return needs

    def _limits(self, candidate: Candidate) -> Iterator[Limit]:
        """Yield the strictest limit of the imports for each package, then that of the uses."""
        own = version_key(candidate.version)
        read = [(version_key(one.version), needs) for one, needs in self._read[candidate.name]]
        newer = [pair for pair in read if pair[0] >= own]
        needs = min(newer, key=itemgetter(0))[1] if newer else Needs()
        for verb, names in (("imports", needs.imports), ("uses", needs.uses)):
            found: dict[str, Limit] = {}
            for name, module in sorted(names.items()):
                distribution, removal = self._store.data.removed_names[name]
                limit = Limit(
                    distribution=distribution,
                    removal=removal,
                    name=name,
                    because=f"{module} {verb} {name.rstrip('.')}",
                    is_use=verb == "uses",
                )
                known = found.setdefault(distribution, limit)
                if version_key(removal.since) < version_key(known.removal.since):
                    found[distribution] = limit
            yield from found.values()

    def _binds(self, limit: Limit) -> bool:
        """Return whether a limit is a requirement. That of a use is one if a wheel is left."""
        if not limit.is_use:
            return True
        if self._store.data.accepts_pairs or limit.distribution == _PYTHON:
            return False
        candidates = self._store.candidates(limit.distribution)
        in_range = self._store.in_ranges(candidates, [limit.specifier])
        return any(not one.needs_build for one in in_range)

    def requirements(self, candidate: Candidate) -> Iterator[NodeRequirement]:
        """Yield the requirements of a release that follow from its limits."""
        if candidate.name not in self._read:
            return
        for limit in filter(self._binds, self._limits(candidate)):
            if limit.distribution == _PYTHON:
                if contains(limit.specifier, self._python):
                    continue
                if limit.name == "distutils":  # setuptools brings it
                    yield PackageRequirement(_ALWAYS_THERE, (), "", because=limit.because)
                else:
                    need = f"Python {limit.specifier} ({limit.because})"
                    have = f"Python {self._python}"
                    yield UnmetRequirement(Reason("requires-python", candidate.label, need, have))
            else:
                yield _requirement(limit)

    def on(self, distributions: Container[str]) -> Iterator[tuple[Candidate, PackageRequirement]]:
        """Yield (release, limit) of the releases that were read, for some distributions."""
        for candidate in (one for read in self._read.values() for one, _ in read):
            for limit in filter(self._binds, self._limits(candidate)):
                if limit.distribution in distributions:
                    yield candidate, _requirement(limit)

    @property
    def has_uses(self) -> bool:
        """Whether the functions of a package use removed names."""
        return any(needs.uses for read in self._read.values() for _, needs in read)

    def ignored_uses(self, pins: Iterable[Wheel]) -> Iterator[Reason]:
        """Yield the removed names that the functions of a plan's packages use. Code: avoid-pair."""
        wheels = list(pins)
        versions = {wheel.name: wheel.version for wheel in wheels} | {_PYTHON: self._python}
        for candidate in (one for read in self._read.values() for one, _ in read):
            for limit in self._limits(candidate) if candidate.wheel in wheels else ():
                name = limit.distribution
                is_there = limit.is_use and name in versions
                if is_there and _is_missing(limit.removal, name, versions):
                    need = f"{limit.because}, which {name} {limit.removal.since} lacks"
                    yield Reason("avoid-pair", candidate.label, need, f"{name} {versions[name]}")


def _is_missing(removal: Removal, distribution: str, versions: Mapping[str, str]) -> bool:
    """Return whether names are missing beside chosen versions: setuptools counts if absent."""
    if distribution not in versions:
        return distribution == _ALWAYS_THERE
    return not contains(f"<{removal.since}", versions[distribution])


def _requirement(limit: Limit) -> PackageRequirement:
    return PackageRequirement(limit.distribution, (), limit.specifier, because=limit.because)
