"""Plan <-> pylock.toml (PEP 751) with [tool.gpuenv], and the hash-pinned requirements format.

A lock has no date in it: the same plan gives the same bytes. What a lock needs of a host stands under
[tool.gpuenv.needs], so that it can be checked before anything is written. [tool.gpuenv] content is a digest of the
rest, so that a pin that was edited by hand is found; the layout of the file does not enter it.
"""

from __future__ import annotations

import hashlib
import os
from typing import Any

import tomli_w

from ..atomic_write import write_whole
from ..errors import InputError, TamperedError
from ..model import Choice, Gpu, Lock, Needs, Pin, Plan, Wheel, parse_pair, parse_release, show_pair
from ..serialize import canonical_json, host_from_plain, to_plain
from .host_fit import fit
from .other_tools import Others, read_others

FORMAT = 1
_KEYS = {
    "format", "frameworks", "requirements", "constraints", "allow-sdist", "data", "digest", "content", "inputs",
    "needs", "choices", "host",
}  # fmt: skip
DIRECT = "url"  # Wheel.index of a file that a requirement names by its URL: PEP 751 calls it an archive

__all__ = ["Others", "dumps", "fit", "loads", "lock", "read", "read_others", "requirements_text", "write"]


def lock(plan: Plan) -> Lock:
    """The lock of a plan. InputError if the index gave no sha256 for one of the files: no lock without hashes."""
    for pin in plan.pins:
        if pin.wheel.sha256 is None:
            raise InputError(f"{pin.wheel.filename}: its index gives no sha256, and a lock needs one for each file")
    pins = tuple(
        Pin(wheel=_locked(pin.wheel), dependencies=pin.dependencies)
        for pin in plan.pins
    )
    return Lock(
        pins=pins,
        needs=plan.needs,
        choices=plan.choices,
        host=plan.host.replace(gpus=tuple(map(_stable, plan.host.gpus)), sources=(), problems=(), python=_target(plan)),
        frameworks=plan.request.frameworks,
        requirements=plan.request.requirements,
        constraints=plan.request.constraints,
        allow_sdist=plan.request.allow_sdist,
        data=plan.data,
        digest=plan.digest,
    )


def _locked(wheel: Wheel) -> Wheel:
    """What a lock keeps of a wheel; the rest belongs to the index."""
    keep = ("name", "version", "filename", "url", "sha256", "size", "index")
    return Wheel(**{field: getattr(wheel, field) for field in keep})


def _stable(gpu: Gpu) -> Gpu:
    """A device without what differs from one boot, or one node of a kind, to the next."""
    return Gpu(name=gpu.name, compute_capability=gpu.compute_capability, mig=gpu.mig)


def _target(plan: Plan) -> Any:
    python = plan.host.python
    return python.replace(executable=None)


# ---- writing ----------------------------------------------------------------------------------------------------


def dumps(lock: Lock) -> str:
    """The text of pylock.toml."""
    document = _document(lock)
    document["tool"]["gpuenv"]["content"] = content(document)
    return tomli_w.dumps(document)


def content(document: dict[str, Any]) -> str:
    """sha256 of what a lock says, whatever its layout; tables of other tools and the digest itself stay out."""
    mine = {key: value for key, value in document["tool"]["gpuenv"].items() if key != "content"}
    said = {**document, "tool": mine}
    return hashlib.sha256(canonical_json(said).encode()).hexdigest()


