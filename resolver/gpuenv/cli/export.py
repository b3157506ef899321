"""`gpuenv export`: a lock as tables for the project of another tool."""

from __future__ import annotations

import sys
from argparse import Namespace

from .. import api
from ..errors import InputError
from ..lock import conda_projects, tool_projects
from ..lock.pylock import write
from .output import print_json
from .parser import Parser, add_common_flags

HELP = "Write a lock as sources and versions for a project of another tool"
DESCRIPTION = "Write the packages of a lock as tables for the project file of another tool."
EXAMPLES = (
    ("gpuenv export --to uv", "Print tables for a project of uv"),
    ("gpuenv export conda-lock.yml --to conda -o environment.yml", "Write an environment.yml"),
)
TOOLS = ("uv", "pixi", "poetry", "pdm", "conda", "constructor")


def add_arguments(parser: Parser) -> None:
    """Add the flags of `gpuenv export`."""
    parser.add_argument(
        "lock",
        metavar="LOCK",
        nargs="?",
        default="pylock.toml",
        help="The lock (default: pylock.toml)",
    )
    parser.add_argument(
        "--to", dest="tool", choices=TOOLS, required=True, help="Write tables for this tool"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="Write to this file (default: stdout)"
    )
    add_common_flags(parser)


def run(arguments: Namespace) -> int:
    """Write the tables; 3 if the tool cannot express the lock."""
    lock, tool = api.read_lock(arguments.lock), arguments.tool
    if lock.conda:
        if tool not in conda_projects.TOOLS:
            raise InputError(f"{tool} takes wheels, and the lock has conda packages")
        text = conda_projects.project_text(tool, lock)
    else:
        if tool not in tool_projects.TOOLS:
            raise InputError(f"{tool} takes conda packages, and the lock has wheels")
        text = tool_projects.project_tables(tool, lock)
    if arguments.output is not None:
        write(arguments.output, text)
    elif not arguments.json:
        sys.stdout.write(text)
    if arguments.json:
        print_json({"to": arguments.tool, "file": arguments.output, "tables": text})
    return 0
