"""Type everyday sessions of gpuenv and of uv in tmux, and measure both.

    python scripts/tools.py bench daily [--uv EXE] [--runs 7] [--record docs/records/daily.json]

Three parts, each in folders and caches of its own, with packages of the default index (ONNX Runtime
for the CPU is the largest):

session     30 commands of gpuenv, from an empty folder to a changed, verified, rolled back and
            upgraded project, beside the commands of uv for the same steps
add         `gpuenv add` and `uv add` of a small package, in turn
alternate   uv and gpuenv change, lock, install and run one project in turn, ten times

Exit status: 0 if all commands end as they should, gpuenv needs no more of them than uv, and the
median of `gpuenv add` is at most 1.5 x that of `uv add` and half a second; 1 otherwise.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import ROOT, write_record

TMUX = ["tmux", "-L", f"gpuenv-daily-{os.getpid()}"]
LIMIT = 300.0  # seconds for a command
ROUNDS = 10
IMPORT = "python -c 'import onnxruntime'"
# What is done, the command of gpuenv, and the commands of uv for the same.
SESSION: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("begin", "init --gpu none", ("uv init --bare",)),
    ("add a framework", "add 'onnxruntime<1.31'", ("uv add 'onnxruntime<1.31'",)),
    ("add a package", "add iniconfig", ("uv add iniconfig",)),
    ("add a range", "add 'packaging<26'", ("uv add 'packaging<26'",)),
    ("what is here", "status", ("uv sync --check",)),
    ("list", "list", ("uv pip list",)),
    ("tree", "tree", ("uv tree",)),
    ("inverted tree", "tree --invert", ("uv tree --invert",)),
    ("why", "why numpy", ("uv tree --invert --package numpy",)),
    ("run", f"run {IMPORT}", (f"uv run {IMPORT}",)),
    ("verify", "verify", ("uv pip check",)),
    ("outdated", "outdated", ("uv tree --outdated",)),
    ("is the lock fresh", "lock --check", ("uv lock --check",)),
    ("change a range", "add 'packaging>=26'", ("cp uv.lock before.lock", "uv add 'packaging>=26'")),
    ("remove", "remove iniconfig", ("uv remove iniconfig",)),
    ("roll back", "rollback", ("cp before.lock uv.lock", "uv sync --frozen")),
    ("run the old one", f"run --frozen {IMPORT}", (f"uv run --frozen {IMPORT}",)),
    ("install the lock again", "sync", ("uv sync",)),
    ("try a change", "lock --add tomli", ("uv add --no-sync tomli",)),
    ("what it changes", "sync --dry-run", ("uv sync --dry-run",)),
    ("install it", "sync", ("uv sync",)),
    ("drop it", "remove tomli", ("uv remove tomli",)),
    ("free the framework", "add onnxruntime", ("uv add onnxruntime",)),
    ("upgrade one", "lock --upgrade onnxruntime", ("uv lock --upgrade-package onnxruntime",)),
    ("upgrade all", "lock --upgrade", ("uv lock --upgrade",)),
    ("install the upgrade", "sync", ("uv sync",)),
    ("verify without a device", "verify --no-device", ("uv pip check",)),
    ("run", f"run {IMPORT}", (f"uv run {IMPORT}",)),
    ("export", "export --to uv -o tables.toml", ("uv export -q -o requirements.txt",)),
    ("what is here", "", ("uv sync --check",)),
)  # fmt: skip
# One round of two tools in one project.
TURNS = (
    "gpuenv add iniconfig",
    "uv run python -c 'import iniconfig, onnxruntime'",
    "uv add tomli",
    "gpuenv lock",
    "uv sync",
    "gpuenv run python -c 'import tomli, iniconfig, onnxruntime'",
    "uv lock --check",
    "gpuenv remove iniconfig",
    "uv sync",
    "uv remove tomli",
    "gpuenv lock",
    "gpuenv sync",
    "gpuenv verify --no-device",
)


class Place:
    """A folder for a project, with both programs and with caches of its own."""

    def __init__(self, folder: Path, uv: str) -> None:
        self.work = folder / "demo"
        (folder / "bin").mkdir(parents=True)
        self.work.mkdir()
        program = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m gpuenv "$@"\n'
        (folder / "bin/gpuenv").write_text(program)
        (folder / "bin/gpuenv").chmod(0o755)
        (folder / "bin/uv").symlink_to(uv)
        path = f"{folder / 'bin'}:/usr/bin:/bin"
        self.variables = {
            "PATH": path,
            "PS1": "",
            "PYTHONPATH": str(ROOT / "resolver"),
            "GPUENV_CACHE_DIR": str(folder / "cache"),
            "UV_CACHE_DIR": str(folder / "uv-cache"),
            "UV_PYTHON": sys.executable,
        }

    def run(self, text: str) -> tuple[int, float]:
        """Run a command without a terminal, and return (exit status, seconds)."""
        kept = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
        begin = time.monotonic()
        program, *words = shlex.split(text)
        command = [str(self.work.parent / "bin" / program), *words]
        environment = kept | self.variables
        done = subprocess.run(
            command, cwd=self.work, env=environment, capture_output=True, check=False
        )
        return done.returncode, round(time.monotonic() - begin, 2)


class Terminal(Place):
    """A shell in tmux in such a folder."""

    def __init__(self, folder: Path, uv: str) -> None:
        super().__init__(folder, uv)
        self.name, self.number, self.questions = f"{folder.parent.name}-{folder.name}", 0, 0
        given = [f"{key}={value}" for key, value in self.variables.items()]
        shell = ["env", "-u", "VIRTUAL_ENV", *given, "bash", "--norc"]
        size = ["-x", "120", "-y", "50", "-c", str(self.work)]
        subprocess.run(
            [*TMUX, "new-session", "-d", "-s", self.name, *size, shlex.join(shell)], check=True
        )

    def screen(self) -> str:
        """Return the text on the screen."""
        command = [*TMUX, "capture-pane", "-p", "-J", "-t", self.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def type(self, text: str) -> tuple[int, float]:
        """Type a command, answer its questions, and return (exit status, seconds)."""
        self.number += 1
        done = re.compile(rf"^END{self.number} (\d+)$", re.MULTILINE)
        keys = f"clear; {text}; echo END{self.number} $?"
        begin, asked = time.monotonic(), False
        subprocess.run([*TMUX, "send-keys", "-t", self.name, "-l", keys], check=True)
        subprocess.run([*TMUX, "send-keys", "-t", self.name, "Enter"], check=True)
        while time.monotonic() - begin < LIMIT:
            shown = self.screen()
            match = done.search(shown)
            if match:
                status, seconds = int(match[1]), round(time.monotonic() - begin, 2)
                if status:
                    print(f"{text}: {status}\n{shown}", file=sys.stderr)
                return status, seconds
            if not asked and shown.rstrip().endswith("[y/N]"):
                asked = True
                self.questions += 1
                subprocess.run([*TMUX, "send-keys", "-t", self.name, "y", "Enter"], check=True)
            time.sleep(0.02)
        raise SystemExit(f"{text} does not end:\n{self.screen()}")


def measure_session(folder: Path, uv: str) -> dict[str, Any]:
    """Return the steps of both sessions with their seconds."""
    mine, other = Terminal(folder / "gpuenv", uv), Terminal(folder / "uv", uv)
    rows: list[dict[str, Any]] = []
    failed = 0
    for step, command, others in SESSION:
        status, seconds = mine.type(f"gpuenv {command}".strip())
        answers = [other.type(text) for text in others]
        failed += bool(status) + sum(bool(answer[0]) for answer in answers)
        rows.append(
            {
                "step": step,
                "gpuenv": f"gpuenv {command}".strip(),
                "gpuenv_seconds": seconds,
                "uv": "; ".join(others),
                "uv_seconds": round(sum(answer[1] for answer in answers), 2),
            }
        )
    return {
        "failed": failed,
        "commands": {"gpuenv": len(SESSION), "uv": sum(len(others) for _, _, others in SESSION)},
        "seconds": {
            tool: round(sum(row[f"{tool}_seconds"] for row in rows), 1) for tool in ("gpuenv", "uv")
        },
        "questions": {"gpuenv": mine.questions, "uv": other.questions},
        "steps": rows,
    }


def measure_add(folder: Path, uv: str, runs: int) -> dict[str, Any]:
    """Return the medians of adding a small package that is in the cache, each tool in its turn."""
    mine, other = Place(folder / "gpuenv", uv), Place(folder / "uv", uv)
    for place, words in (
        (mine, ("gpuenv init --gpu none", "gpuenv add")),
        (other, ("uv init --bare", "uv add")),
    ):
        place.run(words[0])
        place.run(f"{words[1]} onnxruntime iniconfig")
    seconds: dict[str, list[float]] = {"gpuenv": [], "uv": []}
    failed = 0
    for _ in range(runs):
        for name, place in (("gpuenv", mine), ("uv", other)):
            failed += bool(place.run(f"{name} remove iniconfig")[0])
            status, spent = place.run(f"{name} add iniconfig")
            failed += bool(status)
            seconds[name].append(spent)
    medians = {name: round(statistics.median(values), 2) for name, values in seconds.items()}
    limit = round(1.5 * medians["uv"] + 0.5, 2)
    return {"failed": failed, "seconds": seconds, "medians": medians, "limit": limit}


def measure_turns(folder: Path, uv: str) -> dict[str, Any]:
    """Return how many commands of two tools in one project fail."""
    terminal = Terminal(folder / "both", uv)
    first = [
        terminal.type(text)[0]
        for text in ("gpuenv init --gpu none", "gpuenv add onnxruntime", "uv lock")
    ]
    statuses = [terminal.type(text)[0] for _ in range(ROUNDS) for text in TURNS]
    commands = [*first, *statuses]
    return {"rounds": ROUNDS, "commands": len(commands), "failed": sum(map(bool, commands))}


def main(words: list[str]) -> int:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--uv", default=shutil.which("uv"))
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--record", type=Path)
    arguments = parser.parse_args(words)
    if not arguments.uv:
        raise SystemExit("uv is missing: --uv EXE")
    uv = os.path.abspath(arguments.uv)
    with tempfile.TemporaryDirectory(prefix="gpuenv-daily-") as name:
        folder = Path(name)
        try:
            record: dict[str, Any] = {
                "processors": os.cpu_count(),
                "load": round(os.getloadavg()[0], 1),
                "uv": subprocess.run(
                    [uv, "--version"], check=True, capture_output=True, text=True
                ).stdout.strip(),
                "add": measure_add(folder / "add", uv, arguments.runs),
                "alternate": measure_turns(folder / "turns", uv),
                "session": measure_session(folder / "session", uv),
            }
        finally:
            subprocess.run([*TMUX, "kill-server"], check=False)
    write_record(record, arguments.record)
    add, session = record["add"], record["session"]
    is_good = not (add["failed"] or session["failed"] or record["alternate"]["failed"])
    is_good = is_good and session["commands"]["gpuenv"] <= session["commands"]["uv"]
    return 0 if is_good and add["medians"]["gpuenv"] <= add["limit"] else 1
