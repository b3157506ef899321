"""A bundle: one file with the wheels of a lock, the lock, gpuenv, and what gpuenv requires.

    wheels              one after another
    a zip archive       `python3 FILE` runs it
      __main__.py       bundle_main.py
      pylock.toml       the lock
      wheels.json       {file name: [offset in the bundle, size]}
      built.json        which of the wheels were built from source distributions (downloads)
      program/          gpuenv and the distributions that it requires

The wheels precede the archive, because Python runs large archives (ZIP64) only from 3.13 on. The
same input gives the same bytes. Of the compiled modules only those without which gpuenv does not
work are there, for the Python of the lock; others fit one Python on one platform, and gpuenv works
without them.

A file of a bundle has the URL file:///FOLDER/BUNDLE#NAME.
"""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Mapping
from importlib.metadata import Distribution, PackageNotFoundError
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ..atomic_write import replace_files
from ..errors import InputError
from ..index.urls import file_url_to_path, path_to_file_url
from ..interpreters import find_pip, find_target
from ..lock import pylock
from ..model import Host, Lock, Wheel
from ..requirements.target import TargetEnvironment
from .bundle_main import OLDEST

_MAIN = os.path.join(os.path.dirname(__file__), "bundle_main.py")
_TABLE = "wheels.json"
_PROGRAM = "program"
_DATE = (1980, 1, 1, 0, 0, 0)  # the first that a zip archive can name
_COMPILED = (".dylib", ".pyc", ".pyd", ".so")
_NEEDS_COMPILED = ("msgspec",)  # distributions that do not work without their compiled modules
# What installers write beside the metadata of a distribution. It differs from machine to machine.
_OF_INSTALLERS = ("INSTALLER", "RECORD", "REQUESTED", "direct_url.json", "uv_cache.json")
_CHUNK = 1 << 20  # bytes
_LONGEST_MEMBER = 10 << 20  # bytes

Table = dict[str, tuple[int, int]]  # {file name: (offset, size)}


# ---- reading ------------------------------------------------------------------------------------


def is_in_bundle(url: str) -> bool:
    """Return whether a URL is that of a file in a bundle."""
    return url.startswith("file:") and urlsplit(url).fragment.endswith(".whl")


def file_name(wheel: Wheel) -> str:
    """Return the name of a file: the last part of its URL, or its name in a bundle.

    Variants of a wheel have names of their own there.
    """
    parts = urlsplit(wheel.url)
    if is_in_bundle(wheel.url):
        return unquote(parts.fragment)
    return unquote(parts.path.rpartition("/")[2])


def bundled_urls(bundle: str) -> dict[str, str]:
    """Return the URL of each wheel in a bundle, by file name.

    Raises:
        InputError: The file is no bundle.
    """
    url = path_to_file_url(os.path.abspath(bundle))
    return {name: f"{url}#{quote(name)}" for name in _read_table(bundle)}


def read_member(bundle: str, name: str) -> bytes | None:
    """Return a text in the archive of a bundle, None if it has no such member.

    Raises:
        InputError: The bundle is damaged.
    """
    damage = (ArithmeticError, AttributeError, RuntimeError, TypeError, ValueError)
    try:
        with zipfile.ZipFile(bundle) as archive:
            if name not in archive.namelist():
                return None
            with archive.open(name) as file:
                return file.read(_LONGEST_MEMBER)
    except (*damage, EOFError, zipfile.BadZipFile, zlib.error):
        raise _damaged(bundle) from None


def _damaged(bundle: str) -> InputError:
    message = f"{bundle}: is neither a folder nor a complete bundle"
    return InputError(message, hint="compare its sha256 with that of the original")


def _read_table(bundle: str) -> Table:
    """Return where the wheels of a bundle are. Anybody can have written it."""
    try:
        table = msgspec.json.decode(read_member(bundle, _TABLE) or b"", type=Table)
    except (msgspec.DecodeError, RecursionError):
        raise _damaged(bundle) from None
    whole = os.path.getsize(bundle)
    if all(0 <= offset <= offset + size <= whole for offset, size in table.values()):
        return table
    raise _damaged(bundle)


def copy_file(url: str, path: str) -> None:
    """Copy the file of a file:// URL, which may be in a bundle.

    Raises:
        InputError: The bundle is damaged.
        OSError: As the system reports it.
    """
    source = file_url_to_path(url)
    if not is_in_bundle(url):
        shutil.copyfile(source, path)
        return
    name, table = unquote(urlsplit(url).fragment), _read_table(source)
    if name not in table:
        raise InputError(f"{source}: has no {name}")
    offset, size = table[name]
    with open(source, "rb") as bundle, open(path, "wb") as file:
        bundle.seek(offset)
        while size > 0 and (chunk := bundle.read(min(size, _CHUNK))):
            file.write(chunk)
            size -= len(chunk)


# ---- writing ------------------------------------------------------------------------------------


