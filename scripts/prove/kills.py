"""Kill `gpuenv sync` at any point, and check what is left and what the next run makes of it."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import processes
from gpuenv.install import environment_files
from small_wheels import content, make_lock, make_wheel, write_lock

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
BAD_OUTCOMES = (
    "partial states",
    "false verified",
    "processes left",
    "files left",
    "next runs that failed",
)
OUTCOMES = ("points", "ended before the signal", "old states", "new states", *BAD_OUTCOMES)
GRACE = 10.0  # seconds in which processes end that the kernel was told to kill


State = dict[str, bytes | str]  # {path: content, or the target of a link}


class Point(NamedTuple):
    """When which signal is sent: a share of the time of a whole run; `group` has the installer."""

    share: float
    number: signal.Signals
    group: bool
    is_new: bool
    installer: str


def random_points(count: int, seed: int) -> list[Point]:
    """Points of all kinds; one in five is of a run with pip, one in three of a new target."""
    source = random.Random(seed)  # noqa: S311  no secret
    return [
        Point(
            share=source.uniform(0.02, 1.05),
            number=SIGNALS[index % len(SIGNALS)],
            group=index % 2 == 0,
            is_new=index % 3 == 0,
            installer="pip" if index % 5 == 4 else "uv",
        )
        for index in range(count)
    ]


def left_files(temporary: Path) -> list[str]:
    """Return the names in a folder for temporary files.

    Python's tempfile tries whether it can write there: a kill at that moment leaves its file.
    """
    return [
        path.name
        for path in temporary.iterdir()
        if not path.is_file() or path.read_bytes() not in (b"", b"blat")
    ]


class KillTrials:
    """Runs in one folder, of two locks in turn. `counts` has what was seen."""

    def __init__(self, folder: Path) -> None:
        self.counts: Counter[str] = Counter()
        self._folder, self._env = folder, folder / "work" / "env"
        self._temporary = folder / "tmp"
        for path in (folder / "wheels", folder / "work", self._temporary):
            path.mkdir()
        self._wheels: dict[Path, list[str]] = {}
        self._locks = [self._lock(version) for version in ("1.0", "2.0")]
        self._turn = 0
        self._seconds: dict[tuple[str, bool], float] = {}

    def _lock(self, version: str) -> Path:
        """alpha changes, beta stays, and gamma or delta is there."""
        wheels = self._folder / "wheels"
        other = "gamma" if version == "1.0" else "delta"
        lock = make_lock(
            make_wheel(wheels, "alpha", version, script="alpha", requires=["beta"]),
            make_wheel(wheels, "beta", "1.0", files={"beta_data/x.txt": "x" * 100_000}),
            make_wheel(wheels, other, "1.0", script=other),
        )
        path = write_lock(self._folder / f"pylock.{other}.toml", lock)
        self._wheels[path] = [pin.wheel.filename for pin in lock.pins]
        return path

    def _start(
        self, lock: Path, installer: str, stderr: int = subprocess.DEVNULL
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "gpuenv", "sync", str(lock), "--target", str(self._env)]
        command += ["--gpu", "none", "--installer", installer]
        command += ["--find-links", str(self._folder / "wheels")]
        return subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(self._temporary)},
            start_new_session=True,
        )

    def _run(self, lock: Path, installer: str) -> bool:
        """A whole run. Return whether it says "verified"."""
        return ends_well(self._start(lock, installer, subprocess.PIPE))

    def _duration(self, lock: Path, point: Point) -> float:
        """How long a whole run of this kind takes. The target is left as it is."""
        kind = (point.installer, point.is_new)
        if kind not in self._seconds:
            kept = self._env.with_name("kept")
            if self._env.exists():
                subprocess.run(["cp", "-a", self._env, kept], check=True)
            begin = time.monotonic()
            self._run(lock, point.installer)
            self._seconds[kind] = time.monotonic() - begin
            subprocess.run(["rm", "-rf", self._env], check=True)
            if kept.exists():
                kept.rename(self._env)
        return self._seconds[kind]

    def _state(self) -> State:
        """The content of the target, without what differs between two runs of one lock."""
        found = content(self._env)
        found.pop(environment_files.FILE, None)
        return found

    def run(self, point: Point) -> None:
        """Kill one run, and start the next one."""
        lock = self._locks[self._turn]
        self._turn = 1 - self._turn
        if point.is_new:
            subprocess.run(["rm", "-rf", self._env], check=True)
        pause = point.share * self._duration(lock, point)
        old = self._state()
        before = processes.running()
        child = self._start(lock, point.installer)
        time.sleep(pause)
        self.counts["ended before the signal"] += child.poll() is not None
        kill(child, point)
        self.counts["processes left"] += len(processes.left_over(before, GRACE))
        state = self._state()
        verified = self._run(lock, point.installer)
        new = self._state()
        self.counts["points"] += 1
        self.counts[self._kind_of(state, old, new)] += 1
        self._look_after(lock, new, verified=verified)

    def _kind_of(self, state: State, old: State, new: State) -> str:
        if state == old:
            return "old states"
        return "new states" if state == new else "partial states"

    def _look_after(self, lock: Path, new: State, *, verified: bool) -> None:
        """Look at the state that the run after the kill says is verified."""
        if not verified:
            self.counts["next runs that failed"] += 1
        elif without_additions(new) != self._reference(lock, new):
            self.counts["false verified"] += 1
        left = left_files(self._temporary)
        beside = self._env.parent / ".env.gpuenv"
        if beside.exists():
            left += [name for name in os.listdir(beside) if name != "previous"]
        left += [name for name in os.listdir(self._env.parent) if name not in ("env", beside.name)]
        self.counts["files left"] += len(left)
        if left:
            print("left:", *left, flush=True)

    def _reference(self, lock: Path, new: State) -> State:
        """What must be in the folder of packages, with the rest of the environment."""
        site = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
        expected = {path: data for path, data in new.items() if not path.startswith(site)}
        for wheel in self._wheels[lock]:
            expected |= files_of_wheel(self._folder / "wheels" / wheel, site)
        return expected


def ends_well(child: subprocess.Popen[bytes]) -> bool:
    """Wait for a run. Return whether it succeeds; print what it says if it does not."""
    stderr = child.communicate()[1]
    if child.returncode != 0:
        print(f"exit {child.returncode}: {stderr.decode(errors='replace')}", flush=True)
    return child.returncode == 0


def without_additions(state: State) -> State:
    """Without the files that installers add to those of the wheels."""
    added = ("/RECORD", "/INSTALLER", "/REQUESTED", "/uv_cache.json", "_virtualenv.py")
    added += ("_virtualenv.pth",)
    return {path: data for path, data in state.items() if not path.endswith(added)}


def files_of_wheel(path: Path, site: str) -> dict[str, bytes]:
    """The files of a wheel as they are installed, without the RECORD."""
    import zipfile

    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/RECORD")]
        return {f"{site}/{name}": archive.read(name) for name in names}


def kill(child: subprocess.Popen[bytes], point: Point) -> None:
    """Send a signal to gpuenv alone, or to its process group. Wait until it ends."""
    try:
        if point.group:
            os.killpg(child.pid, point.number)
        else:
            child.send_signal(point.number)
    except ProcessLookupError:
        pass
    child.wait()


# ---- the other commands -------------------------------------------------------------------------

COMMANDS = ("install", "solve", "lock", "download", "bundle")
_SOLVE = ["--no-index", "--find-links", "{wheels}", "--gpu", "none"]
_WORDS = {
    "install": ["install", "alpha=={version}", *_SOLVE, "--target", "env"],
    "solve": ["solve", "alpha=={version}", *_SOLVE],
    "lock": ["lock", "--offline"],
    "download": ["download", "{lock}", "-d", "files", "--find-links", "{wheels}"],
    "bundle": ["download", "{lock}", "--bundle", "env.pyz", "--find-links", "{wheels}"],
}
_PROJECT = """[tool.gpuenv]
requirements = ["alpha=={version}"]
find-links = ["../wheels"]
python = "3.12"
[tool.gpuenv.profiles.one]
gpu = "none"
[tool.gpuenv.profiles.two]
gpu = "none"
platform = "linux-aarch64"
"""
_UNSTABLE = ("/gpuenv.json", ".gpuenv/lock", "__pycache__")


class CommandTrials:
    """Runs of one command in one folder, with two versions in turn. `counts` has the results."""

    def __init__(self, folder: Path, command: str) -> None:
        self.counts: Counter[str] = Counter()
        self._command, self._folder, self._work = command, folder, folder / "work"
        self.environment: dict[str, str] = {}  # variables of the runs
        self._temporary = folder / "tmp"
        for path in (folder / "wheels", self._work, self._temporary):
            path.mkdir(parents=True)
        self._locks = [self._make(version) for version in ("1.0", "2.0")]
        self._turn = 0
        self._seconds = 0.0
        self._references = [self._reference(turn) for turn in (0, 1)]

    def _make(self, version: str) -> Path:
        wheels = self._folder / "wheels"
        lock = make_lock(
            make_wheel(wheels, "alpha", version, script="alpha", requires=["beta"]),
            make_wheel(wheels, "beta", "1.0", files={"beta_data/x.txt": "x" * 100_000}),
        )
        return write_lock(self._folder / f"pylock.{version[0]}.toml", lock)

    def _reference(self, turn: int) -> State:
        """Return what a complete run leaves, and measure its time, of which points are shares."""
        if self._command == "download":
            subprocess.run(["rm", "-rf", self._work / "files"], check=True)
        begin = time.monotonic()
        if not self._run(turn):
            raise RuntimeError(f"gpuenv {self._command} fails without a kill")
        self._seconds = time.monotonic() - begin
        return self._state()

    def _start(self, turn: int, stderr: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
        version = f"{turn + 1}.0"
        if self._command == "lock":
            text = _PROJECT.replace("{version}", version)
            (self._work / "pyproject.toml").write_text(text)
        values = {"version": version, "lock": self._locks[turn], "wheels": self._folder / "wheels"}
        words = [word.format(**values) for word in _WORDS[self._command]]
        return subprocess.Popen(
            [sys.executable, "-m", "gpuenv", *words],
            cwd=self._work,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(self._temporary), **self.environment},
            start_new_session=True,
        )

    def _run(self, turn: int) -> bool:
        return ends_well(self._start(turn, subprocess.PIPE))

    def _state(self) -> State:
        """Return the content of the folder without the files that differ between equal runs."""
        return {
            path: data
            for path, data in content(self._work).items()
            if path != "pyproject.toml" and not any(part in path for part in _UNSTABLE)
        }

    def run(self, point: Point) -> None:
        """Kill one run, and start the next one."""
        self._turn = 1 - self._turn
        if self._command == "download" and point.is_new:
            subprocess.run(["rm", "-rf", self._work / "files"], check=True)
        old, before = self._state(), processes.running()
        child = self._start(self._turn)
        time.sleep(point.share * self._seconds)
        self.counts["ended before the signal"] += child.poll() is not None
        kill(child, point)
        self.counts["points"] += 1
        self.counts["processes left"] += len(processes.left_over(before, GRACE))
        state = self._state()
        new = self._references[self._turn]
        if self._command == "download":
            self.counts[self._kind_of_folder(state, new)] += 1
        else:
            self.counts[self._kind_of(state, old, new)] += 1
        if not self._run(self._turn):
            self.counts["next runs that failed"] += 1
        self._look_after(new)

    def _kind_of(self, state: State, old: State, new: State) -> str:
        """Return whether the locks and the environment are old, new or neither."""
        visible, was, will_be = map(_results, (state, old, new))
        for is_lock in (True, False):
            parts = [
                {path: data for path, data in files.items() if ("/" not in path) is is_lock}
                for files in (visible, was, will_be)
            ]
            if parts[0] not in parts[1:]:
                return "partial states"
        return "new states" if visible == will_be else "old states"

    def _kind_of_folder(self, state: State, new: State) -> str:
        """Return whether the visible downloads are all there, some are, or one is incomplete."""
        files = _results(state)
        known = self._references[0] | self._references[1]
        if any(known.get(path) != data for path, data in files.items()):
            return "partial states"
        return "new states" if files.keys() >= _results(new).keys() else "old states"

    def _look_after(self, new: State) -> None:
        state = self._state()
        left = left_files(self._temporary)
        left += state.keys() - self._references[0].keys() - self._references[1].keys()
        left += [path for path in state if path.endswith((".part", ".tmp"))]
        left = [path for path in left if ".gpuenv/previous/" not in path]
        self.counts["files left"] += len(left)
        if left:
            print("left:", *left, flush=True)
        results = _results(new)
        if any(state.get(path) != data for path, data in results.items()):
            self.counts["false verified"] += 1


def _results(state: State) -> State:
    """Return the files that users see: no part of the path starts with a dot."""
    return {
        path: data
        for path, data in state.items()
        if not any(part.startswith(".") for part in path.split("/"))
    }
