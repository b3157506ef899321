"""The files of locks in folders and bundles: for hosts without a network.

Several locks, and several runs, can share a folder. A file is complete under its name: it is
written under another name and renamed after its sha256 was compared. An interrupted download
continues where it ended. A wheel that was built here of a source distribution lies beside it;
built.json says of which one.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from ..atomic_write import write_whole
from ..errors import InputError
from ..index.default_index import default_index
from ..index.http import Transport
from ..index.urls import file_url_to_path, path_to_file_url, redact_url, split_credentials
from ..model import IndexOptions, Lock, Pin
from ..requirements.source_urls import is_editable, is_tree, read_commit
from ..serialize import file_digest
from .bundle import bundled_urls, file_name, read_member, write_bundle
from .lock_files import check_fits, fetch, with_built_wheels
from .target_lock import hold

_BUILT = "built.json"
Built = dict[str, tuple[str, str]]  # {sha256 of a source distribution: (its wheel, sha256 of that)}
Progress = Callable[[str], None]


def download(
    lock: Lock,
    folder: str,
    *,
    wait: float,
    report: Progress,
    builds: IndexOptions,
) -> tuple[Lock, int]:
    """Download the files of a lock that a folder does not have yet, and build what has no wheel.

    Editable installs are left out: they are built where their folders are.

    Args:
        lock: The lock.
        folder: The folder; it is made if it is missing.
        wait: Seconds to wait for another run that downloads into the folder.
        report: Called with a line for each file.
        builds: Where the build requirements of source distributions come from.

    Returns:
        The lock with the wheels that were built, and how many files were downloaded.

    Raises:
        InputError: The folder cannot be written, or has another file of the same name.
        InstallError: A file cannot be downloaded or built, or has another sha256.
        TargetBusyError: Another run downloads into the folder all the time.
    """
    folder = os.path.abspath(folder)
    lock = lock.replace(pins=tuple(pin for pin in lock.pins if not is_editable(pin.wheel)))
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be made: {error.strerror}") from None
    missing = 0
    with (
        hold(os.path.join(folder, ".gpuenv"), folder, wait, report) as sources,
        Transport() as transport,
    ):
        urls, known = _read_place(folder)
        here = lock.replace(pins=tuple(_built_for(pin, urls, known) for pin in lock.pins))
        built = with_built_wheels(here, None, sources, builds)
        check_fits(built)
        for wheel in (pin.wheel for pin in built.pins):
            path = os.path.join(folder, file_name(wheel))
            if not os.path.exists(path):
                report(f"downloading {file_name(wheel)}")
                fetch(wheel, path, transport, offline=builds.offline)
                missing += 1
            elif file_digest(path) != wheel.sha256:
                message = f"{path}: is another file than that of the lock, by its sha256"
                raise InputError(message, hint="remove it, or use another folder")
        known |= _built_wheels(lock, built)
        if known:
            record = msgspec.json.format(msgspec.json.encode(known), indent=1)
            write_whole(os.path.join(folder, _BUILT), record)
    return built, missing


def download_bundle(
    lock: Lock,
    path: str,
    data: str,
    *,
    files: Lock,
    folder: str | None,
    wait: float,
    report: Progress,
    builds: IndexOptions,
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
        report: Called with a line for each step.
        builds: As `download`.

    Raises:
        InstallError: A file cannot be downloaded or built.
        TargetBusyError: Another run writes the bundle or the folder all the time.
    """
    path = os.path.abspath(path)
    for wheel in (pin.wheel for pin in lock.pins if is_editable(pin.wheel)):
        message = f"{wheel.name} is an editable install, which no bundle can have"
        raise InputError(message, hint=f"gpuenv remove {wheel.name}")
    above, name = os.path.split(path)
    own = os.path.join(above, f".{name}.gpuenv")
    with hold(own, path, wait, report) as work:
        place = folder or os.path.join(own, "wheels")
        built, _ = download(files, place, wait=wait, report=report, builds=builds)
        report(f"writing {path}")
        names = [file_name(pin.wheel) for pin in built.pins]
        paths = {name: os.path.join(place, name) for name in names}
        members = {_BUILT: msgspec.json.encode(_built_wheels(lock, built))}
        write_bundle(lock, paths, members, path, data=data, folder=work)
        shutil.rmtree(os.path.join(own, "wheels"), ignore_errors=True)
    return file_digest(path)


def ignore(line: str) -> None:
    """Report no progress."""


def _built_wheels(lock: Lock, built: Lock) -> Built:
    """Return the wheels that take the place of source distributions of a lock."""
    wheels = {}
    for pin, of_wheel in zip(lock.pins, built.pins, strict=True):
        sdist, wheel = pin.wheel, of_wheel.wheel
        if sdist.sha256 and sdist.sha256 != wheel.sha256:
            wheels[sdist.sha256] = wheel.filename, wheel.sha256 or ""
    return wheels


