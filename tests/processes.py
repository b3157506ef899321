"""Programs that tests run, and the processes below this one that a test has left behind."""

import ctypes
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36  # of linux/prctl.h


class Done(subprocess.CompletedProcess[str]):
    """A program that has ended."""

    @property
    def document(self):
        """What it has printed with --json."""
        return json.loads(self.stdout)

    @property
    def output(self):
        """All that it has printed."""
        return self.stdout + self.stderr

    @property
    def text(self):
        """All that it has printed, as one line."""
        return " ".join(self.output.split())

    def expect(self, status):
        """Return this if the exit status is the expected one; None expects nothing."""
        assert status in (None, self.returncode), f"{self.returncode}: {self.output}"
        return self

    def says_in_one_line(self, *texts):
        """Fail unless it printed nothing but one line on stderr, which has these texts."""
        assert (self.stdout, self.stderr.count("\n")) == ("", 1), self.output
        assert [text for text in texts if text not in self.stderr] == [], self.stderr


def words_of(command):
    """Return the words of a command, which may be written as a user types it."""
    return shlex.split(command) if isinstance(command, str) else [*map(str, command)]


def run_program(command, timeout=120, *, status=0, **options):
    """Run a program to its end, which has this exit status. The options are those of subprocess."""
    words = words_of(command)
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=timeout, **options
    )
    return Done(words, done.returncode, done.stdout, done.stderr).expect(status)


def program(path, script):
    """Write a program that runs this script of the shell."""
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def adopt_orphans():
    """Make this process the parent of what its children leave behind, so that it is seen here."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def running():
    """The children of this process, including those that ended and were not waited for.

    Empty where there is no /proc.
    """
    found = set()
    try:
        tasks = os.listdir("/proc/self/task")
    except OSError:
        return found
    for task in tasks:
        try:
            with open(f"/proc/self/task/{task}/children", "rb", buffering=0) as file:
                found.update(map(int, file.read().split()))
        except OSError:  # the thread has ended
            continue
    return found


def left_over(before, seconds):
    """The command lines of new children that are still running after a wait of `seconds` at most.

    They are killed, so that only one test fails because of them.
    """
    end = time.monotonic() + seconds
    while new := {number for number in running() - before if not _has_ended(number)}:
        if time.monotonic() > end:
            break
        time.sleep(0.01)
    lines = [_command_line(number) for number in sorted(new)]
    for number in new:
        _end(number)
    return lines


def _has_ended(number):
    """Whether a child has ended; it is waited for then, as it is an orphan or nobody did."""
    try:
        return os.waitpid(number, os.WNOHANG)[0] == number
    except ChildProcessError:
        return True


def _command_line(number):
    try:
        data = Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:
        return f"process {number}"
    return f"{number}: {data.decode(errors='replace').replace(chr(0), ' ').strip()}"


def _end(number):
    try:
        os.kill(number, 9)
        os.waitpid(number, 0)
    except (ProcessLookupError, ChildProcessError):
        pass
