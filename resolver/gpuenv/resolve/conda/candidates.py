"""The builds of a framework that a host can run, best first, with their limits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from ...compat import conda_parts, conda_records, evaluate
from ...compat.conda_records import Carriers, Record, Row
from ...compat.data import CompatibilityData
from ...errors import InputError, Reason, is_doubt
from ...model import CudaVersion, Host, Request, Value
from ...requirements import conda_versions
from ...requirements.versions import contains
from . import virtual_packages

MOST_TRIES = 24  # candidates of one framework, and combinations of candidates, that are tried


class FrameworkSpec(Value):
    """A requested framework: its PEP 440 range, or a spec as conda writes it. "" is any channel."""

    framework: str
    specifier: str = ""
    spec: str = "*"
    build: str = "*"
    channel: str = ""


class Candidate(Value):
    """Builds of one release for one CUDA, which differ only in their Python.

    `reasons` hold against all of them. `limits` are (package, range): the versions of cuDNN and
    of the toolkit's packages that the host can run. `preferences` are specs of those toolkits whose
    PTX the driver can run, too; they must not exclude a newer release.
    """

    requested: FrameworkSpec
    row: Row
    reasons: tuple[Reason, ...]
    limits: tuple[tuple[str, str], ...]
    preferences: tuple[str, ...]

    @property
    def subject(self) -> str:
        """Return "pytorch 2.8.0 (cuda129)"."""
        return self.row.subject


class ImpossibleError(Exception):
    """No version of a requirement can run on the host. `reasons` speak against them."""

    def __init__(self, reasons: tuple[Reason, ...]) -> None:
        super().__init__()
        self.reasons = reasons


class CandidateStore:
    """The records of a request, judged for a host."""

    def __init__(
        self,
        records: Sequence[Record],
        host: Host,
        matrix: CompatibilityData,
        carriers: Carriers,
        *,
        request: Request,
        limits: Sequence[str],
    ) -> None:
        """`limits` are those of Solver."""
        self.host, self.matrix, self.carriers = host, matrix, carriers
        self.request, self.limits = request, limits
        packages = virtual_packages.of_host(host)
        self.virtual = {name: (version, build) for name, version, build in packages}
        self.by_name: dict[str, list[Record]] = {}
        for record in records:
            self.by_name.setdefault(record["name"], []).append(record)

    def candidates(
        self,
        requested: FrameworkSpec,
        python: tuple[int, int] | None,
    ) -> list[Candidate]:
        """Return every release and CUDA of a framework: newest release first, then newest CUDA.

        Args:
            requested: The framework and its ranges.
            python: The Python that the build must be for; None for any.
        """
        rows: dict[tuple[str, str, str], Row] = {}
        package = self.carriers.carriers[requested.framework]
        for record in conda_records.newest(self.by_name.get(package, ())):
            _, glob = conda_records.cuda_of(record)
            channel = conda_records.channel_name(str(record.get("channel", "")))
            key = (channel, record["version"], glob)
            # Most records differ in their Python only.
            if key in rows or not _admits(requested, record):
                continue
            if python is not None and conda_records.python_of(record) not in (None, python):
                continue
            row = self.carriers.row(record)
            pre = self.request.pre
            if row is not None and admits(requested.specifier, record["version"], pre):
                rows[key] = row
        candidates = [self._candidate(requested, row) for row in rows.values()]
        candidates.sort(key=lambda candidate: candidate.row.cuda or (0, 0), reverse=True)
        candidates.sort(
            key=lambda candidate: conda_versions.version(candidate.row.version), reverse=True
        )
        return candidates

    def _candidate(self, requested: FrameworkSpec, row: Row) -> Candidate:
        tags = (row.variant, row.variant.replace("cuda", "cu"))
        # The rules compare the driver.
        depends = [spec for spec in row.depends if not spec.startswith("__cuda")]
        record = {"name": row.name, "version": row.version, "depends": depends}
        other_build = evaluate.other_build_reason(
            dict(self.request.builds), row.framework, row.subject, tags, row.cuda
        )
        reasons = [
            *filter(None, [other_build]),
            *self._limit_reasons(row),
            *conda_parts.row_reasons(row, self.host, self.matrix),
            *conda_parts.virtual_reasons(record, self.virtual),
        ]
        limits, preferences = [], []
        for dependency in row.depends:
            name, _, _ = conda_versions.split(dependency)
            if not _is_cuda_package(name) or not self.host.gpus:
                continue
            matching = self._matching(dependency, name)
            versions, against = self._judge(matching, row)
            if versions:
                limits.append((name, conda_versions.one_of(versions)))
                preferences += self._of_driver_cuda(name, versions)
            elif matching:
                reasons += against
        return Candidate(
            requested=requested,
            row=row,
            reasons=tuple(dict.fromkeys(reasons)),
            limits=tuple(limits),
            preferences=tuple(preferences),
        )

    def _limit_reasons(self, row: Row) -> Iterator[Reason]:
        """Yield the limits that exclude a release. Code: pinned."""
        names = (row.name, self.carriers.packages[row.framework])
        for limit in self.limits:
            name, version_range, _ = conda_versions.split(limit)
            if name in names and not conda_versions.contains(version_range, row.version):
                yield Reason(code="pinned", subject=row.subject, need=limit, have=row.version)

    def _matching(self, dependency: str, name: str) -> list[Record]:
        def is_match(record: Record) -> bool:
            return conda_versions.matches(dependency, name, record["version"], record["build"])

        return list(filter(is_match, self.by_name.get(name, ())))

    def _judge(self, records: Sequence[Record], row: Row) -> tuple[list[str], list[Reason]]:
        """Judge the records of one CUDA package for a build.

        Returns:
            The versions that nothing speaks against, or if there are none those with doubts only;
            and what speaks against the others.
        """
        good: list[str] = []
        doubtful: list[str] = []
        against: list[Reason] = []
        for record in records:
            reasons = self.reasons(record, row.cuda)
            if record["name"] in conda_records.CUDNN and row.cudnn is not None:
                subject = f"{row.name} {row.version}"
                cudnn_reasons = evaluate.cudnn_reasons(subject, row.cudnn, record["version"])
                reasons = (*reasons, *cudnn_reasons)
            if not reasons:
                good.append(record["version"])
            elif all(map(is_doubt, reasons)):
                doubtful.append(record["version"])
            against += reasons
        return good or doubtful, against

    def _of_driver_cuda(self, name: str, versions: Sequence[str]) -> list[str]:
        """Return the spec of the toolkits that are not newer than the driver's CUDA.

        Returns:
            [] if all toolkits or none are that old, or if the package is not a toolkit.
        """
        driver = self.host.driver_cuda
        if name not in conda_records.TOOLKITS or driver is None:
            return []
        preferred = []
        for version in dict.fromkeys(versions):
            cuda = conda_records.toolkit_of({"name": name, "version": version})
            if cuda is not None and cuda <= driver:
                preferred.append(version)
        if not preferred or len(preferred) == len(set(versions)):
            return []
        return [f"{name} {conda_versions.one_of(preferred)}"]

    def reasons(self, record: Record, cuda: CudaVersion | None) -> tuple[Reason, ...]:
        """Return what speaks against a record of cuDNN or of a toolkit, for a build of `cuda`."""
        cuda = cuda or conda_records.cuda_dependency(record)
        return conda_parts.record_reasons(record, cuda, self.host, self.matrix)

    def limits_of(self, spec: str) -> tuple[list[str], list[str]]:
        """Return (limits, preferences) of a user's spec of cuDNN or of a toolkit.

        The limits hold the versions that the host can run, the preferences those that
        are not known as releases to avoid.
        Each is [] if it holds all versions or none.

        Raises:
            ImpossibleError: None can run, with what speaks against each.
        """
        name = conda_versions.name_of(spec)
        against = {
            record["version"]: self.reasons(record, None) for record in self._matching(spec, name)
        }
        good = [version for version, reasons in against.items() if all(map(is_doubt, reasons))]
        if against and not good and self.host.gpus:
            raise ImpossibleError(tuple(dict.fromkeys(itertools.chain(*against.values()))))

        def limit(versions: Sequence[str]) -> list[str]:
            is_limit = 0 < len(versions) < len(against)
            return [f"{name} {conda_versions.one_of(versions)}"] if is_limit else []

        codes = {version: {reason.code for reason in against[version]} for version in good}
        return limit(good), limit([text for text in good if "known-avoid" not in codes[text]])


def on_channel(channel: str, spec: str) -> str:
    """Return a spec for one channel; "" is any channel."""
    return f"{channel}::{spec}" if channel else spec


def is_on_channel(record: Record, channel: str) -> bool:
    """Return whether a record is of a channel; "" is any channel."""
    name = conda_records.channel_name(str(record.get("channel", "")))
    return not channel or name == conda_records.channel_name(channel)


def admits(specifier: str, version: str, pre: bool = True) -> bool:
    """Return whether a range of PEP 440 holds a version, which may be none of PEP 440."""
    try:
        return contains(specifier, version, pre)
    except InputError:
        return not specifier


def _admits(requested: FrameworkSpec, record: Record) -> bool:
    if not is_on_channel(record, requested.channel):
        return False
    name, version, build = record["name"], record["version"], record["build"]
    spec = conda_versions.text_of(name, requested.spec, requested.build)
    return conda_versions.matches(spec, name, version, build)


def _is_cuda_package(name: str) -> bool:
    return name in conda_records.CUDNN or name in conda_records.TOOLKITS


def combinations(
    candidates: Sequence[Sequence[Candidate]], *, lenient: bool
) -> Iterator[tuple[Candidate, ...]]:
    """Yield one candidate of each framework, all of one CUDA major, best first.

    The best combination has the smallest sum of places in the lists of candidates.

    Args:
        candidates: The candidates of each framework, best first.
        lenient: Also use candidates that have doubts against them.
    """
    ranked = [_usable(of_framework, lenient=lenient) for of_framework in candidates]
    products = list(itertools.product(*ranked))
    # The sort is stable: within one sum the order of the product stays.
    products.sort(key=lambda product: sum(place for place, _ in product))
    for product in products:
        combination = tuple(candidate for _, candidate in product)
        cudas = [candidate.row.cuda for candidate in combination]
        if len({cuda[0] for cuda in cudas if cuda is not None}) <= 1:
            yield combination


def _usable(candidates: Sequence[Candidate], *, lenient: bool) -> list[tuple[int, Candidate]]:
    """Return (place in the list, candidate) of the first candidates that may be used."""
    usable = []
    for place, candidate in enumerate(candidates):
        if not candidate.reasons or (lenient and all(map(is_doubt, candidate.reasons))):
            usable.append((place, candidate))
    return usable[:MOST_TRIES]


def specs_of(candidate: Candidate, packages: Mapping[str, str]) -> list[str]:
    """Return the specs that make a solver choose a candidate, and its limits.

    Args:
        candidate: The release and its build.
        packages: {framework: the package that users name}.
    """
    row, requested = candidate.row, candidate.requested
    specs = [on_channel(requested.channel, f"{row.name} =={row.version} {row.glob}")]
    package = packages[requested.framework]
    if package != row.name:
        spec = package if requested.spec == "*" else f"{package} {requested.spec}"
        specs.append(on_channel(requested.channel, spec))
    specs += [f"{name} {version_range}" for name, version_range in candidate.limits]
    return specs
