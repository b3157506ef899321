"""Which variables a command gets that runs in an environment: its folder of programs first, and no loader variable
that puts another library before one of the environment's own.

Nothing is loaded and no child is started: what the environment owns stands in the RECORDs of its distributions, and
what a loader variable leads to is read from the folders that it names. The loader takes a library by the name that is
asked for (ld.so(8)), so an entry disturbs where it holds a file of a name that the environment has too; of cuDNN, whose
members open one another by names of their own, where it holds any member of the same major version.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from .errors import InputError
from .model import Value

# What only the driver has: an entry that leads to them cannot be left out, unless the loader looks there anyway.
DRIVER = frozenset({"libcuda.so.1", "libnvidia-ml.so.1"})
DEFAULT_FOLDERS = ("/lib", "/usr/lib", "/lib64", "/usr/lib64", "/lib/{}-linux-gnu", "/usr/lib/{}-linux-gnu")
_LIBRARY = re.compile(rb"\.so(?:\.[0-9]+)*\"?,")


class Shadow(Value):
    """An entry of a loader variable with libraries that would stand before the environment's own.

    `kept` is true where the entry leads to the driver, too: then it stays, behind the environment's folders.
    """

    variable: str
    entry: str
    libraries: tuple[str, ...]
    kept: bool = False


def environment_folder(path: str) -> str:
    """The environment that a folder is, absolute. InputError if there is no interpreter in it."""
    if os.path.isdir(path):
        interpreter(path)
        return os.path.abspath(path)
    raise InputError(f"{path}: is no folder")


def interpreter(target: str) -> str:
    """The interpreter of an environment: of its folder, or itself. InputError if there is none."""
    if not os.path.isdir(target):
        return target
    for parts in (("bin", "python"), ("Scripts", "python.exe"), ("python.exe",)):
        if os.path.exists(os.path.join(target, *parts)):
            return os.path.join(target, *parts)
    raise InputError(f"{target}: has no interpreter, so it is no environment")


def active_environment(env: Mapping[str, str]) -> str | None:
    """The folder of the environment that a user means without naming one: the active one, else ./.venv."""
    active = env.get("VIRTUAL_ENV") or env.get("CONDA_PREFIX")
    if active:
        return active
    return ".venv" if os.path.isfile(os.path.join(".venv", "pyvenv.cfg")) else None


# ---- what an environment owns -------------------------------------------------------------------------------------


def libraries(prefix: str) -> dict[str, str]:
    """file name -> path of the shared libraries that the environment's packages own, extension modules aside."""
    found: dict[str, str] = {}
    for site in _sites(prefix):
        for info in _names(site):
            if not info.endswith(".dist-info"):
                continue
            try:
                with open(os.path.join(site, info, "RECORD"), "rb") as file:
                    data = file.read()
            except OSError:
                continue
            for path in recorded(data):
                found.setdefault(os.path.basename(path), os.path.join(site, path))
    if os.path.isdir(os.path.join(prefix, "conda-meta")):
        folder = os.path.join(prefix, "lib")
        for name in _names(folder):
            if name.startswith("lib") and ".so" in name:
                found.setdefault(name, os.path.join(folder, name))
    return found


def recorded(record: bytes) -> Iterator[str]:
    """The paths of the shared libraries (lib*.so*) in a RECORD, which may be megabytes long."""
    at = record.find(b".so")
    while at >= 0:
        match = _LIBRARY.match(record, at)
        if match is not None:
            start = record.rfind(b"\n", 0, at) + 1
            path = record[start : match.end() - 1].decode(errors="surrogateescape").strip('"')
            if os.path.basename(path).startswith("lib"):
                yield path
        at = record.find(b".so", at + 3)


def _sites(prefix: str) -> Iterator[str]:
    for lib in ("lib", "lib64", "local/lib"):
        for name in _names(os.path.join(prefix, lib)):
            if name.startswith("python3"):
                for site in ("site-packages", "dist-packages"):
                    yield os.path.join(prefix, lib, name, site)


