"""Run everyday sessions of gpuenv and of uv, and measure both.

    python scripts/tools.py bench daily [--record docs/records/daily.json]

session     30 commands of gpuenv, from an empty folder to a changed, verified, rolled back and
            upgraded project, beside the commands of uv for the same steps
alternate   uv and gpuenv change, lock, install and run one project in turn, ten times

The packages are those of the default index; ONNX Runtime for the CPU is the largest. All commands
must succeed, and gpuenv must need no more of them than uv.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from pathlib import Path
from typing import Any

from bench.pairs import Tools, failures, run
from common import read_toml

ROUNDS = 10
WORDS = read_toml("scripts/bench/daily.toml")


def prove(_arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Run both sessions, and the tools in turn. The record has the seconds of each step."""
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        tools = Tools(Path(folder))

        def seconds_of(project: str, text: str) -> float:
            (tools.folder / project).mkdir(exist_ok=True)
            path = f"{Path(tools.python).parent}:/usr/bin:/bin"
            command = ["bash", "-c", text]
            variables = {"PATH": path, "UV_PYTHON": tools.python}
            done = run(
                tools.command(command, f"{project}-cache", **variables), tools.folder / project
            )
            faults.extend(f"{text}: {failure}" for failure in failures(done))
            return round(done.seconds, 2)

        steps = [
            {
                **step,
                "gpuenv_seconds": seconds_of("gpuenv", step["gpuenv"]),
                "uv_seconds": round(sum(seconds_of("uv", text) for text in step["uv"]), 2),
            }
            for step in WORDS["session"]
        ]
        turns = [*WORDS["begin"], *WORDS["turns"] * ROUNDS]
        for text in turns:
            seconds_of("both", text)
    commands = {"gpuenv": len(steps), "uv": sum(len(step["uv"]) for step in steps)}
    if commands["gpuenv"] > commands["uv"]:
        faults.append(f"gpuenv needs more commands: {commands}")
    session = {"commands": commands, "steps": steps}
    for tool in commands:
        session[f"{tool}_seconds"] = round(sum(step[f"{tool}_seconds"] for step in steps), 1)
    return {"session": session, "alternate": {"rounds": ROUNDS, "commands": len(turns)}}, faults
