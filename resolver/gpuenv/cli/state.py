"""Which environment and which lock a command works on if it names none; `gpuenv status` shows both.

All commands find them in this order:

- the environment: the active one, ./.venv, that of the python on PATH; never that of gpuenv itself
- the lock: that of the project's profile that fits this host, pylock.toml, the one that is recorded
  in the environment
"""

from __future__ import annotations

import glob
import os
from argparse import Namespace
from collections.abc import Sequence
from contextlib import nullcontext, suppress

from .. import api
from ..api.projects import ProjectState
from ..errors import (
    GpuEnvError,
    HostMismatchError,
    InputError,
    NotVerifiedError,
    StaleLockError,
    did_you_mean,
)
from ..model import Host, Lock
from ..prefix import active_environment, is_venv, venv_version
from ..project.profiles import State
from ..render.locks import state_lines
from ..requirements.pyproject import has_setup, importable
from .output import as_steps, print_errors, print_result
from .parser import Argument, Command, Group
from .requests import is_about_conda

PYLOCK = "pylock.toml"
# Arguments of commands that use what a project has locked.
UP_TO_DATE = Group(
    "",
    Argument("--locked", "Refuse a lock that is older than pyproject.toml (this is the default)"),
    Argument("--frozen", "Use a lock that is older than pyproject.toml as it is"),
)


def environment(hint: str, *, announced: bool) -> str:
    """Return the folder of the environment.

    Args:
        hint: how to name one.
        announced: whether it is printed.

    Raises:
        InputError: there is none.
    """
    target = active_environment()
    if target is None:
        raise InputError("no environment is active (gpuenv's own does not count)", hint=hint)
    if announced:
        print_errors(f"environment: {target}")
    return target


def find_lock(path: str | None) -> tuple[str, Lock]:
    """Return (where the lock is, the lock).

    Args:
        path: the lock file or the profile that the user names; None for the default one.

    Raises:
        InputError: there is none, or it cannot be read.
    """
    if path is not None:
        path = named_lock(path)
        return path, api.read_lock(path)
    if api.has_profiles():
        return _of_project()
    target = active_environment()
    if target is not None and not os.path.lexists(PYLOCK):
        lock = api.recorded_lock(target)
        if lock is not None:
            return target, lock
    return PYLOCK, api.read_lock(PYLOCK)


def named_lock(text: str) -> str:
    """Return the path of a lock that the user names by it or by its profile.

    Raises:
        InputError: there is no such file, and its name is close to that of another one.
    """
    if os.path.lexists(text):
        return text
    locks = {path: path for path in glob.glob("pylock*.toml")}
    if api.has_profiles():
        project = api.read_project()
        locks |= {profile.name: project.lock_path(profile) for profile in project.profiles}
    if text not in locks:
        meant = did_you_mean(text, locks)
        if meant:
            raise InputError(f"{text}: there is no such lock", hint=meant)
    return locks.get(text, text)


def require_fresh(state: State, arguments: Namespace) -> None:
    """Raise StaleLockError if pyproject.toml changed since a lock was made. --frozen allows it."""
    if state.status == "stale" and not arguments.frozen:
        message, step = state_lines(state)
        raise StaleLockError(message, hint=f"{step.strip()}; --frozen takes the lock as it is")


def is_another(lock: Lock, recorded: Lock) -> bool:
    """Return whether a lock differs from the recorded one that an environment was made from."""
    return lock.pins != recorded.pins or lock.needs.python != recorded.needs.python


