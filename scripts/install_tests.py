"""Install requirements into this environment as pip does, in a third of the time.

    .venv/bin/python scripts/install_tests.py '.[test,lint]'

uv installs them. It does not read pip's settings, so it gets those that name what to install from.
With any other setting of pip, pip installs.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# uv's variables for settings of pip. Lists of pip are separated by spaces.
VARIABLES = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "cert": "SSL_CERT_FILE",
}
# Settings that do not change what is installed.
HARMLESS = {"default-timeout", "disable-pip-version-check", "no-cache-dir", "timeout"}
PIP = [sys.executable, "-m", "pip"]


def pip_settings() -> dict[str, str]:
    """Return pip's settings, without their sections: those of the environment come first."""
    done = subprocess.run([*PIP, "config", "list"], capture_output=True, text=True, check=True)
    settings: dict[str, str] = {}
    for line in done.stdout.splitlines():  # SECTION.NAME='VALUE', sorted: ":env:", then the files
        name, _, value = line.partition("=")
        section, _, option = name.rpartition(".")
        if section in {":env:", "global", "install"}:
            settings.setdefault(option, str(ast.literal_eval(value)))
    return settings


def main(requirements: list[str]) -> int:
    """Install the requirements. Return the exit status of uv or pip."""
    # setuptools would install modules that an earlier build has left there.
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    settings = pip_settings()
    if settings.keys() - VARIABLES.keys() - HARMLESS:
        command = [*PIP, "install", "--quiet", "--no-compile", *requirements]
        return subprocess.run(command, check=False).returncode
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (uv,) = (text for text in extras["optional-dependencies"]["test"] if text.startswith("uv=="))
    subprocess.run([*PIP, "install", "--quiet", "--no-compile", uv], check=True)
    variables = {VARIABLES[name]: settings[name] for name in settings.keys() & VARIABLES.keys()}
    if "UV_FIND_LINKS" in variables:
        variables["UV_FIND_LINKS"] = ",".join(variables["UV_FIND_LINKS"].split())
    # As with pip, all indexes count alike, and a changed checkout is built again.
    flags = ["--index-strategy", "unsafe-best-match", "--reinstall-package", "gpuenv"]
    command = [sys.executable, "-m", "uv", "pip", "install", "--quiet", *flags, *requirements]
    environment = {**variables, **os.environ}
    return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
