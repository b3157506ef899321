"""Disturb commands that write, and check what they leave and what the next run makes of it.

    python scripts/tools.py prove disturbed kills [--points 50] [--seed N] [--command NAME ...]
    python scripts/tools.py prove disturbed full-disk [--step N] [--command NAME ...]

- kills: a signal to gpuenv alone or to its process group, at a random moment of a run.
- full-disk: the Nth call that needs space fails, and all later ones, for each N until the command
  succeeds; with "no space", and with "quota exceeded". The exit status must be 2 or 4, with one
  clear line.

Each part of the results (an environment, the locks of a project, each downloaded file) must be
the old one or the new one. The next run must complete the new results and leave no other file.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import processes
from common import GPUENV, ROOT, own_code
from small_wheels import contents, make_lock, make_wheel, write_lock

SOLVE = "--no-index --find-links {wheels} --gpu none"
SYNC = "sync {lock} --target env --gpu none --find-links {wheels}"
COMMANDS = {
    "sync": SYNC,
    "sync with pip": f"{SYNC} --installer pip",
    "install": f"install alpha=={{version}} {SOLVE} --target env",
    "solve": f"solve alpha=={{version}} {SOLVE}",
    "lock": "lock --offline",
    "download": "download {lock} -d files --find-links {wheels}",
    "bundle": "download {lock} --bundle env.pyz --find-links {wheels}",
}
PROJECT = """[tool.gpuenv]
requirements = ["alpha=={version}"]
find-links = ["../wheels"]
python = "3.12"
[tool.gpuenv.profiles.one]
gpu = "none"
[tool.gpuenv.profiles.two]
gpu = "none"
platform = "linux-aarch64"
"""
UNSTABLE = ("/gpuenv.json", ".gpuenv/lock", "__pycache__")  # differ between two equal runs
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
GRACE = 10.0  # seconds in which processes end that the kernel was told to kill
State = dict[str, bytes | str]  # {path: content, or the target of a link}


class Trials:
    """Runs of one command in one folder, with two versions of a package in turn."""

    def __init__(self, folder: Path, command: str) -> None:
        self.command, self.folder = command, folder
        self.work, self.temporary, self.wheels = (folder / x for x in ("work", "tmp", "wheels"))
        for path in (self.work, self.temporary, self.wheels):
            path.mkdir(parents=True)
        self.locks = [make_version(folder, version) for version in (1, 2)]
        self.references = []
        for turn in (0, 1):
            if command == "download":  # the folder keeps the files of both
                self.clear()
            begin = time.monotonic()
            if self.start(turn).wait():
                raise RuntimeError(f"gpuenv {command} fails: {self.message()}")
            self.seconds = time.monotonic() - begin
            self.references.append(self.state())

    def start(self, turn: int, **variables: str) -> subprocess.Popen[bytes]:
        """Start the command for a version."""
        version = f"{turn + 1}.0"
        (self.work / "pyproject.toml").write_text(PROJECT.replace("{version}", version))
        values = {"version": version, "lock": self.locks[turn], "wheels": self.wheels}
        with open(self.folder / "stderr", "wb") as stderr:
            return subprocess.Popen(
                [*GPUENV, *COMMANDS[self.command].format(**values).split()],
                cwd=self.work, stdout=subprocess.DEVNULL, stderr=stderr, stdin=subprocess.DEVNULL,
                env=own_code(TMPDIR=str(self.temporary), **variables), start_new_session=True,
            )  # fmt: skip

    def message(self) -> str:
        """Return the end of what the last run printed on stderr."""
        return (self.folder / "stderr").read_text(errors="replace")[-300:]

    def state(self) -> State:
        """Return the content of the folder without what differs between equal runs."""
        return {
            path: data
            for path, data in contents(self.work).items()
            if path != "pyproject.toml" and not any(part in path for part in UNSTABLE)
        }

    def faults(self, old: State, turn: int) -> list[str]:
        """Return what is wrong after a disturbed run, and after the next run."""
        faults = []
        now, new = self.state(), self.references[turn]
        parts = [parts_of(state) for state in (old, now, new)]
        for name in {name for part in parts for name in part}:
            was, is_now, will_be = (part.get(name, {}) for part in parts)
            if is_now not in (was, will_be):
                faults.append("partial states")
        if self.start(turn).wait():
            return [*faults, "next runs that failed"]
        now = self.state()
        if any(now.get(path) != data for part in parts[2].values() for path, data in part.items()):
            faults.append("false verified")
        left = [path for path in now if path.endswith((".part", ".tmp"))]
        left += now.keys() - self.references[0].keys() - self.references[1].keys()
        left = [path for path in left if ".gpuenv/previous/" not in path]
        # A kill at the moment at which Python's tempfile tries a folder leaves its file.
        left += [
            path.name
            for path in self.temporary.iterdir()
            if not path.is_file() or path.read_bytes() not in (b"", b"blat")
        ]
        if left:
            print("left:", *left, flush=True)
            faults.append("files left")
        return faults

    def clear(self) -> None:
        """Remove all results."""
        shutil.rmtree(self.work)
        self.work.mkdir()


def make_version(folder: Path, version: int) -> Path:
    """Make a lock: alpha changes, beta stays, and gamma or delta is there."""
    wheels, other = folder / "wheels", ("gamma", "delta")[version - 1]
    lock = make_lock(
        make_wheel(wheels, "alpha", f"{version}.0", script="alpha", requires=["beta", other]),
        make_wheel(wheels, "beta", "1.0", files={"beta_data/x.txt": "x" * 100_000}),
        make_wheel(wheels, other, "1.0", script=other),
    )
    return write_lock(folder / f"pylock.{version}.toml", lock)


def parts_of(state: State) -> dict[str, State]:
    """Return what users see and what changes as a whole.

    That is the environment, the files at the top, and each download. What users see has no part of
    its path that starts with a dot.
    """
    parts: dict[str, State] = {}
    for path, data in state.items():
        folder, is_below, _ = path.partition("/")
        if not any(part.startswith(".") for part in path.split("/")):
            name = path if folder == "files" else folder if is_below else ""
            parts.setdefault(name, {})[path] = data
    return parts


def kill(trials: Trials, arguments: Namespace) -> Iterator[str]:
    """Send signals at random moments of runs, of all kinds in turn; yield outcomes."""
    # A shell may ignore it for programs in the background, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    processes.adopt_orphans()
    source = random.Random(arguments.seed)  # noqa: S311  no secret
    for index in range(arguments.points):
        if index % 5 == 0:  # nothing is there at the start
            trials.clear()
        old, before, turn = trials.state(), processes.running(), index % 2
        child = trials.start(turn)
        time.sleep(source.uniform(0.02, 1.05) * trials.seconds)
        if child.poll() is not None:
            yield "ended before the signal"
        with suppress(ProcessLookupError):
            if index % 2:
                child.send_signal(SIGNALS[index % 3])
            else:
                os.killpg(child.pid, SIGNALS[index % 3])
        child.wait()
        yield "points"
        yield from ["processes left"] * len(processes.left_over(before, GRACE))
        yield from trials.faults(old, turn)


def fill(trials: Trials, arguments: Namespace) -> Iterator[str]:
    """Let later and later calls fail, until the command succeeds; yield outcomes."""
    library, source = trials.folder / "full_disk.so", ROOT / "tests/native/full_disk.c"
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    for number in (errno.ENOSPC, errno.EDQUOT):
        status, at, turn = 1, 1, 0
        while status:
            turn = 1 - turn
            if trials.command == "download":
                trials.clear()
            old = trials.state()
            variables = {"LD_PRELOAD": str(library), "FULL_BELOW": str(trials.work)}
            child = trials.start(turn, **variables, FULL_AT=str(at), FULL_ERRNO=str(number))
            status, text = child.wait(), trials.message()
            yield "points"
            if status:
                yield "failed"
            if status not in (0, 2, 4):
                yield "wrong status"
            is_clear = os.strerror(number).lower() in text.lower() and "Traceback" not in text
            if status and (not is_clear or "internal error" in text):
                yield "unclear"
            yield from trials.faults(old, turn)
            at += arguments.step


WAYS = {"kills": kill, "full-disk": fill}
# What is no fault.
USUAL = ("points", "ended before the signal", "failed")
ARGUMENTS = {
    "way": {"choices": WAYS},
    "--command": {"nargs": "+", "choices": COMMANDS, "default": list(COMMANDS)},
    "--points": {"type": int, "default": 50},
    "--seed": {"type": int, "default": 1},
    "--step": {"type": int, "default": 1},
}


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Disturb the commands in one way."""
    rows = {}
    faults = []
    for command in arguments.command:
        with tempfile.TemporaryDirectory() as folder:
            trials = Trials(Path(folder), command)
            row = rows[command] = Counter(WAYS[arguments.way](trials, arguments))
        print(command, dict(row), flush=True)
        faults += [f"{command}: {row[name]} {name}" for name in row if name not in USUAL]
    settings = {"seed": arguments.seed, "step": arguments.step}
    return {"settings": settings, "commands": rows}, faults
