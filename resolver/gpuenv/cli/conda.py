"""`gpuenv solve --backend conda` and `gpuenv sync` of a conda lock: the stages, composed for conda environments."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence

import gpuenv

# The solver is started before anything else is imported: it takes a tenth of a second to be there.
from ..backends.conda import solvers, virtual
from ..errors import HostMismatchError, InputError
from ..model import Host, Lock, Plan, Request
from .output import print_json, print_lines

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing takes three milliseconds
    from argparse import Namespace

DEFAULT_CHANNELS = ("https://conda.anaconda.org/conda-forge",)


def is_wanted(arguments: Namespace, env: Mapping[str, str] | None = None) -> bool:
    """Whether a solve is for conda: by its flags, or with --backend auto by the environment that is active."""
    form = str(arguments.format).startswith("conda-")
    if arguments.backend == "pip" and form:
        raise InputError(f"--format {arguments.format} needs --backend conda")
    if arguments.backend == "auto":
        return form or active_prefix(os.environ if env is None else env) is not None
    return form or bool(arguments.backend == "conda")


def active_prefix(env: Mapping[str, str]) -> str | None:
    """The conda environment that is active, if one is."""
    prefix = env.get("CONDA_PREFIX")
    return prefix if prefix and os.path.isdir(os.path.join(prefix, "conda-meta")) else None


def solve(arguments: Namespace) -> int:
    """The command `gpuenv solve`, for conda."""
    if arguments.format == "requirements":
        raise InputError("--format requirements is for pip: conda takes conda-explicit or conda-lock")
    channels = tuple(map(_channel, arguments.channel)) or DEFAULT_CHANNELS
    solver = _started(arguments, channels)
    try:
        return _solve(arguments, channels, solver)
    finally:
        solver.close()


def _solve(arguments: Namespace, channels: tuple[str, ...], solver: solvers.Solver) -> int:
    from .. import explanation
    from ..backends.conda import locks
    from ..writing import write_whole
    from .asking import asked

    form = arguments.format if arguments.format in locks.FORMATS else "conda-explicit"
    path = _path(arguments.output or locks.FORMATS[form])
    request, options, host = asked(arguments, lambda: host_of(arguments))
    plan = plan_for(request, host, solver, python=host.python.version if arguments.python else None)
    solver.leave()
    lock, second = locks.lock(plan, channels), None
    if arguments.pip:
        from . import mixed

        second = mixed.planned(arguments, plan, options, path)
        lock = mixed.written(lock, second)
    write_whole(path, locks.dumps(lock, form).encode())
    said = [(plan, path), *([second] if second else [])]
    if arguments.json:
        documents = [explanation.plan_json(*one) for one in said]
        print_json(documents[0] | ({"pip": documents[1]} if second else {}))
    else:
        print_lines([line for one in said for line in explanation.plan_lines(*one)])
    return 0


def _started(arguments: Namespace, channels: Sequence[str]) -> solvers.Solver:
    cache = "offline" if arguments.offline else "refresh" if arguments.refresh else "fetch"
    subdir = virtual.SUBDIRS.get(arguments.platform or _platform())
    if subdir is None:
        raise InputError(f"--platform {arguments.platform}: no conda subdirectory is known for it")
    return solvers.solver(channels, (subdir, "noarch"), cache=cache)


def plan_for(
    request: Request, host: Host, solver: solvers.Solver, *, python: tuple[int, int] | None = None
) -> Plan:
    """The plan of a request on a host, by a solver; `python` None leaves the Python to it. NoSolutionError."""
    from ..backends.conda import planning, rows

    matrix = gpuenv.compatibility_data()
    return planning.plan(
        request,
        host,
        matrix,
        rows.Carriers(matrix.folder),
        solver,
        admits=lambda specifier, version: _admits(specifier, version, request.pre),
        python=python,
        data=f"matrix {matrix.version}",
    )


def _admits(specifier: str, version: str, pre: bool) -> bool:
    from ..environment.versions import contains

    try:
        return contains(specifier, version, pre)
    except InputError:
        return not specifier  # a version that is none of PEP 440 is in no range of it


def host_of(arguments: Namespace) -> Host:
    """The host of the flags, else of CONDA_OVERRIDE_*, else the one that is detected."""
    from . import host_of as of_flags

    if arguments.gpu or arguments.host or not any(name.startswith("CONDA_OVERRIDE_") for name in os.environ):
        return of_flags(arguments, solving=True)
    host = virtual.overridden(of_flags(arguments, solving=False), os.environ)
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


# ---- sync -----------------------------------------------------------------------------------------------------------


def is_lock(path: str) -> bool:
    """Whether a file is the lock of a conda environment."""
    from ..backends.conda import locks

    return locks.is_lock(path)


def sync(arguments: Namespace) -> int:
    """The command `gpuenv sync`, of a conda lock: checked, installed, verified."""
    from ..backends.conda import installing, locks, mixed
    from . import host_of as of_flags
    from . import note
    from .verifying import end_by_exit, show

    lock = locks.read(arguments.lock)
    host = of_flags(arguments, solving=False, python=False)
    beside = mixed.path_beside(arguments.lock, lock)
    second = None if beside is None else gpuenv.read_lock(beside)
    python = install(
        lock, arguments.target, host, second=second, installer=arguments.installer, progress=note(arguments)
    )
    if arguments.no_verify:
        if arguments.json:
            count = len(lock.pins) + (len(second.pins) if second else 0)
            print_json({"target": arguments.target, "packages": count, "verified": False})
        return 0
    described = bool(arguments.gpu or arguments.host)
    checks = installing.prefix_checks(arguments.target, lock)
    if second is not None:
        checks += mixed.checks(arguments.target, second)
    if python:
        end_by_exit()
        checks += gpuenv.verify(None, python, host, device=not described, timeout=arguments.timeout)
    return show(arguments, checks)


def install(
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
    from .. import lockfile
    from ..backends import wheels
    from ..backends.conda import installing, mixed, rows

    matrix = gpuenv.compatibility_data()
    own = host if not lock.needs.python else host.replace(python=lock.host.python)
    found = lockfile.fit(lock, own)
    if not any(reason.code in ("platform", "no-gpu") for reason in found):
        found += installing.reasons(lock, own, matrix, rows.Carriers(matrix.folder))
    if second is not None:
        found += lockfile.fit(second, own)
    if found:
        raise HostMismatchError("the lock does not fit this host; nothing was installed", tuple(dict.fromkeys(found)))
    if second is None and mixed.named(lock) is not None:
        raise InputError("the lock has pip packages beside it: give their lock, too")
    new, old = installing.check(target), mixed.left_over(target, second)
    if second is not None or old:
        wheels.check_installer(installer)
    if old:  # before conda's are there, which may be of the same names
        nothing = lock.replace(pins=())
        wheels.add(nothing, wheels.interpreter_of(target), remove=old, installer=installer, progress=progress)
    python = installing.sync(lock, target, progress=progress)
    try:
        if second is not None:
            wheels.add(second, python, installer=installer, progress=progress)
        mixed.remember(target, second)
    except BaseException:
        if new:
            import shutil

            shutil.rmtree(target, ignore_errors=True)
        raise
    return python
