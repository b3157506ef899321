"""The environment variables of a command that runs in an environment.

The environment's programs come first on PATH, and loader variables lead to no library that shadows
one of the environment. Nothing is loaded and no child is started: the RECORDs of the distributions
say what the environment owns, and the folders that a loader variable names say what it leads to.
The loader finds a library by its file name (ld.so(8)). So an entry shadows if it has a file of a
name that the environment has, too. The libraries of cuDNN open one another by names of their own,
so of cuDNN an entry shadows if it has any library of the same major version.

Also defined here: which libraries are the driver's.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Mapping

from .model import Value
from .prefix import is_conda, read_record, sites

# A folder with one of these leads to the driver: its entry must stay, unless the loader searches
# the folder anyway.
DRIVER_SONAMES = frozenset({"libcuda.so.1", "libnvidia-ml.so.1"})
DEFAULT_FOLDERS = (
    "/lib",
    "/usr/lib",
    "/lib64",
    "/usr/lib64",
    "/lib/{}-linux-gnu",
    "/usr/lib/{}-linux-gnu",
)
# Libraries that come with the driver, never with an environment.
_DRIVER_LIBRARY = re.compile(r"lib(cuda|nvcuvid|nvoptix|cudadebugger|nvidia-[a-z0-9_-]+)\.so")
_LIBRARY = re.compile(r"lib.*\.so(\.[0-9]+)*")


class Shadow(Value):
    """An entry of a loader variable with libraries that would shadow the environment's.

    `kept` is true if the entry also leads to the driver: then it stays, after the environment's
    folders.
    """

    variable: str
    entry: str
    libraries: tuple[str, ...]
    kept: bool = False


def is_driver_library(name: str) -> bool:
    """Return whether a file name (or a text that begins with one) is a library of the driver."""
    return _DRIVER_LIBRARY.match(name) is not None


def same_file(first: str, second: str) -> bool:
    """Return whether two paths lead to the same file or folder."""
    return os.path.realpath(first) == os.path.realpath(second)


# ---- what an environment owns -------------------------------------------------------------------


def libraries(prefix: str) -> dict[str, str]:
    """Return file name -> path of the shared libraries of the environment's packages.

    Extension modules are left out.
    """
    paths: dict[str, str] = {}
    for site in sites(prefix):
        for info in sorted(glob.glob(os.path.join(glob.escape(site), "*.dist-info"))):
            for path, _, _ in read_record(info):
                if _LIBRARY.fullmatch(os.path.basename(path)):
                    paths.setdefault(os.path.basename(path), os.path.join(site, path))
    if is_conda(prefix):
        folder = os.path.join(prefix, "lib")
        for name in _names(folder):
            if name.startswith("lib") and ".so" in name:
                paths.setdefault(name, os.path.join(folder, name))
    return paths


def _names(folder: str) -> list[str]:
    """Return the names in a folder, sorted; none if it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


# ---- what loader variables lead to --------------------------------------------------------------


def path_entries(env: Mapping[str, str]) -> list[str]:
    """Return the entries of LD_LIBRARY_PATH in order. An empty entry is the working folder."""
    text = env.get("LD_LIBRARY_PATH", "")
    return re.split("[:;]", text) if text else []


def preload_entries(env: Mapping[str, str]) -> list[str]:
    """Return the entries of LD_PRELOAD in order."""
    return [entry for entry in re.split("[ :]", env.get("LD_PRELOAD", "")) if entry]


