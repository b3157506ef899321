"""`gpuenv tree`: the packages of a lock below those that require them."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from .. import api
from ..lock.tree import Tree
from ..render import trees
from .output import print_json, print_lines
from .parser import Parser, add_common_flags, positive_count

HELP = "Show the packages of a lock as a tree"
DESCRIPTION = "Print every package of a lock below the packages that require it."
EXAMPLES = (
    ("gpuenv tree", "Show pylock.toml"),
    ("gpuenv tree pylock.h100.toml --depth 2", "Show two levels of another lock"),
)


def add_arguments(parser: Parser) -> None:
    """Add the arguments of `gpuenv tree`."""
    add_lock_argument(parser)
    parser.add_argument(
        "--depth", metavar="N", type=positive_count, help="Show N levels (default: all)"
    )
    add_common_flags(parser)


def add_lock_argument(parser: ArgumentParser) -> None:
    """Add the argument that names a lock."""
    parser.add_argument(
        "lock",
        metavar="LOCK",
        nargs="?",
        default="pylock.toml",
        help="The lock file (default: pylock.toml)",
    )


def run(arguments: Namespace) -> int:
    """Print the tree."""
    lock = api.read_lock(arguments.lock)
    tree = Tree(lock)
    if arguments.json:
        print_json(trees.tree_json(tree))
    else:
        print_lines(trees.tree_lines(tree, lock, arguments.depth))
    return 0
