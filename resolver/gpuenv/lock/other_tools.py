"""Locks that other tools wrote, judged for one host, and the files that they install there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..compat.extensions import may_describe_itself_as
from ..errors import InputError, Reason, error_text
from ..index.protocol import DIRECT_URL
from ..index.urls import redact_url, split_credentials
from ..model import Host, Lock, Needs, Pin, Wheel, show_pair
from ..requirements.target import (
    SDIST_RANK,
    SDIST_SUFFIXES,
    TargetEnvironment,
    contains,
    identify,
    marker_environment,
    version_key,
    wheel_tags,
)
from ..serialize import read_toml
from . import flat_locks, grammar, poetry_lock, uv_lock
from .foreign import LockContents, LockedFile, LockedPackage, Wanted, parsed, tool_of
from .pylock import host_to_lock, tree_wheel

_reason = partial(Reason, source="PEP 751")
_READERS: dict[str, Callable[[dict[str, Any], Wanted], LockContents]] = {
    "uv": uv_lock.read,
    "poetry": poetry_lock.read,
    "pdm": flat_locks.of_pdm,
    "pipenv": flat_locks.of_pipenv,
    "pylock": flat_locks.of_pylock,
}
# The commands that write what is read in any case.
_EXPORTS = {
    "uv": "uv export --format pylock.toml -o pylock.toml",
    "poetry": poetry_lock.EXPORT,
    "pdm": flat_locks.PDM_EXPORT,
    "pipenv": "pipenv requirements --hash > requirements.txt",
}


def read_any_lock(
    path: str, host: Host, extras: Sequence[str] = (), groups: Sequence[str] = ()
) -> LockContents:
    """Return what a lock of any tool installs: what the project needs, and its default groups.

    Reason codes: lock-environment, lock-python, left-out, variant-unknown, no-wheel-for-target,
    no-wheel-unknown (it must be built).

    Args:
        path: the lock.
        host: the host.
        extras: the extras of the project to add.
        groups: the dependency groups to add.

    Raises:
        InputError: it cannot be read, or what it installs on one host does not follow from it.
    """
    tool, wanted = tool_of(path) or "pylock", Wanted(path, host, extras, groups)
    try:
        if tool == "pip":
            contents = flat_locks.of_requirements(wanted)
        elif tool == "pylock":
            contents = flat_locks.of_pylock(read_toml(path), wanted)
        else:
            contents = _READERS[tool](parsed(path), wanted)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        message = error_text(error)[:300]
        if tool == "pylock":
            raise InputError(f"{path}: {message}") from None
        hint = f"lock it again, or export it: {_EXPORTS[tool]}" if tool in _EXPORTS else ""
        message = f"{path}: is no lock of {tool} that can be read: {message}"
        raise InputError(message, hint=hint) from None
    names = set()
    for package in contents.packages:
        try:
            version_key(package.version or "0")
        except InputError as error:
            raise InputError(f"{path}: package {package.name}: {error.message}") from None
        if package.name in names:
            hint = "name the extras and groups that decide: --extra NAME, --group NAME"
            raise InputError(f"{path}: has two versions of {package.name} for this host", hint=hint)
        names.add(package.name)
    contents = contents.replace(path=path, left_out=wanted.left_out)
    return contents.replace(reasons=tuple(_reasons(contents, host)))


def _reasons(contents: LockContents, host: Host) -> list[Reason]:
    """Return what the files and markers of a lock say against the host."""
    # Where only X.Y of Python is known, its first and a last release are tried: locks require
    # >=3.12.3 and the like.
    python, short = host.python, show_pair(host.python.version)
    releases = [python]
    if python.full_version is None:
        releases = [python.replace(full_version=f"{short}.{patch}") for patch in (0, 99)]
    possible = [marker_environment(host.replace(python=release)) for release in releases]
    reasons = []
    required, markers = contents.requires_python, contents.environments
    if required and not any(contains(required, row["python_full_version"]) for row in possible):
        reasons.append(_reason("lock-python", "lock", f"Python {required}", f"Python {short}"))
    if markers and not any(
        marker.evaluate(dict(variables), context="requirement")
        for variables in possible
        for marker in markers
    ):
        need, have = " or ".join(map(str, markers)), f"{host.platform}, Python {short}"
        reasons.append(_reason("lock-environment", "lock", need, have))
    if contents.left_out:
        have = f"its extras are left out ({', '.join(contents.left_out)}); --extra NAME adds one"
        reasons.append(_reason("left-out", "lock", "", have))
    environment = TargetEnvironment(host)
    for package in contents.packages:
        if not package.hashes:
            reasons += _file_reasons(package, environment)
    for name in contents.variants:
        need = "a variant wheel that suits the host"
        have = "a lock of another tool, whose variants are not evaluated"
        reasons.append(_reason("variant-unknown", name, need, have))
    return reasons


def _file_reasons(package: LockedPackage, environment: TargetEnvironment) -> list[Reason]:
    """Return why no wheel of a package can be installed on the host; [] if one can."""
    names = [file.filename for file in package.files]
    if any(environment.rank(name) is not None for name in names):
        return []
    host = environment.host
    subject = f"{package.name} {package.version or ''}".rstrip()
    need = f"a wheel for Python {show_pair(host.python.version)} on {host.platform}"
    if package.url or any(name.endswith(SDIST_SUFFIXES) for name in names):
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
    name, version = package.name, package.release
    files: Sequence[LockedFile | Wheel] = package.files
    if version is None:
        raise ValueError(f"package {name} has no version in the lock: its build decides it")
    if package.is_source_tree:
        return tree_wheel(name, version, package.url)
    if package.hashes or not all(file.url for file in files):
        files = find(package)
    ranks: dict[int, LockedFile | Wheel] = {}
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
        index=DIRECT_URL if package.url else package.index,
    )
    grammar.check_wheel(wheel)
    return wheel