def write_bundle(
    lock: Lock,
    wheels: Mapping[str, str],
    members: Mapping[str, bytes],
    path: str,
    *,
    data: str,
    folder: str,
) -> None:
    """Write a bundle.

    Args:
        lock: A lock of wheels.
        wheels: The path of each of its files, by its name.
        members: More members of the archive.
        path: The bundle. An old file is replaced when the new one is complete.
        data: The folder of the compatibility data.
        folder: A folder for temporary files.

    Raises:
        InputError: gpuenv or a distribution that it requires has no list of its files, or cannot
            be had for the Python of the lock.
        OSError: As the system reports it.
    """
    table: Table = {}
    program = _program_files(lock, data, folder)
    with replace_files(path) as (bundle,):
        for name in wheels:
            offset = bundle.tell()
            with open(wheels[name], "rb") as source:
                shutil.copyfileobj(source, bundle, _CHUNK)
            table[name] = offset, bundle.tell() - offset
        contents = {
            "__main__.py": Path(_MAIN).read_bytes(),
            "pylock.toml": pylock.dumps(lock).encode(),
            _TABLE: msgspec.json.encode(table),
            **members,
            **{f"{_PROGRAM}/{name}": program[name].read_bytes() for name in sorted(program)},
        }
        buffer = io.BytesIO()  # offsets in the archive count from its own begin
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
            for name, content in contents.items():
                entry = zipfile.ZipInfo(name, _DATE)
                entry.create_system = 3  # Unix, on every system
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, content)
        bundle.write(buffer.getvalue())


def _program_files(lock: Lock, data: str, folder: str) -> dict[str, Path]:
    """Return the path of each file of the program, by its name there.

    `folder` is for files that are not installed here.
    """
    host = lock.host
    if host.python.version < OLDEST:  # gpuenv runs with another Python there
        host = host.replace(python=find_target(sys.executable, os.environ).python)
    own = Path(__file__).resolve().parent.parent
    files = _files_below(own, "gpuenv")
    files = {name: path for name, path in files.items() if "/matrix_data/" not in name}
    files |= _files_below(Path(data), "gpuenv/matrix_data")
    names, done = ["gpuenv"], set()
    while names:
        name = names.pop()
        if name in done:
            continue
        done.add(name)
        try:
            distribution = Distribution.from_name(name)
        except PackageNotFoundError:
            raise _no_list_of_files(name) from None
        for text in distribution.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                names.append(canonicalize_name(requirement.name))
        if name in _NEEDS_COMPILED and not _fits(distribution, host):
            files |= _files_for(distribution, host, os.path.join(folder, name))
        elif name != "gpuenv":
            files |= _files_of(distribution, compiled=name in _NEEDS_COMPILED)
    return files


def _files_below(folder: Path, name: str) -> dict[str, Path]:
    return {
        f"{name}/{path.relative_to(folder).as_posix()}": path
        for path in folder.rglob("*")
        if path.is_file() and not path.name.endswith(_COMPILED)
    }


def _files_of(distribution: Distribution, *, compiled: bool) -> dict[str, Path]:
    """Return the path of each file of an installed distribution."""
    if distribution.files is None:
        raise _no_list_of_files(distribution.name)
    files = {}
    for file in distribution.files:
        is_own = file.name in _OF_INSTALLERS and file.parent.suffix == ".dist-info"
        is_left_out = file.name.endswith(".pyc" if compiled else _COMPILED)
        if not (is_own or is_left_out or file.as_posix().startswith("../")):
            files[file.as_posix()] = Path(str(file.locate()))
    return files


def _fits(distribution: Distribution, host: Host) -> bool:
    """Return whether the installed files of a distribution fit a host."""
    environment = TargetEnvironment(host)
    lines = (distribution.read_text("WHEEL") or "").splitlines()
    tags = [line.removeprefix("Tag: ") for line in lines if line.startswith("Tag: ")]
    return any(environment.rank(f"{distribution.name}-0-{tag}.whl") is not None for tag in tags)


def _files_for(distribution: Distribution, host: Host, folder: str) -> dict[str, Path]:
    """Return the files of a distribution for a host; pip downloads them.

    InputError if pip finds no such wheel.
    """
    major, minor = host.python.version
    abi = f"cp{major}{minor}{'t' if host.python.free_threaded else ''}"
    platforms = ["win_amd64"]
    if host.os == "linux":
        newest = (host.glibc or (2, 17))[1]
        platforms = [f"manylinux_2_{glibc}_{host.machine}" for glibc in range(17, newest + 1)]
    command = [sys.executable, "-I", find_pip() or "", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--python-version", f"{major}.{minor}"]
    command += [f"--abi={abi}", "--abi=abi3", "--abi=none"]
    command += [f"--platform={platform}" for platform in platforms]
    release = f"{distribution.name}=={distribution.version}"
    done = subprocess.run(
        [*command, "--dest", folder, release], capture_output=True, text=True, check=False
    )
    if done.returncode:
        need = f"{release} for Python {major}.{minor} on {host.platform}"
        lines = done.stderr.strip().splitlines() or ["no output"]
        message = f"a bundle needs {need}, which pip cannot download: {lines[-1]}"
        raise InputError(message, hint="write the bundle with the Python of the lock")
    unpacked = Path(folder, "unpacked")
    for wheel in Path(folder).glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(unpacked)
    return {
        path.relative_to(unpacked).as_posix(): path
        for path in unpacked.rglob("*")
        if path.is_file() and path.name not in _OF_INSTALLERS
    }


def _no_list_of_files(name: str) -> InputError:
    message = f"{name} has no list of its files, so it cannot be put into a bundle"
    return InputError(message, hint="install gpuenv with pip or uv into an environment of its own")
