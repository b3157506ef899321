"""`gpuenv explain`: why a request is impossible, or whether a lock works on a host."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable

from .. import api
from ..errors import InputError, NoSolutionError
from ..model import Host, IndexOptions, Lock, Request
from ..render import locks, refusals
from .host_args import add_host_flags, describe_from, read_conda_host, read_host_flags
from .output import print_json, print_lines
from .parser import Parser, add_common_flags
from .request_args import (
    add_backend_flags,
    add_request_flags,
    is_conda_backend,
    read_conda_request,
    read_request,
    refuse_nicknames,
)

HELP = "Explain why a request is impossible, or whether a lock works"
DESCRIPTION = (
    "Print every reason against the newest releases on a host, and the smallest changes "
    "that help. For a lock of any tool, print whether it works on a host."
)
EXAMPLES = (
    ("gpuenv explain torch tensorflow --gpu V100 --driver 550.54.14", "Explain a request"),
    ('gpuenv explain pylock.toml --gpu "RTX 5090"', "Explain whether a lock works on another GPU"),
)


def add_arguments(parser: Parser) -> None:
    """Add the flags of `gpuenv explain`."""
    add_request_flags(parser)
    add_backend_flags(parser)
    add_host_flags(parser)
    add_common_flags(parser)


def run(arguments: Namespace) -> int:
    """Print the explanation. Return 0 if the request is possible or the lock works, otherwise 3."""
    _move_project_files(arguments)
    locks_given = [text for text in arguments.requirement if _is_lock(text)]
    if not locks_given:
        return _explain_request(arguments)
    if len(arguments.requirement) > 1 or arguments.framework:
        message = f"{locks_given[0]}: a lock is explained alone: give one LOCK, or requirements"
        raise InputError(message)
    return _explain_lock(arguments, locks_given[0])


def _move_project_files(arguments: Namespace) -> None:
    """Explain what an environment.yml or a pixi.toml asks for, as -r with the backend conda."""
    from ..requirements.conda_projects import is_project_file

    files = [
        text
        for text in arguments.requirement
        if is_project_file(text) and not api.is_conda_lock(text)
    ]
    if files:
        arguments.requirement = [text for text in arguments.requirement if text not in files]
        arguments.requirements = [*arguments.requirements, *files]
        arguments.backend = "conda"


def _explain_request(arguments: Namespace) -> int:
    request, options, host = _read_request(arguments)
    try:
        plan = api.explain(request, host, options)
    except NoSolutionError as error:
        if arguments.json:
            print_json(refusals.explanation_json(error.explanation))
        else:
            print_lines(refusals.impossible_lines(error.explanation, host))
        return error.exit_status
    if arguments.json:
        print_json(refusals.possible_json(plan))
    else:
        print_lines(refusals.possible_lines(plan))
    return 0


def _read_request(arguments: Namespace) -> tuple[Request, IndexOptions, Host]:
    if is_conda_backend(arguments):
        return read_conda_request(arguments)
    refuse_nicknames(arguments.requirement)
    arguments.framework, arguments.requirement = api.split_frameworks(
        arguments.framework, arguments.requirement
    )
    return read_request(arguments, lambda: read_host_flags(arguments, need_gpu=True))


def _is_lock(text: str) -> bool:
    return text.endswith(".toml") or api.is_conda_lock(text)


def _explain_lock(arguments: Namespace, path: str) -> int:
    read_host = read_conda_host if api.is_conda_lock(path) else _read_host
    try:
        lock: Lock | None = api.read_lock(path)
    except InputError:
        if not os.path.exists(path):
            raise
        lock = None  # of another tool, or edited
    if lock is not None and lock.conda and not lock.inputs:
        lock = None  # only gpuenv writes the channels into a conda lock
    host = _lock_host(arguments, lock, read_host)
    report = api.explain_lock(path, host)
    created_by, packages, reasons = report.created_by, report.packages, report.reasons
    if arguments.json:
        document = refusals.lock_json(path, created_by, packages, reasons, report.changes)
        print_json(document)
    else:
        help_lines = [] if report.works else refusals.change_lines(report.changes, reasons)
        lines = locks.lock_check_lines(
            path, created_by, packages, reasons, host, used=len(help_lines)
        )
        print_lines([*lines, *help_lines])
    return 0 if report.works else NoSolutionError.exit_status


def _read_host(arguments: Namespace) -> Host:
    return read_host_flags(arguments, need_gpu=True)


def _lock_host(
    arguments: Namespace, lock: Lock | None, read_host: Callable[[Namespace], Host]
) -> Host:
    """Return the host to explain a lock for.

    With flags that change single facts, it is the host of a gpuenv lock with these facts. Otherwise
    it is the host of the flags, or the detected one.
    """
    if lock is None:  # of another tool
        return read_host(arguments)
    facts = (
        arguments.gpu,
        arguments.driver,
        arguments.python,
        arguments.platform,
        arguments.glibc,
    )
    if not arguments.host and any(facts):
        return describe_from(lock.host, arguments, python=arguments.python)
    if arguments.python is not None:
        return read_host(arguments)
    return read_host(arguments).replace(python=lock.host.python)
