"""Install a wheel of gpuenv with this Python, and use its command line and its API.

    python -m build
    pythonX.Y scripts/prove/wheel.py dist/gpuenv-*.whl [--record FILE.json]
    pythonX.Y scripts/prove/wheel.py dist/gpuenv-*.whl --first-run docs/records/first-run.json

The script needs only the Python that runs it, so it also runs in a container or a chroot. It
installs the wheel into a new virtual environment, runs `gpuenv solve` for torch on an H100 and
`gpuenv explain` for one on a V100, and runs the examples of docs/api.md. A DeprecationWarning is an
error. The record has a row for each version of Python.

--first-run does what a stranger does first, in an empty folder with an empty home, and writes the
seconds of each step. It needs the network. uvx and pipx are used if they are on PATH.

Exit status: 0 if all of it works, 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from common import ROOT

PAGE = ROOT / "docs" / "api.md"
HOST = ["--driver", "550.54.14", "--platform", "linux-x86_64", "--python", "3.12", "--offline"]
SOLVE = ["solve", "--framework", "torch", "--gpu", "H100", *HOST]
EXPLAIN = ["explain", "torch==2.15.0", "--gpu", "V100", *HOST]
NO_SOLUTION = 3
SESSION = """
import sys
import anyio
from mcp import Client, StdioServerParameters

async def talk():
    server = StdioServerParameters(command=sys.executable, args=["-m", "gpuenv", "mcp"])
    async with Client(server) as client:
        assert len((await client.list_tools()).tools) == 6
        host = {"gpu": ["H100"], "driver": "580.65.06"}
        assert not (await client.call_tool("detect", host)).is_error
        asked = {"requirement": ["torch"], "offline": True, **host}
        assert not (await client.call_tool("solve", asked)).is_error

anyio.run(talk)
"""


def run(command: list[str], folder: Path, status: int = 0) -> str:
    """Run a command in a folder, and return what it printed. SystemExit with another status."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != status:
        sys.exit(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def prove(wheel: Path, folder: Path) -> dict[str, str]:
    """Install the wheel into an environment in the folder, and return what its commands printed."""
    venv.create(folder / "env", with_pip=True)
    python = str(folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python")
    run([python, "-m", "pip", "install", "--quiet", str(wheel)], folder)
    gpuenv = [python, "-W", "error::DeprecationWarning", "-m", "gpuenv"]
    headline = run([*gpuenv, *SOLVE], folder).splitlines()[0]
    refusal = run([*gpuenv, *EXPLAIN], folder, NO_SOLUTION).splitlines()[0]
    examples = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (folder / "examples.py").write_text("\n".join(examples))
    answer = run([python, "-W", "error::DeprecationWarning", "examples.py"], folder)
    return {"solve": headline, "explain": refusal, "api": answer.splitlines()[-1]}


def first_steps(wheel: Path, folder: Path) -> list[tuple[str, list[str]]]:
    """Return what a stranger does first, by name."""
    python = str(folder / "env" / ("Scripts" if os.name == "nt" else "bin") / "python")
    gpuenv = [python, "-m", "gpuenv"]
    steps = [
        ("make an environment", [sys.executable, "-m", "venv", str(folder / "env")]),
        ("install", [python, "-m", "pip", "install", "--quiet", f"{wheel}[mcp,uv]"]),
        ("status", gpuenv),
        ("completion", [*gpuenv, "completion", "bash"]),
        ("solve for an H100", [*gpuenv, *SOLVE, "-o", "pylock.h100.toml"]),
        ("solve for the CPU", [*gpuenv, "solve", "onnxruntime", "--gpu", "none"]),
        ("sync", [*gpuenv, "sync", "pylock.toml", "--target", "work", "--gpu", "none"]),
        ("verify", [*gpuenv, "verify", "--target", "work", "--no-device"]),
        ("doctor", [*gpuenv, "doctor", "train.log", "--elsewhere"]),
        ("a session of MCP", [python, "-c", SESSION]),
    ]
    if uvx := shutil.which("uvx"):
        steps.append(("uvx", [uvx, "--quiet", "--from", str(wheel), "gpuenv"]))
    if pipx := shutil.which("pipx"):
        steps.append(("pipx run", [pipx, "run", "--spec", str(wheel), "gpuenv"]))
    return steps


def first_run(wheel: Path, folder: Path) -> dict[str, float]:
    """Take the first steps in a folder, and return the seconds of each."""
    work, home = folder / "empty", folder / "home"
    work.mkdir()
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    os.environ.clear()
    os.environ.update({**kept, "HOME": str(home), "USERPROFILE": str(home)})
    seconds = {}
    for name, command in first_steps(wheel, folder):
        begin = time.perf_counter()
        # A diagnosis of a log is an answer with status 1.
        run(command, work, status=1 if name == "doctor" else 0)
        seconds[name] = round(time.perf_counter() - begin, 2)
        if name == "verify":
            (work / "train.log").write_text("torch.OutOfMemoryError: CUDA out of memory.\n")
    return seconds


def main(words: list[str]) -> int:
    """Prove the wheel, print the row of this Python, and write it to the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--record", type=Path, help="write the result to this file")
    parser.add_argument("--first-run", type=Path, help="write the seconds of the first steps")
    arguments = parser.parse_args(words)
    if arguments.first_run:
        with tempfile.TemporaryDirectory() as folder:
            steps = first_run(arguments.wheel.resolve(), Path(folder))
        machine = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
        record = {"machine": machine, "seconds": steps}
        arguments.first_run.write_text(json.dumps(record, indent=1) + "\n")
        print(json.dumps(record, indent=1))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        row = prove(arguments.wheel.resolve(), Path(folder))
    row["platform"] = f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}"
    print(json.dumps(row, indent=2))
    if arguments.record:
        known = json.loads(arguments.record.read_text()) if arguments.record.exists() else {}
        rows = {**known, platform.python_version(): row}
        arguments.record.write_text(json.dumps(dict(sorted(rows.items())), indent=2) + "\n")
    return 0
