"""`gpuenv download`: the files of a lock, for hosts without a network."""

from __future__ import annotations

from argparse import Namespace

from .. import api
from .environment_args import add_place_flags, add_wait_flag, require_named_places
from .output import print_json, print_lines, progress_printer
from .parser import Parser, add_common_flags

HELP = "Download the files of a lock"
DESCRIPTION = (
    "Download the files of a lock into a folder, for hosts without a network. Several locks can"
    " share a folder. An interrupted download continues."
)
EXAMPLES = (
    ("gpuenv download pylock.toml -d wheels", "Download the files of a lock"),
    (
        "gpuenv sync pylock.toml --target .venv --find-links wheels --no-index",
        "Install them on a host without a network",
    ),
)


def add_arguments(parser: Parser) -> None:
    """Add the flags of `gpuenv download`."""
    parser.add_argument(
        "lock",
        metavar="LOCK",
        nargs="?",
        default="pylock.toml",
        help="The lock file (default: pylock.toml)",
    )
    parser.add_argument(
        "-d", "--dir", metavar="DIR", required=True, help="The folder for the files"
    )
    add_place_flags(parser)
    add_wait_flag(parser)
    add_common_flags(parser)


def run(arguments: Namespace) -> int:
    """Download what is missing."""
    lock = api.read_lock(arguments.lock)
    files = api.with_local_files(lock, arguments.find_links)
    require_named_places(arguments, files)
    downloaded, present = api.download(
        files,
        arguments.dir,
        wait=arguments.wait,
        progress=progress_printer(arguments),
    )
    if arguments.json:
        document = {"folder": arguments.dir, "downloaded": downloaded, "present": present}
        print_json(document)
    else:
        print_lines([f"{arguments.dir}: {downloaded} files downloaded, {present} were there"])
    return 0
