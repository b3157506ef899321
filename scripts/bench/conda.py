"""Time conda solves beside rattler alone, and what the plugin adds to a conda command.

    python scripts/tools.py bench conda [--runs N] [--record FILE] [CASE ...]

A solve runs beside a Python that imports py-rattler, solves for the same package with the same
virtual packages from the same channel, and writes nothing. The channel is that of the tests, which
has real records. gpuenv may take half a second more: its own start takes longer than such a solve.
The case `plugin` is `conda info --system` by the conda on PATH, with and without
gpuenv on its PYTHONPATH; gpuenv must not be installed into that conda.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import conda_channel
import gpuenv
from bench.pairs import Case, Run, Tools, bench, run
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
HOSTS = {
    "H100": "580.65.06",
    "H200": "550.54.14",
    "A100": "535.161.08",
    "V100": "570.86.10",
    "T4": "550.54.14",
    "B200": "570.86.10",
    "RTX 5090": "575.51.03",
    "GTX 1080 Ti": "570.86.10",
}


def cases(tools: Tools) -> Iterator[Case]:
    """Yield a solve for each host, and the plugin if there is a conda."""
    url = conda_channel.make(tools.folder / "channel")
    tools.variables["RATTLER_CACHE_DIR"] = str(tools.folder / "rattler")
    for gpu, driver in HOSTS.items():
        host = gpuenv.describe(
            gpus=[gpu], driver=driver, python="3.12", platform="linux-x86_64", glibc="2.35"
        )
        virtual = ["=".join(package) for package in virtual_packages.of_host(host)]
        solve = [tools.gpuenv, "solve", "--backend", "conda", "--framework", "torch"]
        solve += ["--channel", url, "-o", "lock.txt", "--gpu", gpu, "--driver", driver]
        solve += ["--platform", "linux-x86_64", "--glibc", "2.35"]
        ours = tools.command(solve, "cache")
        alone = [tools.python, "-c", ALONE, url, "pytorch", *virtual]
        yield Case(
            gpu,
            ours,
            tools.command(alone, "cache"),
            allowed=lambda rattler: rattler + 0.5,
            prepare=partial(run, ours, tools.folder),
        )
    if conda := shutil.which("conda"):
        packages = next((Path(tools.python).parent.parent / "lib").glob("python*/site-packages"))
        plugged = tools.folder / "plugged"
        plugged.mkdir()
        for path in packages.glob("gpuenv*"):
            (plugged / path.name).symlink_to(path)
        info = [conda, "info", "--system"]
        yield Case(
            "plugin",
            tools.command(info, "cache", PYTHONPATH=str(plugged)),
            tools.command(info, "cache"),
            allowed=lambda conda: conda + 0.02,
            runs=60,
            check=unexpected_plugins,
        )


def unexpected_plugins(gpuenv: Run, conda: Run) -> list[str]:
    """Return what is wrong with the two sides: only the first one has the plugin."""
    has_plugin = ["conda-gpuenv:" in run.output for run in (gpuenv, conda)]
    return [] if has_plugin == [True, False] else [f"who has the plugin: {has_plugin}"]


def main(words: list[str]) -> int:
    """Run the benchmark."""
    return bench(__doc__ or "", cases, words)
