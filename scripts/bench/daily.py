"""Type everyday sessions of gpuenv and of uv in tmux, and measure both.

    python scripts/tools.py bench daily [--record docs/records/daily.json]

session     30 commands of gpuenv, from an empty folder to a changed, verified, rolled back and
            upgraded project, beside the commands of uv for the same steps
alternate   uv and gpuenv change, lock, install and run one project in turn, ten times

The packages are those of the default index; ONNX Runtime for the CPU is the largest. Exit status: 0
if all commands succeed, and gpuenv needs no more of them than uv.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import tomllib
from argparse import Namespace
from datetime import date
from pathlib import Path
from typing import Any

from bench.pairs import MAX_SECONDS, Tools
from common import write_record

TMUX = ["tmux", "-L", f"gpuenv-daily-{os.getpid()}"]
ROUNDS = 10
WORDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())


class Terminal:
    """A shell in tmux in a new folder for a project, with caches of its own."""

    def __init__(self, tools: Tools, name: str) -> None:
        self.name, self.folder = name, tools.folder / name
        self.failed = 0
        self.folder.mkdir()
        path = f"{Path(tools.python).parent}:/usr/bin:/bin"
        shell = tools.command(
            ["bash", "--norc"], f"{name}-cache", PATH=path, UV_PYTHON=tools.python
        )
        size = ["-x", "120", "-y", "50", "-c", str(self.folder)]
        subprocess.run(
            [*TMUX, "new-session", "-d", "-s", name, *size, *shell.words],
            env=shell.environment,
            check=True,
        )

    def type(self, text: str) -> float:
        """Type a command, count it if it fails, and return its seconds."""
        begin = time.monotonic()
        keys = f"clear; {text}; echo $? > ../status; tmux wait-for -S done"
        subprocess.run([*TMUX, "send-keys", "-t", self.name, keys, "Enter"], check=True)
        subprocess.run([*TMUX, "wait-for", "done"], timeout=MAX_SECONDS, check=True)
        seconds = time.monotonic() - begin
        if self.folder.with_name("status").read_text().strip() != "0":
            self.failed += 1
            screen = [*TMUX, "capture-pane", "-p", "-J", "-t", self.name]
            shown = subprocess.run(screen, capture_output=True, text=True, check=True).stdout
            print(f"{text}\n{shown}", file=sys.stderr)
        return round(seconds, 2)


def session(tools: Tools) -> dict[str, Any]:
    """Return the steps of both sessions with their seconds."""
    gpuenv, uv = Terminal(tools, "gpuenv"), Terminal(tools, "uv")
    steps = [
        {
            **step,
            "gpuenv_seconds": gpuenv.type(step["gpuenv"]),
            "uv_seconds": round(sum(map(uv.type, step["uv"])), 2),
        }
        for step in WORDS["session"]
    ]
    return {
        "failed": gpuenv.failed + uv.failed,
        "commands": {"gpuenv": len(steps), "uv": sum(len(step["uv"]) for step in steps)},
        "seconds": {
            tool: round(sum(step[f"{tool}_seconds"] for step in steps), 1)
            for tool in ("gpuenv", "uv")
        },
        "steps": steps,
    }


def alternate(tools: Tools) -> dict[str, int]:
    """Return how many commands of two tools in one project fail."""
    terminal = Terminal(tools, "both")
    commands = [
        "gpuenv init --gpu none",
        "gpuenv add onnxruntime",
        "uv lock",
        *WORDS["turns"] * ROUNDS,
    ]
    for text in commands:
        terminal.type(text)
    return {"rounds": ROUNDS, "commands": len(commands), "failed": terminal.failed}


ARGUMENTS = {
    "--record": {"metavar": "FILE"},
}


def main(options: Namespace) -> int:
    """Measure, and write the record."""
    with tempfile.TemporaryDirectory() as name:
        tools = Tools(Path(name))
        try:
            record = {
                "date": date.today().isoformat(),
                "session": session(tools),
                "alternate": alternate(tools),
            }
        finally:
            subprocess.run([*TMUX, "kill-server"], check=False)
    write_record(record, options.record)
    commands = record["session"]["commands"]
    failed = record["session"]["failed"] + record["alternate"]["failed"]
    return 1 if failed or commands["gpuenv"] > commands["uv"] else 0
