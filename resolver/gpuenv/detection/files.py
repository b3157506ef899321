"""Hosts as files.

A host file is JSON, UTF-8: {"gpuenv_host": 1, "host": {...}}. "host" holds the fields of model.Host by name, fields
at their default left out: "os", "machine", "glibc" [2, 36], "python" {"version": [3, 12], ...}, "gpus" [{"name",
"compute_capability" [9, 0] or null, ...}], "driver" "580.65.06", "driver_cuda" [13, 0], "virtualization", "problems"
[{"code", "detail", "hint"}], "sources" [[fact, source], ...]. Only "python" is required.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import InputError
from ..model import Host
from ..plain import host_from_plain, to_plain

_FORMAT = 1
_HINT = "gpuenv detect -o FILE writes such a file"


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(type(it) is int and it >= 0 for it in value)


def _is_size(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_sources(value: object) -> bool:
    pairs = value if isinstance(value, list) else [None]
    return all(isinstance(it, list) and len(it) == 2 and all(map(_is_text, it)) for it in pairs)


def _or_null(test: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or test(value)


Tests = Mapping[str, tuple[Callable[[object], bool], str]]
_TEXT, _MAYBE_TEXT = (_is_text, "a text"), (_or_null(_is_text), "a text or null")
_PAIR, _MAYBE_PAIR = (_is_pair, "two numbers"), (_or_null(_is_pair), "two numbers or null")
_FLAG, _MAYBE_SIZE = (_is_flag, "true or false"), (_or_null(_is_size), "a whole number or null")

_HOST: Tests = {
    "os": _TEXT, "machine": _TEXT, "glibc": _MAYBE_PAIR, "driver": _MAYBE_TEXT, "driver_cuda": _MAYBE_PAIR,
    "virtualization": _MAYBE_TEXT, "sources": (_is_sources, "a list of pairs of texts"),
}  # fmt: skip
_PYTHON: Tests = {
    "version": _PAIR, "full_version": _MAYBE_TEXT, "free_threaded": _FLAG, "executable": _MAYBE_TEXT,
}  # fmt: skip
_GPU: Tests = {
    "name": _TEXT, "compute_capability": _MAYBE_PAIR, "index": _MAYBE_SIZE, "uuid": _MAYBE_TEXT,
    "pci_bus_id": _MAYBE_TEXT, "memory_total": _MAYBE_SIZE, "memory_free": _MAYBE_SIZE,
    "compute_mode": _MAYBE_TEXT, "ecc": (_or_null(_is_flag), "true, false or null"), "mig": _FLAG,
}  # fmt: skip
_PROBLEM: Tests = {"code": _TEXT, "detail": _TEXT, "hint": _TEXT}


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
        _check(data.get("host"))
        return host_from_plain(data["host"])
    except (ValueError, TypeError) as error:
        raise InputError(f"host file {name}: {error}", hint=_HINT) from error


def _check(host: object) -> None:
    """What `host_from_plain` takes on trust: no null where a value belongs, no flag where a number does."""
    fields = _table(host, "host", _HOST)
    _table(fields.get("python"), "host.python", _PYTHON)
    for key, tests in (("gpus", _GPU), ("problems", _PROBLEM)):
        items = fields.get(key, [])
        if not isinstance(items, list):
            raise ValueError(f"host.{key} must be a list")
        for number, item in enumerate(items):
            _table(item, f"host.{key}[{number}]", tests)


def _table(data: object, where: str, tests: Tests) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError(f"{where} must be a table")
    for key, (test, kind) in tests.items():
        if key in data and not test(data[key]):
            raise ValueError(f"{where}.{key} must be {kind}, not {data[key]!r}")
    return data


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
            _replace(target, text.encode())
    except OSError as error:
        hint = "give a path that can be written"
        raise InputError(f"host file {name}: {error.strerror or error}", hint=hint) from error


def _replace(target: str, data: bytes) -> None:
    beside = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.{os.getpid()}.tmp")
    try:
        with open(beside, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except BaseException:
        if os.path.exists(beside):
            os.unlink(beside)
        raise
