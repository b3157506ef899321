"""What a conda record says about GPUs: its CUDA, its cuDNN, its device code where that is known.

A record is the dict of repodata.json with "url" and "channel" beside: name, version, build, build_number, depends,
constrains, subdir, sha256. Nothing of a record is guessed: what it does not say is None.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ..errors import DataError
from ..model import Code, CudaVersion, Value, parse_pair
from ..requirements import conda_versions

Record = Mapping[str, Any]
Virtual = tuple[str, str, str]  # a virtual package: name, version, build

# Packages whose version is the CUDA that an environment has; `cudatoolkit` is the one of before CUDA 12.
TOOLKITS = ("cuda-version", "cudatoolkit", "pytorch-cuda")
CUDNN = ("libcudnn", "cudnn")
_DOTTED = re.compile(r"cuda([0-9]+\.[0-9]+)(?:\.[0-9]+)?(?=_|$)")
_SHORT = re.compile(r"cuda[_]?([0-9]{2})([0-9])(?=_|py|h|$)")
_CUDNN = re.compile(r"cudnn([0-9]+(?:\.[0-9]+)+)(?=_|$)")


class Row(Value):
    """One build of a carrier. `glob` is what its build and its siblings (other Pythons) have in common.

    `cuda` None is a CPU build; `bundled` says that cuDNN is inside the package, and then no cuDNN package is needed.
    """

    framework: str
    name: str
    version: str
    build: str
    channel: str
    subdir: str
    cuda: CudaVersion | None
    cudnn: str | None
    bundled: bool
    glob: str
    python: tuple[int, int] | None
    depends: tuple[str, ...]
    code: Code


class Carriers:
    """matrix_data/conda/carriers.json: the packages that have a framework, and the code of their builds."""

    def __init__(self, folder: str) -> None:
        """`folder` is that of the matrix data. DataError if the file is damaged."""
        path = os.path.join(folder, "conda", "carriers.json")
        try:
            with open(path, encoding="utf-8") as file:
                data = json.load(file)
            self.packages = {str(one["framework"]): str(one["package"]) for one in data["carriers"]}
            self.carriers = {str(one["framework"]): str(one["carrier"]) for one in data["carriers"]}
            # Where the names differ: {package: the Python distribution that it installs}.
            self.distributions = {str(one["package"]): str(one["distribution"]) for one in data["distributions"]}
            self._code: list[dict[str, Any]] = data["code"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: {error}") from None

    def framework_of(self, package: str) -> str | None:
        """The framework that a conda package is the name of: pytorch -> torch."""
        return next((one for one, name in self.packages.items() if package in (name, self.carriers[one])), None)

    def row(self, record: Record, framework: str) -> Row:
        """A record of a carrier as a row."""
        cuda, glob = cuda_of(record)
        cudnn, bundled = cudnn_of(record)
        return Row(
            framework=framework,
            name=record["name"],
            version=record["version"],
            build=record["build"],
            channel=channel_name(str(record.get("channel", ""))),
            subdir=record["subdir"],
            cuda=cuda,
            cudnn=cudnn,
            bundled=bundled,
            glob=glob,
            python=python_of(record),
            depends=tuple(record.get("depends") or ()),
            code=self.code(record, cuda),
        )

    def code(self, record: Record, cuda: CudaVersion | None) -> Code:
        """The architectures of a build, by the recipe that made it; of a CPU build none, else unknown."""
        if cuda is None:
            return Code(sass=(), ptx=(), source="a CPU build has no device code")
        text, where = f"{cuda[0]}.{cuda[1]}", channel_name(str(record.get("channel", "")))
        for one in self._code:
            same = one["carrier"] == record["name"] and record["subdir"] in one["subdirs"]
            # A mirror or a local channel of the same builds has another name: the build's version and CUDA tell.
            of_channel = where == one["channel"] or where not in {row["channel"] for row in self._code}
            ranged = conda_versions.contains(one["versions"], record["version"]) and conda_versions.contains(one["cuda"], text)
            numbered = conda_versions.contains(one.get("builds", "*"), str(record.get("build_number", 0)))
            dotted = is_dotted(record) == (one["channel"] == "pytorch")
            if same and of_channel and ranged and numbered and dotted:
                # Builds of cupy name a CUDA's first release, whichever made them.
                made_by = parse_pair(one["made_by"]) if "made_by" in one else cuda
                return Code(sass=tuple(one["sass"]), ptx=tuple(one["ptx"]), made_by=made_by, source=one["source"])
        return Code(sass=None, source=f"no row of {record['name']} {record['version']} for CUDA {text}")


def is_dotted(record: Record) -> bool:
    """Whether a build is named as the PyTorch channel names them: py3.9_cuda11.7_cudnn8.5.0_0."""
    return _DOTTED.search(record["build"]) is not None


def channel_name(url: str) -> str:
    """The last part of a channel's URL: conda-forge, pytorch; a label after it does not matter."""
    return url.partition("/label/")[0].rstrip("/").rpartition("/")[2]


