"""The flags that commands share."""

from __future__ import annotations

from argparse import SUPPRESS
from typing import Any

from ..install.wheels import WAIT
from .parser import Flags, seconds, waiting_seconds

TIMEOUT = 300.0  # seconds for all checks
FORMATS = ("pylock", "requirements", "conda-explicit", "conda-lock")
HOST_FLAGS = ("host", "gpu", "driver", "python", "platform", "glibc")


def add_list(to: Flags, *names: str, **options: Any) -> None:
    """Add a flag that may be repeated."""
    to.add_argument(*names, action="append", default=[], **options)


def add_switch(to: Flags, *names: str, **options: Any) -> None:
    """Add a flag without a value."""
    to.add_argument(*names, action="store_true", **options)


def add_common_flags(parser: Flags) -> None:
    """Add the flags that every command has."""
    group = parser.add_argument_group("Output")
    group.add_argument("-v", "--verbose", action="count", default=0, help="Print every detail")
    group.add_argument(
        "-q", "--quiet", action="count", default=0, help="Print only failures and results"
    )
    group.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        help="Use colors (default: auto, on a terminal)",
    )
    add_switch(group, "--json", help="Print one JSON document on stdout and nothing else")
    add_switch(group, "--debug", help="Show the traceback of an error")


# ---- the host and the project --------------------------------------------------------------------


def add_host_flags(parser: Flags) -> None:
    """Add the flags that `requests.read_host` reads."""
    group = parser.add_argument_group("Host (what is not given is detected)")
    group.add_argument(
        "--host", metavar="FILE", help="Use the host that `gpuenv detect -o FILE` wrote"
    )
    add_list(
        group,
        "--gpu",
        metavar="GPU",
        help="Use this GPU: H100, sm_90, 9.0, or none for the CPU. Repeat for several",
    )
    group.add_argument(
        "--driver", metavar="RELEASE", help="Use this driver release: 580.65.06, 580.65 or 580"
    )
    group.add_argument(
        "--python", metavar="X.Y|EXE", help="Use this Python version, or this interpreter"
    )
    group.add_argument(
        "--platform", metavar="NAME", help="Use linux-x86_64, linux-aarch64 or win-amd64"
    )
    group.add_argument("--glibc", metavar="X.Y", help="Use this glibc version, such as 2.28")


def add_project_flag(parser: Flags) -> None:
    """Add the flag that names the folder of a project."""
    parser.add_argument(
        "--project",
        metavar="DIR",
        default="",
        help="The folder of pyproject.toml (default: the working folder)",
    )


def add_lock_argument(parser: Flags) -> None:
    """Add the argument that names a lock."""
    parser.add_argument(
        "lock",
        metavar="LOCK",
        nargs="?",
        default="pylock.toml",
        help="The lock file (default: pylock.toml)",
    )


# ---- what to solve for ---------------------------------------------------------------------------


def add_request_flags(parser: Flags) -> None:
    """Add the flags that say what to solve for, and where it may come from."""
    add_list(
        parser,
        "--framework",
        metavar="NAME[SPEC]",
        help="Solve for a framework, such as torch or torch>=2.9. Repeat for several",
    )
    parser.add_argument(
        "requirement",
        metavar="REQUIREMENT",
        nargs="*",
        help="Frameworks and packages, as pip takes them",
    )
    parser.add_argument(
        "--cuda",
        metavar="X[.Y]|TAG",
        help="Choose the builds of the frameworks by hand: for CUDA 12.8, any 12, or cu128",
    )
    group = parser.add_argument_group("Files")
    add_list(
        group,
        "-r",
        "--requirements",
        metavar="FILE",
        help="Read requirements from a file, as pip does",
    )
    add_list(
        group,
        "-c",
        "--constraints",
        metavar="FILE",
        help="Read version constraints from a file",
    )
    group.add_argument(
        "--project",
        metavar="DIR",
        nargs="?",
        const=".",
        help="Use the dependencies of pyproject.toml in DIR (default: the working folder)",
    )
    add_list(
        group,
        "--extra",
        metavar="NAME",
        help="Use the dependencies of an extra of the project",
    )
    add_list(group, "--group", metavar="NAME", help="Use a dependency group of the project")
    add_index_flags(parser)


def add_index_flags(parser: Flags) -> None:
    """Add the flags that say where packages may come from."""
    group = parser.add_argument_group("Indexes")
    group.add_argument(
        "--index-url",
        metavar="URL",
        help="Use this index instead of the default one and the snapshot",
    )
    add_list(
        group,
        "--extra-index-url",
        metavar="URL",
        help="Use this index before the default one",
    )
    add_list(group, "--find-links", metavar="DIR", help="Use the wheels of this folder, too")
    add_switch(group, "--no-index", help="Use no index, only the folders of --find-links")
    add_switch(group, "--default-index-only", help="Use no index that belongs to a framework")
    add_offline_flag(group)
    add_refresh_flag(group)
    group.add_argument(
        "--exclude-newer",
        metavar="DATE",
        help="Use only files that were uploaded up to this date",
    )
    add_switch(group, "--pre", help="Allow pre-releases")
    add_build_flags(parser)


