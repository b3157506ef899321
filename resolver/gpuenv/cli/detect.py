"""`gpuenv detect`: describe this host."""

from __future__ import annotations

from argparse import Namespace

from ..detect.host import write_host
from ..render import plans
from ..serialize import to_plain
from .host_args import add_host_flags, read_host_flags
from .output import print_json, print_lines
from .parser import Parser, add_common_flags

HELP = "Describe this host: GPUs, driver, platform and Python"
DESCRIPTION = "Print what a solve would use, and each fact that could not be read, with the reason."
EXAMPLES = (
    ("gpuenv detect", "Describe this host"),
    ("gpuenv detect -o host.json", "Describe it in a file, for --host on another machine"),
)


def add_arguments(parser: Parser) -> None:
    """Add the flags of `gpuenv detect`."""
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="Write the host to a file for --host"
    )
    add_host_flags(parser)
    add_common_flags(parser)


def run(arguments: Namespace) -> int:
    """Print the host, and write it to a file with -o."""
    host = read_host_flags(arguments, need_gpu=False)
    if arguments.output:
        write_host(host, arguments.output)
    if arguments.json:
        print_json(to_plain(host))
        return 0
    print_lines(plans.host_lines(host))
    if arguments.output:
        print_lines([f"wrote {arguments.output}"])
    return 0
