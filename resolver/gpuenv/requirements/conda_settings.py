"""Conda's settings: the pins of an environment, and what replaces detected facts of the host.

Source of the settings' files: SEARCH_PATH of conda (conda/base/constants.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import InputError
from ..serialize import load_yaml

_PINNED = os.path.join("conda-meta", "pinned")
_VARIABLE = "CONDA_PINNED_PACKAGES"
_KEY = "pinned_packages"
_FILES = (".condarc", "condarc", "condarc.d")
_YAML = (".yml", ".yaml")
_SYSTEM_FOLDERS = ("/etc/conda", "/var/lib/conda", "C:/ProgramData/conda")

Pin = tuple[str, str]  # where the pin is written, its spec


def read_pins(target: str, env: Mapping[str, str]) -> tuple[Pin, ...]:
    """Return the pins that hold for a prefix.

    Args:
        target: The prefix; "" for one that is not made yet.
        env: The environment variables: they name files of settings, and can be a setting.

    Raises:
        InputError: A file cannot be read.
    """
    pins = list(_pins_of_prefix(target)) if target else []
    for path, specs in _values(_KEY, env):
        listed = specs.split("&") if isinstance(specs, str) else specs
        pins += [(f"{_KEY} of {path}", str(spec).strip()) for spec in listed]
    specs = filter(None, map(str.strip, env.get(_VARIABLE, "").split("&")))
    return (*pins, *((_VARIABLE, spec) for spec in specs))


def overrides(env: Mapping[str, str]) -> dict[str, str]:
    """Return the virtual packages of conda's settings as the variables that mean the same."""
    variables = {}
    for key in ("virtual_packages", "override_virtual_packages"):
        for path, names in _values(key, env):
            if not isinstance(names, dict):
                raise InputError(f"{path}: {key} must be a table of names and values")
            for name, value in names.items():
                if value is not None:
                    variables[f"CONDA_OVERRIDE_{name.removeprefix('__').upper()}"] = str(value)
    return variables


def _pins_of_prefix(target: str) -> Iterator[Pin]:
    path = os.path.join(target, _PINNED)
    if not os.path.exists(path):
        return
    for number, line in enumerate(map(str.strip, _text(path).splitlines()), 1):
        if line and not line.startswith("#"):
            yield f"{_PINNED}, line {number}", line


def _text(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def _settings_files(env: Mapping[str, str]) -> Iterator[str]:
    """Yield the files of settings that exist, in conda's order."""
    for folder in _settings_folders(env):
        for name in _FILES:
            yield from _files_at(os.path.join(folder, name))
    if env.get("CONDARC"):
        yield from _files_at(env["CONDARC"])


def _settings_folders(env: Mapping[str, str]) -> Iterator[str]:
    yield from _SYSTEM_FOLDERS
    if env.get("CONDA_EXE"):  # ROOT/bin/conda
        yield os.path.dirname(os.path.dirname(env["CONDA_EXE"]))
    if env.get("XDG_CONFIG_HOME"):
        yield os.path.join(env["XDG_CONFIG_HOME"], "conda")
    home = os.path.expanduser("~")
    yield from (os.path.join(home, ".config", "conda"), os.path.join(home, ".conda"), home)
    if env.get("CONDA_PREFIX"):
        yield env["CONDA_PREFIX"]


def _files_at(path: str) -> Sequence[str]:
    """Return the file at a path, or the YAML files in the folder at it."""
    if os.path.isfile(path):
        return [path]
    if not os.path.isdir(path) or os.path.basename(path) != "condarc.d":
        return []
    names = sorted(name for name in os.listdir(path) if name.endswith(_YAML))
    return [os.path.join(path, name) for name in names]


def _values(key: str, env: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of a key in the files of settings that have it."""
    for path in dict.fromkeys(_settings_files(env)):
        text = _text(path)
        if key not in text:
            continue
        try:
            document = load_yaml(text)
        except ValueError as error:
            raise InputError(f"{path}: cannot be read: {error}") from None
        value = document.get(key) if isinstance(document, dict) else None
        if value:
            yield path, value
