"""Locks of conda environments: an @EXPLICIT file, conda-lock.yml (version 1), and pixi.lock.

gpuenv reads all of them, and writes the first two. These name every file by its URL and sha256,
carry what gpuenv locked beside the files, and hold no date: the same plan gives the same bytes.
What gpuenv locked is a JSON document: in an @EXPLICIT file a comment at its head, in conda-lock.yml
`metadata.custom_metadata.gpuenv`. conda and conda-lock ignore both. Its key `content` is a digest
of the rest and of the files.

Wheels in a conda environment have a lock of their own, a pylock.toml beside the conda lock. The
conda lock names it with its sha256; the pylock.toml names the conda lock.

Locks of other tools hold packages of several platforms. What is read is one platform: that of this
machine, or the only one.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from sysconfig import get_platform
from typing import Any
from urllib.parse import unquote

from ..errors import InputError, TamperedError
from ..index.urls import path_to_file_url, without_credentials
from ..model import Host, Lock, Needs, Pin, Plan, Python, Wheel, major_minor
from ..requirements.versions import normalize_name
from ..resolve.conda.virtual_packages import SUBDIRS
from ..serialize import (
    canonical_json,
    dump_yaml,
    from_plain,
    load_yaml,
    read_input,
    text_digest,
    to_plain,
)
from . import grammar, pylock
from .fields import CONDA, CondaTable, Document

# {format: the file that it is written to}
FORMATS = {"conda-explicit": "conda-explicit.txt", "conda-lock": "conda-lock.yml"}
# Input of a lock of wheels: the file of the conda lock that it belongs to.
_CONDA_LOCK = "conda-lock"
_PREFIX = "# gpuenv: "
_EXPLICIT = re.compile(r"^@EXPLICIT\s*$", re.MULTILINE)
_FILE_LINE = re.compile(
    r"(?P<url>\S+?/[^/\s]+/[^/\s#]+\.(?:conda|tar\.bz2))"
    r"(?:#(?:(?:sha256:)?(?P<sha256>[0-9a-f]{64})|(?P<md5>[0-9a-f]{32})))?"
)
_NAME_PARTS = 3  # NAME-VERSION-BUILD
_PIXI = "pixi.lock"
_PIXI_VERSIONS = (4, 5, 6, 7)
# The keys of the locks that are YAML.
_KEYS = {
    _PIXI: ("version", "environments", "packages"),
    "conda-lock.yml": ("version", "metadata", "package"),
}


def lock(plan: Plan, channels: tuple[str, ...]) -> Lock:
    """Return the lock of a plan, with that of its wheels.

    InputError if a channel gives no sha256 for one of the files.
    """
    pylock.refuse_missing_hashes(plan, "channel")
    return Lock(
        pins=plan.pins,
        needs=plan.needs,
        choices=plan.choices,
        host=pylock.host_to_lock(plan.host),
        frameworks=plan.request.frameworks,
        requirements=plan.request.requirements,
        data=plan.data,
        inputs=(("channels", channels),),
        conda=True,
        wheels=None if plan.wheels is None else pylock.lock(plan.wheels),
    )


# ---- writing ------------------------------------------------------------------------------------


def dumps(lock: Lock, form: str = "") -> str:
    """Return the text of a lock without passwords and tokens of channels.

    It has one of FORMATS; "" is the first of them.
    """
    lock = _without_credentials(lock)
    return _conda_lock_text(lock) if form == "conda-lock" else _explicit_text(lock)


def lock_texts(lock: Lock, path: str, form: str = "") -> dict[str, str]:
    """Return {path: text} of the files of a lock: `path`, then the lock of its wheels, if any.

    The lock of the wheels names the file of the conda lock. The conda lock names the file and the
    sha256 of the lock of the wheels.
    """
    if lock.wheels is None:
        return {path: dumps(lock, form)}
    file = wheel_lock_name(path)
    inputs = ((_CONDA_LOCK, os.path.basename(path)),)
    text_beside = pylock.dumps(lock.wheels.replace(inputs=inputs))
    lock = lock.replace(inputs=(*lock.inputs, ("pip", (file, text_digest(text_beside)))))
    path_beside = os.path.join(os.path.dirname(path), file)
    return {path: dumps(lock, form), path_beside: text_beside}


def _without_credentials(lock: Lock) -> Lock:
    pins = []
    for pin in lock.pins:
        wheel = pin.wheel
        wheel = wheel.replace(
            url=without_credentials(wheel.url), index=without_credentials(wheel.index)
        )
        pins.append(pin.replace(wheel=wheel))
    inputs = dict(lock.inputs)
    inputs["channels"] = tuple(map(without_credentials, _channels(lock)))
    return lock.replace(pins=tuple(pins), inputs=tuple(inputs.items()))


def _channels(lock: Lock) -> tuple[str, ...]:
    channels: tuple[str, ...] = dict(lock.inputs).get("channels", ())
    return channels


def _own_json(lock: Lock) -> str:
    """Return what gpuenv locked beside the files."""
    document: Document = {
        "format": CONDA.current,
        "channels": list(_channels(lock)),
        **{name: to_plain(getattr(lock, name)) for name in CondaTable.__struct_fields__},
    }
    wheel_lock = wheel_lock_of(lock)
    if wheel_lock is not None:
        file, digest = wheel_lock
        document["pip"] = {"file": file, "sha256": digest}
    profile = {key: value for key, value in lock.inputs if key not in ("channels", "pip")}
    if profile:
        document["profile"] = profile
    document["content"] = _content(document, lock.pins)
    return json.dumps(document, sort_keys=True)


def _content(document: Document, pins: Sequence[Pin]) -> str:
    """Return the sha256 of what gpuenv locked and of the files."""
    files = sorted(f"{pin.wheel.url}#{pin.wheel.sha256}" for pin in pins)
    rest = {key: value for key, value in document.items() if key != "content"}
    return text_digest(canonical_json([rest, files]))


def _explicit_text(lock: Lock) -> str:
    lines = [
        "# This file may be used to create an environment: "
        "gpuenv sync FILE --target PREFIX checks the host first;",
        "# conda create --prefix PREFIX --file FILE does not.",
    ]
    wheel_lock = wheel_lock_of(lock)
    if wheel_lock is not None:
        lines.append(f"# Its pip packages are in {wheel_lock[0]} beside it.")
    lines += [f"# platform: {_subdir(lock)}", _PREFIX + _own_json(lock), "@EXPLICIT"]
    lines += [f"{pin.wheel.url}#sha256:{pin.wheel.sha256}" for pin in lock.pins]
    return "\n".join(lines) + "\n"


def _subdir(lock: Lock) -> str:
    return SUBDIRS.get(lock.host.platform, lock.host.platform)


def _conda_lock_text(lock: Lock) -> str:
    subdir, channels = _subdir(lock), _channels(lock)
    request = "\n".join((*lock.frameworks, *lock.requirements, *channels))
    document = {
        "version": 1,
        "metadata": {
            "content_hash": {subdir: text_digest(request)},
            "channels": [{"url": url, "used_env_vars": []} for url in channels],
            "platforms": [subdir],
            "sources": [],
            "custom_metadata": {"created_by": "gpuenv", "gpuenv": _own_json(lock)},
        },
        "package": [_conda_lock_package(pin, subdir) for pin in lock.pins],
    }
    return dump_yaml(document)


def _conda_lock_package(pin: Pin, subdir: str) -> Document:
    wheel, record = pin.wheel, pin.wheel.metadata or {}
    specs: dict[str, list[str]] = {}
    for dependency in record.get("depends", ()):
        name, _, spec = dependency.strip().partition(" ")
        specs.setdefault(name, []).append(spec.strip())
    hashes = {"sha256": wheel.sha256}
    if record.get("md5"):
        hashes = {"md5": record["md5"], "sha256": wheel.sha256}
    return {
        "name": wheel.name,
        "version": wheel.version,
        "manager": "conda",
        "platform": subdir,
        "dependencies": {name: ",".join(filter(None, specs[name])) for name in sorted(specs)},
        "url": wheel.url,
        "hash": hashes,
        "category": "main",
        "optional": False,
    }


# ---- reading ------------------------------------------------------------------------------------


def is_lock(path: str) -> bool:
    """Return whether a file is a lock of a conda environment; False where there is no file."""
    if path.endswith(".toml"):
        return False
    try:
        text = read_input(path)[: 1 << 20].decode(errors="replace")
    except OSError:
        return False
    if os.path.basename(path).endswith(("conda-lock.yml", "conda-lock.yaml")):
        return True
    return _EXPLICIT.search(text) is not None or bool(_kind_of(text))


def read(path: str) -> Lock:
    """Return the lock in a file, of gpuenv or of another tool (then it needs only its files).

    Raises:
        TamperedError: gpuenv wrote the lock, and its files are not those that were locked.
        InputError: The file cannot be read.
    """
    try:
        text = read_input(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    kind = _kind_of(text)
    if _EXPLICIT.search(text) is not None:
        document, pins, wheels = _read_explicit(text, path)
    else:
        try:
            read_yaml = _read_pixi_lock if kind == _PIXI else _read_conda_lock
            document, pins, wheels = read_yaml(load_yaml(text), path)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            expected = kind if kind == _PIXI else "conda-lock.yml of version 1"
            raise InputError(f"{path}: not a {expected}: {error}") from None
    if document is None:
        return _without_needs(pins, wheels)
    try:
        CONDA.refuse_newer(document, f"{path}: the format")
        if document["content"] != _content(document, pins):
            message = f"{path}: its files are not those that were locked"
            raise TamperedError(message, hint="lock again: gpuenv solve")
        return _lock_of(CONDA.migrate(document, "format"), pins)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: what gpuenv wrote into it is damaged: {error}") from None


def _kind_of(text: str) -> str:
    """Return the kind of lock whose keys a text has: pixi.lock, conda-lock.yml, "" for none."""
    for kind, keys in _KEYS.items():
        if all(re.search(rf"^{key}:", text, re.MULTILINE) for key in keys):
            return kind
    return ""


def _without_needs(pins: tuple[Pin, ...], wheels: Sequence[Wheel]) -> Lock:
    """Return the lock of files of which nothing else is known, with wheels beside them."""
    python = next((pin.wheel.version for pin in pins if pin.wheel.name == "python"), "")
    version = major_minor(python) or (0, 0)
    host = Host(python=Python(version=version))
    needs = Needs(python=version) if wheels else Needs()
    lock = Lock(pins=pins, needs=needs, choices=(), host=host, frameworks=())
    beside = lock.replace(pins=tuple(Pin(wheel=wheel) for wheel in wheels)) if wheels else None
    return lock.replace(conda=True, wheels=beside)


def _lock_of(document: Document, pins: tuple[Pin, ...]) -> Lock:
    inputs: list[tuple[str, Any]] = [("channels", tuple(document["channels"]))]
    if "pip" in document:
        inputs.append(("pip", (document["pip"]["file"], document["pip"]["sha256"])))
    for key, value in document.get("profile", {}).items():
        inputs.append((key, tuple(value) if isinstance(value, list) else value))
    names = CondaTable.__struct_fields__
    own = {name: document[name] for name in names if name in document}
    table = from_plain(own, CondaTable, "gpuenv")
    fields = {name: getattr(table, name) for name in names}
    return Lock(pins=pins, inputs=tuple(inputs), conda=True, **fields)


# What gpuenv locked beside the files, None in a lock of another tool; the files; the wheels.
_Content = tuple[Document | None, tuple[Pin, ...], Sequence[Wheel]]


def _read_explicit(text: str, path: str) -> _Content:
    document: Document | None = None
    pins = []
    in_list = False
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        try:
            if line.startswith(_PREFIX):
                document = json.loads(line.removeprefix(_PREFIX))
            elif line == "@EXPLICIT":
                in_list = True
            elif in_list and line and not line.startswith("#"):
                match = _FILE_LINE.fullmatch(line)
                if match is None:
                    raise ValueError("not the URL of a package, with or without its sha256 or md5")
                # A sha256 that the file lacks is read from the channel before the installation.
                record = {} if match["md5"] is None else {"md5": match["md5"]}
                pins.append(_pin_of_file(match["url"], match["sha256"], record))
        except ValueError as error:
            hint = "conda list --explicit --sha256"
            raise InputError(f"{path}, line {number}: {error}", hint=hint) from None
    return document, tuple(pins), ()


def _pin_of_file(url: str, digest: str | None, record: Mapping[str, object]) -> Pin:
    """Return the pin of a file. Raise ValueError for one that is not what it should be."""
    channel, subdir, filename = url.rsplit("/", 2)
    parts = filename.removesuffix(".conda").removesuffix(".tar.bz2").rsplit("-", 2)
    if len(parts) != _NAME_PARTS:
        raise ValueError(f"{filename!r} is not NAME-VERSION-BUILD")
    name, version, build = parts
    number = build.rpartition("_")[2]
    metadata = {
        "build": build,
        "build_number": int(number) if number.isdigit() else 0,
        "subdir": subdir,
        **record,
    }
    wheel = Wheel(
        name=name,
        version=version,
        filename=filename,
        url=url,
        sha256=digest,
        index=channel,
        metadata=metadata,
    )
    grammar.check_conda_package(wheel)
    return Pin(wheel=wheel)


def _read_conda_lock(document: Any, path: str) -> _Content:
    if document["version"] != 1:
        version = document["version"]
        raise InputError(f"{path}: conda-lock version {version}; version 1 is read")
    rows = list(document["package"])
    subdirs = sorted({str(row["platform"]) for row in rows if "platform" in row})
    subdir = _chosen_subdir(subdirs, path) if subdirs else None
    pins, wheels = [], []
    for package in rows:
        if package.get("platform") != subdir:
            continue
        name, url, hashes = package["name"], package["url"], package["hash"]
        if package["manager"] == "conda":
            specs = (package["dependencies"] or {}).items()
            depends = tuple(f"{dependency} {spec or ''}".strip() for dependency, spec in specs)
            digest = grammar.check_sha256(name, hashes["sha256"])
            record = {"depends": depends, "md5": hashes.get("md5")}
            pins.append(_pin_of_file(url, digest, record))
        else:
            version = str(package["version"])
            wheels.append(_wheel(name, version, url, hashes.get("sha256")))
    own_json = (document["metadata"].get("custom_metadata") or {}).get("gpuenv")
    return (None if own_json is None else json.loads(own_json)), tuple(pins), wheels


def _read_pixi_lock(document: Any, path: str) -> _Content:
    """Return the files and the wheels of the default environment."""
    if document["version"] not in _PIXI_VERSIONS:
        known = ", ".join(map(str, _PIXI_VERSIONS))
        raise InputError(f"{path}: pixi.lock version {document['version']}; {known} are read")
    environment = document["environments"]["default"]["packages"]
    # Since version 7 a platform has a name of its own, and may describe a host.
    subdirs = {row["name"]: row.get("subdir", row["name"]) for row in document.get("platforms", ())}
    subdir = _chosen_subdir(sorted({subdirs.get(name, name) for name in environment}), path)
    names = [name for name in environment if subdirs.get(name, name) == subdir]
    if len(names) > 1:
        raise InputError(f"{path}: has several platforms for {subdir}: {', '.join(names)}")
    named = {url for row in environment[names[0]] for url in row.values()}
    pins, wheels = [], []
    for row in document["packages"]:
        url = row.get("conda") or row.get("pypi") or row["url"]
        if url not in named:
            continue
        if "://" not in url:  # a file; a relative path is relative to the lock
            url = path_to_file_url(os.path.abspath(os.path.join(os.path.dirname(path), url)))
        if "conda" in row or row.get("kind") == "conda":
            digest = grammar.check_sha256(url.rpartition("/")[2], row.get("sha256"))
            record = {"depends": tuple(row.get("depends") or ()), "md5": row.get("md5")}
            pins.append(_pin_of_file(url, digest, record))
        else:
            wheels.append(_wheel(row["name"], str(row["version"]), url, row.get("sha256")))
    return None, tuple(pins), wheels


def _chosen_subdir(subdirs: Sequence[str], path: str) -> str:
    """Return the platform of a lock that is read; InputError if this machine's is not there."""
    platform = get_platform()
    this_subdir = SUBDIRS.get(platform, platform)
    if this_subdir in subdirs:
        return this_subdir
    if len(subdirs) == 1:
        return subdirs[0]
    raise InputError(f"{path}: is for {', '.join(subdirs) or 'no platform'}, not for {this_subdir}")


