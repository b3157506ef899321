"""The files of a virtual environment: its record, owners, a copy by links, and paths in scripts.

gpuenv.json is the record: what `gpuenv sync` has installed there. Paths are relative to the
environment. A package owns the files that its RECORD names.
"""

from __future__ import annotations

import base64
import csv
import glob
import hashlib
import io
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ..atomic_write import write_whole
from ..model import Value
from ..prefix import RecordRow, read_record, sites
from ..requirements.versions import normalize_name
from ..serialize import file_digest

FILE = "gpuenv.json"
_PROGRAMS = ("bin", "Scripts")
_INFO = re.compile(r"([^-]+)-(.+)\.dist-info|([^-]+)(?:-([^-]+))?(?:-py[0-9.]+)?\.egg-info")
_CACHED = re.compile(r"(.*/)?__pycache__/([^/]+?)\.[^/]*\.pyc")


# ---- the record ---------------------------------------------------------------------------------


class BuiltPackage(NamedTuple):
    """A package of a lock.

    `record` is the sha256 of its RECORD after the installation. `label` says what it was compiled
    for (extensions.label).
    """

    version: str
    sha256: str | None
    record: str
    label: str


class Build(Value, forbid_unknown_fields=False):
    """What `gpuenv sync` has installed.

    `token` names the transaction. `path` is that of the environment: its scripts have it. `made`
    is false for an environment that existed before gpuenv changed it. `verified` tells whether it
    was proved to work. `lock` is the text of the
    lock that the environment holds; "" after a change without a lock.
    """

    made_by: str = "gpuenv"
    token: str
    path: str
    made: bool = True
    verified: bool = False
    lock: str = ""
    packages: dict[str, BuiltPackage]


def read_build(prefix: str) -> Build | None:
    """Return the record of an environment; None if it has none that can be read."""
    try:
        with open(os.path.join(prefix, FILE), "rb") as file:
            return msgspec.json.decode(file.read(), type=Build)
    except (OSError, msgspec.DecodeError):
        return None


def write_build(prefix: str, build: Build) -> None:
    """Write the record of a new environment."""
    write_whole(os.path.join(prefix, FILE), msgspec.json.encode(build))


def write_recorded_lock(prefix: str, lock: str) -> None:
    """Change the lock in the record of an environment, if it has a record with another one.

    The time of the record stays: it is that of the installation.
    """
    build = read_build(prefix)
    if build is not None and build.lock != lock:
        time = _build_time(prefix)
        write_build(prefix, build.replace(lock=lock))
        os.utime(os.path.join(prefix, FILE), ns=(time, time))


def _build_time(prefix: str) -> int:
    """Return when the record was written: after all files of the packages.

    It is in nanoseconds, by the clock of the file system.
    """
    return os.stat(os.path.join(prefix, FILE)).st_mtime_ns


# ---- owners -------------------------------------------------------------------------------------


class Package(Value):
    """An installed distribution. `info` is its folder of metadata.

    `files` has the rows of its RECORD by their paths in the environment.
    """

    name: str
    version: str
    info: str
    files: Mapping[str, RecordRow]


def read_packages(prefix: str) -> list[Package]:
    """Return the distributions in an environment, by name. One may be there several times."""
    packages = []
    for site in _sites(prefix):
        for entry in os.listdir(os.path.join(prefix, site)):
            match = _INFO.fullmatch(entry)
            if match is None or entry.startswith("~"):  # pip's name of what it removes
                continue
            rows = read_record(os.path.join(prefix, site, entry))
            files = {_path_of(site, row.path): row for row in rows}
            package = Package(
                name=normalize_name(match[1] or match[3]),
                version=match[2] or match[4] or "",
                info=f"{site}/{entry}",
                files={
                    path: row for path, row in files.items() if not path.startswith(("../", "/"))
                },
            )
            packages.append(package)
    return sorted(packages, key=lambda package: (package.name, package.info))


def _sites(prefix: str) -> list[str]:
    return [os.path.relpath(site, prefix).replace(os.sep, "/") for site in sites(prefix)]


def _path_of(site: str, name: str) -> str:
    """Return the path of a file that a RECORD in a folder of packages names."""
    return os.path.normpath(os.path.join(site, name)).replace(os.sep, "/")


def record_digest(prefix: str, info: str) -> str:
    """Return the sha256 of a RECORD; "" without one."""
    try:
        return file_digest(os.path.join(prefix, info, "RECORD"))
    except OSError:
        return ""


def shared_files(packages: Iterable[Package]) -> dict[str, dict[str, RecordRow]]:
    """Return the paths that several packages own: {path: {package: the row of its RECORD}}.

    Bytecode and metadata are left out.
    """
    owners: dict[str, dict[str, RecordRow]] = {}
    for package in packages:
        for path, row in package.files.items():
            if not path.endswith(".pyc") and ".dist-info/" not in path:
                owners.setdefault(path, {})[package.name] = row
    return {path: rows for path, rows in owners.items() if len(rows) > 1}


