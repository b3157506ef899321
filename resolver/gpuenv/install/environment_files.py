"""The files of a virtual environment: their owners, a copy by links, and paths in scripts.

Paths are relative to the environment. A package owns the files that its RECORD names.
"""

from __future__ import annotations

import base64
import csv
import glob
import hashlib
import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial

from ..model import Value
from ..requirements.versions import normalize_name

SITES = ("lib/python3*/site-packages", "Lib/site-packages")
_PROGRAMS = ("bin", "Scripts")
_INFO = re.compile(r"([^-]+)-(.+)\.dist-info|([^-]+)(?:-([^-]+))?(?:-py[0-9.]+)?\.egg-info")
_MOST_DIGITS = 20  # of the size of a file
_OUTER_FILE = re.compile(rb"\n(\.\./[^,\n]*),[^\n]*")  # in a RECORD
_CACHED = re.compile(r"(.*/)?__pycache__/([^/]+?)\.[^/]*\.pyc")


class Package(Value):
    """An installed distribution. `info` is its folder of metadata.

    `files` has the files of its RECORD with their sizes, None where the RECORD does not say it.
    """

    name: str
    version: str
    info: str
    files: Mapping[str, int | None]


# ---- owners -------------------------------------------------------------------------------------


def read_packages(prefix: str) -> list[Package]:
    """Return the distributions in an environment, by name. One may be there several times."""
    packages = [
        Package(name=name, version=version, info=info, files=_recorded_files(prefix, info))
        for name, version, info in _distributions(prefix)
    ]
    return sorted(packages, key=lambda package: (package.name, package.info))


def _distributions(prefix: str) -> Iterator[tuple[str, str, str]]:
    """Yield (name, version, folder of metadata) of the distributions in an environment."""
    for site in _sites(prefix):
        for entry in os.listdir(os.path.join(prefix, site)):
            match = _INFO.fullmatch(entry)
            if match is None or entry.startswith("~"):  # pip's name of what it removes
                continue
            name, version = match[1] or match[3], match[2] or match[4] or ""
            yield normalize_name(name), version, f"{site}/{entry}"


def _sites(prefix: str) -> list[str]:
    folders = []
    for pattern in SITES:
        paths = glob.glob(os.path.join(glob.escape(prefix), pattern))
        folders += [os.path.relpath(path, prefix).replace(os.sep, "/") for path in sorted(paths)]
    return folders


def _recorded_files(prefix: str, info: str) -> dict[str, int | None]:
    site, files = os.path.dirname(info), {}
    try:
        with open(os.path.join(prefix, info, "RECORD"), encoding="utf-8", newline="") as file:
            for row in csv.reader(file):
                path = _path_of(site, row[0]) if row else "/"
                if not path.startswith(("../", "/")):
                    files[path] = _size_in(row)
    except (OSError, ValueError, csv.Error):
        return {}
    return files


def _size_in(row: list[str]) -> int | None:
    """Return the size in a row of a RECORD; None if it has none that can be read."""
    text = row[2] if len(row) > 2 else ""
    return int(text) if text.isdecimal() and len(text) < _MOST_DIGITS else None


def _path_of(site: str, name: str) -> str:
    """Return the path of a file that a RECORD in a folder of packages names."""
    if ".." not in name and not name.startswith("/"):
        return f"{site}/{name}"  # most of them: an environment has ten thousands
    return os.path.normpath(os.path.join(site, name)).replace(os.sep, "/")


