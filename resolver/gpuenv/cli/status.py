"""`gpuenv status`: the project, the environment and the host as gpuenv sees them."""

from __future__ import annotations

import os
from argparse import Namespace
from contextlib import suppress

from .. import api, loader_env
from ..errors import GpuEnvError, HostMismatchError
from ..model import Host, Lock
from ..prefix import is_venv, venv_version
from .output import print_result
from .parser import Command
from .requests import is_about_conda
from .state import PYLOCK, is_another


class Status(Command):
    """`gpuenv status`: what gpuenv sees in this folder, and the next command."""

    HELP = "Show the project, the environment, the host, and what is next"
    DESCRIPTION = (
        "Print the locks of the project in this folder, the environment and the lock that it has,"
        " the GPUs, and the next command. Nothing is written."
    )
    EXAMPLES = (("gpuenv status", "Show what gpuenv sees in this folder"),)
    ARGUMENTS = ()

    def run(self, arguments: Namespace) -> int:
        """Print the state. Return 2 if pyproject.toml cannot be read."""
        host = api.detect(conda=is_about_conda(None))
        project, locked, step = _project(host)
        environment, prefix = _environment(locked)
        if not step:
            step = {
                "missing": "gpuenv sync" if locked else "gpuenv install FRAMEWORK",
                "other": "gpuenv sync",
                "current": "gpuenv run COMMAND",
                "unknown": "gpuenv verify",
            }[environment]
        texts = {
            "missing": "none: no environment is active, and there is no .venv",
            "other": f"{prefix}: does not have the lock of the project",
            "current": f"{prefix}: has its lock",
            "unknown": f"{prefix}: gpuenv has recorded no lock in it",
        }
        shown = texts[environment]
        if prefix:
            shown += f" (Python {venv_version(prefix)})" if is_venv(prefix) else ""
        gpus = ", ".join(gpu.name for gpu in host.gpus) or "no visible NVIDIA GPU"
        machine = f"{gpus}, driver {host.driver}" if host.driver else gpus
        lines = [
            *[f"project      {line}" for line in project],
            f"environment  {shown}",
            f"host         {machine}, {host.platform}",
            f"next         {step}",
        ]
        document = {
            "project": project,
            "environment": {"prefix": prefix, "state": environment},
            "host": host,
            "next": step,
        }
        return print_result(document, lines)


def _project(host: Host) -> tuple[list[str], Lock | None, str]:
    """Return (what the project has, its lock for the host, the next command or "")."""
    if not api.has_profiles():
        if os.path.isfile(PYLOCK):
            return [PYLOCK], api.read_lock(PYLOCK), ""
        if os.path.isfile("pyproject.toml"):
            return ["pyproject.toml has no [tool.gpuenv]"], None, "gpuenv init"
        return ["none: this folder has no pyproject.toml and no pylock.toml"], None, ""
    state = api.project_state()
    lines = [f"{os.path.relpath(one.path)}: {one.status}" for one in state.states]
    if any(one.status != "fresh" for one in state.states):
        is_empty = not any(profile.requests for profile in state.project.profiles)
        return lines, None, "gpuenv add NAME" if is_empty else "gpuenv lock"
    try:
        fitting = api.fitting_lock(state, host)
    except HostMismatchError:
        return [*lines, "no lock fits this host"], None, "gpuenv init"
    best = fitting.profiles[0].name
    return [*lines, f"the profile {best} is for this host"], fitting.lock, ""


def _environment(locked: Lock | None) -> tuple[str, str]:
    """Return ("missing", "other", "current" or "unknown"; the folder)."""
    prefix = loader_env.active_environment()
    if prefix is None:
        return "missing", ""
    recorded = None
    with suppress(GpuEnvError):
        recorded = api.recorded_lock(prefix)
    if recorded is None:
        return "unknown", prefix
    if locked is not None and is_another(locked, recorded):
        return "other", prefix
    return "current", prefix
