"""`gpuenv install`, `sync`, `download` and `rollback`: commands that write environments."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import suppress

from .. import api
from ..api.installing import Installing
from ..errors import DeclinedError, GpuEnvError, HostMismatchError, InputError, NotVerifiedError
from ..install import downloads
from ..install.wheels import WAIT
from ..model import Check, EnvironmentChanges, Host, IndexOptions, Lock, quantity_text
from ..prefix import find_interpreter, is_conda, is_venv
from ..project.profiles import Profile
from ..render import changes as render_changes
from ..render import checks as render_checks
from ..render import locks, plans
from ..render.values import warning_texts
from .flags import HOST, INSTALLER, LOCK, OF_PROJECT, SOLVE
from .output import (
    print_errors,
    print_json,
    print_lines,
    print_report,
    print_result,
    print_step,
)
from .parser import Argument, Command, output_file, waiting_seconds
from .requests import (
    is_described,
    read_host,
    read_index_options,
    read_output,
    read_solve_request,
)
from .state import UP_TO_DATE, find_lock, locked_project, named_lock, require_fresh

END_SIGNALS = ("SIGTERM", "SIGHUP")  # Windows does not have all of them


WAITING = Argument(
    "--wait S",
    "Wait up to S seconds for another run on the same folder; 0 means no wait (default: 600)",
    type=waiting_seconds,
    default=WAIT,
)
TARGET = Argument(
    "--target DIR", "The environment: a new or an existing one (default: .venv)", default=".venv"
)
# The arguments of `gpuenv sync`, which `gpuenv install` has, too.
INSTALL = (
    TARGET,
    WAITING,
    Argument(
        "--exact",
        "Remove what the lock does not name (default: only from an environment of wheels that"
        " gpuenv made)",
        default=None,
    ),
    Argument(
        "--inexact",
        "Keep packages that the lock does not name",
        dest="exact",
        action="store_false",
    ),
    Argument("-y --yes", "Change an existing environment without a question"),
    Argument(
        "--python-downloads",
        "Let uv download a Python for a new environment if there is none here",
    ),
    *INSTALLER,
)
# The folders and indexes that a lock may use without https.
PLACES = (
    Argument(
        "--find-links DIR ...",
        "Use the files of a folder, such as one that gpuenv download filled (repeat)",
    ),
    Argument("--index-url URL", "Accept files of the lock from this http:// index, too"),
    Argument(
        "--extra-index-url URL ...",
        "Accept files of the lock from this http:// index, too (repeat)",
    ),
)


class Install(Command):
    """`gpuenv install`: solve, install and verify in one step."""

    HELP = "Solve, sync and verify in one step"
    DESCRIPTION = (
        "Choose an environment as `gpuenv solve` does, install it as `gpuenv sync` does, verify "
        "it, and write its lock. What the environment was made for stays; --exact installs only"
        " what is named."
    )
    EXAMPLES = (
        ("gpuenv install torch --target .venv", "Make an environment for this host"),
        ("gpuenv install torch --gpu none --target .venv", "Make one for the CPU"),
    )
    ARGUMENTS = (*SOLVE, *INSTALL)

    def run(self, arguments: Namespace) -> int:
        """Solve, install, verify and write the lock. Return 1 if a check fails."""
        form, path = read_output(arguments)
        if form == "requirements" or path is None:
            raise InputError(
                "--format requirements and -o - are for gpuenv solve: an installation has a lock"
            )
        request, options, host = read_solve_request(arguments)
        recorded = None
        if request.conda is None and not arguments.exact and is_venv(arguments.target):
            recorded = api.recorded_lock(arguments.target)
        if recorded is not None:
            request = api.with_recorded(request, recorded)
        prefix = arguments.target if request.conda is not None else None
        plan = api.solve(request, host, options, prefix=prefix, keep=not arguments.exact)
        lock = api.lock(plan)
        _refuse_of_wheels(arguments, lock)
        _refuse_offline(arguments, lock)
        if arguments.require_attestations:
            lock = api.attested(lock, options)
        how = _installing(arguments, lock, plan.host, options)
        if recorded is not None:
            how["unneeded"] = sorted(recorded.versions.keys() - lock.versions.keys())
            how["exact"] = False
        api.check_target(
            lock, arguments.target, python=how["python"], installer=arguments.installer
        )
        print_report(plans.solution_lines(plan, (), verbose=arguments.verbose > 0))

        is_other = os.path.lexists(path) and not _is_lock(path, recorded)

        def print_paths(paths: Sequence[str]) -> None:
            replaced = ", in place of another lock" if is_other else ""
            print_report([f"wrote {' and '.join(paths)}{replaced}"])

        def install() -> None:
            host, target = plan.host, arguments.target
            api.install(lock, target, host=host, path=path, form=form, written=print_paths, **how)

        return _perform(install, arguments, lock)


class Sync(Command):
    """`gpuenv sync`: install a lock into an environment, and verify it."""

    HELP = "Install a lock into an environment, and verify it"
    DESCRIPTION = (
        "Install exactly the files of a lock, by their hashes, into a new or an existing "
        "environment. A lock that does not fit the host is refused before anything is "
        "written."
    )
    EXAMPLES = (
        ("gpuenv sync pylock.toml --target .venv", "Install a lock"),
        ("gpuenv sync --target .venv", "Install the lock of the profile that fits this host"),
    )
    ARGUMENTS = (
        Argument(
            "[LOCK]",
            "The lock file (default: that of the profile of pyproject.toml that fits this host,"
            " otherwise pylock.toml, or the one that is recorded in the environment). It may be"
            " uv.lock, poetry.lock, pdm.lock, Pipfile.lock or requirements with hashes, too",
        ),
        HOST,
        *INSTALL,
        *PLACES,
        OF_PROJECT,
        UP_TO_DATE,
        Argument("--no-index", "Use only the files of --find-links, no network"),
        Argument("--offline", "Use no network: only the cache of uv and the files of --find-links"),
        Argument("--dry-run", "Print what would change; change nothing"),
    )

    def run(self, arguments: Namespace) -> int:
        """Install a lock and verify the environment. Return 1 if a check fails."""
        if arguments.lock is not None:
            arguments.lock = named_lock(arguments.lock)
        lock, host = _lock_and_host(arguments)
        files = _with_local_files(arguments, lock, no_index=arguments.no_index)
        _refuse_offline(arguments, files)
        warnings = [f"warning: {text}" for text in warning_texts(api.shared_path_reasons(lock))]
        if arguments.dry_run:
            changes = api.changes(lock, arguments.target, host=host, exact=arguments.exact)
            kinds = ("target", "add", "change", "again", "remove")
            document = {kind: getattr(changes, kind) for kind in kinds}
            lines = [*render_changes.changes_lines(changes), *warnings]
            return print_result(document, lines)

        def sync() -> None:
            for line in warnings:
                print_step(line)
            how = _installing(arguments, lock, host, read_index_options(arguments))
            api.sync(lock, arguments.target, host=host, files=files, **how)

        try:
            return _perform(sync, arguments, lock)
        except HostMismatchError as error:
            if arguments.python is not None and host.python.version != lock.needs.python:
                error.hint = "leave --python out, or make another lock: gpuenv solve --python"
                if arguments.lock is None and api.has_profiles():
                    error.hint = (
                        "leave --python out, or lock another one: python in [tool.gpuenv], then"
                        " gpuenv lock"
                    )
            elif not (error.hint or lock.conda or is_described(arguments) or host.gpus):
                error.hint = (
                    "to install for another host (an image, a login node) name it:"
                    " --gpu and --driver, or --host"
                )
            raise


class Download(Command):
    """`gpuenv download`: the files of a lock, for hosts without a network."""

    HELP = "Download the files of a lock"
    DESCRIPTION = (
        "Download the files of a lock into a folder, for hosts without a network. Several locks can"
        " share a folder. An interrupted download continues. --bundle writes one file that installs"
        " the environment on a host that has only Python."
    )
    EXAMPLES = (
        ("gpuenv download pylock.toml -d wheels", "Download the files of a lock"),
        (
            "gpuenv sync pylock.toml --target .venv --find-links wheels --no-index",
            "Install them on a host without a network",
        ),
        (
            "gpuenv download pylock.toml --bundle env.pyz",
            "Write one file; python3 env.pyz --target .venv installs it",
        ),
    )
    ARGUMENTS = (
        LOCK,
        Argument(
            "-d --dir DIR",
            "The folder for the files (default with --bundle: a temporary one)",
        ),
        Argument(
            "--bundle FILE",
            "Write the files, the lock and gpuenv itself into one file, which installs them with"
            " python3 alone",
            type=output_file,
        ),
        *PLACES,
        WAITING,
    )

    def run(self, arguments: Namespace) -> int:
        """Download what is missing, and write a bundle if one is wanted."""
        folder, bundle = arguments.dir, arguments.bundle
        if not (folder or bundle):
            raise InputError("-d DIR or --bundle FILE is missing")
        path, lock = find_lock(arguments.lock)
        profile = api.profile_of(lock, path)
        _accept_places(arguments, lock, profile, os.path.dirname(path))
        files = _with_local_files(arguments, lock)
        if lock.conda:
            raise InputError("the lock is of conda packages: only wheels can be downloaded")
        builds = read_index_options(arguments)
        if not bundle:
            files, downloaded = downloads.download(
                files, folder, wait=arguments.wait, report=print_step, builds=builds
            )
            present = len(files.pins) - downloaded
            document = {"folder": folder, "downloaded": downloaded, "present": present}
            line = (
                f"{folder}: {quantity_text(downloaded, 'file')} downloaded, {present} there already"
            )
            return print_result(document, [line])
        exit_on_signals()
        digest = downloads.download_bundle(
            lock,
            bundle,
            api.compatibility_data().folder,
            files=files,
            folder=folder,
            wait=arguments.wait,
            report=print_step,
            builds=builds,
        )
        wheels = len(lock.pins)
        document = {"bundle": bundle, "wheels": wheels, "sha256": digest}
        print_result(document, [f"{bundle}: {wheels} wheels, sha256 {digest}"])
        print_report([f"next: python3 {shlex.quote(bundle)} --target DIR"])
        return 0


class Rollback(Command):
    """`gpuenv rollback`: return to the environment before the last sync."""

    HELP = "Return to the environment before the last sync"
    DESCRIPTION = (
        "Return to the environment before the last sync. A second rollback undoes the first."
    )
    EXAMPLES = (
        ("gpuenv rollback --target .venv", "Return to the environment before the last sync"),
    )
    ARGUMENTS = (TARGET, WAITING)

    def run(self, arguments: Namespace) -> int:
        """Exchange the environment and the previous one."""
        target = arguments.target
        api.rollback(target, wait=arguments.wait, progress=print_step)
        line = f"{target}: the environment before the last sync is back"
        return print_result({"target": target}, [line])


def _is_lock(path: str, lock: Lock | None) -> bool:
    with suppress(GpuEnvError):
        return lock is not None and api.read_lock(path).pins == lock.pins
    return False


# ---- the lock and its files ----------------------------------------------------------------------


def _lock_and_host(arguments: Namespace) -> tuple[Lock, Host]:
    """Return the named lock, or that of the profile that fits the host; and the host.

    The host has the Python of --python, otherwise that of the lock. The lock of another tool is
    read for the Python of an existing target.
    """
    path = arguments.lock or "pylock.toml"
    of_project = (arguments.extra, arguments.group)
    is_of_project = arguments.lock is None and api.has_profiles()
    if not is_of_project and api.is_tool_lock(path):
        python = arguments.python
        if python is None and is_venv(arguments.target):
            python = find_interpreter(arguments.target)
        host = read_host(Namespace(**{**vars(arguments), "python": python}))
        return api.read_tool_lock(path, host, read_index_options(arguments), *of_project), host
    if any(of_project):
        raise InputError("--extra and --group are for locks of other tools")
    profile: Profile | None
    if is_of_project:
        of_conda = is_conda(arguments.target)
        host = read_host(arguments, keep_python=False, conda=of_conda)
        project = api.project_state() if arguments.dry_run else locked_project(arguments)
        fitting = api.fitting_lock(project, host, arguments.target)
        require_fresh(fitting.state, arguments)
        lines = locks.chosen_lines(project.project, fitting.profiles, fitting.state)
        print_step("\n".join(lines))
        lock, path, profile = fitting.lock, fitting.state.path, fitting.profiles[0]
    else:
        recorded = None
        if arguments.lock is None and not os.path.lexists(path):
            recorded = api.recorded_lock(arguments.target)
        if recorded is not None:
            print_step(f"{arguments.target}: there is no {path}; its own lock is installed again")
        lock = recorded or api.read_lock(path)
        profile = api.profile_of(lock, path)
        host = read_host(arguments, keep_python=lock.conda, conda=lock.conda)
    _accept_places(arguments, lock, profile, os.path.dirname(path))
    if arguments.python is not None and lock.needs.python is not None:
        return lock, api.describe(host, python=arguments.python)
    return lock, api.with_python_of(host, lock)


def _accept_places(arguments: Namespace, lock: Lock, profile: Profile | None, folder: str) -> None:
    """Add the indexes and folders that a lock's profile names to those that the user names."""
    if profile is None or (lock.conda and lock.wheels is None):
        return
    options = api.profile_places(profile, folder)
    arguments.find_links = [*arguments.find_links, *options.find_links]
    if not lock.conda:
        urls = filter(None, [options.index_url, *options.extra_index_urls])
        arguments.extra_index_url = [*arguments.extra_index_url, *urls]


