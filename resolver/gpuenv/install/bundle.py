"""A bundle: one file with the wheels of a lock, the lock, gpuenv, and what gpuenv requires.

    wheels              one after another
    a zip archive       `python3 FILE` runs it
      __main__.py       bundle_main.py
      pylock.toml       the lock
      wheels.json       {file name: [offset in the bundle, size]}
      built.json        which of the wheels were built from source distributions (built_wheels)
      program/          gpuenv and the distributions that it requires

The wheels precede the archive, because Python runs large archives (ZIP64) only from 3.13 on. The
same input gives the same bytes. Compiled modules are left out: each fits one Python on one
platform, and gpuenv works without them.

A file of a bundle has the URL file:///FOLDER/BUNDLE#NAME.
"""

from __future__ import annotations

import io
import json
import os
import shutil
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from ..atomic_write import replace_file
from ..errors import InputError
from ..index.urls import file_url_to_path, path_to_file_url
from ..lock import pylock
from ..model import Lock, Wheel
from .built_record import RECORD, Built, built_for, parse_built, read_built

if TYPE_CHECKING:  # only bundles need them
    import zipfile
    from importlib.metadata import Distribution

_MAIN = os.path.join(os.path.dirname(__file__), "bundle_main.py")
_TABLE = "wheels.json"
_PROGRAM = "program"
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip archive can name
_COMPILED = (".dylib", ".pyc", ".pyd", ".so")
# What installers write beside the metadata of a distribution. It differs from machine to machine.
_OF_INSTALLERS = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json", "uv_cache.json")
_CHUNK = 1 << 20  # bytes
_LONGEST_TABLE = 10 << 20  # bytes

Table = dict[str, tuple[int, int]]  # {file name: (offset, size)}


# ---- reading ------------------------------------------------------------------------------------


def file_name(wheel: Wheel) -> str:
    """Return the name of a file: the last part of its URL, or its name in a bundle.

    Variants of a wheel have names of their own there.
    """
    return _member(wheel.url) or unquote(urlsplit(wheel.url).path.rpartition("/")[2])


def bundled_urls(bundle: str) -> dict[str, str]:
    """Return the URL of each wheel in a bundle, by file name.

    Raises:
        InputError: The file is no bundle.
    """
    url = path_to_file_url(os.path.abspath(bundle))
    return {name: f"{url}#{quote(name)}" for name in _read_table(bundle)}


def bundled_built(bundle: str) -> Built:
    """Return which wheels in a bundle were built from source distributions.

    Raises:
        InputError: The bundle is damaged.
    """
    import zipfile

    try:
        with zipfile.ZipFile(bundle) as archive, archive.open(RECORD) as file:
            return parse_built(file.read(_LONGEST_TABLE).decode())
    except KeyError:
        return {}
    except (ValueError, zipfile.BadZipFile) as error:
        raise InputError(f"{bundle}: {RECORD} cannot be read: {error}") from None


def copy_file(url: str, path: str) -> None:
    """Copy the file of a file:// URL, which may be in a bundle.

    Raises:
        InputError: The bundle is damaged.
        OSError: As the system reports it.
    """
    source, name = file_url_to_path(url), _member(url)
    if not name:
        shutil.copyfile(source, path)
        return
    table = _read_table(source)
    if name not in table:
        raise InputError(f"{source}: has no {name}")
    offset, size = table[name]
    with open(source, "rb") as bundle, open(path, "wb") as file:
        bundle.seek(offset)
        _copy(bundle, file, size)


def unpack_bundled(lock: Lock, folder: str) -> Lock:
    """Return a lock whose files in bundles are copied to a folder.

    The installer compares their hashes, as those of all files.
    """
    pins = []
    for pin in lock.pins:
        wheel = pin.wheel
        if _member(wheel.url):
            path = os.path.join(folder, file_name(wheel))
            copy_file(wheel.url, path)
            wheel = wheel.replace(url=path_to_file_url(path))
        pins.append(pin.replace(wheel=wheel))
    return lock.replace(pins=tuple(pins))


def _member(url: str) -> str:
    """Return the name of a file in a bundle, "" for a file that is in none."""
    fragment = unquote(urlsplit(url).fragment)
    return fragment if url.startswith("file:") and fragment.endswith(".whl") else ""


