"""`gpuenv init` and `gpuenv lock`: the profiles of pyproject.toml and their locks."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from .. import api
from ..errors import HostMismatchError, InputError
from ..model import quantity_text
from ..project.profiles import State, compare
from ..render import locks as render
from ..render import refusals
from ..render.values import index_lines, reasons_json
from ..requirements.files import read_files
from ..requirements.parse import editable_requirement
from .environments import exit_on_signals
from .flags import HOST, PLACES, PROJECT
from .output import print_errors, print_json, print_lines, print_report
from .parser import Argument, Command, Group
from .requests import (
    check_names,
    is_about_conda,
    name_reader,
    read_host,
    read_index_options,
    read_requirement,
    used_host_flags,
)
from .state import perform

INDEXES = Group("Indexes (beside those of [tool.gpuenv])", *PLACES)


class Init(Command):
    """`gpuenv init`: write a first [tool.gpuenv] into pyproject.toml, or add profiles to it."""

    HELP = "Write a first [tool.gpuenv] into pyproject.toml"
    DESCRIPTION = (
        "Write the frameworks of the project and a profile for each host into pyproject.toml. "
        "If the table exists, add profiles to it. Nothing else in the file changes."
    )
    EXAMPLES = (
        ("gpuenv init", "Make a profile of this host"),
        (
            "gpuenv init --framework torch --gpu H100 --driver 580.65.06",
            "Make one of another host",
        ),
    )
    ARGUMENTS = (
        Argument(
            "[HOST.json ...]",
            "Make a profile of each of these hosts, which `gpuenv detect -o` wrote"
            " (default: this host, or the one of the flags)",
            dest="host_files",
        ),
        PROJECT,
        Argument("--name NAME", "The name of the profile (default: by its GPUs)", default=""),
        Argument(
            "--framework NAME[SPEC] ...",
            "Use this framework instead of those found in the project. Repeat for several",
        ),
        Argument("--no-ci", "Write no profile without a GPU, which CI would use"),
        HOST,
    )

    def run(self, arguments: Namespace) -> int:
        """Write the table or the profiles, and print what was written."""
        flags = used_host_flags(arguments)
        if not arguments.host_files:
            hosts = [read_host(arguments)]
        elif flags:
            message = f"{flags[0]}: a host file describes its host alone"
            raise InputError(message, hint="give host files or host flags")
        else:
            hosts = [api.read_host(path) for path in arguments.host_files]
        begun = api.begin_project(
            arguments.project,
            hosts,
            arguments.framework,
            name=arguments.name,
            python=hosts[0].python.release if arguments.python else "",
            ci=not arguments.no_ci,
        )
        print_report(render.beginning_lines(begun, hosts))
        fields = ("path", "frameworks", "profiles", "covered", "python")
        print_json({field: getattr(begun, field) for field in fields})
        return 0


class LockProfiles(Command):
    """`gpuenv lock`: lock the profiles of pyproject.toml, or check locks."""

    HELP = "Lock the profiles of pyproject.toml, or check their locks"
    DESCRIPTION = (
        "Write one lock for each host profile in [tool.gpuenv]. Pins that still fit are kept."
    )
    EXAMPLES = (
        ("gpuenv lock", "Lock all profiles"),
        ("gpuenv lock --upgrade torch", "Take the newest release of one package"),
        ("gpuenv lock --add pandas --remove scipy", "Change the requirements, and lock them"),
        ("gpuenv lock --check", "Check that the locks are up to date"),
    )
    ARGUMENTS = (
        Argument("[PROFILE ...]", "The profiles (default: all); with --check also lock files"),
        PROJECT,
        Argument(
            "--upgrade [NAME ...]",
            "Take the newest release of these packages, or of all packages",
        ),
        Argument("--check", "Check that the locks are up to date; solve nothing"),
        Argument(
            "--add REQUIREMENT ...", "Add a requirement to pyproject.toml. Repeat for several"
        ),
        Argument(
            "--remove NAME ...", "Remove a requirement from pyproject.toml. Repeat for several"
        ),
        INDEXES,
        HOST,
    )

    def run(self, arguments: Namespace) -> int:
        """Lock profiles, or check locks.

        See `_check` for the exit status of --check; otherwise it is 0.
        """
        added, removed, check = arguments.add, arguments.remove, arguments.check
        files = [text for text in arguments.profile if "." in text or os.sep in text or "/" in text]
        names = [text for text in arguments.profile if text not in files]
        flags = used_host_flags(arguments)
        if flags and not (check and files):
            message = f"{flags[0]}: a profile describes its own host, so host flags do not change"
            raise InputError(f"{message} it", hint="they are for --check with a lock file")
        if files and not check:
            message = f"{files[0]}: gpuenv lock takes profiles"
            raise InputError(message, hint="a file can only be checked: --check")
        upgrade = arguments.upgrade is not None
        changing = {"--add": added, "--remove": removed, "--upgrade": upgrade}
        for flag, value in {**changing, "--refresh": arguments.refresh}.items():
            if check and value:
                raise InputError(f"--check only reads the locks: leave {flag} out")
        if check:
            return _check(arguments, names, files)
        changed: AbstractContextManager[None] = nullcontext()
        if added or removed:
            changed = api.changed_requirements(arguments.project, add=added, remove=removed)
        with changed:
            _lock(arguments, names)
        return 0


CHANGING = (
    Argument("--group NAME", "In this dependency group, which the profiles then lock", default=""),
    Argument(
        "--dev", "In the dependency group dev", dest="group", action="store_const", const="dev"
    ),
    Argument(
        "--optional EXTRA", "In this extra of the project, which the profiles then lock", default=""
    ),
    Argument("--target DIR", "The environment to install into (default: .venv)", default=".venv"),
    Argument("--no-sync", "Change pyproject.toml and the locks only"),
    INDEXES,
)


class Add(Command):
    """`gpuenv add`: add requirements to the project, lock it and install the lock."""

    HELP = "Add requirements to the project, lock and install them"
    DESCRIPTION = (
        "Write requirements into pyproject.toml, lock all profiles, and install and verify the lock"
        " for this host. If that fails, nothing is changed."
    )
    EXAMPLES = (
        ("gpuenv add 'pandas>=2'", "Add a package"),
        ("gpuenv add --dev pytest", "Add one for development"),
        ("gpuenv add .", "Install the project itself, as an editable install"),
    )
    ARGUMENTS = (
        Argument("[REQUIREMENT ...]", "As in pip", dest="changed"),
        Argument("-r --requirements FILE ...", "Add the requirements of a file"),
        Argument("-e --editable FOLDER ...", "Add the project in a folder as an editable install"),
        *CHANGING,
    )

    def run(self, arguments: Namespace) -> int:
        """Change, lock and install."""
        check_names(arguments.changed)
        options = read_index_options(arguments)
        name_of = name_reader(api.detect, options)
        texts = [read_requirement(text, name_of) for text in arguments.changed]
        texts += [editable_requirement(text, "the command line") for text in arguments.editable]
        read_url = partial(api.read_url, options=options)
        file = read_files(arguments.requirements, name_of=name_of, read_url=read_url)
        arguments.changed = [*texts, *file.requirements]
        if not arguments.changed:
            raise InputError("nothing to add", hint="name a REQUIREMENT, or a file: -r FILE")
        return _change(arguments, add=arguments.changed)


class Remove(Command):
    """`gpuenv remove`: remove requirements from the project, lock it and install the lock."""

    HELP = "Remove requirements from the project, lock and install the rest"
    DESCRIPTION = (
        "Remove requirements from pyproject.toml, lock all profiles, and install and verify the"
        " lock for this host. If that fails, nothing is changed."
    )
    EXAMPLES = (("gpuenv remove pandas", "Remove a package"),)
    ARGUMENTS = (Argument("NAME ...", "The packages", dest="changed", nargs="+"), *CHANGING)

    def run(self, arguments: Namespace) -> int:
        """Change, lock and install."""
        return _change(arguments, remove=arguments.changed)


def _change(arguments: Namespace, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> int:
    """Change the requirements, lock and install. Return the exit status.

    If one of these fails, pyproject.toml, the locks and the environment are as before.
    """
    places = [f"--find-links={folder}" for folder in arguments.find_links]
    places += [f"--extra-index-url={url}" for url in arguments.extra_index_url]
    places += [f"--index-url={arguments.index_url}"] if arguments.index_url else []
    places += ["--no-index"] * arguments.no_index
    refresh = ["--refresh"] * arguments.refresh
    is_report = arguments.no_sync or not arguments.json  # --json prints the document of sync
    exit_on_signals()
    target = None if arguments.no_sync else arguments.target
    group, extra = arguments.group, arguments.optional
    if group and extra:
        raise InputError("--optional: cannot be combined with --group or --dev", hint="give one")
    with api.changed_requirements(
        "", add=add, remove=remove, group=group, extra=extra, target=target
    ):
        perform(["lock", *places, *refresh], arguments, is_report=is_report)
        if target is None:
            return 0
        try:
            status = perform(["sync", "--target", target, *places], arguments, is_report=True)
        except HostMismatchError as error:
            error.hint = "--no-sync changes only pyproject.toml and the locks"
            raise
        if status:
            sys.exit(status)  # an error, so that the requirements are changed back
    return 0


def _lock(arguments: Namespace, names: Sequence[str]) -> None:
    """Lock all profiles before the first file is written."""
    profiles, shared = api.lock_profiles(
        arguments.project,
        names,
        upgrade=arguments.upgrade,
        options=read_index_options(arguments),
        warn=lambda line: print_errors(f"gpuenv: {line}"),
    )
    statuses = api.write_profile_locks({locked.path: locked.new for locked in profiles})
    documents = []
    for locked in profiles:
        path, new, status = locked.path, locked.new, statuses[locked.path]
        changes = compare(locked.old, new)
        documents.append(render.lock_json(path, locked.profile.name, status, new, changes))
        if status == "unchanged":
            print_report([f"{path}: unchanged, {quantity_text(len(new.pins), 'package')}"])
        else:
            print_report(render.lock_lines(path, locked.old, new, changes, locked.plan))
    print_json({"profiles": documents, "frameworks": render.shared_versions_json(shared)})
    if "written" in statuses.values() and shared:
        print_report(render.shared_versions_lines(shared, only_some=bool(names)))
    dates = [locked.plan.index_date for locked in profiles if locked.plan.index_date]
    if dates:
        print_report(index_lines(dates[0]))


def _check(arguments: Namespace, names: Sequence[str], files: Sequence[str]) -> int:
    """Check the locks of profiles, and lock files of any tool on the host of the flags.

    Returns:
        The exit status: 0 all are up to date and work, 1 one is not, 2 one cannot be read.
    """
    states: Sequence[State] = ()
    if names or not files:
        states = api.project_state(arguments.project, names).states
    if states:
        print_lines(render.states_lines(states))
    documents = []
    reports = []
    if files:
        of_conda = {path: is_about_conda(path) for path in files}
        hosts = {conda: read_host(arguments, conda=conda) for conda in set(of_conda.values())}
        reports = [api.check_lock(path, hosts[of_conda[path]]) for path in files]
        for host in hosts.values():
            api.require_gpu(host)  # after the locks were read: a damaged one is said first
    for report in reports:
        print_lines(refusals.lock_lines(report))
        documents.append(
            {
                "path": report.path,
                "created_by": report.created_by,
                "packages": report.packages,
                "ok": report.works,
                "reasons": reasons_json(report.reasons),
            }
        )
    is_good = all(state.status == "fresh" for state in states)
    is_good = is_good and all(document["ok"] for document in documents)
    print_json({"ok": is_good, "profiles": states, "files": documents})
    if any(state.status == "unreadable" for state in states):
        return InputError.exit_status
    return 0 if is_good else 1
