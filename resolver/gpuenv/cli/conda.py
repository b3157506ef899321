"""`gpuenv solve --backend conda` and `gpuenv sync` of a conda lock: the stages, composed for conda environments."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence

from .. import api
from ..errors import HostMismatchError, InputError
from ..model import Check, Host, Lock, Plan, Request

# The solver is started before anything else is imported: it takes a tenth of a second to be there.
from ..resolve.conda import solvers, virtual_packages
from .conda_env import active_prefix
from .output import print_json, print_lines

DEFAULT_CHANNELS = ("https://conda.anaconda.org/conda-forge",)


def is_wanted(arguments: Namespace) -> bool:
    """Whether a solve is for conda: by its flags, or with --backend auto by the environment that is active."""
    form = str(arguments.format).startswith("conda-")
    if arguments.backend == "pip" and form:
        raise InputError(f"--format {arguments.format} needs --backend conda")
    if arguments.backend == "auto":
        return form or active_prefix(os.environ) is not None
    return form or bool(arguments.backend == "conda")


def solve(arguments: Namespace) -> int:
    """The command `gpuenv solve`, for conda."""
    _said(arguments, _locked(arguments, active_prefix(os.environ))[2])
    return 0


def install(arguments: Namespace) -> int:
    """The command `gpuenv install`, for conda: solved, locked, installed, verified."""
    from ..install import conda, wheels

    # A target that cannot be used is bad input: not even the lock is written then.
    conda.check(arguments.target)
    if arguments.pip:
        wheels.check_installer(arguments.installer)
    lock, second, said = _locked(arguments, arguments.target)
    if not arguments.json:
        _said(arguments, said)
    return _sync_and_verify(arguments, lock, second, said[0][0].host)


Said = list[tuple[Plan, str]]  # plans, each with the file that its lock is in: conda's, then that of the wheels


def _lock_path(arguments: Namespace) -> str:
    """Where the lock goes, checked before anything is solved."""
    from ..lock import conda_formats

    if arguments.format == "requirements":
        raise InputError("--format requirements is for pip: conda takes conda-explicit or conda-lock")
    return _path(arguments.output or conda_formats.FORMATS[_form(arguments)])


def _form(arguments: Namespace) -> str:
    return str(arguments.format) if arguments.format.startswith("conda-") else "conda-explicit"


def _locked(arguments: Namespace, prefix: str | None) -> tuple[Lock, Lock | None, Said]:
    """Solves and writes the lock, or both; what has two owners in the prefix is a warning of the plan."""
    channels = tuple(map(_channel, arguments.channel)) or DEFAULT_CHANNELS
    solver = _started(arguments, channels)
    try:
        return _solved(arguments, channels, solver, prefix)
    finally:
        solver.close()


def _solved(
    arguments: Namespace, channels: tuple[str, ...], solver: solvers.Solver, prefix: str | None
) -> tuple[Lock, Lock | None, Said]:
    # While the solver starts, all that is needed after it.
    from ..atomic_write import write_whole
    from ..lock import conda_formats
    from ..render import plans  # noqa: F401
    from .request_args import asked

    path = _lock_path(arguments)
    request, options, host = asked(arguments, lambda: host_of(arguments))
    plan = plan_for(request, host, solver, python=host.python.version if arguments.python else None)
    solver.leave()
    if prefix is not None:
        plan = with_owners(plan, prefix)
    lock, second, said = conda_formats.lock(plan, channels), None, [(plan, path)]
    if arguments.pip:
        from . import conda_pip

        said.append(conda_pip.planned(arguments, plan, options, path))
        lock, second = conda_pip.written(lock, path, *said[1])
    write_whole(path, conda_formats.dumps(lock, _form(arguments)).encode())
    return lock, second, said


def with_owners(plan: Plan, prefix: str) -> Plan:
    """The plan with a warning of what it would bring into a prefix beside the same of wheels that are there."""
    from ..compat import conda_records
    from ..install import conda_prefix

    matrix = api.compatibility_data()
    mine = conda_prefix.left_over(prefix, None)  # of an earlier lock, and taken out with it
    found = conda_prefix.beside_wheels(prefix, plan.pins, conda_records.Carriers(matrix.folder), matrix, mine)
    return plan.replace(warnings=(*plan.warnings, *found))


def _said(arguments: Namespace, said: Said) -> None:
    from ..render import plans

    if arguments.json:
        documents = [plans.plan_json(*one) for one in said]
        print_json(documents[0] | ({"pip": documents[1]} if documents[1:] else {}))
    else:
        print_lines([line for one in said for line in plans.plan_lines(*one)])


def _started(arguments: Namespace, channels: Sequence[str]) -> solvers.Solver:
    cache = "offline" if arguments.offline else "refresh" if arguments.refresh else "fetch"
    subdir = virtual_packages.SUBDIRS.get(arguments.platform or _platform())
    if subdir is None:
        raise InputError(f"--platform {arguments.platform}: no conda subdirectory is known for it")
    return solvers.open_solver(channels, (subdir, "noarch"), cache=cache)


def plan_for(
    request: Request, host: Host, solver: solvers.Solver, *, python: tuple[int, int] | None = None
) -> Plan:
    """The plan of a request on a host, by a solver; `python` None leaves the Python to it. NoSolutionError."""
    from ..compat import conda_records
    from ..resolve.conda import planning

    matrix = api.compatibility_data()
    return planning.plan(
        request,
        host,
        matrix,
        conda_records.Carriers(matrix.folder),
        solver,
        admits=lambda specifier, version: _admits(specifier, version, request.pre),
        python=python,
        data=f"matrix {matrix.version}",
    )


def _admits(specifier: str, version: str, pre: bool) -> bool:
    from ..requirements.versions import contains

    try:
        return contains(specifier, version, pre)
    except InputError:
        return not specifier  # a version that is none of PEP 440 is in no range of it


def host_of(arguments: Namespace) -> Host:
    """The host of the flags, else of CONDA_OVERRIDE_*, else the one that is detected."""
    from .host_args import host_of as of_flags

    if arguments.gpu or arguments.host or not any(name.startswith("CONDA_OVERRIDE_") for name in os.environ):
        return of_flags(arguments, solving=True)
    host = virtual_packages.overridden(of_flags(arguments, solving=False), os.environ)
    if not host.gpus and host.problems:
        return of_flags(arguments, solving=True)  # which says what is wrong
    return host


def _platform() -> str:
    """This machine's, as --platform says it."""
    return "win-amd64" if sys.platform == "win32" else f"linux-{os.uname().machine}"


