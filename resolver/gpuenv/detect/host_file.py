"""Hosts as JSON files.

A host file is UTF-8: {"gpuenv_host": 1, "host": {...}}. "host" holds the fields of model.Host by
name; fields at their default are left out:

    "os", "machine", "glibc" [2, 36], "python" {"version": [3, 12], ...},
    "gpus" [{"name", "compute_capability" [9, 0] or null, ...}], "driver" "580.65.06",
    "driver_cuda" [13, 0], "virtualization", "problems" [{"code", "detail", "hint"}],
    "sources" [[fact, source], ...]

Only "python" is required.
"""

from __future__ import annotations

import json
import os

from ..atomic_write import write_whole
from ..errors import InputError
from ..model import Host
from ..serialize import host_from_plain, read_input, to_plain

_FORMAT = 1
_HINT = "gpuenv detect -o FILE writes such a file"


def read_host(path: str | os.PathLike[str]) -> Host:
    """Read a host from a file that `write_host` wrote.

    Raises:
        InputError: the file cannot be read or is wrong; the message names the file and the field.
    """
    name = os.fspath(path)
    try:
        document = json.loads(read_input(name))
    except OSError as error:
        message = f"host file {name}: {error.strerror or error}"
        raise InputError(message, hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"host file {name} is not JSON: {error}", hint=_HINT) from error
    try:
        return _parse(document)
    except (ValueError, TypeError) as error:
        raise InputError(f"host file {name}: {error}", hint=_HINT) from error


def _parse(document: object) -> Host:
    """Return the host of a document. ValueError if it is wrong."""
    if not isinstance(document, dict) or "gpuenv_host" not in document:
        raise ValueError("'gpuenv_host' is missing, so it is not a host file")
    version = document["gpuenv_host"]
    if type(version) is not int or version != _FORMAT:  # True is no format, although True == 1
        raise ValueError(f"'gpuenv_host' is {version!r}, and this gpuenv reads format {_FORMAT}")
    unknown = sorted(set(document) - {"gpuenv_host", "host"})
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}")
    return host_from_plain(document.get("host"))


def write_host(host: Host, path: str | os.PathLike[str]) -> None:
    """Write a host to a file, completely or not at all. A link is followed.

    Raises:
        InputError: the file cannot be written.
    """
    name = os.fspath(path)
    text = json.dumps({"gpuenv_host": _FORMAT, "host": to_plain(host)}, indent=2) + "\n"
    try:
        if os.path.exists(name) and not os.path.isfile(name):
            # A pipe or a device cannot be replaced by another file.
            with open(name, "w", encoding="utf-8") as file:
                file.write(text)
        else:
            write_whole(os.path.realpath(name), text.encode())
    except OSError as error:
        message = f"host file {name}: {error.strerror or error}"
        raise InputError(message, hint="give a path that can be written") from error
