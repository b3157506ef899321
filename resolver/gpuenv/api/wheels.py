"""Environments of wheels: the functions of `backend.Backend`.

`api.conda` uses some of them, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from ..errors import (
    HostMismatchError,
    InputError,
    NoSolutionError,
    PackageIndexError,
    Reason,
)
from ..model import (
    Check,
    EnvironmentChanges,
    Framework,
    Host,
    IndexOptions,
    Lock,
    Pin,
    Plan,
    Request,
)
from ..prefix import is_conda, prefix_of
from .backend import Installation, Verification
from .data import compatibility_data, data_version

if TYPE_CHECKING:  # the stages are imported when they are first used
    from ..compat.data import CompatibilityData
    from ..index.multi_index import MultiIndex
    from ..index.protocol import Index

# Reasons of `host_fit.fit` that can be checked without looking at the GPU and the driver.
WITHOUT_DEVICE = ("platform", "python", "glibc", "glibc-unknown")

# The fields of a record of conda that the rules read.
_RECORD_FIELDS = {"name", "version", "build", "subdir"}


# ---- solve and lock ------------------------------------------------------------------------------


def solve(
    request: Request,
    host: Host,
    options: IndexOptions,
    *,
    prefix: str | None,
    keep: bool,
    changes: bool,
) -> Plan:
    """See `environments.solve`. Environments of wheels are solved anew."""
    del keep
    plan = solve_from(request, host, options, changes=changes)
    if prefix is None:
        return plan
    return plan.replace(warnings=(*plan.warnings, *_owned_by_conda(plan, prefix)))


def check_frameworks(request: Request) -> None:
    """Check the frameworks that a request for wheels names, before the host is known.

    Raises:
        InputError: an unknown framework, an invalid text, or a framework twice.
    """
    from ..resolve.requested import frameworks_of_flags

    frameworks_of_flags(request, compatibility_data())


def solve_from(
    request: Request,
    host: Host,
    options: IndexOptions,
    *,
    changes: bool = True,
    wrap: Callable[[MultiIndex], Index] | None = None,
) -> Plan:
    """Solve a request for wheels.

    Args:
        request: the request.
        host: the host on which the wheels must run.
        options: where packages may come from.
        changes: whether to look for the smallest changes that help when there is no solution.
        wrap: makes the index that the resolver reads of the usual one; None is the usual one.
    """
    from ..index.factory import open_indexes
    from ..requirements.target import parse_requirement
    from ..resolve import solver
    from ..resolve.requested import read_request

    data = compatibility_data()
    snapshot, index = open_indexes(
        options,
        data.folder,
        _own_packages(options, data),
        live=data.user_rows.rows,
        own=_live_builds(request, host, options, data),
        python=host.python,
    )
    if wrap is None:
        target = snapshot.environment(host)
        constraints = [parse_requirement(text) for text in request.constraints]
        requirements = read_request(request, data, target)[1]
        index.start_prefetch(requirements, constraints, target, data.covers, request.may_build)

    def resolve() -> Plan:
        return solver.solve(
            request,
            host,
            data,
            index if wrap is None else wrap(index),
            snapshot.environment,
            widen=index.widen,
            changes=changes,
            data_version=data_version(snapshot.version),
        )

    try:
        try:
            plan = resolve()
        except NoSolutionError as error:
            own = _missing_builds(error, request, host, options, data)
            if not _read_own(index, own):
                raise
            plan = resolve()
    finally:
        index.stop_prefetch()
    return _with_sizes(plan, index)


def _live_builds(
    request: Request, host: Host, options: IndexOptions, data: CompatibilityData
) -> dict[str, list[str]]:
    """Return the frameworks' own indexes that --refresh reads: {package: URLs}."""
    own: dict[str, list[str]] = {}
    if not options.refresh or not _uses_own_indexes(request, options):
        return own
    for framework in data.all_frameworks():
        if framework.indexes:
            builds = data.builds(framework.distribution, host.platform)
            urls = dict.fromkeys(build.index for build in builds if build.index != "default")
            own |= {name: list(urls) for name in framework.distributions}
    return own


