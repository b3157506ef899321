"""Which environment and which lock a command works on if it names none.

All commands find them in this order:

- the environment: the active one, that of the python on PATH, ./.venv; never that of gpuenv itself
- the lock: that of the project's profile that fits this host, pylock.toml, the one that is recorded
  in the environment
"""

from __future__ import annotations

import os
from argparse import Namespace

from .. import api, loader_env
from ..errors import HostMismatchError, InputError, StaleLockError
from ..model import Lock
from ..project.profiles import State
from ..render.locks import state_lines
from .output import print_errors
from .parser import Argument
from .requests import is_about_conda

PYLOCK = "pylock.toml"
# Arguments of commands that use what a project has locked.
UP_TO_DATE = (
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
    target = loader_env.active_environment(os.environ)
    if target is None:
        raise InputError("no environment is active (gpuenv's own does not count)", hint=hint)
    if announced:
        print_errors([f"environment: {target}"])
    return target


def find_lock(path: str | None) -> tuple[str, Lock]:
    """Return (where the lock is, the lock).

    Args:
        path: the lock file that the user names; None for the default one.

    Raises:
        InputError: there is none, or it cannot be read.
    """
    if path is not None:
        return path, api.read_lock(path)
    if api.has_profiles():
        return _of_project()
    target = loader_env.active_environment(os.environ)
    if target is not None and not os.path.lexists(PYLOCK):
        lock = api.recorded_lock(target)
        if lock is not None:
            return target, lock
    return PYLOCK, api.read_lock(PYLOCK)


def require_fresh(state: State, arguments: Namespace) -> None:
    """Raise StaleLockError if pyproject.toml changed since a lock was made. --frozen allows it."""
    if state.status == "stale" and not arguments.frozen:
        message, step = state_lines(state)
        raise StaleLockError(message, hint=f"{step.strip()}; --frozen takes the lock as it is")


def require_current(target: str, arguments: Namespace) -> None:
    """Raise StaleLockError if an environment of the project has not what pyproject.toml asks for.

    Only environments are judged that have the lock of a profile.
    """
    if arguments.frozen or not api.has_profiles():
        return
    lock = api.recorded_lock(target)
    if lock is None:
        return
    name = dict(lock.inputs).get("profile")
    state = next((one for one in api.profile_states("", ()) if one.profile == name), None)
    if state is None:
        return
    require_fresh(state, arguments)
    if state.status == "fresh" and api.read_lock(state.path).pins != lock.pins:
        message = f"{target} does not have {state.path}"
        raise StaleLockError(message, hint="run gpuenv sync; --frozen takes it as it is")


def _of_project() -> tuple[str, Lock]:
    try:
        fitting = api.fitting_lock("", api.detect(conda=is_about_conda(None)))
    except HostMismatchError:
        states = api.profile_states("", ())
        paths = [state.path for state in states if state.status in ("fresh", "stale")]
        if len(paths) == 1:
            return paths[0], api.read_lock(paths[0])
        if not paths:
            raise InputError("no profile is locked", hint="gpuenv lock") from None
        hint = f"name one: {' or '.join(map(os.path.relpath, paths))}"
        raise InputError("the lock of no profile fits this host", hint=hint) from None
    return os.path.relpath(fitting.state.path), fitting.lock
