"""Install a wheel of gpuenv with this Python, and use its command line and its API.

    pythonX.Y scripts/tools.py release wheel dist/gpuenv-*.whl [--record FILE.json]

The program needs only the Python that runs it, so it also runs in a container or a chroot. It
installs the wheel into a new virtual environment, runs `gpuenv solve` for torch on an H100 and
`gpuenv explain` for one on a V100, and runs the examples of docs/api.md. A DeprecationWarning is an
error. The record has a row for each version of Python.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
import tempfile
import venv
from argparse import Namespace
from pathlib import Path
from typing import Any

from common import ROOT

HOST = ["--driver", "550.54.14", "--platform", "linux-x86_64", "--python", "3.12", "--offline"]
SOLVE = ["solve", "--framework", "torch", "--gpu", "H100", *HOST]
EXPLAIN = ["explain", "torch==2.15.0", "--gpu", "V100", *HOST]
NO_SOLUTION = 3


def run(command: list[str], folder: Path, status: int = 0) -> list[str]:
    """Run a command in a folder, and return its lines. SystemExit with another status."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != status:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout.splitlines()


def use(wheel: Path, folder: Path) -> dict[str, str]:
    """Install the wheel into an environment in the folder, and return what its commands printed."""
    venv.create(folder / "env", with_pip=True)
    python = str(folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python")
    run([python, "-m", "pip", "install", "--quiet", str(wheel)], folder)
    strict = [python, "-W", "error::DeprecationWarning"]
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    examples = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (folder / "examples.py").write_text("\n".join(examples), encoding="utf-8")
    return {
        "solve": run([*strict, "-m", "gpuenv", *SOLVE], folder)[0],
        "explain": run([*strict, "-m", "gpuenv", *EXPLAIN], folder, NO_SOLUTION)[0],
        "api": run([*strict, "examples.py"], folder)[-1],
        "platform": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
    }


ARGUMENTS = {"wheel": {"type": Path}}


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Use the wheel. The record has a row for this Python. SystemExit if something fails."""
    with tempfile.TemporaryDirectory() as folder:
        return {platform.python_version(): use(arguments.wheel.resolve(), Path(folder))}, []
