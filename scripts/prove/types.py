"""Check with pyright what tests/test_api.py checks with mypy: right and wrong uses of the API.

    npm install pyright
    python scripts/tools.py prove types --pyright node_modules/.bin/pyright [--record FILE.json]

pyright runs in its strict mode on the program of tests/data/api_uses.toml and on its wrong uses.
The record names the pyright rules that reject each wrong use.

Exit status: 0 if the program is accepted and each wrong use is rejected, 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from common import ROOT, write_record

USES = ROOT / "tests" / "data" / "api_uses.toml"


def run_pyright(pyright: str, program: str) -> dict[str, Any]:
    """Return pyright's report on a program that imports gpuenv from this checkout."""
    settings = {
        "include": ["program.py"],
        "extraPaths": [str(ROOT / "resolver")],
        "pythonVersion": "3.11",
        "typeCheckingMode": "strict",
        "reportUnusedExpression": False,
    }
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "program.py").write_text(program)
        (Path(folder) / "pyrightconfig.json").write_text(json.dumps(settings))
        command = [pyright, "--outputjson", "--pythonpath", sys.executable]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def main(words: list[str]) -> int:
    """Run pyright, print what it found, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pyright", default="pyright", help="the program")
    parser.add_argument("--record", type=Path, help="write the result to this file")
    arguments = parser.parse_args(words)
    pyright = (
        str(Path(arguments.pyright).resolve()) if "/" in arguments.pyright else arguments.pyright
    )
    uses = tomllib.loads(USES.read_text())
    first_wrong = uses["program"].count("\n")
    report = run_pyright(pyright, uses["program"] + "\n".join(uses["wrong"]) + "\n")
    rules: dict[int, set[str]] = {}
    for finding in report["generalDiagnostics"]:
        line = finding["range"]["start"]["line"] - first_wrong
        rules.setdefault(line, set()).add(finding.get("rule", "syntax"))
    accepted = all(line >= 0 for line in rules)
    rejected = {use: sorted(rules.get(line, ())) for line, use in enumerate(uses["wrong"])}
    record = {
        "pyright": report["version"],
        "mode": "strict",
        "program_is_accepted": accepted,
        "rejected": rejected,
    }
    write_record(record, arguments.record)
    return 0 if accepted and all(rejected.values()) else 1
