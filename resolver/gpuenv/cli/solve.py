"""`gpuenv solve`: choose an environment and lock it."""

from __future__ import annotations

import os
import shlex
import sys
from argparse import Namespace

from .. import api
from ..render import plans
from .output import print_json, print_report
from .parser import Parser
from .request_args import add_solve_flags, read_output, read_solve_request

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
    parser.add_argument("--dry-run", action="store_true", help="Print the result; write nothing")


def run(arguments: Namespace) -> int:
    """Solve and write the lock."""
    form, path = read_output(arguments)
    request, options, host = read_solve_request(arguments)
    prefix = api.active_conda_prefix(os.environ)
    plan = api.solve(request, host, options, prefix=prefix)
    lock = api.lock(plan)
    if arguments.dry_run:
        path = None
    paths = api.write_lock(lock, path, form) if path is not None else ()
    if arguments.json:
        print_json(plans.solution_json(plan, paths))
    elif arguments.dry_run:
        print_report(plans.solution_lines(plan, (), verbose=arguments.verbose > 0))
    elif paths:
        next_step = f"gpuenv sync {shlex.quote(paths[0])} --target .venv"
        print_report(
            plans.solution_lines(plan, paths, verbose=arguments.verbose > 0, next_step=next_step)
        )
    else:
        sys.stdout.write(api.lock_text(lock, form))
    return 0
