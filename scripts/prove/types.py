"""Check with pyright what tests/test_api.py checks with mypy: right and wrong uses of the API.

    npm install pyright
    python scripts/tools.py prove types --pyright node_modules/.bin/pyright [--record FILE]

pyright runs in its strict mode on the program of tests/data/api_uses.toml and on its wrong uses.
The record names the pyright rules that reject each wrong use.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from common import ROOT

USES = ROOT / "tests" / "data" / "api_uses.toml"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where pyright is."""
    parser.add_argument("--pyright", default="pyright", metavar="EXE")


def prove(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    """Run pyright, and sort what it finds by the wrong uses."""
    uses = tomllib.loads(USES.read_text(encoding="utf-8"))
    settings = {
        "include": ["program.py"],
        "extraPaths": [str(ROOT / "resolver")],
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
        "reportUnusedExpression": False,
    }
    pyright = Path(shutil.which(arguments.pyright) or arguments.pyright).absolute()
    with tempfile.TemporaryDirectory() as folder:
        program = uses["program"] + "\n".join([*uses["wrong"], ""])
        Path(folder, "program.py").write_text(program, encoding="utf-8")
        Path(folder, "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
        command = [pyright, "--outputjson", "--pythonpath", sys.executable]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    report = json.loads(done.stdout)
    first_wrong = uses["program"].count("\n")
    faults = []
    rules: list[set[str]] = [set() for _ in uses["wrong"]]
    for finding in report["generalDiagnostics"]:
        line = finding["range"]["start"]["line"] - first_wrong
        if line < 0:
            faults.append(f"the right program: {finding['message']}")
        else:
            rules[line].add(finding.get("rule", "syntax"))
    rejected = {use: sorted(found) for use, found in zip(uses["wrong"], rules, strict=True)}
    faults += [f"accepted: {use}" for use, found in rejected.items() if not found]
    record = {"pyright": report["version"], "mode": "strict", "rejected": rejected}
    return {**record, "program_is_accepted": not faults}, faults