def _document(lock: Lock) -> dict[str, Any]:
    python = show_pair(lock.needs.python)
    packages = []
    for pin in lock.pins:
        wheel = pin.wheel
        package: dict[str, Any] = {"name": wheel.name, "version": wheel.version}
        if pin.dependencies:
            package["dependencies"] = [{"name": name} for name in pin.dependencies]
        if wheel.index and wheel.index != DIRECT:
            package["index"] = wheel.index
        packages.append(package | _file(wheel))
    return {
        "lock-version": "1.0",
        "environments": [_marker(lock.needs)],
        "requires-python": f"=={python}.*",
        "created-by": "gpuenv",
        "packages": packages,
        "tool": {
            "gpuenv": {
                "format": FORMAT,
                "frameworks": list(lock.frameworks),
                "requirements": list(lock.requirements),
                **({"constraints": list(lock.constraints)} if lock.constraints else {}),
                **({"allow-sdist": list(lock.allow_sdist)} if lock.allow_sdist else {}),
                "data": lock.data,
                "digest": lock.digest,
                "content": "",
                **({"inputs": to_plain(dict(lock.inputs))} if lock.inputs else {}),
                "needs": _plain(lock.needs),
                "choices": [_plain(choice) for choice in lock.choices],
                "host": _plain(lock.host),
            }
        },
    }


def _file(wheel: Wheel) -> dict[str, Any]:
    """The one file of a package, under the key that PEP 751 has for its kind."""
    file: dict[str, Any] = {"url": wheel.url} if wheel.index == DIRECT else {"name": wheel.filename, "url": wheel.url}
    if wheel.size is not None:
        file["size"] = wheel.size
    file["hashes"] = {"sha256": wheel.sha256}
    if wheel.index == DIRECT:
        return {"archive": file}
    return {"wheels": [file]} if wheel.filename.endswith(".whl") else {"sdist": file}


def _plain(value: object) -> Any:
    """As `to_plain`, without the nulls that TOML does not have, and with pairs as people write them: "13.2"."""
    return _readable(to_plain(value))


def _readable(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _readable(item) for key, item in data.items() if item is not None}
    if isinstance(data, list):
        if len(data) == 2 and all(type(item) is int for item in data):
            return f"{data[0]}.{data[1]}"
        return [_readable(item) for item in data]
    return data


def _paired(data: Any, where: str) -> Any:
    """The inverse of `_readable` for a host."""
    if not isinstance(data, dict):
        raise ValueError(f"{where} must be a table")
    fields = dict(data)
    for name in ("glibc", "driver_cuda", "compute_capability"):
        if name in fields:
            fields[name] = list(_numbers(fields[name], f"{where}.{name}"))
    if "python" in fields and isinstance(fields["python"], dict) and "version" in fields["python"]:
        version = list(_numbers(fields["python"]["version"], f"{where}.python.version"))
        fields["python"] = {**fields["python"], "version": version}
    if isinstance(fields.get("gpus"), list):
        # A device of unknown compute capability has none in TOML.
        fields["gpus"] = [{"compute_capability": None, **_paired(gpu, f"{where}.gpus")} for gpu in fields["gpus"]]
    return fields


def _marker(needs: Needs) -> str:
    """The PEP 508 marker of the one environment that the lock is for."""
    system, machine = ("win32", "AMD64") if needs.platform == "win-amd64" else ("linux", needs.platform[6:])
    return (
        f'implementation_name == "cpython" and platform_machine == "{machine}" and '
        f'python_version == "{show_pair(needs.python)}" and sys_platform == "{system}"'
    )


def requirements_text(lock: Lock) -> str:
    """Hash-pinned requirements for `pip install --no-deps --require-hashes -r`.

    Packages of an index other than the default are named by URL, so that no other index can supply them.
    """
    python = show_pair(lock.needs.python)
    lines = [f"# gpuenv {lock.digest[:16]}: Python {python}, driver >= {lock.needs.driver or 'none'}"]
    default = _default_index(lock)
    for pin in lock.pins:
        wheel = pin.wheel
        what = f"{wheel.name}=={wheel.version}" if wheel.index == default else f"{wheel.name} @ {wheel.url}"
        lines.append(f"{what} \\\n    --hash=sha256:{wheel.sha256}")
    return "\n".join(lines) + "\n"


def _default_index(lock: Lock) -> str:
    """The index that supplied most packages."""
    indexes = [pin.wheel.index for pin in lock.pins if pin.wheel.index]
    return max(sorted(set(indexes)), key=indexes.count, default="")


