"""What a conda record says about GPUs: its CUDA, its cuDNN, and its device code if known.

A record is the dict of repodata.json with "url" and "channel" added: name, version, build,
build_number, depends, constrains, subdir, sha256. Nothing is guessed: what a record does not say is
None.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..model import Code, CudaVersion, Value, major_minor, parse_pair
from ..requirements import conda_versions
from ..requirements.versions import normalize_name
from .rows import Pair, decode

Record = Mapping[str, Any]
Virtual = tuple[str, str, str]  # a virtual package: name, version, build

# Packages whose version is the CUDA of an environment. `cudatoolkit` is from before CUDA 12.
TOOLKITS = ("cuda-version", "cudatoolkit", "pytorch-cuda")
CUDNN = ("libcudnn", "cudnn")
CUDA_PACKAGES = (*TOOLKITS, *CUDNN)
_PYTHON = {"python", "python_abi"}
# Where the names differ: {package of conda-forge: the libraries in it}. A wheel of NVIDIA is named
# nvidia-LIBRARY or nvidia-LIBRARY-cuN, most packages of conda-forge libLIBRARY.
_LIBRARIES = {
    "cudnn": ("cudnn",),
    "cuda-cudart": ("cuda-runtime",),
    "cuda-cupti": ("cuda-cupti",),
    "cuda-nvrtc": ("cuda-nvrtc",),
    "cuda-nvtx": ("nvtx",),
    "cusparselt": ("cusparselt",),
    "nccl": ("nccl",),
    "libnvshmem3": ("nvshmem",),
    "cudatoolkit": (
        "cublas",
        "cuda-runtime",
        "cuda-nvrtc",
        "cufft",
        "curand",
        "cusolver",
        "cusparse",
    ),
}
_DOTTED = re.compile(r"cuda([0-9]+\.[0-9]+)(?:\.[0-9]+)?(?=_|$)")
_SHORT = re.compile(r"cuda[_]?([0-9]{2})([0-9])(?=_|py|h|$)")
_CUDNN = re.compile(r"cudnn([0-9]+(?:\.[0-9]+)+)(?=_|$)")


class Row(Value):
    """One build of a carrier.

    `cuda` None is a CPU build. `bundled` says that cuDNN is inside the package: then no cuDNN
    package is needed. `glob` matches the build strings of the build and of its siblings for other
    Pythons.
    """

    framework: str
    name: str
    version: str
    channel: str
    cuda: CudaVersion | None
    cudnn: str | None
    bundled: bool
    glob: str
    depends: tuple[str, ...]
    code: Code

    @property
    def variant(self) -> str:
        """The variant as conda-forge names it: cuda129, cpu."""
        return "cpu" if self.cuda is None else f"cuda{self.cuda[0]}{self.cuda[1]}"

    @property
    def subject(self) -> str:
        """How reasons name the build: "pytorch 2.8.0 (cuda129)"."""
        return f"{self.name} {self.version} ({self.variant})"


class CodeRow(Value, forbid_unknown_fields=False):
    """The device code of builds of a carrier, from their recipe.

    `versions`, `cuda` and `builds` are ranges of versions, CUDA versions and build numbers.
    `made_by` None: the CUDA of the build made the PTX. Builds of cupy name the first release of a
    CUDA major, whichever toolkit made them.
    """

    carrier: str
    channel: str
    subdirs: tuple[str, ...]
    versions: str
    cuda: str
    builds: str = "*"
    sass: tuple[str, ...]
    ptx: tuple[str, ...]
    made_by: Pair | None = None
    source: str


class _CarrierRow(Value, forbid_unknown_fields=False):
    framework: str
    package: str
    carrier: str
    watch: tuple[str, ...] = ()


class _DistributionRow(Value, forbid_unknown_fields=False):
    package: str
    distribution: str


class ConstraintRow(Value, forbid_unknown_fields=False):
    """What the builds of a package cannot stand beside, although their records do not say so."""

    package: str
    versions: str
    spec: str
    source: str


class _CarriersFile(Value, forbid_unknown_fields=False):
    carriers: tuple[_CarrierRow, ...]
    distributions: tuple[_DistributionRow, ...]
    code: tuple[CodeRow, ...]
    constraints: tuple[ConstraintRow, ...]


class Carriers:
    """matrix_data/conda/carriers.json: the packages that hold a framework, and the code of builds.

    `packages` and `carriers` give, for each framework, the package that users name and the package
    that holds the code. `distributions` gives the Python distribution that a package installs,
    where the names differ. `watched` gives the framework of each package whose changes the conda
    plugin checks. `code_rows` has the rows of device code, `constraints` what records
    do not say.
    """

    def __init__(self, folder: str) -> None:
        """Read the file. `folder` is that of the data. Raises DataError if the file is damaged."""
        content = decode(os.path.join(folder, "conda", "carriers.json"), _CarriersFile)
        self.packages = {row.framework: row.package for row in content.carriers}
        self.carriers = {row.framework: row.carrier for row in content.carriers}
        self.distributions = {row.package: row.distribution for row in content.distributions}
        self.watched = {
            name: row.framework
            for row in content.carriers
            for name in (row.package, row.carrier, *row.watch)
        }
        self.code_rows = content.code
        self.constraints = content.constraints
        self._framework_of = {
            name: row.framework for row in content.carriers for name in (row.package, row.carrier)
        }

    def framework_of(self, package: str) -> str | None:
        """Return the framework that a conda package is a name of: pytorch -> torch."""
        return self._framework_of.get(package)

    def providers(self, records: Iterable[Record]) -> dict[str, Record]:
        """Return {Python distribution: the package that may provide it}.

        A package that depends on Python is a distribution; an @EXPLICIT file does not say it.
        """
        providers = {}
        for record in records:
            name, depends = record["name"], record.get("depends", _PYTHON) or ()
            if _PYTHON & set(map(conda_versions.name_of, depends)):
                providers[self.distributions.get(name) or normalize_name(name)] = record
        return providers

    def row(self, record: Record) -> Row | None:
        """Return a record of a carrier as a row; None for other packages."""
        framework = self.framework_of(record["name"])
        if framework is None or self.carriers[framework] != record["name"]:
            return None
        cuda, glob = cuda_of(record)
        cudnn, bundled = cudnn_of(record)
        return Row(
            framework=framework,
            name=record["name"],
            version=record["version"],
            channel=channel_name(str(record.get("channel", ""))),
            cuda=cuda,
            cudnn=cudnn,
            bundled=bundled,
            glob=glob,
            depends=tuple(record.get("depends") or ()),
            code=self.code(record, cuda),
        )

    def code(self, record: Record, cuda: CudaVersion | None) -> Code:
        """Return the device code of a build, from its recipe; unknown without a row."""
        if cuda is None:
            return Code(sass=(), ptx=(), source="a CPU build has no device code")
        # A mirror of the same builds has another name: then the name of the build decides.
        is_dotted = _DOTTED.search(record["build"])  # py3.9_cuda11.7_cudnn8.5.0_0
        by_build = "pytorch" if is_dotted else "conda-forge"
        channel = channel_name(str(record.get("channel", "")))
        if channel not in {row.channel for row in self.code_rows}:
            channel = by_build
        for row in self.code_rows:
            if row.channel == channel == by_build and describes(row, record, cuda):
                made_by = parse_pair(row.made_by) if row.made_by else cuda
                return Code(sass=row.sass, ptx=row.ptx, made_by=made_by, source=row.source)
        release = f"{record['name']} {record['version']}"
        source = f"no row of {release} for CUDA {cuda[0]}.{cuda[1]}"
        return Code(sass=None, source=source)


def describes(row: CodeRow, record: Record, cuda: CudaVersion) -> bool:
    """Return whether a row of `Carriers.code_rows` is about a record of its channel."""
    return (
        record["name"] == row.carrier
        and record["subdir"] in row.subdirs
        and conda_versions.contains(row.versions, record["version"])
        and conda_versions.contains(row.cuda, f"{cuda[0]}.{cuda[1]}")
        and conda_versions.contains(row.builds, str(record.get("build_number", 0)))
    )


def channel_name(url: str) -> str:
    """Return the last part of a channel's URL without its label: conda-forge, pytorch."""
    return url.partition("/label/")[0].rstrip("/").rpartition("/")[2]


