"""`gpuenv init`: write a first [tool.gpuenv] into pyproject.toml."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from .. import api
from ..render import locks as render
from .host_args import add_host_flags, read_host_flags
from .output import print_json, print_lines
from .parser import Parser, add_common_flags

HELP = "write a first [tool.gpuenv] into pyproject.toml"


def add_arguments(parser: Parser) -> None:
    """Add the flags of `gpuenv init`."""
    add_project_flag(parser)
    parser.add_argument(
        "--framework",
        metavar="NAME[SPEC]",
        action="append",
        default=[],
        help="use this framework instead of those found in the project (repeat for several)",
    )
    add_host_flags(parser)
    add_common_flags(parser)


def add_project_flag(parser: ArgumentParser) -> None:
    """Add the flag that names the folder of a project."""
    parser.add_argument(
        "--project",
        metavar="DIR",
        default="",
        help="the folder of pyproject.toml (default: the working folder)",
    )


def run(arguments: Namespace) -> int:
    """Write the table and print what it has."""
    host = read_host_flags(arguments, need_gpu=False)
    begun = api.begin_project(arguments.project, host, arguments.framework)
    if arguments.json:
        print_json(
            {
                "path": begun.path,
                "frameworks": list(begun.frameworks),
                "profiles": list(begun.profiles),
                "python": begun.python,
            }
        )
    else:
        print_lines(render.beginning_lines(begun, host))
    return 0
