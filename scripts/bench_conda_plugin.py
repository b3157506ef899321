"""What gpuenv's plugin costs a command of conda's: `conda info` with the plugin and without it, in turn, medians.

    python scripts/bench_conda_plugin.py --conda /opt/conda/bin/conda [--runs 21] [--json]

gpuenv must not be installed into that conda: the plugin is laid on PYTHONPATH for every second run, compiled, as an
installer leaves it. Milliseconds of wall time; `added_ms` is the difference of the medians and may be 30 at most.
`noise_ms` is that of two series without the plugin: a difference of that size says nothing. The keys with `cpu` are of
the processor's time, which a busy machine disturbs less. Exit status: 1 too slow, 2 too noisy to tell.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIMIT = 30.0  # ms


def lay(folder: Path) -> None:
    """gpuenv and its entry point, as an installation of it would leave them."""
    leave = shutil.ignore_patterns("__pycache__", "scans")
    shutil.copytree(ROOT / "resolver" / "gpuenv", folder / "gpuenv", ignore=leave)
    shutil.copytree(ROOT / "matrix_data", folder / "gpuenv" / "matrix_data", ignore=leave)
    shutil.copy(ROOT / "resolver" / "gpuenv_conda_plugin.py", folder)
    info = folder / "gpuenv-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: gpuenv\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[conda]\ngpuenv = gpuenv_conda_plugin\n")


def plugins(conda: str, env: dict[str, str]) -> bool:
    """Whether that conda has the plugin."""
    done = subprocess.run(
        [conda, "info", "--system"], env=env, capture_output=True, text=True, check=True
    )
    return "conda-gpuenv:" in done.stdout


def solver(conda: str, env: dict[str, str]) -> str:
    """The solver that this conda takes, and the version of its library."""
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
    """Milliseconds of one `conda info`: on the clock, and of the processor."""
    begin = time.perf_counter()
    child = subprocess.Popen(
        [conda, "info"], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"{conda} info ended with {child.returncode}")
    return (time.perf_counter() - begin) * 1e3, (used.ru_utime + used.ru_stime) * 1e3


def main() -> int:
    """Prints the figures; 1 if the plugin costs more than it may."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--conda", default=shutil.which("conda"), help="the executable (default: that of PATH)"
    )
    parser.add_argument("--runs", type=int, default=21, help="of each kind")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
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
        times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in envs}
        for number in range(arguments.runs):
            # Each is first as often as the others: what comes after what is no difference then.
            for place in range(len(envs)):
                kind = list(envs)[(number + place) % len(envs)]
                times[kind].append(timed(arguments.conda, envs[kind]))
    wall, cpu = (
        {kind: statistics.median(pair[at] for pair in times[kind]) for kind in times}
        for at in (0, 1)
    )
    added, noise = wall["with"] - wall["without"], abs(wall["again"] - wall["without"])
    version = subprocess.run(
        [arguments.conda, "--version"], capture_output=True, text=True, check=True
    ).stdout.strip()
    figures = {
        "conda": version,
        "solver": chosen,
        "runs": arguments.runs,
        "without_ms": round(wall["without"], 1),
        "with_ms": round(wall["with"], 1),
        "added_ms": round(added, 1),
        "noise_ms": round(noise, 1),
        "added_cpu_ms": round(cpu["with"] - cpu["without"], 1),
        "noise_cpu_ms": round(abs(cpu["again"] - cpu["without"]), 1),
        "limit_ms": LIMIT,
    }
    if arguments.json:
        print(json.dumps(figures, indent=2))
    else:
        print("\n".join(f"{key:<12} {value}" for key, value in figures.items()))
    return 2 if noise > LIMIT / 2 else int(added > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
