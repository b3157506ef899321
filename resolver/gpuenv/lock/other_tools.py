"""Locks that other tools wrote, judged for one host, and the files that they install there.

PEP 751 (`pip lock`, `uv pip compile`, `uv export`) is read here; `foreign` reads the formats of uv,
poetry, pdm, pipenv and pip.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from typing import TYPE_CHECKING
from urllib.parse import unquote

from ..compat.extensions import may_describe_itself_as
from ..errors import InputError, Reason
from ..index.urls import redact_url, split_credentials
from ..model import Host, Lock, Needs, Pin, Value, Wheel, show_pair
from ..requirements.target import (
    SDIST_RANK,
    SDIST_SUFFIXES,
    TargetEnvironment,
    contains,
    identify,
    marker_environment,
    wheel_tags,
)
from ..serialize import read_toml
from . import foreign, grammar
from .foreign import LockedFile, LockedPackage
from .pylock import DIRECT, host_to_lock, validated, with_ordinary_names

if TYPE_CHECKING:
    from packaging.pylock import Package, Pylock

SOURCE = "PEP 751"


class LockContents(Value):
    """What a lock of any tool installs on one host.

    `reasons` are what the files and markers of the lock say against the host. `indexes` may supply
    every package.
    """

    path: str
    created_by: str
    packages: tuple[LockedPackage, ...]
    reasons: tuple[Reason, ...] = ()
    indexes: tuple[str, ...] = ()

    @property
    def pins(self) -> tuple[tuple[str, str], ...]:
        """(name, version); a package without a version (a folder, a repository) is left out."""
        pins = [(package.name, _version(package)) for package in self.packages]
        return tuple((name, version) for name, version in pins if version is not None)


def read_any_lock(
    path: str, host: Host, extras: Sequence[str] = (), groups: Sequence[str] = ()
) -> LockContents:
    """Return what a lock of any tool installs: what the project needs, and its default groups.

    Reason codes: lock-environment, lock-python, no-wheel-for-target, no-wheel-unknown (it must be
    built).

    Args:
        path: the lock.
        host: the host.
        extras: the extras of the project to add.
        groups: the dependency groups to add.

    Raises:
        InputError: The file is no such lock, or a file in a PEP 751 lock has no hash.
    """
    environment = TargetEnvironment(host)
    if foreign.tool_of(path) not in ("", "pylock"):
        lock = foreign.select(path, host, extras, groups)
        reasons = _python_reasons(lock.requires_python, host)
        if lock.left_out:
            have = f"its extras are left out ({', '.join(lock.left_out)}); --extra NAME adds one"
            reasons.append(_reason("left-out", "lock", "", have))
        for package in lock.packages:
            if not package.hashes:
                reasons += _file_reasons(package, environment)
        return LockContents(
            path=path,
            created_by=lock.created_by,
            packages=lock.packages,
            reasons=tuple(reasons),
            indexes=lock.indexes,
        )
    return _read_pylock(path, environment, extras, groups)


def _read_pylock(
    path: str, environment: TargetEnvironment, extras: Sequence[str], groups: Sequence[str]
) -> LockContents:
    host, document = environment.host, read_toml(path)
    described = with_ordinary_names(document)
    try:
        lock = validated(document)
    except ValueError as error:
        raise InputError(f"{path}: {error}") from None
    variables: dict[str, str | Set[str]] = {**marker_environment(host)}
    variables["extras"] = frozenset(extras)
    variables["dependency_groups"] = frozenset((*(lock.default_groups or ()), *groups))
    reasons = _environment_reasons(lock, host)
    packages = []
    for entry in lock.packages:
        marker = entry.marker
        if marker is None or marker.evaluate(variables, context="lock_file"):
            package = _locked_package(entry, path)
            reasons += _file_reasons(package, environment)
            packages.append(package)
    if lock.created_by != "gpuenv":
        for name in described:
            need, have = (
                "a variant wheel that suits the host",
                "a lock of another tool, whose variants are not evaluated",
            )
            reasons.append(_reason("variant-unknown", name, need, have))
    return LockContents(
        path=path, created_by=lock.created_by, packages=tuple(packages), reasons=tuple(reasons)
    )


def _locked_package(entry: Package, path: str) -> LockedPackage:
    from packaging.pylock import PackageArchive  # a solve does not read locks

    files = []
    for file in (*(entry.wheels or ()), entry.sdist, entry.archive):
        if file is not None:
            url = file.url or foreign.beside(path, file.path or "")
            name = unquote(url.rpartition("/")[2])
            if not isinstance(file, PackageArchive):
                name = file.filename
            digest = file.hashes.get("sha256", "")
            files.append(LockedFile(filename=name, url=url, sha256=digest, size=file.size))
    return LockedPackage(
        name=str(entry.name),
        version=None if entry.version is None else str(entry.version),
        index=DIRECT if entry.archive else entry.index or "",
        files=tuple(files),
        sources="a repository" if entry.vcs else "a folder" if entry.directory else "",
    )


def _reason(code: str, subject: str, need: str, have: str) -> Reason:
    return Reason(code=code, subject=subject, need=need, have=have, source=SOURCE)


def _possible(host: Host) -> list[dict[str, str]]:
    """Return the variables of a host.

    Where only X.Y of Python is known, its first and a last release are tried: locks require
    >=3.12.3 and the like.
    """
    python = host.python
    short = show_pair(python.version)
    releases = [python]
    if python.full_version is None:
        releases = [python.replace(full_version=f"{short}.{patch}") for patch in (0, 99)]
    return [marker_environment(host.replace(python=release)) for release in releases]


def _python_reasons(required: str, host: Host) -> list[Reason]:
    pythons = [variables["python_full_version"] for variables in _possible(host)]
    if not required or any(contains(required, python) for python in pythons):
        return []
    have = f"Python {show_pair(host.python.version)}"
    return [_reason("lock-python", "lock", f"Python {required}", have)]


def _environment_reasons(lock: Pylock, host: Host) -> list[Reason]:
    """Return what requires-python and the markers of a lock say against the host."""
    possible, short = _possible(host), show_pair(host.python.version)
    reasons = _python_reasons(str(lock.requires_python or ""), host)
    markers = lock.environments or ()
    if markers and not any(
        marker.evaluate(dict(variables), context="requirement")
        for variables in possible
        for marker in markers
    ):
        need, have = " or ".join(map(str, markers)), f"{host.platform}, Python {short}"
        reasons.append(_reason("lock-environment", "lock", need, have))
    return reasons


def _version(package: LockedPackage) -> str | None:
    """Return the version of a package. The name of a wheel at a URL may add a build of torch."""
    named = identify(package.files[0].filename) if package.index == DIRECT else None
    version = package.version
    if named is not None and (version is None or may_describe_itself_as(named[1], version)):
        return named[1]
    return version


def _file_reasons(package: LockedPackage, environment: TargetEnvironment) -> list[Reason]:
    """Return why no wheel of a package can be installed on the host; [] if one can."""
    names = [file.filename for file in package.files]
    if any(environment.rank(name) is not None for name in names):
        return []
    host = environment.host
    subject = f"{package.name} {package.version or ''}".rstrip()
    need = f"a wheel for Python {show_pair(host.python.version)} on {host.platform}"
    if (
        package.sources
        or package.index == DIRECT
        or any(name.endswith(SDIST_SUFFIXES) for name in names)
    ):
        have = "sources, which have to be built there"
        return [_reason("no-wheel-unknown", subject, need, have)]
    tags = sorted(set(map(wheel_tags, names)))
    return [_reason("no-wheel-for-target", subject, need, ", ".join(tags[:3]) or "no file")]


# ---- what is installed ---------------------------------------------------------------------------

FindFiles = Callable[[LockedPackage], Sequence[Wheel]]  # asks the index of a package


def lock_of(contents: LockContents, host: Host, find: FindFiles | None) -> Lock:
    """Return the lock of the files that a lock of another tool installs on a host.

    Args:
        contents: what it installs there.
        host: the host.
        find: returns the files of a package that its index has, those with a sha256 of the lock.
            None makes a lock of names and versions, to compare an environment with.

    Raises:
        InputError: A package has no file for the host, or the file has no sha256 or no place.
    """
    if find is None:
        wheels = [
            Wheel(name=name, version=version, filename="", url="", sha256=None)
            for name, version in contents.pins
        ]
    else:
        environment = TargetEnvironment(host)
        try:
            wheels = [_chosen(package, environment, find) for package in contents.packages]
        except ValueError as error:
            raise InputError(f"{contents.path}: {error}") from None
    glibcs = [TargetEnvironment(host).least_glibc(wheel.filename) for wheel in wheels]
    needs = Needs(
        glibc=max(filter(None, glibcs), default=None),
        python=host.python.version,
        platform=host.platform,
    )
    pins = tuple(Pin(wheel=wheel) for wheel in sorted(wheels, key=lambda wheel: wheel.name))
    return Lock(pins=pins, needs=needs, choices=(), host=host_to_lock(host), frameworks=())


def _chosen(package: LockedPackage, environment: TargetEnvironment, find: FindFiles) -> Wheel:
    """Return the file of a package that fits the host best: a wheel, or sources to build.

    Raises:
        ValueError: there is none, or its texts are not what they should be.
    """
    name, version, files = package.name, _version(package), package.files
    if package.sources or version is None:
        sources = package.sources or "of no version"
        raise ValueError(f"package {name} is {sources}: it has no file with a sha256")
    if package.hashes or not all(file.url for file in files):
        files = tuple(
            LockedFile(
                filename=file.filename, url=file.url, sha256=file.sha256 or "", size=file.size
            )
            for file in find(package)
        )
    ranks: dict[int, LockedFile] = {}
    for file in files:
        rank = environment.rank(file.filename)
        if rank is None and file.filename.endswith(SDIST_SUFFIXES):
            rank = SDIST_RANK
        if rank is not None:
            ranks.setdefault(rank, file)
    if not ranks:
        raise ValueError(f"package {name} {version} has no file for this host that can be found")
    file = ranks[min(ranks)]
    named_as = identify(file.filename)
    if named_as is None or named_as[0] != name or not may_describe_itself_as(named_as[1], version):
        raise ValueError(f"package {name} {version}: {file.filename} is a file of another release")
    for url in (file.url, package.index):
        if split_credentials(url)[1] is not None:
            message = (
                f"package {name}: {redact_url(url)} has credentials, which a record would show"
            )
            raise ValueError(f"{message}; put them into ~/.netrc")
    wheel = Wheel(
        name=name,
        version=version,
        filename=file.filename,
        url=file.url,
        sha256=grammar.check_sha256(name, file.sha256),
        size=file.size,
        index=package.index,
    )
    grammar.check_wheel(wheel)
    return wheel