def _missing_builds(
    error: NoSolutionError,
    request: Request,
    host: Host,
    options: IndexOptions,
    data: CompatibilityData,
) -> dict[str, list[str]]:
    """Return the indexes of known builds whose files are not in the data: {package: URLs}."""
    own: dict[str, list[str]] = {}
    if options.offline or not _uses_own_indexes(request, options):
        return own
    for reason in error.explanation.reasons:
        if reason.code != "no-offline-file":
            continue
        name, _, version = reason.subject.partition(" ")
        build = data.build(name, version, host.platform)
        if build is not None:
            for package in _packages_with(name, data):
                own.setdefault(package, []).append(build.index)
    return own


def _packages_with(name: str, data: CompatibilityData) -> Iterator[str]:
    """Yield the distributions of the framework of a distribution."""
    for framework in data.all_frameworks():
        if name in framework.distributions:
            yield from framework.distributions


def _uses_own_indexes(request: Request, options: IndexOptions) -> bool:
    """Return whether the frameworks' own indexes may be read. --index-url replaces them."""
    is_excluded = request.default_index_only or options.no_index
    return options.index_url is None and not is_excluded


def _read_own(index: MultiIndex, own: dict[str, list[str]]) -> bool:
    """Read frameworks' own indexes. Return whether there are any and all could be read."""
    try:
        index.read_own(own)
    except PackageIndexError:
        return False
    return bool(own)


def labels_of_uv(plan: Plan, options: IndexOptions) -> tuple[str, ...]:
    """Return the variants that uv would take of the releases of a plan's variant wheels.

    Raises:
        InexpressibleError: the devices of the host have no compute capability in common.
    """
    from ..index.factory import open_indexes
    from ..lock.tool_settings import capability_of
    from ..resolve.wheel_variants import VariantChooser

    if not plan.variants:
        return ()
    capability = capability_of(plan.host, "uv")
    data = compatibility_data()
    snapshot, index = open_indexes(options, data.folder, _own_packages(options, data))
    environment = snapshot.environment(plan.host)
    chooser = VariantChooser(plan.host, data, index)
    pins = {pin.wheel.name: pin.wheel for pin in plan.pins}
    labels = []
    for variant in plan.variants:
        pin = pins[variant.name]
        files = index.wheels(variant.name, environment)
        release = [file for file in files if file.version == pin.version]
        label = variant.label
        if capability is not None:
            label = chooser.label_by_provider(release, capability)
        labels.append(label)
    return tuple(labels)


def _own_packages(options: IndexOptions, data: CompatibilityData) -> dict[str, frozenset[str]]:
    """Return the packages of the extra indexes that belong to a framework.

    PyTorch's index has old releases of numpy and others, too. It supplies its own packages only.
    """
    packages_by_index = {}
    for url in options.extra_index_urls:
        for framework in data.all_frameworks():
            if any(url.startswith(own.partition("{")[0]) for own in framework.indexes):
                packages_by_index[url] = frozenset(framework.packages)
    return packages_by_index


def _with_sizes(plan: Plan, index: MultiIndex) -> Plan:
    """Ask the index for the sizes of the files that have none yet."""
    if all(pin.wheel.size is not None for pin in plan.pins):
        return plan
    sizes = index.sizes([pin.wheel for pin in plan.pins])
    return plan.replace(pins=tuple(_with_size(pin, sizes) for pin in plan.pins))


def _with_size(pin: Pin, sizes: dict[str, int]) -> Pin:
    size = sizes.get(pin.wheel.filename, pin.wheel.size)
    return pin.replace(wheel=pin.wheel.replace(size=size))


def _owned_by_conda(plan: Plan, prefix: str) -> tuple[Reason, ...]:
    """Return what wheels would bring into a conda environment that its packages have already."""
    words = {"cuda", *(choice.framework for choice in plan.choices)}
    for pin in plan.pins:
        if pin.wheel.name.startswith("nvidia-"):
            library = pin.wheel.name.removeprefix("nvidia-")
            words.add(library.rpartition("-cu")[0] or library)
    records = os.listdir(os.path.join(prefix, "conda-meta"))
    # The conda modules are imported only if a record may be about one of the libraries.
    if not any(word in record for record in records for word in words):
        return ()
    from ..compat.conda_records import Carriers
    from ..install import conda_prefix

    data = compatibility_data()
    return conda_prefix.beside_conda(prefix, plan.pins, Carriers(data.folder), data)


