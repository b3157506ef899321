"""Locks that other tools wrote (`pip lock`, `uv pip compile`, `uv export`), judged for one host."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ..errors import InputError, Reason
from ..model import Host, Python, Value, show_pair
from ..requirements.target import TargetEnvironment, marker_environment, split_label
from ..serialize import read_toml
from .fields import Document
from .pylock import VARIANTS_JSON

if TYPE_CHECKING:  # importing it takes as long as a solve
    from packaging.pylock import Package, Pylock

SOURCE = "PEP 751"


class LockContents(Value):
    """What a lock of any tool installs on one host.

    `pins` are (name, version); a package without a version (a folder, a repository) is not among
    them. `reasons` are what the files and markers of the lock say against the host.
    """

    created_by: str
    pins: tuple[tuple[str, str], ...]
    reasons: tuple[Reason, ...] = ()


def read_any_lock(path: str, host: Host) -> LockContents:
    """Return what a lock of any tool installs, with its default groups and without extras.

    Reason codes: lock-environment, lock-python, no-wheel-for-target, no-wheel-unknown (it must be
    built).

    Raises:
        InputError: The file is no PEP 751 lock, or a file in it has no hash.
    """
    document = read_toml(path)
    described = _with_ordinary_names(document)
    lock = _read_pylock(document, path)
    variables: dict[str, str | Set[str]] = {**marker_environment(host)}
    variables["extras"] = frozenset()
    variables["dependency_groups"] = frozenset(lock.default_groups or ())
    environment = TargetEnvironment(host)
    reasons = [*_python_reasons(lock, host), *_marker_reasons(lock, host)]
    pins = []
    for package in lock.packages:
        marker = package.marker
        if marker is not None and not marker.evaluate(variables, context="lock_file"):
            continue
        reasons += _file_reasons(package, environment)
        if package.version is not None:
            pins.append((str(package.name), str(package.version)))
    if lock.created_by != "gpuenv":
        reasons += [_unknown_variant(name) for name in described]
    return LockContents(created_by=lock.created_by, pins=tuple(pins), reasons=tuple(reasons))


def _with_ordinary_names(document: Document) -> list[str]:
    """Remove the labels from the names of variant wheels, because packaging refuses them.

    Returns:
        The packages that have [packages.variants-json] (PEP 825).
    """
    packages = document.get("packages")
    described = []
    for package in packages if isinstance(packages, list) else ():
        if isinstance(package, dict) and VARIANTS_JSON in package:
            described.append(str(package.get("name")))
            for wheel in package.get("wheels", ()):
                filename = wheel.get("name") or wheel.get("path") or wheel.get("url", "")
                wheel["name"] = split_label(unquote(filename.rpartition("/")[2]))[0]
    return described


def _unknown_variant(name: str) -> Reason:
    return Reason(
        code="variant-unknown",
        subject=name,
        need="a variant wheel that suits the host",
        have="a lock of another tool, whose variants are not evaluated",
        source=SOURCE,
    )


def _read_pylock(document: Document, path: str) -> Pylock:
    from packaging.pylock import Pylock, PylockUnsupportedVersionError, PylockValidationError

    try:
        return Pylock.from_dict(document)
    except (PylockValidationError, PylockUnsupportedVersionError) as error:
        text = " ".join(str(error).split())
        raise InputError(f"{path}: is not a valid lock: {text}") from None


def _python_reasons(lock: Pylock, host: Host) -> list[Reason]:
    required = lock.requires_python
    if required is None:
        return []
    for variables in _possible_environments(host):
        if required.contains(variables["python_full_version"]):
            return []
    need, have = f"Python {required}", f"Python {show_pair(host.python.version)}"
    return [Reason(code="lock-python", subject="lock", need=need, have=have, source=SOURCE)]


def _marker_reasons(lock: Pylock, host: Host) -> list[Reason]:
    markers = lock.environments or ()
    if not markers:
        return []
    for variables in _possible_environments(host):
        if any(marker.evaluate(dict(variables), context="requirement") for marker in markers):
            return []
    need = " or ".join(map(str, markers))
    have = f"{host.platform}, Python {show_pair(host.python.version)}"
    return [Reason(code="lock-environment", subject="lock", need=need, have=have, source=SOURCE)]


def _possible_environments(host: Host) -> list[dict[str, str]]:
    """Return the marker variables of the host.

    Where only X.Y of Python is known, they are those of its first and of a last release: locks
    require >=3.12.3 and the like.
    """
    python = host.python
    if python.full_version is not None:
        return [marker_environment(host)]
    environments = []
    for patch in (0, 99):
        full_version = f"{show_pair(python.version)}.{patch}"
        release: Python = python.replace(full_version=full_version)
        environments.append(marker_environment(host.replace(python=release)))
    return environments


def _file_reasons(package: Package, environment: TargetEnvironment) -> list[Reason]:
    """Return why no wheel of a package can be installed on the host; [] if one can."""
    if any(environment.rank(name) is not None for name in _wheel_names(package)):
        return []
    host = environment.host
    subject = f"{package.name} {package.version or ''}".rstrip()
    need = f"a wheel for Python {show_pair(host.python.version)} on {host.platform}"
    code, have = "no-wheel-for-target", _tags_of_wheels(package)
    if package.sdist or package.archive or package.directory or package.vcs:
        code, have = "no-wheel-unknown", "sources, which have to be built there"
    return [Reason(code=code, subject=subject, need=need, have=have, source=SOURCE)]


def _wheel_names(package: Package) -> list[str]:
    names = [wheel.filename for wheel in package.wheels or ()]
    if package.archive is not None and package.archive.url:
        # A requirement may name a wheel by its URL.
        names.append(unquote(package.archive.url.rpartition("/")[2]))
    return names


def _tags_of_wheels(package: Package) -> str:
    tags = set()
    for wheel in package.wheels or ():
        tags.add("-".join(wheel.filename.removesuffix(".whl").split("-")[-3:]))
    return ", ".join(sorted(tags)[:3]) or "no file"
