"""Install a wheel of gpuenv with this Python, and use its command line and its API.

    python -m build
    pythonX.Y scripts/prove_wheel.py dist/gpuenv-*.whl [--record FILE.json]

The script needs only the Python that runs it, so it also runs in a container or a chroot. It
installs the wheel into a new virtual environment, runs `gpuenv solve` for torch on an H100 and
`gpuenv explain` for one on a V100, and runs the examples of docs/api.md. A DeprecationWarning is an
error. The record has a row for each version of Python.

Exit status: 0 if all of it works, 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "api.md"
HOST = ["--driver", "550.54.14", "--platform", "linux-x86_64", "--python", "3.12", "--offline"]
SOLVE = ["solve", "--framework", "torch", "--gpu", "H100", *HOST]
EXPLAIN = ["explain", "torch==2.15.0", "--gpu", "V100", *HOST]
NO_SOLUTION = 3


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


def main() -> int:
    """Prove the wheel, print the row of this Python, and write it to the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--record", type=Path, help="write the result to this file")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        row = prove(arguments.wheel.resolve(), Path(folder))
    row["platform"] = f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}"
    print(json.dumps(row, indent=2))
    if arguments.record:
        known = json.loads(arguments.record.read_text()) if arguments.record.exists() else {}
        rows = {**known, platform.python_version(): row}
        arguments.record.write_text(json.dumps(dict(sorted(rows.items())), indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
