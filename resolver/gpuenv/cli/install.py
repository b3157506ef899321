"""`gpuenv install`: solve, install and verify in one step."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from functools import partial

from .. import api
from ..errors import InputError, NotVerifiedError
from ..render import plans
from .environment_args import (
    add_install_flags,
    approve_changes,
    exit_on_signals,
    new_python,
    print_end,
    prove_installation,
    report_not_verified,
)
from .output import print_report, progress_printer
from .parser import Parser
from .request_args import add_solve_flags, attested, read_output, read_solve_request

HELP = "Solve, sync and verify in one step"
DESCRIPTION = (
    "Choose an environment as `gpuenv solve` does, install it as `gpuenv sync` does, verify "
    "it, and write its lock."
)
EXAMPLES = (
    ("gpuenv install torch --target .venv", "Make an environment for this host"),
    ("gpuenv install torch --gpu none --target .venv", "Make one for the CPU"),
)


def add_arguments(parser: Parser) -> None:
    """Add the flags of `gpuenv install`."""
    add_solve_flags(parser)
    add_install_flags(parser)


def run(arguments: Namespace) -> int:
    """Solve, install, verify and write the lock. Return 1 if a check fails."""
    form, path = read_output(arguments)
    if form == "requirements" or path is None:
        message = "--format requirements and -o - are for gpuenv solve: an installation has a lock"
        raise InputError(message)
    request, options, host = read_solve_request(arguments)
    prefix = arguments.target if request.conda is not None else None
    plan = api.solve(request, host, options, prefix=prefix, keep=not arguments.exact)
    lock = api.lock(plan)
    if arguments.require_attestations:
        lock = attested(lock, options)

    python = new_python(arguments, lock)
    api.check_target(lock, arguments.target, python=python, installer=arguments.installer)
    if not arguments.json:
        print_report(plans.solution_lines(plan, (), verbose=arguments.verbose > 0))

    def print_paths(paths: Sequence[str]) -> None:
        if not arguments.json:
            print_report([f"wrote {' and '.join(paths)}"])

    exit_on_signals()
    try:
        api.install(
            lock,
            arguments.target,
            host=plan.host,
            path=path,
            form=form,
            python=python,
            installer=arguments.installer,
            exact=arguments.exact,
            wait=arguments.wait,
            written=print_paths,
            approve=partial(approve_changes, arguments),
            prove=prove_installation(arguments, lock, plan.host),
            progress=progress_printer(arguments),
            builds=options,
        )
    except NotVerifiedError as error:
        return report_not_verified(error)
    print_end(arguments, lock)
    return 0
