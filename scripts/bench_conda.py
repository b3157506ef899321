"""The time of a conda solve by gpuenv over that of rattler alone (a maintainers' tool): bench_conda.py [--runs N].

Both are whole processes, started in turn: `gpuenv solve --backend conda`, and a Python that imports py-rattler, solves
for the same package with the same virtual packages from the same channel, and ends. The channel is the tests' one of
real records, or the one given by --channel. The exit status is 1 if the median ratio is above --most.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALONE = """
import asyncio, os, sys
import rattler
def virtual(text):
    name, version = text.split("=")
    return rattler.GenericVirtualPackage(
        rattler.PackageName(name), rattler.Version(version), rattler.BuildString("0"))
found = asyncio.run(rattler.solve(
    sources=[sys.argv[1]], specs=["pytorch"], platforms=["linux-64", "noarch"],
    virtual_packages=[virtual(text) for text in sys.argv[2:]], channel_relations="disabled"))
assert any(str(one.name.normalized) == "pytorch" for one in found)
sys.stdout.flush()
os._exit(0)
"""
HOSTS = {
    "H100": ("580.65.06", "13.0", "9.0"),
    "V100": ("570.86.10", "12.8", "7.0"),
    "T4": ("550.54.14", "12.4", "7.5"),
    "RTX 5090": ("575.51.03", "12.9", "12.0"),
}


def seconds(command: list[str], env: dict[str, str]) -> float:
    """The wall time of a process that must succeed."""
    begun = time.perf_counter()
    subprocess.run(command, check=True, env=env, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


def main() -> int:
    """Prints a line a host and the median of all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--channel", help="default: the channel of the tests, made anew")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--most", type=float, default=1.5)
    arguments = parser.parse_args()
    ratios: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        url = arguments.channel
        if url is None:
            sys.path.insert(0, str(ROOT / "tests"))
            import conda_channel

            url = conda_channel.make(Path(folder) / "channel")
        env = {**os.environ, "PYTHONPATH": str(ROOT / "resolver"), "RATTLER_CACHE_DIR": f"{folder}/cache"}
        env |= {"PYTHONPYCACHEPREFIX": f"{folder}/compiled"}  # as an installed package has it
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        for gpu, (driver, cuda, arch) in HOSTS.items():
            known = ["__glibc=2.35", "__linux=0", "__unix=0", f"__cuda={cuda}", f"__cuda_arch={arch}"]
            alone = [sys.executable, "-c", ALONE, url, *known]
            host = ["--gpu", gpu, "--driver", driver, "--glibc", "2.35", "--platform", "linux-x86_64"]
            asked = ["--framework", "torch", "--channel", url, "-o", f"{folder}/lock.txt"]
            mine = [sys.executable, "-m", "gpuenv", "solve", "--backend", "conda", *asked, *host]
            seconds(alone, env), seconds(mine, env)
            pairs = [(seconds(alone, env), seconds(mine, env)) for _ in range(arguments.runs)]
            theirs, ours = (statistics.median(side) for side in zip(*pairs, strict=True))
            ratios += [its / other for other, its in pairs]
            print(f"{gpu:10} rattler {theirs * 1000:4.0f} ms, gpuenv {ours * 1000:4.0f} ms, ratio {ours / theirs:.2f}")
    ratio = statistics.median(ratios)
    print(f"median ratio {ratio:.2f}")
    return 1 if ratio > arguments.most else 0


if __name__ == "__main__":
    sys.exit(main())
