"""The files of locks in a folder: for hosts without a network.

Several locks, and several runs, can share a folder. A file is complete under its name: it is
written under another name and renamed after its sha256 was compared. An interrupted download
continues where it ended. A wheel that was built here of a source distribution lies beside it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ..errors import InputError
from ..index.urls import file_url_to_path, path_to_file_url, redact_url, split_credentials
from ..model import IndexOptions, Lock, Pin, Wheel
from .built_record import Built, built_for, read_built, write_built
from .built_wheels import check_fits, with_built_wheels
from .bundle import bundled_built, bundled_urls, file_name, write_bundle
from .fetch import fetch, sha256_of
from .target_lock import hold

if TYPE_CHECKING:
    pass

Progress = Callable[[str], None]


def download(
    lock: Lock,
    folder: str,
    *,
    wait: float,
    progress: Progress | None = None,
    builds: IndexOptions | None = None,
) -> tuple[int, int]:
    """Download the files of a lock that a folder does not have yet, and build what has no wheel.

    Args:
        lock: The lock.
        folder: The folder; it is made if it is missing.
        wait: Seconds to wait for another run that downloads into the folder.
        progress: Called with a line for each file.
        builds: Where the build requirements of source distributions come from.

    Returns:
        (files that were downloaded, files that were there).

    Raises:
        InputError: The folder cannot be written, or has another file of the same name.
        InstallError: A file cannot be downloaded or built, or has another sha256.
        TargetBusyError: Another run downloads into the folder all the time.
    """
    folder, report = os.path.abspath(folder), progress or _ignore
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}") from None
    from ..index.http import Transport  # slow, and a sync of cached files does not need it

    missing = 0
    with (
        hold(os.path.join(folder, ".gpuenv"), folder, wait, report),
        Transport() as transport,
        tempfile.TemporaryDirectory(prefix="gpuenv-") as sources,
    ):
        known = read_built(folder)
        here = lock.replace(pins=tuple(built_for(pin, known, folder) for pin in lock.pins))
        built = with_built_wheels(here, None, sources, builds or IndexOptions())
        check_fits(built)
        for pin in built.pins:
            path = os.path.join(folder, file_name(pin.wheel))
            if _is_there(path, pin.wheel):
                continue
            report(f"downloading {file_name(pin.wheel)}")
            fetch(pin.wheel, path, transport)
            missing += 1
        for sdist, wheel in zip(lock.pins, built.pins, strict=True):
            if sdist.wheel.sha256 and sdist.wheel.sha256 != wheel.wheel.sha256:
                known[sdist.wheel.sha256] = wheel.wheel.filename, wheel.wheel.sha256 or ""
        if known:
            write_built(folder, known)
    return missing, len(lock.pins) - missing


def download_bundle(
    lock: Lock,
    path: str,
    data: str,
    *,
    files: Lock,
    folder: str | None,
    wait: float,
    progress: Progress | None = None,
    builds: IndexOptions | None = None,
) -> str:
    """Write a bundle, and return its sha256.

    Args:
        lock: The lock in the bundle.
        path: The bundle.
        data: The folder of the compatibility data.
        files: The lock with the places to take the files from.
        folder: The folder for the files. None uses a temporary one, which stays after a failure,
            so that the next run continues.
        wait: Seconds to wait for another run.
        progress: Called with a line for each step.
        builds: As `download`.

    Raises:
        InputError: The bundle cannot be written.
        InstallError: A file cannot be downloaded or built.
        TargetBusyError: Another run writes the bundle or the folder all the time.
    """
    path, report = os.path.abspath(path), progress or _ignore
    above, name = os.path.split(path)
    if os.path.isdir(path):
        raise InputError(f"--bundle {path}: is a folder")
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"--bundle {path}: the folder above it cannot be written")
    own = os.path.join(above, f".{name}.gpuenv")
    with hold(own, path, wait, report):
        wheels = folder or os.path.join(own, "wheels")
        download(files, wheels, wait=wait, progress=progress, builds=builds)
        report(f"writing {path}")
        write_bundle(lock, wheels, path, data)
        shutil.rmtree(os.path.join(own, "wheels"), ignore_errors=True)
    return sha256_of(path)


def _ignore(line: str) -> None:
    """Report no progress."""


def _is_there(path: str, wheel: Wheel) -> bool:
    if not os.path.exists(path):
        return False
    if sha256_of(path) == wheel.sha256:
        return True
    message = f"{path}: is another file than that of the lock, by its sha256"
    raise InputError(message, hint="remove it, or use another folder")


def with_local_files(lock: Lock, folders: Sequence[str], *, no_index: bool) -> Lock:
    """Return a lock whose files are those of folders and bundles, where these have them.

    The installer compares their hashes, as those of all files.

    Raises:
        InputError: A file is no bundle. With `no_index`: a file of the lock is in none of the
            folders.
    """
    bundles = {path: bundled_urls(path) for path in folders if os.path.isfile(path)}
    built = {}
    for place in folders:
        built[place] = bundled_built(place) if place in bundles else read_built(place)
    pins = [_with_local_file(pin, folders, bundles, built, no_index=no_index) for pin in lock.pins]
    return lock.replace(pins=tuple(pins))


def refuse_unnamed_places(lock: Lock, indexes: Sequence[str], folders: Sequence[str]) -> None:
    """Raise InputError if a file of a lock is at an http:// or file:// URL that nobody named.

    The author of a lock chooses its URLs. https protects a file in transit. A file at an http:// or
    file:// URL is accepted only if the user named its index or its folder.

    Args:
        lock: The lock.
        indexes: The URLs of the indexes that the user named; the default index counts, too.
        folders: The folders that the user named.
    """
    insecure = [pin.wheel for pin in lock.pins if not pin.wheel.url.startswith("https:")]
    if not insecure:
        return
    from ..index.default_index import default_index

    named = [*indexes, *_folder_urls(folders)]
    if not all(_is_below(wheel.url, named) for wheel in insecure):
        named.append(default_index().url)
    for wheel in insecure:
        if not _is_below(wheel.url, named):
            place, flag = redact_url(wheel.url), "--extra-index-url URL"
            if wheel.url.startswith("file:"):
                flag = "--find-links DIR"
            message = f"{wheel.name} {wheel.version}: {place} is of no index that you named"
            raise InputError(message, hint=f"if you trust it, name it: {flag}")


def _folder_urls(folders: Sequence[str]) -> list[str]:
    return [path_to_file_url(os.path.realpath(folder)) for folder in folders]


def _is_below(url: str, named: Sequence[str]) -> bool:
    """Return whether a file is on the host of a named index, or below a named folder."""
    if url.startswith("file:"):
        path = os.path.realpath(file_url_to_path(url))
        folders = [file_url_to_path(place) for place in named if place.startswith("file:")]
        return any(Path(path).is_relative_to(os.path.realpath(folder)) for folder in folders)
    return urlsplit(url)[:2] in [urlsplit(split_credentials(place)[0])[:2] for place in named]


def _with_local_file(
    pin: Pin,
    folders: Sequence[str],
    bundles: Mapping[str, Mapping[str, str]],
    built: Mapping[str, Built],
    *,
    no_index: bool,
) -> Pin:
    wheel = pin.wheel
    if wheel.url.startswith("file:") and _is_below(wheel.url, _folder_urls(folders)):
        return pin
    for folder in folders:
        local = built_for(pin, built[folder], folder).wheel
        path = os.path.abspath(os.path.join(folder, file_name(local)))
        url = bundles.get(folder, {}).get(file_name(local))
        if url is None and os.path.isfile(path):
            url = path_to_file_url(path)
        if url is not None:
            return pin.replace(wheel=local.replace(url=url, index=""))
    if no_index and not wheel.url.startswith("file:"):
        message = f"{file_name(wheel)} of {wheel.name} {wheel.version} is in no --find-links folder"
        raise InputError(message, hint=f"download it with gpuenv download: {redact_url(wheel.url)}")
    return pin
