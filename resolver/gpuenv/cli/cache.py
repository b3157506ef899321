"""`gpuenv cache`: where the cache is, how large it is, and an end to it."""

from __future__ import annotations

import os
import shutil
from argparse import Namespace
from contextlib import suppress

from ..errors import InputError
from ..index.cache import cache_folder
from ..render.values import quantity_text, size
from .output import print_json, print_lines, print_report
from .parser import Parser, add_common_flags

HELP = "Show or empty the cache"
DESCRIPTION = (
    "The cache has pages and metadata of indexes, and the environments of scripts. "
    "GPUENV_CACHE_DIR names another folder."
)
EXAMPLES = (
    ("gpuenv cache size", "Show how large the cache is"),
    ("gpuenv cache clean", "Remove everything in it"),
)


def add_arguments(parser: Parser) -> None:
    """Add the arguments of `gpuenv cache`."""
    parser.add_argument(
        "action", metavar="dir|size|clean", choices=("dir", "size", "clean"), help="What to do"
    )
    add_common_flags(parser)


def run(arguments: Namespace) -> int:
    """Print the folder or its size, or remove its content."""
    folder = cache_folder()  # it need not exist
    files = count = 0
    for place, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # another process removed it
                count += os.lstat(os.path.join(place, name)).st_size
                files += 1
    if arguments.action == "clean" and os.path.isdir(folder):
        for name in os.listdir(folder):
            # Another file in the folder, which gpuenv has not written, stays.
            if name in ("builds", "scripts") or (name[:1] == "v" and name[1:].isdecimal()):
                try:
                    shutil.rmtree(os.path.join(folder, name))
                except OSError as error:
                    message = f"{error.filename}: cannot be removed: {error.strerror}"
                    raise InputError(message) from None
    if arguments.json:
        print_json({"folder": folder, "files": files, "bytes": count})
    elif arguments.action == "dir":
        print_lines([folder])
    elif arguments.action == "size":
        print_lines([f"{folder}: {quantity_text(files, 'file')}, {size(count)}"])
    else:
        print_report([f"removed {quantity_text(files, 'file')}, {size(count)}, from {folder}"])
    return 0
