"""Conda records as the rules see them: the packages of a closure, and single records.

No solver is trusted to have checked the host: libmamba and classic ignore `constrains: __cuda`
where nothing depends on __cuda. So R1 is applied to every record whose version is a CUDA version.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ..errors import Reason, is_doubt
from ..model import Build, CudaVersion, Host, first_texts
from ..requirements import conda_versions
from . import conda_records, evaluate, extensions
from .conda_records import Record, Row, Virtual
from .data import CompatibilityData
from .evaluate import Package

_CUDA_SUFFIX = re.compile(r"-cu[0-9]+$")
_SUBJECTS = {"two-cudnn": "cuDNN", "two-libraries": "CUDA libraries"}
RECORD_SOURCE = "the package's own record in its channel"


def packages_of_records(
    records: Sequence[Record], platform: str, data: CompatibilityData
) -> list[Package]:
    """Describe conda records that are installed together.

    Companions are left out: a conda build of a companion accepts a framework of any CUDA of its
    major, and the solver keeps to the ranges that its record gives.

    Args:
        records: the records of an environment, of a lock or of a closure.
        platform: as in Host.platform.
        data: the compatibility data.
    """
    cuda = cuda_of_records(records)
    packages = []
    for record in records:
        name, version = str(record["name"]), str(record["version"])
        own_cuda = conda_records.cuda_dependency(record) or cuda
        distribution = wheel_distribution(name, own_cuda, data) or ""
        package = Package(
            name=name,
            version=version,
            distribution=distribution,
            links=extensions.of_build_string(str(record.get("build", ""))),
            toolkit=conda_records.toolkit_of(record),
        )
        row = data.conda.row(record)
        if row is not None:
            package = package.replace(
                framework=row.framework,
                build=build_of_row(row, platform),
                build_subject=row.subject,
                on_path=True,
            )
        elif distribution:
            library = data.library(distribution, version, platform)
            package = package.replace(is_library=True, library=library)
        packages.append(package)
    return packages


def build_of_row(row: Row, platform: str) -> Build:
    """Return a carrier's build as the rules see it.

    A cuDNN inside the package is not compared with the cuDNN packages of the environment.
    """
    code = row.code
    if row.cuda is None:
        code = code.replace(source=RECORD_SOURCE)  # the record says that it is a CPU build
    return Build(
        name=row.name,
        version=row.version,
        local=row.version,
        variant=row.variant.replace("cuda", "cu"),  # as companions among the wheels name it
        index=row.channel,
        platform=platform,
        cuda=row.cuda,
        cudnn=None if row.bundled else row.cudnn,
        code=code,
    )


def wheel_distribution(name: str, cuda: CudaVersion | None, data: CompatibilityData) -> str | None:
    """Return the wheel distribution of a library: libcublas of CUDA 12 -> nvidia-cublas-cu12.

    NVIDIA makes both from one build: conda-forge repackages the redistributable archives that the
    wheels are made of.
    """
    if cuda is None or not (name.startswith("lib") or name == "cudnn"):
        return None
    stem = "nvidia-" + name.removeprefix("lib")
    for distribution in (f"{stem}-cu{cuda[0]}", stem):
        if data.is_library(distribution):
            return distribution
    return None


def cuda_of_records(records: Iterable[Record]) -> CudaVersion | None:
    """Return the CUDA version of a closure, from the first of its toolkit packages."""
    toolkits = {record["name"]: conda_records.toolkit_of(record) for record in records}
    return next(filter(None, map(toolkits.get, conda_records.TOOLKITS)), None)


# ---- one record on a host, for the resolver ----------------------------------------------------


def row_reasons(row: Row, host: Host, data: CompatibilityData) -> tuple[Reason, ...]:
    """Return what speaks against a framework's build on a host (R1, R2, R7).

    Codes: those of the rules, cpu-build, cuda-build (a CUDA build for a host without a GPU).
    """
    if not host.gpus:
        return needs_gpu_reasons(row, host)
    build = build_of_row(row, host.platform)
    reasons = evaluate.build_reasons(row.subject, build, host, data, on_path=True)
    # A driver newer than the data is a doubt about the data, not about the build.
    dropped = evaluate.host_reasons(host, data) if row.cuda is not None else ()
    certain = (reason for reason in dropped if not is_doubt(reason))
    return (*certain, *reasons)


def needs_gpu_reasons(row: Row, host: Host) -> tuple[Reason, ...]:
    """Return why a CUDA build cannot be installed on a host without a GPU. Code: cuda-build.

    This is not one of the rules: the build's own record asks for __cuda.
    """
    if host.gpus or row.cuda is None:
        return ()
    reason = Reason(
        "cuda-build",
        row.subject,
        "an NVIDIA GPU",
        "a host without a GPU",
        source=RECORD_SOURCE,
    )
    return (reason,)


def record_reasons(
    record: Record, cuda: CudaVersion | None, host: Host, data: CompatibilityData
) -> tuple[Reason, ...]:
    """Return what speaks against a toolkit (R1) or a CUDA library (R2, R3, R4); () for others.

    Args:
        record: the record.
        cuda: the CUDA version that a library is for.
        host: the host.
        data: the compatibility data.
    """
    name, version = str(record["name"]), str(record["version"])
    subject = f"{name} {version}"
    reasons: list[Reason] = []
    toolkit = conda_records.toolkit_of(record)
    if toolkit is not None and host.gpus:
        reasons += evaluate.driver_reasons(subject, toolkit, host, data)
    distribution = wheel_distribution(name, cuda, data)
    if distribution is not None and host.gpus:
        library = data.library(distribution, version, host.platform)
        reasons += evaluate.library_reasons(subject, library, host, data)
    if distribution is not None:
        reasons += evaluate.known_bad_reasons(distribution, version, host, data, subject)
    return tuple(reasons)


# ---- a closure or a lock on a host -------------------------------------------------------------


def lock_reasons(
    records: Sequence[Record],
    host: Host,
    data: CompatibilityData,
    *,
    beside: Sequence[Package] = (),
) -> tuple[Reason, ...]:
    """Return what speaks against the records of a lock on a host, whoever wrote the lock.

    conda checks none of this when it installs an explicit file. A CPU build may be what the author
    of the lock wanted, so it gives no reason. Doubts are included.

    Args:
        records: the records.
        host: the host.
        data: the compatibility data.
        beside: the wheels beside them.
    """
    packages = [*packages_of_records(records, host.platform, data), *beside]
    rows = list(filter(None, map(data.conda.row, records)))
    subjects = {row.subject for row in rows}
    reasons = [
        reason
        for reason in evaluate.environment_reasons(packages, host, data)
        if reason.code != "cpu-build" or reason.subject not in subjects
    ]
    for row in rows:
        reasons += needs_gpu_reasons(row, host)
        for spec, source in unsaid_constraints(row, host, data):
            name = conda_versions.name_of(spec)
            reasons += [
                Reason(
                    "conflict",
                    f"{row.name} {row.version}",
                    spec,
                    f"{name} {record['version']}",
                    source=source,
                )
                for record in records
                if record["name"] == name
                and not conda_versions.matches(spec, name, record["version"], record["build"])
            ]
    return tuple(reasons)


def known_builds(records: Sequence[Record], platform: str, data: CompatibilityData) -> list[Build]:
    """Return the builds of the frameworks among conda records, with the names of frameworks."""
    rows = filter(None, map(data.conda.row, records))
    return [build_of_row(row, platform).replace(name=row.framework) for row in rows]


def installed_reasons(
    pins: Iterable[tuple[str, str]],
    records: Sequence[Record],
    host: Host,
    data: CompatibilityData,
) -> tuple[Reason, ...]:
    """Return what the rules say against installed wheels and conda packages on a host."""
    if not records:
        return evaluate.pin_reasons(pins, host, data)
    pins = list(pins)
    wheels = evaluate.packages_of_pins(pins, host.platform, data)
    reasons = lock_reasons(records, host, data, beside=wheels)
    libraries = libraries_of_records(records)
    both = (two_libraries(libraries, name, version) for name, version in pins)
    # A CUDA build may be installed on a host without a GPU, such as a login node.
    reasons = tuple(reason for reason in reasons if reason.code != "cuda-build")
    if any(record["name"] == "cuda-compat" for record in records):
        reasons = tuple(map(_bridged, reasons))
    return (*both_own(filter(None, both)), *reasons)


def _bridged(reason: Reason) -> Reason:
    """Return a reason on a host with cuda-compat, which may let an older driver run a toolkit."""
    if reason.code not in ("driver-floor", "driver-cuda"):
        return reason
    have = f"{reason.have}, and cuda-compat is to bridge that"
    return reason.replace(code="driver-floor-unknown", have=have)


def both_own(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Return a reason for each kind of thing that conda and wheels both have.

    Args:
        reasons: those against single wheels, which `have` the package of conda.
    """
    owners: dict[tuple[str, str], list[str]] = {}
    for reason in reasons:
        pair = f"{reason.have} and {reason.subject} of a wheel"
        owners.setdefault((reason.code, reason.need), []).append(pair)
    return tuple(
        Reason(
            code,
            _SUBJECTS.get(code, "frameworks"),
            need,
            first_texts(pairs),
            source=evaluate.OWNER_SOURCE,
        )
        for (code, need), pairs in owners.items()
    )


