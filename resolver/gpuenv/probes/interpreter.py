"""Report what only the interpreter of an environment knows.

Options: {"imports": [NAME], "users": whether the user's own packages count}. Answers with
answers.Interpreter. Runs on Python 3.8 and later; standard library only. EXTERNALLY-MANAGED is PEP
668, the markers are PEP 508.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import site
import sys
import sysconfig
from importlib.machinery import all_suffixes
from typing import TypedDict

from ._common import run
from .answers import Interpreter

NOT_IMPORTED = {"setup", "test", "tests"}  # of projects; programs import no other of the name
USERS, WORKING = "the user's own packages", "the working folder"


class Options(TypedDict, total=False):
    """The options of this probe."""

    imports: list[str]
    users: bool


def own_glibc() -> list[int] | None:
    """Return the glibc of this process; None if there is none."""
    try:
        text = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (AttributeError, ValueError, OSError):
        return None
    match = re.match(r"glibc (\d+)\.(\d+)", text)
    return [int(match[1]), int(match[2])] if match else None


def marker_variables() -> dict[str, str]:
    """Return the variables of environment markers."""
    version = sys.implementation.version
    own_version = f"{version.major}.{version.minor}.{version.micro}"
    if version.releaselevel != "final":
        own_version += version.releaselevel[0] + str(version.serial)
    return {
        "implementation_name": sys.implementation.name,
        "implementation_version": own_version,
        "os_name": os.name,
        "platform_machine": platform.machine(),
        "platform_python_implementation": platform.python_implementation(),
        "platform_release": platform.release(),
        "platform_system": platform.system(),
        "platform_version": platform.version(),
        "python_full_version": platform.python_version(),
        "python_version": ".".join(platform.python_version_tuple()[:2]),
        "sys_platform": sys.platform,
    }


def module_file(name: str) -> str | None:
    """Return the file that `import name` would run, without running it; None if there is none."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
    return None if spec is None else spec.origin


def folders_before() -> dict[str, str]:
    """Return the folders that programs search before those of the environment, and why."""
    listed = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    folders = {os.path.abspath(folder): "PYTHONPATH" for folder in listed}
    if sys.prefix == sys.base_prefix and not os.environ.get("PYTHONNOUSERSITE"):
        folders[site.getusersitepackages()] = USERS
    with contextlib.suppress(FileNotFoundError):  # it was removed
        folders.setdefault(os.getcwd(), WORKING)
    return {folder: folders[folder] for folder in folders if os.path.isdir(folder)}


def hidden_modules(folders: dict[str, str]) -> list[list[str]]:
    """Return [path, what lets programs find it] of what hides a module of the environment.

    The interpreter of the probes is isolated, so that it does not search these folders.
    """
    hidden = []
    for folder, reason in folders.items():
        names = sorted(os.listdir(folder)) if os.access(folder, os.R_OK) else []
        for name in names:
            path = os.path.join(folder, name)
            inner = os.path.join(path, "__init__.py")
            module = name.partition(".")[0]
            if module in NOT_IMPORTED or not module.isidentifier():
                continue
            if os.path.isfile(inner):
                path = inner
            elif name[len(module) :] not in all_suffixes():
                continue
            found = module_file(module) or ""
            # Python searches the user's own packages after its standard library.
            is_later = reason == USERS and "-packages" not in found
            is_other = os.path.isabs(found) and os.path.realpath(found) != os.path.realpath(path)
            if is_other and not is_later:
                hidden.append([os.path.join(folder, name), reason])
    return hidden


def probe(options: Options) -> Interpreter:
    """Return the answer that this file's docstring describes."""
    managed = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
    is_system = sys.prefix == sys.base_prefix
    folders = folders_before()
    hidden = hidden_modules(folders)
    reasons = {reason for _, reason in hidden}
    if options.get("users") and USERS in folders.values():
        reasons.add(USERS)
        first = next(number for number, entry in enumerate(sys.path) if "-packages" in entry)
        sys.path.insert(first, site.getusersitepackages())
    return {
        "glibc": own_glibc(),
        "version": list(sys.version_info[:3]),
        "implementation": sys.implementation.name,
        "executable": sys.executable,
        "prefix": sys.prefix,
        "is_system": is_system,
        "managed": managed if is_system and os.path.isfile(managed) else "",
        "path": [os.path.abspath(entry) for entry in sys.path],
        "purelib": sysconfig.get_path("purelib"),
        "platlib": sysconfig.get_path("platlib"),
        "markers": marker_variables(),
        "hidden": hidden,
        "isolated": reasons <= {WORKING},
        "imports": {name: module_file(name) for name in options["imports"]},
    }


if __name__ == "__main__":
    run(probe)