def _with_local_files(arguments: Namespace, lock: Lock, *, no_index: bool = False) -> Lock:
    """Return a lock that takes its wheels from the folders of --find-links, where they are there.

    Raises:
        InputError: with `no_index`, a file is in none of the folders; or a file is at a URL without
            https that no flag allows.
    """
    _refuse_of_wheels(arguments, lock)
    wheels, folders = lock.wheels if lock.conda else lock, arguments.find_links
    if wheels is None:
        return lock
    files = downloads.with_local_files(wheels, folders, no_index=no_index)
    if lock.conda:
        return lock.replace(wheels=files)
    indexes = [*arguments.extra_index_url, *filter(None, [arguments.index_url])]
    downloads.refuse_unnamed_places(files, indexes, folders, os.path.dirname(arguments.lock or ""))
    return files


def _refuse_of_wheels(arguments: Namespace, lock: Lock) -> None:
    """Raise InputError for a flag that says nothing about the conda packages of a lock."""
    names = ["index_url", "extra_index_url", "python_downloads"] if lock.conda else []
    if lock.conda and lock.wheels is None:
        names += ["find_links", "no_index", "installer"]
    for name in names:
        value = getattr(arguments, name, None)
        if value and value != "auto" and name not in arguments.settings:
            raise InputError(f"--{name.replace('_', '-')}: says nothing about conda packages")


