"""Locks of conda environments: an @EXPLICIT file, and conda-lock.yml (version 1).

Both name every file by its URL and sha256, have gpuenv's host requirements in them, and no date: the same plan gives
the same bytes. In an @EXPLICIT file the requirements are a comment at its head, in conda-lock.yml they are in
`metadata.custom_metadata.gpuenv`; conda and conda-lock pass over both. `content` in them is a digest of the rest.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from typing import Any

from ..errors import InputError, TamperedError
from ..model import Choice, Gpu, Host, Lock, Needs, Pin, Plan, Python, Wheel
from ..resolve.conda import virtual_packages
from ..serialize import canonical_json, host_from_plain, to_plain

FORMAT = 1
FORMATS = {"conda-explicit": "conda-explicit.txt", "conda-lock": "conda-lock.yml"}  # and the files they are written to
_HEAD = "# gpuenv: "
_LINE = re.compile(r"(?P<url>\S+?/(?P<subdir>[^/\s]+)/(?P<file>[^/\s#]+\.(?:conda|tar\.bz2)))(?:#(?P<hash>\S+))?")


def lock(plan: Plan, channels: tuple[str, ...]) -> Lock:
    """The lock of a plan. InputError if a channel gives no sha256 for one of the files."""
    for pin in plan.pins:
        if pin.wheel.sha256 is None:
            raise InputError(f"{pin.wheel.filename}: its channel gives no sha256, and a lock needs one for each file")
    gpus = tuple(Gpu(name=one.name, compute_capability=one.compute_capability, mig=one.mig) for one in plan.host.gpus)
    python = plan.host.python.replace(executable=None)
    return Lock(
        pins=plan.pins,
        needs=plan.needs,
        choices=plan.choices,
        host=plan.host.replace(gpus=gpus, sources=(), problems=(), python=python),
        frameworks=plan.request.frameworks,
        requirements=plan.request.requirements,
        data=plan.data,
        inputs=(("channels", channels),),
    )


# ---- writing --------------------------------------------------------------------------------------------------------


def dumps(lock: Lock, form: str) -> str:
    """The text of a lock in one of FORMATS."""
    return _explicit(lock) if form == "conda-explicit" else _conda_lock(lock)


def _said(lock: Lock) -> dict[str, Any]:
    """What a lock says beside its files."""
    document = {
        "format": FORMAT,
        "frameworks": lock.frameworks,
        "requirements": lock.requirements,
        "channels": dict(lock.inputs).get("channels", ()),
        "data": lock.data,
        "needs": lock.needs,
        "choices": lock.choices,
        "host": lock.host,
    }
    if "pip" in dict(lock.inputs):
        file, digest = dict(lock.inputs)["pip"]
        document["pip"] = {"file": file, "sha256": digest}
    plain: dict[str, Any] = to_plain(document)
    return plain


def _content(said: dict[str, Any], pins: tuple[Pin, ...]) -> str:
    files = sorted(f"{pin.wheel.url}#{pin.wheel.sha256}" for pin in pins)
    mine = {key: value for key, value in said.items() if key != "content"}
    return hashlib.sha256(canonical_json([mine, files]).encode()).hexdigest()


def _json(lock: Lock) -> str:
    said = _said(lock)
    return json.dumps({**said, "content": _content(said, lock.pins)}, sort_keys=True)


def _explicit(lock: Lock) -> str:
    lines = [
        "# This file may be used to create an environment: gpuenv sync FILE --target PREFIX checks the host first;",
        "# conda create --prefix PREFIX --file FILE does not.",
        *(f"# Its pip packages are in {file} beside it." for file in dict(lock.inputs).get("pip", ())[:1]),
        f"# platform: {_subdir(lock)}",
        _HEAD + _json(lock),
        "@EXPLICIT",
        *(f"{pin.wheel.url}#sha256:{pin.wheel.sha256}" for pin in lock.pins),
    ]
    return "\n".join(lines) + "\n"


def _to_yaml(document: dict[str, Any]) -> str:
    """Return block YAML with double-quoted texts and plain keys, as conda-lock.yml is usually written."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Indents lists below their key, and quotes texts but not keys."""

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
            super().increase_indent(flow, False)

        def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> Any:
            node = super().represent_mapping(tag, mapping, flow_style)
            for key, _ in node.value:
                key.style = None
            return node

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def quoted(dumper: Any, text: str) -> Any:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')

    Dumper.add_representer(str, quoted)
    return yaml.dump(document, Dumper=Dumper, sort_keys=False, width=math.inf)


def _from_yaml(text: str) -> Any:
    """Return the document of a YAML text. ValueError says where the text is not YAML."""
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None


def _subdir(lock: Lock) -> str:
    return virtual_packages.SUBDIRS.get(lock.host.platform, lock.host.platform)


def _conda_lock(lock: Lock) -> str:
    subdir = _subdir(lock)
    asked = "\n".join((*lock.frameworks, *lock.requirements, *dict(lock.inputs).get("channels", ())))
    document = {
        "version": 1,
        "metadata": {
            "content_hash": {subdir: hashlib.sha256(asked.encode()).hexdigest()},
            "channels": [{"url": url, "used_env_vars": []} for url in dict(lock.inputs).get("channels", ())],
            "platforms": [subdir],
            "sources": [],
            "custom_metadata": {"gpuenv": _json(lock)},
        },
        "package": [_package(pin, subdir) for pin in lock.pins],
    }
    return _to_yaml(document)


