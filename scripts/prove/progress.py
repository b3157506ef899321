"""Type commands in tmux, and measure when the screen shows the first line of progress.

    python scripts/tools.py prove progress --environment DIR --lock FILE [--record FILE.json]

The commands are a solve that asks the indexes, a sync of the lock into a new folder and a verify of
the environment. Each runs twice: in tmux, whose screen is read again and again, and with its output
in pipes, which must get no escape code. The lock must be for the CPU if there is no GPU.

Exit status: 0 if each screen shows progress within a second and no pipe gets a code, 1 otherwise.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import ROOT, write_record

GPUENV = [sys.executable, "-m", "gpuenv"]
TMUX = ["tmux", "-L", f"gpuenv-{os.getpid()}"]
LIMIT = 300.0  # seconds for a command
PROMPT = "READY"


def screen() -> str:
    """Return the lines of the screen that are not empty."""
    done = subprocess.run([*TMUX, "capture-pane", "-p"], capture_output=True, text=True, check=True)
    return "\n".join(line for line in done.stdout.splitlines() if line.strip())


def wait_for(text: str, *, gone: bool = False) -> None:
    """Wait until the last line of the screen begins with a text, or until no line does."""
    end = time.monotonic() + LIMIT
    while time.monotonic() < end:
        lines = screen().splitlines() or [""]
        if lines[-1].startswith(text) is not gone:
            return
        time.sleep(0.02)
    sys.exit(f"the screen does not change:\n{screen()}")


def type_command(command: list[str], folder: Path) -> dict[str, Any]:
    """Type a command in a new session of tmux. Return the first output on the screen."""
    environment = [f"PS1={PROMPT} ", f"PYTHONPATH={ROOT / 'resolver'}", "TMUX="]
    shell = ["env", *environment, "bash", "--norc"]
    size = ["-x", "80", "-y", "24", "-c", str(folder)]
    subprocess.run([*TMUX, "new-session", "-d", *size, shlex.join(shell)], check=True)
    try:
        wait_for(PROMPT)
        subprocess.run(
            [*TMUX, "send-keys", f"clear; exec {shlex.join(command)}; ", "Enter"], check=True
        )
        begin = time.monotonic()
        first = ""
        while not first or "exec" in first:
            time.sleep(0.02)
            first = screen()
        seconds = time.monotonic() - begin
        end = begin + LIMIT
        while time.monotonic() < end:
            listed = subprocess.run([*TMUX, "list-sessions"], capture_output=True, check=False)
            if listed.returncode:  # the command has ended, and its session with it
                break
            time.sleep(0.1)
    finally:
        subprocess.run([*TMUX, "kill-server"], capture_output=True, check=False)
    line = re.sub(r"\S*/\S*", "PATH", first.splitlines()[-1])
    return {"first_seconds": round(seconds, 2), "first": line}


def codes_in_pipes(command: list[str], folder: Path) -> int:
    """Run a command with its output in pipes, and return the number of escape codes in it."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "resolver")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}: status {done.returncode}\n{done.stderr.decode()}")
    output = done.stdout + done.stderr
    return output.count(b"\x1b") + output.count(b"\r")


def main(words: list[str]) -> int:
    """Measure the commands, print the result, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--environment", required=True, help="the environment to verify")
    parser.add_argument("--lock", required=True, help="the lock to sync")
    parser.add_argument("--record", type=Path, help="write the result to this file")
    arguments = parser.parse_args(words)
    environment, lock = map(os.path.abspath, (arguments.environment, arguments.lock))
    host = ["--gpu", "H100", "--driver", "580"]
    only_default = ["--default-index-only"]  # the index of PyTorch may be out of reach
    commands = {
        "solve": ["solve", "sglang", "lightning", "--refresh", *only_default, "--dry-run", *host],
        "sync": ["sync", lock, "--gpu", "none", "--no-verify", "--target"],
        "verify": ["verify", "--no-device", "--target", environment],
    }
    record: dict[str, Any] = {"processors": os.cpu_count(), "load": round(os.getloadavg()[0], 1)}
    for name, command in commands.items():
        with tempfile.TemporaryDirectory() as folder:
            target = [["in-tmux"], ["in-pipes"]] if name == "sync" else [[], []]
            row = type_command([*GPUENV, *command, *target[0]], Path(folder))
            row["codes_in_pipes"] = codes_in_pipes([*GPUENV, *command, *target[1]], Path(folder))
            record[name] = row
    write_record(record, arguments.record)
    rows = [record[name] for name in commands]
    return int(any(row["first_seconds"] > 1 or row["codes_in_pipes"] for row in rows))
