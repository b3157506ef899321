"""Plan -> pylock.toml (PEP 751) with [tool.gpuenv], and back; hash-pinned requirements.

A lock holds no date: the same plan gives the same bytes. [tool.gpuenv.needs] holds what the lock
asks of a host, so that it can be checked before anything is written. [tool.gpuenv] content is a
digest of the rest of the document, whatever its layout: it shows that a lock was edited.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..atomic_write import write_all
from ..digest import text_digest
from ..errors import InputError, TamperedError
from ..model import Gpu, Host, Lock, Needs, Pin, Plan, Wheel, show_pair
from ..requirements.target import split_label
from ..serialize import canonical_json, parse_toml, read_input
from .fields import (
    FIELDS,
    OLDEST_READERS,
    PYLOCK,
    Document,
    oldest_number,
    plain_fields,
    plan_fields,
    read_fields,
    toml_pair,
)

DIRECT = "url"  # Wheel.index of a file that a requirement names by its URL: an archive in PEP 751
_KEYS = {"format", "oldest-reader", "content", *(field.key for field in FIELDS)}
_IDENTITIES = "attestation-identities"
VARIANTS_JSON = "variants-json"  # the table of a package that PEP 825 adds
_KEPT_OF_WHEEL = ("name", "version", "filename", "url", "sha256", "size", "index")
# What a lock says to whoever installs it. Other warnings are about the data or about the machine.
_KEPT_WARNINGS = frozenset({"cpu-dependency", "gpu-unused"})


def lock(plan: Plan, *, variants_json: bool = False) -> Lock:
    """Return the lock of a plan. InputError if the index gave no sha256 for one of the files.

    Args:
        plan: the plan.
        variants_json: keep the file names of variant wheels, and add their metadata to the lock.
    """
    refuse_missing_hashes(plan, "index")
    pins = []
    for pin in plan.pins:
        kept = {field: getattr(pin.wheel, field) for field in _KEPT_OF_WHEEL}
        if pin.wheel.index != DIRECT and not variants_json:
            # Tools that do not know variant wheels take one under the ordinary name of its file.
            kept["filename"] = split_label(pin.wheel.filename)[0]
        pins.append(Pin(wheel=Wheel(**kept), dependencies=pin.dependencies))
    return Lock(
        pins=tuple(pins),
        host=host_to_lock(plan.host),
        warnings=tuple(warning for warning in plan.warnings if warning.code in _KEPT_WARNINGS),
        variant_metadata=plan.variant_metadata if variants_json else (),
        **plan_fields(plan, FIELDS),
    )


def refuse_missing_hashes(plan: Plan, source: str) -> None:
    """Raise InputError for a file without sha256; `source` names who should give it."""
    for pin in plan.pins:
        if pin.wheel.sha256 is None:
            message = f"{pin.wheel.filename}: its {source} gives no sha256"
            raise InputError(f"{message}, and a lock needs one for each file")


def host_to_lock(host: Host) -> Host:
    """Return a host without what differs between boots, or between nodes of one kind."""
    gpus = [
        Gpu(name=gpu.name, compute_capability=gpu.compute_capability, mig=gpu.mig)
        for gpu in host.gpus
    ]
    python = host.python.replace(executable=None)
    return host.replace(gpus=tuple(gpus), sources=(), problems=(), python=python, cpu=())


# ---- writing ------------------------------------------------------------------------------------


def dumps(lock: Lock) -> str:
    """Return the text of pylock.toml."""
    import tomli_w  # `gpuenv lock --check` reads locks and does not need it

    metadata = {name: json.loads(text) for name, text in lock.variant_metadata}
    document: Document = {
        "lock-version": "1.0",
        "environments": [environment_marker(lock.needs)],
        "requires-python": f"=={show_pair(lock.needs.python)}.*",
        "created-by": "gpuenv",
        "packages": [_package(pin, metadata.get(pin.wheel.name)) for pin in lock.pins],
        "tool": {"gpuenv": _tool_table(lock)},
    }
    document["tool"]["gpuenv"]["content"] = content(document)
    return tomli_w.dumps(document)


def installer_text(lock: Lock) -> str:
    """Return a pylock.toml with only what an installer needs to install these files.

    Dependencies are left out: the files need not be all of an environment.
    """
    import tomli_w

    document: Document = {
        "lock-version": "1.0",
        "created-by": "gpuenv",
        "packages": [_package(pin.replace(dependencies=(), publishers=())) for pin in lock.pins],
    }
    return tomli_w.dumps(document)


def content(document: Document) -> str:
    """Return the sha256 of what a lock says, whatever its layout.

    Tables of other tools and the digest itself are left out.
    """
    table = dict(document["tool"]["gpuenv"])
    table.pop("content", None)
    return text_digest(canonical_json({**document, "tool": table}))


def _tool_table(lock: Lock) -> dict[str, object]:
    """Return [tool.gpuenv]; `dumps` fills in `content`."""
    texts = tuple(field for field in FIELDS if not field.table)
    tables = tuple(field for field in FIELDS if field.table)
    number = oldest_number(lock)
    table: dict[str, object] = {"format": number}
    if number in OLDEST_READERS:
        table["oldest-reader"] = OLDEST_READERS[number]
    return {
        **table,
        **plain_fields(lock, texts),
        "content": "",
        **{key: _toml_form(value) for key, value in plain_fields(lock, tables).items()},
    }


def _toml_form(value: object) -> object:
    """Leave out nulls, which TOML does not have, and write pairs as people do: "13.2"."""
    if isinstance(value, dict):
        return {key: _toml_form(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        if len(value) == 2 and all(type(item) is int for item in value):
            return f"{value[0]}.{value[1]}"
        return [_toml_form(item) for item in value]
    return value


def _package(pin: Pin, variant_metadata: Document | None = None) -> dict[str, object]:
    wheel = pin.wheel
    package: dict[str, object] = {"name": wheel.name, "version": wheel.version}
    if pin.dependencies:
        package["dependencies"] = [{"name": name} for name in pin.dependencies]
    if wheel.index and wheel.index != DIRECT:
        package["index"] = wheel.index
    package |= _file_of_package(wheel)
    if variant_metadata is not None:
        package[VARIANTS_JSON] = variant_metadata
    if pin.publishers:
        package[_IDENTITIES] = [json.loads(text) for text in pin.publishers]
    return package


def _file_of_package(wheel: Wheel) -> dict[str, object]:
    """Return the one file of a package, under the key that PEP 751 has for its kind."""
    file: dict[str, object] = {}
    if wheel.index != DIRECT:
        file["name"] = wheel.filename
    file["url"] = wheel.url
    if wheel.size is not None:
        file["size"] = wheel.size
    file["hashes"] = {"sha256": wheel.sha256}
    if wheel.index == DIRECT:
        return {"archive": file}
    if wheel.filename.endswith(".whl"):
        return {"wheels": [file]}
    return {"sdist": file}


def environment_marker(needs: Needs) -> str:
    """Return the PEP 508 marker of the one environment that the lock is for."""
    system, machine = "linux", needs.platform.removeprefix("linux-")
    if needs.platform == "win-amd64":
        system, machine = "win32", "AMD64"
    return (
        f'implementation_name == "cpython" and platform_machine == "{machine}" and '
        f'python_version == "{show_pair(needs.python)}" and sys_platform == "{system}"'
    )


def requirements_text(lock: Lock) -> str:
    """Return hash-pinned requirements for `pip install --no-deps --require-hashes -r`.

    Packages of an index other than the default are named by URL, so that no other index can
    supply them.
    """
    if lock.variants:
        name = lock.variants[0].name
        message = f"requirements cannot name the variant wheel of {name}"
        raise InputError(message, hint="write a lock: --format pylock")
    python, driver = show_pair(lock.needs.python), lock.needs.driver or "none"
    lines = [f"# gpuenv {lock.digest[:16]}: Python {python}, driver >= {driver}"]
    default = most_used_index(lock.pins)
    for pin in lock.pins:
        wheel = pin.wheel
        requirement = f"{wheel.name} @ {wheel.url}"
        if wheel.index == default:
            requirement = f"{wheel.name}=={wheel.version}"
        lines.append(f"{requirement} \\\n    --hash=sha256:{wheel.sha256}")
    return "\n".join(lines) + "\n"


def most_used_index(pins: Sequence[Pin]) -> str:
    """Return the index that has most of some packages: the default index."""
    indexes = [pin.wheel.index for pin in pins if pin.wheel.index not in ("", DIRECT)]
    return max(sorted(set(indexes)), key=indexes.count, default="")


def write(path: str, text: str) -> None:
    """Write a file whole or not at all. InputError if it cannot be written."""
    write_texts({path: text})


def write_texts(texts: Mapping[str, str]) -> None:
    """Write several files or none. InputError if one cannot be written."""
    check_places(texts)
    try:
        write_all({path: text.encode() for path, text in texts.items()})
    except OSError as error:
        message = f"{', '.join(texts)}: cannot be written: {error.strerror}"
        raise InputError(message, hint="give another -o") from None


def check_places(paths: Iterable[str]) -> None:
    """Raise InputError if there can be no file at one of the paths."""
    for path in paths:
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            hint = "make the folder, or give another -o"
            raise InputError(f"{path}: the folder {folder} does not exist", hint=hint)
        if os.path.isdir(path):
            raise InputError(f"{path}: is a folder", hint="give a file name to -o")
        if not os.access(folder, os.W_OK | os.X_OK):
            message = f"{path}: the folder {folder} cannot be written"
            raise InputError(message, hint="give another -o")


# ---- reading ------------------------------------------------------------------------------------


def read(path: str) -> Lock:
    """Return the lock in a file. InputError says what is wrong with it and where."""
    try:
        text = read_input(path).decode()
    except OSError as error:
        message = f"{path}: cannot be read: {error.strerror}"
        raise InputError(message, hint="make a lock with gpuenv solve") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not TOML: {error}") from None
    return loads(text, path)


def loads(text: str, path: str) -> Lock:
    """Return the lock in a text; `path` is for messages.

    Raises:
        TamperedError: The digest does not fit: the lock was edited.
        InputError: The text is no lock of gpuenv, or a newer gpuenv wrote it.
    """
    try:
        document: Document = parse_toml(text)
    except ValueError as error:
        raise InputError(f"{path}: is not TOML: {error}") from None
    table = _own_table(document)
    if table is None:
        _validate(document, path)
        message = f"{path}: has no [tool.gpuenv], so what it needs of a host is not known"
        raise InputError(message, hint="make the lock again with gpuenv solve")
    PYLOCK.refuse_newer(table, f"{path}: tool.gpuenv.format")
    if "content" not in table or type(table.get("format")) is not int:
        _validate(document, path)
    elif table["content"] != content(document):
        edit = _visible_edit(document, path)
        raise TamperedError(f"{path}: was edited after it was locked{edit}", hint="lock it again")
    return _parse(document, path)


def _own_table(document: Mapping[str, object]) -> dict[str, Any] | None:
    tools = document.get("tool")
    table = tools.get("gpuenv") if isinstance(tools, dict) else None
    return table if isinstance(table, dict) else None


def _validate(document: Document, path: str) -> None:
    """Raise InputError for a document that is no PEP 751 lock.

    packaging.pylock is imported here because it takes as long as a solve.
    """
    from packaging.pylock import Pylock, PylockUnsupportedVersionError, PylockValidationError

    try:
        Pylock.from_dict(document)
    except (PylockValidationError, PylockUnsupportedVersionError) as error:
        text = " ".join(str(error).split())
        raise InputError(f"{path}: is not a valid lock: {text}") from None


def _visible_edit(document: Document, path: str) -> str:
    """Return an edit that shows without the digest, as ": text", or "".

    An example is a package whose file is not of its version.
    """
    if any(VARIANTS_JSON in package for package in document.get("packages", ())):
        return ""  # packaging does not know these file names
    try:
        _validate(document, path)
        _parse(document, path)
    except InputError as error:
        return f": {error.message.removeprefix(path + ': ')}"
    return ""


def _parse(document: Document, path: str) -> Lock:
    """Return the lock of a document. InputError names the field that does not fit."""
    try:
        number = document["tool"]["gpuenv"].get("format")
        return _lock_of(PYLOCK.migrate(document, number, "tool.gpuenv.format"))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        detail = error.args[0] if error.args else error
        raise InputError(f"{path}: {detail}") from None


def _lock_of(document: Document) -> Lock:
    table = document["tool"]["gpuenv"]
    unknown = sorted(set(table) - _KEYS)
    if unknown:
        raise ValueError(f"tool.gpuenv has an unknown field {unknown[0]!r}")
    pins, metadata = [], []
    for package in document["packages"]:
        if VARIANTS_JSON in package:
            metadata.append((package["name"], canonical_json(package[VARIANTS_JSON])))
        names = tuple(dependency["name"] for dependency in package.get("dependencies", ()))
        identities = tuple(map(canonical_json, package.get(_IDENTITIES, ())))
        pins.append(Pin(wheel=_wheel(package), dependencies=names, publishers=identities))
    fields = read_fields(table, "tool.gpuenv.", FIELDS, toml_pair)
    lock = Lock(pins=tuple(pins), variant_metadata=tuple(metadata), **fields)
    for name, text in metadata:
        _check_metadata(lock, name, text)
    return lock


def _check_metadata(lock: Lock, name: str, text: str) -> None:
    """Raise ValueError if [packages.variants-json] does not describe the variant of the lock."""
    from ..index.variants import parse  # most locks have no such table

    where = f"package {name}: {VARIANTS_JSON}"
    try:
        release = parse(text.encode(), name)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    for variant in lock.variants:
        described = release.find(variant.label) if variant.name == name else None
        if described is not None and described.properties == variant.properties:
            return
    raise ValueError(f"{where} differs from tool.gpuenv.variants")


def _wheel(package: dict[str, Any]) -> Wheel:
    """Return the one file of a package: a wheel, a source distribution, or either by its URL."""
    from . import grammar  # slow, and writing a lock does not need it

    name = package["name"]
    files = list(package.get("wheels") or ())
    files += [package[key] for key in ("sdist", "archive") if key in package]
    if len(files) != 1:
        raise ValueError(f"package {name} has {len(files)} files; gpuenv locks one")
    file = files[0]
    sha256 = grammar.check_sha256(name, file.get("hashes", {}).get("sha256"))
    url = file.get("url")
    if not isinstance(url, str):
        raise ValueError(f"package {name} has no url of its file")
    wheel = Wheel(
        name=name,
        version=package["version"],
        filename=file.get("name") or _last_part(url),
        url=url,
        sha256=sha256,
        size=file.get("size"),
        index=DIRECT if "archive" in package else package.get("index", ""),
    )
    grammar.check_wheel(wheel)
    return wheel


def _last_part(url: str) -> str:
    from urllib.parse import unquote  # writing a lock does not need it

    return unquote(url.rpartition("/")[2])
