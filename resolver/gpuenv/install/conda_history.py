"""conda-meta/history: what users asked for, in the format that conda reads and writes.

Source: `History` of conda (conda/history.py). A revision is a line with the time, the command, the
packages that were added (+) and removed (-), and the specs that were added or removed:

    ==> 2026-01-31 12:00:00 <==
    # cmd: conda install numpy=2
    +conda-forge/linux-64::numpy-2.0.0-py312h0_0
    # update specs: ['numpy=2']
"""

from __future__ import annotations

import ast
import json
import os
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..atomic_write import write_all, write_whole
from ..errors import InputError
from ..index.urls import without_credentials
from ..model import Value, first_texts
from ..prefix import conda_packages
from ..requirements import conda_versions

_HISTORY = os.path.join("conda-meta", "history")
_PREVIOUS = os.path.join("conda-meta", "gpuenv-previous")  # not .json, which conda would read
# The lock of the last sync. The lock of its wheels has the name of `conda_formats.wheel_lock_name`.
LOCK = "gpuenv-lock.txt"
_LOCKS = (LOCK, "pylock.gpuenv-lock.toml")
_COMMAND = "gpuenv sync"
_HEAD = re.compile(r"^==>.+<==$", re.MULTILINE)
_SPECS = re.compile(r"#\s*(\w+)\s*specs:\s*(\[.*\])")
_CHANNEL_HOST = "conda.anaconda.org/"
# The fields of a record that are needed to install its package again.
_KEYS = (
    *("name", "version", "build", "build_number", "subdir", "depends"),
    *("channel", "url", "fn", "size", "sha256", "md5"),
)


def requested_specs(
    target: str, installed: Mapping[str, Mapping[str, Any]], new: Iterable[str] = ()
) -> dict[str, str]:
    """Return {package: spec} of what users asked for and is installed in a prefix.

    conda's history has it; the records of packages have it where another tool made the prefix.
    What users ask for with `new` specs replaces what they asked for before.
    """
    specs: dict[str, str] = {}
    for name, record in installed.items():
        requested = [record.get("requested_spec"), *(record.get("requested_specs") or ())]
        for spec in map(str, requested):
            if conda_versions.name_of(spec) == name:
                specs[name] = spec
    for line in _read_lines(target):
        _apply_specs(line, specs)
    kept = installed.keys() - set(map(conda_versions.name_of, new))
    return {name: spec for name, spec in specs.items() if name in kept}


def _apply_specs(line: str, specs: dict[str, str]) -> None:
    """Apply a line of specs of the history to {package: spec}; other lines change nothing."""
    match = _SPECS.match(line)
    if match is None:
        return
    try:
        listed = ast.literal_eval(match.group(2))
    except (ValueError, SyntaxError):
        return
    for spec in map(str, listed):
        name = conda_versions.name_of(spec)
        specs.pop(name, None)
        if match.group(1) not in ("remove", "uninstall"):
            specs[name] = spec


def _read_lines(target: str) -> list[str]:
    try:
        with open(os.path.join(target, _HISTORY), encoding="utf-8", errors="replace") as file:
            return [line.strip() for line in file if line.strip()]
    except FileNotFoundError:
        return []


def record(target: str, specs: Sequence[str], withdrawn: Collection[str]) -> None:
    """Add a revision with the added and removed packages, and with the requested specs.

    Specs of packages that are not installed, or that `withdrawn` names, are removed. Nothing is
    written if nothing is new.
    """
    lines = _read_lines(target)
    before = _packages_of(lines)
    installed = conda_packages(target)
    # conda may have other names for the channels of what the history has.
    names = {package.rpartition("::")[2]: package for package in before}
    packages = set(map(_distribution, installed.values()))
    after = {names.get(package.rpartition("::")[2], package) for package in packages}
    known: dict[str, str] = {}
    for line in lines:
        _apply_specs(line, known)
    parsed = set(map(conda_versions.split, known.values()))  # conda writes them in another form
    new = [spec for spec in specs if conda_versions.split(spec) not in parsed]
    gone = [name for name in known if name not in installed or name in withdrawn]
    if before == after and not new and not gone:
        return
    if before == after:
        before = set()  # conda takes a revision without packages for an empty prefix
    revision = [f"==> {time.strftime('%Y-%m-%d %H:%M:%S')} <==", f"# cmd: {_COMMAND}"]
    revision += [f"-{distribution}" for distribution in sorted(before - after)]
    revision += [f"+{distribution}" for distribution in sorted(after - before)]
    if gone:
        revision.append(f"# remove specs: {gone}")
    if new:
        revision.append(f"# update specs: {new}")
    with open(os.path.join(target, _HISTORY), "ab+") as file:
        # Another tool may have been stopped in the middle of a line.
        file.seek(max(file.seek(0, os.SEEK_END) - 1, 0))
        unfinished = file.read(1) not in (b"", b"\n")
        text = "".join(f"{line}\n" for line in revision)
        file.write((f"\n{text}" if unfinished else text).encode())


