"""Which builds a host can have: the candidates of each framework, best first, and the ranges of CUDA and cuDNN."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping, Sequence

from ...compat import conda_parts, conda_records, evaluate
from ...compat.conda_records import Carriers, Record, Row
from ...compat.data import CompatibilityData
from ...compat.evaluate import is_doubt
from ...errors import Reason
from ...model import CudaVersion, Host, Value
from ...requirements import conda_versions

MOST_TRIES = 24


class Wanted(Value):
    """A framework that is asked for: its PEP 440 range, or a range as conda writes it (and a build)."""

    framework: str
    specifier: str = ""
    spec: str = "*"
    build: str = "*"


class Candidate(Value):
    """Builds of one release for one CUDA, which differ in their Python only. `reasons` speak against all of them.

    `limits` are (package, range): what the host can have of cuDNN and of the packages of the toolkit.
    """

    wanted: Wanted
    row: Row
    reasons: tuple[Reason, ...]
    limits: tuple[tuple[str, str], ...]

    @property
    def subject(self) -> str:
        """pytorch 2.8.0 (cuda129)."""
        return f"{self.row.name} {self.row.version} ({conda_parts.variant_name(self.row)})"


class Shelf:
    """The records of a request, on a host."""

    def __init__(self, records: Sequence[Record], host: Host, matrix: CompatibilityData, carriers: Carriers) -> None:
        self.host, self.matrix, self.carriers = host, matrix, carriers
        self.by_name: dict[str, list[Record]] = {}
        for record in records:
            self.by_name.setdefault(record["name"], []).append(record)

    def candidates(
        self, wanted: Wanted, admits: Callable[[str, str], bool], python: tuple[int, int] | None
    ) -> list[Candidate]:
        """Every release and CUDA of a framework, newest release first, newest CUDA first within one."""
        groups: dict[tuple[str, str, str], Row] = {}
        for record in conda_records.newest(self.by_name.get(self.carriers.carriers[wanted.framework], ())):
            row = self.carriers.row(record, wanted.framework)
            fits = conda_versions.contains(wanted.spec, row.version) and fnmatch.fnmatchcase(row.build, wanted.build)
            right = python is None or row.python in (None, python)
            if fits and right and admits(wanted.specifier, row.version):
                groups.setdefault((row.channel, row.version, row.glob), row)
        found = [self._candidate(wanted, row) for row in groups.values()]
        found.sort(key=lambda one: one.row.cuda or (0, 0), reverse=True)
        found.sort(key=lambda one: conda_versions.version(one.row.version), reverse=True)
        return found

    def _candidate(self, wanted: Wanted, row: Row) -> Candidate:
        reasons = [*conda_parts.row_reasons(row, self.host, self.matrix)]
        limits = []
        for dependency in row.depends:
            name, _, _ = conda_versions.split(dependency)
            if name not in (*conda_records.CUDNN, *conda_records.TOOLKITS) or not self.by_name.get(name) or not self.host.gpus:
                continue
            able = [
                one
                for one in self.by_name[name]
                if conda_versions.matches(dependency, name, one["version"], one["build"])
            ]
            good, against = self._sorted(able, row)
            if not good and able:
                reasons += against
            elif good:
                limits.append((name, conda_versions.one_of(good)))
        return Candidate(wanted=wanted, row=row, reasons=tuple(dict.fromkeys(reasons)), limits=tuple(limits))

    def _sorted(self, able: Sequence[Record], row: Row) -> tuple[list[str], list[Reason]]:
        """(the versions that nothing speaks against, else those of doubts alone, what speaks against the others)."""
        good: list[str] = []
        doubtful: list[str] = []
        against: list[Reason] = []
        for record in able:
            reasons = self.reasons(record, row.cuda)
            if record["name"] in conda_records.CUDNN and row.cudnn is not None:
                subject = f"{row.name} {row.version}"
                reasons = (*reasons, *evaluate.cudnn_reasons(subject, row.cudnn, record["version"]))
            if not reasons:
                good.append(record["version"])
            elif all(map(is_doubt, reasons)):
                doubtful.append(record["version"])
            against += reasons
        chosen = good or doubtful
        return self._preferred(able[0]["name"], chosen) if able else [], against

    def _preferred(self, name: str, chosen: list[str]) -> list[str]:
        """Of toolkits those no newer than the driver's CUDA, if there are any: PTX of newer ones would not run."""
        driver = self.host.driver_cuda
        if name not in conda_records.TOOLKITS or driver is None:
            return chosen
        toolkits = {one: conda_records.toolkit_of({"name": name, "version": one}) for one in chosen}
        return [one for one, cuda in toolkits.items() if cuda is not None and cuda <= driver] or chosen

    def reasons(self, record: Record, cuda: CudaVersion | None) -> tuple[Reason, ...]:
        """What speaks against one record of cuDNN or of a toolkit, for a build of some CUDA."""
        found = conda_parts.toolkit_reasons(record, self.host, self.matrix)
        if record["name"] in conda_records.CUDNN:
            found = (*found, *conda_parts.library_reasons(record, cuda or _cuda_asked(record), self.host, self.matrix))
        return found

    def asked(self, spec: str) -> tuple[str, ...]:
        """For a user's own requirement of cuDNN or of a toolkit: the versions that the host can have.

        Raises ImpossibleError with what speaks against each if it can have none.
        """
        name, ranged, build = conda_versions.split(spec)
        able = [
            one
            for one in self.by_name.get(name, ())
            if conda_versions.contains(ranged, one["version"]) and fnmatch.fnmatchcase(one["build"], build)
        ]
        against = {one["version"]: self.reasons(one, None) for one in able}
        good = [version for version, reasons in against.items() if all(map(is_doubt, reasons))]
        if able and not good and self.host.gpus:
            raise ImpossibleError(tuple(dict.fromkeys(reason for reasons in against.values() for reason in reasons)))
        return tuple(good) if len(good) < len(against) else ()


