"""The TOML files of matrix_data as types. The head of each file describes its fields."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from gpuenv.compat.data import RuleRow
from gpuenv.compat.rows import Pair, Target, Text
from gpuenv.model import Value

RANGE = r"^((==|[<>]=?)\d+(\.\d+)*(,(==|[<>]=?)\d+(\.\d+)*)*|\d+(\.\d+)*(\.\*)?)$"
Versions = Annotated[str, msgspec.Meta(pattern=RANGE)]
CudaOfTorch = Annotated[str, msgspec.Meta(pattern=r"^(\d+\.\d+|none)$")]  # none: a CPU build
Names = Annotated[tuple[Text, ...], msgspec.Meta(min_length=1)]
Platform = Literal["linux-x86_64", "linux-aarch64", "win-amd64"]
GpuClass = Literal["data-centre", "workstation", "geforce", "mining", "jetson", "desktop"]
Release = Annotated[str, msgspec.Meta(pattern=r"^\d+(\.\d+)+$")]
Month = Annotated[str, msgspec.Meta(pattern=r"^\d{4}-(0[1-9]|1[0-2])$")]


class Floor(Value):
    """The oldest driver of a CUDA major."""

    cuda: int
    linux: Release | None = None
    windows: Release | None = None
    source: Text


class Limit(Value):
    """The first or the last branch that drives GPUs."""

    branch: int
    name: Text
    capabilities: tuple[Pair, ...]
    source: Text


class Branch(Value):
    """A driver branch."""

    branch: int
    cuda: Pair
    kind: Literal["long-term", "production", "new-feature", "evaluation"] | None = None
    end_of_life: Month | None = None
    first: Release | None = None
    source: Text


class ForwardCompat(Value):
    """A toolkit that older branches run with cuda-compat. Nothing reads it at run time."""

    cuda: Pair
    branches: Annotated[tuple[int, ...], msgspec.Meta(min_length=1)]
    classes: Annotated[tuple[GpuClass, ...], msgspec.Meta(min_length=1)]
    source: Text


class Drivers(Value):
    """drivers.toml."""

    floor: tuple[Floor, ...]
    first: tuple[Limit, ...]
    last: tuple[Limit, ...]
    branch: tuple[Branch, ...]
    forward_compat: tuple[ForwardCompat, ...]


class Compiler(Value):
    """What the compiler of a toolkit line targets and writes."""

    cuda: Pair
    ptx: Pair
    targets: tuple[Target, ...]
    evidence: Literal["scanned", "documented"]
    file: str = ""
    sha256: str = ""
    source: Text


class Ptx(Value):
    """A PTX language that no known compiler writes."""

    version: Pair
    cuda: Pair
    evidence: Literal["documented"]
    source: Text


class Toolkit(Value):
    """A toolkit release, and the driver that came with it."""

    version: Release
    driver_linux: Release | None = None
    driver_windows: Release | None = None
    confidence: Text
    source: Text


class Toolkits(Value):
    """toolkits.toml."""

    compiler: tuple[Compiler, ...]
    ptx: tuple[Ptx, ...]
    toolkit: tuple[Toolkit, ...]


class GpuGroup(Value, rename={"gpu_class": "class"}):
    """GPUs of one compute capability and class."""

    capability: Pair
    gpu_class: GpuClass
    only_platform: Platform | None = None
    names: Names
    source: Text


class Gpus(Value):
    """gpus.toml."""

    ambiguous: tuple[str, ...]
    group: tuple[GpuGroup, ...]


class Bad(Value):
    """A [[bad]] of libraries.toml."""

    distributions: Names
    versions: Versions
    severity: Literal["avoid", "broken", "unsupported"]
    text: Text
    source: Text
    capabilities: tuple[Pair, ...] = ()
    driver_cuda: Pair | None = None
    platforms: tuple[Platform, ...] = ()
    pythons: Versions | None = None
    with_gpu: bool = False
    instead: Text | None = None


class Side(Value):
    """Releases of distributions."""

    distributions: Names
    versions: Versions


class BadPair(Value):
    """Two releases that must not meet; those to avoid may if there is no other solution."""

    name: Text
    a: Side
    b: Side
    gpus: int = 0
    severity: Literal["avoid", "broken"]
    text: Text
    source: Text


class Rule(RuleRow, forbid_unknown_fields=True):
    """A row of another table of libraries.toml."""

    versions: Versions = ">=0"
    platforms: tuple[Platform, ...] = ()
    source: Text


class Libraries(Value):
    """libraries.toml."""

    bad: tuple[Bad, ...]
    bad_pair: tuple[BadPair, ...]
    compiled_against: tuple[Rule, ...]
    cpu_names: tuple[Rule, ...]
    cpu_wheels: tuple[Rule, ...]
    cxx11_abi: tuple[Rule, ...]
    elsewhere: tuple[Rule, ...]
    kernel_collection: tuple[Rule, ...]
    module_names: tuple[Rule, ...]
    system_cuda: tuple[Rule, ...]
    undeclared: tuple[Rule, ...]


class Companion(Value):
    """A [[row]] of companions.toml."""

    distributions: Names
    versions: Versions
    platforms: tuple[Platform, ...] = ()
    frameworks: dict[str, str] | None = None
    cuda: tuple[int, ...] = ()
    cuda_versions: tuple[CudaOfTorch, ...] = ()
    cudnn: tuple[int, ...] = ()
    numpy: tuple[int, ...] = ()
    source: Text


class ComparesCuda(Side):
    """Releases that compare CUDA versions when they are imported."""

    source: Text


class Companions(Value):
    """companions.toml."""

    row: tuple[Companion, ...]
    compares_cuda: tuple[ComparesCuda, ...]
