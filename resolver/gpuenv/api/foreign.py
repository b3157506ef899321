"""Locks of other tools as locks that `sync` installs and `verify` compares an environment with."""

from __future__ import annotations

from collections.abc import Sequence

from ..compat import evaluate
from ..compat.data import compatibility_data
from ..errors import HostMismatchError, is_doubt
from ..index.default_index import builtin_index
from ..index.multi_index import MultiIndex, open_indexes
from ..lock.foreign import LockedPackage, tool_of
from ..lock.other_tools import lock_of, read_any_lock
from ..model import Choice, CudaVersion, Host, IndexOptions, Lock, Wheel
from ..requirements.versions import same_version


def is_tool_lock(path: str) -> bool:
    """Return whether a file is a lock of wheels that another tool wrote; False if there is none."""
    return bool(tool_of(path))


def read_tool_lock(
    path: str,
    host: Host,
    options: IndexOptions | None = None,
    extras: Sequence[str] = (),
    groups: Sequence[str] = (),
) -> Lock:
    """Read what a lock of another tool installs on a host.

    Args:
        path: the lock.
        host: the host.
        options: where the files are looked for that the lock has no URL of. None makes a lock that
            an environment is only compared with.
        extras: the extras of the project to add.
        groups: its dependency groups to add.

    Raises:
        InputError: it is no such lock, or a file has no sha256 or no place.
        HostMismatchError: with `options`, a rule refuses the lock on the host.
        PackageIndexError: an index did not answer.
    """
    contents = read_any_lock(path, host, extras, groups)
    data = compatibility_data()
    if options is None:
        return _with_builds(lock_of(contents, host, None), host)
    reasons = (*contents.reasons, *evaluate.pin_reasons(contents.pins, host, data))
    failures = tuple(reason for reason in reasons if not is_doubt(reason))
    if failures:
        hint = f"gpuenv explain {path} has what helps"
        if all(reason.code == "cpu-build" for reason in failures):
            hint = "if the CPU is meant: --gpu none"
        message = f"{path} does not work on this host; nothing was installed"
        raise HostMismatchError(message, failures, hint=hint)
    options = options.replace(extra_index_urls=(*options.extra_index_urls, *contents.indexes))
    indexes: dict[str, MultiIndex] = {}

    def find(package: LockedPackage) -> list[Wheel]:
        if package.index not in indexes:
            # The user's default index stands for pip's built-in one, which may not be reachable.
            is_default = package.index.rstrip("/") in ("", builtin_index()[0].rstrip("/"))
            where = options if is_default else options.replace(index_url=package.index)
            indexes[package.index] = open_indexes(where, python=host.python)[1]
        index, hashes = indexes[package.index], {*package.hashes}
        hashes |= {file.sha256 for file in package.files}
        files = [file for file in index.files(package.name) if file.sha256 in hashes]
        if not files and index.widen(package.name):  # the snapshot lacks the release
            files = [file for file in index.files(package.name) if file.sha256 in hashes]
        version = package.version or ""
        return [file for file in files if same_version(file.version, version)]

    return _with_builds(lock_of(contents, host, find), host)


def _with_builds(lock: Lock, host: Host) -> Lock:
    """Return a lock with the builds of its frameworks, and with what they need of a host."""
    data = compatibility_data()
    versions = lock.versions
    cudnn = next((versions[name] for name in versions if name.startswith("nvidia-cudnn-")), None)
    toolkits: list[CudaVersion] = []
    codes, choices = [], []
    for package in evaluate.packages_of_pins(versions.items(), host.platform, data):
        build, library = package.build, package.library
        toolkits += [known.cuda for known in (build, library) if known and known.cuda]
        if library is not None:
            codes.append(library.code)
        if build is not None and package.on_path:
            codes.append(build.code)
            choices.append(Choice.of_build(package.framework, build, cudnn))
    needs = lock.needs
    if host.gpus and toolkits:
        needs = evaluate.needs_of_gpus(needs, toolkits, codes, host, data)
    return lock.replace(choices=tuple(choices), needs=needs)
