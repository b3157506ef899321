"""The answers of the solver for every host, as tables (`gpuenv matrix html`).

An answer depends on the compute capabilities of the GPUs and on the interval of the driver: all
drivers between two thresholds give the same answer. So each release is judged once for each pair of
capability and interval, by the functions of the solver. A reader of the tables only looks up and
compares:

- A release does not run on a host if one of its GPUs has a reason that is not a doubt.
- The releases of a framework are sorted by "block", then by the worst "tier" of the GPUs, then by
  "place". The first one that runs is the newest one, and the one that `gpuenv solve` chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ..compat import evaluate
from ..compat.architectures import TEGRA, driver_branch
from ..compat.catalog import short_name
from ..compat.data import CompatibilityData
from ..errors import NoSolutionError, Reason, is_doubt
from ..index.protocol import Index
from ..model import (
    Build,
    Code,
    ComputeCapability,
    Framework,
    Gpu,
    Host,
    Library,
    Plan,
    Python,
    Request,
    Value,
    parse_release,
    show_pair,
)
from ..requirements.target import (
    PLATFORMS,
    PYTHONS,
    interpreter_tag,
    parse_requirement,
    version_key,
)
from ..requirements.versions import is_prerelease
from .candidates import CandidateStore
from .graph import Candidate, PackageRequirement, Release, Variant
from .missing_releases import NO_CANDIDATE, missing_dependency_reason
from .release_facts import ReleaseFacts, pinned_libraries
from .skipped import no_dependencies_reason, no_wheel_reason
from .solver import EnvironmentFor, solve

# Placeholders that a reader of the tables fills in.
GPU, CAPABILITY, RELEASE = "{gpu}", "{capability}", "{release}"
DRIVER, DRIVER_CUDA = "{driver}", "{driver_cuda}"
_TEXTS = ("subject", "need", "have", "source")  # the fields of a reason that are texts
_OLDER_THAN_ALL = "300.00"
_NO_TIER = 3
# The solver refuses a whole interpreter for the same reason on all GPUs, but for Jetsons.
_GPU_OF_A_SERVER, _GPU_OF_A_JETSON = (9, 0), (8, 7)
_JETSON_MACHINE = "aarch64"

# (tier, reasons): the tier is as in evaluate.device_tier, 3 for releases that have none.
Verdict = tuple[int, Sequence[Reason]]
NumberedVerdict = tuple[int, tuple[int, ...]]
# (first interval, tier, numbers of the reasons) of each different verdict.
Column = tuple[tuple[int, int, tuple[int, ...]], ...]
# A column of a build, and the places of the build in its version by interval.
_Ranked = tuple[Column, Sequence[int]]


class _Row(Value):
    """A release of a framework, or a build without a file (`release` None)."""

    version: str
    public: str
    variant: str
    build: Build | None
    release: Release | None
    store: CandidateStore
    pythons: tuple[int, ...]
    glibc: tuple[int, int] | None


class AnswerTables:
    """Makes the tables of all frameworks and of all distributions with device code.

    Args:
        data: the compatibility data.
        index: the index snapshot. Releases that are not in it are not in the tables.
        environment_for: returns the tags and markers of a host as target.
    """

    def __init__(
        self, data: CompatibilityData, index: Index, environment_for: EnvironmentFor
    ) -> None:
        self._data, self._index, self._environment_for = data, index, environment_for
        self._capabilities = tuple(data.capabilities())
        self._numbers = _Numbers()
        self._answers: dict[tuple[Request, Host], Plan | NoSolutionError] = {}

    def document(self, platforms: Iterable[str] = PLATFORMS) -> dict[str, Any]:
        """Return the tables of some platforms as a JSON document."""
        tables = {name: self._platform(name) for name in platforms}
        return {
            "version": self._data.version,
            "capabilities": [show_pair(capability) for capability in self._capabilities],
            "gpus": self._data.gpu_tables(),
            "host_codes": evaluate.HOST_CODES,
            "device_codes": evaluate.DEVICE_CODES,
            "pythons": [
                {"version": show_pair(version), "tag": interpreter_tag(version, False)}
                for version in PYTHONS
            ],
            "platforms": tables,
            "texts": list(self._numbers.texts),
            "reasons": list(self._numbers.reasons),
            "intervals": list(self._numbers.columns),
            "places": list(self._numbers.places),
        }

    def _platform(self, platform: str) -> dict[str, Any]:
        drivers = _Drivers(self._data, platform)
        frameworks = {}
        for framework in self._data.all_frameworks():
            frameworks[framework.name] = self._framework(framework, platform, drivers)
        libraries = {}
        for distribution in filter(self._is_shown, self._data.libraries()):
            rows = self._library(distribution, platform, drivers)
            if rows:
                libraries[distribution] = rows
        return {
            "thresholds": drivers.thresholds,
            "cuda": [show_pair(cuda) if cuda else None for cuda in drivers.cuda],
            "frameworks": frameworks,
            "libraries": libraries,
        }

    # ---- frameworks

    def _framework(self, framework: Framework, platform: str, drivers: _Drivers) -> dict[str, Any]:
        request = Request(frameworks=(framework.name,))
        stores = []
        for version in PYTHONS:
            host = drivers.host(None, None).replace(python=Python(version=version))
            environment = self._environment_for(host)
            stores.append(CandidateStore(request, host, self._data, self._index, environment))
        rows = self._rows(framework, platform, stores)
        judge = _Judge(drivers, self._capabilities, self._data, self._numbers, self._solver_reasons)
        verdicts = [judge.release(row, f"{framework.name} {row.version}") for row in rows]
        places_of_rows = _places(rows, framework, drivers)
        if not framework.is_single_distribution:  # builds of one distribution pin their libraries
            self._add_doubts_about_libraries(rows, verdicts, places_of_rows, drivers)
        releases = []
        jetson = drivers.host(_GPU_OF_A_JETSON, len(drivers.thresholds))
        for row, columns, places in zip(rows, verdicts, places_of_rows, strict=True):
            releases.append(
                {
                    **self._facts(row.version, row.build),
                    "public": row.public,
                    "variant": row.variant,
                    "cpu": _is_cpu_build(row),
                    "pythons": row.pythons,
                    "glibc": show_pair(row.glibc) if row.glibc else None,
                    "place": number(self._numbers.places, places),
                    "verdicts": self._numbers.of_columns(columns),
                    "no_wheel": self._numbers.reason(self._no_wheel(framework, row)),
                    "missing": self._missing(row, stores),
                    "alone": self._refusal_alone(row, jetson),
                }
            )
        return {
            "releases": releases,
            "refusals": self._refusals(request, rows, stores, drivers),
            "source": framework.source,
        }

    def _rows(
        self, framework: Framework, platform: str, stores: Sequence[CandidateStore]
    ) -> list[_Row]:
        rows: dict[tuple[str, str], _Row] = {}
        for python, store in enumerate(stores):
            for release in _releases(store, framework):
                key = (release.local_version, release.wheel.index)
                known = rows.get(key)
                rows[key] = _Row(
                    version=release.local_version,
                    public=release.version.partition("+")[0],
                    variant=_variant(release),
                    build=release.build,
                    release=release,
                    store=store,
                    pythons=(*known.pythons, python) if known else (python,),
                    glibc=store.environment.least_glibc(release.wheel.filename),
                )
        if framework.is_single_distribution:
            listed = {(row.build.version, row.build.variant) for row in rows.values() if row.build}
            for build in self._data.builds(framework.distribution, platform):
                if (build.version, build.variant) not in listed:
                    rows[build.local, build.index] = _Row(
                        version=build.local,
                        public=build.version,
                        variant=build.variant,
                        build=build,
                        release=None,
                        store=stores[0],
                        pythons=(),
                        glibc=None,
                    )
        return sorted(rows.values(), key=lambda row: version_key(row.public), reverse=True)

    def _add_doubts_about_libraries(
        self,
        rows: Sequence[_Row],
        verdicts: Sequence[list[Column]],
        places: Sequence[Sequence[int]],
        drivers: _Drivers,
    ) -> None:
        """Add the doubts about the libraries that a build does not pin (cuBLAS for CuPy).

        If the best build of a version has doubts, the solver prefers a later one without doubts.
        """
        for row, columns, own_places in zip(rows, verdicts, places, strict=True):
            if _is_cpu_build(row):
                continue
            builds = zip(rows, verdicts, places, strict=True)
            alike = [build[1:] for build in builds if build[0].public == row.public]
            for place, capability in enumerate(self._capabilities):
                own = columns[place], own_places
                others = [
                    (build_columns[place], build_places) for build_columns, build_places in alike
                ]
                doubts = {
                    interval: self._doubts_alone(row, drivers.host(capability, interval))
                    for interval in self._numbers.intervals_after_doubts(own, others)
                }
                if any(doubts.values()):
                    columns[place] = _with_reasons(columns[place], doubts, len(own_places))

    def _doubts_alone(self, row: _Row, host: Host) -> tuple[int, ...]:
        """Return the doubts about the packages of the solver's plan for one release."""
        if row.release is None:
            return ()
        plan = self._solve(_alone(row, row.release), _with_interpreter(row, host))
        if not isinstance(plan, Plan):
            return ()
        packages = {f"{pin.wheel.name} {pin.wheel.version}" for pin in plan.pins}
        doubts = filter(is_doubt, plan.warnings)
        return tuple(self._numbers.reason(doubt) for doubt in doubts if doubt.subject in packages)

    def _no_wheel(self, framework: Framework, row: _Row) -> Reason:
        source = row.build.code.source if row.build else ""
        return no_wheel_reason(f"{framework.name} {row.version}", "{tag}", "{platform}", source)

    def _missing(self, row: _Row, stores: Sequence[CandidateStore]) -> dict[str, int]:
        """Return the requirements of a release that no index meets, by interpreter."""
        missing = {}
        for python in row.pythons:
            reason = _missing_dependency(stores[python], row.release)
            if reason is not None:
                missing[str(python)] = self._numbers.reason(reason)
        return missing

    def _refusals(
        self,
        request: Request,
        rows: Sequence[_Row],
        stores: Sequence[CandidateStore],
        drivers: _Drivers,
    ) -> dict[str, list[int | None]]:
        """Return the first reasons of the solver for each interpreter that no row with CUDA has.

        Each interpreter has a reason for each compute capability and one for an absent GPU. It is
        None if the solver has an answer, or if the rows have the reason.
        """
        with_cuda = _interpreters(row for row in rows if row.build and row.build.cuda)
        hosts = []
        for capability in self._capabilities:
            is_jetson = capability in TEGRA and drivers.host_without_gpu.machine == _JETSON_MACHINE
            example = _GPU_OF_A_JETSON if is_jetson else _GPU_OF_A_SERVER
            hosts.append(drivers.host(example, len(drivers.thresholds)))
        refusals = {}
        for python, store in enumerate(stores):
            if python in with_cuda:
                continue
            on_hosts = [host.replace(python=store.host.python) for host in hosts]
            refusals[str(python)] = [self._refusal(request, host) for host in on_hosts]
            if python not in _interpreters(rows):
                without_gpu = drivers.host_without_gpu.replace(python=store.host.python)
                refusals[str(python)].append(self._refusal(request, without_gpu))
        return refusals

    def _refusal(self, request: Request, host: Host) -> int | None:
        answer = self._solve(request, host)
        if isinstance(answer, Plan):
            return None
        return self._numbers.reason(answer.explanation.reasons[0])

    def _solver_reasons(self, row: _Row, host: Host) -> Sequence[Reason]:
        """Return why the solver skips a release although the rules accept it on the host."""
        if row.release is None or host.machine != _JETSON_MACHINE:
            return ()
        alone, host = _alone(row, row.release), _with_interpreter(row, host)
        if isinstance(self._solve(alone, host), Plan):
            return ()
        plan = self._solve(Request(frameworks=(_framework_name(row.release),)), host)
        for rejection in plan.skipped if isinstance(plan, Plan) else ():
            if rejection.version == row.version:
                return rejection.reasons
        return (no_dependencies_reason(row.release.label),)

    def _refusal_alone(self, row: _Row, host: Host) -> int | None:
        """Return the solver's first reason against a release that the rules accept on a Jetson.

        The solver has this reason if it can choose no other release either.
        """
        if row.release is None:
            return None
        answer = self._answers.get((_alone(row, row.release), _with_interpreter(row, host)))
        if not isinstance(answer, NoSolutionError):
            return None
        return self._numbers.reason(answer.explanation.reasons[0])

    def _solve(self, request: Request, host: Host) -> Plan | NoSolutionError:
        """Return the plan of the solver, or its refusal. Each request is solved once on a host."""
        key = (request, host)
        if key not in self._answers:
            try:
                self._answers[key] = solve(
                    request, host, self._data, self._index, self._environment_for, changes=False
                )
            except NoSolutionError as refusal:
                self._answers[key] = refusal
        return self._answers[key]

    # ---- libraries

    def _library(self, distribution: str, platform: str, drivers: _Drivers) -> list[dict[str, Any]]:
        judge = _Judge(drivers, self._capabilities, self._data, self._numbers, self._solver_reasons)
        rows = []
        for library in reversed(self._data.releases(distribution, platform)):
            facts = self._facts(library.version, library)
            columns = judge.library(library)
            rows.append({**facts, "verdicts": self._numbers.of_columns(columns)})
        return rows

    def _is_shown(self, distribution: str) -> bool:
        """Return whether a library has a table: companions of frameworks, and cuDNN."""
        own_frameworks = {
            name for framework in self._data.all_frameworks() for name in framework.companions
        }
        is_companion = self._data.is_extension(distribution) or distribution in own_frameworks
        return is_companion or short_name(distribution) == "cudnn"

    # ---- compact forms

    def _facts(self, version: str, build: Build | Library | None) -> dict[str, Any]:
        facts: dict[str, Any] = {"version": version}
        if build is None:
            return facts
        code, cuda = build.code, build.cuda
        if cuda is not None:
            facts["cuda"] = show_pair(cuda)
        elif isinstance(build, Library) and build.cuda_major:
            facts["cuda"] = str(build.cuda_major)
        if build.cudnn:
            facts["cudnn"] = build.cudnn
        evidence = "unknown" if code.sass is None else code.evidence
        return {**facts, "evidence": evidence, "source": number(self._numbers.texts, code.source)}


