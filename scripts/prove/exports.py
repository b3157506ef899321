"""Let uv, Poetry, PDM and readers of pixi manifests read what `gpuenv export` writes.

    python scripts/tools.py prove exports [--uv EXE] [--poetry EXE] [--pdm EXE]
        [--pixi-schema FILE --jsonschema PYTHON] [--record FILE]

Two indexes on this machine serve small packages; a package of the second one is a dependency of a
package of the first. gpuenv locks them and exports the lock for each tool. The tool makes its own
lock of the project, and this lock must have the same versions, each from the same index. pixi is
in no registry of Python packages: its manifest is checked by the JSON schema of pixi
(`schema/schema.json` in its repository). PYTHON is an interpreter that has jsonschema.

Exit status: 1 if a tool locks other versions or uses another index.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import tomli_w

from common import write_record
from gpuenv.cli import main as gpuenv
from index_server import IndexServer

PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"
HOST = ("--gpu", "none", "--python", PYTHON, "--platform", "linux-x86_64", "--glibc", "2.35")
Versions = dict[str, str]  # {package: "VERSION" or "VERSION from the other index"}


def serve(default: IndexServer, other: IndexServer) -> None:
    """Add the packages."""
    default.add("app", "1.0", ["accel", "base<2"])
    for version in ("1.0", "1.5", "2.0"):
        default.add("base", version)
    default.add("accel", "9.0")
    other.add("accel", "1.0+cu126")
    other.add("accel", "0.9+cu126")


def versions_of(packages: Mapping[str, tuple[str, str]], other: str) -> Versions:
    """Return the versions; `packages` are {name: (version, text that has the URL of its index)}."""
    versions = {}
    for name, (version, origin) in packages.items():
        versions[name] = f"{version} from the other index" if other in origin else version
    return versions


def project_head(tables: str) -> str:
    """Return a pyproject.toml with a project and the exported tables."""
    return (
        '[project]\nname = "p"\nversion = "1"\n'
        f'requires-python = "=={PYTHON}.*"\ndependencies = ["app"]\n\n{tables}'
    )


def add_source(folder: Path, tool: str, source: Mapping[str, Any]) -> None:
    """Add an index to the sources of a project."""
    path = folder / "pyproject.toml"
    document = tomllib.loads(path.read_text())
    document["tool"][tool].setdefault("source", []).append(dict(source))
    path.write_text(tomli_w.dumps(document))


def run(command: list[str], folder: Path, **variables: str) -> None:
    """Run a tool in a project. CalledProcessError has its output."""
    dropped = ("UV_", "PIP_", "POETRY_", "PDM_")
    environment = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    environment.pop("PYTHONPATH", None)
    subprocess.run(
        command,
        cwd=folder,
        env={**environment, **variables},
        check=True,
        capture_output=True,
        text=True,
        timeout=300,
    )


def lock_with_uv(exe: str, folder: Path, default: str, other: str) -> Versions:
    """Return what uv locks."""
    variables = {"UV_DEFAULT_INDEX": default, "UV_PYTHON": sys.executable, "UV_NO_CACHE": "1"}
    run([exe, "lock"], folder, **variables)
    document = tomllib.loads((folder / "uv.lock").read_text())
    packages = {}
    for package in document["package"]:
        packages[package["name"]] = (package["version"], json.dumps(package["source"]))
    packages.pop("p")
    return versions_of(packages, other)


def lock_with_poetry(exe: str, folder: Path, default: str, other: str) -> Versions:
    """Return what Poetry locks. The default index is its primary source."""
    add_source(folder, "poetry", {"name": "main", "url": default, "priority": "primary"})
    variables = {"POETRY_CACHE_DIR": str(folder / "cache"), "POETRY_VIRTUALENVS_CREATE": "false"}
    run([exe, "check"], folder, **variables)
    run([exe, "lock"], folder, **variables)
    document = tomllib.loads((folder / "poetry.lock").read_text())
    packages = {}
    for package in document["package"]:
        origin = json.dumps(package.get("source", {}))
        packages[package["name"]] = (package["version"], origin)
    return versions_of(packages, other.rstrip("/"))


def lock_with_pdm(exe: str, folder: Path, default: str, other: str) -> Versions:
    """Return what PDM locks. Its source pypi is the default index."""
    add_source(folder, "pdm", {"name": "pypi", "url": default, "verify_ssl": False})
    variables = {"PDM_CACHE_DIR": str(folder / "cache"), "PDM_CHECK_UPDATE": "false"}
    command = [exe, "lock", "--no-cross-platform", "--static-urls"]
    run([*command, "--python", f"=={PYTHON}.*"], folder, **variables)
    document = tomllib.loads((folder / "pdm.lock").read_text())
    packages = {}
    for package in document["package"]:
        packages[package["name"]] = (package["version"], json.dumps(package.get("files", [])))
    return versions_of(packages, other.partition("/simple")[0])


VALIDATE = """
import json, sys
from jsonschema.validators import validator_for
schema, document = json.load(sys.stdin)
errors = validator_for(schema)(schema).iter_errors(document)
json.dump([error.message for error in errors], sys.stdout)
"""


def check_pixi(python: str, schema: str, folder: Path) -> dict[str, Any]:
    """Return the errors that pixi's schema finds in the manifest, and the versions in it."""
    head = '[workspace]\nname = "p"\nchannels = []\n'
    tables = (folder / "tables.toml").read_text()
    manifest = tomllib.loads(head + tables.replace("[workspace]\n", "", 1))
    process = subprocess.run(
        [python, "-c", VALIDATE],
        input=json.dumps([json.loads(Path(schema).read_text()), manifest]),
        capture_output=True,
        text=True,
        check=True,
    )
    packages = manifest["feature"]["gpuenv"]["pypi-dependencies"]
    versions = {name: entry["version"] for name, entry in packages.items()}
    return {"mistakes by its schema": json.loads(process.stdout), "versions": versions}