def libraries_of_records(records: Iterable[Record]) -> dict[str, str]:
    """Return {"nvidia-cudnn": the conda package with the same library}."""
    libraries: dict[str, str] = {}
    for record in records:
        for library in conda_records.libraries_of(record):
            libraries.setdefault(f"nvidia-{library}", f"{record['name']} {record['version']}")
    return libraries


def two_libraries(libraries: Mapping[str, str], name: str, version: str) -> Reason | None:
    """Return which CUDA library of conda a wheel would bring a second time; None for others.

    The order of the imports decides which one a process loads. Codes: two-cudnn, two-libraries.
    """
    stem = _CUDA_SUFFIX.sub("", name)
    if stem not in libraries:
        return None
    code, need = "two-libraries", "one owner of a CUDA library in a prefix"
    if stem == "nvidia-cudnn":
        code, need = "two-cudnn", "one cuDNN in a prefix"
    subject, have = f"{name} {version}", f"{libraries[stem]} of conda"
    return Reason(code, subject, need, have, source=evaluate.OWNER_SOURCE)


def unsaid_constraints(row: Row, host: Host, data: CompatibilityData) -> Iterator[tuple[str, str]]:
    """Yield (spec, source) of what a framework's build needs although its record does not say so.

    A wheel of the same release is compiled for the same NumPy, unless the record has a bound.
    """
    for known in data.conda.constraints:
        if known.package == row.name and conda_versions.contains(known.versions, row.version):
            yield known.spec, known.source
    ranges = dict(conda_versions.split(spec)[:2] for spec in row.depends)
    links = data.links(row.framework, row.version, host.platform)
    if row.depends and links is not None and links.numpy and "<" not in ranges.get("numpy", ""):
        yield f"numpy >={min(links.numpy)},<{max(links.numpy) + 1}", links.source


