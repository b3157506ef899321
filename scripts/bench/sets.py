"""Compare gpuenv with uv on requirement sets of real projects.

    python scripts/tools.py bench sets [--runs N] [--record docs/records/requirement-sets.json]
        [SET ...]

Each set runs as `gpuenv solve` and `uv pip compile`, first online with empty caches, then offline
with the caches of the first runs. Both solve for CPython on Linux with glibc 2.35; gpuenv also for
the GPU of the set, or an H100. Every lock is checked against the METADATA of its wheels (`prove
lock`).

The sets of tests/data/requirement_sets.toml take wheels only. Those of tests/data/gpu_projects.toml
need source distributions: both tools execute code of these packages, with an interpreter of the
set's Python version that they find.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.pairs import TIMING, Case, Run, Tools, time_cases
from common import read_toml
from prove import lock

# Limits of the median ratio of the sets without builds (cold, warm), and of those with builds.
LIMITS = {"cold": 1.5, "warm": 7, "builds": 2}


def cases(tools: Tools) -> Iterator[Case]:
    """Yield each set with empty caches, and again with filled caches if no package is built."""
    for file, builds in (("requirement_sets.toml", False), ("gpu_projects.toml", True)):
        for row in read_toml(f"tests/data/{file}")["sets"]:
            yield from cases_of(tools, row, builds)


def cases_of(tools: Tools, row: dict[str, Any], builds: bool) -> Iterator[Case]:
    """Yield the cases of a set."""
    name, python = row["name"], row["python"]
    source = tools.folder / f"{name}.in"
    source.write_text("\n".join(row["requirements"]))
    gpu, driver = (row["gpu"], row["driver"]) if "driver" in row else ("H100", "580.65.06")
    solve = [tools.gpuenv, "solve", *row["requirements"], "--python", python, "--gpu", gpu]
    solve += ["--driver", driver, "--platform", "linux-x86_64", "--glibc", "2.35"]
    compile_ = [tools.uv, "pip", "compile", str(source), "--python-version", python]
    compile_ += ["--python-platform", "x86_64-manylinux_2_35"]
    if builds:
        compile_ += ["--python", python, "--no-python-downloads"]
    else:
        solve.append("--no-build")
        compile_ += ["--only-binary", ":all:"]
    yield Case(
        name,
        tools.command(solve, "ours", empty="ours"),
        tools.command(compile_, "uv", empty="uv"),
        allowed=lambda uv: max(3 * uv, 10),
        group="builds" if builds else "cold",
        runs=1,
        check=partial(faults, tools, row),
    )
    if not builds:
        yield Case(
            name,
            tools.command([*solve, "--offline"], "ours"),
            tools.command([*compile_, "--offline"], "uv"),
            group="warm",
            check=partial(faults, tools, row),
        )


def faults(tools: Tools, row: dict[str, Any], gpuenv: Run, uv: Run) -> list[str]:
    """Return what is wrong with the lock, or with the refusal where uv has a solution."""
    if gpuenv.status:
        expected = gpuenv.status == 3 and (uv.status in (1, 2) or "differs" in row)
        return [] if expected else [f"exit status {gpuenv.status}, uv {uv.status}"]
    path, metadata = str(tools.folder / "pylock.toml"), str(tools.folder / "metadata")
    return lock.violations(path, row["requirements"], row["python"], metadata)


ARGUMENTS = TIMING


def prove(arguments: Namespace) -> tuple[dict[str, Any], list[str]]:
    """Time the cases."""
    return time_cases(cases, LIMITS, arguments)
