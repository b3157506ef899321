"""Write docs/support.md: the newest releases per GPU and driver branch, and drivers by CUDA.

    python scripts/tools.py docs support [--check]

A cell is a solve (`gpuenv.solve`) from the embedded index snapshot, with no network, for a host of
that GPU, a release of that driver branch and CPython 3.12, or the newest older one that has a
solution. With --check nothing is written, and the exit status is 1 if the table is not what the
data gives.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from packaging.version import Version

import gpuenv
from common import ROOT
from data.registry import write
from gpuenv.compat import data as matrix
from gpuenv.compat import evaluate
from gpuenv.errors import NoSolutionError
from gpuenv.model import (
    ComputeCapability,
    IndexOptions,
    Library,
    Request,
    show_pair,
)

TABLE = ROOT / "docs" / "support.md"
DESCRIPTIONS = sorted((ROOT / "matrix_data" / "frameworks").glob("*.toml"))
# Those in the index snapshot: they have a field `since`.
FRAMEWORKS = sorted(
    (path.stem for path in DESCRIPTIONS if "since" in tomllib.loads(path.read_text())),
    key=lambda name: (name != "torch", name),
)
OLDEST = 525  # the first branch that runs builds for CUDA 12; older ones run those for CUDA 11
# Companions of torch whose wheels were scanned.
COMPANIONS = ("vllm", "xformers", "bitsandbytes", "flash-attn")
PYTHON = "3.12"
# By compute capability, oldest first; those of Grace, Spark and Jetson sit on aarch64 boards.
GPUS = (
    ("linux-x86_64", ("P100",)),
    ("linux-x86_64", ("GTX 1080 Ti", "TITAN Xp", "P4", "P40")),
    ("linux-x86_64", ("V100", "TITAN V")),
    ("linux-x86_64", ("T4", "RTX 2080 Ti", "GTX 1660 Ti", "TITAN RTX")),
    ("linux-x86_64", ("A100", "A30")),
    ("linux-x86_64", ("RTX 3060", "RTX 3080", "RTX 3090", "A10", "A40", "RTX A6000")),
    ("linux-x86_64", ("L4", "L40S", "RTX 4060", "RTX 4080", "RTX 4090", "RTX 6000 Ada")),
    ("linux-x86_64", ("H100", "H200")),
    ("linux-aarch64", ("GH200",)),
    ("linux-x86_64", ("B200",)),
    ("linux-aarch64", ("GB200",)),
    ("linux-x86_64", ("B300",)),
    ("linux-aarch64", ("Jetson AGX Thor",)),
    ("linux-x86_64", ("RTX 5070", "RTX 5080", "RTX 5090", "RTX PRO 6000")),
    ("linux-aarch64", ("GB10",)),
)
HEAD = """# Which torch for my GPU

1. Find the compute capability of your GPU.
2. Find it with your driver (`nvidia-smi` shows it) below. The row has the newest torch, cupy, jax,
   onnxruntime and tensorflow that run there, and their builds.

`gpuenv solve torch` does the same for your machine, with the versions of everything beside it.

| GPU | compute capability | drivers that support it |
| --- | --- | --- |"""
FRAMEWORKS_HEAD = """
## Frameworks

