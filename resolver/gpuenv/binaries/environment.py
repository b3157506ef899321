"""Read the device code of every file in a folder or an environment, with the owners of the files.

Nothing is run. The distribution of a file is that of the RECORD which names it; of a file in an
editable project it is that project. What was read is cached by the identity of the file (device,
inode, size, time of the last change), so that a second scan reads only what changed.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from urllib.parse import unquote, urlsplit

from ..index.cache import Cache
from ..model import Value
from ..prefix import find_interpreter, is_conda, read_record, sites
from ..requirements.target import normalize_name
from .device_code import read_file
from .fat_binaries import DamagedFileError, Images

_FILE = re.compile(r"\.(so(\.\d+)*|dll|pyd|cubin|fatbin)$")
# Tests of a distribution carry code for devices that they only pretend to have. The folder build of
# a project has copies.
_SKIPPED = frozenset({"test", "tests", "__pycache__"})
_SKIPPED_OF_PROJECT = _SKIPPED | {"build"}
_KIND = "device-code"  # of the cache

Progress = Callable[[str], None]


class CodeFile(Value):
    """A file with device code.

    Attributes:
        path: the file, or the path in a wheel.
        owner: "NAME VERSION" of its distribution, "NAME" of an editable project, or "".
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
    """A folder to search, and the owner of what no RECORD names there."""

    folder: str
    owner: str = ""
    deep: bool = True  # also its folders
    project: bool = False  # an editable project


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
    prefix = os.path.abspath(target)
    if not os.path.isdir(prefix):
        prefix = os.path.dirname(os.path.dirname(prefix))
    roots = [_Root(folder=prefix)]
    if find_interpreter(prefix) is not None:
        folders = [*sites(prefix), *filter(os.path.isdir, more)]
        roots = [_Root(folder=folder) for folder in folders]
        if is_conda(prefix):
            roots.append(_Root(folder=os.path.join(prefix, "lib"), deep=False))
    owners: dict[str, str] = {}
    if is_conda(prefix):
        owners.update(_conda_owners(prefix))
    for root in list(roots):
        for info in _metadata_folders(root):
            owners.update(_recorded(info))
            roots += _editable(info)
    paths = list(_paths(roots, owners))
    return _read_all(paths, deadline, progress)


def is_code_file(name: str) -> bool:
    """Return whether a file may have device code, by its name."""
    return _FILE.search(name) is not None


# ---- which files ---------------------------------------------------------------------------------


def _paths(roots: Sequence[_Root], owners: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield (path, owner) of every file that may have device code; a linked file once."""
    seen: set[tuple[int, int]] = set()
    for root in roots:
        for path in _files(root):
            try:
                status = os.stat(path)
            except OSError:
                continue
            if (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                yield path, owners.get(path, root.owner)


def _files(root: _Root) -> Iterator[str]:
    skipped = _SKIPPED_OF_PROJECT if root.project else _SKIPPED
    for folder, folders, names in os.walk(root.folder):
        kept = [name for name in folders if name not in skipped and not name.startswith(".")]
        folders[:] = sorted(kept) if root.deep else []
        for name in sorted(names):
            if is_code_file(name):
                yield os.path.join(folder, name)


# ---- owners --------------------------------------------------------------------------------------


def _metadata_folders(root: _Root) -> Iterator[str]:
    """Yield the folders NAME-VERSION.dist-info in a root; of a deep folder also those below."""
    for folder, folders, _ in os.walk(root.folder):
        infos = [name for name in folders if name.endswith(".dist-info")]
        yield from (os.path.join(folder, name) for name in sorted(infos))
        folders[:] = [] if infos else [name for name in folders if not name.startswith(".")]


def _recorded(info: str) -> Iterator[tuple[str, str]]:
    """Yield (path, owner) of the files in a RECORD that may have device code."""
    site = os.path.dirname(info)
    owner = owner_of(os.path.basename(info))
    for path, _, _ in read_record(info):
        if is_code_file(path):
            yield os.path.normpath(os.path.join(site, path)), owner


def owner_of(name: str) -> str:
    """Return "NAME VERSION" for the file name of a wheel or of a folder of metadata."""
    distribution, version, *_ = [*name.removesuffix(".dist-info").split("-"), ""]
    return f"{normalize_name(distribution)} {version}"


def _editable(info: str) -> list[_Root]:
    """Return the folder of the project that a distribution is installed from in editable mode."""
    try:
        content = json.loads(_text(os.path.join(info, "direct_url.json")) or "{}")
        url, editable = content["url"], content["dir_info"]["editable"]
    except (ValueError, KeyError, TypeError):
        return []
    parts = urlsplit(str(url))
    folder = unquote(parts.path)
    if not editable or parts.scheme != "file" or not os.path.isdir(folder):
        return []
    return [_Root(folder=folder, owner=owner_of(os.path.basename(info)), project=True)]


def _conda_owners(prefix: str) -> Iterator[tuple[str, str]]:
    folder = os.path.join(prefix, "conda-meta")
    for entry in sorted(os.listdir(folder)):
        try:
            record = json.loads(_text(os.path.join(folder, entry)) or "{}")
            owner = f"{record['name']} {record['version']}"
            names = [str(name) for name in record["files"]]
        except (ValueError, KeyError, TypeError):
            continue
        for name in filter(is_code_file, names):
            yield os.path.normpath(os.path.join(prefix, name)), owner


def _text(path: str) -> str:
    """Return the text of a file, "" if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


# ---- reading -------------------------------------------------------------------------------------


def _read_all(
    paths: Sequence[tuple[str, str]], deadline: float, progress: Progress | None
) -> Contents:
    cache = Cache()
    files: list[CodeFile] = []
    slow = time.monotonic() + 1.0
    for number, (path, owner) in enumerate(paths, 1):
        if time.monotonic() > deadline:
            return Contents(files=tuple(files), read=number - 1, complete=False)
        if progress is not None and time.monotonic() > slow:
            progress(f"reading device code: {number} of {len(paths)} files")
            slow = time.monotonic() + 2.0
        code_file = _read_cached(path, owner, cache)
        if code_file is not None:
            files.append(code_file)
    return Contents(files=tuple(files), read=len(paths))


def _read_cached(path: str, owner: str, cache: Cache) -> CodeFile | None:
    """Return a file if it has device code, or may have some and is damaged."""
    try:
        status = os.stat(path)
        key = f"{status.st_dev}-{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"
        entry = cache.get(_KIND, key)
        if entry is not None:
            return CodeFile(path=path, owner=owner, images=_images(json.loads(entry.body)))
        images = read_file(path)
    except DamagedFileError as error:
        # A linker script or an empty stand-in ends in .so, too.
        return CodeFile(path=path, owner=owner, fault=str(error)) if _is_elf(path) else None
    except OSError as error:
        return CodeFile(path=path, owner=owner, fault=f"it cannot be read: {error.strerror}")
    if images is None or not (images.sass or images.ptx):
        return None
    fields = {"binaries": images.binaries, "sass": images.sass, "ptx": images.ptx}
    cache.put(_KIND, key, {}, json.dumps(fields).encode())
    return CodeFile(path=path, owner=owner, images=images)


def _images(fields: dict[str, list[list[str]]]) -> Images:
    return Images(
        binaries=int(str(fields["binaries"])),
        sass=tuple((target, int(count)) for target, count in fields["sass"]),
        ptx=tuple((target, language, int(count)) for target, language, count in fields["ptx"]),
    )


def _is_elf(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"