def cuda_of(record: Record) -> tuple[CudaVersion | None, str]:
    """(the CUDA that a build is for, a glob of its build and its siblings'); (None, ...) for a CPU build."""
    build = str(record["build"])
    dotted = _DOTTED.search(build)
    if dotted:
        return parse_pair(dotted.group(1)), f"*{dotted.group(0)}_*"
    short = _SHORT.search(build)
    if short:
        return (int(short.group(1)), int(short.group(2))), f"*{short.group(0)}*"
    if "cpu" in build:
        return None, "*cpu*"
    for dependency in record.get("depends") or ():
        name, spec, _ = conda_versions.split(dependency)
        if name in TOOLKITS:
            least = conda_versions.lower_bound(spec)
            try:
                return parse_pair(".".join(f"{least}.0".split(".")[:2])), build
            except ValueError:
                continue
    return None, build


def cudnn_of(record: Record) -> tuple[str | None, bool]:
    """(the oldest cuDNN that a build takes, whether it is inside the package)."""
    for dependency in record.get("depends") or ():
        name, spec, _ = conda_versions.split(dependency)
        if name in CUDNN:
            return conda_versions.lower_bound(spec), False
    named = _CUDNN.search(str(record["build"]))
    return (named.group(1), True) if named else (None, False)


def python_of(record: Record) -> tuple[int, int] | None:
    """The one Python that a build is for; None if it is for several."""
    for dependency in record.get("depends") or ():
        name, spec, _ = conda_versions.split(dependency)
        least = conda_versions.lower_bound(spec)
        if name == "python_abi" or (name == "python" and "<" in spec and least):
            try:
                return parse_pair(".".join((least or "").split(".")[:2]))
            except ValueError:
                continue
    return None


def least_cuda(record: Record) -> str | None:
    """The `__cuda` that a record asks for, by what it depends on or by what it constrains; "" is any."""
    for dependency in (*(record.get("depends") or ()), *(record.get("constrains") or ())):
        name, spec, _ = conda_versions.split(dependency)
        if name == "__cuda":
            return conda_versions.lower_bound(spec) or ""
    return None


def toolkit_of(record: Record) -> CudaVersion | None:
    """The CUDA of a record of TOOLKITS; None for another."""
    if record["name"] not in TOOLKITS:
        return None
    try:
        return parse_pair(".".join(str(record["version"]).split(".")[:2]))
    except ValueError:
        return None


def cuda_dependency(record: Record) -> CudaVersion | None:
    """Return the CUDA that a library is for, by the toolkit that it depends on; None if by none."""
    for dependency in record.get("depends") or ():
        name, spec, _ = conda_versions.split(dependency)
        if name in TOOLKITS:
            least = conda_versions.lower_bound(spec)
            if least is not None:
                return toolkit_of({"name": name, "version": f"{least}.0"})
    return None


def newest(records: Sequence[Record]) -> list[Record]:
    """Newest version first, then the highest build number, then by the build's name."""

    def place(one: Record) -> tuple[conda_versions.Version, int]:
        return conda_versions.version(one["version"]), int(one.get("build_number", 0))

    by_name = sorted(records, key=lambda one: (str(one["build"]), str(one.get("url", ""))))
    return sorted(by_name, key=place, reverse=True)