LOCKERS: dict[str, Callable[[str, Path, str, str], Versions]] = {
    "uv": lock_with_uv,
    "poetry": lock_with_poetry,
    "pdm": lock_with_pdm,
}


def prove(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Return the record of the tools that were named."""
    record: dict[str, Any] = {}
    if arguments.record and Path(arguments.record).exists():
        record = json.loads(Path(arguments.record).read_text())
    os.chdir(folder)
    with IndexServer("html") as default, IndexServer("html") as other:
        serve(default, other)
        indexes = ("--index-url", default.url, "--extra-index-url", other.url)
        run_gpuenv("solve", "app", "base!=1.5", *indexes, *HOST, "-o", "pylock.toml")
        locked = tomllib.loads(Path("pylock.toml").read_text())["packages"]
        packages = {package["name"]: (package["version"], package["index"]) for package in locked}
        record["gpuenv"] = versions_of(packages, other.url)
        for tool, lock in LOCKERS.items():
            exe = vars(arguments)[tool]
            if exe is not None:
                project = make_project(tool, folder)
                record[tool] = {"version": version_of(exe)}
                record[tool]["versions"] = lock(exe, project, default.url, other.url)
        if arguments.pixi_schema:
            record["pixi"] = check_pixi(
                arguments.jsonschema, arguments.pixi_schema, make_project("pixi", folder)
            )
    return record


def run_gpuenv(*arguments: str) -> None:
    """Run a command of gpuenv in this process."""
    status = gpuenv([*arguments])
    if status:
        raise SystemExit(f"gpuenv {arguments[0]} ended with status {status}")


def make_project(tool: str, folder: Path) -> Path:
    """Make a project with the tables that gpuenv exports for a tool."""
    project = folder / tool
    project.mkdir()
    run_gpuenv("export", "--to", tool, "-o", str(project / "tables.toml"))
    text = project_head((project / "tables.toml").read_text())
    (project / "pyproject.toml").write_text(text)
    return project


def version_of(exe: str) -> str:
    """Return the version that a tool prints."""
    process = subprocess.run([exe, "--version"], capture_output=True, text=True, check=True)
    return next(word for word in process.stdout.replace(")", " ").split() if word[0].isdigit())


def is_right(record: Mapping[str, Any]) -> bool:
    """Return whether each tool locks the versions of the lock, from the same indexes."""
    for tool in LOCKERS:
        if tool in record and record[tool]["versions"] != record["gpuenv"]:
            return False
    return not record.get("pixi", {}).get("mistakes by its schema")


def main(words: list[str]) -> int:
    """Run the tools, print the record, and write it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for tool in LOCKERS:
        parser.add_argument(f"--{tool}", type=os.path.abspath, metavar="EXE")
    parser.add_argument("--pixi-schema", type=os.path.abspath, metavar="FILE")
    parser.add_argument("--jsonschema", default=sys.executable, metavar="PYTHON")
    parser.add_argument("--record", type=os.path.abspath, metavar="FILE")
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="exports-") as temporary:
        try:
            record = prove(arguments, Path(temporary))
        except subprocess.CalledProcessError as error:
            print(error.stdout, error.stderr, file=sys.stderr)
            raise
    write_record(record, arguments.record)
    return 0 if is_right(record) else 1
