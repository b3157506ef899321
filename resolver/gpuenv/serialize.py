"""Values as plain data, for JSON and TOML files, and a host back from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .model import Gpu, Host, Problem, Python, Value, parse_release

Tests = Mapping[str, tuple[Callable[[object], bool], str]]


def to_plain(value: object) -> Any:
    """Values, tuples and pairs as JSON-able data; fields at their default are left out."""
    if isinstance(value, Value):
        cls = type(value)
        return {
            name: to_plain(getattr(value, name))
            for name in cls._fields
            if not (name in cls._defaults and getattr(value, name) == cls._defaults[name])
        }
    if isinstance(value, dict):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    return value


def canonical_json(value: object) -> str:
    """Return JSON text with sorted keys and no spaces, for digests.

    What JSON has no form for is written as its `str`.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def host_from_plain(data: object) -> Host:
    """The inverse of `to_plain` for a Host. ValueError names the field that does not fit."""
    _check(data)
    fields = _fields(data, Host, "host")
    fields["python"] = Python(**_paired(_fields(fields.get("python"), Python, "host.python"), "version"))
    fields["gpus"] = tuple(
        Gpu(**_paired(_fields(gpu, Gpu, f"host.gpus[{n}]"), "compute_capability"))
        for n, gpu in enumerate(fields.get("gpus", []))
    )
    problems = enumerate(fields.get("problems", []))
    fields["problems"] = tuple(Problem(**_fields(one, Problem, f"host.problems[{n}]")) for n, one in problems)
    fields["sources"] = tuple((fact, source) for fact, source in fields.get("sources", []))
    host = Host(**_paired(fields, "glibc", "driver_cuda"))
    if host.driver is not None:
        parse_release(host.driver)
    return host


def _fields(data: object, cls: type[Value], where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError(f"{where} must be a table")
    unknown = set(data) - set(cls._fields)
    if unknown:
        raise ValueError(f"{where} has an unknown field {sorted(map(str, unknown))[0]!r}")
    missing = [name for name in cls._fields if name not in data and name not in cls._defaults]
    if missing:
        raise ValueError(f"{where} lacks {missing[0]!r}")
    return dict(data)


def _paired(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    """The same fields with the lists of these names as tuples."""
    return {name: tuple(value) if name in names and value is not None else value for name, value in fields.items()}


# ---- what kind of value each field takes ------------------------------------------------------------------------


def _check(host: object) -> None:
    """Raises ValueError for a field of the wrong kind: null where a value belongs, a flag where a number does."""
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


def read_toml(path: str) -> dict[str, Any]:
    """The content of a TOML file of the user's. InputError says why it cannot be read."""
    import tomllib

    from .errors import InputError

    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is not TOML: {error}") from None
