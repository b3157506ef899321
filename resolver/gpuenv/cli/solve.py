"""`gpuenv solve`, `install` and `sync`: from a request to a lock, and from a lock to an environment."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace

from .. import api
from ..errors import HostMismatchError, InputError
from ..model import Host, Lock, Plan
from .conda_env import active_prefix, with_conda_owners
from .host_args import host_flags, host_of
from .output import note, print_json, print_lines
from .request_args import asked, request_flags

FORMATS = ("pylock", "requirements", "conda-explicit", "conda-lock")


def solve_flags(parser: ArgumentParser) -> None:
    """Flags of `gpuenv solve`."""
    request_flags(parser)
    _backend_flags(parser)
    host_flags(parser)


def _backend_flags(parser: ArgumentParser) -> None:
    parser.add_argument("--format", choices=FORMATS, default="pylock", help="requirements go to stdout without -o")
    conda = "conda; auto is conda where a conda environment is active"
    parser.add_argument("--backend", choices=("pip", "conda", "auto"), help=f"pip (default) or {conda}")
    parser.add_argument("--channel", metavar="URL", action="append", default=[], help="conda: its name, URL or folder")
    parser.add_argument("--pip", metavar="REQUIREMENT", action="append", default=[], help="conda: a wheel beside it")


def install_flags(parser: ArgumentParser) -> None:
    """Flags of `gpuenv install`."""
    request_flags(parser)
    _backend_flags(parser)
    host_flags(parser)
    _sync_flags_only(parser)


def sync_flags(parser: ArgumentParser) -> None:
    """Flags of `gpuenv sync`."""
    parser.add_argument(
        "lock", metavar="LOCK", nargs="?", help="default: that of the fitting profile of pyproject.toml, or pylock.toml"
    )
    host_flags(parser)
    _sync_flags_only(parser)


def _sync_flags_only(parser: ArgumentParser) -> None:
    from .verify import seconds

    parser.add_argument("--target", metavar="DIR", required=True, help="the environment: a new or an existing one")
    parser.add_argument("--installer", choices=("auto", "uv", "pip"), default="auto")
    parser.add_argument("--no-verify", action="store_true")
    parser.add_argument("--timeout", metavar="S", type=seconds, default=300.0, help="of the verification")


def solve(arguments: Namespace) -> int:
    """Chooses an environment and writes its lock."""
    if arguments.backend is not None or arguments.format.startswith("conda"):
        from . import conda

        if conda.is_wanted(arguments):
            return conda.solve(arguments)
    from ..lock import pylock
    from ..render import plans

    _check_pip(arguments)
    path = _lock_path(arguments)
    plan = _planned(arguments)
    prefix = active_prefix(os.environ)
    if prefix is not None:
        plan = with_conda_owners(plan, prefix)
    lock = api.lock(plan)
    text = pylock.dumps(lock) if arguments.format == "pylock" else pylock.requirements_text(lock)
    if path is not None:
        pylock.write(path, text)
    if arguments.json:
        print_json(plans.plan_json(plan, path))
    elif path is None:
        sys.stdout.write(text)
    else:
        print_lines(plans.plan_lines(plan, path))
    return 0


def install(arguments: Namespace) -> int:
    """Solves, installs and verifies."""
    if arguments.backend is not None or arguments.format.startswith("conda"):
        from . import conda

        if conda.is_wanted(arguments):
            return conda.install(arguments)
    from ..install import wheels
    from ..lock import pylock
    from ..render import plans

    _check_pip(arguments)
    if arguments.format == "requirements":
        raise InputError("--format requirements is for gpuenv solve: what is installed is locked")
    path = _lock_path(arguments)
    plan = _planned(arguments)
    lock = api.lock(plan)
    # A target that cannot be used is bad input: not even the lock is written then.
    wheels.check(lock, arguments.target, installer=arguments.installer, python=arguments.python)
    pylock.write(path or "pylock.toml", pylock.dumps(lock))
    if not arguments.json:
        print_lines(plans.plan_lines(plan, path or "pylock.toml"))
    return _sync_and_verify(arguments, lock, plan)


def sync(arguments: Namespace) -> int:
    """Installs a lock, and verifies it; with none named that of the profile that fits this host."""
    if arguments.lock is None:
        from .lock import fitting_lock, has_profiles

        if has_profiles(""):
            host = host_of(arguments, solving=False, python=False)
            arguments.lock, lock, said = fitting_lock("", host)
            note(arguments)("\n".join(said))
            return _sync_and_verify(arguments, lock, None, host)
    elif not arguments.lock.endswith(".toml"):
        from . import conda

        if conda.is_lock(arguments.lock):
            return conda.sync(arguments)
    return _sync_and_verify(arguments, api.read_lock(arguments.lock or "pylock.toml"), None)


def _sync_and_verify(arguments: Namespace, lock: Lock, plan: Plan | None, host: Host | None = None) -> int:
    from .verify import end_by_exit, show

    described = bool(arguments.gpu or arguments.host)
    if host is None:
        host = plan.host if plan is not None else host_of(arguments, solving=False, python=False)
    if plan is None and lock.needs.python is not None and arguments.python is None:
        # The target's interpreter is the lock's: what starts gpuenv says nothing about it.
        host = host.replace(python=lock.host.python)
    try:
        python = api.sync(
            lock,
            arguments.target,
            host=host,
            python=arguments.python,
            installer=arguments.installer,
            progress=note(arguments),
        )
    except HostMismatchError as error:
        if not described and not host.gpus:
            error.hint = "to install for another host (an image, a login node) name it: --gpu and --driver, or --host"
        raise
    if arguments.no_verify:
        if arguments.json:
            print_json({"target": arguments.target, "packages": len(lock.pins), "verified": False})
        return 0
    # A host that was described is elsewhere: only what needs no device can be proved here.
    end_by_exit()
    return show(arguments, api.verify(lock, python, host, device=not described, timeout=arguments.timeout))


def _check_pip(arguments: Namespace) -> None:
    if arguments.pip:
        raise InputError(f"--pip {arguments.pip[0]}: is for --backend conda", hint="with pip it is a REQUIREMENT")


def _planned(arguments: Namespace) -> Plan:
    request, options, host = asked(arguments, lambda: host_of(arguments, solving=True))
    return api.solve(request, host, options)


def _lock_path(arguments: Namespace) -> str | None:
    """Where the lock goes, checked before anything is solved; None is stdout (requirements without -o)."""
    path: str | None = arguments.output
    if arguments.format == "requirements":
        return path
    path = path or "pylock.toml"
    name = os.path.basename(path)
    middle = name.removeprefix("pylock.").removesuffix(".toml")
    if name != "pylock.toml" and not (name == f"pylock.{middle}.toml" and middle and "." not in middle):
        raise InputError(f"{path}: pip and uv take a lock only as pylock.toml or pylock.NAME.toml")
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise InputError(f"{path}: the folder {folder} does not exist", hint="make it, or give another -o")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path}: the folder {folder} cannot be written", hint="give another -o")
    return path