# ---- installation --------------------------------------------------------------------------------


def _refuse_offline(arguments: Namespace, lock: Lock) -> None:
    """Raise InputError if --offline is on and a package of a conda lock is at a URL."""
    if not (lock.conda and arguments.offline):
        return
    wheels = lock.wheels.pins if lock.wheels is not None else ()
    for wheel in (pin.wheel for pin in (*lock.pins, *wheels)):
        if not wheel.is_local:
            message = f"--offline: {wheel.name} {wheel.version} is of no local channel"
            hint = "conda packages are installed with a network: leave it out"
            raise InputError(message, hint=hint)


def _installing(arguments: Namespace, lock: Lock, host: Host, builds: IndexOptions) -> Installing:
    """Return how the flags of INSTALL install a lock for a host."""
    python, target = arguments.python, arguments.target
    if arguments.python_downloads and builds.offline:
        raise InputError("--python-downloads contradicts --offline: give one of them")
    if arguments.python_downloads:
        python = api.downloaded_python(lock, target, python)
    changed: set[str] | None = None  # None verifies all

    def approve(changes: EnvironmentChanges) -> None:
        """Print the changes, and ask before those that the user must confirm.

        Without a terminal or with --yes, nobody is asked.
        """
        nonlocal changed
        print_step("\n".join(render_changes.changes_lines(changes)))
        if changes.verified:
            changed = changes.names() or None
        if not changes.confirm or arguments.yes or not sys.stdin.isatty():
            return
        print("Proceed? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise DeclinedError("nothing was installed", hint="--yes answers the question")

    def prove(python: str) -> bool:
        if changed is not None:
            print_step(render_changes.proof_line(len(changed)))
        checks = api.verify(
            lock,
            python,
            host,
            device=not is_described(arguments),
            timeout=arguments.timeout,
            changed=changed,
            shown_as="" if lock.conda else target,
        )
        return print_checks(arguments, checks, target) == 0

    return Installing(
        python=python,
        installer=arguments.installer,
        exact=arguments.exact,
        wait=arguments.wait,
        approve=approve,
        prove=None if arguments.no_verify else prove,
        progress=print_step,
        builds=builds,
    )


def _perform(install: Callable[[], None], arguments: Namespace, lock: Lock) -> int:
    """Install, and print what to type next. Return the exit status.

    With --json and --no-verify print a summary; otherwise the checks were printed.
    """
    exit_on_signals()
    try:
        install()
    except NotVerifiedError as error:
        return report_not_verified(error)
    target = shlex.quote(arguments.target)
    step = f"gpuenv run --target {target} COMMAND"
    if arguments.no_verify or find_interpreter(arguments.target) is None:
        step = f"gpuenv verify --target {target}"
    print_report([f"next: {step}"])
    if arguments.no_verify:
        packages = len(lock.pins) + (len(lock.wheels.pins) if lock.wheels is not None else 0)
        print_json({"target": arguments.target, "packages": packages, "verified": False})
    return 0


def report_not_verified(error: NotVerifiedError) -> int:
    """Print what became of an environment whose checks were printed. Return the exit status."""
    print_errors(*plans.error_lines(error))
    return error.exit_status


# ---- for all commands that use environments ------------------------------------------------------


def print_checks(arguments: Namespace, checks: Sequence[Check], target: str) -> int:
    """Print checks and return the exit status.

    One line for each part of the environment; -v prints every check, -q those that did not pass.

    Args:
        arguments: the parsed flags.
        checks: the checks.
        target: the environment, for what to type next if something is not verified.
    """
    is_ok = render_checks.ok(checks)
    print_json(render_checks.checks_json(checks))
    lines = render_checks.check_lines if arguments.verbose else render_checks.summary_lines
    if not is_ok:
        print_lines([*lines(checks), f"next: gpuenv doctor --target {shlex.quote(target)}"])
    elif arguments.verbose or not arguments.quiet:
        print_lines(lines(checks))
    return 0 if is_ok else 1


def exit_on_signals() -> None:
    """Let SIGTERM and SIGHUP end a command and its children as an interrupt does."""

    def exit_with(number: int, _frame: object) -> None:
        sys.exit(128 + number)

    on_end_signals(exit_with)


def on_end_signals(handler: Callable[[int, object], None]) -> None:
    """Call a function at SIGTERM and SIGHUP, unless they are ignored."""
    for name in END_SIGNALS:
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)
