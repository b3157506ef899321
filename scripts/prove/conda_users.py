"""Environments as users make them, through install, sync, repair and rollback.

The functions run in the interpreter of a conda, too: `python conda_users.py JOB.json` prints JSON.
"""

import contextlib
import hashlib
import io
import json
import os
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import conda_prefixes
from common import ROOT
from gpuenv.cli import main
from gpuenv.install import conda_history, conda_prefix
from gpuenv.requirements import conda_settings, conda_versions

USERS: list[dict[str, Any]] = tomllib.loads(
    (ROOT / "tests" / "data" / "conda_users.toml").read_text()
)["environment"]
STEPS = ("install", "sync", "repair", "rollback")
Make = Callable[[str, list[dict[str, Any]]], None]


class State:
    """The state of an environment: packages, files, pins that hold, requests, and the history."""

    def __init__(self, target: Path) -> None:
        self.records = conda_prefix.read_packages(str(target))
        self.files = dict(_files(target))
        self.requests = conda_history.requested_specs(str(target), self.records)
        pins = [spec for _, spec in conda_settings.read_pins(str(target), os.environ)]
        self.pins = {spec for spec in pins if self._holds(spec)}
        history = target / "conda-meta" / "history"
        self.history = history.read_text() if history.exists() else ""

    def _holds(self, spec: str) -> bool:
        record = self.records.get(conda_versions.name_of(spec))
        if record is None:
            return False
        version, build = record["version"], record["build"]
        return conda_versions.matches(spec, record["name"], version, build)

    def packages(self) -> set[str]:
        return {f"{row['name']} {row['version']} {row['build']}" for row in self.records.values()}

    def files_of(self, names: set[str]) -> set[str]:
        found: set[str] = set()
        for name in names & self.records.keys():
            found |= set(self.records[name].get("files") or ())
        return found


def _files(target: Path) -> Iterator[tuple[str, str]]:
    for folder, folders, names in os.walk(target):
        for name in [*names, *(one for one in folders if os.path.islink(f"{folder}/{one}"))]:
            path = os.path.join(folder, name)
            content = os.readlink(path).encode() if os.path.islink(path) else _bytes(path)
            yield os.path.relpath(path, target), hashlib.sha256(content).hexdigest()


def _bytes(path: str) -> bytes:
    return Path(path).read_bytes()


def lost(before: State, after: State, status: int, output: str, replaced: set[str]) -> list[str]:
    """Return what a step lost or changed that its output does not name."""
    if status:
        return [f"{path} changed" for path, _ in sorted(before.files.items() ^ after.files.items())]
    said = " ".join(output.split())
    gone = before.packages() - after.packages()
    names = {package.split()[0] for package in gone}
    losses = [package for package in sorted(gone) if package not in said]
    losses += [f"pin {spec}" for spec in before.pins - after.pins]
    for name, spec in before.requests.items():
        if name not in {*replaced, *names} and after.requests.get(name) != spec:
            losses.append(f"request {spec}")
    if not after.history.startswith(before.history):
        losses.append("lines of the history")
    elif after.history.count("==> ") > before.history.count("==> ") + 1:
        losses.append("more than one revision")
    if "python" in names:  # noarch packages are installed again for a new Python
        names |= {row["name"] for row in before.records.values() if row["subdir"] == "noarch"}
    owned = before.files_of(names)
    for path, content in before.files.items():
        is_kept = path.startswith("conda-meta/") or path in owned
        if not is_kept and after.files.get(path) != content:
            losses.append(path)
    return losses


