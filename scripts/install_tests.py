"""Install requirements into this environment with uv, in a third of pip's time.

    .venv/bin/python scripts/install_tests.py '.[test,lint]'

uv does not read pip's settings, so it gets those that name what to install from.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PIP = [sys.executable, "-m", "pip"]
# uv's variables for settings of pip.
VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}


def variables() -> dict[str, str]:
    """Return the environment with uv's variables for pip's settings."""
    done = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=True)
    environment = dict(os.environ)
    for line in done.stdout.splitlines():  # SECTION.NAME='VALUE', sorted: ":env:", then the files
        name, _, value = line.partition("=")
        variable = VARIABLES.get(name.rpartition(".")[2])
        if variable:
            text = str(ast.literal_eval(value))
            # uv separates folders by commas, and indexes as pip does.
            text = ",".join(text.split()) if variable == "UV_FIND_LINKS" else text
            environment.setdefault(variable, text)
    return environment


def main(requirements: list[str]) -> int:
    """Install the requirements. Return the exit status of uv."""
    # setuptools would install modules that an earlier build has left there.
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    (uv,) = re.findall(r'"(uv==[\d.]+)"', (ROOT / "pyproject.toml").read_text())
    subprocess.run([*PIP, "install", "--quiet", "--no-compile", uv], check=True)
    # As with pip, all indexes count alike, and a changed checkout is built again.
    flags = ["--index-strategy", "unsafe-best-match", "--reinstall-package", "gpuenv"]
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", *flags, *requirements]
    return subprocess.run(command, env=variables(), check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