def lock(plan: Plan, *, variants_json: bool = False) -> Lock:
    """See `environments.lock`."""
    from ..lock import pylock

    return pylock.lock(plan, variants_json=variants_json)


def lock_text(lock: Lock, form: str) -> str:
    """See `environments.lock_text`."""
    from ..lock import pylock

    if form == "requirements":
        return pylock.requirements_text(lock)
    return pylock.dumps(lock)


def lock_texts(lock: Lock, path: str, form: str) -> dict[str, str]:
    """See `environments.lock_texts`."""
    return {path: lock_text(lock, form)}


def read_lock(path: str) -> Lock:
    """See `environments.read_lock`."""
    from ..lock import pylock

    return pylock.read(path)


# ---- install -------------------------------------------------------------------------------------


def check_target(lock: Lock, target: str, *, python: str | None, installer: str) -> None:
    """See `environments.check_target`."""
    from ..install import wheels

    wheels.check(lock, target, installer=installer, python=python)


def sync(lock: Lock, target: str, host: Host, options: Installation) -> str:
    """See `environments.sync`. InputError for a lock of wheels beside conda packages."""
    from ..install import wheels

    _require_fit(lock, host)
    return wheels.sync(
        options.files or lock,
        target,
        record=lock_text(lock, ""),
        installer=options.installer,
        python=options.python,
        exact=options.exact,
        wait=options.wait,
        approve=options.approve,
        prove=options.prove,
        progress=options.progress,
        builds=options.builds,
    )


def changes(lock: Lock, target: str, host: Host, *, exact: bool | None) -> EnvironmentChanges:
    """See `environments.changes`."""
    from ..install import wheels

    _require_fit(lock, host)
    return wheels.changes(lock, target, exact=exact)


def _require_fit(lock: Lock, host: Host) -> None:
    """Raise HostMismatchError if a lock does not fit a host."""
    if lock.inputs:
        _require_no_conda_lock(lock)
    reasons = lock_reasons(lock, host)
    if reasons:
        message = "the lock does not fit this host; nothing was installed"
        raise HostMismatchError(message, reasons)


def lock_reasons(lock: Lock, host: Host) -> tuple[Reason, ...]:
    """Return what a lock needs of a host and does not find; () if it fits."""
    from ..lock.host_fit import fit, variant_fit

    reasons = fit(lock, host)
    if not lock.variants or any(reason.code == "no-gpu" for reason in reasons):
        return reasons
    return reasons + variant_fit(lock, host, compatibility_data())


def recorded_lock(prefix: str) -> Lock | None:
    """See `environments.recorded_lock`."""
    from ..install import build_record
    from ..lock import pylock

    build = build_record.read_build(prefix)
    if build is None or not build.lock:
        return None
    return pylock.loads(build.lock, os.path.join(prefix, build_record.FILE))


def _require_no_conda_lock(lock: Lock) -> None:
    """Raise InputError for wheels that lack what the packages of a conda lock bring."""
    from ..lock.conda_formats import conda_lock_of

    conda_lock = conda_lock_of(lock)
    if conda_lock is not None:
        raise InputError(
            f"the lock has the wheels that belong to {conda_lock}",
            hint=f"sync both: gpuenv sync {conda_lock}",
        )


# ---- verify --------------------------------------------------------------------------------------


def verify(lock: Lock, target: str, host: Host, options: Verification) -> tuple[Check, ...]:
    """See `environments.verify`."""
    checks = verify_installed(target, host, options, lock=lock)
    return (*host_checks(lock, host, device=options.device), *checks)