def _wheel(name: str, version: str, url: str, sha256: object) -> Wheel:
    """Return a wheel of a lock. ValueError if its texts are not what they should be."""
    filename = unquote(url.partition("#")[0].rpartition("/")[2])
    if not filename.endswith(".whl"):
        raise ValueError(f"package {name}: {filename or url} is no wheel")
    parsed = Wheel(
        name=normalize_name(name),
        version=version,
        filename=filename,
        url=url,
        sha256=grammar.check_sha256(name, sha256),
    )
    grammar.check_wheel(parsed)
    return parsed


# ---- the lock of the wheels beside a conda lock -------------------------------------------------


def wheel_lock_name(path: str) -> str:
    """Return the file name of the lock of the wheels of the conda lock at `path`.

    conda-lock.yml -> pylock.conda-lock.toml, a name that pip and uv accept.
    """
    stem = os.path.splitext(os.path.basename(path))[0]
    return f"pylock.{stem.replace('.', '-')}.toml"


def wheel_lock_of(lock: Lock) -> tuple[str, str] | None:
    """Return (file, sha256) of the lock of the wheels of a conda lock; None without wheels."""
    file_and_digest: tuple[str, str] | None = dict(lock.inputs).get("pip")
    return file_and_digest


def conda_lock_of(lock: Lock) -> str | None:
    """Return the file of the conda lock that a lock of wheels belongs to; None if it has none."""
    file: str | None = dict(lock.inputs).get(_CONDA_LOCK)
    return file


def wheel_lock_path(path: str, lock: Lock) -> str | None:
    """Return the path of the lock of the wheels of the conda lock at `path`, read and unchanged.

    Returns:
        None if the lock has no wheels.

    Raises:
        InputError: The file is missing.
        TamperedError: The file is not the one that was written with the conda lock.
    """
    file_and_digest = wheel_lock_of(lock)
    if file_and_digest is None:
        return None
    name, digest = file_and_digest
    if os.path.basename(name) != name:
        message = f"{path}: names {name} for its pip packages, which is not a file beside it"
        raise InputError(message)
    wheel_path = os.path.join(os.path.dirname(path), name)
    try:
        with open(wheel_path, "rb") as stream:
            data = stream.read()
    except OSError as error:
        message = f"{wheel_path}: cannot be read, and {path} has its pip packages in it: {error}"
        raise InputError(message, hint="the two files belong together: copy both") from None
    if hashlib.sha256(data).hexdigest() != digest:
        message = f"{wheel_path}: is not the file that {path} was locked with"
        raise TamperedError(message, hint="lock again: gpuenv solve")
    return wheel_path
