"""`gpuenv env`: settings that make another tool take the same builds."""

from __future__ import annotations

import shlex
import sys
from argparse import Namespace

from .. import api
from ..errors import InputError
from ..lock.pylock import write
from ..render.text import Line
from .host_args import add_host_flags, read_host_flags
from .output import print_json, print_lines
from .parser import Parser, add_common_flags
from .request_args import add_request_flags, read_request

HELP = "Print settings that make another tool take the same builds"
DESCRIPTION = (
    "Print variables and settings with which another tool takes the builds that gpuenv would "
    "take. If no setting of the tool expresses the choice, the command says why."
)
EXAMPLES = (
    ('eval "$(gpuenv env --for uv)"', "Let uv choose builds for this host"),
    ("gpuenv env --for pip --framework torch -o constraints.txt", "Write constraints for pip"),
)
TOOLS = ("uv", "conda", "pixi", "pip")


def add_arguments(parser: Parser) -> None:
    """Add the flags of `gpuenv env`."""
    parser.add_argument(
        "--for", dest="tool", choices=TOOLS, required=True, help="Print settings for this tool"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="Write the constraints on versions to this file"
    )
    add_request_flags(parser)
    add_host_flags(parser)
    add_common_flags(parser)


def run(arguments: Namespace) -> int:
    """Print the settings; 3 if the tool has none that express the choice."""
    host = read_host_flags(arguments, need_gpu=True)
    request, options = None, None
    if _has_request(arguments):
        request, options, host = read_request(arguments, lambda: host)
    settings = api.tool_settings(arguments.tool, host, request, options)
    variables = list(settings.variables)
    if settings.constraints:
        if arguments.output is None:
            message = f"--for {arguments.tool} with packages needs a file for their versions"
            raise InputError(message, hint="name one: -o constraints.txt")
        lines = [f"{line}\n" for line in settings.constraints]
        write(arguments.output, "".join(lines))
        variables.append((settings.constraints_variable, arguments.output))
    if arguments.json:
        print_json({"for": arguments.tool, "variables": dict(variables), "table": settings.table})
        return 0
    if variables:
        print_lines([_export_line(name, value) for name, value in variables])
    sys.stdout.write(settings.table)
    return 0


def _export_line(name: str, value: str) -> Line:
    return Line(f"export {name}={shlex.quote(value)}", "command")


def _has_request(arguments: Namespace) -> bool:
    sources = (
        arguments.framework,
        arguments.requirement,
        arguments.requirements,
        arguments.project,
    )
    return any(sources)
