"""Fill the disk, or exceed a quota, at every write of a command, and check what is left.

    python scripts/tools.py prove full-disk [--command NAME ...] [--step N] [--record FILE]

The Nth call that needs space fails, and all later ones too, for each N until the command succeeds.
The results of the command must then be the old ones or the new ones, the exit status must be 2 or 4
with one clear line. The next run, with space, must complete the new ones and leave nothing else.
"""

from __future__ import annotations

import argparse
import errno
import os
import platform
import subprocess
import tempfile
import time
from pathlib import Path

from common import ROOT, write_record
from prove import kills

ERRORS = (errno.ENOSPC, errno.EDQUOT)
BAD = ("partial states", "unclear", "wrong status", "next runs that failed", "files left")
MOST = 20_000  # calls of one command


class FullDiskTrials(kills.CommandTrials):
    """Runs of one command on a disk that is full from the Nth call on."""

    def __init__(self, folder: Path, command: str, library: Path) -> None:
        super().__init__(folder, command)
        self._library = library
        self.notes: list[str] = []

    def run_full(self, at: int, number: int) -> bool:
        """Run once. Return whether the command succeeded."""
        self._turn = 1 - self._turn
        if self._command == "download":
            subprocess.run(["rm", "-rf", self._work / "files"], check=True)
        old = self._state()
        self.environment = {
            "LD_PRELOAD": str(self._library),
            "FULL_AT": str(at),
            "FULL_ERRNO": str(number),
            "FULL_BELOW": str(self._work),
        }
        child = self._start(self._turn, stderr=subprocess.PIPE)
        text = child.communicate()[1].decode()
        self.environment = {}
        self.counts["points"] += 1
        new = self._references[self._turn]
        kind = self._kind_of(self._state(), old, new)
        if self._command == "download":
            kind = self._kind_of_folder(self._state(), new)
        self.counts[kind] += 1
        problems = [] if kind != "partial states" else [kind]
        if child.returncode not in (0, 2, 4):
            problems.append("wrong status")
        if child.returncode and not _is_clear(text):
            problems.append("unclear")
        self.counts["failed"] += child.returncode != 0
        if not self._run(self._turn):
            problems.append("next runs that failed")
        before = self.counts["files left"]
        self._look_after(new)
        if self.counts["files left"] > before:
            problems.append("files left")
        for problem in problems:
            self.counts[problem] += problem not in ("files left", "partial states")
        if problems:
            note = f"{self._command} {at} {number}: {problems} {child.returncode} {text[-300:]}"
            self.notes.append(note)
            print(note, flush=True)
        return child.returncode == 0


def _is_clear(text: str) -> bool:
    """Return whether a message says what is wrong."""
    reasons = [os.strerror(number) for number in ERRORS]
    is_known = any(reason.lower() in text.lower() for reason in reasons)
    return is_known and "Traceback" not in text and "internal error" not in text


def _run(command: str, step: int, library: Path) -> tuple[dict[str, int], list[str]]:
    """Fill the disk at every `step`th call of a command."""
    with tempfile.TemporaryDirectory() as folder:
        trials = FullDiskTrials(Path(folder), command, library)
        for number in ERRORS:
            for at in range(1, MOST, step):
                if trials.run_full(at, number):
                    break
    names = ("points", "failed", "old states", "new states", *BAD)
    return {name: trials.counts[name] for name in names}, trials.notes


def main(words: list[str]) -> int:
    """Run the commands. Return 1 if one of them failed in a wrong way or left files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--command", action="append", choices=kills.COMMANDS)
    parser.add_argument("--step", type=int, default=1)
    parser.add_argument("--record", metavar="FILE", type=Path)
    arguments = parser.parse_args(words)
    os.environ["PYTHONPATH"] = str(ROOT / "resolver")
    begin = time.monotonic()
    rows, notes = {}, []
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "full_disk.so"
        source = ROOT / "tests" / "native" / "full_disk.c"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
        for command in arguments.command or kills.COMMANDS:
            rows[command], more = _run(command, arguments.step, library)
            notes += more
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "host": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"{platform.python_implementation()} {platform.python_version()}",
        "errors": [errno.errorcode[number] for number in ERRORS],
        "step": arguments.step,
        "seconds": round(time.monotonic() - begin),
        "commands": rows,
    }
    write_record(record, arguments.record)
    return int(bool(notes))
