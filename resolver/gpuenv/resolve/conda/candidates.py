"""The builds of a framework that a host can run, best first, with their limits."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ...compat import conda_parts, conda_records, evaluate
from ...compat.conda_records import Record, Row
from ...compat.data import CompatibilityData
from ...errors import Explanation, InputError, NoSolutionError, Reason, is_doubt
from ...model import CudaVersion, Host, Request, Value, major_minor
from ...requirements import conda_versions
from ...requirements.versions import contains
from . import virtual_packages

MOST_TRIES = 24  # candidates of one framework, and combinations of candidates, that are tried


class FrameworkSpec(Value):
    """A requested framework. The channel "" is any channel."""

    framework: str
    spec: str = "*"
    build: str = "*"
    channel: str = ""


class Candidate(Value):
    """Builds of one release for one CUDA, which differ only in their Python.

    `reasons` hold against all of them. `limits` are specs with the versions of cuDNN and of the
    toolkit's packages that the host can run. `preferences` are specs of those toolkits whose PTX
    the driver can run, too; they must not exclude a newer release.
    """

    requested: FrameworkSpec
    row: Row
    reasons: tuple[Reason, ...]
    limits: tuple[str, ...]
    preferences: tuple[str, ...]

    @property
    def subject(self) -> str:
        """Return "pytorch 2.8.0 (cuda129)"."""
        return self.row.subject


class CandidateStore:
    """The records of a request, judged for a host."""

    def __init__(
        self,
        records: Sequence[Record],
        host: Host,
        matrix: CompatibilityData,
        *,
        request: Request,
        limits: Sequence[str],
    ) -> None:
        """`limits` are those of Solver."""
        self.host, self.matrix = host, matrix
        self.request, self.limits = request, limits
        self.virtual = virtual_packages.of_host(host)
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
        package = self.matrix.conda.carriers[requested.framework]
        spec = conda_versions.text_of(package, requested.spec, requested.build)
        for record in conda_records.newest(self.by_name.get(package, ())):
            _, glob = conda_records.cuda_of(record)
            channel = conda_records.channel_name(str(record.get("channel", "")))
            key = (channel, record["version"], glob)
            # Most records differ in their Python only.
            if key in rows or not is_on_channel(record, requested.channel):
                continue
            if not conda_versions.matches(spec, package, record["version"], record["build"]):
                continue
            if python is not None and conda_records.python_of(record) not in (None, python):
                continue
            row = self.matrix.conda.row(record)
            if row is not None and admits("", record["version"], self.request.pre):
                rows[key] = row
        candidates = [self._candidate(requested, row) for row in rows.values()]

        def release(candidate: Candidate) -> tuple[Any, CudaVersion]:
            row = candidate.row
            return conda_versions.version(row.version), row.cuda or (0, 0)

        return sorted(candidates, key=release, reverse=True)

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
            if name not in conda_records.CUDA_PACKAGES or not self.host.gpus:
                continue
            matching = self._matching(dependency, name)
            versions, against = self._judge(matching, row)
            if versions:
                limits.append(f"{name} {conda_versions.one_of(versions)}")
                driver = self.host.driver_cuda
                if name in conda_records.TOOLKITS and driver is not None:
                    # The toolkits that are not newer than the driver's CUDA.
                    old = [text for text in versions if (major_minor(text) or driver) <= driver]
                    preferences += _limit(name, old, versions)
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
        names = (row.name, self.matrix.conda.packages[row.framework])
        for limit in self.limits:
            name, version_range, _ = conda_versions.split(limit)
            if name in names and not conda_versions.contains(version_range, row.version):
                yield Reason("pinned", row.subject, limit, row.version)

    def _matching(self, dependency: str, name: str) -> list[Record]:
        return [
            record
            for record in self.by_name.get(name, ())
            if conda_versions.matches(dependency, name, record["version"], record["build"])
        ]

    def _judge(self, records: Sequence[Record], row: Row) -> tuple[list[str], list[Reason]]:
        """Judge the records of one CUDA package for a build.

        Returns:
            The versions that nothing speaks against, or if there are none those with doubts only;
            and what speaks against the others.
        """
        against: list[tuple[str, tuple[Reason, ...]]] = []
        for record in records:
            reasons = self.reasons(record, row.cuda)
            if record["name"] in conda_records.CUDNN and row.cudnn is not None:
                subject = f"{row.name} {row.version}"
                cudnn_reasons = evaluate.cudnn_reasons(subject, row.cudnn, record["version"])
                reasons = (*reasons, *cudnn_reasons)
            against.append((record["version"], reasons))
        good = [version for version, reasons in against if not reasons]
        doubtful = [version for version, reasons in against if all(map(is_doubt, reasons))]
        return good or doubtful, [reason for _, reasons in against for reason in reasons]

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
            NoSolutionError: None can run, with what speaks against each.
        """
        name = conda_versions.name_of(spec)
        against = {
            record["version"]: self.reasons(record, None) for record in self._matching(spec, name)
        }
        good = [version for version, reasons in against.items() if all(map(is_doubt, reasons))]
        if against and not good and self.host.gpus:
            reasons = tuple(dict.fromkeys(itertools.chain(*against.values())))
            subject = ", ".join((*self.request.frameworks, *self.request.requirements))
            raise NoSolutionError(Explanation(subject=subject, reasons=reasons))
        codes = {version: {reason.code for reason in against[version]} for version in good}
        preferred = [version for version in good if "known-avoid" not in codes[version]]
        return _limit(name, good, against), _limit(name, preferred, against)


def _limit(name: str, versions: Sequence[str], among: Iterable[str]) -> list[str]:
    """Return the spec of some versions of a package; [] if they are all versions or none."""
    is_limit = 0 < len(set(versions)) < len(set(among))
    return [f"{name} {conda_versions.one_of(versions)}"] if is_limit else []


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


def combinations(candidates: Sequence[Sequence[Candidate]]) -> Iterator[tuple[Candidate, ...]]:
    """Yield one candidate of each framework, all of one CUDA major: at most MOST_TRIES, best first.

    Those without doubts come first, then those with the smallest sum of places in the lists.

    Args:
        candidates: The candidates of each framework, best first.
    """
    ranked = []
    for listed in candidates:
        usable = [
            (place, candidate)
            for place, candidate in enumerate(listed)
            if all(map(is_doubt, candidate.reasons))
        ]
        usable.sort(key=lambda ranked: bool(ranked[1].reasons))
        ranked.append(usable[:MOST_TRIES])

    def rank(product: Sequence[tuple[int, Candidate]]) -> tuple[bool, int]:
        places = sum(place for place, _ in product)
        return any(candidate.reasons for _, candidate in product), places

    tries = 0
    for product in sorted(itertools.product(*ranked), key=rank):
        combination = tuple(candidate for _, candidate in product)
        majors = {candidate.row.cuda[0] for candidate in combination if candidate.row.cuda}
        if len(majors) <= 1 and tries < MOST_TRIES:
            tries += 1
            yield combination


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
        spec = conda_versions.text_of(package, requested.spec)
        specs.append(on_channel(requested.channel, spec))
    return [*specs, *candidate.limits]
