"""Solve, and make, read and write locks.

Environments of wheels and conda environments go through the same functions. `wheels` and `conda`
have what differs. `conda` loads the code that changes environments, so it is imported on demand.
"""

from __future__ import annotations

import os

from .. import activity
from ..compat.data import compatibility_data
from ..errors import InputError
from ..index import attestations
from ..lock import conda_formats, pylock
from ..model import Host, IndexOptions, Lock, Plan, Request
from ..requirements.conda_projects import PIXI_TOML
from . import wheels
from .hosts import require_request, require_type

# ---- solve ---------------------------------------------------------------------------------------


def solve(
    request: Request,
    host: Host,
    options: IndexOptions | None = None,
    *,
    prefix: str | None = None,
    keep: bool = False,
    changes: bool = True,
) -> Plan:
    """Choose one consistent environment for a request on a host.

    Args:
        request: what the user asks for; `Request.conda` asks for a conda environment.
        host: the host on which the environment must run.
        options: where packages may come from.
        prefix: the conda environment that the packages are meant for. Libraries that would have two
            owners in it become warnings of the plan.
        keep: whether the packages of `prefix` must stay. They keep their versions if possible.
            Environments of wheels are solved anew.
        changes: whether to look for the smallest changes that help when there is no solution.

    Raises:
        NoSolutionError: there is no such environment; the error explains why.
        InputError: the request cannot be read.
        PackageIndexError: an index did not answer.
    """
    require_request(request)
    require_type(host, Host, "host")
    options = options or IndexOptions()
    require_type(options, IndexOptions, "options")
    with activity.current.during("solving"):
        if request.conda is not None:
            from . import conda

            return conda.solve(request, host, options, prefix=prefix, keep=keep, changes=changes)
        plan = wheels.solve(request, host, options, changes=changes)
        if prefix is None:
            return plan
        from ..install import conda_prefix

        owned = conda_prefix.beside_conda(prefix, plan.pins, compatibility_data())
        return plan.replace(warnings=(*plan.warnings, *owned))


# ---- lock ----------------------------------------------------------------------------------------


def lock(plan: Plan) -> Lock:
    """Return the lock of a plan. `write_lock` writes it to a file.

    Raises:
        InputError: a file has no hash.
    """
    require_type(plan, Plan, "plan")
    if plan.request.conda is None:
        return pylock.lock(plan)
    from . import conda

    return conda_formats.lock(plan, conda.channels(plan.request))


def attested(lock: Lock, options: IndexOptions) -> Lock:
    """Return a lock that says who has published each file, by attestations (PEP 740).

    The indexes of the files are asked for them. It needs the extra gpuenv[attestations].

    Args:
        lock: the lock.
        options: the options of the solve, which may have credentials.

    Raises:
        InputError: the lock is of conda packages, or the network must not be used.
        NotAttestedError: a file has no attestation, or one that does not hold.
        PackageIndexError: an index does not answer.
    """
    if lock.conda or options.offline or options.no_index:
        message = "--require-attestations asks the indexes of wheels"
        raise InputError(message, hint="leave out --offline, --no-index and --backend conda")
    return lock.replace(pins=attestations.attested_pins(lock.pins, options))


def lock_text(lock: Lock, form: str = "") -> str:
    """Return the text of a lock.

    Args:
        lock: the lock.
        form: "pylock" or "requirements" for wheels; "conda-explicit" or "conda-lock" for conda
            packages. "" is the first of them.
    """
    if lock.conda:
        return conda_formats.dumps(lock, form)
    return pylock.requirements_text(lock) if form == "requirements" else pylock.dumps(lock)


def lock_texts(lock: Lock, path: str, form: str = "") -> dict[str, str]:
    """Return {path: text} of the files of a lock: `path`, then the lock of its wheels, if any."""
    if lock.conda:
        return conda_formats.lock_texts(lock, path, form)
    if form == "requirements":
        return {path: pylock.requirements_text(lock)}
    return {path: pylock.dumps(lock, os.path.dirname(path))}


def write_lock(lock: Lock, path: str, form: str = "") -> tuple[str, ...]:
    """Write a lock to a file; wheels beside conda packages have a lock file of their own beside it.

    Args:
        lock: the lock.
        path: the file.
        form: the format, as in `lock_text`.

    Returns:
        The paths of the files: `path`, then that of the wheels if there are some.

    Raises:
        InputError: a file cannot be written.
    """
    texts = lock_texts(lock, path, form)
    pylock.write_texts(texts)
    return tuple(texts)


def read_lock(path: str) -> Lock:
    """Read a pylock.toml that gpuenv wrote, or the lock of a conda environment by any tool.

    A pixi.toml stands for the pixi.lock beside it. The lock of the wheels beside conda packages is
    read, too.

    Raises:
        InputError: the file is not such a lock; the message says what is wrong, and where.
        TamperedError: the content is not what gpuenv locked.
    """
    if os.path.basename(path) == PIXI_TOML:
        from . import conda

        return conda.lock_of_workspace(path)
    if not is_conda_lock(path):
        return pylock.read(path)
    own = conda_formats.read(path)
    path_beside = conda_formats.wheel_lock_path(path, own)
    return own if path_beside is None else own.replace(wheels=pylock.read(path_beside))


def is_conda_lock(path: str) -> bool:
    """Return whether a file is the lock of a conda environment, by its content.

    False if there is no file.
    """
    return conda_formats.is_lock(path)
