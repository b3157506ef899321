"""docs/support.md: the newest releases for each GPU and driver branch, and drivers by CUDA.

A cell is a solve (`gpuenv.solve`) from the embedded index snapshot, with no network, for a host of
that GPU, a release of that driver branch and CPython 3.12, or the newest older one that has a
solution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import groupby

from packaging.version import Version

import gpuenv
from common import ROOT, read_toml
from gpuenv.compat import data as matrix
from gpuenv.compat import evaluate
from gpuenv.errors import NoSolutionError
from gpuenv.model import Host, IndexOptions, Python, Request, show_pair

# The oldest driver branch that runs builds for CUDA 12; older ones run those for CUDA 11.
OLDEST = 525
# Companions of torch whose wheels were scanned.
COMPANIONS = ("vllm", "xformers", "bitsandbytes", "flash-attn")
# By compute capability, oldest first.
GPUS = """\
GTX 980, M60
P100
GTX 1060, GTX 1070, GTX 1080 Ti, TITAN Xp, P4, P40
V100, TITAN V
T4, GTX 1650, GTX 1660 Ti, RTX 2060, RTX 2080 Ti
A100, A30
RTX 3060, RTX 3070, RTX 3080, RTX 3090, A10, A40, RTX A6000
L4, L40S, RTX 4060, RTX 4070, RTX 4080, RTX 4090, RTX 6000 Ada
H100, H200
GH200
B200
GB200
B300
Jetson AGX Thor
RTX 5060, RTX 5070, RTX 5080, RTX 5090, RTX PRO 6000
GB10
"""
PAGE = """\
# Which torch for my GPU