def cuda_of(record: Record) -> tuple[CudaVersion | None, str]:
    """Return a build's CUDA (None: a CPU build), and a glob for the builds of its siblings."""
    build = str(record["build"])
    dotted = _DOTTED.search(build)
    if dotted:
        return parse_pair(dotted.group(1)), f"*{dotted.group(0)}_*"
    short = _SHORT.search(build)
    if short:
        return (int(short.group(1)), int(short.group(2))), f"*{short.group(0)}*"
    if "cpu" in build:
        return None, "*cpu*"
    return cuda_dependency(record), build


def cudnn_of(record: Record) -> tuple[str | None, bool]:
    """Return the oldest cuDNN that a build accepts, and whether cuDNN is inside the package."""
    for name, spec in _dependencies(record):
        if name in CUDNN:
            return conda_versions.lower_bound(spec), False
    named = _CUDNN.search(str(record.get("build")))
    return (named.group(1), True) if named else (None, False)


def libraries_of(record: Record) -> tuple[str, ...]:
    """Return the CUDA libraries in a package, as wheels of NVIDIA name them: ("cudnn",)."""
    name = str(record["name"])
    libraries = _LIBRARIES.get(name, ())
    if not libraries and name.startswith("lib"):
        libraries = (name.removeprefix("lib"),)
    _, has_cudnn_inside = cudnn_of(record)
    return (*libraries, "cudnn") if has_cudnn_inside else libraries


def python_of(record: Record) -> tuple[int, int] | None:
    """Return the one Python that a build is for; None if it is for several."""
    for name, spec in _dependencies(record):
        bound = conda_versions.lower_bound(spec)
        if name == "python_abi" or (name == "python" and "<" in spec and bound):
            version = major_minor(bound or "")
            if version is not None:
                return version
    return None


def toolkit_of(record: Record) -> CudaVersion | None:
    """Return the CUDA version that a record of TOOLKITS stands for; None for other records."""
    if record["name"] not in TOOLKITS:
        return None
    return major_minor(str(record["version"]))


def cuda_dependency(record: Record) -> CudaVersion | None:
    """Return the CUDA of the toolkit that a library depends on; None if it depends on none."""
    for name, spec in _dependencies(record):
        bound = conda_versions.lower_bound(spec)
        if name in TOOLKITS and bound is not None:
            return major_minor(f"{bound}.0")
    return None


def _dependencies(record: Record) -> Iterator[tuple[str, str]]:
    """Yield the name and the range of each dependency."""
    for dependency in record.get("depends") or ():
        name, spec, _ = conda_versions.split(dependency)
        yield name, spec


def newest(records: Sequence[Record]) -> list[Record]:
    """Sort records: newest version first, then the highest build number, then the build's name."""

    def release(record: Record) -> tuple[Any, int]:
        version = conda_versions.version(str(record["version"]))
        return version, int(record.get("build_number", 0))

    by_name = sorted(records, key=lambda record: (str(record["build"]), str(record.get("url", ""))))
    return sorted(by_name, key=release, reverse=True)