def is_unchanged(
    prefix: str, package: Package, shared: Mapping[str, Mapping[str, RecordRow]]
) -> bool:
    """Return whether no file of a package was written after the record, and each has its size.

    A file that is linked or renamed keeps its time, and a file that is written gets a new one.
    A file of several packages may have the size of any of them: see `shared_files`.
    """
    since = _build_time(prefix)
    for path, own_row in package.files.items():
        if path.endswith(".pyc"):
            continue
        try:
            status = os.lstat(f"{prefix}/{path}")
        except OSError:
            return False
        sizes = {row.size for row in shared.get(path, {"": own_row}).values()}
        if status.st_mtime_ns > since or sizes.isdisjoint(("", str(status.st_size))):
            return False
    return bool(package.files)


# ---- a copy by links ----------------------------------------------------------------------------


def link_environment(
    source: str,
    target: str,
    kept: Collection[Package],
    dropped: Collection[Package],
    *,
    exact: bool,
) -> None:
    """Fill the new folder `target` with hard links to files of an environment.

    It gets the files of the packages of `kept`, and those that no package owns: settings, scripts
    of the user, kernels. It gets no record.

    Args:
        source: The environment.
        target: The folder; it does not exist.
        kept: The packages to link.
        dropped: The other packages.
        exact: Whether folders of packages get only what a package owns.
    """
    folders_of_packages = tuple(f"{site}/" for site in _sites(source))
    is_linked = _rule_for_links(folders_of_packages, kept, dropped, exact=exact)

    def refuse(error: OSError) -> None:
        raise error

    for above, folders, names in os.walk(source, onerror=refuse):
        folder = os.path.relpath(above, source)
        begin = "" if folder == "." else f"{folder}/"
        own = os.path.join(target, folder)
        files = [name for name in folders if os.path.islink(os.path.join(above, name))] + names
        files = [name for name in files if is_linked(begin + name)]
        # A folder of packages is made when it gets a file.
        if files or not begin.startswith(folders_of_packages):
            os.makedirs(own, exist_ok=True)
            os.chmod(own, stat.S_IMODE(os.stat(above).st_mode))
        for name in files:
            old, new = os.path.join(above, name), os.path.join(own, name)
            if os.path.islink(old):
                os.symlink(os.readlink(old), new)
            elif os.path.isfile(old):  # not a socket or a pipe
                try:
                    os.link(old, new)
                except OSError:  # too many links, or the file of another user
                    shutil.copy2(old, new)


def _rule_for_links(
    sites: Sequence[str], kept: Collection[Package], dropped: Collection[Package], *, exact: bool
) -> Callable[[str], bool]:
    """Return what tells whether a path of an environment is linked (see `link_environment`)."""
    dropped_infos = {package.info for package in dropped}
    kept_infos = {package.info for package in kept}
    owned = {path: False for package in dropped for path in package.files}
    owned |= {path: True for package in kept for path in package.files}

    def is_linked(path: str) -> bool:
        if path in owned:
            return owned[path]
        site = next((site for site in sites if path.startswith(site)), None)
        if site is None:
            return path != FILE
        top, _, rest = path.removeprefix(site).partition("/")
        if not rest:  # sitecustomize.py, a .pth file
            return path not in dropped_infos
        if site + top in kept_infos:
            return True
        cached = _CACHED.fullmatch(path)
        if cached is not None:
            return owned.get(f"{cached[1] or ''}{cached[2]}.py", False)
        return not exact and site + top not in dropped_infos

    return is_linked


# ---- paths in scripts ---------------------------------------------------------------------------


def rewrite_paths(prefix: str, replacements: Iterable[tuple[re.Pattern[bytes], bytes]]) -> None:
    """Replace paths in pyvenv.cfg and in the scripts of an environment, and correct the RECORDs.

    A file is replaced, not written to: it can have links in another environment.
    """
    replacements, changed = list(replacements), {}
    paths = ["pyvenv.cfg"]
    for folder in _PROGRAMS:
        if os.path.isdir(os.path.join(prefix, folder)):
            with os.scandir(os.path.join(prefix, folder)) as entries:
                files = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
            paths += [f"{folder}/{name}" for name in files]
    for path in paths:
        with open(os.path.join(prefix, path), "rb") as file:
            data = text = file.read()
        if b"\0" in data:  # a program, not a script
            continue
        for pattern, by in replacements:
            text = pattern.sub(by, text)
        if text != data:
            _replace_file(os.path.join(prefix, path), text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text).digest()).rstrip(b"=").decode()
            changed[path] = RecordRow(path, f"sha256={digest}", str(len(text)))
    for site in _sites(prefix) if changed else ():
        for info in glob.glob(os.path.join(glob.escape(prefix), site, "*.dist-info")):
            rows = read_record(info)
            right = [
                changed.get(_path_of(site, row.path), row)._replace(path=row.path) for row in rows
            ]
            if right != rows:
                lines = io.StringIO()
                csv.writer(lines, lineterminator="\n").writerows(right)
                record = lines.getvalue().encode(errors="surrogateescape")
                _replace_file(os.path.join(info, "RECORD"), record)


def _replace_file(path: str, data: bytes) -> None:
    temporary = f"{path}.new"
    with open(temporary, "xb") as file:
        file.write(data)
    shutil.copymode(path, temporary)
    os.replace(temporary, path)