def loader_variables(
    env: Mapping[str, str], prefix: str, owned: Mapping[str, str]
) -> tuple[dict[str, str | None], list[Shadow]]:
    """Return the loader variables that change for an environment, and the shadowing entries.

    The value None unsets a variable. Entries that shadow nothing stay, in their order. An entry of
    LD_LIBRARY_PATH that also leads to the driver stays, after the folders of the environment's
    libraries that it shadows.

    Args:
        owned: the libraries of the environment, as `libraries` returns them.
    """
    changed: dict[str, str | None] = {}
    shadows: list[Shadow] = []
    entries: list[str] = []
    for entry in path_entries(env):
        folder = entry or os.curdir
        names = dict.fromkeys(_searched_names(folder))
        hidden = [name for name in names if _is_shadow(os.path.join(folder, name), prefix, owned)]
        kept = not hidden or _leads_to_driver(folder)
        if kept:
            entries += [os.path.dirname(owned[name]) for name in hidden if name in owned]
            entries.append(entry)
        if hidden:
            changed["LD_LIBRARY_PATH"] = None
            shadow = Shadow(
                variable="LD_LIBRARY_PATH", entry=folder, libraries=tuple(hidden), kept=kept
            )
            shadows.append(shadow)
    if changed:
        changed["LD_LIBRARY_PATH"] = ":".join(dict.fromkeys(entries)) or None
    preloaded = []
    for entry in preload_entries(env):
        if _is_shadow(entry, prefix, owned):
            name = os.path.basename(entry)
            shadows.append(Shadow(variable="LD_PRELOAD", entry=entry, libraries=(name,)))
        else:
            preloaded.append(entry)
    if preloaded != preload_entries(env):
        changed["LD_PRELOAD"] = ":".join(preloaded) or None
    return changed, shadows


def _searched_names(folder: str) -> list[str]:
    """Return the file names in a folder and in the subfolders of it that the loader searches."""
    names = _names(folder)
    levels = os.path.join(folder, "glibc-hwcaps")
    for level in _names(levels):
        names += _names(os.path.join(levels, level))
    return names


def _is_shadow(path: str, prefix: str, owned: Mapping[str, str]) -> bool:
    """Return whether the loader would use a file in place of a library of the environment."""
    name = os.path.basename(path)
    if name in DRIVER_SONAMES:
        return False
    own = owned.get(name)
    if own is None:
        if not name.startswith("libcudnn") or ".so." not in name:
            return False
        if library_major(name) not in {
            library_major(other) for other in owned if other.startswith("libcudnn")
        }:
            return False
    if os.sep not in path:  # LD_PRELOAD=libcudnn.so.9 is searched for in all folders of the loader
        return True
    if own is not None and same_file(path, own):
        return False
    inside = os.path.realpath(prefix).rstrip(os.sep) + os.sep
    return not os.path.realpath(path).startswith(inside)


def library_major(name: str) -> str:
    """Return 9 for libcudnn.so.9.20.0."""
    return name.partition(".so.")[2].partition(".")[0]


def _leads_to_driver(folder: str) -> bool:
    """Return whether a folder has the driver and the loader does not search it by default."""
    if not any(os.path.exists(os.path.join(folder, name)) for name in DRIVER_SONAMES):
        return False
    machine = os.uname().machine
    return not any(same_file(place.format(machine), folder) for place in DEFAULT_FOLDERS)


# ---- the variables of a command -----------------------------------------------------------------


def activated(env: Mapping[str, str], prefix: str) -> dict[str, str | None]:
    """Return the variables that activation of the environment changes; None unsets a variable."""
    folder = os.path.join(prefix, "Scripts" if os.name == "nt" else "bin")
    entries = [entry for entry in env.get("PATH", os.defpath).split(os.pathsep) if entry != folder]
    changed: dict[str, str | None] = {"PATH": os.pathsep.join([folder, *entries])}
    if is_conda(prefix):
        changed["CONDA_PREFIX"] = prefix
        if "VIRTUAL_ENV" in env:
            changed["VIRTUAL_ENV"] = None
    else:
        changed["VIRTUAL_ENV"] = prefix
    if "PYTHONHOME" in env:
        changed["PYTHONHOME"] = None
    return changed


def variables(env: Mapping[str, str], prefix: str) -> tuple[dict[str, str | None], list[Shadow]]:
    """Return the variables that change for a command in an environment, and the shadowing entries.

    The value None unsets a variable.
    """
    owned: dict[str, str] = {}
    if path_entries(env) or preload_entries(env):
        owned = libraries(prefix)
    changed, shadows = loader_variables(env, prefix, owned)
    return {**activated(env, prefix), **changed}, shadows
