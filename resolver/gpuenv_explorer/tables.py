"""The solver's answers for every host, as tables that the page looks up.

Whether a release runs on a host depends on its files for the interpreter, and on the GPUs and the
driver. The solver is asked about each release with each interpreter, on a GPU that its code serves.
The rules then tell where else the packages of that plan run (`gpuenv.reasons_against`). If only the
libraries beside a framework do not suit a GPU, the solver is asked again: it may choose others.

A host is served if one plan of the release suits all of its GPUs.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any

from gpuenv import (
    Gpu,
    Host,
    IndexOptions,
    NoSolutionError,
    OfflineError,
    Plan,
    Python,
    Reason,
    Request,
    compatibility_data,
    data_version,
    describe,
    is_doubt,
    matrix_catalog,
    parse_release,
    reasons_against,
    solve,
    toolkit_distance,
)
from gpuenv.commands import PLATFORMS, PYTHONS, activity, show_pair

# Placeholders in the texts of reasons.
GPU, CAPABILITY, RELEASE = "{gpu}", "{capability}", "{release}"
DRIVER, DRIVER_CUDA = "{driver}", "{driver_cuda}"
_OLDER_THAN_ALL = "300.00"
# The GPUs on which a release is solved first, if its code serves one of them.
_USUAL = ((8, 0), (9, 0), (7, 0), (12, 0))
# Reasons that a release has no file for an interpreter: the page tells those from `pythons`.
_ABOUT_FILES = ("no-offline-file", "no-wheel-for-target", "requires-python")
# Reasons against a GPU with its driver, which all releases share and which come first.
_OF_HOSTS = ("gpu-needs-newer-driver", "gpu-dropped-by-driver")
# Doubts about a driver that all releases share.
_ABOUT_HOSTS = ("driver-unknown", "driver-branch-unknown")

Pins = Sequence[tuple[str, str]]  # (name, version)
Capability = tuple[int, int]
# (the first interval, tier, number of the reason against it or -1) of each different verdict.
Column = tuple[tuple[int, int, int], ...]


def numbered(known: dict[Any, int], value: Hashable) -> int:
    """Return the number of a value. A new value gets the next one."""
    return known.setdefault(value, len(known))


class Tables:
    """Makes the tables of frameworks, and of the distributions with device code beside them.

    Args:
        names: the frameworks and distributions of the tables; by default all.
        capabilities: the compute capabilities that are answered; by default all.
    """

    def __init__(self, names: Iterable[str] = (), capabilities: Iterable[Capability] = ()) -> None:
        self._data, self._catalog = compatibility_data(), matrix_catalog()
        names, frameworks = tuple(names), self._data.all_frameworks()
        shown = {companion for framework in frameworks for companion in framework.companions}
        shown.update(filter(self._data.is_extension, self._data.libraries()))
        shown.update(name for name in self._data.libraries() if name.startswith("nvidia-cudnn-"))
        self._frameworks = [
            framework for framework in frameworks if not names or framework.name in names
        ]
        self._libraries = [
            name
            for name in self._data.libraries()
            if name in shown and (not names or name in names)
        ]
        self._capabilities = tuple(capabilities) or tuple(self._data.capabilities())
        self._texts: dict[str, int] = {}
        self._reasons: dict[tuple[str | int, ...], int] = {}
        self._columns: dict[Column, int] = {}
        self._refused_hosts: dict[tuple[str, Capability, int], tuple[int, int]] = {}
        self._plans: dict[tuple[int, ...], int] = {}

    def document(self, platforms: Iterable[str] = PLATFORMS) -> dict[str, Any]:
        """Return the tables of some platforms as a JSON document."""
        tables = {platform: self._platform(platform) for platform in platforms}
        return {
            "data": data_version(),
            "capabilities": [show_pair(capability) for capability in self._data.capabilities()],
            "gpus": self._data.gpu_tables(),
            "pythons": [show_pair(python) for python in PYTHONS],
            "platforms": tables,
            "texts": list(self._texts),
            "reasons": list(self._reasons),
            "columns": list(self._columns),
            "plans": list(self._plans),
        }

    def _platform(self, platform: str) -> dict[str, Any]:
        drivers = _Drivers(platform)
        frameworks = {}
        for framework in self._frameworks:
            with activity.part(f"{framework.name} on {platform}"):
                frameworks[framework.name] = self._framework(framework, drivers)
        libraries = {}
        for name in self._libraries:
            rows = []
            for library in self._data.releases(name, platform):
                columns = self._columns_of(
                    [(name, library.version)], f"{name} {library.version}", drivers
                )
                major = str(library.cuda_major) if library.cuda_major else None
                rows.append({
                    "version": library.version,
                    "public": library.version,
                    "cuda": show_pair(library.cuda) if library.cuda else major,
                    "cudnn": library.cudnn,
                    **self._evidence(library.code),
                    "plans": [columns],
                })  # fmt: skip
            if rows:
                libraries[name] = rows[::-1]
        cudas = {row["cuda"] for rows in frameworks.values() for row in rows["releases"]}
        return {
            "thresholds": drivers.thresholds,
            "cuda": [show_pair(cuda) if cuda else None for cuda in drivers.cuda],
            "toolkits": drivers.toolkits(filter(None, cudas)),
            "frameworks": frameworks,
            "libraries": libraries,
        }

    def _framework(self, framework: Any, drivers: _Drivers) -> dict[str, Any]:
        without_gpu: list[dict[str, Any]] = []
        for python in PYTHONS:
            host = drivers.host(None, None, python)
            answer = _solve(Request(frameworks=(framework.name,)), host)
            if isinstance(answer, Plan):
                version, variant = answer.choices[0].version, answer.choices[0].variant
                without_gpu.append({"version": version, "public": version, "variant": variant})
            elif answer is not None:
                without_gpu.append({"reason": self._reason(answer, "", host)})
        releases = [
            self._release(framework, variant, drivers)
            for release in self._catalog.entry(framework.name, drivers.platform).releases
            for variant in release.variants
            if variant.cuda is not None
        ]
        return {"releases": releases, "without_gpu": without_gpu}

    def _release(self, framework: Any, variant: Any, drivers: _Drivers) -> dict[str, Any]:
        """Return the row of one build of a release."""
        way = next(way for way in framework.ways if way.variant in (variant.variant, "*"))
        own = {way.distribution, *way.carriers}
        version = variant.version if way.variant == "*" else f"{variant.version} ({way.variant})"
        label = f"{framework.name} {version}"
        request = Request(
            frameworks=(f"{framework.name}=={variant.version}",),
            builds=((framework.name, variant.variant),),
        )
        own_pins: Pins = [(name, variant.version) for name in sorted(own)]
        gpus = (*_USUAL, *self._data.capabilities())
        usual = next((gpu for gpu in gpus if not self._refusal(own_pins, gpu, drivers)), gpus[0])
        solved, refusal = self._on_pythons(request, label, usual, drivers)
        pythons, plans = list(solved), list(solved.values())[:1]
        if plans:
            pins = self._pins(plans[0], own)
            own_pins = [pin for pin in pins if pin[0] in own]
            for gpu in self._capabilities:
                # Where only the libraries beside the framework do not suit a GPU, others may.
                is_refused = self._refusal(pins, gpu, drivers)
                if is_refused and not self._refusal(own_pins, gpu, drivers):
                    host = drivers.host(gpu, drivers.best(gpu), PYTHONS[pythons[0]])
                    answer = _solve(request, host)
                    plans += [answer] if isinstance(answer, Plan) else []
        pins_of_plans = [self._pins(plan, own) for plan in plans] or [own_pins]
        columns = [self._columns_of(pins, label, drivers) for pins in pins_of_plans]
        glibc = plans[0].needs.glibc if plans else None
        return {
            "version": version,
            "public": variant.version.partition("+")[0],
            "variant": variant.variant,
            "cuda": variant.cuda,
            "cudnn": plans[0].choices[0].cudnn if plans else variant.cudnn,
            **self._evidence(variant.code),
            "pythons": pythons,
            "refusal": None if plans else refusal,
            "glibc": show_pair(glibc) if glibc else None,
            "plans": list(dict.fromkeys(columns)),
        }

    def _on_pythons(
        self, request: Request, label: str, gpu: Capability, drivers: _Drivers
    ) -> tuple[dict[int, Plan], int | None]:
        """Return {place of a Python in PYTHONS: the plan for it}, and the last refusal."""
        plans, refusal = {}, None
        for place, python in enumerate(PYTHONS):
            host = drivers.host(gpu, drivers.best(gpu), python)
            answer = _solve(request, host)
            if isinstance(answer, Plan):
                plans[place] = answer
            elif answer is not None and answer.code not in _ABOUT_FILES:
                refusal = self._reason(answer, label, host)
        return plans, refusal

    def _pins(self, plan: Plan, own: Collection[str]) -> Pins:
        """Return the pins of a plan that are judged: those of a framework, and the libraries."""
        return [
            (name, version)
            for name, version in plan.versions.items()
            if name in own or self._data.is_library(name)
        ]

    def _refusal(self, pins: Pins, capability: Capability, drivers: _Drivers) -> Reason | None:
        """Return the first failure of pins on a GPU with its best driver."""
        host = drivers.host(capability, drivers.best(capability))
        failures = (reason for reason in reasons_against(pins, host) if not is_doubt(reason))
        return next(failures, None)

    def _columns_of(self, pins: Pins, label: str, drivers: _Drivers) -> int:
        """Return the number of the columns of pins, one for each compute capability."""
        columns = []
        for capability in self._data.capabilities():
            column: Column = ((0, -1, -1),)
            if capability in self._capabilities:
                column = self._column(pins, label, capability, drivers)
            columns.append(numbered(self._columns, column))
        return numbered(self._plans, tuple(columns))

    def _column(self, pins: Pins, label: str, capability: Capability, drivers: _Drivers) -> Column:
        """Return where each different verdict begins, and the verdict for an unknown driver.

        A newer driver only removes reasons that require a newer driver, and only adds the reason
        that it dropped the GPU. So no other verdict is between two equal ones if the CUDA versions
        of both drivers are known, or if neither is.
        """
        verdicts: dict[int, tuple[int, int]] = {}

        def at(interval: int | None) -> tuple[int, int]:
            key = len(drivers) if interval is None else interval
            of_host = (drivers.platform, capability, key)
            if of_host in self._refused_hosts:
                verdicts[key] = self._refused_hosts[of_host]
            if key not in verdicts:
                host = drivers.host(capability, interval)
                reasons = reasons_against(pins, host)
                tier, number = 0, -1
                for reason in reasons:
                    if not is_doubt(reason):
                        tier, number = -1, self._reason(reason, label, host)
                        if reason.code in _OF_HOSTS:
                            self._refused_hosts[of_host] = tier, number
                        break
                    if reason.code == "code-unknown":
                        tier = 2
                    if reason.code not in _ABOUT_HOSTS and number < 0:
                        number = self._reason(reason, label, host)
                verdicts[key] = tier, number
            return verdicts[key]

        def divide(first: int, last: int) -> None:
            if at(first) != at(last) and last - first > 1:
                middle = (first + last) // 2
                divide(first, middle)
                divide(middle, last)

        for first, last in drivers.spans:
            divide(first, last)
        # Without a driver, PTX is unknown code: nothing shows that it can be compiled.
        is_ptx = at(None)[0] == 2
        column: list[tuple[int, int, int]] = []
        for interval, (tier, reason) in sorted(verdicts.items()):
            step = 1 if tier == 0 and is_ptx else tier, reason
            if not column or column[-1][1:] != step:
                column.append((interval, *step))
        return tuple(column)

    def _evidence(self, code: Any) -> dict[str, Any]:
        evidence = "unknown" if code.sass is None else code.evidence
        return {"evidence": evidence, "source": numbered(self._texts, code.source)}

    def _reason(self, reason: Reason, label: str, host: Host) -> int:
        """Return the number of a reason; placeholders stand for the release and the host."""
        need, have = reason.need, reason.have.replace(f"driver {host.driver}", f"driver {DRIVER}")
        for gpu in host.gpus:
            pair = show_pair(gpu.compute_capability)
            need = need.replace(f"capability {pair} ({GPU})", f"capability {CAPABILITY} ({GPU})")
        if host.driver_cuda:
            cuda = show_pair(host.driver_cuda)
            have = have.replace(f"a driver for CUDA {cuda}", f"a driver for CUDA {DRIVER_CUDA}")
        subject = RELEASE if reason.subject == label else reason.subject
        texts = (numbered(self._texts, text) for text in (subject, need, have))
        return numbered(self._reasons, (reason.code, *texts))


class _Drivers:
    """The intervals of driver releases between which no answer changes.

    Interval 0 is before all thresholds, and interval N begins at threshold N. One more interval is
    for an unknown driver.
    """

    def __init__(self, platform: str) -> None:
        self._data = data = compatibility_data()
        self.platform = platform
        self._host = describe(gpus=["none"], platform=platform).replace(glibc=None)
        branches = {*data.branches, *(branch for branch, _ in data.first_branches.values())}
        # After the last branch of a GPU, and after the newest one. Branches are multiples of five.
        last_branches = [branch for branch, _ in data.last_branches.values()]
        branches |= {branch + 5 for branch in (*last_branches, data.newest_branch())}
        releases = {*data.driver_steps(self._host.os), *(f"{branch}.00" for branch in branches)}
        self.thresholds = sorted(releases, key=parse_release)
        self._releases = [_OLDER_THAN_ALL, *self.thresholds]
        self.cuda = [data.driver_cuda(release) for release in self._releases]
        known = [interval for interval, cuda in enumerate(self.cuda) if cuda]
        last = len(self.cuda) - 1
        # The first and the last interval of each span: CUDA version unknown, known, unknown.
        self.spans = ((0, known[0] - 1), (known[0], known[-1]), (known[-1] + 1, last))

    def __len__(self) -> int:
        return len(self._releases)

    def host(
        self, capability: Capability | None, interval: int | None, python: Capability = PYTHONS[0]
    ) -> Host:
        """Return a host with one GPU, or without one, and a driver; None is an unknown one."""
        release = None if interval is None else self._releases[interval]
        gpu = Gpu(name=GPU, compute_capability=capability, index=0)
        return self._host.replace(
            python=Python(version=python),
            gpus=(gpu,) if capability else (),
            driver=release,
            driver_cuda=None if release is None else self._data.driver_cuda(release),
        )

    def best(self, capability: Capability) -> int:
        """Return the interval of the newest driver that supports a GPU."""
        branch, _ = self._data.last_branches.get(capability, (max(self._data.branches), ""))
        return sum(parse_release(release)[0] <= branch for release in self.thresholds)

    def toolkits(self, cudas: Iterable[str]) -> dict[str, list[int]]:
        """Return the place of each toolkit in the solver's order, for each interval."""
        toolkits = {}
        for cuda in cudas:
            major, minor = cuda.split(".")
            toolkits[cuda] = int(major), int(minor)
        places: dict[str, list[int]] = {cuda: [] for cuda in sorted(toolkits)}
        for driver_cuda in (*self.cuda, None):
            order = sorted(toolkits, key=lambda c: toolkit_distance(toolkits[c], driver_cuda))
            for place, cuda in enumerate(order):
                places[cuda].append(place)
        return places


def _solve(request: Request, host: Host) -> Plan | Reason | None:
    """Return the plan of the solver, or its first reason; None if no file of a build is known."""
    try:
        return solve(request, host, IndexOptions(offline=True), changes=False)
    except NoSolutionError as refusal:
        reason: Reason = refusal.explanation.reasons[0]
        return reason
    except OfflineError:
        if not request.builds:
            raise  # the user's own index replaces the snapshot, so that nothing is known
        return None
