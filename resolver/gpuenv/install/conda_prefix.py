"""What is in a conda prefix: its packages by conda-meta, the wheels beside them, and what of the two has two owners."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..atomic_write import write_whole
from ..compat.conda_records import Carriers
from ..compat.data import CompatibilityData
from ..compat.evaluate import OWNER_SOURCE
from ..errors import Reason
from ..model import Check, Lock, Pin, Wheel, show_pair
from ..requirements.target import normalize_name, version_key
from ..resolve.conda import wheels_beside

_SITES = ("lib/python3*/site-packages", "Lib/site-packages")
_MARK = os.path.join("conda-meta", "gpuenv-wheels")  # no .json: conda takes those for its own
SHOWN = 6  # of what is wrong, and of what has two owners


def is_prefix(path: str) -> bool:
    """Whether a folder is a conda environment."""
    return os.path.isdir(os.path.join(path, "conda-meta"))


def packages(target: str) -> dict[str, dict[str, Any]]:
    """The records of conda-meta, by name: what conda and rattler say is in a prefix."""
    import json

    found = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(target), "conda-meta", "*.json"))):
        try:
            with open(path, encoding="utf-8") as file:
                record = json.load(file)
            found[str(record["name"])] = record
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return found


def _distributions(target: str) -> Iterator[tuple[str, str, str]]:
    """(name, version, its folder) of every distribution in a prefix, conda's packages among them."""
    for pattern in _SITES:
        for path in sorted(glob.glob(os.path.join(glob.escape(target), pattern, "*.dist-info"))):
            name, _, version = os.path.basename(path).removesuffix(".dist-info").partition("-")
            yield normalize_name(name), version, path


def _of_conda(info: str) -> bool:
    """Whether a distribution is of a conda package: conda's builders name conda as its installer."""
    try:
        with open(os.path.join(info, "INSTALLER"), encoding="utf-8") as file:
            return file.read().strip() == "conda"
    except (OSError, ValueError):
        return False


# ---- gpuenv's own wheels ----------------------------------------------------------------------------------------


def left_over(target: str, second: Lock | None) -> tuple[str, ...]:
    """The wheels that gpuenv put into a prefix and that have no place in it with these; all, for another Python."""
    try:
        with open(os.path.join(target, _MARK), encoding="utf-8") as file:
            python, *names = file.read().split()
    except (OSError, ValueError):
        return ()
    if second is None or python != show_pair(second.needs.python):
        return tuple(names)
    return tuple(sorted(set(names) - {pin.wheel.name for pin in second.pins}))


def remember(target: str, second: Lock | None) -> None:
    """Writes down which wheels are gpuenv's in a prefix."""
    path = os.path.join(target, _MARK)
    if second is not None:
        lines = [show_pair(second.needs.python), *(pin.wheel.name for pin in second.pins)]
        write_whole(path, "".join(f"{line}\n" for line in lines).encode())
    elif os.path.exists(path):
        os.remove(path)


# ---- checks ---------------------------------------------------------------------------------------------------------


def conda_check(target: str, lock: Lock) -> Check:
    """That a prefix has the builds that a lock names and no others ("versions conda").

    It is unknown where conda-meta has no sha256 of a build that is right in all else.
    """
    have, wrong, unknown = packages(target), [], []
    for pin in lock.pins:
        name, build = pin.wheel.name, pin.wheel.metadata["build"]
        one = have.pop(name, None)
        if one is None:
            wrong.append(f"{name} {pin.wheel.version} is not installed")
        elif (one.get("version"), one.get("build")) != (pin.wheel.version, build):
            wrong.append(f"{name} is {one.get('version')} {one.get('build')}, not {pin.wheel.version} {build}")
        elif one.get("sha256") is None:
            unknown.append(name)
        elif one["sha256"] != pin.wheel.sha256:
            wrong.append(f"{name} {pin.wheel.version} {build} is of another file: sha256 {one['sha256'][:12]}")
    wrong += [f"{name} {one.get('version')} is not in the lock" for name, one in have.items()]
    if wrong:
        return Check(name="versions", subject="conda", status="fail", evidence=_some(wrong))
    if unknown:
        said = f"the builds are those of the lock; conda-meta has no sha256 of {_some(unknown)}"
        return Check(name="versions", subject="conda", status="unknown", evidence=said)
    return Check(
        name="versions", subject="conda", status="pass", evidence=f"{len(lock.pins)} conda packages as locked"
    )


def wheels_check(target: str, lock: Lock) -> Check:
    """That a prefix has the wheels that a lock names ("versions wheels"), each of them once."""
    have: dict[str, list[str]] = {}
    for name, version, _ in _distributions(target):
        have.setdefault(name, []).append(version)
    wrong = []
    for pin in lock.pins:
        found = have.get(pin.wheel.name, [])
        if [version_key(one) for one in found] != [version_key(pin.wheel.version)]:
            wrong.append(f"{pin.wheel.name} is {' and '.join(sorted(found)) or 'not there'}, not {pin.wheel.version}")
    said = _some(wrong) if wrong else f"{len(lock.pins)} wheels as locked"
    return Check(name="versions", subject="wheels", status="fail" if wrong else "pass", evidence=said)


def _some(texts: Sequence[str]) -> str:
    return "; ".join([*texts[:SHOWN], *([f"and {len(texts) - SHOWN} more"] if len(texts) > SHOWN else ())])


# ---- two owners -----------------------------------------------------------------------------------------------------


def beside_wheels(
    target: str, pins: Sequence[Pin], carriers: Carriers, matrix: CompatibilityData, ours: Sequence[str] = ()
) -> tuple[Reason, ...]:
    """What conda packages would bring into a prefix a second time, because wheels there have it; `ours` go or fit.

    Codes: two-cudnn, two-libraries, two-frameworks.
    """
    held = wheels_beside.supply(pins, carriers, matrix)
    return _owners(
        held,
        (
            (name, version)
            for name, version, info in _distributions(target)
            if name not in ours and held.owner(name, version) and not _of_conda(info)
        ),
    )


def beside_conda(target: str, pins: Sequence[Pin], carriers: Carriers, matrix: CompatibilityData) -> tuple[Reason, ...]:
    """What wheels would bring into a prefix a second time, because conda packages there have it. Codes: as above."""
    there = []
    for path in glob.glob(os.path.join(glob.escape(target), "conda-meta", "*.json")):
        name, *rest = os.path.basename(path).removesuffix(".json").rsplit("-", 2)
        if len(rest) == 2:
            one = Wheel(name=name, version=rest[0], filename="", url="", sha256=None, metadata={"build": rest[1]})
            there.append(Pin(wheel=one))
    there.sort(key=lambda pin: pin.wheel.name)
    held = wheels_beside.supply(there, carriers, matrix)
    return _owners(held, ((pin.wheel.name, pin.wheel.version) for pin in pins))


def _owners(held: wheels_beside.Supply, wheels: Iterable[tuple[str, str]]) -> tuple[Reason, ...]:
    """A reason for each kind of thing that conda packages and wheels both have, with both owners of each."""
    found: dict[tuple[str, str], list[str]] = {}
    for name, version in wheels:
        against = held.owner(name, version)
        if against is not None:
            found.setdefault((against.code, against.need), []).append(f"{against.have} and {name} {version} of a wheel")
    subjects = {"two-cudnn": "cuDNN", "two-libraries": "CUDA libraries"}
    return tuple(
        Reason(
            code=code, subject=subjects.get(code, "frameworks"), need=need, have=_some(said), source=OWNER_SOURCE
        )
        for (code, need), said in found.items()
    )
