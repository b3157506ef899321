"""What the conda plugin does. Its hooks are in the module gpuenv_conda_plugin, which conda imports.

packages.py      the packages in an environment, and which of them are watched
checks.py        the checks of an environment
transaction.py   the check after a transaction
health_check.py  `conda doctor gpuenv` and its fixer
error_hints.py   hints at errors of conda

gpuenv itself runs in child processes, through its command line.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence

# ---- conda gpuenv -------------------------------------------------------------------------------


def run_command(arguments: Sequence[str]) -> int:
    """Run gpuenv with the arguments behind `conda gpuenv`, and return its exit status."""
    typed = list(arguments)
    if "gpuenv" in sys.argv:
        # argparse drops a `--`, which `gpuenv run` needs.
        words = sys.argv[sys.argv.index("gpuenv") + 1 :]
        if [word for word in words if word != "--"] == [word for word in typed if word != "--"]:
            typed = words
    env = {**os.environ, "GPUENV_PROGRAM": "conda gpuenv"}
    if typed[:1] == ["explain"]:  # `--backend pip` explains wheels
        env.setdefault("GPUENV_BACKEND", "conda")
    child = subprocess.Popen(command(typed), env=env)
    while True:
        try:
            status = child.wait()
        except KeyboardInterrupt:  # the child has got the signal, too, and ends
            continue
        return status if status >= 0 else 128 - status


# ---- what the other modules share ---------------------------------------------------------------


def command(arguments: Sequence[str]) -> list[str]:
    """Return the command of a gpuenv in a child process.

    -P keeps a folder `gpuenv` in the user's working folder from being imported.
    """
    return [sys.executable, "-P", "-m", "gpuenv", *arguments]
