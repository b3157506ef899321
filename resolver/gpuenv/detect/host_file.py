"""Hosts as files.

A host file is JSON, UTF-8: {"gpuenv_host": 1, "host": {...}}. "host" holds the fields of model.Host by name, fields
at their default left out: "os", "machine", "glibc" [2, 36], "python" {"version": [3, 12], ...}, "gpus" [{"name",
"compute_capability" [9, 0] or null, ...}], "driver" "580.65.06", "driver_cuda" [13, 0], "virtualization", "problems"
[{"code", "detail", "hint"}], "sources" [[fact, source], ...]. Only "python" is required.
"""

from __future__ import annotations

import os

from ..atomic_write import write_whole
from ..errors import InputError
from ..model import Host
from ..serialize import host_from_plain, to_plain

_FORMAT = 1
_HINT = "gpuenv detect -o FILE writes such a file"


def read_host(path: str | os.PathLike[str]) -> Host:
    """The host of a file written by `write_host`. Raises InputError that names the file and the field."""
    import json  # 5 ms, and few commands read a host

    name = os.fspath(path)
    try:
        with open(name, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as error:
        raise InputError(f"host file {name}: {error.strerror or error}", hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"host file {name} is not JSON: {error}", hint=_HINT) from error
    try:
        if not isinstance(data, dict) or "gpuenv_host" not in data:
            raise ValueError("'gpuenv_host' is missing: it is no host file")
        if type(data["gpuenv_host"]) is not int or data["gpuenv_host"] != _FORMAT:
            raise ValueError(f"'gpuenv_host' is {data['gpuenv_host']!r}, and this gpuenv reads format {_FORMAT}")
        extra = sorted(set(data) - {"gpuenv_host", "host"})
        if extra:
            raise ValueError(f"unknown field {extra[0]!r}")
        return host_from_plain(data.get("host"))
    except (ValueError, TypeError) as error:
        raise InputError(f"host file {name}: {error}", hint=_HINT) from error


def write_host(host: Host, path: str | os.PathLike[str]) -> None:
    """Writes `host` to `path`, whole or not at all; a link is followed. Raises InputError."""
    import json  # 5 ms, and few commands write a host

    name = os.fspath(path)
    text = json.dumps({"gpuenv_host": _FORMAT, "host": to_plain(host)}, indent=2) + "\n"
    try:
        target = os.path.realpath(name)
        if os.path.exists(name) and not os.path.isfile(name):
            with open(name, "w", encoding="utf-8") as file:  # a pipe or a device: nothing to put in its place
                file.write(text)
        else:
            write_whole(target, text.encode())
    except OSError as error:
        hint = "give a path that can be written"
        raise InputError(f"host file {name}: {error.strerror or error}", hint=hint) from error