For each GPU, the table has the newest torch that runs on it with its newest driver, according to
the [offline data](data.md#the-index-snapshot). `gpuenv solve torch` answers for the driver that you
have, with the versions of everything else.

R580 are the drivers 580.x (`nvidia-smi` shows yours), and cu126 is a build for CUDA 12.6. For
another driver or framework, look up the compute capability of your GPU in the next tables.

| GPU | compute capability | drivers that support it | torch |
|---|---|---|---|
{gpus}

## Frameworks

{frameworks}

- Older drivers run builds for CUDA 11 only: `gpuenv solve torch --driver 470`.
- `*` means that the release has a warning, which `gpuenv solve` prints.
- A dash means that no release of the [index snapshot](data.md#the-index-snapshot) works. An older
  one may, if you name it.

Each cell is a solve on CPython 3.12 with glibc 2.39, with the data of {date}.

## Companions of PyTorch

The newest release whose own code runs there. `gpuenv solve` also chooses the torch that goes with
it. The column of flash-attn has builds of its release page: the default index has none.

{companions}

## CUDA and drivers

A build with machine code for your GPU runs from these drivers for Linux on: {floors}. Code that the
driver compiles (PTX) needs the driver of its CUDA:

{drivers}
"""
DATA = matrix.load()
# The rows of a table: (compute capability as shown, a host for each driver branch from the oldest).
Rows = Sequence[tuple[str, dict[int, Host]]]


def hosts_of(name: str) -> dict[int, Host]:
    """Return a host with a GPU for each driver branch that supports it, from the oldest.

    InputError if the data does not know the GPU.
    """
    base = Host(os="linux", machine="x86_64", python=Python(version=(3, 12)))
    host = gpuenv.describe(base, gpus=[name], python="3.12", glibc="2.39")
    capability = host.gpus[0].compute_capability
    oldest, _ = DATA.first_branches.get(capability, (OLDEST, ""))
    newest, _ = DATA.last_branches.get(capability, (DATA.newest_branch(), ""))
    return {
        # .999: a release of the branch that is newer than any floor in it.
        branch: gpuenv.describe(host, driver=f"{branch}.999")
        for branch in sorted(DATA.branches)
        if max(oldest, OLDEST) <= branch <= newest
    }


@cache
def framework_cell(framework: str, host: Host) -> str:
    """Return the newest release of a framework that a host can use, and its build."""
    request = Request(frameworks=(framework,))
    try:
        plan = gpuenv.solve(request, host, IndexOptions(offline=True), changes=False)
    except NoSolutionError:
        return "-"
    choice = plan.choices[0]
    return f"{choice.version} {choice.variant}{'*' if plan.warnings else ''}"


def companion_cell(name: str, host: Host) -> str:
    """Return the newest scanned release of a companion whose own code runs on a host."""
    releases = DATA.releases(name, host.platform)
    for library in sorted(releases, key=lambda library: Version(library.version), reverse=True):
        for choice in [*library.choices()] or [library]:
            if not evaluate.library_reasons(name, choice, host, DATA):
                cuda = f" cu{choice.cuda_major}" if choice.cuda_major else ""
                return f"{library.version.partition('+')[0]}{cuda}"
    return "-"


def cells(cell: Callable[[str, Host], str], name: str, hosts: Sequence[Host]) -> list[str]:
    """Return the cell of each host, from the oldest driver to the newest.

    A newer driver runs what an older one runs: if the cells at both ends are equal, all are.
    """
    first, last = cell(name, hosts[0]), cell(name, hosts[-1])
    if first == last or len(hosts) == 2:
        return [first, *[last] * (len(hosts) - 1)]
    middle = len(hosts) // 2
    return cells(cell, name, hosts[:middle]) + cells(cell, name, hosts[middle:])


def table(cell: Callable[[str, Host], str], names: Sequence[str], rows: Rows) -> Iterator[str]:
    """Yield the lines of a table: drivers and GPUs with equal cells together, new drivers first."""
    yield f"| compute capability | driver | {' | '.join(names)} |"
    yield f"|---|---|{'---|' * len(names)}"
    groups: dict[tuple[str, str], list[str]] = {}
    for capability, hosts in rows:
        columns = [cells(cell, name, [*hosts.values()]) for name in names]
        texts = map(" | ".join, zip(*columns, strict=True))
        for text, same in groupby(zip(texts, hosts, strict=True), key=lambda row: row[0]):
            branches = [f"R{branch}" for _, branch in same]
            span = " to ".join(dict.fromkeys((branches[0], branches[-1])))
            groups.setdefault((span, text), []).append(capability)
    newest_first = sorted(groups.items(), key=lambda group: group[0][0][-3:], reverse=True)
    for (span, text), capabilities in newest_first:
        yield f"| {', '.join(capabilities)} | {span} | {text} |"


def framework_names() -> list[str]:
    """Return the frameworks of the index snapshot, which have a field `since`; torch is first."""
    paths = (ROOT / "matrix_data" / "frameworks").glob("*.toml")
    names = [path.stem for path in paths if "since" in read_toml(path)]
    return sorted(names, key=lambda name: (name != "torch", name))


def files() -> dict[str, str]:
    """Return the page."""
    gpus, rows = [], []
    for names in GPUS.splitlines():
        hosts = hosts_of(names.partition(",")[0])
        newest = hosts[max(hosts)]
        capability = newest.gpus[0].compute_capability
        shown = show_pair(capability) + (" (aarch64)" if newest.machine == "aarch64" else "")
        drivers = [
            f"{word} R{branches[capability][0]} "
            for word, branches in (("from", DATA.first_branches), ("to", DATA.last_branches))
            if capability in branches
        ]
        torch = framework_cell("torch", newest)
        gpus.append(f"| {names} | {shown} | {''.join(drivers)}| {torch} |")
        rows.append((shown, hosts))
    floors, lines = [], []
    versions = sorted(set(DATA.branches.values()), reverse=True)
    for major, minors in groupby(versions, key=lambda version: version[0]):
        if floor := DATA.driver_floor((major, 0), "linux"):
            floors.append(f"CUDA {major} from {floor[0]}")
        first = [f"{show_pair(cuda)} from {DATA.first_driver(cuda, 'linux')}" for cuda in minors]
        lines.append(f"- CUDA {', '.join(first)}")
    text = PAGE.format(
        gpus="\n".join(gpus),
        frameworks="\n".join(table(framework_cell, framework_names(), rows)),
        date=DATA.version.partition(".")[0],
        companions="\n".join(table(companion_cell, COMPANIONS, rows)),
        floors=", ".join(floors),
        drivers="\n".join(lines),
    )
    return {"docs/support.md": text}
