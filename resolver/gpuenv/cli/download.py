"""`gpuenv download`: the files of a lock, for hosts without a network."""

from __future__ import annotations

import shlex
from argparse import Namespace

from .. import api
from ..errors import InputError
from ..install import downloads
from ..model import Lock
from .environment_args import (
    add_place_flags,
    add_wait_flag,
    build_sources,
    exit_on_signals,
    require_named_places,
    with_local_files,
)
from .output import print_json, print_lines, print_report, progress_printer
from .parser import Parser, add_common_flags

HELP = "Download the files of a lock"
DESCRIPTION = (
    "Download the files of a lock into a folder, for hosts without a network. Several locks can"
    " share a folder. An interrupted download continues. --bundle writes one file that installs"
    " the environment on a host that has only Python."
)
EXAMPLES = (
    ("gpuenv download pylock.toml -d wheels", "Download the files of a lock"),
    (
        "gpuenv sync pylock.toml --target .venv --find-links wheels --no-index",
        "Install them on a host without a network",
    ),
    (
        "gpuenv download pylock.toml --bundle env.pyz",
        "Write one file; python3 env.pyz --target .venv installs it",
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
        "-d",
        "--dir",
        metavar="DIR",
        help="The folder for the files (default with --bundle: a temporary one)",
    )
    parser.add_argument(
        "--bundle",
        metavar="FILE",
        help="Write the files, the lock and gpuenv itself into one file, which installs them with"
        " python3 alone",
    )
    add_place_flags(parser)
    add_wait_flag(parser)
    add_common_flags(parser)


def run(arguments: Namespace) -> int:
    """Download what is missing, and write a bundle if one is wanted."""
    if not (arguments.dir or arguments.bundle):
        raise InputError("-d DIR or --bundle FILE is missing")
    lock = api.read_lock(arguments.lock)
    files = with_local_files(lock, arguments.find_links)
    require_named_places(arguments, files)
    if lock.conda:
        raise InputError("the lock is of conda packages: only wheels can be downloaded")
    if arguments.bundle:
        return _write_bundle(arguments, lock, files)
    downloaded, present = downloads.download(
        files,
        arguments.dir,
        wait=arguments.wait,
        progress=progress_printer(arguments),
        builds=build_sources(arguments),
    )
    if arguments.json:
        document = {"folder": arguments.dir, "downloaded": downloaded, "present": present}
        print_json(document)
    else:
        print_lines([f"{arguments.dir}: {downloaded} files downloaded, {present} were there"])
    return 0


def _write_bundle(arguments: Namespace, lock: Lock, files: Lock) -> int:
    exit_on_signals()
    digest = downloads.download_bundle(
        lock,
        arguments.bundle,
        api.compatibility_data().folder,
        files=files,
        folder=arguments.dir,
        wait=arguments.wait,
        progress=progress_printer(arguments),
        builds=build_sources(arguments),
    )
    if arguments.json:
        document = {"bundle": arguments.bundle, "wheels": len(lock.pins), "sha256": digest}
        print_json(document)
    else:
        print_lines([f"{arguments.bundle}: {len(lock.pins)} wheels, sha256 {digest}"])
        print_report([f"next: python3 {shlex.quote(arguments.bundle)} --target DIR"])
    return 0
