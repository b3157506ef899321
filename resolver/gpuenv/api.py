"""The composition of the stages. Its callers are the command line, the conda plugin and libraries.

The stages are imported when they are first used.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from .errors import (
    HostMismatchError,
    InputError,
    Reason,
)
from .model import (
    Check,
    Framework,
    Host,
    IndexOptions,
    Lock,
    Plan,
    Request,
)

if TYPE_CHECKING:
    from .compat.audit import Audit
    from .compat.catalog import Catalog
    from .compat.data import CompatibilityData
    from .doctor.diagnosis import Examination
    from .index.multi_index import CombinedIndex
    from .index.snapshot import Snapshot
    from .project.profiles import Profile, Project


def detect(*, root: str = "/", env: Mapping[str, str] | None = None, python: str | None = None) -> Host:
    """The host that this process runs on, as far as it can be known; `Host.problems` says what could not be."""
    from .detect import host as detection

    host = detection.detect(root=root, env=env, python=python)
    # What the driver was not there to say, the tables know by the driver's release and the GPU's name.
    if host.driver is not None and host.driver_cuda is None:
        host = host.replace(driver_cuda=_matrix().driver_cuda(host.driver))
    if any(gpu.compute_capability is None for gpu in host.gpus):
        known = [gpu.compute_capability or _matrix().compute_capability(gpu.name) for gpu in host.gpus]
        gpus = [gpu.replace(compute_capability=one) for gpu, one in zip(host.gpus, known, strict=True)]
        sources = (*host.sources, ("compute_capability", "the GPU's name"))
        host = host.replace(gpus=tuple(gpus), sources=sources)
    return host


def read_host(path: str) -> Host:
    """The host in a file that `gpuenv detect -o` wrote."""
    from .detect import host as detection

    return detection.read_host(path)


def describe(
    base: Host | None = None,
    *,
    gpus: Sequence[str] = (),
    driver: str | None = None,
    python: str | None = None,
    platform: str | None = None,
    glibc: str | None = None,
) -> Host:
    """A host described by the texts of the host flags, on top of `base` or of this machine without its GPU."""
    from .detect import host as detection

    matrix = _matrix()
    return detection.describe(
        base,
        gpus=gpus,
        driver=driver,
        python=python,
        platform=platform,
        glibc=glibc,
        capability=matrix.compute_capability,
        driver_cuda=matrix.driver_cuda,
        suggest=matrix.close_names,
    )


def solve(
    request: Request,
    host: Host,
    options: IndexOptions | None = None,
    *,
    changes: bool = True,
    beside: Callable[[CombinedIndex], Any] | None = None,
) -> Plan:
    """One consistent environment for the request on the host. `beside` makes the index that is asked of the usual one.

    NoSolutionError explains why there is none; with `changes` it also carries the smallest changes that help.
    """
    from .index.factory import open_indexes
    from .requirements.target import TargetEnvironment, parse_requirement
    from .resolve import solver

    matrix = _matrix()
    snapshot, index = open_indexes(options or IndexOptions(), matrix.folder)
    target = TargetEnvironment(host, snapshot.answers)
    limits = [parse_requirement(text) for text in request.constraints]
    asked = index if beside is None else beside(index)
    if beside is None:
        index.look_ahead(solver.read_request(request, matrix)[1], limits, target)
    try:
        plan = solver.solve(
            request,
            host,
            matrix,
            asked,
            lambda one: target if one is host else TargetEnvironment(one, snapshot.answers),
            widen=asked.widen,
            changes=changes,
            data_version=f"matrix {matrix.version}, index snapshot {snapshot.version}",
        )
    finally:
        index.look_no_more()
    if all(pin.wheel.size is not None for pin in plan.pins):
        return plan
    sizes = index.sizes([pin.wheel for pin in plan.pins])
    pins = [(pin, sizes.get(pin.wheel.filename, pin.wheel.size)) for pin in plan.pins]
    return plan.replace(pins=tuple(pin.replace(wheel=pin.wheel.replace(size=size)) for pin, size in pins))


def lock(plan: Plan) -> Lock:
    """What is kept of a plan. `lockfile.dumps` is its text."""
    from .lock import pylock

    return pylock.lock(plan)


def read_lock(path: str) -> Lock:
    """The lock in a pylock.toml that gpuenv wrote; InputError says what is wrong with the file, and where."""
    from .lock import pylock

    return pylock.read(path)


def read_project(folder: str = "") -> Project:
    """The profiles in [tool.gpuenv] of a folder's pyproject.toml; InputError says what is wrong with it, and where."""
    from .project import read

    def dependencies(path: str, extras: Sequence[str], groups: Sequence[str]) -> Sequence[str]:
        from .requirements.pyproject import read_project as read_requirements

        return read_requirements(path, extras, groups).requirements

    return read.read_project(folder, _matrix(), profile_host, dependencies)


def profile_host(profile: Profile) -> Host:
    """The host that a profile describes. No fact of this machine is in it."""
    from .project.profiles import base_host

    return describe(
        base_host(profile),
        gpus=profile.gpus or ("none",),
        driver=profile.driver,
        platform=profile.platform,
        glibc=profile.glibc,
    )


def lock_profile(
    profile: Profile,
    folder: str = "",
    *,
    preferences: Sequence[tuple[str, str]] = (),
    offline: bool = False,
    refresh: bool = False,
) -> tuple[Lock, Plan]:
    """A new lock for a profile of the project in `folder`, and its plan. `preferences` are pins to keep where they fit.

    NoSolutionError as `solve`; nothing is written.
    """
    from .project import profiles

    options = profiles.index_options(profile, folder, offline=offline, refresh=refresh)
    plan = solve(profiles.request(profile, preferences), profile_host(profile), options)
    return lock(plan).replace(inputs=profiles.inputs(profile)), plan


