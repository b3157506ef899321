"""Environments: solve, lock, install and verify.

Each function dispatches to `wheels` or to `conda`: by the request, or by the lock. Both modules
provide the functions of `Backend`, so that a caller handles the two kinds of environments alike.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from .. import activity
from ..errors import InputError
from ..model import Check, Checks, EnvironmentChanges, Host, IndexOptions, Lock, Plan, Request
from ..prefix import is_conda, is_venv, prefix_of
from .arguments import Texts, require_request, require_texts, require_type
from .backend import Approve, Backend, Installation, Progress, Prove, Verification
from .data import compatibility_data

WAIT = 600.0  # seconds to wait for another run on the same target

if TYPE_CHECKING:  # the stages are imported when they are first used
    from ..loader_env import Shadow


def _backend(*, conda: bool) -> Backend:
    if conda:
        from . import conda as conda_backend

        return conda_backend
    from . import wheels

    return wheels


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
        changes: whether to look for the smallest changes that help when there is no solution.

    Raises:
        NoSolutionError: there is no such environment; the error explains why.
        InputError: the request cannot be read.
        PackageIndexError: an index did not answer.
    """
    require_request(request)
    require_type(host, Host, "host")
    backend = _backend(conda=request.conda is not None)
    options = options or IndexOptions()
    require_type(options, IndexOptions, "options")
    with activity.current.during("solving"):
        return backend.solve(request, host, options, prefix=prefix, keep=keep, changes=changes)


def repair(
    request: Request, host: Host, options: IndexOptions | None = None, *, prefix: str
) -> Plan:
    """Choose the builds with which the frameworks of a conda environment run on a host.

    As little as possible changes: pins, earlier requests and what packages need of each other hold.

    Args:
        request: has the channels; its frameworks and requirements are not used.
        host: the host on which the environment must run.
        options: where packages may come from.
        prefix: the conda environment.

    Raises:
        NoSolutionError: no change makes the environment fit; the error explains why.
        InputError: there is nothing to repair in the environment, or it cannot be read.
        PackageIndexError: a channel cannot be read.
    """
    from . import conda as conda_backend

    return conda_backend.repair(request, host, options or IndexOptions(), prefix=prefix)


def solve_again(
    lock: Lock, options: IndexOptions, *, pre: bool = False, default_index_only: bool = False
) -> Plan:
    """Solve the request of a lock again for the host of the lock, without regard to its pins.

    Raises:
        InputError: it is a lock of conda packages, which does not have the whole request.
        NoSolutionError, PackageIndexError: as `solve`.
    """
    if lock.conda:
        raise InputError("a conda lock cannot be solved again", hint="use gpuenv solve")
    request = Request(
        frameworks=lock.frameworks,
        requirements=lock.requirements,
        constraints=lock.constraints,
        no_build=lock.no_build,
        no_binary=lock.no_binary,
        pre=pre,
        default_index_only=default_index_only,
    )
    return solve(request, lock.host, options)


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
    backend = _backend(conda=plan.request.conda is not None)
    return backend.lock(plan, variants_json=variants_json)


def attested(lock: Lock, options: IndexOptions) -> Lock:
    """Return a lock that says who has published each file, by attestations (PEP 740).

    The indexes of the files are asked for them. It needs the extra gpuenv[attestations].

    Args:
        lock: a lock of wheels.
        options: the options of the solve, which may have credentials.

    Raises:
        InputError: the lock is of conda packages, or the network must not be used.
        NotAttestedError: a file has no attestation, or one that does not hold.
        PackageIndexError: an index does not answer.
    """
    from ..index import attestations

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
    return _backend(conda=lock.conda).lock_text(lock, form)


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
    from ..lock import pylock

    texts = lock_texts(lock, path, form)
    pylock.write_texts(texts)
    return tuple(texts)