def write(path: str, text: str) -> None:
    """Writes a file whole or not at all. InputError if it cannot."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise InputError(f"{path}: the folder {folder} does not exist", hint="make the folder, or give another -o")
    if os.path.isdir(path):
        raise InputError(f"{path}: is a folder", hint="give a file name to -o")
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}", hint="give another -o") from None


# ---- reading ----------------------------------------------------------------------------------------------------


def read(path: str) -> Lock:
    """The lock in a file. InputError says what is wrong with it and where."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}", hint="make one with gpuenv solve") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not TOML: {error}") from None
    return loads(text, path)


def loads(text: str, path: str) -> Lock:
    """The lock in a text; `path` is only for messages. InputError as `read`."""
    import tomllib

    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: is not TOML: {error}") from None
    tables = data.get("tool")
    tool = tables.get("gpuenv") if isinstance(tables, dict) else None
    if not isinstance(tool, dict):
        _validate(data, path)
        what = f"{path}: has no [tool.gpuenv], so what it needs of a host is not known"
        raise InputError(what, hint="make it again with gpuenv solve")
    if "content" not in tool or tool.get("format") != FORMAT:
        _validate(data, path)
    elif tool["content"] != content(data):
        raise TamperedError(f"{path}: was edited after it was locked{_odd(data, tool, path)}", hint="lock it again")
    # What has the right digest is as gpuenv wrote it: validating that again takes longer than reading it.
    return _parsed(data, tool, path)


def _parsed(data: dict[str, Any], tool: dict[str, Any], path: str) -> Lock:
    try:
        return _from_tables(data, tool)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path}: {error.args[0] if error.args else error}") from None


def _validate(data: dict[str, Any], path: str) -> None:
    from packaging.pylock import Pylock, PylockUnsupportedVersionError, PylockValidationError

    try:
        Pylock.from_dict(data)
    except (PylockValidationError, PylockUnsupportedVersionError) as error:
        raise InputError(f"{path}: is not a valid lock: {' '.join(str(error).split())}") from None


def _odd(data: dict[str, Any], tool: dict[str, Any], path: str) -> str:
    """What shows by itself that a lock was edited, such as a package whose file is not of its version; else ""."""
    from urllib.parse import unquote

    try:
        _validate(data, path)
        lock = _parsed(data, tool, path)
    except InputError as error:
        return f": {error.message.removeprefix(path + ': ')}"
    for pin in lock.pins:
        wheel = pin.wheel
        if unquote(wheel.url.rpartition("/")[2].partition("#")[0]) != wheel.filename:
            return f": package {wheel.name} has {wheel.filename}, and its url is {wheel.url}"
    return ""


def _from_tables(data: dict[str, Any], tool: dict[str, Any]) -> Lock:
    if tool.get("format") != FORMAT:
        raise ValueError(f"tool.gpuenv.format is {tool.get('format')!r}; this gpuenv reads {FORMAT}")
    unknown = set(tool) - _KEYS
    if unknown:
        raise ValueError(f"tool.gpuenv has an unknown field {sorted(unknown)[0]!r}")
    pins = []
    for package in data["packages"]:
        names = tuple(one["name"] for one in package.get("dependencies", ()))
        pins.append(Pin(wheel=_wheel(package), dependencies=names))
    return Lock(
        pins=tuple(pins),
        needs=Needs(**_fields(Needs, tool.get("needs"), "needs")),
        choices=tuple(Choice(**_fields(Choice, one, "choices")) for one in _list(tool, "choices")),
        host=host_from_plain(_paired(tool.get("host"), "tool.gpuenv.host")),
        frameworks=tuple(map(str, _list(tool, "frameworks"))),
        requirements=tuple(map(str, _list(tool, "requirements"))),
        constraints=tuple(map(str, _list({"constraints": [], **tool}, "constraints"))),
        allow_sdist=tuple(map(str, _list({"allow-sdist": [], **tool}, "allow-sdist"))),
        data=_text(tool, "data"),
        digest=_text(tool, "digest"),
        inputs=_inputs(tool.get("inputs", {})),
    )