class _Numbers:
    """Numbers for the values that several releases share."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.reasons: dict[tuple[str | int, ...], int] = {}
        self.failures: set[int] = set()  # the reasons that are not doubts
        self.columns: dict[Column, int] = {}
        self.places: dict[tuple[int, ...], int] = {}

    def reason(self, reason: Reason, **texts: str) -> int:
        """Return the number of a reason. `texts` replace its own fields."""
        fields = {name: texts.get(name, getattr(reason, name)) for name in _TEXTS}
        if reason.dependent:  # as in the JSON documents
            fields["need"] += f", for {reason.dependent}"
        numbers = [number(self.texts, field) for field in fields.values()]
        doubt = is_doubt(reason)
        row: tuple[str | int, ...] = (reason.code, int(doubt), *numbers)
        known = number(self.reasons, row)
        if not doubt:
            self.failures.add(known)
        return known

    def of_columns(self, columns: Iterable[Column]) -> list[int]:
        """Return the number of each column."""
        return [number(self.columns, column) for column in columns]

    def intervals_after_doubts(self, build: _Ranked, others: Sequence[_Ranked]) -> list[int]:
        """Return where a build without reasons comes after a build that has only doubts."""
        doubtful = [other for other in others if any(map(self._is_doubtful, other[0]))]
        if not doubtful:
            return []
        return [
            interval
            for interval in range(len(build[1]))
            if not _verdict_at(build[0], interval)[1]
            and any(self._is_doubtful_before(other, build, interval) for other in doubtful)
        ]

    def _is_doubtful_before(self, other: _Ranked, build: _Ranked, interval: int) -> bool:
        step = (interval, *_verdict_at(other[0], interval))
        return self._is_doubtful(step) and _rank(other, interval) < _rank(build, interval)

    def _is_doubtful(self, step: tuple[int, int, tuple[int, ...]]) -> bool:
        return bool(step[2]) and self.failures.isdisjoint(step[2])


def _verdict_at(column: Column, interval: int) -> NumberedVerdict:
    """Return the verdict of a column for an interval of drivers."""
    *_, (_, tier, reasons) = (step for step in column if step[0] <= interval)
    return tier, reasons


def _rank(build: _Ranked, interval: int) -> tuple[int, int]:
    """Return the place of a build in its version, as the tables give it."""
    column, places = build
    return _verdict_at(column, interval)[0], places[interval]


def _with_reasons(column: Column, reasons: Mapping[int, tuple[int, ...]], end: int) -> Column:
    """Return a column that has more reasons in some of the intervals before `end`."""
    steps: list[tuple[int, int, tuple[int, ...]]] = []
    for interval in range(end):
        tier, known = _verdict_at(column, interval)
        verdict = tier, known + reasons.get(interval, ())
        if not steps or steps[-1][1:] != verdict:
            steps.append((interval, *verdict))
    return tuple(steps)


KeyT = TypeVar("KeyT", bound=Hashable)


def number(known: dict[KeyT, int], value: KeyT) -> int:
    """Return the number of a value. A new value gets the next one."""
    return known.setdefault(value, len(known))


class _Drivers:
    """The intervals of driver releases between which no answer changes.

    Interval 0 is before all thresholds, and interval N begins at threshold N. One more interval is
    for an unknown driver.
    """

    def __init__(self, data: CompatibilityData, platform: str) -> None:
        self._data = data
        self._os, machine = PLATFORMS[platform]
        python = Python(version=PYTHONS[0])
        self.host_without_gpu = Host(os=self._os, machine=machine, python=python)
        branches = set(data.branches)
        for first, _ in data.first_branches.values():
            branches.add(first)
        for last, _ in data.last_branches.values():
            branches.add(_next_branch(last))
        branches.add(_next_branch(data.newest_branch()))
        floors = (data.driver_floor((major, 0), self._os) for major in data.floors)
        releases = {floor[0] for floor in floors if floor is not None}
        releases |= {f"{branch}.00" for branch in branches}
        self.thresholds = sorted(releases, key=parse_release)
        self._releases = [_OLDER_THAN_ALL, *self.thresholds]
        self.cuda = [data.driver_cuda(release) for release in self._releases]
        known = [interval for interval, cuda in enumerate(self.cuda) if cuda]
        last = len(self.cuda) - 1
        # The first and the last interval of each span: CUDA version unknown, known, unknown.
        self.spans = ((0, known[0] - 1), (known[0], known[-1]), (known[-1] + 1, last))
        self._hosts: dict[tuple[ComputeCapability | None, int | None], Host] = {}

    def __len__(self) -> int:
        return len(self._releases)

    def host(self, capability: ComputeCapability | None, interval: int | None) -> Host:
        """Return a host with one GPU and a driver.

        For None, the compute capability or the driver is unknown; the driver also for the interval
        after the last threshold's.
        """
        key = (capability, interval)
        if key not in self._hosts:
            release = None if interval in (None, len(self)) else self._releases[interval]
            self._hosts[key] = self.host_without_gpu.replace(
                gpus=(Gpu(name=GPU, compute_capability=capability, index=0),),
                driver=release,
                driver_cuda=None if release is None else self._data.driver_cuda(release),
            )
        return self._hosts[key]


def _next_branch(branch: int) -> int:
    """Return the least major of a driver release that belongs to a later branch."""
    following = branch + 1
    while driver_branch(f"{following}.00") == branch:
        following += 1
    return following


class _Judge:
    """Judges releases for each compute capability, an absent GPU and each interval of drivers.

    Releases with the same code, toolkit and pinned libraries have the same verdicts.
    """

    def __init__(
        self,
        drivers: _Drivers,
        capabilities: Sequence[ComputeCapability],
        data: CompatibilityData,
        numbers: _Numbers,
        solver_reasons: Callable[[_Row, Host], Sequence[Reason]],
    ) -> None:
        self._drivers, self._capabilities, self._data = drivers, capabilities, data
        self._numbers, self._solver_reasons = numbers, solver_reasons
        self._facts: dict[tuple[CandidateStore, int], ReleaseFacts] = {}
        self._columns_of: dict[Hashable, tuple[Column, ...]] = {}

    def release(self, row: _Row, subject: str) -> list[Column]:
        """Return the columns of a release of a framework (see `_column`)."""
        libraries: Sequence[Candidate] = ()
        if row.release is not None:
            libraries = pinned_libraries(row.store, row.release)
        codes = [library.library.code for library in libraries if library.library]

        def judge(host: Host) -> Verdict:
            facts = self._facts_on(row.store, host)
            reasons = self._own_reasons(row, facts)
            for library in libraries:
                reasons += facts.reasons_of_pinned(library)
            return _tier(row.build, host), reasons

        if row.build is not None:
            codes.append(row.build.code)
        labels = tuple(library.label for library in libraries)
        key = (_code_key(row.build), labels, self._other_reasons(row, subject))
        columns = self._columns(key, judge, subject, codes)

        def judge_and_solve(host: Host) -> Verdict:
            tier, reasons = judge(host)
            if all(map(is_doubt, reasons)):
                reasons = [*reasons, *self._solver_reasons(row, host)]
            return tier, reasons

        numbered = self._numbered(judge_and_solve, subject, codes)
        for place, capability in enumerate(self._capabilities):
            # No CUDA library of an index runs on a Jetson, whichever a release may require.
            if capability in TEGRA and any(map(self._runs, columns[place])):
                columns[place] = self._column(numbered, capability)
        return columns

    def _runs(self, step: tuple[int, int, tuple[int, ...]]) -> bool:
        return not self._numbers.failures.intersection(step[2])

    def library(self, library: Library) -> list[Column]:
        """Return the columns of a distribution with device code."""
        name, version = library.name, library.version
        subject = f"{name} {version}"

        def judge(host: Host) -> Verdict:
            reasons: list[Reason] = []
            if host.gpus:
                reasons += evaluate.host_reasons(host, self._data)
            facts = evaluate.requested_library_reasons(subject, library, host, self._data)
            for fact in ("__driver", "__sm"):
                reasons += facts.get(fact, ())
            reasons += evaluate.known_bad_reasons(name, version, host, self._data)
            choices = list(library.choices()) or [library]
            return min(_tier(choice, host) for choice in choices), reasons

        bad = tuple(
            self._data.bad(name, version, [capability]) for capability in self._capabilities
        )
        return self._columns((_code_key(library), bad), judge, subject, [library.code])

    def _own_reasons(self, row: _Row, facts: ReleaseFacts) -> list[Reason]:
        if row.release is not None:
            return facts.reasons(row.release)
        return [] if row.build is None else facts.build_reasons(row.build)

    def _other_reasons(self, row: _Row, subject: str) -> Hashable:
        """Return the reasons against a release, but for those about its code and its toolkit."""
        if row.release is None:
            return ()
        others = []
        for capability in self._capabilities:
            host = self._drivers.host(capability, None)
            for fact, reasons in self._facts_on(row.store, host).facts(row.release).items():
                if fact not in ("__driver", "__sm"):
                    others += [self._number(reason, subject, (), host) for reason in reasons]
        return tuple(others)

    def _facts_on(self, store: CandidateStore, host: Host) -> ReleaseFacts:
        key = (store, id(host))  # `drivers` keeps its hosts, so no two have the same id
        if key not in self._facts:
            on_host = store.on_host(host.replace(python=store.host.python))
            self._facts[key] = ReleaseFacts(on_host)
        return self._facts[key]

    def _columns(
        self, key: Hashable, judge: Callable[[Host], Verdict], subject: str, codes: Sequence[Code]
    ) -> list[Column]:
        if key not in self._columns_of:
            numbered = self._numbered(judge, subject, codes)
            columns = [self._column(numbered, capability) for capability in self._capabilities]
            columns.append(((0, *numbered(self._drivers.host_without_gpu)),))
            self._columns_of[key] = tuple(columns)
        return list(self._columns_of[key])

    def _numbered(
        self, judge: Callable[[Host], Verdict], subject: str, codes: Sequence[Code]
    ) -> Callable[[Host], NumberedVerdict]:
        """Return a function that judges a host and returns its reasons as numbers."""
        sources = {code.source for code in codes}

        def numbered(host: Host) -> NumberedVerdict:
            tier, reasons = judge(host)
            numbers = [self._number(reason, subject, sources, host) for reason in reasons]
            return tier, tuple(dict.fromkeys(numbers))

        return numbered

    def _column(
        self, judge: Callable[[Host], NumberedVerdict], capability: ComputeCapability
    ) -> Column:
        """Return where each different verdict begins, and the verdict for an unknown driver.

        A newer driver only removes reasons that require a newer driver, and only adds the reason
        that it dropped the GPU. So no other verdict is between two equal ones if the CUDA versions
        of both drivers are known, or if neither is.
        """
        verdicts: dict[int, NumberedVerdict] = {}

        def at(interval: int) -> NumberedVerdict:
            if interval not in verdicts:
                verdicts[interval] = judge(self._drivers.host(capability, interval))
            return verdicts[interval]

        def divide(first: int, last: int) -> None:
            if at(first) != at(last) and last - first > 1:
                middle = (first + last) // 2
                divide(first, middle)
                divide(middle, last)

        for first, last in self._drivers.spans:
            divide(first, last)
        column: list[tuple[int, int, tuple[int, ...]]] = []
        for interval in sorted(verdicts):
            if not column or column[-1][1:] != verdicts[interval]:
                column.append((interval, *verdicts[interval]))
        unknown = judge(self._drivers.host(capability, None))
        column.append((len(self._drivers), *unknown))
        return tuple(column)

    def _number(self, reason: Reason, subject: str, sources: Collection[str], host: Host) -> int:
        """Return the number of a reason, in a form that releases and hosts share.

        The source of the code is left out, because the row of the release has it.
        """
        source = reason.source
        for text in sources:
            source = source.removesuffix(f"; {text}")
        return self._numbers.reason(
            reason,
            subject=RELEASE if reason.subject == subject else reason.subject,
            need=_without_capability(reason.need, host),
            have=_without_driver(reason.have, host),
            source=source,
        )


def _code_key(build: Build | Library | None) -> Hashable:
    """Return the fields of a build or a library on which its verdict depends."""
    if build is None:
        return None
    code = build.code
    key = (build.cuda, code.sass, code.ptx, code.made_by)
    if isinstance(build, Library):
        return (*key, build.cuda_major, build.by_cuda)
    return key


def _variant(release: Release) -> str:
    if release.build is not None:
        return release.build.variant
    return release.way.variant if isinstance(release, Variant) else "unknown"


def _interpreters(rows: Iterable[_Row]) -> set[int]:
    """Return the interpreters for which some rows have wheels."""
    return {python for row in rows for python in row.pythons}


def _framework_name(release: Release) -> str:
    return release.framework.name if isinstance(release, Variant) else release.name


def _alone(row: _Row, release: Release) -> Request:
    """Return the request for a release and its build."""
    name = _framework_name(release)
    builds = ((name, row.variant),) if isinstance(release, Variant) else ()
    return Request(frameworks=(f"{name}=={release.version}",), builds=builds)


def _with_interpreter(row: _Row, host: Host) -> Host:
    """Return a host with an interpreter for which a release has a wheel."""
    python = row.pythons[len(row.pythons) // 2]  # most releases have wheels for the same ones
    return host.replace(python=Python(version=PYTHONS[python]))


def _is_cpu_build(row: _Row) -> bool:
    if isinstance(row.release, Variant):
        return not row.release.way.carriers
    return row.build is not None and row.build.cuda is None


def _tier(build: Build | Library | None, host: Host) -> int:
    if build is None or not host.gpus or (isinstance(build, Build) and build.cuda is None):
        return _NO_TIER
    return evaluate.device_tier(build.code, host)


def _without_driver(have: str, host: Host) -> str:
    """Return a text with placeholders for the driver of a host."""
    have = have.replace(f"driver {host.driver}", f"driver {DRIVER}")
    cuda = show_pair(host.driver_cuda)
    return have.replace(f"a driver for CUDA {cuda}", f"a driver for CUDA {DRIVER_CUDA}")


def _without_capability(need: str, host: Host) -> str:
    """Return a text with a placeholder for the compute capability of a host's GPU."""
    for gpu in host.gpus:
        text = f"compute capability {show_pair(gpu.compute_capability)}"
        if need.endswith(text) or f"{text} " in need:
            return need.replace(text, f"compute capability {CAPABILITY}")
    return need


