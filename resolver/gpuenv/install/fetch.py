"""One file of a lock, downloaded to a path. A download that was interrupted continues."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from ..errors import InstallError, PackageIndexError
from ..index.urls import redact_url
from ..model import Wheel
from .bundle import copy_file

if TYPE_CHECKING:
    from ..index.http import Transport


def fetch(wheel: Wheel, path: str, transport: Transport) -> None:
    """Download a file of a lock to a path. InstallError if its sha256 differs, or on failure."""
    from ..index.http import OK, PARTIAL

    folder, name = os.path.split(path)
    partial = os.path.join(folder, f".{name}.{(wheel.sha256 or '')[:16]}.part")
    release = f"{wheel.name} {wheel.version}"
    subject = f"{release} from {redact_url(wheel.url)}"
    try:
        if wheel.url.startswith("file:"):
            copy_file(wheel.url, partial)
        else:
            with open(partial, "a+b") as file:
                status = transport.resume(wheel.url, release, file, wheel.size).status
            if status not in (OK, PARTIAL):
                os.unlink(partial)
                raise InstallError(f"{subject}: the server answered with status {status}")
    except PackageIndexError as error:
        raise InstallError(error.message, hint="run the command again: it continues") from None
    except OSError as error:
        raise InstallError(f"{subject}: cannot be written: {error.strerror}") from None
    digest = sha256_of(partial)
    if digest != wheel.sha256:
        os.unlink(partial)
        message = f"{subject} has the wrong hash: the lock says sha256 {wheel.sha256}"
        raise InstallError(f"{message}, the file has {digest}")
    os.replace(partial, path)


def sha256_of(path: str) -> str:
    """Return the sha256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
