"""Run small programs that fail without a GPU, and keep what they print as situations of the doctor.

    python scripts/tools.py prove make-situations [--work DIR] [--only NAMES] [--ordinary] OUT.json

The programs are in tests/data/situations/programs.toml. An environment there is a list of
requirements that are installed without their dependencies into a venv of this Python, below --work.
A situation is a shell script that runs in a folder of its own, once in each of its environments.
OUT.json gets name, causes (the first is the right one, others are acceptable) and log. Names of the
machine and hosts of package registries are replaced. The default index must be reachable. What
OUT.json has is not run again, unless --only names it. --ordinary runs the scripts of `[[ordinary]]`
instead, with each of their `values` in place of @.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from common import ROOT

HERE = str(ROOT)
PROGRAMS = os.path.join(HERE, "tests", "data", "situations", "programs.toml")
TIMEOUT = 90.0
LONGEST = 12_000  # characters of one log: its end is kept
REGISTRY = re.compile(r"(?i)\b(?:\w+\.)?(?:pypi|pythonhosted)\.[a-z]+\b|(?<=://)[^/\s]+(?=/simple)")
OWN_LINES = re.compile(r"(?m)^(?:Looking in (?:indexes|links)|WARNING: Location ).*\n")


def main(words: list[str]) -> int:
    """Run the programs and write what they print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("out", metavar="OUT.json")
    parser.add_argument("--work", default=os.path.join(tempfile.gettempdir(), "situations-work"))
    parser.add_argument("--only", default="")
    parser.add_argument("--ordinary", action="store_true")
    arguments = parser.parse_args(words)
    with open(PROGRAMS, "rb") as file:
        document = tomllib.load(file)
    os.makedirs(arguments.work, exist_ok=True)
    kept: dict[str, Any] = {}
    if os.path.exists(arguments.out):
        with open(arguments.out, encoding="utf-8") as file:
            kept = {row["name"]: row for row in json.load(file)}
    only = arguments.only.split(",") if arguments.only else None
    for name, row in _named(document, arguments.ordinary):
        if row["name"] not in only if only else name in kept:
            continue
        try:
            folders = [
                _environment(part, document["environment"][part], arguments.work)
                for part in row["environment"]
            ]
        except subprocess.CalledProcessError as error:
            print(f"{name}: left out: {error.cmd[-1]} is not installed", flush=True)
            continue
        log = _log(row, folders, arguments.work)
        kept[name] = {"name": name, "causes": row.get("causes", []), "log": log}
        last = log.rstrip().rpartition("\n")[2]
        print(f"{name}: {last[:150]}", flush=True)
        with open(arguments.out, "w", encoding="utf-8") as file:
            json.dump(list(kept.values()), file, indent=0, ensure_ascii=True)
            file.write("\n")
    return 0


def _named(document: Mapping[str, Any], ordinary: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each program once for each of its environments and values."""
    for row in document["ordinary" if ordinary else "situation"]:
        for environment in row.get("environments", [""]):
            for value in row.get("values", [""]):
                named = [row["name"], environment, value]
                name = "/".join(part.replace("/", "-") for part in named if part)
                parts = [part for part in environment.split("+") if part]
                run = row["run"].replace("@", value)
                yield name, {**row, "environment": parts, "run": run}


def _environment(name: str, requirements: list[str], work: str) -> str:
    """Return the folder of an environment, which is made if it is not there."""
    folder = os.path.join(work, "environments", name)
    ready = os.path.join(folder, "ready")
    if not os.path.exists(ready):
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        python = os.path.join(folder, "bin", "python")
        command = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-cache-dir"]
        for requirement in requirements:
            words = requirement.split()
            subprocess.run([*command, "--prefer-binary", *words], check=True)
        with open(ready, "w", encoding="ascii"):
            pass
    return folder


def _log(row: Mapping[str, Any], folders: list[str], work: str) -> str:
    with tempfile.TemporaryDirectory(dir=work) as folder:
        for name, text in row.get("files", {}).items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        path = [*(os.path.join(part, "bin") for part in folders), os.environ["PATH"]]
        variables = {
            **os.environ,
            "PATH": os.pathsep.join(path),
            "ENVIRONMENT": folders[0] if folders else "",
            "SOURCES": HERE,
            "PIP_NO_CACHE_DIR": "1",
            "PIP_NO_INPUT": "1",
        }
        command = ["unshare", "--mount", "bash", "-c", row["run"]]
        try:
            done = subprocess.run(
                command, cwd=folder, env=variables, stdout=subprocess.PIPE, check=False,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, timeout=TIMEOUT,
            )  # fmt: skip
            output = done.stdout
        except subprocess.TimeoutExpired as error:
            output = error.stdout or b""
        text = output.decode("utf-8", "replace").replace(folder, "/home/user/job")
    text = text.replace(os.path.join(work, "environments"), "/home/user/environments")
    text = text.replace("\r", "\n").replace(sys.base_prefix, "/usr/local")
    text = OWN_LINES.sub("", REGISTRY.sub("index.example", text))
    return text[-LONGEST:]
