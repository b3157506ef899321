"""Let uv, Poetry, PDM and the schema of pixi read what `gpuenv export` writes.

    python scripts/tools.py prove exports [--uv EXE] [--poetry EXE] [--pdm EXE]
        [--check-jsonschema EXE --pixi-schema FILE] [--record FILE]

Two indexes on this machine serve small packages; a package of the second one is a dependency of a
package of the first. gpuenv locks them and exports the lock for each tool. The tool makes its own
lock of the project, and this lock must have the same versions, each from the same index. A manifest
of pixi is checked by the JSON schema of its repository (`schema/schema.json`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tomli_w

from common import run_gpuenv
from index_server import IndexServer, fill_two_indexes

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
HOST = ("--gpu", "none", "--python", PYTHON, "--platform", "linux-x86_64", "--glibc", "2.35")
PROJECT = f"""[project]
name = "p"
version = "1"
requires-python = "=={PYTHON}.*"
dependencies = ["app"]

"""
# What says which index is the default one: Poetry's primary source, and PDM's source pypi.
SOURCES: dict[str, dict[str, Any]] = {
    "poetry": {"name": "main", "priority": "primary"},
    "pdm": {"name": "pypi", "verify_ssl": False},
}
COMMANDS = {
    "uv": ["lock"],
    "poetry": ["lock"],
    "pdm": ["lock", "--no-cross-platform", "--static-urls", "--python", f"=={PYTHON}.*"],
}
# Where a package of a lock names its index.
ORIGINS = {"uv": "source", "poetry": "source", "pdm": "files"}
Versions = dict[str, str]  # {package: "VERSION" or "VERSION from the other index"}


def versions_of(packages: Iterable[dict[str, Any]], origin: str, other: str) -> Versions:
    """Return the versions. `origin` is the key of what has the address of the package's index."""
    versions = {}
    for package in packages:
        is_other = other in json.dumps(package.get(origin, ""))
        version = package["version"]
        versions[package["name"]] = f"{version} from the other index" if is_other else version
    versions.pop("p", None)
    return versions


def export(tool: str, folder: Path) -> Path:
    """Write what gpuenv exports for a tool to FOLDER/TOOL/tables.toml, and return that folder."""
    project = folder / tool
    project.mkdir()
    done = run_gpuenv("export", "--to", tool, "-o", str(project / "tables.toml"), folder=folder)
    if done.returncode:
        sys.exit(done.stderr)
    return project


def lock_with(tool: str, exe: str, folder: Path, default: str) -> list[dict[str, Any]]:
    """Return the packages of the lock that a tool makes of an exported project."""
    project = export(tool, folder)
    document = tomllib.loads(PROJECT + (project / "tables.toml").read_text())
    if tool in SOURCES:
        sources = document["tool"][tool].setdefault("source", [])
        sources.append({**SOURCES[tool], "url": default})
    (project / "pyproject.toml").write_text(tomli_w.dumps(document))
    dropped = ("UV_", "PIP_", "POETRY_", "PDM_", "PYTHONPATH")
    variables = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    variables |= {"UV_DEFAULT_INDEX": default, "UV_PYTHON": sys.executable, "UV_NO_CACHE": "1"}
    cache = str(project / "cache")
    variables |= {"POETRY_CACHE_DIR": cache, "PDM_CACHE_DIR": cache}
    variables |= {"POETRY_VIRTUALENVS_CREATE": "false", "PDM_CHECK_UPDATE": "false"}
    subprocess.run([exe, *COMMANDS[tool]], cwd=project, env=variables, check=True, timeout=300)
    locked: list[dict[str, Any]] = tomllib.loads((project / f"{tool}.lock").read_text())["package"]
    return locked


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that say where the other programs are."""
    for tool in (*COMMANDS, "check-jsonschema"):
        parser.add_argument(f"--{tool}", metavar="EXE", type=os.path.abspath)
    parser.add_argument("--pixi-schema", metavar="FILE", type=Path)


def prove(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Compare the locks of the tools that were named with gpuenv's."""
    faults = []
    with (
        IndexServer("html") as default,
        IndexServer("html") as other,
        tempfile.TemporaryDirectory(prefix="exports-") as name,
    ):
        folder = Path(name)
        indexes = fill_two_indexes(default, other)
        done = run_gpuenv("solve", "app", "base!=1.5", *indexes, *HOST, folder=folder)
        if done.returncode:
            sys.exit(done.stderr)
        packages = tomllib.loads((folder / "pylock.toml").read_text())["packages"]
        address = other.url.partition("/simple")[0]
        record: dict[str, Any] = {"gpuenv": versions_of(packages, "index", address)}
        for tool, origin in ORIGINS.items():
            exe = vars(arguments)[tool]
            if exe is None:
                continue
            locked = versions_of(lock_with(tool, exe, folder, default.url), origin, address)
            shown = subprocess.run([exe, "--version"], capture_output=True, text=True, check=True)
            record[tool] = {"version": shown.stdout.strip(), "versions": locked}
            if locked != record["gpuenv"]:
                faults.append(f"{tool} locks {locked}")
        if arguments.pixi_schema:
            tables = export("pixi", folder) / "tables.toml"
            head = '[workspace]\nname = "p"\nchannels = []\n'
            tables.write_text(head + tables.read_text().replace("[workspace]\n", "", 1))
            schema = ["--schemafile", str(arguments.pixi_schema.resolve()), str(tables)]
            command = [arguments.check_jsonschema or "check-jsonschema", *schema]
            checked = subprocess.run(command, capture_output=True, text=True, check=False)
            record["pixi"] = {"schema": checked.stdout.strip()}
            faults += [checked.stdout] if checked.returncode else []
    return record, faults
