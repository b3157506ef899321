"""Installation of conda locks: by conda if it runs gpuenv, otherwise by rattler in a child process.

Nothing is solved.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Sequence

from ..compat import conda_parts, evaluate
from ..compat.conda_records import Carriers
from ..compat.data import CompatibilityData
from ..errors import InputError, InstallError, Reason, is_doubt
from ..index.urls import file_url_to_path
from ..model import EnvironmentChanges, Host, Lock, Pin, Wheel
from ..prefix import find_interpreter, is_conda
from ..requirements.conda_versions import inside_conda
from ..resolve.conda.solvers import RattlerSolver
from ..resolve.conda.wheels_beside import records_of
from .conda_prefix import read_packages


def reasons(
    lock: Lock, host: Host, matrix: CompatibilityData, carriers: Carriers
) -> tuple[Reason, ...]:
    """Return what speaks against the files of a lock on a host, whoever wrote the lock.

    The rules are asked of names and builds, because conda installs an explicit file without
    looking at `constrains`. Doubts are left out.
    """
    wheels = lock.wheels.pins if lock.wheels is not None else ()
    names = [(pin.wheel.name, pin.wheel.version) for pin in wheels]
    beside = evaluate.packages_of_pins(names, host.platform, matrix)
    records = records_of(lock.pins)
    reasons = conda_parts.lock_reasons(records, host, matrix, carriers, beside=beside)
    return tuple(dict.fromkeys(reason for reason in reasons if not is_doubt(reason)))


def check(target: str) -> bool:
    """Return whether the prefix must be made.

    Raises:
        InputError: The folder is not empty and no conda environment, it cannot be made or
            written to, or it is frozen (CEP 22).
    """
    target = os.path.abspath(target)
    if os.path.exists(target) and not os.path.isdir(target):
        raise InputError(f"--target {target}: is not a folder")
    if os.path.isdir(target) and os.listdir(target):
        if not is_conda(target):
            raise InputError(f"--target {target}: has files in it and is no conda environment")
        if not os.access(os.path.join(target, "conda-meta"), os.W_OK | os.X_OK):
            raise InputError(f"--target {target}: cannot be written to")
        _require_not_frozen(target)
        return False
    if not os.path.isdir(os.path.dirname(target)):
        message = f"--target {target}: the folder above it does not exist"
        raise InputError(message, hint="make it, or give another target")
    return True


def _require_not_frozen(target: str) -> None:
    path = os.path.join(target, "conda-meta", "frozen")
    if not os.path.isfile(path):
        return
    try:
        with open(path, encoding="utf-8") as file:
            message = json.load(file)["message"]
    except (OSError, ValueError, KeyError, TypeError):
        message = "it has the file conda-meta/frozen"
    message = f"--target {target}: is frozen: {' '.join(str(message).split())}"
    raise InputError(message, hint="install into another environment")


def sync(
    lock: Lock,
    target: str,
    changes: EnvironmentChanges | None = None,
    *,
    requested: Sequence[str] = (),
    progress: Callable[[str], None] | None = None,
) -> str:
    """Install a lock into a prefix. A new prefix that fails half way is removed again.

    Args:
        lock: The lock of the conda packages.
        target: The prefix.
        changes: What changes in an existing prefix.
        requested: The specs of the lock, for conda's history.
        progress: Is called with a line for each step.

    Returns:
        The interpreter, "" if the prefix has none.

    Raises:
        InputError: The target cannot be used.
        InstallError: A file could not be installed as locked.
    """
    target, is_new = os.path.abspath(target), check(target)
    if progress is not None:
        progress(f"installing {len(lock.pins)} conda packages into {target}")
    removed = [] if changes is None else [row.name for row in changes.remove if not row.wheel]
    try:
        install(lock.pins, target, removed, requested)
    except BaseException:
        if is_new:
            shutil.rmtree(target, ignore_errors=True)
        raise
    return find_interpreter(target) or ""


def install(
    pins: Sequence[Pin],
    target: str,
    removed: Sequence[str],
    requested: Sequence[str] = (),
    withdrawn: Sequence[str] = (),
) -> None:
    """Install packages into a prefix, and remove the packages that `removed` names.

    conda writes the specs in `requested` to its history, and the names in `withdrawn` as no longer
    requested; rattler writes no history.

    Raises:
        InstallError: A file could not be installed as pinned.
    """
    _check_local_files(pins, target)
    _run_installer(pins, target, removed, requested, withdrawn)
    _check_installed(pins, target)


def _run_installer(
    pins: Sequence[Pin],
    target: str,
    removed: Sequence[str],
    requested: Sequence[str],
    withdrawn: Sequence[str],
) -> None:
    rows = [_install_row(pin.wheel) for pin in pins]
    if inside_conda():
        from . import conda_transaction

        conda_transaction.install(
            target, rows, remove=removed, requested=requested, withdrawn=withdrawn
        )
        return
    subdir = _subdir(pins)
    # The child ends with the block: nothing goes on writing into a prefix that is removed.
    with RattlerSolver((), (subdir, "noarch")) as solver:
        solver.install(target, rows, subdir, remove=removed)


def _check_local_files(pins: Sequence[Pin], target: str) -> None:
    """Raise InstallError if a file of a local channel is not the one that was locked.

    conda and rattler compare the hashes of what they download only.
    """
    installed = read_packages(target)
    for pin in pins:
        wheel = pin.wheel
        if not wheel.url.startswith("file:"):
            continue
        if installed.get(wheel.name, {}).get("sha256") == wheel.sha256:
            continue
        try:
            with open(file_url_to_path(wheel.url), "rb") as file:
                have = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise InstallError(f"{wheel.filename} cannot be read: {error}") from None
        if have != wheel.sha256:
            locked = f"the lock says sha256 {wheel.sha256}, the file has {have}"
            raise InstallError(f"hash mismatch of {wheel.filename}: {locked}")


def _subdir(pins: Sequence[Pin]) -> str:
    for pin in pins:
        subdir = str(pin.wheel.metadata["subdir"])
        if subdir != "noarch":
            return subdir
    return "noarch"


def _install_row(wheel: Wheel) -> dict[str, object]:
    return {
        **wheel.metadata,
        "name": wheel.name,
        "version": wheel.version,
        "fn": wheel.filename,
        "url": wheel.url,
        "channel": wheel.index,
        "sha256": wheel.sha256,
        "size": wheel.size,
    }


def _check_installed(pins: Sequence[Pin], target: str) -> None:
    """Raise InstallError if conda-meta does not name what the pins name."""
    installed = read_packages(target)
    for pin in pins:
        wheel, record = pin.wheel, installed.get(pin.wheel.name)
        if record is None:
            have = "nothing"
        elif (record.get("version"), record.get("sha256")) == (wheel.version, wheel.sha256):
            continue
        else:
            have = f"{record.get('version')} {record.get('sha256')}"
        raise InstallError(f"{wheel.filename} was not installed as locked: the prefix has {have}")
