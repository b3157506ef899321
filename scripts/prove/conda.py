"""Put conda environments as users make them through install, sync, repair and rollback.

    python scripts/tools.py prove conda [--conda EXE ...] [--only TEXT] [--record FILE]

The environments are those of tests/data/conda_users.toml. gpuenv changes them by py-rattler, and
each conda by its own transactions; in a conda they go through `conda doctor --fix` and through a
transaction that the strict check refuses, too. No step may remove or change what its output does
not name.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import conda_channel
import conda_prefixes
import conda_stand_in
from common import read_toml, run_gpuenv
from gpuenv.install import conda_history
from gpuenv.prefix import conda_packages
from gpuenv.requirements import conda_settings, conda_versions
from gpuenv.resolve.conda import solvers
from small_wheels import contents

USERS = read_toml("tests/data/conda_users.toml")["environment"]
# The steps: their commands, and variables that hold from then on. Those of conda itself need one.
STEPS = {
    "install": (["gpuenv install --backend conda {written} {asked} {flags}"], {}),
    "sync": (["gpuenv sync {explicit} {flags}"], {}),
    "repair": (
        ["gpuenv solve --repair {target} {written} {host}", "gpuenv sync {lock} {flags}"], {},
    ),
    "rollback": (["gpuenv rollback --target {target}"], {}),
    "doctor": (
        ["doctor --prefix {target} --fix gpuenv"],
        {"CONDA_OVERRIDE_CUDA": "12.8", "CONDA_OVERRIDE_CUDA_ARCH": "9.0"},
    ),
    "strict": (
        ["install --yes --prefix {target} cuda-version=13.0"],
        {"CONDA_PLUGINS_GPUENV_VERIFY": "strict"},
    ),
}  # fmt: skip
Case = dict[str, Any]


class State:
    """What an environment has: packages, files, pins that hold, requests and the history."""

    def __init__(self, target: Path, variables: Mapping[str, str]) -> None:
        self.records = conda_packages(str(target))
        rows = self.records.values()
        self.packages = {f"{row['name']} {row['version']} {row['build']}" for row in rows}
        self.files = contents(target)
        self.requests = conda_history.requested_specs(str(target), self.records)
        pins = conda_settings.read_pins(str(target), {**os.environ, **variables})
        self.pins = {spec for _, spec in pins if self.holds(spec)}
        history = target / "conda-meta" / "history"
        self.history = history.read_text() if history.exists() else ""

    def holds(self, spec: str) -> bool:
        """Return whether an installed package is one that a pin admits."""
        row = self.records.get(conda_versions.name_of(spec))
        return row is not None and conda_versions.matches(
            spec, row["name"], row["version"], row["build"]
        )


def lost(
    before: State, after: State, done: subprocess.CompletedProcess[str], replaced: set[str]
) -> list[str]:
    """Return what a step lost or changed that its output does not name; all if it failed."""
    if done.returncode:
        changes = before.files.items() ^ after.files.items()
        return sorted({f"{path} changed" for path, _ in changes})
    said = " ".join((done.stdout + done.stderr).split())
    gone = before.packages - after.packages
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
    changed = [before.records[name] for name in names & before.records.keys()]
    owned = {path for row in changed for path in row.get("files") or ()}
    for path, data in before.files.items():
        is_kept = path.startswith("conda-meta/") or path in owned
        if not is_kept and after.files.get(path) != data:
            losses.append(path)
    return losses


def not_restored(previous: State | None, after: State) -> list[str]:
    """Return what a rollback did not restore: packages and requests."""
    if previous is None:
        return ["rolled back without a change before"]
    requests = previous.requests.items() ^ after.requests.items()
    return sorted(previous.packages ^ after.packages) + [f"request {n}" for n, _ in requests]


def make(case: Case, folder: Path, rows: Mapping[str, Any], settings: str) -> dict[str, str]:
    """Make an environment as other tools and its user leave it. Return the user's variables."""
    target = real = folder / case.get("path", "prefix")
    if "link" in case:
        real = folder / case["link"]
        target.symlink_to(real)
    real.parent.mkdir(parents=True, exist_ok=True)
    with solvers.RattlerSolver((), ("linux-64", "noarch")) as solver:
        solver.install(str(real), [rows[name] for name in case["installed"]], "linux-64")
    conda_prefixes.describe(real, case, rows)
    subprocess.run(["sh", "-ec", case.get("shell", "")], cwd=real, check=True)
    (folder / "condarc").write_text(settings + case.get("condarc", ""))
    return {"CONDARC": str(folder / "condarc"), **case.get("environment", {})}


