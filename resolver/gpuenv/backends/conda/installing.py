"""Installs the lock of a conda environment into a prefix: rattler in a child process; nothing is solved."""

from __future__ import annotations

import os

from ...errors import InputError, InstallError, Reason
from ...facts import is_doubt
from ...model import Check, Host, Lock, Matrix, Wheel
from . import checking
from .rows import Carriers
from .solvers import RattlerSolver

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes three milliseconds
    from collections.abc import Callable
    from typing import Any


def reasons(lock: Lock, host: Host, matrix: Matrix, carriers: Carriers) -> tuple[Reason, ...]:
    """What speaks against the files of a lock on a host, whoever wrote it: the rules, asked of names and builds.

    It is what conda does not ask when it installs an explicit file. Doubts are left out.
    """
    records = [_record(pin.wheel) for pin in lock.pins]
    cuda = checking.cuda_of(records)
    found: list[Reason] = []
    for record in records:
        framework = carriers.framework_of(record["name"])
        if framework is not None and record["name"] == carriers.carriers[framework]:
            row = carriers.row(record, framework)
            found += checking.row_reasons(row, host, matrix) if row.cuda is not None else ()
        found += checking.toolkit_reasons(record, host, matrix)
        found += checking.library_reasons(record, cuda, host, matrix) if host.gpus else ()
    return tuple(dict.fromkeys(one for one in found if not is_doubt(one)))


def _record(wheel: Wheel) -> dict[str, Any]:
    return {"name": wheel.name, "version": wheel.version, "channel": wheel.index, **wheel.metadata}


def check(target: str) -> bool:
    """Whether the prefix is to be made. InputError for a folder that is no conda environment and not empty."""
    target = os.path.abspath(target)
    if os.path.exists(target) and not os.path.isdir(target):
        raise InputError(f"--target {target}: is not a folder")
    if os.path.isdir(target) and os.listdir(target):
        if not os.path.isdir(os.path.join(target, "conda-meta")):
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
    python = os.path.join(target, "python.exe" if subdir.startswith("win") else os.path.join("bin", "python"))
    return python if os.path.isfile(python) else ""


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


def installed(target: str) -> dict[str, dict[str, Any]]:
    """The records of conda-meta, by name: what conda and rattler say is in a prefix."""
    import json

    folder, found = os.path.join(target, "conda-meta"), {}
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        if name.endswith(".json"):
            try:
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    record = json.load(file)
                found[str(record["name"])] = record
            except (OSError, ValueError, KeyError, TypeError):
                continue
    return found


def _checked(lock: Lock, target: str) -> None:
    """That the prefix holds what the lock names, by the records of what was linked."""
    have = installed(target)
    for pin in lock.pins:
        one = have.get(pin.wheel.name)
        if one is None or one.get("version") != pin.wheel.version or one.get("sha256") != pin.wheel.sha256:
            said = "nothing" if one is None else f"{one.get('version')} {one.get('sha256')}"
            raise InstallError(f"{pin.wheel.filename} was not installed as locked: the prefix has {said}")


# ---- what is in a prefix --------------------------------------------------------------------------------------------


def prefix_checks(target: str, lock: Lock | None = None) -> tuple[Check, ...]:
    """That a prefix holds what a lock names ("versions conda"), and one cuDNN only ("owners cuDNN")."""
    have, checks = installed(target), []
    if lock is not None:
        wrong = []
        for pin in lock.pins:
            one = have.get(pin.wheel.name)
            if one is None:
                wrong.append(f"{pin.wheel.name} {pin.wheel.version} is not installed")
            elif one.get("version") != pin.wheel.version or one.get("sha256") not in (None, pin.wheel.sha256):
                wrong.append(f"{pin.wheel.name} is {one.get('version')} {one.get('build')}, not {pin.wheel.filename}")
        said = "; ".join(wrong[:6]) if wrong else f"{len(lock.pins)} conda packages as locked"
        checks.append(Check(name="versions", subject="conda", status="fail" if wrong else "pass", evidence=said))
    both = checking.mixed_reasons(have.values(), wheels(target))
    if both:
        checks.append(Check(name="owners", subject="cuDNN", status="fail", evidence=f"{both[0].have} in one prefix"))
    return tuple(checks)


def wheels(target: str) -> list[tuple[str, str]]:
    """(name, version) of NVIDIA's wheels in a prefix, by the names of their folders."""
    import glob

    found = []
    for pattern in ("lib/python3*/site-packages", "Lib/site-packages"):
        for path in glob.glob(os.path.join(glob.escape(target), pattern, "nvidia_*.dist-info")):
            name, _, version = os.path.basename(path).removesuffix(".dist-info").partition("-")
            found.append((name.replace("_", "-"), version))
    return sorted(found)