def record_digest(prefix: str, info: str) -> str:
    """Return the sha256 of a RECORD; "" without one."""
    try:
        with open(os.path.join(prefix, info, "RECORD"), "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def record_digests(prefix: str) -> dict[str, str]:
    """Return {name: sha256 of its RECORD} of the distributions in an environment."""
    return {name: record_digest(prefix, info) for name, _, info in _distributions(prefix)}


def is_unchanged(prefix: str, package: Package, since: int) -> bool:
    """Return whether no file of a package was written after a time, and each has its size.

    A file that is linked or renamed keeps its time, and a file that is written gets a new one.

    Args:
        prefix: The environment.
        package: The package.
        since: The time in nanoseconds, by the clock of the file system.
    """
    for path, size in package.files.items():
        if path.endswith(".pyc"):
            continue
        try:
            status = os.lstat(f"{prefix}/{path}")
        except OSError:
            return False
        if status.st_mtime_ns > since or (size is not None and status.st_size != size):
            return False
    return bool(package.files)


def without_shared_files(kept: Collection[Package], dropped: Collection[Package]) -> list[Package]:
    """Return the packages of `kept` that share no file with one of `dropped`."""
    lost = {path for package in dropped for path in package.files}
    return [package for package in kept if lost.isdisjoint(package.files)]


# ---- a copy by links ----------------------------------------------------------------------------


class _Choice:
    """Which files of an environment a copy has."""

    def __init__(
        self,
        prefix: str,
        kept: Collection[Package],
        dropped: Collection[Package],
        *,
        exact: bool,
        without: str,
    ) -> None:
        self._exact, self._without = exact, without
        self._sites = tuple(f"{site}/" for site in _sites(prefix))
        self._dropped_infos = {package.info for package in dropped}
        self._kept_infos = {package.info for package in kept}
        self._owned = {path: False for package in dropped for path in package.files}
        self._owned |= {path: True for package in kept for path in package.files}

    def is_of_packages(self, folder: str) -> bool:
        return f"{folder}/".startswith(self._sites)

    def has(self, path: str) -> bool:
        owned = self._owned.get(path)
        if owned is not None:
            return owned
        site = next((site for site in self._sites if path.startswith(site)), None)
        if site is None:
            return path != self._without
        top, _, rest = path.removeprefix(site).partition("/")
        if not rest:  # sitecustomize.py, a .pth file
            return site + top not in self._dropped_infos
        if site + top in self._kept_infos:
            return True
        cached = _CACHED.fullmatch(path)
        if cached is not None:
            return self._owned.get(f"{cached[1] or ''}{cached[2]}.py", False)
        return not self._exact and site + top not in self._dropped_infos


def link_environment(
    source: str,
    target: str,
    kept: Collection[Package],
    dropped: Collection[Package],
    *,
    exact: bool,
    without: str,
) -> None:
    """Fill the new folder `target` with hard links to files of an environment.

    It gets the files of the packages of `kept`, and those that no package owns: settings, scripts
    of the user, kernels.

    Args:
        source: The environment.
        target: The folder; it does not exist.
        kept: The packages to link.
        dropped: The other packages.
        exact: Whether folders of packages get only what a package owns.
        without: A file to leave out.
    """
    choice = _Choice(source, kept, dropped, exact=exact, without=without)
    _link_folder(source, target, "", choice)


def _link_folder(source: str, target: str, folder: str, choice: _Choice) -> None:
    """Link the files of one folder and of those in it. The folder is made when it is needed."""
    is_made = False
    own_source, own_target = os.path.join(source, folder), os.path.join(target, folder)
    if not choice.is_of_packages(folder):
        _make_folder(own_source, own_target)
        is_made = True
    with os.scandir(own_source) as entries:
        for entry in entries:
            path = f"{folder}/{entry.name}" if folder else entry.name
            if entry.is_dir(follow_symlinks=False):
                _link_folder(source, target, path, choice)
            elif choice.has(path):
                if not is_made:
                    _make_folder(own_source, own_target)
                    is_made = True
                _link_file(entry, os.path.join(own_target, entry.name))


def _make_folder(source: str, target: str) -> None:
    os.makedirs(target, exist_ok=True)
    os.chmod(target, stat.S_IMODE(os.stat(source).st_mode))


def _link_file(entry: os.DirEntry[str], target: str) -> None:
    if entry.is_symlink():
        os.symlink(os.readlink(entry.path), target)
    elif entry.is_file():  # not a socket or a pipe
        try:
            os.link(entry.path, target)
        except OSError:  # too many links, or the file of another user
            shutil.copy2(entry.path, target)


# ---- paths in scripts ---------------------------------------------------------------------------


def rewrite_paths(prefix: str, replacements: Iterable[tuple[re.Pattern[bytes], bytes]]) -> None:
    """Replace paths in pyvenv.cfg and in the scripts of an environment, and correct the RECORDs.

    A file is replaced, not written to: it can have links in another environment.
    """
    changed = {}
    replacements = list(replacements)
    for path in _texts(prefix):
        with open(os.path.join(prefix, path), "rb") as file:
            data = file.read()
        if b"\0" in data:  # a program, not a script
            continue
        text = data
        for pattern, by in replacements:
            text = pattern.sub(by, text)
        if text != data:
            _replace_file(os.path.join(prefix, path), text)
            changed[path] = text
    _correct_records(prefix, changed)


def _texts(prefix: str) -> Iterator[str]:
    yield "pyvenv.cfg"
    for folder in _PROGRAMS:
        if os.path.isdir(os.path.join(prefix, folder)):
            with os.scandir(os.path.join(prefix, folder)) as entries:
                names = [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
            yield from (f"{folder}/{name}" for name in names)


def _replace_file(path: str, data: bytes) -> None:
    temporary = f"{path}.new"
    with open(temporary, "xb") as file:
        file.write(data)
    shutil.copymode(path, temporary)
    os.replace(temporary, path)


def _correct_records(prefix: str, changed: Mapping[str, bytes]) -> None:
    """Write the hashes and the sizes of changed files into the RECORDs that name them."""
    for site in _sites(prefix) if changed else ():
        pattern = os.path.join(glob.escape(prefix), site, "*.dist-info", "RECORD")
        for record in glob.glob(pattern):
            with open(record, "rb") as file:
                data = file.read()
            if b"../" not in data:  # it names no script
                continue
            correct = partial(_corrected, site=site, changed=changed)
            text = _OUTER_FILE.sub(correct, b"\n" + data)[1:]
            if text != data:
                _replace_file(record, text)


def _corrected(line: re.Match[bytes], site: str, changed: Mapping[str, bytes]) -> bytes:
    """Return a line of a RECORD with the hash and the size that its file has now."""
    data = changed.get(_path_of(site, os.fsdecode(line[1])))
    if data is None:
        return line[0]
    return b"\n%s,%s,%d" % (line[1], _recorded_hash(data).encode(), len(data))


def _recorded_hash(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return f"sha256={digest.rstrip(b'=').decode()}"
