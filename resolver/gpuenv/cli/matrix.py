"""`gpuenv matrix`: what the compatibility data knows, and whether it is right."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from .. import api
from ..render import matrix as explanation
from .output import print_json, print_lines


def _platform_flag(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--platform", metavar="NAME", help="linux-x86_64, linux-aarch64 or win-amd64 (default: this machine's)"
    )


def _show_flags(parser: ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="torch, jax, cudnn, nvidia-cudnn-cu12, ...")
    parser.add_argument("version", metavar="VERSION", nargs="?", help="a release, or how its number begins: 9.10")
    _platform_flag(parser)


def _no_flags(parser: ArgumentParser) -> None:
    """This command has none of its own."""


def _platform(arguments: Namespace) -> str:
    return api.describe(gpus=["none"], platform=arguments.platform).platform


def _list(arguments: Namespace) -> int:
    platform = _platform(arguments)
    entries = api.matrix_catalog().entries(platform)
    if arguments.json:
        print_json(explanation.entries_json(entries, platform))
    else:
        print_lines(explanation.entries_lines(entries))
    return 0


def _show(arguments: Namespace) -> int:
    platform, catalog = _platform(arguments), api.matrix_catalog()
    entry = catalog.entry(arguments.name, platform)
    if arguments.version is None:
        if arguments.json:
            print_json(explanation.entry_json(entry, platform))
        else:
            print_lines(explanation.entry_lines(entry, platform))
        return 0
    release = catalog.release(arguments.name, arguments.version, platform)
    if arguments.json:
        print_json(explanation.release_json(entry.name, release))
    else:
        print_lines(explanation.release_lines(entry.name, release, platform))
    return 0


def _check(arguments: Namespace) -> int:
    audit = api.matrix_check()
    if arguments.json:
        print_json(explanation.audit_json(audit))
    else:
        print_lines(explanation.audit_lines(audit))
    return 0 if explanation.audit_ok(audit) else 1


COMMANDS = {
    "list": ("the frameworks and libraries that are known", _platform_flag, _list),
    "show": ("the variants of a release, and the GPUs that each has code for", _show_flags, _show),
    "check": ("whether the data agrees with itself, and how much is known", _no_flags, _check),
}
