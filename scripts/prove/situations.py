"""Run programs that fail without a GPU, and keep what they print, for `prove doctor`.

    python scripts/tools.py prove situations [--work DIR] [--only NAME ...] [--ordinary] OUT.json

The programs are in tests/data/situations/programs.toml. An environment there is a list of
requirements that are installed without their dependencies into a venv of this Python, below --work.
A situation is a shell script that runs in a folder of its own, once in each of its environments and
with each of its `values` in place of @. --ordinary runs the scripts of `[[ordinary]]`, which do not
fail. OUT.json gets name, causes and log of each; logs that it has of others stay. Names of the
machine and hosts of package registries are replaced. It needs root and the default index.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from common import ROOT

PROGRAMS = ROOT / "tests" / "data" / "situations" / "programs.toml"
TIMEOUT = 90
LONGEST = 12_000  # characters of one log: its end is kept
REGISTRY = re.compile(r"(?i)\b(?:\w+\.)?(?:pypi|pythonhosted)\.[a-z]+\b|(?<=://)[^/\s]+(?=/simple)")
OWN_LINES = re.compile(r"(?m)^(?:Looking in (?:indexes|links)|WARNING: Location ).*\n")


def named(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any], str]]:
    """Yield (name, program, value), each program once for each environment and value."""
    for row in rows:
        for environment in row.get("environments", [""]):
            for value in row.get("values", [""]):
                parts = [part for part in (row["name"], environment, value) if part]
                name = "/".join(part.replace("/", "-") for part in parts)
                yield name, {**row, "environments": environment.split("+")}, value


def make_environment(folder: Path, requirements: Sequence[str]) -> Path:
    """Return the folder of an environment, which is made if it is not there."""
    if not (folder / "ready").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        install = [folder / "bin" / "python", "-m", "pip", "install", "-q", "--no-deps"]
        for requirement in requirements:
            flags = ["--no-cache-dir", "--prefer-binary", *requirement.split()]
            subprocess.run([*install, *flags], check=True)
        (folder / "ready").touch()
    return folder


def run(program: Mapping[str, Any], value: str, folders: Sequence[Path], work: Path) -> str:
    """Run a program and return what it prints, without names of this machine."""
    path = [*(str(folder / "bin") for folder in folders), os.environ["PATH"]]
    variables = {
        **os.environ,
        "PATH": os.pathsep.join(path),
        "ENVIRONMENT": str(folders[0]) if folders else "",
        "SOURCES": str(ROOT),
        "PIP_NO_CACHE_DIR": "1",
        "PIP_NO_INPUT": "1",
    }
    script = program["run"].replace("@", value)
    with tempfile.TemporaryDirectory(dir=work) as folder:
        for name, text in program.get("files", {}).items():
            Path(folder, name).write_text(text, encoding="utf-8")
        done = subprocess.run(
            ["timeout", str(TIMEOUT), "unshare", "--mount", "bash", "-c", script],
            cwd=folder, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        text = done.stdout.decode("utf-8", "replace").replace(folder, "/home/user/job")
    text = text.replace(str(work / "environments"), "/home/user/environments")
    text = text.replace("\r", "\n").replace(sys.base_prefix, "/usr/local")
    return OWN_LINES.sub("", REGISTRY.sub("index.example", text))[-LONGEST:]


ARGUMENTS = {
    "out": {"metavar": "OUT.json", "type": Path},
    "--work": {"type": Path, "default": Path(tempfile.gettempdir(), "situations-work")},
    "--only": {"nargs": "+"},
    "--ordinary": {"action": "store_true"},
}


def main(arguments: Namespace) -> int:
    """Run the programs and write what they print."""
    document = tomllib.loads(PROGRAMS.read_text(encoding="utf-8"))
    kept: dict[str, Any] = {}
    if arguments.out.exists():
        kept = {row["name"]: row for row in json.loads(arguments.out.read_text(encoding="utf-8"))}
    for name, program, value in named(document["ordinary" if arguments.ordinary else "situation"]):
        if program["name"] not in (arguments.only or program["name"]):
            continue
        folders = [
            make_environment(arguments.work / "environments" / part, document["environment"][part])
            for part in filter(None, program["environments"])
        ]
        arguments.work.mkdir(parents=True, exist_ok=True)
        log = run(program, value, folders, arguments.work)
        kept[name] = {"name": name, "causes": program.get("causes", []), "log": log}
        print(f"{name}: {log.rstrip().rpartition(chr(10))[2][:150]}", flush=True)
        text = json.dumps(list(kept.values()), indent=0, ensure_ascii=True)
        arguments.out.write_text(f"{text}\n", encoding="utf-8")
    return 0
