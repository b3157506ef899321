"""Whether a lock fits a host; install locks, and verify environments."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TypedDict, Unpack

from .. import activity, interpreters
from ..atomic_write import require_place
from ..compat import evaluate
from ..compat.data import compatibility_data
from ..compat.names import unknown_framework
from ..errors import HostMismatchError, InputError, Reason
from ..install import conda as conda_installer
from ..install import (
    conda_changes,
    conda_history,
    conda_prefix,
    downloads,
    environment_files,
    installers,
)
from ..install import transaction as transactions
from ..install import wheels as wheel_installer
from ..install.wheels import WAIT, Approve, Progress, Prove
from ..lock import conda_formats, pylock
from ..lock.host_fit import fit, variant_fit
from ..lock.tree import Tree
from ..model import Check, Checks, EnvironmentChanges, Host, IndexOptions, Lock, Request
from ..prefix import find_interpreter, interpreter_of, is_conda, is_venv, prefix_of
from ..project.profiles import with_earlier
from ..requirements.versions import parse_requirement
from ..verify import environment
from ..verify.survey import is_bare
from . import conda
from .environments import lock_texts, read_lock
from .hosts import Texts, require_texts, require_type, with_python_of

# Reasons of `host_fit.fit` that can be checked without looking at the GPU and the driver.
WITHOUT_DEVICE = ("platform", "python", "glibc", "glibc-unknown")


# ---- whether a lock fits -------------------------------------------------------------------------


def reasons_against(pins: Iterable[tuple[str, str]], host: Host) -> tuple[Reason, ...]:
    """Return what the compatibility rules say against pinned packages on a host. Nothing is solved.

    Args:
        pins: (name, version) pairs of wheels, whoever pinned them.
        host: the host.
    """
    return evaluate.pin_reasons(pins, host, compatibility_data())


def lock_reasons(lock: Lock, host: Host) -> tuple[Reason, ...]:
    """Return what a host lacks that a lock needs; () if it fits.

    Of conda packages also return what the rules say against them.
    """
    if not lock.conda:
        reasons = fit(lock, host)
        if not lock.variants or any(reason.code == "no-gpu" for reason in reasons):
            return reasons
        return reasons + variant_fit(lock, host, compatibility_data())
    host = with_python_of(host, lock)
    reasons = fit(lock, host)
    if not any(reason.code in ("platform", "no-gpu") for reason in reasons):
        reasons += conda_installer.reasons(lock, host, compatibility_data())
    if lock.wheels is not None:
        reasons += fit(lock.wheels, host)
    return tuple(dict.fromkeys(reasons))


def shared_path_reasons(lock: Lock) -> tuple[Reason, ...]:
    """Return which wheels of a lock install the same files, as people live with it."""
    return evaluate.shared_path_reasons(lock.versions.items(), compatibility_data())


def require_fit(lock: Lock, host: Host) -> None:
    """Check that a lock can be installed for a host.

    Raises:
        HostMismatchError: the host lacks what the lock needs, or a rule refuses it.
        InputError: the lock beside it is missing: of its wheels, or of its conda packages.
    """
    conda_lock = None if lock.conda else conda_formats.conda_lock_of(lock)
    if conda_lock is not None:
        raise InputError(
            f"the lock has the wheels that belong to {conda_lock}",
            hint=f"sync both: gpuenv sync {conda_lock}",
        )
    reasons = lock_reasons(lock, host)
    wheels = lock.wheels if lock.conda else lock
    pins = wheels.versions if wheels else {}
    against = reasons_against(pins.items(), host)
    owners = [reason for reason in against if reason.code == "two-owners"]
    if owners:
        message = "packages of the lock overwrite each other; nothing was installed"
        hint = "lock it again: gpuenv solve keeps one of them"
        raise HostMismatchError(message, (*owners, *reasons), hint=hint)
    if reasons:
        raise HostMismatchError("the lock does not fit this host; nothing was installed", reasons)
    if lock.conda and lock.wheels is None and conda_formats.wheel_lock_of(lock) is not None:
        raise InputError("the lock has pip packages beside it: give their lock, too")


def host_checks(reasons: Iterable[Reason], *, device: bool) -> list[Check]:
    """Return the checks that the host as it is now fulfills the needs of a lock.

    Args:
        reasons: those of `lock_reasons`.
        device: False leaves out what concerns the GPU and the driver.
    """
    checks = []
    for reason in dict.fromkeys(reasons):
        if device or reason.code in WITHOUT_DEVICE:
            status = "unknown" if reason.code.endswith("-unknown") else "fail"
            evidence = f"needs {reason.need}; have {reason.have}"
            checks.append(Check(name="host", subject=reason.code, status=status, evidence=evidence))
    if checks:
        return checks
    evidence = "this host fulfils what the lock needs"
    if not device:
        evidence += ", its GPU and driver not asked"
    return [Check(name="host", subject="", status="pass", evidence=evidence)]


# ---- install -------------------------------------------------------------------------------------


class Installing(TypedDict, total=False):
    """How a lock is installed: arguments of `sync`, which describes them, and of `install`."""

    python: str | None
    installer: str
    exact: bool | None
    unneeded: Sequence[str]
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
    required = interpreters.required_python(lock)
    if lock.conda or required is None or is_venv(target):
        return python
    if python is not None and interpreters.parse_version(python) is None:
        return python
    try:
        return interpreters.find_base_interpreter(lock, python)
    except InputError:
        return interpreters.download(required)


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
            unneeded: packages that are removed although `exact` is false; of wheels only.
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
    return conda.sync(lock, target, (files or lock).wheels, **how)


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
    return conda_changes.plan_changes(lock, target, compatibility_data().conda, exact=bool(exact))


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
    for place in texts:
        require_place(place)
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


def with_recorded(request: Request, recorded: Lock) -> Request:
    """Return a request for what an environment was made for, too.

    What the request itself names is as it says. The versions of all others are kept if they fit.

    Args:
        request: the request.
        recorded: the lock of the environment.
    """
    named = {_name(text) for text in (*request.frameworks, *request.requirements)}
    merged = {
        key: (*getattr(request, key), *texts)
        for key in ("frameworks", "requirements")
        if (texts := [text for text in getattr(recorded, key) if _name(text) not in named])
    }
    for key in ("constraints", "overrides", "no_build", "no_binary"):
        merged[key] = tuple(dict.fromkeys((*getattr(request, key), *getattr(recorded, key))))
    return with_earlier(request.replace(**merged), recorded, sorted(named) or None)


def _name(text: str) -> str:
    """Return the name of a requirement; the text itself of a path or a URL."""
    return text if "/" in text or "\\" in text else parse_requirement(text).name


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
        transactions.roll_back(target, wait=wait, report=progress or downloads.ignore)


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
    changed: Collection[str] | None = None,
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
            installed, and imports what is installed beside them.
        verbose: whether cuDNN's log of a failure has every call.
        fast: whether the sizes of files are compared, and not their hashes.
        changed: the distributions that differ from an environment that was verified. They and
            those that require them are verified; of the others the sizes of files are compared.
            None verifies all.
        shown_as: the folder that the evidence names, for an environment that is not there yet; ""
            is its own.

    Raises:
        InputError: there is no environment at the target, or no framework has the name.
    """
    if lock is not None:
        require_type(lock, Lock, "lock")
    require_type(host, Host, "host")
    require_texts(only, "only")
    data = compatibility_data()
    for name in only:
        if data.framework(name) is None:
            raise unknown_framework(name, name, data)
    checks: list[Check] = []
    python = target
    with activity.current.during("verifying"):
        if lock is not None and lock.conda:
            prefix = prefix_of(target)
            if not is_conda(prefix):
                raise InputError(f"{prefix}: is no conda environment, and the lock is of one")
            host = with_python_of(host, lock)
            checks = _conda_checks(conda.with_hashes(lock), prefix, host, device=device)
            lock, python = None, find_interpreter(prefix) or prefix
        elif lock is not None:
            checks = host_checks(lock_reasons(lock, host), device=device)
        if is_bare(python):
            return Checks([*checks, *environment.verify_bare(python, host, data)])
        proved: Collection[str] | None = None  # distributions whose frameworks are checked
        if lock is not None:
            proved = lock.versions.keys()
            changed = None if changed is None else Tree(lock).with_dependents(changed)
            proved = proved if changed is None else proved & changed
        frameworks = [
            (framework.name, framework.import_name, framework.probe)
            for framework in data.all_frameworks()
            if proved is None or any(way.distribution in proved for way in framework.ways)
            if not only or framework.name in only
        ]
        checks += environment.verify(
            lock,
            python,
            host,
            frameworks=frameworks,
            device=device,
            timeout=timeout,
            verbose=verbose,
            data=data,
            fast=fast,
            whole=not only,
            changed=changed,
        )
    if not shown_as:
        return Checks(checks)
    folder = os.path.dirname(os.path.dirname(interpreter_of(target)))
    return Checks(_moved(check, folder, os.path.abspath(shown_as)) for check in checks)


def _conda_checks(lock: Lock, prefix: str, host: Host, *, device: bool) -> list[Check]:
    """Return the checks of what conda installed: whether it fits the host, and is as locked."""
    reasons = fit(lock, host)
    if device:
        reasons += conda_installer.reasons(lock, host, compatibility_data())
    checks = host_checks(reasons, device=device)
    checks.append(conda_prefix.conda_check(prefix, lock))
    if lock.wheels is not None:
        checks.append(conda_prefix.wheels_check(prefix, lock.wheels))
    return checks


def _moved(check: Check, folder: str, shown_as: str) -> Check:
    """Return a check of an environment that will be in another folder."""
    return check.replace(
        evidence=check.evidence.replace(folder, shown_as),
        marks=tuple(
            (code, *(text.replace(folder, shown_as) for text in texts))
            for code, *texts in check.marks
        ),
    )