def _releases(store: CandidateStore, framework: Framework) -> Sequence[Release]:
    releases: Sequence[Release] = store.variants(framework)
    if framework.is_single_distribution:
        releases = store.candidates(framework.distribution)
    return [
        release
        for release in releases
        if not release.is_yanked and not is_prerelease(release.version)
    ]


def _missing_dependency(store: CandidateStore, release: Release | None) -> Reason | None:
    """Return the first requirement of a release for which no index has a file, as a reason."""
    if release is None:
        return None
    extras: tuple[str, ...] = ()
    if isinstance(release, Variant):
        extras = parse_requirement(release.way.requires[0]).extras
    environment = store.environment
    for dependency in store.dependencies(release.wheel):
        if dependency.marker and not environment.marker(dependency.marker, extras):
            continue
        name, specifier = dependency.name, dependency.specifier
        is_known = store.index.at_hand(name)  # the snapshot has all that the GPU stack requires
        if is_known and store.in_ranges(store.candidates(name), [specifier]):
            continue
        requirement = PackageRequirement(name, dependency.extras, specifier)
        if is_known:
            return missing_dependency_reason(store, release.label, requirement)
        need = str(requirement)
        return Reason(code="no-candidate", subject=release.label, need=need, have=NO_CANDIDATE)
    return None