| compute capability | driver | {names} |
| --- | --- | {lines} |"""
NOTES = """
- Older drivers run builds for CUDA 11 only: `gpuenv solve torch --driver 470`.
- `*` means that the release has a warning, which `gpuenv solve` prints.
- A dash means that no release of the [index snapshot](data.md#the-index-snapshot) works. An older
  one may, if you name it.

Each cell is a solve on CPython 3.12 with glibc 2.39, with the data of {date}
(`python scripts/tools.py docs support`)."""
COMPANIONS_HEAD = """
## Companions of PyTorch

The newest release whose own code runs there. `gpuenv solve` also chooses the torch that goes with
it. The column of flash-attn has builds of its release page: the default index has none.

| compute capability | driver | {names} |
| --- | --- | {lines} |"""
CUDA_HEAD = """
## CUDA and drivers

A build with machine code for your GPU runs from these drivers for Linux on: {floors}. Code that the
driver compiles (PTX) needs the driver of its CUDA:
"""


def serving(data: matrix.CompatibilityData, capability: ComputeCapability) -> list[int]:
    """Return the driver branches that serve a compute capability."""
    first, last = data.first_branches.get(capability), data.last_branches.get(capability)
    oldest = max(first[0] if first else 0, OLDEST)
    newest = last[0] if last else data.newest_branch()
    return [branch for branch in sorted(data.branches) if oldest <= branch <= newest]


@cache
def cell(framework: str, gpu: str, branch: int, platform: str) -> str:
    """Return the newest usable release of a framework."""
    # A release of the branch that is newer than any floor in it.
    host = gpuenv.describe(
        gpus=[gpu], driver=f"{branch}.999", python=PYTHON, platform=platform, glibc="2.39"
    )
    try:
        request = Request(frameworks=(framework,))
        plan = gpuenv.solve(request, host, IndexOptions(offline=True), changes=False)
    except NoSolutionError:
        return "-"
    choice = plan.choices[0]
    return f"{choice.version} {choice.variant}{'*' if plan.warnings else ''}"


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
    host = gpuenv.describe(gpus=(gpu,), driver=f"{branch}.999", python=PYTHON, platform=platform)
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


def spans(served: Sequence[int], columns: Sequence[Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield (branches, cells) of a GPU, branches with equal answers together."""
    rows: list[tuple[list[int], str]] = []
    for branch, *texts in zip(served, *columns, strict=True):
        if rows and rows[-1][1] == " | ".join(texts):
            rows[-1][0].append(branch)
        else:
            rows.append(([branch], " | ".join(texts)))
    for branches, text in rows:
        yield f"R{branches[0]}" + (f" to R{branches[-1]}" if len(branches) > 1 else ""), text


def merged(rows: Iterable[tuple[str, str, str]]) -> Iterator[str]:
    """Yield rows from (capability, branches, cells): equal answers together, new drivers first."""
    groups: dict[tuple[str, str], list[str]] = {}
    for capability, span, text in rows:
        groups.setdefault((span, text), []).append(capability)
    for (span, text), gpus in sorted(groups.items(), key=lambda row: row[0][0][-3:], reverse=True):
        yield f"| {', '.join(gpus)} | {span} | {text} |"


def lines(data: matrix.CompatibilityData) -> Iterator[str]:
    """Yield the page."""
    frameworks, companions = [], []
    yield HEAD
    for platform, gpus in GPUS:
        capability = data.compute_capability(gpus[0])
        if capability is None:
            raise SystemExit(f"the data does not know {gpus[0]}")
        shown = show_pair(capability) + (" (aarch64)" if platform.endswith("aarch64") else "")
        served = serving(data, capability)
        first, last = (
            f"{word} R{branches[capability][0]} " if capability in branches else ""
            for word, branches in (("from", data.first_branches), ("to", data.last_branches))
        )
        yield f"| {', '.join(gpus)} | {shown} | {first}{last}|"
        columns = [cells(framework, gpus[0], served, platform) for framework in FRAMEWORKS]
        frameworks += [(shown, *row) for row in spans(served, columns)]
        columns = [
            [companion_cell(data, name, gpus[0], branch, platform) for branch in served]
            for name in COMPANIONS
        ]
        companions += [(shown, *row) for row in spans(served, columns)]
    for head, names, rows in (
        (FRAMEWORKS_HEAD, FRAMEWORKS, frameworks),
        (COMPANIONS_HEAD, COMPANIONS, companions),
    ):
        yield head.format(names=" | ".join(names), lines=" | ".join("---" for _ in names))
        yield from merged(rows)
        if head == FRAMEWORKS_HEAD:
            yield NOTES.format(date=data.version.partition(".")[0])
    versions = sorted(set(data.branches.values()), reverse=True)
    floors = (
        (major, data.driver_floor((major, 0), "linux"))
        for major in dict.fromkeys(major for major, _ in versions)
    )
    texts = [f"CUDA {major} from {floor[0]}" for major, floor in floors if floor]
    yield CUDA_HEAD.format(floors=", ".join(texts))
    for major in dict.fromkeys(major for major, _ in versions):
        drivers = (
            f"{show_pair(cuda)} from {data.first_driver(cuda, 'linux')}"
            for cuda in versions
            if cuda[0] == major
        )
        yield f"- CUDA {', '.join(drivers)}"
    yield ""


def main(words: list[str]) -> int:
    """Write the table, or compare it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--check", action="store_true", help="write nothing; 1 if the table is stale"
    )
    options = parser.parse_args(words)
    text = "\n".join(lines(matrix.load()))
    if options.check:
        fresh = TABLE.exists() and TABLE.read_text(encoding="ascii") == text
        print(f"{TABLE} is {'fresh' if fresh else 'stale'}")
        return 0 if fresh else 1
    write(str(TABLE), text)
    return 0
