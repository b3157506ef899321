"""Measure the time that gpuenv's plugin adds to a conda command, `conda info`.

    python scripts/tools.py bench conda-plugin --conda /opt/conda/bin/conda [--runs 60] [--json]

gpuenv must not be installed into that conda: every second run has the compiled plugin on
PYTHONPATH. The figures are milliseconds. `added_ms` is the median difference of the wall times of a
pair. `added_cpu_ms` is the median difference of the processor times (user and system), which a busy
machine changes less. The keys with `noise` compare two series without the plugin: a difference of
that size proves nothing. Exit status: 1 too slow, 2 too noisy to tell.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from common import ROOT

LIMIT = 20.0  # ms


def lay(folder: Path) -> None:
    """Copy gpuenv and its entry point into a folder, as an installer would."""
    leave = shutil.ignore_patterns("__pycache__", "scans")
    shutil.copytree(ROOT / "resolver" / "gpuenv", folder / "gpuenv", ignore=leave)
    shutil.copytree(ROOT / "matrix_data", folder / "gpuenv" / "matrix_data", ignore=leave)
    shutil.copy(ROOT / "resolver" / "gpuenv_conda_plugin.py", folder)
    info = folder / "gpuenv-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gpuenv\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[conda]\ngpuenv = gpuenv_conda_plugin\n")


def plugins(conda: str, env: dict[str, str]) -> bool:
    """Return whether a conda has the plugin."""
    done = subprocess.run(
        [conda, "info", "--system"], env=env, capture_output=True, text=True, check=True
    )
    return "conda-gpuenv:" in done.stdout


def solver(conda: str, env: dict[str, str]) -> str:
    """Return the solver that a conda uses, and the version of its library."""
    told = subprocess.run(
        [conda, "info", "--json"], env=env, capture_output=True, text=True, check=True
    ).stdout
    about = json.loads(told)
    (name,) = [
        part.partition("/")[2] for part in about["user_agent"].split() if part.startswith("solver/")
    ]
    library = {"libmamba": "libmambapy", "classic": "pycosat", "rattler": "py-rattler"}.get(
        name, name
    )
    python = Path(about["root_prefix"]) / "bin" / "python"
    code = f"import importlib.metadata as have; print(have.version({library!r}))"
    asked = subprocess.run(
        [python, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    return f"{name} ({library} {asked.stdout.strip() or 'is not there'})"


def timed(conda: str, env: dict[str, str]) -> tuple[float, float]:
    """Return the wall time and the processor time of one `conda info` in milliseconds."""
    begin = time.perf_counter()
    child = subprocess.Popen(
        [conda, "info"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{conda} info ended with {child.returncode}")
    return (time.perf_counter() - begin) * 1e3, (used.ru_utime + used.ru_stime) * 1e3


class Medians:
    """Medians of times. Each trial has one time of each kind."""

    def __init__(self, trials: Sequence[Mapping[str, float]]) -> None:
        self.trials = trials

    def of(self, kind: str) -> float:
        """Return the median of a kind."""
        return round(statistics.median(trial[kind] for trial in self.trials), 1)

    def added(self, kind: str) -> float:
        """Return the median difference between a kind and the runs without the plugin."""
        differences = [trial[kind] - trial["without"] for trial in self.trials]
        return round(statistics.median(differences), 1)


def main(words: list[str]) -> int:
    """Print the figures. Return 1 if the plugin costs more than it may."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--conda", default=shutil.which("conda"), help="the executable (default: that of PATH)"
    )
    parser.add_argument("--runs", type=int, default=60, help="of each kind")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(words)
    if not arguments.conda:
        parser.error("no conda is on PATH: --conda names one")
    with tempfile.TemporaryDirectory() as name:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        bare, laid = Path(name) / "bare", Path(name) / "laid"
        bare.mkdir()
        laid.mkdir()
        lay(laid)
        python = Path(arguments.conda).with_name("python")
        compiling = [str(python), "-m", "compileall", "-q", str(laid)]
        if subprocess.run(compiling, check=False).returncode:
            compileall.compile_dir(laid, quiet=1)
        without = {**clean, "PYTHONPATH": str(bare)}
        envs = {"without": without, "with": {**clean, "PYTHONPATH": str(laid)}, "again": without}
        if plugins(arguments.conda, envs["without"]) or not plugins(arguments.conda, envs["with"]):
            parser.error(
                "gpuenv is installed into this conda, or conda does not take it from PYTHONPATH"
            )
        chosen = solver(arguments.conda, without)
        trials: list[dict[str, tuple[float, float]]] = []
        for number in range(arguments.runs):
            # Each is first as often as the others: what comes after what is no difference then.
            order = [list(envs)[(number + place) % len(envs)] for place in range(len(envs))]
            trials.append({kind: timed(arguments.conda, envs[kind]) for kind in order})
    wall, work = (Medians([{kind: row[at] for kind, row in trial.items()} for trial in trials])
                  for at in (0, 1))  # fmt: skip
    version = subprocess.run(
        [arguments.conda, "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    figures = {
        "conda": version,
        "solver": chosen,
        "runs": arguments.runs,
        "without_ms": wall.of("without"),
        "added_ms": wall.added("with"),
        "noise_ms": wall.added("again"),
        "without_cpu_ms": work.of("without"),
        "added_cpu_ms": work.added("with"),
        "noise_cpu_ms": work.added("again"),
        "limit_ms": LIMIT,
    }
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        print("\n".join(f"{key:<12} {value}" for key, value in figures.items()))
    if abs(wall.added("again")) > LIMIT / 2:
        return 2
    return int(wall.added("with") > LIMIT)
