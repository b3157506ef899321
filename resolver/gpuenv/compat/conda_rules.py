"""The rules over conda records: what speaks against a build, a library or a whole closure on a host.

No answer of a solver is trusted to have looked: libmamba and classic pass over `constrains: __cuda` where nothing
depends on __cuda, so the driver is asked of every record whose version is a CUDA version (R1).
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence

from ..errors import Reason
from ..model import CudaVersion, Host, Library, show_pair
from ..protocols import Matrix
from ..requirements import conda_versions
from ..resolve.conda.virtual_packages import Virtual
from . import conda_records, evaluate, rules
from .conda_records import Record, Row

META = "the package's own record in its channel"


def row_reasons(row: Row, host: Host, matrix: Matrix) -> tuple[Reason, ...]:
    """R1 and R2 for one build of a framework's carrier. Codes: those of the rules, cpu-build, driver-cuda."""
    subject = f"{row.name} {row.version} ({variant(row)})"
    if not host.gpus:
        if row.cuda is None:
            return ()
        have = "a host without a GPU"
        return (Reason(code="cuda-build", subject=subject, need="an NVIDIA GPU", have=have, source=META),)
    if row.cuda is None:
        return (Reason(code="cpu-build", subject=subject, need="a CUDA build", have="a CPU build", source=META),)
    found = driver_reasons(subject, row.cuda, host, matrix)
    return (*found, *rules.device_reasons(subject, row.code, host.gpus, host.driver_cuda))


def variant(row: Row) -> str:
    """cuda129, cpu: a build as conda-forge names it."""
    return "cpu" if row.cuda is None else f"cuda{row.cuda[0]}{row.cuda[1]}"


def driver_reasons(subject: str, cuda: CudaVersion, host: Host, matrix: Matrix) -> tuple[Reason, ...]:
    """R1; where the driver's release is not known but its CUDA is (CONDA_OVERRIDE_CUDA), by the major of that.

    Codes: driver-floor, driver-floor-unknown, driver-cuda.
    """
    floor = matrix.driver_floor(cuda, host.os)
    if host.driver is None and host.driver_cuda is not None and host.driver_cuda[0] < cuda[0]:
        need, have = f"a driver for CUDA {cuda[0]}", f"a driver for CUDA {show_pair(host.driver_cuda)}"
        source = "" if floor is None else floor[1]
        return (Reason(code="driver-cuda", subject=subject, need=need, have=have, source=source),)
    return rules.driver_reasons(subject, cuda, host.driver, floor)


def toolkit_reasons(record: Record, host: Host, matrix: Matrix) -> tuple[Reason, ...]:
    """R1 for a record whose version is the CUDA of an environment; () for others and on a host without a GPU."""
    cuda = conda_records.toolkit_of(record)
    if cuda is None or not host.gpus:
        return ()
    return driver_reasons(f"{record['name']} {record['version']}", cuda, host, matrix)


def wheel_of(name: str, cuda: CudaVersion | None, matrix: Matrix) -> str | None:
    """The distribution with the same library: libcublas for CUDA 12 -> nvidia-cublas-cu12; None without one.

    NVIDIA makes both from one build: conda-forge repackages the redistributable archives that the wheels are made of.
    """
    if cuda is None or not (name.startswith("lib") or name == "cudnn"):
        return None
    stem = "nvidia-" + name.removeprefix("lib")
    return next((one for one in (f"{stem}-cu{cuda[0]}", stem) if matrix.is_library(one)), None)


def library(name: str, version: str, cuda: CudaVersion | None, host: Host, matrix: Matrix) -> Library | None:
    """What is known of a library's release by the wheel of the same release."""
    distribution = wheel_of(name, cuda, matrix)
    return None if distribution is None else matrix.library(distribution, version, host.platform)


def library_reasons(
    record: Record, cuda: CudaVersion | None, host: Host, matrix: Matrix
) -> tuple[Reason, ...]:
    """R2, R3 and known bad releases for a CUDA library; () for what no rule is about."""
    distribution = wheel_of(record["name"], cuda, matrix)
    if distribution is None:
        return ()
    subject = f"{record['name']} {record['version']}"
    known = matrix.library(distribution, record["version"], host.platform)
    by_fact = evaluate.of_library(subject, known, host, matrix) if host.gpus else {}
    found = [reason for reasons in by_fact.values() for reason in reasons]
    found += evaluate.known_bad(distribution, record["version"], host, matrix)
    return tuple(reason.replace(subject=subject) for reason in found)


def cuda_of(records: Iterable[Record]) -> CudaVersion | None:
    """The CUDA of a closure, by the first of its toolkit packages."""
    found = {record["name"]: conda_records.toolkit_of(record) for record in records if record["name"] in conda_records.TOOLKITS}
    return next((found[name] for name in conda_records.TOOLKITS if found.get(name)), None)


def closure_reasons(
    records: Sequence[Record], host: Host, matrix: Matrix, virtual: Sequence[Virtual]
) -> dict[str, tuple[Reason, ...]]:
    """What speaks against the packages of a closure, by the name of the package; {} if nothing does.

    Codes beside those of the rules: virtual-package (a virtual package that the host does not have).
    """
    cuda = cuda_of(records)
    known = {name: (version, build) for name, version, build in virtual}
    found: dict[str, tuple[Reason, ...]] = {}
    for record in records:
        against = (
            *toolkit_reasons(record, host, matrix),
            *library_reasons(record, cuda, host, matrix),
            *virtual_reasons(record, known),
        )
        if against:
            found[record["name"]] = tuple(dict.fromkeys(against))
    return found


def virtual_reasons(record: Record, known: Mapping[str, tuple[str, str]]) -> tuple[Reason, ...]:
    """The virtual packages that a record depends on, and those that it constrains, against the host's.

    On a host whose driver is not known `__cuda` is not known either: R1 becomes a need of the lock.
    """
    subject, found = f"{record['name']} {record['version']}", []
    for dependency in record.get("depends") or ():
        name, spec, _ = conda_versions.split(dependency)
        if name.startswith("__") and not _fits(dependency, known, missing=False):
            have = " ".join(known[name]) if name in known else "not there"
            need = f"{name} {spec}".removesuffix(" *")
            found.append(Reason(code="virtual-package", subject=subject, need=need, have=have, source=META))
    for dependency in record.get("constrains") or ():
        name, spec, _ = conda_versions.split(dependency)
        if name.startswith("__") and not _fits(dependency, known, missing=True):
            have = known[name][0]
            found.append(
                Reason(code="virtual-package", subject=subject, need=f"{name} {spec}", have=have, source=META)
            )
    return tuple(found)


def _fits(dependency: str, known: Mapping[str, tuple[str, str]], *, missing: bool) -> bool:
    name, spec, glob = conda_versions.split(dependency)
    if name not in known:
        return missing
    version, build = known[name]
    return conda_versions.contains(spec, version) and fnmatch.fnmatchcase(build, glob)