def try_steps(
    case: Case, folder: Path, rows: Mapping[str, Any], *, channel: str, settings: str,
    conda: conda_stand_in.Conda | None,
) -> dict[str, tuple[int, list[str]]]:  # fmt: skip
    """Make an environment and change it. Return (exit status, losses) of each step."""
    place = folder / case.get("path", "prefix")
    variables = make(case, folder, rows, settings)
    conda_prefixes.make_lock(folder / "explicit", case.get("lock", ["openssl 3.5.0"]), rows)
    asked = case.get("install", ["libcudnn"])
    target, lock, explicit = map(shlex.quote, (str(place), f"{folder}/lock", f"{folder}/explicit"))
    fields = {
        "target": target,
        "lock": lock,
        "explicit": explicit,
        "asked": shlex.join(asked),
        "host": conda_prefixes.HOST,
        "written": f"--channel {channel} -o {lock}",
        "flags": f"--target {target} --no-verify {conda_prefixes.HOST}",
    }
    answers: dict[str, tuple[int, list[str]]] = {}
    previous = None
    for step, (commands, more) in STEPS.items():
        if conda is None and step in ("doctor", "strict"):
            continue
        variables |= more
        before = State(place, variables)
        for command in commands:
            words = shlex.split(command.format(**fields))
            if conda is None:
                done = run_gpuenv(*words[1:], **variables)
            else:
                done = conda.run(words, typed="y\n", status=None, **variables)
            if done.returncode:
                break
        status, after = done.returncode, State(place, variables)
        if step == "strict" and status == 0:
            losses = []  # the check refuses nothing: what changed is the work of conda
        elif step == "rollback" and status == 0:
            losses = not_restored(previous, after)
        else:
            losses = lost(before, after, done, {*asked} if step == "install" else set())
        if status == 0 and before.packages != after.packages:
            previous = before
        answers[step] = status, losses
    return answers


ARGUMENTS = {
    "--conda": {"action": "append", "default": [], "metavar": "EXE"},
    "--only": {"default": "", "metavar": "TEXT", "help": "environments with this name"},
}


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Try the environments with py-rattler and each conda. What was lost is a fault."""
    cases = [case for case in USERS if arguments.only in case["name"]]
    engines: dict[str, dict[str, dict[str, int]]] = {}
    faults = []
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        os.environ["GPUENV_CACHE_DIR"] = str(root / "cache")
        os.environ["RATTLER_CACHE_DIR"] = str(root / "rattler")
        channels = []
        for table in ("packages", "elsewhere"):
            channels.append(root / table)
            conda_channel.make(channels[-1], conda_prefixes.rows(table))
        rows = conda_prefixes.rows_of(channels)
        for number, executable in enumerate([None, *arguments.conda]):
            conda, settings, engine = None, "", "py-rattler"
            if executable is not None:
                conda = conda_stand_in.Conda(executable, root / f"conda-{number}")
                settings = (conda.folder / "condarc").read_text()
                settings = settings.replace(f"{conda.folder}/channel", str(channels[0]))
                engine = f"conda {conda.info['conda_version']}, {conda.solver}"

            for case in cases:
                folder = Path(tempfile.mkdtemp(dir=root))
                try:
                    answers = try_steps(
                        case, folder, rows, channel=channels[0].as_uri(), settings=settings,
                        conda=conda,
                    )  # fmt: skip
                finally:
                    if "chattr" in case.get("shell", ""):
                        subprocess.run(["chattr", "-R", "-i", folder], check=True)
                statuses = {step: status for step, (status, _) in answers.items()}
                engines.setdefault(engine, {})[case["name"]] = statuses
                print(engine, case["name"], statuses, flush=True)
                for step, (_, losses) in answers.items():
                    if losses:
                        faults.append(f"{engine}: {case['name']}: {step}: {'; '.join(losses)}")
    return {"environments": len(cases), "engines": engines, "lost": faults}, faults