def data_version() -> str:
    """The version of all data that a solve would use now, as locks keep it."""
    return f"matrix {_matrix().version}, index snapshot {_snapshot().version}"


def reasons_against(pins: Iterable[tuple[str, str]], host: Host) -> tuple[Reason, ...]:
    """What speaks against pinned (name, version) pairs on a host, whoever pinned them: no index and no solve."""
    from .compat import evaluate

    return evaluate.pin_reasons(pins, host, _matrix())


def sync(
    lock: Lock,
    target: str,
    *,
    host: Host,
    python: str | None = None,
    installer: str = "auto",
    progress: Callable[[str], None] | None = None,
) -> str:
    """Installs a lock into a new or existing environment and returns its interpreter.

    HostMismatchError, before anything is written, if `host` does not fulfil what the lock needs. InputError for the
    lock of wheels that belong to a conda lock: alone they lack what conda brings.
    """
    from .install import wheels
    from .lock import pylock

    if lock.inputs:
        from .resolve.conda.wheels_beside import conda_lock_of

        conda = conda_lock_of(lock)
        if conda is not None:
            raise InputError(f"the lock has the wheels that belong to {conda}", hint=f"sync both: gpuenv sync {conda}")
    reasons = pylock.fit(lock, host)
    if reasons:
        raise HostMismatchError("the lock does not fit this host; nothing was installed", reasons)
    return wheels.sync(lock, target, installer=installer, python=python, progress=progress)


def verify(
    lock: Lock | None,
    target: str,
    host: Host,
    *,
    device: bool = True,
    timeout: float = 300.0,
    only: Sequence[str] = (),
    verbose: bool = False,
) -> tuple[Check, ...]:
    """Proof that the environment at `target` (its folder or its interpreter) works on the host. Changes no file.

    `only` names the frameworks to check; () checks all that the lock has, or all that are installed. `verbose` lets
    cuDNN's log of what failed hold every call.
    """
    from .verify import environment

    matrix = _matrix()
    for name in only:
        if matrix.framework(name) is None:
            raise InputError(f"--framework {name}: no framework of that name; known: {', '.join(matrix.frameworks())}")
    names = [matrix.framework(name) for name in matrix.frameworks()]
    pinned = None if lock is None else {pin.wheel.name for pin in lock.pins}
    frameworks = [
        (one.name, one.import_name, one.probe)
        for one in names
        if one is not None and (pinned is None or _distributions(one) & pinned) and (not only or one.name in only)
    ]
    checks = environment.verify(
        lock,
        target,
        host,
        frameworks=frameworks,
        device=device,
        timeout=timeout,
        verbose=verbose,
        against=lambda pins: reasons_against(pins, host),
    )
    return (*host_checks(lock, host, device), *checks) if lock is not None else checks


def _distributions(framework: Framework) -> set[str]:
    """The distributions that have a framework: cupy-cuda12x, cupy-cuda13x, ..."""
    return {way.requires[0].partition("[")[0] for way in framework.ways}


def host_checks(lock: Lock, host: Host, device: bool, more: tuple[Reason, ...] = ()) -> list[Check]:
    """The drift between what the lock needs and the host as it is now; without `device` only what needs no GPU.

    `more` speaks against the lock beside its needs.
    """
    from .lock import pylock

    found = tuple(dict.fromkeys((*pylock.fit(lock, host), *more)))
    if not device:
        found = tuple(reason for reason in found if reason.code in ("platform", "python", "glibc", "glibc-unknown"))
    if not found:
        what = "this host fulfils what the lock needs" + ("" if device else ", its GPU and driver not asked")
        return [Check(name="host", subject="", status="pass", evidence=what)]
    return [
        Check(
            name="host",
            subject=reason.code,
            status="unknown" if reason.code.endswith("-unknown") else "fail",
            evidence=f"needs {reason.need}; have {reason.have}",
        )
        for reason in found
    ]


def examine(
    log: BinaryIO | None, host: Host, *, target: str | None = None, probe: bool = False, timeout: float = 300.0
) -> Examination:
    """What is wrong, by a log of bytes and by what is seen on this host and in the environment at `target`.

    None leaves either out; without a log the devices are used, too. `probe` makes the tests
    that tell causes apart. `Examination.diagnosis` has the verdicts, the best first. Changes no file.
    """
    from .doctor import diagnosis

    return diagnosis.examine(log, host, target=target, probe=probe, timeout=timeout)


def matrix_catalog() -> Catalog:
    """What the data knows, by name: releases of frameworks and libraries and the device code of their variants."""
    from .compat.catalog import Catalog

    return Catalog(_matrix(), _snapshot().wheels)


def matrix_check() -> Audit:
    """Whether the data agrees with itself, in a checkout with the scans too, and how much of it is known."""
    from .compat.audit import check

    return check(_matrix(), _snapshot().wheels)


def compatibility_data() -> CompatibilityData:
    """The compatibility data itself: drivers, GPUs, frameworks and the code of their builds."""
    return _matrix()


def _snapshot() -> Snapshot:
    """The snapshot for its facts alone: where the default index keeps its files is not asked."""
    from .index.snapshot import Snapshot

    return Snapshot(os.path.join(_matrix().folder, "snapshot"), "")


def _matrix() -> CompatibilityData:
    from .compat import data as matrix

    global _loaded  # noqa: PLW0603  the data does not change while a process runs
    if _loaded is None:
        _loaded = matrix.load()
    return _loaded


_loaded: CompatibilityData | None = None
