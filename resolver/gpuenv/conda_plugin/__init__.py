"""What the conda plugin does. Its hooks are in the module gpuenv_conda_plugin, which conda imports.

packages.py      the packages in an environment, and which of them are watched
checks.py        the checks of an environment
transaction.py   the check after a transaction
health_check.py  `conda doctor gpuenv` and its fixer
error_hints.py   hints at errors of conda

gpuenv itself runs in child processes, through its command line.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from gpuenv_conda_plugin import import_conda

# ---- conda gpuenv -------------------------------------------------------------------------------


def run_command(arguments: Sequence[str]) -> int:
    """Run gpuenv with the arguments behind `conda gpuenv`, and return its exit status."""
    child = subprocess.Popen(command(_with_channels(_typed_arguments(arguments))))
    while True:
        try:
            status = child.wait()
        except KeyboardInterrupt:  # the child has got the signal, too, and ends
            continue
        return status if status >= 0 else 128 - status


def _with_channels(arguments: list[str]) -> list[str]:
    """Add the channels of conda's settings to the arguments of a command that solves for conda.

    `conda gpuenv explain` explains conda's packages; `--backend pip` asks for wheels.
    """
    texts = [text.replace("=", " ", 1) for text in arguments]
    line = " ".join(texts)
    if arguments[:1] == ["explain"] and "--backend" not in line:
        arguments = ["explain", "--backend", "conda", *arguments[1:]]
    elif arguments[:1] not in (["solve"], ["install"]) or "--backend conda" not in line:
        return arguments
    # environment.yml names its own channels.
    if "--channel" in line or ".yml" in line:
        return arguments
    return [*arguments[:1], *channel_flags(), *arguments[1:]]


def _typed_arguments(arguments: Sequence[str]) -> list[str]:
    """Return the arguments as they were typed: argparse drops a `--`, which `gpuenv run` needs."""
    if "gpuenv" in sys.argv:
        typed = sys.argv[sys.argv.index("gpuenv") + 1 :]
        if _without_separators(typed) == _without_separators(arguments):
            return typed
    return list(arguments)


def _without_separators(arguments: Sequence[str]) -> list[str]:
    return [argument for argument in arguments if argument != "--"]


# ---- what the other modules share ---------------------------------------------------------------


def command(arguments: Sequence[str]) -> list[str]:
    """Return the command of a gpuenv in a child process.

    -P keeps a folder `gpuenv` in the user's working folder from being imported.
    """
    return [sys.executable, "-P", "-m", "gpuenv", *arguments]


def channel_flags() -> list[str]:
    """Return the flags of gpuenv for the channels of conda's settings."""
    flags = []
    # gpuenv reads one channel at a time: what "defaults" stands for is left to its own default.
    for channel in import_conda("base.context").context.channels:
        if channel != "defaults":
            flags += ["--channel", str(channel)]
    return flags
