"""Conda's settings: the pins of an environment, and what replaces detected facts of the host.

Source of the settings' files: SEARCH_PATH of conda (conda/base/constants.py).
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from typing import Any

from ..errors import InputError
from ..serialize import load_yaml, read_input

_PINNED = os.path.join("conda-meta", "pinned")
_VARIABLE = "CONDA_PINNED_PACKAGES"
_KEY = "pinned_packages"
_FILES = (".condarc", "condarc", "condarc.d/*.yml", "condarc.d/*.yaml")
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
    pins = []
    path = os.path.join(target, _PINNED)
    if target and os.path.exists(path):
        for number, line in enumerate(map(str.strip, _text(path).splitlines()), 1):
            if line and not line.startswith("#"):
                pins.append((f"{_PINNED}, line {number}", line))
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


def _text(path: str) -> str:
    try:
        return read_input(path).decode()
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None


def _settings_files(env: Mapping[str, str]) -> Iterator[str]:
    """Yield the files of settings that exist, in conda's order."""
    home = os.path.expanduser("~")
    folders = [
        *_SYSTEM_FOLDERS,
        os.path.dirname(os.path.dirname(env.get("CONDA_EXE", ""))),  # ROOT/bin/conda
        os.path.join(env.get("XDG_CONFIG_HOME") or f"{home}/.config", "conda"),
        os.path.join(home, ".config", "conda"),
        os.path.join(home, ".conda"),
        home,
        env.get("CONDA_PREFIX", ""),
    ]
    for folder in filter(None, folders):
        for pattern in _FILES:
            yield from sorted(glob.glob(os.path.join(glob.escape(folder), pattern)))
    if os.path.isfile(env.get("CONDARC", "")):
        yield env["CONDARC"]


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
