"""Read the device code of every file in a folder or an environment, with the owners of the files.

Nothing is run. The distribution of a file is that of the RECORD which names it; of a file in an
editable project it is that project. Reading the 1,200 libraries of three environments with torch
(14 GB) takes 5 s, because payloads are not read.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Sequence
from urllib.parse import unquote, urlsplit

from ..model import Value
from ..prefix import (
    conda_files,
    conda_packages,
    editable_url,
    find_interpreter,
    is_conda,
    prefix_of,
    read_record,
    sites,
)
from ..requirements.target import normalize_name
from .device_code import DamagedFileError, Images, read_file

_FILE = re.compile(r"\.(so(\.\d+)*|dll|pyd|cubin|fatbin)$")
# Tests of a distribution carry code for devices that they only pretend to have. The folder build of
# a project has copies.
_SKIPPED = frozenset({"test", "tests", "__pycache__"})
_SKIPPED_OF_PROJECT = _SKIPPED | {"build"}

Progress = Callable[[str], None]


class CodeFile(Value):
    """A file with device code.

    Attributes:
        path: the file, or the path in a wheel.
        owner: "NAME VERSION" of its distribution or editable project, or "".
        images: its device code.
        fault: why it could not be read, or "".
    """

    path: str
    owner: str = ""
    images: Images = Images()
    fault: str = ""


class Contents(Value):
    """The files with device code in a folder, an environment or a wheel.

    `read` counts all files that may have some. `complete` is false if the time was over before all
    of them were read.
    """

    files: tuple[CodeFile, ...]
    read: int
    complete: bool = True


class _Root(Value):
    """A folder to search. `project` is the owner of all files of an editable project's folder."""

    folder: str
    project: str = ""
    deep: bool = True  # also its folders


def scan_environment(
    target: str,
    *,
    more: Sequence[str] = (),
    deadline: float = float("inf"),
    progress: Progress | None = None,
) -> Contents:
    """Read the files of an environment, or of a folder that is none.

    Args:
        target: a folder, or the interpreter of an environment.
        more: further folders of packages.
        deadline: time.monotonic when reading stops.
        progress: is called with a line for each file that takes long.
    """
    prefix = prefix_of(os.path.abspath(target))
    roots, owners, of_conda = [_Root(folder=prefix)], {}, is_conda(prefix)
    if find_interpreter(prefix) is not None:
        folders: dict[str, str] = {}  # each once
        for folder in (*sites(prefix), *filter(os.path.isdir, more)):
            folders.setdefault(os.path.realpath(folder), folder)
        roots = [_Root(folder=folder) for folder in folders.values()]
        if of_conda:
            roots.append(_Root(folder=os.path.join(prefix, "lib"), deep=False))
    for name, record in conda_packages(prefix).items() if of_conda else ():
        for path in filter(is_code_file, conda_files(prefix, record)):
            owners[path] = f"{name} {record.get('version')}"
    paths = _owned_files(roots, owners)
    files: list[CodeFile] = []
    slow = time.monotonic() + 1.0
    for number, (path, owner) in enumerate(paths, 1):
        if time.monotonic() > deadline:
            return Contents(files=tuple(files), read=number - 1, complete=False)
        if progress is not None and time.monotonic() > slow:
            progress(f"reading device code: {number} of {len(paths)} files")
            slow = time.monotonic() + 2.0
        code_file = _read(path, owner)
        if code_file is not None:
            files.append(code_file)
    return Contents(files=tuple(files), read=len(paths))


def is_code_file(name: str) -> bool:
    """Return whether a file may have device code, by its name."""
    return _FILE.search(name) is not None


def owner_of(name: str) -> str:
    """Return "NAME VERSION" for the file name of a wheel or of a folder of metadata."""
    distribution, version, *_ = [*name.removesuffix(".dist-info").split("-"), ""]
    return f"{normalize_name(distribution)} {version}"


def _owned_files(roots: list[_Root], owners: dict[str, str]) -> list[tuple[str, str]]:
    """Return (path, owner) of every file that may have device code; a linked file once.

    Args:
        roots: the folders to search. Those of editable projects are added.
        owners: the owners that are known, by path. Those of the RECORDs are added.
    """
    places: dict[tuple[int, int], tuple[str, _Root]] = {}
    for root in roots:
        skipped = _SKIPPED_OF_PROJECT if root.project else _SKIPPED
        for folder, folders, names in os.walk(root.folder):
            for name in () if root.project else sorted(folders):
                if name.endswith(".dist-info"):
                    info, owner = os.path.join(folder, name), owner_of(name)
                    for row in read_record(info):
                        if is_code_file(row.path):
                            path = os.path.normpath(os.path.join(folder, row.path))
                            owners.setdefault(path, owner)
                    roots += _editable(info, owner)
            kept = [name for name in folders if name not in skipped and not name.startswith(".")]
            folders[:] = sorted(kept) if root.deep else []
            for name in filter(is_code_file, sorted(names)):
                path = os.path.join(folder, name)
                try:
                    status = os.stat(path)
                except OSError:
                    continue
                places.setdefault((status.st_dev, status.st_ino), (path, root))
    return [(path, owners.get(path, root.project)) for path, root in places.values()]


def _editable(info: str, owner: str) -> list[_Root]:
    """Return the folder of the project that a distribution is installed from in editable mode."""
    scheme, _, path, *_ = urlsplit(editable_url(info))
    folder = unquote(path)
    if scheme != "file" or not os.path.isdir(folder):
        return []
    return [_Root(folder=folder, project=owner)]


def _read(path: str, owner: str) -> CodeFile | None:
    """Return a file if it has device code, or may have some and is damaged."""
    try:
        images = read_file(path)
    except DamagedFileError as error:
        with open(path, "rb") as file:
            is_elf = file.read(4) == b"\x7fELF"
        # A linker script or an empty stand-in ends in .so, too.
        return CodeFile(path=path, owner=owner, fault=str(error)) if is_elf else None
    except OSError as error:
        return CodeFile(path=path, owner=owner, fault=f"it cannot be read: {error.strerror}")
    if images is None or not (images.sass or images.ptx):
        return None
    return CodeFile(path=path, owner=owner, images=images)
