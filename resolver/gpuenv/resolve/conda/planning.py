"""A request, a host and channels -> a Plan of conda packages, each pin a package's file.

gpuenv chooses the build of each framework and the ranges of cuda-version and cuDNN
(candidates.py). The solver finds the closure. The rules then judge the closure: a release of a
library that they reject is kept out, and the solver is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ...compat import conda_parts, conda_records, evaluate, what_if
from ...compat.conda_records import Carriers, Record, channel_name
from ...compat.data import CompatibilityData
from ...compat.evaluate import needs_of_gpus
from ...errors import Change, Explanation, InputError, NoSolutionError, Reason, is_doubt
from ...model import (
    Choice,
    Host,
    Needs,
    Pin,
    Plan,
    Rejection,
    Request,
    Value,
    Wheel,
    major_minor,
    show_pair,
)
from ...requirements import conda_versions
from ...requirements.target import parse_requirement
from .candidates import (
    Candidate,
    CandidateStore,
    FrameworkSpec,
    combinations,
    is_on_channel,
    on_channel,
    specs_of,
)
from .solvers import RefusedError, Solver

ROUNDS = 8  # in which releases are kept out of the closure, before a candidate is given up
REFUSAL_LENGTH = 1200  # characters of a solver's own explanation


class ParsedRequest(Value):
    """A request, parsed: its frameworks, and all else as specs that every solver reads."""

    request: Request
    frameworks: tuple[FrameworkSpec, ...]
    specs: tuple[str, ...]
    python: tuple[int, int] | None

    @property
    def subject(self) -> str:
        """Return the request as the user wrote it."""
        texts = (*self.request.frameworks, *self.request.requirements)
        return ", ".join(dict.fromkeys(texts))


def parse_request(
    request: Request,
    carriers: Carriers,
    python: tuple[int, int] | None,
    channels: Sequence[str] = (),
) -> ParsedRequest:
    """Parse a request, whose specs may name one of the channels.

    Raises:
        InputError: No conda package is known for a framework, or nothing is requested.
    """
    frameworks, specs = [], []
    for text in request.frameworks:
        parsed = parse_requirement(text)
        framework = carriers.framework_of(parsed.name) or parsed.name
        if framework not in carriers.packages:
            known = ", ".join(sorted(carriers.packages))
            message = f"--framework {text}: no conda package is known for it; known: {known}"
            raise InputError(message)
        spec = parsed.specifier or "*"
        conda_versions.require_spec(conda_versions.text_of(framework, spec))
        frameworks.append(FrameworkSpec(framework=framework, spec=spec))
    if python is not None:
        specs.append(f"python {show_pair(python)}.*")
    # A framework's own name means its package, too: torch is pytorch.
    framework_of = {name: name for name in carriers.packages}
    framework_of |= {package: name for name, package in carriers.packages.items()}
    for text in request.requirements:
        conda_versions.require_spec(text)
        name, spec, build = conda_versions.split(text)
        named = conda_versions.channel_of(text)
        # As `channels` has it: conda-forge may be a URL.
        channel = next((url for url in channels if named in (url, channel_name(url))), named)
        if name in framework_of:
            requested = FrameworkSpec(
                framework=framework_of[name], spec=spec, build=build, channel=channel
            )
            frameworks.append(requested)
        else:
            specs.append(on_channel(channel, conda_versions.text_of(name, spec, build)))
    if not frameworks and not specs:
        raise InputError("nothing to solve: give --framework NAME or a REQUIREMENT")
    if request.builds and not frameworks:
        raise InputError("--cuda chooses builds of frameworks", hint="ask for cuda-version=X.Y")
    return ParsedRequest(
        request=request, frameworks=tuple(frameworks), specs=tuple(specs), python=python
    )


def requested_specs(
    frameworks: Sequence[str], requirements: Sequence[str], carriers: Carriers
) -> tuple[str, ...]:
    """Return what a lock was requested with as specs that conda reads: torch>=2 is pytorch>=2."""
    if not frameworks and not requirements:
        return ()
    request = Request(frameworks=tuple(frameworks), requirements=tuple(requirements))
    parsed = parse_request(request, carriers, None)
    specs = []
    for requested in parsed.frameworks:
        name, build = carriers.packages[requested.framework], requested.build
        spec = conda_versions.text_of(name, requested.spec, build)
        specs.append(on_channel(requested.channel, spec))
    return (*specs, *parsed.specs)


def repairs(
    request: Request, installed: Mapping[str, Record], carriers: Carriers
) -> Iterator[tuple[Request, tuple[str, ...]]]:
    """Yield what may change to make an environment work on a host, the smallest changes first.

    Each is the request, with what to solve for, and the specs of the packages that must not change.

    First the frameworks keep their versions, and so do all packages that are not CUDA's; then the
    frameworks may change; then everything may.
    """
    frameworks = {
        framework: str(installed[package]["version"])
        for framework, package in carriers.packages.items()
        if package in installed
    }
    cuda = tuple(name for name in conda_records.CUDA_PACKAGES if name in installed)
    if not frameworks and not cuda:
        return
    of_cuda = {*conda_records.CUDA_PACKAGES, "__cuda"}
    fixed = tuple(
        f"{name} =={record['version']}"
        for name, record in installed.items()
        if not carriers.framework_of(name)
        and not of_cuda & {name, *map(conda_versions.name_of, record.get("depends") or ())}
    )
    if frameworks:
        kept = tuple(f"{name}=={version}" for name, version in frameworks.items())
        yield request.replace(frameworks=kept), fixed
    wanted = request.replace(frameworks=tuple(frameworks), requirements=() if frameworks else cuda)
    yield wanted, fixed
    yield wanted, ()


def plan(
    request: Request,
    host: Host,
    matrix: CompatibilityData,
    solver: Solver,
    *,
    limits: Sequence[str] = (),
    changes: bool = True,
) -> Plan:
    """Return the environment for a request on a host.

    Args:
        request: Frameworks and requirements.
        host: The host to solve for.
        matrix: The compatibility data.
        solver: Reads the channels and finds closures.
        limits: Specs that hold for packages of the environment, and add none.
        changes: Also look for a newer driver that would help if there is no solution.

    Raises:
        NoSolutionError: There is none; it explains why.
        InputError: The request cannot be used.
    """
    keep_python = request.conda is not None and request.conda.keep_python
    python = host.python.version if keep_python else None
    parsed = parse_request(request, matrix.conda, python, solver.channels)
    # The packages whose records decide which builds are candidates.
    packages = {matrix.conda.carriers[spec.framework] for spec in parsed.frameworks}
    records = solver.records(sorted({*packages, *conda_records.CUDA_PACKAGES}))

    def plan_for(host: Host) -> Plan:
        store = CandidateStore(records, host, matrix, request=request, limits=limits)
        return _Search(parsed, store, solver).plan()

    try:
        return plan_for(host)
    except NoSolutionError as error:
        refusal = error
        if changes:
            helpful = _helpful_drivers(host, matrix, plan_for)
            refusal = NoSolutionError(error.explanation.replace(changes=helpful))
        if solver.into.path:
            prefix = solver.into.path
            refusal.hint = f"it must fit the packages in {prefix}; a new --target has none"
        raise refusal from None


def _helpful_drivers(
    host: Host, matrix: CompatibilityData, plan_for: Callable[[Host], Plan]
) -> tuple[Change, ...]:
    """Return the oldest newer driver with which the request has a solution on the same devices."""
    for changed in what_if.drivers(host, matrix):
        try:
            plan = plan_for(changed.host)
        except NoSolutionError:
            continue
        gives = [
            f"{choice.framework} {choice.version} ({choice.variant})" for choice in plan.choices
        ]
        if not gives:
            gives = [f"{pin.wheel.name} {pin.wheel.version}" for pin in plan.pins[:3]]
        return (Change(change=changed.change, gives=", ".join(gives)),)
    return ()


class _Search:
    """The search for one request on one host."""

    def __init__(self, parsed: ParsedRequest, store: CandidateStore, solver: Solver) -> None:
        self.parsed, self.store, self.solver = parsed, store, solver
        self.host, self.matrix = store.host, store.matrix
        self.host_reasons = evaluate.host_reasons(self.host, self.matrix)
        self.refusals: list[Reason] = []  # why combinations have no usable closure

    def plan(self) -> Plan:
        """Return the plan of the first combination whose closure nothing speaks against.

        Combinations with doubts are tried only if there is no other.
        """
        against = [reason for reason in self.host_reasons if not is_doubt(reason)]
        if against:
            raise self._no_solution(against)
        limits: list[str] = []
        preferences: list[str] = []
        for spec in self.parsed.specs:
            if conda_versions.name_of(spec) in conda_records.CUDA_PACKAGES:
                of_spec = self.store.limits_of(spec)
                limits += of_spec[0]
                preferences += of_spec[1]
        candidates = [self._candidates(requested) for requested in self.parsed.frameworks]
        for combination in combinations(candidates):
            closure = self._closure(combination, limits, preferences)
            if closure is not None:
                skipped = _passed_over(combination, candidates, self.refusals)
                return self._make_plan(combination, closure, skipped)
        reasons = [
            reason
            for of_framework in candidates
            for candidate in of_framework
            for reason in candidate.reasons
        ]
        # The builds that run on the host come first: only their closures were refused.
        raise self._no_solution([*self.refusals, *reasons])

    def _no_solution(self, reasons: Sequence[Reason]) -> NoSolutionError:
        unique = tuple(dict.fromkeys(reasons))
        return NoSolutionError(Explanation(subject=self.parsed.subject, reasons=unique))

    def _candidates(self, requested: FrameworkSpec) -> list[Candidate]:
        """Return the candidates of a framework. NoSolutionError if no release fits its range."""
        candidates = self.store.candidates(requested, self.parsed.python)
        if candidates:
            return candidates
        name, python = self.matrix.conda.carriers[requested.framework], self.parsed.python
        versions = [
            record["version"]
            for record in self.store.by_name.get(name, ())
            if is_on_channel(record, requested.channel)
        ]
        newest = conda_versions.newest_first(versions)[:6]
        have = ", ".join(newest) or "no package of that name"
        need = on_channel(requested.channel, conda_versions.text_of(name, requested.spec))
        if python is not None:
            need += f" for Python {show_pair(python)}"
        raise self._no_solution([Reason("no-release", name, need, have)])

    def _closure(
        self,
        combination: Sequence[Candidate],
        limits: Sequence[str],
        preferences: Sequence[str],
    ) -> tuple[Sequence[Record], list[Reason]] | None:
        """Return the closure of a combination and the doubts about it; None if there is none.

        The preferences, also those of the candidates, apply if a closure with them exists.
        """
        of_candidates = (spec for candidate in combination for spec in candidate.preferences)
        preferences = [*preferences, *of_candidates]
        if preferences:
            refusals = len(self.refusals)
            closure = self._closure_within(combination, [*limits, *preferences])
            if closure is not None:
                return closure
            del self.refusals[refusals:]
        return self._closure_within(combination, limits)

    def _closure_within(
        self, combination: Sequence[Candidate], limits: Sequence[str]
    ) -> tuple[Sequence[Record], list[Reason]] | None:
        """Return the closure within limits and the doubts about it; None if there is none.

        Releases that the rules reject are excluded, in up to ROUNDS solves.
        """
        specs = list(self.parsed.specs)
        for candidate in combination:
            specs += specs_of(candidate, self.matrix.conda.packages)
        unsaid = [
            spec
            for candidate in combination
            for spec, _ in conda_parts.unsaid_constraints(candidate.row, self.host, self.matrix)
        ]
        named = {conda_versions.name_of(spec) for spec in self.parsed.specs}
        constraints = list(limits)
        for _ in range(ROUNDS):
            try:
                records = self.solver.solve(
                    specs, constraints, self.store.virtual, (*self.store.limits, *unsaid)
                )
            except RefusedError as error:
                subjects = [candidate.subject for candidate in combination]
                subject = ", ".join(subjects) or self.parsed.subject
                have = " ".join(str(error).split())[:REFUSAL_LENGTH]
                self.refusals.append(Reason("conda-closure", subject, "a closure", have))
                return None
            against = conda_parts.closure_reasons(
                records,
                self.host,
                self.matrix,
                virtual=self.store.virtual,
                keep=named,
            )
            rejected = [
                name for name, reasons in against.items() if not all(map(is_doubt, reasons))
            ]
            if not rejected:
                return records, [reason for reasons in against.values() for reason in reasons]
            for name in rejected:
                self.refusals += [reason for reason in against[name] if not is_doubt(reason)]
            versions = _versions(records)
            constraints += [f"{name} !={versions[name]}" for name in sorted(rejected)]
        return None

    # ---- the result

    def _make_plan(
        self,
        combination: Sequence[Candidate],
        closure: tuple[Sequence[Record], list[Reason]],
        skipped: Sequence[Rejection],
    ) -> Plan:
        records, doubts = closure
        warnings = list(doubts)
        for candidate in combination:
            warnings += candidate.reasons
        warnings += filter(is_doubt, self.host_reasons)
        pins = [pin_of(record) for record in records]
        pins.sort(key=lambda pin: pin.wheel.name)
        return Plan(
            request=self.parsed.request,
            host=_host_with_python(self.host, records),
            pins=tuple(pins),
            choices=tuple(_choice(candidate, records) for candidate in combination),
            needs=self._needs(combination, records),
            skipped=tuple(skipped),
            warnings=tuple(dict.fromkeys(warnings)),
            data=f"matrix {self.matrix.version}",
        )

    def _needs(self, combination: Sequence[Candidate], records: Sequence[Record]) -> Needs:
        host, cuda = self.host, conda_parts.cuda_of_records(records)
        needs = Needs(
            glibc=_oldest_glibc(records),
            python=major_minor(_versions(records).get("python", "")),
            platform=host.platform,
        )
        rows = [candidate.row for candidate in combination]
        toolkits = [row.cuda for row in rows if row.cuda is not None]
        if cuda:
            toolkits.append(cuda)
        if not host.gpus or not toolkits:
            return needs
        packages = conda_parts.packages_of_records(records, host.platform, self.matrix)
        codes = [row.code for row in rows]
        codes += [package.library.code for package in packages if package.library is not None]
        return needs_of_gpus(needs, toolkits, codes, host, self.matrix)


def _passed_over(
    combination: Sequence[Candidate],
    candidates: Sequence[Sequence[Candidate]],
    refusals: Sequence[Reason],
) -> list[Rejection]:
    """Return the candidates that are better than the chosen ones, with what speaks against them."""
    rejections = []
    for chosen, of_framework in zip(combination, candidates, strict=True):
        for candidate in of_framework[: of_framework.index(chosen)]:
            reasons = candidate.reasons or _why_not_chosen(candidate, combination, refusals)
            if reasons:
                row = candidate.row
                version = f"{row.version} ({row.variant})"
                rejections.append(Rejection(name=row.name, version=version, reasons=reasons))
    return rejections


def _why_not_chosen(
    candidate: Candidate, combination: Sequence[Candidate], refusals: Sequence[Reason]
) -> tuple[Reason, ...]:
    """Return why a build that runs on the host is not part of the chosen combination.

    Codes: conflict (another framework is built for another CUDA major), conda-closure.
    """
    cuda = candidate.row.cuda
    for other in combination:
        other_cuda = None if other.requested == candidate.requested else other.row.cuda
        if cuda and other_cuda and cuda[0] != other_cuda[0]:
            need = f"a build of {other.row.name} for CUDA {cuda[0]}"
            subject, have = candidate.subject, other.subject
            return (Reason("conflict", subject, need, have),)
    about = [reason for reason in refusals if candidate.subject in reason.subject.split(", ")]
    return tuple(about[:1])


def _versions(records: Sequence[Record]) -> dict[str, str]:
    return {record["name"]: str(record["version"]) for record in records}


def _host_with_python(host: Host, records: Sequence[Record]) -> Host:
    """Return the host with the Python of the environment."""
    text = _versions(records).get("python", "")
    version = major_minor(text)
    if version is None:
        return host
    python = host.python.replace(
        version=version, full_version=text, executable=None, free_threaded=False
    )
    return host.replace(python=python)


def _choice(candidate: Candidate, records: Sequence[Record]) -> Choice:
    row, versions = candidate.row, _versions(records)
    installed = [versions[name] for name in conda_records.CUDNN if name in versions]
    return Choice(
        framework=row.framework,
        version=row.version,
        variant=row.variant,
        cuda=row.cuda,
        cudnn=next(iter(installed), row.cudnn) if row.cuda else None,
        sass=row.code.sass or (),
        ptx=row.code.ptx or (),
        evidence=row.code.evidence,
        source=row.code.source,
    )


def _oldest_glibc(records: Sequence[Record]) -> tuple[int, int] | None:
    """Return the oldest glibc that every package of a closure runs on."""
    needed = []
    for record in records:
        for dependency in record.get("depends") or ():
            name, spec, _ = conda_versions.split(dependency)
            if name != "__glibc":
                continue
            needed.append(major_minor(f"{conda_versions.lower_bound(spec)}.0"))
    return max(filter(None, needed), default=None)


def pin_of(record: Record) -> Pin:
    """Return a package's file. What a wheel has no field for is in `metadata`."""
    depends = tuple(record.get("depends") or ())
    names = sorted({conda_versions.name_of(dependency) for dependency in depends})
    metadata = {
        "build": record["build"],
        "build_number": int(record.get("build_number", 0)),
        "subdir": record["subdir"],
        "depends": depends,
        "md5": record.get("md5"),
    }
    wheel = Wheel(
        name=record["name"],
        version=record["version"],
        filename=str(record["url"]).rpartition("/")[2],
        url=record["url"],
        sha256=record.get("sha256"),
        size=record.get("size"),
        index=str(record.get("channel") or ""),
        metadata=metadata,
    )
    dependencies = tuple(name for name in names if not name.startswith("__"))
    return Pin(wheel=wheel, dependencies=dependencies)