def lock_texts(lock: Lock, path: str, form: str = "") -> dict[str, str]:
    """Return {path: text} of the files of a lock: `path`, then the lock of its wheels, if any."""
    return _backend(conda=lock.conda).lock_texts(lock, path, form)


def read_lock(path: str) -> Lock:
    """Read a pylock.toml that gpuenv wrote, or the lock of a conda environment by any tool.

    A pixi.toml stands for the pixi.lock beside it.

    Raises:
        InputError: the file is not such a lock; the message says what is wrong, and where.
        TamperedError: the content is not what gpuenv locked.
    """
    from ..requirements.conda_projects import PIXI_TOML

    of_conda = is_conda_lock(path) or os.path.basename(path) == PIXI_TOML
    return _backend(conda=of_conda).read_lock(path)


def is_conda_lock(path: str) -> bool:
    """Return whether a file is the lock of a conda environment, by its content.

    False if there is no file.
    """
    if path.endswith(".toml"):
        return False
    from ..lock import conda_formats

    return conda_formats.is_lock(path)


def check_target(
    lock: Lock, target: str, *, python: str | None = None, installer: str = "auto"
) -> None:
    """Raise InputError if `sync` could not install the lock into the target. Nothing is written."""
    _backend(conda=lock.conda).check_target(lock, target, python=python, installer=installer)


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
    from .. import interpreters

    release = interpreters.required_release(lock)
    if lock.conda or release is None or is_venv(target):
        return python
    if python is not None and not interpreters.is_version(python):
        return python
    try:
        return interpreters.find_base_interpreter(lock, python)
    except InputError:
        return interpreters.download(release)