def _channel(text: str) -> str:
    """A channel by its name, its URL or its folder."""
    if "://" in text or not any(sign in text for sign in (os.sep, ".")):
        return text
    if not os.path.isdir(text):
        raise InputError(f"--channel {text}: no such folder")
    from urllib.request import pathname2url

    return "file://" + pathname2url(os.path.abspath(text))


def _path(path: str) -> str:
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise InputError(f"{path}: the folder {folder} does not exist", hint="make it, or give another -o")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{path}: the folder {folder} cannot be written", hint="give another -o")
    return path


# ---- sync and verify ------------------------------------------------------------------------------------------------


def is_lock(path: str) -> bool:
    """Whether a file is the lock of a conda environment."""
    from ..lock import conda_formats

    return conda_formats.is_lock(path)


def read_locks(path: str) -> tuple[Lock, Lock | None]:
    """(a conda lock, that of its wheels beside it if it has one)."""
    from ..lock import conda_formats

    lock = conda_formats.read(path)
    beside = conda_formats.wheel_lock_path(path, lock)
    return lock, None if beside is None else api.read_lock(beside)


def sync(arguments: Namespace) -> int:
    """The command `gpuenv sync`, of a conda lock: checked, installed, verified."""
    from .host_args import host_of as of_flags

    lock, second = read_locks(arguments.lock)
    return _sync_and_verify(arguments, lock, second, of_flags(arguments, solving=False, python=False))


