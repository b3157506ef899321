"""Variant wheels under ordinary file names, for installers that do not know them.

pip and uv refuse a file name with a variant label (PEP 825), uv also a variant whose provider it
does not know. The content of a variant wheel is that of any other wheel.
"""

from __future__ import annotations

import os
import shutil
from urllib.parse import unquote, urlsplit

from ..errors import InstallError, PackageIndexError
from ..model import Lock, Pin, Wheel
from ..requirements.target import split_label


def with_ordinary_names(lock: Lock, folder: str) -> Lock:
    """Return a lock whose variant wheels are files in a folder, under their ordinary names.

    The installer checks their hashes, as those of all files.

    Args:
        lock: the files to install.
        folder: where variant wheels are copied or downloaded to.

    Raises:
        InstallError: a file cannot be fetched.
    """
    return lock.replace(pins=tuple(_with_ordinary_name(pin, folder) for pin in lock.pins))


def is_variant_file(pin: Pin) -> bool:
    """Return whether the URL of a file has a variant label in its file name."""
    return bool(split_label(unquote(urlsplit(pin.wheel.url).path.rpartition("/")[2]))[1])


def _with_ordinary_name(pin: Pin, folder: str) -> Pin:
    if not is_variant_file(pin):
        return pin
    from ..index.urls import file_url_to_path, path_to_file_url

    wheel = pin.wheel
    filename = split_label(wheel.filename)[0]  # a file that is locked by its URL has the label
    path = os.path.join(folder, filename)
    try:
        if wheel.url.startswith("file:"):
            shutil.copyfile(file_url_to_path(wheel.url), path)
        else:
            _download(wheel, path)
    except OSError as error:
        raise InstallError(f"{wheel.url} cannot be copied: {error.strerror}") from None
    local = wheel.replace(filename=filename, url=path_to_file_url(path), index="")
    return pin.replace(wheel=local)


def _download(wheel: Wheel, path: str) -> None:
    from ..index.http import OK, Transport

    with Transport() as transport, open(path, "wb") as file:
        try:
            reply, _ = transport.download(wheel.url, wheel.filename, file, wheel.size)
        except PackageIndexError as error:
            raise InstallError(error.message, hint=error.hint) from None
    if reply.status != OK:
        raise InstallError(f"{wheel.url} answered with status {reply.status}")