def closure_reasons(
    records: Sequence[Record],
    host: Host,
    data: CompatibilityData,
    *,
    virtual: Sequence[Virtual],
    keep: Collection[str] = (),
) -> dict[str, tuple[Reason, ...]]:
    """Return what speaks against the packages of a solver's closure, by the package to replace.

    Args:
        records: the closure.
        host: the host.
        data: the compatibility data.
        virtual: the virtual packages of the host.
        keep: packages that the user named. Where two packages do not fit each other and the first
            is one of these, the reason is put down to the second.

    Returns:
        {} if nothing speaks against the closure. Codes: those of evaluate.environment_findings but
        for these, and virtual-package (a virtual package that the host lacks). An unknown driver
        becomes a need of the lock (driver-unknown); whether a CPU build will do was decided when
        the framework's build was chosen (cpu-build, gpu-unused); reasons about the host alone
        are part of the reasons against each CUDA build.
    """
    by_package: dict[str, list[Reason]] = {}
    packages = packages_of_records(records, host.platform, data)
    for reason, names in evaluate.environment_findings(packages, host, data):
        if names and reason.code not in ("cpu-build", "gpu-unused"):
            name = next((name for name in names if name not in keep), names[0])
            by_package.setdefault(name, []).append(reason)
    for record in records:
        for reason in virtual_reasons(record, virtual):
            by_package.setdefault(record["name"], []).append(reason)
    return {name: tuple(dict.fromkeys(reasons)) for name, reasons in by_package.items()}


def virtual_reasons(record: Record, virtual: Sequence[Virtual]) -> tuple[Reason, ...]:
    """Compare the virtual packages that a record depends on and constrains with the host's.

    On a host whose driver is not known, `__cuda` is not known either: R1 becomes a need of the
    lock.

    Args:
        record: the record.
        virtual: the virtual packages of the host.
    """
    have = {name: (version, build) for name, version, build in virtual}
    specs = [*(record.get("depends") or ())]
    constrains = record.get("constrains") or ()
    specs += [spec for spec in constrains if conda_versions.name_of(spec) in have]
    reasons = []
    for spec in specs:
        name = conda_versions.name_of(spec)
        if not name.startswith("__"):
            continue
        if name in have and conda_versions.matches(spec, name, *have[name]):
            continue
        _, wanted, build = conda_versions.split(spec)
        parts = (name, *(part for part in (wanted, build) if part != "*"))
        version, *builds = have.get(name, ["not there"])
        reasons.append(
            Reason(
                "virtual-package",
                f"{record['name']} {record['version']}",
                " ".join(parts),
                version if build == "*" else " ".join((version, *builds)),
                source=RECORD_SOURCE,
            )
        )
    return tuple(reasons)