def verify_installed(
    target: str, host: Host, options: Verification, *, lock: Lock | None = None
) -> tuple[Check, ...]:
    """Check what is installed, and compare it with a lock if there is one."""
    from ..binaries.served import judge
    from ..verify import environment

    _require_frameworks(options.only)
    return environment.verify(
        lock,
        target,
        host,
        frameworks=[
            (framework.name, framework.import_name, framework.probe)
            for framework in _frameworks(lock, options.only)
        ],
        device=options.device,
        timeout=options.timeout,
        verbose=options.verbose,
        against=lambda pins: (*reasons_against(pins, host), *_conda_reasons(target, host)),
        judge=lambda files: judge(files, host, compatibility_data()),
        system=lambda name, version: _system_libraries(name, version, host),
        fast=options.fast,
    )


def _system_libraries(name: str, version: str, host: Host) -> Sequence[str]:
    """Return the files that an installed distribution opens and that the system must have."""
    row = compatibility_data().system_cuda(name, version, host.platform)
    files: Sequence[str] = row.get("libraries", ()) if row is not None else ()
    return files


def _conda_reasons(target: str, host: Host) -> tuple[Reason, ...]:
    """Return what speaks against the conda packages of an environment on a host."""
    prefix = prefix_of(target)
    if not is_conda(prefix):
        return ()
    from ..compat.conda_parts import lock_reasons
    from ..compat.conda_records import Carriers
    from ..install.conda_prefix import read_packages

    data = compatibility_data()
    records = [
        record for record in read_packages(prefix).values() if record.keys() >= _RECORD_FIELDS
    ]
    reasons = lock_reasons(records, host, data, Carriers(data.folder))
    # A CUDA build may be installed on a host without a GPU, such as a login node.
    return tuple(reason for reason in reasons if reason.code != "cuda-build")


def _require_frameworks(names: Sequence[str]) -> None:
    from ..resolve.requested import unknown_framework

    data = compatibility_data()
    for name in names:
        if data.framework(name) is None:
            raise unknown_framework(name, name, data)


def _frameworks(lock: Lock | None, only: Sequence[str]) -> list[Framework]:
    """Return the known frameworks, limited to those in the lock and to the names in `only`."""
    chosen = []
    for framework in known_frameworks():
        if only and framework.name not in only:
            continue
        if lock is None or _distributions(framework) & {pin.wheel.name for pin in lock.pins}:
            chosen.append(framework)
    return chosen


def known_frameworks() -> list[Framework]:
    """Return the frameworks of the compatibility data."""
    data = compatibility_data()
    frameworks = [data.framework(name) for name in data.frameworks()]
    return [framework for framework in frameworks if framework is not None]


def _distributions(framework: Framework) -> set[str]:
    """Return the distributions that have a framework: cupy-cuda12x, cupy-cuda13x, ..."""
    return {way.requires[0].partition("[")[0] for way in framework.ways}


def reasons_against(pins: Iterable[tuple[str, str]], host: Host) -> tuple[Reason, ...]:
    """Return what the compatibility rules say against pinned packages on a host. Nothing is solved.

    Args:
        pins: (name, version) pairs of wheels, whoever pinned them.
        host: the host.
    """
    from ..compat import evaluate

    return evaluate.pin_reasons(pins, host, compatibility_data())


def host_checks(
    lock: Lock, host: Host, *, device: bool, more: tuple[Reason, ...] = ()
) -> list[Check]:
    """Check that the host as it is now fulfills the needs of a lock.

    Args:
        lock: the lock.
        host: the host.
        device: False leaves out what concerns the GPU and the driver.
        more: further reasons against the lock.
    """
    reasons = list(dict.fromkeys((*lock_reasons(lock, host), *more)))
    if not device:
        reasons = [reason for reason in reasons if reason.code in WITHOUT_DEVICE]
    if reasons:
        return [_host_check(reason) for reason in reasons]
    evidence = "this host fulfils what the lock needs"
    if not device:
        evidence += ", its GPU and driver not asked"
    return [Check(name="host", subject="", status="pass", evidence=evidence)]


def _host_check(reason: Reason) -> Check:
    unknown = reason.code.endswith("-unknown")
    return Check(
        name="host",
        subject=reason.code,
        status="unknown" if unknown else "fail",
        evidence=f"needs {reason.need}; have {reason.have}",
    )
