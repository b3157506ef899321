"""Run many processes on one cache and four targets, old and new, and record the failures.

    python scripts/tools.py prove stress [--processes N] [--rounds N] [--record FILE]

Each round of each process solves, which uses the cache, and syncs one of two locks into one of four
targets. Two targets exist at the start, two do not. Every run must succeed. At the end, each target
must have the packages of one of the locks, and no temporary file may be left.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

import forked
from common import write_record
from gpuenv.__main__ import main as entry_point
from gpuenv.install.environment_files import read_packages
from index_server import IndexServer
from small_wheels import make_lock, make_wheel, write_lock

TARGETS = ("old-1", "old-2", "new-1", "new-2")


def gpuenv(folder: Path, *words: str) -> str:
    """Run a command in the folder. Return the failure as text, "" without one."""
    environment = {
        **os.environ,
        "GPUENV_CACHE_DIR": str(folder / "cache"),
        "GPUENV_CONFIG_FILE": "",
    }
    done = forked.run(entry_point, ["gpuenv", *words], folder, environment)
    return "" if done.returncode == 0 else f"{words[0]}: {done.returncode}: {done.stderr[-300:]}"


def sync(folder: Path, number: int, target: str) -> str:
    """Sync a lock into a target."""
    words = ["sync", f"pylock.{number}.toml", "--target", target, "--gpu", "none"]
    return gpuenv(folder, *words, "--find-links", "wheels", "--wait", "3000", "--no-verify")


def work(folder: Path, url: str, seed: int, rounds: int) -> Counter[str]:
    """Run the rounds of one process. Count the failures."""
    source = random.Random(seed)  # noqa: S311  no secret
    failures: Counter[str] = Counter()
    for number in range(rounds):
        lock = f"pylock.p{seed}.toml"
        solve = ["solve", "demo", "--index-url", url, "--gpu", "none", "-o", lock]
        if number % 2:
            solve.append("--refresh")
        for failure in (
            gpuenv(folder, *solve),
            sync(folder, source.choice((1, 2)), source.choice(TARGETS)),
        ):
            if failure:
                failures[failure] += 1
        if number % 10 == 9:
            print(seed, number + 1, sum(failures.values()), flush=True)
    return failures


def prepare(folder: Path) -> None:
    """Make two locks and the old targets."""
    wheels = folder / "wheels"
    wheels.mkdir()
    beta = make_wheel(wheels, "beta", "1.0", files={"beta_data/x.txt": "x" * 100_000})
    for number, other in ((1, "gamma"), (2, "delta")):
        alpha = make_wheel(wheels, "alpha", f"{number}.0", script="alpha", requires=["beta"])
        lock = make_lock(alpha, beta, make_wheel(wheels, other, "1.0", script=other))
        write_lock(folder / f"pylock.{number}.toml", lock)
    for target in TARGETS[:2]:
        if failure := sync(folder, 1, target):
            raise RuntimeError(failure)


def wrong_targets(folder: Path) -> list[str]:
    """Return the targets that match none of the locks, and the files that runs left."""
    wrong = []
    for target in TARGETS:
        packages = read_packages(str(folder / target))
        names = {(package.name, package.version) for package in packages}
        whole = all(
            (folder / target / path).exists() for package in packages for path in package.files
        )
        locks = [
            {("alpha", f"{number}.0"), ("beta", "1.0"), (other, "1.0")}
            for number, other in ((1, "gamma"), (2, "delta"))
        ]
        if names not in locks or not whole:
            wrong.append(f"{target}: {sorted(names)}")
        beside = folder / f".{target}.gpuenv"
        left = set(os.listdir(beside)) - {"previous"} if beside.exists() else set()
        wrong += [f"{target}: {name} is left" for name in left]
    return wrong + [path.name for path in folder.iterdir() if path.name.endswith(".tmp")]


def main(words: list[str]) -> int:
    """Run the processes. Return 1 if something failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--record", metavar="FILE", type=Path)
    arguments = parser.parse_args(words)
    forked.LIMIT = 3600.0  # a busy machine
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name, IndexServer() as server:
        folder = Path(name)
        server.add("demo", "1.0", ["other"])
        server.add("other", "1.0", padding=5000)
        prepare(folder)
        with multiprocessing.Pool(arguments.processes) as pool:
            jobs = [
                (folder, server.url, seed, arguments.rounds) for seed in range(arguments.processes)
            ]
            failures: Counter[str] = sum(pool.starmap(work, jobs, chunksize=1), Counter())
        wrong = wrong_targets(folder)
    record = {
        "date": time.strftime("%Y-%m-%d"),
        "host": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, "
        f"{platform.python_implementation()} {platform.python_version()}",
        "processes": arguments.processes,
        "rounds": arguments.rounds,
        "targets": len(TARGETS),
        "seconds": round(time.monotonic() - begin),
        "failures": sum(failures.values()),
        "wrong targets": len(wrong),
        "texts": [*failures, *wrong][:20],
    }
    write_record(record, arguments.record)
    return int(bool(failures or wrong))
