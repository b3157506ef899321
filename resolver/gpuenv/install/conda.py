"""Installs the lock of a conda environment into a prefix: rattler in a child process; nothing is solved."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..compat import conda_parts
from ..compat.conda_records import Carriers
from ..compat.data import CompatibilityData
from ..compat.evaluate import is_doubt
from ..errors import InputError, InstallError, Reason
from ..model import Host, Lock, Wheel
from ..resolve.conda.solvers import RattlerSolver
from .conda_prefix import is_prefix, packages


def reasons(lock: Lock, host: Host, matrix: CompatibilityData, carriers: Carriers) -> tuple[Reason, ...]:
    """What speaks against the files of a lock on a host, whoever wrote it: the rules, asked of names and builds.

    It is what conda does not ask when it installs an explicit file. Doubts are left out.
    """
    records = [_record(pin.wheel) for pin in lock.pins]
    found = conda_parts.lock_reasons(records, host, matrix, carriers)
    return tuple(dict.fromkeys(one for one in found if not is_doubt(one)))


def _record(wheel: Wheel) -> dict[str, Any]:
    return {"name": wheel.name, "version": wheel.version, "channel": wheel.index, **wheel.metadata}


def check(target: str) -> bool:
    """Whether the prefix is to be made. InputError for a folder that is no conda environment and not empty."""
    target = os.path.abspath(target)
    if os.path.exists(target) and not os.path.isdir(target):
        raise InputError(f"--target {target}: is not a folder")
    if os.path.isdir(target) and os.listdir(target):
        if not is_prefix(target):
            raise InputError(f"--target {target}: has files in it and is no conda environment")
        return False
    if not os.path.isdir(os.path.dirname(target)):
        raise InputError(f"--target {target}: the folder above it does not exist")
    return True


def sync(lock: Lock, target: str, *, progress: Callable[[str], None] | None = None) -> str:
    """Makes the prefix hold exactly the lock, and returns its interpreter ("" if it has none).

    A new prefix that fails half way is removed again. InstallError, InputError.
    """
    target, new = os.path.abspath(target), check(target)
    if progress is not None:
        progress(f"installing {len(lock.pins)} conda packages into {target}")
    subdirs = [str(pin.wheel.metadata["subdir"]) for pin in lock.pins]
    subdir = next((one for one in subdirs if one != "noarch"), "noarch")
    solver = RattlerSolver((), (subdir, "noarch"))
    try:
        solver.install(target, [_row(pin.wheel) for pin in lock.pins], subdir)
        _checked(lock, target)
    except BaseException:
        solver.close()  # what it had begun it would go on writing
        if new:
            import shutil

            shutil.rmtree(target, ignore_errors=True)
        raise
    finally:
        solver.close()
    return interpreter(target)


def interpreter(target: str) -> str:
    """The interpreter of a prefix; "" if it has none."""
    names = (os.path.join("bin", "python"), "python.exe")
    return next((path for name in names if os.path.isfile(path := os.path.join(target, name))), "")


def _row(wheel: Wheel) -> dict[str, Any]:
    return {
        **wheel.metadata,
        "name": wheel.name,
        "version": wheel.version,
        "fn": wheel.filename,
        "url": wheel.url,
        "channel": wheel.index,
        "sha256": wheel.sha256,
    }


def _checked(lock: Lock, target: str) -> None:
    """That the prefix holds what the lock names, by the records of what was linked."""
    have = packages(target)
    for pin in lock.pins:
        one = have.get(pin.wheel.name)
        if one is None or one.get("version") != pin.wheel.version or one.get("sha256") != pin.wheel.sha256:
            said = "nothing" if one is None else f"{one.get('version')} {one.get('sha256')}"
            raise InstallError(f"{pin.wheel.filename} was not installed as locked: the prefix has {said}")
