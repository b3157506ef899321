"""Values as plain data, for JSON and TOML files, and a host back from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .model import Gpu, Host, Problem, Python, Value, parse_release


def to_plain(value: object) -> Any:
    """Values, tuples and pairs as JSON-able data; fields at their default are left out."""
    if isinstance(value, Value):
        cls = type(value)
        return {
            name: to_plain(getattr(value, name))
            for name in cls._fields
            if not (name in cls._defaults and getattr(value, name) == cls._defaults[name])
        }
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    return value


def host_from_plain(data: object) -> Host:
    """The inverse of `to_plain` for a Host. ValueError names the field that does not fit."""
    fields = _fields(data, Host, "host")
    fields["python"] = Python(**_typed(_fields(fields.get("python"), Python, "host.python"), {"version": _pair}))
    gpus = fields.get("gpus", [])
    if not isinstance(gpus, list):
        raise ValueError("host.gpus must be a list")
    fields["gpus"] = tuple(
        Gpu(**_typed(_fields(gpu, Gpu, f"host.gpus[{n}]"), {"compute_capability": _pair}))
        for n, gpu in enumerate(gpus)
    )
    fields["problems"] = tuple(
        Problem(**_fields(problem, Problem, "host.problems")) for problem in _list(fields.get("problems", []))
    )
    fields["sources"] = tuple((str(fact), str(source)) for fact, source in _list(fields.get("sources", [])))
    host = Host(**_typed(fields, {"glibc": _pair, "driver_cuda": _pair}))
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


_KINDS: dict[str, type | tuple[type, ...]] = {
    "name": str, "uuid": str, "pci_bus_id": str, "memory_total": int, "memory_free": int, "compute_mode": str,
    "ecc": bool, "mig": bool, "index": int, "os": str, "machine": str, "driver": str, "virtualization": str,
    "full_version": str, "free_threaded": bool, "executable": str,
}  # fmt: skip


def _typed(fields: dict[str, Any], readers: Mapping[str, Any]) -> dict[str, Any]:
    for name, value in fields.items():
        if value is None:
            continue
        if name in readers:
            fields[name] = readers[name](name, value)
        elif name in _KINDS and not isinstance(value, _KINDS[name]):
            raise ValueError(f"{name} must not be {value!r}")
    return fields


def _pair(name: str, value: object) -> tuple[int, int]:
    if not (isinstance(value, (list, tuple)) and len(value) == 2 and all(type(part) is int for part in value)):
        raise ValueError(f"{name} must be two numbers, not {value!r}")
    return int(value[0]), int(value[1])


def _list(value: object) -> Iterable[Any]:
    if not isinstance(value, list):
        raise ValueError("expected a list")
    return value