def _package(pin: Pin, subdir: str) -> dict[str, Any]:
    wheel, kept = pin.wheel, pin.wheel.metadata or {}
    md5 = {"md5": kept["md5"]} if kept.get("md5") else {}
    depends: dict[str, list[str]] = {}
    for one in kept.get("depends", ()):
        name, _, spec = one.strip().partition(" ")
        depends.setdefault(name, []).append(spec.strip())
    return {
        "name": wheel.name,
        "version": wheel.version,
        "manager": "conda",
        "platform": subdir,
        "dependencies": {name: ",".join(filter(None, several)) for name, several in sorted(depends.items())},
        "url": wheel.url,
        "hash": {**md5, "sha256": wheel.sha256},
        "category": "main",
        "optional": False,
    }


# ---- reading --------------------------------------------------------------------------------------------------------


def is_lock(path: str) -> bool:
    """Whether a file is a lock of a conda environment, by what stands in it. False where there is no file."""
    if path.endswith(".toml"):
        return False
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 20)
    except OSError:
        return False
    return re.search(r"^@EXPLICIT\s*$", text, re.M) is not None or os.path.basename(path).endswith(
        ("conda-lock.yml", "conda-lock.yaml")
    )


def read(path: str) -> Lock:
    """The lock in a file, of gpuenv or of another tool (then it needs nothing but its files).

    InputError for what cannot be read, TamperedError for a lock of gpuenv's whose files are not those that were locked.
    """
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    explicit = re.search(r"^@EXPLICIT\s*$", text, re.M) is not None
    said, pins = _read_explicit(text, path) if explicit else _read_conda_lock(text, path)
    if said is None:
        return Lock(pins=pins, needs=Needs(), choices=(), host=Host(python=Python(version=(0, 0))), frameworks=())
    try:
        if said.pop("content") != _content(said, pins):
            raise TamperedError(f"{path}: its files are not those that were locked", hint="lock again: gpuenv solve")
        return _lock(said, pins)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: what gpuenv wrote into it is damaged: {error}") from None


def _read_explicit(text: str, path: str) -> tuple[dict[str, Any] | None, tuple[Pin, ...]]:
    said, pins, begun = None, [], False
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith(_HEAD):
            try:
                said = json.loads(stripped.removeprefix(_HEAD))
            except ValueError as error:
                raise InputError(f"{path}, line {number}: {error}") from None
        elif stripped == "@EXPLICIT":
            begun = True
        elif begun and stripped and not stripped.startswith("#"):
            pins.append(_file(stripped, f"{path}, line {number}"))
    return said, tuple(pins)


def _file(line: str, where: str) -> Pin:
    found = _LINE.fullmatch(line)
    digest = (found["hash"] or "").removeprefix("sha256:") if found else ""
    if found is None or re.fullmatch(r"[0-9a-f]{64}", digest) is None:
        raise InputError(f"{where}: not the URL of a package with its sha256", hint="conda list --explicit --sha256")
    return _pin_of(found["url"], found["file"], found["subdir"], digest, {})


def _pin_of(url: str, filename: str, subdir: str, digest: str, kept: dict[str, Any]) -> Pin:
    parts = filename.removesuffix(".conda").removesuffix(".tar.bz2").rsplit("-", 2)
    if len(parts) != 3:
        raise InputError(f"{filename}: not NAME-VERSION-BUILD")
    number = parts[2].rpartition("_")[2]
    kept = {"build": parts[2], "build_number": int(number) if number.isdigit() else 0, "subdir": subdir, **kept}
    name, version, channel = parts[0], parts[1], url.rsplit("/", 2)[0]
    return Pin(
        wheel=Wheel(
            name=name, version=version, filename=filename, url=url, sha256=digest, index=channel, metadata=kept
        )
    )


def _read_conda_lock(text: str, path: str) -> tuple[dict[str, Any] | None, tuple[Pin, ...]]:
    try:
        document = _from_yaml(text)
        if document["version"] != 1:
            raise InputError(f"{path}: conda-lock version {document['version']}; version 1 is read")
        said = (document["metadata"].get("custom_metadata") or {}).get("gpuenv")
        pins = []
        for one in document["package"]:
            if one["manager"] != "conda":
                raise InputError(f"{path}: {one['name']} is of {one['manager']}; only conda packages are installed")
            url, digest = one["url"], one["hash"]["sha256"]
            depends = tuple(f"{name} {spec or ''}".strip() for name, spec in (one["dependencies"] or {}).items())
            kept = {"depends": depends, "md5": one["hash"].get("md5")}
            pins.append(_pin_of(url, url.rpartition("/")[2], url.split("/")[-2], digest, kept))
        return (None if said is None else json.loads(said)), tuple(pins)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: not a conda-lock.yml of version 1: {error}") from None


def _lock(said: dict[str, Any], pins: tuple[Pin, ...]) -> Lock:
    needs = {key: _pairs(value) for key, value in said["needs"].items()}
    return Lock(
        pins=pins,
        needs=Needs(**needs),
        choices=tuple(Choice(**{key: _pairs(value) for key, value in one.items()}) for one in said["choices"]),
        host=host_from_plain(said["host"]),
        frameworks=tuple(said["frameworks"]),
        requirements=tuple(said["requirements"]),
        data=said["data"],
        inputs=(
            ("channels", tuple(said["channels"])),
            *((("pip", (said["pip"]["file"], said["pip"]["sha256"])),) if "pip" in said else ()),
        ),
    )


def _pairs(value: Any) -> Any:
    """Lists as tuples, at every depth."""
    return tuple(map(_pairs, value)) if isinstance(value, list) else value
