"""Compare the time of a conda solve by gpuenv with that of rattler alone.

    python scripts/tools.py bench conda [--channel URL] [--runs N]

Both are whole processes that run in turn: `gpuenv solve --backend conda`, and a Python that imports
py-rattler, solves for the same package with the same virtual packages from the same channel, and
writes nothing. The channel is that of the tests, which has real records, or --channel. The output
has a line for each host: the median wall times in ms, the median ratio of the wall times of a pair,
and the same ratio for the processor time (user and system, of all processes). The exit status is 1
if the ratio over all hosts is above --most, or the ratio of one host is above --most-of-one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import gpuenv
from common import ROOT
from gpuenv.resolve.conda import virtual_packages

ALONE = """
import asyncio, os, sys
import rattler
def virtual(text):
    name, version, build = text.split("=")
    return rattler.GenericVirtualPackage(
        rattler.PackageName(name), rattler.Version(version), rattler.BuildString(build))
found = asyncio.run(rattler.solve(
    sources=[sys.argv[1]], specs=sys.argv[2].split("|"), platforms=["linux-64", "noarch"],
    virtual_packages=[virtual(text) for text in sys.argv[3:]], channel_relations="disabled"))
assert found
sys.stdout.flush()
os._exit(0)
"""
HOSTS = (
    ("H100", "580.65.06"), ("H100", "570.86.10"), ("H200", "550.54.14"), ("A100", "535.161.08"),
    ("V100", "580.65.06"), ("V100", "570.86.10"), ("T4", "550.54.14"), ("L4", "575.51.03"),
    ("B200", "570.86.10"), ("RTX 5090", "575.51.03"), ("GTX 1080 Ti", "570.86.10"), ("none", None),
)  # fmt: skip


def spent(command: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Return (wall time, processor time) in s of a process that must succeed, and its children."""
    nothing = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    begun = time.perf_counter()
    pid = os.posix_spawn(command[0], command, env, file_actions=nothing)
    _, status, used = os.wait4(pid, 0)
    wall = time.perf_counter() - begun
    if status:
        raise SystemExit(f"failed: {' '.join(command)}")
    return wall, used.ru_utime + used.ru_stime


def ratios(arguments: argparse.Namespace, folder: str, url: str) -> list[list[float]]:
    """Return the ratios of wall time of each host, and print a line for each."""
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "resolver"),
        "RATTLER_CACHE_DIR": f"{folder}/cache",
    }
    env |= {"PYTHONPYCACHEPREFIX": f"{folder}/compiled"}  # as an installed package has it
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    wall_ratios = []
    for gpu, driver in HOSTS:
        host = gpuenv.describe(
            gpus=[gpu], driver=driver, python="3.12", platform="linux-x86_64", glibc="2.35"
        )
        alone = [
            sys.executable,
            "-c",
            ALONE,
            url,
            "pytorch",
            *("=".join(package) for package in virtual_packages.of_host(host)),
        ]
        flags = ["--gpu", gpu, *(["--driver", driver] if driver else []), "--glibc", "2.35"]
        asked = [
            "--framework",
            "torch",
            "--channel",
            url,
            "-o",
            f"{folder}/lock.txt",
            "--platform",
            "linux-x86_64",
        ]
        mine = [sys.executable, "-m", "gpuenv", "solve", "--backend", "conda", *asked, *flags]
        spent(alone, env), spent(mine, env)
        pairs = [(spent(alone, env), spent(mine, env)) for _ in range(arguments.runs)]
        wall = [its[0] / other[0] for other, its in pairs]
        work = statistics.median(its[1] / other[1] for other, its in pairs)
        theirs, ours = (
            statistics.median(times[0] * 1000 for times in side)
            for side in zip(*pairs, strict=True)
        )
        print(
            f"{gpu:11} {driver or '-':10} rattler {theirs:4.0f}, gpuenv {ours:4.0f}, "
            f"ratio {statistics.median(wall):.2f}, of processor time {work:.2f}",
            flush=True,
        )
        wall_ratios.append(wall)
    return wall_ratios


def main(words: list[str]) -> int:
    """Print a line for each host and the median of all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--channel", help="default: the channel of the tests, made anew")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--most", type=float, default=1.5)
    parser.add_argument("--most-of-one", type=float, default=1.5)
    arguments = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        url = arguments.channel
        if url is None:
            import conda_channel

            url = conda_channel.make(Path(folder) / "channel")
        wall_ratios = ratios(arguments, folder, url)
    ratio, worst = (
        statistics.median([ratio for of_host in wall_ratios for ratio in of_host]),
        max(map(statistics.median, wall_ratios)),
    )
    print(f"ratio of all {ratio:.2f}, of the worst host {worst:.2f}")
    return 1 if ratio > arguments.most or worst > arguments.most_of_one else 0