def sync(
    lock: Lock,
    target: str,
    *,
    host: Host,
    files: Lock | None = None,
    python: str | None = None,
    installer: str = "auto",
    exact: bool | None = None,
    wait: float = WAIT,
    approve: Approve | None = None,
    prove: Prove | None = None,
    progress: Progress | None = None,
    builds: IndexOptions | None = None,
) -> str:
    """Install a lock into a new or an existing environment, and record it there.

    An environment of wheels has the content of the lock afterwards, or it is as it was, byte for
    byte. `rollback` returns to the environment before.

    Args:
        lock: the lock.
        target: the folder of the environment.
        host: the host that must fulfill the needs of the lock.
        files: the lock with the places to take the files from; None takes them from their URLs.
        python: the interpreter or the version to make a new environment with; of wheels only.
        installer: "auto", "uv" or "pip".
        exact: whether to remove what the lock does not name. None removes it from environments of
            wheels that gpuenv made.
        wait: seconds to wait for another run on the same target; of wheels only.
        approve: is called with the changes of an existing environment before anything is written;
            it raises an error to decline them.
        prove: is called with the interpreter, or the folder, of the new environment before it
            replaces the old one; it returns whether the environment works. A conda environment is
            changed before that.
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
    options = Installation(
        files=files,
        python=python,
        installer=installer,
        exact=exact,
        wait=wait,
        approve=approve,
        prove=prove,
        progress=progress,
        builds=builds or IndexOptions(),
    )
    return _backend(conda=lock.conda).sync(lock, target, host, options)


def changes(
    lock: Lock, target: str, *, host: Host, exact: bool | None = None
) -> EnvironmentChanges:
    """Return what `sync` would change in a target. Nothing is written. Raises as `sync`."""
    check_target(lock, target)
    return _backend(conda=lock.conda).changes(lock, target, host, exact=exact)


def download(
    lock: Lock,
    folder: str,
    *,
    wait: float = WAIT,
    progress: Progress | None = None,
    builds: IndexOptions | None = None,
) -> tuple[int, int]:
    """Download the files of a lock of wheels into a folder, for hosts without a network.

    A source distribution is built: the folder has its wheel.

    Returns:
        (files that were downloaded, files that were there).

    Raises:
        InputError: the lock is of conda packages, or the folder cannot be used.
        InstallError: a file cannot be downloaded; a second call continues.
    """
    from ..install import downloads

    _require_wheels(lock)
    return downloads.download(lock, folder, wait=wait, progress=progress, builds=builds)


def write_bundle(
    lock: Lock,
    path: str,
    *,
    files: Lock | None = None,
    folder: str | None = None,
    wait: float = WAIT,
    progress: Progress | None = None,
    builds: IndexOptions | None = None,
) -> str:
    """Write one file with the wheels of a lock, the lock, gpuenv, and what gpuenv requires.

    `python3 FILE --target DIR` installs it on a host without a network, without pip and without uv.

    Args:
        lock: the lock, as it was read from a file.
        path: the file. The same input gives the same bytes.
        files: the lock with the places to take the files from; None takes them from their URLs.
        folder: the folder to download the wheels to; None uses a temporary one beside the file.
        wait: seconds to wait for another run that writes the file or the folder.
        progress: is called with a line for each step.

    Returns:
        The sha256 of the file.

    Raises:
        InputError: the lock is of conda packages, what gpuenv requires cannot be found, or the file
            cannot be written.
        InstallError: a file cannot be downloaded or built; a second call continues.
        TargetBusyError: another run wrote the file or the folder all the time.
    """
    from ..install import downloads

    _require_wheels(lock)
    return downloads.download_bundle(
        lock,
        path,
        compatibility_data().folder,
        files=files or lock,
        folder=folder,
        wait=wait,
        progress=progress,
        builds=builds,
    )


def _require_wheels(lock: Lock) -> None:
    if lock.conda:
        raise InputError("the lock is of conda packages: only wheels can be downloaded")


def with_local_files(lock: Lock, folders: Sequence[str], *, no_index: bool = False) -> Lock:
    """Return a lock that takes its wheels from folders, where these have them.

    Raises:
        InputError: with `no_index`, a file is in none of the folders.
    """
    if not folders and not no_index:
        return lock
    from ..install import downloads

    if lock.wheels is not None:
        beside = downloads.with_local_files(lock.wheels, folders, no_index=no_index)
        return lock.replace(wheels=beside)
    if lock.conda:
        raise InputError("--find-links and --no-index are for locks of wheels")
    return downloads.with_local_files(lock, folders, no_index=no_index)


def refuse_unnamed_places(
    lock: Lock, *, indexes: Sequence[str] = (), folders: Sequence[str] = ()
) -> None:
    """Raise InputError if a file of a lock is at an http:// or file:// URL that nobody named.

    Args:
        lock: a lock that was read from a file.
        indexes: the URLs of the indexes that the user named; the default index counts, too.
        folders: the folders that the user named.
    """
    from ..install import downloads

    if not lock.conda:
        downloads.refuse_unnamed_places(lock, indexes, folders)


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
        from . import conda

        conda.rollback(target, progress=progress)
        return
    from ..install import wheels

    wheels.rollback(target, wait=wait, progress=progress)


def install(
    lock: Lock,
    target: str,
    *,
    host: Host,
    path: str,
    form: str = "",
    python: str | None = None,
    installer: str = "auto",
    exact: bool | None = None,
    wait: float = WAIT,
    written: Callable[[Sequence[str]], None] | None = None,
    approve: Approve | None = None,
    prove: Prove | None = None,
    progress: Progress | None = None,
    builds: IndexOptions | None = None,
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
        python: as in `sync`.
        installer: as in `sync`.
        exact: as in `sync`.
        wait: as in `sync`.
        written: is called with the paths of the lock files when they are written.
        approve: as in `sync`.
        prove: as in `sync`.
        progress: is called with a line for each step.
        builds: as in `sync`.

    Returns:
        As `sync`.

    Raises:
        InputError: the target or the lock file cannot be used; nothing was written.
        HostMismatchError, InstallError, NotVerifiedError, TargetBusyError: as `sync`.
    """
    from ..lock import pylock

    texts = lock_texts(lock, path, form)
    pylock.check_places(texts)

    def prove_and_write(python: str) -> bool:
        if prove is not None and not prove(python):
            return False
        pylock.write_texts(texts)
        if written is not None:
            written(tuple(texts))
        return True

    return sync(
        lock,
        target,
        host=host,
        python=python,
        installer=installer,
        exact=exact,
        wait=wait,
        approve=approve,
        prove=prove_and_write,
        progress=progress,
        builds=builds,
    )


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
    if lock is not None:
        require_type(lock, Lock, "lock")
    require_type(host, Host, "host")
    require_texts(only, "only")
    with activity.current.during("verifying"):
        options = Verification(
            device=device, timeout=timeout, only=only, verbose=verbose, fast=fast
        )
        if lock is None:
            from . import wheels

            checks = wheels.verify_installed(target, host, options)
        else:
            checks = _backend(conda=lock.conda).verify(lock, target, host, options)
    if not shown_as:
        return Checks(checks)
    own = os.path.dirname(os.path.dirname(interpreter_of(target)))
    return Checks(_shown_at(check, own, os.path.abspath(shown_as)) for check in checks)


