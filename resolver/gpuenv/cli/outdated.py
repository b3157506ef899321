"""`gpuenv outdated`: what a new solve of a lock's request would change."""

from __future__ import annotations

from argparse import Namespace

from .. import api
from ..errors import InputError
from ..model import Request
from ..render import trees
from .output import print_json, print_lines
from .parser import Parser, add_common_flags
from .request_args import add_index_flags, read_index_options
from .tree import add_lock_argument

HELP = "Show which packages of a lock have newer releases that fit"
DESCRIPTION = (
    "Solve the request of a lock again for the same host, without its pins, and print what "
    "differs. Nothing is written."
)
EXAMPLES = (("gpuenv outdated --refresh", "Compare pylock.toml with the indexes"),)


def add_arguments(parser: Parser) -> None:
    """Add the arguments of `gpuenv outdated`."""
    add_lock_argument(parser)
    add_index_flags(parser)
    add_common_flags(parser)


def run(arguments: Namespace) -> int:
    """Print the packages that differ."""
    lock = api.read_lock(arguments.lock)
    if lock.conda:
        raise InputError("a conda lock cannot be solved again", hint="use gpuenv solve")
    request = Request(
        frameworks=lock.frameworks,
        requirements=lock.requirements,
        constraints=lock.constraints,
        no_build=lock.no_build,
        no_binary=lock.no_binary,
        pre=arguments.pre,
        default_index_only=arguments.default_index_only,
    )
    plan = api.solve(request, lock.host, read_index_options(arguments))
    if arguments.json:
        print_json(trees.outdated_json(arguments.lock, lock, plan))
    else:
        print_lines(trees.outdated_lines(arguments.lock, lock, plan))
    return 0
