"""Scripts with inline metadata (PEP 723): their environments are solved, verified and kept."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ..digest import text_digest
from ..errors import InputError, NotVerifiedError
from ..model import Check, Host, IndexOptions, Plan, Request
from ..prefix import is_venv
from . import environments
from .backend import Progress
from .data import data_version

if TYPE_CHECKING:
    from ..requirements.script import Script

# Facts of a host that change from run to run and change no solve.
_PASSING = ("problems", "sources")
_PASSING_OF_GPU = ("index", "uuid", "pci_bus_id", "memory_total", "memory_free")


def read_script(path: str) -> Script | None:
    """Return the inline metadata of a script; None if the file has none.

    Raises:
        InputError: the metadata cannot be used.
    """
    from ..requirements import script

    return script.read_script(path)


def script_folder(script: Script, host: Host) -> str:
    """Return the folder of a script's environment, whether it exists or not.

    Scripts with the same requirements share it. Another host or other data have another one.
    """
    from ..index.cache import cache_folder
    from ..serialize import canonical_json, to_plain

    facts = {"script": to_plain(script), "host": _lasting_facts(host), "data": data_version()}
    digest = text_digest(canonical_json(facts))
    return os.path.join(cache_folder(), "scripts", digest[:20])


def _lasting_facts(host: Host) -> dict[str, object]:
    from ..serialize import to_plain

    plain = to_plain(host)
    facts = {name: value for name, value in plain.items() if name not in _PASSING}
    facts["gpus"] = [
        {name: value for name, value in gpu.items() if name not in _PASSING_OF_GPU}
        for gpu in plain.get("gpus", [])
    ]
    return facts


def is_ready(folder: str) -> bool:
    """Return whether the environment of a script exists. Only a verified one is kept."""
    return is_venv(folder)


def solve_script(script: Script, host: Host, options: IndexOptions, path: str) -> Plan:
    """Choose the environment of a script.

    Args:
        script: its metadata.
        host: the host.
        options: where packages may come from.
        path: the script, for messages.

    Raises:
        InputError: the script needs another Python.
        NoSolutionError, PackageIndexError: as `solve`.
    """
    from ..requirements.target import TargetEnvironment
    from .explanations import split_frameworks

    needed = script.requires_python
    if needed and not TargetEnvironment(host).accepts_python(needed):
        have = ".".join(map(str, host.python.version))
        message = f"{path}: needs Python {needed}, and the host has Python {have}"
        raise InputError(message, hint="name another one: --python X.Y")
    if not script.dependencies:
        raise InputError(f"{path}: has no dependencies", hint="run it with python")
    frameworks, others = split_frameworks((), script.dependencies)
    request = Request(frameworks=tuple(frameworks), requirements=tuple(others))
    return environments.solve(request, host, options)


def make_script_environment(
    folder: str,
    plan: Plan,
    *,
    python: str | None,
    timeout: float,
    progress: Progress | None = None,
) -> None:
    """Install and verify the environment of a script.

    Raises:
        NotVerifiedError: a check failed; there is no environment.
        InputError, InstallError, TargetBusyError: as `sync`.
    """
    lock = environments.lock(plan)
    failed: list[Check] = []

    def prove(interpreter: str) -> bool:
        checks = environments.verify(
            lock, interpreter, plan.host, device=bool(plan.host.gpus), timeout=timeout
        )
        failed.extend(check for check in checks if check.status == "fail")
        return not failed

    os.makedirs(os.path.dirname(folder), mode=0o700, exist_ok=True)
    try:
        environments.sync(
            lock, folder, host=plan.host, python=python, prove=prove, progress=progress
        )
    except NotVerifiedError:
        message = f"the environment of the script is not verified: {failed[0].evidence}"
        raise NotVerifiedError(message, hint="nothing was run") from None