class Trial:
    """One environment and its steps."""

    def __init__(self, case: dict[str, Any], job: dict[str, Any], folder: Path) -> None:
        self.case, self.job, self.folder = case, job, folder
        self.target = folder / case.get("path", "prefix")

    def prepare(self, make: Make) -> None:
        """Make the environment as other tools and its user leave it."""
        case, real = self.case, self.target
        if "link" in case:
            real = self.folder / case["link"]
            real.parent.mkdir(parents=True)
            self.target.symlink_to(real)
        real.parent.mkdir(parents=True, exist_ok=True)
        make(str(real), [self.job["rows"][name] for name in case["installed"]])
        conda_prefixes.describe(real, case, self.job["rows"])
        if "shell" in case:
            subprocess.run(["sh", "-ec", case["shell"]], cwd=real, check=True)
        os.environ.update(case.get("environment", {}))
        if "condarc" in case:
            (self.folder / "condarc").write_text(self.job["condarc"] + case["condarc"])
            os.environ["CONDARC"] = str(self.folder / "condarc")

    def clean(self) -> None:
        """Undo the settings of the case."""
        if "chattr" in self.case.get("shell", ""):
            subprocess.run(["chattr", "-i", str(self.target / "conda-meta")], check=True)
        for name in self.case.get("environment", {}):
            del os.environ[name]
        if "condarc" in self.case:
            os.environ["CONDARC"] = self.job["CONDARC"]

    def steps(self) -> dict[str, dict[str, Any]]:
        """Run the steps, and return the exit status and the losses of each."""
        return {step: self._step(step) for step in STEPS}

    def _step(self, step: str) -> dict[str, Any]:
        before = State(self.target)
        status, output = getattr(self, f"_{step}")()
        after = State(self.target)
        replaced = set(self.case.get("install", ["libcudnn"])) if step == "install" else set()
        losses = lost(before, after, status, output, replaced)
        if step == "rollback":
            losses = self._not_restored(after) if status == 0 else losses
        elif status == 0 and before.packages() != after.packages():
            self.previous = before
        return {"status": status, "lost": losses, "output": output.splitlines()[-1:]}

    def _install(self) -> tuple[int, str]:
        self.previous: State | None = None
        command = ["install", "--backend", "conda", "--channel", self.job["channel"]]
        command += [*self.case.get("install", ["libcudnn"]), "-o", str(self.folder / "lock.txt")]
        return self._run([*command, "--target", str(self.target), "--no-verify"])

    def _sync(self) -> tuple[int, str]:
        path = self.folder / "explicit.txt"
        conda_prefixes.make_lock(path, self.case.get("lock", ["openssl 3.5.0"]), self.job["rows"])
        return self._run(["sync", str(path), "--target", str(self.target), "--no-verify"])

    def _repair(self) -> tuple[int, str]:
        path = str(self.folder / "repair.txt")
        command = ["solve", "--repair", str(self.target), "--channel", self.job["channel"]]
        status, output = self._run([*command, "-o", path])
        if status:
            return status, output
        return self._run(["sync", path, "--target", str(self.target), "--no-verify"])

    def _rollback(self) -> tuple[int, str]:
        return self._run(["rollback", "--target", str(self.target)], host=())

    def _not_restored(self, after: State) -> list[str]:
        """Return what a rollback did not restore: packages and requests."""
        if self.previous is None:
            return ["rolled back without a change before"]
        wrong = sorted(self.previous.packages() ^ after.packages())
        requests = self.previous.requests.items() ^ after.requests.items()
        return wrong + [f"request {name}" for name, _ in sorted(requests)]

    def _run(
        self, command: list[str], host: Sequence[str] = tuple(conda_prefixes.HOST.split())
    ) -> tuple[int, str]:
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            status = main([*command, *host])
        return status, output.getvalue()


def run_all(job: dict[str, Any], make: Make) -> dict[str, dict[str, Any]]:
    """Return {environment: its steps} of a job; `make` installs records into a new prefix."""
    answers = {}
    for number, case in enumerate(job["cases"]):
        folder = Path(job["folder"], str(number))
        folder.mkdir()
        trial = Trial(case, job, folder)
        trial.prepare(make)
        try:
            answers[case["name"]] = trial.steps()
        finally:
            trial.clean()
    return answers


def run_job(file: str) -> None:
    """Run a job in conda's Python, and print the answers as JSON."""
    from gpuenv.install import conda_transaction

    job = json.loads(Path(file).read_text())
    print(json.dumps(run_all(job, conda_transaction.install)))