def add_offline_flag(to: Flags) -> None:
    """Add --offline."""
    add_switch(to, "--offline", help="Use no network")


def add_refresh_flag(to: Flags) -> None:
    """Add --refresh."""
    add_switch(to, "--refresh", help="Ask the indexes, not the snapshot or the cache")


def add_build_flags(parser: Flags) -> None:
    """Add the flags that say which packages may be built from source distributions."""
    group = parser.add_argument_group("Builds")
    add_switch(group, "--no-build", help="Build no source distribution: take wheels only")
    add_list(
        group,
        "--no-build-package",
        "--only-binary",
        metavar="NAME",
        help="Take only wheels of this package (:all: is every package)",
    )
    add_list(
        group,
        "--no-binary",
        metavar="NAME",
        help="Build this package, although it has a wheel (:all: is every package)",
    )
    group.add_argument("--allow-sdist", metavar="NAME", action="append", help=SUPPRESS)


def add_solve_flags(parser: Flags) -> None:
    """Add the flags of `gpuenv solve`, which `gpuenv install` has, too."""
    add_request_flags(parser)
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="Write the lock to this file, - for stdout (default: pylock.toml)",
    )
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="pylock",
        help="Write this format; without -o, requirements go to stdout",
    )
    add_switch(
        parser,
        "--require-attestations",
        help="Lock only files whose publisher an attestation of the index proves (PEP 740)",
    )
    add_backend_flags(parser)
    add_list(
        parser,
        "--pip",
        metavar="REQUIREMENT",
        help="With conda: add this wheel beside the conda packages",
    )
    add_host_flags(parser)
    add_common_flags(parser)


def add_backend_flags(parser: Flags) -> None:
    """Add the flags that say whether to solve for wheels or for conda packages."""
    parser.add_argument(
        "--backend",
        choices=("pip", "conda", "auto"),
        help="Solve for wheels with pip (the default) or for conda packages;"
        " auto is conda if a conda environment is active",
    )
    add_list(
        parser,
        "--channel",
        metavar="URL",
        help="Use this conda channel: its name, URL or folder",
    )


# ---- environments --------------------------------------------------------------------------------


def add_install_flags(parser: Flags) -> None:
    """Add the flags of `gpuenv sync`, which `gpuenv install` has, too."""
    add_target_flags(parser, "The environment: a new or an existing one")
    parser.add_argument(
        "--exact",
        action="store_true",
        default=None,
        help="Remove what the lock does not name (default: only from an environment of wheels that"
        " gpuenv made)",
    )
    parser.add_argument(
        "--inexact",
        dest="exact",
        action="store_false",
        help="Keep packages that the lock does not name",
    )
    add_switch(parser, "-y", "--yes", help="Change an existing environment without a question")
    add_switch(
        parser,
        "--python-downloads",
        help="Let uv download a Python for a new environment if there is none here",
    )
    add_installer_flags(parser)


def add_installer_flags(parser: Flags) -> None:
    """Add the flags that say how to install and to verify."""
    parser.add_argument(
        "--installer",
        choices=("auto", "uv", "pip"),
        default="auto",
        help="Install with uv or pip (default: uv if it is there)",
    )
    add_switch(parser, "--no-verify", help="Do not verify the environment afterwards")
    add_timeout_flag(parser, "End the verification after S seconds (default: 300)")


def add_timeout_flag(parser: Flags, text: str) -> None:
    """Add --timeout."""
    parser.add_argument("--timeout", metavar="S", type=seconds, default=TIMEOUT, help=text)


def add_target_flags(parser: Flags, target_help: str) -> None:
    """Add the flags of the environment that a command changes."""
    parser.add_argument("--target", metavar="DIR", required=True, help=target_help)
    add_wait_flag(parser)


def add_existing_target_flag(parser: Flags) -> None:
    """Add the flag of the environment that a command uses."""
    parser.add_argument(
        "--target",
        metavar="DIR",
        help="The environment (default: the active one, otherwise ./.venv)",
    )


def add_wait_flag(parser: Flags) -> None:
    """Add --wait."""
    parser.add_argument(
        "--wait",
        metavar="S",
        type=waiting_seconds,
        default=WAIT,
        help="Wait up to S seconds for another run on the same folder; 0 means no wait"
        " (default: 600)",
    )


def add_place_flags(parser: Flags) -> None:
    """Add the flags that name folders and indexes that a lock may use without https."""
    add_list(
        parser,
        "--find-links",
        metavar="DIR",
        help="Use the files of a folder, such as one that gpuenv download filled (repeat)",
    )
    parser.add_argument(
        "--index-url", metavar="URL", help="Accept files of the lock from this http:// index, too"
    )
    add_list(
        parser,
        "--extra-index-url",
        metavar="URL",
        help="Accept files of the lock from this http:// index, too (repeat)",
    )
