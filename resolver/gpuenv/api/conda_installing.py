"""Installation of conda environments, with wheels beside the packages."""

from __future__ import annotations

import os
import shutil

from ..errors import InputError, NotVerifiedError
from ..install import conda as conda_installer
from ..install import conda_changes, conda_history, conda_prefix, installers
from ..install import wheels as wheel_installer
from ..install.wheels import Approve, Progress, Prove
from ..model import EnvironmentChanges, Lock
from ..prefix import find_interpreter, interpreter_of
from ..resolve.conda import planning, wheels_beside
from . import conda
from .data import carriers, compatibility_data


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
    leaving = _leaving_wheels(lock, target, exact=exact)
    if beside is not None or leaving:
        installers.find_installer(installer)  # or an error
    new = conda_installer.check(target)
    before = None if new else conda_history.read_state(target)
    requested = _requested_specs(lock)
    planned = changes(lock, target, exact=exact)
    if not new and approve is not None:
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
        conda_history.record(target, requested)
        if beside is not None:
            wheel_installer.add(
                beside,
                python,
                installer=installer,
                progress=progress,
                tolerated=compatibility_data().tolerated,
            )
        conda_prefix.remember(target, beside, leaving)
        if beside is not None or leaving:
            conda_history.forget_state(target)  # the old wheels are not kept
        elif before is not None:
            conda_history.remember_state(target, before)
        conda_history.record_lock(target, conda.lock_texts(lock, conda_history.LOCK))
    except BaseException:
        if new:
            shutil.rmtree(target, ignore_errors=True)  # nothing half made is left
        raise
    if prove is not None and not prove(python or target):
        raise NotVerifiedError(f"{target} was changed, and was not verified")
    return python


def changes(lock: Lock, target: str, *, exact: bool | None) -> EnvironmentChanges:
    """Return what `sync` would change."""
    conda_installer.check(target)
    return conda_changes.plan_changes(
        lock,
        target,
        exact=bool(exact),
        requested=_requested_specs(lock),
        carriers=carriers(),
        leaving=_leaving_wheels(lock, target, exact=exact),
    )


def _requested_specs(lock: Lock) -> tuple[str, ...]:
    return planning.requested_specs(lock.frameworks, lock.requirements, carriers())


def _leaving_wheels(lock: Lock, target: str, *, exact: bool | None) -> tuple[str, ...]:
    """Return the names of an earlier lock's wheels that a sync removes from a prefix."""
    provided = carriers().providers(wheels_beside.records_of(lock.pins))
    return conda_prefix.left_over(target, lock.wheels, provided, exact=bool(exact))


def rollback(target: str, *, progress: Progress | None = None) -> None:
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
    conda_history.record(target, requested, withdrawn)
    conda_history.remember_state(target, now)
    conda_history.record_lock(target, previous.lock)
