"""A request, a host and channels -> a Plan of conda packages, each pin a package's file.

gpuenv chooses the build of each framework and the ranges of cuda-version and cuDNN
(candidates.py). The solver finds the closure. The rules then judge the closure: a release of a
library that they reject is kept out, and the solver is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ...compat import conda_parts, conda_records, evaluate
from ...compat.conda_records import Carriers, Record
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
    parse_pair,
    reaches_release,
)
from ...requirements import conda_versions
from ...requirements.target import parse_requirement
from . import virtual_packages
from .candidates import (
    MOST_TRIES,
    Candidate,
    CandidateStore,
    FrameworkSpec,
    ImpossibleError,
    combinations,
    is_on_channel,
    on_channel,
    specs_of,
)
from .solvers import RefusedError, Solver

ROUNDS = 8  # in which releases are kept out of the closure, before a candidate is given up
REFUSAL_LENGTH = 1200  # characters of a solver's own explanation
_CUDA_PACKAGES = (*conda_records.TOOLKITS, *conda_records.CUDNN)


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

    def package_names(self, carriers: Carriers) -> list[str]:
        """Return the packages whose records decide which builds are candidates."""
        packages = {carriers.carriers[spec.framework] for spec in self.frameworks}
        return sorted({*packages, *_CUDA_PACKAGES})


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
    frameworks = [_framework_of_flag(text, carriers) for text in request.frameworks]
    specs = []
    if python is not None:
        specs.append(f"python {python[0]}.{python[1]}.*")
    # A framework's own name means its package, too: torch is pytorch.
    framework_of = {name: name for name in carriers.packages}
    framework_of |= {package: name for name, package in carriers.packages.items()}
    for text in request.requirements:
        conda_versions.require_spec(text)
        name, spec, build = conda_versions.split(text)
        channel = _channel_of(text, channels)
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


def _channel_of(spec: str, channels: Sequence[str]) -> str:
    """Return the channel that a spec names, as `channels` has it: conda-forge may be a URL."""
    name = conda_versions.channel_of(spec)
    for channel in channels:
        if name and name in (channel, conda_records.channel_name(channel)):
            return channel
    return name


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
        spec = conda_versions.text_of(name, requested.specifier or requested.spec, build)
        specs.append(on_channel(requested.channel, spec))
    return (*specs, *parsed.specs)


class Repair(Value):
    """What to solve for to repair an environment. `fixed` are specs of what must not change."""

    frameworks: tuple[str, ...]
    requirements: tuple[str, ...]
    fixed: tuple[str, ...]


def repairs(installed: Mapping[str, Record], carriers: Carriers) -> Iterator[Repair]:
    """Yield what may change to make an environment work on a host, the smallest changes first.

    First the frameworks keep their versions, and so do all packages that are not CUDA's; then the
    frameworks may change; then everything may.
    """
    frameworks = {
        framework: str(installed[package]["version"])
        for framework, package in carriers.packages.items()
        if package in installed
    }
    cuda = tuple(name for name in _CUDA_PACKAGES if name in installed)
    if not frameworks and not cuda:
        return
    others = [name for name, record in installed.items() if not _is_of_cuda(record, carriers)]
    fixed = tuple(f"{name} =={installed[name]['version']}" for name in others)
    if not frameworks:
        yield Repair(frameworks=(), requirements=cuda, fixed=fixed)
        yield Repair(frameworks=(), requirements=cuda, fixed=())
        return
    kept = tuple(f"{name}=={version}" for name, version in frameworks.items())
    yield Repair(frameworks=kept, requirements=(), fixed=fixed)
    yield Repair(frameworks=tuple(frameworks), requirements=(), fixed=fixed)
    yield Repair(frameworks=tuple(frameworks), requirements=(), fixed=())


def _is_of_cuda(record: Record, carriers: Carriers) -> bool:
    """Return whether a package is a framework, is of CUDA, or depends on a CUDA package."""
    names = {record["name"], *map(conda_versions.name_of, record.get("depends") or ())}
    if names & {*_CUDA_PACKAGES, "__cuda"}:
        return True
    return carriers.framework_of(record["name"]) is not None


def _framework_of_flag(text: str, carriers: Carriers) -> FrameworkSpec:
    parsed = parse_requirement(text)
    name = carriers.framework_of(parsed.name) or parsed.name
    if name not in carriers.packages:
        known = ", ".join(sorted(carriers.packages))
        message = f"--framework {text}: no conda package is known for it; known: {known}"
        raise InputError(message)
    return FrameworkSpec(framework=name, specifier=parsed.specifier)


def plan(
    request: Request,
    host: Host,
    matrix: CompatibilityData,
    carriers: Carriers,
    solver: Solver,
    *,
    python: tuple[int, int] | None = None,
    changes: bool = True,
) -> Plan:
    """Return the environment for a request on a host.

    Args:
        request: Frameworks and requirements.
        host: The host to solve for.
        matrix: The compatibility data.
        carriers: The conda packages of the frameworks.
        solver: Reads the channels and finds closures.
        python: The Python of the environment; None leaves it to the solver.
        changes: Also look for a newer driver that would help if there is no solution.

    Raises:
        NoSolutionError: There is none; it explains why.
        InputError: The request cannot be used.
    """
    parsed = parse_request(request, carriers, python, solver.channels)
    records = solver.records(parsed.package_names(carriers))

    def plan_for(host: Host) -> Plan:
        return _Search(
            parsed, host, matrix, carriers=carriers, solver=solver, records=records
        ).plan()

    try:
        return plan_for(host)
    except NoSolutionError as error:
        if not changes:
            raise
        explanation = error.explanation.replace(changes=_helpful_drivers(host, matrix, plan_for))
        raise NoSolutionError(explanation) from None


def _helpful_drivers(
    host: Host, matrix: CompatibilityData, plan_for: Callable[[Host], Plan]
) -> tuple[Change, ...]:
    """Return the oldest newer driver with which the request has a solution on the same devices."""
    if not host.gpus or host.driver is None:
        return ()
    for release in matrix.driver_steps(host.os):
        if reaches_release(host.driver, release):
            continue
        newer = host.replace(driver=release, driver_cuda=matrix.driver_cuda(release))
        if evaluate.host_reasons(newer, matrix):
            continue
        try:
            plan = plan_for(newer)
        except NoSolutionError:
            continue
        gives = [
            f"{choice.framework} {choice.version} ({choice.variant})" for choice in plan.choices
        ]
        if not gives:
            gives = [f"{pin.wheel.name} {pin.wheel.version}" for pin in plan.pins[:3]]
        change = f"a driver of release {release} or newer"
        return (Change(change=change, gives=", ".join(gives)),)
    return ()


class _Search:
    """The search for one request on one host."""

    def __init__(
        self,
        parsed: ParsedRequest,
        host: Host,
        matrix: CompatibilityData,
        *,
        carriers: Carriers,
        solver: Solver,
        records: Sequence[Record],
    ) -> None:
        self.parsed, self.host, self.matrix = parsed, host, matrix
        self.carriers, self.solver = carriers, solver
        self.limits = tuple(self.solver.limits)
        self.store = CandidateStore(
            records, host, matrix, carriers, request=parsed.request, limits=self.limits
        )
        self.virtual = virtual_packages.of_host(self.host)
        self.refusals: list[Reason] = []  # why combinations have no usable closure

    def plan(self) -> Plan:
        """Return the plan of the first combination whose closure nothing speaks against.

        Combinations with doubts are tried only if there is no other.
        """
        host_reasons = evaluate.host_reasons(self.host, self.matrix)
        against = [reason for reason in host_reasons if not is_doubt(reason)]
        if against:
            raise self._no_solution(against)
        limits, preferences = self._limits_of_request()
        candidates = [self._candidates(requested) for requested in self.parsed.frameworks]
        for combination in _tries(candidates):
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

    def _limits_of_request(self) -> tuple[list[str], list[str]]:
        """Return the limits and preferences of the cuDNN and the toolkits that the user names."""
        limits, preferences = [], []
        for spec in self.parsed.specs:
            if conda_versions.name_of(spec) not in _CUDA_PACKAGES:
                continue
            try:
                of_spec = self.store.limits_of(spec)
            except ImpossibleError as error:
                raise self._no_solution(error.reasons) from None
            limits += of_spec[0]
            preferences += of_spec[1]
        return limits, preferences

    def _candidates(self, requested: FrameworkSpec) -> list[Candidate]:
        """Return the candidates of a framework. NoSolutionError if no release fits its range."""
        candidates = self.store.candidates(requested, self.parsed.python)
        if candidates:
            return candidates
        name, python = self.carriers.carriers[requested.framework], self.parsed.python
        versions = [
            record["version"]
            for record in self.store.by_name.get(name, ())
            if is_on_channel(record, requested.channel)
        ]
        newest = conda_versions.newest_first(versions)[:6]
        have = ", ".join(newest) or "no package of that name"
        need = f"{name} {requested.specifier or requested.spec}".removesuffix(" *")
        need = on_channel(requested.channel, need)
        if python is not None:
            need += f" for Python {python[0]}.{python[1]}"
        raise self._no_solution([Reason(code="no-release", subject=name, need=need, have=have)])

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
            specs += specs_of(candidate, self.carriers.packages)
        unsaid = [
            spec
            for candidate in combination
            for spec, _ in conda_parts.unsaid_constraints(
                candidate.row, self.host, self.matrix, self.carriers
            )
        ]
        named = {conda_versions.name_of(spec) for spec in self.parsed.specs}
        constraints = list(limits)
        for _ in range(ROUNDS):
            self.solver.limits = (*self.limits, *unsaid)
            try:
                records = self.solver.solve(specs, constraints, self.virtual)
            except RefusedError as error:
                self.refusals.append(self._refusal(combination, error))
                return None
            finally:
                self.solver.limits = self.limits
            against = conda_parts.closure_reasons(
                records,
                self.host,
                self.matrix,
                self.carriers,
                virtual=self.virtual,
                keep=named,
            )
            rejected = _rejected(against)
            if not rejected:
                return records, [reason for reasons in against.values() for reason in reasons]
            for name in rejected:
                self.refusals += [reason for reason in against[name] if not is_doubt(reason)]
            versions = _versions(records)
            constraints += [f"{name} !={versions[name]}" for name in sorted(rejected)]
        return None

    def _refusal(self, combination: Sequence[Candidate], error: RefusedError) -> Reason:
        subjects = [candidate.subject for candidate in combination]
        subject = ", ".join(subjects) or self.parsed.subject
        have = " ".join(str(error).split())[:REFUSAL_LENGTH]
        return Reason(code="conda-closure", subject=subject, need="a closure", have=have)

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
        host_reasons = evaluate.host_reasons(self.host, self.matrix)
        warnings += [reason for reason in host_reasons if is_doubt(reason)]
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
        python = _python_version(records)
        needs = Needs(
            glibc=_oldest_glibc(records),
            python=None if python is None else _minor_release(python),
            platform=host.platform,
        )
        rows = [candidate.row for candidate in combination]
        toolkits = [row.cuda for row in rows if row.cuda is not None]
        if cuda:
            toolkits.append(cuda)
        if not host.gpus or not toolkits:
            return needs
        packages = conda_parts.packages_of_records(
            records, host.platform, self.matrix, self.carriers
        )
        codes = [row.code for row in rows]
        codes += [package.library.code for package in packages if package.library is not None]
        return needs_of_gpus(needs, toolkits, codes, host, self.matrix)


def _tries(candidates: Sequence[Sequence[Candidate]]) -> Iterator[tuple[Candidate, ...]]:
    """Yield the combinations to try, at most MOST_TRIES: first those without doubts."""
    tried: set[tuple[str, ...]] = set()
    for lenient in (False, True):
        for combination in combinations(candidates, lenient=lenient):
            if len(tried) == MOST_TRIES:
                return
            subjects = tuple(candidate.subject for candidate in combination)
            if subjects not in tried:
                tried.add(subjects)
                yield combination


def _rejected(against: Mapping[str, Sequence[Reason]]) -> list[str]:
    """Return the packages against which there is more than a doubt."""
    return [name for name, reasons in against.items() if not all(map(is_doubt, reasons))]


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
        other_cuda = other.row.cuda
        if other.requested == candidate.requested or cuda is None or other_cuda is None:
            continue
        if cuda[0] != other_cuda[0]:
            need = f"a build of {other.row.name} for CUDA {cuda[0]}"
            subject, have = candidate.subject, other.subject
            return (Reason(code="conflict", subject=subject, need=need, have=have),)
    about = [reason for reason in refusals if candidate.subject in reason.subject.split(", ")]
    return tuple(about[:1])


def _versions(records: Sequence[Record]) -> dict[str, str]:
    return {record["name"]: str(record["version"]) for record in records}


def _python_version(records: Sequence[Record]) -> str | None:
    return _versions(records).get("python")


def _minor_release(version: str) -> tuple[int, int]:
    """Return (3, 12) for "3.12.3"."""
    return parse_pair(".".join(version.split(".")[:2]))


def _host_with_python(host: Host, records: Sequence[Record]) -> Host:
    """Return the host with the Python of the environment."""
    text = _python_version(records)
    if text is None:
        return host
    python = host.python.replace(
        version=_minor_release(text), full_version=text, executable=None, free_threaded=False
    )
    return host.replace(python=python)


def _choice(candidate: Candidate, records: Sequence[Record]) -> Choice:
    row, versions = candidate.row, _versions(records)
    cudnn = None
    if row.cuda is not None:
        installed = [versions[name] for name in conda_records.CUDNN if name in versions]
        cudnn = installed[0] if installed else row.cudnn
    return Choice(
        framework=row.framework,
        version=row.version,
        variant=row.variant,
        cuda=row.cuda,
        cudnn=cudnn,
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
            least = conda_versions.lower_bound(spec)
            if least is not None:
                needed.append(_minor_release(f"{least}.0"))
    return max(needed, default=None)


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