def _names(folder: str) -> list[str]:
    """What is in a folder, sorted; nothing where it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


# ---- what loader variables lead to --------------------------------------------------------------------------------


def path_entries(env: Mapping[str, str]) -> list[str]:
    """The entries of LD_LIBRARY_PATH in order; "" is one, too: the working folder."""
    text = env.get("LD_LIBRARY_PATH", "")
    return re.split("[:;]", text) if text else []


def preload_entries(env: Mapping[str, str]) -> list[str]:
    """The entries of LD_PRELOAD in order."""
    return [entry for entry in re.split("[ :]", env.get("LD_PRELOAD", "")) if entry]


def shadowed(names: Iterable[str], owned: Collection[str]) -> list[str]:
    """Those file names that the loader would take in place of a library of the environment."""
    majors = {_major(name) for name in owned if name.startswith("libcudnn")} - {""}
    return [
        name
        for name in names
        if name not in DRIVER
        and (name in owned or (name.startswith("libcudnn") and ".so." in name and _major(name) in majors))
    ]


def _major(name: str) -> str:
    return name.partition(".so.")[2].partition(".")[0]


def loader_variables(
    env: Mapping[str, str], prefix: str, owned: Mapping[str, str]
) -> tuple[dict[str, str | None], list[Shadow]]:
    """(new values of the variables that change, None to unset one; what was found), for the environment at `prefix`.

    `owned` is that of `libraries`. What does not disturb stays, in its order.
    """
    changed: dict[str, str | None] = {}
    shadows, entries = [], []
    for entry in path_entries(env):
        folder = entry or os.curdir
        names = _shadows_in(folder, prefix, owned)
        if not names:
            entries.append(entry)
            continue
        kept = _leads_to_driver(folder)
        shadows.append(Shadow(variable="LD_LIBRARY_PATH", entry=folder, libraries=tuple(names), kept=kept))
        if kept:
            entries += [os.path.dirname(owned[name]) for name in names if name in owned]
            entries.append(entry)
    if shadows:
        changed["LD_LIBRARY_PATH"] = ":".join(dict.fromkeys(entries)) or None
    preloads = preload_entries(env)
    bad = [entry for entry in preloads if _is_shadow(entry, os.path.basename(entry), prefix, owned)]
    if bad:
        shadows += [
            Shadow(variable="LD_PRELOAD", entry=entry, libraries=(os.path.basename(entry),)) for entry in bad
        ]
        changed["LD_PRELOAD"] = ":".join(entry for entry in preloads if entry not in bad) or None
    return changed, shadows


def _shadows_in(folder: str, prefix: str, owned: Mapping[str, str]) -> list[str]:
    names = _names(folder)
    if "glibc-hwcaps" in names:  # the loader looks there first
        better = os.path.join(folder, "glibc-hwcaps")
        names += [name for level in _names(better) for name in _names(os.path.join(better, level))]
    found = shadowed(names, owned)
    return [name for name in dict.fromkeys(found) if _is_shadow(os.path.join(folder, name), name, prefix, owned)]


def _is_shadow(path: str, name: str, prefix: str, owned: Mapping[str, str]) -> bool:
    """Whether it is another file than the environment's own of that name."""
    if not shadowed([name], owned):
        return False
    if os.sep not in path:  # LD_PRELOAD=libcudnn.so.9 is looked for wherever the loader looks
        return True
    own = owned.get(name)
    if own is not None and os.path.realpath(path) == os.path.realpath(own):
        return False
    inside = os.path.realpath(prefix).rstrip(os.sep) + os.sep
    return not os.path.realpath(path).startswith(inside)


def _leads_to_driver(folder: str) -> bool:
    if not any(os.path.exists(os.path.join(folder, name)) for name in DRIVER):
        return False
    machine = os.uname().machine
    places = {os.path.realpath(place.format(machine)) for place in DEFAULT_FOLDERS}
    return os.path.realpath(folder) not in places


# ---- the whole environment of a command ---------------------------------------------------------------------------


def activated(env: Mapping[str, str], prefix: str) -> dict[str, str | None]:
    """The variables that activating the environment would change; None is one to unset."""
    folder = os.path.join(prefix, "Scripts" if os.name == "nt" else "bin")
    entries = [entry for entry in env.get("PATH", os.defpath).split(os.pathsep) if entry != folder]
    conda = os.path.isdir(os.path.join(prefix, "conda-meta"))
    changed: dict[str, str | None] = {"PATH": os.pathsep.join([folder, *entries])}
    changed["CONDA_PREFIX" if conda else "VIRTUAL_ENV"] = prefix
    if conda and "VIRTUAL_ENV" in env:
        changed["VIRTUAL_ENV"] = None
    if "PYTHONHOME" in env:
        changed["PYTHONHOME"] = None
    return changed


def variables(env: Mapping[str, str], prefix: str) -> tuple[dict[str, str | None], list[Shadow]]:
    """(changed variables, None to unset one; shadowing entries) for a command in the environment at `prefix`."""
    owned = libraries(prefix) if path_entries(env) or preload_entries(env) else {}
    changed, shadows = loader_variables(env, prefix, owned)
    return {**activated(env, prefix), **changed}, shadows
