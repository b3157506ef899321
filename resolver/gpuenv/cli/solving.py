"""`gpuenv solve`, `explain`, `env` and `detect`: commands that answer for a host."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace
from datetime import date

from .. import api
from ..compat.data import unread_package
from ..detect.host import write_host
from ..errors import InputError, NoSolutionError
from ..index.cache import cache_folder
from ..index.urls import file_url_to_path, redact_url
from ..lock.pylock import write_texts
from ..model import IndexOptions, Lock
from ..render import plans, refusals
from ..render.text import Line
from ..requirements.conda_projects import is_project_file
from ..requirements.dockerfile import is_dockerfile, read_dockerfile
from ..serialize import text_digest
from .flags import BACKEND, HOST, REQUEST, SOLVE
from .output import print_errors, print_json, print_lines, print_report, print_result
from .parser import Argument, Command, output_file
from .requests import (
    active_conda_prefix,
    describe_from,
    is_about_conda,
    read_host,
    read_index_options,
    read_output,
    read_repair_request,
    read_request,
    read_solve_request,
    used_host_flags,
)


class Solve(Command):
    """`gpuenv solve`: choose an environment and lock it."""

    HELP = "Choose an environment for this host and lock it"
    DESCRIPTION = (
        "Choose the newest frameworks that work on the host, with one consistent set of CUDA, "
        "cuDNN and packages, and write them to a lock file. Nothing is installed."
    )
    EXAMPLES = (
        ("gpuenv solve torch --gpu H100 --driver 580.65.06", "Lock PyTorch for another host"),
        (
            'gpuenv solve "torch>=2.9" torchvision -r requirements.txt',
            "Lock it for this host, with your own requirements",
        ),
        ("gpuenv solve torch --gpu none", "Lock it for the CPU"),
    )
    ARGUMENTS = (
        *SOLVE,
        Argument(
            "--repair DIR",
            "With conda: solve for what is in an environment, and change as little as possible",
        ),
        Argument("--dry-run", "Print the result; write nothing"),
    )

    def run(self, arguments: Namespace) -> int:
        """Solve and write the lock."""
        repaired = arguments.repair
        if repaired is not None:
            if arguments.backend == "pip":
                raise InputError("--repair: repairs environments of conda packages")
            arguments.backend = "conda"
        form, path = read_output(arguments)
        if repaired is None:
            request, options, host = read_solve_request(arguments)
            plan = api.solve(request, host, options, prefix=active_conda_prefix())
        else:
            request, options, host = read_repair_request(arguments)
            plan = api.repair(request, host, options, prefix=repaired)
        data = api.compatibility_data()
        dates = (data.version, data.user_rows.date)
        age = plans.age_lines(dates, date.today())
        print_errors(*plans.package_lines(unread_package()), *age)
        lock = api.lock(plan)
        if arguments.require_attestations:
            lock = api.attested(lock, IndexOptions() if repaired else options)
        if arguments.dry_run:
            path = None
        paths = api.write_lock(lock, path, form) if path is not None else ()
        if arguments.json:
            print_json(plans.solution_json(plan, paths))
        elif paths or arguments.dry_run:
            lines = plans.solution_lines(plan, paths, verbose=arguments.verbose > 0)
            step = [f"next: {_sync_command(lock, path, arguments)}" for path in paths[:1]]
            print_report([*lines, *step])
        else:
            sys.stdout.write(api.lock_text(lock, form))
        return 0


def _sync_command(lock: Lock, path: str, arguments: Namespace) -> str:
    """Return the command that installs a lock. It names the places of local and http files."""
    # The proposed folder is not the one that gpuenv runs in, and no .venv has conda packages.
    target = "env" if lock.conda or os.path.abspath(".venv") == sys.prefix else ".venv"
    words = ["gpuenv", "sync", path, "--target", target]
    urls = [] if lock.conda else [pin.wheel.url for pin in lock.pins]
    own = os.path.abspath(os.path.dirname(path))
    folders = set()
    for place in [file_url_to_path(url) for url in urls if url.startswith("file:")]:
        is_beside = f"{place}{os.sep}".startswith(f"{own}{os.sep}")  # sync builds what is there
        if os.path.isfile(place) or not is_beside:
            folders.add(os.path.dirname(place))
    for folder in sorted(folders):
        relative = os.path.relpath(folder)
        words += ["--find-links", folder if relative.startswith(os.pardir) else relative]
    if any(url.startswith("http:") for url in urls):
        for url in filter(None, [arguments.index_url, *arguments.extra_index_url]):
            words += ["--extra-index-url", redact_url(url)]
    return shlex.join(words)


class Explain(Command):
    """`gpuenv explain`: why a request is impossible, or whether a lock works on a host."""

    HELP = "Explain why a request is impossible, or whether a lock works"
    DESCRIPTION = (
        "Print every reason against the newest releases on a host, and the smallest changes "
        "that help. For a LOCK print whether it works on a host: pylock.toml, uv.lock, "
        "poetry.lock, pdm.lock, Pipfile.lock, requirements with hashes, or the lock of a conda "
        "environment. For a Dockerfile print what does not fit its base image or the host."
    )
    EXAMPLES = (
        ("gpuenv explain torch tensorflow --gpu V100 --driver 550.54.14", "Explain a request"),
        (
            'gpuenv explain pylock.toml --gpu "RTX 5090"',
            "Explain whether a lock works on another GPU",
        ),
        ("gpuenv explain Dockerfile --gpu H100 --driver 550.54.14", "Explain a Dockerfile"),
        ("gpuenv explain uv.lock --extra cu128", "Explain a lock of another tool with an extra"),
    )
    ARGUMENTS = (*REQUEST, *BACKEND, HOST)

    def run(self, arguments: Namespace) -> int:
        """Print the explanation. Return 0 if the request is possible or the lock works, else 3."""
        texts = arguments.requirement
        # An environment.yml or a pixi.toml stands for -r with the backend conda.
        files = [text for text in texts if is_project_file(text) and not api.is_conda_lock(text)]
        if files:
            texts = arguments.requirement = [text for text in texts if text not in files]
            arguments.requirements = [*arguments.requirements, *files]
            arguments.backend = "conda"
        given = [
            text
            for text in texts
            if text.endswith(".toml") or api.is_conda_lock(text) or api.is_tool_lock(text)
        ]
        given += [text for text in texts if is_dockerfile(text)]
        if not given:
            return _explain_request(arguments)
        if len(texts) > 1 or arguments.framework:
            message = f"{given[0]}: a file is explained alone: give one LOCK, or requirements"
            raise InputError(message)
        if is_dockerfile(given[0]):
            return _explain_dockerfile(arguments, given[0])
        return _explain_lock(arguments, given[0])


def _explain_request(arguments: Namespace) -> int:
    request, options, host = read_solve_request(arguments)
    try:
        plan = api.explain(request, host, options)
    except NoSolutionError as error:
        print_result(
            refusals.explanation_json(error.explanation),
            refusals.impossible_lines(error.explanation, host, verbose=bool(arguments.verbose)),
        )
        return error.exit_status
    return print_result(refusals.possible_json(plan), refusals.possible_lines(plan))


def _explain_lock(arguments: Namespace, path: str) -> int:
    """Explain a lock for the host of the flags, otherwise for the detected one.

    For a lock of gpuenv, flags that change single facts change the host of the lock.
    """
    try:
        lock: Lock | None = None if api.is_tool_lock(path) else api.read_lock(path)
    except InputError:
        if not os.path.exists(path):
            raise
        lock = None  # of another tool, or edited
    if lock is not None and lock.conda and not lock.inputs:
        lock = None  # only gpuenv writes the channels into a conda lock
    python = arguments.python
    if lock is not None and not arguments.host and used_host_flags(arguments):
        host = describe_from(lock.host, arguments, python=python)
    else:
        host = read_host(arguments, conda=api.is_conda_lock(path))
        if lock is not None and python is None:
            host = host.replace(python=lock.host.python)
    report = api.explain_lock(path, host, tuple(arguments.extra), tuple(arguments.group))
    api.require_gpu(host)  # after the lock was read: a damaged one is said first
    print_result(refusals.lock_json(report), refusals.lock_lines(report, with_changes=True))
    return 0 if report.works else NoSolutionError.exit_status


def _explain_dockerfile(arguments: Namespace, path: str) -> int:
    """Explain a Dockerfile for the host of the flags, with what its base image shows."""
    file = read_dockerfile(path)
    file = file.replace(python=arguments.python or file.python)
    arguments.python = file.python or None
    arguments.platform = arguments.platform or file.platform
    arguments.glibc = arguments.glibc or file.glibc or None
    host = read_host(arguments, need_gpu=True)
    report = api.explain_dockerfile(path, file, host, read_index_options(arguments))
    lines = refusals.lock_lines(report, with_changes=bool(report.changes))
    print_result(refusals.lock_json(report), lines)
    return 0 if report.works else NoSolutionError.exit_status


class Env(Command):
    """`gpuenv env`: settings that make another tool take the same builds."""

    HELP = "Print settings that make another tool take the same builds"
    DESCRIPTION = (
        "Print variables and settings with which another tool takes the builds that gpuenv would "
        "take. If no setting of the tool expresses the choice, the command says why."
    )
    EXAMPLES = (
        ('eval "$(gpuenv env --for uv)"', "Let uv choose builds for this host"),
        ('eval "$(gpuenv env --for pip --framework torch)"', "Let pip take these versions"),
    )
    ARGUMENTS = (
        Argument(
            "--for",
            "Print settings for this tool",
            dest="tool",
            choices=("uv", "conda", "pixi", "pip"),
            required=True,
        ),
        Argument(
            "-o --output FILE",
            "Write the constraints on versions to this file (default: one in the cache)",
            type=output_file,
        ),
        *REQUEST,
        HOST,
    )

    def run(self, arguments: Namespace) -> int:
        """Print the settings; 3 if the tool has none that express the choice."""
        host = read_host(arguments, need_gpu=True, conda=arguments.tool == "conda")
        request, options = None, None
        sources = ("framework", "requirement", "requirements", "project")
        if any(getattr(arguments, source) for source in sources):
            request, options, host = read_request(arguments, lambda: host)
        settings = api.tool_settings(arguments.tool, host, request, options)
        variables = list(settings.variables)
        if settings.constraints:
            text = "".join(f"{line}\n" for line in settings.constraints)
            path = arguments.output
            if path is None:  # a variable names the file: where it lies is no matter
                folder = os.path.join(cache_folder(), "constraints")
                os.makedirs(folder, exist_ok=True)
                path = os.path.join(folder, f"{text_digest(text)[:20]}.txt")
            write_texts({path: text})
            variables.append((settings.constraints_variable, path))
        if arguments.json:
            table = settings.table
            print_json({"for": arguments.tool, "variables": dict(variables), "table": table})
            return 0
        if variables:
            exports = [f"export {name}={shlex.quote(value)}" for name, value in variables]
            print_lines([Line(line, "command") for line in exports])
        sys.stdout.write(settings.table)
        return 0


class Detect(Command):
    """`gpuenv detect`: describe this host."""

    HELP = "Describe this host: GPUs, driver, platform and Python"
    DESCRIPTION = (
        "Print what a solve would use, and each fact that could not be read, with the reason."
    )
    EXAMPLES = (
        ("gpuenv detect", "Describe this host"),
        ("gpuenv detect -o host.json", "Describe it in a file, for --host on another machine"),
    )
    ARGUMENTS = (Argument("-o --output FILE", "Write the host to a file for --host"), HOST)

    def run(self, arguments: Namespace) -> int:
        """Print the host, and write it to a file with -o."""
        host = read_host(arguments, conda=is_about_conda(None))
        lines = plans.host_lines(host)
        if arguments.output:
            write_host(host, arguments.output)
            lines = [*lines, f"wrote {arguments.output}"]
        return print_result(host, lines)
