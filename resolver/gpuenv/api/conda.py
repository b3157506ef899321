"""Conda environments with wheels beside the packages: the functions of `backend.Backend`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..compat.conda_records import Carriers
from ..digest import text_digest
from ..errors import (
    Explanation,
    HostMismatchError,
    InputError,
    NoSolutionError,
    NotVerifiedError,
    Reason,
    TamperedError,
)
from ..index.multi_index import MultiIndex
from ..model import (
    Check,
    EnvironmentChanges,
    Host,
    IndexOptions,
    Lock,
    PackageChange,
    Pin,
    Plan,
    Request,
    Wheel,
)
from ..prefix import find_interpreter, interpreter_of, is_conda, prefix_of
from ..requirements import conda_versions
from ..requirements.conda_projects import PIXI_TOML, CondaProject, read_project_file
from ..requirements.target import parse_requirement
from ..requirements.versions import normalize_name
from ..resolve.conda import solvers, virtual_packages, wheels_beside
from . import wheels
from .backend import Installation, Progress, Verification
from .data import compatibility_data
from .hosts import with_python_of

if TYPE_CHECKING:  # the stages are imported when they are first used
    from ..install.conda_history import State

DEFAULT_CHANNELS = ("https://conda.anaconda.org/conda-forge",)


# ---- solve ---------------------------------------------------------------------------------------


def solve(
    request: Request,
    host: Host,
    options: IndexOptions,
    *,
    prefix: str | None,
    keep: bool,
    changes: bool,
) -> Plan:
    """See `environments.solve`."""
    into = None
    if keep and prefix is not None and is_conda(prefix):
        into = _existing_prefix(prefix, request)
    with _open_solver(request, host, options) as solver:
        solver.into = into
        python = _requested_python(request, host)
        try:
            plan = solve_with(solver, request, host, python=python, changes=changes)
        except NoSolutionError as error:
            if into is not None:
                error.hint = f"it must fit the packages in {into.path}; a new --target has none"
            raise
        solver.leave()
    if prefix is not None:
        owned = _owned_by_wheels(plan, prefix, exact=not keep)
        plan = plan.replace(warnings=(*plan.warnings, *owned))
    if request.conda is not None and request.conda.wheels:
        wheels_plan = _solve_wheels(request, request.conda.wheels, plan, options)
        plan = plan.replace(wheels=wheels_plan)
    return plan


def _open_solver(request: Request, host: Host, options: IndexOptions) -> solvers.Solver:
    """Start a solver, whose process loads its library while this process loads the rest."""
    subdir = virtual_packages.SUBDIRS.get(host.platform)
    if subdir is None:
        raise InputError(f"--platform {host.platform}: no conda subdirectory is known for it")
    return solvers.open_solver(_channels(request), (subdir, "noarch"), cache=_cache_mode(options))


def _requested_python(request: Request, host: Host) -> tuple[int, int] | None:
    keep_python = request.conda is not None and request.conda.keep_python
    return host.python.version if keep_python else None


def repair(request: Request, host: Host, options: IndexOptions, *, prefix: str) -> Plan:
    """See `environments.repair`."""
    from ..install import conda_prefix
    from ..resolve.conda import planning

    installed = conda_prefix.read_packages(prefix, strict=True)
    carriers = Carriers(compatibility_data().folder)
    nothing = request.replace(frameworks=(), requirements=())
    into = _existing_prefix(prefix, nothing)
    refusal: NoSolutionError | None = None
    with _open_solver(request, host, options) as solver:
        for attempt in planning.repairs(installed, carriers):
            wanted = request.replace(
                frameworks=attempt.frameworks, requirements=attempt.requirements
            )
            solver.into = into.replace(fixed=attempt.fixed)
            try:
                python = _requested_python(request, host)
                plan = solve_with(solver, wanted, host, python=python, changes=False)
            except NoSolutionError as error:
                error.hint = f"it must fit the packages in {prefix}; a new --target has none"
                refusal = error
                continue
            # The user asked for nothing new: the history of the environment stays.
            return plan.replace(request=nothing)
    if refusal is None:
        raise InputError(f"{prefix}: has no framework and no CUDA package to solve for")
    raise refusal


def _existing_prefix(prefix: str, request: Request) -> solvers.ExistingPrefix:
    """Return what a closure must leave in an environment.

    What the request names replaces what was asked for before.
    """
    from ..install import conda_history, conda_pins, conda_prefix
    from ..resolve.conda import planning

    installed = conda_prefix.read_packages(prefix, strict=True)
    carriers = Carriers(compatibility_data().folder)
    new = planning.requested_specs(request.frameworks, request.requirements, carriers)
    replaced = {conda_versions.name_of(spec) for spec in new}
    earlier = conda_history.requested_specs(prefix, installed)
    packages, specs = [], []
    for name, record in installed.items():
        packages.append((name, str(record.get("version")), str(record.get("build"))))
        specs.append(name if name in replaced else earlier.get(name, name))
    pins = [pin for _, pin in conda_pins.read_pins(prefix, os.environ)]

    def portable(texts: Sequence[str]) -> tuple[str, ...]:
        return tuple(planning.portable_spec(*conda_versions.split(text)) for text in texts)

    return solvers.ExistingPrefix(
        path=prefix, packages=frozenset(packages), specs=portable(specs), pins=portable(pins)
    )


def _channels(request: Request) -> tuple[str, ...]:
    channels = request.conda.channels if request.conda is not None else ()
    return channels or DEFAULT_CHANNELS


def _cache_mode(options: IndexOptions) -> str:
    if options.offline:
        return "offline"
    return "refresh" if options.refresh else "fetch"


def solve_with(
    solver: solvers.Solver,
    request: Request,
    host: Host,
    *,
    python: tuple[int, int] | None = None,
    changes: bool = True,
) -> Plan:
    """Solve a request for conda packages with a solver that is open.

    NoSolutionError if there is no solution.
    """
    from ..resolve.conda import planning

    data = compatibility_data()
    return planning.plan(
        request,
        host,
        data,
        Carriers(data.folder),
        solver,
        admits=lambda specifier, version: _contains(specifier, version, request.pre),
        python=python,
        data=f"matrix {data.version}",
        changes=changes,
    )


def _contains(specifier: str, version: str, pre: bool) -> bool:
    from ..requirements.versions import contains

    try:
        return contains(specifier, version, pre)
    except InputError:
        # A version that is not of PEP 440 is in no range of PEP 440.
        return not specifier


def _owned_by_wheels(plan: Plan, prefix: str, *, exact: bool) -> tuple[Reason, ...]:
    """Return what the conda packages would bring into a prefix that wheels have there already."""
    from ..install import conda_changes, conda_prefix

    data = compatibility_data()
    carriers = Carriers(data.folder)
    provided = conda_changes.distributions_of(plan.pins, carriers)
    leaving = conda_prefix.left_over(prefix, None, provided, exact=exact)
    return conda_prefix.beside_wheels(prefix, plan.pins, carriers, data, leaving)


def _solve_wheels(
    request: Request, texts: Sequence[str], conda: Plan, options: IndexOptions
) -> Plan:
    """Solve for the wheels that stand beside the packages of a conda plan."""
    if conda.needs.python is None:
        message = f"--pip {texts[0]}: there is no Python in the environment"
        raise InputError(message, hint="ask for python too")
    data = compatibility_data()
    supply = wheels_beside.supply(conda.pins, Carriers(data.folder), data)
    own = request.replace(
        frameworks=(),
        requirements=tuple(texts),
        constraints=(),
        hashes=(),
        require_hashes=False,
        preferences=(),
        conda=None,
    )
    renamed = own.replace(requirements=tuple(map(supply.renamed, own.requirements)))
    _check_versions_of_conda(own, supply)
    indexes: list[wheels_beside.Beside] = []

    def beside_conda(index: MultiIndex) -> wheels_beside.Beside:
        wrapped = wheels_beside.Beside(index, supply)
        wrapped.want_extras(renamed.requirements)
        indexes.append(wrapped)
        return wrapped

    try:
        plan = wheels.solve_from(renamed, conda.host, options, wrap=beside_conda)
    except NoSolutionError as error:
        raise _with_refused(error, indexes[0]) from None
    return wheels_beside.without_held(plan, own)


def _check_versions_of_conda(request: Request, supply: wheels_beside.Supply) -> None:
    """Raise NoSolutionError if the user requires another version of what conda brings."""
    reasons = wheels_beside.unmet(
        request.requirements,
        supply,
        lambda specifier, version: _contains(specifier, version, pre=True),
    )
    if reasons:
        subject = ", ".join(request.requirements)
        raise NoSolutionError(Explanation(subject=subject, reasons=reasons))


def _with_refused(error: NoSolutionError, index: wheels_beside.Beside) -> NoSolutionError:
    """Put what refused the newest releases first: the last conflict is about the oldest ones."""
    explanation = error.explanation
    named = {reason.subject.partition(" ")[0] for reason in explanation.reasons}
    refused = tuple(reason for name, reason in index.refused.items() if name not in named)
    return NoSolutionError(explanation.replace(reasons=refused + explanation.reasons))


# ---- lock ----------------------------------------------------------------------------------------


def lock(plan: Plan, *, variants_json: bool = False) -> Lock:
    """See `environments.lock`."""
    from ..lock import conda_formats

    if variants_json:
        message = "variants_json: only the locks of wheels have this table"
        raise InputError(message, hint="leave it out for conda packages")
    own = conda_formats.lock(plan, _channels(plan.request))
    beside = None if plan.wheels is None else wheels.lock(plan.wheels)
    return own.replace(conda=True, wheels=beside)


def lock_text(lock: Lock, form: str) -> str:
    """See `environments.lock_text`."""
    from ..lock import conda_formats

    return conda_formats.dumps(lock, form or "conda-explicit")


def lock_texts(lock: Lock, path: str, form: str) -> dict[str, str]:
    """See `environments.lock_texts`.

    The lock of the wheels names the file of the conda lock. The conda lock names the file and the
    sha256 of the lock of the wheels.
    """
    from ..lock import conda_formats

    if lock.wheels is None:
        return {path: lock_text(lock, form)}
    file = conda_formats.wheel_lock_name(path)
    path_beside = os.path.join(os.path.dirname(path), file)
    beside = lock.wheels.replace(inputs=((conda_formats.CONDA_LOCK, os.path.basename(path)),))
    text_beside = wheels.lock_text(beside, "pylock")
    digest = text_digest(text_beside)
    lock = lock.replace(inputs=(*lock.inputs, ("pip", (file, digest))))
    return {path: lock_text(lock, form), path_beside: text_beside}


def read_lock(path: str) -> Lock:
    """See `environments.read_lock`.

    The lock of the wheels beside the conda packages is read, too.
    """
    from ..lock import conda_formats

    if os.path.basename(path) == PIXI_TOML:
        return _lock_of_workspace(path)
    own = conda_formats.read(path)
    path_beside = conda_formats.wheel_lock_path(path, own)
    if path_beside is None:
        return own.replace(conda=True)
    return own.replace(conda=True, wheels=wheels.read_lock(path_beside))


def _lock_of_workspace(path: str) -> Lock:
    """Return the pixi.lock beside a pixi.toml. InputError if it is not of this pixi.toml."""
    from ..lock import conda_formats

    lock = conda_formats.read(os.path.join(os.path.dirname(path), "pixi.lock"))
    subdirs = {pin.wheel.metadata["subdir"] for pin in lock.pins}
    platforms = [name for name, subdir in virtual_packages.SUBDIRS.items() if subdir in subdirs]
    project = read_project_file(path, "".join(platforms))
    missing = _unmet(project, lock)
    if missing:
        message = f"{path}: the pixi.lock beside it is stale: it has no {', '.join(missing)}"
        raise InputError(message, hint="run pixi lock")
    return lock.replace(conda=True)


def _unmet(project: CondaProject, lock: Lock) -> list[str]:
    """Return what a project file asks for and a lock does not have."""
    versions = {normalize_name(pin.wheel.name): pin.wheel.version for pin in lock.pins}
    if lock.wheels is not None:
        versions |= {pin.wheel.name: pin.wheel.version for pin in lock.wheels.pins}

    def is_locked(spec: str) -> bool:
        return any(
            conda_versions.matches(
                spec, pin.wheel.name, pin.wheel.version, pin.wheel.metadata["build"]
            )
            for pin in lock.pins
        )

    unmet = [spec for spec in project.specs if not is_locked(spec)]
    for text in project.wheels:
        requirement = parse_requirement(text)
        version = versions.get(requirement.name)
        if version is None or not _contains(requirement.specifier, version, pre=True):
            unmet.append(text)
    return unmet


def _with_hashes(lock: Lock) -> Lock:
    """Return a lock with the sha256 of files of which it has the md5 only, from their channels.

    Raises:
        InputError: The channel does not list such a file, or gives no sha256.
        TamperedError: The channel has another md5.
    """
    missing = [pin.wheel for pin in lock.pins if pin.wheel.sha256 is None]
    if not missing:
        return lock
    channels = sorted({wheel.index for wheel in missing})
    subdirs = sorted({"noarch", *(str(wheel.metadata["subdir"]) for wheel in missing)})
    with solvers.open_solver(channels, subdirs) as solver:
        names = sorted({wheel.name for wheel in missing})
        records = {record["url"]: record for record in solver.records(names)}
    pins = []
    for pin in lock.pins:
        wheel = pin.wheel
        if wheel.sha256 is None:
            wheel = wheel.replace(sha256=_channel_hash(wheel, records.get(wheel.url) or {}))
        pins.append(pin.replace(wheel=wheel))
    return lock.replace(pins=tuple(pins))


def _channel_hash(wheel: Wheel, record: Mapping[str, object]) -> str:
    digest, locked = record.get("sha256"), wheel.metadata["md5"]
    if digest is None:
        message = f"{wheel.filename}: the channel gives no sha256 of it"
        raise InputError(message, hint="write the list with conda list --explicit --sha256")
    if record.get("md5") not in (None, locked):
        have = record["md5"]
        raise TamperedError(f"{wheel.filename}: md5 {locked} in the lock, {have} in the channel")
    return str(digest)


# ---- install -------------------------------------------------------------------------------------


def check_target(lock: Lock, target: str, *, python: str | None, installer: str) -> None:
    """See `environments.check_target`. The Python of a conda environment is in its lock."""
    del python
    from ..install import conda, wheels

    conda.check(target)
    if lock.wheels is not None:
        wheels.check_installer(installer)


def sync(lock: Lock, target: str, host: Host, options: Installation) -> str:
    """See `environments.sync`. The rules of compatibility are checked for the locks of any tool.

    A conda environment is changed in place: it is verified after the change. `options.python` and
    `options.wait` have no effect.
    """
    from ..install import conda, conda_history, conda_prefix
    from ..install import wheels as wheel_installer

    lock = _with_hashes(lock)
    beside = (options.files or lock).wheels
    _require_fit(lock, host)
    leaving = _leaving_wheels(lock, target, exact=options.exact)
    if beside is not None or leaving:
        wheel_installer.check_installer(options.installer)
    new = conda.check(target)
    before = None if new else conda_history.read_state(target)
    requested = _requested_specs(lock)
    planned = None
    if not new:
        planned = _plan_changes(lock, target, exact=options.exact)
        if options.approve is not None:
            options.approve(planned)
    if leaving:
        # Remove the wheels first: the new conda packages may have the same names.
        nothing = lock.replace(pins=())
        old_python = interpreter_of(target)
        wheel_installer.add(
            nothing,
            old_python,
            remove=leaving,
            installer=options.installer,
            progress=options.progress,
        )
    prefix_python = conda.sync(
        lock, target, planned, requested=requested, progress=options.progress
    )
    try:
        conda_history.record(target, requested)
        if beside is not None:
            wheel_installer.add(
                beside, prefix_python, installer=options.installer, progress=options.progress
            )
        conda_prefix.remember(target, beside, leaving)
        if beside is not None or leaving:
            conda_history.forget_state(target)  # the old wheels are not kept
        elif before is not None:
            conda_history.remember_state(target, before)
        conda_history.record_lock(target, lock_texts(lock, conda_history.LOCK, ""))
    except BaseException:
        if new:
            import shutil

            shutil.rmtree(target, ignore_errors=True)
        raise
    if options.prove is not None and not options.prove(prefix_python or target):
        raise NotVerifiedError(f"{target} was changed, and was not verified")
    return prefix_python


def rollback(target: str, *, progress: Progress | None = None) -> None:
    """See `environments.rollback`. Only packages that the last sync changed are changed back."""
    from ..install import conda, conda_history

    conda.check(target)
    now = conda_history.read_state(target)
    previous = conda_history.previous_state(target)
    pins = [_pin_again(record) for record in _changed_records(previous, now)]
    removed = sorted(now.records.keys() - previous.records.keys())
    if progress is not None:
        progress(f"installing {len(pins)} conda packages again, removing {len(removed)}")
    requested = tuple(previous.specs.values())
    withdrawn = sorted(now.specs.keys() - previous.specs.keys())
    conda.install(pins, target, removed, requested, withdrawn)
    conda_history.record(target, requested, withdrawn)
    conda_history.remember_state(target, now)
    conda_history.record_lock(target, previous.lock)


def _changed_records(previous: State, now: State) -> Iterator[Mapping[str, Any]]:
    """Yield the records of the previous packages that are not installed now."""
    for name, record in previous.records.items():
        installed = now.records.get(name, {})
        if any(record.get(key) != installed.get(key) for key in ("version", "build", "sha256")):
            yield record


def _pin_again(record: Mapping[str, Any]) -> Pin:
    """Return the pin that installs the package of a record again."""
    from ..resolve.conda import planning

    if not record.get("url") or not record.get("sha256"):
        message = f"{record['name']} cannot be installed again: its URL or sha256 is unknown"
        raise InputError(message, hint="install an earlier lock: gpuenv sync LOCK")
    return planning.pin_of(record)


def changes(lock: Lock, target: str, host: Host, *, exact: bool | None) -> EnvironmentChanges:
    """See `environments.changes`."""
    from ..install import conda

    lock = _with_hashes(lock)
    _require_fit(lock, host)
    if not conda.check(target):
        return _plan_changes(lock, target, exact=exact)
    added = (PackageChange(name=pin.wheel.name, after=pin.wheel.version) for pin in lock.pins)
    return EnvironmentChanges(target=target, add=tuple(added))


def _plan_changes(lock: Lock, target: str, *, exact: bool | None) -> EnvironmentChanges:
    from ..install import conda_changes

    return conda_changes.plan_changes(
        lock,
        target,
        exact=bool(exact),
        requested=_requested_specs(lock),
        carriers=Carriers(compatibility_data().folder),
        leaving=_leaving_wheels(lock, target, exact=exact),
    )


def _leaving_wheels(lock: Lock, target: str, *, exact: bool | None) -> tuple[str, ...]:
    """Return the names of an earlier lock's wheels that a sync removes from a prefix."""
    from ..install import conda_changes, conda_prefix

    provided = conda_changes.distributions_of(lock.pins, Carriers(compatibility_data().folder))
    return conda_prefix.left_over(target, lock.wheels, provided, exact=bool(exact))


