"""Whole processes: gpuenv's solves against those of `uv pip compile` and `pip lock`, in one run.

    python scripts/tools.py bench solve [--runs 9] [--sets a,c,d,e,f] [--json]
    python scripts/tools.py bench solve --where

gpuenv runs as users have it: its wheel is installed into a new environment. The commands of a set
run in turn, one after the other, so that a drift of the machine meets all alike. Prints medians,
the range, ratios, peak memory, and for every limit whether it is met. The sets:

a  torch, from gpuenv's snapshot: the first run of all, and later ones
c  torch and tensorflow
d  all five frameworks, for a driver of CUDA 12
e  torch and 40 common packages, which are on the live index
f  a set without a solution: time to the refusal

All ask the index that gpuenv finds as the default one, and pip and uv are told no other. uv is
given its interpreter, or it spends half a second looking for one. `--where` says where the time of
set a goes (see bench_where.py).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from common import ROOT
from gpuenv.index.default_index import default_index
from gpuenv.interpreters import find_uv

COMMON = """
numpy pandas scipy scikit-learn matplotlib requests pydantic fastapi uvicorn sqlalchemy httpx
aiohttp boto3 click rich typer pytest ipython jupyterlab seaborn plotly pillow nltk transformers
datasets accelerate sentencepiece polars pyarrow statsmodels dask celery redis django flask sphinx
mlflow wandb tensorboard networkx
"""
# What the ways of the frameworks are called where nobody chooses a way.
WAYS = [
    "torch",
    "tensorflow[and-cuda]",
    "jax[cuda12]",
    "cupy-cuda12x[ctk]",
    "onnxruntime-gpu[cuda,cudnn]",
]
FRAMEWORKS = ["torch", "tensorflow", "jax", "cupy", "onnxruntime"]
NEW, OLD = "580.65.06", "550.54.14"  # drivers of CUDA 13.0 and 12.4
MAX_MIB = 200.0  # of gpuenv
PATIENCE = 120.0  # seconds for uv to refuse a set
DEAD = {
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "HTTP_PROXY": "http://127.0.0.1:9",
}  # any request would fail


def uv_program() -> str:
    """Return the path of uv. Without uv, end the script."""
    return find_uv() or sys.exit("uv is not installed")


def install(folder: str, checkout: str | None = None) -> str:
    """Install the wheel of a checkout, by default this one, into a new environment, as users do.

    The environment of the tests has many packages, some of which run code when Python starts.

    Returns:
        The folder of its programs.
    """
    environment = os.path.join(folder, "environment")
    venv.create(environment)
    scripts = os.path.join(environment, "bin")
    python = os.path.join(scripts, "python")
    words = [uv_program(), "pip", "install", "--quiet", "--compile-bytecode", "--python", python]
    checkout = checkout or str(ROOT)
    variables = {**os.environ, "UV_DEFAULT_INDEX": default_index().url}
    subprocess.run([*words, checkout], check=True, env=variables)
    return scripts


class Command(NamedTuple):
    """A process to measure.

    `before` prepares its caches; `status` is the exit status that it must have.
    """

    words: list[str]
    environment: dict[str, str]
    before: Callable[[], None]
    status: int = 0
    runs: int | None = None  # None: as many as are asked for


class Limit(NamedTuple):
    """gpuenv's median may be `factor` times the other's, or so many seconds where there is none."""

    ours: str
    factor: float
    other: str = ""


class Bench:
    """Where the commands run, and what they are.

    Args:
        folder: an empty folder.
        runs: how often each command runs.
        scripts: the folder with gpuenv's program (see install).
    """

    def __init__(self, folder: str, runs: int, scripts: str) -> None:
        self.folder, self.runs = folder, runs
        self.gpuenv = os.path.join(scripts, "gpuenv")
        self.uv = uv_program()
        self.caches = {
            name: self.path(name)
            for name in ("none", "cold", "warm", "uv-warm", "uv-cold", "pip-warm")
        }
        dropped = (
            "PYTHONDONTWRITEBYTECODE",
            "PYTHONPATH",
            "PIP_FIND_LINKS",
            "PIP_EXTRA_INDEX_URL",
            "GPUENV_CACHE_DIR",
        )
        self.plain = {name: text for name, text in os.environ.items() if name not in dropped}
        self.plain["PIP_CONFIG_FILE"] = os.devnull
        default = default_index()
        self.index = default.url
        if default.cert:
            self.plain.setdefault("PIP_CERT", default.cert)
            self.plain.setdefault("SSL_CERT_FILE", default.cert)
        self.environment = {**self.plain, "UV_NO_CONFIG": "1", "UV_DEFAULT_INDEX": self.index}

    def path(self, name: str) -> str:
        """Return a path in the folder of this run."""
        return os.path.join(self.folder, name)

    def ours(
        self, frameworks: Iterable[str], more: Iterable[str] = (), driver: str = NEW
    ) -> list[str]:
        """Return the command of a solve for a described host."""
        asked = [word for name in frameworks for word in ("--framework", name)]
        return [self.gpuenv, "solve", *asked, *more, "--gpu", "H100", "--driver", driver]

    def of_ours(self, cache: str, *, offline: bool = True) -> dict[str, str]:
        """Return gpuenv's environment variables, as users have them: so the snapshot is used."""
        return {**self.plain, **(DEAD if offline else {}), "GPUENV_CACHE_DIR": self.caches[cache]}

    def of_uv(
        self, name: str, requirements: Iterable[str], *flags: str, python: str = sys.executable
    ) -> list[str]:
        """Return uv's command for the same request. It writes a file."""
        source = self.path(f"{name}.in")
        with open(source, "w", encoding="ascii") as file:
            file.writelines(f"{line}\n" for line in requirements)
        plain = [
            self.uv,
            "pip",
            "compile",
            "--quiet",
            "--python",
            python,
            source,
            "-o",
            self.path("uv.txt"),
        ]
        return [*plain, *flags]

    def empty(self, cache: str) -> Callable[[], None]:
        """Return a function that empties a cache."""

        def make() -> None:
            self.forget()
            shutil.rmtree(self.caches[cache], ignore_errors=True)

        return make

    def forget(self) -> None:
        """Remove the output of earlier runs."""
        for name in ("uv.txt", "pylock.p.toml"):
            if os.path.exists(self.path(name)):
                os.unlink(self.path(name))

    def measure(
        self, command: Command, patience: float | None = None
    ) -> tuple[float, float] | None:
        """Return (wall seconds, peak MiB) of one run; None if it took longer than `patience`."""
        command.before()
        with open(self.path("log"), "w+b") as log:
            start = time.perf_counter()
            child = subprocess.Popen(
                command.words,
                cwd=self.folder,
                env=command.environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
            status, usage = _ended(child.pid, start, patience)
            wall = time.perf_counter() - start
            child.returncode = os.waitstatus_to_exitcode(status)
            if patience is not None and child.returncode < 0:
                return None
            if child.returncode != command.status:
                log.seek(0)
                sys.exit(
                    f"{' '.join(command.words)} ended with {child.returncode}:\n"
                    f"{log.read().decode()}"
                )
        return wall, usage.ru_maxrss / 1024

    def compare(self, commands: dict[str, Command]) -> dict[str, Any]:
        """Run all commands in turn. Return {name: {"times_s", "peak_mib"}}.

        `times_s` is [] if a command took longer than its patience.
        """
        figures: dict[str, Any] = {name: {"times_s": [], "peak_mib": 0.0} for name in commands}
        for turn in range(self.runs):
            for name, command in commands.items():
                if turn >= (self.runs if command.runs is None else command.runs):
                    continue
                result = self.measure(command, PATIENCE if command.status else None)
                if result is not None:
                    figures[name]["times_s"].append(result[0])
                    figures[name]["peak_mib"] = max(figures[name]["peak_mib"], result[1])
        return figures

    def warm(self, *commands: Command) -> None:
        """Run each command once without counting it, to fill caches and to write bytecode."""
        for command in commands:
            self.measure(command, PATIENCE if command.status else None)


def _ended(pid: int, start: float, patience: float | None) -> tuple[int, Any]:
    """Return the status and the resources of a child. It is killed after `patience` seconds."""
    if patience is None:
        return os.wait4(pid, 0)[1:]
    while True:
        ended, status, usage = os.wait4(pid, os.WNOHANG)
        if ended:
            return status, usage
        if time.perf_counter() - start > patience:
            os.kill(pid, 9)
            return os.wait4(pid, 0)[1:]
        time.sleep(0.002)


def _nothing() -> None:
    """Leave the caches as they are."""


def _offline_and_warm(
    bench: Bench, letter: str, frameworks: list[str], ways: list[str], driver: str, *flags: str
) -> dict[str, Command]:
    """Return the commands of gpuenv and of a uv with a warm cache, both without a network."""
    # uv prefers the versions in an existing output file, so the file is removed before each run.
    words = bench.of_uv(letter, ways, "--cache-dir", bench.caches["uv-warm"])
    uv = Command(words, bench.environment, bench.forget)
    ours = Command(
        bench.ours(frameworks, flags, driver), bench.of_ours("cold"), bench.empty("cold")
    )
    bench.warm(uv, ours)
    return {
        "gpuenv, no network": ours,
        "uv, offline and warm": uv._replace(words=[*uv.words, "--offline"]),
    }


def set_a(bench: Bench) -> tuple[dict[str, Command], list[Limit]]:
    """Return the commands and limits for torch from the snapshot."""
    commands = _offline_and_warm(bench, "a", ["torch"], ["torch"], NEW)
    cold = bench.of_uv("a", ["torch"], "--cache-dir", bench.caches["uv-cold"])
    first = "gpuenv, first run"
    commands[first] = Command(bench.ours(["torch"]), bench.of_ours("none"), bench.empty("none"))
    commands["uv, online and cold"] = Command(cold, bench.environment, bench.empty("uv-cold"))
    return commands, [
        Limit(first, 0.3, "uv, online and cold"),
        Limit("gpuenv, no network", 6, "uv, offline and warm"),
    ]


def set_c(bench: Bench) -> tuple[dict[str, Command], list[Limit]]:
    """Return the commands and limits for torch with tensorflow."""
    commands = _offline_and_warm(bench, "c", FRAMEWORKS[:2], WAYS[:2], NEW)
    return commands, [Limit("gpuenv, no network", 6, "uv, offline and warm")]


def set_d(bench: Bench) -> tuple[dict[str, Command], list[Limit]]:
    """Return the commands and limits for all five frameworks.

    uv may take any release of them. In another row it gets the releases that gpuenv chose.
    """
    commands = _offline_and_warm(bench, "d", FRAMEWORKS, WAYS, OLD, "--default-index-only")
    with open(bench.path("pylock.toml"), encoding="utf-8") as file:
        text = file.read()
    pins = [f"{way}=={_version(text, way.partition('[')[0])}" for way in WAYS]
    pinned = bench.of_uv("d-pinned", pins, "--cache-dir", bench.caches["uv-warm"])
    warm = Command(pinned, bench.environment, bench.forget)
    bench.warm(warm)
    commands["uv, offline and warm, gpuenv's pins"] = warm._replace(words=[*pinned, "--offline"])
    return commands, [Limit("gpuenv, no network", 6, "uv, offline and warm")]


def _version(lock: str, name: str) -> str:
    """Return the public version of a package in a lock."""
    import tomllib

    version: str = next(
        package["version"] for package in tomllib.loads(lock)["packages"] if package["name"] == name
    )
    return version.partition("+")[0]


def set_e(bench: Bench) -> tuple[dict[str, Command], list[Limit]]:
    """Return the commands and limits for torch and common packages from the live index.

    The first runs have empty caches. The later runs have no network.
    """
    more = COMMON.split()
    cold = Command(
        bench.ours(["torch"], more), bench.of_ours("cold", offline=False), bench.empty("cold")
    )
    warm = Command(
        bench.ours(["torch"], more), bench.of_ours("warm", offline=False), bench.empty("warm")
    )
    uv = Command(
        bench.of_uv("e", ["torch", *more], "--cache-dir", bench.caches["uv-cold"]),
        bench.environment,
        bench.empty("uv-cold"),
        runs=3,  # most of a minute each, where the index serves no metadata files
    )
    words = [
        sys.executable,
        "-m",
        "pip",
        "lock",
        "--quiet",
        "-r",
        bench.path("e.in"),
        "-o",
        bench.path("pylock.p.toml"),
    ]
    pip = Command(
        [*words, "--index-url", bench.index, "--cache-dir", bench.caches["pip-warm"]],
        bench.plain,
        bench.forget,
        runs=3,
    )
    bench.warm(warm, pip)
    # pip keeps only what the index lets it keep by its headers; without any it is never warm.
    kept = any(files for _, _, files in os.walk(bench.caches["pip-warm"]))
    pips = "pip lock, warm" if kept else "pip lock, which could keep nothing"
    commands = {
        "gpuenv, online and empty": cold,
        "uv, online and empty": uv,
        "gpuenv, offline and warm": Command(
            [*bench.ours(["torch"], more), "--offline"], bench.of_ours("warm"), _nothing
        ),
        pips: pip,
    }
    return commands, [Limit("gpuenv, online and empty", 1.5, "uv, online and empty")]


def set_f(bench: Bench) -> tuple[dict[str, Command], list[Limit]]:
    """Return the commands and limits for an impossible request."""
    asked = ["torch==2.15.0", "tensorflow[and-cuda]", "numpy<1"]
    ours = Command(
        bench.ours(["torch==2.15.0", "tensorflow"], ["numpy<1"]),
        bench.of_ours("cold", offline=False),
        bench.empty("cold"), status=3,
    )  # fmt: skip
    uv = Command(
        bench.of_uv("f", asked, "--cache-dir", bench.caches["uv-warm"]),
        bench.environment,
        bench.forget,
        status=1,
        runs=2,
    )
    bench.warm(ours)
    return {"gpuenv, to the refusal": ours, "uv, to the refusal": uv}, [
        Limit("gpuenv, to the refusal", 10)
    ]


# The title of each set, and its commands and limits.
SETS = {
    "a": ("torch from the snapshot", set_a),
    "c": ("torch and tensorflow", set_c),
    "d": ("all five frameworks", set_d),
    "e": ("torch and 40 common packages from the live index", set_e),
    "f": ("a set without a solution", set_f),
}


def judged(figures: dict[str, Any], limits: list[Limit]) -> list[dict[str, Any]]:
    """Return the verdict of each limit, for medians and for gpuenv's peak memory."""
    verdicts: list[dict[str, Any]] = []
    for limit in limits:
        mine, other = (
            figures[limit.ours]["times_s"],
            figures[limit.other]["times_s"] if limit.other else [1.0],
        )
        value = statistics.median(mine) / statistics.median(other) if other else 0.0
        what = f"{limit.ours} / {limit.other}" if limit.other else f"{limit.ours}, in seconds"
        verdicts.append(
            {"what": what, "value": value, "limit": limit.factor, "met": value <= limit.factor}
        )
    peak = max(row["peak_mib"] for name, row in figures.items() if name.startswith("gpuenv"))
    what, is_met = "gpuenv's peak memory, in MiB", peak <= MAX_MIB
    verdicts.append({"what": what, "value": peak, "limit": MAX_MIB, "met": is_met})
    return verdicts


def show(letter: str, title: str, figures: dict[str, Any], verdicts: list[dict[str, Any]]) -> None:
    """Print the table of one set."""
    print(f"({letter}) {title}")
    for name, row in figures.items():
        if not row["times_s"]:
            print(f"  {name:<36} no answer within {PATIENCE:.0f} s")
            continue
        low, median, high = (how(row["times_s"]) * 1e3 for how in (min, statistics.median, max))
        print(
            f"  {name:<36} {median:9.1f} ms  ({low:.1f} to {high:.1f}, {len(row['times_s'])} runs)"
            f"  {row['peak_mib']:6.1f} MiB"
        )
    for verdict in verdicts:
        print(
            f"  {verdict['what']}: {verdict['value']:.2f}, limit {verdict['limit']:g}: "
            f"{'pass' if verdict['met'] else 'over'}"
        )


def run_set(letter: str, arguments: argparse.Namespace, scripts: str) -> dict[str, Any]:
    """Run the commands of a set. Print the result unless --json is given, and return it."""
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(folder, arguments.runs, scripts)
        title, commands_of = SETS[letter]
        commands, limits = commands_of(bench)
        figures = bench.compare(commands)
    verdicts = judged(figures, limits)
    if not arguments.json:
        show(letter, title, figures, verdicts)
    return {"commands": figures, "limits": verdicts}


def main(words: list[str]) -> None:
    """Run the comparisons and print them. Exit with 1 if a limit is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--sets", default=",".join(SETS), metavar="a,b,...")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--where", action="store_true", help="where gpuenv's time goes for set a")
    arguments = parser.parse_args(words)
    letters = [letter.strip() for letter in arguments.sets.split(",")]
    if unknown := [letter for letter in letters if letter not in SETS]:
        parser.error(f"--sets: there is no set {', '.join(unknown)}; there are {', '.join(SETS)}")
    with tempfile.TemporaryDirectory() as folder:
        scripts = install(folder)
        if arguments.where:
            from bench_where import where

            where(scripts, arguments.runs, as_json=arguments.json)
            return
        everything = {letter: run_set(letter, arguments, scripts) for letter in letters}
    if arguments.json:
        print(json.dumps(everything, indent=1))
    if not all(verdict["met"] for result in everything.values() for verdict in result["limits"]):
        sys.exit(1)
