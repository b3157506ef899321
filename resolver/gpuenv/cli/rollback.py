"""`gpuenv rollback`: return to the environment before the last sync."""

from __future__ import annotations

from argparse import Namespace

from .. import api
from .environment_args import add_target_flags
from .output import print_json, print_lines, progress_printer
from .parser import Parser, add_common_flags

HELP = "Return to the environment before the last sync"
DESCRIPTION = "Return to the environment before the last sync. A second rollback undoes the first."
EXAMPLES = (("gpuenv rollback --target .venv", "Return to the environment before the last sync"),)


def add_arguments(parser: Parser) -> None:
    """Add the flags of `gpuenv rollback`."""
    add_target_flags(parser, "The environment")
    add_common_flags(parser)


def run(arguments: Namespace) -> int:
    """Exchange the environment and the previous one."""
    api.rollback(arguments.target, wait=arguments.wait, progress=progress_printer(arguments))
    if arguments.json:
        print_json({"target": arguments.target})
    else:
        print_lines([f"{arguments.target}: the environment before the last sync is back"])
    return 0