def _require_fit(lock: Lock, host: Host) -> None:
    """Raise HostMismatchError if the host lacks what a lock needs, or if a rule refuses it.

    InputError if the lock of the wheels is missing.
    """
    from ..lock import conda_formats

    reasons = reasons_against_lock(lock, host)
    if reasons:
        raise HostMismatchError("the lock does not fit this host; nothing was installed", reasons)
    if lock.wheels is None and conda_formats.wheel_lock_of(lock) is not None:
        raise InputError("the lock has pip packages beside it: give their lock, too")


def reasons_against_lock(lock: Lock, host: Host) -> tuple[Reason, ...]:
    """Return what a host lacks that a lock needs, and what the rules say against the packages."""
    from ..lock.host_fit import fit

    host = with_python_of(host, lock)
    reasons = list(fit(lock, host))
    if not any(reason.code in ("platform", "no-gpu") for reason in reasons):
        reasons += _reasons_against(lock, host)
    if lock.wheels is not None:
        reasons += fit(lock.wheels, host)
    return tuple(dict.fromkeys(reasons))


def _requested_specs(lock: Lock) -> tuple[str, ...]:
    from ..resolve.conda import planning

    carriers = Carriers(compatibility_data().folder)
    return planning.requested_specs(lock.frameworks, lock.requirements, carriers)