def _shown_at(check: Check, folder: str, shown_as: str) -> Check:
    """Return a check with another folder in its evidence."""
    marks = []
    for code, subject, more in check.marks:
        marks.append((code, subject.replace(folder, shown_as), more.replace(folder, shown_as)))
    evidence = check.evidence.replace(folder, shown_as)
    return check.replace(evidence=evidence, marks=tuple(marks))


# ---- environments that exist ---------------------------------------------------------------------


def recorded_lock(target: str) -> Lock | None:
    """Return the lock that `sync` or `install` recorded in an environment; None if it has none.

    Args:
        target: the folder of the environment, or its interpreter.

    Raises:
        InputError: a newer gpuenv wrote the lock.
        TamperedError: the record was edited.
    """
    prefix = prefix_of(target)
    return _backend(conda=is_conda(prefix)).recorded_lock(prefix)


def active_environment() -> str | None:
    """Return the folder of the active environment, otherwise .venv; None without both."""
    from .. import loader_env

    return loader_env.active_environment(os.environ)


def is_conda_environment(target: str) -> bool:
    """Return whether a folder, or that of an interpreter, is a conda environment."""
    return is_conda(prefix_of(target))


def active_conda_prefix(env: Mapping[str, str]) -> str | None:
    """Return the folder of the active conda environment; None if a venv is active in it."""
    venv, prefix = env.get("VIRTUAL_ENV"), env.get("CONDA_PREFIX")
    if venv and is_venv(venv):
        return None
    if prefix and os.path.isdir(os.path.join(prefix, "conda-meta")):
        return prefix
    return None


def interpreter_of(target: str) -> str:
    """Return the interpreter of an environment: of its folder, or the path itself.

    InputError if there is none.
    """
    from .. import loader_env

    return loader_env.interpreter(target)


def installed_packages(target: str, timeout: float = 30.0) -> list[tuple[str, str]]:
    """Return (name, version) of the installed packages; [] if the interpreter gives no answer."""
    import time

    from ..verify.runner import Children

    deadline = time.monotonic() + timeout
    with Children(interpreter_of(target), os.environ, deadline) as children:
        answer = children.run("installed", {"mode": "survey"}).answer
    distributions = (answer or {}).get("distributions", ())
    return [(row["name"], row["version"]) for row in distributions]


def command_environment(target: str) -> tuple[str, dict[str, str | None], list[Shadow]]:
    """Return how the environment variables must change for a command in an environment.

    Returns:
        (the folder of the environment, the new values of the variables with None to unset one, the
        entries of loader variables that would shadow libraries of the environment).

    Raises:
        InputError: there is no environment at the target.
    """
    from .. import loader_env

    prefix = loader_env.environment_folder(target)
    changed, shadows = loader_env.variables(os.environ, prefix)
    return prefix, changed, shadows
