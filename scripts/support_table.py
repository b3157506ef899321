"""Write docs/support.md: the newest release of each framework per GPU and driver branch.

    python scripts/support_table.py [--check]

A cell is a solve (`gpuenv.solve`) from the embedded index snapshot, with no network, for a host of
that GPU, a release of that driver branch and CPython 3.12, or the newest older one that has a
solution. With --check nothing is written, and the exit status is 1 if the table is not what the
data gives.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "resolver"), str(ROOT / "scripts")]

from packaging.version import Version  # noqa: E402

import gpuenv  # noqa: E402  - the path must be set first
from gpuenv.compat import data as matrix  # noqa: E402
from gpuenv.compat import evaluate  # noqa: E402
from gpuenv.errors import NoSolutionError  # noqa: E402
from gpuenv.model import (  # noqa: E402
    ComputeCapability,
    IndexOptions,
    Library,
    Request,
    show_pair,
)
from registry import write  # noqa: E402

TABLE = ROOT / "docs" / "support.md"
DESCRIPTIONS = sorted((ROOT / "matrix_data" / "frameworks").glob("*.toml"))
# Those in the index snapshot: they have a field `since`.
FRAMEWORKS = [path.stem for path in DESCRIPTIONS if "since" in tomllib.loads(path.read_text())]
# Companions of torch whose wheels were scanned.
COMPANIONS = ("vllm", "xformers", "bitsandbytes", "flash-attn", "ctranslate2")
PYTHONS = ("3.12", "3.11", "3.10", "3.9")
# By compute capability, oldest first; those of Grace, Spark and Jetson sit on aarch64 boards.
GPUS = (
    ("linux-x86_64", ("P100",)),
    ("linux-x86_64", ("GTX 1080 Ti", "TITAN Xp", "P4", "P40")),
    ("linux-x86_64", ("V100", "TITAN V")),
    ("linux-x86_64", ("T4", "RTX 2080 Ti", "GTX 1660 Ti", "TITAN RTX")),
    ("linux-x86_64", ("A100", "A30")),
    ("linux-x86_64", ("RTX 3060", "RTX 3090", "A10", "A40", "RTX A6000")),
    ("linux-x86_64", ("L4", "L40S", "RTX 4060", "RTX 4090", "RTX 6000 Ada")),
    ("linux-x86_64", ("H100", "H200")),
    ("linux-aarch64", ("GH200",)),
    ("linux-x86_64", ("B200",)),
    ("linux-aarch64", ("GB200",)),
    ("linux-x86_64", ("B300",)),
    ("linux-aarch64", ("Jetson AGX Thor",)),
    ("linux-x86_64", ("RTX 5070", "RTX 5090", "RTX PRO 6000")),
    ("linux-aarch64", ("GB10",)),
)
HEAD = """# What runs where

The first table of a GPU has the newest release of each framework that works with a driver branch.
Each cell is a solve for this framework alone, on CPython 3.12 with glibc 2.39, from the default
index and the frameworks' own indexes. The word behind a version is the variant.

