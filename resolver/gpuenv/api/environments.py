"""Environments: solve, lock, install and verify.

Environments of wheels and conda environments go through the same functions. `wheels` and `conda`
have what differs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypedDict, Unpack

from .. import activity, interpreters, loader_env
from ..compat.conda_records import Record
from ..errors import InputError
from ..install import conda as conda_installer
from ..install import conda_history, conda_prefix, environment_files, installers
from ..install import wheels as wheel_installer
from ..install.wheels import WAIT, Approve, Progress, Prove
from ..lock import conda_formats, pylock
from ..lock.host_fit import fit
from ..model import (
    Check,
    Checks,
    EnvironmentChanges,
    Host,
    IndexOptions,
    Lock,
    Plan,
    Request,
)
from ..prefix import find_interpreter, is_conda, is_venv, prefix_of
from ..requirements.conda_projects import PIXI_TOML
from ..resolve.requested import unknown_framework
from . import conda, wheels
from .data import carriers, compatibility_data
from .fit import host_checks, lock_reasons, require_fit, rule_reasons
from .hosts import Texts, require_request, require_texts, require_type, with_python_of

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
            return conda.solve(request, host, options, prefix=prefix, keep=keep, changes=changes)
        plan = wheels.solve(request, host, options, changes=changes)
        if prefix is None:
            return plan
        owned = conda_prefix.beside_conda(prefix, plan.pins, carriers(), compatibility_data())
        return plan.replace(warnings=(*plan.warnings, *owned))


# ---- lock ----------------------------------------------------------------------------------------


def lock(plan: Plan, *, variants_json: bool = False) -> Lock:
    """Return the lock of a plan. `write_lock` writes it to a file.

    Args:
        plan: the plan.
        variants_json: describe variant wheels as PEP 825 does, in [packages.variants-json]. pip
            26.3 and uv 0.13 refuse such a lock.

    Raises:
        InputError: a file has no hash, or `variants_json` is given for conda packages.
    """
    require_type(plan, Plan, "plan")
    if plan.request.conda is None:
        return pylock.lock(plan, variants_json=variants_json)
    if variants_json:
        message = "variants_json: only the locks of wheels have this table"
        raise InputError(message, hint="leave it out for conda packages")
    own = conda_formats.lock(plan, conda.channels(plan.request))
    beside = None if plan.wheels is None else pylock.lock(plan.wheels)
    return own.replace(conda=True, wheels=beside)


def lock_text(lock: Lock, form: str = "") -> str:
    """Return the text of a lock.

    Args:
        lock: the lock.
        form: "pylock" or "requirements" for wheels; "conda-explicit" or "conda-lock" for conda
            packages. "" is the first of them.
    """
    if lock.conda:
        return conda_formats.dumps(lock, form or "conda-explicit")
    return pylock.requirements_text(lock) if form == "requirements" else pylock.dumps(lock)


def lock_texts(lock: Lock, path: str, form: str = "") -> dict[str, str]:
    """Return {path: text} of the files of a lock: `path`, then the lock of its wheels, if any."""
    if lock.conda:
        return conda.lock_texts(lock, path, form)
    return {path: lock_text(lock, form)}


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
        return conda.lock_of_workspace(path)
    if not is_conda_lock(path):
        return pylock.read(path)
    own = conda_formats.read(path)
    path_beside = conda_formats.wheel_lock_path(path, own)
    beside = own.wheels if path_beside is None else pylock.read(path_beside)
    return own.replace(conda=True, wheels=beside)


def is_conda_lock(path: str) -> bool:
    """Return whether a file is the lock of a conda environment, by its content.

    False if there is no file.
    """
    return not path.endswith(".toml") and conda_formats.is_lock(path)


def recorded_lock(target: str) -> Lock | None:
    """Return the lock that `sync` or `install` recorded in an environment; None if it has none.

    Args:
        target: the folder of the environment, or its interpreter.

    Raises:
        InputError: a newer gpuenv wrote the lock.
        TamperedError: the record was edited.
    """
    prefix = prefix_of(target)
    if is_conda(prefix):
        path = os.path.join(prefix, "conda-meta", conda_history.LOCK)
        return read_lock(path) if os.path.isfile(path) else None
    build = environment_files.read_build(prefix)
    if build is None or not build.lock:
        return None
    return pylock.loads(build.lock, os.path.join(prefix, environment_files.FILE))


# ---- install -------------------------------------------------------------------------------------


class Installing(TypedDict, total=False):
    """How a lock is installed: arguments of `sync`, which describes them, and of `install`."""

    python: str | None
    installer: str
    exact: bool | None
    wait: float
    approve: Approve | None
    prove: Prove | None
    progress: Progress | None
    builds: IndexOptions | None


def check_target(
    lock: Lock, target: str, *, python: str | None = None, installer: str = "auto"
) -> None:
    """Raise InputError if `sync` could not install the lock into the target. Nothing is written."""
    if not lock.conda:
        wheel_installer.check(lock, target, installer=installer, python=python)
        return
    conda_installer.check(target)
    if lock.wheels is not None:
        installers.find_installer(installer)  # or an error


def downloaded_python(lock: Lock, target: str, python: str | None) -> str | None:
    """Return the interpreter for a new environment; uv downloads it if there is none here.

    Args:
        lock: the lock, whose Python it must be.
        target: the folder of the environment.
        python: the version or the interpreter that the user wants.

    Returns:
        The interpreter; `python` if it is one, or if nothing has to be found.

    Raises:
        InputError: uv is not installed.
        InstallError: uv cannot download it.
    """
    release = interpreters.required_release(lock)
    if lock.conda or release is None or is_venv(target):
        return python
    if python is not None and interpreters.parse_version(python) is None:
        return python
    try:
        return interpreters.find_base_interpreter(lock, python)
    except InputError:
        return interpreters.download(release)


def sync(
    lock: Lock, target: str, *, host: Host, files: Lock | None = None, **how: Unpack[Installing]
) -> str:
    """Install a lock into a new or an existing environment, and record it there.

    An environment of wheels has the content of the lock afterwards, or it is as it was, byte for
    byte. `rollback` returns to the environment before. A conda environment is changed in place; the
    rules of compatibility are checked for conda locks of any tool.

    Args:
        lock: the lock.
        target: the folder of the environment.
        host: the host that must fulfill the needs of the lock.
        files: the lock with the places to take the files from; None takes them from their URLs.
        **how: these, all optional:

            python: the interpreter or the version to make a new environment with; of wheels only.
            installer: "auto", "uv" or "pip".
            exact: whether to remove what the lock does not name. None removes it from environments
                of wheels that gpuenv made.
            wait: seconds to wait for another run on the same target; of wheels only.
            approve: is called with the changes of an existing environment before anything is
                written; it raises an error to decline them.
            prove: is called with the interpreter, or the folder, of the new environment before it
                replaces the old one; it returns whether the environment works. A conda environment
                is changed before that.
            progress: is called with a line for each step.
            builds: where the build requirements of source distributions come from.

    Returns:
        The interpreter of the environment, "" for a conda environment without one.

    Raises:
        HostMismatchError: the host does not fulfill the needs of the lock, or the lock does not fit
            what is in a conda environment; nothing was written.
        InputError: the target or the lock cannot be used; nothing was written.
        InstallError: the installer or a build failed; a new environment was removed again.
        NotVerifiedError: `prove` returned false.
        TargetBusyError: another run changed the target all the time.
    """
    require_type(lock, Lock, "lock")
    require_type(host, Host, "host")
    if not lock.conda:
        require_fit(lock, host)
        return wheel_installer.sync(files or lock, target, record=pylock.dumps(lock), **how)
    lock = conda.with_hashes(lock)
    require_fit(lock, host)
    return conda.sync(
        lock,
        target,
        (files or lock).wheels,
        exact=how.get("exact"),
        installer_name=how.get("installer", "auto"),
        approve=how.get("approve"),
        prove=how.get("prove"),
        progress=how.get("progress"),
    )


def changes(
    lock: Lock, target: str, *, host: Host, exact: bool | None = None
) -> EnvironmentChanges:
    """Return what `sync` would change in a target. Nothing is written. Raises as `sync`."""
    check_target(lock, target)
    if not lock.conda:
        require_fit(lock, host)
        return wheel_installer.changes(lock, target, exact=exact)
    lock = conda.with_hashes(lock)
    require_fit(lock, host)
    return conda.changes(lock, target, exact=exact)


def install(
    lock: Lock,
    target: str,
    *,
    host: Host,
    path: str,
    form: str = "",
    written: Callable[[Sequence[str]], None] | None = None,
    **how: Unpack[Installing],
) -> str:
    """Install a new lock, and write it to a file when the environment works.

    The lock file is written just before the environment of wheels takes its place. If the
    installation or the verification fails, the old lock file stays.

    Args:
        lock: the lock.
        target: the folder of the environment.
        host: the host that must fulfill the needs of the lock.
        path: the lock file.
        form: its format, as in `lock_text`.
        written: is called with the paths of the lock files when they are written.
        **how: as in `sync`.

    Returns:
        As `sync`.

    Raises:
        InputError: the target or the lock file cannot be used; nothing was written.
        HostMismatchError, InstallError, NotVerifiedError, TargetBusyError: as `sync`.
    """
    texts = lock_texts(lock, path, form)
    pylock.check_places(texts)
    prove = how.get("prove")

    def prove_and_write(python: str) -> bool:
        if prove is not None and not prove(python):
            return False
        pylock.write_texts(texts)
        if written is not None:
            written(tuple(texts))
        return True

    how["prove"] = prove_and_write
    return sync(lock, target, host=host, **how)


def rollback(target: str, *, wait: float = WAIT, progress: Progress | None = None) -> None:
    """Return to the environment before the last `sync`; a second call undoes the first.

    In a conda environment, only the conda packages that the sync changed are changed back.

    Raises:
        InputError: there is no earlier environment, or another tool changed the conda packages
            since then.
        InstallError: a conda package cannot be installed again.
        TargetBusyError: another run changed the target all the time.
    """
    if is_conda(target):
        conda.rollback(target, progress=progress)
    else:
        wheel_installer.rollback(target, wait=wait, progress=progress)


# ---- verify --------------------------------------------------------------------------------------


def verify(
    lock: Lock | None,
    target: str,
    host: Host,
    *,
    device: bool = True,
    timeout: float = 300.0,
    only: Texts = (),
    verbose: bool = False,
    fast: bool = False,
    shown_as: str = "",
) -> Checks:
    """Prove that an environment works on a host. No file is changed.

    Args:
        lock: what must be installed; None checks what is installed.
        target: the folder of the environment, or its interpreter.
        host: the host, as it is now.
        device: whether the GPUs are used.
        timeout: seconds for all checks together.
        only: names of the frameworks to check; () checks those of the lock, or all that are
            installed.
        verbose: whether cuDNN's log of a failure has every call.
        fast: whether the sizes of files are compared, and not their hashes.
        shown_as: the folder that the evidence names, for an environment that is not there yet; ""
            is its own.

    Raises:
        InputError: there is no environment at the target, or no framework has the name.
    """
    from ..verify import environment  # other verbs do not need the checks

    if lock is not None:
        require_type(lock, Lock, "lock")
    require_type(host, Host, "host")
    require_texts(only, "only")
    data = compatibility_data()
    for name in only:
        if data.framework(name) is None:
            raise unknown_framework(name, name, data)
    checks: list[Check] = []
    python: str | None = target
    with activity.current.during("verifying"):
        if lock is not None and lock.conda:
            prefix = prefix_of(target)
            if not is_conda(prefix):
                raise InputError(f"{prefix}: is no conda environment, and the lock is of one")
            lock = conda.with_hashes(lock)
            host = with_python_of(host, lock)
            reasons = fit(lock, host) + (rule_reasons(lock, host) if device else ())
            checks = host_checks(reasons, device=device)
            checks.append(conda_prefix.conda_check(prefix, lock))
            if lock.wheels is not None:
                checks.append(conda_prefix.wheels_check(prefix, lock.wheels))
            lock, python = None, find_interpreter(prefix)
        elif lock is not None:
            checks = host_checks(lock_reasons(lock, host), device=device)
        if python is not None:
            checks += environment.verify(
                lock,
                python,
                host,
                frameworks=_frameworks(lock, only),
                device=device,
                timeout=timeout,
                verbose=verbose,
                data=data,
                conda=_conda_records(prefix_of(target)),
                fast=fast,
            )
    if not shown_as:
        return Checks(checks)
    own = os.path.dirname(os.path.dirname(loader_env.interpreter(target)))
    return Checks(_shown_at(check, own, os.path.abspath(shown_as)) for check in checks)


def _frameworks(lock: Lock | None, only: Sequence[str]) -> list[tuple[str, str, str]]:
    """Return (name, module, probe) of the frameworks to check: those of the lock, and of `only`."""
    pinned = set() if lock is None else {pin.wheel.name for pin in lock.pins}
    chosen = []
    for framework in compatibility_data().all_frameworks():
        ways = {way.distribution for way in framework.ways}  # cupy-cuda12x, ...
        if (lock is None or ways & pinned) and (not only or framework.name in only):
            chosen.append((framework.name, framework.import_name, framework.probe))
    return chosen


def _conda_records(prefix: str) -> list[Record]:
    """Return the records of the packages of a conda environment that the rules can read."""
    if not is_conda(prefix):
        return []
    needed = {"name", "version", "build", "subdir"}
    packages = conda_prefix.read_packages(prefix).values()
    return [record for record in packages if record.keys() >= needed]


def _shown_at(check: Check, folder: str, shown_as: str) -> Check:
    """Return a check with another folder in its evidence."""
    marks = []
    for code, subject, more in check.marks:
        marks.append((code, subject.replace(folder, shown_as), more.replace(folder, shown_as)))
    evidence = check.evidence.replace(folder, shown_as)
    return check.replace(evidence=evidence, marks=tuple(marks))