# ---- the files of a folder or of a bundle --------------------------------------------------------


def _read_place(place: str) -> tuple[dict[str, str], Built]:
    """Return {name: URL} of the files in a folder or a bundle, and which of them were built here.

    InputError if the record cannot be read.
    """
    try:
        if os.path.isfile(place):
            urls, record = bundled_urls(place), read_member(place, _BUILT)
        else:
            folder, record = Path(os.path.abspath(place)), None
            files = [path for path in folder.glob("*") if path.is_file()]
            urls = {path.name: path_to_file_url(str(path)) for path in files}
            if _BUILT in urls:
                record = (folder / _BUILT).read_bytes()
        rows = msgspec.json.decode(record or b"{}", type=Built)
    except (OSError, msgspec.DecodeError) as error:
        path = os.path.join(place, _BUILT)
        raise InputError(f"{path}: cannot be read: {error}", hint="download again") from None
    built = {sdist: (os.path.basename(name), sha256) for sdist, (name, sha256) in rows.items()}
    return urls, {sdist: row for sdist, row in built.items() if row[0] in urls}


def _built_for(pin: Pin, urls: Mapping[str, str], built: Built) -> Pin:
    """Return a pin with the wheel that a folder has from its source distribution, if any."""
    row = built.get(pin.wheel.sha256 or "")
    if row is None:
        return pin
    name, sha256 = row
    wheel = pin.wheel.replace(filename=name, url=urls[name], sha256=sha256, size=None, index="")
    return pin.replace(wheel=wheel)


# ---- where a sync takes files from ---------------------------------------------------------------


def with_local_files(lock: Lock, folders: Sequence[str], *, no_index: bool) -> Lock:
    """Return a lock whose files are those of folders and bundles, where these have them.

    The installer compares their hashes, as those of all files.

    Raises:
        InputError: A file is no bundle. With `no_index`: a file of the lock is in none of the
            folders.
    """
    places = [_read_place(folder) for folder in folders]
    pins = []
    for pin in lock.pins:
        wheel = pin.wheel
        found = pin if wheel.is_local and _is_below(wheel.url, _folder_urls(folders)) else None
        for urls, built in places if found is None else ():
            local = _built_for(pin, urls, built).wheel
            url = urls.get(file_name(local))
            if url is not None:
                found = pin.replace(wheel=local.replace(url=url, index=""))
                break
        if found is None and no_index and not wheel.is_local:
            release = f"{wheel.name} {wheel.version}"
            message = f"{file_name(wheel)} of {release} is in no --find-links folder"
            hint = f"download it with gpuenv download: {redact_url(wheel.url)}"
            raise InputError(message, hint=hint)
        pins.append(found or pin)
    return lock.replace(pins=tuple(pins))


def refuse_unnamed_places(
    lock: Lock, indexes: Sequence[str], folders: Sequence[str], own: str
) -> None:
    """Raise InputError if a file of a lock is at an http:// or file:// URL that nobody named.

    The author of a lock chooses its URLs. https protects a file in transit. A file at an http:// or
    file:// URL is accepted only if the user named its index or its folder. A project in the folder
    of the lock came with it, and is accepted, too.

    Args:
        lock: The lock.
        indexes: The URLs of the indexes that the user named; the default index counts, too.
        folders: The folders that the user named.
        own: The folder of the lock, "" for the working folder.
    """
    secure = ("https:", "git+https:", "git+ssh:")
    trees = [*indexes, *_folder_urls([*folders, own])]
    insecure = {}
    for wheel in (pin.wheel for pin in lock.pins if not pin.wheel.url.startswith(secure)):
        url = read_commit(wheel.url).url if wheel.url.startswith("git+") else wheel.url
        if not (is_tree(wheel.url) and _is_below(url, trees)):
            insecure[url] = wheel
    if not insecure:
        return
    named = [*indexes, *_folder_urls(folders)]
    if not all(_is_below(url, named) for url in insecure):
        named.append(default_index().url)
    for url, wheel in insecure.items():
        if not _is_below(url, named):
            place, flag = redact_url(url), "--extra-index-url URL"
            if url.startswith("file:"):
                flag = "--find-links DIR"
            message = f"{wheel.name} {wheel.version}: {place} is of no index that you named"
            raise InputError(message, hint=f"if you trust it, name it: {flag}")


def _folder_urls(folders: Iterable[str]) -> list[str]:
    return [path_to_file_url(os.path.realpath(folder)) for folder in folders]


def _is_below(url: str, named: Sequence[str]) -> bool:
    """Return whether a file is on the host of a named index, or below a named folder."""
    if url.startswith("file:"):
        path = os.path.realpath(file_url_to_path(url))
        folders = [file_url_to_path(place) for place in named if place.startswith("file:")]
        return any(Path(path).is_relative_to(os.path.realpath(folder)) for folder in folders)
    return urlsplit(url)[:2] in [urlsplit(split_credentials(place)[0])[:2] for place in named]
