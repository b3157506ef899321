"""The arguments that commands share."""

from __future__ import annotations

from argparse import SUPPRESS
from typing import Any

from .parser import Argument, Group, output_file, seconds

TIMEOUT = 300.0  # seconds for all checks
HOST_FLAGS = ("host", "gpu", "driver", "python", "platform", "glibc")

# ---- the host and the project --------------------------------------------------------------------

# The flags that `requests.read_host` reads.
HOST = Group(
    "Host (what is not given is detected)",
    Argument("--host FILE", "Use the host that `gpuenv detect -o FILE` wrote"),
    Argument(
        "--gpu GPU ...",
        "Use this GPU: H100, sm_90, 9.0, or none for the CPU. Repeat for several",
    ),
    Argument("--driver RELEASE", "Use this driver release: 580.65.06, 580.65 or 580"),
    Argument("--python X.Y|EXE", "Use this Python version, or this interpreter"),
    Argument("--platform NAME", "Use linux-x86_64, linux-aarch64 or win-amd64"),
    Argument("--glibc X.Y", "Use this glibc version, such as 2.28"),
)
PROJECT = Argument(
    "--project DIR", "The folder of pyproject.toml (default: the working folder)", default=""
)
LOCK = Argument(
    "[LOCK]",
    "The lock file (default: that of the project for this host, pylock.toml, or the one that is"
    " recorded in the environment)",
)

# What of a project the lock of another tool is read for.
OF_PROJECT = Group(
    "Locks of other tools",
    Argument("--extra NAME ...", "Use an extra of the project, too"),
    Argument("--group NAME ...", "Use a dependency group of the project, too"),
)

# The fields of a request and of its indexes that conda packages cannot honor, with their flags:
# those that are refused without wheels beside the packages, and those that are always refused.
OF_WHEELS = {
    "overrides": "--override",
    "index_url": "--index-url",
    "extra_index_urls": "--extra-index-url",
    "find_links": "--find-links",
    "no_index": "--no-index",
    "default_index_only": "--default-index-only",
    "no_build": "--no-build",
    "no_binary": "--no-binary",
}
ALWAYS_OF_WHEELS = {
    "exclude_newer": "--exclude-newer",
    "hashes": "--hash",
    "require_hashes": "--require-hashes",
}

# ---- what to solve for ---------------------------------------------------------------------------

OFFLINE = Argument("--offline", "Use no network")
REFRESH = Argument("--refresh", "Ask the indexes, not the snapshot or the cache")
# Which packages may be built from source distributions.
BUILDS = Group(
    "Builds",
    Argument("--no-build", "Build no source distribution: take wheels only"),
    Argument(
        "--no-build-package --only-binary NAME ...",
        "Take only wheels of this package (:all: is every package)",
    ),
    Argument(
        "--no-binary NAME ...",
        "Build this package, although it has a wheel (:all: is every package)",
    ),
    Argument("--allow-sdist NAME ...", SUPPRESS),
)
# Where packages may come from.
PLACES = (
    Argument("--index-url URL", "Use this index instead of the default one and the snapshot"),
    Argument("--extra-index-url URL ...", "Use this index before the default one"),
    Argument("--find-links DIR ...", "Use the wheels of this folder, too"),
    Argument("--no-index", "Use no index, only the folders of --find-links"),
    Group("", OFFLINE, REFRESH),
)
INDEXES = (
    Group(
        "Indexes",
        *PLACES,
        Argument("--default-index-only", "Use no index of a framework or of a companion"),
        Argument("--exclude-newer DATE", "Use only files that were uploaded up to this date"),
        Argument("--pre", "Allow pre-releases"),
    ),
    BUILDS,
)
# What to solve for, and where it may come from.
REQUEST = (
    Argument(
        "--framework NAME[SPEC] ...",
        "Solve for a framework, such as torch or torch>=2.9. Repeat for several",
    ),
    Argument("[REQUIREMENT ...]", "Frameworks and packages, as pip takes them"),
    Argument(
        "--cuda X[.Y]|TAG",
        "Choose the builds of the frameworks by hand: for CUDA 12.8, any 12, or cu128",
    ),
    Group(
        "Files",
        Argument("-r --requirements FILE ...", "Read requirements from a file, as pip does"),
        Argument("-c --constraints FILE ...", "Read version constraints from a file"),
        Argument(
            "--override FILE ...",
            "Read requirements that replace all others on their names, as in uv",
            dest="overrides",
        ),
        Argument(
            "--project [DIR]",
            "Use the dependencies of pyproject.toml in DIR (default: the working folder)",
            const=".",
        ),
        Argument("--extra NAME ...", "Use the dependencies of an extra of the project"),
        Argument("--group NAME ...", "Use a dependency group of the project"),
    ),
    *INDEXES,
)
# Whether to solve for wheels or for conda packages.
BACKEND = (
    Argument(
        "--backend",
        "Solve for wheels with pip (the default) or for conda packages;"
        " auto is conda if a conda environment is active",
        choices=("pip", "conda", "auto"),
    ),
    Argument("--channel URL ...", "Use this conda channel: its name, URL or folder"),
)
# The arguments of `gpuenv solve`, which `gpuenv install` has, too.
SOLVE = (
    *REQUEST,
    Argument(
        "-o --output FILE",
        "Write the lock to this file, - for stdout (default: pylock.toml)",
        type=output_file,
    ),
    Argument(
        "--format",
        "Write this format; without -o, requirements go to stdout",
        choices=("pylock", "requirements", "conda-explicit", "conda-lock"),
        default="",
    ),
    Argument(
        "--require-attestations",
        "Lock only files whose publisher an attestation of the index proves (PEP 740)",
    ),
    *BACKEND,
    Argument("--pip REQUIREMENT ...", "With conda: add this wheel beside the conda packages"),
    HOST,
)

# ---- environments --------------------------------------------------------------------------------

EXISTING_TARGET = Argument(
    "--target DIR", "The environment (default: the active one, otherwise ./.venv)"
)
TIMED: dict[str, Any] = {"type": seconds, "default": TIMEOUT}  # options of --timeout
# How to install and to verify.
INSTALLER = (
    Argument(
        "--installer",
        "Install with uv or pip (default: uv if it is there)",
        choices=("auto", "uv", "pip"),
        default="auto",
    ),
    Argument("--no-verify", "Do not verify the environment afterwards"),
    Argument("--timeout S", "End the verification after S seconds (default: 300)", **TIMED),
)