def current_environment(arguments: Namespace) -> str:
    """Return the environment that a command of the user runs in.

    That of a project has the project's lock: a missing lock is made, and another lock is installed
    first. An environment that gpuenv did not make for the project stays as it is.

    Args:
        arguments: the parsed flags.

    Raises:
        InputError: there is none.
        StaleLockError: pyproject.toml changed since the lock was made.
        NotVerifiedError: the lock was not installed, because a check failed.
    """
    target = active_environment()
    recorded = api.recorded_lock(target) if target is not None else None
    if api.has_profiles() and not arguments.frozen and (target is None or recorded is not None):
        name = dict(recorded.inputs).get("profile") if recorded is not None else None
        locked, is_other = locked_project(arguments), target is None
        for state in locked.states:
            if recorded is not None and state.profile == name:
                require_fresh(state, arguments)
                lock = locked.locks.get(state.path)
                is_other = lock is None or is_another(lock, recorded)
        if is_other and perform(["sync", "--target", target or ".venv"], arguments):
            raise NotVerifiedError("the environment is not verified", hint="nothing was run")
    is_announced = not (arguments.quiet or arguments.json)
    hint = "name one: --target DIR, or make .venv: gpuenv install NAME"
    target = environment(hint, announced=is_announced)
    project = api.uninstalled_project(target) if is_announced and api.has_profiles() else ""
    if project:
        print_errors(f"the project {project} is not installed; gpuenv add . installs it")
    return target


def locked_project(arguments: Namespace) -> ProjectState:
    """Return the project of this folder, and lock it first if none of its profiles is locked.

    --locked and --frozen forbid it.
    """
    project = api.project_state()
    if arguments.locked or arguments.frozen:
        return project
    if any(state.status != "missing" for state in project.states):
        return project
    perform(["lock"], arguments)
    return api.project_state()


def perform(words: Sequence[str], arguments: Namespace, *, is_report: bool = False) -> int:
    """Run another command as a part of this one. Return its exit status.

    Args:
        words: the command.
        arguments: the parsed flags of this command.
        is_report: whether what it prints is the report of this command, which --json is for, too.
            Otherwise it goes to stderr.
    """
    from . import parse_arguments

    words = [*words, *["--quiet"] * arguments.quiet, *["--offline"] * arguments.offline]
    other = parse_arguments(words)
    with nullcontext() if is_report else as_steps():
        return int(other.run(other))


def _of_project() -> tuple[str, Lock]:
    project = api.project_state()
    try:
        fitting = api.fitting_lock(project, api.detect(conda=is_about_conda(None)))
    except HostMismatchError:
        if len(project.locks) == 1:
            return next(iter(project.locks.items()))
        if not project.locks:
            raise InputError("no profile is locked", hint="gpuenv lock") from None
        hint = f"name one: {' or '.join(map(os.path.relpath, project.locks))}"
        raise InputError("the lock of no profile fits this host", hint=hint) from None
    return os.path.relpath(fitting.state.path), fitting.lock


# ---- gpuenv status -------------------------------------------------------------------------------


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
        project, locked, step = _status_of_project(host)
        state, prefix = _status_of_environment(locked)
        shown, next_step = {
            "missing": (
                "none: no environment is active, and there is no .venv",
                "gpuenv sync" if locked else "gpuenv install FRAMEWORK",
            ),
            "other": (f"{prefix}: does not have the lock of the project", "gpuenv sync"),
            "current": (f"{prefix}: has its lock", "gpuenv run COMMAND"),
            "unknown": (f"{prefix}: gpuenv has recorded no lock in it", "gpuenv verify"),
        }[state]
        step = step or next_step
        if prefix and is_venv(prefix):
            shown += f" (Python {venv_version(prefix)})"
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
            "environment": {"prefix": prefix, "state": state},
            "host": host,
            "next": step,
        }
        return print_result(document, lines)


def _status_of_project(host: Host) -> tuple[list[str], Lock | None, str]:
    """Return (what the project has, its lock for the host, the next command or "")."""
    if not api.has_profiles():
        if os.path.isfile(PYLOCK):
            return [PYLOCK], api.read_lock(PYLOCK), ""
        files = [path.name for path in importable("")] + ["setup.py"] * has_setup("")
        line, step = "none: this folder has no pyproject.toml and no pylock.toml", ""
        if os.path.isfile("pyproject.toml"):
            line, step = "pyproject.toml has no [tool.gpuenv]", "gpuenv init"
        elif files:
            line, step = f"none, but {files[0]}, which gpuenv init reads", "gpuenv init"
        return [line], None, step
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


def _status_of_environment(locked: Lock | None) -> tuple[str, str]:
    """Return ("missing", "other", "current" or "unknown"; the folder)."""
    prefix = active_environment()
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
