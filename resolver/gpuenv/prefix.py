"""What a folder with an environment is (its interpreter, who made it), and which one is active."""

from __future__ import annotations

import csv
import glob
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from .errors import InputError

# POSIX, virtual environments on Windows, conda environments on Windows.
_INTERPRETERS = (("bin", "python"), ("Scripts", "python.exe"), ("python.exe",))
_SITES = (
    "lib/python3*/*-packages",
    "lib64/python3*/*-packages",
    "local/lib/python3*/*-packages",
    "Lib/site-packages",
)
# Distributions that install others. They may be in an environment beside what a lock names.
INSTALLATION_TOOLS = frozenset({"pip", "setuptools", "wheel"})


class RecordRow(NamedTuple):
    """A row of a RECORD. `path` is relative to the folder of packages; other fields may be ""."""

    path: str
    digest: str
    size: str


def find_interpreter(prefix: str) -> str | None:
    """Return the interpreter of the environment in a folder; None if it has none."""
    for parts in _INTERPRETERS:
        path = os.path.join(prefix, *parts)
        if os.path.isfile(path):
            return path
    return None


def interpreter_of(target: str) -> str:
    """Return the interpreter of an environment, given its folder or the interpreter.

    InputError if it has none.
    """
    if not os.path.isdir(target):
        return target
    path = find_interpreter(target)
    if path is None:
        for link in [os.path.join(target, *parts) for parts in _INTERPRETERS]:
            if os.path.islink(link):
                raise InputError(f"{link}: its Python {os.path.realpath(link)} does not exist")
        raise InputError(f"{target}: has no interpreter, so it is no environment")
    return path


def environment_folder(path: str) -> str:
    """Return the absolute path of an environment's folder. InputError if it is none."""
    if not os.path.isdir(path):
        raise InputError(f"{path}: is no folder")
    if not is_conda(path):  # which may have no Python
        interpreter_of(path)
    return os.path.abspath(path)


def is_venv(prefix: str) -> bool:
    """Return whether a folder is a virtual environment."""
    return os.path.isfile(os.path.join(prefix, "pyvenv.cfg"))


def venv_version(prefix: str) -> str:
    """Return the Python version in the pyvenv.cfg of a folder, "" without one.

    It is `version` (venv) or `version_info` (virtualenv, uv).
    """
    settings = {}
    try:
        with open(os.path.join(prefix, "pyvenv.cfg"), encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition("=")
                settings[key.strip().lower()] = value.strip()
    except OSError:
        return ""
    return settings.get("version") or settings.get("version_info") or ""


def is_conda(prefix: str) -> bool:
    """Return whether a folder is a conda environment."""
    return os.path.isdir(os.path.join(prefix, "conda-meta"))


def active_environment() -> str | None:
    """Return the folder of the default environment; None if there is none.

    It is the active environment, else ./.venv, else that of the python on PATH. That of gpuenv
    itself does not count: it is on PATH so that the command is found.
    """
    active = os.environ.get("VIRTUAL_ENV") or os.environ.get("CONDA_PREFIX")
    own = os.path.realpath(sys.prefix)
    for folder in (active, ".venv" if is_venv(".venv") else None, _environment_on_path()):
        if folder and os.path.realpath(folder) != own:
            return folder
    return None


def _environment_on_path() -> str | None:
    """Return the virtual or conda environment of the first python on PATH.

    None if there is no python, or if it belongs to no environment, as /usr/bin/python.
    """
    executable = shutil.which("python")
    if executable is None:
        return None
    folder = os.path.dirname(os.path.abspath(executable))
    # POSIX and Windows keep the interpreter in a folder of the prefix; conda on Windows does not.
    for prefix in (os.path.dirname(folder), folder):
        if is_venv(prefix) or is_conda(prefix):
            return prefix
    return None


def prefix_of(target: str) -> str:
    """Return the prefix of a folder or of an interpreter: bin/python, or python.exe on Windows."""
    if os.path.isdir(target):
        return target
    folder = os.path.dirname(os.path.abspath(target))
    if os.path.basename(folder) == "bin":
        return os.path.dirname(folder)
    return folder


def sites(prefix: str) -> list[str]:
    """Return the folders of packages in an environment, each once: lib64 may be a link to lib."""
    folders: dict[str, str] = {}
    for pattern in _SITES:
        for folder in sorted(glob.glob(os.path.join(glob.escape(prefix), pattern))):
            folders.setdefault(os.path.realpath(folder), folder)
    return list(folders.values())


def is_native(path: str) -> bool:
    """Return whether a path is that of a library or an extension module of any platform."""
    return re.search(r"\.(so(\.\w+)*|pyd|dll)$", path) is not None


def read_record(info: str) -> list[RecordRow]:
    """Return the rows of the RECORD in a folder NAME-VERSION.dist-info; none if it has no RECORD.

    Distribution.files of importlib.metadata leaves out the files that do not exist.
    """
    path = os.path.join(info, "RECORD")
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return [RecordRow(*[*row, "", ""][:3]) for row in csv.reader(file) if row]
    except (OSError, csv.Error):
        return []


def conda_packages(prefix: str, *, strict: bool = False) -> dict[str, dict[str, Any]]:
    """Return {name: record} of conda-meta: what conda and rattler installed into a prefix.

    A record that cannot be read is left out; with `strict` it is an InputError.
    """
    records = {}
    for path in sorted(glob.glob(os.path.join(glob.escape(prefix), "conda-meta", "*.json"))):
        try:
            with open(path, encoding="utf-8") as file:
                record = json.load(file)
            records[str(record["name"])] = record
        except (OSError, ValueError, KeyError, TypeError):
            if strict:
                message = f"{path}: is not a record of conda"
                raise InputError(message, hint="repair the environment") from None
    return records


def conda_files(prefix: str, record: Mapping[str, Any]) -> list[str]:
    """Return the paths of the files that a record of conda-meta names."""
    names = record.get("files")
    if not isinstance(names, list):
        return []
    return [os.path.normpath(os.path.join(prefix, str(name))) for name in names]


def editable_url(info: str) -> str:
    """Return the URL of the project if pip or uv made an editable install (PEP 610), otherwise "".

    Its METADATA has the requirements of that time, which its project may have changed since. sync
    leaves no such record.
    """
    try:
        with open(os.path.join(info, "direct_url.json"), encoding="utf-8") as file:
            direct = json.load(file)
        return str(direct["url"]) if direct["dir_info"]["editable"] else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""