- "3.11:" means that no release works on CPython 3.12, and that this one works on 3.11.
- `*` means that the release has a warning, which `gpuenv solve` prints.
- A dash means that no release of the index snapshot works. `gpuenv solve` prints the reasons. An
  older release may work if you name it ([Old releases](evidence.md#old-releases)).
- Branches that do not support the GPU are left out.

The second table has companions of torch: the newest release whose own code runs on the GPU with the
driver (rules R1 and R2). `gpuenv solve` also chooses the torch that goes with it. flash-attn has no
wheel on the default index. Its column has the builds of release pages that public lock files name,
with the code that their build script names.

Written by `python scripts/support_table.py` from the data of {date}; a test keeps it fresh.
"""


def serving(data: matrix.CompatibilityData, capability: ComputeCapability) -> list[int]:
    """Return the driver branches that serve a compute capability."""
    first, last = data.first_branches.get(capability), data.last_branches.get(capability)
    oldest = first[0] if first else 0
    newest = last[0] if last else data.newest_branch()
    return [branch for branch in sorted(data.branches) if oldest <= branch <= newest]


@cache
def cell(framework: str, gpu: str, branch: int, platform: str) -> str:
    """Return the newest usable release of a framework."""
    for python in PYTHONS:
        # A release of the branch that is newer than any floor in it.
        host = gpuenv.describe(
            gpus=[gpu], driver=f"{branch}.999", python=python, platform=platform, glibc="2.39"
        )
        try:
            request = Request(frameworks=(framework,))
            plan = gpuenv.solve(request, host, IndexOptions(offline=True), changes=False)
        except NoSolutionError:
            continue
        choice = plan.choices[0]
        doubt = "*" if plan.warnings else ""
        older = f"{python}: " if python != PYTHONS[0] else ""
        return f"{older}{choice.version} {choice.variant}{doubt}"
    return "-"


def cells(framework: str, gpu: str, branches: Sequence[int], platform: str) -> list[str]:
    """Return the cells of a column, for branches from the oldest.

    A newer driver runs all that an older one runs. So what is chosen for both the oldest and the
    newest of some branches is chosen for those between them, which are not solved.
    """
    oldest = cell(framework, gpu, branches[0], platform)
    newest = cell(framework, gpu, branches[-1], platform)
    if oldest == newest:
        return [oldest] * len(branches)
    if len(branches) == 2:
        return [oldest, newest]
    middle = len(branches) // 2
    older = cells(framework, gpu, branches[: middle + 1], platform)
    newer = cells(framework, gpu, branches[middle:], platform)
    return [*older, *newer[1:]]


def companion_cell(
    data: matrix.CompatibilityData, name: str, gpu: str, branch: int, platform: str
) -> str:
    """Return the newest scanned release of a companion whose own code runs on GPU and driver."""
    host = gpuenv.describe(gpus=(gpu,), driver=f"{branch}.999", python="3.12", platform=platform)
    for library in sorted(data.releases(name, platform), key=release_key, reverse=True):
        for choice in [*library.choices()] or [library]:
            facts = evaluate.library_reasons(name, choice, host, data)
            if not any(facts.values()):
                cuda = f" cu{choice.cuda_major}" if choice.cuda_major else ""
                return f"{library.version.partition('+')[0]}{cuda}"
    return "-"


def release_key(library: Library) -> Version:
    """Return the sort key of a release."""
    return Version(library.version)


def grouped(served: Sequence[int], columns: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows of a table, branches with equal answers in one row, the newest first."""
    rows: list[tuple[list[int], list[str]]] = []
    for branch, *texts in zip(served, *columns, strict=True):
        if rows and rows[-1][1] == texts:
            rows[-1][0].append(branch)
        else:
            rows.append(([branch], texts))
    for branches, texts in reversed(rows):
        span = f"R{branches[0]}" + (f" to R{branches[-1]}" if len(branches) > 1 else "")
        yield f"| {span} | {' | '.join(texts)} |"


def lines(data: matrix.CompatibilityData) -> Iterator[str]:
    """Yield the table, a section a group of GPUs, branches with equal answers in one row."""
    yield HEAD.format(date=data.version.partition(".")[0])
    for platform, gpus in GPUS:
        capability = data.compute_capability(gpus[0])
        if capability is None:
            raise SystemExit(f"the data does not know {gpus[0]}")
        yield f"## {', '.join(gpus)} ({show_pair(capability)}, {platform})\n"
        yield f"| driver branch | {' | '.join(FRAMEWORKS)} |"
        yield f"| --- {'| --- ' * len(FRAMEWORKS)}|"
        served = serving(data, capability)
        yield from grouped(
            served, [cells(framework, gpus[0], served, platform) for framework in FRAMEWORKS]
        )
        yield ""
        if not any(data.releases(name, platform) for name in COMPANIONS):
            continue
        yield f"| driver branch | {' | '.join(COMPANIONS)} |"
        yield f"| --- {'| --- ' * len(COMPANIONS)}|"
        columns = [
            [companion_cell(data, name, gpus[0], branch, platform) for branch in served]
            for name in COMPANIONS
        ]
        yield from grouped(served, columns)
        yield ""


def main(arguments: list[str] | None = None) -> int:
    """Write the table, or compare it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; 1 if the table is stale"
    )
    options = parser.parse_args(arguments)
    text = "\n".join(lines(matrix.load()))
    if options.check:
        fresh = TABLE.exists() and TABLE.read_text(encoding="ascii") == text
        print(f"{TABLE} is {'fresh' if fresh else 'stale'}")
        return 0 if fresh else 1
    write(str(TABLE), text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
