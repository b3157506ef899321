"""R10 for the names that a package imports: what later releases of other packages do not have.

A package of 2022 may admit every SciPy, and import scipy.integrate.simps, which SciPy 1.14 removed.
matrix_data/removed_names.json tells since which release names are gone. The files of chosen
releases tell which of them their import needs (binaries/imports). Only those are read that may
conflict: what is older than a removal in a package beside it, and what the request names, of which
names of Python and of setuptools count, too.

What the functions of a package name that the request names counts, too, unless there is no plan or
no wheel then (CompatibilityData.accepts_pairs): a function may never run.

A release that was not read needs what the next newer one that was read needs: as old as that, its
files name what was there at that time.
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
# Environments had it without asking, so that few packages require it.
_ALWAYS_THERE = "setuptools"
_PYTHON = "python"


class Needs(Value):
    """The names that are gone and that a file needs: {name: the module of it that has the name}.

    Attributes:
        imports: what its import needs.
        uses: what its functions name besides.
    """

    imports: dict[str, str] = msgspec.field(default_factory=dict)
    uses: dict[str, str] = msgspec.field(default_factory=dict)


class Limit(Value):
    """Why a release needs releases of another package that are older than a removal."""

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
    """What the releases that solutions have chosen so far need because of their imports."""

    def __init__(self, store: CandidateStore, named: Iterable[str]) -> None:
        """Take the candidates, and the distributions that the request names."""
        self._store, self._named = store, frozenset(named)
        self._accepts_uses = store.data.accepts_pairs
        self._python = ".".join(map(str, store.host.python.version))
        self._read: dict[str, list[tuple[Candidate, Needs]]] = {}

    def read(self, nodes: Iterable[Node]) -> bool:
        """Read the files of chosen releases that may not fit those beside them.

        Returns:
            Whether one of them does not fit the chosen releases.
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
            not contains(limit.specifier, versions[limit.distribution])
            if limit.distribution in versions
            else limit.distribution == _ALWAYS_THERE
            for one in unread
            for limit in filter(self._binds, self._limits(one))
        )

    def _may_conflict(self, candidate: Candidate, versions: Mapping[str, str]) -> bool:
        """Return whether a file must be read, because something beside it has lost names."""
        wheel, store = candidate.wheel, self._store
        links = store.data.links(wheel.name, wheel.version, store.host.platform, wheel.url)
        is_read = any(one is candidate for one, _ in self._read.get(wheel.name, ()))
        is_large = (wheel.size or 0) > MAX_BYTES
        if is_read or links is not None or store.index.at_hand(wheel.name) or is_large:
            return False
        is_named = wheel.name in self._named
        return any(
            name in (*versions, _ALWAYS_THERE)
            and not contains(f"<{removal.since}", versions.get(name, removal.since))
            for name, removal in self._removals(wheel, "" if is_named else wheel.upload_time or "")
        )

    def _removals(self, wheel: Wheel, since: str) -> Iterator[tuple[str, Removal]]:
        """Yield (distribution, removal) of the names that a file may need, and that are gone."""
        names = {need.name for need in self._store.dependencies(wheel)}
        if wheel.name in self._named:
            names |= {_PYTHON, _ALWAYS_THERE}
        for name in names:
            for removal in self._store.data.removals.get(name, ()):
                if removal.date > since:
                    yield name, removal

    def _find(self, wheel: Wheel) -> Needs | PythonFiles:
        """Return what a file needs, if that is cached; otherwise its modules.

        A file that cannot be read needs nothing.
        """
        needs = Cache().get(_KIND, self._key(wheel), Needs) if wheel.sha256 else None
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
        """Return what a file needs of what was gone later, of functions a year before at most.

        Nobody can have used for a year what was gone. Imports of what the request names always
        count.
        """
        uploaded, is_named = wheel.upload_time or "", wheel.name in self._named
        rows = list(self._removals(wheel, "" if is_named else uploaded))
        names = {name for _, removal in rows for name in removal.names}
        needs = Needs(imports=needed_of(files, names, TopLevel))
        if is_named:
            year_before = f"{int(uploaded[:4]) - 1}{uploaded[4:]}" if uploaded else ""
            rows = [row for row in rows if row[1].date > year_before]
            names = {name for _, removal in rows for name in removal.names} - needs.imports.keys()
            needs = needs.replace(uses=needed_of(files, names, Deep))
        if wheel.sha256:
            Cache().put(_KIND, self._key(wheel), needs)
        return needs

    def _limits(self, candidate: Candidate) -> Iterator[Limit]:
        """Yield the oldest removal in each package that the import or the functions do not fit."""
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
        """Return whether a limit is a requirement; that of a function is one if a wheel is left."""
        if not limit.is_use:
            return True
        if self._accepts_uses or limit.distribution == _PYTHON:
            return False
        candidates = self._store.candidates(limit.distribution)
        in_range = self._store.in_ranges(candidates, [limit.specifier])
        return any(not one.needs_build for one in in_range)

    def requirements(self, candidate: Candidate) -> Iterator[NodeRequirement]:
        """Yield what a release requires because of what its files import."""
        if candidate.name not in self._read:
            return
        for limit in filter(self._binds, self._limits(candidate)):
            if limit.distribution == _PYTHON:
                if contains(limit.specifier, self._python):
                    continue
                if limit.name == "distutils":  # setuptools has one, too
                    yield PackageRequirement(_ALWAYS_THERE, (), "", because=limit.because)
                else:
                    need = f"Python {limit.specifier} ({limit.because})"
                    have = f"Python {self._python}"
                    yield UnmetRequirement(Reason("requires-python", candidate.label, need, have))
            else:
                yield _requirement(limit)

    def on(self, distributions: Container[str]) -> Iterator[tuple[Candidate, PackageRequirement]]:
        """Yield the limits that the releases which were read have on some distributions."""
        for candidate in (one for read in self._read.values() for one, _ in read):
            for limit in filter(self._binds, self._limits(candidate)):
                if limit.distribution in distributions:
                    yield candidate, _requirement(limit)

    @property
    def has_uses(self) -> bool:
        """Whether a file that was read uses names that are gone."""
        return any(needs.uses for read in self._read.values() for _, needs in read)

    def ignored_uses(self, pins: Iterable[Wheel]) -> Iterator[Reason]:
        """Yield what the functions of a plan's packages name that is gone. Code: avoid-pair."""
        wheels = list(pins)
        versions = {wheel.name: wheel.version for wheel in wheels} | {_PYTHON: self._python}
        for candidate in (one for read in self._read.values() for one, _ in read):
            for limit in self._limits(candidate):
                version = versions.get(limit.distribution, "")
                is_met = not version or contains(limit.specifier, version)
                if limit.is_use and candidate.wheel in wheels and not is_met:
                    need = (
                        f"{limit.because}, which {limit.distribution} {limit.removal.since} lacks"
                    )
                    have = f"{limit.distribution} {version}"
                    yield Reason("avoid-pair", candidate.label, need, have)


def _requirement(limit: Limit) -> PackageRequirement:
    return PackageRequirement(limit.distribution, (), limit.specifier, because=limit.because)