def _packages_of(lines: Sequence[str]) -> set[str]:
    """Return the packages that the history says are there."""
    packages: set[str] = set()
    for revision in _HEAD.split("\n".join(lines))[1:]:
        listed = [line for line in revision.split("\n") if line and not line.startswith("#")]
        if not any(line.startswith(("+", "-")) for line in listed):
            packages = set(listed)
            continue
        for line in listed:
            if line.startswith("-"):
                packages.discard(line[1:])
            else:
                packages.add(line[1:])
    return packages


def _distribution(record: Mapping[str, Any]) -> str:
    """Return "conda-forge/linux-64::numpy-2.0.0-py312h0_0", the name of a package in the history.

    conda names the channels of its default host without their URL.
    """
    subdir = record.get("subdir", "")
    channel = without_credentials(str(record.get("channel") or ""))
    channel = channel.rstrip("/").removesuffix(f"/{subdir}")
    _, host, name = channel.partition(_CHANNEL_HOST)
    package = f"{record['name']}-{record.get('version')}-{record.get('build')}"
    return f"{name if host else channel}/{subdir}::{package}"


# ---- the state before the last sync --------------------------------------------------------------


class State(Value):
    """The packages of an environment: {name: record} and {name: requested spec}.

    `lock` is {file: text} of the lock that gpuenv recorded; {} without one.
    """

    records: Mapping[str, Mapping[str, Any]]
    specs: Mapping[str, str]
    lock: Mapping[str, str]

    def packages(self) -> set[str]:
        """Return the packages as the history names them."""
        return set(map(_distribution, self.records.values()))


def read_state(target: str) -> State:
    """Return the state of a prefix."""
    installed = conda_packages(target)
    lock = {}
    for name in _LOCKS:
        with suppress(FileNotFoundError), open(_lock_path(target, name), encoding="utf-8") as file:
            lock[name] = file.read()
    return State(records=installed, specs=requested_specs(target, installed), lock=lock)


def record_lock(target: str, texts: Mapping[str, str]) -> None:
    """Write the lock of a sync, {file: text}, into a prefix; {} removes the last one."""
    write_all({_lock_path(target, name): text.encode() for name, text in texts.items()})
    for name in _LOCKS:
        if name not in texts:
            with suppress(FileNotFoundError):
                os.remove(_lock_path(target, name))


def _lock_path(target: str, name: str) -> str:
    return os.path.join(target, "conda-meta", name)


def remember_state(target: str, before: State) -> None:
    """Store the state before an installation, unless the installation changed no package."""
    after = read_state(target).packages()
    if after == before.packages():
        return
    records = {}  # what an installation of each package needs
    for name, record in before.records.items():
        kept = {key: record[key] for key in _KEYS if record.get(key) is not None}
        for key in kept.keys() & {"url", "channel"}:
            kept[key] = without_credentials(str(kept[key]))
        records[name] = kept
    document = {
        "records": records,
        "specs": dict(before.specs),
        "lock": dict(before.lock),
        "after": sorted(after),
    }
    write_whole(os.path.join(target, _PREVIOUS), json.dumps(document, indent=1).encode())


def forget_state(target: str) -> None:
    """Delete the state before the last installation. A rollback to it is no longer possible."""
    with suppress(FileNotFoundError):
        os.remove(os.path.join(target, _PREVIOUS))


def previous_state(target: str) -> State:
    """Return the state of a prefix before the last `gpuenv sync`.

    Raises:
        InputError: No state is stored, or packages changed since then.
    """
    try:
        with open(os.path.join(target, _PREVIOUS), encoding="utf-8") as file:
            document = json.load(file)
        previous = State(
            records=document["records"], specs=document["specs"], lock=document.get("lock", {})
        )
        after = set(document["after"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"{target}: {_PREVIOUS} cannot be read: {error}"
        if isinstance(error, FileNotFoundError):
            message = f"{target}: gpuenv keeps no earlier state of this environment"
        raise InputError(message, hint="install an earlier lock: gpuenv sync LOCK") from None
    changed = sorted(after ^ read_state(target).packages())
    if changed:
        names = first_texts([package.rpartition("::")[2] for package in changed])
        message = f"{target}: changed since the last gpuenv sync: {names}"
        raise InputError(message, hint="conda install --revision returns to a state of conda's")
    return previous
