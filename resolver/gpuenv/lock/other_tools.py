"""Locks that other tools wrote (`pip lock`, `uv pip compile`, `uv export`), judged for one host."""

from __future__ import annotations

from collections.abc import Set
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ..compat.extensions import may_describe_itself_as
from ..errors import InputError, Reason
from ..model import Host, Value, show_pair
from ..requirements.foreign_locks import export_hint
from ..requirements.target import TargetEnvironment, identify, marker_environment, wheel_tags
from ..serialize import read_toml
from .pylock import validated, with_ordinary_names

if TYPE_CHECKING:
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
    hint = export_hint(path)
    if hint:
        raise InputError(f"{path}: is not a pylock.toml", hint=hint)
    document = read_toml(path)
    described = with_ordinary_names(document)
    try:
        lock = validated(document)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    variables: dict[str, str | Set[str]] = {**marker_environment(host)}
    variables["extras"] = frozenset()
    variables["dependency_groups"] = frozenset(lock.default_groups or ())
    environment = TargetEnvironment(host)
    reasons = _environment_reasons(lock, host)
    pins = []
    for package in lock.packages:
        marker = package.marker
        if marker is not None and not marker.evaluate(variables, context="lock_file"):
            continue
        reasons += _file_reasons(package, environment)
        version = _version(package)
        if version is not None:
            pins.append((str(package.name), version))
    if lock.created_by != "gpuenv":
        for name in described:
            need, have = (
                "a variant wheel that suits the host",
                "a lock of another tool, whose variants are not evaluated",
            )
            reasons.append(_reason("variant-unknown", name, need, have))
    return LockContents(created_by=lock.created_by, pins=tuple(pins), reasons=tuple(reasons))


def _reason(code: str, subject: str, need: str, have: str) -> Reason:
    return Reason(code=code, subject=subject, need=need, have=have, source=SOURCE)


def _environment_reasons(lock: Pylock, host: Host) -> list[Reason]:
    """Return what requires-python and the markers of a lock say against the host."""
    # Where only X.Y of Python is known, its first and a last release are tried: locks require
    # >=3.12.3 and the like.
    python = host.python
    short = show_pair(python.version)
    releases = [python]
    if python.full_version is None:
        releases = [python.replace(full_version=f"{short}.{patch}") for patch in (0, 99)]
    possible = [marker_environment(host.replace(python=release)) for release in releases]
    reasons = []
    required = lock.requires_python
    if required and not any(
        required.contains(variables["python_full_version"]) for variables in possible
    ):
        reasons.append(_reason("lock-python", "lock", f"Python {required}", f"Python {short}"))
    markers = lock.environments or ()
    if markers and not any(
        marker.evaluate(dict(variables), context="requirement")
        for variables in possible
        for marker in markers
    ):
        need, have = " or ".join(map(str, markers)), f"{host.platform}, Python {short}"
        reasons.append(_reason("lock-environment", "lock", need, have))
    return reasons


def _version(package: Package) -> str | None:
    """Return the version of a package. The name of a wheel at a URL may add a build of torch."""
    version = None if package.version is None else str(package.version)
    named = identify(_archive_name(package))
    if named is not None and (version is None or may_describe_itself_as(named[1], version)):
        return named[1]
    return version


def _archive_name(package: Package) -> str:
    """Return the name of the file at the URL of a package; "" without one."""
    archive = package.archive
    url = archive.url if archive is not None else None
    return unquote((url or "").rpartition("/")[2])


def _file_reasons(package: Package, environment: TargetEnvironment) -> list[Reason]:
    """Return why no wheel of a package can be installed on the host; [] if one can."""
    names = [wheel.filename for wheel in package.wheels or ()]
    names += filter(None, [_archive_name(package)])  # a requirement may name a wheel by its URL
    if any(environment.rank(name) is not None for name in names):
        return []
    host = environment.host
    subject = f"{package.name} {package.version or ''}".rstrip()
    need = f"a wheel for Python {show_pair(host.python.version)} on {host.platform}"
    if package.sdist or package.archive or package.directory or package.vcs:
        have = "sources, which have to be built there"
        return [_reason("no-wheel-unknown", subject, need, have)]
    tags = sorted({wheel_tags(wheel.filename) for wheel in package.wheels or ()})
    return [_reason("no-wheel-for-target", subject, need, ", ".join(tags[:3]) or "no file")]