def _wheel(package: dict[str, Any]) -> Wheel:
    """The one file of a package: a wheel, a source distribution, or either of them at a URL of its own."""
    name = package["name"]
    files = [*(package.get("wheels") or ()), *(package[key] for key in ("sdist", "archive") if key in package)]
    if len(files) != 1:
        raise ValueError(f"package {name} has {len(files)} files; gpuenv locks one")
    file = files[0]
    sha256 = file.get("hashes", {}).get("sha256")
    if not (isinstance(sha256, str) and len(sha256) == 64 and set(sha256) <= set("0123456789abcdef")):
        raise ValueError(f"package {name} has no sha256 of its file, and nothing is installed without one")
    url = file.get("url")
    if not isinstance(url, str):
        raise ValueError(f"package {name} has no url of its file")
    return Wheel(
        name=name,
        version=package["version"],
        filename=file.get("name") or _last(url),
        url=url,
        sha256=sha256,
        size=file.get("size"),
        index=DIRECT if "archive" in package else package.get("index", ""),
    )


def _last(url: str) -> str:
    from urllib.parse import unquote

    return unquote(url.rpartition("/")[2])


def _inputs(data: object) -> tuple[tuple[str, Any], ...]:
    """The table of inputs, lists as tuples. What keys it has is the business of who compares it."""
    if not isinstance(data, dict):
        raise ValueError(f"tool.gpuenv.inputs must be a table, not {data!r}")
    return tuple((key, tuple(value) if isinstance(value, list) else value) for key, value in data.items())


def _list(table: dict[str, Any], name: str) -> list[Any]:
    if not isinstance(table.get(name), list):
        raise ValueError(f"tool.gpuenv.{name} must be a list, not {table.get(name)!r}")
    return list(table[name])


def _text(table: dict[str, Any], name: str) -> str:
    if not isinstance(table.get(name), str):
        raise ValueError(f"tool.gpuenv.{name} must be a text, not {table.get(name)!r}")
    return str(table[name])


_TYPES: dict[str, Any] = {
    "driver": str, "platform": str, "framework": str, "version": str, "variant": str, "cudnn": str, "evidence": str,
    "source": str,
}  # fmt: skip
_PAIRS = ("cuda", "glibc", "python")


def _fields(cls: Any, data: object, where: str) -> dict[str, Any]:
    """The fields of Needs or Choice, with pairs and lists as tuples. ValueError names the field that does not fit."""
    if not isinstance(data, dict):
        raise ValueError(f"tool.gpuenv.{where} must be a table")
    fields: dict[str, Any] = {"cuda": None, "cudnn": None} if cls is Choice else {}
    for name, value in data.items():
        at = f"tool.gpuenv.{where}.{name}"
        if name not in cls._fields:
            raise ValueError(f"{at} is not a field that this gpuenv knows")
        if name in _PAIRS:
            fields[name] = _numbers(value, at)
        elif name == "compute_capabilities" and isinstance(value, list):
            fields[name] = tuple(_numbers(one, at) for one in value)
        elif name in ("sass", "ptx") and isinstance(value, list) and all(isinstance(one, str) for one in value):
            fields[name] = tuple(value)
        elif not (name in _TYPES and isinstance(value, _TYPES[name])):
            raise ValueError(f"{at} must not be {value!r}")
        else:
            fields[name] = value
    if fields.get("driver") is not None:
        parse_release(fields["driver"])
    return fields


def _numbers(value: object, where: str) -> tuple[int, int]:
    try:
        if not isinstance(value, str):
            raise ValueError
        return parse_pair(value)
    except ValueError:
        raise ValueError(f"{where} must be of the form \"X.Y\", not {value!r}") from None