def _reasons_against(lock: Lock, host: Host) -> tuple[Reason, ...]:
    from ..install import conda

    data = compatibility_data()
    return conda.reasons(lock, host, data, Carriers(data.folder))


# ---- verify --------------------------------------------------------------------------------------


def recorded_lock(prefix: str) -> Lock | None:
    """See `environments.recorded_lock`."""
    from ..install import conda_history

    path = os.path.join(prefix, "conda-meta", conda_history.LOCK)
    return read_lock(path) if os.path.isfile(path) else None


def verify(lock: Lock, target: str, host: Host, options: Verification) -> tuple[Check, ...]:
    """See `environments.verify`.

    The checks are those of the host, "versions conda", "versions wheels", and those of an
    environment without a lock.
    """
    from ..install import conda_prefix

    prefix = prefix_of(target)
    if not is_conda(prefix):
        raise InputError(f"{prefix}: is no conda environment, and the lock is of one")
    lock = _with_hashes(lock)
    host = with_python_of(host, lock)
    reasons = _reasons_against(lock, host) if options.device else ()
    checks = wheels.host_checks(lock, host, device=options.device, more=reasons)
    checks.append(conda_prefix.conda_check(prefix, lock))
    if lock.wheels is not None:
        checks.append(conda_prefix.wheels_check(prefix, lock.wheels))
    python = find_interpreter(prefix)
    if python:
        checks += wheels.verify_installed(python, host, options)
    return tuple(checks)
