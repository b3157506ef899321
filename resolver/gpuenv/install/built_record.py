"""built.json: which wheels of a folder or a bundle were built here, and from which sources."""

from __future__ import annotations

import json
import os

from ..atomic_write import write_whole
from ..errors import InputError
from ..index.urls import path_to_file_url
from ..model import Pin

RECORD = "built.json"
# {sha256 of a source distribution: (file name of its wheel, its sha256)}
Built = dict[str, tuple[str, str]]


def read_built(folder: str) -> Built:
    """Return what the record of a folder says; {} without one.

    Raises:
        InputError: the record cannot be read.
    """
    path = os.path.join(folder, RECORD)
    try:
        with open(path, encoding="utf-8") as file:
            return parse_built(file.read())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}", hint="download again") from None


def parse_built(text: str) -> Built:
    """Return the content of a record. ValueError for anything else."""
    try:
        rows = json.loads(text).items()
        return {str(sdist): (os.path.basename(name), str(sha256)) for sdist, (name, sha256) in rows}
    except (AttributeError, TypeError) as error:
        raise ValueError(str(error)) from None


def write_built(folder: str, built: Built) -> None:
    """Write the record of a folder."""
    write_whole(os.path.join(folder, RECORD), json.dumps(built, indent=1).encode())


def built_for(pin: Pin, built: Built, folder: str) -> Pin:
    """Return a pin with the wheel that a folder has from its source distribution, if any."""
    row = built.get(pin.wheel.sha256 or "")
    if row is None:
        return pin
    filename, sha256 = row
    url = path_to_file_url(os.path.abspath(os.path.join(folder, filename)))
    return pin.replace(
        wheel=pin.wheel.replace(filename=filename, url=url, sha256=sha256, size=None, index="")
    )
