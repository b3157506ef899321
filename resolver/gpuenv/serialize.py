"""Read the user's files; convert values to plain data for JSON and TOML, and data to a Host."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .errors import InputError
from .model import Gpu, Host, Problem, Python, Value, parse_release

if TYPE_CHECKING:
    from io import FileIO

# For each field: a test of its plain value, and what the value must be, for messages.
FieldTests = Mapping[str, tuple[Callable[[object], bool], str]]


MAX_INPUT_BYTES = 64 << 20  # limit for a file that a user writes or names
INPUT_SECONDS = 120.0  # for a pipe to end
_WRITER_SECONDS = 1.0  # for another process to open a pipe
_PAUSE = 0.01  # seconds
_CHUNK = 1 << 20
_DEEPEST_KEY = 200
_DEEP_KEY = rf"""(?<![\w-])(?:(?:[\w-]++|"[^"]*+"|'[^']*+')[ \t]*+\.[ \t]*+){{{_DEEPEST_KEY}}}"""


def read_input(path: str) -> bytes:
    """Return the content of a file that the user or a repository names.

    It may be a pipe: `-r <(command)`. A pipe that no process writes to is empty.

    Raises:
        OSError: it cannot be read, is larger than MAX_INPUT_BYTES, or is a pipe that does not end.
    """
    if "\0" in path:
        raise OSError(errno.EINVAL, "a name has no null character", path)
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    with open(os.open(path, flags), "rb", buffering=0) as file:
        if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            content = file.read(MAX_INPUT_BYTES + 1)
        else:
            content = _read_pipe(file, path)
    if len(content) > MAX_INPUT_BYTES:
        message = f"it is larger than {MAX_INPUT_BYTES >> 20} MiB"
        raise OSError(errno.EFBIG, message, path)
    return content


def _read_pipe(file: FileIO, path: str) -> bytes:
    """Read until the other end is closed, or the content is one byte too long."""
    content = bytearray()
    begin = time.monotonic()
    while len(content) <= MAX_INPUT_BYTES:
        chunk = file.read(_CHUNK)  # None: there is nothing yet
        seconds = time.monotonic() - begin
        if chunk == b"" and (content or seconds > _WRITER_SECONDS):
            break
        if seconds > INPUT_SECONDS:
            message = f"it did not end within {INPUT_SECONDS:.0f} s"
            raise OSError(errno.ETIMEDOUT, message, path)
        content += chunk or b""
        if not chunk:
            time.sleep(_PAUSE)
    return bytes(content)


def parse_toml(text: str) -> dict[str, Any]:
    """Return the content of a TOML text. ValueError if it is not TOML."""
    import tomllib  # compiles patterns for 2 ms, and most solves read no TOML

    lines = (line for line in text.splitlines() if line.count(".") >= _DEEPEST_KEY)
    if any(re.search(_DEEP_KEY, line) for line in lines):  # tomllib takes minutes for such a key
        raise ValueError(f"a key has more than {_DEEPEST_KEY} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def to_plain(value: object) -> Any:
    """Return values, tuples and pairs as data for JSON; fields at their default are left out."""
    if isinstance(value, Value):
        return _fields_to_plain(value)
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    return value


def _fields_to_plain(value: Value) -> dict[str, Any]:
    cls, plain = type(value), {}
    for name in cls._fields:
        field = getattr(value, name)
        if name not in cls._defaults or field != cls._defaults[name]:
            plain[name] = to_plain(field)
    return plain


def canonical_json(value: object) -> str:
    """Return JSON text with sorted keys and no spaces, for digests.

    What JSON has no form for is written as its `str`.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def read_toml(path: str) -> dict[str, Any]:
    """Return the content of a TOML file of the user.

    Raises:
        InputError: the file cannot be read or is not TOML.
    """
    try:
        return parse_toml(read_input(path).decode())
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{path}: is not TOML: {error}") from None


# ---- a host --------------------------------------------------------------------------------------


def host_from_plain(data: object) -> Host:
    """Return the Host that `to_plain` made the data of.

    Raises:
        ValueError: names the field that is missing, unknown or of the wrong kind.
    """
    _check_host(data)
    fields = _fields(data, Host, "host")
    python = _fields(fields.get("python"), Python, "host.python")
    fields["python"] = Python(**_with_tuples(python, "version"))
    gpus = []
    for number, item in enumerate(fields.get("gpus", [])):
        gpu = _fields(item, Gpu, f"host.gpus[{number}]")
        gpus.append(Gpu(**_with_tuples(gpu, "compute_capability")))
    fields["gpus"] = tuple(gpus)
    problems = []
    for number, item in enumerate(fields.get("problems", [])):
        problems.append(Problem(**_fields(item, Problem, f"host.problems[{number}]")))
    fields["problems"] = tuple(problems)
    fields["sources"] = tuple((fact, source) for fact, source in fields.get("sources", []))
    fields["cpu"] = tuple(fields.get("cpu", []))
    host = Host(**_with_tuples(fields, "glibc", "driver_cuda"))
    if host.driver is not None:
        parse_release(host.driver)
    return host


def _fields(data: object, cls: type[Value], where: str) -> dict[str, Any]:
    """Return the fields of a value's plain form; ValueError if some are unknown or missing."""
    if not isinstance(data, dict):
        raise ValueError(f"{where} must be a table")
    unknown = set(data) - set(cls._fields)
    if unknown:
        raise ValueError(f"{where} has an unknown field {min(map(str, unknown))!r}")
    for name in cls._fields:
        if name not in data and name not in cls._defaults:
            raise ValueError(f"{where} lacks {name!r}")
    return dict(data)


def _with_tuples(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return the fields with the lists of some names as tuples."""
    changed = dict(fields)
    for name in names:
        if changed.get(name) is not None:
            changed[name] = tuple(changed[name])
    return changed


# ---- the kind of each field of a host ------------------------------------------------------------


def _check_host(host: object) -> None:
    """Raise ValueError for a field of the wrong kind: null, or a flag where a number belongs."""
    fields = _check_table(host, "host", _HOST)
    _check_table(fields.get("python"), "host.python", _PYTHON)
    for key, tests in (("gpus", _GPU), ("problems", _PROBLEM)):
        items = fields.get(key, [])
        if not isinstance(items, list):
            raise ValueError(f"host.{key} must be a list")
        for number, item in enumerate(items):
            _check_table(item, f"host.{key}[{number}]", tests)


def _check_table(data: object, where: str, tests: FieldTests) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError(f"{where} must be a table")
    for key, (test, kind) in tests.items():
        if key in data and not test(data[key]):
            raise ValueError(f"{where}.{key} must be {kind}, not {data[key]!r}")
    return data


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_size(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_size, value))


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_text_pair(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_text, value))


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_sources(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text_pair, value))


def _or_null(test: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: value is None or test(value)


_TEXT, _TEXT_OR_NULL = (_is_text, "a text"), (_or_null(_is_text), "a text or null")
_PAIR, _PAIR_OR_NULL = (_is_pair, "two numbers"), (_or_null(_is_pair), "two numbers or null")
_SIZE_OR_NULL = (_or_null(_is_size), "a whole number or null")
_FLAG, _FLAG_OR_NULL = (_is_flag, "true or false"), (_or_null(_is_flag), "true, false or null")

_HOST: FieldTests = {
    "os": _TEXT,
    "machine": _TEXT,
    "glibc": _PAIR_OR_NULL,
    "driver": _TEXT_OR_NULL,
    "driver_cuda": _PAIR_OR_NULL,
    "virtualization": _TEXT_OR_NULL,
    "sources": (_are_sources, "a list of pairs of texts"),
    "cpu": (_are_texts, "a list of texts"),
}
_PYTHON: FieldTests = {
    "version": _PAIR,
    "full_version": _TEXT_OR_NULL,
    "free_threaded": _FLAG,
    "executable": _TEXT_OR_NULL,
}
_GPU: FieldTests = {
    "name": _TEXT,
    "compute_capability": _PAIR_OR_NULL,
    "index": _SIZE_OR_NULL,
    "uuid": _TEXT_OR_NULL,
    "pci_bus_id": _TEXT_OR_NULL,
    "memory_total": _SIZE_OR_NULL,
    "memory_free": _SIZE_OR_NULL,
    "compute_mode": _TEXT_OR_NULL,
    "ecc": _FLAG_OR_NULL,
    "mig": _FLAG,
}
_PROBLEM: FieldTests = {"code": _TEXT, "detail": _TEXT, "hint": _TEXT}
