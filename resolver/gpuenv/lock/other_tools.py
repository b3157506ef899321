"""Locks that other tools wrote (`pip lock`, `uv pip compile`, `uv export`): what they say for one host."""

from __future__ import annotations

from packaging.pylock import Package, Pylock

from ..errors import InputError, Reason
from ..model import Host, Python, Value, show_pair
from ..requirements.target import TargetEnvironment, marker_environment
from ..serialize import read_toml

SOURCE = "PEP 751"


class Others(Value):
    """What a lock installs on a host: (name, version) of its packages, and what its files and markers say against it.

    A package without a version (a folder, a repository) is not among the pins.
    """

    created_by: str
    pins: tuple[tuple[str, str], ...]
    reasons: tuple[Reason, ...] = ()


def read_others(path: str, host: Host) -> Others:
    """The lock of any tool, its default groups and no extras. InputError for a file that is no PEP 751 lock.

    Reasons: lock-environment, lock-python, no-wheel-for-target, no-hash, no-wheel-unknown (it has to be built).
    """
    from packaging.pylock import Pylock, PylockUnsupportedVersionError, PylockValidationError

    data = read_toml(path)
    try:
        lock = Pylock.from_dict(data)
    except (PylockValidationError, PylockUnsupportedVersionError) as error:
        raise InputError(f"{path}: is not a valid lock: {' '.join(str(error).split())}") from None
    variables = marker_environment(host)
    groups = {"extras": frozenset(), "dependency_groups": frozenset(lock.default_groups or ())}
    chosen = [
        package
        for package in lock.packages
        if package.marker is None or package.marker.evaluate({**variables, **groups}, context="lock_file")
    ]
    environment = TargetEnvironment(host)
    reasons = [*_about_target(lock, host), *(r for one in chosen for r in _about_files(one, environment))]
    return Others(
        created_by=lock.created_by,
        pins=tuple((package.name, str(package.version)) for package in chosen if package.version is not None),
        reasons=tuple(reasons),
    )


def _about_target(lock: Pylock, host: Host) -> list[Reason]:
    found = []
    targets = [marker_environment(host.replace(python=one)) for one in _releases(host.python)]
    asked = lock.requires_python
    if asked is not None and not any(asked.contains(one["python_full_version"]) for one in targets):
        need, have = f"Python {lock.requires_python}", f"Python {show_pair(host.python.version)}"
        found.append(Reason(code="lock-python", subject="lock", need=need, have=have, source=SOURCE))
    markers = lock.environments or ()
    if markers and not any(one.evaluate({**env}, context="requirement") for one in markers for env in targets):
        need = " or ".join(map(str, markers))
        have = f"{host.platform}, Python {show_pair(host.python.version)}"
        found.append(Reason(code="lock-environment", subject="lock", need=need, have=have, source=SOURCE))
    return found


def _releases(python: Python) -> tuple[Python, ...]:
    """The interpreter, or the first and a last release where only X.Y is known: locks ask for >=3.12.3 and the like."""
    if python.full_version is not None:
        return (python,)
    short = show_pair(python.version)
    return tuple(python.replace(full_version=f"{short}.{third}") for third in (0, 99))


def _about_files(package: Package, environment: TargetEnvironment) -> list[Reason]:
    """The wheel that the host would take, and whether every file has a hash."""
    from urllib.parse import unquote

    subject, found = f"{package.name} {package.version or ''}".rstrip(), []
    wheels = list(package.wheels or ())
    rest = [one for one in (package.sdist, package.archive) if one is not None]
    if any(not one.hashes for one in (*wheels, *rest)):
        need, have = "a hash of every file", "a file without one"
        found.append(Reason(code="no-hash", subject=subject, need=need, have=have, source=SOURCE))
    names = [wheel.filename for wheel in wheels]
    if package.archive is not None and package.archive.url:  # a wheel that a requirement named by its URL
        names.append(unquote(package.archive.url.rpartition("/")[2]))
    if any(environment.rank(name) is not None for name in names):
        return found
    python, platform = show_pair(environment.host.python.version), environment.host.platform
    need = f"a wheel for Python {python} on {platform}"
    if rest or package.directory is not None or package.vcs is not None:
        have, code = "sources, which have to be built there", "no-wheel-unknown"
    else:
        tags = sorted({"-".join(wheel.filename.removesuffix(".whl").split("-")[-3:]) for wheel in wheels})
        have, code = ", ".join(tags[:3]) or "no file", "no-wheel-for-target"
    return [*found, Reason(code=code, subject=subject, need=need, have=have, source=SOURCE)]