def _read_table(bundle: str) -> Table:
    """Return where the wheels of a bundle are. Anybody can have written it."""
    import zipfile
    import zlib

    damage = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
    try:
        with zipfile.ZipFile(bundle) as archive, archive.open(_TABLE) as file:
            rows = json.loads(file.read(_LONGEST_TABLE))
        table = {str(name): (int(offset), int(size)) for name, (offset, size) in rows.items()}
        whole = os.path.getsize(bundle)
        if all(0 <= offset <= offset + size <= whole for offset, size in table.values()):
            return table
    except (*damage, EOFError, zipfile.BadZipFile, zlib.error):
        pass
    message = f"{bundle}: is neither a folder nor a complete bundle"
    raise InputError(message, hint="compare its sha256 with that of the original")


def _copy(source: IO[bytes], target: IO[bytes], size: int) -> None:
    while size > 0:
        chunk = source.read(min(size, _CHUNK))
        if not chunk:
            break
        target.write(chunk)
        size -= len(chunk)


# ---- writing ------------------------------------------------------------------------------------


def write_bundle(lock: Lock, folder: str, path: str, data: str) -> None:
    """Write a bundle.

    Args:
        lock: A lock of wheels.
        folder: The folder that has its files.
        path: The bundle. An old file is replaced when the new one is complete.
        data: The folder of the compatibility data.

    Raises:
        InputError: gpuenv or a distribution that it requires has no list of its files.
        OSError: As the system reports it.
    """
    program = _program_files(data)
    table: Table = {}
    built = read_built(folder)
    with replace_file(path) as file:
        for pin in lock.pins:
            name, offset = file_name(built_for(pin, built, folder).wheel), file.tell()
            with open(os.path.join(folder, name), "rb") as source:
                shutil.copyfileobj(source, file, _CHUNK)
            table[name] = offset, file.tell() - offset
        locked = {pin.wheel.sha256 for pin in lock.pins}
        used = {sdist: row for sdist, row in built.items() if sdist in locked}
        file.write(_archive(pylock.dumps(lock), table, used, program))


def _archive(lock_text: str, table: Table, built: Built, program: dict[str, str]) -> bytes:
    """Return the zip archive at the end of a bundle. Its offsets count from its own begin."""
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        with open(_MAIN, "rb") as file:
            archive.writestr(_entry("__main__.py"), file.read())
        archive.writestr(_entry("pylock.toml"), lock_text)
        archive.writestr(_entry(_TABLE), json.dumps(table))
        archive.writestr(_entry(RECORD), json.dumps(built))
        for name in sorted(program):
            with open(program[name], "rb") as file:
                archive.writestr(_entry(f"{_PROGRAM}/{name}"), file.read())
    return buffer.getvalue()


def _entry(name: str) -> zipfile.ZipInfo:
    import zipfile

    entry = zipfile.ZipInfo(name, _DATE)
    entry.create_system = 3  # Unix, on every system
    entry.external_attr = 0o644 << 16
    return entry


def _program_files(data: str) -> dict[str, str]:
    """Return the path of each file of the program, by its name there."""
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    files = dict(_files_below(own, "gpuenv", without="matrix_data"))
    files |= _files_below(data, "gpuenv/matrix_data")
    for distribution in _required_distributions():
        files |= _files_of(distribution)
    return files


def _files_below(folder: str, name: str, *, without: str = "") -> Iterator[tuple[str, str]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if entry.name not in ("__pycache__", without):
                    yield from _files_below(entry.path, f"{name}/{entry.name}")
            elif not entry.name.endswith(_COMPILED):
                yield f"{name}/{entry.name}", entry.path


def _required_distributions() -> list[Distribution]:
    """Return what gpuenv requires, and what that requires, without extras."""
    from importlib import metadata

    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    names: list[str] = ["gpuenv"]
    distributions: dict[str, Distribution] = {}
    while names:
        name = names.pop()
        if name in distributions:
            continue
        try:
            distributions[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            raise _not_installed(name) from None
        for text in distributions[name].requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                names.append(canonicalize_name(requirement.name))
    del distributions["gpuenv"]
    return list(distributions.values())


def _files_of(distribution: Distribution) -> dict[str, str]:
    """Return the path of each file of an installed distribution that any Python can use."""
    files = {}
    if distribution.files is None:
        raise _not_installed(distribution.name)
    for file in distribution.files:
        name = file.as_posix()
        is_own = file.name in _OF_INSTALLERS and file.parent.suffix == ".dist-info"
        if not (is_own or name.startswith("../") or name.endswith(_COMPILED)):
            files[name] = str(file.locate())
    return files


def _not_installed(name: str) -> InputError:
    message = f"{name} has no list of its files, so it cannot be put into a bundle"
    return InputError(message, hint="install gpuenv with pip or uv into an environment of its own")