def _places(rows: Sequence[_Row], framework: Framework, drivers: _Drivers) -> list[tuple[int, ...]]:
    """Return the place of each row in its version, for each interval and an unknown driver.

    The devices have no known compute capability, so the tier does not change the order.
    """
    places: list[list[int]] = [[] for _ in rows]
    hosts = [drivers.host(None, interval) for interval in range(len(drivers))]
    for host in (*hosts, drivers.host(None, None)):
        numbers = _places_on(host, rows, framework)
        for listed, place in zip(places, numbers, strict=True):
            listed.append(place)
    return [tuple(listed) for listed in places]


def _places_on(host: Host, rows: Sequence[_Row], framework: Framework) -> list[int]:
    releases = [row.release for row in rows if row.release is not None]
    store = rows[0].store.on_host(host)
    candidates = [release for release in releases if isinstance(release, Candidate)]
    store.sort_builds(candidates)
    variants = [release for release in releases if isinstance(release, Variant)]
    order = {way.variant: place for place, way in enumerate(framework.ways)}
    variants.sort(key=lambda variant: order[variant.way.variant])
    store.sort_variants(variants)
    places: dict[Release, int] = {}
    counts: dict[str, int] = {}
    in_order: list[Release] = [*candidates, *variants]
    for release in in_order:
        public = release.version.partition("+")[0]
        places[release] = counts[public] = counts.get(public, -1) + 1
    return [places.get(row.release, 0) if row.release else 0 for row in rows]
