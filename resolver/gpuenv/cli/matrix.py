"""`gpuenv matrix`: show the compatibility data."""

from __future__ import annotations

import os
import zipfile
from argparse import Namespace

from msgspec import to_builtins

from .. import api
from ..api import updates
from ..binaries.device_code import DamagedFileError, read_file
from ..binaries.environment import CodeFile, Contents, scan_environment
from ..binaries.served import Scan, judge
from ..binaries.wheel import scan_wheel
from ..compat.data import unread_package
from ..errors import InputError
from ..model import IndexOptions
from ..prefix import find_interpreter
from ..render import matrix as render
from ..render.plans import package_lines
from .flags import HOST
from .output import print_errors, print_result
from .parser import Argument, Command, Parser, added_commands
from .requests import read_host

PLATFORM = Argument(
    "--platform NAME",
    "Use linux-x86_64, linux-aarch64 or win-amd64 (default: this machine's)",
)


class List(Command):
    """`gpuenv matrix list`: the known frameworks and libraries."""

    HELP = "List the known frameworks and libraries"
    DESCRIPTION = f"{HELP}."
    ARGUMENTS = (PLATFORM,)

    def run(self, arguments: Namespace) -> int:
        """Print the frameworks and libraries."""
        platform = _platform(arguments)
        entries = api.matrix_catalog().entries(platform)
        document = render.entries_json(entries, platform)
        return print_result(document, render.entries_lines(entries))


class Show(Command):
    """`gpuenv matrix show`: the releases of a framework or a library, or one of them."""

    HELP = "Show the variants of a release, and the GPUs that each has code for"
    DESCRIPTION = f"{HELP}."
    ARGUMENTS = (
        Argument("NAME", "Torch, jax, cudnn, nvidia-cudnn-cu12, ..."),
        Argument("[VERSION]", "A release, or the start of its number: 9.10"),
        PLATFORM,
    )

    def run(self, arguments: Namespace) -> int:
        """Print the releases, or the variants of a release."""
        name, version, platform = arguments.name, arguments.version, _platform(arguments)
        catalog = api.matrix_catalog()
        entry = catalog.entry(name, platform)
        if version is None:
            lines = render.entry_lines(entry, platform)
            return print_result(render.entry_json(entry, platform), lines)
        release = catalog.release(name, version, platform)
        lines = render.release_lines(entry.name, release, platform)
        return print_result(render.release_json(entry.name, release), lines)


class ScanCode(Command):
    """`gpuenv matrix scan`: the device code of files."""

    HELP = "Show the device code of a file, a wheel or an environment, and what cannot run here"
    DESCRIPTION = f"{HELP}."
    ARGUMENTS = (
        Argument("PATH", "A library, a cubin, a fat binary, a wheel or a folder"),
        HOST,
    )

    def run(self, arguments: Namespace) -> int:
        """Print the device code. Return 1 if something that must run cannot."""
        host = read_host(arguments)
        kind, contents = _read_code(arguments.path)
        judged = judge(contents.files, host, api.compatibility_data())
        scan = Scan(path=arguments.path, kind=kind, files=judged, read=contents.read)
        lines, fails = render.scan_lines(scan, host), any(file.fails for file in scan.files)
        return print_result(render.scan_json(scan, host), lines, ok=not fails)


class UpdateData(Command):
    """`gpuenv matrix update`: rows for releases that the data does not know."""

    HELP = "Scan releases on your index that the data does not know, for later solves"
    DESCRIPTION = f"{HELP}."
    ARGUMENTS = (
        Argument(
            "[NAME ...]",
            "Only these distributions: torch, nvidia-cudnn-cu13 (default: all that are known)",
            dest="names",
        ),
        Argument("--index-url URL", "Use this index instead of the configured one"),
        Argument("--verify-data", "Scan the releases of earlier updates again, and compare"),
        PLATFORM,
    )

    def run(self, arguments: Namespace) -> int:
        """Scan, and store the rows. Return 1 if a wheel cannot be read or has changed."""
        update = updates.update_matrix(
            arguments.names,
            _platform(arguments),
            IndexOptions(index_url=arguments.index_url, refresh=True),
            verify=arguments.verify_data,
            progress=print_errors,
        )
        lines = render.update_lines(update, verified=arguments.verify_data)
        is_good = not (update.errors or update.changed)
        return print_result(to_builtins(update), lines, ok=is_good)


class Matrix(Command):
    """`gpuenv matrix`: show the compatibility data."""

    HELP = "Show what is known about releases and GPUs"
    DESCRIPTION = (
        "Show the compatibility data: which builds a release has, and the GPUs that each has code"
        " for."
    )
    EXAMPLES = (
        ("gpuenv matrix show torch 2.15.0", "Show the builds of a release"),
        ("gpuenv matrix list", "List the frameworks and libraries"),
        ("gpuenv matrix html", "Write a page that answers what runs on which GPU"),
    )

    def add_arguments(self, parser: Parser) -> None:
        """Add the commands of `gpuenv matrix`, with those of other packages."""
        commands = {"list": List(), "show": Show(), "scan": ScanCode(), "update": UpdateData()}
        for name, entry in added_commands().items():
            if name.startswith("matrix."):
                commands[name.removeprefix("matrix.")] = entry.load()
        parser.add_commands(commands)

    def run(self, arguments: Namespace) -> int:
        """Run a command of `gpuenv matrix`."""
        print_errors(*package_lines(unread_package()))
        return super().run(arguments)


def _platform(arguments: Namespace) -> str:
    return api.describe(gpus=["none"], platform=arguments.platform).platform


def _read_code(path: str) -> tuple[str, Contents]:
    """Return what a path is, and the device code in it.

    Raises:
        InputError: there is nothing to read at the path, or it is damaged.
    """
    if not os.path.exists(path):
        raise InputError(f"{path}: does not exist", hint="give the path of a file or a folder")
    try:
        if os.path.isdir(path):
            kind = "folder" if find_interpreter(path) is None else "environment"
            return kind, scan_environment(path, progress=print_errors)
        if not os.path.isfile(path):
            hint = "give a library, a cubin, a fat binary, a wheel or a folder"
            raise InputError(f"{path}: is neither a folder nor a file", hint=hint)
        if path.endswith(".whl") or zipfile.is_zipfile(path):
            return "wheel", scan_wheel(path, print_errors)
        images = read_file(path)
    except DamagedFileError as error:
        raise InputError(f"{path}: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    if images is None:
        hint = "name a library, a cubin, a fat binary, PTX, a wheel or a folder"
        raise InputError(f"{path}: is no file that can have device code", hint=hint)
    files = (CodeFile(path=path, images=images),) if images.sass or images.ptx else ()
    return "file", Contents(files=files, read=1)