class ImpossibleError(Exception):
    """A requirement that the host can have in no version. `reasons` speak against them."""

    def __init__(self, reasons: tuple[Reason, ...]) -> None:
        super().__init__()
        self.reasons = reasons


def _cuda_asked(record: Record) -> CudaVersion | None:
    """The CUDA that a cuDNN is for, by what it depends on."""
    for dependency in record.get("depends") or ():
        name, spec, _ = conda_versions.split(dependency)
        least = conda_versions.lower_bound(spec) if name in conda_records.TOOLKITS else None
        if least is not None:
            return conda_records.toolkit_of({"name": "cuda-version", "version": f"{least}.0"})
    return None


def combinations(shelves: Sequence[Sequence[Candidate]], *, lenient: bool) -> Iterator[tuple[Candidate, ...]]:
    """One candidate of each framework, of one CUDA major, best first: the sum of the places in the lists counts."""
    from itertools import product

    lists = [
        [(place, one) for place, one in enumerate(shelf) if all(lenient and is_doubt(r) for r in one.reasons)]
        for shelf in shelves
    ]
    found = [
        (sum(place for place, _ in several), count, tuple(one for _, one in several))
        for count, several in enumerate(product(*(one[:MOST_TRIES] for one in lists)))
    ]
    for _, _, several in sorted(found, key=lambda item: item[:2]):
        if len({one.row.cuda[0] for one in several if one.row.cuda is not None}) <= 1:
            yield several


def specs_of(candidate: Candidate, packages: Mapping[str, str]) -> list[str]:
    """What a solver is asked for, so that a candidate is chosen: its release and build, and the ranges beside it."""
    row = candidate.row
    found = [f"{row.name} =={row.version} {row.glob}"]
    package = packages[candidate.wanted.framework]
    if package != row.name:
        found.append(package if candidate.wanted.spec == "*" else f"{package} {candidate.wanted.spec}")
    return found + [f"{name} {ranged}" for name, ranged in candidate.limits]