def _sync_and_verify(arguments: Namespace, lock: Lock, second: Lock | None, host: Host) -> int:
    from .output import note
    from .verify import end_by_exit, show

    sync_prefix(lock, arguments.target, host, second=second, installer=arguments.installer, progress=note(arguments))
    if arguments.no_verify:
        if arguments.json:
            count = len(lock.pins) + (len(second.pins) if second else 0)
            print_json({"target": arguments.target, "packages": count, "verified": False})
        return 0
    end_by_exit()
    # A host that was described is elsewhere: only what needs no device can be proved here.
    device = not (arguments.gpu or arguments.host)
    return show(arguments, verify(lock, second, arguments.target, host, device=device, timeout=arguments.timeout))


def verify(
    lock: Lock,
    second: Lock | None,
    target: str,
    host: Host,
    *,
    device: bool = True,
    timeout: float = 300.0,
    only: Sequence[str] = (),
    verbose: bool = False,
) -> tuple[Check, ...]:
    """The checks of a prefix (its folder or its interpreter) by its lock: the host's, "versions conda" and "versions
    wheels", and all that api.verify checks of an environment without a lock.
    """
    from ..compat import conda_records
    from ..install import conda, conda_prefix
    from ..prefix import find_interpreter, is_conda

    if not os.path.isdir(target):  # bin/python, or python.exe on Windows
        folder = os.path.dirname(os.path.abspath(target))
        target = os.path.dirname(folder) if os.path.basename(folder) == "bin" else folder
    if not is_conda(target):
        raise InputError(f"{target}: is no conda environment, and the lock is of one")
    matrix = api.compatibility_data()
    own = host if not lock.needs.python else host.replace(python=lock.host.python)
    against = conda.reasons(lock, own, matrix, conda_records.Carriers(matrix.folder)) if device else ()
    checks = [*api.host_checks(lock, own, device, against), conda_prefix.conda_check(target, lock)]
    if second is not None:
        checks.append(conda_prefix.wheels_check(target, second))
    python = find_interpreter(target)
    if python:
        checks += api.verify(None, python, own, device=device, timeout=timeout, only=only, verbose=verbose)
    return tuple(checks)


def sync_prefix(
    lock: Lock,
    target: str,
    host: Host,
    *,
    second: Lock | None = None,
    installer: str = "auto",
    progress: Callable[[str], None] | None = None,
) -> str:
    """Installs a conda lock into a prefix and returns its interpreter, "" if it has none; `second` are its wheels.

    HostMismatchError, before anything is written, if the host does not fulfil what the locks need, or if the rules
    speak against one of the files; that holds for the locks of other tools, too.
    """
    from ..compat import conda_records
    from ..install import conda, conda_prefix, wheels
    from ..lock import conda_formats
    from ..lock.host_fit import fit
    from ..prefix import interpreter_of

    matrix = api.compatibility_data()
    own = host if not lock.needs.python else host.replace(python=lock.host.python)
    found = fit(lock, own)
    if not any(reason.code in ("platform", "no-gpu") for reason in found):
        found += conda.reasons(lock, own, matrix, conda_records.Carriers(matrix.folder))
    if second is not None:
        found += fit(second, own)
    if found:
        raise HostMismatchError("the lock does not fit this host; nothing was installed", tuple(dict.fromkeys(found)))
    if second is None and conda_formats.wheel_lock_of(lock) is not None:
        raise InputError("the lock has pip packages beside it: give their lock, too")
    new, old = conda.check(target), conda_prefix.left_over(target, second)
    if second is not None or old:
        wheels.check_installer(installer)
    if old:  # before conda's are there, which may be of the same names
        nothing = lock.replace(pins=())
        wheels.add(nothing, interpreter_of(target), remove=old, installer=installer, progress=progress)
    python = conda.sync(lock, target, progress=progress)
    try:
        if second is not None:
            wheels.add(second, python, installer=installer, progress=progress)
        conda_prefix.remember(target, second)
    except BaseException:
        if new:
            import shutil

            shutil.rmtree(target, ignore_errors=True)
        raise
    return python
