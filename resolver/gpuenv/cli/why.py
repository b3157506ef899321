"""`gpuenv why`: which packages of a lock require a package."""

from __future__ import annotations

from argparse import Namespace

from .. import api
from ..lock.tree import Tree
from ..render import trees
from ..requirements.versions import normalize_name
from .output import print_json, print_lines
from .parser import Parser, add_common_flags
from .tree import add_lock_argument

HELP = "Show why a package is in a lock"
DESCRIPTION = "Print the shortest path to a package from each package that the request names."
EXAMPLES = (("gpuenv why nvidia-cudnn-cu13", "Show what requires cuDNN"),)


def add_arguments(parser: Parser) -> None:
    """Add the arguments of `gpuenv why`."""
    parser.add_argument("name", metavar="NAME", help="The package")
    add_lock_argument(parser)
    add_common_flags(parser)


def run(arguments: Namespace) -> int:
    """Print the paths."""
    tree = Tree(api.read_lock(arguments.lock))
    paths, name = tree.paths_to(arguments.name), normalize_name(arguments.name)
    if arguments.json:
        print_json(trees.why_json(tree, name, paths))
    else:
        print_lines(trees.why_lines(tree, name, paths))
    return 0
