"""A request, a host and some channels -> a Plan of conda packages, in which every pin is a package's file.

gpuenv chooses the framework's build and the ranges of cuda-version and cuDNN (choosing.py); the solver finds the
closure; the closure is checked again (checking.py). What speaks against a library of the closure keeps that release
out, and the solver is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...compat import conda_parts, conda_records, evaluate
from ...compat.conda_records import Carriers, Record
from ...compat.data import CompatibilityData
from ...compat.evaluate import is_doubt, needs_of_gpus
from ...errors import Change, Explanation, InputError, NoSolutionError, Reason
from ...model import (
    Choice,
    Code,
    Host,
    Needs,
    Pin,
    Plan,
    Rejection,
    Request,
    Value,
    Wheel,
    parse_pair,
    parse_release,
)
from ...requirements import conda_versions
from ...requirements.target import parse_requirement
from . import virtual_packages
from .candidates import (
    MOST_TRIES,
    Candidate,
    ImpossibleError,
    Shelf,
    Wanted,
    combinations,
    specs_of,
)
from .solvers import RefusedError, Solver

ROUNDS = 8  # in which releases of the closure are kept out, before a candidate is given up
SAID = 1200  # characters of a solver's own explanation


class _Asked:
    """A request, read: frameworks, further specs, and the names whose records are looked at."""

    def __init__(self, request: Request, carriers: Carriers, python: tuple[int, int] | None) -> None:
        self.request, self.python = request, python
        self.frameworks: list[Wanted] = []
        self.specs: list[str] = [] if python is None else [f"python {python[0]}.{python[1]}.*"]
        for text in request.frameworks:
            parsed = parse_requirement(text)
            name = carriers.framework_of(parsed.name) or parsed.name
            if name not in carriers.packages:
                known = ", ".join(sorted(carriers.packages))
                raise InputError(f"--framework {text}: no conda package is known for it; known: {known}")
            self.frameworks.append(Wanted(framework=name, specifier=parsed.specifier))
        for text in request.requirements:
            name, spec, build = conda_versions.split(text)
            framework = next((one for one, package in carriers.packages.items() if package == name), None)
            if framework is not None:
                self.frameworks.append(Wanted(framework=framework, spec=spec, build=build))
            else:
                self.specs.append(_spelled(text))

    def names(self, carriers: Carriers) -> list[str]:
        """The packages that choosing looks at."""
        mine = {carriers.carriers[one.framework] for one in self.frameworks}
        return sorted({*mine, *conda_records.CUDNN, *conda_records.TOOLKITS})

    @property
    def subject(self) -> str:
        return ", ".join((*self.request.frameworks, *self.request.requirements))


def _spelled(text: str) -> str:
    """A spec as rattler reads it too: "cuda-version=13.0" -> "cuda-version 13.0.*"; "numpy>=2" as it is."""
    name, spec, build = conda_versions.split(text)
    if spec == "*" and build == "*":
        return name
    if spec.startswith("=") and not spec.startswith("=="):
        spec = spec[1:] if "*" in spec else f"{spec[1:]}.*"
    elif spec[:1].isdigit() and "*" not in spec and "|" not in spec:
        spec = f"=={spec}"
    return f"{name} {spec}" + ("" if build == "*" else f" {build}")


def plan(
    request: Request,
    host: Host,
    matrix: CompatibilityData,
    carriers: Carriers,
    solver: Solver,
    *,
    admits: Callable[[str, str], bool],
    python: tuple[int, int] | None = None,
    data: str = "",
    changes: bool = True,
) -> Plan:
    """The environment for a request on a host. `admits` says whether a PEP 440 range has a version.

    NoSolutionError explains why there is none; with `changes` also which newer driver would help, each of them solved.
    """
    asked = _Asked(request, carriers, python)
    if not asked.frameworks and not asked.specs:
        raise InputError("nothing to solve: give --framework NAME or a REQUIREMENT")
    records = solver.records(asked.names(carriers))
    given = _Given(
        asked=asked, host=host, matrix=matrix, carriers=carriers, solver=solver, records=records, admits=admits
    )
    try:
        return _Search(given).plan(data)
    except NoSolutionError as error:
        if not changes:
            raise
        raise NoSolutionError(error.explanation.replace(changes=_drivers(given))) from None


class _Given(Value):
    """What a search is about."""

    asked: _Asked
    host: Host
    matrix: CompatibilityData
    carriers: Carriers
    solver: Solver
    records: Sequence[Record]
    admits: Callable[[str, str], bool]


def _drivers(given: _Given) -> tuple[Change, ...]:
    """The oldest driver with which the same request has a solution on the same devices."""
    host, matrix = given.host, given.matrix
    if not host.gpus or host.driver is None:
        return ()
    for step in matrix.driver_steps(host.os):
        if parse_release(step) <= parse_release(host.driver):
            continue
        newer = host.replace(driver=step, driver_cuda=matrix.driver_cuda(step))
        if evaluate.host_reasons(newer, matrix):
            break
        try:
            found = _Search(given.replace(host=newer)).plan("")
        except NoSolutionError:
            continue
        gives = ", ".join(f"{one.framework} {one.version} ({one.variant})" for one in found.choices)
        gives = gives or ", ".join(f"{pin.wheel.name} {pin.wheel.version}" for pin in found.pins[:3])
        return (Change(change=f"a driver of release {step} or newer", gives=gives),)
    return ()


class _Search:
    """One request on one host."""

    def __init__(self, given: _Given) -> None:
        self.asked, self.host, self.matrix = given.asked, given.host, given.matrix
        self.carriers, self.solver, self.admits = given.carriers, given.solver, given.admits
        self.shelf = Shelf(given.records, given.host, given.matrix, given.carriers)
        self.virtual = virtual_packages.of_host(given.host)
        self.refused: list[Reason] = []
        self.skipped: list[Rejection] = []

    def plan(self, data: str) -> Plan:
        """The first combination that has a closure which nothing speaks against; doubts only if there is no other."""
        host_reasons = evaluate.host_reasons(self.host, self.matrix)
        against = tuple(reason for reason in host_reasons if not is_doubt(reason))
        if against:
            raise NoSolutionError(Explanation(subject=self.asked.subject, reasons=against))
        try:
            limits = self._own_limits()
        except ImpossibleError as error:
            raise NoSolutionError(Explanation(subject=self.asked.subject, reasons=error.reasons)) from None
        shelves = [self.shelf.candidates(one, self.admits, self.asked.python) for one in self.asked.frameworks]
        for wanted, shelf in zip(self.asked.frameworks, shelves, strict=True):
            if not shelf:
                self._nothing(wanted)
        tries, done = 0, set[tuple[str, ...]]()
        for lenient in (False, True):
            for several in combinations(shelves, lenient=lenient):
                key = tuple(one.subject for one in several)
                if key in done or tries >= MOST_TRIES:
                    continue
                done.add(key)
                tries += 1
                closure = self._closure(several, limits, lenient=lenient)
                if closure is not None:
                    self.skipped = _passed_over(several, shelves) + self.skipped
                    return self._made(several, *closure, data)
        reasons = [reason for shelf in shelves for one in shelf for reason in one.reasons]
        raise NoSolutionError(
            Explanation(subject=self.asked.subject, reasons=tuple(dict.fromkeys((*reasons, *self.refused))))
        )

    def _own_limits(self) -> list[str]:
        """The versions of cuDNN and of toolkits that the host can have, of what the user asks for by name."""
        found = []
        for spec in self.asked.specs:
            name = conda_versions.split(spec)[0]
            good = self.shelf.asked(spec) if name in (*conda_records.TOOLKITS, *conda_records.CUDNN) else ()
            if good:
                found.append(f"{name} {conda_versions.one_of(good)}")
        return found

    def _nothing(self, wanted: Wanted) -> None:
        name = self.carriers.carriers[wanted.framework]
        have = ", ".join(conda_versions.newest_first(one["version"] for one in self.shelf.by_name.get(name, ()))[:6])
        python = self.asked.python
        what = f"{name} {wanted.specifier or wanted.spec}".removesuffix(" *")
        need = what + ("" if python is None else f" for Python {python[0]}.{python[1]}")
        reason = Reason(code="no-release", subject=name, need=need, have=have or "no package of that name")
        raise NoSolutionError(Explanation(subject=self.asked.subject, reasons=(reason,)))

    def _closure(
        self, several: Sequence[Candidate], limits: Sequence[str], *, lenient: bool
    ) -> tuple[Sequence[Record], list[Reason]] | None:
        """The closure of some candidates that nothing speaks against, and doubts of it; None if there is none."""
        specs = [*self.asked.specs, *(spec for one in several for spec in specs_of(one, self.carriers.packages))]
        subject = ", ".join(one.subject for one in several) or self.asked.subject
        named = {conda_versions.split(spec)[0] for spec in self.asked.specs}
        kept_out = [*limits]
        for _ in range(ROUNDS):
            try:
                records = self.solver.solve(specs, kept_out, self.virtual)
            except RefusedError as error:
                text = " ".join(str(error).split())[:SAID]
                self.refused.append(Reason(code="conda-closure", subject=subject, need="a closure", have=text))
                return None
            found = conda_parts.closure_reasons(
                records, self.host, self.matrix, self.carriers, virtual=self.virtual, keep=named
            )
            wrong = {name: rs for name, rs in found.items() if not all(map(is_doubt, rs))}
            if not wrong:
                return records, [reason for reasons in found.values() for reason in reasons]
            self.refused += [reason for reasons in wrong.values() for reason in reasons if not is_doubt(reason)]
            by_name = {record["name"]: record for record in records}
            kept_out += [f"{name} !={by_name[name]['version']}" for name in sorted(wrong)]
        return None

    # ---- the result

    def _made(
        self, several: Sequence[Candidate], records: Sequence[Record], doubts: Sequence[Reason], data: str
    ) -> Plan:
        host = self._host(records)
        doubts = [*doubts, *(reason for one in several for reason in one.reasons)]
        doubts += [reason for reason in evaluate.host_reasons(self.host, self.matrix) if is_doubt(reason)]
        return Plan(
            request=self.asked.request,
            host=host,
            pins=tuple(_pin(record) for record in sorted(records, key=lambda one: str(one["name"]))),
            choices=tuple(_choice(one, records) for one in several),
            needs=self._needs(several, records),
            skipped=tuple(self.skipped),
            warnings=tuple(dict.fromkeys(doubts)),
            data=data,
        )

    def _host(self, records: Sequence[Record]) -> Host:
        """The host with the Python that the environment has."""
        text = next((str(one["version"]) for one in records if one["name"] == "python"), None)
        if text is None:
            return self.host
        version = parse_pair(".".join(text.split(".")[:2]))
        python = self.host.python.replace(version=version, full_version=text, executable=None, free_threaded=False)
        return self.host.replace(python=python)

    def _needs(self, several: Sequence[Candidate], records: Sequence[Record]) -> Needs:
        host, matrix, cuda = self.host, self.matrix, conda_parts.cuda_of_records(records)
        python = next((parse_pair(".".join(str(one["version"]).split(".")[:2])) for one in records
                       if one["name"] == "python"), None)  # fmt: skip
        needs = Needs(glibc=_glibc(records), python=python, platform=host.platform)
        toolkits = [one.row.cuda for one in several if one.row.cuda is not None] + ([cuda] if cuda else [])
        if not host.gpus or not toolkits:
            return needs
        codes = [one.row.code for one in several] + self._library_codes(records)
        return needs_of_gpus(needs, toolkits, codes, host, matrix)

    def _library_codes(self, records: Sequence[Record]) -> list[Code]:
        cuda = conda_parts.cuda_of_records(records)
        known = [conda_parts.library_of(one, cuda, self.host.platform, self.matrix) for one in records]
        return [one.code for one in known if one is not None]


def _passed_over(several: Sequence[Candidate], shelves: Sequence[Sequence[Candidate]]) -> list[Rejection]:
    """The candidates that stand before the chosen ones, with what speaks against them."""
    found = []
    for chosen, shelf in zip(several, shelves, strict=True):
        for one in shelf[: shelf.index(chosen)]:
            if one.reasons:
                version = f"{one.row.version} ({conda_parts.variant_name(one.row)})"
                found.append(Rejection(name=one.row.name, version=version, reasons=one.reasons))
    return found


def _choice(candidate: Candidate, records: Sequence[Record]) -> Choice:
    row, by_name = candidate.row, {one["name"]: str(one["version"]) for one in records}
    cudnn = next((by_name[name] for name in conda_records.CUDNN if name in by_name), row.cudnn)
    return Choice(
        framework=row.framework,
        version=row.version,
        variant=conda_parts.variant_name(row),
        cuda=row.cuda,
        cudnn=cudnn if row.cuda is not None else None,
        sass=row.code.sass or (),
        ptx=row.code.ptx or (),
        evidence=row.code.evidence,
        source=row.code.source,
    )


def _glibc(records: Sequence[Record]) -> tuple[int, int] | None:
    """The oldest glibc that all of a closure runs on."""
    found = []
    for record in records:
        for dependency in record.get("depends") or ():
            name, spec, _ = conda_versions.split(dependency)
            least = conda_versions.lower_bound(spec) if name == "__glibc" else None
            if least is not None:
                found.append(parse_pair(".".join(f"{least}.0".split(".")[:2])))
    return max(found, default=None)


def _pin(record: Record) -> Pin:
    """A package's file. What a wheel does not have is in `metadata`."""
    depends = [conda_versions.split(one) for one in record.get("depends") or ()]
    names = tuple(sorted({name for name, _, _ in depends}))
    kept: Mapping[str, object] = {
        "build": record["build"],
        "build_number": int(record.get("build_number", 0)),
        "subdir": record["subdir"],
        "depends": tuple(record.get("depends") or ()),
        "md5": record.get("md5"),
    }
    return Pin(
        wheel=Wheel(
            name=record["name"],
            version=record["version"],
            filename=str(record["url"]).rpartition("/")[2],
            url=record["url"],
            sha256=record.get("sha256"),
            size=record.get("size"),
            index=str(record.get("channel") or ""),
            metadata=kept,
        ),
        dependencies=tuple(name for name in names if not name.startswith("__")),
    )
