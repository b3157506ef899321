"""`gpuenv solve`: choose an environment and lock it."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from datetime import date

from .. import api
from ..compat.data import unread_package
from ..errors import InputError
from ..model import IndexOptions, Lock, Plan
from ..render import plans
from .output import print_json, print_report
from .parser import Parser
from .request_args import (
    active_conda_prefix,
    add_solve_flags,
    attested,
    read_output,
    read_repair_request,
    read_solve_request,
)

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


def add_arguments(parser: Parser) -> None:
    """Add the flags of `gpuenv solve`."""
    add_solve_flags(parser)
    parser.add_argument(
        "--repair",
        metavar="DIR",
        help="With conda: solve for what is in an environment, and change as little as possible",
    )
    parser.add_argument(
        "--variants-json",
        action="store_true",
        help="Describe variant wheels as PEP 825 does; pip 26.3 and uv 0.13 refuse such a lock",
    )
    parser.add_argument("--dry-run", action="store_true", help="Print the result; write nothing")


def run(arguments: Namespace) -> int:
    """Solve and write the lock."""
    if arguments.repair is not None:
        arguments.backend = "conda"
    form, path = read_output(arguments)
    if arguments.variants_json and form != "pylock":
        message = f"--variants-json: a lock of the format {form} has no such table"
        raise InputError(message, hint="leave it out, or write a pylock.toml")
    options = IndexOptions()
    if arguments.repair is not None:
        plan = _repair(arguments)
    else:
        request, options, host = read_solve_request(arguments)
        prefix = active_conda_prefix()
        plan = api.solve(request, host, options, prefix=prefix)
    data = api.compatibility_data()
    notes = plans.package_lines(unread_package())
    for line in [*notes, *plans.age_lines((data.version, data.user_rows.date), date.today())]:
        print(line, file=sys.stderr)
    lock = api.lock(plan, variants_json=arguments.variants_json)
    if arguments.require_attestations:
        lock = attested(lock, options)
    if arguments.dry_run:
        path = None
    paths = api.write_lock(lock, path, form) if path is not None else ()
    if arguments.json:
        print_json(plans.solution_json(plan, paths))
    elif paths or arguments.dry_run:
        step = ""
        if paths:
            step = _sync_command(lock, paths[0], arguments)
        verbose = arguments.verbose > 0
        print_report(plans.solution_lines(plan, paths, verbose=verbose, next_step=step))
    else:
        sys.stdout.write(api.lock_text(lock, form))
    return 0


def _sync_command(lock: Lock, path: str, arguments: Namespace) -> str:
    """Return the command that installs a lock. It names the places of local and http files."""
    words = ["gpuenv", "sync", path, "--target", _new_target()]
    if not lock.conda:
        words += _place_flags([pin.wheel.url for pin in lock.pins], arguments)
    return shlex.join(words)


def _place_flags(urls: Sequence[str], arguments: Namespace) -> list[str]:
    """Return the flags that name the folders and http:// indexes of files, as sync demands."""
    if all(url.startswith("https:") for url in urls):
        return []
    from ..index.urls import file_url_to_path, redact_url  # loads urllib, which few solves need

    flags = []
    folders = {os.path.dirname(file_url_to_path(url)) for url in urls if url.startswith("file:")}
    for folder in sorted(folders):
        flags += ["--find-links", _short_path(folder)]
    if any(url.startswith("http:") for url in urls):
        for url in filter(None, [arguments.index_url, *arguments.extra_index_url]):
            flags += ["--extra-index-url", redact_url(url)]
    return flags


def _short_path(path: str) -> str:
    """Return a path below the working folder as a relative one."""
    relative = os.path.relpath(path)
    return path if relative.startswith(os.pardir) else relative


def _new_target() -> str:
    """Return the folder that the next step proposes. It is not the one that gpuenv runs in."""
    return "env" if os.path.abspath(".venv") == sys.prefix else ".venv"


def _repair(arguments: Namespace) -> Plan:
    flags = ("framework", "requirement", "requirements", "constraints", "project", "pip")
    if any(getattr(arguments, flag) for flag in flags):
        message = "--repair: solves for what is in the environment; give no REQUIREMENT"
        raise InputError(message)
    request, options, host = read_repair_request(arguments)
    return api.repair(request, host, options, prefix=arguments.repair)
