"""Conda environments, with wheels beside the packages: solves, locks and installation."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Sequence

from ..compat import conda_parts, evaluate
from ..compat.conda_records import channel_name
from ..compat.data import compatibility_data
from ..errors import (
    Explanation,
    InputError,
    NoSolutionError,
    NotVerifiedError,
    Reason,
    TamperedError,
)
from ..index.multi_index import MultiIndex
from ..install import conda as conda_installer
from ..install import conda_changes, conda_history, conda_prefix, installers
from ..install import wheels as wheel_installer
from ..install.wheels import Approve, Progress, Prove
from ..lock import conda_formats
from ..model import (
    CondaOptions,
    Host,
    IndexOptions,
    Lock,
    Plan,
    Request,
)
from ..prefix import conda_packages, find_interpreter, interpreter_of, is_conda
from ..requirements import conda_settings, conda_versions
from ..requirements.conda_projects import read_project_file
from ..requirements.conda_versions import inside_conda
from ..requirements.target import parse_requirement
from ..requirements.versions import normalize_name
from ..resolve.conda import candidates, planning, solvers, virtual_packages, wheels_beside
from . import wheels

DEFAULT_CHANNELS = ("https://conda.anaconda.org/conda-forge",)
# What conda's channel "defaults" stands for, unless conda's settings say otherwise.
ANACONDA_CHANNELS = ("https://repo.anaconda.com/pkgs/main", "https://repo.anaconda.com/pkgs/r")


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
    """Solve a request for conda packages, and for wheels beside them; see `environments.solve`."""
    into = solvers.ExistingPrefix()
    if keep and prefix is not None and is_conda(prefix):
        into = _existing_prefix(prefix, request)
    with _open_solver(request, host, options) as solver:
        solver.into, limits = into, _limits(request, into.path)
        plan = planning.plan(
            request, host, compatibility_data(), solver, limits=limits, changes=changes
        )
    if prefix is not None:
        carriers = compatibility_data().conda
        leaving = conda_prefix.left_over(prefix, plan.pins, None, carriers, exact=not keep)
        owned = conda_prefix.beside_wheels(prefix, plan, compatibility_data(), leaving)
        plan = plan.replace(warnings=(*plan.warnings, *owned))
    if request.conda is not None and request.conda.wheels:
        plan = plan.replace(wheels=_solve_wheels(request, request.conda.wheels, plan, options))
    return plan


def _open_solver(request: Request, host: Host, options: IndexOptions) -> solvers.Solver:
    """Start a solver, whose process loads its library while this process loads the rest."""
    subdir = virtual_packages.SUBDIRS.get(host.platform)
    if subdir is None:
        raise InputError(f"--platform {host.platform}: no conda subdirectory is known for it")
    mode = "offline" if options.offline else "refresh" if options.refresh else "fetch"
    solver = solvers.open_solver(channels(request), (subdir, "noarch"), cache=mode)
    conda_versions.version("0")  # loads the rules of versions now
    return solver


def channels(request: Request) -> tuple[str, ...]:
    """Return the channels of a request, best first: the named ones, then those of its specs."""
    conda = request.conda or CondaOptions()
    named = conda.channels or DEFAULT_CHANNELS
    if conda.configured_channels and inside_conda():
        named = tuple(dict.fromkeys((*conda.channels, *solvers.configured_channels())))
    expanded = ([name] if name != "defaults" else ANACONDA_CHANNELS for name in named)
    named = tuple(itertools.chain(*expanded))
    known = {*named, *map(channel_name, named)}
    specs = [*map(conda_versions.channel_of, request.requirements)]
    if "defaults" in specs:
        raise InputError("defaults::PACKAGE: stands for several channels", hint="name one of them")
    return (*named, *dict.fromkeys(name for name in specs if name and name not in known))


def _limits(request: Request, prefix: str) -> tuple[str, ...]:
    """Return the pins of an environment and of conda's settings, and the user's constraints.

    InputError for a constraint with a marker or a URL: conda has neither.
    """
    pins = [pin for _, pin in conda_settings.read_pins(prefix, os.environ)]
    limits = [conda_versions.text_of(*conda_versions.split(pin)) for pin in pins]
    packages = {name: package for package, name in compatibility_data().conda.distributions.items()}
    packages |= compatibility_data().conda.packages
    for text in request.constraints:
        parsed = parse_requirement(text)
        if parsed.marker or parsed.url or parsed.extras:
            message = f"{text}: a constraint on conda packages is a name with versions"
            raise InputError(message)
        if parsed.specifier:
            limits.append(f"{packages.get(parsed.name, parsed.name)} {parsed.specifier}")
    return tuple(limits)


def _existing_prefix(prefix: str, request: Request) -> solvers.ExistingPrefix:
    """Return what a closure must leave in an environment.

    What the request names replaces what was asked for before.
    """
    installed = conda_packages(prefix, strict=True)
    new = planning.requested_specs(
        request.frameworks, request.requirements, compatibility_data().conda
    )
    earlier = conda_history.requested_specs(prefix, installed, new)
    packages, specs = [], []
    for name, record in installed.items():
        packages.append((name, str(record.get("version")), str(record.get("build"))))
        specs.append(conda_versions.text_of(*conda_versions.split(earlier.get(name, name))))
    return solvers.ExistingPrefix(path=prefix, packages=frozenset(packages), specs=tuple(specs))


def repair(request: Request, host: Host, options: IndexOptions, *, prefix: str) -> Plan:
    """Choose the builds with which the frameworks of a conda environment run on a host.

    As little as possible changes: pins, earlier requests and what packages need of each other hold.

    Args:
        request: has the channels; its frameworks and requirements are not used.
        host: the host on which the environment must run.
        options: where packages may come from.
        prefix: the conda environment.

    Raises:
        NoSolutionError: no change makes the environment fit; the error explains why.
        InputError: there is nothing to repair in the environment, or it cannot be read.
        PackageIndexError: a channel cannot be read.
    """
    data, installed = compatibility_data(), conda_packages(prefix, strict=True)
    nothing = request.replace(frameworks=(), requirements=())
    into = _existing_prefix(prefix, nothing)
    refusal: NoSolutionError | None = None
    with _open_solver(request, host, options) as solver:
        limits = _limits(request, prefix)
        for changed, fixed in planning.repairs(nothing, installed, data.conda):
            solver.into = into.replace(fixed=fixed)
            try:
                plan = planning.plan(changed, host, data, solver, limits=limits, changes=False)
            except NoSolutionError as error:
                refusal = error
                continue
            # The user asked for nothing new: the history of the environment stays.
            return plan.replace(request=nothing)
    if refusal is None:
        raise InputError(f"{prefix}: has no framework and no CUDA package to solve for")
    raise refusal


def _solve_wheels(
    request: Request, texts: Sequence[str], conda: Plan, options: IndexOptions
) -> Plan:
    """Solve for the wheels that stand beside the packages of a conda plan."""
    if conda.needs.python is None:
        message = f"--pip {texts[0]}: there is no Python in the environment"
        raise InputError(message, hint="ask for python too")
    data, platform = compatibility_data(), conda.host.platform
    records = wheels_beside.records_of(conda.pins)
    supply = wheels_beside.supply(records, data)
    own = request.replace(
        frameworks=(),
        requirements=tuple(texts),
        hashes=(),
        require_hashes=False,
        preferences=(),
        conda=None,
    )
    # The user may require another version of what conda brings.
    reasons = wheels_beside.unmet(own.requirements, supply)
    if reasons:
        raise NoSolutionError(Explanation(subject=", ".join(own.requirements), reasons=reasons))
    renamed = own.replace(requirements=tuple(map(supply.renamed, own.requirements)))
    refused: dict[str, Reason] = {}
    packages = conda_parts.packages_of_records(records, platform, data)

    def judge(name: str, version: str) -> Reason | None:
        wheel = evaluate.packages_of_pins([(name, version)], platform, data)
        return next(evaluate.reasons_beside(wheel, packages, conda.host, data), None)

    def beside_conda(index: MultiIndex) -> wheels_beside.Beside:
        return wheels_beside.Beside(index, supply, judge, renamed.requirements, refused)

    try:
        plan = wheels.solve(renamed, conda.host, options, wrap=beside_conda)
    except NoSolutionError as error:
        # What refused the newest releases comes first: the last conflict is about the oldest ones.
        explanation = error.explanation
        named = {reason.subject.partition(" ")[0] for reason in explanation.reasons}
        newest = [reason for name, reason in refused.items() if name not in named]
        reasons = (*newest, *explanation.reasons)
        raise NoSolutionError(explanation.replace(reasons=reasons)) from None
    return wheels_beside.without_held(plan, own)


# ---- lock ----------------------------------------------------------------------------------------


def lock_of_workspace(path: str) -> Lock:
    """Return the pixi.lock beside a pixi.toml. InputError if it is not of this pixi.toml."""
    lock = conda_formats.read(os.path.join(os.path.dirname(path), "pixi.lock"))
    subdirs = {pin.wheel.metadata["subdir"] for pin in lock.pins}
    platforms = [name for name, subdir in virtual_packages.SUBDIRS.items() if subdir in subdirs]
    project = read_project_file(path, "".join(platforms))
    versions = {normalize_name(pin.wheel.name): pin.wheel.version for pin in lock.pins}
    if lock.wheels is not None:
        versions |= lock.wheels.versions
    builds = [(pin.wheel.name, pin.wheel.version, pin.wheel.metadata["build"]) for pin in lock.pins]
    missing = [
        spec
        for spec in project.specs
        if not any(conda_versions.matches(spec, *build) for build in builds)
    ]
    for text in project.wheels.requirements:
        requirement = parse_requirement(text)
        version = versions.get(requirement.name)
        if version is None or not candidates.admits(requirement.specifier, version):
            missing.append(text)
    if missing:
        message = f"{path}: the pixi.lock beside it is stale: it has no {', '.join(missing)}"
        raise InputError(message, hint="run pixi lock")
    return lock


def with_hashes(lock: Lock) -> Lock:
    """Return a lock with the sha256 of files of which it has the md5 at most, from their channels.

    Raises:
        InputError: The channel does not list such a file, or gives no sha256.
        TamperedError: The channel has another md5.
    """
    missing = [pin.wheel for pin in lock.pins if pin.wheel.sha256 is None]
    if not missing:
        return lock
    indexes = sorted({wheel.index for wheel in missing})
    subdirs = sorted({"noarch", *(str(wheel.metadata["subdir"]) for wheel in missing)})
    with solvers.open_solver(indexes, subdirs) as solver:
        names = sorted({wheel.name for wheel in missing})
        records = {record["url"]: record for record in solver.records(names)}
    pins = []
    for pin in lock.pins:
        wheel = pin.wheel
        if wheel.sha256 is not None:
            pins.append(pin)
            continue
        record = records.get(wheel.url) or {}
        digest, locked, have = record.get("sha256"), wheel.metadata.get("md5"), record.get("md5")
        if digest is None:
            message = f"{wheel.filename}: the channel gives no sha256 of it"
            raise InputError(message, hint="write the list with conda list --explicit --sha256")
        if None not in (locked, have) and locked != have:
            message = f"{wheel.filename}: md5 {locked} in the lock, {have} in the channel"
            raise TamperedError(message)
        pins.append(pin.replace(wheel=wheel.replace(sha256=digest)))
    return lock.replace(pins=tuple(pins))


# ---- install -------------------------------------------------------------------------------------


def sync(
    lock: Lock,
    target: str,
    beside: Lock | None,
    *,
    exact: bool | None = None,
    installer: str = "auto",
    approve: Approve | None = None,
    prove: Prove | None = None,
    progress: Progress | None = None,
    **_: object,
) -> str:
    """Install a lock whose files have hashes and that fits; see `installing.sync`.

    The environment is changed in place: it is verified after the change.

    Args:
        lock: the lock.
        target: the environment.
        beside: the lock of the wheels, with the places to take the files from.
        exact, installer, approve, prove, progress: as in `installing.sync`. What else it takes is
            for wheels only.
    """
    exact, carriers = bool(exact), compatibility_data().conda
    leaving = conda_prefix.left_over(target, lock.pins, lock.wheels, carriers, exact=exact)
    if beside is not None or leaving:
        installers.find_installer(installer)  # or an error
    before = None if conda_installer.check(target) else conda_history.read_state(target)
    requested = planning.requested_specs(lock.frameworks, lock.requirements, carriers)
    planned = conda_changes.plan_changes(lock, target, carriers, exact=exact)
    if before is not None and approve is not None:
        approve(planned)
    if leaving:
        # Remove the wheels first: the new conda packages may have the same names.
        wheel_installer.add(
            lock.replace(pins=()),
            interpreter_of(target),
            remove=leaving,
            installer=installer,
            progress=progress,
        )
    target = os.path.abspath(target)
    removed = [change.name for change in planned.remove if not change.wheel]
    if progress is not None:
        progress(f"installing {len(lock.pins)} conda packages into {target}")
    try:
        conda_installer.install(lock.pins, target, removed, requested)
        python = find_interpreter(target) or ""
        if beside is not None:
            wheel_installer.add(beside, python, installer=installer, progress=progress)
        conda_prefix.remember(target, beside, leaving)
        if beside is not None or leaving:
            conda_history.forget_state(target)  # the old wheels are not kept
        elif before is not None:
            conda_history.remember_state(target, before)
        conda_history.record_lock(target, conda_formats.lock_texts(lock, conda_history.LOCK))
    except BaseException:
        if before is None:
            shutil.rmtree(target, ignore_errors=True)  # nothing half made is left
        raise
    if prove is not None and not prove(python or target):
        raise NotVerifiedError(f"{target} was changed, and was not verified")
    return python


def rollback(target: str, *, progress: Progress | None) -> None:
    """Return to the packages before the last sync. Only packages that it changed change back."""
    conda_installer.check(target)
    now = conda_history.read_state(target)
    previous = conda_history.previous_state(target)
    pins = []
    for name, record in previous.records.items():
        installed = now.records.get(name, {})
        if all(record.get(key) == installed.get(key) for key in ("version", "build", "sha256")):
            continue
        if not record.get("url") or not record.get("sha256"):
            message = f"{record['name']} cannot be installed again: its URL or sha256 is unknown"
            raise InputError(message, hint="install an earlier lock: gpuenv sync LOCK")
        pins.append(planning.pin_of(record))
    removed = sorted(now.records.keys() - previous.records.keys())
    if progress is not None:
        progress(f"installing {len(pins)} conda packages again, removing {len(removed)}")
    requested = tuple(previous.specs.values())
    withdrawn = sorted(now.specs.keys() - previous.specs.keys())
    conda_installer.install(pins, target, removed, requested, withdrawn)
    conda_history.remember_state(target, now)
    conda_history.record_lock(target, previous.lock)
