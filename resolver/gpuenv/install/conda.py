"""Installation of conda locks: by conda if it runs gpuenv, otherwise by rattler in a child process.

Nothing is solved.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

from ..compat import conda_parts, evaluate
from ..compat.data import CompatibilityData
from ..errors import InputError, InstallError, Reason, is_doubt
from ..index.urls import file_url_to_path
from ..model import Host, Lock, Pin
from ..prefix import conda_packages, is_conda
from ..requirements.conda_versions import inside_conda
from ..resolve.conda.solvers import RattlerSolver
from ..resolve.conda.wheels_beside import records_of
from ..serialize import file_digest, read_input
from .conda_prefix import difference_of


def reasons(lock: Lock, host: Host, matrix: CompatibilityData) -> tuple[Reason, ...]:
    """Return what speaks against the files of a lock on a host, whoever wrote the lock.

    The rules are asked of names and builds, because conda installs an explicit file without
    looking at `constrains`. Doubts are left out.
    """
    wheels = lock.wheels.pins if lock.wheels is not None else ()
    names = [(pin.wheel.name, pin.wheel.version) for pin in wheels]
    beside = evaluate.packages_of_pins(names, host.platform, matrix)
    records = records_of(lock.pins)
    reasons = conda_parts.lock_reasons(records, host, matrix, beside=beside)
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
        path = os.path.join(target, "conda-meta", "frozen")
        if os.path.isfile(path):
            try:
                message = json.loads(read_input(path))["message"]
            except (OSError, ValueError, KeyError, TypeError):
                message = "it has the file conda-meta/frozen"
            message = f"--target {target}: is frozen: {' '.join(str(message).split())}"
            raise InputError(message, hint="install into another environment")
        return False
    if not os.path.isdir(os.path.dirname(target)):
        message = f"--target {target}: the folder above it does not exist"
        raise InputError(message, hint="make it, or give another target")
    return True


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
    records = records_of(pins)
    if inside_conda():
        from . import conda_transaction

        conda_transaction.install(
            target, records, remove=removed, requested=requested, withdrawn=withdrawn
        )
    else:
        subdirs = {str(record["subdir"]) for record in records} - {"noarch"}
        subdir = next(iter(subdirs), "noarch")
        # The child ends with the block: nothing goes on writing into a prefix that is removed.
        with RattlerSolver((), (subdir, "noarch")) as solver:
            solver.install(target, records, subdir, remove=removed)
    installed = conda_packages(target)
    for pin in pins:
        difference = difference_of(pin.wheel, installed.get(pin.wheel.name))
        if difference is not None:
            raise InstallError(f"{pin.wheel.filename} was not installed as locked: {difference}")


def _check_local_files(pins: Sequence[Pin], target: str) -> None:
    """Raise InstallError if a file of a local channel is not the one that was locked.

    conda and rattler compare the hashes of what they download only.
    """
    installed = conda_packages(target)
    for pin in pins:
        wheel = pin.wheel
        if not wheel.url.startswith("file:"):
            continue
        if installed.get(wheel.name, {}).get("sha256") == wheel.sha256:
            continue
        try:
            have = file_digest(file_url_to_path(wheel.url))
        except OSError as error:
            raise InstallError(f"{wheel.filename} cannot be read: {error}") from None
        if have != wheel.sha256:
            locked = f"the lock says sha256 {wheel.sha256}, the file has {have}"
            raise InstallError(f"hash mismatch of {wheel.filename}: {locked}")
